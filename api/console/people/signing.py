"""Signing in and out: the same people, sessions and lock-out as the admin's.

People with one-time codes enter one on a second page, after the password. Wrong codes count as
wrong passwords do, and lock out.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from axes.handlers.proxy import AxesProxyHandler
from django.conf import settings
from django.contrib.auth import login, logout
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_login_failed
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_POST

from api import clock
from api.console.page import layout
from api.console.people import company
from clusterstate.actions.people import codes

_WAITS: Final = "stowage.waits-for-code"
"""Key in a session: the person whose password was right, and until when a code is accepted. It also
has a hash of the password: after a change of the password the code does not sign in."""
_PATIENCE: Final = 300
WRONG: Final = "This code is wrong, has expired or was used before."


class SignIn(LoginView):
    """The sign-in page; a person who is already signed in is redirected."""

    template_name = "console/sign_in.html"
    redirect_authenticated_user = True
    extra_context = {"title": "Sign in"}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the template's context, with the company's sign-in URL if there is one."""
        more = {"company": settings.OIDC_TITLE if company.is_on() else ""}
        return super().get_context_data(**kwargs) | more

    def get_default_redirect_url(self) -> str:
        """Return the URL after a sign-in that no page requested."""
        return reverse("console:fleet")

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Sign in a person whose password is right, or ask for the code if they have codes."""
        person = form.get_user()
        if codes.since(person) is None:
            return super().form_valid(form)
        self.request.session[_WAITS] = {
            "person": person.pk,
            "password": person.get_session_auth_hash(),
            "backend": person.backend,
            "until": time.time() + _PATIENCE,
            "next": self.get_success_url(),
        }
        return HttpResponseRedirect(reverse("console:sign-in-code"))

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer, with the content security policy of all pages."""
        response = super().dispatch(request, *args, **kwargs)
        render = getattr(response, "render", None)
        if render is not None:
            response = render()
        assert isinstance(response, HttpResponse)
        return layout.guarded(response)


def code(request: HttpRequest) -> HttpResponse:
    """Show the form for the second factor after the right password, and sign in with it."""
    waits = request.session.get(_WAITS) or {}
    person = User.objects.filter(pk=waits.get("person", 0), is_active=True).first()
    if person is None or time.time() > waits["until"] or not _is_password_of(person, waits):
        request.session.pop(_WAITS, None)
        return layout.guarded(HttpResponseRedirect(reverse("console:sign-in")))
    problem = ""
    if request.method == "POST":
        problem = tried(request, person, request.POST.get("code", ""))
        if not problem:
            following = request.session.pop(_WAITS)["next"]
            login(request, person, backend=waits["backend"])
            return layout.guarded(HttpResponseRedirect(following))
    context = {"problem": problem, "name": person.get_username()}
    status = 403 if problem else 200
    page = layout.page(request, "sign_in_code.html", "Sign in", context, status=status)
    return layout.guarded(page)


def _is_password_of(person: User, waits: Mapping[str, Any]) -> bool:
    return constant_time_compare(waits.get("password", ""), person.get_session_auth_hash())


def tried(request: HttpRequest, person: User, code: str) -> str:
    """Return the error of a code, empty if it is right; a right code is then used up.

    A wrong one counts as a wrong password: after too many, the lock-out answers in place of the
    page.
    """
    credentials = {"username": person.get_username()}
    if not AxesProxyHandler.is_allowed(request, credentials):
        request.axes_locked_out = True  # type: ignore[attr-defined]  # AxesMiddleware answers
        return WRONG
    try:
        if codes.check(person, code[:40], now=clock.now()):
            return ""
    except codes.TooManyTries as error:
        seconds = max(1, round((error.until - clock.now()).total_seconds()))
        return f"Too many wrong codes. Try again in {seconds} s."
    user_login_failed.send(sender=__name__, credentials=credentials, request=request)
    return WRONG


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session."""
    logout(request)
    return layout.guarded(HttpResponseRedirect(reverse("console:sign-in")))

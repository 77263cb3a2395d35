"""Signing in and out: the same people, sessions and lock-out as the admin's."""

from typing import Any

from django.contrib.auth import logout
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.views.decorators.http import require_POST

from api.console import frame


class SignIn(LoginView):
    """The sign-in; who is signed in already goes on at once."""

    template_name = "console/sign_in.html"
    redirect_authenticated_user = True
    extra_context = {"title": "Sign in"}

    def get_default_redirect_url(self) -> str:
        """Return where one goes who asked for no page."""
        return reverse("console:fleet")

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer, with the policy of all pages."""
        response = super().dispatch(request, *args, **kwargs)
        render = getattr(response, "render", None)
        if render is not None:
            response = render()
        assert isinstance(response, HttpResponse)
        return frame.guarded(response)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session."""
    logout(request)
    return frame.guarded(HttpResponseRedirect(reverse("console:sign-in")))

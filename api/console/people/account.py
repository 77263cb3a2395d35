"""A person's own account: name and groups as the cluster sees them, and one-time codes."""

from typing import Any, Final

import msgspec
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.middleware.csrf import get_token
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from api import clock
from api.console.page import layout
from api.console.people import signing
from clusterstate.access import people
from clusterstate.actions.people import codes
from clusterstate.objects.values.errors import BadRequest

_UNCONFIRMED: Final = "stowage.unconfirmed-codes"
"""Key in a session: an encrypted secret that no code has confirmed yet."""


@layout.shown
def page(request: HttpRequest) -> HttpResponse:
    """Show the account; ``POST`` (``what``: begin, confirm, cancel) sets up or removes codes."""
    person = request.user
    assert isinstance(person, User)
    if request.method != "POST":
        return _show(request, person)
    what = request.POST.get("what", "")
    code = request.POST.get("code", "")
    if what == "begin":
        return _begin(request, person)
    if what == "confirm":
        return _confirm(request, person, code)
    if what == "cancel":
        request.session.pop(_UNCONFIRMED, None)
    elif what == "remove":
        if problem := signing.tried(request, person, code):
            return _show(request, person, problem=problem)
        codes.remove(person)
    else:
        raise BadRequest("what: must be begin, confirm, cancel or remove")
    return HttpResponseRedirect(reverse("console:account"))


@layout.shown
def here(request: HttpRequest) -> HttpResponse:
    """Return the signed-in person, and the CSRF token for their forms, as JSON.

    An open page reads it before it sends a form, and after a sign-in in another tab.
    """
    found = {"person": people.user_of(request.user).name, "token": get_token(request)}
    return HttpResponse(msgspec.json.encode(found), content_type="application/json")


def _begin(request: HttpRequest, person: User) -> HttpResponse:
    """Create a secret; needs the password again, since another person may use an open session."""
    password = request.POST.get("password", "")
    if authenticate(request, username=person.get_username(), password=password) != person:
        return _show(request, person, problem="The password is wrong.")
    request.session[_UNCONFIRMED] = codes.sealed(codes.new_secret())
    return HttpResponseRedirect(reverse("console:account"))


def _confirm(request: HttpRequest, person: User, code: str) -> HttpResponse:
    secret = codes.unsealed(request.session.get(_UNCONFIRMED, ""))
    if not secret:
        raise BadRequest("no set-up of codes is in progress: start again")
    recovery = codes.begin(person, secret, code[:40], now=clock.now())
    if not recovery:
        return _show(request, person, problem=signing.WRONG)
    del request.session[_UNCONFIRMED]
    return _show(request, person, recovery=recovery)


def _show(request: HttpRequest, person: User, **more: Any) -> HttpResponse:
    secret = codes.unsealed(request.session.get(_UNCONFIRMED, ""))
    since = codes.since(person)
    context = {
        "user": people.user_of(person),
        "has_password": person.has_usable_password(),
        "since": since,
        "left": codes.recovery_left(person) if since else 0,
        "secret": " ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
        "picture": _picture(codes.address_of(secret, person.get_username())) if secret else "",
        **more,
    }
    status = 403 if "problem" in more else 200
    return layout.page(request, "account.html", "Your account", context, status=status)


def _picture(text: str) -> SafeString:
    """Return a text as a QR code: SVG, dark on light even in the dark theme, as cameras need it."""
    import segno  # by few, and once

    found = segno.make(text, error="m").svg_inline(
        scale=5, border=4, dark="#000", light="#fff", title="QR code for an app", omitsize=True
    )
    return mark_safe(found)  # noqa: S308  # made of modules alone; the text is not in it

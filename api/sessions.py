"""Browsers whose session was seen to be good: their requests take turns as their users."""

import hashlib

from django.conf import settings

from api.scopes import Scope, raw_header

MAX_SESSIONS = 10_000
"""Sessions of browsers that are remembered to be somebody's."""


class Sessions:
    """Which cookies belong to people who are logged in; bounded, and forgotten now and then."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def flow(self, cookie: bytes) -> str:
        """Return the flow of a browser whose session was seen to be good, empty for others."""
        return self._known.get(_session(cookie), "") if cookie else ""

    def saw(self, scope: Scope, user: str) -> None:
        """Note that a request's session is a user's; called on threads."""
        if len(self._known) >= MAX_SESSIONS:
            self._known.clear()
        self._known[_session(raw_header(scope, b"cookie"))] = user

    def forget(self, scope: Scope) -> None:
        """Note that a request's session is nobody's."""
        self._known.pop(_session(raw_header(scope, b"cookie")), None)


def _session(cookie: bytes) -> bytes:
    """Return what identifies the session in a Cookie header."""
    name = settings.SESSION_COOKIE_NAME.encode() + b"="
    found = next((c for c in cookie.split(b";") if c.strip().startswith(name)), b"")
    return hashlib.sha256(found.strip()).digest()

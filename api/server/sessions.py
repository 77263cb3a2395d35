"""Caches which browser sessions are valid, so that their requests belong to their users' flows."""

import hashlib

from django.conf import settings

from api.server.scopes import Scope, raw_header
from clusterstate.middleware import HOST_ONLY

MAX_SESSIONS = 10_000
"""Sessions of browsers of which a process remembers whose they are."""


class Sessions:
    """Which cookies belong to logged-in users; bounded, and emptied from time to time."""

    def __init__(self) -> None:
        self._users: dict[bytes, str] = {}

    def flow(self, scope: Scope) -> str:
        """Return the flow (user) of a browser's session, empty if no valid session is known."""
        session = _session(scope)
        return self._users.get(session, "") if session else ""

    def saw(self, scope: Scope, user: str) -> None:
        """Store that a request's session is a user's; called on threads."""
        session = _session(scope)
        if not session:
            return
        if len(self._users) >= MAX_SESSIONS:
            self._users.clear()
        self._users[session] = user

    def forget(self, scope: Scope) -> None:
        """Store that a request's session is invalid."""
        self._users.pop(_session(scope), None)


def _session(scope: Scope) -> bytes:
    """Return the session id of a request, empty without one.

    Over https the cookie has another name (`clusterstate.middleware.SecureTransport`).
    """
    name = settings.SESSION_COOKIE_NAME.encode() + b"="
    if scope.get("scheme") == "https":
        name = HOST_ONLY.encode() + name
    cookies = (each.strip() for each in raw_header(scope, b"cookie").split(b";"))
    found = next((each for each in cookies if each.startswith(name)), b"")
    return hashlib.sha256(found).digest() if found else b""

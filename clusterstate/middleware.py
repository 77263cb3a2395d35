"""Middleware: a full chain for browsers, next to nothing for the API."""

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from axes.signals import user_locked_out
from django.conf import settings
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.contrib.sessions.backends.base import SessionBase
from django.db import DatabaseError, DataError
from django.http import HttpRequest, HttpResponseBadRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin
from django.utils.module_loading import import_string

from clusterstate.objects.values.actor import Actor, acting, process_owner

Answer: TypeAlias = HttpResponseBase | Awaitable[HttpResponseBase]
Handler: TypeAlias = Callable[[HttpRequest], Answer]

_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "frame-ancestors 'none'",
        "base-uri 'self'",
        "form-action 'self'",
    )
)


_PAGES: tuple[str, ...] = tuple(settings.BROWSER_PATHS)
_READABLE = ("/api", "/docs")


def is_page(method: str, path: str, accept: str, has_token: bool) -> bool:  # noqa: FBT001
    """Return whether a request is a browser's, for a page of the admin or of the API.

    Programs have a token, and do not ask for HTML.
    """
    if path.startswith(_PAGES):
        return True
    return (
        "text/html" in accept
        and method == "GET"
        and not has_token
        and (path == "/" or path.startswith(_READABLE))
    )


def is_browser(request: HttpRequest) -> bool:
    """Return whether a request is a browser's."""
    meta = request.META
    return is_page(
        request.method or "",
        request.path_info,
        meta.get("HTTP_ACCEPT", ""),
        "HTTP_AUTHORIZATION" in meta,
    )


SESSION_USER = "stowage.session-user"
"""Where a request's META holds the name of who is logged in, once it was answered."""


AUDIT_ID = "stowage.audit-id"
"""Where a request's META holds the id that its changes and the audit log name it by."""

SIGN_IN = "stowage.sign-in"
"""Where a request's META holds the outcome of a sign-in, and the name that was tried."""


DID = "stowage.did"
"""Where a request's META holds the right to change something that a page first asked about."""


class BrowserOnly:
    """Runs settings.BROWSER_MIDDLEWARE around requests of browsers and nothing around others.

    Django offers one chain for all paths. Every link costs each API request a call, and sessions
    or CSRF have no meaning for a caller with a bearer token.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Handler) -> None:
        """Build the chain once; its first link is the outermost."""
        self._plain = get_response
        handler: Any = get_response
        self._links: list[Any] = []
        for path in reversed(settings.BROWSER_MIDDLEWARE):
            handler = import_string(path)(handler)
            self._links.insert(0, handler)
        self._chain: Handler = handler
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Answer:
        """Answer through the browser's middleware if a browser asks, else without it."""
        if is_browser(request):
            answer = self._chain(request)
            user = getattr(request, "_cached_user", None)  # found already, if anybody asked
            if user is not None and user.is_authenticated:
                request.META[SESSION_USER] = user.get_username()
            return answer
        return self._plain(request)

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponseBase | None:
        """Answer 400 where a page met a value that the database cannot hold or compare."""
        if is_browser(request) and _unfit(exception):
            return HttpResponseBadRequest(
                "A value in this request does not fit where it is stored or looked for.",
                content_type="text/plain; charset=utf-8",
            )
        return None

    def process_view(
        self,
        request: HttpRequest,
        view: Callable[..., HttpResponseBase],
        args: list[Any],
        kwargs: dict[str, Any],
    ) -> HttpResponseBase | None:
        """Call each middleware's ``process_view`` before the view, as Django itself does."""
        if not is_browser(request):
            return None
        for link in self._links:
            if (hook := getattr(link, "process_view", None)) and (
                answer := hook(request, view, args, kwargs)
            ):
                return answer  # type: ignore[no-any-return]  # the hook's own contract
        return None


def _unfit(error: Exception) -> bool:
    """Whether the database refused a value as invalid, or a statement as too complex."""
    state = getattr(error.__cause__, "sqlstate", None) or ""
    return isinstance(error, DataError) or (
        isinstance(error, DatabaseError) and state.startswith("54")
    )


class ContentSecurityPolicy(MiddlewareMixin):
    """Tells the browser to load scripts, styles and pictures from this server alone."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Return the response with the policy, unless a view set its own."""
        response.headers.setdefault("Content-Security-Policy", _POLICY)
        return response


class ActsForSignedIn(MiddlewareMixin):
    """Attributes changes made by a page to the person who is signed in."""

    def __call__(self, request: HttpRequest) -> Any:
        """Answer; only a form that is sent changes anything."""
        if request.method != "POST":
            return self.get_response(request)
        user = request.user
        cause = request.META.get(AUDIT_ID) or uuid.uuid4()
        actor = Actor(user.get_username(), cause=cause) if user.is_authenticated else None
        with acting(actor or process_owner()):
            return self.get_response(request)


def _note_sign_in(outcome: str) -> Callable[..., None]:
    """Return a receiver that notes with its request the outcome of a sign-in."""

    def note(request: HttpRequest | None = None, **about: Any) -> None:
        if request is None:
            return
        tried = about.get("credentials") or {}
        user = about.get("user")
        name = user.get_username() if user is not None else tried.get("username", "")
        if request.META.get(SIGN_IN, ("", ""))[0] != LOCKED_OUT:
            request.META[SIGN_IN] = outcome, str(name or about.get("username") or "")[:150]

    return note


LOCKED_OUT = "locked out"
_receivers = {
    "signed in": (user_logged_in, _note_sign_in("signed in")),
    "failed": (user_login_failed, _note_sign_in("failed")),
    "signed out": (user_logged_out, _note_sign_in("signed out")),
    LOCKED_OUT: (user_locked_out, _note_sign_in(LOCKED_OUT)),
}
for _signal, _receiver in _receivers.values():
    _signal.connect(_receiver, weak=False)


_LOOPBACK = ("localhost", "127.", "[::1]")
HOST_ONLY = "__Host-"


class SecureTransport(MiddlewareMixin):
    """Over https, makes cookies Secure and sends HSTS.

    The same process serves http on loopback, and a browser shares cookies between the ports of a
    host. So cookies of https have other names (``__Host-``), which a browser accepts only with
    Secure, from this host, for all paths. There is no HSTS for names of this machine itself: it
    would turn the http port into https, too.
    """

    def process_request(self, request: HttpRequest) -> None:
        """Keep only the cookies of this transport, under the names that Django knows."""
        secure = request.is_secure()
        request.COOKIES = {
            name.removeprefix(HOST_ONLY): value
            for name, value in request.COOKIES.items()
            if name.startswith(HOST_ONLY) is secure
        }

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Rename the cookies that are set, and add the header."""
        if not request.is_secure():
            return response
        for name in list(response.cookies):
            cookie = response.cookies.pop(name)
            cookie["secure"] = True
            cookie["path"] = "/"
            cookie.set(HOST_ONLY + name, cookie.value, cookie.coded_value)
            response.cookies[HOST_ONLY + name] = cookie
        host = request.META.get("HTTP_HOST", "")
        if settings.HSTS_SECONDS and not host.startswith(_LOOPBACK):
            response.headers["Strict-Transport-Security"] = f"max-age={settings.HSTS_SECONDS}"
        return response


_SEEN = "seen"
_NOTED_EVERY = 60


def is_idle(session: SessionBase) -> bool:
    """Return whether a session has ended because it made no request for too long."""
    last_use = session.get(_SEEN)
    return isinstance(last_use, int) and int(time.time()) - last_use > settings.SESSION_IDLE_SECONDS


class IdleSession(MiddlewareMixin):
    """Ends a session in which no request came for a while.

    What a page asks for by itself while it is open does not count: it says so in a header.
    """

    def process_request(self, request: HttpRequest) -> None:
        """End the session, or note once a minute that it is used."""
        session = request.session
        if session.is_empty():
            return
        now = int(time.time())
        last_use = session.get(_SEEN)
        if is_idle(session):
            session.flush()
        elif "HX-Request" not in request.headers and (
            not isinstance(last_use, int) or now - last_use >= _NOTED_EVERY
        ):
            session[_SEEN] = now


def client_address(request: HttpRequest) -> str:
    """Return the client's address, for the lock-out: the peer's, or as a trusted proxy says."""
    return str(request.META.get("REMOTE_ADDR", ""))

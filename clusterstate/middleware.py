"""What runs around requests: a browser's chain for the admin, next to nothing for the API."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.db import DatabaseError, DataError
from django.http import HttpRequest, HttpResponseBadRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin
from django.utils.module_loading import import_string

Answer: TypeAlias = HttpResponseBase | Awaitable[HttpResponseBase]
Handler: TypeAlias = Callable[[HttpRequest], Answer]

_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-eval'",  # the admin's Alpine compiles its expressions
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "frame-ancestors 'none'",
        "base-uri 'self'",
        "form-action 'self'",
    )
)


SESSION_USER = "stowage.session-user"
"""Where a request's META holds the name of who is logged in, once it was answered."""


class BrowserOnly:
    """Runs settings.BROWSER_MIDDLEWARE under settings.BROWSER_PATHS and nothing elsewhere.

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
        self._paths: tuple[str, ...] = tuple(settings.BROWSER_PATHS)
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Answer:
        """Answer through the browser's chain, or straight."""
        if request.path_info.startswith(self._paths):
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
        if request.path_info.startswith(self._paths) and _unfit(exception):
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
        """Ask each link that looks at the view before it runs, as Django does for its own chain."""
        if not request.path_info.startswith(self._paths):
            return None
        for link in self._links:
            if (hook := getattr(link, "process_view", None)) and (
                answer := hook(request, view, args, kwargs)
            ):
                return answer  # type: ignore[no-any-return]  # the hook's own contract
        return None


def _unfit(error: Exception) -> bool:
    """Whether the database refused a value because of what it is."""
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

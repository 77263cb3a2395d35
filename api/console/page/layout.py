"""The frame of all pages: sign-in and rights, errors as pages, the policy, navigation."""

import difflib
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, Final, ParamSpec
from urllib.parse import urlencode, urlsplit

import msgspec
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.urls import reverse

from api import clock
from api.access import reach
from api.access.auth import require as require_right
from api.console.live import fragment_cache, stream
from api.console.page import formatting, time_travel
from api.forms import errors, failures
from api.server import health
from clusterstate import middleware
from clusterstate.access import authorizer, people
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.change_log import changes
from clusterstate.objects.values.actor import current
from clusterstate.objects.values.errors import (
    BadRequest,
    Expired,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    StatusError,
    TooLarge,
    TooManyRequests,
)
from scheduling.answers import advisor

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_AS_OF: Final = "stowage.as-of"
"""Key of ``request.META``: a watermark from before the page was read."""
_MINE: Final = "stowage.mine"
"""Key of ``request.META``: the namespaces that a person may choose (``scope``)."""
_HAS_PAST: Final = "stowage.has-past"
"""Key of ``request.META``: whether the page can show a past moment."""
Parameters = ParamSpec("Parameters")
View = Callable[Concatenate[HttpRequest, Parameters], HttpResponse]


class NavigationEntry(msgspec.Struct, frozen=True):
    """An entry of the navigation: its title, URL name, key after ``g``, and the right it requires.

    ``others``: alternative rights, one of which is enough. ``besides``: additional rights.
    """

    title: str
    view: str
    key: str
    wants: Attributes
    others: tuple[Attributes, ...] = ()
    besides: tuple[Attributes, ...] = ()


_NEVER: Final = 1 << 62
_NODES: Final = Attributes("list", resource="nodes")
_PODS: Final = Attributes("list", resource="pods")
ADVISING: Final = (Attributes("create", "stowage.dev", "nodeadvice"), _NODES, _PODS)
"""The rights to advice on which nodes to buy and remove."""
FORETELLING: Final = (Attributes("create", "stowage.dev", "plans"), _NODES, _PODS)
"""The rights to create a plan, as in the API: it names every node and pod."""
PLACES: Final = (
    NavigationEntry("Fleet", "fleet", "f", _NODES),
    NavigationEntry("Nodes", "nodes", "n", _NODES),
    NavigationEntry("Pods", "pods", "p", _PODS),
    NavigationEntry("Waiting", "waiting", "w", _PODS),
    NavigationEntry(
        "Decisions", "decisions", "d", Attributes("get", resource="pods", subresource="decisions")
    ),
    NavigationEntry("Evictions", "evictions", "e", Attributes("list", "stowage.dev", "evictions")),
    NavigationEntry("What if", "what-if", "i", FORETELLING[0], besides=FORETELLING[1:]),
    NavigationEntry(
        "Policies", "policies", "o", Attributes("list", resource="namespaces"), (_PODS,)
    ),
    NavigationEntry("Audit", "audit", "a", Attributes("list", "audit.k8s.io", "events")),
)


ANSWER_SECONDS: Final = 12.0
"""How long a page waits for an advisor. The proxy in front of the console waits for half a minute
and then returns an error."""
FORM_SECONDS: Final = 24.0
"""The same for a form, whose answer cannot be shown later."""
_TICKS: Final = ("now", "", "", "", "10m", "", "", "", "", "1h", "", "", "", "1d", "", "", "1w")
"""Labels below the steps of the slider into the past (``STEPS`` of ``console.js``)."""
_ALIKE: Final[dict[View[...], float]] = {}


def alike(*, lasts: float = 0.0) -> Callable[[View[Parameters]], View[Parameters]]:
    """Mark a view whose parts depend only on rights: people with equal rights share a cached part.

    ``lasts``: a part is cached for this many seconds, whatever has changed.
    """

    def mark(view: View[Parameters]) -> View[Parameters]:
        _ALIKE[view] = lasts
        return view

    return mark


def shown(view: View[Parameters]) -> View[Parameters]:
    """Wrap a view as a page: it requires a sign-in, and shows errors as pages."""
    return _shown(view, has_past=False)


def shown_then(view: View[Parameters]) -> View[Parameters]:
    """Wrap a view as a page that can also show a past moment (``time_travel.of``)."""
    return _shown(view, has_past=True)


def _shown(view: View[Parameters], *, has_past: bool) -> View[Parameters]:
    @functools.wraps(view)
    def answer(
        request: HttpRequest, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> HttpResponse:
        if not request.user.is_authenticated:
            return _to_sign_in(request)
        advisor.asking(request.user.get_username())
        try:
            if "at" in request.GET and not has_past:
                raise BadRequest("at: this page shows the present only")
            if moved := time_travel.settled(request):
                return guarded(moved)
            request.META[_HAS_PAST] = has_past
            make = functools.partial(view, request, *args, **kwargs)
            if is_part(request):
                response = _part_of(request, make, lasts=_ALIKE.get(view))
            else:
                request.META[_AS_OF] = str(changes.watermark())
                response = make()
        except Exception as error:  # noqa: BLE001  # every failure becomes a page
            response = failure(request, error)
        return guarded(response)

    return answer


def _part_of(
    request: HttpRequest, make: Callable[[], HttpResponse], *, lasts: float | None
) -> HttpResponse:
    """Return a part of a page, perhaps a cached one (``fragment_cache``)."""
    look = fragment_cache.of(request, is_alike=lasts is not None, lasts=lasts or 0.0)
    if look is None:
        return make()
    return fragment_cache.serve(request, look, make, stream.pause_of(look.person))


def guarded(response: HttpResponse) -> HttpResponse:
    """Return a response with the pages' content security policy, not to be cached."""
    response.headers.setdefault("Content-Security-Policy", POLICY)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("Vary", "HX-Request, Cookie")
    return response


def _page_of(request: HttpRequest) -> str:
    """Return the path of the request's page; for a part, that of the page which reads it."""
    if request.method in ("GET", "HEAD"):
        return request.get_full_path()
    try:
        page = urlsplit(request.headers.get("Referer", ""))
    except ValueError:  # whatever a client writes there
        return reverse("console:fleet")
    if page.netloc != request.get_host():
        return reverse("console:fleet")
    return f"{page.path}?{page.query}" if page.query else page.path


def _to_sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect a person who is not signed in to the sign-in; answer 401 to a part of a page.

    After the sign-in the person returns to the page that was open, since the URL of a form is often
    no page. On a 401 the script of the page goes to the sign-in, or stays if something is typed on
    the page (``forms.js``).
    """
    here = request.headers.get("HX-Current-URL-Path") or _page_of(request)
    target = f"{reverse('console:sign-in')}?{urlencode({'next': here})}"
    if is_part(request):
        return guarded(HttpResponse(status=401))
    return guarded(HttpResponseRedirect(target))


def is_part(request: HttpRequest) -> bool:
    """Return whether the request is for a part of a page."""
    return "HX-Request" in request.headers


def user_of(request: HttpRequest) -> User:
    """Return the signed-in person as a user, as access and admission see them."""
    return msgspec.structs.replace(people.user_of(request.user), request=current().cause)


def may(request: HttpRequest, verb: str, resource: str, **about: str) -> bool:
    """Return whether the person has a right; ``about``: group, subresource, namespace, name.

    On a page of the past only reads are allowed.
    """
    if time_travel.forbids(request, verb):
        return False
    user = people.user_of(request.user)
    return authorizer.decide(user, Attributes(verb, resource=resource, **about)).allowed


def require(request: HttpRequest, verb: str, resource: str, **about: str) -> None:
    """Raise AccessDenied, as the API would, unless the person has a right.

    The first write that a form requires in this way names the form in the audit log.
    """
    wants = Attributes(verb, resource=resource, **about)
    if request.method == "POST" and verb not in time_travel.READS:
        request.META.setdefault(middleware.DID, wants)
    require_all(request, [wants])


def require_all(request: HttpRequest, wants: Iterable[Attributes]) -> None:
    """Check that the person has all of these rights.

    Raises:
        AccessDenied: a right is missing.
        Expired: the page is about a past that the person may not see.
    """
    user = people.user_of(request.user)
    try:
        for one in wants:
            require_right(user, one)
            if one.namespace and (past := time_travel.of(request)) is not None:
                reach.require(user, one, past.revision)
    except Forbidden:
        request.META[fragment_cache.PERSONAL] = True  # the sentence names the person
        raise


def namespaces(request: HttpRequest, wants: Attributes) -> list[str]:
    """Return the namespaces in which RoleBindings give the person a right, sorted."""
    user = people.user_of(request.user)
    return authorizer.current().namespaces(user.name, user.groups, wants) if user.name else []


def sees(request: HttpRequest, wants: Attributes) -> bool:
    """Return whether the person has a right everywhere or in some namespace."""
    user = people.user_of(request.user)
    if not user.name:
        return False
    return authorizer.decide(user, wants).allowed or bool(namespaces(request, wants))


def scope(request: HttpRequest, verb: str, resource: str, **about: str) -> str:
    """Return the namespace of a list, empty for all.

    It is the ``namespace`` in the URL. Without it, a person who may not list all gets the first of
    their own namespaces; ``mine`` of the page has the others.

    Raises:
        AccessDenied: the person may not list that namespace, or none at all.
    """
    namespace = request.GET.get("namespace", "").strip()
    if not namespace and not may(request, verb, resource, **about):
        mine = namespaces(request, Attributes(verb, resource=resource, **about))
        request.META[_MINE] = mine
        namespace = mine[0] if mine else ""
    require(request, verb, resource, namespace=namespace, **about)
    return namespace


def since(request: HttpRequest, resource: str, **about: str) -> int:
    """Return the revision since which the person may see the past of an object.

    0: all of it. Above all revisions: nothing of it, as for a Secret. May query.
    """
    wants = Attributes("get", resource=resource, **about)
    try:
        began = reach.beginning(people.user_of(request.user), wants)
    except (Expired, Forbidden):
        return _NEVER
    return 0 if began is None else began.revision


_ANYWHERE: Final = frozenset({"at", "start", "before", "continue", "since", "sort", "columns"})
"""Parameters of every list: the moment, the page of the list, its order and its columns."""
_MEANT: Final = {
    "ns": "namespace",
    "l": "labelSelector",
    "selector": "labelSelector",
}


def filters(request: HttpRequest, *names: str) -> None:
    """Refuse a URL with a filter that the page does not have, instead of ignoring the filter.

    Raises:
        BadRequest: it has an unknown filter; the message suggests a similar one.
    """
    for name in request.GET:
        if name not in names and name not in _ANYWHERE:
            near = difflib.get_close_matches(name.lower(), [one.lower() for one in names], 1)
            intended = _MEANT.get(name, "") or next((k for k in names if k.lower() in near), "")
            hint = f' Did you mean "{intended}"?' if intended in names else ""
            raise BadRequest(f'unknown filter "{name}".{hint} This page knows {", ".join(names)}.')


def ask(name: str, document: object, *, seconds: float | None = None) -> Any:
    """Return an advisor's answer; waits at most ``seconds``, by default ``ANSWER_SECONDS``.

    Raises:
        StatusError: it came too late, or the question is refused (see ``is_late``).
    """
    return advisor.ask(name, document, deadline=ANSWER_SECONDS if seconds is None else seconds)


def progress_of(request: HttpRequest, name: str, question: object) -> HttpResponse:
    """Return the part of a page that shows the advisors' progress with a long question."""
    found = advisor.progress(name, question)
    share = 0 if found is None else round(100 * min(max(found.share, 0.0), 1.0))
    return part(request, "_progress.html", {"progress": found, "percent": share})


def is_late(error: StatusError) -> bool:
    """Return whether the error is temporary, so that the same request may succeed later."""
    return isinstance(error, ServiceUnavailable | TooLarge | TooManyRequests)


def missing(request: HttpRequest, wants: Iterable[Attributes]) -> str:
    """Return the error message for the first right that the person lacks, empty if none."""
    try:
        require_all(request, wants)
    except Forbidden as error:
        return error.message
    return ""


def places(request: HttpRequest) -> list[NavigationEntry]:
    """Return the entries of the navigation that the person may open."""
    return [one for one in PLACES if leads_to(request, one)]


def leads_to(request: HttpRequest, entry: NavigationEntry) -> bool:
    """Return whether the person may open the entry's page."""
    return any(sees(request, wants) for wants in (entry.wants, *entry.others)) and may_all(
        request, entry.besides
    )


def may_all(request: HttpRequest, wants: Iterable[Attributes]) -> bool:
    """Return whether the person has all of these rights, everywhere."""
    user = people.user_of(request.user)
    return all(authorizer.decide(user, one).allowed for one in wants)


def page(
    request: HttpRequest, template: str, title: str, context: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    """Return a page; ``template`` is below ``templates/console``."""
    user = people.user_of(request.user)
    here = request.resolver_match.url_name if request.resolver_match else ""
    whole = {
        "title": title,
        "places": places(request),
        "here": here,
        "mine": request.META.get(_MINE, ()),
        "person": user.name,
        "then": time_travel.cached(request),
        "has_past": request.META.get(_HAS_PAST, False),
        "ticks": _TICKS,
        "stream": bool(user.name) and time_travel.cached(request) is None,
        "as_of": request.META.get(_AS_OF, ""),
        "troubles": health.troubles() if user.name else [],
        "now": int(clock.now().timestamp() * 1000),
        **context,
    }
    return HttpResponse(_rendered(request, template, whole), status=status)


def part(request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    """Return a part of a page."""
    return HttpResponse(
        _rendered(request, template, {"then": time_travel.cached(request), **context})
    )


def _rendered(request: HttpRequest, template: str, context: dict[str, Any]) -> str:
    found = time_travel.cached(request)
    with formatting.counted_from(None if found is None else found.at):
        html = render_to_string(f"console/{template}", context, request)
    return html if found is None else time_travel.lead_on(html, found)


def failure(
    request: HttpRequest, error: Exception, hint: str | None = None, instead: str = ""
) -> HttpResponse:
    """Return any failure as a page, or as a few words for a part of one.

    ``hint``: what to do next; ``None``: by the error's code. ``instead``: the URL of a page that
    has a part of the answer.
    """
    status = errors.translate(error)
    if hint is None:
        hint = _TOO_FAR if status.code == 410 and "at" in request.GET else _hint(status)
    context = {"failure": status, "hint": hint, "instead": instead}
    if is_part(request):
        found = part(request, "failure_part.html", context)
        found.status_code = status.code
        return found
    title = _TITLES.get(status.code, "Error")
    return page(request, "failure.html", title, context, status=status.code)


_TITLES: Final = {
    400: "Not understood",
    403: "Not allowed",
    404: "Not found",
    405: "Not possible here",
    409: "Changed meanwhile",
    410: "No longer kept",
    413: "Too much at once",
    422: "Not valid",
    429: "Too many requests",
    503: "Not available right now",
}
_TOO_FAR: Final = "Choose a moment closer to now."


def _hint(error: StatusError) -> str:
    """Return what to do next after a failure."""
    if error.code == 403:
        return "Ask an administrator for a role with this right; roles are on the page Policies."
    if error.code == 404:
        return "The object may have been deleted, or have another name. Search with Ctrl+K."
    if error.code in (409, 410):
        return "The cluster has changed since this page was made. Open the page again."
    if error.code in (429, 503):
        return "The service is busy or a part of it is down. Try again in a moment."
    return ""


def first_page(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Redirect a browser that opens ``/`` to the console; programs get the view's answer."""

    @functools.wraps(view)
    def answer(request: HttpRequest, /, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if middleware.is_browser(request):
            return HttpResponseRedirect(reverse("console:fleet"))
        return view(request, *args, **kwargs)

    return answer


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer 400 if Django refuses a browser's request before any view (``handler400``)."""
    sentence = "This request cannot be read."
    if isinstance(exception, DisallowedHost):
        sentence = (
            "The host name in the address is not a name of this service. Open it by a name of its"
            " host, or add this one to STOWAGE_ALLOWED_HOSTS and restart the service."
        )
    return HttpResponse(f"{sentence}\n", content_type="text/plain; charset=utf-8", status=400)


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer 403 as a page if Django refuses (``handler403``)."""
    sentence = str(exception or "") or "Your roles do not allow this."
    return guarded(failure(request, Forbidden(sentence)))


def no_csrf(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form without a valid CSRF token: from another site, or too old."""
    sentence = "This form is too old, or came from another site. Nothing was done."
    hint = "Go back: what you typed is there again. Open the page anew, and send it once more."
    return guarded(failure(request, Forbidden(sentence), hint))


def unknown(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer 404: a page for browsers, a Status for programs (``handler404``)."""
    if request.path_info.startswith(settings.BROWSER_PATHS) and hasattr(request, "user"):
        return guarded(failure(request, NotFound("There is no such page.")))
    return failures.unknown_path(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer an error outside of a view, such as reading the session (``handler500``).

    Browsers get a page that needs no database, since reading who is signed in would fail again.
    """
    error = sys.exc_info()[1]
    if not isinstance(error, Exception) or not request.path_info.startswith(settings.BROWSER_PATHS):
        return failures.server_error(request)
    known = errors.translate(error)
    sentence = f"{known.message[:1].upper()}{known.message[1:]}."
    changes = request.method not in ("GET", "HEAD")
    return without_database(
        _TITLES.get(known.code, "Error"), sentence,
        status=known.code, changes=changes, heals=known.code == 503 and not changes,
    )  # fmt: skip


def without_database(
    title: str, sentence: str, *, changes: bool, heals: bool, status: int = 503, note: str = ""
) -> HttpResponse:
    """Return a page that is made without a query.

    ``changes``: the request was a form. ``heals``: the page retries until its URL works, then opens
    it.
    """
    context = {
        "title": title,
        "sentence": sentence,
        "note": note,
        "changes": changes,
        "heals": heals,
        "troubles": health.troubles(),
    }
    page = render_to_string("console/away.html", context)
    return guarded(HttpResponse(page, status=status, headers={"Retry-After": "1"}))


def database_away(scope: Mapping[str, Any]) -> HttpResponse:
    """Answer a browser's request (ASGI) while the database does not answer; nothing was done."""
    if not scope["path"].startswith(settings.BROWSER_PATHS):
        gone = ServiceUnavailable(errors.UNAVAILABLE, {"retryAfterSeconds": 1})
        return failures.of_scope(scope, gone)
    changes = scope["method"] not in ("GET", "HEAD")
    sentence = "No page can be shown without the database."
    if changes:
        sentence = "Nothing was changed. Go back: what you typed is there again. Send it later."
    title = "The database does not answer"
    return without_database(title, sentence, changes=changes, heals=not changes)


def locked_out(
    request: HttpRequest, response: HttpResponse | None = None, credentials: Any = None
) -> HttpResponse:
    """Answer a sign-in after too many wrong passwords, with the end of the lock-out (for axes)."""
    minutes = round(60 * settings.AXES_COOLOFF_TIME)
    sentence = (
        f"Too many wrong passwords for this name from this address. Try again in {minutes} minutes,"
        " or ask an administrator to delete the entry under Failed log-ins."
    )
    error = StatusError(sentence)
    context = {"failure": error, "hint": "", "heading": "Locked out"}
    return guarded(page(request, "failure.html", "Locked out", context, status=429))

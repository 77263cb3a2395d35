"""The past of pages: the moment in a URL's ``at``, and links that keep it.

A URL with ``at`` shows objects as they were then. The moment is written as RFC 3339. A relative one
(``10m`` ago) redirects to a URL with the time, so that a URL always shows the same. Links of a page
of the past lead to the past, too, if the target has one; nothing can be changed there.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from urllib.parse import urlencode

import msgspec
from django.http import HttpRequest, HttpResponseRedirect

from api import clock
from api.console.live import node_cache
from api.forms import options
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import BadRequest
from clusterstate.queries.nodes.fleet import FleetNode
from clusterstate.queries.nodes.fleet_past import PastFleet, fleet_at
from clusterstate.queries.past import revision_at, trail
from clusterstate.queries.past.trail import TrailEntry

_META: Final = "stowage.then"
_KEPT_FLEETS: Final = 3
_LOOK_BACK: Final = 500
_STEP: Final = timedelta(minutes=1)
READS: Final = frozenset({"get", "list", "watch"})


class PastMoment(msgspec.Struct, frozen=True):
    """A moment of the past, and the last revision before it."""

    at: datetime
    revision: int

    @property
    def text(self) -> str:
        """Return the moment as in a URL."""
        return format_time(self.at)

    @property
    def fleet(self) -> PastFleet:
        """Return the nodes and pods of that time. Queries, unless they are cached."""
        return _fleet(self.revision)

    @property
    def earlier(self) -> str:
        """Return the moment a minute before, as in a URL."""
        return format_time(self.at - _STEP)

    @property
    def later(self) -> str:
        """Return the moment a minute after, as in a URL."""
        return format_time(self.at + _STEP)


@lru_cache(maxsize=_KEPT_FLEETS)
def _fleet(revision: int) -> PastFleet:
    # A revision's state never changes.
    return fleet_at(revision)


def is_requested(request: HttpRequest) -> bool:
    """Return whether the URL has a past moment."""
    return bool(request.GET.get("at"))


def of(request: HttpRequest) -> PastMoment | None:
    """Return the moment of a page; ``None``: now. Queries the first time.

    Raises:
        BadRequest: the moment cannot be parsed, or is in the future.
        Expired: its objects are no longer stored.
    """
    if not is_requested(request):
        return None
    cached = request.META.get(_META)
    if isinstance(cached, PastMoment):
        return cached
    now = clock.now()
    moment = options.moment({"at": request.GET["at"]}, now=now)
    assert moment is not None
    moment = moment.astimezone(UTC).replace(microsecond=0)
    found = PastMoment(moment, revision_at(moment, now=now))
    request.META[_META] = found
    return found


def settled(request: HttpRequest) -> HttpResponseRedirect | None:
    """Return a redirect to the URL with the exact time; without ``at`` if that is now.

    ``None``: the URL has the exact time, or no ``at``.

    Raises:
        BadRequest: the request is a write, or the moment cannot be parsed.
    """
    if "at" not in request.GET:
        return None
    if request.method != "GET":
        raise BadRequest("at: nothing can be changed in the past; go back to now first")
    query = request.GET.copy()
    found = of(request)
    if found is None or found.at >= clock.now().replace(microsecond=0):
        del query["at"]
    elif query["at"] != found.text:
        query["at"] = found.text
    else:
        return None
    return HttpResponseRedirect(f"{request.path}?{query.urlencode()}".rstrip("?"))


def cached(request: HttpRequest) -> PastMoment | None:
    """Return the moment that ``of`` found for the request, ``None`` for now. Never queries."""
    found = request.META.get(_META)
    return found if isinstance(found, PastMoment) else None


def nodes(request: HttpRequest) -> list[FleetNode]:
    """Return the nodes at the moment of the page, by name."""
    found = of(request)
    return node_cache.nodes().items if found is None else found.fleet.items


def steps(
    kind: Kind, namespace: str, name: str, past: PastMoment | None, *, limit: int, since: int = 0
) -> list[TrailEntry]:
    """Return the latest changes of an object, from the revision ``since`` on.

    On a page of the past, those until then, if they are among the last ``_LOOK_BACK``.
    """
    if past is None:
        found = trail.trail_of(kind, namespace, name, limit=limit)
        return trail.from_revision(found, since).steps
    found = trail.trail_of(kind, namespace, name, limit=_LOOK_BACK)
    return [one for one in found.steps if since <= one.revision <= past.revision][:limit]


def forbids(request: HttpRequest, verb: str) -> bool:
    """Return whether a page of the past forbids an action: it allows only reads."""
    return is_requested(request) and verb not in READS


_LINK: Final = re.compile(r'(?<!data-now )((?:href|data-from)=")((?:/console/|\?)[^"]*)"')
_HAS: Final = re.compile(r"(?:\?|&|&amp;)at=")
_FORM: Final = re.compile(r'<form(?![^>]*method="(?:post|dialog)")[^>]*>')
_PRESENT: Final = re.compile(
    r"/console/(?:sign-|account|stream|change|plans|what-if|find|evictions|policies/[a-z]"
    r"|pods/[^/?]+/[^/?]+/(?:why|decisions)|objects/[^/?]+/[^/?]+/[^/?]+/changes)"
)
"""Paths of pages that have no past, or show a stored record that does not change."""


def lead_on(html: str, then: PastMoment) -> str:
    """Return a page whose links and searches keep the moment, if the target has a past."""
    at = urlencode({"at": then.text})

    def link(found: re.Match[str]) -> str:
        path, mark, fragment = found[2].partition("#")
        if _PRESENT.match(path) or _HAS.search(path):
            return found[0]
        return f'{found[1]}{path}{"&amp;" if "?" in path else "?"}{at}{mark}{fragment}"'

    def form(found: re.Match[str]) -> str:
        return f'{found[0]}<input type="hidden" name="at" value="{then.text}">'

    return _FORM.sub(form, _LINK.sub(link, html))

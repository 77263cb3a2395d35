"""The fleet: all nodes on one map, and beside it waiting and leaving pods, and decisions."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from api import clock
from api.console.live import fragment_cache, node_cache
from api.console.page import formatting, language, layout, reasons_text, time_travel
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.numbers import natural
from clusterstate.queries.evictions.brakes import held_back
from clusterstate.queries.evictions.eviction_timers import waiting_timers
from clusterstate.queries.nodes.fleet import FleetNode
from clusterstate.queries.scheduler import decision_search, overview
from clusterstate.queries.scheduler.decision_search import Search

ZONE: Final = "topology.kubernetes.io/zone"
_PLAIN: Final = ("cpu", "memory", "ephemeral-storage", "pods")
_GROUPS: Final = (
    ("zone", ZONE),
    ("rack", "topology.kubernetes.io/rack"),
    ("instance type", "node.kubernetes.io/instance-type"),
)
_CORDONED, _TAINTED, _NOT_READY, _LEAVING, _TERMINATING = 1, 2, 4, 8, 16
_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_SECOND: Final = timedelta(seconds=1)
_MOST_CAUSES: Final = 12
_MOST_VALUES: Final = 60
"""A label with more values than this is a name, and no group."""


@layout.shown_then
def page(request: HttpRequest) -> HttpResponse:
    """Return the map's page without its data, which ``columns`` sends afterwards.

    A person who signs in without the right to see nodes is redirected to the first page that they
    may see.
    """
    if not request.GET and not layout.may(request, "list", "nodes"):
        for place in layout.places(request):
            return HttpResponseRedirect(reverse(f"console:{place.view}"))
    layout.require(request, "list", "nodes")
    items = time_travel.nodes(request)
    by, group = _choices(request)
    context = {
        "cards": _cards(items),
        "by": by,
        "group": group,
        "colours": _colours(items),
        "groups": _groups(items),
        "query": request.GET.get("q", ""),
        "empty": not items and time_travel.of(request) is None,
        "may_change": layout.may(request, "patch", "nodes"),
        "may_create": layout.may(request, "create", "nodes"),
        "paced": time_travel.of(request) is None and layout.may(request, "list", "pods"),
    }
    return layout.page(request, "fleet.html", "Fleet", context)


@layout.shown_then
@layout.alike()
def beside(request: HttpRequest) -> HttpResponse:
    """Return the panels beside the map, and the numbers above it."""
    layout.require(request, "list", "nodes")
    context: dict[str, Any] = {"cards": _cards(time_travel.nodes(request))}
    past = time_travel.of(request)
    if past is not None and layout.may(request, "list", "pods"):
        decided = decision_search.search(Search(until=past.at + _SECOND), limit=8).items
        context |= {
            "waiting": reasons_text.by_cause(past.fleet.waiting, past.fleet.items)[:_MOST_CAUSES],
            "pending": past.fleet.pending,
            "decisions": decided
            if layout.may(request, "get", "pods", subresource="decisions")
            else [],
        }
    elif layout.may(request, "list", "pods"):
        now = clock.now()
        context |= {
            "waiting": reasons_text.by_cause(overview.waiting(), node_cache.nodes().items)[
                :_MOST_CAUSES
            ],
            "pending": overview.pending(),
            "leaving": [
                one
                for one in waiting_timers(limit=8, held=held_back(now))
                if one.due_at <= now + timedelta(hours=1)
            ]
            if layout.may(request, "list", "evictions", group="stowage.dev")
            else [],
            "decisions": overview.decided(limit=8)
            if layout.may(request, "get", "pods", subresource="decisions")
            else [],
        }
    return layout.part(request, "fleet_beside.html", context)


@layout.shown_then
@layout.alike()
def columns(request: HttpRequest) -> HttpResponse:
    """Return the nodes in columns; with ``since`` those that changed after that revision."""
    layout.require(request, "list", "nodes")
    by, group = _choices(request)
    past = time_travel.of(request)
    if past is not None:
        whole_past = as_columns(past.fleet.items, by, group, request.GET.get("q", ""), now=past.at)
        head = {"revision": past.revision, "whole": True, "gone": [], "resource": by}
        body = msgspec.json.encode(head | whole_past)
        return HttpResponse(body, content_type="application/json")
    found = node_cache.nodes(request.META.get(fragment_cache.ENOUGH))
    request.META[fragment_cache.AS_OF] = found.revision
    items: Sequence[FleetNode] = found.items
    gone: list[str] = []
    whole = True
    since = natural(request.GET.get("since", ""))
    if since is not None:
        changed = found.since(since)
        if changed is not None:
            whole = False
            items, gone = changed
    document = {
        "revision": found.revision,
        "whole": whole,
        "gone": gone,
        "resource": by,
        **as_columns(items, by, group, request.GET.get("q", ""), now=clock.now()),
    }
    return HttpResponse(msgspec.json.encode(document), content_type="application/json")


def as_columns(
    items: Sequence[FleetNode], by: str, group: str, query: str, *, now: datetime
) -> dict[str, Any]:
    """Return nodes in columns: name, group, flags, value to colour by in thousandths, amounts.

    Raises:
        BadRequest: the query cannot be understood.
    """
    try:
        chosen = {one.name for one in language.matching(items, query)} if query else None
    except language.QueryError as error:
        raise BadRequest(str(error)) from None
    values: dict[str, int] = {}
    return {
        "name": [one.name for one in items],
        "group": [values.setdefault(one.labels.get(group, ""), len(values)) for one in items],
        "groups": list(values),
        "flags": [_flags(one) for one in items],
        "value": [_value(one, by, now) for one in items],
        "cpu": [[one.requested.get("cpu", 0), one.offered.get("cpu", 0)] for one in items],
        "memory": [
            [one.requested.get("memory", 0) >> 20, one.offered.get("memory", 0) >> 20]
            for one in items
        ],
        "pods": [[one.requested.get("pods", 0), one.offered.get("pods", 0)] for one in items],
        "dim": [] if chosen is None else [one.name not in chosen for one in items],
    }


def is_tainted(node: FleetNode) -> bool:
    """Return whether a node has a taint other than that of a cordon."""
    return any(key != _UNSCHEDULABLE for key, _, _ in node.taints)


def _flags(node: FleetNode) -> int:
    return (
        _CORDONED * node.cordoned
        | _TAINTED * is_tainted(node)
        | _NOT_READY * (node.ready in ("False", "Unknown"))
        | _LEAVING * (node.leaving > 0)
        | _TERMINATING * node.terminating
    )


def _value(node: FleetNode, by: str, now: Any) -> int:
    """Return the value that colours a node, 0 to 1000; -1 if the node has no such value."""
    if by == "fullness":
        return round(1000 * language.fullness(node))
    if by == "taints":
        return (
            1000
            if any(one[2] != "PreferNoSchedule" for one in node.taints)
            else (500 if node.taints else 0)
        )
    if by == "age":  # 0: new, 1000: a month and older
        return min(1000, int((now - node.created_at).total_seconds() / 2592))
    if by == "leaving":
        return min(1000, 200 * node.leaving)
    return round(1000 * node.share(by)) if by in node.offered else -1


def _choices(request: HttpRequest) -> tuple[str, str]:
    return request.GET.get("by") or "fullness", request.GET.get("group") or ZONE


def _colours(items: Sequence[FleetNode]) -> list[tuple[str, str]]:
    """Return the values by which the map can be coloured: value and title."""
    others = sorted({name for one in items for name in one.offered if name not in _PLAIN})
    titles = [("fullness", "fullness"), *((name, name) for name in (*_PLAIN, *others))]
    return [*titles, ("taints", "taints"), ("leaving", "pods leaving"), ("age", "age")]


def _groups(items: Sequence[FleetNode]) -> list[tuple[str, str]]:
    """Return the labels that nodes can be grouped by: key and title."""
    values: dict[str, set[str]] = {}
    for one in items:
        for key, value in one.labels.items():
            values_of_key = values.setdefault(key, set())
            if len(values_of_key) <= _MOST_VALUES:
                values_of_key.add(value)
    named = {key: title for title, key in _GROUPS}
    few = [key for key, values_of_key in values.items() if len(values_of_key) <= _MOST_VALUES]
    found = [(key, named.get(key, key)) for key in few]
    found.sort(key=lambda one: (one[0] not in named, one[1]))
    return found or [(ZONE, "zone")]


def _cards(items: Sequence[FleetNode]) -> list[dict[str, str]]:
    """Return the numbers above the map: number, label, link, and state.

    ``state``: ``warn`` if a node is not ready, ``bad`` from one in twenty on.
    """
    states: Counter[str] = Counter()
    requested: Counter[str] = Counter()
    offered: Counter[str] = Counter()
    for one in items:
        states["ready"] += one.ready == "True"
        states["silent"] += not one.ready
        states["lost"] += one.ready in ("False", "Unknown")
        states["cordoned"] += one.cordoned
        states["tainted"] += is_tainted(one)
        for resource in ("cpu", "memory"):
            requested[resource] += one.requested.get(resource, 0)
            offered[resource] += one.offered.get(resource, 0)
    found = [
        {
            "number": f"{states['ready']:,}",
            "text": f"of {len(items):,} node{'' if len(items) == 1 else 's'} ready"
            + (f", {states['silent']:,} without a report" if states["silent"] else ""),
            "query": "is:notready" if states["ready"] < len(items) else "",
            "state": ""
            if not states["lost"]
            else "bad"
            if 20 * states["lost"] >= len(items)
            else "warn",
        },
        {"number": f"{states['cordoned']:,}", "text": "cordoned", "query": "is:cordoned"},
        {"number": f"{states['tainted']:,}", "text": "tainted", "query": "is:tainted"},
    ]
    for resource, title in (("cpu", "CPU"), ("memory", "memory")):
        share = requested[resource] / offered[resource] if offered[resource] else 0.0
        use = (
            formatting.amount(resource, requested[resource]),
            formatting.amount(resource, offered[resource]),
        )
        found.append(
            {
                "number": formatting.percent(share),
                "text": f"{title} requested: {use[0]} of {use[1]}",
                "query": f"{resource}>80%",
            }
        )
    return found

"""The list of nodes: filtered by the query language, sorted, with chosen columns."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from django.http import HttpRequest, HttpResponse, QueryDict

from api import clock
from api.console.fleet.fleet_map import ZONE
from api.console.page import downloads, formatting, language, layout, time_travel
from api.forms.cells import human_duration
from clusterstate.objects.values.numbers import natural
from clusterstate.queries.nodes.fleet import FleetNode

PER_PAGE: Final = 60
_DEFAULT: Final = ("status", "zone", "cpu", "memory", "pods", "taints", "age")
_TITLES: Final = {
    "status": "Status",
    "zone": "Zone",
    "cpu": "CPU",
    "memory": "Memory",
    "pods": "Pods",
    "ephemeral-storage": "Disk",
    "taints": "Taints",
    "labels": "Labels",
    "leaving": "Evictions due",
    "fullness": "Fullest",
    "age": "Age",
}


class Column(msgspec.Struct, frozen=True):
    """A column: its name in the address, its title, and whether it is a bar."""

    name: str
    title: str
    bar: bool


class Head(msgspec.Struct, frozen=True):
    """The head of a column; ``address``: the link that sorts by it."""

    column: Column
    address: str
    sorted: str


class Cell(msgspec.Struct, frozen=True):
    """A cell: its text, the share of a bar, and a text on hover."""

    kind: str
    text: str
    share: float = 0.0
    title: str = ""
    many: tuple[str, ...] = ()
    moment: Any = None


class NodeRow(msgspec.Struct, frozen=True):
    """A node in the list."""

    name: str
    cells: list[Cell]


@layout.shown_then
@layout.alike()
def page(request: HttpRequest) -> HttpResponse:
    """Return the page with the list, or only the rows to refresh."""
    layout.require(request, "list", "nodes")
    every = time_travel.nodes(request)
    layout.filters(request, "q")
    query = request.GET.get("q", "")
    problem = ""
    try:
        found = language.matching(every, query)
    except language.QueryError as error:
        found, problem = [], str(error)
    chosen = columns_of(request.GET)
    order = request.GET.get("sort", "name")
    found = ordered(found, order)
    start = natural(request.GET.get("start", ""), digits=8) or 0
    rows = [
        NodeRow(one.name, [_cell(one, column) for column in chosen])
        for one in found[start : start + PER_PAGE]
    ]
    context = {
        "query": query,
        "problem": problem,
        "heads": [_head(Column("name", "Name", bar=False), order, request.GET)]
        + [_head(column, order, request.GET) for column in chosen],
        "rows": rows,
        "total": len(every),
        "found": len(found),
        "first": start + 1 if rows else 0,
        "last": start + len(rows),
        "before": _address(request.GET, start=start - PER_PAGE) if start else "",
        "after": _address(request.GET, start=start + PER_PAGE)
        if start + PER_PAGE < len(found)
        else "",
        "csv": _address(request.GET),
        "choices": _choices(every, [one.name for one in chosen]),
        "may_change": layout.may(request, "patch", "nodes"),
        "advises": layout.may_all(request, layout.ADVISING),
        "sees_devices": layout.may(request, "list", "resourceslices", group="resource.k8s.io"),
        "may_create": layout.may(request, "create", "nodes"),
        "here_path": request.get_full_path(),
        "sort": request.GET.get("sort", ""),
    }
    if layout.is_part(request):
        return layout.part(request, "nodes_rows.html", context)
    return layout.page(request, "nodes.html", "Nodes", context)


@layout.shown_then
def as_csv(request: HttpRequest) -> HttpResponse:
    """Return all nodes that match the query, in the chosen columns, as CSV."""
    layout.require(request, "list", "nodes")
    chosen = columns_of(request.GET)
    order = request.GET.get("sort", "name")
    try:
        found = language.matching(time_travel.nodes(request), request.GET.get("q", ""))
    except language.QueryError:
        found = []
    past = time_travel.of(request)
    now = clock.now() if past is None else past.at
    rows = ((one.name, *_csv_cells(one, chosen, now)) for one in ordered(found, order))
    return downloads.as_csv("nodes", ["name", *_csv_titles(chosen)], rows)


def _csv_titles(chosen: Sequence[Column]) -> Iterable[str]:
    for column in chosen:
        if column.bar and column.name != "fullness":
            yield f"{column.name} requested"
            yield f"{column.name} offered"
        else:
            yield column.name


def _csv_cells(node: FleetNode, chosen: Sequence[Column], now: datetime) -> Iterable[Any]:
    for column in chosen:
        if column.bar and column.name != "fullness":
            yield node.requested.get(column.name, 0)
            yield node.offered.get(column.name, 0)
        elif column.name == "age":
            yield human_duration(max(0.0, (now - node.created_at).total_seconds()))
        else:
            cell = _cell(node, column)
            yield cell.text or " ".join(cell.many)


def columns_of(query: QueryDict) -> list[Column]:
    """Return the chosen columns; ``label:KEY`` shows a label, other names are resources."""
    names = [name for name in query.get("columns", "").split(",") if name] or list(_DEFAULT)
    return [_column(name) for name in dict.fromkeys(names[:20])]


def _column(name: str) -> Column:
    if name.startswith("label:"):
        return Column(name, name.removeprefix("label:").rpartition("/")[2], bar=False)
    plain = name in ("status", "zone", "taints", "labels", "leaving", "age")
    return Column(name, _TITLES.get(name, name), bar=not plain)


def status_of(node: FleetNode) -> tuple[str, ...]:
    """Return a node's status in the words of ``kubectl get nodes``, with its pressures."""
    words_ = ["Terminating"] if node.terminating else []
    words_.append({"True": "Ready", "": "Unknown"}.get(node.ready, "NotReady"))
    if node.cordoned:
        words_.append("SchedulingDisabled")
    return (*words_, *node.conditions)


def _cell(node: FleetNode, column: Column) -> Cell:
    name = column.name
    if name == "status":
        return Cell("status", "", many=status_of(node))
    if name == "zone":
        return Cell("text", node.labels.get(ZONE, ""))
    if name == "taints":
        return Cell("chips", "", many=tuple(formatting.taint(one) for one in node.taints))
    if name == "labels":
        shown = (f"{key}={value}" for key, value in sorted(node.labels.items()))
        return Cell("chips", "", many=tuple(shown))
    if name == "leaving":
        return Cell("text", str(node.leaving or ""))
    if name == "age":
        return Cell("age", "", moment=node.created_at)
    if name.startswith("label:"):
        return Cell("text", language.label_of(node, name.removeprefix("label:")) or "")
    if name == "fullness":
        share = language.fullness(node)
        return Cell("bar", formatting.percent(share), share)
    if name not in node.offered and name not in node.requested:
        return Cell("text", "")
    requested, offered = node.requested.get(name, 0), node.offered.get(name, 0)
    share = node.share(name)
    text = f"{formatting.amount(name, requested)} / {formatting.amount(name, offered)}"
    return Cell("bar", text, share, title=f"{column.title} {formatting.percent(share)}")


def _key(name: str) -> Callable[[FleetNode], Any]:
    if name == "name":
        return lambda node: node.name
    if name == "age":  # the youngest is the smallest
        return lambda node: -node.created_at.timestamp()
    if name == "fullness":
        return language.fullness
    if name == "zone":
        return lambda node: node.labels.get(ZONE, "")
    if name == "status":
        return status_of
    if name == "taints":
        return lambda node: len(node.taints)
    if name == "labels":
        return lambda node: len(node.labels)
    if name == "leaving":
        return lambda node: node.leaving
    if name.startswith("label:"):
        return lambda node: language.label_of(node, name.removeprefix("label:")) or ""
    return lambda node: node.share(name)


def ordered(nodes: list[FleetNode], order: str) -> list[FleetNode]:
    """Return nodes sorted by a column, resources by share; ``-`` before it: the highest first."""
    name = order.removeprefix("-")
    if name == "name" and name == order:
        return nodes
    return sorted(nodes, key=_key(name), reverse=order.startswith("-"))


def _address(query: QueryDict, **changes: Any) -> str:
    """Return the page's query string with some parameters changed; empty and 0 remove one."""
    params = {**query.dict(), **changes}
    return "?" + urlencode({name: value for name, value in params.items() if value not in ("", 0)})


def _head(column: Column, order: str, query: QueryDict) -> Head:
    """Return a head; the first click on numbers sorts the highest first."""
    name = column.name
    first = f"-{name}" if column.bar else name
    second = name if column.bar else f"-{name}"
    how = ""
    if order.removeprefix("-") == name:
        how = "descending" if order.startswith("-") else "ascending"
    following = second if order == first else first
    return Head(column, _address(query, sort=following, start=0), how)


def _choices(nodes: Sequence[FleetNode], chosen: Sequence[str]) -> list[tuple[str, str, bool]]:
    """Return the columns that can be chosen: name, title, and whether each is chosen."""
    resources = sorted({name for one in nodes for name in one.offered})
    labels = sorted({f"label:{key}" for one in nodes[:2000] for key in one.labels})
    names = dict.fromkeys([*_DEFAULT, "fullness", "leaving", "labels", *resources, *labels[:60]])
    return [(one, _TITLES.get(one, one.removeprefix("label:")), one in chosen) for one in names]

"""Decisions: a search across pods, and one decision with its nodes compared and made again."""

from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from django.http import HttpRequest, HttpResponse

from api.access import reach
from api.console.page import downloads, layout, time_travel
from api.stowage import decision_search as wire
from clusterstate.access.rules import Attributes
from clusterstate.objects.values.errors import BadRequest, NotFound, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural
from clusterstate.queries.objects import get_manifest
from clusterstate.queries.scheduler import decision_search
from clusterstate.queries.scheduler.decision_search import DecisionSummary, Search

_PER_PAGE: Final = 100
_MOST_EXPORTED: Final = 50_000
_FIELDS: Final = (
    "namespace", "name", "node", "reason", "outcome", "profile", "owner", "actor", "since", "until",
)  # fmt: skip
_KEPT: Final = ("name", "namespace", "labels", "annotations", "ownerReferences")


@layout.shown_then
def search(request: HttpRequest) -> HttpResponse:
    """Return the page of decisions that match the search, the newest first."""
    filters = _search_of(request)
    number = natural(request.GET.get("before", "")) or 0
    found = decision_search.search(filters, limit=_PER_PAGE, before=number)
    query = request.GET.dict()
    context = {
        "items": found.items,
        "given": query,
        "outcomes": wire.OUTCOMES,
        "after": "?" + urlencode({**query, "before": found.more}) if found.more else "",
        "csv": "?" + urlencode({key: one for key, one in query.items() if one and key != "before"}),
        "most": _MOST_EXPORTED,
    }
    if layout.is_part(request):
        return layout.part(request, "decisions_rows.html", context)
    return layout.page(request, "decisions.html", "Decisions", context)


@layout.shown_then
def as_csv(request: HttpRequest) -> HttpResponse:
    """Return the newest 50,000 matching decisions as CSV; the API exports all."""
    filters = _search_of(request)
    rows: list[DecisionSummary] = []
    for page in decision_search.pages(filters):
        rows += page
        if len(rows) >= _MOST_EXPORTED:
            break
    titles = (
        "at", "namespace", "pod", "outcome", "node", "profile", "revision", "feasible", "evaluated",
        "total", "margin", "ties", "message",
    )  # fmt: skip
    return downloads.as_csv("decisions", titles, map(_cells, rows[:_MOST_EXPORTED]))


def _cells(one: DecisionSummary) -> tuple[Any, ...]:
    return (
        one.at.isoformat(), one.namespace, one.name, one.outcome, one.node_name, one.profile,
        one.profile_revision, one.feasible, one.evaluated, one.total, one.margin, one.ties,
        one.message,
    )  # fmt: skip


def _search_of(request: HttpRequest) -> Search:
    """Return the search of a request; for a past moment, only decisions made by then.

    Raises:
        BadRequest: a filter has an invalid value. AccessDenied: the person may not see decisions.
    """
    layout.filters(request, *_FIELDS)
    query = {name: request.GET.get(name, "").strip() for name in _FIELDS}
    query["namespace"] = layout.scope(request, "get", "pods", subresource="decisions")
    filters = wire.read({name: value for name, value in query.items() if value})
    past = time_travel.of(request)
    if past is not None and (filters.until is None or filters.until > past.at):
        filters = msgspec.structs.replace(filters, until=past.at)
    return wire.bounded(layout.user_of(request), filters)


def since(request: HttpRequest, namespace: str, name: str) -> datetime | None:
    """Return the time from which on the person may see decisions about a pod; ``None``: all."""
    wants = Attributes("get", "", "pods", "decisions", namespace=namespace, name=name)
    began = reach.beginning(layout.user_of(request), wants)
    return None if began is None else began.at


class ScoreComparison(msgspec.Struct, frozen=True):
    """A plugin's weighted scores of two nodes, and by how much the first is ahead."""

    plugin: str
    first: int
    second: int
    by: int


@layout.shown
def decision(request: HttpRequest, namespace: str, name: str, number: int) -> HttpResponse:
    """Return the page of a recorded decision: outcome, best nodes by plugin, rejections.

    ``a`` and ``b`` name two of the best nodes to compare; ``again`` a profile by which the pod is
    decided once more, in the present cluster.
    """
    from scheduling.answers import questions

    layout.require(request, "get", "pods", subresource="decisions", namespace=namespace, name=name)
    if (began := since(request, namespace, name)) is not None:
        questions.require_decided(number, since=began)
    found = questions.decision(namespace, name, number, full=False)
    top: list[dict[str, Any]] = found["top"]
    plugins = list(top[0]["weighted"]) if top else []
    first, second = _pair(request, top)
    may_ask = layout.may(request, "create", "simulations", group="stowage.dev")
    again = request.GET.get("again", "")
    context = {
        "namespace": namespace,
        "name": name,
        "one": found,
        "plugins": plugins,
        "top": [(best, [best["weighted"].get(plugin, 0) for plugin in plugins]) for best in top],
        "first": first,
        "second": second,
        "compared": _compared(first, second, plugins) if first and second else [],
        "profiles": [one.scheduler_name for one in questions.configuration().profiles]
        if may_ask
        else [],
        "again": again,
        "answer": _again(request, namespace, name, again) if again else None,
    }
    return layout.page(request, "decision.html", f"Decision about {namespace}/{name}", context)


def _pair(
    request: HttpRequest, top: list[dict[str, Any]]
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the two nodes to compare: those named in the query, else the two best."""
    by_name = {one["nodeName"]: one for one in top}
    selected = [request.GET[key] for key in ("a", "b") if request.GET.get(key)]
    if missing := [one for one in selected if one not in by_name]:
        raise BadRequest(f"no scores of node {missing[0]} are recorded: it is not among the best")
    names = list(dict.fromkeys([*selected, *by_name]))[:2]
    nodes = [by_name[one] for one in names]
    return (nodes[0], nodes[1]) if len(nodes) == 2 else (None, None)


def _compared(
    first: dict[str, Any], second: dict[str, Any], plugins: list[str]
) -> list[ScoreComparison]:
    """Return both nodes' scores by plugin, the largest difference first."""
    found = []
    for plugin in plugins:
        one, other = first["weighted"].get(plugin, 0), second["weighted"].get(plugin, 0)
        found.append(ScoreComparison(plugin, one, other, one - other))
    found.sort(key=lambda each: (-abs(each.by), each.plugin))
    return found


def _again(request: HttpRequest, namespace: str, name: str, profile: str) -> Manifest:
    """Return where the pod would be placed by a profile now, by simulation."""
    layout.require(request, "create", "simulations", group="stowage.dev")
    layout.require(request, "get", "pods", namespace=namespace, name=name)
    try:
        pod = get_manifest("Pod", namespace, name)
    except NotFound:
        return {"status": "unknown", "message": "the pod is gone, so it cannot be decided again"}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    metadata = {key: pod["metadata"][key] for key in _KEPT if key in pod["metadata"]}
    simulation = {
        "base": "live",
        "delete": [{"kind": "Pod", "namespace": namespace, "name": name}],
        "pods": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": {**spec, "schedulerName": profile},
            }
        ],
        "admission": False,
        "explain": "none",
    }
    try:
        answer: Any = layout.ask("simulation", {"spec": simulation})
    except StatusError as error:
        return {"status": "unknown", "message": error.message}
    results = answer["status"]["results"]
    if not results:
        return {"status": "unknown", "message": answer["status"].get("message", "")}
    found: Manifest = results[0]
    return found

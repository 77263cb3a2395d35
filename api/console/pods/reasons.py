"""Why pods wait: groups of pending pods, and a pod's verdicts node by node."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from api.console.live import node_cache
from api.console.live.shared_answers import SharedQuestion
from api.console.page import layout, reasons_text, time_travel
from clusterstate.objects.values.errors import BadRequest, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.scheduler import overview

_MOST_GROUPS: Final = 200
_PER_PAGE: Final = 100
_MOST_ROWS: Final = 10_000
_MOST_REMEDIES: Final = 4
_groups: Final = SharedQuestion("waiting-groups", deadline=10.0)


@layout.shown_then
@layout.alike()
def waiting(request: HttpRequest) -> HttpResponse:
    """Return the pending pods in groups: how many, since when, and why.

    For a past moment it shows the scheduler's messages alone, without remedies.
    """
    layout.filters(request, "namespace")
    namespace = layout.scope(request, "list", "pods")
    past = time_travel.of(request)
    if past is not None:
        layout.require(request, "list", "pods")
        causes = reasons_text.by_cause(past.fleet.waiting, past.fleet.items)[:_MOST_GROUPS]
        found = {"pods": past.fleet.pending, "causes": causes}
        return layout.page(request, "waiting.html", "Waiting", found)
    context: dict[str, Any] = {"pods": overview.pending(namespace), "namespace": namespace}
    context["advises"] = layout.may_all(request, layout.ADVISING)
    nodes = node_cache.nodes().items if layout.may(request, "list", "nodes") else []
    try:
        layout.require(request, "list", "waitinggroups", group="stowage.dev", namespace=namespace)
        if namespace:
            found = layout.ask("waiting-groups", {"namespace": namespace, "remedies": True})
        else:
            answer = _groups.answer({"remedies": True})
            found = answer.value
            context |= {"age": round(answer.age), "is_behind": answer.is_behind}
        context["items"] = [_group(one) for one in found["items"][:_MOST_GROUPS]]
        context["every"] = len(node_cache.nodes().items)
    except StatusError as error:
        # Without an advisor, or the right to ask it, the page shows the queue's data: the plugins
        # that rejected a pod, and the scheduler's message.
        context |= {"problem": error.message, "is_late": layout.is_late(error)}
        context["causes"] = reasons_text.by_cause(overview.waiting(namespace), nodes)[:_MOST_GROUPS]
    if layout.is_part(request):
        return layout.part(request, "waiting_part.html", context)
    return layout.page(request, "waiting.html", "Waiting", context)


class Help(msgspec.Struct, frozen=True):
    """A remedy as a sentence, and its preview.

    ``preview``: URL parameters, if the remedy changes a node. ``changes``: those of a plan as JSON,
    if it creates objects or admits a group. Otherwise both are empty.
    """

    text: str
    frees: int
    of: int
    opens: int
    preempts: int
    preview: str
    changes: str


class WaitingGroupRow(msgspec.Struct, frozen=True):
    """A group of pending pods for the template; ``oldest`` is (namespace, name)."""

    pods: int
    state: str
    since: str
    oldest: tuple[str, str]
    whose: list[str]
    examples: list[str]
    blockers: list[Manifest]
    pod_group: str
    remedies: list[Help]


def _group(item: Manifest) -> WaitingGroupRow:
    status = item["status"]
    namespace, _, name = status["oldest"].partition("/")
    return WaitingGroupRow(
        pods=status["pods"],
        state=status["state"],
        since=status["since"],
        oldest=(namespace, name),
        whose=list(status["owners"])[:3],
        examples=status["examples"],
        blockers=_blockers(status["blockers"]),
        pod_group=_pod_group(status["blockers"]),
        remedies=_remedies(status.get("remedies") or ()),
    )


def _pod_group(blockers: Sequence[Manifest]) -> str:
    """Return the PodGroup that has to be placed as a whole, empty for pods of none.

    The name is the part before the colon of the reason of GangScheduling.
    """
    for one in blockers:
        if one["plugin"] == "GangScheduling" and ": " in (reason := "; ".join(one["reasons"])):
            return reason.partition(": ")[0]
    return ""


def _remedies(found: Sequence[Manifest]) -> list[Help]:
    """Return the best remedies: those with a preview first, in order of their rank."""
    helps = [_help(one) for one in found]
    helps.sort(key=lambda one: not (one.preview or one.changes))
    return helps[:_MOST_REMEDIES]


def _blockers(found: Sequence[Manifest]) -> list[Manifest]:
    """Return the four reasons that reject most nodes; equal ones of several filters count once."""
    by_text: dict[str, Manifest] = {}
    for one in map(_blocker, found):
        by_text.setdefault(one["text"], one)
    return list(by_text.values())[:4]


def _blocker(one: Manifest) -> Manifest:
    fewest, most = one["fewest"], one["most"]
    nodes = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    about = one["taints"] or dict.fromkeys(one["terms"])
    text = reasons_text.with_terms("; ".join(one["reasons"]) or one["plugin"], about)
    return {"nodes": nodes, "text": text, **one}


def _help(one: Manifest) -> Help:
    return Help(
        text=one["text"],
        frees=one["frees"],
        of=one["of"],
        opens=one["opens"],
        preempts=one.get("preempts", 0),
        preview=preview_of(one),
        changes=_changes_of(one),
    )


def _changes_of(remedy: Manifest) -> str:
    plan = None if remedy.get("moves") else remedy.get("plan")
    return msgspec.json.encode(plan["spec"]["changes"]).decode() if plan else ""


def preview_of(remedy: Manifest) -> str:
    """Return the URL parameters for the preview of a remedy on its first node, or nothing.

    Only changes of nodes have a preview; a pod's owner changes the pod.
    """
    edits = remedy["edits"]
    if remedy["target"] != "Node" or len(edits) != 1 or not remedy["names"]:
        return ""
    (edit,) = edits
    node = [("node", remedy["names"][0])]
    if edit.get("action") == "Uncordon":
        return urlencode([("do", "uncordon"), *node])
    if edit.get("action") == "Untaint":
        taint = edit["taint"]
        had = [(f"had_taint_{part}", taint.get(part, "")) for part in ("key", "value", "effect")]
        return urlencode([("do", "edit"), *node, *had])
    if edit.get("action") == "Label":
        rows: list[tuple[str, str]] = []
        for key, value in edit["labels"].items():
            if value is None:
                rows += [("had_label_key", key), ("had_label_value", "")]
            else:
                rows += [("label_key", key), ("label_value", value)]
        return urlencode([("do", "edit"), *node, *rows])
    return ""


class Cell(msgspec.Struct, frozen=True):
    """A plugin's verdict on a node."""

    text: str
    title: str
    bad: bool


class NodeVerdictRow(msgspec.Struct, frozen=True):
    """A node with each plugin's verdict."""

    name: str
    rejections: int
    total: int | None
    cells: list[Cell]


@layout.shown
def why(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """Return each filter's verdict on every node for a pod, and the scores."""
    spec = _question(request, namespace, name)
    question = {
        **spec,
        "limit": _PER_PAGE,
        "token": request.GET.get("continue", ""),
        "remedies": False,  # trying them takes ten times as long as all the rest
    }
    try:
        found: Manifest = layout.ask("why", question)
    except StatusError as error:
        if not layout.is_late(error):
            raise
        # The pod's page has the scheduler's last message.
        instead = reverse("console:pod", args=(namespace, name))
        return layout.failure(request, error, instead=instead)
    status = found["status"]
    table = status.get("table") or {}
    scorers = list(table.get("scores") or {})
    filters = list(table.get("verdicts") or {})
    following = found["metadata"].get("continue")
    context = {
        "namespace": namespace,
        "name": name,
        "status": status,
        "widest": max([status.get("nodes", {}).get("known", 0), 1]),
        "filters": filters,
        "scorers": scorers,
        "rows": _rows(table, filters, scorers),
        "count": table.get("count", 0),
        "by": spec["rejectedBy"],
        "world": spec["world"],
        "asks_for_help": status["world"] == "now" and not status["nodes"]["feasible"],
        "columns": "?" + urlencode({"world": spec["world"], "by": spec["rejectedBy"]}),
        "after": "?" + urlencode({**request.GET.dict(), "continue": following})
        if following
        else "",
    }
    return layout.page(request, "why.html", f"Why: {namespace}/{name}", context)


@layout.shown
def why_columns(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """Return all nodes of the page's table as columns, in JSON, the first 10,000.

    It is ``status.table`` of an ``Explanation`` (``scheduling.simulation.explanation.page``). The
    page draws the visible rows from it, and sorts and compares without another request.
    """
    question = _question(request, namespace, name)
    found: Manifest = layout.ask("why", {**question, "limit": _MOST_ROWS, "remedies": False})
    body = msgspec.json.encode(found["status"].get("table") or {})
    return HttpResponse(body, content_type="application/json")


@layout.shown
def why_helps(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """Return remedies for a pending pod, a part that the page requests once it is open."""
    question = {**_question(request, namespace, name), "world": "now", "rejectedBy": ""}
    found: Manifest = layout.ask("why", {**question, "limit": 0})
    helps = _remedies(found["status"].get("remedies") or ())
    return layout.part(request, "why_helps.html", {"remedies": helps})


def _question(request: HttpRequest, namespace: str, name: str) -> dict[str, Any]:
    """Return the part of the question ``why`` that a page and its table share.

    Raises:
        AccessDenied: the person may not ask. BadRequest: there is no such world.
    """
    about = {"namespace": namespace, "name": name}
    layout.require(request, "get", "pods", group="stowage.dev", subresource="why", **about)
    world = request.GET.get("world", "")
    if world not in ("", "now", "then"):
        raise BadRequest("world: must be now or then")
    return {**about, "world": world, "rejectedBy": request.GET.get("by", "")}


def _rows(table: Manifest, filters: list[str], scorers: list[str]) -> list[NodeVerdictRow]:
    """Return the page of nodes as rows: verdicts of the filters, then scores."""
    statuses = table.get("statuses") or []
    totals = table.get("total")
    found = []
    for at, node in enumerate(table.get("name") or []):
        cells = [_verdict(statuses, table["verdicts"][plugin][at]) for plugin in filters]
        for plugin in scorers:
            score = table["scores"][plugin]
            weighted = score["weighted"][at]
            title = "not scored"
            if weighted is not None:
                raw, normalized = score["raw"][at], score["normalized"][at]
                title = f"raw {raw}, normalised {normalized}, weight {score['weight']}"
            cells.append(Cell("" if weighted is None else str(weighted), title, bad=False))
        found.append(
            NodeVerdictRow(node, table["rejections"][at], totals[at] if totals else None, cells)
        )
    return found


def _verdict(statuses: list[Manifest], index: int) -> Cell:
    if not index:
        return Cell("fits", "", bad=False)
    status = statuses[index]
    return Cell("; ".join(status["reasons"]) or status["code"], status["code"], bad=True)

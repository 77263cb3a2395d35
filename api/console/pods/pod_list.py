"""The list of pods, filtered by a part of the name, namespace, node, phase, or pending ones."""

from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse

from api import clock
from api.console.page import formatting, layout, time_travel
from api.console.page.time_travel import PastMoment
from clusterstate.objects.registry.fields import FieldRequirement
from clusterstate.objects.values.numbers import natural
from clusterstate.queries.objects import decode_object, finding
from clusterstate.queries.objects.lists import list_page

PER_PAGE: Final = 100


@layout.shown_then
@layout.alike()
def page(request: HttpRequest) -> HttpResponse:
    """Return the list, filtered by a part of the name, namespace, node, phase, or pending ones."""
    layout.filters(request, "q", "namespace", "node", "phase", "waiting")
    namespace = layout.scope(request, "list", "pods")
    start = natural(request.GET.get("start", ""), digits=8) or 0
    chosen = finding.PodSearch(
        part=request.GET.get("q", "").strip(),
        namespace=namespace,
        node_name=request.GET.get("node", ""),
        phase=request.GET.get("phase", ""),
        waiting=request.GET.get("waiting") == "yes",
    )
    past = time_travel.of(request)
    if past is None:
        now, found = clock.now(), finding.pods(chosen, start=start, limit=PER_PAGE + 1)
    else:
        now, found = past.at, _pods_at(past, chosen, start=start, limit=PER_PAGE + 1)
    rows = [_row(one, now) for one in found[:PER_PAGE]]
    query = {key: value for key, value in request.GET.dict().items() if key != "start" and value}
    context = {
        "rows": rows,
        "search": chosen,
        "first": start + 1,
        "last": start + len(rows),
        "after": "?" + urlencode({**query, "start": start + PER_PAGE})
        if len(found) > PER_PAGE
        else "",
        "before": "?" + urlencode({**query, "start": max(0, start - PER_PAGE)}) if start else "",
        "may_create": layout.may(request, "create", "pods", namespace=namespace or "default"),
        "phases": ("Pending", "Running", "Succeeded", "Failed"),
    }
    if layout.is_part(request):
        return layout.part(request, "pods_rows.html", context)
    return layout.page(request, "pods.html", "Pods", context)


def _pods_at(past: PastMoment, search: finding.PodSearch, *, start: int, limit: int) -> list[Any]:
    """Return pods as of a past moment; only the shown ones are decoded."""
    chosen = [
        FieldRequirement(path, value)
        for path, value in (("spec.nodeName", search.node_name), ("status.phase", search.phase))
        if value
    ]
    if search.waiting:
        chosen.append(FieldRequirement("spec.nodeName", ""))
    page = list_page(
        "Pod", search.namespace, field_selector=chosen, limit=start + limit, at=past.revision,
        part=search.part,
    )  # fmt: skip
    return [decode_object(text) for text in page.items[start:]]


def _row(pod: Any, now: Any) -> dict[str, Any]:
    requests = formatting.requests_of(pod)
    return {
        "namespace": pod["metadata"]["namespace"],
        "name": pod["metadata"]["name"],
        "status": formatting.pod_status(pod, now),
        "node": pod["spec"].get("nodeName", ""),
        "cpu": formatting.amount("cpu", requests.get("cpu", 0)),
        "memory": formatting.amount("memory", requests.get("memory", 0)),
        "priority": pod["spec"].get("priority", 0),
        "why": why_of(pod),
        "created": pod["metadata"].get("creationTimestamp"),
    }


def why_of(pod: Any) -> str:
    """Return the scheduler's message about a pod without a node, or an empty text."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return str(one.get("message") or one.get("reason") or "")
    group = pod["spec"].get("schedulingGroup") if not pod["spec"].get("nodeName") else None
    return f"waits for its PodGroup {group['podGroupName']}" if group else ""

"""Pods: the list, and a pod's page with its timeline, decisions, events and YAML."""

from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse

from api import clock, pages, tables
from api.console import frame, words
from clusterstate.objects.errors import NotFound
from clusterstate.objects.kinds import KINDS
from clusterstate.queries import finding, overview, trail
from clusterstate.queries.eviction_timers import waiting_timers
from clusterstate.queries.objects import decode_object, find_object, not_found

PER_PAGE: Final = 100


@frame.shown
def page(request: HttpRequest) -> HttpResponse:
    """Return the list: by part of the name, namespace, node, phase, or those that wait."""
    namespace = request.GET.get("ns", "")
    frame.require(request, "list", "pods", namespace=namespace)
    text = request.GET.get("start", "")
    start = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    chosen = finding.PodSearch(
        part=request.GET.get("q", "").strip(),
        namespace=namespace,
        node_name=request.GET.get("node", ""),
        phase=request.GET.get("phase", ""),
        waiting=request.GET.get("waiting") == "yes",
    )
    found = finding.pods(chosen, start=start, limit=PER_PAGE + 1)
    now = clock.now()
    rows = [_row(one, now) for one in found[:PER_PAGE]]
    given = {key: value for key, value in request.GET.dict().items() if key != "start" and value}
    context = {
        "rows": rows,
        "search": chosen,
        "first": start + 1,
        "last": start + len(rows),
        "after": "?" + urlencode({**given, "start": start + PER_PAGE})
        if len(found) > PER_PAGE
        else "",
        "before": "?" + urlencode({**given, "start": max(0, start - PER_PAGE)}) if start else "",
        "phases": ("Pending", "Running", "Succeeded", "Failed"),
    }
    if frame.is_part(request):
        return frame.part(request, "pods_rows.html", context)
    return frame.page(request, "pods.html", "Pods", context)


def _row(pod: Any, now: Any) -> dict[str, Any]:
    asked = words.requests_of(pod)
    cells = tables.printer(KINDS["Pod"]).cells(pod, now)
    return {
        "namespace": pod["metadata"]["namespace"],
        "name": pod["metadata"]["name"],
        "status": cells[2],
        "node": pod["spec"].get("nodeName", ""),
        "cpu": words.amount("cpu", asked.get("cpu", 0)),
        "memory": words.amount("memory", asked.get("memory", 0)),
        "priority": pod["spec"].get("priority", 0),
        "why": _why(pod),
        "created": pod["metadata"].get("creationTimestamp"),
    }


def _why(pod: Any) -> str:
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return str(one.get("message") or one.get("reason") or "")
    return ""


@frame.shown
def pod(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """Return a pod's page; as a part what changes by itself."""
    from scheduling.answers import questions

    frame.require(request, "get", "pods", namespace=namespace, name=name)
    text = find_object("Pod", namespace, name)
    steps = trail.trail_of(KINDS["Pod"], namespace, name, limit=50).steps
    if text is None and not steps:
        raise not_found("Pod", name)
    about = {"namespace": namespace, "name": name}
    decided = []
    if frame.may(request, "get", "pods", subresource="decisions", **about):
        with suppress(NotFound):
            decided = questions.decisions_of(namespace, name, limit=20)
    context: dict[str, Any] = {
        "namespace": namespace,
        "name": name,
        "gone": text is None,
        "steps": steps,
        "decisions": decided,
        "events": overview.events_of("Pod", namespace, name, limit=30)
        if frame.may(request, "list", "events", namespace=namespace)
        else [],
        "timers": waiting_timers(namespace=namespace, name=name, limit=5),
    }
    if text is not None:
        manifest = decode_object(text)
        context |= _of(manifest)
        context["may_evict"] = frame.may(
            request, "create", "pods", subresource="eviction", namespace=namespace, name=name
        )
        context["may_delete"] = frame.may(request, "delete", "pods", namespace=namespace, name=name)
        context["may_ask"] = not frame.missing(request, frame.FORETELLING)
    if frame.is_part(request):
        return frame.part(request, "pod_part.html", context)
    return frame.page(request, "pod.html", f"{namespace}/{name}", context)


def _of(manifest: Any) -> dict[str, Any]:
    asked = words.requests_of(manifest)
    spec, status = manifest["spec"], manifest.get("status") or {}
    shown = {k: v for k, v in manifest["metadata"].items() if k != "managedFields"}
    owners = manifest["metadata"].get("ownerReferences") or ()
    return {
        "status": tables.printer(KINDS["Pod"]).cells(manifest, clock.now())[2],
        "node": spec.get("nodeName", ""),
        "nominated": status.get("nominatedNodeName", ""),
        "asks": [(key, words.amount(key, amount)) for key, amount in asked.items() if amount],
        "overhead": spec.get("overhead") or {},
        "runtime": spec.get("runtimeClassName", ""),
        "priority": spec.get("priority", 0),
        "priority_class": spec.get("priorityClassName", ""),
        "scheduler": spec.get("schedulerName", ""),
        "gates": [one.get("name") for one in spec.get("schedulingGates") or ()],
        "owners": [f"{one['kind']}/{one['name']}" for one in owners],
        "created": manifest["metadata"].get("creationTimestamp"),
        "leaves_at": manifest["metadata"].get("deletionTimestamp"),
        "conditions": status.get("conditions") or [],
        "why": _why(manifest),
        "yaml": pages.as_yaml({**manifest, "metadata": shown}),
    }

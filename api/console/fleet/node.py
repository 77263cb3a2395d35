"""A node: its requests, pods, conditions, timers and history, and the editors."""

from typing import Any, Final

import msgspec
from django.http import HttpRequest, HttpResponse

from api import clock
from api.console.fleet import node_list
from api.console.page import formatting, layout, time_travel
from api.console.page.time_travel import PastMoment
from api.forms import pages
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules.matching import EFFECTS
from clusterstate.queries.evictions.brakes import held_back
from clusterstate.queries.evictions.eviction_timers import waiting_timers
from clusterstate.queries.nodes.fleet import FleetNode
from clusterstate.queries.nodes.fleet_past import node_at
from clusterstate.queries.objects import decode_object, get_manifest, not_found
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.past import find_at
from clusterstate.queries.scheduler import overview

_MOST: Final = 500


class Use(msgspec.Struct, frozen=True):
    """How much of a resource is requested, how much of that is overhead, and how much offered."""

    resource: str
    share: float
    text: str
    overhead: str


@layout.shown_then
@layout.alike()
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Return a node's page, or the part of it that refreshes."""
    layout.require(request, "get", "nodes", name=name)
    past = time_travel.of(request)
    if past is None:
        manifest, of_then = get_manifest("Node", "", name), []
        node = next((one for one in time_travel.nodes(request) if one.name == name), None)
    else:
        text = _text_at(name, past)
        manifest, of_then = decode_object(text), _pods_at(name, past)
        node = node_at(past.revision, text, of_then)
    sees_pods = layout.may(request, "list", "pods")
    context: dict[str, Any] = {
        "name": name,
        "status": node_list.status_of(node) if node else (),
        "uses": _uses(node, _overhead(name, past)) if node else [],
        "conditions": (manifest.get("status") or {}).get("conditions") or [],
        "created": manifest["metadata"].get("creationTimestamp"),
        "info": (manifest.get("status") or {}).get("nodeInfo") or {},
        "labels": sorted((manifest["metadata"].get("labels") or {}).items()),
        "taints": (manifest.get("spec") or {}).get("taints") or [],
        "cordoned": bool((manifest.get("spec") or {}).get("unschedulable")),
        "pods": _rows(name, past, of_then) if sees_pods else None,
        "timers": waiting_timers(node_name=name, limit=50, held=held_back(clock.now()))
        if sees_pods and past is None
        else [],
        "history": ("Node", "-", name),
        "steps": time_travel.steps(KINDS["Node"], "", name, past, limit=20),
        "yaml": pages.as_yaml(_shown(manifest)),
        "effects": EFFECTS,
        "amounts": sorted(((manifest.get("status") or {}).get("allocatable") or {}).items()),
        "may_change": layout.may(request, "patch", "nodes", name=name),
        "may_delete": layout.may(request, "delete", "nodes", name=name),
        "system_taints": "node.kubernetes.io/",
    }
    if layout.is_part(request):
        return layout.part(request, "node_part.html", context)
    return layout.page(request, "node.html", name, context)


def _text_at(name: str, past: PastMoment) -> bytes:
    """Return the node at a past moment.

    Raises:
        NotFound: it did not exist.
    """
    text = find_at(KINDS["Node"], "", name, past.revision)
    if text is None:
        raise not_found("Node", name)
    return text


def _pods_at(name: str, past: PastMoment) -> list[bytes]:
    """Return the pods that were on the node at a past moment."""
    here = f"spec.nodeName={name}"
    return list_page("Pod", field_selector=here, at=past.revision).items


def _overhead(name: str, past: PastMoment | None) -> dict[str, int]:
    """Return how much of the requests is overhead; for a past moment none, since unknown."""
    return overview.overhead_on(name) if past is None else {}


def _shown(manifest: Any) -> Any:
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "managedFields"}
    return {**manifest, "metadata": metadata}


def _uses(node: FleetNode, overhead: dict[str, int]) -> list[Use]:
    plain = [
        name for name in ("cpu", "memory", "pods", "ephemeral-storage") if name in node.offered
    ]
    others = sorted({*node.offered, *node.requested} - set(plain))
    found = []
    for name in [*plain, *others]:
        requested, offered = node.requested.get(name, 0), node.offered.get(name, 0)
        if not requested and not offered:
            continue
        text = f"{formatting.amount(name, requested)} of {formatting.amount(name, offered)}"
        more = formatting.amount(name, overhead[name]) if overhead.get(name) else ""
        found.append(Use(name, node.share(name), text, more))
    return found


def _rows(name: str, past: PastMoment | None, of_then: list[bytes]) -> list[dict[str, Any]]:
    now = clock.now() if past is None else past.at
    if past is None:
        pods = overview.pods_of_node(name, limit=_MOST)
    else:
        pods = [decode_object(text) for text in of_then[:_MOST]]
    found = []
    for one in pods:
        requests = formatting.requests_of(one)
        found.append(
            {
                "namespace": one["metadata"]["namespace"],
                "name": one["metadata"]["name"],
                "status": formatting.pod_status(one, now),
                "cpu": formatting.amount("cpu", requests.get("cpu", 0)),
                "memory": formatting.amount("memory", requests.get("memory", 0)),
                "priority": one["spec"].get("priority", 0),
                "owner": _owner(one),
                "created": one["metadata"].get("creationTimestamp"),
            }
        )
    return found


def _owner(pod: Any) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((f"{one['kind']}/{one['name']}" for one in owners if one.get("controller")), "")

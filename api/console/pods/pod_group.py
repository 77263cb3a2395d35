"""A PodGroup: its pods by level of topology, and why it cannot be placed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from django.http import HttpRequest, HttpResponse

from api.console.fleet.fleet_map import ZONE
from api.console.live import node_cache
from api.console.page import layout
from clusterstate.objects.values.errors import NotFound, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import HOSTNAME
from clusterstate.objects.values.pod_group import PodGroup
from clusterstate.queries.objects import decode_object, get_object
from clusterstate.queries.pods import Member, members_of

_GROUP: Final = "scheduling.k8s.io"
_MOST_DOMAINS: Final = 50
_MOST_PODS: Final = 200


class Level(msgspec.Struct, frozen=True):
    """The domains of a node label: name, pods of the group, nodes. Those with pods come first.

    ``required``: whether all pods have to be in one of them. ``left_out``: domains not shown.
    """

    key: str
    required: bool
    domains: list[tuple[str, int, int]]
    left_out: int


@layout.shown
def page(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """Return a PodGroup's page, or the part of it that refreshes itself. It has no past."""
    about = {"namespace": namespace, "name": name}
    layout.require(request, "get", "podgroups", group=_GROUP, **about)
    manifest = decode_object(get_object("PodGroup", namespace, name))
    group = msgspec.convert(manifest, PodGroup)
    sees_pods = layout.may(request, "list", "pods", namespace=namespace)
    members = members_of(namespace, name) if sees_pods else []
    placed = sum(bool(one.node_name) for one in members)
    context = {
        "namespace": namespace,
        "name": name,
        "group": group,
        "sees_pods": sees_pods,
        "members": sorted(members, key=lambda one: bool(one.node_name))[:_MOST_PODS],
        "left_out": max(0, len(members) - _MOST_PODS),
        "placed": placed,
        "waiting": len(members) - placed,
        "levels": _levels(group, members) if layout.may(request, "list", "nodes") else [],
        "conditions": (manifest.get("status") or {}).get("conditions") or (),
        **_lack(request, namespace, members),
    }
    if layout.is_part(request):
        return layout.part(request, "pod_group_part.html", context)
    return layout.page(request, "pod_group.html", f"{namespace}/{name}", context)


def _levels(group: PodGroup, members: Sequence[Member]) -> list[Level]:
    """Return the levels of topology, the required ones first, then zones and nodes."""
    nodes: Mapping[str, Mapping[str, str]] = {
        one.name: one.labels for one in node_cache.nodes().items
    }
    required = group.topology_keys
    found = []
    for key in dict.fromkeys((*required, ZONE, HOSTNAME)):
        there = Counter(labels[key] for labels in nodes.values() if key in labels)
        pods = Counter(
            nodes[one.node_name][key]
            for one in members
            if one.node_name in nodes and key in nodes[one.node_name]
        )
        if key == HOSTNAME:  # of nodes only those that have a pod are worth a line
            there = Counter({domain: there[domain] for domain in pods})
        ordered = sorted(there, key=lambda domain: (-pods[domain], domain))
        shown = [(domain, pods[domain], there[domain]) for domain in ordered[:_MOST_DOMAINS]]
        if shown or key in required:
            found.append(Level(key, key in required, shown, len(ordered) - len(shown)))
    return found


def _lack(request: HttpRequest, namespace: str, members: Sequence[Member]) -> Manifest:
    """Return why the group cannot be placed, as ``why`` of a pending pod; asks an advisor.

    ``unknown``: why there is no answer.
    """
    waits = next((one.name for one in members if not one.node_name), "")
    about = {"namespace": namespace, "name": waits}
    if not waits or not layout.may(
        request, "get", "pods", group="stowage.dev", subresource="why", **about
    ):
        return {}
    try:
        question = {**about, "world": "now", "limit": 0, "remedies": False}
        status = layout.ask("why", question, seconds=5)["status"]
    except NotFound:  # it was placed or deleted meanwhile
        return {}
    except StatusError as error:
        return {"waits": waits, "unknown": error.message}
    return {"waits": waits, "lacks": status.get("podGroup"), "message": status["message"]}

"""Nodes with what their pods asked for, and the pods that waited, as they were at a revision."""

from datetime import UTC, datetime
from typing import Final

import msgspec

from clusterstate.objects import document
from clusterstate.objects.node import Node
from clusterstate.objects.pod import Pod
from clusterstate.objects.quantity import milli_value, value
from clusterstate.objects.resources import pod_request_ints
from clusterstate.queries.fleet import FleetNode, worries
from clusterstate.queries.lists import list_page

_PLAIN: Final = ("cpu", "memory", "ephemeral-storage", "pods")
_OVER: Final = ("Succeeded", "Failed")
_LEAST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_decode_node = msgspec.json.Decoder(Node).decode
_decode_pod = msgspec.json.Decoder(Pod).decode


class Waited(msgspec.Struct, frozen=True):
    """Pods that waited with the same words: how many, the first of them, since when, why."""

    pods: int
    namespace: str
    name: str
    since: datetime | None
    message: str
    stage: str = ""


class PastFleet(msgspec.Struct, frozen=True):
    """The fleet at a revision: nodes by name, groups of waiting pods, the largest first.

    ``leaving`` of the nodes counts pods that were being deleted: timers of evictions have no past.
    """

    items: list[FleetNode]
    waiting: list[Waited]
    pending: int


def fleet_at(revision: int) -> PastFleet:
    """Return the fleet as it was at a revision that `past.revision_at` found.

    Reads every node and pod of then: about 20 us a pod, and queries four times or more.

    Raises:
        Expired: that is no longer known.
    """
    asked: dict[str, dict[str, int]] = {}
    leaving: dict[str, int] = {}
    waited: dict[str, Waited] = {}
    pending = 0
    for text in list_page("Pod", at=revision).items:
        pod = _decode_pod(text)
        name = pod.spec.node_name
        if pod.status.phase in _OVER:
            continue
        if not name:
            pending += 1
            _wait(pod, waited)
            continue
        use = asked.setdefault(name, {"pods": 0})
        use["pods"] += 1
        for resource, amount in pod_request_ints(pod).items():
            use[resource] = use.get(resource, 0) + amount
        if pod.metadata.deletion_timestamp:
            leaving[name] = leaving.get(name, 0) + 1
    items = [
        _node(_decode_node(text), asked, leaving, revision)
        for text in list_page("Node", at=revision).items
    ]
    groups = sorted(waited.values(), key=lambda one: (-one.pods, one.namespace, one.name))
    return PastFleet(items, groups, pending)


def _wait(pod: Pod, waited: dict[str, Waited]) -> None:
    """Count a pod without a node to those that waited with the same words."""
    words, since = "", pod.metadata.creation_timestamp
    for one in pod.status.conditions:
        if one.type == "PodScheduled" and one.status == "False":
            words = one.message or one.reason
            since = one.last_transition_time or since
    moment = document.parse_time(since) if since else None
    known = waited.get(words)
    if known is None:
        waited[words] = Waited(1, pod.metadata.namespace, pod.metadata.name, moment, words)
        return
    earlier = [at for at in (known.since, moment) if at is not None]
    waited[words] = msgspec.structs.replace(
        known, pods=known.pods + 1, since=min(earlier, default=None)
    )


def _node(
    node: Node, asked: dict[str, dict[str, int]], leaving: dict[str, int], revision: int
) -> FleetNode:
    name, created = node.metadata.name, node.metadata.creation_timestamp
    conditions = node.status.conditions
    offered = dict.fromkeys(_PLAIN, 0) | {
        resource: milli_value(text) if resource == "cpu" else value(text)
        for resource, text in node.status.allocatable.items()
    }
    return FleetNode(
        id=0,
        name=name,
        revision=revision,
        created_at=document.parse_time(created) if created else _LEAST,
        cordoned=node.spec.unschedulable,
        terminating=bool(node.metadata.deletion_timestamp),
        labels=node.metadata.labels,
        taints=tuple((one.key, one.value, one.effect) for one in node.spec.taints),
        ready=next((one.status for one in conditions if one.type == "Ready"), ""),
        conditions=tuple(one.type for one in conditions if worries(one)),
        offered=offered,
        asked=asked.get(name, {}),
        leaving=leaving.get(name, 0),
    )

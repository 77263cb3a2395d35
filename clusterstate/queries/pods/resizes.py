"""Resizes that wait for room on a node without an agent, and the allocations on such a node."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.database import sql
from clusterstate.objects.rules import resizing, resources
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.remembered import remembered
from clusterstate.queries.pods import POD_OVERLAY, pod_overlay
from clusterstate.queries.pods.terminating import WITH_AGENT

_decode_pod: Final = msgspec.json.Decoder(Pod).decode
_UNFINISHED: Final = "p.phase NOT IN ('Succeeded', 'Failed')"


class WaitingResize(msgspec.Struct, frozen=True):
    """A resize that waits. ``node_name`` is empty if the pod, or the resize, is over."""

    pod_id: int
    revision: int
    node_name: str
    pod: Manifest
    since: datetime


class OnNode(msgspec.Struct, frozen=True):
    """A node's allocatable amounts, and the amounts of each of its unfinished pods."""

    offered: Mapping[str, int]
    pods: dict[int, Mapping[str, int]]

    def others(self, pod_id: int) -> dict[str, int]:
        """Return the sum of the allocations of all pods except this one."""
        total: dict[str, int] = {}
        for other, amounts in self.pods.items():
            if other != pod_id:
                for name, amount in amounts.items():
                    total[name] = total.get(name, 0) + amount
        return total


_WAITING: Final = f"""
SELECT w.pod_id, w.since, d.text, t.revision, {POD_OVERLAY},
       t.id IS NOT NULL AND t.phase NOT IN ('Succeeded', 'Failed')
       AND t.node_name NOT IN ({WITH_AGENT})
FROM deferred_resize w LEFT JOIN pod t ON t.id = w.pod_id
LEFT JOIN document d ON d.id = t.document_id
"""


def waiting(node_name: str | None = None) -> list[WaitingResize]:
    """Return the resizes that wait, on one node or on all, by pod. Queries once.

    One whose pod finished or is gone, or whose node has an agent by now, has no ``node_name``.
    """
    found = []
    if node_name is None:
        rows = sql.fetch(f"{_WAITING} ORDER BY w.pod_id")
    else:
        rows = sql.fetch(f"{_WAITING} WHERE t.node_name = %s ORDER BY w.pod_id", (node_name,))
    for pod_id, since, text, revision, node_name, *slots, is_ours in rows:
        pod: Manifest = {}
        if is_ours:
            pod = document.decode(text, revision, pod_overlay(node_name, *slots))
        found.append(WaitingResize(pod_id, revision or 0, node_name if is_ours else "", pod, since))
    return found


_NODES: Final = "SELECT n.name, n.cpu_milli, n.memory_bytes FROM node n WHERE n.name = ANY(%s)"
_PODS: Final = f"""
SELECT p.node_name, p.id, c.spec FROM pod p JOIN scheduling_class c ON c.id = p.class_id
WHERE p.node_name = ANY(%s) AND p.node_name <> '' AND {_UNFINISHED}
"""


def on_nodes(names: Collection[str], waiting_pods: Sequence[WaitingResize]) -> dict[str, OnNode]:
    """Return the nodes that exist, with their allocatable amounts and the amounts of each pod.

    A pod whose resize waits counts with its allocated amounts, every other one with its requests.
    Queries twice, in one round trip.
    """
    node_names = sql.Texts(sorted(names))
    nodes, pods = sql.fetch_together((_NODES, (node_names,)), (_PODS, (node_names,)))
    found = {
        name: OnNode({resources.CPU: cpu, resources.MEMORY: memory}, {})
        for name, cpu, memory in nodes
    }
    held = {one.pod_id: one for one in waiting_pods if one.node_name}
    for name, pod_id, spec in pods:
        if name in found:
            one = held.get(pod_id)
            found[name].pods[pod_id] = (
                _of_class(spec) if one is None else resizing.amounts(resizing.allocated(one.pod))
            )
    return found


@remembered(4096, longest=16_384)
def _of_class(spec: str) -> dict[str, int]:
    return resources.pod_request_ints(_decode_pod(spec))

"""Nodes with the sums of their pods' requests, in one row each: for maps and lists of nodes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from clusterstate.database import sql
from clusterstate.objects.values import document
from clusterstate.objects.values.node import Node, NodeCondition


class FleetNode(msgspec.Struct, frozen=True, gc=False):
    """A node. ``offered`` and ``requested`` are by resource: milli-CPU, bytes, whole units.

    ``requested``: the requests of unfinished pods on the node, with their RuntimeClasses' overhead,
    and under ``pods`` their number. ``taints``: (key, value, effect). ``ready``: the status of the
    Ready condition, empty without one; ``conditions``: the types of the others that are True.
    ``leaving``: how many eviction timers run on it.
    """

    id: int
    name: str
    revision: int
    created_at: datetime
    cordoned: bool
    terminating: bool
    labels: dict[str, str]
    taints: tuple[tuple[str, str, str], ...]
    ready: str
    conditions: tuple[str, ...]
    offered: dict[str, int]
    requested: dict[str, int]
    leaving: int

    def share(self, resource: str) -> float:
        """Return the requested fraction of a resource; 1 if it is requested and not offered."""
        offered, requested = self.offered.get(resource, 0), self.requested.get(resource, 0)
        if offered > 0:
            return requested / offered
        return 1.0 if requested > 0 else 0.0


_NODES: Final = """
SELECT n.id, n.name, n.revision, n.created_at, n.unschedulable, n.deletion_at IS NOT NULL,
       n.labels::text, n.cpu_milli, n.memory_bytes, n.ephemeral_bytes, n.pods, n.extended::text,
       d.text
FROM node n JOIN document d ON d.id = n.document_id WHERE %s OR n.name = ANY(%s) ORDER BY n.name
"""


def total(column: str) -> str:
    """Return the SQL of a sum, limited to the largest bigint: amounts may exceed it."""
    return f"least(sum({column}), {2**63 - 1})::bigint"


_RUNNING: Final = "p.node_name <> '' AND p.phase NOT IN ('Succeeded', 'Failed')"
_ASKED: Final = f"""
SELECT p.node_name, count(*), {total("c.cpu_milli")}, {total("c.memory_bytes")},
       {total("c.ephemeral_bytes")}
FROM pod p JOIN scheduling_class c ON c.id = p.class_id
WHERE {_RUNNING} AND (%s OR p.node_name = ANY(%s)) GROUP BY p.node_name
"""
_EXTENDED: Final = f"""
SELECT p.node_name, e.key, {total("e.value::bigint")}
FROM pod p JOIN scheduling_class c ON c.id = p.class_id, jsonb_each_text(c.extended) e
WHERE c.extended <> '{{}}'::jsonb AND {_RUNNING} AND (%s OR p.node_name = ANY(%s))
GROUP BY 1, 2
"""
_LEAVING: Final = """
SELECT node_name, count(*) FROM eviction_timer WHERE %s OR node_name = ANY(%s) GROUP BY 1
"""
_decode_node = msgspec.json.Decoder(Node).decode
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode
_decode_amounts = msgspec.json.Decoder(dict[str, int]).decode


def fleet(names: Sequence[str] | None = None) -> list[FleetNode]:
    """Return all nodes, or those of these names that exist, by name. Queries four times at once."""
    chosen = (names is None, sql.Texts(list(names or ())))
    nodes, requests, extended, leaving = sql.fetch_together(
        (_NODES, chosen), (_ASKED, chosen), (_EXTENDED, chosen), (_LEAVING, chosen)
    )
    use: dict[str, dict[str, int]] = {
        name: {"pods": pods, "cpu": cpu, "memory": memory, "ephemeral-storage": ephemeral}
        for name, pods, cpu, memory, ephemeral in requests
    }
    for name, resource, amount in extended:
        use[name][resource] = amount
    timers: dict[str, int] = dict(leaving)
    return [_node(row, use.get(row[1], {}), timers.get(row[1], 0)) for row in nodes]


def _node(row: Sequence[Any], requested: dict[str, int], leaving: int) -> FleetNode:
    (
        id_, name, revision, created_at, cordoned, terminating, labels, cpu, memory, ephemeral,
        pods, extended, text,
    ) = row  # fmt: skip
    lens = _decode_node(document.compose(text, revision))
    conditions = lens.status.conditions
    return FleetNode(
        id=id_,
        name=name,
        revision=revision,
        created_at=created_at,
        cordoned=cordoned,
        terminating=terminating,
        labels=_decode_labels(labels),
        taints=tuple((one.key, one.value, one.effect) for one in lens.spec.taints),
        ready=next((one.status for one in conditions if one.type == "Ready"), ""),
        conditions=tuple(one.type for one in conditions if worries(one)),
        offered={
            "cpu": cpu,
            "memory": memory,
            "ephemeral-storage": ephemeral,
            "pods": pods,
            **_decode_amounts(extended),
        },
        requested=requested,
        leaving=leaving,
    )


def worries(condition: NodeCondition) -> bool:
    """Return whether a condition reports a problem of the node."""
    return condition.type != "Ready" and condition.status == "True"

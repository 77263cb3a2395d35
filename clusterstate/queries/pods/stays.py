"""Where pods are, by place and by stay.

All pods of one scheduling class on one node share tolerations, terms, taints and labels. So a
controller judges *places*, pairs of node and class. The verdict on labels applies to all pods of a
place, and the statements in ``actions.evictions`` expand it to them. Taints count from when each
pod was bound, so their verdicts are about *stays*: a pod at its place since then.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from clusterstate.database import sql

EXECUTION_FIELD: Final = "requiredDuringSchedulingRequiredDuringExecution"


class ClassOnNode(msgspec.Struct, frozen=True):
    """The pods of one class on one node."""

    node_name: str
    class_id: int


class Stay(msgspec.Struct, frozen=True):
    """A pod with its class, its node, and the time at which it was bound."""

    pod_id: int
    node_name: str
    class_id: int
    bound_at: datetime

    @property
    def place(self) -> ClassOnNode:
        """The node and class that the pod counts for."""
        return ClassOnNode(self.node_name, self.class_id)


LIVE = "p.deletion_at IS NULL AND p.phase NOT IN ('Succeeded', 'Failed')"

BOUND_AT: Final = "coalesce(p.bound_at, p.scheduled_at, p.created_at)"
"""When a bound pod was bound; a pod of an older version knows that from its condition."""

_STAYS = f"SELECT p.id, p.node_name, p.class_id, {BOUND_AT} FROM pod p"


def stays_on(node_names: Sequence[str]) -> list[Stay]:
    """Return the live pods on the nodes. Queries once, by index."""
    rows = sql.fetch(
        f"{_STAYS} WHERE p.node_name = ANY(%s) AND p.node_name <> '' AND {LIVE}",
        (sql.Texts(list(node_names)),),
    )
    return [Stay(*row) for row in rows]


def stays_of(pod_ids: Sequence[int]) -> list[Stay]:
    """Return those among the pods that are live and bound. Queries once."""
    rows = sql.fetch(
        f"{_STAYS} WHERE p.id = ANY(%s) AND p.node_name <> '' AND {LIVE}",
        (sql.Int8s(list(pod_ids)),),
    )
    return [Stay(*row) for row in rows]


def executing_places(
    *, node_names: Sequence[str] | None = None, pod_ids: Sequence[int] | None = None
) -> list[ClassOnNode]:
    """Return (node, class) of live pods whose class has terms that apply during execution (R3).

    On all nodes, on some nodes, or of some pods only. Queries once; reads no other classes.
    """
    where, parameters = "", list[Any]()
    if node_names is not None:
        where, parameters = "AND p.node_name = ANY(%s)", [sql.Texts(list(node_names))]
    if pod_ids is not None:
        where, parameters = "AND p.id = ANY(%s)", [sql.Int8s(list(pod_ids))]
    rows = sql.fetch(
        "SELECT DISTINCT p.node_name, p.class_id FROM scheduling_class c"
        " JOIN pod p ON p.class_id = c.id"
        f" WHERE strpos(c.spec, '\"{EXECUTION_FIELD}\"') > 0"
        f" AND p.node_name <> '' AND {LIVE} {where}",
        parameters,
    )
    return [ClassOnNode(*row) for row in rows]


def class_specs(class_ids: Sequence[int]) -> dict[int, str]:
    """Return the specs of scheduling classes by id. Queries once."""
    rows = sql.fetch(
        "SELECT id, spec FROM scheduling_class WHERE id = ANY(%s)", (sql.Int8s(list(class_ids)),)
    )
    return {class_id: spec for class_id, spec in rows}  # noqa: C416  # typed, unlike dict(rows)

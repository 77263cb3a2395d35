"""What a first page tells of a cluster: what waits, what leaves, what was decided last."""

from datetime import datetime
from typing import Final

import msgspec

from clusterstate import sql


class WaitingGroup(msgspec.Struct, frozen=True):
    """Waiting pods of one scheduling class in one stage: how many, one of them, since when, why."""

    pods: int
    namespace: str
    name: str
    stage: str
    since: datetime
    rejected_by: list[str]
    message: str


class Leaving(msgspec.Struct, frozen=True):
    """A pod that will leave its node."""

    namespace: str
    name: str
    node_name: str
    due_at: datetime
    cause: str
    taint_key: str
    blocked_by: str


class Decided(msgspec.Struct, frozen=True):
    """A decision, in short."""

    id: int
    at: datetime
    namespace: str
    name: str
    outcome: str
    node_name: str
    evaluated: int
    feasible: int


_WAITING: Final = """
SELECT g.pods, p.namespace, p.name, g.stage, g.since, q.rejected_by, q.message
FROM (SELECT count(*) AS pods, min(q.pod_id) AS first, q.stage, min(q.since) AS since
      FROM pending_pod q JOIN pod p ON p.id = q.pod_id
      GROUP BY p.class_id, q.stage) g
JOIN pending_pod q ON q.pod_id = g.first JOIN pod p ON p.id = g.first
ORDER BY g.pods DESC, g.first LIMIT %s::bigint
"""


def waiting(*, limit: int = 12) -> list[WaitingGroup]:
    """Return the largest groups of waiting pods. Queries once; looks at all that wait."""
    return [WaitingGroup(*row) for row in sql.fetch(_WAITING, (limit,))]


def pending() -> int:
    """Return how many pods wait. Queries once."""
    row = sql.fetch_one("SELECT count(*) FROM pending_pod")
    return 0 if row is None else row[0]


def leaving(*, until: datetime, limit: int) -> list[Leaving]:
    """Return the pods that leave first, up to a time. Queries once, by index."""
    rows = sql.fetch(
        "SELECT p.namespace, p.name, t.node_name, t.due_at, t.cause, t.taint_key, t.blocked_by"
        " FROM eviction_timer t JOIN pod p ON p.id = t.pod_id"
        " WHERE t.due_at <= %s::timestamptz AND p.deletion_at IS NULL"
        " ORDER BY t.due_at, t.pod_id LIMIT %s::bigint",
        (until, limit),
    )
    return [Leaving(*row) for row in rows]


def decided(*, limit: int) -> list[Decided]:
    """Return the last decisions. Queries once, by index."""
    rows = sql.fetch(
        "SELECT id, at, namespace, name, outcome, node_name, evaluated, feasible FROM decision"
        " ORDER BY id DESC LIMIT %s::bigint",
        (limit,),
    )
    return [Decided(*row) for row in rows]

"""What the tables hold, for tests: the queue, the timers, and nodes that are promised too much."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from clusterstate.database import sql


class PendingRow(msgspec.Struct, frozen=True):
    """An unbound pod and its place in the queue."""

    id: int
    uid: str
    namespace: str
    name: str
    class_id: int
    revision: int
    priority: int
    scheduler_name: str
    nominated_node_name: str
    created_at: datetime
    deletion_at: datetime | None
    stage: str
    attempts: int
    not_before: datetime | None
    since: datetime
    rejected_by: list[str]
    message: str
    refused_revision: int
    refused_under: int


def load_pending(ids: Sequence[int] | None = None) -> list[PendingRow]:
    """Return the queue by priority and age: all waiting pods, or some by id. Queries once."""
    where = "" if ids is None else "WHERE q.pod_id = ANY(%s)"
    rows = sql.fetch(
        f"""
        SELECT p.id, p.uid::text, p.namespace, p.name, p.class_id, p.revision, p.priority,
               p.scheduler_name, p.nominated_node_name, p.created_at, p.deletion_at, q.stage,
               q.attempts, q.not_before, q.since, q.rejected_by, q.message, q.refused_revision,
               q.refused_under
        FROM pending_pod q JOIN pod p ON p.id = q.pod_id {where}
        ORDER BY p.priority DESC, q.since, p.id
        """,
        () if ids is None else (sql.Int8s(list(ids)),),
    )
    return [PendingRow(*row) for row in rows]


def count_timers() -> int:
    """Return how many timers wait. Queries once; counts them all."""
    row = sql.fetch_one("SELECT count(*) FROM eviction_timer")
    assert row is not None
    waiting_now: int = row[0]
    return waiting_now


class OvercommittedNode(msgspec.Struct, frozen=True):
    """A node whose pods ask for more than it offers; ``resource`` names what."""

    name: str
    resource: str
    used: int
    allocatable: int


_OVERCOMMITTED = """
WITH used AS (
    SELECT p.node_name, count(*) AS pods, sum(c.cpu_milli) AS cpu, sum(c.memory_bytes) AS memory,
           sum(c.ephemeral_bytes) AS ephemeral
    FROM pod p JOIN scheduling_class c ON c.id = p.class_id
    WHERE p.node_name <> '' AND p.phase NOT IN ('Succeeded', 'Failed')
    GROUP BY p.node_name
), more AS (
    SELECT p.node_name, e.key, sum(e.value::bigint) AS amount
    FROM pod p JOIN scheduling_class c ON c.id = p.class_id, jsonb_each_text(c.extended) e
    WHERE p.node_name <> '' AND p.phase NOT IN ('Succeeded', 'Failed')
    GROUP BY p.node_name, e.key
)
SELECT n.name, r.resource, r.used::bigint, r.allocatable
FROM node n JOIN used u ON u.node_name = n.name
CROSS JOIN LATERAL (VALUES ('pods', u.pods, n.pods), ('cpu', u.cpu, n.cpu_milli),
                           ('memory', u.memory, n.memory_bytes),
                           ('ephemeral-storage', u.ephemeral, n.ephemeral_bytes))
     AS r(resource, used, allocatable)
WHERE r.used > r.allocatable
UNION ALL
SELECT n.name, m.key, m.amount::bigint, coalesce((n.extended ->> m.key)::bigint, 0)
FROM node n JOIN more m ON m.node_name = n.name
WHERE m.amount > coalesce((n.extended ->> m.key)::bigint, 0)
ORDER BY 1, 2
"""


def overcommitted_nodes() -> list[OvercommittedNode]:
    """Return what is overcommitted, by node and resource; empty in a sound cluster. Queries once.

    Counts every bound pod that has not finished against ``status.allocatable``: thousandths of a
    CPU, bytes, pods, whole units of extended resources.
    """
    return [OvercommittedNode(*row) for row in sql.fetch(_OVERCOMMITTED)]

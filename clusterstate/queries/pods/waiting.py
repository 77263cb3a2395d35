"""Waiting pods with their names and their places in the queue, to explain why they wait."""

from datetime import datetime

import msgspec

from clusterstate.database import sql


class WaitingPod(msgspec.Struct, frozen=True, gc=False):
    """A pod without a node, and how long it has waited.

    ``stage``, ``attempts``, ``since`` and ``rejected_by`` are those of the queue
    (``models.PendingPod``).
    """

    id: int
    uid: str
    namespace: str
    name: str
    class_id: int
    scheduler_name: str
    priority: int
    nominated_node_name: str
    stage: str
    attempts: int
    since: datetime
    rejected_by: list[str]


class Subject(msgspec.Struct, frozen=True, gc=False):
    """A pod whose placement is explained; ``stage`` is empty if it has a node."""

    id: int
    uid: str
    class_id: int
    scheduler_name: str
    priority: int
    node_name: str
    nominated_node_name: str
    phase: str
    stage: str
    attempts: int
    since: datetime | None


_SUBJECT = """
SELECT p.id, p.uid::text, p.class_id, p.scheduler_name, p.priority, p.node_name,
       p.nominated_node_name, p.phase, coalesce(q.stage, ''), coalesce(q.attempts, 0), q.since
FROM pod p LEFT JOIN pending_pod q ON q.pod_id = p.id
WHERE p.namespace = %s AND p.name = %s
"""


def subject(namespace: str, name: str) -> Subject | None:
    """Return a pod to be explained, or ``None``. Queries once."""
    row = sql.fetch_one(_SUBJECT, (namespace, name))
    return None if row is None else Subject(*row)


_WAITING = """
SELECT q.pod_id, p.uid::text, p.namespace, p.name, p.class_id, p.scheduler_name, p.priority,
       p.nominated_node_name, q.stage, q.attempts, q.since, q.rejected_by
FROM pending_pod q JOIN pod p ON p.id = q.pod_id
WHERE p.deletion_at IS NULL AND (%s = '' OR p.namespace = %s)
  AND (%s = '' OR p.scheduler_name = %s)
ORDER BY p.priority DESC, q.since, q.pod_id LIMIT %s::bigint
"""


def waiting(
    namespace: str = "", *, scheduler_name: str = "", most: int | None = None
) -> list[WaitingPod]:
    """Return all waiting pods, or those of a namespace or a profile, in the queue's default order.

    At most ``most``. Terminating pods are left out. Queries once; reads all waiting pods.
    """
    parameters = (namespace, namespace, scheduler_name, scheduler_name, most)
    return [WaitingPod(*row) for row in sql.fetch(_WAITING, parameters)]

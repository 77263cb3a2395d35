"""The scheduling queue: pods that are not bound."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from clusterstate.database import sql


def load_arrivals(follower: str) -> list[int]:
    """Return the pods that clients put on a node and that the node has not admitted, oldest first.

    These are the pods after the follower's cursor, created there or bound by a Binding, and the
    pods whose node does not exist. Queries once; reads all pods.
    """
    rows = sql.fetch(
        # A web process of an earlier version writes no arrival_revision.
        "SELECT p.id FROM pod p CROSS JOIN LATERAL (SELECT coalesce(p.arrival_revision,"
        "        CASE WHEN p.bound_at = p.created_at THEN p.revision END) AS revision) a"
        " WHERE a.revision IS NOT NULL AND p.phase = 'Pending'"
        " AND p.deletion_at IS NULL AND p.node_name <> ''"
        " AND (a.revision > coalesce("
        "        (SELECT c.revision FROM controller_cursor c WHERE c.name = %s), 0)"
        "      OR NOT EXISTS (SELECT 1 FROM node n WHERE n.name = p.node_name))"
        " ORDER BY p.id",
        (follower,),
    )
    return [row[0] for row in rows]


def placed_by_clients(pod_ids: Sequence[int]) -> list[int]:
    """Return those of some pods that clients put on a node, oldest first. Queries once."""
    rows = sql.fetch(
        "SELECT id FROM pod WHERE id = ANY(%s) AND (arrival_revision IS NOT NULL"
        " OR bound_at = created_at) ORDER BY id",
        (sql.Int8s(list(pod_ids)),),
    )
    return [row[0] for row in rows]


def pending_counts() -> dict[str, int]:
    """Return how many pods wait in each stage of the queue. Queries once."""
    rows = sql.fetch("SELECT stage, count(*) FROM pending_pod GROUP BY stage")
    return {row[0]: row[1] for row in rows}


class PluginRefusals(msgspec.Struct, frozen=True):
    """How many waiting pods of a profile a plugin refused, and since when the first one waits."""

    plugin: str
    profile: str
    count: int
    since: datetime


def refused_counts() -> list[PluginRefusals]:
    """Return how many waiting pods each plugin refused. Queries once; reads all waiting pods.

    A pod counts for each plugin that refused it. Pods with a node are no rows of the queue, so the
    cost grows with refused pods, not with the cluster; it runs once for each scrape.
    """
    rows = sql.fetch(
        "SELECT r.plugin, p.scheduler_name, count(*), min(q.since)"
        " FROM pending_pod q JOIN pod p ON p.id = q.pod_id, unnest(q.rejected_by) AS r (plugin)"
        " GROUP BY 1, 2"
    )
    return [PluginRefusals(*row) for row in rows]


def untried(pod_ids: Sequence[int], seconds: float) -> list[int]:
    """Return those of some pods that wait for so long without having been tried. Queries once."""
    rows = sql.fetch(
        "SELECT pod_id FROM pending_pod WHERE pod_id = ANY(%s) AND stage = 'active'"
        " AND attempts = 0 AND since < clock_timestamp() - make_interval(secs => %s::float8)",
        (sql.Int8s(list(pod_ids)), seconds),
    )
    return [row[0] for row in rows]


def oldest_untried(schedulers: Sequence[str]) -> datetime | None:
    """Return since when the earliest never tried pod of these schedulers waits.

    ``None``: all were tried. A refused pod counts as tried once that is written. Queries once.
    """
    row = sql.fetch_one(
        "SELECT min(q.since) FROM pending_pod q JOIN pod p ON p.id = q.pod_id"
        " WHERE q.stage = 'active' AND q.attempts = 0 AND p.deletion_at IS NULL"
        " AND p.scheduler_name = ANY(%s)",
        (sql.Texts(list(schedulers)),),
    )
    return None if row is None else row[0]


class UnclaimedPod(msgspec.Struct, frozen=True):
    """A pod whose scheduler has no profile here, and its place in the queue."""

    pod_id: int
    scheduler_name: str
    early: int
    not_before: datetime | None


def unclaimed(profiles: Sequence[str], *, since: datetime, limit: int) -> list[UnclaimedPod]:
    """Return pods that have waited since ``since`` for a scheduler without a profile.

    Only those without a PodScheduled condition. Queries once; reads all pods that were not tried.
    """
    rows = sql.fetch(
        "SELECT q.pod_id, p.scheduler_name, q.early, q.not_before"
        " FROM pending_pod q JOIN pod p ON p.id = q.pod_id"
        " WHERE q.stage = 'active' AND q.attempts = 0 AND q.since < %s::timestamptz"
        " AND p.deletion_at IS NULL AND p.unschedulable IS NULL AND p.scheduler_name <> ALL(%s)"
        " ORDER BY q.pod_id LIMIT %s",
        (since, sql.Texts(list(profiles)), limit),
    )
    return [UnclaimedPod(*row) for row in rows]


_WAITING = """
    SELECT q.pod_id, p.class_id, p.revision, p.scheduler_name, p.nominated_node_name,
           p.deletion_at IS NOT NULL, q.stage, q.attempts, q.early, q.not_before, q.since,
           q.rejected_by, q.refused_revision, q.refused_under
    FROM pending_pod q JOIN pod p ON p.id = q.pod_id
"""


class WaitingPod(msgspec.Struct, frozen=True, gc=False):
    """A pod's row in the queue, with what the queue needs of the pod (``models.PendingPod``).

    ``leaves``: it has a deletion time.
    """

    id: int
    class_id: int
    revision: int
    scheduler_name: str
    nominated_node_name: str
    leaves: bool
    stage: str
    attempts: int
    early: int
    not_before: datetime | None
    since: datetime
    rejected_by: list[str]
    refused_revision: int
    refused_under: int


def load_waiting(ids: Sequence[int] | None = None) -> list[WaitingPod]:
    """Return all waiting pods, or those of some ids that wait, in no order. Queries once."""
    if ids is None:
        return [WaitingPod(*row) for row in sql.fetch(_WAITING)]
    if not ids:
        return []
    rows = sql.fetch(f"{_WAITING} WHERE q.pod_id = ANY(%s)", (sql.Int8s(ids),))
    return [WaitingPod(*row) for row in rows]

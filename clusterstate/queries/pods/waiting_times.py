"""How long pods wait, and waited, for a node, in groups; and which pods starve."""

from bisect import bisect_right
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from clusterstate.database import sql
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.meta import Manifest

GOAL_SECONDS: Final = 300
"""Pods that wait longer are over the goal, unless a question gives another."""
_PART: Final = "replace(d.text, chr(1), '')::json #>> '{spec,%s}'"
_WAITING_BY: Final = {
    "namespace": "p.namespace",
    "priority": "p.priority::text",
    "profile": "p.scheduler_name",
    "stage": "q.stage",
    "reason": "r.plugin",
    "priorityClass": _PART % "priorityClassName",
    "runtimeClass": _PART % "runtimeClassName",
}
_PLACED_BY: Final = {key: _WAITING_BY[key] for key in ("namespace", "priority", "profile")}
DIMENSIONS: Final = tuple(_WAITING_BY)


class Times(msgspec.Struct, frozen=True):
    """Waiting times of a group of pods, in seconds; ``value``: what they have in common."""

    value: str
    pods: int
    median: float
    p95: float
    longest: float
    over_goal: int


class StarvedPod(msgspec.Struct, frozen=True):
    """A pod that waits longer than the goal while later ones were served.

    ``overtaken_by``: pods of no higher priority that came later and have a node.
    """

    namespace: str
    name: str
    priority: int
    since: datetime
    rejected_by: list[str]
    overtaken_by: int


_OVER_GOAL: Final = """
    SELECT p.namespace, p.name, p.priority, q.since, q.rejected_by, p.scheduler_name
    FROM pending_pod q JOIN pod p ON p.id = q.pod_id
    WHERE p.deletion_at IS NULL AND q.stage NOT IN ('gated', 'inflight')
      AND q.since < %s::timestamptz AND (%s = '' OR p.namespace = %s)
    ORDER BY q.since, p.namespace, p.name LIMIT %s
"""
_CAME_LATER: Final = """
    SELECT scheduler_name, priority, width_bucket(created_at, %s), count(*)
    FROM pod
    WHERE created_at >= %s::timestamptz AND bound_at >= %s::timestamptz
      AND scheduled_at IS NOT NULL
    GROUP BY 1, 2, 3
"""
_MICROSECOND: Final = timedelta(microseconds=1)
_FIGURES = """
count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY w.seconds),
percentile_disc(0.95) WITHIN GROUP (ORDER BY w.seconds), max(w.seconds),
count(*) FILTER (WHERE w.seconds > %s::float)
"""


def waiting_now(by: str, *, now: datetime, goal: timedelta, namespace: str = "") -> list[Times]:
    """Return the waiting times of the pods that wait now, in groups, the largest group first.

    With ``by="reason"`` a pod is in the group of each plugin that refused it last, or in that of
    the empty text if none did. Queries once; reads all waiting pods.

    Args:
        by: what the pods of a group have in common, one of ``DIMENSIONS``.
        now: the end of the waiting times.
        goal: a longer wait is over the goal.
        namespace: only its pods; empty for all.
    """
    column = _WAITING_BY[by]
    joined = ""
    if by == "reason":
        joined = "LEFT JOIN LATERAL unnest(q.rejected_by) AS r (plugin) ON true"
    if by in ("priorityClass", "runtimeClass"):
        joined = "JOIN document d ON d.id = p.document_id"
    rows = sql.fetch(
        f"SELECT w.value, {_FIGURES} FROM (SELECT coalesce({column}, '') AS value,"
        " greatest(extract(epoch FROM %s::timestamptz - q.since), 0)::float AS seconds"
        f" FROM pending_pod q JOIN pod p ON p.id = q.pod_id {joined}"
        " WHERE p.deletion_at IS NULL AND (%s = '' OR p.namespace = %s)) w"
        " GROUP BY w.value ORDER BY count(*) DESC, w.value",
        (goal.total_seconds(), now, namespace, namespace),
    )
    return [Times(*row) for row in rows]


def waited(
    by: str, *, now: datetime, past: timedelta, goal: timedelta, namespace: str = ""
) -> list[Times] | None:
    """Return the waiting times of the pods placed within ``past``, in groups, the largest first.

    A pod waited from its creation until it was bound. ``None``: placed pods cannot be grouped
    ``by`` this. Queries once; reads all pods. For the arguments see ``waiting_now``.
    """
    column = _PLACED_BY.get(by)
    if column is None:
        return None
    rows = sql.fetch(
        f"SELECT w.value, {_FIGURES} FROM (SELECT {column} AS value,"
        " greatest(extract(epoch FROM p.bound_at - p.created_at), 0)::float AS seconds"
        " FROM pod p WHERE p.bound_at > %s::timestamptz AND p.scheduled_at IS NOT NULL"
        " AND (%s = '' OR p.namespace = %s)) w"
        " GROUP BY w.value ORDER BY count(*) DESC, w.value",
        (goal.total_seconds(), now - past, namespace, namespace),
    )
    return [Times(*row) for row in rows]


def starved(
    *, now: datetime, goal: timedelta, namespace: str = "", limit: int = 100
) -> list[StarvedPod]:
    """Return pods that wait longer than the goal and were overtaken, the oldest first.

    Overtaken: a pod of the same profile and of no higher priority that was created later has been
    bound. Pods behind scheduling gates are left out. Queries twice; reads the oldest ``limit``
    waiting pods, and once all that came after the first of them.
    """
    rows = sql.fetch(_OVER_GOAL, (now - goal, namespace, namespace, limit))
    if not rows:
        return []
    moments = [since for *_, since, _, _ in rows]
    # Bucket n has the pods that came after n of the waiting ones, which are in order.
    after = [since + _MICROSECOND for since in moments]
    placed = sql.fetch(_CAME_LATER, (sql.Times(after), after[0], after[0]))
    found = []
    for space, name, priority, since, rejected_by, profile in rows:
        place = bisect_right(moments, since)
        overtaken_by = sum(
            count
            for scheduler, of, bucket, count in placed
            if bucket >= place and of <= priority and scheduler == profile
        )
        if overtaken_by:
            found.append(StarvedPod(space, name, priority, since, rejected_by, overtaken_by))
    return found


def report(
    by: str, *, now: datetime, past: timedelta, goal: timedelta, namespace: str = ""
) -> Manifest:
    """Return ``spec`` and ``status`` of a WaitingTimes. Queries three times."""
    placed = waited(by, now=now, past=past, goal=goal, namespace=namespace)
    status: dict[str, Any] = {
        "waiting": _rows(waiting_now(by, now=now, goal=goal, namespace=namespace)),
        "starved": [
            _starved(one, now.timestamp())
            for one in starved(now=now, goal=goal, namespace=namespace)
        ],
    }
    if placed is not None:
        status["placed"] = _rows(placed)
    return {
        "spec": {
            "by": by,
            "namespace": namespace,
            "goalSeconds": int(goal.total_seconds()),
            "pastSeconds": int(past.total_seconds()),
        },
        "status": status,
    }


def _rows(times: list[Times]) -> list[Manifest]:
    return [
        {
            "value": one.value,
            "pods": one.pods,
            "medianSeconds": round(one.median, 3),
            "p95Seconds": round(one.p95, 3),
            "longestSeconds": round(one.longest, 3),
            "overGoal": one.over_goal,
        }
        for one in times
    ]


def _starved(one: StarvedPod, now: float) -> Manifest:
    return {
        "namespace": one.namespace,
        "name": one.name,
        "priority": one.priority,
        "since": format_time(one.since),
        "seconds": round(now - one.since.timestamp(), 3),
        "rejectedBy": one.rejected_by,
        "overtakenBy": one.overtaken_by,
    }

"""Rows for measurements on a throw-away database: more than a cluster would have in a year."""

from datetime import datetime, timedelta

from clusterstate import sql


def add_waiting_timers(count: int, *, now: datetime) -> None:
    """Insert eviction timers that are due in a year, of pods that do not exist."""
    later = now + timedelta(days=365)
    sql.run(
        "INSERT INTO eviction_timer (pod_id, cause, node_name, taint_key, taint_effect, seconds,"
        " started_at, due_at, blocked_by)"
        " SELECT 1000000000 + i, 'taint', 'waiting-' || i / 100, 'k', 'NoExecute', 31536000,"
        " %s::timestamptz, %s::timestamptz + i * interval '1 ms', ''"
        " FROM generate_series(1, %s::bigint) i",
        (now, later, count),
    )
    sql.run("ANALYZE eviction_timer")


def date_taints(node_name: str, added_at: datetime) -> None:
    """Let a node's taints have been added at that moment, to the microsecond."""
    sql.run(
        "UPDATE taint t SET added_at = %s::timestamptz FROM node n"
        " WHERE n.id = t.node_id AND n.name = %s",
        (added_at, node_name),
    )

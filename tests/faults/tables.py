"""What the checkers read from PostgreSQL itself, by statements of their own."""

from typing import Any

import psycopg

_UNBOUND = """
SELECT namespace || '/' || name FROM pod
WHERE node_name = '' AND phase NOT IN ('Succeeded', 'Failed')
"""
_QUEUED = """
SELECT coalesce(p.namespace || '/' || p.name, 'pod ' || q.pod_id)
FROM pending_pod q LEFT JOIN pod p ON p.id = q.pod_id
"""
_TIMERS = """
SELECT coalesce(p.uid::text, 'pod ' || t.pod_id),
       least(extract(epoch FROM t.due_at), 1e15)::float8
FROM eviction_timer t LEFT JOIN pod p ON p.id = t.pod_id WHERE t.cause = 'taint'
"""
_TOLD = "SELECT DISTINCT namespace || '/' || name FROM change WHERE kind = 1"
_DECIDED = """
SELECT pod_uid::text, min(snapshot_revision) FROM decision
WHERE node_name <> '' AND at > now() - interval '10 minutes' GROUP BY 1
"""
GROWING = (
    "change", "document", "superseded_document", "event", "decision", "decision_table",
    "scheduling_class", "pending_pod", "eviction_timer", "reservation",
)  # fmt: skip
"""Tables that must not grow while the cluster stays as full as it is."""

Connection = psycopg.Connection[Any]


def _names(connection: Connection, statement: str) -> list[str]:
    return [str(row[0]) for row in connection.execute(statement)]


def queue(connection: Connection) -> tuple[list[str], list[str]]:
    """Return the unbound, unfinished pods and the queue, as of one moment."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        return _names(connection, _UNBOUND), _names(connection, _QUEUED)


def timers(connection: Connection) -> dict[str, float]:
    """Return the due times of the timers for taints, by pod uid, in seconds since 1970."""
    return {str(uid): float(due) for uid, due in connection.execute(_TIMERS)}


def told(connection: Connection) -> list[str]:
    """Return the pods that the change log tells of."""
    return _names(connection, _TOLD)


def decided_on(connection: Connection) -> dict[str, int]:
    """Return the revision of the snapshot that each pod was placed on, by uid."""
    return {str(uid): int(revision) for uid, revision in connection.execute(_DECIDED)}


def sizes(connection: Connection) -> dict[str, int]:
    """Return the rows of each table that might grow."""
    found = {}
    for table in GROWING:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone() or (0,)
        found[f"rows of {table}"] = int(count)
    return found

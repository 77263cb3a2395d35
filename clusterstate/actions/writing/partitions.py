"""Partitions of the tables that grow with time: created and dropped while others read and write.

``CREATE TABLE ... PARTITION OF`` takes ACCESS EXCLUSIVE on the parent: it waits for every
transaction that has read a row of it, such as a backup of minutes, and all writers wait behind it,
including the scheduler. A table that is created alone and attached afterwards needs only the lock
that VACUUM takes. Dropping a partition needs the parent as well, and waits for readers. Sessions
idle in a transaction for ``SILENT_SECONDS`` are terminated: they would block the drop for ever.
"""

from typing import Final

import structlog

from clusterstate.database import sessions, sql

logger = structlog.get_logger(__name__)

SILENT_SECONDS: Final = 600
"""How long a session may be idle in a transaction that has read such a table."""

_MAKE = """DO $$ BEGIN
    PERFORM pg_advisory_xact_lock({lock});
    IF NOT EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                   WHERE i.inhparent = '{parent}'::regclass AND c.relname = '{name}') THEN
        CREATE TABLE {name} (LIKE {parent} INCLUDING DEFAULTS INCLUDING CONSTRAINTS
                             INCLUDING STORAGE INCLUDING COMPRESSION) {options};
        ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ('{first}') TO ('{end}');
    END IF;
END $$"""


def make(*, parent: str, name: str, first: str, end: str, lock: int, options: str = "") -> None:
    """Create the partition ``name`` of rows from ``first`` to before ``end``, unless it exists.

    ``lock``: the advisory lock for creating partitions of this parent. One statement. It looks for
    the partition by a query of its own: ``to_regclass`` may return the state before the lock.
    """
    sql.run(
        _MAKE.format(lock=lock, name=name, parent=parent, first=first, end=end, options=options)
    )


# pg_dump with several jobs has an idle session while the others read for it.
_SILENT: Final = f"""
    SELECT DISTINCT a.pid FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.granted AND l.relation = %s::regclass
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND a.usename = current_user AND a.backend_type = 'client backend'
      AND a.pid <> pg_backend_pid() AND starts_with(a.state, 'idle in transaction')
      AND coalesce(a.application_name, '') NOT IN ('pg_dump', '{sessions.UNHURRIED}')
      AND clock_timestamp() - a.state_change > make_interval(secs => %s::float8)
"""


def end_silent(parent: str) -> int:
    """End idle sessions that hold locks on a parent's partitions; return how many.

    For when one could not be dropped. Queries once, and once more if there are any.
    """
    found = [pid for (pid,) in sql.fetch(_SILENT, (parent, SILENT_SECONDS))]
    if found:
        sessions.end(found)
        for pid in found:
            logger.warning(
                "session_ended",
                pid=pid,
                reason=f"idle for too long while it holds a lock on {parent}",
            )
    return len(found)

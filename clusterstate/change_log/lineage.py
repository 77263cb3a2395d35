"""The guarantee of a revision: once a client has got one, every later change has a higher one.

PostgreSQL does not make a sequence durable by itself: after a crash ``change_revision`` continues
where the last *committed* transaction flushed it, and numbers of transactions that rolled back are
given out again. A follower that had read up to such a number would miss the later change with the
same number. So the row ``history`` has a *ceiling*::

    reserve    ceiling = last + a block, committed durably         (each half a million revisions)
    follow     no follower gets more than min(watermark, ceiling)    (`changes`)
    crash      the sequence is closed until ``establish`` has moved it above the ceiling

A crash itself closes the sequence: ``revisions_marker`` is an UNLOGGED table, which crash recovery,
a promotion and a start from a base backup all empty. Writers and followers read its row in their
usual statements. If the row is missing, these call the function ``revisions_closed``, which raises
PostgreSQL's error during recovery (57P03): requests are answered 503, loops try again, and the
first follower opens the sequence. A clean stop keeps the row, so a planned restart costs nothing.

The table has no index, and nothing else may be UNLOGGED. PostgreSQL 18 restores an unlogged
sequence from a page that a standby need not have written to its disk yet: after a promotion before
the standby's first restartpoint it cannot be read any more. A table is restored as an empty file. A
logged sequence would not do, since its value survives a crash.

The same row has the identity of the history: ``uid``, and its *place* (system identifier, time
line, database). If the place differs (a replica was promoted, a backup was loaded elsewhere),
another server may have given out numbers that are not in this database. Then the history gets a new
``uid`` and continues a long way above (`GAP`). Revisions below ``first_revision`` belong to the
earlier history; requests for them, or for revisions above the last one, are answered with Expired.

A promotion need not lose anything: if a commit is only acknowledged, and only visible to others,
when every server that may be promoted has it. Whoever runs the servers says so by the parameter
``stowage.synchronous_failover = on`` (`KEEPS_HISTORY`). Then a promotion is treated as a crash: the
history goes on above the ceiling, with the same ``uid``, and watches continue. A recovery to an
earlier point in time makes a new time line, too; it is told apart by the age of the last thing that
was written, which the loops do every two seconds.
"""

from typing import Any

import psycopg
from django.db import OperationalError, connection, transaction

from clusterstate.database import locks, sql
from clusterstate.objects.values.errors import Expired, Timeout
from clusterstate.processes import memory

BLOCK = 1 << 20
"""How many revisions are reserved at a time; when half of them are used, the next block is."""
GAP = 1 << 32
"""From an old history to a new one: more revisions than both could give out side by side."""

OPEN = "revisions_are_open()"
"""SQL: whether revisions may be taken; after a crash they may not until ``establish`` has run."""

# A crash keeps the identifier and the time line; a promotion begins a new time line; initdb and
# pg_upgrade make a new identifier; CREATE DATABASE ... TEMPLATE copies all but the database's oid.
# Its three parts are separated by slashes.
_PLACE = """
SELECT (SELECT system_identifier FROM pg_control_system())
    || '/' || ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
    || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())
"""


_FAILOVER_SECONDS = 300
"""A promotion takes less time; data whose last report is older were put back."""
KEEPS_HISTORY = f"""
SELECT coalesce(current_setting('stowage.synchronous_failover', true), '') IN ('on', 'true', '1')
   AND coalesce((SELECT max(at) > clock_timestamp() - interval '{_FAILOVER_SECONDS} seconds'
                 FROM loop_progress), true)
"""
"""SQL: whether a promotion loses nothing that was acknowledged or seen."""


def establish(*, renew: bool = False) -> None:
    """Open the sequence of revisions again, above all earlier ones. Queries a few times.

    Safe at any time and in several processes at once. Does nothing if revisions are open and the
    place is the same. ``renew`` starts a new history in any case: for a database that was restored
    from a copy of its disk, which PostgreSQL cannot notice.

    Must not be called in a transaction: the revisions that it reserves have to be durable first.
    """
    assert not connection.in_atomic_block
    with transaction.atomic():
        if not _reserve_anew(renew=renew):
            return
    # In a transaction of its own, since only the first one's commit makes the ceiling durable, and
    # under the lock again, so that no process opens while another still moves the sequence.
    with transaction.atomic():
        _lock()
        sql.fetch("SELECT open_revisions()")


def start_again() -> int:
    """Start a new history in the open transaction, and return its first revision.

    For a transaction that replaces all data of the database. It must have locked out all writers.
    """
    _lock()
    _commit_durably()
    return _renew(_row())


def _lock() -> None:
    sql.run("SELECT pg_advisory_xact_lock(%s::bigint)", (locks.HISTORY,))


def _row() -> sql.Row:
    """Lock and return ceiling, place, the sequence's value, and whether revisions can be taken."""
    row = sql.fetch_one(
        "SELECT ceiling, place, pg_sequence_last_value('change_revision'),"
        f" {OPEN} FROM history WHERE id = 1 FOR UPDATE"
    )
    assert row is not None
    return row


def _place() -> str:
    row = sql.fetch_one(_PLACE)
    assert row is not None
    place: str = row[0]
    return place


def _has_moved(known: str, here: str) -> bool:
    """Return whether another server may have written what this database lacks. May query."""
    if known in ("", here):
        return False
    system, _, database = known.split("/")
    if [system, database] != here.split("/")[::2]:
        return True
    return sql.fetch_one(KEEPS_HISTORY) != (True,)


def _reserve_anew(*, renew: bool) -> bool:
    """Move ceiling and sequence if the place changed or the marker is gone; return True if so."""
    _lock()
    sql.run("INSERT INTO history (id, trimmed_revision) VALUES (1, 0) ON CONFLICT DO NOTHING")
    row = _row()
    ceiling, known_place, last, is_open = row
    here = _place()
    moved = _has_moved(known_place, here)
    if is_open and known_place and ceiling > last and not moved and not renew:
        return False
    _commit_durably()
    if moved or renew:
        _renew(row)
        return True
    if known_place != here:
        _leave_epochs()
    base = last if is_open or not known_place else max(ceiling, last)
    sql.run("UPDATE history SET ceiling = %s, place = %s WHERE id = 1", (base + BLOCK, here))
    _advance(base)
    return True


def _leave_epochs() -> None:
    """Invalidate what processes cached under an epoch that another server gave out.

    An epoch is told before its transaction commits, so this server may never have got the last ones
    and would give them out again, for other rules.
    """
    sql.fetch("SELECT setval('admission_epoch', last_value + %s) FROM admission_epoch", (GAP,))


def _renew(row: sql.Row) -> int:
    """Give the history a new identity far above the old one; return its first revision."""
    ceiling, _, last, _ = row
    base: int = (max(ceiling, last) // GAP + 2) * GAP
    sql.run(
        "UPDATE history SET uid = gen_random_uuid(), ceiling = %s, place = %s,"
        " first_revision = %s, trimmed_revision = %s WHERE id = 1",
        (base + BLOCK, _place(), base, base),
    )
    _leave_epochs()
    # Decisions on a snapshot of the old history must come back.
    sql.run("UPDATE binder SET holder = '', revision = %s WHERE id = 1", (base,))
    _advance(base)
    return base


def _advance(base: int) -> None:
    sql.fetch(
        "SELECT setval('change_revision', greatest(%s::bigint, last_value)) FROM change_revision",
        (base,),
    )


def _commit_durably() -> None:
    """Let this transaction's commit wait for the disk, whatever the server's default is."""
    sql.fetch(
        "SELECT set_config('synchronous_commit', 'on', true)"
        " WHERE current_setting('synchronous_commit') = 'off'"
    )


def reserve(last: int | None, ceiling: int) -> bool:
    """Reserve the next block of revisions when half of the last is used. Return whether it was.

    ``last`` and ``ceiling`` come from the follower's query; ``last`` is ``None`` on a replica,
    which reserves nothing. Does nothing inside a transaction, whose end is not known: another
    follower will reserve the block.
    """
    if last is None or last <= ceiling - BLOCK // 2 or connection.in_atomic_block:
        return False
    # Trimming locks the row for a while; there is time while half a block is left.
    skip = "SKIP LOCKED" if last < ceiling else ""
    with transaction.atomic():
        _commit_durably()
        sql.run(
            "UPDATE history SET ceiling = %s WHERE id IN"
            f" (SELECT id FROM history WHERE id = 1 AND ceiling < %s FOR UPDATE {skip})",
            (last + BLOCK, last + BLOCK // 2),
        )
    return True


def is_closed(error: OperationalError) -> bool:
    """Return whether a statement failed because a crash closed the sequence of revisions."""
    cause = error.__cause__
    return isinstance(cause, psycopg.errors.CannotConnectNow) and "revisions_closed" in (
        cause.diag.context or ""
    )


def expired_beyond(revision: int, last: int) -> Expired:
    """Return the error for a revision that this history cannot have given out."""
    return Expired(f"too large resource version: {revision}, current: {last}")


def require(revision: int) -> None:
    """Check that this history can have given ``revision`` to a client. Queries once.

    Raises:
        Expired: the revision is above the last one, or of another history.
    """
    last, first = _bounds()
    if last is not None and revision > last:
        raise expired_beyond(revision, last)
    _require_of_this(revision, first)


def require_reached(revision: int, *, exact: bool = True) -> None:
    """Check that the database has reached ``revision``, so that a read is as new. Queries once.

    Rule: ``NewTooLargeResourceVersionError``, apiserver ``storage/errors.go``, v1.36; clients then
    read again without a revision.

    Raises:
        Timeout: ``revision`` is above the last one.
        Expired: it is of another history, and the read must be exactly at it (``exact``).
    """
    last, first = _bounds()
    if last is not None and revision > last:
        raise Timeout(
            f"Timeout: Too large resource version: {revision}, current: {last}",
            {
                "causes": [
                    {
                        "reason": "ResourceVersionTooLarge",
                        "message": "Too large resource version",
                    }
                ],
                "retryAfterSeconds": 1,
            },
        )
    if exact:
        _require_of_this(revision, first)


def _bounds() -> tuple[int | None, int]:
    """Return the last revision (``None`` if there is none) and the first of this history."""
    row = sql.fetch_one(
        "SELECT pg_sequence_last_value('change_revision'), first_revision FROM history WHERE id = 1"
    )
    return (None, 0) if row is None else (row[0], row[1])


def _require_of_this(revision: int, first: int) -> None:
    if revision < first:
        raise Expired(f"too old resource version: {revision} ({first})")


def kept_after() -> int:
    """Return the revision after which the change log is complete. Queries once.

    Readers of rows by a cursor call this first. If the database was replaced since the last call,
    the process empties its caches of rows here (`processes.memory`).
    """
    row = sql.fetch_one("SELECT trimmed_revision, uid FROM history WHERE id = 1")
    if row is None:
        return 0
    memory.belongs_to(row[1])
    revision: int = row[0]
    return revision


def identity() -> dict[str, Any]:
    """Return ``uid``, ``first_revision`` and ``ceiling`` of this history. Queries once."""
    row = sql.fetch_one("SELECT uid::text, first_revision, ceiling FROM history WHERE id = 1")
    assert row is not None
    return {"uid": row[0], "first_revision": row[1], "ceiling": row[2]}

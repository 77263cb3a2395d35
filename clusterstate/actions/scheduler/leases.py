"""Leases by which several schedulers at work notice within a second that one of them is silent.

A scheduler holds its number by an advisory lock, which ends with its session: at once if the
process was killed, but only after seconds if it was stopped or its host is lost, since a process
that merely gets little CPU must not lose its warm state. So each also renews a lease from a thread
of its own, and the others decide the pods of one whose lease has ended. Nothing else depends on a
lease: if the silent scheduler works after all, two decide the same pods for a while, and the
conditions of a bind refuse the later one (`actions.pods.bind`). Once another process has its
number, and with it a newer epoch, nothing that it decided is bound any more.

A scheduler that has nothing to do takes slots of pods from another one (`moved_slot`,
`scheduling.worker.division`).
"""

from collections.abc import Collection
from typing import Final

from clusterstate.database import locks, sql

SECONDS: Final = 0.6
"""How long a lease lasts; many times as long for a process that is so many times slow."""
RENEW_EVERY: Final = 0.2

_RENEW = """
    INSERT INTO scheduler AS s (id, epoch, awake_until)
    VALUES (%s::smallint, 0, clock_timestamp() + make_interval(secs => %s::float8))
    ON CONFLICT (id) DO UPDATE SET awake_until = excluded.awake_until
"""
_END = """
    UPDATE scheduler SET awake_until = NULL WHERE id = %s::smallint AND awake_until IS NOT NULL
"""
_AT_WORK = f"""
    SELECT c.shard, coalesce(s.awake_until < clock_timestamp(), false)
    FROM ({locks.CYCLES}) c LEFT JOIN scheduler s ON s.id = c.shard
"""


def renew(shard: int, factor: int) -> None:
    """Renew a scheduler's lease. Queries once.

    Commits without waiting for disk or replica (``synchronous_commit = off``). ``factor``
    multiplies the lease, for a process that runs slower by it.
    """
    sql.fetch_together(
        ("SELECT set_config('synchronous_commit', 'off', true)", ()),
        (_RENEW, (shard, SECONDS * factor)),
    )


def end(shard: int) -> None:
    """End a scheduler's lease, so that the next one with its number is not silent. Queries once.

    A scheduler that works alone, or is of an earlier version, renews no lease: it would count as
    silent once its predecessor's lease has expired.
    """
    sql.run(_END, (shard,))


def at_work() -> tuple[frozenset[int], frozenset[int]]:
    """Return the numbers of the schedulers at work on any host, and of those with an expired lease.

    Queries once.
    """
    rows = sql.fetch(_AT_WORK)
    return frozenset(int(row[0]) for row in rows), frozenset(int(row[0]) for row in rows if row[1])


def moved_slots() -> dict[int, int]:
    """Return the slots that schedulers took from others, with the taker's number. Queries once."""
    return dict(sql.fetch("SELECT slot, scheduler FROM moved_slot"))


def take_slots(slots: Collection[int], shard: int) -> None:
    """Note that a scheduler took slots. Queries once."""
    sql.run(
        "INSERT INTO moved_slot AS m (slot, scheduler) SELECT s, %s::smallint FROM unnest(%s) s"
        " ON CONFLICT (slot) DO UPDATE SET scheduler = excluded.scheduler",
        (shard, sql.Int4s(sorted(slots))),
    )

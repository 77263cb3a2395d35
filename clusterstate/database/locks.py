"""Advisory locks: all their keys, and how a session takes and releases one.

A key is a tag in the high 16 bits and a number below. A transaction that writes has a lock of
``REVISION_TAG`` with its first revision; the low watermark is computed from these
(`clusterstate.change_log.changes`). Under ``_TAG`` there is a key for each kind of work that only
one transaction or session does at a time, and under ``LAST_TAG`` one for each pod whose binding
cycle runs. The keys of one scheduler are functions of its number (`clusterstate.processes.shards`).

A transaction takes several in this order: admission, quotas, placement, rows, revision.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections, transaction
from django.db import Error as DatabaseError
from django.db.backends.signals import connection_created
from psycopg import errors

from clusterstate.database import sql

REVISION_TAG: Final = 0x5357
_TAG: Final = 0x5358
LAST_TAG: Final = 0x5359
"""The last tag: those of this service are from ``REVISION_TAG`` on."""

# Transactions.
ADMISSION: Final = (_TAG << 48) + 1
"""Shared by creations, exclusive for a change of an object that admission reads."""
PLACEMENT: Final = (_TAG << 48) + 2
"""Exclusive for a scheduler's binds, shared by all other writes that place pods."""
DECISION_PARTITIONS: Final = (_TAG << 48) + 16
"""Exclusive for creating a partition of ``decision``."""
HISTORY: Final = (_TAG << 48) + 17
"""Exclusive for moving the ceiling of revisions, or for starting a new history."""
CONFIGURATION: Final = (_TAG << 48) + 19
"""Exclusive for storing a scheduler configuration."""
QUOTAS: Final = (_TAG << 48) + 20
"""Shared for removing objects that a quota counts, exclusive for counting them again."""
SERVICES: Final = (_TAG << 48) + 21
"""Exclusive for writers of Services, who allocate addresses and ports."""
PAST_PARTITIONS: Final = (_TAG << 48) + 22
"""Exclusive for creating or dropping a partition of ``past_block``."""
BRAKES: Final = (_TAG << 48) + 24
"""Exclusive for an eviction request if evictions are counted; taken before row locks."""

# Sessions: passes of controllers and loops, of which one runs at a time in the whole system.
TIMERS: Final = (_TAG << 48) + 4
NODE_LIFECYCLE: Final = (_TAG << 48) + 5
WORKLOADS: Final = (_TAG << 48) + 6
DISRUPTION: Final = (_TAG << 48) + 7
PRESSURE: Final = (_TAG << 48) + 8
LANDINGS: Final = (_TAG << 48) + 9
GARBAGE: Final = (_TAG << 48) + 10
ENDPOINTS: Final = (_TAG << 48) + 11
OPERATIONS: Final = (_TAG << 48) + 12
POD_GC: Final = (_TAG << 48) + 23
VOLUMES: Final = (_TAG << 48) + 25
TURN: Final = (_TAG << 48) + 28
"""A scheduler's batch, until it is bound, while several schedulers want the same nodes."""
JUDGES: Final = ((_TAG << 48) + 26, (_TAG << 48) + 27)
"""The keys of the two keepers that judge the sessions of all processes (``sessions``)."""
MARK: Final = (_TAG << 48) + 29
"""Writing the watermark for replicas."""
PREPARATION: Final = (_TAG << 48) + 18
"""Migrations, first objects, backups and restores."""


def cycle(shard: int) -> int:
    """Return the key of the lock that lets one process work as this scheduler."""
    return (_TAG << 48) + (shard << 32) + 3


CYCLES: Final = f"""
    SELECT classid::bigint & 65535 AS shard FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND objid = 3
      AND (classid::bigint >> 16) = {_TAG} AND (classid::bigint & 65535) < 32768
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
"""The numbers of the schedulers whose lock is taken, on any host."""


def binding_cycle(pod_id: int) -> int:
    """Return the key of the lock under which a reserved pod's binding cycle runs."""
    return (LAST_TAG << 48) + pod_id


def webhook(number: int) -> int:
    """Return the key of the lock under which a webhook's events are delivered."""
    return (_TAG << 48) + (1 << 47) + number


class _Held(threading.local):
    """The session locks that this thread has."""

    def __init__(self) -> None:
        self.locks: list[int] = []


_held = _Held()


def take(lock: int) -> bool:
    """Take a session's advisory lock without waiting; False if another session has it.

    Until the lock is released, this thread opens no other session. PostgreSQL releases the lock
    with its session: when the process is killed, or is stopped and its session is ended
    (``sessions``). If the thread went on in a new session, it would work beside the next owner of
    the lock, on data read before. So each further statement fails instead.

    Raises:
        django.db.Error: the database fails.
    """
    row = sql.fetch_one("SELECT pg_try_advisory_lock(%s)", (lock,))
    if row is None or not row[0]:
        return False
    _held.locks.append(lock)
    return True


def take_within(lock: int, seconds: float) -> bool:
    """Take a session's advisory lock as ``take`` does, but wait at most ``seconds`` for it."""
    try:
        with transaction.atomic():
            limit = f"{round(seconds * 1000)}ms"
            sql.fetch("SELECT set_config('lock_timeout', %s, true)", (limit,))
            sql.fetch("SELECT pg_advisory_lock(%s)", (lock,))
    except OperationalError as error:
        if isinstance(error.__cause__, errors.LockNotAvailable):
            return False
        raise
    _held.locks.append(lock)
    return True


def give_back(lock: int) -> None:
    """Release a session's advisory lock; a closed connection has released it already."""
    if lock in _held.locks:
        _held.locks.remove(lock)
    try:
        if connection.connection is not None and not connection.connection.closed:
            sql.run("SELECT pg_advisory_unlock(%s::bigint)", (lock,))
    except DatabaseError:
        connection.close()


@contextmanager
def alone(lock: int) -> Iterator[bool]:
    """Take a session's advisory lock for a block; yields False if another session has it.

    For passes of controllers: several processes may begin one at the same time, and would repeat
    what another pass does. A transaction's lock would not do: a long transaction delays all
    followers of the change log.
    """
    if not take(lock):
        yield False
        return
    try:
        yield True
    finally:
        give_back(lock)


def _open_no_other(sender: object, connection: Any, **_: object) -> None:
    if _held.locks and connection is connections[DEFAULT_DB_ALIAS]:
        connection.close()
        raise OperationalError("the database session that held the lock for this work has ended")


connection_created.connect(_open_no_other, dispatch_uid="clusterstate.database.locks")

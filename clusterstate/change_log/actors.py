"""Numbers for actors: the change log refers to a row of the table ``actor``, not to a name.

A process looks up an actor's number and caches it for a while. The row has the time of the last
look-up. If that is long ago, no stored change has the number, and the row is deleted
(`actions.past.housekeeping`).

Every statement that takes a revision begins with the gate (`clusterstate.change_log.changes`),
which has two parameters: the number of the actor, and the cause. ``gate`` returns both. A writer
that forgets them cannot execute its statement.
"""

import time
import uuid
from collections.abc import Sequence
from typing import Final

from django.db import connection

from clusterstate.database import sql
from clusterstate.objects.values import actor as acting
from clusterstate.objects.values.actor import Actor
from clusterstate.processes import memory

REMEMBERED_SECONDS: Final = 12 * 3600
KEPT_DAYS: Final = 30
"""Days for which a row is stored after its last look-up; caches of processes expire far earlier."""
_MOST: Final = 10_000

_FIND: Final = """
    SELECT id FROM actor
    WHERE name = %s::text AND impersonator = %s::text AND used_at > now() - interval '1 day'
"""
_TAKE: Final = """
    INSERT INTO actor (name, impersonator, used_at) VALUES (%s::text, %s::text, now())
    ON CONFLICT (name, impersonator) DO UPDATE SET used_at = now() RETURNING id
"""
_numbers: dict[tuple[str, str], tuple[int, float]] = {}

memory.when_replaced(_numbers.clear)


def number(actor: Actor) -> int:
    """Return the number of an actor. Queries when it is not cached."""
    key = (actor.name, actor.impersonator)
    cached = _numbers.get(key)
    if cached is not None and time.monotonic() < cached[1]:
        return cached[0]
    row = sql.fetch_one(_FIND, key)
    found: int = _take(key) if row is None else row[0]
    if len(_numbers) >= _MOST:
        _numbers.clear()
    _numbers[key] = found, time.monotonic() + REMEMBERED_SECONDS
    return found


def _take(key: tuple[str, str]) -> int:
    """Return the number of an actor's row; insert and commit the row first if there is none.

    Inside a transaction this uses a second connection. Otherwise all writers of the same actor
    would wait for the lock on the new row until the transaction ends, and a rollback would take
    back a number that this process has cached.
    """
    if not connection.in_atomic_block:
        row = sql.fetch_one(_TAKE, key)
    else:
        apart = connection.copy()
        try:
            with apart.cursor() as cursor:
                cursor.execute(_TAKE, key)
                row = cursor.fetchone()
        finally:
            apart.close()
    assert row is not None
    found: int = row[0]
    return found


def gate(actor: Actor | None = None) -> tuple[int, uuid.UUID | None]:
    """Return the number and the cause of an actor, by default of this thread's actor."""
    who = acting.current() if actor is None else actor
    return number(who), who.cause


def columns(actors: Sequence[Actor | None]) -> tuple[sql.Int4s, sql.Uuids]:
    """Return the actors' numbers and causes as two arrays; ``None`` is this thread's actor."""
    here = acting.current()
    found = [here if one is None else one for one in actors]
    return sql.Int4s([number(one) for one in found]), sql.Uuids([one.cause for one in found])

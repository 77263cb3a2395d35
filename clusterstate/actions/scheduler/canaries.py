"""Canaries: a configuration on trial is put in force, rolled back on failures, or kept.

Every step is one transaction under the lock of the configuration, so a process that is killed
leaves either the state before or the state after.
"""

import re
import secrets
from datetime import datetime, timedelta
from typing import Final

from django.db import IntegrityError, transaction

from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.database import locks, sql
from clusterstate.objects.values.errors import AlreadyExists, BadRequest, Conflict
from clusterstate.queries.scheduler import decisions
from clusterstate.queries.scheduler.canaries import (
    CANCELLED,
    COLUMNS,
    GROUP,
    KEPT,
    OBSERVING,
    PLURAL,
    RETURNED,
    SUPERSEDED,
    SWITCHED,
    StoredCanary,
    find_canary,
    guarded,
)

RETURNER: Final = "system:canary"
"""Who stores the former configuration when it comes back by itself."""
_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?")
MOST_KEPT: Final = 100
_DEFAULT: Final = (
    '{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration"}'
)
_LONGEST_MESSAGE: Final = 2048


def create(
    *,
    name: str,
    document: str,
    guard_seconds: int,
    most_failures: int,
    slow_seconds: float,
    by: str,
    now: datetime,
) -> StoredCanary:
    """Store a configuration on trial; the oldest finished trials beyond a number are dropped.

    Args:
        name: empty for a generated one.
        document: the checked configuration as canonical JSON.
        guard_seconds: how long it is guarded once it is in force.
        most_failures: tolerated number of failed attempts and slow calls; one more rolls it back.
        slow_seconds: a plugin's call that takes longer is slow.
        by: the user.
        now: the time.

    Raises:
        BadRequest: the name is invalid.
        AlreadyExists: there is one of this name.
    """
    if name and not _NAME.fullmatch(name):
        raise BadRequest(
            f'metadata.name: Invalid value: "{name[:100]}": must be of lower case letters,'
            " digits, '-' and '.', and begin and end with a letter or digit"
        )
    called = name or f"canary-{secrets.token_hex(4)}"
    try:
        with transaction.atomic():
            row = sql.fetch_one(
                "INSERT INTO canary (name, document, state, guard_seconds, most_failures,"
                " slow_seconds, created_at, created_by, switched_by, message)"
                f" VALUES (%s, %s, '{OBSERVING}', %s, %s, %s, %s::timestamptz, %s, '', '')"
                f" RETURNING {COLUMNS}",
                (called, document, guard_seconds, most_failures, slow_seconds, now, by),
            )
    except IntegrityError as error:
        details = {"name": called, "group": GROUP, "kind": PLURAL}
        raise AlreadyExists(f'{PLURAL}.{GROUP} "{called}" already exists', details) from error
    assert row is not None
    sql.run(
        f"DELETE FROM canary WHERE state <> '{SWITCHED}' AND id <="
        " (SELECT id FROM canary ORDER BY id DESC OFFSET %s::bigint LIMIT 1)",
        (MOST_KEPT,),
    )
    return StoredCanary(*row)


def switch(name: str, *, by: str, now: datetime) -> StoredCanary:
    """Put the configuration in force, and guard it.

    Raises:
        NotFound: there is no such canary.
        Conflict: it is over, another one is guarded, or its configuration is in force already.
    """
    with transaction.atomic():
        _lock()
        canary = find_canary(name)
        other = guarded()
        if canary.state != OBSERVING:
            raise _conflict(name, f"it is {canary.state}")
        if other is not None:
            raise _conflict(name, f'the canary "{other.name}" is still being guarded')
        former = decisions.configuration_revision()
        revision = scheduler_configuration.store(document=canary.document, by=by, now=now)
        if revision == former:
            raise _conflict(name, "its configuration is in force already")
        until = now + timedelta(seconds=canary.guard_seconds)
        return _set(
            canary,
            f"state = '{SWITCHED}', former = %s, revision = %s, switched_by = %s,"
            " switched_at = %s::timestamptz, guard_until = %s::timestamptz",
            (former, revision, by, now, until),
        )


def give_back(name: str, *, why: str, now: datetime, by: str = RETURNER) -> StoredCanary:
    """Put the previous configuration back in force, if the canary's is in force.

    Raises:
        NotFound: there is no such canary.
        Conflict: it is not in force, or the previous configuration is no longer kept.
    """
    with transaction.atomic():
        _lock()
        canary = find_canary(name)
        if canary.state not in (SWITCHED, KEPT):
            raise _conflict(name, f"it is {canary.state}")
        if decisions.configuration_revision() != canary.revision:
            return _end(canary, SUPERSEDED, "another configuration was stored", now)
        document = _DEFAULT
        if canary.former:
            former = decisions.configuration(canary.former)
            if former is None:
                raise _conflict(name, f"the former revision {canary.former} is no longer stored")
            document = former.document
        scheduler_configuration.store(document=document, by=by, now=now)
        return _end(canary, RETURNED, why, now)


def cancel(name: str, *, now: datetime) -> StoredCanary:
    """End a canary whose configuration has not been put in force.

    Raises:
        NotFound: there is no such canary.
        Conflict: it is over, or in force.
    """
    with transaction.atomic():
        _lock()
        canary = find_canary(name)
        if canary.state != OBSERVING:
            raise _conflict(name, f"it is {canary.state}")
        return _end(canary, CANCELLED, "", now)


def settle(now: datetime) -> StoredCanary | None:
    """End the guard of a canary whose time is over, or whose configuration was replaced.

    Returns the canary that is still guarded, ``None`` if there is none.
    """
    with transaction.atomic():
        _lock()
        canary = guarded()
        if canary is None or canary.guard_until is None:
            return None
        if decisions.configuration_revision() != canary.revision:
            _end(canary, SUPERSEDED, "another configuration was stored", now)
            return None
        if now >= canary.guard_until:
            _end(canary, KEPT, "nothing went wrong", now)
            return None
        return canary


def _lock() -> None:
    sql.run("SELECT pg_advisory_xact_lock(%s::bigint)", (locks.CONFIGURATION,))


def _end(canary: StoredCanary, state: str, why: str, now: datetime) -> StoredCanary:
    return _set(
        canary,
        "state = %s, message = %s, ended_at = %s::timestamptz",
        (state, why[:_LONGEST_MESSAGE], now),
    )


def _set(canary: StoredCanary, clause: str, values: tuple[object, ...]) -> StoredCanary:
    row = sql.fetch_one(
        f"UPDATE canary SET {clause} WHERE id = %s::bigint RETURNING {COLUMNS}",
        (*values, canary.id),
    )
    assert row is not None
    return StoredCanary(*row)


def _conflict(name: str, why: str) -> Conflict:
    return Conflict(
        f'Operation cannot be fulfilled on {PLURAL}.{GROUP} "{name}": {why}',
        {"name": name, "group": GROUP, "kind": PLURAL},
    )

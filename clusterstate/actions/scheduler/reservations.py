"""Reservations: created by the scheduler, advanced by plugins, users and time, released once.

Each write states the expected step, so if two meet (an approval and the deadline, a worker and a
refusal) one wins and the other finds nothing to do. The scheduler follows the rows, and each write
by others wakes it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction

from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.values.errors import INVALID, Conflict, FieldError, Invalid, NotFound
from clusterstate.queries.scheduler import reservations
from clusterstate.queries.scheduler.reservations import (
    ACTIVATE,
    BINDING,
    BOUND,
    INFORMED,
    READY,
    REFUSED,
    WAITING,
    Reservation,
)

UNSCHEDULABLE = 2
"""The code of a rejection, as in ``scheduling.framework.status``."""

_encoder = msgspec.json.Encoder(order="sorted")


class NewReservation(msgspec.Struct, frozen=True, kw_only=True):
    """A new reservation; see the table. ``attempts``: how often the pod was tried, for its row."""

    pod_id: int
    node_name: str
    profile: str
    profile_revision: int
    step: str
    attempts: int
    waits: dict[str, datetime] = {}
    notes: dict[str, Any] = {}


def _text(value: Any) -> str:
    return _encoder.encode(value).decode()


_RESERVE = f"""
    WITH input AS MATERIALIZED (
        SELECT * FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s)
            AS i(pod_id, node_name, profile, profile_revision, step, attempts, waits, due_at,
                 notes)),
    queued AS (
        UPDATE pending_pod q SET stage = 'inflight', attempts = i.attempts, not_before = NULL
        FROM input i WHERE q.pod_id = i.pod_id AND i.step <> '{BOUND}')
    INSERT INTO reservation AS r (pod_id, node_name, profile, profile_revision, step, since, waits,
                                  due_at, notes, plugin, code, message)
    SELECT pod_id, node_name, profile, profile_revision, step, %s::timestamptz, waits::jsonb,
           due_at, notes::jsonb, '', 0, '' FROM input
    ON CONFLICT (pod_id) DO UPDATE
    SET node_name = excluded.node_name, profile = excluded.profile,
        profile_revision = excluded.profile_revision, step = excluded.step, since = excluded.since,
        waits = excluded.waits, due_at = excluded.due_at, notes = excluded.notes,
        plugin = '', code = 0, message = ''
"""
_RESERVE = " ".join(_RESERVE.split())


def reserve(items: Sequence[NewReservation], *, now: datetime) -> None:
    """Insert reservations, and mark their pods as in flight. One statement."""
    if not items:
        return
    sql.run(
        _RESERVE,
        (
            sql.Int8s([item.pod_id for item in items]),
            sql.Texts([item.node_name for item in items]),
            sql.Texts([item.profile for item in items]),
            sql.Int8s([item.profile_revision for item in items]),
            sql.Texts([item.step for item in items]),
            sql.Int4s([item.attempts for item in items]),
            sql.Texts([_text(item.waits) for item in items]),
            sql.Times([min(item.waits.values(), default=None) for item in items]),
            sql.Texts([_text(item.notes) for item in items]),
            now,
        ),
    )


_ALLOW = f"""
    UPDATE reservation r
    SET waits = r.waits - i.plugins,
        due_at = (SELECT min(w.value::timestamptz) FROM jsonb_each_text(r.waits - i.plugins) w)
    FROM (SELECT pod_id, array_agg(plugin) AS plugins FROM unnest(%s, %s) AS u(pod_id, plugin)
          GROUP BY pod_id) i
    WHERE r.pod_id = i.pod_id AND r.step = '{WAITING}' AND r.waits ?| i.plugins
    RETURNING r.pod_id
"""
_ALLOW = " ".join(_ALLOW.split())


def allow(pairs: Iterable[tuple[int, str]]) -> list[int]:
    """Record that plugins (name) allow pods (id); return the pods whose reservations changed."""
    permits = sorted(set(pairs))
    if not permits:
        return []
    rows = sql.fetch(
        _ALLOW,
        (sql.Int8s([pod_id for pod_id, _ in permits]), sql.Texts([name for _, name in permits])),
    )
    return [row[0] for row in rows]


_REFUSE = f"""
    UPDATE reservation r SET step = '{REFUSED}', plugin = i.plugin, code = i.code,
        message = i.message
    FROM unnest(%s, %s, %s, %s) AS i(pod_id, plugin, code, message)
    WHERE r.pod_id = i.pod_id AND r.step = ANY(%s)
      AND (%s::timestamptz IS NULL OR r.due_at <= %s::timestamptz)
    RETURNING r.pod_id
"""
_REFUSE = " ".join(_REFUSE.split())


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a reservation must be released: a plugin's status, as table columns."""

    pod_id: int
    plugin: str
    message: str
    code: int = UNSCHEDULABLE


def refuse(
    refusals: Sequence[Refusal], *, steps: Sequence[str], due: datetime | None = None
) -> list[int]:
    """Refuse reservations that are at one of ``steps`` and overdue at ``due``; return which."""
    if not refusals:
        return []
    rows = sql.fetch(
        _REFUSE,
        (
            sql.Int8s([one.pod_id for one in refusals]),
            sql.Texts([one.plugin for one in refusals]),
            sql.Int4s([one.code for one in refusals]),
            sql.Texts([one.message for one in refusals]),
            sql.Texts(list(steps)),
            due,
            due,
        ),
    )
    return [row[0] for row in rows]


def move(pod_ids: Sequence[int], *, before: Sequence[str], after: str) -> list[int]:
    """Advance reservations from one of the steps ``before`` to ``after``; return their ids."""
    if not pod_ids:
        return []
    rows = sql.fetch(
        "UPDATE reservation SET step = %s::text WHERE pod_id = ANY(%s) AND step = ANY(%s)"
        " RETURNING pod_id",
        (after, sql.Int8s(list(pod_ids)), sql.Texts(list(before))),
    )
    return [row[0] for row in rows]


def drop(pod_ids: Sequence[int]) -> None:
    """Delete reservations: their pods are bound, gone, or back in the queue."""
    if pod_ids:
        sql.run("DELETE FROM reservation WHERE pod_id = ANY(%s)", (sql.Int8s(list(pod_ids)),))


# What plugins in workers, and people, do -------------------------------------------------------


def wake() -> None:
    """Wake the scheduler for its reservations once this transaction is committed."""
    changes.announce(changes.watermark(), ("Pod",))


def worked(pod_id: int, *, notes: dict[str, Any]) -> bool:
    """Record that PreBind and Bind plugins are done, so that the pod may be bound.

    Return whether the reservation waited for that. ``notes`` replace those of the row.
    """
    with transaction.atomic():
        count = sql.run(
            f"UPDATE reservation SET step = '{READY}', notes = %s::text::jsonb"
            f" WHERE pod_id = %s::bigint AND step = '{BINDING}'",
            (_text(notes), pod_id),
        )
        if count:
            wake()
    return bool(count)


def wait_on(pod_id: int, *, notes: dict[str, Any]) -> None:
    """Store that a PreBind plugin waits for something; it is called again in a second.

    ``notes`` replace those of the row.
    """
    sql.run(
        "UPDATE reservation SET notes = %s::text::jsonb, due_at = now() + interval '1 second'"
        f" WHERE pod_id = %s::bigint AND step = '{BINDING}'",
        (_text(notes), pod_id),
    )


def informed(pod_id: int, *, activate: Sequence[tuple[str, str]]) -> None:
    """Record that PostBind is done, and which pods (namespace, name) to activate."""
    notes = {ACTIVATE: [f"{namespace}/{name}" for namespace, name in activate]}
    with transaction.atomic():
        sql.run(
            f"UPDATE reservation SET step = '{INFORMED}', notes = %s::text::jsonb"
            f" WHERE pod_id = %s::bigint AND step = '{BOUND}'",
            (_text(notes), pod_id),
        )
        wake()


def fail(refusal: Refusal) -> bool:
    """Refuse a reservation because PreBind or Bind failed; return False if it is gone already."""
    with transaction.atomic():
        refused = refuse([refusal], steps=(BINDING,))
        if refused:
            wake()
    return bool(refused)


def decide(
    namespace: str, name: str, *, plugin: str, allowed: bool, message: str = ""
) -> Reservation:
    """Allow or reject a waiting pod on behalf of a plugin; return its reservation before that.

    Raises:
        NotFound: no pod of this name waits.
        Invalid: it does not wait for this plugin.
        Conflict: it stopped waiting meanwhile.
    """
    found = reservations.waiting(namespace=namespace, name=name)
    if not found:
        raise not_found(name)
    (pod,) = found
    if allowed and plugin not in pod.waits:
        listed = ", ".join(f'"{one}"' for one in sorted(pod.waits))
        error = FieldError(INVALID, "plugin", plugin, f"the pod waits for {listed}")
        raise Invalid("Permit", name, [error])
    with transaction.atomic():
        if allowed:
            done = allow([(pod.pod_id, plugin)])
        else:
            refusal = Refusal(pod_id=pod.pod_id, plugin=plugin, message=message)
            done = refuse([refusal], steps=(WAITING,))
        if not done:
            raise Conflict(f'pod "{name}" does not wait for {plugin} any more', {"name": name})
        wake()
    return pod


def not_found(name: str) -> NotFound:
    """Return the error that no pod of this name waits."""
    details = {"name": name, "group": "stowage.dev", "kind": "waitingpods"}
    return NotFound(f'waitingpods.stowage.dev "{name}" not found', details)

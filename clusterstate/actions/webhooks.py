"""Subscriptions to events, and the progress of their delivery.

No queue per receiver: a webhook has a cursor in the change log, which moves when the receiver has
accepted the events before it, in the same transaction as the line of the delivery log. After a kill
some events are delivered again, with the same ids, and none is lost. A receiver that is away for
longer than the log is kept misses events; the webhook's status counts such gaps.
"""

import uuid
from datetime import datetime, timedelta
from typing import Final

import msgspec
from django.db import IntegrityError, transaction

from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.values.errors import AlreadyExists, Conflict, NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.people import webhooks
from clusterstate.queries.people.webhooks import Webhook

KEPT: Final = timedelta(days=7)
"""How long a try stays in the delivery log."""
KEPT_EACH: Final = 10_000
"""How many tries of one webhook stay there."""
_BACKOFF: Final = (1.0, 300.0)
"""Seconds before the second try, and the most between two."""
_LONGEST_ASKED: Final = 3600.0
_SMALL_STEP: Final = timedelta(seconds=10)

_CREATE: Final = """
    INSERT INTO webhook (name, uid, created_at, version, spec, secret, cursor, failures, moved_at,
                         delivered, refused, lost)
    VALUES (%s, %s::uuid, %s::timestamptz, 1, %s::text::jsonb, %s, %s::bigint, 0,
            %s::timestamptz, 0, 0, 0)
"""
_UPDATE: Final = """
    UPDATE webhook SET spec = %s::text::jsonb, secret = coalesce(%s::text, secret),
                       version = version + 1, failures = 0, next_at = NULL
    WHERE name = %s AND version = %s::bigint
"""
_MOVE: Final = """
    UPDATE webhook SET cursor = %s::bigint, moved_at = %s::timestamptz, failures = 0,
                       next_at = NULL, delivered = delivered + %s::bigint,
                       refused = refused + %s::bigint, lost = lost + %s::bigint
    WHERE id = %s::bigint AND cursor = %s::bigint
"""
_FAIL: Final = """
    UPDATE webhook SET failures = failures + 1, next_at = %s::timestamptz
    WHERE id = %s::bigint AND cursor = %s::bigint
"""
_SUSPEND: Final = """
    UPDATE webhook SET spec = jsonb_set(spec, '{suspended}', 'true'), version = version + 1,
                       failures = failures + 1
    WHERE id = %s::bigint AND cursor = %s::bigint
"""
_LOG: Final = """
    INSERT INTO webhook_delivery (webhook_id, at, first_event, last_event, events, attempt, outcome,
                                  code, error, milliseconds)
    VALUES (%s::bigint, %s::timestamptz, %s, %s, %s::integer, %s::integer, %s, %s::integer, %s,
            %s::integer)
"""


class Try(msgspec.Struct, frozen=True, kw_only=True):
    """The result of sending events; without an answer ``code`` is 0 and ``error`` says why."""

    first_event: str
    last_event: str
    events: int
    code: int
    error: str
    milliseconds: int


def _not_found(name: str) -> NotFound:
    details = {"name": name, "group": "stowage.dev", "kind": "webhooks"}
    return NotFound(f'webhooks.stowage.dev "{name}" not found', details)


def get(name: str) -> Webhook:
    """Return a webhook.

    Raises:
        NotFound: there is none.
    """
    found = webhooks.find(name)
    if found is None:
        raise _not_found(name)
    return found


def create(name: str, spec: Manifest, secret: str, *, now: datetime) -> Webhook:
    """Store a webhook; its cursor is the end of the log.

    Raises:
        AlreadyExists: there is one of that name.
    """
    cursor = changes.settled().mark
    text = msgspec.json.encode(spec).decode()
    try:
        with transaction.atomic():
            sql.run(_CREATE, (name, uuid.uuid4(), now, text, secret, cursor, now))
    except IntegrityError:
        raise AlreadyExists(f'webhooks.stowage.dev "{name}" already exists') from None
    return get(name)


def update(name: str, spec: Manifest, secret: str | None, *, version: int) -> Webhook:
    """Replace a webhook's spec, and its secret unless ``None``; it is retried at once.

    Raises:
        NotFound: there is none. Conflict: it has another version.
    """
    get(name)
    text = msgspec.json.encode(spec).decode()
    if not sql.run(_UPDATE, (text, secret, name, version)):
        raise Conflict(
            f'Operation cannot be fulfilled on webhooks.stowage.dev "{name}": the object has been'
            " modified; please apply your changes to the latest version and try again"
        )
    return get(name)


def delete(name: str) -> Webhook:
    """Delete a webhook with its delivery log.

    Raises:
        NotFound: there is none.
    """
    found = get(name)
    with transaction.atomic():
        sql.run("DELETE FROM webhook WHERE id = %s::bigint", (found.id,))
        sql.run("DELETE FROM webhook_delivery WHERE webhook_id = %s::bigint", (found.id,))
    return found


def replay(name: str, revision: int) -> Webhook:
    """Deliver everything after a revision, including already delivered events.

    Raises:
        NotFound: there is none.
    """
    get(name)
    sql.run(
        "UPDATE webhook SET cursor = %s::bigint, failures = 0, next_at = NULL WHERE name = %s",
        (revision, name),
    )
    return get(name)


# What the deliverer writes -----------------------------------------------------------------------


def accepted(one: Webhook, done: Try, cursor: int, *, now: datetime, refused: bool) -> bool:
    """Record that events were accepted, or refused for good, and move the cursor past them.

    Return False, without a change, if the webhook was deleted, changed or rewound meanwhile.
    """
    outcome = "refused" if refused else "delivered"
    counts = (0, done.events, 0) if refused else (done.events, 0, 0)
    with transaction.atomic():
        if not sql.run(_MOVE, (cursor, now, *counts, one.id, one.cursor)):
            return False
        _log(one, done, outcome, now)
    return True


def failed(one: Webhook, done: Try, *, now: datetime, at_least: float = 0.0) -> None:
    """Record that an attempt failed; the pause before the next one grows up to five minutes.

    ``at_least``: the Retry-After seconds of the receiver, limited to an hour.
    """
    first, longest = _BACKOFF
    wait = min(first * 2 ** min(one.failures, 20), longest)
    wait = max(wait, min(at_least, _LONGEST_ASKED))
    with transaction.atomic():
        if sql.run(_FAIL, (now + timedelta(seconds=wait), one.id, one.cursor)):
            _log(one, done, "failed", now)


def suspend(one: Webhook, done: Try, *, now: datetime) -> None:
    """Record that the receiver refuses events; none is sent before a client resumes the webhook."""
    with transaction.atomic():
        if sql.run(_SUSPEND, (one.id, one.cursor)):
            _log(one, done, "failed", now)


def passed(one: Webhook, cursor: int, *, now: datetime, lost: int = 0) -> bool:
    """Move the cursor past changes without notices; False: another session moved it meanwhile.

    Small steps are not written each time, which would be a write for every change of the cluster.
    """
    if not lost and cursor - one.cursor < 1000 and now - one.moved_at < _SMALL_STEP:
        return True
    return bool(sql.run(_MOVE, (cursor, now, 0, 0, lost, one.id, one.cursor)))


def _log(one: Webhook, done: Try, outcome: str, now: datetime) -> None:
    sql.run(
        _LOG,
        (
            one.id, now, done.first_event, done.last_event, done.events, one.failures + 1, outcome,
            done.code, done.error, done.milliseconds,
        ),
    )  # fmt: skip


def trim(*, now: datetime) -> int:
    """Drop attempts that are old, or too many."""
    dropped = sql.run("DELETE FROM webhook_delivery WHERE at < %s::timestamptz", (now - KEPT,))
    for one in webhooks.every():
        row = sql.fetch_one(
            "SELECT id FROM webhook_delivery WHERE webhook_id = %s::bigint"
            " ORDER BY id DESC OFFSET %s::bigint LIMIT 1",
            (one.id, KEPT_EACH),
        )
        if row is not None:
            dropped += sql.run(
                "DELETE FROM webhook_delivery WHERE webhook_id = %s::bigint AND id <= %s::bigint",
                (one.id, row[0]),
            )
    return dropped

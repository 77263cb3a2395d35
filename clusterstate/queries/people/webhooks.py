"""Webhooks, and the outcome of their deliveries."""

from datetime import datetime
from typing import Any, Final

import msgspec

from clusterstate.database import sql
from clusterstate.objects.values.meta import Manifest


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription as it is stored; see the model."""

    id: int
    name: str
    uid: str
    created_at: datetime
    version: int
    spec: Manifest
    secret: str
    cursor: int
    failures: int
    next_at: datetime | None
    moved_at: datetime
    delivered: int
    refused: int
    lost: int


class Delivery(msgspec.Struct, frozen=True):
    """One delivery attempt; see the model."""

    id: int
    at: datetime
    first_event: str
    last_event: str
    events: int
    attempt: int
    outcome: str
    code: int
    error: str
    milliseconds: int


_COLUMNS: Final = ", ".join(
    {"uid": "uid::text", "spec": "spec::text"}.get(name, name) for name in Webhook.__struct_fields__
)
_DELIVERIES: Final = ", ".join(Delivery.__struct_fields__)
_DUE: Final = """
    SELECT id FROM webhook
    WHERE (next_at IS NULL OR next_at <= %s::timestamptz) AND cursor < %s::bigint
      AND NOT coalesce((spec ->> 'suspended')::boolean, false)
    ORDER BY moved_at
"""


def _webhook(row: sql.Row) -> Webhook:
    fields: dict[str, Any] = dict(zip(Webhook.__struct_fields__, row, strict=True))
    fields["spec"] = msgspec.json.decode(fields["spec"])
    return Webhook(**fields)


def every() -> list[Webhook]:
    """Return all webhooks by name. Queries once."""
    return [_webhook(row) for row in sql.fetch(f"SELECT {_COLUMNS} FROM webhook ORDER BY name")]


def find(name: str) -> Webhook | None:
    """Return a webhook, or ``None``. Queries once."""
    row = sql.fetch_one(f"SELECT {_COLUMNS} FROM webhook WHERE name = %s", (name,))
    return None if row is None else _webhook(row)


def by_id(number: int) -> Webhook | None:
    """Return a webhook, or ``None``. Queries once."""
    row = sql.fetch_one(f"SELECT {_COLUMNS} FROM webhook WHERE id = %s::bigint", (number,))
    return None if row is None else _webhook(row)


def are_there() -> bool:
    """Return whether any webhook exists. Queries once."""
    return bool(sql.fetch("SELECT 1 FROM webhook LIMIT 1"))


def due(*, now: datetime, mark: int) -> list[int]:
    """Return the ids of webhooks that may have something to deliver now. Queries once."""
    return [row[0] for row in sql.fetch(_DUE, (now, mark))]


def deliveries(webhook_id: int, *, limit: int, before: int = 0) -> tuple[list[Delivery], int]:
    """Return attempts, the newest first, and the id before which to continue (0: no more).

    Queries once.
    """
    rows = sql.fetch(
        f"SELECT {_DELIVERIES} FROM webhook_delivery"
        " WHERE webhook_id = %s::bigint AND id < %s::bigint ORDER BY id DESC LIMIT %s::bigint",
        (webhook_id, before or 1 << 62, limit + 1),
    )
    more = rows[limit - 1][0] if len(rows) > limit else 0
    return [Delivery(*row) for row in rows[:limit]], more

"""Brakes: set where too many pods would leave, released when they would not, approved by people."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from clusterstate import sql
from clusterstate.actions.events import Occurrence, record_many
from clusterstate.objects.errors import NotFound
from clusterstate.queries.brakes import APPROVED, HELD, Brake, Share, brakes

APPROVED_FOR: Final = timedelta(hours=1)


def settle(found: Sequence[tuple[Share, float]], *, now: datetime) -> int:
    """Make the brakes those of these shares, each with the limit that it exceeds; return how many.

    What was approved stays so until its hour is over, also while few pods or none are due.
    """
    names = [f"{share.scope}.{share.name}" for share, _ in found]
    sql.run(
        f"DELETE FROM brake WHERE (state = '{HELD}' AND (scope || '.' || name) <> ALL(%s))"
        f" OR (state = '{APPROVED}' AND until <= %s::timestamptz)",
        (sql.Texts(names), now),
    )
    new: list[Occurrence] = []
    for share, limit in found:
        row = sql.fetch_one(
            "INSERT INTO brake AS b (scope, name, state, leaving, total, limit_percent, created_at,"
            f" approved_by) VALUES (%s, %s, '{HELD}', %s, %s, %s, %s::timestamptz, '')"
            " ON CONFLICT (scope, name) DO UPDATE SET leaving = excluded.leaving,"
            " total = excluded.total, limit_percent = excluded.limit_percent"
            " WHERE (b.leaving, b.total) IS DISTINCT FROM (excluded.leaving, excluded.total)"
            " RETURNING created_at = %s::timestamptz",
            (share.scope, share.name, share.leaving, share.total, limit, now, now),
        )
        if row is not None and row[0]:
            text = (
                f"{share.leaving} of {share.total} pods of {share.scope} {share.name} would leave,"
                f" more than {limit:g} %: none of them is evicted until this is approved"
            )
            key = f"{share.scope}.{share.name}"
            new.append(_told(key, "EvictionsHeldBack", text, type_="Warning"))
    record_many(new, now=now)
    return len(found)


def _told(key: str, reason: str, message: str, *, type_: str = "Normal") -> Occurrence:
    """Return an event of a brake, which ``kubectl get events`` shows in ``default``."""
    return Occurrence(
        kind="Brake",
        api_version="stowage.dev/v1",
        namespace="",
        name=key,
        uid="",
        reason=reason,
        message=message,
        type=type_,
        component="taint-eviction-controller",
    )


def approve(key: str, *, by: str, now: datetime) -> Brake:
    """Let the pods of a held zone or namespace (``zone.a``) go, for an hour.

    Raises:
        NotFound: nothing of this name is held.
    """
    scope, _, name = key.partition(".")
    sql.run(
        f"UPDATE brake SET state = '{APPROVED}', approved_by = %s, approved_at = %s::timestamptz,"
        " until = %s::timestamptz WHERE scope = %s AND name = %s",
        (by, now, now + APPROVED_FOR, scope, name),
    )
    for found in brakes():
        if found.key == key:
            text = f"{by or 'somebody'} lets the pods of {scope} {name} go, for an hour"
            record_many([_told(key, "EvictionsApproved", text)], now=now)
            return found
    raise NotFound(
        f'brakes.stowage.dev "{key}" not found',
        {"name": key, "group": "stowage.dev", "kind": "brakes"},
    )

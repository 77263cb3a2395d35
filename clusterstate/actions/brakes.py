"""Brakes: set where too many pods would leave, released when they would not, approved by people."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from clusterstate import sql
from clusterstate.objects.errors import NotFound
from clusterstate.queries.brakes import APPROVED, HELD, Brake, Share, brakes

APPROVED_FOR: Final = timedelta(hours=1)


def settle(found: Sequence[tuple[Share, float]], *, now: datetime) -> int:
    """Make the brakes those of these shares, each with the limit that it exceeds; return how many.

    What was approved stays so until that ends, or until nothing exceeds a limit any more.
    """
    names = [f"{share.scope}.{share.name}" for share, _ in found]
    sql.run(
        "DELETE FROM brake WHERE (scope || '.' || name) <> ALL(%s)"
        f" OR (state = '{APPROVED}' AND until <= %s::timestamptz)",
        (sql.Texts(names), now),
    )
    for share, limit in found:
        sql.run(
            "INSERT INTO brake AS b (scope, name, state, leaving, total, limit_percent, created_at,"
            f" approved_by) VALUES (%s, %s, '{HELD}', %s, %s, %s, %s::timestamptz, '')"
            " ON CONFLICT (scope, name) DO UPDATE SET leaving = excluded.leaving,"
            " total = excluded.total, limit_percent = excluded.limit_percent"
            " WHERE (b.leaving, b.total) IS DISTINCT FROM (excluded.leaving, excluded.total)",
            (share.scope, share.name, share.leaving, share.total, limit, now),
        )
    return len(found)


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
            return found
    raise NotFound(
        f'brakes.stowage.dev "{key}" not found',
        {"name": key, "group": "stowage.dev", "kind": "brakes"},
    )

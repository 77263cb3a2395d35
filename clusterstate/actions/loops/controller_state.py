"""A controller's state between passes: its cursor in the change log, and a small document.

One row for each controller, by its name. It is not written in the transaction of the controller's
work (`models.evictions.ControllerCursor`), so that work must be idempotent.
"""

from typing import Any

import msgspec

from clusterstate.database import sql


def cursor(name: str) -> int | None:
    """Return the revision up to which a controller has acted, ``None`` if never. Queries once."""
    row = sql.fetch_one("SELECT revision FROM controller_cursor WHERE name = %s", (name,))
    return None if row is None else row[0]


def set_cursor(name: str, revision: int) -> None:
    """Remember up to which revision a controller has acted."""
    sql.run(
        "INSERT INTO controller_cursor (name, revision, state)"
        " VALUES (%s::text, %s::bigint, '{}'::jsonb)"
        " ON CONFLICT (name) DO UPDATE SET revision = excluded.revision",
        (name, revision),
    )


def set_state(name: str, state: dict[str, Any]) -> None:
    """Store a controller's state between passes."""
    sql.run(
        "INSERT INTO controller_cursor (name, revision, state)"
        " VALUES (%s::text, 0, %s::text::jsonb)"
        " ON CONFLICT (name) DO UPDATE SET state = excluded.state",
        (name, msgspec.json.encode(state).decode()),
    )

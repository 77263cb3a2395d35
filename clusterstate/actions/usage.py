"""What nodes' agents report about their use, out of the change log (R135, R141)."""

from datetime import datetime
from typing import Any

import msgspec

from clusterstate import queries, sql
from clusterstate.objects.errors import INVALID, FieldError, Invalid
from clusterstate.objects.meta import Manifest
from clusterstate.timers import Report, Reported


def report(node_name: str, manifest: Manifest, *, now: datetime) -> Report:
    """Keep the report of a node's agent; return it as read. One statement.

    Raises:
        NotFound: there is no such node.
        Invalid: the report is not of the form of ``Report``.
    """
    queries.get("Node", "", node_name)
    try:
        read = msgspec.convert(manifest, Report)
    except msgspec.ValidationError as error:
        cause = FieldError(INVALID, "usage", manifest, str(error))
        raise Invalid("NodeUsage", node_name, [cause], "stowage.dev") from None
    sql.run(
        "INSERT INTO node_usage (node_name, usage, reported_at, outcome)"
        " VALUES (%s::text, %s::text::jsonb, %s::timestamptz, '{}'::jsonb)"
        " ON CONFLICT (node_name) DO UPDATE"
        " SET usage = excluded.usage, reported_at = excluded.reported_at",
        (node_name, msgspec.json.encode(read).decode(), now),
    )
    return read


def conclude(reported: Reported, outcome: dict[str, Any], *, now: datetime) -> None:
    """Keep what was concluded from a report, unless a newer one came; that is judged next."""
    sql.run(
        "UPDATE node_usage SET outcome = %s::text::jsonb,"
        " judged_at = CASE WHEN reported_at = %s::timestamptz THEN %s::timestamptz END"
        " WHERE node_name = %s::text",
        (msgspec.json.encode(outcome).decode(), reported.reported_at, now, reported.node_name),
    )

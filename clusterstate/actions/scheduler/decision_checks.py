"""Checks of decisions: an advisor stores the results; they are deleted at the age of decisions."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from django.conf import settings

from clusterstate.database import sql
from clusterstate.queries.scheduler.decision_checks import Result
from clusterstate.queries.scheduler.decisions import Record


def note(record: Record, result: Result, details: Sequence[str], *, now: datetime) -> None:
    """Store the result of verifying a decision; only its first check is stored.

    Queries once.
    """
    sql.run(
        "INSERT INTO decision_check (decision_id, at, namespace, name, result, details)"
        " VALUES (%s::bigint, %s::timestamptz, %s, %s, %s, %s::jsonb) ON CONFLICT DO NOTHING",
        (
            record.id,
            now,
            record.namespace,
            record.name,
            result,
            msgspec.json.encode(details).decode(),
        ),
    )


def trim(*, now: datetime) -> None:
    """Delete checks that are older than the setting DECISION_SECONDS. Queries once."""
    boundary = now - timedelta(seconds=settings.DECISION_SECONDS)
    sql.run("DELETE FROM decision_check WHERE at < %s::timestamptz", (boundary,))

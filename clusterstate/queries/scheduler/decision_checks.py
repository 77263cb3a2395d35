"""Decisions that an advisor repeats: which one is next, and which had another result.

`scheduling.processes.decision_checks` has the advisor's work.
"""

from datetime import datetime, timedelta
from typing import Final, Literal

from django.conf import settings

from clusterstate.database import sql
from clusterstate.queries.scheduler import decisions
from clusterstate.queries.scheduler.decisions import Record

Result = Literal["same", "differs", "impossible"]

_SETTLED: Final = timedelta(seconds=10)
"""So long after a decision its bind, and those that it relied on, are in the change log."""
_BACK: Final = timedelta(minutes=15)
"""How far back decisions are looked for."""
_BUCKETS: Final = 1_000_000


def next_one(share: float, *, now: datetime, since: datetime) -> Record | None:
    """Return the latest unchecked decision of the sample, ``None`` if there is none.

    The sample is a ``share`` of all decisions ``since`` then, chosen by a hash of their ids.
    Queries once.
    """
    rows = sql.fetch(
        f"""
        SELECT {decisions.COLUMNS} FROM decision d
        WHERE at BETWEEN %s::timestamptz AND %s::timestamptz
            AND mod(hashint8(id)::bigint + 2147483648, {_BUCKETS}) < %s::bigint
            AND NOT EXISTS (SELECT FROM decision_check c WHERE c.decision_id = d.id)
        ORDER BY id DESC LIMIT 1
        """,
        (max(now - _BACK, since), now - _SETTLED, round(share * _BUCKETS)),
    )
    return decisions.as_record(rows[0]) if rows else None


def counts() -> dict[Result, int]:
    """Return the number of stored checks for each result. Queries once."""
    every: dict[Result, int] = {"same": 0, "differs": 0, "impossible": 0}
    return every | dict(sql.fetch("SELECT result, count(*) FROM decision_check GROUP BY result"))


def latest(result: Result) -> datetime | None:
    """Return when a check last had this result, ``None`` if none had. Queries once."""
    row = sql.fetch_one("SELECT max(at) FROM decision_check WHERE result = %s", (result,))
    assert row is not None
    moment: datetime | None = row[0]
    return moment


def problem(*, patience: float = settings.DATABASE_ANSWER_SECONDS) -> str:
    """Return which decisions had another result, as a sentence; empty if none did.

    Queries once, and waits for the database's answer at most ``patience`` seconds.
    """
    with sql.patience(patience):
        rows = sql.fetch(
            "SELECT decision_id, namespace, name, details FROM decision_check"
            " WHERE result = 'differs' ORDER BY at DESC LIMIT 100"
        )
    if not rows:
        return ""
    decision, namespace, name, details = rows[0]
    many = "decision" if len(rows) == 1 else "decisions"
    return (
        f"{len(rows)} {many} came out differently when made again from the database,"
        f" at last decision {decision} about pod {namespace}/{name}: {'; '.join(details)}"
    )

"""Decisions: recorded in bulk after the fact, dropped by partitions when they are old.

A decision is news, like an event: nothing waits for it and no other row refers to it. A batch is
one statement with binary arrays; the pod's identity is filled in from its row, so a pod that is
gone by then leaves no decision.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

import msgspec
from django.conf import settings

from clusterstate import sql

PARTITION: Final = timedelta(hours=6)
_ORIGIN: Final = datetime(2020, 1, 1, tzinfo=UTC)
_LONGEST_MESSAGE: Final = 16_384
_MAKING: Final = (0x5358 << 48) + 16  # advisory lock: one process makes partitions at a time


class Made(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A decision to record; the fields are the columns of the table ``decision``.

    ``table``: the packed full table of a pod that could not be placed.
    """

    pod_id: int
    at: datetime
    class_id: int
    snapshot_revision: int
    profile: str
    profile_revision: int
    seed: int
    draw: int
    start: int
    outcome: str
    node_name: str
    total: int
    margin: int | None
    ties: int
    node_count: int
    evaluated: int
    feasible: int
    message: str
    body: bytes
    table: bytes | None = None


_RECORD = """
    WITH news AS MATERIALIZED (
        SELECT i.*, p.uid, p.namespace, p.name
        FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
             WITH ORDINALITY
             AS i(pod_id, at, class_id, snapshot_revision, profile, profile_revision, seed, draw,
                  start, outcome, node_name, total, margin, ties, node_count, evaluated, feasible,
                  message, body, table_digest, number)
        JOIN pod p ON p.id = i.pod_id
        ORDER BY i.number)
    INSERT INTO decision (pod_id, at, class_id, snapshot_revision, profile, profile_revision, seed,
        draw, start, outcome, node_name, total, margin, ties, node_count, evaluated, feasible,
        message, body, table_digest, pod_uid, namespace, name)
    SELECT pod_id, at, class_id, snapshot_revision, profile, profile_revision, seed, draw, start,
        outcome, node_name, total, margin, ties, node_count, evaluated, feasible, message, body,
        table_digest, uid, namespace, name
    FROM news
"""
_RECORD = " ".join(_RECORD.split())
_KEEP_TABLES = """
    INSERT INTO decision_table AS t (digest, at, body)
    SELECT digest, %s::timestamptz, body FROM unnest(%s, %s) AS i(digest, body)
    ON CONFLICT (digest) DO UPDATE SET at = excluded.at WHERE t.at < excluded.at
"""
_KEEP_TABLES = " ".join(_KEEP_TABLES.split())


def record_many(decisions: Sequence[Made]) -> int:
    """Record decisions, in their order; return how many rows were written.

    Two or three statements for the whole batch, whatever its size.
    """
    if not decisions:
        return 0
    tables: dict[bytes, bytes] = {}
    digests: list[bytes | None] = []
    for one in decisions:
        digest: bytes | None = None
        if one.table is not None:
            digest = blake2b(one.table, digest_size=16).digest()
            tables[digest] = one.table
        digests.append(digest)
    moments = [one.at for one in decisions]
    make_partitions((min(moments), max(moments)))
    if tables:
        items = sorted(tables.items())
        parameters: list[Any] = [
            max(moments),
            sql.Byteas([digest for digest, _ in items]),
            sql.Byteas([body for _, body in items]),
        ]
        sql.run(_KEEP_TABLES, parameters)
    return sql.run(
        _RECORD,
        [
            sql.Int8s([one.pod_id for one in decisions]),
            sql.Times(moments),
            sql.Int8s([one.class_id for one in decisions]),
            sql.Int8s([one.snapshot_revision for one in decisions]),
            sql.Texts([one.profile for one in decisions]),
            sql.Int8s([one.profile_revision for one in decisions]),
            sql.Int8s([one.seed for one in decisions]),
            sql.Int8s([one.draw for one in decisions]),
            sql.Int4s([one.start for one in decisions]),
            sql.Texts([one.outcome for one in decisions]),
            sql.Texts([one.node_name for one in decisions]),
            sql.Int8s([one.total for one in decisions]),
            sql.Int8s([one.margin for one in decisions]),
            sql.Int4s([one.ties for one in decisions]),
            sql.Int4s([one.node_count for one in decisions]),
            sql.Int4s([one.evaluated for one in decisions]),
            sql.Int4s([one.feasible for one in decisions]),
            sql.Texts([one.message[:_LONGEST_MESSAGE].replace("\0", "") for one in decisions]),
            sql.Byteas([one.body for one in decisions]),
            sql.Byteas(digests),
        ],
    )


# Partitions ------------------------------------------------------------------------------------


def _begin(moment: datetime) -> datetime:
    """Return the start of the partition that ``moment`` falls into."""
    return _ORIGIN + (moment - _ORIGIN) // PARTITION * PARTITION


def _name(begin: datetime) -> str:
    return f"decision_{begin:%Y%m%d_%H}"


def make_partitions(moments: Iterable[datetime]) -> None:
    """Make the partitions for rows of these moments where there are none. Queries once."""
    begins = sorted({_begin(moment) for moment in moments})
    names = [_name(begin) for begin in begins]
    rows = sql.fetch(
        "SELECT name FROM unnest(%s) AS name WHERE to_regclass(name) IS NULL", (sql.Texts(names),)
    )
    missing = {row[0] for row in rows}
    for begin, name in zip(begins, names, strict=True):
        if name in missing:
            sql.run(
                f"DO $$ BEGIN PERFORM pg_advisory_xact_lock({_MAKING});"
                f" CREATE TABLE IF NOT EXISTS {name} PARTITION OF decision"
                f" FOR VALUES FROM ('{begin.isoformat()}')"
                f" TO ('{(begin + PARTITION).isoformat()}'); END $$"
            )


def trim(*, now: datetime, keep_seconds: int | None = None) -> int:
    """Drop the partitions that are older than ``keep_seconds`` (setting DECISION_SECONDS).

    Return how many. Decisions of the partition in which the boundary falls stay until all of it is
    old. Tables that nothing young refers to go too.
    """
    keep = settings.DECISION_SECONDS if keep_seconds is None else keep_seconds
    boundary = now - timedelta(seconds=keep)
    rows = sql.fetch(
        "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = 'decision'::regclass"
    )
    kept = _name(_begin(boundary))
    old = [name for (name,) in rows if name.startswith("decision_") and name < kept]
    for name in old:
        sql.run(f"DROP TABLE IF EXISTS {name}")
    sql.run("DELETE FROM decision_table WHERE at < %s::timestamptz", (_begin(boundary),))
    return len(old)

"""Decisions: recorded in bulk after the fact, dropped by partitions when they are old.

A decision is a report, like an event: no code waits for it, no other row refers to it. A batch is
one statement with binary arrays; it fills in the pod's identity from its row, or from the change
log if the pod is gone: its decision still influenced later ones.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec
from django.conf import settings
from django.db import IntegrityError, connection

from clusterstate.actions.scheduler import seals
from clusterstate.actions.writing import partitions, transactions
from clusterstate.database import locks, sql
from clusterstate.queries.scheduler.decisions import DecisionRow, Turn

PARTITION: Final = timedelta(hours=6)
_ORIGIN: Final = datetime(2020, 1, 1, tzinfo=UTC)
_LONGEST_MESSAGE: Final = 16_384


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = Sequence[int] | npt.NDArray[np.integer]
else:  # web processes never import NumPy
    Integers = Sequence[int]


class NewDecision(DecisionRow, frozen=True, gc=False):
    """A decision to record; ``table``: the packed full table of a pod that could not be placed."""

    table: bytes | None = None


_RECORD = """
    WITH absent AS MATERIALIZED (
        SELECT FROM unnest(%s) AS partition(name) WHERE to_regclass(partition.name) IS NULL),
    made AS MATERIALIZED (
        SELECT i.*, p.uid, p.namespace, p.name
        FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,
                    %s)
             WITH ORDINALITY
             AS i(pod_id, at, class_id, snapshot_revision, profile, profile_revision, seed, draw,
                  start, outcome, node_name, total, margin, ties, node_count, evaluated, feasible,
                  message, body, taken_back, table_digest, place)
        LEFT JOIN pod p ON p.id = i.pod_id
        WHERE NOT EXISTS (SELECT FROM absent)),
    gone AS MATERIALIZED (
        SELECT DISTINCT ON (c.object_id) c.object_id, c.namespace, c.name,
            (replace(d.text, chr(1), '')::json #>> '{metadata,uid}')::uuid AS uid
        FROM change c JOIN document d ON d.id = c.document_id
        WHERE EXISTS (SELECT FROM made WHERE uid IS NULL)
            AND c.revision > (SELECT min(snapshot_revision) FROM made WHERE uid IS NULL)
            AND c.kind = 1 AND c.verb = 3
            AND c.object_id IN (SELECT pod_id FROM made WHERE uid IS NULL)),
    news AS MATERIALIZED (
        SELECT m.*, coalesce(m.uid, g.uid) AS known_uid,
            coalesce(m.namespace, g.namespace) AS known_namespace,
            coalesce(m.name, g.name) AS known_name
        FROM made m LEFT JOIN gone g ON g.object_id = m.pod_id AND m.uid IS NULL
        WHERE m.uid IS NOT NULL OR g.uid IS NOT NULL
        ORDER BY m.place),
    written AS (
    INSERT INTO decision (pod_id, at, class_id, snapshot_revision, profile, profile_revision, seed,
        draw, start, outcome, node_name, total, margin, ties, node_count, evaluated, feasible,
        message, body, taken_back, table_digest, pod_uid, namespace, name, scheduler, epoch, number)
    SELECT pod_id, at, class_id, snapshot_revision, profile, profile_revision, seed, draw, start,
        outcome, node_name, total, margin, ties, node_count, evaluated, feasible, message, body,
        taken_back, table_digest, known_uid, known_namespace, known_name,
        %s::smallint, %s::bigint, %s::bigint + place - 1
    FROM news RETURNING 1)
    SELECT (SELECT count(*) FROM written), EXISTS (SELECT FROM absent)
"""
"""Returns how many rows were written, and whether a partition for them is not there."""
_RECORD = " ".join(_RECORD.split())
_BEGIN = """
    INSERT INTO scheduler AS s (id, epoch) VALUES (%s::smallint, 1)
    ON CONFLICT (id) DO UPDATE SET epoch = s.epoch + 1 RETURNING epoch
"""
_KEEP_TABLES = """
    INSERT INTO decision_table AS t (digest, at, body)
    SELECT digest, %s::timestamptz, body FROM unnest(%s, %s) AS i(digest, body)
    ON CONFLICT (digest) DO UPDATE SET at = excluded.at WHERE t.at < excluded.at
"""
_KEEP_TABLES = " ".join(_KEEP_TABLES.split())


class MadeMany(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions as columns, one entry for each in all of them; see ``NewDecision``."""

    pod_id: Sequence[int]
    at: Sequence[datetime]
    class_id: Integers
    snapshot_revision: Integers
    profile: Sequence[str]
    profile_revision: Integers
    seed: Integers
    draw: Integers
    start: Integers
    outcome: Sequence[str]
    node_name: Sequence[str]
    total: Integers
    margin: Integers | Sequence[int | None]
    ties: Integers
    node_count: Integers
    evaluated: Integers
    feasible: Integers
    message: Sequence[str]
    body: Sequence[bytes]
    taken_back: Sequence[int | None]
    table: Sequence[bytes | None]


def begin_epoch(scheduler: int) -> int:
    """Begin an epoch, which is one run of a scheduler, and return its number. Queries once.

    ``scheduler`` is the number of the scheduler: there may be several at a time.
    """
    row = sql.fetch_one(_BEGIN, (scheduler,))
    assert row is not None
    epoch: int = row[0]
    return epoch


def record_many(decisions: Sequence[NewDecision], first: Turn) -> int:
    """Record decisions, in their order; return how many rows were written.

    ``first``: the turn of the first decision; the others have the numbers after it.
    """
    return record_columns(
        MadeMany(
            **{
                name: [getattr(one, name) for one in decisions]
                for name in NewDecision.__struct_fields__
                if name != "message"
            },
            message=[one.message[:_LONGEST_MESSAGE].replace("\0", "") for one in decisions],
        ),
        first,
    )


def record_columns(many: MadeMany, first: Turn) -> int:
    """Record decisions, in their order; return how many rows were written.

    ``first``: the turn of the first decision; the others have the numbers after it. A decision
    about a pod that is neither stored nor in the change log is not recorded. Queries once for the
    whole batch, once more if a decision has a table, and again if a partition has to be created.
    """
    if not many.pod_id:
        return 0
    tables: dict[bytes, bytes] = {}
    digest_by_id: dict[int, bytes] = {}  # by identity: thousands share a table of some kilobytes
    digests: list[bytes | None] = []
    for table in many.table:
        digest: bytes | None = None
        if table is not None:
            digest = digest_by_id.get(id(table))
            if digest is None:
                digest = digest_by_id[id(table)] = blake2b(table, digest_size=16).digest()
                tables[digest] = table
        digests.append(digest)
    moments = many.at
    if tables:
        items = sorted(tables.items())
        parameters: list[Any] = [
            max(moments),
            sql.Byteas([digest for digest, _ in items]),
            sql.Byteas([body for _, body in items]),
        ]
        sql.run(_KEEP_TABLES, parameters)
    ends = min(moments), max(moments)
    record = partial(
        sql.fetch,
        _RECORD,
        [
            sql.Texts(sorted({_name(_begin(moment)) for moment in ends})),
            sql.Int8s(many.pod_id),
            sql.Times(moments),
            sql.Int8s(many.class_id),
            sql.Int8s(many.snapshot_revision),
            sql.Texts(many.profile),
            sql.Int8s(many.profile_revision),
            sql.Int8s(many.seed),
            sql.Int8s(many.draw),
            sql.Int4s(many.start),
            sql.Texts(many.outcome),
            sql.Texts(many.node_name),
            sql.Int8s(many.total),
            sql.Int8s(many.margin),
            sql.Int4s(many.ties),
            sql.Int4s(many.node_count),
            sql.Int4s(many.evaluated),
            sql.Int4s(many.feasible),
            sql.Texts(many.message),
            sql.Byteas(many.body),
            sql.Int8s(many.taken_back),
            sql.Byteas(digests),
            first.scheduler,
            first.epoch,
            first.number,
        ],
    )
    written, is_partition_absent = 0, False
    try:
        ((written, is_partition_absent),) = record()
    except IntegrityError:
        if connection.in_atomic_block:
            raise
        # Another scheduler created the partition while the statement began: it saw the partition,
        # but was planned without it.
        is_partition_absent = True
    if is_partition_absent:
        make_partitions(ends)
        ((written, _),) = record()
    return int(written)


# Partitions ------------------------------------------------------------------------------------


def _begin(moment: datetime) -> datetime:
    """Return the start of the partition that ``moment`` falls into."""
    return _ORIGIN + (moment - _ORIGIN) // PARTITION * PARTITION


def _name(begin: datetime) -> str:
    return f"decision_{begin:%Y%m%d_%H}"


def moments() -> list[datetime]:
    """Return one moment of each partition that holds decisions. Queries once."""
    rows = sql.fetch(
        "SELECT DISTINCT date_bin(%s::interval, at, %s::timestamptz) FROM decision",
        (PARTITION, _ORIGIN),
    )
    return [row[0] for row in rows]


def make_partitions(moments: Iterable[datetime]) -> None:
    """Create the missing partitions for rows of these moments. Queries once for each.

    Where another session has just created one, this waits for that session's lock: PostgreSQL shows
    a new table to others before it invalidates their caches of the parent, and releases the lock
    after that.
    """
    for begin in sorted({_begin(moment) for moment in moments}):
        partitions.make(
            parent="decision",
            name=_name(begin),
            first=begin.isoformat(),
            end=(begin + PARTITION).isoformat(),
            lock=locks.DECISION_PARTITIONS,
        )


def trim(*, now: datetime, keep_seconds: int | None = None) -> int:
    """Drop the partitions that are older than ``keep_seconds`` (setting DECISION_SECONDS).

    Return how many. Decisions in the partition of the boundary stay until all of it is old. Tables
    that no remaining decision refers to are deleted too. While a backup or another long reader
    reads decisions, nothing is dropped: the next call does it.
    """
    keep = settings.DECISION_SECONDS if keep_seconds is None else keep_seconds
    boundary = now - timedelta(seconds=keep)
    rows = sql.fetch(
        "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = 'decision'::regclass"
    )
    oldest = _name(_begin(boundary))
    old = [name for (name,) in rows if name.startswith("decision_") and name < oldest]
    if old:
        # Together: verification finds the decisions, or a seal that says that they were dropped.
        try:
            with transactions.briefly():
                seals.trim(before=_begin(boundary), now=now)
                for name in old:
                    sql.run(f"DROP TABLE IF EXISTS {name}")
        except transactions.TablesInUse:
            partitions.end_silent("decision")
            return 0
    sql.run("DELETE FROM decision_table WHERE at < %s::timestamptz", (_begin(boundary),))
    return len(old)

"""Keeping the past: the change log, packed in chunks before it is trimmed.

Writing an object costs nothing extra: its versions are in the log, while the log is kept. Later,
and before they are trimmed, ``pack`` reads a *chunk* of the log, changes and the versions that they
ended, and writes it as compressed blocks (`clusterstate.change_log.blocks`) in one transaction with
the row that has the revision up to which the past is packed. So a kill at any moment leaves a chunk
packed or not, and another process that packs the same chunk writes nothing. The log is never
trimmed beyond what is packed (`actions.past.history`).

A block has the changes of one kind whose ended versions had lasted about equally long. The state at
a revision consists of versions that began before it and ended after it, so a later block can be
skipped if all its versions began later still; therefore long-lived versions are not mixed with
short-lived ones.

The past ends at a partition's border: `trim` drops whole partitions, and then nothing before the
last chunk of the last one is known. If keeping the past is switched off, all of it is dropped
before the log is trimmed (`forget`), since versions that ended in a gap would be missing before it.

::

    history         trims changes, events and documents
    archives        backup and restore
    audit_log       the table of audited requests
    housekeeping    rows that nothing else drops
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import structlog
from django.conf import settings
from django.db import transaction

from clusterstate.actions.writing import partitions, transactions
from clusterstate.change_log import blocks, changes, lineage
from clusterstate.change_log.blocks import Block, Entry, Moments
from clusterstate.database import locks, sql
from clusterstate.objects.registry.kinds import KINDS, NAMES
from clusterstate.objects.rules.glances import Glance, Glances
from clusterstate.objects.values.document import compose
from clusterstate.queries.pods import pod_overlay

logger = structlog.get_logger(__name__)

CHUNK: Final = 10_000
"""Changes that are packed together at most."""
CHUNK_BYTES: Final = 32 << 20
"""Bytes of versions after which a chunk ends earlier; held in memory while it is packed."""
BLOCK_BYTES: Final = 256 << 10
BLOCK_ENTRIES: Final = 2000
PATIENCE: Final = timedelta(minutes=10)
"""How long a change may wait for a chunk to fill."""
SETTLED: Final = timedelta(minutes=2)
"""How long a full chunk waits: a burst of changes is not to share the machine with its packing."""
PARTITION: Final = timedelta(days=1)
_ORIGIN: Final = datetime(2020, 1, 1, tzinfo=UTC)
_AT_ONCE: Final = 1000
_AGES: Final = 6

_READ: Final = """
    SELECT c.revision, c.at, c.kind, c.verb, c.object_id, c.namespace, c.name, c.previous_revision,
           c.node_name, c.previous_node_name, c.previous_scheduled_at, c.previous_unschedulable,
           c.previous_eviction, a.name, a.impersonator, c.cause::text, p.text
    FROM (SELECT * FROM change
          WHERE revision > (SELECT %s::bigint) AND revision <= (SELECT %s::bigint)
          ORDER BY revision LIMIT %s) c
    LEFT JOIN actor a ON a.id = c.actor_id
    LEFT JOIN document p ON p.id = c.previous_document_id
    ORDER BY c.revision
"""
_HEAD: Final = "SELECT packed_revision FROM past_head WHERE id = 1"
_BEGIN: Final = """
    INSERT INTO past_head (id, since_revision, since_at, packed_revision)
    VALUES (1, %s::bigint, %s::timestamptz, %s::bigint) ON CONFLICT (id) DO NOTHING
"""
_MOVE: Final = """
    UPDATE past_head SET packed_revision = %s::bigint
    WHERE id = 1 AND packed_revision = %s::bigint
"""
_WRITE: Final = """
    INSERT INTO past_block (at, chunk, kind, entries, first_from, first_revision, last_revision,
                            first_key, last_key, marks, index, body, causes)
    SELECT %s::timestamptz, %s::bigint, i.*
    FROM unnest(%s::smallint[], %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) AS i
"""
_WRITE_CHUNK: Final = """
    INSERT INTO past_chunk (revision, first_at, changes, raw_bytes, stored_bytes, moments)
    VALUES (%s::bigint, %s::timestamptz, %s::integer, %s::bigint, %s::bigint, %s::bytea)
"""
_OLDEST: Final = """
    SELECT count(*), min(at), max(at) FROM (
        SELECT at FROM change WHERE revision > %s::bigint AND revision <= %s::bigint
        ORDER BY revision LIMIT %s) c
"""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class PackResult(msgspec.Struct, frozen=True):
    """The result of packing: the number of changes, and the last revision that is packed."""

    changes: int
    revision: int


def is_kept() -> bool:
    """Return whether the past is kept at all."""
    return bool(settings.PAST_HOURS)


def pack(*, now: datetime, until: int | None = None, patience: timedelta = PATIENCE) -> PackResult:
    """Pack the next chunk of the log, if it is full or its first change is old.

    ``until``: pack up to that revision at most, even a chunk that is not full. Reads about a
    thousand changes at a time; writes in one transaction. Several processes may call it
    concurrently, and it may be killed at any time.
    """
    mark = changes.watermark()
    if until is not None:
        mark = min(mark, until)
    start = _begin(now)
    if mark <= start:
        return PackResult(0, start)
    if until is None:
        ((waiting, oldest, newest),) = sql.fetch(_OLDEST, (start, mark, CHUNK))
        is_full = waiting >= CHUNK and newest <= now - SETTLED
        if not is_full and (oldest is None or oldest > now - patience):
            return PackResult(0, start)
    found, end = _read_chunk(start, mark)
    packed = list(_blocks(found, start, end))
    with transaction.atomic():
        if not sql.run(_MOVE, (end, start)):
            return PackResult(0, start)  # another process packed this chunk
        if found:
            _write(packed, [(revision, entry.at) for revision, _, entry in found], end, now)
    return PackResult(len(found), end)


def pack_up_to(revision: int, *, now: datetime, seconds: float = 10.0) -> int:
    """Pack everything up to a revision within the time; return the revision that was reached."""
    enough = time.monotonic() + seconds
    while True:
        done = pack(now=now, until=revision)
        if not done.changes or time.monotonic() > enough:
            return done.revision


def packed() -> int:
    """Return the revision up to which the past is packed, 0 without one. Queries once."""
    row = sql.fetch_one(_HEAD)
    return 0 if row is None else int(row[0])


def _begin(now: datetime) -> int:
    """Return the revision after which to pack; the past begins where the log does."""
    row = sql.fetch_one(_HEAD)
    if row is None:
        trimmed = lineage.kept_after()
        sql.run(_BEGIN, (trimmed, now, trimmed))
        row = sql.fetch_one(_HEAD)
        assert row is not None
    packed: int = row[0]
    return packed


_Read = tuple[int, int, Entry]
"""Revision, code of the kind, and the change."""


def _read_chunk(start: int, mark: int) -> tuple[list[_Read], int]:
    """Return the changes of a chunk, and the revision up to which they are complete."""
    found: list[_Read] = []
    glances = Glances()
    size = 0
    cursor = start
    while True:
        limit = min(_AT_ONCE, CHUNK - len(found))
        rows = sql.fetch(_READ, (cursor, mark, limit))
        for row in rows:
            entry = _entry(row, glances)
            found.append((row[0], row[2], entry))
            size += len(entry.body or b"")
        if len(rows) < limit:
            return found, mark
        cursor = rows[-1][0]
        if len(found) >= CHUNK or size >= CHUNK_BYTES:
            return found, cursor


def _entry(row: sql.Row, glances: Glances) -> Entry:
    (
        revision, at, kind, verb, object_id, namespace, name, previous, node_name, was_on,
        scheduled_at, unschedulable, eviction, actor, impersonator, cause, text,
    ) = row  # fmt: skip
    body: bytes | None = None
    glance: Glance | None = None
    if text is not None and previous is not None:
        try:
            body = compose(
                text, previous, pod_overlay(was_on, scheduled_at, unschedulable, eviction)
            )
        except Exception:
            # The version is packed as unknown; other objects' past continues.
            logger.exception("version_not_packed", kind=NAMES.get(kind), name=name)
    if body is not None and kind == KINDS["Pod"].code:
        try:
            glance = glances.at(body)
        except Exception:
            # Without a glance, readers decode the version itself; packing continues.
            logger.exception("glance_not_packed", namespace=namespace, name=name)
    return Entry(
        revision=revision,
        at=(at - _EPOCH) // _MICROSECOND,
        verb=verb,
        object_id=object_id,
        previous=previous or 0,
        namespace=namespace,
        name=name,
        actor=actor or "",
        impersonator=impersonator or "",
        cause=cause or "",
        node_name=node_name or "",
        body=body,
        glance=glance,
    )


def _blocks(found: Sequence[_Read], start: int, end: int) -> Iterator[tuple[int, Block]]:
    """Yield the blocks of a chunk, each with the code of its kind."""
    groups: dict[tuple[int, int], list[Entry]] = {}
    span = max(end - start, 1)
    for _, kind, entry in found:
        groups.setdefault((kind, _age(entry, start, span)), []).append(entry)
    for (kind, _), entries in sorted(groups.items()):
        entries.sort(key=lambda one: (one.key, one.revision))
        for part in _parts(entries):
            yield kind, blocks.pack(part)


def _age(entry: Entry, start: int, span: int) -> int:
    """Return how long the ended version had lasted when the chunk began: 0, or about log4."""
    age = start - entry.previous if entry.previous else 0
    return 0 if age <= 0 else min(_AGES, 1 + ((age // span).bit_length() + 1) // 2)


def _parts(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    first = size = 0
    for place, entry in enumerate(entries):
        length = len(entry.body or b"")
        if place > first and (size + length > BLOCK_BYTES or place - first >= BLOCK_ENTRIES):
            yield entries[first:place]
            first, size = place, 0
        size += length
    if first < len(entries):
        yield entries[first:]


def _write(
    packed: Sequence[tuple[int, Block]],
    moments: Sequence[tuple[int, int]],
    end: int,
    now: datetime,
) -> None:
    blocks = [one for _, one in packed]
    make_partitions((now,))
    sql.run(
        _WRITE,
        (
            now,
            end,
            sql.Int4s([kind for kind, _ in packed]),
            sql.Int4s([one.entries for one in blocks]),
            sql.Int8s([one.first_from for one in blocks]),
            sql.Int8s([one.first_revision for one in blocks]),
            sql.Int8s([one.last_revision for one in blocks]),
            sql.Texts([one.first_key for one in blocks]),
            sql.Texts([one.last_key for one in blocks]),
            sql.Byteas([one.marks for one in blocks]),
            sql.Byteas([one.index for one in blocks]),
            sql.Byteas([one.body for one in blocks]),
            sql.Byteas([one.causes for one in blocks]),
        ),
    )
    when = Moments.of(moments).pack()
    stored = len(when) + sum(
        len(one.marks) + len(one.causes) + len(one.index) + len(one.body) for one in blocks
    )
    first_at = _EPOCH + min(at for _, at in moments) * _MICROSECOND
    raw = sum(one.raw_bytes for one in blocks)
    sql.run(_WRITE_CHUNK, (end, first_at, len(moments), raw, stored, when))


def forget() -> None:
    """Delete the whole recorded past, if there is one."""
    if sql.fetch_one(_HEAD) is None:
        return
    with transaction.atomic():
        sql.run("DELETE FROM past_head")
        sql.run("DELETE FROM past_chunk")
        for name in _partitions():
            sql.run(f"DROP TABLE {name}")


# Partitions ------------------------------------------------------------------------------------


def _partition(moment: datetime) -> datetime:
    """Return the start of the partition that ``moment`` falls into."""
    return _ORIGIN + (moment - _ORIGIN) // PARTITION * PARTITION


def _name(begin: datetime) -> str:
    return f"past_block_{begin:%Y%m%d}"


def moments() -> list[datetime]:
    """Return one moment of each partition that holds blocks. Queries once."""
    rows = sql.fetch(
        "SELECT DISTINCT date_bin(%s::interval, at, %s::timestamptz) FROM past_block",
        (PARTITION, _ORIGIN),
    )
    return [row[0] for row in rows]


def make_partitions(moments: Iterable[datetime]) -> None:
    """Make the partitions for blocks of these moments that are not there. Queries once for each."""
    for begin in sorted({_partition(one) for one in moments}):
        partitions.make(
            parent="past_block",
            name=_name(begin),
            first=begin.isoformat(),
            end=(begin + PARTITION).isoformat(),
            lock=locks.PAST_PARTITIONS,
            options="WITH (toast_tuple_target = 128)",
        )


_FORGET: Final = """
    UPDATE past_head h SET since_revision = m.chunk, since_at = %s::timestamptz
    FROM (SELECT max(chunk) AS chunk FROM {name}) m
    WHERE h.id = 1 AND m.chunk > h.since_revision
"""


def _partitions() -> list[str]:
    """Return the names of the partitions, the oldest first. Queries once."""
    rows = sql.fetch(
        "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = 'past_block'::regclass ORDER BY 1"
    )
    return [name for (name,) in rows if name.startswith("past_block_")]


def trim(*, now: datetime, keep_hours: int | None = None) -> int:
    """Drop the partitions that are older than ``keep_hours`` (setting PAST_HOURS).

    Return how many. A partition stays until all of it is old, and while a long read of the past
    runs. The same transaction advances the revision from which on the past is known.
    """
    keep = settings.PAST_HOURS if keep_hours is None else keep_hours
    oldest = _name(_partition(now - timedelta(hours=keep)))
    old = [name for name in _partitions() if name < oldest]
    for count, name in enumerate(old):
        ends = datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC) + PARTITION
        try:
            with transactions.briefly():
                sql.run("SELECT pg_advisory_xact_lock(%s::bigint)", (locks.PAST_PARTITIONS,))
                sql.run(_FORGET.format(name=name), (ends,))
                sql.run(f"DROP TABLE {name}")
                sql.run(
                    "DELETE FROM past_chunk"
                    " WHERE revision <= (SELECT since_revision FROM past_head WHERE id = 1)"
                )
        except transactions.TablesInUse:
            partitions.end_silent("past_block")
            return count
    return len(old)

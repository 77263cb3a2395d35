"""The change log: taking revisions, reading the changes after a revision, announcing commits.

Every write of an object takes a *revision* (its resourceVersion) and appends a row to ``change`` in
the same statement. Followers (scheduler, controllers, watches) read by revision and must miss
nothing, although transactions do not commit in the order of their revisions.

The *low watermark* makes the order trustworthy::

    writer    lock shared (TAG, last_value)   then nextval -> r > last_value   then commit, unlock
    follower  S = last_value   then m = the smallest locked number   then, in a new snapshot,
              read revisions <= min(S, m)

Why nothing is missed: a writer whose r is <= S took its number, hence its lock, before S was read.
If it still has the lock when the locks are read, then m < r, and r is not read yet. Otherwise its
commit was visible before the lock was released, so the later snapshot contains it. The order inside
the writer's statement matters (lock before number), and inside the follower (S before m before the
snapshot); both are enforced by CASE and by a correlated subquery, which PostgreSQL does not
reorder. A lock's number is a bigint of tag and revision, good for 2**48 revisions.

*Atomic spans.* Some changes of one transaction become visible together: a group of pods is bound,
or evicted, at once. Each has a revision of its own, since followers resume by revision, and
revisions of other writers may lie between. So the transaction records the revisions at which only a
part of its changes would be visible (``ATOMIC``), and no client gets the state at one of them. A
watermark stops before them (``whole_before``, in a snapshot of its own, taken after the locks were
read, for the same reason as the follower's). An exact read returns the state, and the revision, of
the last of them (``whole``). No watermark falls by that: while the transaction was open, its lock
kept the mark below its first number.

No follower gets revisions above the ceiling of `clusterstate.change_log.lineage`, and after a crash
none are given out before `lineage` has moved the sequence above it.

A row's revision is always taken in the SET of the UPDATE that writes the row (or after the row was
locked): when an UPDATE waits for another writer of the row, PostgreSQL computes SET again on the
newest version, so revisions of one object rise in commit order.
"""

import time
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from django.db import OperationalError, connection, transaction
from django.dispatch import Signal
from psycopg.types.range import Range

from clusterstate.change_log import lineage
from clusterstate.database import locks, sql
from clusterstate.objects.registry.kinds import KINDS, NAMES
from clusterstate.objects.values.errors import Expired

_T = TypeVar("_T")

ADDED, MODIFIED, DELETED = 1, 2, 3

_TAG_BITS = locks.REVISION_TAG << 48

OPEN = (
    "CASE WHEN current_setting('stowage.opened', true) = '1' THEN 1"
    f" WHEN NOT ({lineage.OPEN}) THEN revisions_closed()"
    f" WHEN pg_advisory_xact_lock_shared({_TAG_BITS}"
    " + pg_sequence_last_value('change_revision')) IS NOT NULL"
    " AND set_config('stowage.opened', '1', true) IS NOT NULL THEN 1 END AS opened,"
    " %s::integer AS actor_id, %s::uuid AS cause"
)
"""Columns of a MATERIALIZED one-row CTE that must be joined wherever NEXT is computed. Its two
parameters are the author and the cause (`clusterstate.change_log.actors.gate`). It takes the lock
once in a transaction, since the lock table is small and the first number is the lowest anyway. The
local setting that records this ends with the transaction, and is undone together with the lock when
a savepoint is rolled back. It fails after a crash, until `lineage.establish` has secured the
sequence."""

NEXT = "nextval('change_revision')"
"""A new revision. Only valid in a statement whose rows come through a CTE with OPEN."""

WITH_GATE = f"WITH gate AS MATERIALIZED (SELECT {OPEN})"

BY_GATE = "(SELECT actor_id FROM gate), (SELECT cause FROM gate)"
"""Values of the log's columns ``actor_id`` and ``cause``, from the gate of the statement."""

ATOMIC = """
    INSERT INTO atomic_span (revisions) SELECT int8range(min(revision), max(revision))
    FROM {source} HAVING count(*) > 1 AND {condition}"""
"""A part of a statement: lets readers see the changes with the revisions in ``source`` only
together."""

_ATOMIC_SINCE = f"""
    INSERT INTO atomic_span (revisions)
    SELECT int8range(first, last)
    FROM (SELECT min(((l.classid::bigint & 65535) << 32) | l.objid::bigint) + 1 AS first,
                 pg_sequence_last_value('change_revision') AS last
          FROM pg_locks l
          WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.pid = pg_backend_pid()
            AND (l.classid::bigint >> 16) = {locks.REVISION_TAG}) mine
    WHERE first < last
"""

_NO_CEILING = 2**62
"""The ceiling while tables are filled for the first time."""

WATERMARK = f"""
SELECT CASE WHEN s.last IS NULL THEN s.kept ELSE whole_before(least(s.last, s.ceiling, (
    SELECT min(((l.classid::bigint & 65535) << 32) | l.objid::bigint)
    FROM pg_locks l
    WHERE s.last > 0 AND l.locktype = 'advisory' AND l.objsubid = 1
      AND (l.classid::bigint >> 16) = {locks.REVISION_TAG}
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.pid <> pg_backend_pid()))) END AS mark, s.last, s.ceiling
FROM (SELECT CASE WHEN pg_is_in_recovery() THEN NULL
                  WHEN {lineage.OPEN} THEN pg_sequence_last_value('change_revision')
                  ELSE revisions_closed() END AS last,
             coalesce(h.ceiling, {_NO_CEILING}) AS ceiling, h.mark AS kept
      FROM (SELECT 1) one LEFT JOIN history h ON h.id = 1
      OFFSET 0) s
"""
"""Reads the watermark, the last number given out and the ceiling; may be part of a statement that
reads more. The caller passes the last two to `lineage.reserve`. On a replica the last number is
NULL, since none is given out there."""

_SETTLED = f"""
SELECT m.mark, m.last, m.ceiling,
       (SELECT max(c.revision) FROM change c
        WHERE c.revision > m.mark AND (%s OR c.kind = ANY(%s)))
FROM ({WATERMARK}) m
"""
"""The watermark, and the highest change above it that was committed before the statement began."""

_KEEP_MARK = f"""
UPDATE history SET mark = m.mark FROM ({WATERMARK}) m
WHERE history.id IN (SELECT id FROM history WHERE id = 1 FOR UPDATE SKIP LOCKED)
  AND history.mark < m.mark
"""
_PATIENCE_SECONDS = 1.0
_POLL_SECONDS = (0.001, 0.02)


PODS_SINCE = (
    f"ARRAY(SELECT object_id FROM change WHERE kind = {KINDS['Pod'].code}"
    f" AND verb <> {DELETED} AND revision > %s::bigint)"
)
"""The ids of the pods that changed after a revision, as the statement sees them. For two
statements, of which the second reads pods by the result of the first: this adds pods that changed
between the two. The revision is a watermark read before the first statement, so the log has few
such changes, and an index finds them."""

committed = Signal()
"""Sent after a commit with ``revision`` (the highest of it), ``kinds`` (a set of kind names) and
``leaving`` (whether the objects were only removed, or began to end). It is a hint to read the log,
which has the changes. Receivers must not fail: their errors are logged and dropped, since the
transaction is already durable."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """One change. ``kind`` is a kind's name, ``verb`` ADDED, MODIFIED or DELETED (integers).

    The fields are the table's columns, in their order, without the change's author and cause
    (`queries.past.trail`); then two texts. Only changes of pods have values in the columns from
    ``class_id`` on. ``text`` and ``previous_text`` are documents with slots: ``None`` if the reader
    did not request them; ``previous_text`` also where there was no earlier version.
    """

    revision: int
    at: datetime
    kind: str
    verb: int
    object_id: int
    namespace: str
    name: str
    document_id: int | None
    previous_document_id: int | None
    previous_revision: int | None
    class_id: int | None
    previous_class_id: int | None
    node_name: str | None
    previous_node_name: str | None
    scheduled_at: datetime | None
    previous_scheduled_at: datetime | None
    unschedulable: str | None
    previous_unschedulable: str | None
    phase: str | None
    previous_phase: str | None
    deletion_at: datetime | None
    eviction: Range[datetime] | None
    previous_eviction: Range[datetime] | None
    nominated_node_name: str | None
    text: str | None
    previous_text: str | None
    started_at: datetime | None = None
    """When a pod on a node started, by its present status; ``None`` if not requested."""

    def concerns_node(self, name: str) -> bool:
        """Return whether the change is of a node, or of a pod that is, or was, on it."""
        if self.kind == "Node":
            return self.name == name
        return name in (self.node_name, self.previous_node_name)


class Placement(Change, frozen=True, gc=False):
    """A change of a node, of a namespace, or of a pod's node or nomination.

    ``previous_nominated_node_name``: the node for which an unbound pod was nominated before.
    """

    previous_nominated_node_name: str | None = None


class Changes(msgspec.Struct, frozen=True):
    """Changes in order, and the cursor of the next read; ``more``: there may be more already.

    ``mark`` is the watermark up to which the caller may read on.
    """

    items: list[Change]
    cursor: int
    more: bool
    mark: int = 0


_FIELDS = Change.__struct_fields__[:-3]
_COLUMNS = ", ".join(_FIELDS)
_SELECTED = ", ".join(f"c.{name}" for name in _FIELDS)


STARTED = (
    f"(SELECT q.started_at FROM pod q WHERE q.id = c.object_id AND c.kind = {KINDS['Pod'].code}"
    " AND c.node_name <> '')"
)
"""When the pod of a change ``c`` started, if it is on a node, by its present row."""


def _read_statement(*, documents: bool, previous: bool, starts: bool) -> str:
    """Return the statement that reads changes.

    ``documents``: join the documents of some kinds; ``previous``: join their earlier versions.
    Without these the statement has no join: one that finds no row still costs a fifth of a short
    answer.
    """
    text, earlier = "NULL::text", "NULL::text"
    started = STARTED if starts else "NULL::timestamptz"
    joins = ""
    if documents:
        text = "d.text"
        joins += " LEFT JOIN document d ON d.id = c.document_id AND c.kind = ANY(%s)"
    if previous:
        earlier = "p.text"
        joins += (
            " LEFT JOIN document p ON p.id = c.previous_document_id AND c.kind = ANY(%s)"
            " AND p.id IS DISTINCT FROM c.document_id"
        )
    # The subqueries hide the numbers from the planner: seen, it makes a plan for each cursor anew.
    return f"""
    SELECT (SELECT trimmed_revision FROM history WHERE id = 1), {_SELECTED}, {text}, {earlier},
           {started}
    FROM (SELECT 1) one
    LEFT JOIN (SELECT {_COLUMNS} FROM change
               WHERE revision > (SELECT %s::bigint) AND revision <= (SELECT %s::bigint)
                 AND kind = ANY(%s)
               ORDER BY revision LIMIT %s) c ON true{joins}
    ORDER BY c.revision
    """


_READ = {
    (documents, previous, starts): _read_statement(
        documents=documents, previous=previous, starts=starts
    )
    for documents in (False, True)
    for previous in (False, True)
    for starts in (False, True)
}
"""The statement, by whether it reads documents, and earlier documents."""


def as_follower(ask: Callable[[], _T]) -> _T:
    """Return the result of a follower's query.

    If a crash closed the sequence of revisions, open it (``lineage.establish``) and query once
    more. Only followers open it: a writer may be in a transaction, where that is not possible.
    """
    try:
        return ask()
    except OperationalError as error:
        if connection.in_atomic_block or not lineage.is_closed(error):
            raise
    lineage.establish()
    return ask()


def watermark() -> int:
    """Return the highest revision up to which the log is complete. Queries once, rarely thrice.

    Every change up to it is visible to any statement that starts later, or was rolled back. Changes
    of this connection's own open transaction count as made.
    """
    return _watermark()[0]


def news_up_to(cursor: int) -> int:
    """Return the watermark, or ``cursor`` if there is nothing to read above it.

    Queries as `watermark` does.

    Raises:
        Expired: this history never gave out such a cursor; list again.
    """
    mark, last = _watermark()
    if mark > cursor:
        return mark
    # Nothing can be complete beyond the cursor; a trimmed cursor implies a higher mark.
    if last is not None and cursor > last:
        raise lineage.expired_beyond(cursor, last)
    return cursor


def _watermark() -> tuple[int, int | None]:
    """Return the watermark, and the last revision that was given out (`WATERMARK`)."""
    ((mark, last, ceiling),) = as_follower(lambda: sql.fetch(WATERMARK))
    if lineage.reserve(last, ceiling) and last is not None and last > ceiling:
        ((mark, last, _),) = sql.fetch(WATERMARK)
    return mark, last


def whole(revision: int) -> int:
    """Return the first revision, from this one on, at which no atomic change is half visible.

    It is at most the watermark, unless ``revision`` is above it. Queries once.
    """
    row = sql.fetch_one("SELECT whole_after(%s::bigint)", (revision,))
    assert row is not None
    found: int = row[0]
    return found


def note_atomic() -> None:
    """Mark all changes of this transaction so far as atomic for readers. Queries once."""
    sql.run(_ATOMIC_SINCE)


class LogWatermark(msgspec.Struct, frozen=True):
    """The revision ``mark`` up to which the log is complete.

    ``lacking``: other clients have seen changes above ``mark`` already, but a transaction that is
    still open keeps followers from reading them.
    """

    mark: int
    lacking: bool


def settled(
    kinds: Collection[str] | None = None, *, patience: float = _PATIENCE_SECONDS
) -> LogWatermark:
    """Return a watermark at or above every change that any client was shown before this call.

    For clients that expect to see their own writes in the answer. While a committed change (of
    these ``kinds``; ``None``: of any) lies above the watermark, this waits for the open transaction
    that keeps the watermark low, at most ``patience`` seconds; after that the watermark is a lower
    one. Inside a transaction it does not wait: that transaction may be waiting for this one. On a
    replica it returns the replica's mark at once. Queries once when there is no such change. Pass
    the mark to `read_since`, since a later watermark may be lower.
    """
    question = (_SETTLED, (kinds is None, sql.Int4s(_codes(kinds))))
    row = as_follower(lambda: sql.fetch_one(*question))
    assert row is not None
    mark, last, ceiling, goal = row
    deadline = time.monotonic() + (0 if connection.in_atomic_block else patience)
    pause, longest = _POLL_SECONDS
    while goal is not None and last is not None and mark < goal:
        if last > ceiling:
            lineage.reserve(last, ceiling)
        elif time.monotonic() >= deadline:
            return LogWatermark(mark, lacking=True)
        else:
            time.sleep(pause)
            pause = min(2 * pause, longest)
        row = sql.fetch_one(WATERMARK)
        assert row is not None
        mark, last, ceiling = row
    return LogWatermark(mark, lacking=False)


def keep_mark() -> bool:
    """Write the watermark into ``history``, for replicas; return whether it rose. Queries once.

    Followers of the log call it a few times a second. It does nothing while the row is locked. The
    commit does not wait for the disk: a crash leaves a lower mark, which is valid, too.
    """
    _, rows = as_follower(
        lambda: sql.fetch_together(
            ("SELECT set_config('synchronous_commit', 'off', true)", ()),
            (_KEEP_MARK + " RETURNING history.mark", ()),
        )
    )
    return bool(rows)


def window(cursor: int, mark: int, *, limit: int) -> int:
    """Return the end of a read: the ``limit``-th change after ``cursor``, or ``mark``.

    Revisions have gaps: of up to a million after a crash, of four thousand millions before a new
    history. A follower that read a fixed number of revisions at a time would never get through.
    Queries once if there may be more than ``limit`` changes.
    """
    if mark - cursor <= limit:
        return mark
    row = sql.fetch_one(
        "SELECT revision FROM change WHERE revision > %s::bigint AND revision <= %s::bigint"
        " ORDER BY revision OFFSET %s::bigint LIMIT 1",
        (cursor, mark, limit - 1),
    )
    return mark if row is None else int(row[0])


def read_since(
    cursor: int,
    *,
    mark: int | None = None,
    kinds: Collection[str] | None = None,
    limit: int = 1000,
    documents: Collection[str] | None = (),
    previous: Collection[str] | None = (),
    starts: bool = False,
) -> Changes:
    """Return the changes after ``cursor``, oldest first, at most ``limit``.

    Queries for the watermark, then for changes only if it is above the cursor. Mostly there is
    nothing new, and sending both statements at once would cost more.

    ``mark``: read up to this watermark; ``None``: up to the present one. ``kinds``: only these
    (``None``: all that this code knows; during an upgrade a newer version may write others).
    ``documents`` names the kinds whose document text is read, ``previous`` those whose earlier text
    is (``None``: all kinds). An earlier text that equals the current one is not repeated; then
    ``previous_document_id == document_id``. ``starts``: whether to read ``started_at``.

    Raises:
        Expired: changes after ``cursor`` were trimmed already, or this history never gave a client
            such
            a cursor; list again.
    """
    if mark is None:
        mark = news_up_to(cursor)
    if mark <= cursor:
        return Changes([], cursor, more=False)
    texts = _codes(documents), _codes(previous)
    parameters = [sql.Int4s(_codes(kinds)), limit, *(sql.Int4s(codes) for codes in texts if codes)]
    rows = sql.fetch(_READ[bool(texts[0]), bool(texts[1]), starts], (cursor, mark, *parameters))
    trimmed: int = rows[0][0] or 0
    if cursor < trimmed:
        lineage.kept_after()  # another history may have begun: ids mean other rows then
        raise Expired(f"too old resource version: {cursor} ({trimmed})")
    if rows[0][1] is None:
        return Changes([], mark, more=False)
    items = [_change(row) for row in rows]
    if len(items) < limit:
        return Changes(items, mark, more=False)
    return Changes(items, items[-1].revision, more=True, mark=mark)


# A change has a pod's nominated node after it; the change before has the node before it. The
# nomination is in the document, so changes that keep the document need no look-up.
_NOMINATED_BEFORE = """(
    SELECT b.nominated_node_name FROM change b
    WHERE b.revision = c.previous_revision AND c.document_id <> c.previous_document_id
          AND coalesce(c.node_name, '') = '')"""

_PLACEMENTS = f"""
SELECT (SELECT trimmed_revision FROM history WHERE id = 1), {_SELECTED}, d.text, p.text,
       NULL::timestamptz, c.previous_nominated
FROM (SELECT 1) one
LEFT JOIN (SELECT {_COLUMNS}, {_NOMINATED_BEFORE} AS previous_nominated FROM change c
           WHERE revision > (SELECT %s::bigint) AND revision <= %s::bigint
             AND (kind = ANY(%s)
                  OR (kind = {KINDS["Pod"].code}
                      AND (node_name <> '' OR previous_node_name <> ''
                           OR class_id <> previous_class_id
                           OR (nominated_node_name IS NOT NULL
                               AND (verb = {DELETED} OR deletion_at IS NOT NULL))
                           OR (document_id <> previous_document_id
                               AND {_NOMINATED_BEFORE} <> coalesce(nominated_node_name, '')))))
           ORDER BY revision DESC LIMIT %s) c ON true
LEFT JOIN document d ON d.id = c.document_id AND c.kind = {KINDS["Node"].code}
LEFT JOIN document p ON p.id = c.previous_document_id AND c.kind = {KINDS["Node"].code}
                    AND p.id IS DISTINCT FROM c.document_id
ORDER BY c.revision
"""


def read_placements(since: int, until: int, *, most: int) -> tuple[int, list[Placement]]:
    """Return the revision after which the changes are complete, and the changes in (since, until].

    These are the changes of nodes and namespaces, of pods on nodes, of a pod's class, and of
    nominated pods: deleted, being deleted, or no longer nominated for the same node. They come
    oldest first; if there are more than ``most``, only the newest. ``until`` is at most the
    watermark. Changes of nodes have their documents. Queries once.
    """
    codes = _codes(("Node", "Namespace"))
    rows = sql.fetch(_PLACEMENTS, (since, until, sql.Int4s(codes), most))
    since = max(since, rows[0][0] or 0)
    if rows[0][1] is None:
        return since, []
    items = [Placement(row[1], row[2], NAMES[row[3]], *row[4:]) for row in rows]
    return (items[0].revision if len(items) == most else since), items


def _codes(kinds: Collection[str] | None) -> list[int]:
    return sorted(NAMES if kinds is None else (KINDS[name].code for name in kinds))


def _change(row: tuple[Any, ...]) -> Change:
    return Change(row[1], row[2], NAMES[row[3]], *row[4:])


def advance_admission_epoch() -> None:
    """Advance the epoch, so that processes read the objects of admission again. Queries."""
    # To the disk at once: a crash must not give a number that others remember out again, with
    # other rules under it. No follower can read the number before this statement has ended.
    sql.run(
        "SELECT nextval('admission_epoch'),"
        " pg_logical_emit_message(false, 'stowage', 'admission epoch', true)"
    )


def announce(revision: int, kinds: Iterable[str], *, leaving: bool = False) -> None:
    """Send ``committed`` after the current transaction's commit; at once outside a transaction."""
    names = frozenset(kinds)
    if connection.in_atomic_block:
        transaction.on_commit(lambda: _send(revision, names, leaving=leaving), robust=True)
    else:
        _send(revision, names, leaving=leaving)


def _send(revision: int, kinds: frozenset[str], *, leaving: bool) -> None:
    committed.send_robust(sender=None, revision=revision, kinds=kinds, leaving=leaving)

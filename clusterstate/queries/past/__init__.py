"""The past: the revision of a moment, and objects before the log begins.

A version is valid at a revision if it began at or before it and ended after it. Versions that have
not ended are rows; those that ended within the log are in the log; older ones are in blocks
(`actions.past`). For a moment that none of these reaches, the answer is Expired, never a guess.

``Lease`` and ``Event`` have no past: renewals of leases, and counting up an event, are not logged.

::

    trail           the changes of one object, and their users
    feed            changes in the cluster around a moment
    consequences    the user's change behind a controller's deletion
    provenance      why a pod left: preemptors, taints
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import groupby
from typing import Final

import msgspec

from clusterstate.change_log import changes, lineage
from clusterstate.change_log.blocks import Entry, Index, Moments, key_of, mark_of
from clusterstate.database import sql
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import BadRequest, Expired
from clusterstate.queries.pods import POD_OVERLAY, pod_overlay

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
AHEAD: Final = timedelta(seconds=5)
"""A moment that is so far in the future is now: hosts' clocks differ a little."""

_SINCE: Final = """
    SELECT h.trimmed_revision, p.since_revision, p.since_at
    FROM history h LEFT JOIN past_head p ON p.id = 1 WHERE h.id = 1
"""
_IN_LOG: Final = """
    SELECT revision FROM change
    WHERE revision > %s::bigint AND revision <= %s::bigint AND at <= %s::timestamptz
    ORDER BY revision DESC LIMIT 1
"""
_IN_CHUNK: Final = """
    SELECT moments FROM past_chunk WHERE first_at <= %s::timestamptz
    ORDER BY revision DESC LIMIT 1
"""
_CHUNK_AFTER: Final = """
    SELECT moments FROM past_chunk WHERE revision > %s::bigint ORDER BY revision LIMIT 2
"""
_NEXT: Final = "SELECT revision FROM change WHERE revision > %s::bigint ORDER BY revision LIMIT 1"


class Reach(msgspec.Struct, frozen=True):
    """How far back the past is known: after ``since``; changes after ``log`` are in the log.

    ``since_at`` is the moment of ``since``, ``None`` if there is only the log.
    """

    since: int
    log: int
    since_at: datetime | None


def reach() -> Reach:
    """Return the beginning of the known past. Queries once."""
    row = sql.fetch_one(_SINCE)
    if row is None:
        return Reach(0, 0, None)
    trimmed, since, since_at = row
    return Reach(trimmed, trimmed, None) if since is None else Reach(since, trimmed, since_at)


def require(revision: int) -> Reach:
    """Return the beginning of the known past; a revision must be after it. Queries once.

    Raises:
        Expired: the revision is older than everything that is known.
    """
    found = reach()
    if revision < found.since:
        raise expired(revision, found)
    return found


def expired(revision: int, found: Reach) -> Expired:
    """Return the error for a revision before everything that is known."""
    since = "" if found.since_at is None else f", of {found.since_at:%Y-%m-%dT%H:%M:%SZ}"
    return Expired(f"too old resource version: {revision} ({found.since}{since})")


def has_past(kind: Kind) -> bool:
    """Return whether former states of a kind's objects are known."""
    return not (kind.is_composed or kind.skips_change_log)


def revision_at(moment: datetime, *, now: datetime) -> int:
    """Return the last revision of a change that was made at that moment or before.

    It stands for the state of that moment. Changes are dated by the clocks of the hosts that made
    them. Of an atomic change the last revision counts. Queries at most seven times.

    Raises:
        BadRequest: the moment is in the future.
        Expired: it is before everything that is known, or between two histories.
    """
    if moment > now + AHEAD:
        raise BadRequest(f"at: Invalid value: {moment:%Y-%m-%dT%H:%M:%SZ} is in the future")
    mark = changes.settled().mark
    if moment >= now:
        return mark
    found = reach()
    row = sql.fetch_one(_IN_LOG, (found.log, mark, moment))
    revision = None if row is None else int(row[0])
    if revision is None and found.since < found.log:
        row = sql.fetch_one(_IN_CHUNK, (moment,))
        if row is not None:
            at = (moment - _EPOCH) // _MICROSECOND
            revision = Moments.unpack(bytes(row[0])).last_until(at)
    if revision is None or revision < found.since:
        since = "" if found.since_at is None else f": it begins at {found.since_at:%FT%TZ}"
        raise Expired(f"the past is not kept as far back as {moment:%Y-%m-%dT%H:%M:%SZ}{since}")
    after = _next(revision, found)
    if after is not None and after // lineage.GAP != revision // lineage.GAP:
        raise Expired(
            f"what happened at {moment:%Y-%m-%dT%H:%M:%SZ} is not known: the database was restored"
            " or failed over after it, and changes may have been lost then"
        )
    return changes.whole(revision)


def _next(revision: int, found: Reach) -> int | None:
    """Return the revision of the next change, ``None`` for the last one. Queries at most twice."""
    if revision < found.log:
        for (moments,) in sql.fetch(_CHUNK_AFTER, (revision,)):
            after = Moments.unpack(bytes(moments)).first_after(revision)
            if after is not None:
                return after
    row = sql.fetch_one(_NEXT, (revision,))
    return None if row is None else int(row[0])


# Versions ----------------------------------------------------------------------------------------

_OF_OBJECT: Final = """
    SELECT at, id, index FROM past_block
    WHERE kind = %s::smallint AND first_from <= %s::bigint AND last_revision > %s::bigint
      AND first_key <= %s::text AND last_key >= %s::text AND position(%s::bytea IN marks) > 0
    ORDER BY first_revision
"""
_OF_KIND: Final = """
    SELECT at, id, index FROM past_block
    WHERE kind = %s::smallint AND first_from <= %s::bigint AND last_revision > %s::bigint
      AND last_key >= %s::text AND first_key <= %s::text
    ORDER BY first_revision
"""
_BODY: Final = "SELECT body FROM past_block WHERE id = %s::bigint AND at = %s::timestamptz"
_BODIES: Final = """
    SELECT b.id, b.body FROM unnest(%s, %s) AS w(id, at)
    JOIN past_block b ON b.id = w.id AND b.at = w.at
"""
_AFTER_ALL: Final = "\U0010ffff"
_BODIES_AT_ONCE: Final = 64


def version_at(kind: Kind, namespace: str, name: str, revision: int, upto: int) -> bytes | None:
    """Return the version of an object at a revision, if it ended at ``upto`` or before.

    ``None`` if no such version is packed. Queries twice.

    Raises:
        Expired: there was one, and it is not known.
    """
    key = key_of(namespace, name)
    for at, block, packed in sql.fetch(
        _OF_OBJECT, (kind.code, revision, revision, key, key, mark_of(key))
    ):
        index = Index(bytes(packed))
        alive = set(index.alive_at(revision, upto))
        for place in index.named(namespace, name):
            if place not in alive:
                continue
            row = sql.fetch_one(_BODY, (block, at)) if index.has_body(place) else None
            if row is None:
                raise Expired(f'the state of {kind.resource} "{name}" at {revision} is not kept')
            return index.bodies(bytes(row[0]), [place])[0]
    return None


class PackedVersion(msgspec.Struct, frozen=True, gc=False):
    """A version in a block: its object, and the position of its body."""

    key: tuple[str, str]
    block: int
    at: datetime
    place: int


def versions_at(
    kind: Kind,
    revision: int,
    upto: int,
    *,
    namespace: str = "",
    after: tuple[str, str] | None = None,
    limit: int | None = None,
    part: str = "",
    node_name: str | None = None,
) -> list[tuple[str, str, bytes]]:
    """Return the versions at a revision that ended at ``upto`` or before, by key.

    Namespace, name and body of each; only of ``namespace`` unless it is empty, only of objects
    after the key ``after``, with ``part`` in their name, and the first ``limit`` of those. With
    ``node_name`` all pods that were on that node (empty: on none), and maybe some that were not.
    Queries once, and once for each 64 blocks that have some.

    Raises:
        Expired: one of them is not known.
    """
    low = key_of(*after) if after else key_of(namespace, "")
    high = key_of(namespace, _AFTER_ALL) if namespace else _AFTER_ALL
    found: list[PackedVersion] = []
    indexes: dict[int, Index] = {}
    for at, block, packed in sql.fetch(_OF_KIND, (kind.code, revision, revision, low, high)):
        index = Index(bytes(packed))
        alive = index.alive_at(revision, upto)
        for place in alive:
            key = index.key(place)
            if (namespace and key[0] != namespace) or (after is not None and key <= after):
                continue
            if part not in key[1]:
                continue
            if node_name is not None and not index.may_be_on(place, node_name):
                continue
            if not index.has_body(place):
                raise Expired(f'the state of {kind.resource} "{key[1]}" at {revision} is not kept')
            found.append(PackedVersion(key, block, at, place))
            indexes[block] = index
    found.sort(key=lambda one: one.key)
    if limit is not None:
        found = found[:limit]
    return _with_bodies(found, indexes)


def _with_bodies(
    found: Sequence[PackedVersion], indexes: dict[int, Index]
) -> list[tuple[str, str, bytes]]:
    places: dict[int, list[int]] = {}
    times: dict[int, datetime] = {}
    for one in found:
        places.setdefault(one.block, []).append(one.place)
        times[one.block] = one.at
    bodies: dict[tuple[int, int], bytes] = {}
    places_ = list(places)
    for first in range(0, len(places_), _BODIES_AT_ONCE):
        some = places_[first : first + _BODIES_AT_ONCE]
        for block, packed in sql.fetch(
            _BODIES, (sql.Int8s(some), sql.Times([times[block] for block in some]))
        ):
            texts = indexes[block].bodies(bytes(packed), places[block])
            bodies |= zip(((block, place) for place in places[block]), texts, strict=True)
    return [(*one.key, bodies[one.block, one.place]) for one in found]


Take = Callable[[Index, list[int]], list[int]]


def bodies_at(kind: Kind, revision: int, upto: int, take: Take) -> Iterator[tuple[str, str, bytes]]:
    """Yield the objects of ``versions_at``, unordered, with as many queries.

    ``take`` gets the index of each block with the positions of its versions, and returns those
    whose bodies to yield: for the others the index may be enough.

    Raises:
        Expired: one of them is not known.
    """
    rows = sql.fetch(_OF_KIND, (kind.code, revision, revision, key_of("", ""), _AFTER_ALL))
    for first in range(0, len(rows), _BODIES_AT_ONCE):
        by_block: dict[int, tuple[datetime, Index, list[int]]] = {}
        for at, block, packed in rows[first : first + _BODIES_AT_ONCE]:
            index = Index(bytes(packed))
            places = index.alive_at(revision, upto)
            for place in places:
                if not index.has_body(place):
                    name = index.key(place)[1]
                    text = f'the state of {kind.resource} "{name}" at {revision} is not kept'
                    raise Expired(text)
            places = take(index, places)
            if places:
                by_block[block] = at, index, places
        blocks, times = list(by_block), [at for at, _, _ in by_block.values()]
        for block, packed in sql.fetch(_BODIES, (sql.Int8s(blocks), sql.Times(times))):
            _, index, places = by_block[block]
            for place, body in zip(places, index.bodies(bytes(packed), places), strict=True):
                yield *index.key(place), body


_PRESENT: Final = """
    WITH RECURSIVE start AS (
        SELECT coalesce(
            (SELECT revision FROM change
             WHERE verb = 3 AND kind = %s::smallint AND namespace = %s
               AND name = %s AND revision > %s::bigint
             ORDER BY revision LIMIT 1),
            (SELECT t.revision FROM {rows} t WHERE {where})) AS revision),
    steps AS (
        SELECT c.revision, c.previous_revision FROM start s
        JOIN change c ON c.revision = s.revision WHERE s.revision > %s::bigint
        UNION ALL
        SELECT c.revision, c.previous_revision FROM steps s
        JOIN change c ON c.revision = s.previous_revision
        WHERE s.previous_revision > %s::bigint)
    SELECT 0, d.text, t.revision, {overlay}
    FROM {rows} t JOIN document d ON d.id = t.document_id
    WHERE {where} AND t.revision <= %s::bigint
    UNION ALL
    (SELECT 1, d.text, c.previous_revision, c.previous_node_name, c.previous_scheduled_at,
            c.previous_unschedulable, c.previous_eviction
     FROM steps s JOIN change c ON c.revision = s.revision
     LEFT JOIN document d ON d.id = c.previous_document_id
     WHERE s.previous_revision <= %s::bigint)
    UNION ALL
    SELECT 2, NULL, trimmed_revision, {none} FROM history WHERE id = 1
"""
"""Reads an object's row if its version held at the revision already, else that version in the log.

The version of then belongs to the first object of that name that was deleted later, or else to the
present one. Each change names the revision before it: so only this object's changes are read, by
key, from the latest back.
"""
_NO_OVERLAY: Final = "NULL::text, NULL::timestamptz, NULL::text, NULL::tstzrange"


@lru_cache(maxsize=128)
def _present(kind_name: str) -> str:
    kind = KINDS[kind_name]
    return _PRESENT.format(
        rows=kind.rows,
        where="t.namespace = %s AND t.name = %s" if kind.namespaced else "t.name = %s",
        overlay=POD_OVERLAY if kind.has_slots else _NO_OVERLAY,
        none=_NO_OVERLAY,
    )


def find_at(kind: Kind, namespace: str, name: str, revision: int) -> bytes | None:
    """Return an object as it was at a revision, ``None`` if there was none. Queries up to 5 times.

    A pod lacks the condition of a future eviction, as in a list.

    Raises:
        Expired: that is not known, or the kind has no past.
    """
    if not has_past(kind):
        raise Expired(f"former states of {kind.resource} are not kept")
    key = (namespace, name) if kind.namespaced else (name,)
    space = namespace if kind.namespaced else ""
    log = 0
    gone = (kind.code, space, name, revision)
    rows = sql.fetch(
        _present(kind.name), (*gone, *key, revision, revision, *key, revision, revision)
    )
    for source, text, number, *overlay in rows:
        if source == 2:
            log = number
        elif text is None:
            raise Expired(f'the state of {kind.resource} "{name}" at {revision} is not kept')
        else:
            return document.compose(text, number, pod_overlay(*overlay))
    if revision >= log:
        return None
    require(revision)
    found = version_at(kind, space, name, revision, log)
    require(revision)  # no part was dropped meanwhile
    return found


# Changes -----------------------------------------------------------------------------------------

_CHANGES_OF: Final = """
    SELECT chunk, at, id, index FROM past_block
    WHERE kind = %s::smallint AND first_revision < %s::bigint
      AND first_key <= %s::text AND last_key >= %s::text AND position(%s::bytea IN marks) > 0
    ORDER BY chunk DESC
"""


def changes_of(kind: Kind, namespace: str, name: str, before: int) -> Iterator[Entry]:
    """Yield an object's packed changes before a revision, with the versions that they ended.

    The newest comes first. Queries once, and once for each block that is read.
    """
    key = key_of(namespace, name)
    rows = sql.fetch(_CHANGES_OF, (kind.code, before, key, key, mark_of(key)))
    for _, chunk in groupby(rows, key=lambda row: row[0]):
        entries: list[Entry] = []
        for _, at, block, packed in chunk:
            index = Index(bytes(packed))
            places = index.named(namespace, name)
            with_body = [place for place in places if index.has_body(place)]
            row = sql.fetch_one(_BODY, (block, at)) if with_body else None
            bodies: dict[int, bytes] = {}
            if row is not None:
                bodies = dict(zip(with_body, index.bodies(bytes(row[0]), with_body), strict=True))
            entries += [index.entry(place, bodies.get(place)) for place in places]
        entries.sort(key=lambda one: one.revision, reverse=True)
        yield from (one for one in entries if one.revision < before)


_WITH_CAUSE: Final = """
    SELECT index FROM past_block
    WHERE kind = %s::smallint AND last_revision > %s::bigint AND first_revision <= %s::bigint
      AND (causes IS NULL OR position(%s::bytea IN causes) > 0)
"""


def caused_by(kind: Kind, cause: str, after: int, until: int) -> list[Entry]:
    """Return the packed changes that the scheduler made for a pod, by revision; without bodies.

    Of objects of a kind, between two revisions. ``cause``: the uid of the preempting pod. Queries
    once, and decodes the indexes of the few blocks that have such a change.
    """
    found = []
    for (packed,) in sql.fetch(_WITH_CAUSE, (kind.code, after, until, mark_of(cause))):
        index = Index(bytes(packed))
        found += [one for one in index.with_cause(cause) if after < one.revision <= until]
    return sorted(found, key=lambda one: one.revision)


def revision_before(moment: datetime) -> tuple[int, datetime]:
    """Return the last revision before a moment, and the time at which the kept log begins.

    If the log begins later, the revision is that of its beginning. Queries once; scans the log,
    which takes a second for some millions of changes.
    """
    row = sql.fetch_one(
        "SELECT coalesce((SELECT min(revision) FROM change WHERE at >= %s) - 1,"
        " (SELECT max(revision) FROM change), h.trimmed_revision, 0),"
        " coalesce(h.trimmed_revision, 0), (SELECT min(at) FROM change), now()"
        " FROM (SELECT 1) one LEFT JOIN history h ON h.id = 1",
        (moment,),
    )
    assert row is not None
    revision, trimmed, began_at, now = row
    return max(revision, trimmed), max(moment, began_at or now)

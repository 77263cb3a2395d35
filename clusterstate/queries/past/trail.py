"""An object's trail: its changes as far back as the change log reaches, and their users.

Each change names the revision before it, so a trail is followed backwards from the object's present
revision, by the log's key; for a deleted object, from the revision of its deletion. A renewed lease
is not logged: for it the newest change of its name is searched first, which scans the log once.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec

from clusterstate.change_log import changes
from clusterstate.change_log.blocks import Entry
from clusterstate.database import sql
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import document
from clusterstate.objects.values.actor import KUBE_SCHEDULER, TAINT_EVICTION
from clusterstate.objects.values.document import SLOT, Overlay
from clusterstate.objects.values.errors import Expired
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries import past

_VERBS: Final = {changes.ADDED: "ADDED", changes.MODIFIED: "MODIFIED", changes.DELETED: "DELETED"}
_UNTOLD: Final = ("managedFields", "resourceVersion", "generation")
"""Members of metadata that change along with others."""
_FOR_EVER: Final = 1 << 62
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TrailEntry(msgspec.Struct, frozen=True):
    """One change. ``actor`` is empty if an earlier version of the service wrote it.

    ``request``: the audit id of the request. ``for_pod``: the uid of the preempting pod.
    ``fields``: the paths that differ, two names deep. Of pods: ``node``: the node to which this
    change bound it, ``decision``: the id of that decision; ``is_eviction``: this change is an
    eviction by a taint.
    """

    revision: int
    at: datetime
    verb: str
    actor: str
    impersonator: str
    request: str
    for_pod: str
    fields: tuple[str, ...]
    node: str = ""
    decision: int | None = None
    is_eviction: bool = False


class Trail(msgspec.Struct, frozen=True):
    """Changes of an object, the newest first. ``more``: where to continue, a revision, or 0.

    ``complete``: it goes back to the creation. If it does not although ``more`` is 0, the older
    part of the log is no longer kept.
    """

    steps: list[TrailEntry]
    more: int
    complete: bool
    object_id: int = 0


def from_revision(found: Trail, revision: int) -> Trail:
    """Return a trail that begins at a revision, without older changes."""
    steps = [one for one in found.steps if one.revision >= revision]
    if len(steps) == len(found.steps):
        return found
    return msgspec.structs.replace(found, steps=steps, more=0, complete=False)


@lru_cache(maxsize=128)
def _present(kind_name: str) -> str:
    kind = KINDS[kind_name]
    where = "t.namespace = %s AND t.name = %s" if kind.namespaced else "t.name = %s"
    return f"SELECT t.revision FROM {kind.rows} t WHERE {where}"


_NEWEST: Final = """
    SELECT max(revision) FROM change
    WHERE kind = %s::smallint AND namespace = %s AND name = %s AND revision < %s::bigint
"""
_DELETION: Final = f"""
    SELECT max(revision) FROM change
    WHERE verb = {changes.DELETED} AND kind = %s::smallint AND namespace = %s AND name = %s
"""
_TRAIL: Final = """
    WITH RECURSIVE steps AS (
        SELECT c.*, 1 AS step FROM change c
        WHERE c.revision = %s::bigint AND c.kind = %s::smallint AND c.namespace = %s AND c.name = %s
        UNION ALL
        SELECT c.*, s.step + 1 FROM steps s JOIN change c ON c.revision = s.previous_revision
        WHERE s.step < %s::bigint)
    SELECT s.revision, s.at, s.verb, a.name, a.impersonator, s.cause::text, s.previous_revision,
           s.node_name, s.previous_node_name, s.unschedulable, s.previous_unschedulable, s.phase,
           s.previous_phase, s.eviction IS DISTINCT FROM s.previous_eviction, s.object_id,
           d.text, p.text, s.scheduled_at, s.previous_scheduled_at
    FROM steps s LEFT JOIN actor a ON a.id = s.actor_id
    LEFT JOIN document d ON d.id = s.document_id
    LEFT JOIN document p ON p.id = s.previous_document_id AND p.id IS DISTINCT FROM d.id
    ORDER BY s.step
"""
_DECIDED: Final = """
    SELECT DISTINCT ON (node_name) node_name, id FROM decision
    WHERE namespace = %s AND name = %s AND pod_id = %s::bigint AND outcome = 'scheduled'
    ORDER BY node_name, id DESC
"""


def trail_of(
    kind: Kind, namespace: str, name: str, *, limit: int, before: int = 0, until: int | None = None
) -> Trail:
    """Return the changes of an existing object, or else of the last one of that name.

    ``before`` continues from a trail's ``more``; ``until``: as it was at this revision, which scans
    the log. Queries at most four times. Empty if the log has no such object.
    """
    start = before or _start(kind, namespace, name, until)
    # One more than requested shows whether there are more. A revision that a client made up may
    # belong to another object, which the client may not read.
    space = namespace if kind.namespaced else ""
    rows = sql.fetch(_TRAIL, (start, kind.code, space, name, limit + 1))
    more = rows[limit][0] if len(rows) > limit else 0
    rows = rows[:limit]
    object_id = rows[0][14] if rows else 0
    steps = [_step(row) for row in rows]
    if not more and len(steps) <= limit and not _reaches_creation(steps):
        # Earlier changes are in blocks, if they are kept.
        last = steps[-1].revision if steps else start + 1 if start else _FOR_EVER
        packed, object_id = _packed(kind, namespace, name, last, object_id, limit + 1 - len(steps))
        steps += packed
        if len(steps) > limit:
            more = steps[limit].revision
            steps = steps[:limit]
    if kind.name == "Pod" and any(one.node for one in steps):
        placed: dict[str, int] = dict(sql.fetch(_DECIDED, (namespace, name, object_id)))
        steps = [_decided(one, placed) for one in steps]
    return Trail(steps, more, not more and _reaches_creation(steps), object_id)


def _reaches_creation(steps: Sequence[TrailEntry]) -> bool:
    return bool(steps) and steps[-1].verb == _VERBS[changes.ADDED]


def _decided(step: TrailEntry, placed: dict[str, int]) -> TrailEntry:
    if step.node not in placed or step.actor != KUBE_SCHEDULER.name:
        return step
    return msgspec.structs.replace(step, decision=placed[step.node])


def _packed(
    kind: Kind, namespace: str, name: str, before: int, object_id: int, limit: int
) -> tuple[list[TrailEntry], int]:
    """Return an object's changes before a revision that are packed, and the id of the object.

    Without an id it is the last object of that name.
    """
    if not past.has_past(kind):
        return [], object_id
    space = namespace if kind.namespaced else ""
    steps: list[TrailEntry] = []
    newer: Entry | None = None
    for entry in past.changes_of(kind, space, name, before):
        object_id = object_id or entry.object_id
        if len(steps) == limit or entry.object_id != object_id:
            break
        after = newer.body if newer is not None else None
        if newer is None and entry.verb == changes.MODIFIED:
            after = _as_of(kind, space, name, entry.revision)
        steps.append(_packed_step(entry, after))
        newer = entry
    return steps, object_id


def _as_of(kind: Kind, namespace: str, name: str, revision: int) -> bytes | None:
    try:
        return past.find_at(kind, namespace, name, revision)
    except Expired:
        return None


def _packed_step(entry: Entry, after: bytes | None) -> TrailEntry:
    """Return the step of a packed change; ``after`` is the version that it made, if known."""
    fields: tuple[str, ...] = ()
    is_eviction = False
    bound = ""
    if entry.verb == changes.MODIFIED and entry.body is not None:
        was: Manifest = msgspec.json.decode(entry.body)
        if entry.node_name and not (was.get("spec") or {}).get("nodeName"):
            bound = entry.node_name
        if after is not None:
            fields = tuple(sorted(set(_differ_in(msgspec.json.decode(after), was))))
            is_eviction = (
                entry.actor == TAINT_EVICTION.name and "metadata.deletionTimestamp" in fields
            )
    elif entry.verb == changes.ADDED:
        bound = entry.node_name
    by_scheduler = entry.actor == KUBE_SCHEDULER.name
    return TrailEntry(
        revision=entry.revision,
        at=_EPOCH + timedelta(microseconds=entry.at),
        verb=_VERBS[entry.verb],
        actor=entry.actor,
        impersonator=entry.impersonator,
        request="" if by_scheduler else entry.cause,
        for_pod=entry.cause if by_scheduler else "",
        fields=fields,
        node=bound,
        is_eviction=is_eviction,
    )


def _start(kind: Kind, namespace: str, name: str, until: int | None) -> int:
    """Return the revision of the newest change of an object, 0 where the log has none.

    ``until``: only of the changes up to this revision; if the log has none of these, ``until``.
    """
    key = (namespace, name) if kind.namespaced else (name,)
    space = namespace if kind.namespaced else ""
    if until is not None:
        row = sql.fetch_one(_NEWEST, (kind.code, space, name, until + 1))
        return until if row is None or row[0] is None else int(row[0])
    row = sql.fetch_one(_present(kind.name), key)
    if row is None:
        row = sql.fetch_one(_DELETION, (kind.code, space, name))
    elif not sql.fetch_one("SELECT 1 FROM change WHERE revision = %s::bigint", row):
        if not kind.skips_change_log:
            return 0  # that part of the log is no longer kept
        row = sql.fetch_one(_NEWEST, (kind.code, space, name, row[0]))
    return int(row[0] or 0) if row is not None else 0


def _step(row: sql.Row) -> TrailEntry:
    (
        revision, at, verb, actor, impersonator, cause, _, node, previous_node, refusal,
        previous_refusal, phase, previous_phase, evicted, _, text, previous_text, scheduled_at,
        previous_scheduled_at,
    ) = row  # fmt: skip
    fields: list[str] = []
    if verb == changes.MODIFIED:
        is_judged = refusal != previous_refusal
        if is_judged and text is not None:
            before = _scheduled(previous_text or text, previous_scheduled_at, previous_refusal)
            is_judged = _scheduled(text, scheduled_at, refusal) != before
        differences = {
            "spec.nodeName": (node or "") != (previous_node or ""),
            "status.conditions": is_judged or evicted,
            "status.phase": phase != previous_phase,
            "metadata.deletionTimestamp": evicted,
        }
        moved = (path for path, is_so in differences.items() if is_so)
        fields = sorted({*moved, *_differ(text, previous_text)})
    by_scheduler = actor == KUBE_SCHEDULER.name
    bound = node if node and node != previous_node and verb != changes.DELETED else ""
    return TrailEntry(
        revision,
        at,
        _VERBS[verb],
        actor or "",
        impersonator or "",
        "" if by_scheduler else cause or "",
        cause or "" if by_scheduler else "",
        tuple(fields),
        bound,
        is_eviction=bool(evicted) and actor == TAINT_EVICTION.name and verb != changes.DELETED,
    )


def _scheduled(text: str, since: datetime | None, refusal: str | None) -> Manifest | None:
    """Return the PodScheduled condition of a version as clients saw it.

    The columns alone are not enough: a change of the spec keeps the condition and updates its
    observedGeneration.
    """
    overlay = Overlay(scheduled_at=since, unschedulable=refusal)
    status = document.decode(text, 0, overlay).get("status") or {}
    conditions: list[Manifest] = status.get("conditions") or []
    return next((one for one in conditions if one.get("type") == "PodScheduled"), None)


def _differ(text: str | None, previous: str | None) -> Iterator[str]:
    """Yield the paths, two names deep, in which two documents differ, without slots."""
    if text is None or previous is None:
        return
    yield from _differ_in(_rest(text), _rest(previous))


def _differ_in(new: Manifest, old: Manifest) -> Iterator[str]:
    """Yield the paths, two names deep, in which two manifests differ."""
    for member in {**new, **old}:
        one, other = new.get(member), old.get(member)
        if one == other:
            continue
        if not isinstance(one, dict) or not isinstance(other, dict):
            yield member
            continue
        for name in {**one, **other}:
            is_told = member != "metadata" or name not in _UNTOLD
            if is_told and one.get(name) != other.get(name):
                yield f"{member}.{name}"


def _rest(text: str) -> Manifest:
    found: Any = msgspec.json.decode(text.replace(SLOT, ""))
    manifest: Manifest = found
    return manifest

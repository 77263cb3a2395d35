"""An object's trail: what happened to it as far back as the change log goes, and who did it.

Each change names the revision before it, so a trail is followed backwards from the object's present
revision, by the log's key. Where that revision is not in the log (a lease that is merely renewed is
not logged), and for an object that is gone, the newest change of that name is looked for first,
which reads the log once.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec

from clusterstate import changes, sql
from clusterstate.objects.actor import KUBE_SCHEDULER
from clusterstate.objects.document import SLOT
from clusterstate.objects.kind import Kind
from clusterstate.objects.kinds import KINDS
from clusterstate.objects.meta import Manifest

_VERBS: Final = {changes.ADDED: "ADDED", changes.MODIFIED: "MODIFIED", changes.DELETED: "DELETED"}
_UNTOLD: Final = ("managedFields", "resourceVersion", "generation")
"""Members of metadata that change along with others."""
_MADE_ROOM_WITHIN: Final = timedelta(minutes=1)
"""Victims leave right after the decision; in the log they are looked for so long after it."""
_WINDOW: Final = 200_000


class Step(msgspec.Struct, frozen=True):
    """One change. ``actor`` is empty where an earlier version of the service wrote it.

    ``request`` is the audit id of the request that asked for it. ``for_pod`` is the uid of the pod
    that the scheduler made room for. ``fields`` are the paths that differ, two names deep. Of pods:
    ``node`` is the node that this change put it on, ``decision`` the id of the decision to.
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


class Trail(msgspec.Struct, frozen=True):
    """Changes of an object, the newest first. ``more``: the revision to go on before, 0 for none.

    ``complete``: it goes back to the creation; where ``more`` is 0 and it does not, the log is not
    kept so long.
    """

    steps: list[Step]
    more: int
    complete: bool
    object_id: int = 0


class Victim(msgspec.Struct, frozen=True):
    """A pod that was preempted, and when."""

    namespace: str
    name: str
    at: datetime
    revision: int


@lru_cache(maxsize=128)
def _present(kind_name: str) -> str:
    kind = KINDS[kind_name]
    where = "t.namespace = %s AND t.name = %s" if kind.namespaced else "t.name = %s"
    return f"SELECT t.revision FROM {kind.rows} t WHERE {where}"


_NEWEST: Final = """
    SELECT max(revision) FROM change
    WHERE kind = %s::smallint AND namespace = %s AND name = %s AND revision < %s::bigint
"""
_TRAIL: Final = """
    WITH RECURSIVE steps AS (
        SELECT c.*, 1 AS step FROM change c WHERE c.revision = %s::bigint AND c.kind = %s::smallint
        UNION ALL
        SELECT c.*, s.step + 1 FROM steps s JOIN change c ON c.revision = s.previous_revision
        WHERE s.step < %s::bigint)
    SELECT s.revision, s.at, s.verb, a.name, a.impersonator, s.cause::text, s.previous_revision,
           s.node_name, s.previous_node_name, s.unschedulable, s.previous_unschedulable, s.phase,
           s.previous_phase, s.eviction IS DISTINCT FROM s.previous_eviction, s.object_id,
           d.text, p.text
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


def trail_of(kind: Kind, namespace: str, name: str, *, limit: int, before: int = 0) -> Trail:
    """Return the changes of an object that is there, or else of the last one of that name.

    ``before`` goes on from a trail's ``more``. Queries at most four times. Empty where the log
    tells of no such object.
    """
    start = before or _start(kind, namespace, name)
    # One more than wanted says whether there are more.
    rows = sql.fetch(_TRAIL, (start, kind.code, limit + 1))
    more = rows[limit][0] if len(rows) > limit else 0
    rows = rows[:limit]
    placed: dict[str, int] = {}
    if kind.name == "Pod" and any(row[7] and not row[8] for row in rows):
        placed = dict(sql.fetch(_DECIDED, (namespace, name, rows[0][14])))
    steps = [_step(row, placed) for row in rows]
    complete = bool(steps) and not more and steps[-1].verb == _VERBS[changes.ADDED]
    return Trail(steps, more, complete, rows[0][14] if rows else 0)


def _start(kind: Kind, namespace: str, name: str) -> int:
    """Return the revision of the newest change of an object, 0 where the log has none."""
    key = (namespace, name) if kind.namespaced else (name,)
    row = sql.fetch_one(_present(kind.name), key)
    if row is not None and sql.fetch_one("SELECT 1 FROM change WHERE revision = %s::bigint", row):
        return int(row[0])
    space = namespace if kind.namespaced else ""
    before = row[0] if row is not None else (1 << 62)
    row = sql.fetch_one(_NEWEST, (kind.code, space, name, before))
    return int(row[0] or 0) if row is not None else 0


def _step(row: sql.Row, placed: dict[str, int]) -> Step:
    (
        revision, at, verb, actor, impersonator, cause, _, node, previous_node, refusal,
        previous_refusal, phase, previous_phase, evicted, _, text, previous_text,
    ) = row  # fmt: skip
    fields: list[str] = []
    if verb == changes.MODIFIED:
        told = {
            "spec.nodeName": (node or "") != (previous_node or ""),
            "status.conditions": refusal != previous_refusal or evicted,
            "status.phase": phase != previous_phase,
            "metadata.deletionTimestamp": evicted,
        }
        moved = (path for path, is_so in told.items() if is_so)
        fields = sorted({*moved, *_differ(text, previous_text)})
    by_scheduler = actor == KUBE_SCHEDULER.name
    bound = node if node and node != previous_node and verb != changes.DELETED else ""
    return Step(
        revision,
        at,
        _VERBS[verb],
        actor or "",
        impersonator or "",
        "" if by_scheduler else cause or "",
        cause or "" if by_scheduler else "",
        tuple(fields),
        bound,
        placed.get(bound) if by_scheduler and bound else None,
    )


def _differ(text: str | None, previous: str | None) -> Iterator[str]:
    """Yield the paths, two names deep, in which two documents differ; slots are left out."""
    if text is None or previous is None:
        return
    new, old = _rest(text), _rest(previous)
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


_MADE_ROOM: Final = """
    SELECT DISTINCT ON (c.object_id) c.namespace, c.name, c.at, c.revision
    FROM decision d JOIN change c
      ON c.revision > d.snapshot_revision AND c.revision <= d.snapshot_revision + %s::bigint
    WHERE d.namespace = %s AND d.name = %s AND d.pod_id = %s::bigint
      AND c.cause = d.pod_uid AND c.kind = %s::smallint AND c.at <= d.at + %s::interval
    ORDER BY c.object_id, c.revision
"""


def victims_of(namespace: str, name: str, pod_id: int) -> list[Victim]:
    """Return the pods that were preempted for this one, as far back as records are kept."""
    rows = sql.fetch(
        _MADE_ROOM, (_WINDOW, namespace, name, pod_id, KINDS["Pod"].code, _MADE_ROOM_WITHIN)
    )
    return sorted((Victim(*row) for row in rows), key=lambda one: one.revision)


def pod_of_uid(uid: str) -> tuple[str, str] | None:
    """Return namespace and name of the pod with a uid, ``None`` if it is gone. Reads all pods."""
    row = sql.fetch_one("SELECT namespace, name FROM pod WHERE uid = %s::uuid", (uid,))
    return None if row is None else (row[0], row[1])

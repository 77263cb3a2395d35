"""Lock pods, write new versions of them, or remove them; one or many."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from clusterstate.actions.pods.classes import class_ids_of
from clusterstate.actions.pods.clauses import BY_ROW, POD, log_versions, returning_versions
from clusterstate.actions.writing import stored_rows, transactions
from clusterstate.actions.writing.stored import DeletedObject, LockedRow
from clusterstate.change_log import actors, changes
from clusterstate.database import sql
from clusterstate.objects.rules import scheduling_class
from clusterstate.objects.values import document
from clusterstate.objects.values.actor import Actor
from clusterstate.objects.values.document import Overlay
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods import POD_OVERLAY, pod_overlay

_COLUMNS = f", {POD_OVERLAY}, t.class_id, t.phase, t.nominated_node_name"


def lock_pod(namespace: str, name: str) -> LockedRow:
    """Return the stored pod with its document, locked until the transaction ends.

    Raises:
        NotFound: there is none.
    """
    return _row(stored_rows.lock_columns(POD, namespace, name, _COLUMNS))


def lock_pods(keys: Sequence[tuple[str, str]]) -> list[LockedRow]:
    """Return the stored pods with these namespaces and names, locked, without absent ones."""
    return [_row(found) for found in stored_rows.lock_many_columns(POD, keys, _COLUMNS)]


def _row(found: sql.Row) -> LockedRow:
    row = LockedRow(*found[:7])
    *slots, row.class_id, row.phase, row.nominated_node_name = found[7:]
    row.overlay = pod_overlay(*slots)
    return row


_PLACES, _GROWS = 1, 2
"""How a version takes room that no scheduler decided on. After either, a bind that was decided on
an earlier snapshot is refused (``node.placement_revision``); what is placed arrives as well."""

_UPDATE = f"""
    {changes.WITH_GATE},
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, nextval('document_id_seq') AS document_id, i.*
        FROM gate CROSS JOIN unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,
                                     %s, %s, %s)
             AS i(pod_id, text, class_id, node_name, phase, scheduled_at, unschedulable,
                  nominated_node_name, deletion_at, eviction, place, ungated, started_at, actor_id,
                  cause)
        WHERE opened = 1),
    doc AS (INSERT INTO document (id, text) SELECT document_id, text FROM numbered),
    updated AS (
        UPDATE pod p
        SET document_id = n.document_id, revision = n.revision, class_id = n.class_id,
            node_name = n.node_name, phase = n.phase, scheduled_at = n.scheduled_at,
            unschedulable = n.unschedulable, nominated_node_name = n.nominated_node_name,
            deletion_at = n.deletion_at, eviction = n.eviction::tstzrange,
            started_at = n.started_at,
            bound_at = CASE n.place WHEN {_PLACES} THEN %s::timestamptz ELSE p.bound_at END,
            arrival_revision = CASE n.place
                WHEN {_PLACES} THEN n.revision ELSE p.arrival_revision END
        FROM numbered n WHERE p.id = n.pod_id AND p.id = ANY (ARRAY(SELECT pod_id FROM numbered))
        {returning_versions()}, n.place, n.ungated, n.actor_id, n.cause),
    superseded AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT old_document_id, revision FROM updated),
    terminating AS (
        INSERT INTO terminating_pod (pod_id, deletion_at)
        SELECT id, deletion_at FROM updated WHERE deletion_at IS NOT NULL
        ON CONFLICT (pod_id) DO UPDATE SET deletion_at = excluded.deletion_at
        WHERE terminating_pod.deletion_at <> excluded.deletion_at),
    unqueued AS (
        DELETE FROM pending_pod WHERE pod_id = ANY (ARRAY(
            SELECT id FROM updated
            WHERE node_name <> '' OR phase IN ('Succeeded', 'Failed')))),
    ungated AS (
        UPDATE pending_pod q SET stage = 'active', attempts = 0, not_before = NULL,
            since = %s::timestamptz
        WHERE q.stage = 'gated' AND q.pod_id = ANY (ARRAY(
            SELECT id FROM updated
            WHERE ungated = 1 AND node_name = '' AND phase NOT IN ('Succeeded', 'Failed')))),
    placed AS (
        UPDATE node t SET placement_revision = greatest(t.placement_revision, u.revision)
        FROM (SELECT node_name, max(revision) AS revision FROM updated WHERE place > 0
              GROUP BY node_name) u
        WHERE t.name = u.node_name),
    logged AS ({log_versions("updated", by=BY_ROW)})
    SELECT id, revision FROM updated
"""

_UPDATE = " ".join(_UPDATE.split())


class Version(msgspec.Struct, frozen=True):
    """A new version of a locked pod.

    ``place``: it places the pod, without the scheduler. ``grows``: it is on a node and its requests
    there grow. ``same_class``: nothing that scheduling reads has changed, so the pod keeps its
    scheduling class.
    """

    row: LockedRow
    manifest: Manifest
    text: str
    overlay: Overlay
    place: bool = False
    same_class: bool = False
    grows: bool = False


def write_versions(versions: Sequence[Version], *, now: datetime) -> list[int]:
    """Write new versions of locked pods by one statement; return their revisions, in order."""
    deletions = [one.manifest["metadata"].get("deletionTimestamp") for one in versions]
    status = [one.manifest.get("status") or {} for one in versions]
    classes = [one.row.class_id for one in versions]
    moved = [place for place, one in enumerate(versions) if not one.same_class]
    new_classes = [
        (*scheduling_class.encode(versions[place].manifest), classes[place]) for place in moved
    ]
    for place, class_id in zip(moved, class_ids_of(new_classes), strict=True):
        classes[place] = class_id
    found = sql.fetch(
        _UPDATE,
        (
            *actors.gate(),
            sql.Int8s([one.row.id for one in versions]),
            sql.Texts([one.text for one in versions]),
            sql.Int8s(classes),
            sql.Texts([one.overlay.node_name for one in versions]),
            sql.Texts([one.get("phase") or "Pending" for one in status]),
            sql.Times([one.overlay.scheduled_at for one in versions]),
            sql.Texts([one.overlay.unschedulable for one in versions]),
            sql.Texts([one.get("nominatedNodeName") or "" for one in status]),
            sql.Times([time and document.parse_time(time) for time in deletions]),
            sql.Texts([_range(one.overlay.eviction) for one in versions]),
            sql.Int4s([_PLACES if one.place else _GROWS * one.grows for one in versions]),
            sql.Int4s([int(not _gates(one.manifest)) for one in versions]),
            sql.Times([_started(one) for one in status]),
            *actors.columns([one.row.actor for one in versions]),
            now,
            now,
            now,
        ),
    )
    revisions: dict[int, int] = dict(found)
    return [revisions[one.row.id] for one in versions]


def _started(status: Manifest) -> datetime | None:
    """Return ``startTime``; ``None`` if it is absent, or not a time."""
    try:
        return document.parse_time(status["startTime"]) if status.get("startTime") else None
    except ValueError:
        return None


def _gates(manifest: Manifest) -> bool:
    return bool((manifest.get("spec") or {}).get("schedulingGates"))


def write_version(
    row: LockedRow,
    manifest: Manifest,
    text: str,
    overlay: Overlay,
    *,
    now: datetime,
    place: bool = False,
    grows: bool = False,
) -> int:
    """Write a new version of a locked pod; return its revision."""
    version = Version(row, manifest, text, overlay, place, grows=grows)
    return write_versions([version], now=now)[0]


def _range(eviction: document.Eviction | None) -> str | None:
    """Return both times as a PostgreSQL range, ``None`` without an eviction."""
    if eviction is None:
        return None
    return f"[{eviction.at.isoformat()},{eviction.until.isoformat()}]"


def _gone(*more: str) -> str:
    """Return the CTEs that delete the pods of ``numbered``; ``deleted`` keeps ``more``."""
    columns = ", ".join(f"n.{name}" for name in ("actor_id", "cause", *more))
    return f"""
    deleted AS (
        DELETE FROM pod p USING numbered n
        WHERE p.id = n.pod_id
        {returning_versions("old", "n.revision")}, {columns}),
    unqueued AS (DELETE FROM pending_pod WHERE pod_id = ANY (ARRAY(SELECT id FROM deleted))),
    gone AS (DELETE FROM terminating_pod WHERE pod_id = ANY (ARRAY(SELECT id FROM deleted))),
    superseded AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT document_id, revision FROM deleted),
    logged AS ({log_versions("deleted", changes.DELETED, BY_ROW)})
"""


_DELETE = f"""
    {changes.WITH_GATE},
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, i.*
        FROM gate CROSS JOIN unnest(%s, %s, %s) AS i(pod_id, actor_id, cause)
        WHERE opened = 1),
    {_gone()}
    SELECT id, revision FROM deleted ORDER BY revision
"""

_DELETE = " ".join(_DELETE.split())

# Rows that another transaction has locked are skipped, since waiting would delay the low watermark.
# So are rows that got a new document after the statement began: the join does not find it.
_DELETE_FREE = f"""
    {changes.WITH_GATE},
    free AS MATERIALIZED (
        SELECT p.id AS pod_id, p.uid, d.text, i.position, i.actor_id, i.cause
        FROM gate CROSS JOIN unnest(%s, %s, %s, %s) WITH ORDINALITY
             AS i(namespace, name, actor_id, cause, position)
        JOIN pod p ON p.namespace = i.namespace AND p.name = i.name
        JOIN document d ON d.id = p.document_id
        WHERE opened = 1 AND strpos({sql.METADATA}, '"finalizers":[') = 0
        ORDER BY p.id FOR UPDATE OF p SKIP LOCKED),
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, free.* FROM free
        WHERE (SELECT count(*) FROM free) = %s::bigint),
    {_gone("position", "uid", "text")}
    SELECT uid::text, text, revision, old_revision, node_name, scheduled_at, unschedulable,
           eviction
    FROM deleted ORDER BY position
"""

_DELETE_FREE = " ".join(_DELETE_FREE.split())


def delete_free_pods(
    keys: Sequence[tuple[str, str]], by: Sequence[Actor | None], *, now: datetime
) -> list[DeletedObject]:
    """Delete pods without finalizers by one statement; return the results, in order.

    ``keys``: distinct namespaces and names. All or none: none is deleted, and none returned, if one
    does not exist, has finalizers, or is locked by another writer.
    """
    spaces, names = zip(*keys, strict=True)
    parameters = (sql.Texts(spaces), sql.Texts(names), *actors.columns(by), len(keys), now)
    found = []
    for uid, text, revision, before, *slots in sql.fetch(
        _DELETE_FREE, (*actors.gate(), *parameters)
    ):
        body = transactions.written_json(text, revision, pod_overlay(*slots), before=before)
        found.append(DeletedObject(body, revision, uid, gone=True))
    if found:
        changes.announce(max(one.revision for one in found), (POD.name,), leaving=True)
    return found


def remove_pods(rows: Sequence[LockedRow], *, now: datetime) -> list[int]:
    """Delete locked pods by one statement; return the revisions of their deletions, in order."""
    found = delete_pod_rows([row.id for row in rows], [row.actor for row in rows], now=now)
    revisions: dict[int, int] = dict(found)
    return [revisions[row.id] for row in rows]


def delete_pod_rows(
    ids: Sequence[int], by: Sequence[Actor | None], *, now: datetime
) -> list[tuple[int, int]]:
    """Delete locked pods, each by an actor; return (id, revision) of each, by revision."""
    parameters = (*actors.gate(), sql.Int8s(ids), *actors.columns(by), now)
    return [(row[0], row[1]) for row in sql.fetch(_DELETE, parameters)]

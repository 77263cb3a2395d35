"""Lock one pod, write a new version of it, or remove it."""

from datetime import datetime

from clusterstate import changes, sql
from clusterstate.actions import storing
from clusterstate.actions.pods.classes import class_id_of
from clusterstate.actions.pods.clauses import POD, log_versions, returning_versions
from clusterstate.actions.storing import Row
from clusterstate.objects import document, scheduling_class
from clusterstate.objects.document import Overlay
from clusterstate.objects.meta import Manifest
from clusterstate.queries.pods import POD_OVERLAY, pod_overlay

_COLUMNS = f", {POD_OVERLAY}, t.class_id, t.phase, t.nominated_node_name"


def lock_pod(namespace: str, name: str) -> Row:
    """Return the stored pod with its document, locked until the transaction ends.

    Raises:
        NotFound: there is none.
    """
    found = storing.lock_columns(POD, namespace, name, _COLUMNS)
    row = Row(*found[:7])
    *slots, row.class_id, row.phase, row.nominated_node_name = found[7:]
    row.overlay = pod_overlay(*slots)
    return row


_UPDATE = f"""
    WITH gate AS MATERIALIZED (SELECT {changes.OPEN}),
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, nextval('document_id_seq') AS document_id
        FROM gate WHERE opened = 1),
    doc AS (INSERT INTO document (id, text) SELECT document_id, %s::text FROM numbered),
    updated AS (
        UPDATE pod p
        SET document_id = n.document_id, revision = n.revision, class_id = %s::bigint,
            node_name = %s::text, phase = %s::text, scheduled_at = %s::timestamptz,
            unschedulable = %s::text, nominated_node_name = %s::text, deletion_at = %s::timestamptz,
            eviction = %s::text::tstzrange,
            bound_at = CASE WHEN %s THEN %s::timestamptz ELSE p.bound_at END
        FROM numbered n WHERE p.id = %s::bigint
        {returning_versions()}),
    superseded AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT old_document_id, revision FROM updated),
    terminating AS (
        INSERT INTO terminating_pod (pod_id, deletion_at)
        SELECT id, deletion_at FROM updated WHERE deletion_at IS NOT NULL
        ON CONFLICT (pod_id) DO UPDATE SET deletion_at = excluded.deletion_at
        WHERE terminating_pod.deletion_at <> excluded.deletion_at),
    unqueued AS (
        DELETE FROM pending_pod q USING updated u
        WHERE q.pod_id = u.id AND (u.node_name <> '' OR u.phase IN ('Succeeded', 'Failed'))),
    ungated AS (
        UPDATE pending_pod q SET stage = 'active', attempts = 0, not_before = NULL
        FROM updated u
        WHERE %s AND q.pod_id = u.id AND q.stage = 'gated' AND u.node_name = ''
          AND u.phase NOT IN ('Succeeded', 'Failed')),
    placed AS (
        UPDATE node t SET placement_revision = greatest(t.placement_revision, u.revision)
        FROM updated u WHERE %s AND t.name = u.node_name),
    logged AS ({log_versions("updated")})
    SELECT revision FROM updated
"""

_UPDATE = " ".join(_UPDATE.split())


def write_version(
    row: Row,
    manifest: Manifest,
    text: str,
    overlay: Overlay,
    *,
    now: datetime,
    place: bool = False,
) -> int:
    """Write a new version of a locked pod; return its revision."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    deletion = metadata.get("deletionTimestamp")
    digest, spec = scheduling_class.encode(manifest)
    ungated = not (manifest.get("spec") or {}).get("schedulingGates")
    found = sql.fetch_one(
        _UPDATE,
        (
            text,
            class_id_of(digest, spec, row.class_id),
            overlay.node_name,
            status.get("phase") or "Pending",
            overlay.scheduled_at,
            overlay.unschedulable,
            status.get("nominatedNodeName") or "",
            document.parse_time(deletion) if deletion else None,
            _range(overlay.eviction),
            place,
            now,
            row.id,
            ungated,
            place,
            now,
        ),
    )
    assert found is not None  # the row is locked
    revision: int = found[0]
    return revision


def _range(eviction: document.Eviction | None) -> str | None:
    """Return how PostgreSQL writes both moments and the time between them."""
    if eviction is None:
        return None
    return f"[{eviction.at.isoformat()},{eviction.until.isoformat()}]"


DELETE_PODS = f"""
    WITH gate AS MATERIALIZED (SELECT {changes.OPEN}),
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, i.pod_id
        FROM gate CROSS JOIN unnest(%s) AS i(pod_id) WHERE opened = 1),
    deleted AS (
        DELETE FROM pod p USING numbered n WHERE p.id = n.pod_id
        {returning_versions("old", "n.revision")}),
    unqueued AS (DELETE FROM pending_pod WHERE pod_id = ANY (ARRAY(SELECT id FROM deleted))),
    gone AS (DELETE FROM terminating_pod WHERE pod_id = ANY (ARRAY(SELECT id FROM deleted))),
    superseded AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT document_id, revision FROM deleted),
    logged AS ({log_versions("deleted", changes.DELETED)})
    SELECT id, revision FROM deleted ORDER BY revision
"""

DELETE_PODS = " ".join(DELETE_PODS.split())


def remove_pod(row: Row, *, now: datetime) -> int:
    """Delete a locked pod; return the revision of its deletion."""
    found = sql.fetch_one(DELETE_PODS, (sql.Int8s([row.id]), now))
    assert found is not None  # the row is locked
    revision: int = found[1]
    return revision

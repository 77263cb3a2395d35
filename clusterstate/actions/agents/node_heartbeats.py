"""Heartbeats of node agents, and the not-ready pods of lost nodes: written in bulk."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db import transaction

from clusterstate.actions.pods.clauses import log_versions, returning_versions
from clusterstate.change_log import actors, changes
from clusterstate.database import sql
from clusterstate.objects.values import document
from clusterstate.queries.pods.terminating import NODE_LEASES

_NOTE = f"""
    WITH seen AS (
        SELECT i.name, coalesce(l.renewed_at::text, '') || '|' || i.status AS sign,
               l.id IS NOT NULL AS leased
        FROM unnest(%s, %s) AS i(name, status)
        LEFT JOIN lease l ON l.namespace = '{NODE_LEASES}' AND l.name = i.name),
    forgotten AS (
        DELETE FROM node_heartbeat h WHERE NOT EXISTS (SELECT 1 FROM seen WHERE name = h.node_name))
    INSERT INTO node_heartbeat AS h (node_name, sign, heard_at)
    SELECT name, s.sign, CASE WHEN leased THEN %s::timestamptz END
    FROM seen s LEFT JOIN node_heartbeat k ON k.node_name = s.name
    WHERE CASE WHEN k.node_name IS NULL THEN leased OR s.sign <> '|'
               ELSE k.sign <> s.sign OR k.heard_at > %s::timestamptz END
    ORDER BY name
    ON CONFLICT (node_name) DO UPDATE SET sign = excluded.sign, heard_at = %s::timestamptz
    WHERE h.sign <> excluded.sign OR h.heard_at > %s::timestamptz
"""


def note(signs: Mapping[str, str], *, now: datetime) -> dict[str, datetime]:
    """Record each agent's last heartbeat; return by node name when its agent was last heard.

    ``signs`` maps each node's name to the last heartbeat in its status, empty if it has none;
    leases are read here. The first heartbeat of a node counts only if it is a lease, because a
    client that writes a Node by hand may have copied a heartbeat into its status. Rows of nodes
    that are not in ``signs`` are deleted. A recorded time after ``now`` was written before the
    clock was set back; it becomes ``now``. Two statements.
    """
    names = sorted(signs)
    sql.run(_NOTE, (sql.Texts(names), sql.Texts([signs[name] for name in names]), *[now] * 4))
    rows = sql.fetch("SELECT node_name, heard_at FROM node_heartbeat WHERE heard_at IS NOT NULL")
    return {row[0]: row[1] for row in rows}


def reset(*, now: datetime) -> None:
    """Count every agent as heard now, after this service did not run for a while."""
    sql.run(
        "UPDATE node_heartbeat SET heard_at = %s::timestamptz WHERE heard_at IS NOT NULL", (now,)
    )


_READY = '"status":"True","type":"Ready"'
_READY_PODS = """
    SELECT p.id, d.text FROM pod p JOIN document d ON d.id = p.document_id
    WHERE p.node_name = ANY(%s) AND p.node_name <> '' AND p.phase = 'Running'
      AND position(%s in d.text) > 0
    ORDER BY p.id LIMIT %s::bigint FOR NO KEY UPDATE OF p SKIP LOCKED
"""
_AT_ONCE = 2000
_REWRITE = f"""
    {changes.WITH_GATE},
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, nextval('document_id_seq') AS document_id, i.*
        FROM gate CROSS JOIN unnest(%s, %s) AS i(pod_id, text) WHERE opened = 1),
    doc AS (INSERT INTO document (id, text) SELECT document_id, text FROM numbered),
    updated AS (
        UPDATE pod p SET document_id = n.document_id, revision = n.revision
        FROM numbered n WHERE p.id = n.pod_id
        {returning_versions()}),
    superseded AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT old_document_id, revision FROM updated),
    logged AS ({log_versions("updated")})
    SELECT max(revision) FROM updated
"""
_REWRITE = " ".join(_REWRITE.split())


def mark_pods_not_ready(node_names: Sequence[str], *, now: datetime) -> int:
    """Set Ready to False on the running pods of lost nodes; return how many.

    Rule: MarkPodsNotReady, pkg/controller/util/node/controller_utils.go, v1.36.
    """
    total = 0
    while True:
        with transaction.atomic():
            rows = sql.fetch(_READY_PODS, (sql.Texts(list(node_names)), _READY, _AT_ONCE))
            if rows:
                texts = [_not_ready(text, now) for _, text in rows]
                found = sql.fetch_one(
                    _REWRITE,
                    (
                        *actors.gate(),
                        sql.Int8s([row[0] for row in rows]),
                        sql.Texts(texts),
                        now,
                    ),
                )
                assert found is not None  # the rows are locked
                changes.announce(found[0], ("Pod",))
        total += len(rows)
        if len(rows) < _AT_ONCE:
            return total


def _not_ready(text: str, now: datetime) -> str:
    manifest = document.decode(text, 0)
    status = manifest["status"]
    status["conditions"] = [
        {
            **one,
            "status": "False",
            "reason": "NodeNotReady",
            "lastTransitionTime": document.format_time(now),
        }
        if one.get("type") == "Ready"
        else one
        for one in status["conditions"]
    ]
    return document.encode("Pod", manifest)[0]

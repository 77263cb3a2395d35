"""Pods that no agent manages any more: their node is gone, or they finished long ago."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.database import sql
from clusterstate.queries.pods.stays import BOUND_AT

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"

POD_GC: Final = "pod-gc"
"""The follower that collects them; the queries leave out pods that it has set aside."""

_NOT_ASIDE = f"""NOT EXISTS (SELECT 1 FROM set_aside s WHERE s.follower = '{POD_GC}'
    AND s.kind = 'Pod' AND s.object_id = p.id AND s.revision = p.revision)"""


class Leftover(msgspec.Struct, frozen=True):
    """A pod that no agent manages any more."""

    pod_id: int
    namespace: str
    name: str
    uid: str
    finished: bool


_LEFT = (
    "SELECT p.id, p.namespace, p.name, p.uid::text, p.phase IN ('Succeeded', 'Failed') FROM pod p"
)


def missing_nodes() -> list[str]:
    """Return the names of nodes that do not exist and have pods. Queries once, by index."""
    rows = sql.fetch(
        "SELECT DISTINCT p.node_name FROM pod p WHERE p.node_name <> ''"
        " AND NOT EXISTS (SELECT 1 FROM node n WHERE n.name = p.node_name) ORDER BY p.node_name"
    )
    return [row[0] for row in rows]


def left_behind(node_names: Sequence[str], *, bound_by: datetime, limit: int) -> list[Leftover]:
    """Return pods bound by ``bound_by`` on these missing nodes. Queries once.

    Without terminating pods that a finalizer keeps.
    """
    rows = sql.fetch(
        f"{_LEFT} JOIN document d ON d.id = p.document_id"
        " WHERE p.node_name = ANY(%s) AND p.node_name <> ''"
        f" AND {BOUND_AT} <= %s::timestamptz"
        " AND NOT EXISTS (SELECT 1 FROM node n WHERE n.name = p.node_name)"
        " AND NOT (p.deletion_at IS NOT NULL"
        f" AND position('\"finalizers\":[' in {sql.METADATA}) > 0)"
        f" AND {_NOT_ASIDE} ORDER BY p.id LIMIT %s::bigint",
        (sql.Texts(list(node_names)), bound_by, limit),
    )
    return [Leftover(*row) for row in rows]


def out_of_service(*, limit: int) -> list[Leftover]:
    """Return terminating pods on nodes that are not ready and are out of service. Queries once.

    Without pods that a finalizer keeps.
    """
    rows = sql.fetch(
        f"{_LEFT} JOIN terminating_pod e ON e.pod_id = p.id JOIN document d ON d.id = p.document_id"
        " WHERE p.node_name IN (SELECT n.name FROM node n JOIN taint t ON t.node_id = n.id"
        f"                      WHERE t.key = '{OUT_OF_SERVICE}' AND EXISTS ("
        "                          SELECT 1 FROM taint r WHERE r.node_id = n.id AND r.key IN"
        "                          ('node.kubernetes.io/not-ready',"
        "                           'node.kubernetes.io/unreachable')))"
        f" AND position('\"finalizers\":[' in {sql.METADATA}) = 0 AND {_NOT_ASIDE}"
        " ORDER BY p.id LIMIT %s::bigint",
        (limit,),
    )
    return [Leftover(*row) for row in rows]


def finished_beyond(threshold: int, *, limit: int) -> list[Leftover]:
    """Return finished pods to remove, so that ``threshold`` are left. Queries twice at most.

    Evicted pods first, then the oldest. Reads all pods.
    """
    finished = "p.phase IN ('Succeeded', 'Failed') AND p.deletion_at IS NULL"
    row = sql.fetch_one(f"SELECT count(*) FROM pod p WHERE {finished}")
    assert row is not None
    if row[0] <= threshold:
        return []
    rows = sql.fetch(
        f"{_LEFT} JOIN document d ON d.id = p.document_id WHERE {finished} AND {_NOT_ASIDE}"
        ' ORDER BY position(\'"reason":"Evicted"\' in d.text) = 0, p.created_at, p.id'
        " LIMIT %s::bigint",
        (min(limit, row[0] - threshold),),
    )
    return [Leftover(*row) for row in rows]

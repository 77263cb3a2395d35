"""Nodes: revisions, labels, NoExecute taints.

::

    fleet, fleet_past    nodes with the sums of their pods, now and at a revision
    usage                what agents report of memory, disk and processes
    node_references      which objects a node's agent may read
"""

from collections.abc import Sequence

import msgspec

from clusterstate.database import sql
from clusterstate.objects.values import document
from clusterstate.objects.values.node import Taint


def evicting_nodes() -> list[str]:
    """Return the names of the nodes with a NoExecute taint. Queries once, by index."""
    rows = sql.fetch(
        "SELECT DISTINCT n.name FROM taint t JOIN node n ON n.id = t.node_id"
        " WHERE t.effect = 'NoExecute' ORDER BY n.name"
    )
    return [row[0] for row in rows]


def no_execute_taints(node_names: Sequence[str]) -> dict[str, list[Taint]]:
    """Return the NoExecute taints of those nodes that have some, in order. Queries once."""
    rows = sql.fetch(
        "SELECT n.name, t.key, t.value, t.effect, t.added_at"
        " FROM node n JOIN taint t ON t.node_id = n.id"
        " WHERE n.name = ANY(%s) AND t.effect = 'NoExecute' ORDER BY n.name, t.position",
        (sql.Texts(list(node_names)),),
    )
    result: dict[str, list[Taint]] = {}
    for name, key, value, effect, added_at in rows:
        added = added_at.isoformat() if added_at is not None else None
        result.setdefault(name, []).append(
            Taint(key=key, value=value, effect=effect, time_added=added)
        )
    return result


def node_labels(node_names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the labels of those nodes that exist. Queries once."""
    rows = sql.fetch(
        "SELECT name, labels::text FROM node WHERE name = ANY(%s)", (sql.Texts(list(node_names)),)
    )
    return {name: msgspec.json.decode(text) for name, text in rows}


def node_revisions() -> list[tuple[int, int]]:
    """Return id and revision of all nodes, oldest first. Queries once."""
    rows = sql.fetch("SELECT id, revision FROM node ORDER BY id")
    return [(row[0], row[1]) for row in rows]


def nodes_by_id(ids: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """Return id, revision and JSON of these nodes. Queries once unless there are none."""
    if not ids:
        return []
    rows = sql.fetch(
        "SELECT n.id, n.revision, d.text FROM node n JOIN document d ON d.id = n.document_id"
        " WHERE n.id = ANY(%s)",
        (sql.Int8s(list(ids)),),
    )
    return [(id_, revision, document.compose(text, revision)) for id_, revision, text in rows]

"""Objects found by a part of their name, for people who search."""

from typing import Any, Final

import msgspec

from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods import pod_overlay

_AFTER_ALL: Final = "\U0010ffff"
_LEAST: Final = 3


def pods_like(part: str, *, namespace: str = "", limit: int) -> list[tuple[str, str]]:
    """Return namespace and name of pods whose name begins with ``part``, the exact name first.

    If there is none, return the pods with ``part`` anywhere in their name; for this it must have
    three letters. Queries once, by index; then once more, through all pods.
    """
    rows = sql.fetch(
        "SELECT namespace, name FROM pod WHERE name >= %s AND name < %s"
        " AND (%s = '' OR namespace = %s) ORDER BY name <> %s, namespace, name LIMIT %s::bigint",
        (part, part + _AFTER_ALL, namespace, namespace, part, limit),
    )
    if rows or len(part) < _LEAST:
        return [(row[0], row[1]) for row in rows]
    rows = sql.fetch(
        "SELECT namespace, name FROM pod WHERE strpos(name, %s) > 0"
        " AND (%s = '' OR namespace = %s) ORDER BY name <> %s, namespace, name LIMIT %s::bigint",
        (part, namespace, namespace, part, limit),
    )
    return [(row[0], row[1]) for row in rows]


def deleted_pods(name: str, *, namespace: str = "", limit: int) -> list[tuple[str, str]]:
    """Return namespace and name of deleted pods with exactly this name, by namespace.

    Only deletions in the log. Queries once, by the index of deletions.
    """
    rows = sql.fetch(
        "SELECT DISTINCT namespace FROM change WHERE kind = %s AND verb = 3 AND name = %s"
        " AND (%s = '' OR namespace = %s) ORDER BY namespace LIMIT %s::bigint",
        (KINDS["Pod"].code, name, namespace, namespace, limit),
    )
    return [(row[0], name) for row in rows]


class PodSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of a list of pods; empty ones are ignored. ``part``: of the name."""

    part: str = ""
    namespace: str = ""
    node_name: str = ""
    phase: str = ""
    waiting: bool = False


def pods(search: PodSearch, *, start: int, limit: int) -> list[Manifest]:
    """Return pods by namespace and name from the ``start``-th on. Queries once."""
    conditions, values = [], list[Any]()
    for condition, value in (
        ("strpos(t.name, %s) > 0", search.part),
        ("t.namespace = %s", search.namespace),
        ("t.node_name = %s AND t.node_name <> ''", search.node_name),
        ("t.phase = %s", search.phase),
    ):
        if value:
            conditions.append(condition)
            values.append(value)
    source = "pod t"
    if search.waiting:
        source = "pending_pod q JOIN pod t ON t.id = q.pod_id"
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = sql.fetch(
        f"SELECT d.text, f.revision, f.node_name, f.scheduled_at, f.unschedulable, f.eviction"
        f" FROM (SELECT t.* FROM {source} {where} ORDER BY t.namespace, t.name"
        "       OFFSET %s::bigint LIMIT %s::bigint) f"
        " JOIN document d ON d.id = f.document_id ORDER BY f.namespace, f.name",
        (*values, start, limit),
    )
    return [document.decode(row[0], row[1], pod_overlay(*row[2:])) for row in rows]

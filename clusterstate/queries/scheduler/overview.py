"""Reads of the console's first page: waiting pods, evictions, the last decisions."""

from collections import Counter
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.database import sql
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import PodSpec
from clusterstate.objects.values.quantity import milli_value, value
from clusterstate.queries.objects.events import EVENT_COLUMNS, EVENT_FROM, compose_event
from clusterstate.queries.pods import POD_OVERLAY, pod_overlay


class WaitingGroup(msgspec.Struct, frozen=True):
    """Waiting pods of one scheduling class: how many, one of them, since when, why.

    ``message``: of the last refusal, empty before the first attempt. ``spec``: of the class, if the
    message is about more than amounts.
    """

    pods: int
    namespace: str
    name: str
    since: datetime | None
    message: str
    spec: PodSpec = PodSpec()


class DecisionSummary(msgspec.Struct, frozen=True):
    """A decision, in short."""

    id: int
    at: datetime
    namespace: str
    name: str
    outcome: str
    node_name: str
    evaluated: int
    feasible: int


_WAITING: Final = """
SELECT g.pods, p.namespace, p.name, g.since,
       coalesce(nullif(q.message, ''), p.unschedulable::json ->> 'message', ''),
       CASE WHEN q.message = '' OR strpos(q.message, 'node(s)') > 0
            THEN (c.spec::jsonb -> 'spec')::text END
FROM (SELECT count(*) AS pods, min(q.pod_id) AS first, min(q.since) AS since
      FROM pending_pod q JOIN pod p ON p.id = q.pod_id WHERE %s = '' OR p.namespace = %s
      GROUP BY p.class_id, q.message = '') g
JOIN pending_pod q ON q.pod_id = g.first JOIN pod p ON p.id = g.first
JOIN scheduling_class c ON c.id = p.class_id
ORDER BY g.pods DESC, g.first LIMIT %s::bigint
"""


def waiting(namespace: str = "", *, limit: int = 2_000) -> list[WaitingGroup]:
    """Return the largest classes of waiting pods, of one namespace if it is given.

    Queries once; reads all waiting pods.
    """
    found = []
    for row in sql.fetch(_WAITING, (namespace, namespace, limit)):
        pods, namespace, name, since, message, text = row
        spec = PodSpec() if text is None else msgspec.json.decode(text, type=PodSpec)
        found.append(WaitingGroup(pods, namespace, name, since, message, spec))
    return found


def pending(namespace: str = "") -> int:
    """Return how many pods wait, in one namespace if it is given. Queries once."""
    row = sql.fetch_one(
        "SELECT count(*) FROM pending_pod q WHERE %s = ''"
        " OR EXISTS (SELECT FROM pod p WHERE p.id = q.pod_id AND p.namespace = %s)",
        (namespace, namespace),
    )
    return 0 if row is None else row[0]


def decided(*, limit: int) -> list[DecisionSummary]:
    """Return the last decisions. Queries once, by index."""
    rows = sql.fetch(
        "SELECT id, at, namespace, name, outcome, node_name, evaluated, feasible FROM decision"
        " ORDER BY id DESC LIMIT %s::bigint",
        (limit,),
    )
    return [DecisionSummary(*row) for row in rows]


def pods_of_node(node_name: str, *, limit: int) -> list[Manifest]:
    """Return the pods on a node, by namespace and name. Queries once, by index."""
    rows = sql.fetch(
        f"SELECT d.text, t.revision, {POD_OVERLAY}"
        " FROM pod t JOIN document d ON d.id = t.document_id"
        " WHERE t.node_name = %s AND t.node_name <> '' ORDER BY t.namespace, t.name"
        " LIMIT %s::bigint",
        (node_name, limit),
    )
    return [document.decode(row[0], row[1], pod_overlay(*row[2:])) for row in rows]


def overhead_on(node_name: str) -> dict[str, int]:
    """Return the part of a node's requests that is overhead of RuntimeClasses. Queries once."""
    total: Counter[str] = Counter()
    rows = sql.fetch(
        "SELECT c.spec, count(*) FROM pod p JOIN scheduling_class c ON c.id = p.class_id"
        " WHERE p.node_name = %s AND p.node_name <> ''"
        " AND p.phase NOT IN ('Succeeded', 'Failed') AND strpos(c.spec, '\"overhead\"') > 0"
        " GROUP BY c.id, c.spec",
        (node_name,),
    )
    for spec, count in rows:
        overhead = (msgspec.json.decode(spec).get("spec") or {}).get("overhead") or {}
        for resource, amount in overhead.items():
            read = milli_value if resource == "cpu" else value
            total[resource] += read(amount) * count
    return dict(total)


def events_of(kind: str, namespace: str, name: str, *, limit: int) -> list[Manifest]:
    """Return the events about an object, the latest first. Queries once."""
    rows = sql.fetch(
        f"SELECT {EVENT_COLUMNS} FROM {EVENT_FROM} WHERE t.namespace = %s AND t.involved_name = %s"
        " AND t.involved_kind = %s ORDER BY t.last_at DESC NULLS LAST LIMIT %s::bigint",
        (namespace or "default", name, kind, limit),
    )
    return [msgspec.json.decode(compose_event(row)) for row in rows]

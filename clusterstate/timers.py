"""Reads for evictions: who waits, who could have to wait, and what changed about that.

All pods of one scheduling class on one node share tolerations, terms, taints and labels. So a
controller judges *places*, pairs of node and class. Labels give all pods of a place one fate, and
the statements in ``actions.evictions`` spread it over them. Taints count from when each pod was
bound, so that their verdicts are about *stays*: a pod at its place since then.
"""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from clusterstate import changes, lineage, sql
from clusterstate.objects import document
from clusterstate.objects.node import Node, Taint

TAINT: Final = "taint"
DURING_EXECUTION: Final = "requiredDuringExecution"
FIELD: Final = "requiredDuringSchedulingRequiredDuringExecution"

_decode_node = msgspec.json.Decoder(Node).decode


class Place(msgspec.Struct, frozen=True):
    """The pods of one class on one node."""

    node_name: str
    class_id: int


class Stay(msgspec.Struct, frozen=True):
    """A pod of a class on a node, since when it is bound to it."""

    pod_id: int
    node_name: str
    class_id: int
    bound_at: datetime

    @property
    def place(self) -> Place:
        """Where that is."""
        return Place(self.node_name, self.class_id)


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that must leave its node; ``cause``, ``blocked_by``, ``landing`` as in the table."""

    pod_id: int
    pod_uid: str
    namespace: str
    name: str
    node_name: str
    cause: str
    taint_key: str
    taint_value: str
    taint_effect: str
    seconds: int
    started_at: datetime
    due_at: datetime
    blocked_by: str
    landing: str | None


class NodeNews(msgspec.Struct, frozen=True, kw_only=True):
    """How a node changed: its NoExecute taints, or the labels ``label_keys``; ``at`` is when."""

    name: str
    at: datetime
    taints: bool
    label_keys: frozenset[str]


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What happened up to ``cursor``: nodes that changed, and pods whose timers may differ now."""

    nodes: list[NodeNews]
    pod_ids: list[int]
    cursor: int
    more: bool


# What changed ---------------------------------------------------------------------------------

_NODE_NEWS = """
SELECT c.name, c.at, c.verb, d.text, p.text
FROM change c
LEFT JOIN document d ON d.id = c.document_id
LEFT JOIN document p ON p.id = c.previous_document_id
WHERE c.revision > %s::bigint AND c.revision <= %s::bigint AND c.kind = {node}
  AND (c.verb = {deleted} OR c.document_id IS DISTINCT FROM c.previous_document_id)
ORDER BY c.revision
""".format(node=changes.KINDS["Node"], deleted=changes.DELETED)

_POD_NEWS = """
SELECT DISTINCT c.object_id
FROM change c
WHERE c.revision > %s::bigint AND c.revision <= %s::bigint AND c.kind = {pod}
  AND c.node_name <> ''
  AND (c.verb = {added} OR c.verb = {deleted}
       OR c.node_name IS DISTINCT FROM c.previous_node_name
       OR c.class_id IS DISTINCT FROM c.previous_class_id
       OR c.phase IS DISTINCT FROM c.previous_phase
       OR c.deletion_at IS NOT NULL)
  AND (EXISTS (SELECT 1 FROM eviction_timer t WHERE t.pod_id = c.object_id)
       OR (c.verb <> {deleted} AND c.deletion_at IS NULL
           AND (c.node_name IN (SELECT n.name FROM taint t JOIN node n ON n.id = t.node_id
                                WHERE t.effect = 'NoExecute')
                OR c.class_id IN (SELECT id FROM scheduling_class
                                  WHERE strpos(spec, '"{field}"') > 0))))
""".format(pod=changes.KINDS["Pod"], added=changes.ADDED, deleted=changes.DELETED, field=FIELD)


def news(cursor: int, *, limit: int = 20_000) -> News | None:
    """Return what changed after ``cursor``; ``None`` when that is no longer kept.

    Queries 1-5 times. At most ``limit`` revisions at once. Pods are those that have a timer, are on
    a node that evicts, or have terms that hold during execution.
    """
    mark = changes.watermark()
    if mark <= cursor:
        return News(nodes=[], pod_ids=[], cursor=cursor, more=False)
    row = sql.fetch_one("SELECT trimmed_revision FROM history WHERE id = 1")
    if row is not None and cursor < row[0]:
        return None
    end = changes.window(cursor, mark, limit=limit)
    nodes = [
        found
        for name, at, verb, text, previous in sql.fetch(_NODE_NEWS, (cursor, end))
        if (found := _node_news(name, at, verb, text, previous)) is not None
    ]
    pod_ids = [row[0] for row in sql.fetch(_POD_NEWS, (cursor, end))]
    return News(nodes=nodes, pod_ids=pod_ids, cursor=end, more=end < mark)


def _node_news(
    name: str, at: datetime, verb: int, text: str | None, previous: str | None
) -> NodeNews | None:
    """Return what matters of a node's change, ``None`` if nothing does."""
    try:
        new = _lens(text) if verb != changes.DELETED else Node()
        old = _lens(previous) if verb != changes.ADDED else Node()
        if verb == changes.DELETED:
            old = _lens(text or previous)
    except msgspec.DecodeError:
        # The rows tell what is to be done about its taints; whoever reads it judges its labels.
        return NodeNews(name=name, at=at, taints=True, label_keys=frozenset())
    before, after = old.metadata.labels, new.metadata.labels
    keys: frozenset[str] = frozenset()
    if before != after:
        keys = frozenset(
            key for key in before.keys() | after.keys() if before.get(key) != after.get(key)
        )
    taints = _evicting(old) != _evicting(new) or verb == changes.DELETED
    if not taints and not keys:
        return None
    return NodeNews(name=name, at=at, taints=taints, label_keys=keys)


def _lens(text: str | None) -> Node:
    return Node() if text is None else _decode_node(text.replace("\x01", ""))


def _evicting(node: Node) -> list[Taint]:
    return [taint for taint in node.spec.taints if taint.effect == "NoExecute"]


def changed_namespaces(cursor: int, mark: int, kinds: Sequence[str]) -> list[str] | None:
    """Return the namespaces in which objects of these kinds changed; ``None``: no longer known.

    Queries up to twice, by index.
    """
    if mark <= cursor:
        return []
    row = sql.fetch_one("SELECT trimmed_revision FROM history WHERE id = 1")
    if row is not None and cursor < row[0]:
        return None
    rows = sql.fetch(
        "SELECT DISTINCT namespace FROM change"
        " WHERE revision > %s::bigint AND revision <= %s::bigint AND kind = ANY(%s)",
        (cursor, mark, sql.Int4s([changes.KINDS[kind] for kind in kinds])),
    )
    return [row[0] for row in rows]


def budget_namespaces() -> list[str]:
    """Return the namespaces that have disruption budgets. Queries once."""
    rows = sql.fetch("SELECT DISTINCT namespace FROM pod_disruption_budget ORDER BY namespace")
    return [row[0] for row in rows]


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there is anything to do for those who look at the log, without reading it.

    ``revisions`` and ``states`` are what the controllers keep, by name, of those that ever looked.
    """

    mark: int
    unjudged: bool
    """Some node reported its use, and nobody looked at that."""
    terminating_namespaces: bool
    set_aside: bool
    """Some follower goes on without some object."""
    revisions: dict[str, int]
    states: dict[str, dict[str, Any]]

    def is_behind(self, name: str) -> bool:
        """Return whether the log is complete beyond what this controller acted on."""
        return self.revisions.get(name, -1) < self.mark


_UNJUDGED = "judged_at IS NULL OR judged_at < reported_at"
_GLANCE = f"""
SELECT g.mark, g.unjudged, g.terminating, g.aside, g.last, g.ceiling,
       c.name, c.revision, c.state::text
FROM (SELECT m.mark, m.last, m.ceiling,
             EXISTS (SELECT 1 FROM node_usage WHERE {_UNJUDGED}) AS unjudged,
             EXISTS (SELECT 1 FROM namespace WHERE deletion_at IS NOT NULL) AS terminating,
             EXISTS (SELECT 1 FROM set_aside) AS aside
      FROM ({changes.WATERMARK}) m) g
LEFT JOIN controller_cursor c ON c.name = ANY(%s)
"""


def glance(names: Sequence[str]) -> Glance:
    """Return what there may be to do for these controllers. Queries once."""
    rows = changes.following(lambda: sql.fetch(_GLANCE, (sql.Texts(list(names)),)))
    kept = [(row[6], row[7], row[8]) for row in rows if row[6] is not None]
    mark, unjudged, terminating, aside, last, ceiling = rows[0][:6]
    lineage.reserve(last, ceiling)
    return Glance(
        mark=mark,
        unjudged=unjudged,
        terminating_namespaces=terminating,
        set_aside=aside,
        revisions={name: revision for name, revision, _ in kept},
        states={name: msgspec.json.decode(state) for name, _, state in kept},
    )


# Whom it concerns -----------------------------------------------------------------------------

_LIVE = "p.deletion_at IS NULL AND p.phase NOT IN ('Succeeded', 'Failed')"


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


BOUND_AT: Final = "coalesce(p.bound_at, p.scheduled_at, p.created_at)"
"""When a bound pod was bound; a pod of an older version knows that from its condition."""
_STAYS = f"SELECT p.id, p.node_name, p.class_id, {BOUND_AT} FROM pod p"


def stays_on(node_names: Sequence[str]) -> list[Stay]:
    """Return the live pods on the nodes. Queries once, by index."""
    rows = sql.fetch(
        f"{_STAYS} WHERE p.node_name = ANY(%s) AND p.node_name <> '' AND {_LIVE}",
        (sql.Texts(list(node_names)),),
    )
    return [Stay(*row) for row in rows]


def stays_of(pod_ids: Sequence[int]) -> list[Stay]:
    """Return those among the pods that are live and bound. Queries once."""
    rows = sql.fetch(
        f"{_STAYS} WHERE p.id = ANY(%s) AND p.node_name <> '' AND {_LIVE}",
        (sql.Int8s(list(pod_ids)),),
    )
    return [Stay(*row) for row in rows]


def executing_places(
    *, node_names: Sequence[str] | None = None, pod_ids: Sequence[int] | None = None
) -> list[Place]:
    """Return where live pods are whose class has terms that hold during execution (R3).

    On all nodes, on some, or of some pods. Queries once; other classes are not looked at.
    """
    where, parameters = "", list[Any]()
    if node_names is not None:
        where, parameters = "AND p.node_name = ANY(%s)", [sql.Texts(list(node_names))]
    if pod_ids is not None:
        where, parameters = "AND p.id = ANY(%s)", [sql.Int8s(list(pod_ids))]
    rows = sql.fetch(
        "SELECT DISTINCT p.node_name, p.class_id FROM scheduling_class c"
        " JOIN pod p ON p.class_id = c.id"
        f" WHERE strpos(c.spec, '\"{FIELD}\"') > 0 AND p.node_name <> '' AND {_LIVE} {where}",
        parameters,
    )
    return [Place(*row) for row in rows]


def specs(class_ids: Sequence[int]) -> dict[int, str]:
    """Return the specs of scheduling classes by id. Queries once."""
    rows = sql.fetch(
        "SELECT id, spec FROM scheduling_class WHERE id = ANY(%s)", (sql.Int8s(list(class_ids)),)
    )
    return {class_id: spec for class_id, spec in rows}  # noqa: C416  # typed, unlike dict(rows)


def node_labels(node_names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the labels of those nodes that exist. Queries once."""
    rows = sql.fetch(
        "SELECT name, labels::text FROM node WHERE name = ANY(%s)", (sql.Texts(list(node_names)),)
    )
    return {name: msgspec.json.decode(text) for name, text in rows}


# Who waits ------------------------------------------------------------------------------------

_TIMERS = """
SELECT t.pod_id, p.uid::text, p.namespace, p.name, t.node_name, t.cause, t.taint_key,
       coalesce((SELECT x.value FROM taint x JOIN node n ON n.id = x.node_id
                 WHERE n.name = t.node_name AND x.key = t.taint_key
                   AND x.effect = t.taint_effect), ''),
       t.taint_effect, t.seconds, t.started_at, t.due_at, t.blocked_by, t.landing::text
FROM eviction_timer t JOIN pod p ON p.id = t.pod_id
WHERE p.deletion_at IS NULL {where}
ORDER BY t.due_at, t.pod_id, t.cause LIMIT %s::bigint
"""


def waiting(
    *,
    namespace: str = "",
    name: str = "",
    node_name: str = "",
    after: tuple[datetime, int] | None = None,
    limit: int = 500,
) -> list[Timer]:
    """Return timers by due time: all, of a namespace, of one pod, or of one node. Queries once.

    ``after`` is the due time and pod id at which the page before ended.
    """
    conditions, parameters = [""], list[Any]()
    for column, value in (("p.namespace", namespace), ("p.name", name), ("t.node_name", node_name)):
        if value:
            conditions.append(f"{column} = %s")
            parameters.append(value)
    if after is not None:
        conditions.append("(t.due_at, t.pod_id) > (%s::timestamptz, %s::bigint)")
        parameters += after
    statement = _TIMERS.replace("{where}", " AND ".join(conditions))
    rows = sql.fetch(statement, [*parameters, limit])
    return [Timer(**dict(zip(Timer.__struct_fields__, row, strict=True))) for row in rows]


def next_due() -> datetime | None:
    """Return when the next timer is due, ``None`` if none waits. Queries once, by index."""
    row = sql.fetch_one("SELECT due_at FROM eviction_timer ORDER BY due_at, pod_id LIMIT 1")
    return None if row is None else row[0]


DueTaint = tuple[int, datetime, int | None]
"""Pod, due time and grace period of a taint's timer."""


def due_taints(
    now: datetime, *, after: tuple[datetime, int] | None = None, limit: int
) -> list[DueTaint]:
    """Return the taints' timers that are due. Queries once, by index.

    The earliest first; those of the same moment by pod. ``after`` is the due time and pod at which
    the batch before ended.
    """
    begin = "AND (due_at, pod_id) > (%s::timestamptz, %s::bigint) " if after else ""
    rows = sql.fetch(
        f"SELECT pod_id, due_at, grace_seconds FROM eviction_timer"
        f" WHERE due_at <= %s::timestamptz AND cause = '{TAINT}' {begin}"
        "ORDER BY due_at, pod_id LIMIT %s::bigint",
        (now, *(after or ()), limit),
    )
    return [(pod_id, due_at, grace) for pod_id, due_at, grace in rows]


def is_execution_due(now: datetime) -> bool:
    """Return whether a timer for node labels is due. Queries once, by an index of its own."""
    row = sql.fetch_one(
        f"SELECT due_at FROM eviction_timer WHERE cause = '{DURING_EXECUTION}'"
        " ORDER BY due_at, pod_id LIMIT 1"
    )
    return row is not None and row[0] <= now


def unforeseen(due_at: datetime, *, limit: int) -> list[tuple[int, str, str]]:
    """Return id, namespace and name of pods about to leave for node labels, whereto unknown yet.

    Those due by ``due_at``, the earliest first. Queries once, by index.
    """
    rows = sql.fetch(
        "SELECT t.pod_id, p.namespace, p.name FROM eviction_timer t JOIN pod p ON p.id = t.pod_id"
        f" WHERE t.cause = '{DURING_EXECUTION}' AND t.due_at <= %s::timestamptz"
        " AND t.landing IS NULL AND p.deletion_at IS NULL"
        " ORDER BY t.due_at, t.pod_id LIMIT %s::bigint",
        (due_at, limit),
    )
    return [(id_, namespace, name) for id_, namespace, name in rows]


def count() -> int:
    """Return how many timers wait. Queries once; counts them all."""
    row = sql.fetch_one("SELECT count(*) FROM eviction_timer")
    assert row is not None
    waiting_now: int = row[0]
    return waiting_now


LATENESS_BOUNDS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0)
FIGURES: Final = "eviction-figures"


class Figures(msgspec.Struct, kw_only=True):
    """Evictions so far: how many were later than none, one, two ... of ``LATENESS_BOUNDS``."""

    evicted: int = 0
    seconds: float = 0.0
    later_than: list[int] = msgspec.field(default_factory=lambda: [0] * (len(LATENESS_BOUNDS) + 1))

    def add(self, lateness: Sequence[float]) -> None:
        """Count evictions by the seconds from their due time to when they were durable."""
        self.evicted += len(lateness)
        for seconds in lateness:
            self.seconds += max(0.0, seconds)
            self.later_than[bisect_left(LATENESS_BOUNDS, seconds)] += 1


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How many timers wait by cause, how long the first is overdue (0: none), and what was done."""

    waiting: dict[str, int]
    overdue_seconds: float
    figures: Figures


def standing(now: datetime) -> Standing:
    """Return how the timers stand. Queries thrice; counts them all."""
    rows = sql.fetch("SELECT cause, count(*) FROM eviction_timer GROUP BY cause")
    due = next_due()
    overdue = 0.0 if due is None else max(0.0, (now - due).total_seconds())
    return Standing(
        waiting={TAINT: 0, DURING_EXECUTION: 0} | {cause: number for cause, number in rows},  # noqa: C416
        overdue_seconds=overdue,
        figures=msgspec.convert(controller_state(FIGURES), Figures),
    )


# Who is on the way out -----------------------------------------------------------------------

NODE_LEASES: Final = "kube-node-lease"
POD_DELETION: Final = "pod-deletion"
"""The follower that ends deletions; what it has set aside is not among what it finds."""

_WITH_AGENT = f"""
SELECT l.name FROM lease l WHERE l.namespace = '{NODE_LEASES}'
UNION ALL SELECT h.node_name FROM node_heartbeat h WHERE h.heard_at IS NOT NULL
"""
"""The nodes for which somebody plays the agent: it renews a lease, or the node's status."""
# NOT IN, so that the names are hashed once: many pods may be on their way from few nodes.
# Who deletes a pod and asks for another period than the pod's own means to wait for so long.
_ASKED_TO_WAIT = """(
    SELECT asked IS NOT NULL AND asked <> coalesce(own, '30')
    FROM (SELECT replace(d.text, chr(1), '')::json AS said OFFSET 0) j,
         LATERAL (SELECT j.said #>> '{metadata,deletionGracePeriodSeconds}' AS asked,
                         j.said #>> '{spec,terminationGracePeriodSeconds}' AS own) k)"""
_FINISHABLE = f"""
SELECT p.id FROM terminating_pod t JOIN pod p ON p.id = t.pod_id
JOIN document d ON d.id = p.document_id
WHERE (t.deletion_at <= %s::timestamptz
       OR (p.node_name NOT IN ({_WITH_AGENT})
           AND (t.deletion_at <= %s::timestamptz OR NOT {_ASKED_TO_WAIT}))
       OR p.node_name NOT IN (SELECT n.name FROM node n))
  AND position('"finalizers":[' in d.text) = 0
  AND NOT EXISTS (SELECT 1 FROM set_aside s WHERE s.follower = '{POD_DELETION}' AND s.kind = 'Pod'
                  AND s.object_id = p.id AND s.revision = p.revision)
ORDER BY t.deletion_at, t.pod_id LIMIT %s::bigint
"""


def finishable(*, now: datetime, overdue_at: datetime, limit: int) -> list[int]:
    """Return terminating pods that nobody will delete, or nobody did. Queries once.

    Those on no node, on one that is gone or on one that has no agent, and those whose grace period
    was over at ``overdue_at``; not those that a finalizer keeps. A pod on a node without an agent
    whose deletion asked for a period other than the pod's own waits until that is over at ``now``.
    """
    return [row[0] for row in sql.fetch(_FINISHABLE, (overdue_at, now, limit))]


# What nobody looks after any more -------------------------------------------------------------

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


POD_GC: Final = "pod-gc"
"""The follower that collects them; what it has set aside is not among what it finds."""
_NOT_ASIDE = f"""NOT EXISTS (SELECT 1 FROM set_aside s WHERE s.follower = '{POD_GC}'
    AND s.kind = 'Pod' AND s.object_id = p.id AND s.revision = p.revision)"""


class Left(msgspec.Struct, frozen=True):
    """A pod that nobody looks after any more."""

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


def left_behind(node_names: Sequence[str], *, bound_by: datetime, limit: int) -> list[Left]:
    """Return pods on nodes of these names, none of which exists, bound by then. Queries once.

    Not those that are ending and that a finalizer keeps.
    """
    rows = sql.fetch(
        f"{_LEFT} JOIN document d ON d.id = p.document_id"
        " WHERE p.node_name = ANY(%s) AND p.node_name <> ''"
        f" AND {BOUND_AT} <= %s::timestamptz"
        " AND NOT EXISTS (SELECT 1 FROM node n WHERE n.name = p.node_name)"
        " AND NOT (p.deletion_at IS NOT NULL AND position('\"finalizers\":[' in d.text) > 0)"
        f" AND {_NOT_ASIDE} ORDER BY p.id LIMIT %s::bigint",
        (sql.Texts(list(node_names)), bound_by, limit),
    )
    return [Left(*row) for row in rows]


def out_of_service(*, limit: int) -> list[Left]:
    """Return terminating pods on nodes that are not ready and are out of service. Queries once.

    Not those that a finalizer keeps.
    """
    rows = sql.fetch(
        f"{_LEFT} JOIN terminating_pod e ON e.pod_id = p.id JOIN document d ON d.id = p.document_id"
        " WHERE p.node_name IN (SELECT n.name FROM node n JOIN taint t ON t.node_id = n.id"
        f"                      WHERE t.key = '{OUT_OF_SERVICE}' AND EXISTS ("
        "                          SELECT 1 FROM taint r WHERE r.node_id = n.id AND r.key IN"
        "                          ('node.kubernetes.io/not-ready',"
        "                           'node.kubernetes.io/unreachable')))"
        f" AND position('\"finalizers\":[' in d.text) = 0 AND {_NOT_ASIDE}"
        " ORDER BY p.id LIMIT %s::bigint",
        (limit,),
    )
    return [Left(*row) for row in rows]


def finished_beyond(threshold: int, *, limit: int) -> list[Left]:
    """Return finished pods to do without, so that ``threshold`` are left. Queries twice at most.

    Those evicted first, then the oldest. Looks at all pods.
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
    return [Left(*row) for row in rows]


# Nodes ----------------------------------------------------------------------------------------


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


# Use ------------------------------------------------------------------------------------------


class Signal(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How much of a resource the node has left, in bytes or processes.

    Below ``threshold`` for longer than ``grace_period_seconds`` pods go, until ``minimum_reclaim``
    above it is free.
    """

    available: int
    threshold: int
    minimum_reclaim: int = 0
    grace_period_seconds: float = 0


class PodUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one pod uses; ``containers`` by name, in bytes of memory."""

    namespace: str
    name: str
    memory_bytes: int = 0
    disk_bytes: int = 0
    processes: int = 0
    containers: dict[str, int] = {}


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node's report: what is left of ``memory``, ``disk`` and ``pid``, and the pods' use."""

    memory: Signal | None = None
    disk: Signal | None = None
    pid: Signal | None = None
    pods: tuple[PodUsage, ...] = ()

    @property
    def signals(self) -> dict[str, Signal]:
        """What is reported, by the node condition that speaks of it."""
        found = (
            ("MemoryPressure", self.memory),
            ("DiskPressure", self.disk),
            ("PIDPressure", self.pid),
        )
        return {condition: signal for condition, signal in found if signal is not None}

    @property
    def pressures(self) -> list[str]:
        """The conditions of what the node has less of than it must."""
        return [name for name, one in self.signals.items() if one.available < one.threshold]


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A node's last report, when it came, and what was concluded from the one before."""

    node_name: str
    usage: Report
    reported_at: datetime
    outcome: dict[str, Any]
    judged_at: datetime | None


_REPORTED = "SELECT node_name, usage::text, reported_at, outcome::text, judged_at FROM node_usage"


def unjudged() -> list[Reported]:
    """Return the reports that nobody has looked at. Queries once."""
    rows = sql.fetch(f"{_REPORTED} WHERE {_UNJUDGED} ORDER BY reported_at")
    return [_reported(row) for row in rows]


def usage_of(node_name: str) -> Reported | None:
    """Return a node's last report, ``None`` if there is none. Queries once."""
    row = sql.fetch_one(f"{_REPORTED} WHERE node_name = %s", (node_name,))
    return None if row is None else _reported(row)


def _reported(row: sql.Row) -> Reported:
    return Reported(
        node_name=row[0],
        usage=msgspec.json.decode(row[1], type=Report),
        reported_at=row[2],
        outcome=msgspec.json.decode(row[3]),
        judged_at=row[4],
    )


# Owners ---------------------------------------------------------------------------------------


def owner_namespaces() -> list[str]:
    """Return the namespaces with ReplicaSets, ReplicationControllers or Deployments."""
    rows = sql.fetch(
        "SELECT namespace FROM replica_set UNION SELECT namespace FROM replication_controller"
        " UNION SELECT namespace FROM deployment"
    )
    return [row[0] for row in rows]


def class_counts(namespace: str) -> dict[int, int]:
    """Return how many live pods of each class a namespace has. Queries once."""
    rows = sql.fetch(
        f"SELECT p.class_id, count(*) FROM pod p WHERE p.namespace = %s AND {_LIVE}"
        " GROUP BY p.class_id",
        (namespace,),
    )
    return {class_id: number for class_id, number in rows}  # noqa: C416  # typed, unlike dict(rows)


def surplus(class_ids: Sequence[int], count: int) -> list[tuple[str, str, str]]:
    """Return namespace, name and uid of live pods to do without: unbound first, then the newest."""
    rows = sql.fetch(
        "SELECT p.namespace, p.name, p.uid::text FROM pod p"
        f" WHERE p.class_id = ANY(%s) AND {_LIVE}"
        " ORDER BY p.node_name <> '', p.phase = 'Running', p.id DESC LIMIT %s::bigint",
        (sql.Int8s(list(class_ids)), count),
    )
    return [(namespace, name, uid) for namespace, name, uid in rows]


def controller_state(name: str) -> dict[str, Any]:
    """Return what a controller keeps between passes, empty if nothing. Queries once."""
    row = sql.fetch_one("SELECT state::text FROM controller_cursor WHERE name = %s", (name,))
    return {} if row is None else msgspec.json.decode(row[0])

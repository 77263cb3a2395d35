"""Changes in the log that may set, move or end an eviction timer."""

from datetime import datetime

import msgspec

from clusterstate.change_log import changes, lineage
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.node import Node, Taint
from clusterstate.queries.pods.stays import EXECUTION_FIELD

_decode_node = msgspec.json.Decoder(Node).decode


class NodeNews(msgspec.Struct, frozen=True, kw_only=True):
    """How a node changed: its NoExecute taints, or the labels ``label_keys``; ``at`` is when."""

    name: str
    at: datetime
    taints: bool
    label_keys: frozenset[str]


class News(msgspec.Struct, frozen=True, kw_only=True):
    """Changes up to ``cursor``: nodes that changed, and pods whose timers may differ now."""

    nodes: list[NodeNews]
    pod_ids: list[int]
    cursor: int
    more: bool


# The timers run this after every few changes of nodes. The subqueries hide the revisions from the
# planner, which would otherwise plan anew for each of them, at ten times the cost of reading. Texts
# are looked up one by one, whatever the tables held when the plan was made: a join planned for
# empty tables would read all documents.
_RANGE = "c.revision > (SELECT %s::bigint) AND c.revision <= (SELECT %s::bigint)"

_NODE_NEWS = """
SELECT c.name, c.at, c.verb,
       (SELECT d.text FROM document d WHERE d.id = c.document_id),
       (SELECT p.text FROM document p WHERE p.id = c.previous_document_id)
FROM change c
WHERE {range} AND c.kind = {node}
  AND (c.verb = {deleted} OR c.document_id IS DISTINCT FROM c.previous_document_id)
ORDER BY c.revision
""".format(range=_RANGE, node=KINDS["Node"].code, deleted=changes.DELETED)

_POD_NEWS = """
SELECT DISTINCT c.object_id
FROM change c
WHERE {range} AND c.kind = {pod}
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
""".format(
    range=_RANGE,
    pod=KINDS["Pod"].code,
    added=changes.ADDED,
    deleted=changes.DELETED,
    field=EXECUTION_FIELD,
)


def eviction_news(cursor: int, *, limit: int = 20_000) -> News | None:
    """Return the changes after ``cursor``; ``None`` when these are no longer kept.

    Queries 1-5 times. At most ``limit`` revisions at once. Pods are those that have a timer, are on
    a node that evicts, or have terms that apply during execution.
    """
    mark = changes.watermark()
    if mark <= cursor:
        return News(nodes=[], pod_ids=[], cursor=cursor, more=False)
    if cursor < lineage.kept_after():
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
    """Return the part of a node's change that affects timers, ``None`` for none."""
    try:
        new = _lens(text) if verb != changes.DELETED else Node()
        old = _lens(previous) if verb != changes.ADDED else Node()
        if verb == changes.DELETED:
            old = _lens(text or previous)
    except msgspec.DecodeError:
        # The writer of timers reads its taints from rows; labels are judged by their keys.
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

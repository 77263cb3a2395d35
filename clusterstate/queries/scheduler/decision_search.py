"""A search for decisions across pods: the newest first, a bounded stretch of them at a time."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from clusterstate.change_log.changes import ADDED
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.document import SLOT
from clusterstate.objects.values.meta import Manifest

STRETCH: Final = 200_000
"""Decisions that one search looks at, at most: rare ones may take several searches to find."""
_LAST: Final = 1 << 62
_MOST_PODS: Final = 100_000


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of a search; empty ones are ignored.

    ``reason`` is part of the message. ``owner`` is ``KIND/NAME``: the controller of the pod, or a
    Deployment; it needs ``namespace``, and is known for existing pods and those that left while the
    change log is kept. ``actor``: who created the pod, known while the change log is kept.
    ``until`` is exclusive.
    """

    namespace: str = ""
    name: str = ""
    node: str = ""
    reason: str = ""
    outcome: str = ""
    profile: str = ""
    owner: str = ""
    actor: str = ""
    since: datetime | None = None
    until: datetime | None = None


class DecisionSummary(msgspec.Struct, frozen=True, gc=False):
    """A decision without its scores. ``margin`` is ``None`` without a runner-up."""

    id: int
    at: datetime
    namespace: str
    name: str
    uid: str
    outcome: str
    node_name: str
    message: str
    total: int
    margin: int | None
    ties: int
    node_count: int
    evaluated: int
    feasible: int
    profile: str
    profile_revision: int
    snapshot_revision: int
    class_id: int
    seed: int
    draw: int
    scheduler: int
    epoch: int
    number: int

    def manifest(self) -> Manifest:
        """Return the decision as JSON for lists."""
        return {
            "id": str(self.id),
            "at": self.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "pod": {"namespace": self.namespace, "name": self.name, "uid": self.uid},
            "outcome": self.outcome,
            "nodeName": self.node_name,
            "message": self.message,
            "total": self.total,
            "margin": self.margin,
            "ties": self.ties,
            "nodes": {
                "known": self.node_count,
                "evaluated": self.evaluated,
                "feasible": self.feasible,
            },
            "profile": {"schedulerName": self.profile, "revision": self.profile_revision},
            "snapshotRevision": str(self.snapshot_revision),
        }


_COLUMNS: Final = ", ".join(
    "pod_uid::text" if name == "uid" else name for name in DecisionSummary.__struct_fields__
)
_TEXTS: Final = {"namespace", "name", "node", "outcome", "profile"}
_NAMES: Final = {"node": "node_name"}
_NEXT: Final = """
    SELECT id FROM decision WHERE id < %s::bigint
      AND (%s::timestamptz IS NULL OR at >= %s::timestamptz)
    ORDER BY id DESC OFFSET %s::bigint LIMIT 1
"""


class Chosen(msgspec.Struct, frozen=True):
    """A search, with the ids of its pods (``choose``).

    ``pods``: ``None`` for any pod.
    """

    filters: Search
    pods: Sequence[int] | None


class Page(msgspec.Struct, frozen=True):
    """Decisions, the newest first. ``more``: the id before which to continue, 0 for none."""

    items: list[DecisionSummary]
    more: int


def choose(filters: Search) -> Chosen:
    """Return a search with the ids of its pods.

    Queries up to five times if it has an owner or an actor: then it reads all pods of a namespace,
    or all changes.
    """
    return Chosen(filters, _pods(filters))


def search(filters: Search | Chosen, *, limit: int, before: int = 0) -> Page:
    """Return a page of decisions. Queries twice, besides what ``choose`` does.

    Reads ``STRETCH`` decisions, so a page may have fewer than ``limit``, or none, without being the
    last one.
    """
    before = before or _LAST
    chosen = filters if isinstance(filters, Chosen) else choose(filters)
    filters, pods = chosen.filters, chosen.pods
    conditions, parameters = _conditions(filters)
    if pods is not None:
        if not pods:
            return Page([], 0)
        conditions.append("pod_id = ANY(%s)")
        parameters.append(sql.Int8s(pods))
    end = sql.fetch_one(_NEXT, (before, filters.since, filters.since, STRETCH))
    low = 0 if end is None else int(end[0])
    where = " AND ".join(["id < %s::bigint", "id >= %s::bigint", *conditions])
    rows = sql.fetch(
        f"SELECT {_COLUMNS} FROM decision WHERE {where} ORDER BY id DESC LIMIT %s::bigint",
        (before, low, *parameters, limit + 1),
    )
    items = [DecisionSummary(*row) for row in rows[:limit]]
    return Page(items, items[-1].id if len(rows) > limit else low)


def pages(filters: Search, *, at_once: int = 5000) -> Iterator[list[DecisionSummary]]:
    """Yield all decisions that are found, page by page. Queries for each."""
    before = 0
    chosen = choose(filters)
    while True:
        page = search(chosen, limit=at_once, before=before)
        if page.items:
            yield page.items
        if not page.more:
            return
        before = page.more


def _conditions(filters: Search) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    parameters: list[Any] = []
    for field in sorted(_TEXTS):
        if value := getattr(filters, field):
            conditions.append(f"{_NAMES.get(field, field)} = %s")
            parameters.append(value)
    if filters.reason:
        conditions.append("strpos(message, %s) > 0")
        parameters.append(filters.reason)
    if filters.since is not None:
        conditions.append("at >= %s::timestamptz")
        parameters.append(filters.since)
    if filters.until is not None:
        conditions.append("at < %s::timestamptz")
        parameters.append(filters.until)
    return conditions, parameters


def _pods(filters: Search) -> Sequence[int] | None:
    """Return the ids of the pods that match, ``None`` for all."""
    found: set[int] | None = None
    if filters.owner:
        found = _owned(filters.namespace, filters.owner)
    if filters.actor:
        created = _created_by(filters.actor)
        found = created if found is None else found & created
    return None if found is None else sorted(found)


_CREATED_BY: Final = f"""
    SELECT object_id FROM change
    WHERE kind = {KINDS["Pod"].code} AND verb = {ADDED}
      AND actor_id IN (SELECT id FROM actor WHERE name = %s)
    ORDER BY revision DESC LIMIT {_MOST_PODS}
"""
_OWNED: Final = f"""
    SELECT p.id, d.text FROM pod p JOIN document d ON d.id = p.document_id
    WHERE p.namespace = %s AND strpos(d.text, %s) > 0
    UNION ALL
    SELECT c.object_id, d.text FROM change c JOIN document d ON d.id = c.document_id
    WHERE c.kind = {KINDS["Pod"].code} AND c.verb = 3 AND c.namespace = %s
      AND strpos(d.text, %s) > 0
    LIMIT {_MOST_PODS}
"""
_REPLICA_SETS: Final = """
    SELECT t.name, d.text FROM replica_set t JOIN document d ON d.id = t.document_id
    WHERE t.namespace = %s AND strpos(d.text, %s) > 0
"""


def _created_by(actor: str) -> set[int]:
    return {row[0] for row in sql.fetch(_CREATED_BY, (actor,))}


def _owned(namespace: str, owner: str) -> set[int]:
    """Return the ids of a controller's pods, for a Deployment through its ReplicaSets."""
    kind, _, name = owner.partition("/")
    owners = [(kind, name)]
    if kind == "Deployment":
        rows = sql.fetch(_REPLICA_SETS, (namespace, _quoted(name)))
        owners = [("ReplicaSet", each) for each, text in rows if _owner(text) == (kind, name)]
    found = set()
    for one in owners:
        named = _quoted(one[1])
        for pod_id, text in sql.fetch(_OWNED, (namespace, named, namespace, named)):
            if _owner(text) == one:
                found.add(pod_id)
    return found


def _quoted(name: str) -> str:
    return f'"name":{msgspec.json.encode(name).decode()}'


class _Reference(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    owner_references: tuple[_Reference, ...] = ()


class _Owned(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_decode = msgspec.json.Decoder(_Owned).decode


def _owner(text: str) -> tuple[str, str] | None:
    references = _decode(text.replace(SLOT, "")).metadata.owner_references
    return next(((one.kind, one.name) for one in references if one.controller), None)

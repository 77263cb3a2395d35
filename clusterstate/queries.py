"""Reads: rows in, plain values out. Nothing here writes.

Objects come out as JSON bytes: the stored document with its slots filled, unparsed. Lists are
*exact as of a revision*: ``list_page`` answers with the state at the low watermark, so that a watch
from the page's revision misses nothing and repeats nothing, and later pages of the same list show
the same state. Rows written after that revision are replaced by what the change log says they were
before, which is why every change carries the previous version.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from django.db import connection, transaction
from psycopg.types.range import Range

from clusterstate import changes, lineage, sql
from clusterstate.objects import document, fields
from clusterstate.objects.errors import BadRequest, Expired, NotFound
from clusterstate.objects.fields import FieldRequirement
from clusterstate.objects.kinds import KINDS, Kind
from clusterstate.objects.labels import (
    DOES_NOT_EXIST,
    DOUBLE_EQUALS,
    EQUALS,
    EXISTS,
    GREATER_THAN,
    IN,
    LESS_THAN,
    NOT_EQUALS,
    NOT_IN,
    Requirement,
    Selector,
    SelectorError,
    parse_selector,
)
from clusterstate.objects.meta import Manifest

TABLES: Final[dict[str, str]] = {
    "Pod": "pod",
    "Node": "node",
    "Namespace": "namespace",
    "RuntimeClass": "runtime_class",
    "PriorityClass": "priority_class",
    "PodDisruptionBudget": "pod_disruption_budget",
    "Service": "service",
    "ReplicationController": "replication_controller",
    "ReplicaSet": "replica_set",
    "StatefulSet": "stateful_set",
    "DaemonSet": "daemon_set",
    "Deployment": "deployment",
    "Lease": "lease",
    "LimitRange": "limit_range",
    "ResourceQuota": "resource_quota",
    "Event": "event",
}
"""The table of each kind."""

MAX_PAGE: Final = 1_000_000
_SNAPSHOT_SECONDS = 600
_TAKE_TIME = "SELECT " + ", ".join(
    f"set_config('{limit}_timeout', '{_SNAPSHOT_SECONDS}s', true)"
    for limit in ("transaction", "statement", "idle_in_transaction_session")
)
_EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start"
    " a new list without the continue parameter."
)
_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder()


class Page(msgspec.Struct, frozen=True):
    """Part of a list, as of ``revision``. ``continue_token`` is empty on the last page.

    ``remaining`` counts what follows, where that is known (it is not with selectors).
    """

    items: list[bytes]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


class TokenUser(msgspec.Struct, frozen=True):
    """Whom a bearer token stands for."""

    name: str
    groups: tuple[str, ...]


class NodeRow(msgspec.Struct, frozen=True):
    """A node as stored; ``manifest`` is its JSON."""

    id: int
    name: str
    revision: int
    placement_revision: int
    manifest: bytes


class ClassRow(msgspec.Struct, frozen=True):
    """A scheduling class; ``spec`` is the reduced Pod manifest as JSON."""

    id: int
    spec: bytes


class PendingRow(msgspec.Struct, frozen=True):
    """An unbound pod and its place in the queue."""

    id: int
    uid: str
    namespace: str
    name: str
    class_id: int
    revision: int
    priority: int
    scheduler_name: str
    nominated_node_name: str
    created_at: datetime
    deletion_at: datetime | None
    stage: str
    attempts: int
    not_before: datetime | None
    since: datetime
    rejected_by: list[str]
    message: str
    refused_revision: int
    refused_under: int


class PodRow(msgspec.Struct, frozen=True):
    """A pod as the scheduler and the controllers see it, without its manifest."""

    id: int
    uid: str
    namespace: str
    name: str
    class_id: int
    revision: int
    node_name: str
    phase: str
    priority: int
    created_at: datetime
    deletion_at: datetime | None


class OvercommittedNode(msgspec.Struct, frozen=True):
    """A node whose pods ask for more than it offers; ``resource`` names what."""

    name: str
    resource: str
    used: int
    allocatable: int


def kind_of(kind: Kind | str) -> Kind:
    """Return the registry's entry for a kind or its name."""
    return KINDS[kind] if isinstance(kind, str) else kind


def not_found(kind: Kind | str, name: str) -> NotFound:
    """Return the error ``pods "x" not found``."""
    kind = kind_of(kind)
    details: dict[str, Any] = {"name": name, "kind": kind.plural}
    if kind.group:
        details["group"] = kind.group
    return NotFound(f'{kind.resource} "{name}" not found', details)


# Single objects -------------------------------------------------------------------------------

POD_OVERLAY: Final = "t.node_name, t.scheduled_at, t.unschedulable, t.eviction"
"""The columns of a pod ``t`` that ``overlay`` takes."""
_TIMER = """
       (SELECT (e.due_at, e.started_at, e.cause, e.taint_key, e.taint_effect)
        FROM eviction_timer e WHERE e.pod_id = t.id ORDER BY e.due_at LIMIT 1)"""
_GET_POD = f"""
SELECT d.text, t.revision, {POD_OVERLAY}, {_TIMER}
FROM pod t JOIN document d ON d.id = t.document_id
WHERE t.namespace = %s AND t.name = %s
"""
_EVENT_COLUMNS = (
    "t.namespace, t.name, t.revision, t.uid, t.involved_kind, t.involved_api_version,"
    " t.involved_namespace, t.involved_name, t.involved_uid, t.involved_resource_version,"
    " t.involved_field_path, t.reason, t.type, t.message, t.component, t.count, t.first_at,"
    " t.last_at, d.text"
)
_EVENT_FROM = "event t LEFT JOIN document d ON d.id = t.document_id"


@lru_cache(maxsize=64)
def _get_statement(table: str, *, namespaced: bool) -> str:
    where = "t.namespace = %s AND t.name = %s" if namespaced else "t.name = %s"
    return (
        f"SELECT d.text, t.revision FROM {table} t JOIN document d ON d.id = t.document_id"
        f" WHERE {where}"
    )


def find(kind: Kind | str, namespace: str, name: str) -> bytes | None:
    """Return an object as JSON, or ``None``. Queries once; ``namespace`` is empty where none."""
    kind = kind_of(kind)
    if kind.name == "Pod":
        row = sql.fetch_one(_GET_POD, (namespace, name))
        if row is None:
            return None
        return _compose_now(*row)
    if kind.name == "Event":
        row = sql.fetch_one(
            f"SELECT {_EVENT_COLUMNS} FROM {_EVENT_FROM} WHERE t.namespace = %s AND t.name = %s",
            (namespace, name),
        )
        return None if row is None else compose_event(row)
    key = (namespace, name) if kind.namespaced else (name,)
    row = sql.fetch_one(_get_statement(TABLES[kind.name], namespaced=kind.namespaced), key)
    return None if row is None else document.compose(row[0], row[1])


_FIND_PODS = f"""
SELECT k.position, d.text, t.revision, {POD_OVERLAY}, {_TIMER}
FROM unnest(%s, %s) WITH ORDINALITY AS k(namespace, name, position)
JOIN pod t ON t.namespace = k.namespace AND t.name = k.name
JOIN document d ON d.id = t.document_id
"""


def find_pods(keys: Sequence[tuple[str, str]]) -> list[bytes | None]:
    """Return pods by namespace and name as JSON, ``None`` for those that are not. Queries once."""
    if len(keys) == 1:
        return [find("Pod", *keys[0])]
    found: list[bytes | None] = [None] * len(keys)
    spaces, names = zip(*keys, strict=True)
    for position, *row in sql.fetch(_FIND_PODS, (sql.Texts(spaces), sql.Texts(names))):
        found[position - 1] = _compose_now(*row)
    return found


def get(kind: Kind | str, namespace: str, name: str) -> bytes:
    """Return an object as JSON. Queries once; ``namespace`` is empty for kinds without.

    Raises:
        NotFound: there is none.
    """
    found = find(kind, namespace, name)
    if found is None:
        raise not_found(kind, name)
    return found


def get_manifest(kind: Kind | str, namespace: str, name: str) -> Manifest:
    """Return an object, decoded. Queries once.

    Raises:
        NotFound: there is none.
    """
    return decode(get(kind, namespace, name))


def decode(item: bytes) -> Manifest:
    """Return an object's JSON as a manifest."""
    manifest: Manifest = _decoder.decode(item)
    return manifest


def _compose_now(
    text: str,
    revision: int,
    node_name: str,
    scheduled_at: datetime | None,
    unschedulable: str | None,
    eviction: Range[datetime] | None,
    timer: tuple[Any, ...] | None,
) -> bytes:
    """Return a pod as it is now: with its eviction to come, which is no part of its version.

    Lists and watches are exact as of a revision and leave it out: a timer that is set or moved
    changes no pod, so that no watch could tell of it.
    """
    slots = overlay(node_name, scheduled_at, unschedulable, eviction)
    if timer is not None:
        slots = msgspec.structs.replace(slots, leaving=_leaving(*timer))
    return document.compose(text, revision, slots)


def _leaving(
    due_at: datetime, started_at: datetime, cause: str, taint_key: str, taint_effect: str
) -> str:
    """Return the condition of a pod whose eviction timer runs, as JSON."""
    why = f"taint {taint_key}:{taint_effect}" if taint_key else "node labels no longer match"
    return _encoder.encode(
        {
            "type": document.LEAVING,
            "status": "True",
            "reason": cause[:1].upper() + cause[1:],
            "message": f"leaves the node at {due_at.isoformat(timespec='milliseconds')}: {why}",
            "lastTransitionTime": document.format_time(started_at),
        }
    ).decode()


def overlay(
    node_name: str | None,
    scheduled_at: datetime | None,
    unschedulable: str | None,
    eviction: Range[datetime] | None,
) -> document.Overlay:
    """Return the slots of a pod, of now or of a change in the log, from its columns."""
    if not node_name and scheduled_at is None and unschedulable is None and eviction is None:
        return document.EMPTY
    evicted: document.Eviction | None = None
    if eviction is not None:
        assert eviction.lower is not None
        assert eviction.upper is not None
        evicted = document.Eviction(eviction.lower, eviction.upper)
    return document.Overlay(
        node_name=node_name or "",
        scheduled_at=scheduled_at,
        unschedulable=unschedulable,
        eviction=evicted,
    )


def compose_event(row: Sequence[Any]) -> bytes:
    """Return a v1 Event from the columns of ``_EVENT_COLUMNS``; a client's from its document."""
    (
        namespace, name, revision, uid, kind, api_version, involved_namespace, involved_name,
        involved_uid, involved_resource_version, field_path, reason, type_, message, component,
        count, first_at, last_at, text,
    ) = row  # fmt: skip
    if text is not None:
        return document.compose(text, revision)
    involved = {"kind": kind, "name": involved_name}
    optional = {
        "apiVersion": api_version,
        "namespace": involved_namespace,
        "uid": involved_uid,
        "resourceVersion": involved_resource_version,
        "fieldPath": field_path,
    }
    involved |= {key: value for key, value in optional.items() if value}
    return _encoder.encode(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": str(uid),
                "resourceVersion": str(revision),
                "creationTimestamp": document.format_time(first_at),
            },
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "type": type_,
            "source": {"component": component} if component else {},
            "reportingComponent": component,
            "reportingInstance": "",
            "count": count,
            "firstTimestamp": document.format_time(first_at),
            "lastTimestamp": document.format_time(last_at),
        }
    )


# Lists ----------------------------------------------------------------------------------------

_POD_COLUMNS = {
    "spec.nodeName": "t.node_name",
    "spec.schedulerName": "t.scheduler_name",
    "status.phase": "t.phase",
    "status.nominatedNodeName": "t.nominated_node_name",
}
_EVENT_FIELDS = {
    "involvedObject.kind": "t.involved_kind",
    "involvedObject.namespace": "t.involved_namespace",
    "involvedObject.name": "t.involved_name",
    "involvedObject.uid": "t.involved_uid",
    "involvedObject.apiVersion": "t.involved_api_version",
    "involvedObject.resourceVersion": "t.involved_resource_version",
    "involvedObject.fieldPath": "t.involved_field_path",
    "reason": "t.reason",
    "reportingComponent": "t.component",
    "source": "t.component",
    "type": "t.type",
}
_CONDITIONS: dict[str, dict[str, str]] = {
    "Pod": _POD_COLUMNS,
    "Event": _EVENT_FIELDS,
    "Node": {"spec.unschedulable": "CASE WHEN t.unschedulable THEN 'true' ELSE 'false' END"},
    "Namespace": {"status.phase": "t.phase"},
}
_DEFAULTS = {"spec.hostNetwork": "false", "status.replicas": "0"}


class _Where:
    """Conditions of a statement and their parameters, collected together."""

    def __init__(self) -> None:
        self.conditions: list[str] = []
        self.parameters: list[Any] = []

    def add(self, condition: str, *parameters: Any) -> None:
        self.conditions.append(condition)
        self.parameters += parameters

    def text(self) -> str:
        return " AND ".join(self.conditions) or "true"


def _label_conditions(where: _Where, column: str, requirements: Sequence[Requirement]) -> None:
    """Add label requirements. ``@>`` and ``?`` use the GIN index; the negations filter."""
    for requirement in requirements:
        operator, key, values = requirement.operator, requirement.key, list(requirement.values)
        if operator in (EQUALS, DOUBLE_EQUALS, IN):
            alternatives = " OR ".join([f"{column} @> %s::text::jsonb"] * len(values))
            where.add(
                f"({alternatives})",
                *(msgspec.json.encode({key: value}).decode() for value in values),
            )
        elif operator in (NOT_EQUALS, NOT_IN):
            where.add(f"({column} ->> %s::text <> ALL(%s)) IS NOT FALSE", key, sql.Texts(values))
        elif operator == EXISTS:
            where.add(f"{column} ? %s::text", key)
        elif operator == DOES_NOT_EXIST:
            where.add(f"NOT {column} ? %s::text", key)
        elif operator in (GREATER_THAN, LESS_THAN):
            sign = ">" if operator == GREATER_THAN else "<"
            # Only what parses as an integer compares; the CASE keeps the cast from seeing the rest.
            where.add(
                f"CASE WHEN {column} ->> %s::text ~ '^[+-]?[0-9]{{1,18}}$'"
                f" THEN ({column} ->> %s::text)::bigint {sign} %s::bigint ELSE false END",
                key,
                key,
                requirement.number,
            )


def _field_conditions(where: _Where, kind: Kind, requirements: Sequence[FieldRequirement]) -> None:
    columns = _CONDITIONS.get(kind.name, {})
    for requirement in requirements:
        sign = "<>" if requirement.negated else "="
        path = requirement.path
        if path == "metadata.name":
            where.add(f"t.name {sign} %s", requirement.value)
        elif path == "metadata.namespace":
            column = "t.namespace" if kind.namespaced else "''::text"
            where.add(f"{column} {sign} %s", requirement.value)
        elif path in columns:
            where.add(f"{columns[path]} {sign} %s", requirement.value)
            if path == "spec.nodeName" and requirement.value and not requirement.negated:
                where.add("t.node_name <> ''")  # lets the partial index serve it
        else:
            # Rare fields live in the document only. Without its slots it is plain JSON.
            default = _DEFAULTS.get(path, "")
            where.add(
                "coalesce(replace(d.text, chr(1), '')::json #>> %s, %s)" + f" {sign} %s",
                sql.Texts(path.split(".")),
                default,
                requirement.value,
            )


def parse_labels(text: str) -> Selector:
    """Return the selector of a ``labelSelector`` parameter.

    Raises:
        BadRequest: it does not parse.
    """
    try:
        return parse_selector(text)
    except SelectorError as error:
        raise BadRequest(f"{error}") from None


def list_page(
    kind: Kind | str,
    namespace: str = "",
    *,
    label_selector: str | Selector = "",
    field_selector: str | Sequence[FieldRequirement] = "",
    limit: int | None = None,
    continue_token: str = "",
    acknowledged: bool = False,
) -> Page:
    """Return objects ordered by namespace and name, as of one revision. Queries twice or thrice.

    An empty ``namespace`` means all. Without ``limit`` everything comes at once. A token goes on
    where its page ended, in the state of the first page. ``acknowledged``: for a client, who
    expects to find what it was told is done; waits about a second at most for transactions that
    are open meanwhile (`changes.settled`), and answers without it then.

    Raises:
        BadRequest: a selector or the token does not parse, or a field is not selectable.
        Expired: the token's revision is no longer kept, or belongs to another history.
    """
    kind = kind_of(kind)
    labels = parse_labels(label_selector) if isinstance(label_selector, str) else label_selector
    chosen = (
        fields.parse_field_selector(kind.name, field_selector)
        if isinstance(field_selector, str)
        else field_selector
    )
    after: tuple[str, str] | None = None
    if continue_token:
        revision, *position = _read_token(continue_token)
        lineage.require(revision)
        after = (position[0], position[1])
    elif acknowledged:
        revision = changes.settled((kind.name,)).mark
    else:
        revision = changes.watermark()
    if labels.nothing:
        return Page([], revision)
    if kind.name == "Event":
        return _list_events(kind, namespace, labels, chosen, revision, limit, after)
    return _list_objects(kind, namespace, labels, chosen, revision, limit, after)


def list_at(kind: Kind | str, revision: int) -> list[bytes]:
    """Return all objects of a kind as they were at ``revision``. Queries once; not for events.

    Raises:
        Expired: the history no longer reaches back so far.
    """
    return _list_objects(kind_of(kind), "", Selector(), (), revision, None, None).items


def _list_objects(
    kind: Kind,
    namespace: str,
    labels: Selector,
    chosen: Sequence[FieldRequirement],
    revision: int,
    limit: int | None,
    after: tuple[str, str] | None,
) -> Page:
    pods, leases = kind.name == "Pod", kind.name == "Lease"
    table = TABLES[kind.name]
    key = "t.namespace, t.name" if kind.namespaced else "''::text AS namespace, t.name"
    order = "t.namespace, t.name" if kind.namespaced else "t.name"
    where = _Where()
    if not leases:
        # A renewal moves a lease's revision without a change to look the former state up in.
        where.add("t.revision <= %s::bigint", revision)
    if namespace:
        where.add("t.namespace = %s", namespace)
    if after:
        if kind.namespaced:
            where.add("(t.namespace, t.name) > (%s::text, %s::text)", *after)
        else:
            where.add("t.name > %s::text", after[1])
    if pods and labels.requirements:
        inner = _Where()
        if namespace:
            inner.add("sc.namespace = %s", namespace)
        _label_conditions(inner, "sc.labels", labels.requirements)
        where.add(
            f"t.class_id IN (SELECT sc.id FROM scheduling_class sc WHERE {inner.text()})",
            *inner.parameters,
        )
    else:
        _label_conditions(where, "t.labels", labels.requirements)
    _field_conditions(where, kind, chosen)
    no_overlay = "NULL::text, NULL::timestamptz, NULL::text, NULL::tstzrange"
    live_overlay = POD_OVERLAY if pods else no_overlay
    count = (limit or MAX_PAGE) + 1
    before = _Where()
    before.add("revision > %s::bigint AND kind = %s::int", revision, changes.KINDS[kind.name])
    if namespace:
        before.add("namespace = %s", namespace)
    if after:
        before.add("(namespace, name) > (%s::text, %s::text)", *after)
    statement = f"""
        (SELECT 0, {key}, d.text, t.revision, {live_overlay}
         FROM {table} t JOIN document d ON d.id = t.document_id
         WHERE {where.text()} ORDER BY {order} LIMIT %s)
        UNION ALL
        (SELECT r.verb, r.namespace, r.name, d.text, r.previous_revision, r.previous_node_name,
                r.previous_scheduled_at, r.previous_unschedulable, r.previous_eviction
         FROM (SELECT DISTINCT ON (object_id) * FROM change
               WHERE {before.text()} ORDER BY object_id, revision) r
         LEFT JOIN document d ON d.id = r.previous_document_id)
        UNION ALL
        (SELECT -1, '', '', NULL, trimmed_revision, {no_overlay} FROM history WHERE id = 1)
    """
    rows = sql.fetch(statement, [*where.parameters, count, *before.parameters])
    found: list[tuple[str, str, bytes]] = []
    earlier: list[tuple[str, str, bytes]] = []
    compose, slots = document.compose, overlay
    for tag, row_namespace, name, text, number, *columns in rows:
        if tag == 0:
            found.append(
                (
                    row_namespace,
                    name,
                    compose(text, number, slots(*columns)) if pods else compose(text, number),
                )
            )
        elif tag == -1:
            if number > revision:
                raise Expired(_EXPIRED_CONTINUE)
        elif tag != changes.ADDED and not leases and number is not None:
            item = compose(text, number, slots(*columns))
            manifest = _decoder.decode(item)
            if labels.matches(
                (manifest.get("metadata") or {}).get("labels") or {}
            ) and fields.matches(chosen, manifest):
                earlier.append((row_namespace, name, item))
    if earlier:
        cut = found[-1][:2] if len(found) == count else None
        found += [entry for entry in earlier if cut is None or entry[:2] <= cut]
        found.sort(key=lambda entry: entry[:2])
    if limit and len(found) > limit:
        last = found[limit - 1]
        return Page(
            [item for _, _, item in found[:limit]],
            revision,
            _write_token(revision, last[0], last[1]),
        )
    return Page([item for _, _, item in found], revision)


def _list_events(
    kind: Kind,
    namespace: str,
    labels: Selector,
    chosen: Sequence[FieldRequirement],
    revision: int,
    limit: int | None,
    after: tuple[str, str] | None,
) -> Page:
    """Return events. One that was counted up since ``revision`` is shown as it is now."""
    where = _Where()
    where.add("t.first_revision <= %s::bigint", revision)
    if namespace:
        where.add("t.namespace = %s", namespace)
    if after:
        where.add("(t.namespace, t.name) > (%s::text, %s::text)", *after)
    if labels.requirements:
        _label_conditions(
            where,
            "coalesce(replace(d.text, chr(1), '')::jsonb #> '{metadata,labels}', '{}')",
            labels.requirements,
        )
    _field_conditions(where, kind, chosen)
    rows = sql.fetch(
        f"SELECT {_EVENT_COLUMNS} FROM {_EVENT_FROM} WHERE {where.text()}"
        " ORDER BY t.namespace, t.name LIMIT %s",
        [*where.parameters, (limit or MAX_PAGE) + 1],
    )
    items = [compose_event(row) for row in rows]
    if limit and len(rows) > limit:
        last = rows[limit - 1]
        return Page(items[:limit], revision, _write_token(revision, last[0], last[1]))
    return Page(items, revision)


def _write_token(revision: int, namespace: str, name: str) -> str:
    text = msgspec.json.encode({"rv": revision, "start": [namespace, name]})
    return base64.urlsafe_b64encode(text).decode()


def _read_token(token: str) -> tuple[int, str, str]:
    try:
        value = _decoder.decode(base64.urlsafe_b64decode(token.encode()))
        revision, (namespace, name) = value["rv"], value["start"]
        if not isinstance(revision, int) or not (
            isinstance(namespace, str) and isinstance(name, str)
        ):
            raise TypeError("wrong types")
    except (ValueError, TypeError, KeyError, binascii.Error, msgspec.DecodeError):
        raise BadRequest("continue key is not valid: it was not given out by this server") from None
    return revision, namespace, name


# Loading for followers ------------------------------------------------------------------------


@contextmanager
def snapshot() -> Iterator[int]:
    """Let several reads see one state; yields the revision to follow changes from.

    Everything up to that revision is contained in what is read inside; some later changes may be,
    so whoever applies the log afterwards skips changes not newer than the row it holds.
    """
    revision = changes.watermark()  # before the snapshot: see the argument in changes.py
    nested = connection.in_atomic_block
    with transaction.atomic():
        if not nested:
            sql.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            # It holds up nobody, reads a whole cluster, and computes between the statements.
            sql.fetch(_TAKE_TIME)
        with sql.patience(_SNAPSHOT_SECONDS):
            yield revision


def load_nodes() -> list[NodeRow]:
    """Return all nodes, by id. Queries once."""
    rows = sql.fetch(
        "SELECT n.id, n.name, n.revision, n.placement_revision, d.text"
        " FROM node n JOIN document d ON d.id = n.document_id ORDER BY n.id"
    )
    return [
        NodeRow(id_, name, revision, placement, document.compose(text, revision))
        for id_, name, revision, placement, text in rows
    ]


def load_classes(ids: Sequence[int] | None = None) -> list[ClassRow]:
    """Return scheduling classes: all, or those with the ids that exist. Queries once."""
    if ids is None:
        rows = sql.fetch("SELECT id, spec FROM scheduling_class ORDER BY id")
    else:
        rows = sql.fetch(
            "SELECT id, spec FROM scheduling_class WHERE id = ANY(%s)", (sql.Int8s(list(ids)),)
        )
    return [ClassRow(id_, spec.encode()) for id_, spec in rows]


def load_pending(ids: Sequence[int] | None = None) -> list[PendingRow]:
    """Return the queue by priority and age: all waiting pods, or some by id. Queries once."""
    where = "" if ids is None else "WHERE q.pod_id = ANY(%s)"
    rows = sql.fetch(
        f"""
        SELECT p.id, p.uid::text, p.namespace, p.name, p.class_id, p.revision, p.priority,
               p.scheduler_name, p.nominated_node_name, p.created_at, p.deletion_at, q.stage,
               q.attempts, q.not_before, q.since, q.rejected_by, q.message, q.refused_revision,
               q.refused_under
        FROM pending_pod q JOIN pod p ON p.id = q.pod_id {where}
        ORDER BY p.priority DESC, q.since, p.id
        """,
        () if ids is None else (sql.Int8s(list(ids)),),
    )
    return [PendingRow(*row) for row in rows]


def load_arrivals(follower: str) -> list[int]:
    """Return the pods created on a node whose admission nobody was asked for, the oldest first.

    Those that came after the follower's cursor, and those whose node does not exist. Queries once;
    looks at all pods.
    """
    rows = sql.fetch(
        "SELECT p.id FROM pod p WHERE p.bound_at = p.created_at AND p.phase = 'Pending'"
        " AND p.deletion_at IS NULL AND p.node_name <> ''"
        " AND (p.revision > coalesce("
        "        (SELECT c.revision FROM controller_cursor c WHERE c.name = %s), 0)"
        "      OR NOT EXISTS (SELECT 1 FROM node n WHERE n.name = p.node_name))"
        " ORDER BY p.id",
        (follower,),
    )
    return [row[0] for row in rows]


def pods_gated_by(gate: str) -> list[tuple[int, str, str]]:
    """Return id, namespace and name of waiting pods with a scheduling gate. Queries once."""
    rows = sql.fetch(
        "SELECT p.id, p.namespace, p.name FROM pending_pod q JOIN pod p ON p.id = q.pod_id"
        " JOIN scheduling_class c ON c.id = p.class_id"
        " WHERE q.stage = 'gated' AND p.deletion_at IS NULL AND strpos(c.spec, %s) > 0"
        " ORDER BY p.id",
        (f'"{gate}"',),
    )
    return [(id_, namespace, name) for id_, namespace, name in rows]


_POD_ROW = (
    "SELECT id, uid::text, namespace, name, class_id, revision, node_name, phase, priority,"
    " created_at, deletion_at FROM pod"
)


def pods_by_id(ids: Sequence[int]) -> dict[int, PodRow]:
    """Return the pods with these ids that exist. Queries once."""
    rows = sql.fetch(f"{_POD_ROW} WHERE id = ANY(%s)", (sql.Int8s(list(ids)),))
    return {row[0]: PodRow(*row) for row in rows}


def pods_on_node(node_name: str) -> list[PodRow]:
    """Return the pods bound to a node, by id. Queries once, by index."""
    rows = sql.fetch(
        f"{_POD_ROW} WHERE node_name = %s AND node_name <> '' ORDER BY id", (node_name,)
    )
    return [PodRow(*row) for row in rows]


def pod_id(namespace: str, name: str) -> int | None:
    """Return the id of a pod, or ``None``. Queries once."""
    row = sql.fetch_one("SELECT id FROM pod WHERE namespace = %s AND name = %s", (namespace, name))
    return None if row is None else row[0]


def pod_manifests(ids: Sequence[int]) -> dict[int, bytes]:
    """Return pods as JSON by id. Queries once."""
    rows = sql.fetch(
        f"SELECT t.id, d.text, t.revision, {POD_OVERLAY}"
        " FROM pod t JOIN document d ON d.id = t.document_id WHERE t.id = ANY(%s)",
        (sql.Int8s(list(ids)),),
    )
    return {row[0]: document.compose(row[1], row[2], overlay(*row[3:])) for row in rows}


def event_manifests(ids: Sequence[int]) -> dict[int, bytes]:
    """Return events as JSON by id, as they are now. Queries once."""
    rows = sql.fetch(
        f"SELECT t.id, {_EVENT_COLUMNS} FROM {_EVENT_FROM} WHERE t.id = ANY(%s)",
        (sql.Int8s(list(ids)),),
    )
    return {row[0]: compose_event(row[1:]) for row in rows}


def terminating_namespaces() -> list[str]:
    """Return the names of the namespaces that are being deleted. Queries once."""
    return [row[0] for row in sql.fetch("SELECT name FROM namespace WHERE deletion_at IS NOT NULL")]


def pending_counts() -> dict[str, int]:
    """Return how many pods wait in each stage of the queue. Queries once."""
    rows = sql.fetch("SELECT stage, count(*) FROM pending_pod GROUP BY stage")
    return {row[0]: row[1] for row in rows}


def oldest_untried(schedulers: Sequence[str]) -> datetime | None:
    """Return since when the oldest pod waits that none of the schedulers tried yet. Queries once.

    ``None``: all were tried. A refusal counts from when it is written.
    """
    row = sql.fetch_one(
        "SELECT min(q.since) FROM pending_pod q JOIN pod p ON p.id = q.pod_id"
        " WHERE q.stage = 'active' AND q.attempts = 0 AND p.deletion_at IS NULL"
        " AND p.scheduler_name = ANY(%s)",
        (sql.Texts(list(schedulers)),),
    )
    return None if row is None else row[0]


def node_of_pod(namespace: str, name: str) -> str | None:
    """Return the node that a pod is bound to, empty where to none; ``None``: no such pod.

    Queries once.
    """
    row = sql.fetch_one(
        "SELECT node_name FROM pod WHERE namespace = %s AND name = %s", (namespace, name)
    )
    return None if row is None else row[0]


def token_user(digest: bytes, *, now: datetime) -> TokenUser | None:
    """Return whom the token with this SHA-256 stands for; ``None`` if unknown, expired or locked.

    Queries once.
    """
    row = sql.fetch_one(
        """
        SELECT coalesce(u.username, t.identity), t.groups
        FROM api_token t LEFT JOIN auth_user u ON u.id = t.user_id
        WHERE t.digest = %s AND coalesce(u.is_active, t.identity <> '')
          AND (t.expires_at IS NULL OR t.expires_at > %s::timestamptz)
        """,
        (digest, now),
    )
    return None if row is None else TokenUser(row[0], tuple(row[1]))


_OVERCOMMITTED = """
WITH used AS (
    SELECT p.node_name, count(*) AS pods, sum(c.cpu_milli) AS cpu, sum(c.memory_bytes) AS memory,
           sum(c.ephemeral_bytes) AS ephemeral
    FROM pod p JOIN scheduling_class c ON c.id = p.class_id
    WHERE p.node_name <> '' AND p.phase NOT IN ('Succeeded', 'Failed')
    GROUP BY p.node_name
), more AS (
    SELECT p.node_name, e.key, sum(e.value::bigint) AS amount
    FROM pod p JOIN scheduling_class c ON c.id = p.class_id, jsonb_each_text(c.extended) e
    WHERE p.node_name <> '' AND p.phase NOT IN ('Succeeded', 'Failed')
    GROUP BY p.node_name, e.key
)
SELECT n.name, r.resource, r.used::bigint, r.allocatable
FROM node n JOIN used u ON u.node_name = n.name
CROSS JOIN LATERAL (VALUES ('pods', u.pods, n.pods), ('cpu', u.cpu, n.cpu_milli),
                           ('memory', u.memory, n.memory_bytes),
                           ('ephemeral-storage', u.ephemeral, n.ephemeral_bytes))
     AS r(resource, used, allocatable)
WHERE r.used > r.allocatable
UNION ALL
SELECT n.name, m.key, m.amount::bigint, coalesce((n.extended ->> m.key)::bigint, 0)
FROM node n JOIN more m ON m.node_name = n.name
WHERE m.amount > coalesce((n.extended ->> m.key)::bigint, 0)
ORDER BY 1, 2
"""


def overcommitted_nodes() -> list[OvercommittedNode]:
    """Return what is overcommitted, by node and resource; empty in a sound cluster. Queries once.

    Counts every bound pod that has not finished against ``status.allocatable``: thousandths of a
    CPU, bytes, pods, whole units of extended resources.
    """
    return [OvercommittedNode(*row) for row in sql.fetch(_OVERCOMMITTED)]

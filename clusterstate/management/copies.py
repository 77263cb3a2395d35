"""Checks that redundant data in the database agrees: `manage.py audit`.

Each fact has one source. Where it is stored again, so that queries can filter and sort, that is a
copy; ``COPIES`` lists every copy, with its source and the comparison. The actions write both in one
transaction, and the database composes rows written by hand (`models`), so that they should always
agree. If they differ, somebody wrote to the database past both, or the service has a fault.

The audit reads one snapshot and writes nothing. Followers of the log update their copies later, so
objects that changed after a follower's cursor are not compared with its copies.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

import msgspec
from django.db import connection, transaction

from clusterstate.actions import evictions
from clusterstate.actions.pods.classes import class_facts
from clusterstate.actions.writing import quotas, stored_rows
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.health import aside
from clusterstate.objects.registry.kind import SHARED_TABLE, Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS, NAMES
from clusterstate.objects.rules import eviction, scheduling_class
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from clusterstate.queries.evictions.eviction_timers import DURING_EXECUTION, TAINT
from clusterstate.queries.nodes import evicting_nodes, no_execute_taints, node_labels
from clusterstate.queries.pods import POD_OVERLAY, pod_overlay
from clusterstate.queries.pods.stays import ClassOnNode, class_specs, executing_places, stays_on

Progress = Callable[[str, int], object]
"""Called with the name of the compared copy, and the number of its rows so far."""

_ROWS_AT_ONCE = 2000
_NODES_AT_ONCE = 200
_LONG_AGO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_decode_pod = msgspec.json.Decoder(Pod).decode


class Difference(msgspec.Struct, frozen=True):
    """An object whose copy differs: in what, and the remedy."""

    copy: str
    object: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.copy}: {self.object}: {self.what}; {self.remedy}"


Found = Iterator[tuple[str, str]]
"""Objects and their differences."""


class Copy(msgspec.Struct, frozen=True):
    """A fact that is stored twice. ``find`` queries and yields the differences."""

    name: str
    home: str
    copied_to: str
    find: Callable[[Progress], Found]
    remedy: str


@contextmanager
def _snapshot() -> Iterator[None]:
    """Within the block, read the database as of one moment; writes fail."""
    with transaction.atomic():
        sql.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def differences(progress: Progress) -> Iterator[Difference]:
    """Compare all copies, as of one moment. Must not be called in a transaction."""
    with _snapshot():
        for copy in COPIES:
            for where, what in copy.find(progress):
                yield Difference(copy.name, where, what, copy.remedy)


def _stream(what: str, statement: str, progress: Progress) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a statement that may return millions."""
    connection.ensure_connection()
    with connection.connection.cursor(name="audit") as cursor:
        cursor.itersize = _ROWS_AT_ONCE
        cursor.execute(statement)
        number = 0
        for number, row in enumerate(cursor, start=1):
            if number % _ROWS_AT_ONCE == 0:
                progress(what, number)
            yield row
    progress(what, number)


def _named(kind: str, namespace: str, name: str) -> str:
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


# Rows and documents ---------------------------------------------------------------------------

_COLUMN = "column"


def _stored(kind: Kind, more: str, progress: Progress) -> Iterator[tuple[Any, ...]]:
    """Yield each row of a kind as a mapping, its document's text, and ``more``."""
    yield from _stream(
        kind.resource,
        f"SELECT to_jsonb(t)::text, d.text{more} FROM {kind.rows} t"
        " LEFT JOIN document d ON d.id = t.document_id ORDER BY t.id",
        progress,
    )


def _decoded(text: str, slots: document.Overlay = document.EMPTY) -> Manifest | None:
    """Return the manifest of a document, ``None`` if the text is not a manifest."""
    try:
        return document.decode(text, 0, slots)
    except (msgspec.DecodeError, ValueError):
        return None


def _columns(progress: Progress) -> Found:
    for kind in ALL_KINDS:
        if kind.has_slots or kind.is_composed:
            continue
        for encoded, text in _stored(kind, "", progress):
            row = msgspec.json.decode(encoded)
            where = _named(kind.name, row.get("namespace", ""), row["name"])
            if text is None:
                yield where, f"its document {row['document_id']} is missing"
                continue
            manifest = _decoded(text)
            if manifest is None:
                yield where, f"its document {row['document_id']} cannot be read"
                continue
            expected = _common(kind, manifest) | stored_rows.columns_of(kind, manifest)
            if kind.name == "RuntimeClass":
                expected |= {key: manifest.get(key) for key in ("scheduling", "overhead")}
            for column, value in expected.items():
                if _plain(row[column], value) != _plain(value, value):
                    yield (
                        where,
                        f"{_COLUMN} {column} is {row[column]!r}, its document says {value!r}",
                    )


def _common(kind: Kind, manifest: Manifest) -> dict[str, Any]:
    metadata = manifest.get("metadata") or {}
    deletion = metadata.get("deletionTimestamp")
    expected = {
        "name": metadata.get("name"),
        "uid": metadata.get("uid"),
        "labels": metadata.get("labels") or {},
        "deletion_at": document.parse_time(deletion) if deletion else None,
    }
    return expected | ({"namespace": metadata.get("namespace")} if kind.namespaced else {})


def _plain(found: Any, like: Any) -> Any:
    """Return a column's JSON value in the type of ``like``, for a comparison."""
    if isinstance(like, datetime) and isinstance(found, str):
        return datetime.fromisoformat(found)
    if isinstance(like, str) and like[:1] in "{[" and isinstance(found, str):
        return msgspec.json.decode(found)
    if isinstance(like, str) and isinstance(found, dict | list):
        return found
    return found


def _pods(progress: Progress) -> Found:
    kind = KINDS["Pod"]
    digests = f", {POD_OVERLAY}, (SELECT c.digest FROM scheduling_class c WHERE c.id = t.class_id)"
    for encoded, text, *slots, digest in _stored(kind, digests, progress):
        row = msgspec.json.decode(encoded)
        where = _named("Pod", row["namespace"], row["name"])
        if digest is None:
            yield where, f"its scheduling class {row['class_id']} is missing"
        manifest = None if text is None else _decoded(text, pod_overlay(*slots))
        if manifest is None:
            yield where, f"its document {row['document_id']} is missing or cannot be read"
            continue
        spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
        expected = _common(kind, manifest)
        del expected["labels"]
        expected |= {
            "priority": spec.get("priority") or 0,
            "scheduler_name": spec.get("schedulerName"),
            "phase": status.get("phase") or "Pending",
        }
        for column, value in expected.items():
            if _plain(row[column], value) != value:
                yield where, f"{_COLUMN} {column} is {row[column]!r}, its document says {value!r}"
        if digest is not None and scheduling_class.encode(manifest)[0] != bytes(digest):
            yield where, f"the pod's spec is not that of scheduling class {row['class_id']}"


def _classes(progress: Progress) -> Found:
    columns = "digest, namespace, labels::text, cpu_milli, memory_bytes, ephemeral_bytes"
    rows = _stream(
        "scheduling classes",
        f"SELECT id, spec, {columns}, extended::text FROM scheduling_class ORDER BY id",
        progress,
    )
    names = ("namespace", "labels", "cpu_milli", "memory_bytes", "ephemeral_bytes", "extended")
    for id_, spec, digest, *found in rows:
        where = f"scheduling class {id_}"
        if blake2b(spec.encode(), digest_size=scheduling_class.DIGEST_SIZE).digest() != bytes(
            digest
        ):
            yield where, "its digest does not match its spec"
        _, *expected = class_facts(spec)
        for column, here, there in zip(names, found, expected, strict=True):
            if _value(column, here) != _value(column, there):
                yield where, f"{_COLUMN} {column} is {here!r}, its spec says {there!r}"


def _value(column: str, value: Any) -> Any:
    return msgspec.json.decode(value) if column in ("labels", "extended") else value


# Taints ---------------------------------------------------------------------------------------

_TAINTS = """, (SELECT jsonb_agg(jsonb_build_array(x.key, x.effect, x.value, x.added_at)
                                 ORDER BY x.position, x.id)
               FROM taint x WHERE x.node_id = t.id)::text"""


def _taints(progress: Progress) -> Found:
    for encoded, text, rows in _stored(KINDS["Node"], _TAINTS, progress):
        row = msgspec.json.decode(encoded)
        manifest = None if text is None else _decoded(text)
        if manifest is None:
            continue  # the comparison of columns reports it
        expected = [
            [one.get("key"), one.get("effect"), one.get("value") or "", _moment(one)]
            for one in (manifest.get("spec") or {}).get("taints") or ()
        ]
        found = [
            [key, effect, value, None if added is None else datetime.fromisoformat(added)]
            for key, effect, value, added in ([] if rows is None else msgspec.json.decode(rows))
        ]
        if found != expected:
            here, there = (
                ", ".join(f"{one[0]}={one[2]}:{one[1]}" for one in some) or "none"
                for some in (found, expected)
            )
            yield f"Node {row['name']}", f"its rows of taints are {here}, its document says {there}"
    for (node_id,) in sql.fetch(
        "SELECT DISTINCT t.node_id FROM taint t"
        " WHERE NOT EXISTS (SELECT 1 FROM node n WHERE n.id = t.node_id) ORDER BY 1"
    ):
        yield f"node {node_id}", "the node does not exist, but has rows of taints"


def _moment(taint: Manifest) -> datetime | None:
    added = taint.get("timeAdded")
    return document.parse_time(added).replace(microsecond=0) if added else None


# Places in queues -----------------------------------------------------------------------------

_UNQUEUED = """
SELECT p.namespace, p.name FROM pod p
WHERE p.node_name = '' AND p.phase NOT IN ('Succeeded', 'Failed')
  AND NOT EXISTS (SELECT 1 FROM pending_pod q WHERE q.pod_id = p.id) ORDER BY 1, 2
"""
_QUEUED_FOR_NOTHING = """
SELECT q.pod_id, p.namespace, p.name FROM pending_pod q LEFT JOIN pod p ON p.id = q.pod_id
WHERE p.id IS NULL OR p.node_name <> '' OR p.phase IN ('Succeeded', 'Failed') ORDER BY 1
"""
_UNENDED = """
SELECT p.namespace, p.name, p.deletion_at::text, e.deletion_at::text
FROM pod p LEFT JOIN terminating_pod e ON e.pod_id = p.id
WHERE p.deletion_at IS DISTINCT FROM e.deletion_at ORDER BY 1, 2
"""
_ENDED = """
SELECT e.pod_id FROM terminating_pod e
WHERE NOT EXISTS (SELECT 1 FROM pod p WHERE p.id = e.pod_id) ORDER BY 1
"""


def _queue(progress: Progress) -> Found:
    for namespace, name in sql.fetch(_UNQUEUED):
        yield _named("Pod", namespace, name), "the pod is pending, but not in pending_pod"
    for pod_id, namespace, name in sql.fetch(_QUEUED_FOR_NOTHING):
        if name is None:
            yield f"pod {pod_id}", "the pod does not exist, but is in pending_pod"
        else:
            yield _named("Pod", namespace, name), "the pod is not pending, but in pending_pod"
    progress("pending pods", 0)


def _terminating(progress: Progress) -> Found:
    for namespace, name, here, there in sql.fetch(_UNENDED):
        what = f"the deletion ends at {here or 'no time'}; terminating_pod: {there or 'no time'}"
        yield _named("Pod", namespace, name), what
    for (pod_id,) in sql.fetch(_ENDED):
        yield f"pod {pod_id}", "the pod does not exist, but is in terminating_pod"
    progress("terminating pods", 0)


# Eviction timers ------------------------------------------------------------------------------

_TIMERS = """
SELECT t.pod_id, t.cause, t.node_name, t.taint_key, t.taint_effect, t.seconds, t.started_at,
       t.due_at, p.namespace, p.name, p.deletion_at IS NOT NULL
FROM eviction_timer t LEFT JOIN pod p ON p.id = t.pod_id
"""
_SINCE = "SELECT DISTINCT object_id, name FROM change WHERE revision > %s::bigint AND kind = %s"


def _timers(progress: Progress) -> Found:
    """Compare the timers with the rules as of now.

    Pods and nodes that changed after the controller's cursor, or that it set aside, are left out.
    """
    cursor = sql.fetch_one(
        "SELECT revision FROM controller_cursor WHERE name = %s", (evictions.FOLLOWER,)
    )
    if cursor is None:
        return  # nothing has been judged yet
    fresh_nodes = {name for _, name in sql.fetch(_SINCE, (cursor[0], KINDS["Node"].code))}
    fresh = {id_ for id_, _ in sql.fetch(_SINCE, (cursor[0], KINDS["Pod"].code))}
    for follower in (evictions.FOLLOWER, evictions.FOLLOWER_OF_LABELS):
        for kind, id_ in aside.objects(follower):
            if kind == "Pod":
                fresh.add(id_)
    stored: dict[tuple[int, str], tuple[Any, ...]] = {}
    where: dict[int, str] = {}
    for pod_id, cause, node_name, *rest, namespace, name, ending in sql.fetch(_TIMERS):
        if name is None:
            yield f"pod {pod_id}", "the pod does not exist, but has an eviction timer"
            continue
        where[pod_id] = _named("Pod", namespace, name)
        if pod_id not in fresh and node_name not in fresh_nodes and not ending:
            stored[pod_id, cause] = (node_name, *rest)
    for pod_id, cause, expected in _due(fresh, fresh_nodes):
        found = stored.pop((pod_id, cause), None)
        if found is None:
            what = f"the pod must leave {expected[0]}, but has no eviction timer"
            yield where.get(pod_id) or _pod_named(pod_id), what
        elif cause == TAINT and found != expected:
            yield (
                where[pod_id],
                f"its timer says {_timer_text(found)}, by its taints it is {_timer_text(expected)}",
            )
    for (pod_id, _), found in stored.items():
        yield where[pod_id], f"its eviction timer, due {found[-1]}, has no cause on {found[0]}"
    progress("timers", len(where))


def _timer_text(timer: Sequence[Any]) -> str:
    node_name, key, effect, seconds, started_at, due_at = timer
    return f"{key}:{effect} on {node_name}, {seconds} s from {started_at}, due {due_at}"


def _pod_named(pod_id: int) -> str:
    row = sql.fetch_one("SELECT namespace, name FROM pod WHERE id = %s::bigint", (pod_id,))
    return f"pod {pod_id}" if row is None else _named("Pod", *row)


def _due(fresh: set[int], fresh_nodes: set[str]) -> Iterator[tuple[int, str, tuple[Any, ...]]]:
    """Yield the id, cause and expected timer of each pod that must leave its node."""
    nodes = [name for name in evicting_nodes() if name not in fresh_nodes]
    rules: dict[int, eviction.Rules] = {}

    def learn(class_ids: Iterable[int]) -> None:
        found = class_specs(sorted(set(class_ids) - rules.keys()))
        rules.update({id_: eviction.rules_of(_decode_pod(spec)) for id_, spec in found.items()})

    for first in range(0, len(nodes), _NODES_AT_ONCE):
        part = nodes[first : first + _NODES_AT_ONCE]
        taints = no_execute_taints(part)
        stays = [one for one in stays_on(part) if one.pod_id not in fresh]
        learn(stay.class_id for stay in stays)
        counted: dict[ClassOnNode, tuple[eviction.Countdown, ...]] = {}
        for stay in stays:
            if stay.class_id not in rules:
                continue
            if stay.place not in counted:
                counted[stay.place] = eviction.countdowns(
                    rules[stay.class_id].tolerations, taints[stay.node_name], added_at=_LONG_AGO
                )
            due = eviction.deadline(counted[stay.place], stay.bound_at)
            if due is not None:
                yield stay.pod_id, TAINT, (
                    stay.node_name, due.taint.key, due.taint.effect, due.seconds, due.started_at,
                    due.due_at,
                )  # fmt: skip
    places = [one for one in executing_places() if one.node_name not in fresh_nodes]
    labels = node_labels(sorted({place.node_name for place in places}))
    learn(place.class_id for place in places)
    broken = {
        place
        for place in places
        if place.class_id in rules
        and place.node_name in labels
        and eviction.is_broken(rules[place.class_id], place.node_name, labels[place.node_name])
    }
    for stay in stays_on(sorted({place.node_name for place in broken})):
        if stay.place in broken and stay.pod_id not in fresh:
            yield stay.pod_id, DURING_EXECUTION, (stay.node_name,)


# Quotas ---------------------------------------------------------------------------------------

_LIMITED = "SELECT DISTINCT namespace FROM resource_quota ORDER BY 1"


def _quotas(progress: Progress) -> Found:
    """Compare the usage in quotas' status with a count; recorded changes of usage are included."""
    for (namespace,) in sql.fetch(_LIMITED):
        for name, shown, expected in quotas.wrong_accounts(namespace):
            for field in ("hard", "used"):
                here, there = shown[field], expected[field]
                for resource in sorted({*here, *there}):
                    if here.get(resource) != there.get(resource):
                        says = here.get(resource, "not there")
                        counted = there.get(resource, "nothing")
                        what = f"{field} of {resource} is {says}, a count gives {counted}"
                        yield _named("ResourceQuota", namespace, name), what
    progress("quotas", 0)


# The log and the documents --------------------------------------------------------------------


def _log(progress: Progress) -> Found:
    (trimmed,) = sql.fetch_one(
        "SELECT coalesce((SELECT trimmed_revision FROM history WHERE id = 1), 0)"
    ) or (0,)
    for kind in ALL_KINDS:
        namespace = "t.namespace" if kind.namespaced else "''"
        code = kind.code
        # Renewed leases get a revision and no entry; what is older than the log has none either.
        differs = (
            "t.revision < l.revision"
            if kind.skips_change_log
            else "t.revision <> l.revision OR t.document_id IS DISTINCT FROM l.document_id"
        )
        rows = sql.fetch(
            f"""
            SELECT coalesce(l.namespace, {namespace}), coalesce(l.name, t.name), l.verb,
                   l.revision, t.revision
            FROM (SELECT DISTINCT ON (object_id) object_id, namespace, name, verb, revision,
                         document_id
                  FROM change WHERE kind = {code} ORDER BY object_id, revision DESC) l
            FULL JOIN {kind.rows} t ON t.id = l.object_id
            WHERE CASE WHEN l.verb IS NULL THEN t.revision > %s::bigint
                                               AND {not kind.skips_change_log}
                       WHEN l.verb = {changes.DELETED} THEN t.id IS NOT NULL
                       ELSE t.id IS NULL OR {differs} END
            ORDER BY 1, 2
            """,
            (trimmed,),
        )
        for space, name, verb, logged, revision in rows:
            where = _named(kind.name, space, name)
            if verb is None:
                yield where, f"the change log lacks its revision {revision}"
            elif revision is None:
                yield where, f"the object does not exist, but the log has it at revision {logged}"
            elif verb == changes.DELETED:
                yield where, f"the object exists, but the log has its deletion, revision {logged}"
            else:
                yield where, f"the object is at revision {revision}, the log has {logged}"
        progress(f"{kind.resource} in the log", 0)


_LOST = """
SELECT c.kind, c.namespace, c.name, c.revision, w.id FROM change c
CROSS JOIN LATERAL (VALUES (c.document_id), (c.previous_document_id)) w(id)
WHERE w.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM document d WHERE d.id = w.id)
ORDER BY c.revision
"""
_CURRENT = " UNION ALL ".join(
    f"SELECT document_id FROM {table} WHERE document_id IS NOT NULL"
    for table in sorted({SHARED_TABLE, *(kind.table for kind in ALL_KINDS)})
)
_UNREFERRED = f"""
SELECT d.id FROM document d
WHERE NOT EXISTS (SELECT 1 FROM ({_CURRENT}) c WHERE c.document_id = d.id)
  AND NOT EXISTS (SELECT 1 FROM superseded_document s WHERE s.document_id = d.id)
ORDER BY 1
"""
_SUPERSEDED = f"""
SELECT s.document_id FROM superseded_document s JOIN ({_CURRENT}) c USING (document_id) ORDER BY 1
"""


def _documents(progress: Progress) -> Found:
    for code, namespace, name, revision, id_ in sql.fetch(_LOST):
        where = _named(NAMES[code], namespace, name)
        yield where, f"the log at revision {revision} refers to document {id_}, which is missing"
    for (id_,) in sql.fetch(_UNREFERRED):
        yield f"document {id_}", "no object uses the document, and it is not listed as superseded"
    for (id_,) in sql.fetch(_SUPERSEDED):
        yield f"document {id_}", "an object uses the document, but it is listed as superseded"
    progress("documents", 0)


_WRITE_AGAIN = "write the object again through the API, such as with kubectl annotate"
_RESTORE = "restore a backup, and report a bug: the service never writes this"

COPIES: Final = (
    Copy(
        "columns",
        "documents",
        "columns of all kinds but pods and events: name, labels, deletion time, allocatable ...",
        _columns,
        _WRITE_AGAIN,
    ),
    Copy(
        "pods",
        "documents",
        "columns of pods: name, priority, scheduler, phase, deletion time; the scheduling class",
        _pods,
        _WRITE_AGAIN,
    ),
    Copy(
        "classes",
        "scheduling_class.spec",
        "digest, namespace, labels and requests of a scheduling class",
        _classes,
        "stop the service, correct the columns after the spec, and start it",
    ),
    Copy(
        "taints",
        "taint",
        "spec.taints in the node's document",
        _taints,
        "the rows are right: UPDATE this node's taints to the same values; its document follows",
    ),
    Copy(
        "queue",
        "pods that are unbound and not finished",
        "pending_pod",
        _queue,
        "INSERT the missing row (pod_id, since) or DELETE the one too many",
    ),
    Copy(
        "terminating",
        "pod.deletion_at",
        "terminating_pod",
        _terminating,
        "write the row after the pod's column",
    ),
    Copy(
        "timers",
        "taints, labels, bindings and the rules in clusterstate.objects.rules.eviction",
        "eviction_timer",
        _timers,
        f"delete the row '{evictions.FOLLOWER}' of controller_cursor; all timers are stated anew",
    ),
    Copy(
        "quotas",
        "the objects of a namespace and spec.hard of its quotas",
        "status of a ResourceQuota",
        _quotas,
        "add a row with its namespace and kind 0 to usage_change: the quota is counted again",
    ),
    Copy("log", "rows", "the last entry of each object in the change log", _log, _RESTORE),
    Copy(
        "documents",
        "rows and the log",
        "documents that they refer to, and the list of superseded ones",
        _documents,
        _RESTORE,
    ),
)
"""All copies. Amounts used on nodes are not stored, but summed up from the classes of the pods."""

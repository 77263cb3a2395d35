"""Pods: create, bind, fail to place, update, delete; single ones and thousands at a time.

The statements that a scheduling service runs all day are here. Each is one statement for one pod
or a thousand: arrays travel in binary and are unnested, documents, rows, queue and log are written
by CTEs, and the answer comes back in one round trip.

Who else may place a pod, and how a bind can be sure
----------------------------------------------------
The scheduler decides on a snapshot and binds in batches. Others place pods too: a pod may be
created with ``spec.nodeName``, a client may POST a Binding, a node may change what it offers. These
*foreign placements* take the placement lock shared and set the node's ``placement_revision``.
``bind_pods`` takes the lock exclusively *in a statement before* the one that binds, so that the
latter's snapshot contains every foreign placement that is not waiting, and binds only to nodes
whose ``placement_revision`` its snapshot knew. Two schedulers guard against each other in the same
way by the one row of ``binder``: whoever did not bind last must know the last bind.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
from django.db import OperationalError, connection, transaction
from psycopg.errors import DeadlockDetected

from clusterstate import admission, catalogue, changes, queries, sql
from clusterstate.actions import storing
from clusterstate.actions.storing import Deleted, Row, Stored
from clusterstate.admission import node_restriction
from clusterstate.admission.request import CREATE, DELETE, UPDATE, User
from clusterstate.admission.validation import formats
from clusterstate.objects import document, moments, resources, scheduling_class
from clusterstate.objects.document import Overlay
from clusterstate.objects.errors import (
    NOT_SUPPORTED,
    AlreadyExists,
    Conflict,
    FieldError,
    Invalid,
    StatusError,
    TooManyRequests,
)
from clusterstate.objects.kinds import KINDS
from clusterstate.objects.labels import selector_from_label_selector
from clusterstate.objects.meta import Manifest
from clusterstate.objects.ownership import Policy, finalizers_for
from clusterstate.objects.pod import LabelSelector, Pod

POD: Final = KINDS["Pod"]
BUDGET: Final = KINDS["PodDisruptionBudget"]
NOBODY: Final = User()
FINISHED: Final = ("Succeeded", "Failed")
PHASES: Final = ("Pending", "Running", *FINISHED, "Unknown")
DEFAULT_GRACE_SECONDS: Final = 30

_MAX_NAME_TRIES = 8
_MAX_EPOCH_TRIES = 20
_MAX_DEADLOCK_TRIES = 5
_CLASS_CACHE = 200_000
_MAX_TEMPLATES = 2048
_LARGEST_TEMPLATE = 16 * 1024
_OWN_METADATA = frozenset({"name", "uid", "creationTimestamp"})
_encoder = msgspec.json.Encoder(order="sorted")
_T = TypeVar("_T")


class Binding(msgspec.Struct, frozen=True):
    """A decision: this pod to that node.

    ``leans``: it may hold only because other pods of the batch go where they were decided to go, so
    it is bound together with all of them or not at all.
    """

    pod_id: int
    node_name: str
    leans: bool = False


class BindResult(msgspec.Struct, frozen=True):
    """What became of a batch of bindings.

    ``bound`` pairs pod ids with the revision of their binding, in the order of the decisions.
    ``stale`` are the pods that could not be bound: gone, bound or terminating by now, or their node
    changed since the snapshot. ``held`` could have been, but lean, and others are stale.
    """

    bound: list[tuple[int, int]]
    stale: list[int]
    held: list[int] = []


class Unschedulable(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that could not be placed, and where it waits now.

    ``reason`` and ``message`` become the PodScheduled=False condition. ``stage``, ``attempts``,
    ``not_before`` and ``rejected_by`` are its place in the queue. ``refused_revision`` and
    ``refused_under``: the log up to which, and the configuration under which, that was decided.
    ``nominated_node_name``: ``None`` leaves status.nominatedNodeName alone, a text sets it.
    """

    pod_id: int
    message: str
    reason: str = "Unschedulable"
    rejected_by: tuple[str, ...] = ()
    stage: str = "unschedulable"
    attempts: int = 1
    not_before: datetime | None = None
    refused_revision: int = 0
    refused_under: int = 0
    nominated_node_name: str | None = None


class QueueMove(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting pod's new place in the queue; nothing of the pod itself changes."""

    pod_id: int
    stage: str
    attempts: int
    not_before: datetime | None = None


class _Class(msgspec.Struct, frozen=True):
    id: int
    qos: str


class _Prepared(msgspec.Struct):
    """A pod on its way into the insert statement."""

    uid: uuid.UUID
    namespace: str
    name: str
    priority: int
    scheduler_name: str
    warnings: list[str]
    generated: bool
    text: str
    overlay: Overlay
    digest: bytes
    spec: str
    class_id: int | None


class _Template(msgspec.Struct, frozen=True):
    """What an admitted pod shares with all that differ from it in name, uid and times only."""

    document: document.Template
    namespace: str
    priority: int
    scheduler_name: str
    warnings: list[str]
    digest: bytes
    spec: str


# Scheduling classes ---------------------------------------------------------------------------

_classes: dict[bytes, _Class] = {}


@catalogue.with_history
def forget_classes() -> None:
    """Drop the remembered class ids, as after the tables were emptied behind its back."""
    _classes.clear()


@lru_cache(maxsize=4096)
def _class_facts(spec: str) -> tuple[str, str, str, int, int, int, str]:
    """Return (qos class, namespace, labels, cpu, memory, ephemeral, extended) of a class."""
    pod = msgspec.json.decode(spec, type=Pod)
    requests = resources.pod_request_ints(pod)
    cpu = requests.pop("cpu", 0)
    memory = requests.pop("memory", 0)
    ephemeral = requests.pop("ephemeral-storage", 0)
    return (
        resources.qos_class(pod),
        pod.metadata.namespace,
        _json(pod.metadata.labels),
        cpu,
        memory,
        ephemeral,
        _json(requests),
    )


def _json(value: Any) -> str:
    return _encoder.encode(value).decode()


def _remember_classes(found: Iterable[tuple[bytes, int, str]]) -> None:
    """Remember class ids once they are durable: a rolled back class must leave no trace."""

    def remember() -> None:
        if len(_classes) > _CLASS_CACHE:
            _classes.clear()
        for digest, id_, qos in found:
            _classes[digest] = _Class(id_, qos)

    if connection.in_atomic_block:
        transaction.on_commit(remember)
    else:
        remember()


# Create ---------------------------------------------------------------------------------------


def _create_statement(*, new_classes: bool, placed: bool) -> str:
    """Return the insert statement for one or many pods.

    ``new_classes``: some classes are not known to this process and come along. Another process may
    insert the same class at the same time; DO UPDATE waits for it and returns the surviving id.
    ``placed``: some pods name their node, which makes this a foreign placement.
    """
    lock = (
        f", CASE WHEN pg_advisory_xact_lock_shared({changes.PLACEMENT_LOCK}) IS NOT NULL"
        " THEN 1 END AS placing"
        if placed
        else ""
    )
    classes = (
        """
    class AS (
        INSERT INTO scheduling_class (digest, spec, namespace, labels, cpu_milli, memory_bytes,
                                      ephemeral_bytes, extended)
        SELECT n.digest, n.spec, n.namespace, n.labels::jsonb, n.cpu, n.memory, n.ephemeral,
               n.extended::jsonb
        FROM gate, unnest(%s, %s, %s, %s, %s, %s, %s, %s)
             AS n(digest, spec, namespace, labels, cpu, memory, ephemeral, extended)
        WHERE epoch = %s::bigint
        ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest
        RETURNING id, digest),"""
        if new_classes
        else ""
    )
    class_id = "coalesce(i.class_id, class.id)" if new_classes else "i.class_id"
    join = "LEFT JOIN class ON class.digest = i.digest" if new_classes else ""
    nodes = (
        """,
    node_placed AS (
        UPDATE node t SET placement_revision = greatest(t.placement_revision, m.revision)
        FROM (SELECT node_name, max(revision) AS revision FROM numbered WHERE node_name <> ''
              GROUP BY node_name) m
        WHERE t.name = m.node_name)"""
        if placed
        else ""
    )
    return f"""
    WITH gate AS MATERIALIZED (SELECT {changes.OPEN}, {catalogue.EPOCH}{lock}),{classes}
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, nextval('pod_id_seq') AS id,
               nextval('document_id_seq') AS document_id, {class_id} AS class_id, i.position,
               i.uid, i.namespace, i.name, i.text, i.node_name, i.priority, i.scheduler_name,
               i.unschedulable
        FROM gate CROSS JOIN unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) WITH ORDINALITY
             AS i(uid, namespace, name, class_id, digest, text, node_name, priority,
                  scheduler_name, unschedulable, position)
        {join}
        WHERE opened = 1 AND epoch = %s::bigint),
    doc AS (INSERT INTO document (id, text) SELECT document_id, text FROM numbered),
    inserted AS (
        INSERT INTO pod (id, uid, namespace, name, class_id, document_id, revision, node_name,
                         phase, priority, scheduler_name, scheduled_at, bound_at, unschedulable,
                         nominated_node_name, created_at)
        SELECT id, uid, namespace, name, class_id, document_id, revision, node_name, 'Pending',
               priority, scheduler_name, placed_at, placed_at, unschedulable, '', %s::timestamptz
        FROM (SELECT *, CASE WHEN node_name <> '' THEN %s::timestamptz END AS placed_at
              FROM numbered) n),
    queued AS (
        INSERT INTO pending_pod (pod_id, stage, attempts, since, rejected_by, message)
        SELECT id, CASE WHEN unschedulable IS NULL THEN 'active' ELSE 'gated' END, 0,
               %s::timestamptz, ARRAY[]::text[], ''
        FROM numbered WHERE node_name = ''){nodes},
    logged AS (
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                            class_id, node_name, scheduled_at, unschedulable, phase)
        SELECT revision, %s::timestamptz, {changes.KINDS["Pod"]}, {changes.ADDED}, id, namespace,
               name, document_id, class_id, node_name,
               CASE WHEN node_name <> '' THEN %s::timestamptz END, unschedulable, 'Pending'
        FROM numbered)
    SELECT position, revision, class_id FROM numbered ORDER BY position
    """


_CREATE = {
    (new_classes, placed): " ".join(
        _create_statement(new_classes=new_classes, placed=placed).split()
    )
    for new_classes in (False, True)
    for placed in (False, True)
}


def create_pods(
    manifests: Sequence[Manifest],
    *,
    now: datetime,
    user: User = NOBODY,
    namespace: str = "",
    all_or_nothing: bool = True,
    dry_run: bool = False,
) -> list[Stored | StatusError]:
    """Create pods in one statement; return one result each, in order.

    With ``all_or_nothing`` the first error is raised and nothing is stored. Without, each pod that
    fails has its error in the result and the others are stored (in a second statement when a name
    turns out to be taken). One statement is one transaction, unless the caller has opened one.

    Raises:
        StatusError: whatever admission says; AlreadyExists for a name that is taken, also twice
            in the list.
    """
    if dry_run:
        with storing.work(dry_run=True):
            return _create(manifests, namespace, now, user, all_or_nothing=all_or_nothing)
    return _create(manifests, namespace, now, user, all_or_nothing=all_or_nothing)


def create_pod(
    manifest: Manifest,
    *,
    now: datetime,
    user: User = NOBODY,
    namespace: str = "",
    dry_run: bool = False,
) -> Stored:
    """Create one pod; see ``create_pods``."""
    (stored,) = create_pods([manifest], now=now, user=user, namespace=namespace, dry_run=dry_run)
    assert isinstance(stored, Stored)
    return stored


def _create(
    manifests: Sequence[Manifest],
    namespace: str,
    now: datetime,
    user: User,
    *,
    all_or_nothing: bool,
) -> list[Stored | StatusError]:
    results: list[Stored | StatusError | None] = [None] * len(manifests)
    remaining = range(len(manifests))
    tries = 0
    context = catalogue.current()
    while remaining:
        prepared: list[_Prepared] = []
        places: list[int] = []
        for place in remaining:
            try:
                prepared.append(_prepare(manifests[place], namespace, now, user, context))
                places.append(place)
            except StatusError as error:
                # A rule that is out of date may refuse what the current one admits.
                if tries == 0 and not catalogue.is_current(context):
                    break
                if all_or_nothing:
                    raise
                results[place] = error
        else:
            stored = _insert(prepared, now, context.epoch, all_or_nothing=all_or_nothing)
            if stored is not None:
                again = []
                for place, one, outcome in zip(places, prepared, stored, strict=True):
                    if isinstance(outcome, AlreadyExists) and one.generated:
                        if tries < _MAX_NAME_TRIES:
                            again.append(place)
                        elif all_or_nothing:
                            raise outcome
                    results[place] = outcome
                remaining = range(0)
                if again and all_or_nothing:
                    remaining = range(len(manifests))
                elif again:
                    remaining = again  # type: ignore[assignment]
                tries += 1
                continue
        tries += 1
        if tries > _MAX_EPOCH_TRIES:
            raise TooManyRequests("namespaces and classes change too quickly; try again")
        context = catalogue.reload()
    return [result for result in results if result is not None]


def _prepare(
    manifest: Manifest,
    namespace: str,
    now: datetime,
    user: User,
    context: catalogue.Catalogue,
) -> _Prepared:
    """Return the pod as it will be stored.

    The pods of a workload are alike but for their names, so that what admission made of one holds
    for the next.
    """
    of_agent = node_restriction.GROUP in user.groups  # what it may create is told by the name
    key = None if of_agent else _template_key(manifest, namespace)
    if key is None:
        return _prepare_plainly(manifest, namespace, now, user, context)[0]
    template: _Template | None = context.remembered.get(key)
    if template is not None:
        prepared = _fill(template, manifest["metadata"], now)
        if prepared is not None:
            return prepared
    prepared, metadata = _prepare_plainly(manifest, namespace, now, user, context)
    if template is None and prepared.overlay is document.EMPTY:
        text = document.template(prepared.text, metadata)
        if text is not None:
            if len(context.remembered) >= _MAX_TEMPLATES:
                context.remembered.clear()
            context.remembered[key] = _Template(
                document=text,
                namespace=prepared.namespace,
                priority=prepared.priority,
                scheduler_name=prepared.scheduler_name,
                warnings=prepared.warnings,
                digest=prepared.digest,
                spec=prepared.spec,
            )
    return prepared


def _template_key(manifest: Manifest, namespace: str) -> bytes | None:
    """Return everything that admission of a new pod looks at, but for the name.

    ``None`` for pods whose name matters beyond being a name (claims of generic ephemeral volumes
    are called after the pod) and for large ones.
    """
    metadata = manifest.get("metadata")
    if not metadata:
        return None
    shared = {key: value for key, value in metadata.items() if key not in _OWN_METADATA}
    rest = {key: value for key, value in manifest.items() if key not in ("metadata", "status")}
    key = msgspec.json.encode((namespace, shared, rest))
    return None if len(key) > _LARGEST_TEMPLATE or b'"ephemeral"' in key else key


def _fill(template: _Template, metadata: Manifest, now: datetime) -> _Prepared | None:
    """Return a pod of a template; ``None`` if its name is not right, which admission will say."""
    name = metadata.get("name")
    generated = not name and bool(metadata.get("generateName"))
    if generated:
        name = storing.generated_name(metadata["generateName"])
    if not isinstance(name, str) or not name or formats.dns_subdomain(name):
        return None
    uid = storing.new_uid()
    known = _classes.get(template.digest)
    return _Prepared(
        uid,
        template.namespace,
        name,
        template.priority,
        template.scheduler_name,
        list(template.warnings),
        generated,
        template.document.fill(storing.stamp(now), name, str(uid)),
        document.EMPTY,
        template.digest,
        template.spec,
        None if known is None else known.id,
    )


def _prepare_plainly(
    manifest: Manifest,
    namespace: str,
    now: datetime,
    user: User,
    context: catalogue.Catalogue,
) -> tuple[_Prepared, Manifest]:
    """Return the pod as it will be stored: metadata, admission, status, class; and its metadata."""
    uid = storing.new_uid()
    new, generated = storing.prepare(POD, namespace, manifest, now=now, uid=uid)
    admitted = admission.admit("Pod", CREATE, new, None, "", context, user)
    new = admitted.manifest
    digest, spec = scheduling_class.encode(new)
    known = _classes.get(digest)
    qos = known.qos if known is not None else _class_facts(spec)[0]
    status: Manifest = {"phase": "Pending", "qosClass": qos}
    pod_spec = new["spec"]
    if pod_spec.get("schedulingGates"):
        # applySchedulingGatedCondition, pkg/registry/core/pod/strategy.go
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastTransitionTime": document.format_time(now),
            }
        ]
    new["status"] = status
    text, overlay = document.encode("Pod", new)
    if overlay.node_name:
        overlay = Overlay(node_name=overlay.node_name, scheduled_at=now)
    metadata = new["metadata"]
    prepared = _Prepared(
        uid=uid,
        namespace=metadata["namespace"],
        name=metadata["name"],
        priority=pod_spec.get("priority") or 0,
        scheduler_name=pod_spec.get("schedulerName") or "default-scheduler",
        warnings=admitted.warnings,
        generated=generated,
        text=text,
        overlay=overlay,
        digest=digest,
        spec=spec,
        class_id=None if known is None else known.id,
    )
    return prepared, metadata


def _insert(
    prepared: list[_Prepared], now: datetime, epoch: int, *, all_or_nothing: bool
) -> list[Stored | AlreadyExists] | None:
    """Insert the pods; ``None`` when the epoch is not the current one. Nothing is written then."""
    if not prepared:
        return []
    try:
        with storing.unique_names(POD, prepared[0].name):
            rows = _run_insert(prepared, now, epoch)
    except AlreadyExists as error:
        if len(prepared) == 1:
            if prepared[0].generated or not all_or_nothing:
                return [error]
            raise
        taken = _taken(prepared)
        if all_or_nothing:
            first = next(iter(taken.values()), error)
            if not any(prepared[i].generated for i in taken):
                raise first from None
            return [taken.get(i, error) for i in range(len(prepared))]
        free = [one for i, one in enumerate(prepared) if i not in taken]
        if len(free) == len(prepared):
            raise  # whoever held the name let go of it; the caller may try again
        stored = _insert(free, now, epoch, all_or_nothing=False)
        if stored is None:
            return None
        rest = iter(stored)
        return [taken[i] if i in taken else next(rest) for i in range(len(prepared))]
    if not rows:
        return None
    revision = rows[-1][1]
    changes.announce(revision, ("Pod",))
    unknown = [
        (one.digest, row[2], _class_facts(one.spec)[0])
        for one, row in zip(prepared, rows, strict=True)
        if one.class_id is None
    ]
    if unknown:
        _remember_classes(unknown)
    return [
        Stored(
            document.compose(one.text, row[1], one.overlay),
            row[1],
            one.warnings,
            str(one.uid),
        )
        for one, row in zip(prepared, rows, strict=True)
    ]


def _taken(prepared: list[_Prepared]) -> dict[int, AlreadyExists]:
    """Return the pods whose name is taken, by position: in the table, or earlier in the list."""
    keys = [(one.namespace, one.name) for one in prepared]
    rows = sql.fetch(
        "SELECT p.namespace, p.name FROM pod p JOIN unnest(%s, %s) AS k(namespace, name)"
        " ON p.namespace = k.namespace AND p.name = k.name",
        (sql.Texts([k[0] for k in keys]), sql.Texts([k[1] for k in keys])),
    )
    seen = {(row[0], row[1]) for row in rows}
    result = {}
    for position, key in enumerate(keys):
        if key in seen:
            result[position] = storing.already_exists(POD, key[1])
        seen.add(key)
    return result


def _run_insert(prepared: list[_Prepared], now: datetime, epoch: int) -> list[sql.Row]:
    placed = any(one.overlay.node_name for one in prepared)
    # Sorted, so that two statements that bring the same new classes do not wait for each other.
    unknown = sorted({(one.digest, one.spec) for one in prepared if one.class_id is None})
    parameters: list[Any] = []
    if unknown:
        facts = [_class_facts(spec) for _, spec in unknown]
        parameters += [
            sql.Byteas([digest for digest, _ in unknown]),
            sql.Texts([spec for _, spec in unknown]),
            sql.Texts([fact[1] for fact in facts]),
            sql.Texts([fact[2] for fact in facts]),
            sql.Int8s([fact[3] for fact in facts]),
            sql.Int8s([fact[4] for fact in facts]),
            sql.Int8s([fact[5] for fact in facts]),
            sql.Texts([fact[6] for fact in facts]),
            epoch,
        ]
    parameters += [
        sql.Uuids([one.uid for one in prepared]),
        sql.Texts([one.namespace for one in prepared]),
        sql.Texts([one.name for one in prepared]),
        sql.Int8s([one.class_id for one in prepared]),
        sql.Byteas([one.digest for one in prepared] if unknown else [None] * len(prepared)),
        sql.Texts([one.text for one in prepared]),
        sql.Texts([one.overlay.node_name for one in prepared]),
        sql.Int4s([one.priority for one in prepared]),
        sql.Texts([one.scheduler_name for one in prepared]),
        sql.Texts([one.overlay.unschedulable for one in prepared]),
        epoch,
        now,
        now,
        now,
        now,
        now,
    ]
    return sql.fetch(_CREATE[bool(unknown), placed], parameters)


# Bind -----------------------------------------------------------------------------------------

_LOCK_PLACEMENT = f"SELECT pg_advisory_xact_lock({changes.PLACEMENT_LOCK})"
_LOCK_PLACEMENT_SHARED = f"SELECT pg_advisory_xact_lock_shared({changes.PLACEMENT_LOCK})"

_VERSIONED = (
    "document_id",
    "class_id",
    "node_name",
    "scheduled_at",
    "unschedulable",
    "phase",
    "eviction",
)


def returning(row: str = "new", revision: str = "new.revision") -> str:
    """Return the RETURNING clause of a statement that writes pods, for ``log`` to read.

    ``row`` is the version that was written; a deleted pod's last one is ``old``.
    """
    columns = [f"{row}.{name}" for name in ("id", "namespace", "name", "deletion_at", *_VERSIONED)]
    before = [f"old.{name} AS old_{name}" for name in ("revision", *_VERSIONED)]
    return f"RETURNING {', '.join([*columns, f'{revision} AS revision', *before])}"


def log(source: str, verb: int = changes.MODIFIED) -> str:
    """Return the statement that logs what was written; ``source`` has what was ``returning``.

    Its one parameter is the time.
    """
    previous = ", ".join(f"previous_{name}" for name in _VERSIONED)
    before = ", ".join(f"old_{name}" for name in _VERSIONED)
    now = ", ".join(_VERSIONED)
    return f"""
    INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, deletion_at,
                        previous_revision, {now}, {previous})
    SELECT revision, %s::timestamptz, {changes.KINDS["Pod"]}, {verb}, id, namespace, name,
           deletion_at, old_revision, {now}, {before}
    FROM {source}"""


# That few pods wait, as the planner knows from a quiet hour, must not make it begin with those:
# when ten thousand do, it would compare each with each of a batch. It has no opinion about a CASE,
# and rows of the queue are looked up by an array, not joined, or by an array before they are.
_PENDING = "CASE WHEN p.node_name = '' AND p.phase = 'Pending' THEN true ELSE false END"


def _bind_statement(*, leaning: bool) -> str:
    """Return the statement that binds a batch; it answers pod ids and the revisions of bindings.

    ``leaning``: some pods are bound only if all can be. Whether all can must not change any more
    once it was asked, so the rows are locked first, in the order of their ids. Revisions are then
    taken in the order of the decisions, so that the log tells of no pod before one it leans on; the
    answer also has the pods that were locked and not bound.
    """
    gate = f"""
    gate AS MATERIALIZED (
        SELECT {changes.OPEN}, %s::timestamptz AS at FROM binder
        WHERE id = 1 AND (holder = %s::text OR revision <= %s::bigint))"""
    if leaning:
        bound = f"""
    able AS MATERIALIZED (
        SELECT p.id, i.node_name, i.leans, i.position
        FROM gate, unnest(%s, %s, %s) WITH ORDINALITY AS i(pod_id, node_name, leans, position)
        JOIN node n ON n.name = i.node_name AND n.placement_revision <= %s::bigint
        JOIN pod p ON p.id = i.pod_id
        WHERE gate.opened = 1 AND {_PENDING} AND p.deletion_at IS NULL
        ORDER BY p.id FOR UPDATE OF p),
    numbered AS MATERIALIZED (
        SELECT id, node_name, {changes.NEXT} AS revision
        FROM (SELECT * FROM able
              WHERE leans = 0 OR (SELECT count(*) FROM able) = %s::bigint
              ORDER BY position) ordered),
    bound AS (
        UPDATE pod p
        SET node_name = i.node_name, scheduled_at = gate.at, bound_at = gate.at,
            unschedulable = NULL, revision = i.revision
        FROM gate, numbered i
        WHERE p.id = i.id AND p.id = ANY (ARRAY(SELECT id FROM numbered))
        {returning()})"""
        answer = (
            "SELECT able.id, bound.revision FROM able LEFT JOIN bound ON bound.id = able.id"
            " ORDER BY bound.revision NULLS FIRST"
        )
    else:
        bound = f"""
    bound AS (
        UPDATE pod p
        SET node_name = i.node_name, scheduled_at = gate.at, bound_at = gate.at,
            unschedulable = NULL, revision = {changes.NEXT}
        FROM gate, unnest(%s, %s) AS i(pod_id, node_name)
        JOIN node n ON n.name = i.node_name AND n.placement_revision <= %s::bigint
        WHERE gate.opened = 1 AND p.id = i.pod_id AND {_PENDING} AND p.deletion_at IS NULL
        {returning()})"""
        answer = "SELECT id, revision FROM bound ORDER BY revision"
    statement = f"""
    WITH {gate},
    {bound},
    unqueued AS (DELETE FROM pending_pod WHERE pod_id = ANY (ARRAY(SELECT id FROM bound))),
    held AS (
        UPDATE binder SET holder = %s::text, revision = m.revision
        FROM (SELECT max(revision) AS revision FROM bound) m
        WHERE binder.id = 1 AND m.revision IS NOT NULL),
    logged AS ({log("bound")})
    {answer}
"""
    return " ".join(statement.split())


_BIND = _bind_statement(leaning=False)
_BIND_LEANING = _bind_statement(leaning=True)


def bind_pods(
    bindings: Sequence[Binding],
    *,
    snapshot_revision: int,
    now: datetime,
    binder: str = "scheduler",
) -> BindResult:
    """Bind what still can be bound as decided; one change for each pod, no document written.

    ``bindings`` are in the order of the decisions. ``snapshot_revision`` is the revision up to
    which the deciding snapshot had followed the log; binds by the same ``binder`` need not be in
    it, since it made them itself. A pod is bound if it is unbound, pending and not terminating, and
    its node exists and had no foreign placement after the snapshot (see the module); one that leans
    is bound if that holds for all of ``bindings``.
    """
    if not bindings:
        return BindResult([], [])
    statement = _BIND
    ordered = bindings
    parameters: list[Any] = [now, binder, snapshot_revision]
    if len(bindings) > 1 and any(binding.leans for binding in bindings):
        statement = _BIND_LEANING
    else:
        # Sorted, so that two writers of many pods do not wait for each other crosswise.
        ordered = sorted(bindings, key=lambda binding: binding.pod_id)
    parameters += [
        sql.Int8s([binding.pod_id for binding in ordered]),
        sql.Texts([binding.node_name for binding in ordered]),
    ]
    if statement is _BIND_LEANING:
        parameters.append(sql.Int4s([int(binding.leans) for binding in ordered]))
    parameters.append(snapshot_revision)
    if statement is _BIND_LEANING:
        parameters.append(len(ordered))
    parameters += [binder, now]

    _, rows = _again_after_deadlock(
        lambda: sql.fetch_together((_LOCK_PLACEMENT, ()), (statement, parameters))
    )
    bound = [(row[0], row[1]) for row in rows if row[1] is not None]
    if bound:
        changes.announce(bound[-1][1], ("Pod",))
    able = {row[0] for row in rows}
    return BindResult(
        bound,
        [binding.pod_id for binding in bindings if binding.pod_id not in able],
        [row[0] for row in rows if row[1] is None],
    )


def _again_after_deadlock(work: Callable[[], _T]) -> _T:
    """Run ``work`` again when PostgreSQL ended it to resolve a deadlock.

    Batches lock many rows; a batch and another writer that locks two of them can meet crosswise.
    """
    if connection.in_atomic_block:
        return work()
    for _ in range(_MAX_DEADLOCK_TRIES):
        try:
            return work()
        except OperationalError as error:
            if not isinstance(error.__cause__, DeadlockDetected):
                raise
    return work()


def bind_pod(
    namespace: str,
    name: str,
    node_name: str,
    *,
    now: datetime,
    user: User = NOBODY,
    uid: str = "",
    resource_version: str = "",
    annotations: dict[str, str] | None = None,
    dry_run: bool = False,
) -> int:
    """Bind one pod as a client's Binding says, whatever room the node has; return the revision.

    The placement lock comes before the row lock: a batch that holds the first waits for the second.

    Raises:
        NotFound: there is no such pod.
        Conflict: it is bound already, is being deleted, is gated, or is another one than meant.
    """
    what = f'pods/binding "{name}"'

    def refuse(why: str) -> Conflict:
        return Conflict(
            f"Operation cannot be fulfilled on {what}: {why}",
            {"name": name, "kind": "pods/binding"},
        )

    context = catalogue.current()
    with storing.work(dry_run=dry_run):
        sql.run(_LOCK_PLACEMENT_SHARED)
        row = storing.lock_row(POD, namespace, name)
        old = row.manifest()
        storing.check_preconditions(
            POD, old["metadata"], uid=uid, resource_version=resource_version
        )
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace},
            "target": {"kind": "Node", "name": node_name},
        }
        admission.admit("Pod", CREATE, binding, None, "binding", context, user)
        if old["metadata"].get("deletionTimestamp"):
            raise refuse(f"pod {name} is being deleted, cannot be assigned to a host")
        if row.overlay.node_name:
            raise refuse(f'pod {name} is already assigned to node "{row.overlay.node_name}"')
        if (old.get("spec") or {}).get("schedulingGates"):
            raise refuse(f"pod {name} has non-empty .spec.schedulingGates")
        new = {**old, "metadata": dict(old["metadata"]), "spec": dict(old["spec"])}
        if annotations:
            new["metadata"]["annotations"] = {
                **(new["metadata"].get("annotations") or {}),
                **annotations,
            }
        text, overlay = document.encode("Pod", new)
        overlay = Overlay(node_name=node_name, scheduled_at=now)
        revision = _write(row, new, text, overlay, now=now, place=True)
        changes.announce(revision, ("Pod",))
    return revision


# Not placed -----------------------------------------------------------------------------------

_SET_UNSCHEDULABLE = f"""
    WITH gate AS MATERIALIZED (SELECT {changes.OPEN}),
    told AS MATERIALIZED (
        SELECT * FROM unnest(%s, %s, %s) WITH ORDINALITY
            AS t(condition, message, rejected_by, number)),
    input AS MATERIALIZED (
        SELECT i.*, t.condition, t.message, string_to_array(t.rejected_by, ',') AS rejected_by
        FROM unnest(%s, %s, %s, %s, %s, %s, %s)
             AS i(pod_id, number, stage, attempts, not_before, revision, configuration)
        JOIN told t USING (number)),
    marked AS (
        UPDATE pod p
        SET unschedulable = '{{"lastTransitionTime":"'
                || coalesce(p.unschedulable::json ->> 'lastTransitionTime', %s::text) || '",'
                || i.condition,
            revision = {changes.NEXT}
        FROM gate, input i
        WHERE gate.opened = 1 AND p.id = i.pod_id AND {_PENDING}
          AND p.unschedulable IS DISTINCT FROM '{{"lastTransitionTime":"'
                || coalesce(p.unschedulable::json ->> 'lastTransitionTime', %s::text) || '",'
                || i.condition
        {returning()}),
    queued AS (
        UPDATE pending_pod q
        SET stage = i.stage, attempts = i.attempts, not_before = i.not_before,
            rejected_by = i.rejected_by, message = i.message,
            refused_revision = i.revision, refused_under = i.configuration
        FROM input i
        WHERE q.pod_id = i.pod_id AND q.pod_id = ANY (ARRAY(SELECT pod_id FROM input))),
    logged AS ({log("marked")})
    SELECT id, revision FROM marked ORDER BY revision
"""
_SET_UNSCHEDULABLE = " ".join(_SET_UNSCHEDULABLE.split())


def set_unschedulable(items: Sequence[Unschedulable], *, now: datetime) -> list[tuple[int, int]]:
    """Record why pods were not placed and where they wait; return (pod id, revision) of changes.

    A pod whose condition says the same already gets its place in the queue and no change; the
    transition time stays that of the first refusal. Pods bound or gone meanwhile are passed over.
    """
    if not items:
        return []
    ordered = sorted(items, key=lambda item: item.pod_id)
    moment = document.format_time(now)
    # Thousands are told the same: the text is sent once.
    numbers: dict[tuple[str, str, tuple[str, ...]], int] = {}
    told = [
        numbers.setdefault((item.message, item.reason, item.rejected_by), len(numbers) + 1)
        for item in ordered
    ]
    parameters = (
        sql.Texts(
            [
                f'"message":{_json(message)},"reason":{_json(reason)},'
                '"status":"False","type":"PodScheduled"}'
                for message, reason, _ in numbers
            ]
        ),
        sql.Texts([message for message, _, _ in numbers]),
        sql.Texts([",".join(rejected_by) for _, _, rejected_by in numbers]),
        sql.Int8s([item.pod_id for item in ordered]),
        sql.Int8s(told),
        sql.Texts([item.stage for item in ordered]),
        sql.Int4s([item.attempts for item in ordered]),
        sql.Times([item.not_before for item in ordered]),
        sql.Int8s([item.refused_revision for item in ordered]),
        sql.Int8s([item.refused_under for item in ordered]),
        moment,
        moment,
        now,
    )

    def mark() -> list[sql.Row]:
        rows = sql.fetch(_SET_UNSCHEDULABLE, parameters)
        if rows:
            changes.announce(rows[-1][1], ("Pod",))
        return rows

    marked = {row[0]: row[1] for row in _again_after_deadlock(mark)}
    for item in _whose_nomination_changes(ordered):
        revision = nominate(item.pod_id, item.nominated_node_name or "", now=now)
        if revision:
            marked[item.pod_id] = revision
    return sorted(marked.items())


def _whose_nomination_changes(items: Sequence[Unschedulable]) -> list[Unschedulable]:
    """Return the items that set a nomination, or clear one that there is. Queries at most once."""
    clearing = [item.pod_id for item in items if item.nominated_node_name == ""]
    nominated: set[int] = set()
    if clearing:
        rows = sql.fetch(
            "SELECT id FROM pod WHERE id = ANY(%s) AND nominated_node_name <> ''",
            (sql.Int8s(clearing),),
        )
        nominated = {row[0] for row in rows}
    return [item for item in items if item.nominated_node_name or item.pod_id in nominated]


_MOVE = """
    WITH input AS MATERIALIZED (
        SELECT * FROM unnest(%s, %s, %s, %s) AS i(pod_id, stage, attempts, not_before))
    UPDATE pending_pod q
    SET stage = i.stage, attempts = i.attempts, not_before = i.not_before
    FROM input i
    WHERE q.pod_id = i.pod_id AND q.pod_id = ANY (ARRAY(SELECT pod_id FROM input))
"""


def move_pending(moves: Sequence[QueueMove]) -> int:
    """Write waiting pods' places in the queue; return how many still wait. No change is logged."""
    if not moves:
        return 0
    ordered = sorted(moves, key=lambda move: move.pod_id)
    return sql.run(
        _MOVE,
        (
            sql.Int8s([move.pod_id for move in ordered]),
            sql.Texts([move.stage for move in ordered]),
            sql.Int4s([move.attempts for move in ordered]),
            sql.Times([move.not_before for move in ordered]),
        ),
    )


def nominate(pod_id: int, node_name: str, *, now: datetime) -> int | None:
    """Set status.nominatedNodeName (empty: clear it); return the revision, ``None`` if unchanged.

    Pods bound or gone meanwhile are passed over.
    """

    def change(status: Manifest) -> None:
        if node_name:
            status["nominatedNodeName"] = node_name
        else:
            status.pop("nominatedNodeName", None)

    return _change_status(pod_id, change, now=now, unbound_only=True)


def fail_pods(items: Sequence[tuple[int, str, str]], *, now: datetime) -> list[tuple[int, int]]:
    """Set phase Failed with (pod id, reason, message) each; return (pod id, revision) of changes.

    Finished pods are passed over. One transaction for each pod: failures are few.
    """
    result = []
    for pod_id, reason, message in items:

        def change(status: Manifest, reason: str = reason, message: str = message) -> None:
            if status.get("phase") not in FINISHED:
                status.update(phase="Failed", reason=reason, message=message)

        revision = _change_status(pod_id, change, now=now)
        if revision is not None:
            result.append((pod_id, revision))
    return result


def set_condition(pod_id: int, condition: Manifest, *, now: datetime) -> int | None:
    """Put a condition into status.conditions, replacing one of its type; return the revision.

    ``lastTransitionTime`` is filled in unless given. ``None``: the pod is gone or has it already.
    """

    def change(status: Manifest) -> None:
        conditions = [
            dict(one)
            for one in status.get("conditions") or ()
            if one.get("type") != condition["type"]
        ]
        conditions.append({"lastTransitionTime": document.format_time(now), **condition})
        for one in status.get("conditions") or ():
            if all(one.get(key) == value for key, value in condition.items()):
                return
        status["conditions"] = conditions

    return _change_status(pod_id, change, now=now)


def _change_status(
    pod_id: int,
    change: Callable[[Manifest], None],
    *,
    now: datetime,
    unbound_only: bool = False,
) -> int | None:
    """Apply ``change`` to a pod's status under its row lock; the service's own writes."""

    def changed(old: Manifest) -> Manifest:
        status = dict(old.get("status") or {})
        change(status)
        return {**old, "status": status}

    return rewrite(pod_id, changed, now=now, unbound_only=unbound_only)


def rewrite(
    pod_id: int,
    change: Callable[[Manifest], Manifest],
    *,
    now: datetime,
    unbound_only: bool = False,
) -> int | None:
    """Make the service's own change of a pod under its row lock, past admission.

    Returns the revision; ``None`` when the pod is gone or the same already, or is bound and
    ``unbound_only``. What ``change`` raises is raised, and nothing is written.
    """
    with transaction.atomic():
        key = sql.fetch_one("SELECT namespace, name FROM pod WHERE id = %s::bigint", (pod_id,))
        if key is None:
            return None
        try:
            row = storing.lock_row(POD, *key)
        except StatusError:
            return None
        if row.id != pod_id or (unbound_only and row.overlay.node_name):
            return None
        old = row.manifest()
        new = change(row.manifest())
        if (old.get("spec") or {}).get("schedulingGates") and not new["spec"].get(
            "schedulingGates"
        ):
            new["status"] = _without_gated(new.get("status") or {})
        text, overlay = document.encode("Pod", new)
        if storing.same(POD, row, old, new, text, overlay):
            return None
        if new.get("spec") != old.get("spec"):
            storing.bump_generation(POD, old, new)
            text, overlay = document.encode("Pod", new)
        revision = _write(row, new, text, overlay, now=now)
        changes.announce(revision, ("Pod",))
    return revision


# Update ---------------------------------------------------------------------------------------

_UPDATE = f"""
    WITH gate AS MATERIALIZED (SELECT {changes.OPEN}),
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, nextval('document_id_seq') AS document_id
        FROM gate WHERE opened = 1),
    doc AS (INSERT INTO document (id, text) SELECT document_id, %s::text FROM numbered),
    updated AS (
        UPDATE pod p
        SET document_id = n.document_id, revision = n.revision, class_id = %s::bigint,
            node_name = %s::text, phase = %s::text, scheduled_at = %s::timestamptz,
            unschedulable = %s::text, nominated_node_name = %s::text, deletion_at = %s::timestamptz,
            eviction = %s::text::tstzrange,
            bound_at = CASE WHEN %s THEN %s::timestamptz ELSE p.bound_at END
        FROM numbered n WHERE p.id = %s::bigint
        {returning()}),
    superseded AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT old_document_id, revision FROM updated),
    terminating AS (
        INSERT INTO terminating_pod (pod_id, deletion_at)
        SELECT id, deletion_at FROM updated WHERE deletion_at IS NOT NULL
        ON CONFLICT (pod_id) DO UPDATE SET deletion_at = excluded.deletion_at
        WHERE terminating_pod.deletion_at <> excluded.deletion_at),
    unqueued AS (
        DELETE FROM pending_pod q USING updated u
        WHERE q.pod_id = u.id AND (u.node_name <> '' OR u.phase IN ('Succeeded', 'Failed'))),
    ungated AS (
        UPDATE pending_pod q SET stage = 'active', attempts = 0, not_before = NULL
        FROM updated u
        WHERE %s AND q.pod_id = u.id AND q.stage = 'gated' AND u.node_name = ''
          AND u.phase NOT IN ('Succeeded', 'Failed')),
    placed AS (
        UPDATE node t SET placement_revision = greatest(t.placement_revision, u.revision)
        FROM updated u WHERE %s AND t.name = u.node_name),
    logged AS ({log("updated")})
    SELECT revision FROM updated
"""
_UPDATE = " ".join(_UPDATE.split())


def _write(
    row: Row,
    manifest: Manifest,
    text: str,
    overlay: Overlay,
    *,
    now: datetime,
    place: bool = False,
) -> int:
    """Write a new version of a locked pod; return its revision."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    deletion = metadata.get("deletionTimestamp")
    digest, spec = scheduling_class.encode(manifest)
    ungated = not (manifest.get("spec") or {}).get("schedulingGates")
    found = sql.fetch_one(
        _UPDATE,
        (
            text,
            _class_id(digest, spec, row.class_id),
            overlay.node_name,
            status.get("phase") or "Pending",
            overlay.scheduled_at,
            overlay.unschedulable,
            status.get("nominatedNodeName") or "",
            document.parse_time(deletion) if deletion else None,
            _range(overlay.eviction),
            place,
            now,
            row.id,
            ungated,
            place,
            now,
        ),
    )
    assert found is not None  # the row is locked
    revision: int = found[0]
    return revision


def _range(eviction: document.Eviction | None) -> str | None:
    """Return how PostgreSQL writes both moments and the time between them."""
    if eviction is None:
        return None
    return f"[{eviction.at.isoformat()},{eviction.until.isoformat()}]"


def _class_id(digest: bytes, spec: str, present: int) -> int:
    """Return the id of a scheduling class, inserted if it is new.

    ``present``: the id of the class that the pod has, which is not deleted while the pod has it.
    That another one is remembered does not count, since nothing here would tell that it was deleted
    since: it is asked for, and its row is locked until the pod is written.
    """
    known = _classes.get(digest)
    if known is not None and known.id == present:
        return known.id
    qos, namespace, labels, cpu, memory, ephemeral, extended = _class_facts(spec)
    row = sql.fetch_one(
        """
        INSERT INTO scheduling_class (digest, spec, namespace, labels, cpu_milli, memory_bytes,
                                      ephemeral_bytes, extended)
        VALUES (%s, %s::text, %s::text, %s::text::jsonb, %s::bigint, %s::bigint, %s::bigint,
                %s::text::jsonb)
        ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest RETURNING id
        """,
        (digest, spec, namespace, labels, cpu, memory, ephemeral, extended),
    )
    assert row is not None
    _remember_classes([(digest, row[0], qos)])
    class_id: int = row[0]
    return class_id


def update_pod(
    namespace: str,
    name: str,
    change: Callable[[Manifest], Manifest],
    *,
    now: datetime,
    user: User = NOBODY,
    subresource: str = "",
    dry_run: bool = False,
) -> Stored:
    """Change a pod, or its status, under its row lock; see `actions.objects.update`."""
    context = catalogue.current()
    with storing.work(dry_run=dry_run):
        row = storing.lock_row(POD, namespace, name)
        old = row.manifest()
        new = storing.merge_update(POD, old, change(row.manifest()), subresource)
        if subresource == "status":
            # podStatusStrategy.PrepareForUpdate: agents need not repeat it, and cannot change it.
            qos = (old.get("status") or {}).get("qosClass")
            new["status"] = {"qosClass": qos, **(new.get("status") or {})}
        admitted = admission.admit("Pod", UPDATE, new, old, subresource, context, user)
        new = admitted.manifest
        _check_phase(new)
        if not (new.get("spec") or {}).get("schedulingGates") and (old.get("spec") or {}).get(
            "schedulingGates"
        ):
            new["status"] = _without_gated(new.get("status") or {})
        text, overlay = document.encode("Pod", new)
        if storing.same(POD, row, old, new, text, overlay):
            return Stored(row.composed(), row.revision, admitted.warnings, row.uid, changed=False)
        if not subresource:
            storing.bump_generation(POD, old, new)
            text, overlay = document.encode("Pod", new)
        metadata = new["metadata"]
        if (
            metadata.get("deletionTimestamp")
            and not metadata.get("finalizers")
            and not metadata.get("deletionGracePeriodSeconds")
        ):
            # The last finalizer of a pod whose grace period is over: nothing keeps it any more.
            revision = _remove(row, now=now)
            composed = document.compose(text, revision, overlay)
        else:
            revision = _write(row, new, text, overlay, now=now)
            composed = document.compose(text, revision, overlay)
        changes.announce(revision, ("Pod",))
    return Stored(composed, revision, admitted.warnings, row.uid)


def _check_phase(manifest: Manifest) -> None:
    """Refuse a phase that the table's constraint would refuse.

    Raises:
        Invalid: the phase is unknown.
    """
    phase = (manifest.get("status") or {}).get("phase") or "Pending"
    if phase not in PHASES:
        known = ", ".join(f'"{one}"' for one in PHASES)
        error = FieldError(NOT_SUPPORTED, "status.phase", phase, f"supported values: {known}")
        raise Invalid("Pod", manifest["metadata"]["name"], [error])


def _without_gated(status: Manifest) -> Manifest:
    conditions = [
        one for one in status.get("conditions") or () if one.get("reason") != "SchedulingGated"
    ]
    return {**status, "conditions": conditions}


# Delete ---------------------------------------------------------------------------------------

_DELETE = f"""
    WITH gate AS MATERIALIZED (SELECT {changes.OPEN}),
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, i.pod_id
        FROM gate CROSS JOIN unnest(%s) AS i(pod_id) WHERE opened = 1),
    deleted AS (
        DELETE FROM pod p USING numbered n WHERE p.id = n.pod_id
        {returning("old", "n.revision")}),
    unqueued AS (DELETE FROM pending_pod WHERE pod_id = ANY (ARRAY(SELECT id FROM deleted))),
    gone AS (DELETE FROM terminating_pod WHERE pod_id = ANY (ARRAY(SELECT id FROM deleted))),
    superseded AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT document_id, revision FROM deleted),
    logged AS ({log("deleted", changes.DELETED)})
    SELECT id, revision FROM deleted ORDER BY revision
"""
_DELETE = " ".join(_DELETE.split())


def _remove(row: Row, *, now: datetime) -> int:
    """Delete a locked pod; return the revision of its deletion."""
    found = sql.fetch_one(_DELETE, (sql.Int8s([row.id]), now))
    assert found is not None  # the row is locked
    revision: int = found[1]
    return revision


def delete_pod(
    namespace: str,
    name: str,
    *,
    now: datetime,
    grace_seconds: int | None = None,
    uid: str = "",
    resource_version: str = "",
    user: User = NOBODY,
    dry_run: bool = False,
    condition: Manifest | None = None,
    propagation: Policy | None = None,
) -> Deleted:
    """Delete a pod gracefully.

    Unbound and finished pods, and those with grace 0, are gone at once; a bound one stays until
    somebody deletes it with grace 0, with a deletionTimestamp that a further deletion may bring
    forward; finalizers keep it in any case. ``grace_seconds`` ``None`` means the pod's own.
    ``condition`` is put into the status first (why it is disrupted), unless the pod is leaving
    already: the first cause stands. ``propagation`` is for what the pod owns, if it owns anything.
    Rule: apiserver ``rest/delete.go`` BeforeDelete, ``registry/core/pod/strategy.go``
    CheckGracefulDelete, v1.36.

    Raises:
        NotFound: there is no such pod.
        Conflict: a precondition names another uid or version.
    """
    if grace_seconds is not None and grace_seconds < 0:
        grace_seconds = 1  # BeforeDelete: a negative period is the shortest one
    context = catalogue.current()
    with storing.work(dry_run=dry_run):
        row = storing.lock_row(POD, namespace, name)
        old = row.manifest()
        metadata = old["metadata"]
        storing.check_preconditions(POD, metadata, uid=uid, resource_version=resource_version)
        admission.admit("Pod", DELETE, None, old, "", context, user)
        if metadata.get("deletionTimestamp"):
            # Judged on the locked row: who looked before may have been overtaken by an eviction.
            condition = None
        spec = old.get("spec") or {}
        grace = grace_seconds
        if grace is None:
            grace = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
        if not row.overlay.node_name or row.phase in FINISHED:
            grace = 0
        present = metadata.get("finalizers") or []
        finalizers = finalizers_for("Pod", present, propagation)
        if grace == 0 and not finalizers and condition is None:
            revision = _remove(row, now=now)
            changes.announce(revision, ("Pod",))
            return Deleted(
                document.compose(row.text, revision, row.overlay), revision, row.uid, gone=True
            )
        new = {**old, "metadata": dict(metadata)}
        if finalizers != present:
            new["metadata"]["finalizers"] = finalizers
            if not finalizers:
                del new["metadata"]["finalizers"]
        when = _deletion_time(metadata, grace, now, explicit=grace_seconds is not None)
        if when is not None:
            new["metadata"]["deletionTimestamp"] = document.format_time(when)
            new["metadata"]["deletionGracePeriodSeconds"] = grace
        if condition is not None:
            new["status"] = with_condition(old.get("status") or {}, condition, now)
        text, overlay = document.encode("Pod", new)
        if storing.same(POD, row, old, new, text, overlay):
            return Deleted(row.composed(), row.revision, row.uid, gone=False)
        revision = _write(row, new, text, overlay, now=now)
        composed = document.compose(text, revision, overlay)
        gone = grace == 0 and not finalizers
        if gone:
            row = storing.lock_row(POD, namespace, name)
            revision = _remove(row, now=now)
            composed = document.compose(text, revision, overlay)
        changes.announce(revision, ("Pod",))
        return Deleted(composed, revision, row.uid, gone=gone)


def _deletion_time(
    metadata: Manifest, grace: int, now: datetime, *, explicit: bool
) -> datetime | None:
    """Return the new deletionTimestamp, ``None`` to leave the present one."""
    present = metadata.get("deletionTimestamp")
    if not present:
        return moments.after(now, grace)
    period = metadata.get("deletionGracePeriodSeconds") or 0
    if not explicit and grace != 0:
        return None
    if grace >= period:
        return None
    until = document.parse_time(present)
    # Of one that never comes nobody knows any more when the period began.
    return moments.after(*((now, grace) if moments.is_never(until) else (until, grace - period)))


def with_condition(status: Manifest, condition: Manifest, now: datetime) -> Manifest:
    """Return a pod's status with a condition in place of one of its type."""
    conditions = [
        one for one in status.get("conditions") or () if one.get("type") != condition["type"]
    ]
    stamped = {"lastTransitionTime": document.format_time(now), **condition}
    return {**status, "conditions": [*conditions, stamped]}


_DELETABLE = """
    SELECT p.id FROM pod p JOIN document d ON d.id = p.document_id
    WHERE p.id = ANY(%s) AND position('"finalizers":[' in d.text) = 0
    ORDER BY p.id FOR UPDATE OF p SKIP LOCKED
"""


def finish_deletions(pod_ids: Sequence[int], *, now: datetime) -> list[tuple[int, int]]:
    """Remove terminating pods whose agent is done (or has no agent); return (id, revision) each.

    Pods with finalizers, not terminating, or locked by somebody at this moment are passed over.
    """
    if not pod_ids:
        return []
    with transaction.atomic():
        rows = sql.fetch(
            _DELETABLE.replace("WHERE", "WHERE p.deletion_at IS NOT NULL AND"),
            (sql.Int8s(sorted(pod_ids)),),
        )
        if not rows:
            return []
        removed = sql.fetch(_DELETE, (sql.Int8s([row[0] for row in rows]), now))
        changes.announce(removed[-1][1], ("Pod",))
    return [(row[0], row[1]) for row in removed]


# Evict ----------------------------------------------------------------------------------------


_EVICTED_BY_API: Final[Manifest] = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def evict_pod(
    namespace: str,
    name: str,
    options: Manifest,
    *,
    now: datetime,
    user: User = NOBODY,
    condition: Manifest | None = None,
) -> Deleted:
    """Delete a pod if its disruption budget allows; ``options`` are checked DeleteOptions.

    ``condition`` says why it is disrupted, by default that the eviction API was asked.

    Pods that are finished, pending or terminating need no budget. Rule:
    ``registry/core/pod/storage/eviction.go``, v1.36.

    Raises:
        TooManyRequests: the budget is used up.
        NotFound, Conflict: as for ``delete_pod``.
    """
    dry_run = bool(options.get("dryRun"))
    preconditions = options.get("preconditions") or {}
    with storing.work(dry_run=dry_run):
        # The budget's row is locked before the pod's, by everybody.
        _use_budget(namespace, name, now=now)
        return delete_pod(
            namespace,
            name,
            now=now,
            grace_seconds=options.get("gracePeriodSeconds"),
            uid=preconditions.get("uid") or "",
            resource_version=preconditions.get("resourceVersion") or "",
            user=user,
            condition=condition or _EVICTED_BY_API,
            propagation=Policy(policy) if (policy := options.get("propagationPolicy")) else None,
        )


def _use_budget(namespace: str, name: str, *, now: datetime) -> None:
    """Charge the budget that selects the pod, if one does. Rule: registry/core/pod/storage."""
    row = sql.fetch_one(
        "SELECT p.id, p.phase, p.deletion_at, c.labels::text FROM pod p"
        " JOIN scheduling_class c ON c.id = p.class_id WHERE p.namespace = %s AND p.name = %s",
        (namespace, name),
    )
    if row is None or row[2] is not None or row[1] in (*FINISHED, "Pending"):
        return  # canIgnorePDB; whatever else is wrong, delete_pod says so
    labels = msgspec.json.decode(row[3], type=dict[str, str])
    budgets = []
    for found in sql.fetch(
        "SELECT t.name, d.text, t.revision FROM pod_disruption_budget t"
        " JOIN document d ON d.id = t.document_id WHERE t.namespace = %s ORDER BY t.name",
        (namespace,),
    ):
        manifest = document.decode(found[1], found[2])
        selector = (manifest.get("spec") or {}).get("selector")
        lens = None if selector is None else msgspec.convert(selector, LabelSelector)
        if selector_from_label_selector(lens).matches(labels):
            budgets.append(found[0])
    if not budgets:
        return
    if len(budgets) > 1:
        raise StatusError(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does"
            " not support."
        )

    def spend(manifest: Manifest) -> Manifest:
        status = dict(manifest.get("status") or {})
        observed, generation = (
            status.get("observedGeneration", 0),
            manifest["metadata"].get("generation", 0),
        )
        if observed < generation:
            raise TooManyRequests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                {
                    "causes": [
                        {
                            "reason": "DisruptionBudget",
                            "message": f"The disruption budget {budgets[0]} is still being"
                            " processed by the server.",
                        }
                    ],
                    "retryAfterSeconds": 10,
                },
            )
        allowed = status.get("disruptionsAllowed") or 0
        if allowed <= 0:
            needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
            raise TooManyRequests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                {
                    "causes": [
                        {
                            "reason": "DisruptionBudget",
                            "message": f"The disruption budget {budgets[0]} needs {needed} healthy"
                            f" pods and has {healthy} currently",
                        }
                    ]
                },
            )
        disrupted = dict(status.get("disruptedPods") or {})
        disrupted[name] = document.format_time(now)
        return {
            **manifest,
            "status": {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted},
        }

    budget = storing.lock_row(BUDGET, namespace, budgets[0])
    present = budget.manifest()
    if not _is_ready(namespace, name) and _may_go_unhealthy(present):
        return
    spent = spend(present)
    text, _ = document.encode(BUDGET.name, spent)
    revision = storing.update_row(BUDGET, budget, spent, text, now=now)
    changes.announce(revision, (BUDGET.name,))


def _is_ready(namespace: str, name: str) -> bool:
    status = queries.get_manifest(POD, namespace, name).get("status") or {}
    return any(
        one.get("type") == "Ready" and one.get("status") == "True"
        for one in status.get("conditions") or ()
    )


def _may_go_unhealthy(budget: Manifest) -> bool:
    """Return whether a pod that is not ready may go without charging the budget."""
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy") or 0
    return (status.get("currentHealthy") or 0) >= desired > 0


__all__ = [
    "BindResult",
    "Binding",
    "QueueMove",
    "Unschedulable",
    "bind_pod",
    "bind_pods",
    "create_pod",
    "create_pods",
    "delete_pod",
    "evict_pod",
    "fail_pods",
    "finish_deletions",
    "forget_classes",
    "move_pending",
    "nominate",
    "rewrite",
    "set_condition",
    "set_unschedulable",
    "update_pod",
    "with_condition",
]

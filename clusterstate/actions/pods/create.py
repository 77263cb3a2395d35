"""Create pods: one statement inserts one pod or thousands."""

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from clusterstate import catalogue
from clusterstate.actions.pods import places as places_held
from clusterstate.actions.pods.classes import class_facts, remember_classes
from clusterstate.actions.pods.clauses import POD
from clusterstate.actions.pods.preparing import PreparedPod, prepare_pod
from clusterstate.actions.writing import object_meta, quotas, transactions
from clusterstate.actions.writing.stored import NewObject, StoredObject
from clusterstate.admission.plugins.resource_quota import Charge
from clusterstate.admission.request import NOBODY, User
from clusterstate.change_log import actors, changes
from clusterstate.database import locks, sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import usage
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import AlreadyExists, StatusError, TooManyRequests
from clusterstate.objects.values.meta import Manifest

_MAX_NAME_TRIES = 8

_MAX_EPOCH_TRIES = 20


def _create_statement(*, new_classes: bool, placed: bool) -> str:
    """Return the insert statement for one or many pods.

    ``new_classes``: some classes are new to this process and are inserted too. Another process may
    insert the same class at the same time; DO UPDATE waits for it and returns the surviving id.
    ``placed``: some pods name their node, which makes this a foreign placement. That takes the
    placement lock, and so does a new class with rules about other pods, before any revision: every
    bind by a scheduler that does not know the class has an earlier revision than the pod
    (`actions.pods.bind`).
    """
    placing = f"CASE WHEN pg_advisory_xact_lock_shared({locks.PLACEMENT}) IS NOT NULL THEN 1 END"
    if new_classes and not placed:
        reaches = "(SELECT bool_or(class_reaches(n.spec)) FROM unnest(%s) AS n(spec))"
        placing = f"CASE WHEN {reaches} THEN {placing} END"
    lock = f", {placing} AS placing" if new_classes or placed else ""
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
               i.unschedulable, i.actor_id, i.cause
        FROM gate CROSS JOIN unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
             WITH ORDINALITY
             AS i(uid, namespace, name, class_id, digest, text, node_name, priority,
                  scheduler_name, unschedulable, actor_id, cause, position)
        {join}
        WHERE opened = 1 AND epoch = %s::bigint),
    doc AS (INSERT INTO document (id, text) SELECT document_id, text FROM numbered),
    inserted AS (
        INSERT INTO pod (id, uid, namespace, name, class_id, document_id, revision, node_name,
                         phase, priority, scheduler_name, scheduled_at, bound_at, unschedulable,
                         nominated_node_name, created_at{", arrival_revision" if placed else ""})
        SELECT id, uid, namespace, name, class_id, document_id, revision, node_name, 'Pending',
               priority, scheduler_name, placed_at, placed_at, unschedulable, '', %s::timestamptz
               {", CASE WHEN node_name <> '' THEN revision END" if placed else ""}
        FROM (SELECT *, CASE WHEN node_name <> '' THEN %s::timestamptz END AS placed_at
              FROM numbered) n),
    queued AS (
        INSERT INTO pending_pod (pod_id, stage, attempts, since, rejected_by, message)
        SELECT id, CASE WHEN strpos(unschedulable, '"SchedulingGated"') > 0 THEN 'gated'
                   ELSE 'active' END, 0,
               %s::timestamptz, ARRAY[]::text[], ''
        FROM numbered WHERE node_name = ''){nodes},
    logged AS (
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                            class_id, node_name, scheduled_at, unschedulable, phase,
                            actor_id, cause)
        SELECT revision, %s::timestamptz, {KINDS["Pod"].code}, {changes.ADDED}, id, namespace,
               name, document_id, class_id, node_name,
               CASE WHEN node_name <> '' THEN %s::timestamptz END, unschedulable, 'Pending',
               actor_id, cause
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
) -> list[StoredObject | StatusError]:
    """Create pods in one statement; return one result each, in order.

    With ``all_or_nothing`` the first error is raised and nothing is stored. Without, each failing
    pod has its error in the result and the others are stored (in a second statement when a name
    turns out to be taken). One statement is one transaction, unless the caller has opened one.

    Raises:
        StatusError: admission refuses one; AlreadyExists for a name that is taken, or occurs twice
            in the list.
    """
    items = [(namespace, manifest, user) for manifest in manifests]
    return _create(items, now, all_or_nothing=all_or_nothing)


def create_pods_each(
    items: Sequence[NewObject], *, now: datetime
) -> list[StoredObject | StatusError]:
    """Create pods (namespace, manifest, user) as `objects.create_each` does."""
    return _create(items, now, all_or_nothing=False)


def _create(
    items: Sequence[NewObject],
    now: datetime,
    books: quotas.Books | None = None,
    *,
    all_or_nothing: bool,
) -> list[StoredObject | StatusError]:
    """Create pods; those in namespaces with ``books`` (quotas) are charged.

    With books the catalogue is current, and stays so until the transaction ends.
    """
    results: list[StoredObject | StatusError | None] = [None] * len(items)
    remaining = range(len(items))
    tries = 0
    context = catalogue.current()
    while remaining:
        if books is None and context.has_quotas:
            spaces = {_namespace_of(namespace, manifest) for namespace, manifest, _ in items}
            if limited := quotas.limited(context, POD, spaces):
                again = partial(_create, items, now, all_or_nothing=all_or_nothing)
                return quotas.with_books(POD, spaces, limited, now, again)
        prepared: list[PreparedPod] = []
        places: list[int] = []
        charges: list[Charge] = []
        for place in remaining:
            namespace, manifest, user = items[place]
            try:
                one = prepare_pod(manifest, namespace, now, user, context)
                one.actor = user.actor
                if books is not None:
                    charges.append(_charge(books, one))
                prepared.append(one)
                places.append(place)
            except StatusError as error:
                # An outdated rule may refuse what the current one admits.
                if tries == 0 and books is None and not catalogue.is_current(context):
                    break
                if all_or_nothing:
                    raise
                results[place] = error
        else:
            holds_places = places_held.may_be_held(context)
            with transaction.atomic() if holds_places else nullcontext():
                stored = _insert(prepared, now, context.epoch, books, all_or_nothing=all_or_nothing)
                if stored is not None and holds_places:
                    new = [
                        (items[place][1], one.namespace, one.name)
                        for place, one, outcome in zip(places, prepared, stored, strict=True)
                        if not isinstance(outcome, StatusError)
                    ]
                    places_held.hand_over(new, now=now)
            if stored is not None:
                renamed = []
                for number, (place, one, outcome) in enumerate(
                    zip(places, prepared, stored, strict=True)
                ):
                    if isinstance(outcome, AlreadyExists):
                        if books is not None:
                            books.take_back(one.namespace, charges[number])
                        if one.generated and tries < _MAX_NAME_TRIES:
                            renamed.append(place)
                        elif one.generated and all_or_nothing:
                            raise outcome
                    results[place] = outcome
                remaining = range(0)
                if renamed and all_or_nothing:
                    remaining = range(len(items))
                elif renamed:
                    remaining = renamed  # type: ignore[assignment]
                tries += 1
                continue
        tries += 1
        if tries > _MAX_EPOCH_TRIES:
            raise TooManyRequests("objects that admission reads change too quickly; try again")
        context = catalogue.reload()
    return [result for result in results if result is not None]


def _namespace_of(namespace: str, manifest: Manifest) -> str:
    return namespace or (manifest.get("metadata") or {}).get("namespace") or "default"


def _charge(books: quotas.Books, pod: PreparedPod) -> Charge:
    """Charge a pod that will be stored.

    Raises:
        Forbidden: it does not fit into a quota, or does not state what a quota limits.
    """
    extras = usage.NO_EXTRAS
    if books.look_into_pods(pod.namespace):
        extras = usage.extras_of(document.compose(pod.text, 0, pod.overlay))
    counts = usage.pod_usage(pod.spec, finished=False, extras=extras)

    def containers() -> list[str]:
        spec = document.decode(pod.text, 0, pod.overlay)["spec"]
        return [one["name"] for one in (*spec["containers"], *spec.get("initContainers", ()))]

    return books.charge(POD, pod.namespace, pod.name, counts, containers=containers)


def _insert(
    prepared: list[PreparedPod],
    now: datetime,
    epoch: int,
    books: quotas.Books | None,
    *,
    all_or_nothing: bool,
) -> list[StoredObject | AlreadyExists] | None:
    """Insert the pods; ``None``, without a write, when the epoch is not the current one."""
    if not prepared:
        return []
    try:
        savepoint = books is None or not books.is_hopeful
        with transactions.unique_names(POD, prepared[0].name, savepoint=savepoint):
            rows = _run_insert(prepared, now, epoch, books)
    except AlreadyExists as error:
        if len(prepared) == 1:
            if prepared[0].generated or not all_or_nothing:
                return [error]
            raise
        duplicates = _taken_names(prepared)
        if all_or_nothing:
            first = next(iter(duplicates.values()), error)
            if not any(prepared[i].generated for i in duplicates):
                raise first from None
            return [duplicates.get(i, error) for i in range(len(prepared))]
        free = [one for i, one in enumerate(prepared) if i not in duplicates]
        if len(free) == len(prepared):
            raise  # the pod with this name is gone; the caller may try again
        stored = _insert(free, now, epoch, books, all_or_nothing=False)
        if stored is None:
            return None
        rest = iter(stored)
        return [duplicates[i] if i in duplicates else next(rest) for i in range(len(prepared))]
    if not rows:
        return None
    revision = rows[-1][1]
    claims = any('"resourceClaimTemplateName"' in one.spec for one in prepared)
    changes.announce(revision, ("Pod", "ResourceClaimTemplate") if claims else ("Pod",))
    unknown = [
        (one.digest, row[2], class_facts(one.spec)[0])
        for one, row in zip(prepared, rows, strict=True)
        if one.class_id is None
    ]
    if unknown:
        remember_classes(unknown)
    return [
        StoredObject(
            transactions.written_json(one.text, row[1], one.overlay),
            row[1],
            one.warnings,
            str(one.uid),
        )
        for one, row in zip(prepared, rows, strict=True)
    ]


def _taken_names(prepared: list[PreparedPod]) -> dict[int, AlreadyExists]:
    """Return the pods whose name is taken, by position: in the table, or earlier in the list."""
    keys = [(one.namespace, one.name) for one in prepared]
    rows = sql.fetch(
        "SELECT p.namespace, p.name FROM pod p JOIN unnest(%s, %s) AS k(namespace, name)"
        " ON p.namespace = k.namespace AND p.name = k.name",
        (sql.Texts([k[0] for k in keys]), sql.Texts([k[1] for k in keys])),
    )
    names = {(row[0], row[1]) for row in rows}
    result = {}
    for position, key in enumerate(keys):
        if key in names:
            result[position] = object_meta.already_exists(POD, key[1])
        names.add(key)
    return result


def _run_insert(
    prepared: list[PreparedPod], now: datetime, epoch: int, books: quotas.Books | None
) -> list[sql.Row]:
    placed = any(one.overlay.node_name for one in prepared)
    # Sorted, so that two statements with the same new classes do not deadlock.
    unknown = sorted({(one.digest, one.spec) for one in prepared if one.class_id is None})
    parameters: list[Any] = [*actors.gate()]
    if unknown:
        facts = [class_facts(spec) for _, spec in unknown]
        if not placed:
            parameters.append(sql.Texts([spec for _, spec in unknown]))
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
        *actors.columns([one.actor for one in prepared]),
        epoch,
        now,
        now,
        now,
        now,
        now,
    ]
    statement = _CREATE[bool(unknown), placed]
    if books is None:
        return sql.fetch(statement, parameters)
    return books.fetch(statement, parameters, now)

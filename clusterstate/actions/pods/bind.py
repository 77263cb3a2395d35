"""Bind pods to nodes: the scheduler's batches, and a client's Binding.

The contract between scheduler and database
-------------------------------------------

A ``Binding`` has the pod and its node, what the pod takes there and what the decision relied on
(its ``Footprint``, one for each scheduling class), and the bindings without which it is not valid.
The answer says why a pod was not bound (``BindRefusal``), so that its scheduler can follow the log,
decide again or give the pod up.

``bind_pods`` checks what one scheduler needs while clients place pods, too: that the pod is still
of the class that was decided (and so has its amounts, ports and labels), that its node's rules have
not changed (``placement_revision``), and that no other process bound pods meanwhile (the row of
``binder``; see the package). The caller takes no locks.

*Several schedulers at work* (``OtherSchedulers``). Then the row of ``binder`` says so, and a row
for each batch (``bind_batch``) takes its place, so that a bind by one scheduler invalidates only
decisions of another that it affects. A row has the batch's revision, its scheduler, its nodes and
its counters. A bind is compared with the batches of others after its snapshot:

    nodes      If the pod's node is in none of them, amounts, ports and everything else that a rule
               reads of the node are as decided. If the node is *overtaken*, a pod that takes
               nothing but ``_COLUMNS`` is still bound if the node has room for it beside all pods
               that are there now, that are nominated for it, and that are bound with it.
    counters   of pods over many nodes, which hard rules read. Each rule has a number, and a binding
               states the numbers of all rules that its pod has or that mean the pod
               (``scheduling.worker.division``): two pods of which one may matter to the other's
               rules have a number in common.
    reach_seq  counts the classes with such rules. A pod is bound only by a scheduler that knows
               all of them, so that no number is missing. Storing or deleting a class takes the
               placement lock shared (a trigger), so that the next bind sees it.

Rows of the last ``_KEPT`` revisions are kept, and a bind on an older snapshot is refused.

A single scheduler writes no such row; the row of ``binder`` keeps both kinds from binding
without the other's binds. The first of several stores in another row when a scheduler was last
alone, which all of them must know.

*Groups.* A batch is decided in sequence, each pod assuming the ones before it. A binding that
``leans`` may be valid only because of others of its group: it is bound together with all of the
group or not at all (``BindResult.held``). The members it leans on need not lean themselves. A group
in which all lean is bound whole or not at all, as a gang is. A batch with a gang appears as one
change (`change_log.changes`, atomic spans).
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
from django.db import transaction

from clusterstate import admission, catalogue
from clusterstate.actions.pods.clauses import PENDING, POD, log_versions, returning_versions
from clusterstate.actions.pods.versions import lock_pod, write_version
from clusterstate.actions.writing import object_meta
from clusterstate.actions.writing.deadlocks import again_after_deadlock
from clusterstate.admission.request import CREATE, NOBODY, User
from clusterstate.admission.validation.core.field import Errors
from clusterstate.admission.validation.core.metadata import validate_annotations, validate_labels
from clusterstate.change_log import actors, changes
from clusterstate.database import locks, sql
from clusterstate.objects.rules.footprint import Footprint
from clusterstate.objects.values import document
from clusterstate.objects.values.document import Overlay
from clusterstate.objects.values.errors import Conflict, Invalid
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.nodes import node_labels


class BindRefusal(StrEnum):
    """Why a pod was not bound."""

    GONE = "gone"
    """It was deleted, or is being deleted."""
    PLACED = "placed"
    """It is on a node, or has finished."""
    CHANGED = "changed"
    """It is of another scheduling class than the one it was decided as."""
    NO_NODE = "no node"
    """There is no such node."""
    NODE_CHANGED = "node changed"
    """Since the snapshot the node's rules changed, or another client placed a pod there."""
    OVERTAKEN = "overtaken"
    """Another scheduler bound pods that the snapshot does not know."""
    NEW_RULES = "new rules"
    """A class with rules about other pods came or went that the scheduler has not read."""
    CLAIMED = "claimed"
    """A claim of devices is gone, or is not as it was decided any more."""


class Binding(msgspec.Struct, frozen=True):
    """A decision: this pod to that node.

    ``footprint``: what it takes and relied on; ``None`` if unknown, as for a client's bind.
    ``group`` and ``leans``: see the module. ``gang``: pods with one number other than 0 are bound
    together or returned together, whatever group they are in, since a group may be judged again
    without those that could not be bound. ``claims``: the claims of devices with their allocations,
    to be written with the binding (``actions.scheduler.claiming``). ``counters``: numbers of rules;
    see the module. Unused with one scheduler.
    """

    pod_id: int
    node_name: str
    footprint: Footprint | None = None
    group: int = 0
    leans: bool = False
    gang: int = 0
    claims: tuple[Manifest, ...] = ()
    counters: tuple[int, ...] = ()


class OtherSchedulers(msgspec.Struct, frozen=True):
    """The knowledge of a scheduler that works beside others.

    ``reach``: the number of the classes with hard rules about other pods (``reach_seq``) when this
    scheduler read them (``queries.scheduler.reaching``). ``shard`` and ``epoch``: its number, and
    the run of a scheduler under it (``decisions.begin_epoch``).
    """

    reach: int
    shard: int
    epoch: int


class Superseded(Exception):
    """Another process has this scheduler's number: nothing is bound, its state is outdated."""


class BindResult(msgspec.Struct, frozen=True):
    """The result of a batch of bindings.

    ``bound`` pairs pod ids with the revision of their binding, in the order of the decisions.
    ``refused``: pods that could not be bound. ``held``: pods that could be, but lean on members of
    their groups that could not.
    """

    bound: list[tuple[int, int]]
    refused: dict[int, BindRefusal] = {}
    held: list[int] = []


LOCK_PLACEMENT = f"SELECT pg_advisory_xact_lock({locks.PLACEMENT})"

_LOCK_PLACEMENT_SHARED = f"SELECT pg_advisory_xact_lock_shared({locks.PLACEMENT})"


_AS_DECIDED = "(i.class_id = p.class_id OR i.class_id = 0)"

# A bound pod is no longer nominated (registry/core/pod/storage ``setPodNodeAndMetadata``,
# ClearingNominatedNodeNameAfterBinding, v1.36). The nomination is in the document, so a nominated
# pod gets a new one; all others keep theirs.
_DOCUMENT = (
    "document_id = CASE WHEN p.nominated_node_name = '' THEN p.document_id"
    " ELSE nextval('document_id_seq') END, nominated_node_name = ''"
)

# A statement that waited for another writer of the pod does not see that writer's document: a
# nominated pod is then decided again. In one CASE for the reason at ``PENDING``; not EXISTS, for
# which the planner might read all documents.
_BINDABLE = (
    "CASE WHEN p.node_name = '' AND p.phase = 'Pending' AND (p.nominated_node_name = ''"
    " OR (SELECT d.id FROM document d WHERE d.id = p.document_id) IS NOT NULL)"
    " THEN true ELSE false END"
)

# The member is in the text after the last slot, which only has members of the status; a node's name
# needs no escapes, and quotes inside a string would have them.
_UNNOMINATED = """
    unnominated AS (
        INSERT INTO document (id, text)
        SELECT document_id, left(text, -length(tail))
               || CASE WHEN starts_with(tail, member)
                       THEN ltrim(substr(tail, length(member) + 1), ',')
                       ELSE replace(tail, ',' || member, '') END
        FROM (SELECT document_id, member, text, split_part(text, chr(1), -1) AS tail
              FROM (SELECT b.document_id,
                           '"nominatedNodeName":"' || b.was_nominated || '"' AS member,
                           (SELECT d.text FROM document d WHERE d.id = b.old_document_id) AS text
                    FROM bound b WHERE b.was_nominated <> '' OFFSET 0) found) parts),
    superseded AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT old_document_id, revision FROM bound WHERE was_nominated <> '')"""


_SEVERAL: Final = "schedulers by batches"
"""The holder in the row of ``binder`` while several schedulers work. Those of version 0.2 write
another one: to each other, both kinds are like a scheduler that is alone."""
_KEPT: Final = 100_000
_LAST_ALONE: Final = 3
"""The row of ``binder`` that keeps the last bind by one alone while several schedulers work."""
_COLUMNS: Final = {
    "cpu": "cpu_milli",
    "memory": "memory_bytes",
    "ephemeral-storage": "ephemeral_bytes",
}
"""The resources that are compared with a node's room: columns of nodes and of classes."""


def _room_statement() -> str:
    """Return CTEs: the ``wanted`` pods, and which of them fit on nodes with others' binds.

    Exact because the placement lock is held: what takes room without a scheduler raises
    ``placement_revision`` under the same lock, and everything else only frees room. Nominated pods
    count whatever their priority, because the decision may have kept that room free. Subqueries for
    each node and pod, since the planner might else read all pods. Rule: noderesources/fit.go
    ``fitsRequest``, v1.36: resources that a pod does not request may be overcommitted.
    """
    names = _COLUMNS.values()
    of_class = f"SELECT {', '.join(names)} FROM scheduling_class"
    return f"""
    wanted AS MATERIALIZED (
        SELECT i.*, n.id AS node_id,
               n.id IN (SELECT unnest(nodes) FROM recent) AS overtaken
        FROM gate CROSS JOIN unnest(%s, %s, %s, %s, %s, %s) WITH ORDINALITY
             AS i(pod_id, node_name, class_id, together, team, plain, position)
        JOIN node n ON n.name = i.node_name AND n.placement_revision <= gate.snapshot
        ORDER BY i.pod_id),
    room AS MATERIALIZED (
        SELECT n.id AS node_id, n.pods - u.pods AS pods,
               {", ".join(f"n.{name} - u.{name} AS {name}" for name in names)}
        FROM (SELECT DISTINCT node_id FROM wanted WHERE overtaken AND plain = 1) o
        JOIN node n ON n.id = o.node_id
        CROSS JOIN LATERAL (
            SELECT count(*) AS pods,
                   {", ".join(f"coalesce(sum(c.{name}), 0) AS {name}" for name in names)}
            FROM (
                SELECT class_id FROM pod
                WHERE node_name = n.name AND node_name <> ''
                      AND phase NOT IN ('Succeeded', 'Failed')
                UNION ALL
                SELECT class_id FROM pod
                WHERE nominated_node_name = n.name AND nominated_node_name <> ''
                      AND node_name = '' AND id <> ALL (ARRAY(SELECT pod_id FROM wanted))) p
            CROSS JOIN LATERAL ({of_class} WHERE id = p.class_id OFFSET 0) c) u),
    fitting AS MATERIALIZED (
        SELECT w.pod_id FROM room r JOIN (
            SELECT w.pod_id, w.node_id, count(*) OVER turn AS pods,
                   {", ".join(f"c.{name} AS own_{name}" for name in names)},
                   {", ".join(f"sum(c.{name}) OVER turn AS {name}" for name in names)}
            FROM wanted w CROSS JOIN LATERAL ({of_class} WHERE id = w.class_id OFFSET 0) c
            WHERE w.overtaken AND w.plain = 1
            WINDOW turn AS (PARTITION BY w.node_id ORDER BY w.position)) w USING (node_id)
        WHERE w.pods <= r.pods
              AND {" AND ".join(f"(w.own_{n} = 0 OR w.{n} <= r.{n})" for n in names)})"""


def _bind_statement(*, leaning: bool, beside: bool) -> str:
    """Return the statement that binds a batch; it returns pod ids and the revisions of bindings.

    ``beside``: several schedulers work. ``leaning``: some pods are bound only if all of their group
    can be. That must not change after the check, so the rows are locked first, in the order of
    their ids. Revisions are then taken in the order of the decisions, so that the log has no pod
    before one it leans on; the answer also has the pods that were locked and not bound.
    """
    gate = f"""
    gate AS MATERIALIZED (
        SELECT {changes.OPEN}, %s::timestamptz AS at FROM binder
        WHERE id = 1 AND (holder = %s::text OR revision <= %s::bigint))"""
    held = """
    held AS (
        UPDATE binder SET holder = %s::text, revision = m.revision
        FROM (SELECT max(revision) AS revision FROM bound) m
        WHERE binder.id = 1 AND m.revision IS NOT NULL)"""
    known = room = ""
    items = "unnest(%s, %s, %s, %s, %s) WITH ORDINALITY" if leaning else "unnest(%s, %s, %s)"
    more = ", together, team, position" if leaning else ""
    given = f"""{items} AS i(pod_id, node_name, class_id{more})
        JOIN node n ON n.name = i.node_name AND n.placement_revision <= %s::bigint"""
    if beside:
        gate = f"""
    gate AS MATERIALIZED (
        SELECT {changes.OPEN}, %s::timestamptz AS at, mine.holder, mine.snapshot,
               b.holder = '{_SEVERAL}' AS several, b.revision AS before
        FROM binder b, binder a,
             (SELECT %s::text AS holder, %s::bigint AS snapshot, %s::bigint AS reach,
                     %s::smallint AS shard, %s::bigint AS epoch) mine
        WHERE b.id = 1 AND (b.revision <= mine.snapshot
                              OR b.holder = '{_SEVERAL}' AND b.revision - {_KEPT} < mine.snapshot)
              AND a.id = {_LAST_ALONE} AND a.revision <= mine.snapshot
              AND (SELECT last_value FROM reach_seq) <= mine.reach
              AND (SELECT epoch FROM scheduler WHERE id = mine.shard) = mine.epoch),
    counted AS MATERIALIZED (SELECT * FROM unnest(%s, %s) AS c(pod_id, counter)),
    recent AS MATERIALIZED (
        SELECT t.nodes, t.counters FROM gate JOIN bind_batch t
        ON t.revision > gate.snapshot AND t.holder <> gate.holder),
    outdated AS MATERIALIZED (
        SELECT pod_id FROM counted WHERE counter IN (SELECT unnest(counters) FROM recent))"""
        given, room = "wanted i", f"{_room_statement()},"
        known = """
              AND i.pod_id NOT IN (SELECT pod_id FROM outdated)
              AND (NOT i.overtaken OR i.pod_id IN (SELECT pod_id FROM fitting))"""
        held = f"""
    held AS (
        UPDATE binder
        SET holder = CASE id WHEN 1 THEN '{_SEVERAL}' ELSE gate.holder END,
            revision = CASE id WHEN 1 THEN m.revision ELSE gate.before END
        FROM gate, (SELECT max(revision) AS revision FROM bound) m
        WHERE m.revision IS NOT NULL AND (id = 1 OR id = {_LAST_ALONE} AND NOT gate.several)),
    noted AS (
        INSERT INTO bind_batch (revision, holder, nodes, counters)
        SELECT m.revision, gate.holder,
               ARRAY(SELECT DISTINCT node_id FROM wanted
                     WHERE pod_id = ANY (ARRAY(SELECT id FROM bound))),
               ARRAY(SELECT DISTINCT counter FROM counted
                     WHERE pod_id = ANY (ARRAY(SELECT id FROM bound)))
        FROM gate, (SELECT max(revision) AS revision FROM bound) m
        WHERE m.revision IS NOT NULL)"""
    if leaning:
        bound = f"""
    able AS MATERIALIZED (
        SELECT p.id, i.node_name, i.together, i.team, i.position
        FROM gate, {given}
        JOIN pod p ON p.id = i.pod_id
        WHERE gate.opened = 1 AND {_BINDABLE} AND p.deletion_at IS NULL AND {_AS_DECIDED}{known}
        ORDER BY p.id FOR UPDATE OF p),
    sized AS MATERIALIZED (SELECT *, count(*) OVER (PARTITION BY team) AS size FROM able),
    numbered AS MATERIALIZED (
        SELECT id, node_name, {changes.NEXT} AS revision
        FROM sized WHERE together <= size
        ORDER BY position),
    bound AS (
        UPDATE pod p
        SET node_name = i.node_name, scheduled_at = gate.at, bound_at = gate.at,
            unschedulable = NULL, revision = i.revision, {_DOCUMENT}
        FROM gate, numbered i
        WHERE p.id = i.id
        {returning_versions()}, old.nominated_node_name AS was_nominated)"""
        atomic = f"""
    atomic AS ({changes.ATOMIC.format(source="bound", condition="%s::boolean")}),"""
        answer = (
            "SELECT id, NULL AS revision FROM sized WHERE together > size"
            " UNION ALL SELECT id, revision FROM bound ORDER BY revision NULLS FIRST"
        )
    else:
        bound = f"""
    bound AS (
        UPDATE pod p
        SET node_name = i.node_name, scheduled_at = gate.at, bound_at = gate.at,
            unschedulable = NULL, revision = {changes.NEXT}, {_DOCUMENT}
        FROM gate, {given}
        WHERE gate.opened = 1 AND p.id = i.pod_id AND {_BINDABLE} AND p.deletion_at IS NULL
              AND {_AS_DECIDED}{known}
        {returning_versions()}, old.nominated_node_name AS was_nominated)"""
        atomic = ""
        answer = "SELECT id, revision FROM bound ORDER BY revision"
    statement = f"""
    WITH {gate},{room}
    {bound},
    unqueued AS (DELETE FROM pending_pod WHERE pod_id = ANY (ARRAY(SELECT id FROM bound))),{atomic}
    {held},
    logged AS ({log_versions("bound")}),{_UNNOMINATED}
    {answer}
"""
    return " ".join(statement.split())


_BIND = {
    (leaning, beside): _bind_statement(leaning=leaning, beside=beside)
    for leaning in (False, True)
    for beside in (False, True)
}

_WHY = f"""
    SELECT i.pod_id, p.id IS NULL OR p.deletion_at IS NOT NULL, NOT ({PENDING}),
           NOT {_AS_DECIDED}, n.id IS NULL, n.placement_revision > %s::bigint
    FROM unnest(%s, %s, %s) AS i(pod_id, node_name, class_id)
    LEFT JOIN pod p ON p.id = i.pod_id LEFT JOIN node n ON n.name = i.node_name
"""
_REASONS = (
    BindRefusal.GONE,
    BindRefusal.PLACED,
    BindRefusal.CHANGED,
    BindRefusal.NO_NODE,
    BindRefusal.NODE_CHANGED,
)


def bind_pods(
    bindings: Sequence[Binding],
    *,
    snapshot_revision: int,
    now: datetime,
    binder: str = "scheduler",
    beside: OtherSchedulers | None = None,
) -> BindResult:
    """Bind the pods whose decisions are still valid; one change for each pod.

    No document is written, except for nominated pods, whose nomination ends. ``bindings`` are in
    the order of the decisions. ``snapshot_revision`` is the revision up to which the deciding
    snapshot had followed the log; binds by the same ``binder`` need not be in it. A pod is bound if
    it is unbound, pending, not terminating and of the class that was decided, and its node exists
    and had no foreign placement after the snapshot (see the package); one that leans is bound if
    that is true for all of its group. ``beside``: other schedulers work, too (see the module);
    ``binder`` then is one of their names.

    Raises:
        Superseded: another process has the number of ``beside``.
    """
    if not bindings:
        return BindResult([])
    leaning = len(bindings) > 1 and any(binding.leans for binding in bindings)
    # Sorted, so that two writers of many pods do not deadlock; beside others the statement does
    # that, as the pod that was decided first gets the room of an overtaken node.
    in_turn = leaning or beside is not None
    ordered = bindings if in_turn else sorted(bindings, key=lambda one: one.pod_id)
    what: list[Any] = [
        sql.Int8s([one.pod_id for one in ordered]),
        sql.Texts([one.node_name for one in ordered]),
        sql.Int8s([0 if one.footprint is None else one.footprint.class_id for one in ordered]),
    ]
    groups: list[Any] = []
    atomic: list[bool] = []
    if leaning or beside is not None:
        sizes = Counter(one.group for one in ordered)
        groups = [
            sql.Int4s([sizes[one.group] if one.leans else 0 for one in ordered]),
            sql.Int8s([one.group for one in ordered]),
        ]
    if leaning:
        atomic = [any(one.gang for one in ordered)]
    if beside is None:
        known = [*what, *groups, snapshot_revision, *atomic, binder]
    else:
        counted = [
            sql.Int8s([one.pod_id for one in ordered for _ in one.counters]),
            sql.Int4s([counter for one in ordered for counter in one.counters]),
        ]
        flags = [sql.Int4s([int(_is_plain(one)) for one in ordered])]
        known = [
            beside.reach,
            beside.shard,
            beside.epoch,
            *counted,
            *what,
            *groups,
            *flags,
            *atomic,
        ]
    statement = _BIND[leaning, beside is not None]
    parameters = [*actors.gate(), now, binder, snapshot_revision, *known, now]
    _, rows = again_after_deadlock(
        lambda: sql.fetch_together((LOCK_PLACEMENT, ()), (statement, parameters))
    )
    bound = [(row[0], row[1]) for row in rows if row[1] is not None]
    if bound:
        changes.announce(bound[-1][1], ("Pod",))
    refused: dict[int, BindRefusal] = {}
    if len(rows) < len(bindings):
        able = {row[0] for row in rows}
        why = _why(what, snapshot_revision, beside)
        refused = {one.pod_id: why[one.pod_id] for one in bindings if one.pod_id not in able}
    return BindResult(bound, refused, [row[0] for row in rows if row[1] is None])


def forget_batches() -> None:
    """Delete the rows of batches that no bind is compared with any more. Queries once."""
    sql.run(
        f"DELETE FROM bind_batch WHERE revision <= (SELECT revision - {_KEPT} FROM binder"
        " WHERE id = 1)"
    )


def _is_plain(one: Binding) -> bool:
    """Return whether a pod takes only the resources in ``_COLUMNS``, and one of the node's pods."""
    footprint = one.footprint
    return (
        footprint is not None
        and footprint.complete
        and not (footprint.ports or one.gang or one.claims)
        and all(name in _COLUMNS for name, _ in footprint.amounts)
    )


def _why(
    what: Sequence[Any], snapshot_revision: int, beside: OtherSchedulers | None
) -> dict[int, BindRefusal]:
    """Return why pods cannot be bound, as of a moment later. Queries once, twice beside others.

    If no reason is left, another scheduler's binds were it.
    """
    rows = sql.fetch(_WHY, (snapshot_revision, *what))
    rest = BindRefusal.OVERTAKEN
    if beside is not None:
        (now,) = sql.fetch(
            "SELECT last_value, (SELECT epoch FROM scheduler WHERE id = %s::smallint)"
            " FROM reach_seq",
            (beside.shard,),
        )
        if now[1] != beside.epoch:
            raise Superseded(f"Scheduler {beside.shard} began its run {now[1]} elsewhere.")
        if now[0] > beside.reach:
            rest = BindRefusal.NEW_RULES
    return {
        row[0]: next(
            (reason for reason, holds in zip(_REASONS, row[1:], strict=True) if holds), rest
        )
        for row in rows
    }


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
    labels: dict[str, str] | None = None,
) -> int:
    """Bind one pod as a client's Binding says, whatever room the node has; return the revision.

    ``annotations`` and ``labels`` are the Binding's, which replace the pod's own
    (registry/core/pod/storage ``setPodNodeAndMetadata``, v1.36); the node's topology labels are
    added, unless the Binding sets them (admission plugin PodTopologyLabels). The scheduler's own
    binds write no document, and so no labels. The placement lock is taken before the row lock: a
    batch that holds the first waits for the second.

    Raises:
        NotFound: there is no such pod.
        Conflict: it is bound already, is being deleted, is gated, or has another uid or version.
        Invalid: the resulting labels or annotations are invalid.
    """
    what = f'pods/binding "{name}"'

    def refuse(why: str) -> Conflict:
        return Conflict(
            f"Operation cannot be fulfilled on {what}: {why}",
            {"name": name, "kind": "pods/binding"},
        )

    context = catalogue.fresh()
    with transaction.atomic():
        sql.run(_LOCK_PLACEMENT_SHARED)
        row = lock_pod(namespace, name)
        old = row.manifest()
        object_meta.check_preconditions(
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
        new["status"] = {**(old.get("status") or {})}
        new["status"].pop("nominatedNodeName", None)
        errors: Errors = []
        labels = {**_topology_of(node_name), **(labels or {})}
        for members, given, check in (
            ("annotations", annotations, validate_annotations), ("labels", labels, validate_labels),
        ):  # fmt: skip
            if given:
                own = new["metadata"].get(members) or {}
                new["metadata"][members] = {**own, **given}
                errors += check(new["metadata"][members], f"metadata.{members}")
        if errors:
            raise Invalid("Binding", name, errors)
        text, overlay = document.encode("Pod", new)
        overlay = Overlay(node_name=node_name, scheduled_at=now)
        revision = write_version(row, new, text, overlay, now=now, place=True)
        changes.announce(revision, ("Pod",))
    return revision


_TOPOLOGY: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def _topology_of(node_name: str) -> dict[str, str]:
    """Return a node's zone and region labels. Queries once."""
    labels = node_labels([node_name]).get(node_name, {})
    return {key: labels[key] for key in _TOPOLOGY if key in labels}

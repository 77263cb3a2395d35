"""Bind pods to nodes: the scheduler's batches, and a client's Binding."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from clusterstate import admission, catalogue, changes, sql
from clusterstate.actions import storing
from clusterstate.actions.pods.clauses import PENDING, POD, log_versions, returning_versions
from clusterstate.actions.pods.deadlocks import again_after_deadlock
from clusterstate.actions.pods.versions import write_version
from clusterstate.admission.request import CREATE, NOBODY, User
from clusterstate.objects import document
from clusterstate.objects.document import Overlay
from clusterstate.objects.errors import Conflict


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


_LOCK_PLACEMENT = f"SELECT pg_advisory_xact_lock({changes.PLACEMENT_LOCK})"

_LOCK_PLACEMENT_SHARED = f"SELECT pg_advisory_xact_lock_shared({changes.PLACEMENT_LOCK})"


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
        WHERE gate.opened = 1 AND {PENDING} AND p.deletion_at IS NULL
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
        {returning_versions()})"""
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
        WHERE gate.opened = 1 AND p.id = i.pod_id AND {PENDING} AND p.deletion_at IS NULL
        {returning_versions()})"""
        answer = "SELECT id, revision FROM bound ORDER BY revision"
    statement = f"""
    WITH {gate},
    {bound},
    unqueued AS (DELETE FROM pending_pod WHERE pod_id = ANY (ARRAY(SELECT id FROM bound))),
    held AS (
        UPDATE binder SET holder = %s::text, revision = m.revision
        FROM (SELECT max(revision) AS revision FROM bound) m
        WHERE binder.id = 1 AND m.revision IS NOT NULL),
    logged AS ({log_versions("bound")})
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

    _, rows = again_after_deadlock(
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
        revision = write_version(row, new, text, overlay, now=now, place=True)
        changes.announce(revision, ("Pod",))
    return revision

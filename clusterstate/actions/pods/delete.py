"""Delete pods: gracefully for a client, and for good when nothing keeps them any more."""

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from clusterstate import admission, catalogue
from clusterstate.actions.pods.clauses import FINISHED, POD
from clusterstate.actions.pods.status import with_condition
from clusterstate.actions.pods.versions import (
    Version,
    delete_free_pods,
    delete_pod_rows,
    lock_pods,
    remove_pods,
    write_versions,
)
from clusterstate.actions.writing import deletion, object_meta
from clusterstate.actions.writing.deadlocks import again_after_deadlock
from clusterstate.actions.writing.deletion import Deletion, Outcome
from clusterstate.actions.writing.stored import DeletedObject, LockedRow
from clusterstate.admission.plugins import node_restriction
from clusterstate.admission.request import DELETE, NOBODY, Context, User
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.rules.ownership import Policy, finalizers_for
from clusterstate.objects.values import document, moments
from clusterstate.objects.values.ending import DEFAULT_GRACE_SECONDS
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest


def delete_pod(
    namespace: str,
    name: str,
    *,
    now: datetime,
    grace_seconds: int | None = None,
    uid: str = "",
    resource_version: str = "",
    user: User = NOBODY,
    condition: Manifest | None = None,
    propagation: Policy | None = None,
) -> DeletedObject:
    """Delete a pod gracefully.

    Unbound and finished pods, and those with grace 0, are removed at once; a bound one stays, with
    a deletionTimestamp that a further deletion may bring forward, until a client deletes it with
    grace 0; finalizers keep it in any case. ``grace_seconds`` ``None`` means the pod's own.
    ``condition`` (why it is disrupted) is added to the status first, unless the pod is terminating
    already: the first cause stays. ``propagation`` is for the pod's dependents, if it has any.
    Rule: apiserver ``rest/delete.go`` BeforeDelete, ``registry/core/pod/strategy.go``
    CheckGracefulDelete, v1.36.

    Raises:
        NotFound: there is no such pod.
        Conflict: a precondition names another uid or version.
    """
    request = Deletion(
        namespace=namespace,
        name=name,
        user=user,
        grace_seconds=grace_seconds,
        uid=uid,
        resource_version=resource_version,
        propagation=propagation,
        condition=condition,
    )
    return deletion.only(delete_pods_each([request], now=now))


def delete_pods_each(
    deletions: Sequence[Deletion], *, now: datetime
) -> list[DeletedObject | StatusError]:
    """Delete pods as ``delete_pod`` does; return each one's result, in order.

    By one statement if none of them needs a check, else in one transaction. If anything else is
    raised, nothing was deleted.
    """
    if not deletions:
        return []
    keys = [(one.namespace, one.name) for one in deletions]
    if len(set(keys)) == len(keys) and all(map(_goes_at_once, deletions)):
        by = [one.user.actor for one in deletions]
        if found := again_after_deadlock(lambda: delete_free_pods(keys, by, now=now)):
            return [*found]
    return _delete_judged(deletions, now=now)


def _goes_at_once(one: Deletion) -> bool:
    """Return whether a deletion has no condition to check, so that one statement can do it.

    For such a deletion ``_judge`` would only check for finalizers.
    """
    return (
        one.grace_seconds == 0
        and not (one.uid or one.resource_version or one.propagation or one.condition)
        and node_restriction.GROUP not in one.user.groups
    )


def _delete_judged(
    deletions: Sequence[Deletion], *, now: datetime
) -> list[DeletedObject | StatusError]:
    """Delete pods in one transaction, each locked and judged."""
    context = catalogue.current()

    def judge(row: LockedRow, one: Deletion) -> Outcome:
        return _judge(row, one, context, now)

    def write(outcomes: Sequence[tuple[LockedRow, Outcome]]) -> list[int]:
        versions = [
            Version(row, one.manifest, one.text, one.overlay, same_class=True)
            for row, one in outcomes
            if one.manifest is not None
        ]
        return write_versions(versions, now=now)

    def remove(rows: Sequence[LockedRow]) -> list[int]:
        return remove_pods(rows, now=now)

    def work() -> list[DeletedObject | StatusError]:
        with transaction.atomic():
            return deletion.delete_each(
                POD, deletions, lock=lock_pods, judge=judge, write=write, remove=remove
            )

    return again_after_deadlock(work)


def _judge(row: LockedRow, request: Deletion, context: Context, now: datetime) -> Outcome:
    """Return the effect of a deletion on a locked pod.

    Raises:
        StatusError: a precondition does not hold, or admission refuses it.
    """
    grace_seconds, condition = request.grace_seconds, request.condition
    old = row.manifest()
    metadata = old["metadata"]
    object_meta.check_before_deletion(
        POD, metadata, uid=request.uid, resource_version=request.resource_version
    )
    admission.admit("Pod", DELETE, None, old, "", context, request.user)
    if metadata.get("deletionTimestamp"):
        # Judged on the locked row: an eviction may have come after the caller's check.
        condition = None
    spec = old.get("spec") or {}
    grace = grace_seconds
    if grace is None:
        grace = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    if grace < 0:
        grace = 1  # CheckGracefulDelete: a negative period means 1
    if not row.overlay.node_name or row.phase in FINISHED:
        grace = 0
    present = metadata.get("finalizers") or []
    finalizers = finalizers_for("Pod", present, request.propagation)
    gone = grace == 0 and not finalizers
    if gone and condition is None:
        return deletion.removal(row)
    new = {**old, "metadata": dict(metadata)}
    if finalizers != present:
        new["metadata"]["finalizers"] = finalizers
        if not finalizers:
            del new["metadata"]["finalizers"]
    when = _deletion_time(metadata, grace, now, explicit=grace_seconds is not None)
    if when is not None:
        new["metadata"]["deletionTimestamp"] = document.format_time(when)
        new["metadata"]["deletionGracePeriodSeconds"] = grace
        if not metadata.get("deletionTimestamp"):
            object_meta.bump_generation_of_leaving(new["metadata"])
    if condition is not None:
        new["status"] = with_condition(old, condition, now)
    text, overlay = document.encode("Pod", new)
    if object_meta.same(POD, row, old, new, text, overlay):
        return deletion.UNCHANGED
    return Outcome(new, text, overlay, gone)


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
    # If the deletion is never due, the beginning of the period is unknown.
    return moments.after(*((now, grace) if moments.is_never(until) else (until, grace - period)))


_DELETABLE = f"""
    SELECT p.id FROM pod p JOIN document d ON d.id = p.document_id
    WHERE p.id = ANY(%s) AND position('"finalizers":[' in {sql.METADATA}) = 0
    ORDER BY p.id FOR UPDATE OF p SKIP LOCKED
"""


def finish_deletions(pod_ids: Sequence[int], *, now: datetime) -> list[tuple[int, int]]:
    """Remove terminating pods whose agent is done (or absent); return (id, revision) of each.

    Pods with finalizers, not terminating, or locked by another transaction are skipped.
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
        removed = delete_pod_rows([row[0] for row in rows], [None] * len(rows), now=now)
        changes.announce(removed[-1][1], ("Pod",), leaving=True)
    return removed

"""The service's own changes of a pod's status: nomination, failure, conditions."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from clusterstate.actions.pods.clauses import FINISHED
from clusterstate.actions.pods.rewrite import rewrite_each, rewrite_pod
from clusterstate.actions.writing.deadlocks import again_after_deadlock
from clusterstate.objects.values import document, ending
from clusterstate.objects.values.meta import Manifest

_NOMINATED_AT_ONCE: Final = 500
"""Pods that are nominated by one transaction: a gang that displaces others may have thousands."""


def nominate(nodes: Mapping[int, str], *, now: datetime) -> list[tuple[int, int]]:
    """Set status.nominatedNodeName of pods by id (empty: clear it).

    Returns (id, revision) of those that changed. Pods bound or gone meanwhile are skipped.
    """

    def changed(pod_id: int, old: Manifest) -> Manifest:
        status = {**(old.get("status") or {}), "nominatedNodeName": nodes[pod_id]}
        if not nodes[pod_id]:
            del status["nominatedNodeName"]
        return {**old, "status": status}

    def write(ids: Collection[int]) -> list[tuple[int, int]]:
        return rewrite_each(ids, changed, now=now, unbound_only=True, same_class=True)

    ids, step = sorted(nodes), _NOMINATED_AT_ONCE
    parts = (frozenset(ids[first : first + step]) for first in range(0, len(ids), step))
    return [one for part in parts for one in again_after_deadlock(partial(write, part))]


def fail_pods(items: Sequence[tuple[int, str, str]], *, now: datetime) -> list[tuple[int, int]]:
    """Set phase Failed with (pod id, reason, message) each; return (pod id, revision) of changes.

    Finished pods are skipped. One transaction for each pod: failures are few.
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
    """Set a condition in status.conditions, replacing one of its type; return the revision.

    ``lastTransitionTime`` is filled in unless given. ``None``: the pod is gone or has it already.
    """

    def changed(old: Manifest) -> Manifest:
        return {**old, "status": with_condition(old, condition, now)}

    return rewrite_pod(pod_id, changed, now=now)


def _change_status(
    pod_id: int,
    change: Callable[[Manifest], None],
    *,
    now: datetime,
) -> int | None:
    """Apply ``change`` to a pod's status under its row lock; the service's own writes."""

    def changed(old: Manifest) -> Manifest:
        status = dict(old.get("status") or {})
        change(status)
        return {**old, "status": status}

    return rewrite_pod(pod_id, changed, now=now)


def with_condition(pod: Manifest, condition: Manifest, now: datetime) -> Manifest:
    """Return a pod's status with a condition in place of one of its type.

    A condition with an unchanged status keeps its transition time, as in Kubernetes'
    ``UpdatePodCondition`` (pkg/api/v1/pod/util.go, v1.36). Unlike there, a terminating pod keeps
    its DisruptionTarget condition, which has the first cause.
    """
    status = pod.get("status") or {}
    conditions = list(status.get("conditions") or ())
    before: Manifest = next((one for one in conditions if one.get("type") == condition["type"]), {})
    same = before.get("status") == condition["status"]
    if same and condition["type"] == ending.TARGET and pod["metadata"].get("deletionTimestamp"):
        return status
    since = before.get("lastTransitionTime") if same else ""
    stamped = {"lastTransitionTime": since or document.format_time(now), **condition}
    if stamped == before:
        return status
    others = [one for one in conditions if one.get("type") != condition["type"]]
    return {**status, "conditions": [*others, stamped]}

"""Removes pods of nodes that are gone or out of service, and finished pods above the limit.

A pod's node may be deleted while the pod runs, and a pod may name a node that never existed (R101).
No agent will report its end, so its phase becomes Failed, which its owner sees, and the pod is
removed. A node that returns within the quarantine finds its pods as they were. Finished pods are
kept up to a number; evicted pods and the oldest are removed first. Rule:
pkg/controller/podgc/gc_controller.go, v1.36. ``deletion`` removes pods that never had a node.

A row has the time since which each node is missing, so that a restart does not begin to count
again.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from django.conf import settings

from clusterstate.actions.loops import aside, controller_state
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.actions.pods.rewrite import rewrite_pod
from clusterstate.actions.pods.status import with_condition
from clusterstate.actions.pods.together import leaving
from clusterstate.database import locks
from clusterstate.objects.values import ending
from clusterstate.objects.values.errors import Conflict, NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.loops.controllers import PendingWork, stored_state
from clusterstate.queries.pods.leftovers import (
    POD_GC,
    Leftover,
    finished_beyond,
    left_behind,
    missing_nodes,
    out_of_service,
)

logger = structlog.get_logger(__name__)

NAME: Final = POD_GC
BURST: Final = 200
"""Pods that one pass removes; the next pass, a second later, goes on."""
PERIOD: Final = timedelta(seconds=5)
_COUNTING_PERIOD: Final = timedelta(seconds=60)
"""Counting the finished pods looks at all."""
_GONE: Final = ending.condition(ending.ORPHANED, "PodGC: node no longer exists")


def has_work(pending: PendingWork, now: datetime) -> bool:
    """Return whether the next pass is due, or the last one did not finish."""
    due = pending.states.get(NAME, {}).get("due_at")
    # Not more than a period ahead: else the clock was set back.
    return due is None or not now < datetime.fromisoformat(due) <= now + PERIOD


def collect(now: datetime) -> int:
    """Remove the pods that no agent ends; return how many.

    Does nothing while another pass runs: both would fail the same pods, one after the other.
    """
    with locks.alone(locks.POD_GC) as mine:
        return _pass(now) if mine else 0


def _pass(now: datetime) -> int:
    stored = stored_state(NAME)
    missed = _missed(stored, now)
    quarantine = timedelta(seconds=settings.POD_GC_QUARANTINE_SECONDS)
    gone = [name for name, since in missed.items() if now - since >= quarantine]
    leftovers = left_behind(gone, bound_by=now - quarantine, limit=BURST) if gone else []
    done = _remove(leftovers, now, fail=True, condition=_GONE)
    done += _remove(out_of_service(limit=BURST), now, fail=True)
    more = done >= BURST
    counted_at = datetime.fromisoformat(stored["counted_at"]) if "counted_at" in stored else None
    threshold = settings.TERMINATED_POD_THRESHOLD
    if threshold and (counted_at is None or abs(now - counted_at) >= _COUNTING_PERIOD):
        beyond = _remove(finished_beyond(threshold, limit=BURST), now, fail=False)
        more = more or beyond >= BURST
        counted_at = counted_at if beyond >= BURST else now
        done += beyond
    state: dict[str, Any] = {
        "due_at": (now if more else now + PERIOD).isoformat(),
        "missed": {name: since.isoformat() for name, since in missed.items()},
    }
    if counted_at is not None:
        state["counted_at"] = counted_at.isoformat()
    controller_state.set_state(NAME, state)
    if done:
        logger.info("pods_collected", count=done)
    return done


def _missed(state: dict[str, Any], now: datetime) -> dict[str, datetime]:
    """Return the nodes that have pods and do not exist, and since when each was found missing."""
    before = state.get("missed", {})
    return {
        name: min(datetime.fromisoformat(before[name]), now) if name in before else now
        for name in missing_nodes()
    }


def _remove(
    pods: Sequence[Leftover], now: datetime, *, fail: bool, condition: Manifest | None = None
) -> int:
    """Remove pods at once; the phase of those that had not finished becomes Failed first."""

    def remove(some: Sequence[Leftover]) -> int:
        return sum(_remove_one(one, now, fail=fail, condition=condition) for one in some)

    return sum(aside.each(NAME, pods, remove, which=lambda one: aside.pod(one.pod_id), now=now))


def _remove_one(one: Leftover, now: datetime, *, fail: bool, condition: Manifest | None) -> bool:
    try:
        with leaving([one.pod_id], _GONE, now=now) if condition is _GONE else nullcontext():
            if fail and not one.finished:
                rewrite_pod(one.pod_id, lambda pod: _failed(pod, condition, now), now=now)
            delete_pod(one.namespace, one.name, grace_seconds=0, uid=one.uid, now=now)
    except (NotFound, Conflict):
        return False
    return True


def _failed(pod: Manifest, condition: Manifest | None, now: datetime) -> Manifest:
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return pod  # it finished after the pass had read it
    if condition is not None:
        status = with_condition(pod, condition, now)
    return {**pod, "status": {**status, "phase": "Failed"}}

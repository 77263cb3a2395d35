"""Resizes that wait for room on a node without an agent: retried when something changed.

The service decides about a resize when it is requested (`actions.pods.resize`). If there is no room
it waits, as with a kubelet, and is retried here, in a kubelet's order: first those that request no
more than they have, then by priority, Guaranteed pods, and the longest wait. An earlier one takes
its room before the next is tried.
"""

from datetime import datetime
from typing import Final

import structlog

from clusterstate.actions.loops import aside, controller_state
from clusterstate.actions.pods import resize
from clusterstate.change_log import changes
from clusterstate.health.aside import objects as objects_aside
from clusterstate.objects.rules import resizing
from clusterstate.queries.loops.controllers import PendingWork
from clusterstate.queries.pods import resizes
from clusterstate.queries.pods.resizes import OnNode, WaitingResize

logger = structlog.get_logger(__name__)

NAME: Final = "resizes"


def has_work(pending: PendingWork) -> bool:
    """Return whether resizes wait, and anything happened since the last pass."""
    return pending.deferred_resizes and pending.is_behind(NAME)


def follow(now: datetime) -> int:
    """Retry the resizes that wait; return how many changed.

    Queries six times if nothing can change.
    """
    mark = changes.watermark()
    waiting = resizes.waiting()
    over = [one.pod_id for one in waiting if not one.node_name]
    if over:
        resize.forget(over)
    waiting = [one for one in waiting if one.node_name]
    left_out = objects_aside(NAME)
    nodes = resizes.on_nodes({one.node_name for one in waiting}, waiting)
    due = [
        one
        for one in waiting
        if left_out.get(("Pod", one.pod_id)) != one.revision
        and _may_change(one, nodes.get(one.node_name))
    ]
    due.sort(key=lambda one: resizing.turn(one.pod, one.since.isoformat()))
    done = aside.each(
        NAME,
        due,
        lambda some: sum(resize.retry(one, now=now) for one in some),
        which=lambda one: aside.pod(one.pod_id),
        now=now,
    )
    controller_state.set_cursor(NAME, mark)
    if total := sum(done):
        logger.info("resizes_changed", count=total)
    return total


def _may_change(one: WaitingResize, node: OnNode | None) -> bool:
    """Return whether the decision may differ now. Takes no lock."""
    if node is None:
        return False
    requested, has = resizing.amounts(one.pod), resizing.amounts(resizing.allocated(one.pod))
    why = resizing.verdict(requested, has, node.others(one.pod_id), node.offered)
    if why is None:
        return True
    return (why.reason, why.message) != resizing.reported_reason(one.pod)

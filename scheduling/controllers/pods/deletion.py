"""Ends the deletions that no node agent ends.

A bound pod that is deleted stays, terminating, until its node's agent has stopped it and deletes it
with grace 0. A node without an agent (no Lease in ``kube-node-lease``, no heartbeat in its status)
and a node that does not exist run nothing that could be stopped: their pods are removed at once,
unless the client asked for a grace period of its own (``--grace-period=8``), which is kept. If an
agent should act and does not, the pod is removed after the grace period and a margin.
"""

from datetime import datetime, timedelta

import structlog
from django.conf import settings

from clusterstate.actions.loops import aside
from clusterstate.actions.pods.delete import finish_deletions
from clusterstate.queries.pods.terminating import POD_DELETION, finishable

logger = structlog.get_logger(__name__)

BATCH = 2000


def finish(now: datetime) -> int:
    """Remove the terminating pods whose time has come; return how many."""
    margin = timedelta(seconds=settings.FORCED_DELETION_MARGIN_SECONDS)
    total = 0
    while True:
        due = finishable(now=now, overdue_at=now - margin, limit=BATCH)
        finished = aside.each(
            POD_DELETION,
            due,
            lambda pod_ids: finish_deletions(pod_ids, now=now),
            which=aside.pod,
            now=now,
        )
        removed = sum(map(len, finished))
        total += removed
        if removed < BATCH:
            break
    if total:
        logger.info("deletions_finished", count=total)
    return total

"""Ending the deletions that no agent ends.

A bound pod that is deleted stays, terminating, until its node's agent has stopped it and deletes it
with grace 0. On a node that nobody plays an agent for (no Lease in ``kube-node-lease``, no
heartbeat in its status), and on one that does not exist, nothing runs that could be stopped: there
they go at once, unless whoever deleted them asked for a period of another length than the pod's own
(``--grace-period=8``), and so wants to see them go. Where an agent should act and does not, they go
by force after the grace period and a margin.
"""

from datetime import datetime, timedelta

import structlog
from django.conf import settings

from clusterstate.actions import aside
from clusterstate.actions.pods.delete import finish_deletions
from clusterstate.queries.terminating import POD_DELETION, finishable

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

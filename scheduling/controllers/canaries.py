"""Guards a canary's configuration from another process than the scheduler's.

The scheduler itself rolls back a configuration whose plugins fail or are slow (``worker.guard``).
It cannot if a plugin never returns. Then the scheduler reports nothing although its process lives,
and this pass rolls back the configuration. It also ends the guard when its time is over.
"""

from datetime import datetime
from typing import Final

import structlog

from clusterstate.actions.scheduler import canaries
from clusterstate.health import progress

logger = structlog.get_logger(__name__)

NAME: Final = "canaries"
SILENT_SECONDS: Final = 30.0
"""Seconds without a report after which a scheduler whose process lives counts as hanging.

It reports every second.
"""
_PATIENCE: Final = 5.0


def follow(now: datetime) -> int:
    """Check the guarded canary; return 1 if it was rolled back."""
    canary = canaries.settle(now)
    if canary is None or canary.switched_at is None:
        return 0
    if (now - canary.switched_at).total_seconds() < SILENT_SECONDS:
        return 0
    standing = progress.standing(patience=_PATIENCE)
    at_work = set(progress.schedulers()) - standing.ended
    silent = max((standing.silent_seconds.get(loop, 0.0) for loop in at_work), default=0.0)
    if silent < SILENT_SECONDS:
        return 0
    why = f"the scheduler has been silent for {silent:.0f} s: a plugin does not return"
    canaries.give_back(canary.name, why=why, now=now)
    logger.error("canary_returned", canary=canary.name, why=why)
    return 1

"""Predicts the new nodes of pods before they are evicted for node labels."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from clusterstate.actions import evictions
from clusterstate.change_log import changes
from clusterstate.database import locks
from clusterstate.objects.values.errors import ServiceUnavailable, StatusError, TooManyRequests
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.evictions.eviction_timers import unforeseen
from scheduling.answers import advisor
from scheduling.worker.mirror import FOLLOWED

logger = structlog.get_logger(__name__)

_FORESIGHT: Final = timedelta(seconds=30)
_LANDINGS_AT_ONCE: Final = 200


def foresee(now: datetime) -> int:
    """Store the predicted nodes of pods to be evicted for node labels; return their number.

    The pods are evicted only after that, or after a while without a prediction.
    """
    with locks.alone(locks.LANDINGS) as mine:
        return _foresee(now) if mine else 0


def _foresee(now: datetime) -> int:
    done = 0
    if changes.settled(FOLLOWED).lacking:
        return 0
    while waiting := unforeseen(now + _FORESIGHT, limit=_LANDINGS_AT_ONCE):
        found: dict[int, Manifest] = {}
        try:
            together = _ask_landings([(namespace, name) for _, namespace, name in waiting])
            found = {row[0]: one for row, one in zip(waiting, together, strict=True)}
        except (ServiceUnavailable, TooManyRequests) as error:
            logger.info("landings_not_known", error=str(error))
            return done
        except StatusError as error:
            # One pod that is gone, or is not admitted, would make all predictions fail.
            logger.info("landings_one_by_one", error=str(error))
            for pod_id, namespace, name in waiting:
                try:
                    (found[pod_id],) = _ask_landings([(namespace, name)])
                except StatusError as alone:
                    found[pod_id] = {"status": "unknown", "message": str(alone)}
        evictions.note_landings(found, now=now)
        done += len(found)
    return done


def _ask_landings(keys: Sequence[tuple[str, str]]) -> list[Manifest]:
    found: list[Manifest] = advisor.ask("landings", keys)
    return found

"""Brakes: hold evictions back that would empty more of a zone, namespace or owner than configured.

Whatever the cause: a taint by a client or by the node controller, labels, pressure, or an eviction
that a client or a plan requests (``clusterstate.actions.brakes`` judges these at once). After the
timers were updated, ``judge`` counts by zone, namespace and owner the pods that are terminating,
left in the last minute or are due within the next one. If these are more than
``STOWAGE_BRAKE_ZONE``, ``..._NAMESPACE`` or ``..._OWNER`` percent, and at least
``STOWAGE_BRAKE_LEAST``, it sets a brake, which is a row. While a brake holds, none of its pods is
evicted, until an operator approves it or the cause is gone. At 100 percent, the default, nothing is
counted.

``STOWAGE_ZONE_EVICTION_RATE`` limits the evictions per second in each zone, whatever the cause
(``clusterstate.actions.brakes.paces``). A zone that used them up is held back until the next
second.
"""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import structlog
from django.conf import settings

from clusterstate.actions import brakes
from clusterstate.actions.brakes import paces
from clusterstate.processes import memory
from clusterstate.queries.evictions.brakes import (
    COUNTED_FOR,
    HeldBack,
    Share,
    count_asked,
    count_due,
    held_back,
    limits,
    shares,
)

logger = structlog.get_logger(__name__)

_EVERY_SECONDS: Final = 1.0

_counted: dict[str, float] = {}
"""When pods were last counted, in monotonic seconds."""
memory.when_replaced(_counted.clear)


def exceeded(found: Sequence[Share]) -> list[tuple[Share, float]]:
    """Return the shares beyond their limits, with the limits."""
    limited = limits()
    return [
        (one, limited[one.scope])
        for one in found
        if one.scope in limited and one.exceeds(limited[one.scope])
    ]


def judge(now: datetime, *, changed: bool) -> None:
    """Set and release brakes. Called after the timers were set, before any of them is fired.

    ``changed``: timers were set or moved just now; otherwise counting once a second is enough.
    """
    if not limits() and not settings.ZONE_EVICTION_RATE:
        return
    moment = time.monotonic()
    if not changed and moment - _counted.get("at", -_EVERY_SECONDS) < _EVERY_SECONDS:
        return
    _counted["at"] = moment
    paces.forget(now=now)
    if not limits():
        return
    brakes.forget_asked(now=now)
    least = settings.BRAKE_LEAST
    found: list[tuple[Share, float]] = []
    counted = count_due(now + COUNTED_FOR, most=least) + count_asked(now - COUNTED_FOR)
    if counted >= least or held_back(now):
        found = exceeded(shares(now, least=least))
    held = brakes.settle(found, now=now)
    if held and changed:
        logger.warning(
            "evictions_held_back",
            brakes=[f"{one.scope} {one.name}: {one.leaving} of {one.total}" for one, _ in found],
        )


def held_now(now: datetime) -> HeldBack:
    """Return which evictions are held back now. Queries once; not at all without limits."""
    return held_back(now)

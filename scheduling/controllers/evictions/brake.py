"""Holds evictions back where they would empty more of a zone or a namespace than is agreed.

Any cause: taints by hand or by the node controller, labels, pressure. After the timers were brought
up to date, the pods that leave or are due within a minute are counted by zone and by namespace.
Where they are more than ``STOWAGE_BRAKE_ZONE`` or ``STOWAGE_BRAKE_NAMESPACE`` percent, and at least
``STOWAGE_BRAKE_LEAST``, a brake is set: a row. As long as it stands none of these pods is evicted,
until somebody approves it, or the cause is gone. At 100 percent, the default, nothing is counted.
"""

import time
from datetime import datetime, timedelta
from typing import Final

import structlog
from django.conf import settings

from clusterstate import memory
from clusterstate.actions import brakes
from clusterstate.queries.brakes import (
    NAMESPACE,
    NOTHING,
    ZONE,
    HeldBack,
    Share,
    count_due,
    held_back,
    shares,
)

logger = structlog.get_logger(__name__)

AHEAD: Final = timedelta(seconds=60)
_EVERY_SECONDS = 1.0
_OFF = 100.0

_counted: dict[str, float] = {}
"""When it was last counted, in monotonic seconds."""
memory.when_replaced(_counted.clear)


def is_on() -> bool:
    """Return whether anything is limited."""
    return min(settings.BRAKE_ZONE_PERCENT, settings.BRAKE_NAMESPACE_PERCENT) < _OFF


def exceeded(found: list[Share]) -> list[tuple[Share, float]]:
    """Return the shares beyond their limits, with the limits."""
    limits = {ZONE: settings.BRAKE_ZONE_PERCENT, NAMESPACE: settings.BRAKE_NAMESPACE_PERCENT}
    return [
        (one, limits[one.scope])
        for one in found
        if limits[one.scope] < _OFF and 100 * one.leaving > limits[one.scope] * one.total
    ]


def judge(now: datetime, *, changed: bool) -> None:
    """Set and release brakes; nothing is fired between the timers and this.

    ``changed``: timers were set or moved just now; otherwise a look once a second is enough.
    """
    if not is_on():
        return
    moment = time.monotonic()
    if not changed and moment - _counted.get("at", -_EVERY_SECONDS) < _EVERY_SECONDS:
        return
    _counted["at"] = moment
    due = count_due(now + AHEAD, most=settings.BRAKE_LEAST)
    found: list[tuple[Share, float]] = []
    if due >= settings.BRAKE_LEAST or held_back():
        found = exceeded(shares(now + AHEAD, least=settings.BRAKE_LEAST))
    held = brakes.settle(found, now=now)
    if held and changed:
        logger.warning(
            "evictions_held_back",
            brakes=[f"{one.scope} {one.name}: {one.leaving} of {one.total}" for one, _ in found],
        )


def held() -> HeldBack:
    """Return what is held back now. Queries once, not at all where nothing is limited."""
    return held_back() if is_on() else NOTHING

"""Firing what is due on several connections, so that ten thousand timers of one instant leave soon.

A batch is one transaction on one connection. As soon as one comes back full, helpers fire others at
the same time: SKIP LOCKED keeps them apart, and PostgreSQL works on several cores. Batches are
small, because a long transaction holds up everybody who follows the log.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import msgspec
from django.conf import settings
from django.db import connection

from clusterstate.actions.events import Occurrence
from scheduling.controllers import evictions
from scheduling.controllers.evictions import Pass

MOST = 20_000
"""Pods after which a volley ends, so that following the log gets its turn."""


class Volley(msgspec.Struct):
    """What one volley did. ``again``: more is due at once; ``busy``: somebody holds a due pod.

    ``lateness`` has the seconds from due time to when the eviction was durable, by pod.
    """

    evicted: list[int] = []
    news: list[Occurrence] = []
    lateness: list[float] = []
    batches: int = 0
    again: bool = False
    busy: bool = False

    def _add(self, done: Pass, durable_at: float) -> None:
        self.evicted += done.evicted
        self.news += done.news
        self.lateness += [durable_at - due.timestamp() for due in done.due_at]
        self.batches += 1
        self.again = done.again
        self.busy = self.busy or done.busy

    def _join(self, other: "Volley") -> None:
        self.evicted += other.evicted
        self.news += other.news
        self.lateness += other.lateness
        self.batches += other.batches
        self.again = self.again or other.again
        self.busy = self.busy or other.busy


def fire(clock: Callable[[], float]) -> Volley:
    """Evict what is due: one batch, or many on several connections if that comes back full."""
    volley = Volley()
    done = evictions.fire(_moment(clock))
    volley._add(done, clock())
    if not done.again:
        return volley
    connections = settings.TIMER_CONNECTIONS
    most = MOST // connections
    with ThreadPoolExecutor(connections) as pool:
        helpers = [pool.submit(_help, clock, most) for _ in range(connections - 1)]
        mine = _drain(clock, most)
    volley.again = False
    for other in (mine, *(helper.result() for helper in helpers)):
        volley._join(other)
    return volley


def _drain(clock: Callable[[], float], most: int) -> Volley:
    """Fire batches of what taints ask, until one is not full or so many pods left."""
    volley = Volley()
    while True:
        done = evictions.fire_taints(_moment(clock))
        volley._add(done, clock())
        if not done.again or len(volley.evicted) >= most:
            return volley


def _help(clock: Callable[[], float], most: int) -> Volley:
    try:
        return _drain(clock, most)
    finally:
        connection.close()  # this thread's own


def _moment(clock: Callable[[], float]) -> datetime:
    return datetime.fromtimestamp(clock(), UTC)

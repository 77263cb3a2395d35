"""Firing what is due on several connections, so that ten thousand timers of one instant leave soon.

What is due is looked up once and cut into batches. A batch is one transaction on one connection;
when there are several, helpers take batches at the same time, and PostgreSQL works on several
cores. No two look at the same timers, so nobody passes over what another one holds or has just
removed. Batches are small, because a long transaction holds up everybody who follows the log.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Lock
from types import TracebackType
from typing import Self

import msgspec
from django.conf import settings
from django.db import connection

from clusterstate import timers
from clusterstate.actions.events import Occurrence
from clusterstate.actions.evictions import Fired
from scheduling.controllers import evictions

MOST = 20_000
"""Pods after which a volley ends, so that following the log gets its turn."""

Batch = Sequence[timers.DueTaint]


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

    def _add(self, done: Fired, durable_at: float) -> None:
        self.evicted += done.evicted
        self.news += done.news
        self.lateness += [durable_at - due.timestamp() for due in done.due_at]
        self.batches += 1
        self.busy = self.busy or done.busy > 0

    def _join(self, other: "Volley") -> None:
        self.evicted += other.evicted
        self.news += other.news
        self.lateness += other.lateness
        self.batches += other.batches
        self.busy = self.busy or other.busy


class Crew:
    """This thread and its helpers, whose connections stay open until the end."""

    def __init__(self) -> None:
        self._helpers = [ThreadPoolExecutor(1) for _ in range(settings.TIMER_CONNECTIONS - 1)]

    def __enter__(self) -> Self:
        for helper in self._helpers:
            helper.submit(connection.ensure_connection)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for helper in self._helpers:
            helper.submit(connection.close)  # the thread's own
            helper.shutdown()

    def fire(self, clock: Callable[[], float]) -> Volley:
        """Evict what is due, on several connections if that is more than a batch."""
        now = _moment(clock)
        volley = Volley()
        labels = evictions.fire_executions(now)
        if labels.evicted or labels.busy:
            volley._add(labels, clock())
        due = timers.due_taints(now, limit=MOST)
        if not due:
            return volley
        batches = _Batches(due, evictions.BATCH)
        helpers = self._helpers[: len(batches) - 1]
        waiting = [helper.submit(_drain, batches, clock) for helper in helpers]
        mine = _drain(batches, clock)
        for other in (mine, *(one.result() for one in waiting)):
            volley._join(other)
        # Those whom somebody holds stay due, and asking for them again at once would not help.
        volley.again = len(due) == MOST and len(volley.evicted) > 0
        return volley


class _Batches:
    """What is due, handed out in batches to whoever asks next."""

    def __init__(self, due: Batch, size: int) -> None:
        self._parts = [due[first : first + size] for first in range(0, len(due), size)]
        self._rest: Iterator[Batch] = iter(self._parts)
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._parts)

    def take(self) -> Batch | None:
        with self._lock:
            return next(self._rest, None)


def _drain(batches: _Batches, clock: Callable[[], float]) -> Volley:
    """Fire batches until none is left."""
    volley = Volley()
    while (batch := batches.take()) is not None:
        done = evictions.fire_taints(batch, _moment(clock))
        volley._add(done, clock())
    return volley


def _moment(clock: Callable[[], float]) -> datetime:
    return datetime.fromtimestamp(clock(), UTC)

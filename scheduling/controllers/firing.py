"""Firing what is due on several connections, so that ten thousand timers of one instant leave soon.

A batch is one transaction on one connection. As soon as one is full, helpers take the next ones at
the same time, and PostgreSQL works on several cores. Batches are small, because a long transaction
holds up everybody who follows the log.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Lock
from types import TracebackType
from typing import Self

import msgspec
from django.conf import settings
from django.db import connection

from clusterstate.actions import evictions as actions
from clusterstate.actions.events import Occurrence
from clusterstate.actions.evictions import Fired
from clusterstate.queries.eviction_timers import DueTaint, due_taints
from scheduling.controllers import evictions

MOST = 20_000
"""Pods after which a volley ends, so that following the log gets its turn."""

Batch = Sequence[DueTaint]


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
            helper.submit(actions.warm)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for helper in self._helpers:
            helper.submit(_close)
            helper.shutdown()

    def fire(self, clock: Callable[[], float]) -> Volley:
        """Evict what is due, on several connections if that is more than a batch."""
        now = _moment(clock)
        volley = Volley()
        labels = evictions.fire_executions(now)
        if labels.evicted or labels.busy:
            volley._add(labels, clock())
        due = _Due(now)
        first = due.take()
        waiting = [one.submit(_drain, due, clock) for one in self._helpers] if due.more else []
        volley._join(_drain(due, clock, first))
        for other in waiting:
            volley._join(other.result())
        # Those whom somebody holds stay due, and asking for them again at once would not help.
        volley.again = due.more and len(volley.evicted) > 0
        return volley


class _Due:
    """What is due at a moment, looked up in batches by whoever wants the next.

    Each begins where the one before ended, so that nobody goes through what others hold or have
    removed. ``more``: there may be another batch.
    """

    def __init__(self, now: datetime) -> None:
        self.more = True
        self._now = now
        self._handed_out = 0
        self._last: tuple[datetime, int] | None = None
        self._lock = Lock()

    def take(self) -> Batch | None:
        """Return a batch, ``None`` if there is none, or enough were taken. Queries up to once."""
        with self._lock:
            if not self.more or self._handed_out >= MOST:
                return None
            size = evictions.BATCH
            batch = due_taints(self._now, after=self._last, limit=size)
            self.more = len(batch) == size
            if not batch:
                return None
            self._handed_out += len(batch)
            pod_id, due_at, _ = batch[-1]
            self._last = (due_at, pod_id)
            return batch


def _drain(due: _Due, clock: Callable[[], float], first: Batch | None = None) -> Volley:
    """Fire ``first``, and batches until none is left."""
    volley = Volley()
    batch = first or due.take()
    while batch is not None:
        done = evictions.fire_taints(batch, _moment(clock))
        volley._add(done, clock())
        batch = due.take()
    return volley


def _close() -> None:
    connection.close()  # the thread's own


def _moment(clock: Callable[[], float]) -> datetime:
    return datetime.fromtimestamp(clock(), UTC)

"""Evicts on several connections at once: ten thousand pods may be due at one instant.

A batch is one transaction on one connection. When the first batch is full, helper threads take the
next batches at the same time, so that PostgreSQL uses several cores. Batches are small, because
followers of the log cannot read past an open transaction.
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
from clusterstate.actions.evictions import FiredTimers
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.loops import progress
from clusterstate.objects.values.actor import TAINT_EVICTION, acts_as
from clusterstate.queries.evictions.brakes import HeldBack
from clusterstate.queries.evictions.eviction_timers import DueTaint, due_taints, next_due
from scheduling.controllers.evictions import brake, firing

NAME = "timers"
"""The loop's name in heartbeats, and of its row of progress."""
MOST = 20_000
"""Pods after which a round ends, so that the timers can be brought up to date with the log."""

Batch = Sequence[DueTaint]


class Round(msgspec.Struct):
    """The result of one round.

    ``again``: more pods are due already. ``busy``: another transaction holds the lock of a pod that
    is due. ``lateness``: the seconds from a pod's due time until its eviction was committed.
    """

    evicted: list[int] = []
    news: list[Occurrence] = []
    lateness: list[float] = []
    batches: int = 0
    again: bool = False
    busy: bool = False

    def _add(self, done: FiredTimers, durable_at: float) -> None:
        self.evicted += done.evicted
        self.news += done.news
        self.lateness += [durable_at - due.timestamp() for due in done.due_at]
        self.batches += 1
        self.busy = self.busy or done.busy > 0

    def _join(self, other: "Round") -> None:
        self.evicted += other.evicted
        self.news += other.news
        self.lateness += other.lateness
        self.batches += other.batches
        self.busy = self.busy or other.busy


class Workers:
    """The calling thread and its helper threads; each keeps one database connection open."""

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

    def fire(self, clock: Callable[[], float]) -> Round:
        """Evict the pods that are due, on several connections if they are more than a batch.

        Queries once where nothing is due; brakes are then not read.
        """
        now = _moment(clock)
        total = Round()
        first_due = next_due()
        if first_due is None or first_due > now:
            return total
        held = brake.held_now(now)
        labels = firing.fire_executions(now, held)
        if labels.evicted or labels.busy:
            total._add(labels, clock())
        due = _Due(now, held)
        first = due.take()
        waiting = [one.submit(_drain, due, clock) for one in self._helpers] if due.more else []
        total._join(_drain(due, clock, first))
        for other in waiting:
            total._join(other.result())
        # A pod with a locked row stays due; another try at once would meet the lock again.
        total.again = due.more and len(total.evicted) > 0
        return total


class _Due:
    """The timers that are due at a moment, read one batch at a time by any of the threads.

    A batch begins where the one before it ended, so that no thread reads timers that another thread
    has locked or removed. ``more``: there may be another batch.
    """

    def __init__(self, now: datetime, held: HeldBack) -> None:
        self.more = True
        self._now = now
        self._held = held
        self._handed_out = 0
        self._last: tuple[datetime, int] | None = None
        self._lock = Lock()

    def take(self) -> Batch | None:
        """Return a batch, ``None`` if there is none, or enough were taken. Queries at most once."""
        with self._lock:
            if not self.more or self._handed_out >= MOST:
                return None
            size = firing.BATCH
            batch = due_taints(self._now, after=self._last, limit=size, held=self._held)
            # With a rate few fire at a time: zones without tokens are left out of the next read.
            self.more = len(batch) == size and not settings.ZONE_EVICTION_RATE
            if not batch:
                return None
            self._handed_out += len(batch)
            pod_id, due_at, _ = batch[-1]
            self._last = (due_at, pod_id)
            return batch


@acts_as(TAINT_EVICTION)
def _drain(due: _Due, clock: Callable[[], float], first: Batch | None = None) -> Round:
    """Fire ``first``, and batches until none is left."""
    total = Round()
    batch = first or due.take()
    while batch is not None:
        done = firing.fire_taints(batch, _moment(clock))
        total._add(done, clock())
        progress.step(NAME)
        batch = due.take()
    return total


def _close() -> None:
    connection.close()  # the thread's own


def _moment(clock: Callable[[], float]) -> datetime:
    return datetime.fromtimestamp(clock(), UTC)

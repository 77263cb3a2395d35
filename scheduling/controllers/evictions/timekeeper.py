"""The loop of the timers worker: follow the log, evict what is due, end deletions, sleep.

The timers worker's loop calls ``run`` (``scheduling.processes``), which works until the process is
asked to stop. One timers worker works at a time in the whole system, by a session advisory lock
that is taken without waiting. The lock of a process that was killed, or stopped for long, ends with
its session, and another process takes over. The process keeps no state: rows have what is due.

Due times are compared with a clock that nobody can set (``clusterstate.processes.steady_clock``).

``keep_mark`` is a loop beside it: it writes the log's watermark into a row, for replicas.

It sleeps on the client side of a Redis subscription until the next timer is due or a commit may
have added an earlier one; without Redis it polls four times a second.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from clusterstate.actions import evictions as actions
from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.loops import progress
from clusterstate.change_log import changes, wake
from clusterstate.database import locks
from clusterstate.health import heartbeats
from clusterstate.objects.values.actor import TAINT_EVICTION, acts_as
from clusterstate.processes import steady_clock
from clusterstate.queries.evictions.eviction_timers import next_due
from scheduling.controllers.evictions import brake, timers, workers
from scheduling.controllers.pods import deletion

logger = structlog.get_logger(__name__)

NAME = workers.NAME
_ROUND_SECONDS = 120.0
"""What one round may take: ten thousand timers of one instant, or a log of an hour."""
_LONGEST_WAIT = 1.0
"""Seconds until the next look, which finds pods edited in SQL: these cause no wake-up."""
_BUSY_WAIT = 0.01
_EVENTS_AT_ONCE = 1000
MARK = "mark"
"""The name of the loop beside it in heartbeats."""
_MARK_SECONDS = 0.05
"""The shortest time between two writes of the watermark for replicas of the database."""


@acts_as(TAINT_EVICTION)
def run(
    *,
    longest: float = math.inf,
    clock: Callable[[], float] = steady_clock.seconds,
    stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Follow and fire for ``longest`` seconds; return how many pods were evicted.

    Returns at once while another process holds the lock.

    Raises:
        Exception: a round failed. The rows still have what is due, so the next call does it.
    """
    if not locks.take(locks.TIMERS):
        return 0
    evicted = 0
    news: list[Occurrence] = []
    late: list[float] = []
    reporter = progress.Reporter(NAME)
    try:
        with wake.Subscription(wake.TIMERS) as subscription, workers.Workers() as helpers:
            end = clock() + longest
            while (seconds := clock()) < end and not stopping():
                heartbeats.beat(NAME, _ROUND_SECONDS)
                now = datetime.fromtimestamp(seconds, UTC)
                # Due pods first: each is judged again by its rows, whether or not the log has
                # changes.
                done = helpers.fire(clock)
                reporter.note()
                evicted += len(done.evicted)
                news += done.news
                late += done.lateness
                _report(done)
                if done.again:
                    continue
                changed = timers.follow(now) > 0
                brake.judge(now, changed=changed)  # before any of them is fired
                deletion.finish(now)
                if news:
                    # A few at a time: something may be due.
                    events.record_many(news[:_EVENTS_AT_ONCE], now=now)
                    del news[:_EVENTS_AT_ONCE]
                    continue
                if late:
                    actions.count_evictions(late)
                    late = []
                    continue
                wait = _wait_for(clock(), end)
                heartbeats.beat(NAME)
                subscription.wait(max(wait, _BUSY_WAIT) if done.busy else wait)
    finally:
        locks.give_back(locks.TIMERS)
    return evicted


def keep_mark(*, stopping: Callable[[], bool], pause: Callable[[float], None]) -> None:
    """Write the log's watermark for replicas after each commit, until ``stopping`` returns True.

    Returns at once while another process does it. At most once in ``_MARK_SECONDS``.

    Raises:
        django.db.Error: the database failed.
    """
    with locks.alone(locks.MARK) as is_alone:
        if not is_alone:
            return
        with wake.Subscription(wake.CHANGES) as commits:
            while not stopping():
                heartbeats.beat(MARK, _ROUND_SECONDS)
                changes.keep_mark()
                pause(_MARK_SECONDS)
                commits.wait(_LONGEST_WAIT)


def _report(done: workers.Round) -> None:
    if done.evicted:
        ordered = sorted(done.lateness)
        logger.info(
            "pods_evicted",
            count=len(ordered),
            lateness_p50=round(ordered[len(ordered) // 2], 4),
            lateness_p99=round(ordered[int(len(ordered) * 0.99)], 4),
            lateness_max=round(ordered[-1], 4),
            batches=done.batches,
        )


def _wait_for(seconds: float, end: float) -> float:
    """Return for how long nothing is due except held-back pods, at most ``_LONGEST_WAIT``.

    Queries once; up to three times while a due pod is held back.
    """
    wait = max(0.0, min(_LONGEST_WAIT, end - seconds))
    now = datetime.fromtimestamp(seconds, UTC)
    due = next_due()
    if due is not None and due <= now and (held := brake.held_now(now)):
        due = next_due(held)
    return wait if due is None else max(0.0, min(wait, due.timestamp() - seconds))

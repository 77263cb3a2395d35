"""The loop of the scheduling worker: cycle after cycle, with a pause while the queue is empty.

The scheduling worker's loop calls ``run`` (``scheduling.processes``), which works until the process
is asked to stop. As many schedulers work at a time in the whole system as
``STOWAGE_ACTIVE_SCHEDULERS`` says, one unless it is set: each has a number and the session advisory
lock ``locks.cycle`` of that number. ``run`` takes the first free lock without waiting. If none is
free it returns at once; the process then calls ``stand_by``, which returns when a lock is free, and
calls ``run`` again. If scheduler 0 ends and no process stands by, another scheduler becomes number
0. A process that was suspended for long loses its session and the lock with it
(``clusterstate.database.sessions``), and its next statement fails. Even without the lock no pod is
bound twice, because a bind is conditional. This module keeps the warm state (snapshot and queue)
between runs, and drops it after any error.

After each cycle (``scheduler``) the loop writes a heartbeat (``heartbeats``), and once a second its
progress (``actions.loops.progress``). If a cycle found no pod, the loop writes events and decision
records, then waits for a wake-up or for the end of the next backoff. If a cycle bound all its pods
and no other pod waits, the loop need not read these bindings back at once: it waits a moment for
the next pod, and reads them together with it.
"""

import math
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection

from clusterstate.actions.loops import progress
from clusterstate.actions.scheduler import leases
from clusterstate.change_log import wake
from clusterstate.database import locks, sql
from clusterstate.health import heartbeats
from clusterstate.objects.values.actor import KUBE_SCHEDULER, acts_as
from clusterstate.processes import collector, shards
from clusterstate.telemetry import slowness
from scheduling.worker import measuring, profiles, warming
from scheduling.worker.scheduler import (
    CYCLE_SECONDS,
    DIVIDE_EVERY,
    LOAD_SECONDS,
    LOOK_EVERY,
    NAME,
    Scheduler,
)
from scheduling.worker.standby import Standby

logger = structlog.get_logger(__name__)

STANDBY = shards.standby(shards.FIRST)
"""The loop's name in heartbeats while another process works."""
_LONGEST_WAIT = 1.0
_NEWS_AFTER = 0.05
"""Seconds without a pod after which events and records are written."""
_NEWS_AT_LATEST = 2.0
"""Seconds after which events and records are written in any case, between batches."""
_NEWS_AT_ONCE = 200
"""The most decisions or events written at once, so that no pod waits for a long write."""
_LAST_NEWS = 1.0
"""Seconds for the last writes at the end: another scheduler may wait to take over."""
_TURN_EVERY = 1.0
"""Seconds between a standby's attempts to take the lock, unless ``pause`` returns before."""


class _Lease:
    """Context that renews a scheduler's lease on a thread; used where several schedulers work.

    It measures by the length of its own rounds how slow the process is. By the rounds of the
    heartbeats' thread, a second each, a new process would count as slow for half a minute.
    """

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self._slowness = slowness.Slowness(leases.RENEW_EVERY)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> "_Lease":
        if settings.ACTIVE_SCHEDULERS > 1:
            self._thread.start()
        else:
            leases.end(self.shard)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(1.0)  # the thread may wait for the database; it does no harm later

    def _renew(self) -> None:
        began, used = time.monotonic(), time.process_time()
        while True:
            try:
                leases.renew(self.shard, self._slowness.factor(began))
            except DatabaseError:
                connection.close()  # the loop meets the same error, and logs it
            if self._ended.wait(leases.RENEW_EVERY):
                break
            before, began = began, time.monotonic()
            before_used, used = used, time.process_time()
            self._slowness.measure(began - before, used - before_used)
        with suppress(DatabaseError):
            leases.end(self.shard)
        connection.close()


class _ProcessState:
    """Warm state of this process between runs; ``standby`` is set only while another one works."""

    scheduler: Scheduler | None = None
    standby: Standby | None = None


_kept = _ProcessState()


def _scheduler() -> Scheduler:
    if _kept.scheduler is None:
        warming.begin()
        revision, configuration = profiles.in_force()
        several = settings.ACTIVE_SCHEDULERS > 1
        _kept.scheduler = Scheduler(configuration, _seed, revision=revision, several=several)
    return _kept.scheduler


def _seed() -> int:
    """Return the seed of a batch: the setting ``SCHEDULER_SEED``, or else a random one."""
    return settings.SCHEDULER_SEED or secrets.randbits(63)


def discard() -> None:
    """Drop the warm state; the next run loads it again."""
    scheduler, _kept.scheduler, _kept.standby = _kept.scheduler, None, None
    if scheduler is not None:
        scheduler.binder.close()
        measuring.holds(0, 0, 0)


@acts_as(KUBE_SCHEDULER)
def run(
    *,
    longest: float = math.inf,
    clock: Callable[[], float] = time.time,
    stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Schedule for at most ``longest`` seconds; return how many pods were decided.

    Returns at once while enough other schedulers work. ``stopping`` returns whether the process is
    to end; pods that are still pending then wait for the next scheduler.

    Raises:
        Exception: a cycle failed. The warm state is dropped, and the next call loads it again.
    """
    shard = next((one for one in _numbers() if locks.take(locks.cycle(one))), None)
    if shard is None:
        return 0
    decided = 0
    reporter = progress.Reporter(shards.loop(shard))
    try:
        with (
            wake.Subscription(shards.channel(shards.FIRST)) as subscription,
            _Lease(shard) as lease,
        ):
            with heartbeats.patience(NAME, LOAD_SECONDS):
                scheduler = _scheduler()
                standby, _kept.standby = _kept.standby, None
                if standby is not None:
                    began = time.monotonic()
                    news = standby.take_over(clock())
                    scheduler.begin(clock(), shard)
                    seconds = round(time.monotonic() - began, 3)
                    logger.warning("scheduler_takes_over", seconds=seconds, news=news)
                elif not scheduler.mirror.loaded:
                    scheduler.load(clock(), shard)
                    collector.calm()
                elif scheduler.binder.shard != shard:
                    scheduler.begin(clock(), shard)
            # Monotonic, so that a clock that is set back does not delay records and events.
            end = time.monotonic() + longest
            busy_at = told_at = time.monotonic()
            while (moment := time.monotonic()) < end and not stopping():
                heartbeats.beat(NAME, CYCLE_SECONDS)
                now = clock()
                if scheduler.may_move_up and locks.take(locks.cycle(shards.FIRST)):
                    previous = shard if scheduler.move_up(now) else shards.FIRST
                    locks.give_back(locks.cycle(previous))
                    if previous == shard:
                        shard = lease.shard = shards.FIRST
                        reporter = progress.Reporter(shards.loop(shard))
                count = scheduler.cycle(now)
                decided += count
                reporter.note(scheduler.mirror.cursor)
                scheduler.measure()
                if count:
                    busy_at = moment
                if not scheduler.binder.has_news:
                    told_at = moment
                elif moment >= min(busy_at + _NEWS_AFTER, told_at + _NEWS_AT_LATEST):
                    if scheduler.binder.write_records(now, _NEWS_AT_ONCE):
                        told_at = moment
                    continue
                if count and not scheduler.needs_no_news:
                    continue
                wait = _wait_for(scheduler, clock(), end - time.monotonic())
                heartbeats.beat(NAME)
                soon = count or scheduler.binder.has_news
                subscription.wait(min(wait, _NEWS_AFTER) if soon else wait)
            _write_remaining_records(scheduler, clock)
        # Decide pods whose wake-up came between the last cycle and the end of the subscription.
        while not stopping() and scheduler.cycle(clock()):
            pass
        _write_remaining_records(scheduler, clock)
    except BaseException:
        discard()
        raise
    finally:
        locks.give_back(locks.cycle(shard))
    return decided


def _numbers() -> range:
    return range(settings.ACTIVE_SCHEDULERS)


def stand_by(
    *,
    stopping: Callable[[], bool],
    pause: Callable[[float], None],
    clock: Callable[[], float] = time.time,
) -> bool:
    """Keep the warm state up to date while enough other schedulers work (``worker.standby``).

    ``pause`` sleeps for the given seconds, or less if the first scheduler ends.

    Returns True when a lock became free: call ``run`` at once. Returns False if one was free from
    the beginning, or the process is to end.

    Raises:
        django.db.Error: the database failed.
    """
    if _is_free():
        return False
    discard()
    try:
        looked_at = -math.inf
        while not stopping():
            if _is_free():
                return True
            moment = time.monotonic()
            if _kept.standby is None:
                with heartbeats.patience(NAME, LOAD_SECONDS):
                    _kept.standby = Standby(_scheduler().mirror)
                    _kept.standby.load(clock())
                    collector.calm()
            elif moment - looked_at >= LOOK_EVERY:
                looked_at = moment
                if not _scheduler().is_configured:
                    discard()
                    continue
            with heartbeats.patience(NAME, CYCLE_SECONDS):
                rest = _kept.standby.follow(clock())
            heartbeats.beat(STANDBY)
            pause(min(rest, _TURN_EVERY))
    except BaseException:
        discard()
        raise
    finally:
        heartbeats.rest(STANDBY)
    return False


def _is_free() -> bool:
    """Return whether a scheduler's lock is free. Queries once, and has the lock only meanwhile."""
    row = sql.fetch_one(
        "SELECT bool_or(pg_try_advisory_lock(k) AND pg_advisory_unlock(k)) FROM unnest(%s) i(k)",
        (sql.Int8s([locks.cycle(one) for one in _numbers()]),),
    )
    return bool(row and row[0])


def _write_remaining_records(scheduler: Scheduler, clock: Callable[[], float]) -> None:
    """Write refusals, records and events before ``run`` returns, for ``_LAST_NEWS`` s at most."""
    end = time.monotonic() + _LAST_NEWS
    while scheduler.binder.write_refused(clock()) and time.monotonic() < end:
        pass
    while scheduler.binder.has_news and time.monotonic() < end:
        scheduler.binder.write_records(clock(), _NEWS_AT_ONCE)


def _wait_for(scheduler: Scheduler, now: float, remaining: float) -> float:
    """Return the seconds until something is due, such as a backoff, at most ``_LONGEST_WAIT``."""
    wait = min(_LONGEST_WAIT if scheduler.division is None else DIVIDE_EVERY, remaining)
    queue = scheduler.mirror.queue
    dues = queue.next_due(now), scheduler.reservations.next_due(), scheduler.groups.next_due()
    for due in dues:
        if due is not None:
            wait = min(wait, due - now)
    return max(0.0, wait)

"""The loop of the scheduling worker: keep up, decide, write, wait.

``run`` is what a Celery task calls. One runner works at a time in the whole system: it holds a
session advisory lock, taken without waiting, so a second one finds it taken and leaves. Everything
else is safe without the lock too: a bind is conditional. The warm state lives in this module
between tasks, and is thrown away whenever anything about it is in doubt.

    loop    refresh the mirror from the log            (sync)
            pop a batch from the queue                 (engine.queue)
            decide it, assuming each decision          (engine.cycle)
            write: bind in a thread, refuse            (binder)
            nothing to do: tell events, then wait for a wake-up, or for the next backoff
"""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog
from django.db import Error as DatabaseError
from django.db import connection

from clusterstate import changes, sql
from scheduling import profiles, wake
from scheduling.binder import Binder
from scheduling.controllers import node_admission
from scheduling.engine import runs
from scheduling.engine.class_cache import Cache
from scheduling.engine.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.decision import Decision
from scheduling.engine.queue import Backoff, PendingPod, Registrations
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.events import Registration
from scheduling.framework.runtime import Framework
from scheduling.plugins.catalogue import build_plugins
from scheduling.plugins.queueing_hints import registrations
from scheduling.sync import Mirror

logger = structlog.get_logger(__name__)

BATCH = 1000
"""Pods decided and bound at once: large enough for PostgreSQL, small enough to be prompt."""
_LONGEST_WAIT = 1.0
_EVENTS_AFTER = 0.05
"""Seconds without a pod after which there is time to tell what happened."""
_EVENTS_AT_LEAST_EVERY = 0.5
"""Seconds after which it is told in any case, little at a time: no pod waits for a long list."""
_LOOK_EVERY = 1.0
"""Seconds between two looks for another configuration."""


class Scheduler:
    """The warm state of one worker and the cycle over it."""

    def __init__(
        self,
        configuration: KubeSchedulerConfiguration,
        seeds: Callable[[], int],
        *,
        revision: int = profiles.DEFAULT_REVISION,
    ) -> None:
        self._seeds = seeds
        self._revision = revision
        self._looked_at = 0.0
        self._frameworks: dict[str, Framework] = {}
        self._starts: dict[str, int] = {}
        self._caches: dict[str, Cache] = {}
        self.mirror = Mirror(*self._use(configuration))
        self.binder = Binder(self.mirror)

    def _use(self, configuration: KubeSchedulerConfiguration) -> tuple[Registrations, Backoff]:
        """Make the profiles ready to run; return what the queue must know of them."""
        frameworks: dict[str, Framework] = {}
        events: dict[str, Mapping[str, Sequence[Registration]]] = {}
        for profile in configuration.profiles:
            plugins = build_plugins(profile)
            frameworks[profile.scheduler_name] = Framework(profile, plugins)
            events[profile.scheduler_name] = registrations(profile, plugins)
        self._frameworks = frameworks
        self._starts = dict.fromkeys(frameworks, 0)
        self._caches = {}
        return events, Backoff(
            initial=configuration.pod_initial_backoff_seconds,
            longest=configuration.pod_max_backoff_seconds,
            flush_after=configuration.pod_max_in_unschedulable_pods_seconds,
        )

    def _follow_configuration(self, now: float) -> None:
        """Take over the configuration in force when another one was stored; looks once a second."""
        if now - self._looked_at < _LOOK_EVERY:
            return
        self._looked_at = now
        revision, configuration = profiles.in_force()
        if revision == self._revision:
            return
        self.binder.settle(now)
        self._revision = revision
        self.mirror.reconfigure(*self._use(configuration), now)
        logger.info("configuration_changed", revision=revision, profiles=list(self._frameworks))

    def _cache(self, name: str) -> Cache:
        """Return the profile's cache over the current snapshot: loading again makes a new one."""
        cache = self._caches.get(name)
        if cache is None or cache.snapshot is not self.mirror.snapshot:
            cache = self._caches[name] = Cache(self.mirror.snapshot, self._frameworks[name])
        return cache

    def cycle(self, now: float) -> int:
        """Keep up, decide and write one batch; return how many pods were decided."""
        self._follow_configuration(now)
        self.mirror.refresh(now)
        if self.mirror.arrivals:
            node_admission.judge(self.mirror, self._frameworks, now)
        batch = self.mirror.queue.pop_batch(now, BATCH)
        if not batch:
            self.binder.settle(now)
            return 0
        decisions = list(self._decide(batch))
        recorder = self.binder.recorder
        recorder.note(decisions, self.mirror.snapshot, profile_revision=self._revision, now=now)
        placed = [decision for decision in decisions if decision.scheduled]
        refused = [decision for decision in decisions if not decision.scheduled]
        self.binder.submit(placed, now)
        self.binder.refuse(refused, now)
        if recorder.full:
            recorder.record()
        return len(batch)

    def _decide(self, batch: Sequence[PendingPod]) -> Iterable[Decision]:
        snapshot = self.mirror.snapshot
        for name, pods in _by_profile(batch):
            framework = self._frameworks[name]
            decisions = schedule_batch(
                snapshot,
                framework,
                [
                    PodToPlace(
                        pod.pod_id,
                        self.mirror.info(pod.class_id),
                        snapshot.nominated_node_of(pod.pod_id),
                    )
                    for pod in pods
                ],
                Options(seed=self._seeds()),
                start=self._starts[name],
                cache=self._cache(name),
            )
            self._starts[name] = decisions[-1].next_start
            yield from decisions


def _by_profile(batch: Sequence[PendingPod]) -> Iterable[tuple[str, list[PendingPod]]]:
    """Return neighbours with the same scheduler name together; the order stays as it is."""
    run: list[PendingPod] = []
    name = ""
    for pod in batch:
        its = pod.spec.spec.scheduler_name
        if run and its != name:
            yield name, run
            run = []
        name = its
        run.append(pod)
    if run:
        yield name, run


_warm: dict[str, Scheduler] = {}


def _scheduler() -> Scheduler:
    if "scheduler" not in _warm:
        runs.warm()
        revision, configuration = profiles.in_force()
        _warm["scheduler"] = Scheduler(
            configuration, lambda: secrets.randbits(63), revision=revision
        )
    return _warm["scheduler"]


def discard() -> None:
    """Throw the warm state away; the next run loads it again."""
    scheduler = _warm.pop("scheduler", None)
    if scheduler is not None:
        scheduler.binder.close()


def run(
    *,
    longest: float,
    clock: Callable[[], float] = time.time,
    stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Schedule until ``longest`` seconds are over; return how many pods were decided.

    Returns at once when another runner works. Lingers while there is nothing to do, so that the
    next pod meets a warm runner. ``stopping`` says that the process was asked to end: then what is
    left waits for the next runner.
    """
    if not _lock():
        return 0
    decided = 0
    try:
        with wake.Subscription(wake.SCHEDULER) as subscription:
            scheduler = _scheduler()
            if not scheduler.mirror.loaded:
                scheduler.mirror.load(clock())
            end = clock() + longest
            busy_at = told_at = clock()
            while (now := clock()) < end and not stopping():
                count = scheduler.cycle(now)
                decided += count
                if count:
                    busy_at = now
                if scheduler.binder.has_news and (
                    now >= busy_at + _EVENTS_AFTER or now >= told_at + _EVENTS_AT_LEAST_EVERY
                ):
                    scheduler.binder.tell(now)
                    told_at = now
                if count:
                    continue
                wait = _wait_for(scheduler, now, end)
                subscription.wait(min(wait, _EVENTS_AFTER) if scheduler.binder.has_news else wait)
            scheduler.binder.tell(clock())
        # What was announced between the last look and the end of the subscription.
        while not stopping() and scheduler.cycle(clock()):
            pass
        scheduler.binder.tell(clock())
    except DatabaseError:
        logger.exception("cycle_failed")
        discard()
        connection.close()
    except BaseException:
        discard()
        raise
    finally:
        _unlock()
    return decided


def _wait_for(scheduler: Scheduler, now: float, end: float) -> float:
    """Return how long nothing is due: until the next backoff, at most a second."""
    wait = min(_LONGEST_WAIT, end - now)
    due = scheduler.mirror.queue.next_due(now)
    return wait if due is None else max(0.0, min(wait, due - now))


def _lock() -> bool:
    row = sql.fetch_one("SELECT pg_try_advisory_lock(%s)", (changes.CYCLE_LOCK,))
    return bool(row and row[0])


def _unlock() -> None:
    """Give the lock back; a connection that is gone took it along."""
    try:
        if connection.connection is not None and not connection.connection.closed:
            sql.run("SELECT pg_advisory_unlock(%s)", (changes.CYCLE_LOCK,))
    except DatabaseError:
        connection.close()

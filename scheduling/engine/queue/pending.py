"""A pending pod, its stages, and the queue's record of the pod.

``Entry`` is the queue's record of a pod. Heaps hold ``Item`` tuples with the pod's id and the token
that its entry had: a pod that moves gets a new token, so its older items are dead.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Final

import msgspec

from clusterstate.objects.values.pod import Pod
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.events import ClusterEvent

SCHEDULING_GATES = "SchedulingGates"
_MICROSECONDS_PER_MINUTE = 60_000_000


class Stage(StrEnum):
    """The stage of a pending pod; the values are stored in its row."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "inflight"


class Cause(StrEnum):
    """Why a pod enters a queue, in kube-scheduler's words (``framework/events.go``)."""

    POD_ADD = "UnscheduledPodAdd"
    POD_UPDATE = "UnscheduledPodUpdate"
    FAILURE = "ScheduleAttemptFailure"
    BACKOFF_OVER = "BackoffComplete"
    FLUSHED = "UnschedulableTimeout"
    ACTIVATED = "ForceActivate"
    BEFORE_ITS_END = "PopFromBackoffQ"


class PendingPod(msgspec.Struct, frozen=True):
    """A pod to place. ``spec`` is the lens of its scheduling class, shared by all its pods."""

    pod_id: int
    class_id: int
    spec: Pod
    priority: int = 0


class QueuePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's place in the queue, as stored in its row. Times are seconds since the epoch.

    ``attempts`` counts those that ended without a node. ``queued_at``: when it last entered the
    queue; ``since``: when it could first be tried (arrival, or the end of its gates). Its backoff
    lasts until ``not_before``; ``early``: how many attempts in a row came before the end of one.
    """

    pod_id: int
    stage: Stage
    attempts: int = 0
    early: int = 0
    queued_at: float = 0.0
    since: float = 0.0
    not_before: float = 0.0
    rejected_by: tuple[str, ...] = ()


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """The waits of a pod in seconds: ``initial`` and ``longest`` backoff, and until the flush."""

    initial: float = 1.0
    longest: float = 10.0
    flush_after: float = 300.0

    @classmethod
    def of(cls, configuration: KubeSchedulerConfiguration) -> "Backoff":
        """Return the waits that a configuration states."""
        return cls(
            initial=configuration.pod_initial_backoff_seconds,
            longest=configuration.pod_max_backoff_seconds,
            flush_after=configuration.pod_max_in_unschedulable_pods_seconds,
        )

    def after(self, attempts: int) -> float:
        """Return the wait in seconds after this many failed attempts."""
        if attempts <= 0:
            return 0.0
        # 2**32 exceeds any sensible limit; the bound keeps the power small.
        return min(self.initial * 2.0 ** min(attempts - 1, 32), self.longest)

    def until(self, now: float, attempts: int) -> float:
        """Return the end of a backoff that begins now, after this many failed attempts.

        It is rounded up to a full second: pods whose waits end in the same second return together,
        the most urgent first. Without a wait it is now. Rule: backend/queue/backoff_queue.go
        (``isPodBackingoff``, ``alignToWindow``), v1.36.
        """
        wait = self.after(attempts)
        return float(math.floor(now + wait) + 1) if wait else now


SortKey = Callable[[PendingPod, float, float], tuple[float, ...]]
"""The order of active pods, from the pod, when it was queued and when it came; QueueSort's job."""

HeldBy = Callable[[PendingPod], str]
"""The name of the PreEnqueue plugin that holds the pod back; empty if it may be tried."""

IsNominated = Callable[[int], bool]
"""Whether a pod, by its id, is nominated for a node."""


def never_nominated(pod_id: int) -> bool:
    """Return False: no pod is nominated."""
    return False


def priority_sort(pod: PendingPod, queued_at: float, since: float) -> tuple[float, ...]:
    """Return the sort key of Kubernetes' order: higher priority first, then longer in the queue."""
    return -pod.priority, queued_at


def aged_sort(
    priority: int, queued_at: float, since: float, points_per_minute: int
) -> tuple[float, ...]:
    """Return the sort key for priorities that grow with the time since a pod arrived.

    Every priority grows by ``points_per_minute`` for each minute since ``since``. All grow equally
    fast, so the order of two pods never changes, and the key needs no clock: it is computed from
    priority - points_per_minute * since. The product is in whole microseconds, because a float
    would round it. A ``since`` after ``queued_at`` (a clock was set back) counts as ``queued_at``.
    """
    micros = round(min(since, queued_at) * 1_000_000)
    return points_per_minute * micros - priority * _MICROSECONDS_PER_MINUTE, queued_at


def scheduling_gates(pod: PendingPod) -> str:
    """Return the plugin's name if a pod has scheduling gates, else an empty string."""
    return SCHEDULING_GATES if pod.spec.spec.scheduling_gates else ""


_NO_PLUGINS: Final[frozenset[str]] = frozenset()


class Entry:
    """The queue's record of a pod.

    ``refusals`` counts the attempts that plugins rejected, ``errors`` those that failed since the
    last of these, ``early`` those in a row before the end of a backoff. ``token`` marks live heap
    items. ``refused``: this version of the pod was tried and returned. ``refused_by``: the plugins
    of its last refusal, also while it is tried again. ``first_event``: the number of the first
    event that its decision has not seen; for a parked pod, the number of events when it was parked.
    ``own_changes``: what changed about the pod itself since it was popped; ``changed_in_flight``:
    something did, and it is not known what. ``was_parked``: it is parked, or was in its last
    attempt.
    """

    __slots__ = (
        "attempts",
        "changed_in_flight",
        "early",
        "errors",
        "first_event",
        "not_before",
        "own_changes",
        "pending_by",
        "pod",
        "queued_at",
        "refusals",
        "refused",
        "refused_by",
        "rejected_by",
        "since",
        "stage",
        "token",
        "was_parked",
    )

    def __init__(self, pod: PendingPod, now: float) -> None:
        self.pod = pod
        self.stage = Stage.ACTIVE
        self.attempts = 0
        self.refusals = 0
        self.errors = 0
        self.early = 0
        self.queued_at = now
        self.since = now
        self.not_before = 0.0
        self.rejected_by = _NO_PLUGINS
        self.pending_by = _NO_PLUGINS
        self.first_event = 0
        self.changed_in_flight = False
        self.own_changes: tuple[ClusterEvent, ...] = ()
        self.was_parked = False
        self.token = 0
        self.refused = False
        self.refused_by = _NO_PLUGINS

    @property
    def failures(self) -> int:
        """The number of attempts that sets its backoff: ``errors`` if any, else ``refusals``."""
        return self.errors or self.refusals

    def limit_times(self, now: float, backoff: Backoff) -> bool:
        """Limit ``queued_at`` and ``not_before`` to possible times; return whether one changed.

        They are too far in the future after the clock was set back.
        """
        not_before = min(self.not_before, backoff.until(now, self.failures))
        if self.queued_at <= now and self.not_before == not_before:
            return False
        self.queued_at = min(self.queued_at, now)
        self.not_before = not_before
        return True


Entries = Mapping[int, Entry]
"""All pods of a queue, by id."""

Item = tuple[tuple[float, ...], int, int]
"""Key, pod id, token of its entry."""

Heap = list[Item]

LAST: Item = ((math.inf,), 0, 0)
"""An item that sorts after every other one."""


def is_live(item: Item, entries: Entries) -> bool:
    """Return whether the item's pod is in the queue and has not moved since."""
    entry = entries.get(item[1])
    return entry is not None and entry.token == item[2]


def first_live(heap: Heap, entries: Entries) -> Item | None:
    """Return the first live item of a heap of pods; dead ones before it are dropped."""
    while heap:
        entry = entries.get(heap[0][1])
        if entry is not None and entry.token == heap[0][2]:
            return heap[0]
        heapq.heappop(heap)
    return None


def drop_dead(heap: Heap, entries: Entries) -> None:
    """Keep only the live items of a heap of pods."""
    heap[:] = [item for item in heap if is_live(item, entries)]
    heapq.heapify(heap)


def by_profile(batch: Sequence[PendingPod]) -> Iterator[tuple[str, list[PendingPod]]]:
    """Yield (scheduler name, pods) for each stretch of successive pods with one name."""
    for name, run in groupby(batch, key=lambda pod: pod.spec.spec.scheduler_name):
        yield name, list(run)

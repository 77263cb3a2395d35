"""The queue of pending pods: which pods to try next, and which wait for what.

A pod is in one of five stages:

    add -> ACTIVE -> pop_batch -> IN_FLIGHT -> done
             ^                        |
             |                        | rejected by plugins        failed otherwise
             |                        v                                   |
             |<-- event or flush -- UNSCHEDULABLE --+                     |
             |                                      | backoff not over    |
             +<------------- time --------------- BACKOFF <---------------+
    add -> GATED (a PreEnqueue plugin holds it) -> like UNSCHEDULABLE

*Active* pods come out by the sort key (priority, then time queued), which the pod's id makes total,
with one exception: pods that were refused before do not all come at once. They stand in a *line*
with their sisters (pods of their class), and

* a line that just became active gives one pod, the first; its sisters wait for what becomes of it;
* once it is placed the line is *open* and its pods come in the order of the key, as fresh ones do;
* once it is refused the line is *shut*: a few of its pods come with each batch, more where nobody
  else waits, until the next event, which may have changed the reason (then one is tried again);
* so many lines give their first pod in one batch as were of use lately, at least ``_FIRSTS``, and
  beside a first pod that stands before fresh ones only ``_BESIDE`` of these come along, since its
  sisters have the better claim to the room.

So Kubernetes' promise holds: a pod of higher priority is tried before one of lower priority,
whether fresh or refused before; only its sisters may lose one short batch to the others. And a
fresh pod waits for ``_FIRSTS`` refusals at most, however many thousand pods are tried again.

A pod that failed waits 1 s, 2 s, 4 s ... 10 s. A pod that plugins rejected waits until an event may
have changed the mind of one of them: each plugin registers events with hints, and waiting pods are
grouped by class and plugins, so that an event costs one hint per group and not per pod. Events that
come while a pod is being decided are kept and looked at when it comes back, for the decision has
not seen them; those that come while it waits on Permit or PreBind (*parked*) are only counted.
After five minutes a pod is tried again in any case. Of many that wake at once ``_AT_ONCE`` move in
one call, the others with the next batches.

Pure and in memory: the clock comes in as ``now`` (seconds since the epoch), and what must survive a
restart goes out by ``take_changes``. Being in flight is not written down, unless the pod is parked:
after a restart such a pod is simply active again. Rules:
pkg/scheduler/backend/queue/scheduling_queue.go, v1.36 (R151).
"""

import heapq
import itertools
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum, StrEnum
from itertools import groupby

import msgspec

from clusterstate.objects.pod import Pod
from scheduling.framework.events import EVERY_EVENT, ClusterEvent, Registration

SCHEDULING_GATES = "SchedulingGates"

_FIRSTS = 16
"""So many lines give their first pod in a batch; each that is placed allows one more of them."""
_MOST_FIRSTS = 1024
_BESIDE = 64
"""So many fresh pods at most come in a batch with a first pod that stands before them."""
_SHARE = 16
"""One of so many places of a batch is for pods of shut lines, although others wait."""
_SHUT_ALONE = 4
"""Where nobody else waits, a batch of them is as long as a batch divided by this."""
_AT_ONCE = 2000
"""So many pods move in one call; each takes some microseconds."""
_SPARE = 4096
"""So many items may a heap hold beyond twice the number of pods before it is made anew."""


_POD_ADD = "UnscheduledPodAdd"
_POD_UPDATE = "UnscheduledPodUpdate"
_FAILURE = "ScheduleAttemptFailure"
_BACKOFF_OVER = "BackoffComplete"
_FLUSHED = "UnschedulableTimeout"
_ACTIVATED = "ForceActivate"
"""Why a pod comes to a queue, in kube-scheduler's words (``framework/events.go``)."""


class Stage(StrEnum):
    """Where a pending pod is; the values are those of its row."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "inflight"


class PendingPod(msgspec.Struct, frozen=True):
    """A pod to place. ``spec`` is the lens of its scheduling class, shared by all pods of it."""

    pod_id: int
    class_id: int
    spec: Pod
    priority: int = 0


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's place in the queue, as its row keeps it. Times are seconds since the epoch.

    ``attempts`` counts those that ended without a node. ``queued_at`` is when it came to the queue
    or back to it, ``since`` when it came first. Before ``not_before`` it is not tried.
    """

    pod_id: int
    stage: Stage
    attempts: int = 0
    queued_at: float = 0.0
    since: float = 0.0
    not_before: float = 0.0
    rejected_by: tuple[str, ...] = ()


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long a pod waits after failures, and after how long it is tried in any case; seconds."""

    initial: float = 1.0
    longest: float = 10.0
    flush_after: float = 300.0

    def after(self, attempts: int) -> float:
        """Return the wait after so many failed attempts: doubling, at most ``longest``."""
        if attempts <= 0:
            return 0.0
        # Beyond 2**32 every sensible limit is reached; the bound keeps the power small.
        return min(self.initial * 2.0 ** min(attempts - 1, 32), self.longest)


class _Worth(IntEnum):
    """What an event means for a waiting pod."""

    NOTHING = 0
    AFTER_BACKOFF = 1
    NOW = 2


class _Entry:
    """A pod's state; ``token`` tells live heap items from those left behind by a move.

    ``refused``: it was tried as it is now and came back. ``members``: the group it waits in.
    """

    __slots__ = (
        "attempts",
        "changed_in_flight",
        "first_event",
        "members",
        "not_before",
        "pending_by",
        "pod",
        "queued_at",
        "refused",
        "rejected_by",
        "since",
        "stage",
        "token",
    )

    def __init__(self, pod: PendingPod, now: float) -> None:
        self.pod = pod
        self.stage = Stage.ACTIVE
        self.attempts = 0
        self.queued_at = now
        self.since = now
        self.not_before = 0.0
        self.rejected_by: frozenset[str] = frozenset()
        self.pending_by: frozenset[str] = frozenset()
        self.first_event = 0
        self.changed_in_flight = False
        self.token = 0
        self.refused = False
        self.members: _Members | None = None


_Item = tuple[tuple[float, ...], int, int]
_Heap = list[_Item]
"""Items are (key, pod id, token); an item whose token is not the pod's any more means nothing."""

_Group = tuple[int, str, frozenset[str], frozenset[str]]
"""Class, scheduler name, plugins that rejected, plugins that keep pending."""


_LAST: _Item = ((math.inf,), 0, 0)
"""Stands behind every item."""


class _Members:
    """The waiting pods of a group, and the spec that they share.

    ``worth``: what an event meant for them, if it woke them and they could not all move at once.
    ``woken_by``: that event's label.
    """

    __slots__ = ("group", "pod_ids", "spec", "woken_by", "worth")

    def __init__(self, group: _Group, spec: Pod) -> None:
        self.group = group
        self.spec = spec
        # Ordered, as ``_in_flight``: the oldest leave first.
        self.pod_ids: OrderedDict[int, None] = OrderedDict()
        self.worth = _Worth.NOTHING
        self.woken_by = ""


class _Trial(IntEnum):
    """What is known of a line."""

    UNTRIED = 0
    PROBING = 1
    OPEN = 2
    SHUT = 3


class _Line:
    """The active pods of a class that were refused before; see the module's text.

    ``probe``: the pod whose outcome the others wait for, while ``trial`` is PROBING. ``token``
    tells the line's live item in ``_untried``, ``_open`` or ``_back``.
    """

    __slots__ = ("pods", "probe", "token", "trial")

    def __init__(self) -> None:
        self.pods: _Heap = []
        self.trial = _Trial.UNTRIED
        self.probe = 0
        self.token = 0


SortKey = Callable[[PendingPod, float], tuple[float, ...]]
"""The order of active pods, from the pod and the time it was queued; QueueSort's job."""

PreEnqueue = Callable[[PendingPod], str]
"""The name of the plugin that does not let the pod in yet; empty if it may be tried."""

Registrations = Mapping[str, Mapping[str, Sequence[Registration]]]
"""Events by scheduler name and plugin; a plugin that is not named hears of every event."""


def priority_sort(pod: PendingPod, queued_at: float) -> tuple[float, ...]:
    """Return Kubernetes' order: higher priority first, then longer in the queue."""
    return -pod.priority, queued_at


def scheduling_gates(pod: PendingPod) -> str:
    """Return the plugin's name for a pod that has scheduling gates."""
    return SCHEDULING_GATES if pod.spec.spec.scheduling_gates else ""


def runs(pods: Iterable[PendingPod]) -> list[tuple[int, list[PendingPod]]]:
    """Return neighbours of the same class together, as (class, pods); the order stays as it is."""
    return [(class_id, list(same)) for class_id, same in groupby(pods, lambda p: p.class_id)]


class PriorityQueue:
    """The queue of one scheduler; not thread-safe, one cycle at a time uses it."""

    def __init__(
        self,
        *,
        registrations: Registrations,
        backoff: Backoff | None = None,
        sort_key: SortKey = priority_sort,
        pre_enqueue: PreEnqueue = scheduling_gates,
    ) -> None:
        self._registrations = registrations
        self._backoff = backoff or Backoff()
        self._sort_key = sort_key
        self._pre_enqueue = pre_enqueue
        self._entries: dict[int, _Entry] = {}
        self._fresh: _Heap = []
        self._lines: dict[int, _Line] = {}
        # Items are (key of the first pod, class, token of the line).
        self._untried: _Heap = []
        self._open: _Heap = []
        self._back: _Heap = []
        self._tried_at = 0
        self._firsts = _FIRSTS
        self._waiting_backoff: _Heap = []
        self._flush: _Heap = []
        self._groups: dict[_Group, _Members] = {}
        self._woken: deque[_Members] = deque()
        self._heard: dict[tuple[object, ...], bool] = {}
        # Ordered by when they were popped; a plain dict would be slow at its oldest key.
        self._in_flight: OrderedDict[int, None] = OrderedDict()
        self._events: deque[ClusterEvent] = deque()
        self._first_event = 0
        self._changed: OrderedDict[int, None] = OrderedDict()
        self._event_count = 0
        self._tokens = 0
        self._latest = -math.inf
        self.incoming: dict[tuple[str, str], int] = {}
        """How many pods came to a queue, by queue and event; whoever reads it may empty it."""

    # --- looking ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, pod_id: int) -> bool:
        return pod_id in self._entries

    def present(self, pod_ids: Iterable[int]) -> list[int]:
        """Return those of some pods that are in the queue."""
        entries = self._entries
        return [pod_id for pod_id in pod_ids if pod_id in entries]

    def place(self, pod_id: int) -> Place:
        """Return where a pod is.

        Raises:
            KeyError: it is not in the queue.
        """
        entry = self._entries[pod_id]
        return Place(
            pod_id=pod_id,
            stage=entry.stage,
            attempts=entry.attempts,
            queued_at=entry.queued_at,
            since=entry.since,
            not_before=entry.not_before,
            rejected_by=tuple(sorted(entry.rejected_by | entry.pending_by)),
        )

    def places(self) -> Iterator[Place]:
        """Return where every pod is, in no order that means anything."""
        return (self.place(pod_id) for pod_id in self._entries)

    def counts(self) -> dict[Stage, int]:
        """Return how many pods are in each stage."""
        result = dict.fromkeys(Stage, 0)
        for entry in self._entries.values():
            result[entry.stage] += 1
        return result

    def take_changes(self, most: int | None = None) -> list[Place]:
        """Return the places that changed since the last call and that a restart must know.

        At most so many; the others are returned by the next calls.

        A pod that became active because its backoff is over is not among them: its row says when
        that is. Pods that left are not either: their rows go with the binding or the pod.
        """
        pod_ids = list(itertools.islice(self._changed, most))
        for pod_id in pod_ids:
            del self._changed[pod_id]
        return [self.place(pod_id) for pod_id in pod_ids]

    def told(self, pod_ids: Iterable[int]) -> None:
        """Note that the places of these pods, as they are now, were written down."""
        for pod_id in pod_ids:
            self._changed.pop(pod_id, None)

    @property
    def has_ready(self) -> bool:
        """Whether pods are ready to be tried, as of the last ``pop_batch``."""
        return bool(self._fresh or self._lines)

    @property
    def has_waiting(self) -> bool:
        """Whether pods wait for an event."""
        return bool(self._groups)

    @property
    def has_changes(self) -> bool:
        """Whether ``take_changes`` has something to return."""
        return bool(self._changed)

    def next_due(self, now: float) -> float | None:
        """Return when ``pop_batch`` has something to give if nothing happens; None if never."""
        self._drop_stale()
        if self._fresh or self._lines or self._woken:
            return now
        moments = [heap[0][0][0] for heap in (self._waiting_backoff, self._flush) if heap]
        return max(min(moments), now) if moments else None

    # --- coming in -------------------------------------------------------------------------------

    def add(self, pod: PendingPod, now: float) -> None:
        """Take a pod in, or its new version: then it keeps its place as ``update`` has it."""
        if pod.pod_id in self._entries:
            self.update(pod, now)
            return
        entry = _Entry(pod, now)
        self._entries[pod.pod_id] = entry
        self._enqueue(entry, now)
        self._came(entry, _POD_ADD)

    def restore(self, pod: PendingPod, place: Place, now: float) -> None:
        """Take a pod in at the place that its row tells, after a restart.

        What happened since the row was written is not known here, so a pod that a plugin rejected
        is woken by the first event that its plugins care about, or by the flush.
        """
        self.delete(pod.pod_id)
        entry = _Entry(pod, place.queued_at or now)
        entry.since = place.since or now
        entry.attempts = place.attempts
        entry.not_before = place.not_before
        self._limit_times(entry, now)
        entry.rejected_by = frozenset(place.rejected_by)
        entry.refused = place.attempts > 0
        self._entries[pod.pod_id] = entry
        if place.stage is Stage.UNSCHEDULABLE and entry.rejected_by:
            self._wait(entry, Stage.UNSCHEDULABLE)
        else:
            self._enqueue(entry, now)

    def adopt(self, other: "PriorityQueue", now: float) -> None:
        """Take over the pods of another queue, where they stand there, in place of what is here.

        For pods whose rows were read again: what woke them is worked out in a queue of their own,
        so that the same events do not reach the other pods a second time. ``other`` must not be
        used afterwards.
        """
        while other._woken:
            other._wake(now)
        for pod_id, entry in other._entries.items():
            self.delete(pod_id)
            self._entries[pod_id] = entry
            entry.members = None
            if entry.stage in (Stage.UNSCHEDULABLE, Stage.GATED):
                self._wait(entry, entry.stage)
            elif entry.stage is not Stage.IN_FLIGHT:
                self._enqueue(entry, now)

    def pod(self, pod_id: int) -> PendingPod:
        """Return a pod as the queue knows it.

        Raises:
            KeyError: it is not in the queue.
        """
        return self._entries[pod_id].pod

    def update(self, pod: PendingPod, now: float, event: ClusterEvent | None = None) -> None:
        """Put the new version of a pod in its old one's place.

        Args:
            pod: the new version.
            now: the time.
            event: what changed about it, if the plugins that rejected it shall be asked; without
                it a change of class or priority is worth a new attempt.
        """
        entry = self._entries.get(pod.pod_id)
        if entry is None:
            self.add(pod, now)
            return
        old = entry.pod
        if old.class_id != pod.class_id or old.priority != pod.priority:
            entry.refused = False
        if entry.stage is Stage.IN_FLIGHT:
            # The decision saw the old version. When it comes back, the change is an event.
            entry.pod = pod
            entry.changed_in_flight |= old.class_id != pod.class_id
            return
        if entry.stage in (Stage.UNSCHEDULABLE, Stage.GATED):
            self._leave_group(entry)
            entry.pod = pod
            changed = old.class_id != pod.class_id or old.priority != pod.priority
            if event is not None:
                worth = self._worth(pod.spec, entry.rejected_by, entry.pending_by, event)
                changed = worth is not _Worth.NOTHING
            if changed or entry.stage is Stage.GATED:
                self._enqueue(entry, now)
                self._came(entry, _POD_UPDATE)
                self._changed[pod.pod_id] = None
            else:
                self._wait(entry, entry.stage)
            return
        entry.pod = pod
        if old.class_id != pod.class_id or old.priority != pod.priority:
            self._enqueue(entry, now)

    def delete(self, pod_id: int) -> None:
        """Forget a pod, wherever it is; an unknown one is fine."""
        entry = self._entries.pop(pod_id, None)
        if entry is None:
            return
        if pod_id in self._in_flight:
            if self._lines:
                self._probed(entry, _Trial.UNTRIED)
            self._land(pod_id)
        elif entry.stage in (Stage.UNSCHEDULABLE, Stage.GATED):
            self._leave_group(entry)
        self._changed.pop(pod_id, None)

    def waited(self, pod_ids: Iterable[int]) -> list[tuple[str, int, int, float]]:
        """Return scheduler name, priority, attempts and time of coming of pods in the queue."""
        entries = self._entries
        return [
            (entry.pod.spec.spec.scheduler_name, entry.pod.priority, entry.attempts, entry.since)
            for pod_id in pod_ids
            if (entry := entries.get(pod_id)) is not None
        ]

    def done(self, pod_id: int) -> None:
        """Forget a pod that was placed."""
        entry = self._entries.get(pod_id)
        if entry is not None and (entry.refused or self._lines):
            self._probed(entry, _Trial.OPEN)
        self.delete(pod_id)

    # --- going out and coming back ---------------------------------------------------------------

    def pop_batch(self, now: float, limit: int) -> list[PendingPod]:
        """Return up to ``limit`` pods to decide, in order; they are in flight from now on.

        Each must come back by ``done``, ``requeue_unschedulable``, ``requeue_failed``,
        ``requeue_stale`` or ``delete``.
        """
        self._promote(now)
        self._reopen()
        chosen = self._choose(limit)
        chosen.sort()
        popped: list[PendingPod] = []
        for _, pod_id, _ in chosen:
            entry = self._entries[pod_id]
            entry.stage = Stage.IN_FLIGHT
            entry.attempts += 1
            entry.rejected_by = entry.pending_by = frozenset()
            entry.changed_in_flight = False
            entry.first_event = self._first_event + len(self._events)
            self._tokens += 1
            entry.token = self._tokens
            self._in_flight[pod_id] = None
            popped.append(entry.pod)
        return popped

    def _choose(self, limit: int) -> list[_Item]:
        """Take the pods of the next batch out of their heaps, in no order."""
        chosen: list[_Item] = []
        if not self._lines:
            while self._fresh and len(chosen) < limit:
                item = heapq.heappop(self._fresh)
                entry = self._entries.get(item[1])
                if entry is not None and entry.token == item[2]:
                    chosen.append(item)
            return chosen
        share = limit // _SHARE if self._first_line(self._back) is not None else 0
        firsts, fresh, most_fresh = self._firsts, 0, limit
        while len(chosen) < limit - share:
            pod = self._first(self._fresh) if fresh < most_fresh else None
            opened = self._first_line(self._open)
            untried = self._first_line(self._untried) if firsts else None
            best = min(item for item in (pod, opened, untried, _LAST) if item is not None)
            if best is _LAST:
                break
            if best is untried:
                firsts -= 1
                taken = self._take(untried[1], _Trial.PROBING)
                if (line := self._lines.get(untried[1])) is not None:
                    line.probe = taken[1]
                    most_fresh = min(most_fresh, _BESIDE)
                chosen.append(taken)
            elif best is opened:
                chosen.append(self._take(opened[1]))
            else:
                fresh += 1
                chosen.append(heapq.heappop(self._fresh))
        room = share if chosen else max(limit // _SHUT_ALONE, 1)
        taken_back: list[_Item] = []
        waiting: list[_Item] = []
        while len(taken_back) < room and (lined := self._first_line(self._back)) is not None:
            line = self._lines[lined[1]]
            # Who waits for a first pod goes on waiting, unless there is nothing else to do.
            if line.trial is _Trial.PROBING and (chosen or taken_back):
                waiting.append(heapq.heappop(self._back))
                continue
            taken_back.append(self._take(lined[1]))
        for item in waiting:
            heapq.heappush(self._back, item)
        return chosen + taken_back

    def _first(self, heap: _Heap) -> _Item | None:
        """Return the first live item of a heap of pods, without the dead ones before it."""
        while heap:
            entry = self._entries.get(heap[0][1])
            if entry is not None and entry.token == heap[0][2]:
                return heap[0]
            heapq.heappop(heap)
        return None

    def _first_line(self, heap: _Heap) -> _Item | None:
        """Return the first live item of a heap of lines, with the key of the line's first pod."""
        while heap:
            key, class_id, token = heap[0]
            line = self._lines.get(class_id)
            if line is not None and line.token == token:
                first = self._first(line.pods)
                if first is not None and first[0] == key:
                    return heap[0]
                heapq.heappop(heap)
                if first is None:
                    del self._lines[class_id]
                else:
                    self._offer(class_id, line)
                continue
            heapq.heappop(heap)
        return None

    def _take(self, class_id: int, trial: _Trial | None = None) -> _Item:
        """Take the first pod out of a line, which has one."""
        line = self._lines[class_id]
        taken = heapq.heappop(line.pods)
        if trial is not None:
            line.trial = trial
        if self._first(line.pods) is not None:
            self._offer(class_id, line)
        else:
            del self._lines[class_id]
        return taken

    def _offer(self, class_id: int, line: _Line) -> None:
        """Put a line where its pods are looked for; what stood there before means nothing now."""
        self._tokens += 1
        line.token = self._tokens
        heap = self._back
        if line.trial is _Trial.UNTRIED:
            heap = self._untried
        elif line.trial is _Trial.OPEN:
            heap = self._open
        heapq.heappush(heap, (line.pods[0][0], class_id, line.token))

    def _probed(self, entry: _Entry, trial: _Trial) -> None:
        """Note what became of a pod in flight: it was placed, refused, or it does not tell."""
        class_id, pod_id = entry.pod.class_id, entry.pod.pod_id
        line = self._lines.get(class_id)
        if entry.refused:
            if trial is _Trial.OPEN:
                self._firsts = min(self._firsts + 1, _MOST_FIRSTS)
            elif trial is _Trial.SHUT:
                self._firsts = _FIRSTS
        if line is None or self._first(line.pods) is None:
            return
        if trial is _Trial.UNTRIED and (line.trial is not _Trial.PROBING or line.probe != pod_id):
            return
        if trial is not line.trial:
            line.trial = trial
            self._offer(class_id, line)

    def _reopen(self) -> None:
        """Let shut lines be tried again if something happened since they were."""
        if self._tried_at == self._event_count:
            return
        self._tried_at = self._event_count
        for class_id, line in list(self._lines.items()):
            if line.trial is _Trial.SHUT and self._first(line.pods) is not None:
                line.trial = _Trial.UNTRIED
                self._offer(class_id, line)

    def park(self, pod_id: int) -> None:
        """Note that a pod in flight waits, on Permit or PreBind, for as long as it may take.

        What happens meanwhile is counted and not kept: when it comes back rejected and there was
        something, it is tried again after its backoff.
        """
        entry = self._entries[pod_id]
        if pod_id in self._in_flight:
            self._probed(entry, _Trial.OPEN)
            entry.changed_in_flight |= bool(self._events_since(entry))
            self._land(pod_id)
            entry.first_event = self._event_count
            self._changed[pod_id] = None

    def restore_parked(self, pod: PendingPod, place: Place) -> None:
        """Take a pod in that waits, after a restart; what happened before is not known."""
        self.delete(pod.pod_id)
        entry = self._entries[pod.pod_id] = _Entry(pod, place.queued_at)
        entry.stage = Stage.IN_FLIGHT
        entry.since, entry.attempts = place.since, place.attempts
        entry.changed_in_flight = True

    def requeue_unschedulable(
        self,
        pod_id: int,
        rejected_by: Iterable[str],
        now: float,
        *,
        pending_by: Iterable[str] = (),
    ) -> None:
        """Take back a pod that does not fit anywhere.

        Args:
            pod_id: the pod; one that is not in flight any more is left alone.
            rejected_by: the plugins that rejected it; none means that the attempt failed.
            now: the time.
            pending_by: those of them that answered Pending: their events skip the backoff.
        """
        entry = self._entries.get(pod_id)
        if entry is None or entry.stage is not Stage.IN_FLIGHT:
            return
        events: list[ClusterEvent] = []
        by = frozenset(rejected_by)
        if pod_id in self._in_flight:
            events = self._events_since(entry)
            # Refused by a state that is gone, or by nobody, it says nothing of its sisters.
            told = by and not events and not entry.changed_in_flight
            self._probed(entry, _Trial.SHUT if told else _Trial.UNTRIED)
            self._land(pod_id)
        elif entry.first_event != self._event_count:
            entry.changed_in_flight = True
        entry.pending_by = frozenset(pending_by)
        entry.rejected_by = by | entry.pending_by
        entry.refused = True
        entry.queued_at = now
        entry.not_before = now + self._backoff.after(entry.attempts)
        self._changed[pod_id] = None
        if not entry.rejected_by or entry.changed_in_flight:
            self._enqueue(entry, now)
            self._came(entry, _FAILURE)
            return
        worth = max(
            (self._worth(entry.pod.spec, entry.rejected_by, entry.pending_by, e) for e in events),
            default=_Worth.NOTHING,
        )
        self._act(entry, worth, now, Stage.UNSCHEDULABLE)
        self._came(entry, _FAILURE)

    def requeue_failed(self, pod_id: int, now: float) -> None:
        """Take back a pod whose attempt failed: it is tried again after its backoff."""
        self.requeue_unschedulable(pod_id, (), now)

    def requeue_stale(self, pod_id: int, now: float) -> None:
        """Take back a pod whose node changed before it was bound: it keeps its turn."""
        entry = self._entries.get(pod_id)
        if entry is None or entry.stage is not Stage.IN_FLIGHT:
            return
        if pod_id in self._in_flight:
            self._probed(entry, _Trial.UNTRIED)
            self._land(pod_id)
        entry.attempts -= 1
        entry.rejected_by = frozenset()
        entry.not_before = 0.0
        self._enqueue(entry, now)
        self._came(entry, _FAILURE)

    # --- events ----------------------------------------------------------------------------------

    def move_on_event(
        self,
        event: ClusterEvent,
        now: float,
        *,
        but_not: Collection[int] = (),
        seen: bool = False,
    ) -> int:
        """Wake the pods that the event may help, and return how many moved at once.

        Args:
            event: what happened.
            now: the time.
            but_not: pods that caused it themselves.
            seen: the scheduler did it itself: what is in flight, or active, was decided with it or
                will be.
        """
        if not seen:
            self._event_count += 1
            if self._in_flight:
                self._events.append(event)
        for members in self._woken:
            if members.worth is not _Worth.NOW and members.group[3]:
                worth = self._worth(members.spec, members.group[2], members.group[3], event)
                members.worth = max(members.worth, worth)
        for group, members in list(self._groups.items()):
            if not self._hears(group, event):
                continue
            worth = self._worth(members.spec, group[2], group[3], event)
            if worth is _Worth.NOTHING:
                continue
            del self._groups[group]
            members.worth = worth
            members.woken_by = event.label
            self._woken.append(members)
            for pod_id in [pod_id for pod_id in but_not if pod_id in members.pod_ids]:
                entry = self._entries[pod_id]
                self._leave_group(entry)
                self._wait(entry, entry.stage)
        return self._wake(now)

    def _wake(self, now: float) -> int:
        """Move woken pods, some at a time; return how many."""
        moved = 0
        while self._woken and moved < _AT_ONCE:
            members = self._woken[0]
            if not members.pod_ids:
                self._woken.popleft()
                continue
            pod_id = next(iter(members.pod_ids))
            entry = self._entries[pod_id]
            self._leave_group(entry)
            self._act(entry, members.worth, now, entry.stage)
            self._came(entry, members.woken_by)
            self._changed[pod_id] = None
            moved += 1
        return moved

    def activate(self, pod_ids: Iterable[int], now: float) -> None:
        """Make waiting pods active at once, without backoff; unknown ones are fine."""
        for pod_id in pod_ids:
            entry = self._entries.get(pod_id)
            if entry is None or entry.stage in (Stage.IN_FLIGHT, Stage.ACTIVE):
                continue
            if entry.stage is not Stage.BACKOFF:
                self._leave_group(entry)
            entry.not_before = 0.0
            self._enqueue(entry, now)
            self._came(entry, _ACTIVATED)
            self._changed[pod_id] = None

    # --- inside ----------------------------------------------------------------------------------

    def _worth(
        self,
        spec: Pod,
        rejected_by: frozenset[str],
        pending_by: frozenset[str],
        event: ClusterEvent,
    ) -> _Worth:
        """Ask the plugins that rejected the pod (isPodWorthRequeuing)."""
        by_plugin = self._registrations.get(spec.spec.scheduler_name, {})
        # Those that answered Pending first: one of them is enough, and skips the backoff.
        for plugins, worth in (
            (pending_by, _Worth.NOW),
            (rejected_by - pending_by, _Worth.AFTER_BACKOFF),
        ):
            for plugin in plugins:
                for registration in by_plugin.get(plugin, EVERY_EVENT):
                    if registration.covers(event) and (
                        registration.hint is None or registration.hint(spec, event)
                    ):
                        return worth
        return _Worth.NOTHING

    def _hears(self, group: _Group, event: ClusterEvent) -> bool:
        """Return whether a plugin of the group wants to hear of such events, whatever its hint."""
        _, name, rejected_by, pending_by = group
        key = name, rejected_by, pending_by, event.resource, event.action
        found = self._heard.get(key)
        if found is None:
            by_plugin = self._registrations.get(name, {})
            found = self._heard[key] = any(
                registration.covers(event)
                for plugin in rejected_by | pending_by
                for registration in by_plugin.get(plugin, EVERY_EVENT)
            )
        return found

    def _came(self, entry: _Entry, event: str) -> None:
        """Count that a pod came to the queue that it is in now."""
        key = entry.stage, event
        self.incoming[key] = self.incoming.get(key, 0) + 1

    def _act(self, entry: _Entry, worth: _Worth, now: float, stage: Stage) -> None:
        """Let the pod wait in ``stage`` or bring it nearer to its next attempt."""
        if worth is _Worth.NOTHING:
            self._wait(entry, stage)
            return
        if worth is _Worth.NOW:
            entry.not_before = 0.0
        self._enqueue(entry, now)

    def _enqueue(self, entry: _Entry, now: float) -> None:
        """Put the pod into gated, backoff or active, as PreEnqueue and its backoff have it."""
        gate = self._pre_enqueue(entry.pod)
        if gate:
            entry.rejected_by, entry.pending_by = frozenset({gate}), frozenset()
            self._wait(entry, Stage.GATED)
            self._changed[entry.pod.pod_id] = None
            return
        self._tokens += 1
        entry.token = self._tokens
        pod_id = entry.pod.pod_id
        if entry.not_before > now:
            entry.stage = Stage.BACKOFF
            heapq.heappush(self._waiting_backoff, ((entry.not_before,), pod_id, entry.token))
        else:
            self._activate(entry)

    def _activate(self, entry: _Entry) -> None:
        entry.stage = Stage.ACTIVE
        pod = entry.pod
        item = (self._sort_key(pod, entry.queued_at), pod.pod_id, entry.token)
        if not entry.refused:
            heapq.heappush(self._fresh, item)
            return
        line = self._lines.get(pod.class_id)
        if line is None:
            line = self._lines[pod.class_id] = _Line()
        heapq.heappush(line.pods, item)
        if line.pods[0] is item:
            self._offer(pod.class_id, line)

    def _wait(self, entry: _Entry, stage: Stage) -> None:
        entry.stage = stage
        self._tokens += 1
        entry.token = self._tokens
        pod_id = entry.pod.pod_id
        group = self._group(entry)
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = _Members(group, entry.pod.spec)
        members.pod_ids[pod_id] = None
        entry.members = members
        if stage is Stage.UNSCHEDULABLE:
            due = entry.queued_at + self._backoff.flush_after
            heapq.heappush(self._flush, ((due,), pod_id, entry.token))

    @staticmethod
    def _group(entry: _Entry) -> _Group:
        pod = entry.pod
        name = pod.spec.spec.scheduler_name
        return pod.class_id, name, entry.rejected_by, entry.pending_by

    def _leave_group(self, entry: _Entry) -> None:
        members = entry.members
        assert members is not None, f"pod {entry.pod.pod_id} waits in no group"
        del members.pod_ids[entry.pod.pod_id]
        entry.members = None
        if not members.pod_ids and self._groups.get(members.group) is members:
            del self._groups[members.group]

    def _promote(self, now: float) -> None:
        """Make active what was woken or waited long enough, some at a time."""
        if now < self._latest:
            self._follow_clock_back(now)
        self._latest = now
        self._wake(now)
        moved = 0
        heap = self._waiting_backoff
        while moved < _AT_ONCE and (first := self._first(heap)) is not None and first[0][0] <= now:
            heapq.heappop(heap)
            entry = self._entries[first[1]]
            self._activate(entry)
            self._came(entry, _BACKOFF_OVER)
            moved += 1
        heap = self._flush
        while moved < _AT_ONCE and (first := self._first(heap)) is not None and first[0][0] <= now:
            heapq.heappop(heap)
            entry = self._entries[first[1]]
            self._leave_group(entry)
            self._enqueue(entry, now)
            self._came(entry, _FLUSHED)
            self._changed[first[1]] = None
            moved += 1

    def _follow_clock_back(self, now: float) -> None:
        """Let no pod wait for the time that the clock was set back by.

        Moments that lie further ahead than a backoff were noted before the clock was set.
        """
        for entry in self._entries.values():
            if not self._limit_times(entry, now) or entry.stage is Stage.IN_FLIGHT:
                continue
            if entry.members is None:
                self._enqueue(entry, now)
            else:
                stage = entry.stage
                self._leave_group(entry)
                self._wait(entry, stage)

    def _limit_times(self, entry: _Entry, now: float) -> bool:
        """Take back moments that cannot lie so far ahead; return whether there were any."""
        not_before = min(entry.not_before, now + self._backoff.after(entry.attempts))
        if entry.queued_at <= now and entry.not_before == not_before:
            return False
        entry.queued_at = min(entry.queued_at, now)
        entry.not_before = not_before
        return True

    def _drop_stale(self) -> None:
        for heap in (self._fresh, self._waiting_backoff, self._flush):
            self._first(heap)
        for heap in (self._untried, self._open, self._back):
            self._first_line(heap)
        while self._woken and not self._woken[0].pod_ids:
            self._woken.popleft()

    def compact(self) -> None:
        """Drop the items that pods left behind in the heaps where these are most of a heap.

        Items die when their pod moves, and go when they come first. In a queue that gives no
        batches, as a standby's, and in the heap of moments five minutes ahead, they do not come
        first for long. Costs nothing as long as the heaps hold little more than the pods.
        """
        most = 2 * len(self._entries) + _SPARE
        for heap in (self._fresh, self._waiting_backoff, self._flush):
            if len(heap) > most:
                heap[:] = [item for item in heap if self._lives(item)]
                heapq.heapify(heap)

    def _lives(self, item: _Item) -> bool:
        entry = self._entries.get(item[1])
        return entry is not None and entry.token == item[2]

    def _events_since(self, entry: _Entry) -> list[ClusterEvent]:
        start = entry.first_event - self._first_event
        return [self._events[i] for i in range(start, len(self._events))]

    def _land(self, pod_id: int) -> None:
        """Note that a pod is no longer in flight; forget events that no other one needs."""
        del self._in_flight[pod_id]
        if not self._in_flight:
            self._first_event += len(self._events)
            self._events.clear()
            return
        oldest = self._entries[next(iter(self._in_flight))].first_event
        while self._first_event < oldest:
            self._events.popleft()
            self._first_event += 1

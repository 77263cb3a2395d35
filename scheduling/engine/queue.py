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

*Active* pods come out by the sort key (priority, then time queued), which the pod's id makes total.
A pod that failed waits 1 s, 2 s, 4 s ... 10 s. A pod that plugins rejected waits until an event may
have changed the mind of one of them: each plugin registers events with hints, and waiting pods are
grouped by class and plugins, so that an event costs one hint per group and not per pod. Events that
come while a pod is being decided are kept and looked at when it comes back, for the decision has
not seen them; those that come while it waits on Permit or PreBind (*parked*) are only counted.
After five minutes a pod is tried again in any case.

Pure and in memory: the clock comes in as ``now`` (seconds since the epoch), and what must survive a
restart goes out by ``take_changes``. Being in flight is not written down, unless the pod is parked:
after a restart such a pod is simply active again. Rules:
pkg/scheduler/backend/queue/scheduling_queue.go, v1.36 (R151).
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum, StrEnum
from itertools import groupby

import msgspec

from clusterstate.objects.pod import Pod
from scheduling.framework.events import EVERY_EVENT, ClusterEvent, Registration

SCHEDULING_GATES = "SchedulingGates"


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
    """A pod's state; ``token`` tells live heap items from those left behind by a move."""

    __slots__ = (
        "attempts",
        "changed_in_flight",
        "first_event",
        "not_before",
        "pending_by",
        "pod",
        "queued_at",
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


_Heap = list[tuple[tuple[float, ...], int, int]]
"""Items are (key, pod id, token); an item whose token is not the pod's any more means nothing."""

_Group = tuple[int, str, frozenset[str], frozenset[str]]
"""Class, scheduler name, plugins that rejected, plugins that keep pending."""


class _Members:
    """The waiting pods of a group, and the spec that they share."""

    __slots__ = ("pod_ids", "spec")

    def __init__(self, spec: Pod) -> None:
        self.spec = spec
        self.pod_ids: dict[int, None] = {}


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
        self._active: _Heap = []
        self._waiting_backoff: _Heap = []
        self._flush: _Heap = []
        self._groups: dict[_Group, _Members] = {}
        # Ordered by when they were popped; a plain dict would be slow at its oldest key.
        self._in_flight: OrderedDict[int, None] = OrderedDict()
        self._events: deque[ClusterEvent] = deque()
        self._first_event = 0
        self._changed: dict[int, None] = {}
        self._event_count = 0
        self._tokens = 0

    # --- looking ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, pod_id: int) -> bool:
        return pod_id in self._entries

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

    def take_changes(self) -> list[Place]:
        """Return the places that changed since the last call and that a restart must know.

        A pod that became active because its backoff is over is not among them: its row says when
        that is. Pods that left are not either: their rows go with the binding or the pod.
        """
        changed = [self.place(pod_id) for pod_id in self._changed if pod_id in self._entries]
        self._changed.clear()
        return changed

    def next_due(self, now: float) -> float | None:
        """Return when ``pop_batch`` has something to give if nothing happens; None if never."""
        self._drop_stale()
        if self._active:
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
        entry.rejected_by = frozenset(place.rejected_by)
        self._entries[pod.pod_id] = entry
        if place.stage is Stage.UNSCHEDULABLE and entry.rejected_by:
            self._wait(entry, Stage.UNSCHEDULABLE)
        else:
            self._enqueue(entry, now)

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
            self._land(pod_id)
        elif entry.stage in (Stage.UNSCHEDULABLE, Stage.GATED):
            self._leave_group(entry)
        self._changed.pop(pod_id, None)

    def done(self, pod_id: int) -> None:
        """Forget a pod that was placed."""
        self.delete(pod_id)

    # --- going out and coming back ---------------------------------------------------------------

    def pop_batch(self, now: float, limit: int) -> list[PendingPod]:
        """Return up to ``limit`` pods to decide, in order; they are in flight from now on.

        Each must come back by ``done``, ``requeue_unschedulable``, ``requeue_failed``,
        ``requeue_stale`` or ``delete``.
        """
        self._promote(now)
        popped: list[PendingPod] = []
        while self._active and len(popped) < limit:
            _, pod_id, token = heapq.heappop(self._active)
            entry = self._entries.get(pod_id)
            if entry is None or entry.token != token:
                continue
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

    def park(self, pod_id: int) -> None:
        """Note that a pod in flight waits, on Permit or PreBind, for as long as it may take.

        What happens meanwhile is counted and not kept: when it comes back rejected and there was
        something, it is tried again after its backoff.
        """
        entry = self._entries[pod_id]
        if pod_id in self._in_flight:
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
        if pod_id in self._in_flight:
            events = self._events_since(entry)
            self._land(pod_id)
        elif entry.first_event != self._event_count:
            entry.changed_in_flight = True
        entry.pending_by = frozenset(pending_by)
        entry.rejected_by = frozenset(rejected_by) | entry.pending_by
        entry.queued_at = now
        entry.not_before = now + self._backoff.after(entry.attempts)
        self._changed[pod_id] = None
        if not entry.rejected_by or entry.changed_in_flight:
            self._enqueue(entry, now)
            return
        worth = max(
            (self._worth(entry.pod.spec, entry.rejected_by, entry.pending_by, e) for e in events),
            default=_Worth.NOTHING,
        )
        self._act(entry, worth, now, Stage.UNSCHEDULABLE)

    def requeue_failed(self, pod_id: int, now: float) -> None:
        """Take back a pod whose attempt failed: it is tried again after its backoff."""
        self.requeue_unschedulable(pod_id, (), now)

    def requeue_stale(self, pod_id: int, now: float) -> None:
        """Take back a pod whose node changed before it was bound: it keeps its turn."""
        entry = self._entries.get(pod_id)
        if entry is None or entry.stage is not Stage.IN_FLIGHT:
            return
        if pod_id in self._in_flight:
            self._land(pod_id)
        entry.attempts -= 1
        entry.rejected_by = frozenset()
        entry.not_before = 0.0
        self._enqueue(entry, now)

    # --- events ----------------------------------------------------------------------------------

    def move_on_event(
        self, event: ClusterEvent, now: float, *, but_not: Collection[int] = ()
    ) -> int:
        """Wake the pods that the event may help, and return how many.

        ``but_not``: pods that caused it themselves.
        """
        self._event_count += 1
        if self._in_flight:
            self._events.append(event)
        moved = 0
        for group, members in list(self._groups.items()):
            worth = self._worth(members.spec, group[2], group[3], event)
            if worth is _Worth.NOTHING:
                continue
            del self._groups[group]
            for pod_id in members.pod_ids:
                entry = self._entries[pod_id]
                before = entry.stage
                self._act(entry, _Worth.NOTHING if pod_id in but_not else worth, now, before)
                if entry.stage is not before:
                    moved += 1
                    self._changed[pod_id] = None
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
        key = self._sort_key(entry.pod, entry.queued_at)
        heapq.heappush(self._active, (key, entry.pod.pod_id, entry.token))

    def _wait(self, entry: _Entry, stage: Stage) -> None:
        entry.stage = stage
        self._tokens += 1
        entry.token = self._tokens
        pod_id = entry.pod.pod_id
        group = self._group(entry)
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = _Members(entry.pod.spec)
        members.pod_ids[pod_id] = None
        if stage is Stage.UNSCHEDULABLE:
            due = entry.queued_at + self._backoff.flush_after
            heapq.heappush(self._flush, ((due,), pod_id, entry.token))

    @staticmethod
    def _group(entry: _Entry) -> _Group:
        pod = entry.pod
        name = pod.spec.spec.scheduler_name
        return pod.class_id, name, entry.rejected_by, entry.pending_by

    def _leave_group(self, entry: _Entry) -> None:
        key = self._group(entry)
        members = self._groups[key]
        del members.pod_ids[entry.pod.pod_id]
        if not members.pod_ids:
            del self._groups[key]

    def _promote(self, now: float) -> None:
        """Make active what waited long enough."""
        heap = self._waiting_backoff
        while heap and heap[0][0][0] <= now:
            _, pod_id, token = heapq.heappop(heap)
            entry = self._entries.get(pod_id)
            if entry is not None and entry.token == token:
                self._activate(entry)
        heap = self._flush
        while heap and heap[0][0][0] <= now:
            _, pod_id, token = heapq.heappop(heap)
            entry = self._entries.get(pod_id)
            if entry is not None and entry.token == token:
                self._leave_group(entry)
                self._enqueue(entry, now)
                self._changed[pod_id] = None

    def _drop_stale(self) -> None:
        for heap in (self._active, self._waiting_backoff, self._flush):
            while heap:
                entry = self._entries.get(heap[0][1])
                if entry is not None and entry.token == heap[0][2]:
                    break
                heapq.heappop(heap)

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

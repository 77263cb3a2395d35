"""The queue itself: how pods enter, change stages and leave; the rules are in the package."""

import itertools
import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator

from clusterstate.objects.values.pod_group import GroupKey
from scheduling.engine.queue.active import ActivePods, Refusal
from scheduling.engine.queue.early import EarlyAttempts
from scheduling.engine.queue.in_flight import PodsInFlight
from scheduling.engine.queue.pending import (
    Backoff,
    Cause,
    Entry,
    HeldBy,
    IsNominated,
    PendingPod,
    QueuePlace,
    SortKey,
    Stage,
    drop_dead,
    never_nominated,
    priority_sort,
    scheduling_gates,
)
from scheduling.engine.queue.timers import Timers
from scheduling.engine.queue.waiting import Registrations, WaitingPods, Worth
from scheduling.framework.events import ClusterEvent
from scheduling.framework.pod_groups import GANG_SCHEDULING, order_key
from scheduling.framework.types import group_key

_AT_ONCE = 2000
"""This many pods move in one call; each takes some microseconds."""
_SPARE = 4096
"""A heap is rebuilt when its items exceed twice the number of pods by this many."""


class PriorityQueue:
    """The queue of one scheduler. Not thread-safe."""

    def __init__(
        self,
        *,
        registrations: Registrations,
        backoff: Backoff | None = None,
        sort_key: SortKey = priority_sort,
        pre_enqueue: HeldBy = scheduling_gates,
        is_nominated: IsNominated = never_nominated,
    ) -> None:
        self._backoff = backoff or Backoff()
        self._sort_key = sort_key
        self._pre_enqueue = pre_enqueue
        self._is_nominated = is_nominated
        self._entries: dict[int, Entry] = {}
        self._active = ActivePods(self._entries)
        self._early = EarlyAttempts(self._entries)
        self._waiting = WaitingPods(registrations)
        self._in_flight = PodsInFlight(self._entries)
        self._timers = Timers(self._entries)
        self._members: dict[GroupKey, dict[int, None]] = {}
        """Pods of groups, by group; those of no group are not here."""
        self._held: dict[GroupKey, list[int]] = {}
        """Pods that waited for their groups when PreEnqueue was asked last, by group."""
        self._changed: OrderedDict[int, None] = OrderedDict()
        self._tokens = 0
        self._latest = -math.inf
        self.incoming: dict[tuple[str, str], int] = {}
        """How many pods came to a queue, by queue and event; its reader may empty it."""

    # --- looking ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, pod_id: int) -> bool:
        return pod_id in self._entries

    def present(self, pod_ids: Iterable[int]) -> list[int]:
        """Return those of the given pods that are in the queue."""
        entries = self._entries
        return [pod_id for pod_id in pod_ids if pod_id in entries]

    def place(self, pod_id: int) -> QueuePlace:
        """Return the place of a pod in the queue.

        Raises:
            KeyError: it is not in the queue.
        """
        entry = self._entries[pod_id]
        return QueuePlace(
            pod_id=pod_id,
            stage=entry.stage,
            attempts=entry.attempts,
            early=entry.early,
            queued_at=entry.queued_at,
            since=entry.since,
            not_before=entry.not_before,
            rejected_by=tuple(sorted(entry.rejected_by | entry.pending_by)),
        )

    def places(self) -> Iterator[QueuePlace]:
        """Return the places of all pods, in arbitrary order."""
        return (self.place(pod_id) for pod_id in self._entries)

    def counts(self) -> dict[Stage, int]:
        """Return how many pods are in each stage."""
        result = dict.fromkeys(Stage, 0)
        for entry in self._entries.values():
            result[entry.stage] += 1
        return result

    def take_changes(self, most: int | None = None) -> list[QueuePlace]:
        """Return the places that changed since the last call and that a restart needs.

        At most ``most``; the next calls return the others. Left out are pods that became active
        because their backoff is over, since their rows have that time, and pods that left, whose
        rows are deleted with the binding or the pod.
        """
        pod_ids = list(itertools.islice(self._changed, most))
        for pod_id in pod_ids:
            del self._changed[pod_id]
        return [self.place(pod_id) for pod_id in pod_ids]

    def mark_written(self, pod_ids: Iterable[int]) -> None:
        """Note that the present queue states of these pods are written to their rows."""
        for pod_id in pod_ids:
            self._changed.pop(pod_id, None)

    @property
    def has_ready(self) -> bool:
        """Whether pods are active, as of the last ``pop_batch``."""
        return bool(self._active)

    @property
    def has_waiting(self) -> bool:
        """Whether pods wait for an event."""
        return bool(self._waiting)

    @property
    def has_changes(self) -> bool:
        """Whether ``take_changes`` has something to return."""
        return bool(self._changed)

    def next_due(self, now: float) -> float | None:
        """Return when ``pop_batch`` next has pods if nothing happens, in epoch seconds; or None."""
        self._active.drop_dead()
        if self._active or self._waiting.next_woken() is not None:
            return now
        moment = self._timers.next()
        return None if moment is None else max(min(moment, self._early.next(now)), now)

    # --- coming in -------------------------------------------------------------------------------

    def add(self, pod: PendingPod, now: float) -> None:
        """Add a pod, or its new version, as ``update`` does."""
        if pod.pod_id in self._entries:
            self.update(pod, now)
            return
        entry = Entry(pod, now)
        self._keep(entry)
        self._enqueue(entry, now)
        self._count(entry, Cause.POD_ADD)
        if pod.spec.spec.scheduling_group is not None and entry.stage is not Stage.GATED:
            self.release_group(group_key(pod.spec), now)

    def restore(self, pod: PendingPod, place: QueuePlace, now: float) -> None:
        """Add a pod at the place stored in its row, after a restart.

        Events since the row was written are not known here, so a pod that a plugin rejected waits
        for the next event that may help it, or for the flush.
        """
        self.delete(pod.pod_id)
        entry = Entry(pod, place.queued_at or now)
        entry.since = place.since or now
        entry.attempts = entry.refusals = place.attempts
        entry.early = place.early
        entry.not_before = place.not_before
        entry.limit_times(now, self._backoff)
        entry.rejected_by = entry.refused_by = frozenset(place.rejected_by)
        entry.refused = place.attempts > 0
        if place.stage is Stage.GATED:
            entry.stage = Stage.GATED
        self._keep(entry)
        if place.stage is Stage.UNSCHEDULABLE and entry.rejected_by:
            self._wait(entry, Stage.UNSCHEDULABLE)
        else:
            self._enqueue(entry, now)

    def adopt(self, other: "PriorityQueue", now: float) -> None:
        """Replace entries by those of another queue, each in the stage that it has there.

        For pods whose rows were read again: the events that they missed are replayed in ``other``,
        so that these events do not reach the remaining pods a second time. ``other`` must not be
        used afterwards.
        """
        while other._waiting.next_woken() is not None:
            other._wake(now)
        for pod_id, entry in other._entries.items():
            self.delete(pod_id)
            self._keep(entry)
            key = group_key(entry.pod.spec)
            if key is not None and entry.stage is Stage.GATED:
                self._held.setdefault(key, []).append(pod_id)
            if entry.stage in (Stage.UNSCHEDULABLE, Stage.GATED):
                self._wait(entry, entry.stage)
            elif entry.stage is not Stage.IN_FLIGHT:
                self._enqueue(entry, now)

    def pod(self, pod_id: int) -> PendingPod:
        """Return the queue's version of a pod.

        Raises:
            KeyError: it is not in the queue.
        """
        return self._entries[pod_id].pod

    def update(self, pod: PendingPod, now: float, event: ClusterEvent | None = None) -> None:
        """Replace a pod in the queue by its new version.

        Args:
            pod: the new version.
            now: the time.
            event: the change, for the hints of the plugins that rejected the pod; without it a
                change of class or priority causes a new attempt.
        """
        entry = self._entries.get(pod.pod_id)
        if entry is None:
            self.add(pod, now)
            return
        old = entry.pod
        if old.class_id != pod.class_id or old.priority != pod.priority:
            entry.refused = False
        if entry.stage is Stage.IN_FLIGHT:
            # The decision saw the old version. When the pod returns, the change counts as an event.
            entry.pod = pod
            if event is not None and pod.pod_id in self._in_flight:
                entry.own_changes = (*entry.own_changes, event)
            else:
                entry.changed_in_flight |= old.class_id != pod.class_id
            return
        if entry.stage in (Stage.UNSCHEDULABLE, Stage.GATED):
            self._waiting.remove(entry.pod.pod_id)
            entry.pod = pod
            changed = old.class_id != pod.class_id or old.priority != pod.priority
            if event is not None and (entry.rejected_by or entry.pending_by):
                worth = self._waiting.worth(pod.spec, entry.rejected_by, entry.pending_by, event)
                changed = worth is not Worth.NOTHING
            if changed or entry.stage is Stage.GATED:
                self._enqueue(entry, now)
                self._count(entry, Cause.POD_UPDATE)
                self._changed[pod.pod_id] = None
            else:
                self._wait(entry, entry.stage)
            return
        entry.pod = pod
        if old.class_id != pod.class_id or old.priority != pod.priority:
            self._enqueue(entry, now)

    def delete(self, pod_id: int) -> None:
        """Forget a pod in any stage; nothing happens if it is unknown."""
        entry = self._entries.pop(pod_id, None)
        if entry is None:
            return
        if (key := group_key(entry.pod.spec)) is not None:
            members = self._members.get(key, {})
            members.pop(pod_id, None)
            if not members:
                self._members.pop(key, None)
                self._held.pop(key, None)
        if self._in_flight.remove(pod_id):
            if self._active.retried or self._early.notes_outcomes:
                self._untold(entry)
        elif entry.stage in (Stage.UNSCHEDULABLE, Stage.GATED):
            self._waiting.remove(entry.pod.pod_id)
        self._changed.pop(pod_id, None)

    def waited(self, pod_ids: Iterable[int]) -> list[tuple[str, int, int, float]]:
        """Return scheduler name, priority, attempts and arrival time of the pods in the queue."""
        entries = self._entries
        return [
            (entry.pod.spec.spec.scheduler_name, entry.pod.priority, entry.attempts, entry.since)
            for pod_id in pod_ids
            if (entry := entries.get(pod_id)) is not None
        ]

    def refused_before(
        self, pod_ids: Iterable[int]
    ) -> list[tuple[frozenset[str], str, int, float]]:
        """Return plugins, namespace, priority and arrival time of the pods that were refused.

        The plugins are those of the last refusal.
        """
        entries = self._entries
        return [
            (entry.refused_by, entry.pod.spec.metadata.namespace, entry.pod.priority, entry.since)
            for pod_id in pod_ids
            if (entry := entries.get(pod_id)) is not None and entry.refused_by
        ]

    def done(self, pod_id: int) -> None:
        """Forget a pod that was placed."""
        entry = self._entries.get(pod_id)
        if entry is not None and (
            entry.refused or self._active.retried or self._early.notes_outcomes
        ):
            self._placed(entry)
        self.delete(pod_id)

    # --- going out and coming back ---------------------------------------------------------------

    def pop_batch(self, now: float, limit: int) -> list[PendingPod]:
        """Return up to ``limit`` pods to decide, in order; they are in flight from now on.

        If no pod is active, pods in BACKOFF that plugins rejected are returned. Each must be
        reported back by ``done``, ``requeue_unschedulable``, ``requeue_failed``, ``requeue_stale``
        or ``delete``.
        """
        self._promote(now)
        chosen = self._active.take_batch(limit, self._in_flight.event_count)
        if not chosen:
            chosen = self._early.take_batch(now, limit, self._in_flight.event_count)
            if chosen:
                came = Stage.ACTIVE, Cause.BEFORE_ITS_END
                self.incoming[came] = self.incoming.get(came, 0) + len(chosen)
        entries = [self._entries[pod_id] for _, pod_id, _ in chosen]
        self._in_flight.add(entries)
        self._begin(entries)
        return [entry.pod for entry in entries]

    def _begin(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            entry.stage = Stage.IN_FLIGHT
            entry.attempts += 1
            entry.rejected_by = entry.pending_by = frozenset()
            entry.changed_in_flight = entry.was_parked = False
            entry.own_changes = ()
            self._tokens += 1
            entry.token = self._tokens

    # --- groups ----------------------------------------------------------------------------------

    def members(self, key: GroupKey) -> int:
        """Return how many pods of a group are in the queue, in any stage."""
        return len(self._members.get(key, ()))

    def group_keys(self) -> list[GroupKey]:
        """Return the keys of all groups that ever had a pod in the queue."""
        return list(self._members)

    def member_ids(self, key: GroupKey) -> list[int]:
        """Return the pods of a group that are in the queue."""
        return list(self._members.get(key, ()))

    def pop_members(self, key: GroupKey) -> list[PendingPod]:
        """Remove and return the other pods of a group that may be tried, to be decided with it.

        They may be in any stage, since a group is tried as a whole; only pods that a PreEnqueue
        plugin holds back stay. They are in the order in which they are decided. Rule:
        ``podGroupInfoForPod``, schedule_one_podgroup.go, v1.36.
        """
        members: list[Entry] = []
        for pod_id in self._members.get(key, ()):
            entry = self._entries[pod_id]
            if entry.stage in (Stage.GATED, Stage.IN_FLIGHT):
                continue
            if entry.stage is Stage.UNSCHEDULABLE:
                self._waiting.remove(pod_id)
            members.append(entry)
        self._in_flight.add(members)
        self._begin(members)
        members.sort(key=lambda one: order_key(one.pod.priority, one.since, one.pod.pod_id))
        return [entry.pod for entry in members]

    def release_group(self, key: GroupKey | None, now: float) -> None:
        """Run PreEnqueue again on the pods of a group that PreEnqueue rejected."""
        for pod_id in self._held.pop(key, ()) if key is not None else ():
            entry = self._entries.get(pod_id)
            if (
                entry is not None
                and entry.stage is Stage.GATED
                and GANG_SCHEDULING in entry.rejected_by
            ):
                self._waiting.remove(pod_id)
                self._enqueue(entry, now)
                self._changed[pod_id] = None

    def release_groups(self, now: float) -> None:
        """Run PreEnqueue again on rejected pods of all groups, after all pods were added."""
        for key in list(self._held):
            self.release_group(key, now)

    def _keep(self, entry: Entry) -> None:
        self._entries[entry.pod.pod_id] = entry
        if (key := group_key(entry.pod.spec)) is not None:
            self._members.setdefault(key, {})[entry.pod.pod_id] = None

    def park(self, pod_id: int) -> None:
        """Note that a pod in flight waits on Permit or PreBind, for an unknown time.

        Meanwhile events are only counted: if there were any when the pod returns rejected, it is
        tried again after its backoff.
        """
        entry = self._entries[pod_id]
        if pod_id in self._in_flight:
            self._placed(entry)
            is_current = not entry.own_changes and not self._in_flight.events_since(entry)
            entry.changed_in_flight |= not is_current
            self._in_flight.remove(pod_id)
            entry.was_parked = True
            entry.first_event = self._in_flight.event_count
            self._changed[pod_id] = None

    def restore_parked(self, pod: PendingPod, place: QueuePlace) -> None:
        """Add a parked pod after a restart; earlier events are not known."""
        self.delete(pod.pod_id)
        entry = Entry(pod, place.queued_at)
        self._keep(entry)
        entry.stage = Stage.IN_FLIGHT
        entry.since, entry.attempts, entry.refusals = place.since, place.attempts, place.attempts
        entry.changed_in_flight = entry.was_parked = True

    def requeue_unschedulable(
        self,
        pod_id: int,
        rejected_by: Iterable[str],
        now: float,
        *,
        pending_by: Iterable[str] = (),
    ) -> None:
        """Put back a pod that does not fit anywhere.

        Args:
            pod_id: the pod; ignored if it is not in flight any more.
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
            events = [*entry.own_changes, *self._in_flight.events_since(entry)]
            # Refused by a past state, or by no plugin: this says nothing about other pods.
            if by and not events and not entry.changed_in_flight:
                refusal = Refusal(entry.pod.spec, by, frozenset(pending_by))
                self._active.refused(entry, refusal)
                self._early.refused(entry, refusal, nominated=self._is_nominated(pod_id))
            else:
                self._untold(entry)
            self._in_flight.remove(pod_id)
        elif entry.first_event != self._in_flight.event_count:
            entry.changed_in_flight = True
        entry.pending_by = frozenset(pending_by)
        entry.rejected_by = by | entry.pending_by
        entry.refused_by = entry.rejected_by or entry.refused_by
        entry.refused = True
        if entry.rejected_by:
            entry.refusals, entry.errors = entry.refusals + 1, 0
        else:
            entry.errors += 1
        entry.queued_at = now
        entry.not_before = self._backoff.until(now, entry.failures)
        self._changed[pod_id] = None
        if not entry.rejected_by or entry.changed_in_flight:
            self._enqueue(entry, now)
            self._count(entry, Cause.FAILURE)
            return
        worth = max(
            (
                self._waiting.worth(entry.pod.spec, entry.rejected_by, entry.pending_by, event)
                for event in events
            ),
            default=Worth.NOTHING,
        )
        self._act(entry, worth, now, Stage.UNSCHEDULABLE)
        self._count(entry, Cause.FAILURE)

    def requeue_failed(self, pod_id: int, now: float) -> None:
        """Put back a pod whose attempt failed: it is tried again after its backoff."""
        self.requeue_unschedulable(pod_id, (), now)

    def requeue_stale(self, pod_id: int, now: float) -> None:
        """Put back a pod whose node changed before it was bound; its place in the order stays."""
        entry = self._entries.get(pod_id)
        if entry is None or entry.stage is not Stage.IN_FLIGHT:
            return
        if pod_id in self._in_flight:
            self._untold(entry)
            self._in_flight.remove(pod_id)
        entry.attempts -= 1
        entry.rejected_by = frozenset()
        entry.not_before = 0.0
        self._enqueue(entry, now)
        self._count(entry, Cause.FAILURE)

    # --- events ----------------------------------------------------------------------------------

    def move_on_event(
        self,
        event: ClusterEvent,
        now: float,
        *,
        but_not: Collection[int] = (),
        is_own: bool = False,
    ) -> int:
        """Wake the pods that the event may help, and return how many moved at once.

        Args:
            event: what happened.
            now: the time.
            but_not: the pods that caused the event.
            is_own: this scheduler caused it; the decisions of pods in flight or active include it.
        """
        if not is_own:
            self._in_flight.note(event)
        self._early.reopen(lambda one: self._waiting.worth(*one, event) is not Worth.NOTHING)
        for group in self._waiting.wake(event):
            for pod_id in [pod_id for pod_id in but_not if pod_id in group.pod_ids]:
                entry = self._entries[pod_id]
                self._waiting.remove(pod_id)
                self._wait(entry, entry.stage)
        return self._wake(now)

    def _wake(self, now: float) -> int:
        """Move some of the woken pods; return how many."""
        moved = 0
        while moved < _AT_ONCE and (woken := self._waiting.next_woken()) is not None:
            pod_id, group = woken
            entry = self._entries[pod_id]
            self._waiting.remove(pod_id)
            self._act(entry, group.worth, now, entry.stage)
            self._count(entry, group.woken_by)
            self._changed[pod_id] = None
            moved += 1
        return moved

    def activate(self, pod_ids: Iterable[int], now: float) -> None:
        """Make waiting pods active at once, without backoff; unknown ids are ignored.

        PreEnqueue runs on pods that waited for an event, not on those in BACKOFF, which it let in
        already. A pod in flight, or parked, is tried again after its backoff if it returns, since
        its decision may not have seen the cause. Rule: scheduling_queue.go (``activate``,
        ``isPodWorthRequeuing`` of a wildcard event), v1.36.
        """
        for pod_id in pod_ids:
            entry = self._entries.get(pod_id)
            if entry is None or entry.stage is Stage.ACTIVE:
                continue
            if entry.stage is Stage.IN_FLIGHT:
                entry.changed_in_flight = True
                continue
            entry.not_before = 0.0
            if entry.stage is Stage.BACKOFF:
                self._tokens += 1
                entry.token = self._tokens
                entry.early = 0
                self._activate(entry)
            else:
                self._waiting.remove(entry.pod.pod_id)
                self._enqueue(entry, now)
            self._count(entry, Cause.ACTIVATED)
            self._changed[pod_id] = None

    # --- inside ----------------------------------------------------------------------------------

    def _placed(self, entry: Entry) -> None:
        self._active.placed(entry)
        self._early.placed(entry)

    def _untold(self, entry: Entry) -> None:
        self._active.untold(entry)
        self._early.untold(entry)

    def _count(self, entry: Entry, event: str) -> None:
        """Count, for metrics, a pod's entry into its present stage."""
        key = entry.stage, event
        self.incoming[key] = self.incoming.get(key, 0) + 1

    def _act(self, entry: Entry, worth: Worth, now: float, stage: Stage) -> None:
        """Put the pod into BACKOFF, ACTIVE or the waiting ``stage``, by an event's ``worth``."""
        if worth is Worth.NOTHING:
            self._wait(entry, stage)
            return
        if worth is Worth.NOW:
            entry.not_before = 0.0
        self._enqueue(entry, now)

    def _enqueue(self, entry: Entry, now: float) -> None:
        """Put the pod into GATED, BACKOFF or ACTIVE, by PreEnqueue and its backoff."""
        gate = self._pre_enqueue(entry.pod)
        if gate:
            entry.rejected_by, entry.pending_by = frozenset({gate}), frozenset()
            group = group_key(entry.pod.spec) if gate == GANG_SCHEDULING else None
            if group is not None:
                self._held.setdefault(group, []).append(entry.pod.pod_id)
            self._wait(entry, Stage.GATED)
            self._changed[entry.pod.pod_id] = None
            return
        if entry.stage is Stage.GATED and not entry.attempts:
            entry.since = now
        self._tokens += 1
        entry.token = self._tokens
        if entry.not_before > now:
            entry.stage = Stage.BACKOFF
            self._timers.set_backoff(entry)
            if entry.rejected_by and not entry.was_parked:
                key = self._sort_key(entry.pod, entry.queued_at, entry.since)
                self._early.add(entry, key, nominated=self._is_nominated(entry.pod.pod_id))
        else:
            entry.early = 0
            self._activate(entry)

    def _activate(self, entry: Entry) -> None:
        entry.stage = Stage.ACTIVE
        self._active.add(entry, self._sort_key(entry.pod, entry.queued_at, entry.since))

    def _wait(self, entry: Entry, stage: Stage) -> None:
        """Let the pod wait for an event in ``stage``, UNSCHEDULABLE or GATED."""
        entry.stage = stage
        self._tokens += 1
        entry.token = self._tokens
        self._waiting.add(entry)
        if stage is Stage.UNSCHEDULABLE:
            self._timers.set_flush(entry, entry.queued_at + self._backoff.flush_after)

    def _promote(self, now: float) -> None:
        """Activate some pods that an event woke or whose backoff or wait for the flush is over."""
        if now < self._latest:
            self._follow_clock_back(now)
        self._latest = now
        self._wake(now)
        self._early.compact(2 * len(self._entries) + _SPARE)
        for entry in self._early.take_nominated(now):
            self._tokens += 1
            entry.token = self._tokens
            self._activate(entry)
            self._count(entry, Cause.BEFORE_ITS_END)
        over = self._timers.take_over(now, _AT_ONCE)
        for entry in over:
            entry.early = 0
            self._activate(entry)
            self._count(entry, Cause.BACKOFF_OVER)
        for entry in self._timers.take_flushed(now, _AT_ONCE - len(over)):
            self._waiting.remove(entry.pod.pod_id)
            self._enqueue(entry, now)
            self._count(entry, Cause.FLUSHED)
            self._changed[entry.pod.pod_id] = None

    def _follow_clock_back(self, now: float) -> None:
        """Correct the pods' times after the clock was set back.

        A time further ahead than a whole backoff was set before that.
        """
        for entry in self._entries.values():
            if not entry.limit_times(now, self._backoff) or entry.stage is Stage.IN_FLIGHT:
                continue
            if entry.pod.pod_id not in self._waiting:
                self._enqueue(entry, now)
            else:
                stage = entry.stage
                self._waiting.remove(entry.pod.pod_id)
                self._wait(entry, stage)

    def compact(self) -> None:
        """Drop the dead items from each heap in which they are the majority.

        An item is dead once its pod has moved to another stage; normally it is dropped at the top
        of its heap. Items would stay for long in a queue without batches, such as a standby's, and
        in the heap of flush times, five minutes ahead. The call is cheap while few are dead.
        """
        most = 2 * len(self._entries) + _SPARE
        self._early.compact(most)
        for heap in (self._active.fresh, self._timers.backoff, self._timers.flush):
            if len(heap) > most:
                drop_dead(heap, self._entries)

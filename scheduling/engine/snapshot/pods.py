"""Pods on nodes: one slot per pod, a list of slots per row, and the sums over each row.

A pod may be added before its node, and stays known when the node is deleted: such pods are on no
row and are remembered by the node's name. Each pod that comes to a row or leaves it changes the
row's sums and the counters in which its class has a weight, and adds the row to the log.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np

from scheduling.engine.snapshot.arrays import lengthen
from scheduling.engine.snapshot.nominated import NominatedPods
from scheduling.framework.arrays import Float64, Int32, Int64, Mask
from scheduling.framework.types import PodInfo, PodRecord

_AFTER_NUMBERS = 1 << 60


class PodColumns(NominatedPods):
    """The pods on nodes, one at a time."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._slot_of: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        self._pod_names: dict[int, str] = {}
        self._preempted: set[int] = set()
        # What a dry run has changed in the sums, for counters that are made meanwhile.
        self._detached: set[int] = set()
        self._free_slots: list[int] = []
        self._pod_class: Int32 = np.zeros(64, np.int32)
        self._pod_row: Int32 = np.full(64, -1, np.int32)
        self._pod_terminating: Mask = np.zeros(64, np.bool_)
        self._pod_started: Float64 = np.full(64, np.nan)
        self._pod_order: Int64 = np.zeros(64, np.int64)
        self._came = 0
        self.start_version = 0
        """Number of changes of known pods' start times, which are not in the log."""
        # A doubly linked list of slots per row: removal in O(1) without an object per pod.
        self._next: Int32 = np.full(64, -1, np.int32)
        self._previous: Int32 = np.full(64, -1, np.int32)
        self._first: Int32 = np.full(self._capacity, -1, np.int32)
        self._of_unknown_nodes: dict[str, dict[int, None]] = {}
        self._node_of_slot: dict[int, str] = {}
        self._assumed: set[Hashable] = set()

    @property
    def placed_count(self) -> int:
        """Number of pods that are on a node or assumed there."""
        return len(self._slot_of)

    @property
    def assumed_count(self) -> int:
        """Number of pods that are assumed on a node and not confirmed yet."""
        return len(self._assumed)

    # --- pods that come and go -------------------------------------------------------------------

    def add_pod(
        self,
        key: Hashable,
        info: PodInfo,
        node_name: str,
        *,
        start_time: float | None = None,
        terminating: bool = False,
        preempted: bool = False,
        name: str = "",
    ) -> None:
        """Add a pod that runs, or is to run, on a node; it replaces the pod with the same ``key``.

        Finished pods (Succeeded, Failed) use nothing: the caller removes them instead.

        Args:
            key: identity of the pod, chosen by the caller; ``namespace/name`` where it is text.
            info: its class, from ``intern``.
            node_name: may be a node that is not known yet.
            start_time: seconds since the epoch.
            terminating: whether the pod has a deletion timestamp.
            preempted: whether the scheduler preempted it (its condition DisruptionTarget is true
                with
                reason PreemptionByScheduler).
            name: the pod's name, where it does not follow from ``key``.
        """
        if self.confirm(key, info, node_name, start_time=start_time, terminating=terminating):
            if preempted:
                self._preempted.add(self._slot_of[key])
            return
        self.remove_pod(key)
        slot = self._new_slot(key, info, start_time=start_time, terminating=terminating)
        if name:
            self._pod_names[slot] = name
        if preempted:
            self._preempted.add(slot)
        row = self._row_of.get(node_name)
        if row is None:
            self._of_unknown_nodes.setdefault(node_name, {})[slot] = None
            self._node_of_slot[slot] = node_name
        else:
            self._put_on_row(slot, row)
        if key in self.nominations.node_of:
            self.unnominate(key)

    def confirm(
        self,
        key: Hashable,
        info: PodInfo,
        node_name: str,
        *,
        start_time: float | None = None,
        terminating: bool = False,
    ) -> bool:
        """Confirm a pod that is known with the same class and node; return whether there is one."""
        slot = self._slot_of.get(key)
        if (
            slot is None
            or self._pod_class.item(slot) != info.index
            or self._pod_terminating.item(slot) != terminating
            or self.node_of(key) != node_name
        ):
            return False
        self._assumed.discard(key)
        if self._nominated_before:
            self._nominated_before.pop(key, None)
        if start_time is not None and self._pod_started.item(slot) != start_time:
            self._pod_started[slot] = start_time
            self.start_version += 1
        return True

    def mark_preempted(self, key: Hashable) -> None:
        """Note that a pod terminates because of preemption; nothing happens if it is unknown."""
        slot = self._slot_of.get(key)
        if slot is not None and self._pod_terminating.item(slot):
            self._preempted.add(slot)

    def remove_pod(self, key: Hashable) -> None:
        """Remove a pod; nothing happens if it is unknown."""
        slot = self._slot_of.pop(key, None)
        if slot is None:
            return
        self._assumed.discard(key)
        if self._nominated_before:
            self._nominated_before.pop(key, None)
        node_name = self._node_of_slot.pop(slot, None)
        if node_name is not None:
            there = self._of_unknown_nodes[node_name]
            del there[slot]
            if not there:
                del self._of_unknown_nodes[node_name]
        else:
            self._take_off_row(slot)
        self._keys[slot] = None
        self._pod_names.pop(slot, None)
        self._preempted.discard(slot)
        self._free_slots.append(slot)

    def assume(self, key: Hashable, info: PodInfo, row: int) -> None:
        """Add a pod that was just decided; ``key`` must be new, ``row`` must be live."""
        assert key not in self._slot_of, f"pod {key!r} is already placed"
        assert row >= 0, f"pod {key!r} is on no node"
        slot = self._new_slot(key, info, start_time=None, terminating=False)
        self._put_on_row(slot, row)
        self._assumed.add(key)
        if key in self.nominations.node_of:
            self._suspend_nomination(key)

    def forget(self, key: Hashable) -> None:
        """Remove an assumed pod; a confirmed or unknown one stays as it is.

        A pod that was nominated before it was assumed is nominated again, as its row still says.
        """
        if key in self._assumed:
            info = self.classes[self._pod_class.item(self._slot_of[key])]
            node_name = self._nominated_before.get(key)
            self.remove_pod(key)
            if node_name is not None:
                self.nominate(key, info, node_name)

    def nominate_when_unassumed(self, key: Hashable, info: PodInfo, node_name: str) -> None:
        """Nominate a pod to a node (empty: to none); if it is assumed, once it is forgotten."""
        if key not in self._assumed:
            if node_name:
                self.nominate(key, info, node_name)
            else:
                self.unnominate(key)
        elif node_name:
            self._nominated_before[key] = node_name
        else:
            self._nominated_before.pop(key, None)

    def _node_came(self, name: str, row: int) -> None:
        for slot in self._of_unknown_nodes.pop(name, {}):
            del self._node_of_slot[slot]
            self._put_on_row(slot, row)
        super()._node_came(name, row)

    def _node_leaves(self, name: str, row: int) -> None:
        for slot in self._slots_on(row):
            self._take_off_row(slot)
            self._of_unknown_nodes.setdefault(name, {})[slot] = None
            self._node_of_slot[slot] = name
        super()._node_leaves(name, row)

    def _grow_rows(self) -> None:
        super()._grow_rows()
        self._first = lengthen(self._first, self._capacity, -1)

    def _new_slot(
        self, key: Hashable, info: PodInfo, *, start_time: float | None, terminating: bool
    ) -> int:
        if self._free_slots:
            slot = self._free_slots.pop()
            self._keys[slot] = key
        else:
            slot = len(self._keys)
            if slot >= len(self._pod_class):
                self._grow_slots(slot + 1)
            self._keys.append(key)
        self._slot_of[key] = slot
        self._pod_class[slot] = info.index
        self._pod_row[slot] = -1
        self._pod_terminating[slot] = terminating
        self._pod_started[slot] = np.nan if start_time is None else start_time
        self._pod_order[slot] = self._order_of(key)
        return slot

    def _order_of(self, key: Hashable) -> int:
        """Return the tie-break order of a pod among equal pods.

        Numeric keys (row ids, in the live cluster) come first, in their order, so that it is the
        same in all processes; others follow by arrival.
        """
        if isinstance(key, int):
            return key
        self._came += 1
        return _AFTER_NUMBERS + self._came

    def _grow_slots(self, needed: int) -> None:
        size = max(needed, 2 * len(self._pod_class))
        self._pod_class = lengthen(self._pod_class, size)
        self._pod_row = lengthen(self._pod_row, size, -1)
        self._pod_terminating = lengthen(self._pod_terminating, size)
        self._pod_started = lengthen(self._pod_started, size, np.nan)
        self._pod_order = lengthen(self._pod_order, size)
        self._next = lengthen(self._next, size, -1)
        self._previous = lengthen(self._previous, size, -1)

    def _put_on_row(self, slot: int, row: int) -> None:
        self._pod_row[slot] = row
        head = self._first[row]
        self._next[slot] = head
        self._previous[slot] = -1
        if head >= 0:
            self._previous[head] = slot
        self._first[row] = slot
        self._class_pods[self._pod_class.item(slot)] += 1
        self._account(slot, row, 1)
        self._touch(row)

    def _take_off_row(self, slot: int) -> None:
        row = int(self._pod_row[slot])
        self._class_pods[self._pod_class.item(slot)] -= 1
        self._account(slot, row, -1)
        following, previous = self._next[slot], self._previous[slot]
        if previous >= 0:
            self._next[previous] = following
        else:
            self._first[row] = following
        if following >= 0:
            self._previous[following] = previous
        self._pod_row[slot] = -1
        self._touch(row)

    def _account(self, slot: int, row: int, sign: int) -> None:
        info = self.classes[self._pod_class.item(slot)]
        # One column after the other: most classes request two resources.
        for column, amount in info.amounts:
            self.requested[row, column] += sign * amount
        self.nonzero_requested[row, 0] += sign * info.nonzero_cpu
        self.nonzero_requested[row, 1] += sign * info.nonzero_memory
        self.pod_count[row] += sign
        self._peers.pods[info.peer] += sign
        weights = self._peers.weights[info.peer]
        if weights:
            terminating = self._pod_terminating[slot]
            for counter, weight in weights:
                if not (terminating and counter.live_only):
                    counter.bump(row, sign * weight)

    # --- a dry run -------------------------------------------------------------------------------

    def detach(self, record: PodRecord) -> None:
        """Subtract a pod from the sums of its node until ``attach``; nothing may change in between.

        ``pods_on`` still lists the pod. The list of changed rows does not name the row, so callers
        must not use caches of the row meanwhile.
        """
        self._account(record.slot, record.row, -1)
        self._detached.add(record.slot)

    def attach(self, record: PodRecord) -> None:
        """Add a detached pod to the sums again."""
        self._account(record.slot, record.row, 1)
        self._detached.discard(record.slot)

    # --- reading ---------------------------------------------------------------------------------

    @property
    def pod_total(self) -> int:
        """Number of known pods with a node name, including pods of unknown nodes."""
        return len(self._slot_of)

    def knows(self, key: Hashable) -> bool:
        """Return whether the pod is known with a node name."""
        return key in self._slot_of

    def is_assumed(self, key: Hashable) -> bool:
        """Whether the pod was assumed and not yet confirmed."""
        return key in self._assumed

    def node_of(self, key: Hashable) -> str | None:
        """Return the node name of a pod, ``None`` when the pod is not known."""
        slot = self._slot_of.get(key)
        if slot is None:
            return None
        row = int(self._pod_row[slot])
        return self._node_of_slot[slot] if row < 0 else self.names[row]

    def pod(self, key: Hashable) -> PodRecord | None:
        """Return the record of a pod, ``None`` if unknown; ``row`` is -1 if its node is unknown."""
        slot = self._slot_of.get(key)
        return None if slot is None else self._record(slot)

    def pods(self) -> Iterator[PodRecord]:
        """Yield all known pods."""
        return (self._record(slot) for slot in self._slot_of.values())

    def pods_on(self, row: int, *, below: int | None = None) -> list[PodRecord]:
        """Return the pods on a node, last arrived first; ``below``: only of lower priority."""
        slots = self._slots_on(row)
        if below is not None:
            classes, of = self.classes, self._pod_class.item
            slots = [slot for slot in slots if classes[of(slot)].priority < below]
        return [self._record(slot) for slot in slots]

    def pods_of(self, classes: Sequence[int]) -> list[PodRecord]:
        """Return the pods of some classes that are on known nodes."""
        used = len(self._keys)
        there = (self._pod_row[:used] >= 0) & np.isin(self._pod_class[:used], classes)
        return self.records(np.flatnonzero(there).tolist())

    def records(self, slots: Iterable[int]) -> list[PodRecord]:
        """Return the records of the pods in these slots."""
        return list(map(self._record, slots))

    def slot_columns(self) -> tuple[Int32, Int32, Int32, Float64, Mask, Int64]:
        """Return the pods on nodes as linked lists of slots by row.

        First slot by row; by slot the following one (-1: none), class, start time in seconds (NaN:
        not started), whether the pod terminates, and its order among equal pods. Shared: the caller
        must not write to them.
        """
        started, terminating = self._pod_started, self._pod_terminating
        return self._first, self._next, self._pod_class, started, terminating, self._pod_order

    def _slots_on(self, row: int) -> list[int]:
        following = self._next.item
        slots = []
        slot = self._first.item(row)
        while slot >= 0:
            slots.append(slot)
            slot = following(slot)
        return slots

    def _record(self, slot: int) -> PodRecord:
        key = self._keys[slot]
        started = self._pod_started.item(slot)
        name = self._pod_names.get(slot, "")
        if not name and isinstance(key, str):
            name = key.rpartition("/")[2]
        return PodRecord(
            key=key,
            info=self.classes[self._pod_class.item(slot)],
            row=self._pod_row.item(slot),
            slot=slot,
            start_time=None if started != started else started,
            terminating=self._pod_terminating.item(slot),
            preempted=slot in self._preempted,
            name=name,
            order=self._pod_order.item(slot),
        )

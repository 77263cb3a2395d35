"""The operations of ``pods`` for many pods at once, as columns."""

from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np

from scheduling.engine.snapshot.pods import PodColumns
from scheduling.framework.arrays import Float64, Int32, Mask
from scheduling.framework.types import PodInfo


class ManyPods(PodColumns):
    """Adds, assumes, confirms and removes thousands of pods in few calls."""

    def add_pods(
        self,
        keys: Sequence[Hashable],
        classes: Int32,
        rows: Int32,
        *,
        started: Float64 | None = None,
        terminating: Mask | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """Add many pods on known rows at once, as ``add_pod`` would one by one.

        None may be known already. If the log has no space for all of them, its followers must look
        at all rows.

        Args:
            keys: identities.
            classes: ``PodInfo.index`` of each, int32 (pods,).
            rows: row of each, int32 (pods,), all live.
            started: seconds since the epoch, NaN where unknown.
            terminating: bool (pods,).
            names: the pods' names, where these do not follow from ``keys``.
        """
        count = len(keys)
        if not count:
            return
        slots = self._new_slots(keys)
        self._pod_class[slots] = classes
        self._pod_row[slots] = rows
        self._pod_terminating[slots] = False if terminating is None else terminating
        self._pod_started[slots] = np.nan if started is None else started
        if names:
            self._pod_names.update(zip(slots.tolist(), names, strict=True))
        # Insert the new slots of each row before its list, the last one first, as single adds
        # would.
        order = count - 1 - np.argsort(rows[::-1], kind="stable")
        slot_numbers = slots[order]
        sorted_rows = rows[order]
        starts = np.flatnonzero(np.r_[True, sorted_rows[1:] != sorted_rows[:-1]])
        ends = np.r_[starts[1:], count] - 1
        following = np.r_[slot_numbers[1:], np.int32(-1)]
        heads = sorted_rows[starts]
        old_first = self._first[heads]
        following[ends] = old_first
        preceding = np.r_[np.int32(-1), slot_numbers[:-1]]
        preceding[starts] = -1
        self._next[slot_numbers] = following
        self._previous[slot_numbers] = preceding
        linked = old_first >= 0
        self._previous[old_first[linked]] = slot_numbers[ends][linked]
        self._first[heads] = slot_numbers[starts]
        if self.nominations.node_of:
            for key in keys:
                self.unnominate(key)
        self._account_all(classes, rows, terminating, 1)

    def remove_pods(self, keys: Sequence[Hashable], slots: Int32) -> None:
        """Remove many pods on live rows at once, as ``remove_pod`` would one by one.

        Args:
            keys: identities, each once.
            slots: their slots, int32 (pods,); none may be assumed.
        """
        if not keys:
            return
        rows = self._pod_row[slots]
        self._unlink(slots, rows)
        self._pod_row[slots] = -1
        for key in keys:
            del self._slot_of[key]
        if self._nominated_before:
            for key in keys:
                self._nominated_before.pop(key, None)
        numbers = slots.tolist()
        for slot in numbers:
            self._keys[slot] = None
            self._pod_names.pop(slot, None)
        self._preempted.difference_update(numbers)
        self._free_slots.extend(numbers)
        self._account_all(self._pod_class[slots], rows, self._pod_terminating[slots], -1)

    def _unlink(self, slots: Int32, rows: Int32) -> None:
        """Remove slots from the linked lists of their rows."""
        leaves = np.zeros(len(self._next) + 1, np.bool_)  # -1 indexes the last entry, which stays
        leaves[slots] = True
        # The first of each stretch of neighbours that leave follows a slot that stays, or none.
        previous = self._previous[slots]
        begins = ~leaves[previous]
        previous, heads = previous[begins], rows[begins]
        following = self._next[slots[begins]]
        while (skipped := np.flatnonzero(leaves[following])).size:
            following[skipped] = self._next[following[skipped]]
        inner = previous >= 0
        self._next[previous[inner]] = following[inner]
        self._first[heads[~inner]] = following[~inner]
        there = following >= 0
        self._previous[following[there]] = previous[there]

    def _account_all(
        self, classes: Int32, rows: Int32, terminating: Mask | None, sign: int
    ) -> None:
        """Add pods to the sums of their rows and to the log; with ``sign`` -1, subtract them."""
        by_class = np.bincount(classes)
        self._class_pods[: len(by_class)] += sign * by_class
        kinds = np.flatnonzero(by_class)
        numbers = np.searchsorted(kinds, classes)
        infos = [self.classes[kind] for kind in kinds.tolist()]
        vectors = np.array([self._vectors[info.index] for info in infos])
        nonzero = np.array([(c.nonzero_cpu, c.nonzero_memory) for c in infos], np.int64)
        # Combined into one number, pairs sort ten times as fast.
        pairs, counts = np.unique(rows.astype(np.int64) * len(infos) + numbers, return_counts=True)
        there, of = np.divmod(pairs, len(infos))
        counts = sign * counts
        np.add.at(self.requested, there, vectors[of] * counts[:, None])
        np.add.at(self.nonzero_requested, there, nonzero[of] * counts[:, None])
        np.add.at(self.pod_count, there, counts)
        for info, number in zip(infos, np.bincount(numbers).tolist(), strict=True):
            self._peers.pods[info.peer] += sign * number
        count = len(rows)
        if count > self.log_limit // 2:
            self.forget_counters()
            self._restart_log()
            return
        log, filled = self.log_room(count)
        log[filled : filled + count] = rows
        self._log_filled += count
        if self._counters:
            peers = np.array([info.peer for info in infos], np.int32)[numbers]
            self._bump(peers, rows, terminating, sign)

    def assume_run(
        self,
        keys: Sequence[Hashable],
        infos: Sequence[PodInfo],
        rows: Int32,
        link: Callable[..., None],
    ) -> None:
        """Add pods that the loop decided and already counted on their rows and in the log.

        Updates counters. ``link``: ``compiled.shared.link``.
        """
        count = len(keys)
        slots = self._new_slots(keys)
        self._pod_class[slots] = [info.index for info in infos]
        self._pod_terminating[slots] = False
        self._pod_started[slots] = np.nan
        np.add.at(self._class_pods, self._pod_class[slots], 1)
        self._pod_row[slots] = rows
        link(slots, rows, self._first, self._next, self._previous)
        self._log_filled += count
        self._assumed.update(keys)
        placed = self._peers.pods
        for info in infos:
            placed[info.peer] += 1
        if self._counters:
            self._bump(np.array([info.peer for info in infos], np.int32), rows)
        if self.nominations.node_of:
            for key in keys:
                self._suspend_nomination(key)

    def confirm_all(self, keys: Sequence[Hashable], slots: Int32, started: Float64) -> list[int]:
        """Confirm that pods are on their nodes; return the positions of those that were assumed.

        Args:
            keys: identities of the pods.
            slots: their slots, int32 (keys,).
            started: seconds since the epoch, NaN where unknown, float64 (keys,).
        """
        has_start = ~np.isnan(started)
        there, began = slots[has_start], started[has_start]
        if (self._pod_started[there] != began).any():
            self._pod_started[there] = began
            self.start_version += 1
        assumed = self._assumed
        if not assumed:
            return []
        places = [place for place, key in enumerate(keys) if key in assumed]
        assumed.difference_update(keys)
        return places

    def slots_of(self, keys: Iterable[Hashable]) -> Int32:
        """Return the slots of pods, int32 (keys,), -1 where a pod is not known."""
        find = self._slot_of.get
        return np.array([find(key, -1) for key in keys], np.int32)

    def are_unchanged(self, slots: Int32, classes: Int32, rows: Int32, terminating: Mask) -> Mask:
        """Return a mask (slots,): the pods on live rows whose stored values equal these.

        ``slots`` may be -1; ``classes``: ``PodInfo.index`` of each.
        """
        unchanged: Mask = (slots >= 0) & (rows >= 0)
        unchanged &= (self._pod_class[slots] == classes) & (self._pod_row[slots] == rows)
        unchanged &= self._pod_terminating[slots] == terminating
        return unchanged

    def are_confirmed(self, keys: Sequence[Hashable], slots: Int32) -> Mask:
        """Return a mask (keys,): the pods that are on live rows and not assumed.

        ``slots`` may be -1.
        """
        found: Mask = (slots >= 0) & (self._pod_row[slots] >= 0)
        if self._assumed:
            found &= np.array([key not in self._assumed for key in keys], np.bool_)
        return found

    def infos_of(self, slots: Int32) -> list[PodInfo]:
        """Return the classes of the pods in these slots, each class once."""
        return [self.classes[index] for index in np.unique(self._pod_class[slots]).tolist()]

    def _new_slots(self, keys: Sequence[Hashable]) -> Int32:
        """Return slots for new pods, int32 (pods,), with their keys stored."""
        count = len(keys)
        reused = min(count, len(self._free_slots))
        first = len(self._keys)
        numbers = [self._free_slots.pop() for _ in range(reused)]
        for slot, key in zip(numbers, keys[:reused], strict=True):
            self._keys[slot] = key
        self._keys.extend(keys[reused:] if reused else keys)
        if len(self._keys) > len(self._pod_class):
            self._grow_slots(len(self._keys))
        slots = np.arange(first - reused, first - reused + count, dtype=np.int32)
        slots[:reused] = numbers
        self._pod_order[slots] = np.fromiter(map(self._order_of, keys), np.int64, count)
        before = len(self._slot_of)
        self._slot_of.update(zip(keys, slots.tolist(), strict=True))
        assert len(self._slot_of) == before + count, "a pod is already placed"
        return slots

    def _bump(
        self, peers: Int32, rows: Int32, terminating: Mask | None = None, sign: int = 1
    ) -> None:
        """Update counters for pods with these peers on these rows.

        ``sign`` -1: the pods left.
        """
        # Sorted by peer; a mask for each of a thousand peers takes ten times as long.
        order = np.argsort(peers, kind="stable")
        peers, rows = peers[order], rows[order]
        starts = np.flatnonzero(np.r_[True, peers[1:] != peers[:-1]])
        ends = np.r_[starts[1:], len(peers)]
        of_peer = self._peers.weights
        found = zip(peers[starts].tolist(), starts.tolist(), ends.tolist(), strict=True)
        for peer, start, end in found:
            weights = of_peer[peer]
            if not weights:
                continue
            there = rows[start:end]
            alive = there if terminating is None else there[~terminating[order[start:end]]]
            for counter, weight in weights:
                counter.bump_all(alive if counter.live_only else there, sign * weight)

"""The pods that may be tried, and which of them form the next batch.

Fresh pods are ordered by their key. Pods that were refused before are kept by class
(``RetriedClass``), since the outcome of one of them predicts that of its sisters; the package's
docstring says how many of them enter a batch, and which pods in BACKOFF may be tried early.
"""

import heapq
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from clusterstate.objects.values.pod import Pod
from scheduling.engine.queue.pending import (
    LAST,
    Entries,
    Entry,
    Heap,
    Item,
    drop_dead,
    first_live,
)

_PROBES = 16
"""This many classes send their first pod with a batch; each that is placed allows one more."""
_MOST_PROBES = 1024
_BESIDE_A_PROBE = 64
"""At most this many fresh pods share a batch with the probe of a class that precedes them."""
_SHARE = 16
"""One in this many places of a batch is for pods of shut classes, even if other pods wait."""
_SHUT_ALONE = 4
"""If only pods of shut classes wait, a batch of them is this many times shorter than others."""


class _Trial(IntEnum):
    """The result so far of trying a class's pods again."""

    UNTRIED = 0
    PROBING = 1
    OPEN = 2
    SHUT = 3


class Refusal(NamedTuple):
    """The last refusal of a class: its pod, the rejecting and the pending plugins."""

    spec: Pod
    rejected_by: frozenset[str]
    pending_by: frozenset[str]


class RetriedClass:
    """The active pods of a class that were refused before.

    ``probe``: while ``trial`` is PROBING, the pod for whose outcome the others wait. ``refused``:
    while ``trial`` is SHUT, the pod that was refused last. ``token`` marks the class's live item in
    the heap of its trial.
    """

    __slots__ = ("pods", "probe", "refused", "token", "trial")

    def __init__(self) -> None:
        self.pods: Heap = []
        self.trial = _Trial.UNTRIED
        self.probe = 0
        self.refused: Refusal | None = None
        self.token = 0


class ActivePods:
    """Pods of one stage: those in ACTIVE, or those in BACKOFF that may be tried before its end.

    ``fresh``: pods never refused. ``retried``: the others, by class. ``entries``: all pods of the
    queue, shared with it. ``shut_wait``: whether pods of shut classes wait until ``reopen``.
    """

    def __init__(self, entries: Entries, *, shut_wait: bool = False) -> None:
        self._entries = entries
        self._shut_wait = shut_wait
        self.fresh: Heap = []
        self.retried: dict[int, RetriedClass] = {}
        # Items are (key of the first pod, class, token of the class).
        self._untried: Heap = []
        self._open: Heap = []
        self._shut: Heap = []
        self._tokens = 0
        self._probes = _PROBES
        self._tried_at = 0
        self._added = 0
        self._closed: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self.fresh or self.retried)

    def add(self, entry: Entry, key: tuple[float, ...]) -> None:
        """Add a pod that may be tried now."""
        pod = entry.pod
        item = (key, pod.pod_id, entry.token)
        self._added += 1
        if not entry.refused:
            heapq.heappush(self.fresh, item)
            return
        retried = self.retried.get(pod.class_id)
        if retried is None:
            retried = self.retried[pod.class_id] = RetriedClass()
        heapq.heappush(retried.pods, item)
        if retried.pods[0] is item:
            self._offer(pod.class_id, retried)

    def take_batch(self, limit: int, event_count: int) -> list[Item]:
        """Remove and return the pods of the next batch, in the order of decision.

        ``event_count``: the number of events so far; if it grew, shut classes are tried again.
        """
        if self._tried_at != event_count and not self._shut_wait:
            self._tried_at = event_count
            self._retry_shut()
        chosen = self._choose(limit)
        chosen.sort()
        return chosen

    @property
    def gives(self) -> bool:
        """Whether ``take_batch`` would return pods even without those of shut classes."""
        return (
            first_live(self.fresh, self._entries) is not None
            or self._first_class(self._open) is not None
            or self._first_class(self._untried) is not None
        )

    def placed(self, entry: Entry) -> None:
        """Note that a pod got a node, so that its class is open."""
        if entry.refused:
            self._probes = min(self._probes + 1, _MOST_PROBES)
        self._note(entry, _Trial.OPEN)

    def refused(self, entry: Entry, by: Refusal) -> None:
        """Note that the present cluster refused a pod, so that its class is shut."""
        if entry.refused:
            self._probes = _PROBES
        self._note(entry, _Trial.SHUT)
        if self._shut_wait and (retried := self.retried.get(entry.pod.class_id)) is not None:
            retried.refused = by
            self._closed.add(entry.pod.class_id)

    def reopen(self, helps: Callable[[Refusal], bool]) -> None:
        """Open those shut classes again for whose last refusal ``helps`` returns true."""
        for class_id in list(self._closed):
            retried = self.retried.get(class_id)
            if retried is None or retried.trial is not _Trial.SHUT:
                self._closed.discard(class_id)
            elif retried.refused is None or helps(retried.refused):
                self._closed.discard(class_id)
                self._retry(class_id, retried)

    def untold(self, entry: Entry) -> None:
        """Note an attempt whose outcome does not apply to other pods of the class."""
        retried = self.retried.get(entry.pod.class_id)
        if retried is None or retried.trial is not _Trial.PROBING:
            return
        if retried.probe == entry.pod.pod_id:
            self._note(entry, _Trial.UNTRIED)

    def drop_dead(self) -> None:
        """Drop the items at the heads of the heaps whose pods left the queue."""
        first_live(self.fresh, self._entries)
        for heap in (self._untried, self._open, self._shut):
            self._first_class(heap)

    def compact(self, most: int) -> None:
        """Drop all dead items, if more than ``most`` pods were added since the last time."""
        if self._added <= most:
            return
        drop_dead(self.fresh, self._entries)
        self._added = len(self.fresh)
        classes, self.retried = self.retried, {}
        self._untried, self._open, self._shut = [], [], []
        for class_id, retried in classes.items():
            drop_dead(retried.pods, self._entries)
            if retried.pods:
                self._added += len(retried.pods)
                self.retried[class_id] = retried
                self._offer(class_id, retried)

    def _choose(self, limit: int) -> list[Item]:
        """Remove and return the pods of the next batch, unordered."""
        chosen: list[Item] = []
        entries = self._entries
        if not self.retried:
            while self.fresh and len(chosen) < limit:
                item = heapq.heappop(self.fresh)
                entry = entries.get(item[1])
                if entry is not None and entry.token == item[2]:
                    chosen.append(item)
            return chosen
        shut = None if self._shut_wait else self._first_class(self._shut)
        share = limit // _SHARE if shut is not None else 0
        probes, fresh, most_fresh = self._probes, 0, limit
        while len(chosen) < limit - share:
            pod = first_live(self.fresh, entries) if fresh < most_fresh else None
            opened = self._first_class(self._open)
            untried = self._first_class(self._untried) if probes else None
            best = min(item for item in (pod, opened, untried, LAST) if item is not None)
            if best is LAST:
                break
            if best is untried:
                probes -= 1
                first = self._take(untried[1], _Trial.PROBING)
                if (retried := self.retried.get(untried[1])) is not None:
                    retried.probe = first[1]
                    most_fresh = min(most_fresh, _BESIDE_A_PROBE)
                chosen.append(first)
            elif best is opened:
                chosen.append(self._take(opened[1]))
            else:
                fresh += 1
                chosen.append(heapq.heappop(self.fresh))
        if self._shut_wait:
            return chosen
        return chosen + self._choose_shut(
            share if chosen else max(limit // _SHUT_ALONE, 1), alone=not chosen
        )

    def _choose_shut(self, most: int, *, alone: bool) -> list[Item]:
        """Remove up to ``most`` pods of shut classes; ``alone``: the batch has no other pods."""
        chosen: list[Item] = []
        probing: list[Item] = []
        while len(chosen) < most and (first := self._first_class(self._shut)) is not None:
            retried = self.retried[first[1]]
            # A probe's sisters keep waiting for it, unless the batch would be empty.
            if retried.trial is _Trial.PROBING and (chosen or not alone):
                probing.append(heapq.heappop(self._shut))
                continue
            chosen.append(self._take(first[1]))
        for item in probing:
            heapq.heappush(self._shut, item)
        return chosen

    def _first_class(self, heap: Heap) -> Item | None:
        """Return the first live item of a heap of classes, with the key of its first pod."""
        while heap:
            key, class_id, token = heap[0]
            retried = self.retried.get(class_id)
            if retried is not None and retried.token == token:
                first = first_live(retried.pods, self._entries)
                if first is not None and first[0] == key:
                    return heap[0]
                heapq.heappop(heap)
                if first is None:
                    del self.retried[class_id]
                else:
                    self._offer(class_id, retried)
                continue
            heapq.heappop(heap)
        return None

    def _take(self, class_id: int, trial: _Trial | None = None) -> Item:
        """Remove and return the first pod of a class that has one."""
        retried = self.retried[class_id]
        item = heapq.heappop(retried.pods)
        if trial is not None:
            retried.trial = trial
        if first_live(retried.pods, self._entries) is not None:
            self._offer(class_id, retried)
        else:
            del self.retried[class_id]
        return item

    def _offer(self, class_id: int, retried: RetriedClass) -> None:
        """Add a class to the heap of its trial; its items in other heaps become dead."""
        self._tokens += 1
        retried.token = self._tokens
        heap = self._shut
        if retried.trial is _Trial.UNTRIED:
            heap = self._untried
        elif retried.trial is _Trial.OPEN:
            heap = self._open
        heapq.heappush(heap, (retried.pods[0][0], class_id, retried.token))

    def _note(self, entry: Entry, trial: _Trial) -> None:
        retried = self.retried.get(entry.pod.class_id)
        if retried is None or first_live(retried.pods, self._entries) is None:
            return
        if trial is not retried.trial:
            retried.trial = trial
            self._offer(entry.pod.class_id, retried)

    def _retry_shut(self) -> None:
        for class_id, retried in list(self.retried.items()):
            if retried.trial is _Trial.SHUT:
                self._retry(class_id, retried)

    def _retry(self, class_id: int, retried: RetriedClass) -> None:
        if first_live(retried.pods, self._entries) is not None:
            retried.trial = _Trial.UNTRIED
            self._offer(class_id, retried)

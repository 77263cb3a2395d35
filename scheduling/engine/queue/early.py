"""The pods in BACKOFF that may be tried before it is over (SchedulerPopFromBackoffQ).

A pod that plugins rejected and an event woke need not wait while no other pod is active.
``EarlyAttempts`` keeps these pods in addition to the timers of their backoffs: nominated pods,
which become active as soon as they may, and the others, by class, which form a batch when no pod is
active. The rate of early attempts that fail is limited (``allowance``), and so is the number of
early attempts of a pod in a row. Rule: backend/queue/active_queue.go (``unlockedPop``), v1.36.
"""

import heapq
import math
from collections.abc import Callable, Iterator

from scheduling.engine.queue.active import ActivePods, Refusal
from scheduling.engine.queue.allowance import Allowance
from scheduling.engine.queue.pending import Entries, Entry, Heap, Item, drop_dead, first_live

A_SECOND = 100.0
"""On average this many attempts a second may come early and fail.

A pod that is refused alone costs about a millisecond at 500 nodes, preemption included.
"""
AT_ONCE = 500
"""This many early attempts may fail at once, after a time without any."""
IN_A_ROW = 5
"""After this many early attempts in a row a pod waits for its backoff: two pods that preempt each
other again and again do not keep the scheduler busy."""
_AT_LEAST = 16
"""Fewer pods than this are not worth a batch."""


class EarlyAttempts:
    """Pods that may be tried before their backoff is over.

    ``entries``: all pods of the queue, shared with it. Times are seconds since the epoch. A pod
    that leaves BACKOFF in another way gets a new token in its entry, which makes its items here
    dead.
    """

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._nominated: Heap = []
        self._others = ActivePods(entries, shut_wait=True)
        self._allowance = Allowance(A_SECOND, AT_ONCE)

    def add(self, entry: Entry, key: tuple[float, ...], *, nominated: bool) -> None:
        """Add a pod whose backoff begins, unless it was tried early too often in a row.

        ``key``: its sort key among active pods, by which nominated pods are ordered; the others are
        ordered by the end of their backoffs.
        """
        if entry.early >= IN_A_ROW:
            return
        if nominated:
            heapq.heappush(self._nominated, (key, entry.pod.pod_id, entry.token))
        else:
            self._others.add(entry, (entry.not_before, *key))

    def next(self, now: float) -> float:
        """Return the earliest time at which one of these pods may be tried, else infinity."""
        moment = math.inf
        if first_live(self._nominated, self._entries) is not None:
            moment = self._allowance.until(1, now)
        if self._others.gives:
            moment = min(moment, self._allowance.until(_AT_LEAST, now))
        return moment

    def take_nominated(self, now: float) -> Iterator[Entry]:
        """Remove and yield the nominated pods that may be tried; the caller gives them new tokens.

        If they waited, a pod of lower priority that arrives just as their room becomes free, such
        as the replacement of a victim, would be tried first. Where the filters do not count
        nominated pods, that pod might take the room.
        """
        while (first := first_live(self._nominated, self._entries)) is not None:
            if self._allowance.attempts(now) < 1:
                return
            heapq.heappop(self._nominated)
            self._allowance.take(1)
            entry = self._entries[first[1]]
            entry.early += 1
            yield entry

    def take_batch(self, now: float, limit: int, event_count: int) -> list[Item]:
        """Remove and return pods without a nomination for a batch (``ActivePods.take_batch``)."""
        if not self._others:
            return []
        allowed = self._allowance.attempts(now)
        if allowed < _AT_LEAST:
            return []
        chosen = self._others.take_batch(min(limit, allowed), event_count)
        self._allowance.take(len(chosen))
        for _, pod_id, _ in chosen:
            self._entries[pod_id].early += 1
        return chosen

    @property
    def notes_outcomes(self) -> bool:
        """Whether outcomes of pods must be reported here, since some class waits."""
        return bool(self._others.retried)

    def placed(self, entry: Entry) -> None:
        """Note that a pod got a node: an early attempt is given back to the allowance."""
        if entry.refused:
            self._allowance.give_back()
        self._others.placed(entry)

    def refused(self, entry: Entry, by: Refusal, *, nominated: bool) -> None:
        """Note that a pod was refused. If it was nominated, its class may still be tried early."""
        if nominated:
            self._others.untold(entry)
        else:
            self._others.refused(entry, by)

    def untold(self, entry: Entry) -> None:
        """Note an attempt whose outcome does not apply to other pods of the class."""
        self._others.untold(entry)

    def reopen(self, helps: Callable[[Refusal], bool]) -> None:
        """Allow early attempts of the shut classes whose last refusal ``helps`` accepts."""
        self._others.reopen(helps)

    def compact(self, most: int) -> None:
        """Remove entries of pods that left the queue, if there may be more than ``most``."""
        self._others.compact(most)
        if len(self._nominated) > most:
            drop_dead(self._nominated, self._entries)

"""The ends of backoffs, and the times at which unschedulable pods are tried without an event.

``pending.Backoff.after`` computes the length of a backoff.
"""

import heapq

from scheduling.engine.queue.pending import Entries, Entry, Heap, first_live


class Timers:
    """A time for each pod in BACKOFF or UNSCHEDULABLE, in seconds since the epoch.

    A time is stored with the entry's token: a pod that changes its stage loses its time.
    ``entries``: all pods of the queue, shared with it.
    """

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self.backoff: Heap = []
        self.flush: Heap = []

    def set_backoff(self, entry: Entry) -> None:
        """Note that the pod's backoff is over at ``not_before``."""
        heapq.heappush(self.backoff, ((entry.not_before,), entry.pod.pod_id, entry.token))

    def set_flush(self, entry: Entry, at: float) -> None:
        """Note that the pod is tried at ``at`` even if no event helps it."""
        heapq.heappush(self.flush, ((at,), entry.pod.pod_id, entry.token))

    def take_over(self, now: float, most: int) -> list[Entry]:
        """Remove and return up to ``most`` pods whose backoff is over."""
        return self._take(self.backoff, now, most)

    def take_flushed(self, now: float, most: int) -> list[Entry]:
        """Remove and return up to ``most`` pods whose flush time has come."""
        return self._take(self.flush, now, most)

    def next(self) -> float | None:
        """Return the earliest time; None if there is none."""
        firsts = [first_live(heap, self._entries) for heap in (self.backoff, self.flush)]
        return min((first[0][0] for first in firsts if first is not None), default=None)

    def _take(self, heap: Heap, now: float, most: int) -> list[Entry]:
        entries: list[Entry] = []
        while len(entries) < most:
            first = first_live(heap, self._entries)
            if first is None or first[0][0] > now:
                break
            heapq.heappop(heap)
            entries.append(self._entries[first[1]])
        return entries

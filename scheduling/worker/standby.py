"""A scheduler that stands by: its cluster and its queue are those of the one that works.

One scheduler works at a time, by a session's advisory lock. Any other one has all its code loaded
and compiled, and keeps a mirror and a queue of its own up to date, so that it can decide within a
few hundredths of a second once the lock is free. It writes nothing.

    the log      nodes, pods on nodes, new pods, and what wakes waiting ones: as for who works
    the rows     what is not in the log: which pods were refused, by whom, and until when they
                 wait. The one who works writes that into ``pending_pod``; rows that were written
                 since the last look are read again (``bulk.tried_pods`` finds which)

Between two looks it rests many times as long as a look took, so that following a busy cluster costs
a few percent of a core; what was not looked at yet is looked at when it takes over (``take_over``).
While a look finds thousands of pods the rest is short: each of them costs the same now or then, and
whoever waits after a takeover would wait for all that was put off.
"""

import time

from clusterstate import bulk, collector
from clusterstate.queries.queue import load_waiting
from scheduling.worker.mirror import Mirror

_LOG_EVERY = 0.25
_ROWS_EVERY = 1.0
_LONGEST_REST = 2.0
"""Seconds between two looks at the log, and at the rows: at least, and at most for both.

What a busy machine wrote in a longer rest would have to be read when it takes over.
"""
_MUCH = 1000
"""So much news in one look, and the next look comes after ``_REST_AFTER_MUCH`` at the latest."""
_REST_AFTER_MUCH = 0.4
_REST = 20.0
"""So many times as long as a look took lasts the pause after it."""


class Standby:
    """Keeps the mirror of a scheduler that does not work; ``mirror`` must have been loaded."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._seen = bulk.TriedPods.none()
        self._log_at = self._rows_at = 0.0

    def load(self, now: float) -> None:
        """Build the mirror from the rows."""
        self._seen = bulk.tried_pods()  # first: what is written meanwhile is read once more
        self._mirror.load(now)

    def follow(self, now: float, *, at_once: bool = False) -> float:
        """Look at the log and at the rows if it is time to; queries three to five times then.

        With ``at_once`` it looks in any case. Returns for how many seconds it rests from now on.
        """
        began = time.monotonic()
        if began < self._log_at and not at_once:
            return self._log_at - began
        with_rows = at_once or began >= self._rows_at
        news = self._look(now, with_rows=with_rows)
        ended = time.monotonic()
        rest = _REST * (ended - began)
        longest = _LONGEST_REST if news < _MUCH else _REST_AFTER_MUCH
        self._log_at = ended + min(max(rest, _LOG_EVERY), longest)
        if with_rows:
            self._rows_at = ended + min(max(rest, _ROWS_EVERY), longest)
        elif news >= _MUCH:  # the rows of as many pods, mostly
            self._rows_at = min(self._rows_at, self._log_at)
        return self._log_at - ended

    def _look(self, now: float, *, with_rows: bool, also: bool = False) -> int:
        """Return how many changes and rows were taken in."""
        mirror = self._mirror
        mirror.follow_reservations()
        ids: list[int] = []
        if with_rows:
            seen = bulk.tried_pods()
            ids, left = seen.since(self._seen)
            ids += [pod_id for pod_id in left if pod_id in mirror.queue]
            self._seen = seen
        if also:
            ids = sorted({*ids, *mirror.reserved})
        rows = load_waiting(ids)
        # After the rows were read: it knows all that they rest on.
        changes = mirror.refresh(now)
        mirror.take_in_again(rows, now)
        mirror.arrivals.clear()  # for the node admission of the one who works
        # That one sets them aside; should it not come to it, each is to be set aside once.
        mirror.failed_objects = list({one[0]: one for one in mirror.failed_objects}.values())
        mirror.queue.compact()
        if mirror.has_outgrown:
            self.load(now)
            collector.calm()  # what it replaces was frozen, and would stay for ever
        return changes + len(rows)

    def take_over(self, now: float) -> int:
        """Catch up with the log and the rows; from now on this scheduler works.

        Returns how many changes and rows had to be taken in.
        """
        count = self._look(now, with_rows=True, also=True)
        self._mirror.take_over(now)
        return count

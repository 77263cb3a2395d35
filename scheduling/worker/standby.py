"""A standby scheduler keeps the same snapshot and queue as the one that works.

As many schedulers work at a time as are configured, each under a session advisory lock. A standby
has its code loaded and compiled, and keeps a mirror of its own up to date, so that it decides
within a few hundredths of a second once a lock is free. It writes nothing.

    the log      nodes, pods on nodes, new pods, and what wakes waiting pods; the working scheduler
                 follows the same log
    the rows     what the log does not have: which pods were refused, by which plugin, and until
                 when they wait. The working scheduler writes it into ``pending_pod``; a standby
                 reads the rows that were written since its last look (``bulk.tried_pods``)

Between two reads a standby pauses many times as long as the read took, so that following a busy
cluster costs a few percent of a core; after a read without changes it pauses longest. ``take_over``
reads what remains. While a read finds thousands of pods the pause is short: the work must be done
in any case, and after a takeover all pods would wait for it.
"""

import time

from clusterstate.database import bulk
from clusterstate.processes import collector
from clusterstate.queries.pods.queue import load_waiting
from scheduling.worker.mirror import Mirror

_LOG_EVERY = 1.0
_ROWS_EVERY = 1.0
_LONGEST_REST = 2.0
"""Seconds between two reads: the least for the log, the least for the rows, the most for both.
Later changes would have to be read during a takeover."""
_MUCH = 1000
"""After a read of this many changes and rows the pause is at most ``_REST_AFTER_MUCH``."""
_REST_AFTER_MUCH = 0.4
_REST = 20.0
"""The pause after a read, as a multiple of its duration."""


class Standby:
    """Keeps the mirror of a scheduler that does not work up to date; ``mirror`` must be loaded."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._tried = bulk.TriedPods.none()
        self._log_at = self._rows_at = 0.0

    def load(self, now: float) -> None:
        """Load the mirror from the rows, to follow from there."""
        self._tried = bulk.tried_pods()  # first: a pod written meanwhile is read twice
        self._mirror.load(now)

    def follow(self, now: float, *, at_once: bool = False) -> float:
        """Read the log and the rows if they are due; return the seconds until the next call.

        Queries three to five times if it reads. With ``at_once`` it reads in any case.
        """
        began = time.monotonic()
        if began < self._log_at and not at_once:
            return self._log_at - began
        with_rows = at_once or began >= self._rows_at
        news = self._follow(now, with_rows=with_rows)
        ended = time.monotonic()
        rest = _REST * (ended - began) if news else _LONGEST_REST
        longest = _LONGEST_REST if news < _MUCH else _REST_AFTER_MUCH
        self._log_at = ended + min(max(rest, _LOG_EVERY), longest)
        if with_rows:
            self._rows_at = ended + min(max(rest, _ROWS_EVERY), longest)
        elif news >= _MUCH:  # mostly the rows of that many pods
            self._rows_at = min(self._rows_at, self._log_at)
        return self._log_at - ended

    def _follow(self, now: float, *, with_rows: bool, with_reserved: bool = False) -> int:
        """Read the log and, ``with_rows``, the rows; return how many of them were applied."""
        mirror = self._mirror
        mirror.follow_reservations()
        ids: list[int] = []
        if with_rows:
            tried = bulk.tried_pods()
            ids, gone = tried.since(self._tried)
            ids += [pod_id for pod_id in gone if pod_id in mirror.queue]
            self._tried = tried
        if with_reserved:
            ids = sorted({*ids, *mirror.reserved})
        rows = load_waiting(ids)
        # The log is read after the rows, so that it has all changes that the rows include.
        changes = mirror.refresh(now)
        mirror.take_in_again(rows, now)
        mirror.arrivals.clear()  # the working scheduler checks them
        # The working scheduler sets them aside. A takeover may come before that: keep each once.
        mirror.failed_objects = list({one[0]: one for one in mirror.failed_objects}.values())
        mirror.queue.compact()
        if mirror.has_outgrown:
            self.load(now)
            collector.calm()  # the old snapshot was frozen, and would stay for ever
        return changes + len(rows)

    def take_over(self, now: float) -> int:
        """Read the rest of the log and rows; return how many changes and rows were applied.

        After this call the scheduler works: ``Scheduler.begin`` comes next.
        """
        count = self._follow(now, with_rows=True, with_reserved=True)
        self._mirror.take_over(now)
        return count

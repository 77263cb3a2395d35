"""Rate-limited logging of repeated failures: when one begins, each minute, and when it is over.

A loop that tries again twice a second would write the same line for each try, such as "the database
is away". In an hour that is thousands of lines from each thread of each process, on a disk that may
be full already.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from clusterstate.telemetry.logs import Logger

QUIET_SECONDS: Final = 60.0
"""Seconds between two lines about the same trouble."""
_REASONS: Final = 32
"""The most reasons stored; the oldest is dropped, and then logged again."""


class Trouble:
    """Counts the failures of one piece of work; any number of threads may add to it.

    A trouble is *over* when the work succeeds after two failures or more in a row. The end of a
    single failure is not logged, since a failure that recurs is logged once a minute, too.
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        """``now`` returns monotonic seconds."""
        self._now = now
        self._lock = threading.Lock()
        self._logged_at: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}
        self._in_a_row = 0

    def note(self, reason: str) -> int:
        """Count a failure; return how many failures to log now in one line, 0 for no line."""
        with self._lock:
            now = self._now()
            self._in_a_row += 1
            count = self._unlogged.get(reason, 0) + 1
            logged_at = self._logged_at.get(reason)
            if logged_at is not None and now - logged_at < QUIET_SECONDS:
                self._unlogged[reason] = count
                return 0
            self._logged_at.pop(reason, None)
            while len(self._logged_at) >= _REASONS:
                oldest = next(iter(self._logged_at))
                del self._logged_at[oldest]
                self._unlogged.pop(oldest, None)
            self._logged_at[reason] = now
            self._unlogged.pop(reason, None)
            return count

    def over(self) -> int:
        """Note a success; return how many failures in a row it ended, 0 if fewer than 2."""
        with self._lock:
            failures, self._in_a_row = self._in_a_row, 0
            if failures < 2:
                return 0
            self._logged_at.clear()
            self._unlogged.clear()
            return failures

    def tell_end(self, logger: Logger, work: str) -> None:
        """Note a success, and log it if the work failed more than once before."""
        if failures := self.over():
            logger.info("goes_on", work=work, failures=failures)


def reason_of(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if there is none.

    Further lines of PostgreSQL's quote the statement, which differs from try to try.
    """
    return str(error).strip().split("\n", 1)[0] or type(error).__name__

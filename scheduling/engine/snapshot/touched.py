"""The log of rows whose pods or capacity changed, which caches follow by position."""

import numpy as np

from scheduling.framework.arrays import Int32

_LOG_LIMIT = 1 << 17


class TouchedRows:
    """A log of rows, in order of change and with repeats.

    Positions only rise: ``log_end`` is the position after the last entry. When the log is full, its
    older half is dropped; a follower whose position is before ``log_start`` must read all rows.
    """

    def __init__(self) -> None:
        self._log: Int32 = np.zeros(_LOG_LIMIT, np.int32)
        self._log_filled = 0
        self.log_start = 0

    def _touch(self, row: int) -> None:
        filled = self._log_filled
        if filled == _LOG_LIMIT:
            half = filled // 2
            self._log[:half] = self._log[half:]
            self.log_start += half
            filled = half
        self._log[filled] = row
        self._log_filled = filled + 1

    @property
    def log_limit(self) -> int:
        """Number of entries after which the older half of the log is dropped."""
        return _LOG_LIMIT

    @property
    def log_end(self) -> int:
        """Position after the last log entry; the first kept entry has ``log_start``."""
        return self.log_start + self._log_filled

    def touched_since(self, position: int) -> Int32 | None:
        """Return the rows whose pods or capacity changed since a position, in order, with repeats.

        ``None``: the log does not reach back so far. The array is a view.
        """
        begin = position - self.log_start
        return None if begin < 0 else self._log[begin : self._log_filled]

    def log_room(self, count: int) -> tuple[Int32, int]:
        """Return the log and its length, with space for ``count`` more entries; see ``assume_run``.

        ``count``: at most half of ``log_limit``.
        """
        if self._log_filled + count > _LOG_LIMIT:
            half = self._log_filled // 2
            size = self._log_filled - half
            self._log[:size] = self._log[half : self._log_filled].copy()
            self.log_start += half
            self._log_filled = size
        return self._log, self._log_filled

    def _restart_log(self) -> None:
        """Empty the log; its followers must read all rows."""
        self.log_start = self.log_end + 1
        self._log_filled = 0

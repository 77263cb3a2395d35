"""Progress of a long command, one line a second at most."""

import time
from collections.abc import Callable

_SECONDS = 1.0


class Progress:
    """Counts rows of tables one after the other, and reports the progress."""

    def __init__(self, say: Callable[[str], object] | None, done: str) -> None:
        """``say`` gets lines with the word ``done``, such as "saved"; ``None``: no lines."""
        self._say = say
        self._done = done
        self._told_at = time.monotonic()
        self._counts: dict[str, int] = {}

    @property
    def rows(self) -> int:
        """The number of rows of all tables so far."""
        return sum(self._counts.values())

    @property
    def tables(self) -> int:
        """The number of tables begun."""
        return len(self._counts)

    def __call__(self, table: str, rows: int) -> None:
        """Report that ``rows`` rows of the table are done."""
        self._counts[table] = rows
        now = time.monotonic()
        if self._say is not None and now - self._told_at >= _SECONDS:
            self._told_at = now
            self._say(f"{self._done} {self.rows:,} rows so far; {table}: {rows:,}")

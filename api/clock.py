"""The clock of the API: read here, at the edge, and passed down as an argument.

A process that serves others writes the database's time, as far as it knows it: the time of a taint
decides when pods leave, and a host whose own clock is ten minutes behind would have them leave at
once. `server.health` looks at both clocks once a second and says here what it saw. Until its first
look, and for a difference that may be no more than a pause of the process, the host's clock counts.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

DIFFERENCE_SECONDS: Final = 1.0
"""A smaller difference does not count: it may be the time that the database took to answer."""


class _ClockOffset:
    """By how much the host's clock was ahead of the database's at the last look."""

    ahead = timedelta(0)


def now() -> datetime:
    """Return the time, aware, in UTC."""
    return datetime.now(UTC) - _ClockOffset.ahead  # noqa: TID251  # the edge


def compare(*, database: float, before: float, after: float) -> float:
    """Note what both clocks showed; return by how many seconds the host's is ahead.

    ``database``: what the database's clock showed between ``before`` and ``after``, which are of
    the host's; all in seconds since the epoch. A look that took longer than DIFFERENCE_SECONDS
    tells nothing, as the process may have been stopped meanwhile: then what was seen last holds.
    """
    if 0 <= after - before <= DIFFERENCE_SECONDS:
        ahead = before - database if before > database else min(0.0, after - database)
        _ClockOffset.ahead = timedelta(seconds=ahead if abs(ahead) >= DIFFERENCE_SECONDS else 0.0)
    return _ClockOffset.ahead.total_seconds()

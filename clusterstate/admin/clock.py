"""The clock of the console: an edge where time is read."""

from datetime import UTC, datetime


def now() -> datetime:
    """Return the time of this request."""
    return datetime.now(UTC)  # noqa: TID251  # an edge

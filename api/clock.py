"""The clock of the API: read here, at the edge, and passed down as an argument."""

from datetime import UTC, datetime


def now() -> datetime:
    """Return the time, aware, in UTC."""
    return datetime.now(UTC)  # noqa: TID251  # the edge

"""The clock of the admin: an edge where code reads the time."""

from datetime import UTC, datetime


def now() -> datetime:
    """Return the present time."""
    return datetime.now(UTC)  # noqa: TID251  # an edge

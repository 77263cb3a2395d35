"""Arithmetic with moments that never fails: beyond the last date means never.

Kubernetes takes any RFC 3339 time and any 64-bit number of seconds: a toleration of thirty thousand
years, a taint added in the year 1, a lease of 2**31 seconds. Python's dates end with the year 9999
and raise beyond, and so does PostgreSQL a little later, so a sum of what clients wrote is formed
here and nowhere else. What lies beyond the last moment is ``NEVER``; what lies before the first is
``FIRST``.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

FIRST: Final = datetime(1, 1, 1, tzinfo=UTC)
NEVER: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""The last moment that can be written, and whatever lies beyond it."""


def after(moment: datetime, seconds: float) -> datetime:
    """Return the moment so many seconds after (before, if negative) an aware one, in UTC."""
    try:
        return clamp(moment + timedelta(seconds=seconds))
    except OverflowError:
        return NEVER if seconds > 0 else FIRST


def clamp(moment: datetime) -> datetime:
    """Return an aware moment in UTC, within ``FIRST`` and ``NEVER``."""
    if moment.tzinfo is not UTC:
        try:
            moment = moment.astimezone(UTC)
        except OverflowError:  # within a day of either end, and its zone leads across
            return NEVER if moment.year > 1 else FIRST
    return min(moment, NEVER)


def parse(text: str) -> datetime:
    """Return the moment that RFC 3339 text names. Kubernetes has a year 0, which is before all.

    Raises:
        ValueError: the text is not RFC 3339, has no zone, or names a day that does not exist.
    """
    if text.startswith("0000-"):
        parse(f"0004-{text[5:]}")
        return FIRST
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or len(text) < 20 or text[10] not in "Tt":
        raise ValueError(f"not an RFC 3339 time with a zone: {text!r}")
    return clamp(moment)


def is_never(moment: datetime) -> bool:
    """Return whether an aware moment does not come."""
    return moment >= NEVER

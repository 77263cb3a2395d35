"""Arithmetic with moments that never fails: beyond the last date means never.

Kubernetes takes any RFC 3339 time and any 64-bit number of seconds: a toleration of thirty thousand
years, a taint added in the year 1, a lease of 2**31 seconds. Python's dates end with the year 9999
and raise beyond, and so does PostgreSQL a little later, so a sum of what clients wrote is formed
here and nowhere else. What lies beyond the last moment is ``NEVER``; what lies before the first is
``FIRST``.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

TIME: Final = (
    r"\A(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
    r"T(?:[01][0-9]|2[0-3]|[0-9])(?::[0-5][0-9]){2}(?:[.,][0-9]+)?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-4]):(?:[0-5][0-9]|60))\Z"
)
"""A time as Go's ``time.Parse`` reads RFC 3339 (``time/format.go``, Go 1.26): by the calendar, an
hour of one digit, a comma before the fraction, an offset of up to 24:60; T and Z in capitals."""
FIRST: Final = datetime(1, 1, 1, tzinfo=UTC)
NEVER: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""The last moment that can be written, and whatever lies beyond it."""


def after(moment: datetime, seconds: float) -> datetime:
    """Return the moment this many seconds after (before, if negative) an aware one, in UTC."""
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
    """Return the moment that RFC 3339 text names, as Go reads it (``TIME``).

    What is finer than a microsecond is cut off. Kubernetes has a year 0, which is before all.

    Raises:
        ValueError: the text is not RFC 3339, has no zone, or names a day that does not exist.
    """
    if _TIME(text) is None:
        raise ValueError(f"not an RFC 3339 time with a zone: {text!r}")
    if text.startswith("0000-"):
        return FIRST
    if len(text) == _WHOLE and text[-1] == "Z":
        return datetime.fromisoformat(text)
    clock, zone = (text[11:-1], "") if text[-1] == "Z" else (text[11:-6], text[-6:])
    if clock[1] == ":":
        clock = f"0{clock}"
    whole = datetime.fromisoformat(f"{text[:10]}T{clock[:8]}+00:00")
    moment = whole.replace(microsecond=int(f"{clock[9:]}000000"[:6]))
    if not zone:
        return clamp(moment)
    ahead = 3600 * int(zone[1:3]) + 60 * int(zone[4:])
    return after(moment, ahead if zone[0] == "-" else -ahead)


_TIME: Final = re.compile(TIME).match
_WHOLE: Final = len("2026-01-31T12:00:00Z")
_MICRO: Final = len("2026-01-31T12:00:00.000000Z")


def canonical(text: str, *, micro: bool) -> str:
    """Return RFC 3339 text as Kubernetes gives it out: in UTC, with seconds or microseconds.

    Rule: ``Time.MarshalJSON`` and ``MicroTime.MarshalJSON``, apimachinery ``meta/v1``, v1.36. What
    a zone leads beyond the years that can be written is the last, or the first, moment.

    Raises:
        ValueError: as ``parse``.
    """
    if _TIME(text) is None:
        raise ValueError(f"not an RFC 3339 time with a zone: {text!r}")
    length = _MICRO if micro else _WHOLE
    if len(text) == length and text[-1] == "Z" and text[19] == ("." if micro else "Z"):
        return text
    if text.startswith("0000-"):  # before the years of Python, and as long as the year 4
        return f"0000{canonical(f'0004{text[4:]}', micro=micro)[4:]}"
    written = parse(text).isoformat(timespec="microseconds" if micro else "seconds")
    return f"{written[:-6]}Z"


def is_never(moment: datetime) -> bool:
    """Return whether an aware moment is ``NEVER`` or later."""
    return moment >= NEVER

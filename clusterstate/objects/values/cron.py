"""The times of a schedule with cron's five fields.

Pure. As robfig/cron v3 reads it, which Kubernetes uses: Sunday is 0; if both days are restricted
either matches; ``a/n`` continues to the end of the field; a time that the clock skips is omitted,
and one that it repeats occurs twice. `admission.validation.jobs` validates the text.
"""

import re
import zoneinfo
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Final

import msgspec

from clusterstate.objects.values import moments
from clusterstate.objects.values.remembered import remembered

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
BOUNDS: Final[tuple[tuple[int, int, dict[str, int]], ...]] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, {name: number for number, name in enumerate(MONTHS, 1)}),
    (0, 6, {name: number for number, name in enumerate(DAYS)}),
)
"""Lowest and highest value of each field, and the names of values."""
DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
EVERY: Final = re.compile(r"@every ([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+")
# Nothing begins within a number: else each digit of a long one would be tried as the first.
_PART: Final = re.compile(r"(?<![0-9.])([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_PAUSE: Final = 292 * 366 * 86400.0
"""Seconds that Go's durations can hold, about 292 years."""
_LONGEST_SEARCH: Final = 5 * 366
"""Days after which a schedule counts as one that never comes, such as the 30th of February."""
_FIRST: Final = datetime(2, 1, 1, tzinfo=UTC)
_LAST_YEAR: Final = 9990
"""Between these a search meets neither end of the calendar; a client may write any time."""


class _Fields(msgspec.Struct, frozen=True):
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def has(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.days, (day.isoweekday() % 7) in self.weekdays
        return (by_month or by_week) if self.either_day else (by_month and by_week)


class Schedule:
    """A schedule and the time zone in which it is read (UTC without one)."""

    def __init__(self, text: str, zone: str | None = None) -> None:
        text = text.strip()
        self._zone = zoneinfo.ZoneInfo(zone) if zone else UTC
        self._every: timedelta | None = None
        if text.startswith("@every"):
            found = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
            self._every = timedelta(seconds=max(1, int(min(found, _LONGEST_PAUSE))))
        else:
            self._fields = _fields(DESCRIPTORS.get(text, text))

    def after(self, moment: datetime) -> datetime | None:
        """Return the next time of the schedule after a moment, in UTC; ``None``: never."""
        if self._every is not None:
            following = moments.after(moment.replace(microsecond=0), self._every.total_seconds())
            return None if moments.is_never(following) else following
        if moment.year >= _LAST_YEAR:
            return None
        start = max(moment, _FIRST).astimezone(self._zone)
        for ahead in range(_LONGEST_SEARCH):
            day = start.date() + timedelta(days=ahead)
            if self._fields.has(day):
                earliest = start.hour - 1 if ahead == 0 else 0
                found = self._on(day, earliest, moment)
                if found is not None:
                    return found
        return None

    def latest(self, moment: datetime, now: datetime) -> datetime | None:
        """Return the last time of the schedule after a moment and up to now, or ``None``."""
        if self._every is not None:
            times = (now - moment) // self._every
            return (moment + times * self._every).astimezone(UTC) if times > 0 else None
        back = timedelta(minutes=1)
        longest = timedelta(days=_LONGEST_SEARCH)
        while True:
            start = max(moment, now - back)
            found = self.after(start)
            if found is not None and found <= now:
                while (following := self.after(found)) is not None and following <= now:
                    found = following
                return found
            if start == moment or back == longest:
                return None
            back = min(back * 2, longest)

    def _on(self, day: date, earliest: int, moment: datetime) -> datetime | None:
        for hour in self._fields.hours:
            if hour < earliest:
                continue
            found = None
            for minute, fold in product(self._fields.minutes, (0, 1)):
                local = datetime(
                    day.year, day.month, day.day, hour, minute, tzinfo=self._zone, fold=fold
                )
                at = local.astimezone(UTC)
                exists = at.astimezone(self._zone).replace(tzinfo=None) == local.replace(
                    tzinfo=None
                )
                if exists and at > moment and (found is None or at < found):
                    found = at
            if found is not None:
                return found
        return None


@remembered(1024, longest=1024)
def _fields(text: str) -> _Fields:
    parts = text.split()
    minutes, hours, days, months, weekdays = (
        frozenset(value for item in part.split(",") for value in _values(item, *bounds))
        for part, bounds in zip(parts, BOUNDS, strict=True)
    )
    restricted = [not any(_is_star(item) for item in parts[at].split(",")) for at in (2, 4)]
    return _Fields(
        tuple(sorted(minutes)), tuple(sorted(hours)), days, months, weekdays, all(restricted)
    )


def _is_star(item: str) -> bool:
    span, _, step = item.partition("/")
    return span in ("*", "?") and step in ("", "1")


def _values(item: str, low: int, high: int, names: dict[str, int]) -> range:
    span, _, step = item.partition("/")
    if span in ("*", "?"):
        return range(low, high + 1, int(step or 1))
    ends = [names[end.lower()] if end.lower() in names else int(end) for end in span.split("-")]
    last = high if step and len(ends) == 1 else ends[-1]
    return range(ends[0], last + 1, int(step or 1))

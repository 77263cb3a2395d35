"""Counters, histograms and gauges in memory, by name and labels.

A family is declared once, when its module is imported; ``of`` returns the series of some label
values, which callers on a hot path keep. ``take_all`` empties every counter and histogram, so that
the caller can add them to the totals; ``put_back`` returns counts that could not be added.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat
from operator import mul
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

Kind = Literal["counter", "histogram", "gauge"]


class SeriesCounts(msgspec.Struct, frozen=True, gc=False):
    """The counts of one series.

    ``labels`` is as in the exposition format, without braces. ``figures`` is the number of a
    counter; of a histogram, the number of values in each bucket (not cumulative, the last one is
    ``+Inf``), then the sum of the values.
    """

    name: str
    labels: str
    figures: list[float]


class Series:
    """One combination of label values."""

    __slots__ = ("_bounds", "_figures", "_lock", "labels", "name")

    def __init__(self, name: str, labels: str, bounds: tuple[float, ...]) -> None:
        self.name = name
        self.labels = labels
        self._bounds = bounds
        self._lock = threading.Lock()
        self._figures = self._empty()

    def _empty(self) -> list[float]:
        return [0.0] * (len(self._bounds) + 2 if self._bounds else 1)

    @property
    def has_news(self) -> bool:
        """Return whether anything was counted since the last ``take``."""
        return any(self._figures)

    def take(self) -> SeriesCounts | None:
        """Return what was counted since the last call, ``None`` if nothing was."""
        with self._lock:
            figures = self._figures
            if not any(figures):
                return None
            self._figures = self._empty()
        return SeriesCounts(self.name, self.labels, figures)

    def add_all(self, figures: Sequence[float]) -> None:
        """Add counts that ``take`` returned."""
        with self._lock:
            self._figures = [a + b for a, b in zip(self._figures, figures, strict=True)]


class Counter(Series):
    """A number that only grows."""

    __slots__ = ()

    def add(self, amount: float = 1.0) -> None:
        """Add ``amount``, which is not negative."""
        with self._lock:
            self._figures[0] += amount


class Histogram(Series):
    """Counts of values by bucket; a value equal to a bound is in the bucket below it."""

    __slots__ = ()

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value ``times`` times."""
        place = bisect_left(self._bounds, value)
        with self._lock:
            self._figures[place] += times
            self._figures[-1] += value * times


class Gauge:
    """A current value of this process."""

    __slots__ = ("labels", "name", "value")

    def __init__(self, name: str, labels: str) -> None:
        self.name = name
        self.labels = labels
        self.value = 0.0

    def set(self, value: float) -> None:
        """Set the value."""
        self.value = value

    def read(self) -> float:
        """Return the value."""
        return self.value


class Level(Gauge):
    """A gauge that goes up and down, used by one thread."""

    __slots__ = ()

    def up(self) -> None:
        """Add 1."""
        self.value += 1

    def down(self) -> None:
        """Subtract 1."""
        self.value -= 1


class Peak(Level):
    """A gauge of the highest value since the last read. One thread sets it, any may read it."""

    __slots__ = ("most",)

    def __init__(self, name: str, labels: str) -> None:
        super().__init__(name, labels)
        self.most = 0.0

    def up(self) -> None:
        """Add 1."""
        self.value += 1
        self.most = max(self.most, self.value)

    def read(self) -> float:
        """Return the highest value since the last call."""
        most, self.most = self.most, self.value
        return most


_S = TypeVar("_S", Counter, Histogram, Gauge, Level, Peak)


class Family(Generic[_S]):
    """All series of one name, each made at its first use.

    ``source`` is the Kubernetes program that has a metric of this name, labels and bounds, empty
    for our own. ``bounds`` are the upper bounds of a histogram's buckets, without ``+Inf``.
    """

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        *,
        kind: Kind,
        source: str,
        bounds: Sequence[float],
        make: Callable[[str, str], _S],
    ) -> None:
        assert name not in FAMILIES, name
        self.name = name
        self.text = text
        self.labels = tuple(labels)
        self.kind: Kind = kind
        self.source = source
        self.bounds = tuple(bounds)
        self._make: Callable[[str, str], _S] = make
        self._series: dict[tuple[str, ...], _S] = {}
        self._lock = threading.Lock()
        FAMILIES[name] = self

    def of(self, *values: str) -> _S:
        """Return the series with these label values, in the order of ``labels``."""
        found = self._series.get(values)
        if found is None:
            written = labels_text(zip(self.labels, values, strict=True))
            with self._lock:
                found = self._series.setdefault(values, self._make(self.name, written))
        return found

    def series(self) -> list[_S]:
        """Return all series that exist."""
        with self._lock:
            return list(self._series.values())


FAMILIES: Final[dict[str, Family[Any]]] = {}
"""Every family that is declared, by name."""


def counter(name: str, text: str, *labels: str, source: str = "") -> Family[Counter]:
    """Declare a counter, whose name ends in ``_total``."""
    return Family(
        name, text, labels, kind="counter", source=source, bounds=(),
        make=lambda name, written: Counter(name, written, ()),
    )  # fmt: skip


def histogram(
    name: str, text: str, *labels: str, bounds: Sequence[float], source: str = ""
) -> Family[Histogram]:
    """Declare a histogram."""
    own = tuple(bounds)
    return Family(
        name, text, labels, kind="histogram", source=source, bounds=own,
        make=lambda name, written: Histogram(name, written, own),
    )  # fmt: skip


def gauge(name: str, text: str, *labels: str, source: str = "") -> Family[Gauge]:
    """Declare a gauge; its total is the sum over the processes."""
    return Family(name, text, labels, kind="gauge", source=source, bounds=(), make=Gauge)


def level(name: str, text: str, *labels: str, source: str = "") -> Family[Level]:
    """Declare a gauge that goes up and down."""
    return Family(name, text, labels, kind="gauge", source=source, bounds=(), make=Level)


def peak(name: str, text: str, *labels: str, source: str = "") -> Family[Peak]:
    """Declare a gauge of the highest value since the last read."""
    return Family(name, text, labels, kind="gauge", source=source, bounds=(), make=Peak)


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return the bounds of Go's ``prometheus.ExponentialBuckets``, with the same digits.

    Each bound is the previous one times the factor, so that ``le`` is as kube-scheduler prints it.
    """
    return tuple(accumulate(repeat(factor, count - 1), mul, initial=start))


def labels_text(pairs: Iterable[tuple[str, str]]) -> str:
    """Return labels as in the exposition format, without braces."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in pairs)


def escaped(value: str) -> str:
    """Return a label's value, escaped for the exposition format."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def take_all() -> list[SeriesCounts]:
    """Return the counts of this process since the last call, sorted by name and labels."""
    found = [
        counts
        for family in list(FAMILIES.values())
        if family.kind != "gauge"
        for series in family.series()
        if (counts := series.take()) is not None
    ]
    return sorted(found, key=lambda counts: (counts.name, counts.labels))


def has_news() -> bool:
    """Return whether this process counted anything since ``take_all``."""
    return any(
        series.has_news
        for family in list(FAMILIES.values())
        if family.kind != "gauge"
        for series in family.series()
    )


def put_back(counts: Iterable[SeriesCounts]) -> None:
    """Add counts again that could not be added to the totals."""
    for one in counts:
        for series in FAMILIES[one.name].series():
            if series.labels == one.labels:
                series.add_all(one.figures)


def gauges() -> list[tuple[str, str, float]]:
    """Return name, labels and value of this process's gauges."""
    return [
        (gauge.name, gauge.labels, gauge.read())
        for family in list(FAMILIES.values())
        if family.kind == "gauge"
        for gauge in family.series()
    ]

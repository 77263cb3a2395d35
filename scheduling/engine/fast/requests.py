"""Requests of classes, as the numbers in a line of totals (``engine.fast.lines``).

NodeResourcesFit and balance state the resources that they read once for each set of requests.
Classes that request the same resources differ in amounts alone, which are filled in; so a cluster
in which no two pods request the same amounts costs little more.
"""

import struct
from collections.abc import Callable, Hashable, Iterator, Sequence
from operator import itemgetter
from typing import Final

import numpy as np

from scheduling.engine.compiled.layout import AMOUNT, SCORED_COLUMNS
from scheduling.engine.fast.lane_profile import Profile
from scheduling.engine.fast.lines import CHECKS, Lines
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int64
from scheduling.framework.terms import ColumnRequest
from scheduling.framework.types import PodInfo

_LARGEST_AMOUNT: Final = 2**50
_NO_RESOURCE: Final = (-1, 0, 0)
_MOST: Final = 4096
_PADDING: Final = (-1,) * CHECKS


class _Form:
    """Classes that request the same resources, each more than 0 of them.

    ``fill``: returns the numbers of a request, from the result of ``_amounts_of`` followed by
    ``more``; ``None``: they do not follow from the amounts. ``places`` int64: the index of each
    number among those given. ``known``: requests by their amounts.
    """

    __slots__ = ("fill", "known", "more", "places")

    def __init__(self) -> None:
        self.fill: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None
        self.more: tuple[int, ...] = ()
        self.places: Int64 = np.zeros(0, np.int64)
        self.known: dict[tuple[int, ...], bytes | None] = {}


class Requests:
    """The requests of classes of one profile over one snapshot.

    Args:
        snapshot: names the columns of resources.
        profile: its plugins state what is compared and scored.
        lines: the lines whose keys contain the requests.
    """

    def __init__(self, snapshot: Snapshot, profile: Profile, lines: Lines) -> None:
        self._snapshot = snapshot
        self._profile = profile
        self._lines = lines
        self._numbers = struct.Struct(f"{lines.key_length - 1}q")
        self._forms: dict[Hashable, _Form] = {}
        self._with_columns: dict[tuple[bytes, tuple[tuple[int, int], ...]], bytes | None] = {}
        self._kept = 0  # requests in all forms: there is no limit to resource names

    def of(self, info: PodInfo, aspects: Sequence[Hashable]) -> bytes | None:
        """Return the requests as bytes for a line's key; ``None``: too many, or amounts too large.

        ``aspects``: of the class, by plugin (``Profile.aspected``).
        """
        by = self._profile.by_request
        if by is None:
            return self._packed(self._line_of(info))
        given = _amounts_of(info)
        key = (tuple(info.requests), tuple(info.scored_requests), *[aspects[at] for at in by])
        form = self._forms.get(key)
        if form is not None and given in form.known:
            return form.known[given]
        if self._kept >= _MOST:
            self._forms.clear()
            self._kept, form = 0, None
        if form is None:
            form = self._forms[key] = self._form(info, given)
        if form.fill is not None and min(given) > 0 and max(given) < _LARGEST_AMOUNT:
            found: bytes | None = self._numbers.pack(*form.fill(given + form.more))
        else:
            found = self._packed(self._line_of(info))
        form.known[given] = found
        self._kept += 1
        return found

    def with_columns(self, request: bytes, asked: Sequence[ColumnRequest]) -> bytes | None:
        """Return a request with the amounts of further columns, ``None`` if they do not fit.

        Empty if a column has just become known: the caller must begin again.
        """
        amounts = tuple([amount for one in asked for amount in one.amounts])
        if not request or any(column >= self._lines.width for column, _ in amounts):
            return b""
        key = request, amounts
        if key not in self._with_columns:
            if len(self._with_columns) >= _MOST:
                self._with_columns.clear()
            numbers = list(self._numbers.unpack(request))
            first = 2 + CHECKS
            free = [at for at in range(first, first + CHECKS) if numbers[at] < 0]
            for at, (column, amount) in zip(free, amounts, strict=False):
                numbers[at], numbers[at - CHECKS] = column, amount
                numbers[first + CHECKS + column] += amount
            enough = len(free) >= len(amounts)
            self._with_columns[key] = self._numbers.pack(*numbers) if enough else None
        return self._with_columns[key]

    def of_many(
        self, infos: Sequence[PodInfo], aspects: Sequence[Sequence[Hashable]]
    ) -> Iterator[tuple[list[int], Int64]]:
        """Yield positions of classes, and their numbers before packing, int64 (positions, numbers).

        Left out are classes with resources that no earlier class requested, and classes whose
        numbers are not just their amounts.
        """
        by = self._profile.by_request
        if by is None:
            return
        of_form: dict[Hashable, tuple[list[int], list[tuple[int, ...]]]] = {}
        for place, info in enumerate(infos):
            of = aspects[place]
            key = (tuple(info.requests), tuple(info.scored_requests), *[of[at] for at in by])
            places, given = of_form.setdefault(key, ([], []))
            amounts = _amounts_of(info)
            if min(amounts) > 0 and max(amounts) < _LARGEST_AMOUNT:
                places.append(place)
                given.append(amounts)
        for names, (places, given) in of_form.items():
            form = self._forms.get(names)
            if form is None or form.fill is None or not places:
                continue
            more = np.broadcast_to(np.array(form.more, np.int64), (len(places), len(form.more)))
            yield places, np.concatenate((np.array(given, np.int64), more), axis=1)[:, form.places]

    def _form(self, info: PodInfo, given: tuple[int, ...]) -> _Form:
        """Return the form of classes that request the same resources as this one.

        The plugins state the column of each amount; if some amount is not what the class requests
        of that column, the form has no ``fill``.
        """
        form = _Form()
        numbers = self._line_of(info)
        if not numbers or min(given, default=0) <= 0:
            return form
        width, names = self._lines.width, self._snapshot.resources.values
        place_of = {name: 2 + at for at, name in enumerate(info.requests)}
        first = 2 + len(place_of)
        scored_place_of = {name: first + at for at, name in enumerate(info.scored_requests)}
        more: list[int] = []
        places: list[int] = []

        def constant(number: int) -> None:
            places.append(len(given) + len(more))
            more.append(number)

        def amount(number: int, column: int, at: dict[str, int]) -> bool:
            place = at.get(names[column], -1) if column >= 0 else -1
            if place >= 0:
                places.append(place)
                return given[place] == number
            constant(number)
            return number == 0 or column < 0

        checked = numbers[2 + CHECKS : 2 + 2 * CHECKS]
        places += [0, 1]
        same = True
        for number, column in zip(numbers[2 : 2 + CHECKS], checked, strict=True):
            same &= amount(number, column, place_of)
        for column in checked:
            constant(column)
        after = 2 + 2 * CHECKS
        for column, number in enumerate(numbers[after : after + width]):
            if column < len(names):
                same &= amount(number, column, place_of)
            else:
                constant(number)
        scored = numbers[after + width :]
        half = len(scored) // 2
        for at in range(0, len(scored), SCORED_COLUMNS):
            column, weight, number = scored[at : at + SCORED_COLUMNS]
            constant(column)
            constant(weight)
            same &= amount(number, column, scored_place_of if at < half else place_of)
        if same:
            form.fill, form.more = itemgetter(*places), tuple(more)
            form.places = np.array(places)
        return form

    def _packed(self, numbers: Sequence[int] | None) -> bytes | None:
        if numbers is None or not numbers:
            return None if numbers is None else b""
        return self._numbers.pack(*numbers)

    def _line_of(self, info: PodInfo) -> list[int] | None:
        """Return the numbers of a class's key in ``Lines`` after the sheet's number.

        ``None``: too many resources, or too large amounts. Empty if a resource has just become
        known: the caller must begin again.
        """
        fit = self._profile.fit
        assert fit is not None
        checks = fit.request_checks(info, self._snapshot)
        if len(checks) > CHECKS:
            return None
        scored = self._scored(info)
        nonzero = (info.nonzero_cpu, info.nonzero_memory)
        vector = self._snapshot.request_vector(info).tolist()
        amounts = (*nonzero, *vector, *scored[AMOUNT::SCORED_COLUMNS])
        if min(amounts) < 0 or max(amounts) >= _LARGEST_AMOUNT:
            return None
        if len(vector) != self._lines.width:
            return []
        padding = _PADDING[len(checks) :]
        return [
            *nonzero,
            *[amount for amount, _ in checks], *padding,
            *[column for _, column in checks], *padding,
            *vector,
            *scored,
        ]  # fmt: skip

    def _scored(self, info: PodInfo) -> list[int]:
        """Return ``Lines.scored`` for a class, flat: what NodeResourcesFit and balance score."""
        profile, snapshot = self._profile, self._snapshot
        found = [] if profile.least is None else profile.least[0].scored(info, snapshot)
        half = self._lines.scored_count * SCORED_COLUMNS
        if len(found) < half:
            found += _NO_RESOURCE * ((half - len(found)) // SCORED_COLUMNS)
        if profile.balanced is not None:
            found += profile.balanced[0].balanced(info, snapshot)
        if len(found) < 2 * half:
            found += _NO_RESOURCE * ((2 * half - len(found)) // SCORED_COLUMNS)
        return found


def _amounts_of(info: PodInfo) -> tuple[int, ...]:
    """Return all amounts of a class: cpu and memory with defaults, requests, what is scored."""
    return (
        info.nonzero_cpu,
        info.nonzero_memory,
        *info.requests.values(),
        *info.scored_requests.values(),
    )

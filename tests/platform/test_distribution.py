"""Which worker of a parallel run takes which tests, and which variants of a test are repeated."""

from pathlib import Path

import pytest

from tests import distribution
from tests.distribution import OF_SHARED, SHARED, WAITING, Together, begins_waiting, chosen, some

ROOT = Path(distribution.__file__).parent.parent


@pytest.mark.parametrize(
    ("test", "unit"),
    [
        ("tests/kubectl/test_table.py::test_a[x::y]", SHARED),
        ("tests/api/test_watch.py::test_a", SHARED),
        ("tests/api/test_crud.py::test_a", "tests/api/test_crud.py"),
    ],
)
def test_the_files_of_the_shared_service_are_handed_out_together(test: str, unit: str) -> None:
    assert Together.__new__(Together)._split_scope(test) == unit


def test_every_file_of_the_shared_service_and_every_folder_that_waits_is_there() -> None:
    places = {*OF_SHARED, *WAITING} - {SHARED}
    assert [place for place in places if not (ROOT / place).exists()] == []


@pytest.mark.parametrize(("count", "waiting"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_half_of_the_workers_or_one_more_begin_with_what_waits(count: int, waiting: int) -> None:
    begin = [begins_waiting(f"gw{number}", count) for number in range(count)]
    assert begin == [True] * waiting + [False] * (count - waiting)


@pytest.mark.parametrize(
    ("units", "waits", "unit"),
    [
        (["tests/api/test_a.py", "tests/faults/test_b.py", SHARED], True, "tests/faults/test_b.py"),
        ([SHARED, "tests/api/test_a.py"], False, "tests/api/test_a.py"),
        (["tests/api/test_a.py", "tests/api/test_b.py"], True, "tests/api/test_a.py"),
        ([SHARED], False, SHARED),
    ],
)
def test_who_has_none_of_its_kind_left_takes_the_others(
    units: list[str], waits: bool, unit: str
) -> None:
    assert chosen(units, waits=waits) == unit


@pytest.mark.parametrize(
    ("count", "most", "places"),
    [(1, 3, {0}), (3, 3, {0, 1, 2}), (4, 3, {0, 2, 3}), (45, 3, {0, 22, 44}), (9, 1, {0})],
)
def test_the_first_the_last_and_those_in_the_middle_are_repeated(
    count: int, most: int, places: set[int]
) -> None:
    assert some(count, most) == places

"""Which worker of a parallel run takes which tests, and which variants of a test are repeated."""

from pathlib import Path

import pytest

from tests import distribution
from tests.distribution import OF_SHARED, SHARED, Together, some

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


def test_every_file_of_the_shared_service_is_there() -> None:
    assert [place for place in OF_SHARED if not (ROOT / place).exists()] == []


@pytest.mark.parametrize(
    ("count", "most", "places"),
    [(1, 3, {0}), (3, 3, {0, 1, 2}), (4, 3, {0, 2, 3}), (45, 3, {0, 22, 44}), (9, 1, {0})],
)
def test_the_first_the_last_and_those_in_the_middle_are_repeated(
    count: int, most: int, places: set[int]
) -> None:
    assert some(count, most) == places

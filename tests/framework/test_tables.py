"""Counters say the same whether few rows have a count or many."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.framework.tables import Counter, LabelColumn
from tests.forms import many

ROWS = 64

bumps = st.tuples(st.lists(st.integers(0, ROWS - 1), max_size=20), st.integers(-2, 3))


@settings(max_examples=many(30, 300), deadline=None)
@given(st.lists(bumps, max_size=12), st.integers(0, 12), st.booleans())
def test_a_counter_counts_as_a_column_would(
    happenings: list[tuple[list[int], int]], asked_after: int, read_first: bool
) -> None:
    column = LabelColumn("rack", ROWS)
    column.set_all(range(ROWS), [None if row % 5 == 0 else f"r{row % 3}" for row in range(ROWS)])
    counter = Counter("pods", lambda info: 1, live_only=False, capacity=ROWS)
    table = counter.table(column, 1)
    if read_first:
        assert not table.counts.any()
    expected = np.zeros(ROWS, np.int64)
    for number, (rows, weight) in enumerate(happenings):
        if number == asked_after:
            assert counter.rows.tolist() == expected.tolist()
        if len(rows) == 1:
            counter.bump(rows[0], weight)
        else:
            counter.bump_all(np.array(rows, np.int32), weight)
        np.add.at(expected, rows, weight)
        busy, counts = counter.busy()
        assert busy.tolist() == np.flatnonzero(expected).tolist()
        assert counts.tolist() == expected[busy].tolist()
        by_value = [int(expected[column.ids == value].sum()) for value in range(3)]
        assert table.counts.tolist() == by_value
    assert counter.total == expected.sum()
    assert counter.rows.tolist() == expected.tolist()


def test_few_pods_take_no_column_and_many_do() -> None:
    counter = Counter("pods", lambda info: 1, live_only=False, capacity=ROWS)
    counter.bump_all(np.array([1, 2, 2], np.int32), 1)
    assert counter._rows is None
    counter.bump_all(np.arange(ROWS, dtype=np.int32), 1)
    assert counter._rows is not None
    counter.grow(2 * ROWS)
    assert counter.rows.tolist() == [1, 2, 3, *[1] * (ROWS - 3), *[0] * ROWS]

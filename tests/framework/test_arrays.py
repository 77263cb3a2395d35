"""Numbering the values of an array, beside NumPy's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.framework.arrays import first_places, numbered, numbered_together


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@given(st.data())
def test_values_are_numbered_as_numpy_does(
    dtype: type[np.int32 | np.int64], data: st.DataObject
) -> None:
    high = data.draw(st.sampled_from((0, 3, 65_535, 65_536, np.iinfo(dtype).max)))
    low = data.draw(st.sampled_from((0, -1, np.iinfo(dtype).min)))
    values = np.array(data.draw(st.lists(st.integers(low, high), max_size=30)), dtype)
    found, places = numbered(values)
    expected, expected_places = np.unique(values, return_inverse=True)
    assert found.tolist() == expected.tolist()
    assert places.tolist() == expected_places.tolist()
    assert found.dtype == places.dtype == np.int64


@given(
    st.integers(0, 40).flatmap(
        lambda count: st.lists(
            st.lists(st.sampled_from([-7, -1, 0, 1, 2, 200_000]), min_size=count, max_size=count),
            min_size=1,
            max_size=4,
        )
    )
)
def test_columns_are_numbered_as_numpy_does(lines: list[list[int]]) -> None:
    table = np.array(lines, np.int64)
    numbers, count = numbered_together(table, table.shape[1])
    kinds, places = np.unique(table, axis=1, return_inverse=True)
    assert count == kinds.shape[1]
    assert numbers.tolist() == places.ravel().tolist()
    first = first_places(numbers, count)
    assert table[:, first].tolist() == kinds.tolist()
    assert first.tolist() == [numbers.tolist().index(number) for number in range(count)]

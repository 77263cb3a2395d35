"""Numbering the values of an array, beside NumPy's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.framework.arrays import numbered


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

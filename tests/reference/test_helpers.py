"""The small rules that plugins share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import helpers

SCORES = st.lists(st.integers(0, 10**6), min_size=1, max_size=8)


@given(SCORES, st.booleans())
def test_normalised_scores_stay_in_range_and_keep_their_order(scores, reverse):
    """R158, C19."""
    result = helpers.default_normalize(scores, 100, reverse=reverse)
    assert all(0 <= score <= 100 for score in result)
    pairs = sorted(zip(scores, result, strict=True), reverse=reverse)
    assert [r for _, r in pairs] == sorted(result)
    if max(scores) > 0 and not reverse:
        assert max(result) == 100


def test_scores_that_are_all_zero_are_not_divided():
    assert helpers.default_normalize([0, 0], 100, reverse=False) == [0, 0]
    assert helpers.default_normalize([0, 0], 100, reverse=True) == [100, 100]


@pytest.mark.parametrize(
    ("points", "x", "expected"),
    [
        pytest.param([(0, 0), (100, 10)], 75, 7, id="R109-foo"),
        pytest.param([(0, 0), (100, 10)], 37, 3, id="R109-cpu"),
        pytest.param([(0, 0), (100, 10)], 50, 5, id="R110-foo"),
        pytest.param([(0, 10), (100, 0)], 25, 8, id="R105-least-requested"),
        pytest.param([(20, 3), (60, 9)], 0, 3, id="left-of-all"),
        pytest.param([(20, 3), (60, 9)], 99, 9, id="right-of-all"),
    ],
)
def test_the_shape_function(points, x, expected):
    assert helpers.broken_linear(points, x) == expected


PORTS = st.tuples(
    st.sampled_from(["", "0.0.0.0", "127.0.0.1", "10.0.0.1"]),
    st.sampled_from(["", "TCP", "UDP"]),
    st.integers(0, 2),
)


@given(PORTS, PORTS)
def test_host_port_conflicts_are_mutual(one, other):
    assert helpers.host_port_conflict([one], other) == helpers.host_port_conflict([other], one)
    assert helpers.host_port_conflict([one], one) == (one[2] > 0)

"""Bounds that are a number or a percentage."""

import pytest

from clusterstate.objects.values.int_or_percent import is_zero, percent_of, scaled


@pytest.mark.parametrize(
    ("value", "total", "up", "down"),
    [
        (3, 100, 3, 3), (None, 100, 0, 0), (0, 5, 0, 0), ("10%", 5, 1, 0), ("33%", 10, 4, 3),
        ("0%", 9, 0, 0), ("100%", 7, 7, 7), ("250%", 2, 5, 5), ("29%", 100, 29, 29),
    ],
)  # fmt: skip
def test_a_percentage_is_rounded_as_asked(value, total, up, down):
    assert scaled(value, total, round_up=True) == up
    assert scaled(value, total, round_up=False) == down


@pytest.mark.parametrize(
    "value", ["", "%", "10", "-1%", "1.5%", "many", "²%", "9" * 5000 + "%", []]
)
def test_what_is_no_percentage_is_refused_however_long_it_is(value):
    with pytest.raises(ValueError, match=r"percentage|digits"):
        scaled(value, 10, round_up=True)


def test_the_longest_percentage_is_read():
    assert percent_of("9" * 18 + "%") == 10**18 - 1
    with pytest.raises(ValueError, match="more than 18 digits"):
        percent_of("0" * 19 + "%")


@pytest.mark.parametrize("value", [None, 0, "0%", "000%", "many"])
def test_nothing_is_zero(value):
    assert is_zero(value)


@pytest.mark.parametrize("value", [1, -1, "1%", "9" * 19 + "%"])
def test_something_is_not_zero(value):
    assert not is_zero(value)

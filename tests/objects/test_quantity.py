"""Quantities: exact arithmetic, Kubernetes' texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.values import quantity
from clusterstate.objects.values.quantity import (
    BINARY_SI,
    DECIMAL_EXPONENT,
    DECIMAL_SI,
    MAX_INT64,
    Quantity,
    QuantityError,
)

FORMATS = st.sampled_from([DECIMAL_SI, BINARY_SI, DECIMAL_EXPONENT])
QUANTITIES = st.builds(Quantity, st.integers(-(10**30), 10**30), FORMATS)
TEXTS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "+", "-"]),
    st.one_of(
        st.integers(0, 10**21).map(str),
        st.decimals(0, 10**12, places=6, allow_nan=False).map(lambda d: f"{d:f}"),
    ),
    st.sampled_from(
        [
            "",
            "n",
            "u",
            "m",
            "k",
            "M",
            "G",
            "T",
            "P",
            "E",
            "Ki",
            "Mi",
            "Gi",
            "Ti",
            "e3",
            "E-2",
            "e+1",
        ]
    ),
)


@pytest.mark.parametrize(
    ("text", "canonical", "value", "milli"),
    [
        ("500m", "500m", 1, 500),
        ("1.5", "1500m", 2, 1500),
        ("1.5Gi", "1536Mi", 1610612736, 1610612736000),
        ("1000m", "1", 1, 1000),
        ("0.1m", "100u", 1, 1),
        ("-1.2", "-1200m", -2, -1200),
        ("1e3", "1e3", 1000, 1000000),
        ("0", "0", 0, 0),
        ("1024", "1024", 1024, 1024000),
        ("0.5Ki", "512", 512, 512000),
        ("9Ei", "9223372036854775807", MAX_INT64, MAX_INT64 * 1000),
        ("2000M", "2G", 2 * 10**9, 2 * 10**12),
        ("1000E", "1e21", 10**21, 10**24),
        ("1500E", "1500E", 1500 * 10**18, 1500 * 10**21),
        ("00012", "12", 12, 12000),
        ("0.0000000001", "1n", 1, 1),
    ],
)
def test_text_value_and_thousandths(text, canonical, value, milli):
    found = Quantity.parse(text)
    assert (str(found), found.value(), found.milli_value()) == (canonical, value, milli)


def test_a_number_beyond_all_suffixes_is_written_without_loss():
    """apimachinery ``CanonicalizeBytes``, v1.38 (#140459); 1024Ei would be read as 2^63-1."""
    assert str(Quantity.parse("1Ei").mul(1024)) == str(2**70)
    assert str(Quantity.parse("1Ei").mul(1536)) == "1536Ei"


@pytest.mark.parametrize("number", [(2, "2"), (0.5, "500m"), (1e22, "10e21"), (0, "0")])
def test_json_numbers_are_quantities(number):
    assert str(Quantity.parse(number[0])) == number[1]


NO_QUANTITIES = [
    *("", "x", "1 ", " 1", "1Gi ", "1\n", "1_000", "\uff11", "1K", "1ki", "1+1", "1.1.1", "--1"),
    *("NaN", "inf", "0x10", "1i", "1e", "1e-", "1e99999", "1e-99999", "9" * 5000),
    *(True, None, [1]),
]


@pytest.mark.parametrize("text", NO_QUANTITIES)
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(QuantityError):
        Quantity.parse(text)


@pytest.mark.parametrize("text", ["+", "-", ".", "M", "Ki", "+.", "00.00"])
def test_empty_digits_are_zero_as_in_kubernetes(text):
    assert Quantity.parse(text).nano == 0


@given(QUANTITIES)
def test_the_canonical_text_reads_back_as_the_same_number(q):
    text = str(q)
    if q.format == BINARY_SI and abs(q.value()) > MAX_INT64:
        return  # binary texts are capped when they are read
    again = Quantity.parse(text)
    assert again == q
    assert str(again) == text


@given(TEXTS)
def test_parsing_then_writing_is_stable(text):
    q = Quantity.parse(text)
    assert str(Quantity.parse(str(q))) == str(q)


@given(QUANTITIES, QUANTITIES)
def test_adding_and_taking_away_changes_nothing(a, b):
    assert a.add(b).sub(b) == a
    assert a.sub(b).add(b) == a
    assert a.add(b) == b.add(a)


@given(QUANTITIES, QUANTITIES)
def test_comparison_is_the_sign_of_the_difference(a, b):
    assert a.cmp(b) == a.sub(b).sign == -b.cmp(a)
    assert (a < b, a == b, a > b) == (a.cmp(b) < 0, a.cmp(b) == 0, a.cmp(b) > 0)
    if a == b:
        assert hash(a) == hash(b)


@given(QUANTITIES, st.integers(-9, 12))
def test_rounding_goes_away_from_zero_and_is_the_nearest_multiple(q, scale):
    rounded, exact = q.round_up(scale)
    assert abs(rounded.unscaled) >= 0
    assert abs(rounded.sub(q).nano) < 10 ** (scale + 9)
    assert rounded.sign == q.sign
    assert exact == (rounded == q)
    assert q.scaled_value(scale) == rounded.scaled_value(scale)


@given(QUANTITIES, st.integers(-1000, 1000))
def test_multiplying_is_repeated_addition(q, by):
    assert q.mul(by).add(q) == q.mul(by + 1)


@given(TEXTS)
def test_the_fast_helpers_agree_within_int64(text):
    q = Quantity.parse(text)
    assert quantity.value(text) == max(min(q.value(), 2**63 - 1), -(2**63))
    assert quantity.milli_value(text) == max(min(q.milli_value(), 2**63 - 1), -(2**63))


def test_equal_numbers_are_not_unequal():
    one, sum_of_halves = Quantity.parse("1"), Quantity.parse("500m").add(Quantity.parse("0.5"))
    assert one == sum_of_halves == Quantity.parse("1000m")
    assert not one != sum_of_halves  # noqa: SIM202  # each operator has its own method
    assert one != Quantity.parse("1001m")
    assert one != "1"

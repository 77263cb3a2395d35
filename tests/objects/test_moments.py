"""Sums of moments and seconds never fail: beyond the last date means never."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clusterstate.objects.values import moments
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.moments import FIRST, NEVER

ZONES = st.integers(-24 * 60 + 1, 24 * 60 - 1).map(lambda m: timezone(timedelta(minutes=m)))
MOMENTS = st.builds(lambda at, zone: at.replace(tzinfo=zone), st.datetimes(), ZONES)
SECONDS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))


@given(MOMENTS, SECONDS)
@example(NEVER, 1)
@example(FIRST, -1)
@example(datetime.max.replace(tzinfo=UTC), 0)
@example(datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))), -3600)
def test_a_sum_is_a_date_that_can_be_written_and_read(at: datetime, seconds: float) -> None:
    found = moments.after(at, seconds)
    assert FIRST <= found <= NEVER
    assert moments.parse(format_time(found)) == found.replace(microsecond=0)


@given(st.integers(1900, 2900).map(lambda year: datetime(year, 2, 28, 23, tzinfo=UTC)), SECONDS)
def test_where_there_are_dates_the_sum_is_exact(at: datetime, seconds: float) -> None:
    if abs(seconds) > 1e12:
        assert moments.after(at, seconds) == (NEVER if seconds > 0 else FIRST)
    elif abs(seconds) < 1e10:
        assert moments.after(at, seconds) == at + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("9999-12-31T23:59:59Z", NEVER),
        ("9999-12-31T23:59:59.999999999Z", NEVER),
        ("9999-12-31T23:59:59-14:00", NEVER),
        ("0001-01-01T00:00:00Z", FIRST),
        ("0001-01-01T00:00:00+14:00", FIRST),
        ("0000-02-29T00:00:00Z", FIRST),
        ("2028-02-29T23:59:59+23:59", datetime(2028, 2, 29, 0, 0, 59, tzinfo=UTC)),
    ],
)
def test_every_date_of_kubernetes_is_read(text: str, moment: datetime) -> None:
    assert moments.parse(text) == moment


@pytest.mark.parametrize("text", ["2027-02-29T00:00:00Z", "2027-01-01", "0000-13-01T00:00:00Z", ""])
def test_what_is_no_date_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        moments.parse(text)

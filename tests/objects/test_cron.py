"""When schedules come round, as robfig/cron v3 reads them."""

from datetime import UTC, datetime

import pytest

from clusterstate.objects.values.cron import Schedule


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "moment", "following"),
    [
        ("*/15 * * * *", "2026-03-01T10:00:00", "2026-03-01T10:15:00"),
        ("*/15 * * * *", "2026-03-01T10:59:59", "2026-03-01T11:00:00"),
        ("0 3 * * *", "2026-03-01T03:00:00", "2026-03-02T03:00:00"),
        ("5/20 1 * * *", "2026-03-01T01:06:00", "2026-03-01T01:25:00"),
        ("0 0 1 jan *", "2026-03-01T00:00:00", "2027-01-01T00:00:00"),
        ("0 0 29 2 *", "2026-03-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 12 * * mon-fri", "2026-03-06T12:00:00", "2026-03-09T12:00:00"),  # from Friday on
        ("0 0 13 * fri", "2026-03-01T00:00:00", "2026-03-06T00:00:00"),  # either day will do
        ("0 0 */1 * fri", "2026-03-01T00:00:00", "2026-03-06T00:00:00"),
        ("0 0 */2 * fri", "2026-03-01T00:00:00", "2026-03-03T00:00:00"),  # a step restricts
        ("@weekly", "2026-03-02T00:00:00", "2026-03-08T00:00:00"),
        ("@every 1h30m", "2026-03-01T00:00:00", "2026-03-01T01:30:00"),
    ],
)
def test_the_next_time(schedule, moment, following):
    assert Schedule(schedule).after(at(moment)) == at(following)


def test_a_day_that_does_not_exist_never_comes():
    assert Schedule("0 0 30 2 *").after(at("2026-03-01T00:00:00")) is None
    assert (
        Schedule("0 0 30 2 *").latest(at("2026-03-01T00:00:00"), at("2026-03-02T00:00:00")) is None
    )


@pytest.mark.parametrize("zone", [None, "Pacific/Kiritimati", "Pacific/Niue"])
@pytest.mark.parametrize("schedule", ["* * * * *", "0 0 30 2 *", "@yearly"])
def test_the_ends_of_the_calendar_are_moments_like_others(schedule, zone):
    first, last = at("0001-01-01T00:00:00"), at("9999-12-31T23:59:59")
    now = at("2026-03-01T12:00:30")
    one = Schedule(schedule, zone)
    assert one.after(last) is None
    assert one.latest(last, now) is None
    assert one.latest(first, now) == one.latest(at("2020-01-01T00:00:00"), now)


def test_a_pause_that_no_clock_outlives_never_ends():
    endless = Schedule("@every 99999999999999999999h99999999h")
    assert endless.after(at("9990-01-01T00:00:00")) is None
    assert endless.latest(at("2026-03-01T00:00:00"), at("2226-03-01T00:00:00")) is None


def test_a_zone_moves_the_day_and_its_summer_time_the_hour():
    daily = Schedule("30 2 * * *", "Europe/Berlin")
    assert daily.after(at("2026-03-27T12:00:00")) == at("2026-03-28T01:30:00")
    # On the 29th of March the clock goes from 2 to 3: that day has no half past two.
    assert daily.after(at("2026-03-28T02:00:00")) == at("2026-03-30T00:30:00")
    # On the 25th of October it comes twice.
    first = daily.after(at("2026-10-24T12:00:00"))
    assert first == at("2026-10-25T00:30:00")
    assert daily.after(first) == at("2026-10-25T01:30:00")


@pytest.mark.parametrize("schedule", ["* * * * *", "7 */3 * * *", "0 0 1 * *", "@every 7m"])
def test_the_last_time_is_the_last_of_all_next_times(schedule):
    found = Schedule(schedule)
    start, now = at("2026-03-01T00:00:10"), at("2026-03-03T05:06:07")
    last, following = None, found.after(start)
    while following <= now:
        last, following = following, found.after(following)
    assert found.latest(start, now) == last

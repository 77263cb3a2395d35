"""A trouble that lasts is told when it begins, each minute, and when it is over."""

from types import SimpleNamespace

import pytest
from django.db import OperationalError

from clusterstate.telemetry.troubles import QUIET_SECONDS, Trouble, reason_of

AWAY, FULL = "the database is away", "the disk is full"


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(at=1000.0)


@pytest.fixture
def trouble(clock: SimpleNamespace) -> Trouble:
    return Trouble(now=lambda: clock.at)


def test_a_minute_of_tries_is_one_line_and_a_reminder(trouble, clock) -> None:
    told = []
    for _ in range(3 * int(QUIET_SECONDS)):
        told.append(trouble.note(AWAY))
        clock.at += 0.5
    half = 2 * int(QUIET_SECONDS)
    assert [(at, count) for at, count in enumerate(told) if count] == [(0, 1), (half, half)]
    assert trouble.over() == len(told)
    assert trouble.over() == 0


def test_another_reason_is_news_at_once_and_does_not_make_the_first_one_news(trouble) -> None:
    assert [trouble.note(one) for one in (AWAY, FULL, AWAY, FULL)] == [1, 1, 0, 0]


def test_what_begins_again_after_its_end_is_news(trouble, clock) -> None:
    assert [trouble.note(AWAY), trouble.note(AWAY), trouble.over()] == [1, 0, 2]
    clock.at += 1.0
    assert trouble.note(AWAY) == 1


def test_interruptions_that_come_again_and_again_are_told_once_a_minute(trouble, clock) -> None:
    """As where sessions are ended every two seconds: the work goes on after each."""
    lines = []
    for _ in range(60):
        lines += [trouble.note(AWAY), trouble.over()]
        clock.at += 2.0
    assert [one for one in lines if one] == [1, 30]


def test_reasons_without_end_take_no_memory_without_end(trouble) -> None:
    for number in range(1000):
        assert trouble.note(f"reason {number}") == 1
    assert len(trouble._logged_at) < 100
    assert len(trouble._unlogged) < 100


def test_a_reason_is_the_first_line_of_an_error_or_its_kind() -> None:
    assert reason_of(OperationalError("lock timeout\nLINE 1: SELECT 1\n ^")) == "lock timeout"
    assert reason_of(TimeoutError()) == "TimeoutError"

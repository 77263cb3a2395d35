"""The tour and the twelve questions, small, each on a whole service of its own."""

import pytest

from tests import faults
from tests.browser.conftest import CHROMIUM, DRIVER, NONE_HERE
from tests.drills.questions import questions
from tests.drills.tour import tour
from tests.drills.weather import weather

pytestmark = [
    *faults.MARKS,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=NONE_HERE),
]


def test_everything_is_found_seen_and_done_in_few_clicks() -> None:
    """A full node is drained, a waiting group freed, a brake approved, the past and audit read.

    That nothing is asked of another host and the browser has no complaint is checked by the tour.
    """
    found = tour(nodes=12, pods=40, minutes=0, keys=False, kubectl=False, say=print)
    assert found["mouse"]["tasks"][-1]["clicks"] <= 25


@pytest.mark.long
def test_twelve_questions_of_operators_are_answered_by_clicks() -> None:
    """None of them ends at a page with an error or without the answer."""
    found = questions(nodes=12, pods=40, say=print)
    *tasks, whole = found["console"]["tasks"]
    assert len(tasks) == 13, "signing in, and twelve questions"
    assert whole["clicks"] <= 70
    assert len(found["kubectl"]["tasks"]) == 13, "twelve questions, and their sum"


@pytest.mark.long
def test_every_page_in_bad_weather_is_readable_and_tells_of_it() -> None:
    """The drill ends where axe finds something serious, or a page of good weather has an error."""
    found = weather(nodes=12, pods=40, waiting=60, say=print)
    assert set(found["pages"]) >= {"fleet", "waiting", "why", "pod-group", "change"}

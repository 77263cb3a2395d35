"""The tour of the console, small, on a whole service of its own."""

import pytest

from tests import faults
from tests.browser.conftest import CHROMIUM, DRIVER, NONE_HERE
from tests.drills.tour import tour

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

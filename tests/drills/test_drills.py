"""The drills, small; each audits the change log and fails by itself."""

from collections.abc import Callable

import pytest

from tests import faults
from tests.drills import drills

pytestmark = [*faults.MARKS, pytest.mark.long]


@pytest.fixture
def say() -> Callable[[str], None]:
    return print


def test_pods_of_lost_nodes_leave_once_though_controllers_are_killed(
    say: Callable[[str], None],
) -> None:
    """R126-R129, R136."""
    found = drills.outage(nodes=12, pods=60, lost=2, rate=1, grace=12, say=say)
    assert found["evicted"] == found["replacements"] > 0
    assert found["lost_nodes"] == 2


def test_a_label_change_evicts_whom_the_dry_run_foretold(say: Callable[[str], None]) -> None:
    """R2, R3, R80."""
    found = drills.relabel(nodes=8, relabelled=2, pods=40, rate=10, say=say, percent=12)
    assert found["evicted"] == found["foretold_by_dry_run"] > 0
    assert found["landing_known"]["sampled"] > 0


def test_timers_outlive_redis_workers_and_beat(say: Callable[[str], None]) -> None:
    """R122, R123: nothing lost, nothing twice, nothing early."""
    found = drills.faults(nodes=6, pods=60, say=say, seconds=18)
    assert found["evicted"] == 60

"""An everyday cluster, small: statuses, endpoints and the quota agree with the pods."""

import pytest

from tests import faults
from tests.drills.everyday import everyday

pytestmark = [*faults.MARKS, pytest.mark.long]


def test_every_kind_of_workload_on_nodes_that_are_lost_and_regained() -> None:
    """R132, R134: DaemonSets, a Deployment rolled and undone, a StatefulSet, a Job, a quota."""
    found = everyday(nodes=12, replicas=10, completions=8, lost=1, grace=10, say=print)
    assert found["pods"] == {"everywhere": 12, "one-zone": 4, "web": 10, "db": 5}
    assert found["completed"] >= 8

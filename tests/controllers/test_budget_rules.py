"""PodDisruptionBudgets: how many may go."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from clusterstate.objects.values.pod import Pod
from scheduling.controllers.budgets.rules import (
    Budget,
    budget_status,
)

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


def pod(name, ready=True, owner="rs", deleted=False, phase="Running", group=None):
    metadata = {"name": name, "namespace": "d"}
    if owner:
        metadata["ownerReferences"] = [
            {"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        ]
    if deleted:
        metadata["deletionTimestamp"] = T0.isoformat()
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    spec = {"schedulingGroup": {"podGroupName": group}} if group else {}
    return msgspec.convert(
        {"metadata": metadata, "spec": spec, "status": {"phase": phase, "conditions": conditions}},
        Pod,
    )


def pods(ready, unready=0, owner="rs"):
    return [pod(f"{owner}{i}", i < ready, owner) for i in range(ready + unready)]


SCALES = {"rs": 10, "other": 5}


def status(budget, given, disrupted=None, scales=None, now=T0, groups=None):
    found = SCALES if scales is None else scales
    return budget_status(
        budget,
        given,
        scale_of=lambda owner: found.get(owner.name),
        disrupted_pods=disrupted or {},
        now=now,
        groups=groups,
    )


def numbers(found):
    return (
        found.expected_pods,
        found.desired_healthy,
        found.current_healthy,
        found.disruptions_allowed,
    )


@pytest.mark.parametrize(
    ("budget", "ready", "unready", "expected"),
    [
        (Budget(min_available=8), 10, 0, (10, 8, 10, 2)),
        (Budget(min_available=8), 7, 0, (7, 8, 7, 0)),
        (Budget(min_available="25%"), 10, 0, (10, 3, 10, 7)),  # rounded up
        (Budget(min_available="100%"), 10, 0, (10, 10, 10, 0)),
        (Budget(max_unavailable=1), 10, 0, (10, 9, 10, 1)),
        (Budget(max_unavailable=1), 8, 2, (10, 9, 8, 0)),
        (Budget(max_unavailable="25%"), 10, 0, (10, 7, 10, 3)),  # rounded up
        (Budget(max_unavailable="0%"), 10, 0, (10, 10, 10, 0)),
        (Budget(max_unavailable=20), 3, 0, (10, 0, 3, 3)),
        (Budget(max_unavailable=1), 0, 0, (0, 0, 0, 0)),
        (Budget(), 3, 0, (0, 0, 3, 0)),
    ],
)
def test_the_numbers_of_a_budget(budget, ready, unready, expected):
    assert numbers(status(budget, pods(ready, unready))) == expected


def test_scales_of_several_owners_add_up():
    given = [*pods(10), *pods(5, owner="other")]
    assert numbers(status(Budget(max_unavailable="20%"), given)) == (15, 12, 15, 3)


def test_pods_without_a_controller_do_not_count_for_percentages():
    given = [*pods(10), pod("alone", owner=None)]
    assert numbers(status(Budget(min_available="50%"), given)) == (10, 5, 11, 6)
    assert numbers(status(Budget(min_available=5), given)) == (11, 5, 11, 6)


def test_an_unknown_scale_allows_nothing():
    found = status(Budget(max_unavailable=1), pods(2), scales={})
    assert found.disruptions_allowed == 0
    assert found.condition == ("False", "SyncFailed")


def test_pods_on_their_way_out_are_not_healthy():
    given = [*pods(9), pod("leaving", deleted=True)]
    assert numbers(status(Budget(min_available=8), given)) == (10, 8, 9, 1)


def test_an_evicted_pod_is_gone_for_two_minutes_and_then_back():
    given = pods(10)
    disrupted = {"rs0": T0, "rs1": T0 - timedelta(seconds=120), "gone": T0}
    found = status(Budget(min_available=5), given, disrupted)
    assert found.disrupted_pods == {"rs0": T0}
    assert found.current_healthy == 9
    assert found.recheck_at == T0 + timedelta(minutes=2)
    assert status(Budget(min_available=5), given).recheck_at is None


def test_the_condition_tells_whether_pods_suffice():
    assert status(Budget(min_available=8), pods(10)).condition == ("True", "SufficientPods")
    assert status(Budget(min_available=10), pods(10)).condition == ("False", "InsufficientPods")


def test_text_that_is_no_percentage_fails():
    assert status(Budget(min_available="many"), pods(2)).condition[1] == "SyncFailed"


@pytest.mark.parametrize(
    ("budget", "ready", "expected"),
    [
        # A gang of three, one of two that has three pods, and a pod of its own.
        (Budget(max_unavailable=1), (3, 3), (3, 2, 3, 1)),
        (Budget(max_unavailable=1), (3, 2), (3, 2, 3, 1)),
        (Budget(max_unavailable=1), (2, 3), (3, 2, 2, 0)),
        (Budget(max_unavailable="50%"), (3, 3), (3, 1, 3, 2)),  # rounded up
        (Budget(min_available=1), (2, 2), (3, 1, 2, 1)),
        (Budget(min_available="100%"), (3, 3), (3, 3, 3, 0)),
    ],
)
def test_the_numbers_of_a_budget_that_counts_groups(budget, ready, expected):
    given = [pod("alone"), pod("done", owner=None, phase="Succeeded", group="finished")]
    for name, count in zip("ab", ready, strict=True):
        given += [pod(f"{name}{n}", n < count, None, group=name) for n in range(3)]
    groups = {"a": 3, "b": 2, "finished": 1}
    assert numbers(status(budget, given, groups=groups)) == expected

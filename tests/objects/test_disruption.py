"""What an eviction takes from a PodDisruptionBudget, and when the budget refuses."""

from datetime import UTC, datetime

import pytest

from clusterstate.objects.rules.disruption import charge, is_exempt
from clusterstate.objects.values.errors import Forbidden, TooManyRequests

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPENT = {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2}
LEFT = {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2}
SHORT = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2}


def budget(status, policy=None, generation=1, observed=1):
    spec = {} if policy is None else {"unhealthyPodEvictionPolicy": policy}
    return {
        "metadata": {"name": "b", "generation": generation},
        "spec": spec,
        "status": {"observedGeneration": observed, **status},
    }


def refusal(of):
    with pytest.raises(TooManyRequests) as caught:
        charge(of, "a", now=T0)
    assert str(caught.value) == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = caught.value.details["causes"]
    assert cause["reason"] == "DisruptionBudget"
    return cause["message"], caught.value.details.get("retryAfterSeconds")


def test_an_eviction_takes_one_disruption_and_notes_the_pod():
    before = budget(LEFT)
    status = charge(before, "a", now=T0)["status"]
    assert status["disruptionsAllowed"] == 0
    assert status["disruptedPods"] == {"a": "2026-03-01T12:00:00Z"}
    assert status["currentHealthy"] == 3
    assert before == budget(LEFT)


@pytest.mark.parametrize(("unconfirmed", "refused"), [(1999, False), (2000, False), (2001, True)])
def test_a_budget_takes_no_more_evictions_than_somebody_confirms(unconfirmed, refused):
    """Rule: MaxDisruptedPodSize of eviction.go, v1.36: beyond 2,000 that still wait, 403."""
    pods = {f"p{number}": "2026-03-01T11:59:00Z" for number in range(unconfirmed)}
    full = budget({**LEFT, "disruptedPods": pods})
    if not refused:
        assert len(charge(full, "a", now=T0)["status"]["disruptedPods"]) == unconfirmed + 1
        return
    with pytest.raises(Forbidden, match="DisruptedPods map too big"):
        charge(full, "a", now=T0)


def test_a_spent_budget_says_not_now_and_why():
    said = "The disruption budget b needs 2 healthy pods and has 2 currently"
    assert refusal(budget(SPENT)) == (said, None)


def test_a_budget_that_was_edited_is_waited_for():
    said = "The disruption budget b is still being processed by the server."
    assert refusal(budget(LEFT, generation=2)) == (said, 10)


def test_a_budget_whose_status_could_not_be_computed_says_so():
    condition = {"type": "DisruptionAllowed", "reason": "SyncFailed", "message": "no scale"}
    message, _ = refusal(budget({"disruptionsAllowed": 0, "conditions": [condition]}))
    assert message.endswith(
        "does not allow evicting pods currently because it failed sync: no scale"
    )


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"disruptionsAllowed": -1}, "negative"),
        (
            {"disruptionsAllowed": 1, "disruptedPods": {f"p{i}": "x" for i in range(2001)}},
            "map too big",
        ),
    ],
)
def test_a_broken_status_forbids_evictions(status, why):
    with pytest.raises(Forbidden, match=why):
        charge(budget(status), "a", now=T0)


@pytest.mark.parametrize(
    ("policy", "status", "exempt"),
    [
        (None, SPENT, True),
        (None, SHORT, False),
        ("IfHealthyBudget", SHORT, False),
        ("AlwaysAllow", SHORT, True),
    ],
)
def test_a_pod_that_is_not_ready_goes_as_the_policy_says(policy, status, exempt):
    assert is_exempt(budget(status, policy), ready=False) is exempt
    assert not is_exempt(budget(status, policy), ready=True)

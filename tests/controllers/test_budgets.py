"""PodDisruptionBudgets: status kept current, evictions let through or answered with 429."""

import pytest

from clusterstate.actions import objects
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.pods.evict import evict_pod
from clusterstate.admission.validation import kinds
from clusterstate.change_log import changes
from clusterstate.objects.values.errors import TooManyRequests
from clusterstate.queries.evictions.eviction_timers import DURING_EXECUTION, waiting_timers
from clusterstate.queries.objects import get_manifest
from clusterstate.queries.pods import find_pod_id
from scheduling.controllers.budgets import statuses
from scheduling.controllers.evictions import timers
from scheduling.controllers.pods import deletion
from scheduling.controllers.workloads import follower
from scheduling.processes import landings
from tests.clock import moment
from tests.controllers.agents import pods
from tests.controllers.support import (
    NOW,
    after,
    evict,
    fire,
    make_node,
    make_owner,
    make_pod,
    pod,
    set_labels,
    taint,
    terminating,
)
from tests.controllers.test_node_lifecycle import beat
from tests.rows import count_timers

pytestmark = pytest.mark.django_db


def make_budget(name="pdb", **spec):
    manifest = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, **spec},
    }
    objects.create("PodDisruptionBudget", "default", manifest, now=NOW)


def make_ready(name, node="n1", **spec):
    make_pod(name, node, metadata={"labels": {"app": "a"}}, **spec)

    def change(manifest):
        status = {**manifest["status"], "phase": "Running"}
        status["conditions"] = [
            *status.get("conditions", ()),
            {"type": "Ready", "status": "True", "lastTransitionTime": moment()},
        ]
        return {**manifest, "status": status}

    objects.update("Pod", "default", name, change, subresource="status", now=NOW)


def status(name="pdb"):
    return get_manifest("PodDisruptionBudget", "default", name)["status"]


def test_the_status_follows_the_pods():
    make_node("n1")
    make_budget(minAvailable=1)
    statuses.follow(NOW)
    assert status()["expectedPods"] == 0
    make_ready("a")
    make_ready("b")
    make_ready("c")
    assert statuses.follow(NOW) == 1
    found = status()
    assert (found["currentHealthy"], found["desiredHealthy"], found["disruptionsAllowed"]) == (
        3, 1, 2,
    )  # fmt: skip
    assert found["observedGeneration"] == 1
    assert found["conditions"][0]["reason"] == "SufficientPods"
    assert statuses.follow(NOW) == 0


def test_evictions_spend_the_budget_and_then_are_refused():
    make_node("n1")
    make_budget(minAvailable=2)
    for name in "abc":
        make_ready(name)
    statuses.follow(NOW)
    evict_pod("default", "a", {}, now=NOW)
    with pytest.raises(TooManyRequests) as refused:
        evict_pod("default", "b", {}, now=NOW)
    assert "needs 2 healthy pods and has 3 currently" in str(refused.value.details)
    deletion.finish(after(31))
    assert pod("a") is None
    statuses.follow(after(1))
    assert "disruptedPods" not in status()
    with pytest.raises(TooManyRequests):
        evict_pod("default", "b", {}, now=NOW)


def test_pods_of_nodes_without_agents_are_available_for_workload_and_budget_alike():
    """Bound, they count for both, and an eviction is charged; with an agent they wait for it."""
    make_node("n1")
    make_budget(minAvailable=4)
    deployment = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 5,
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    objects.create("Deployment", "default", deployment, now=NOW)
    follower.follow(NOW)
    follower.follow(NOW)
    names = [one["metadata"]["name"] for one in pods()]
    assert len(names) == 5
    statuses.follow(NOW)
    assert status().get("currentHealthy", 0) == 0, "none is bound"
    evict_pod("default", names[4], {"dryRun": ["All"]}, now=NOW)
    for name in names:
        pod_id = find_pod_id("default", name)
        bind_pods([Binding(pod_id, "n1")], snapshot_revision=changes.watermark(), now=NOW)
    follower.follow(NOW)
    follower.follow(NOW)
    statuses.follow(NOW)
    found = get_manifest("Deployment", "default", "web")["status"]
    assert found["availableReplicas"] == status()["currentHealthy"] == 5
    assert status()["disruptionsAllowed"] == 1
    evict_pod("default", names[0], {}, now=NOW)
    with pytest.raises(TooManyRequests):
        evict_pod("default", names[1], {}, now=NOW)
    # A node with an agent: what it does not report is not healthy, and may go.
    beat("n1", 0)
    statuses.follow(after(1))
    set_labels("n1", wakes="nobody")
    objects.update(
        "Pod", "default", names[1],
        lambda m: {**m, "metadata": {**m["metadata"], "annotations": {"a": "b"}}}, now=after(1),
    )  # fmt: skip
    statuses.follow(after(1))
    follower.follow(after(1))
    assert status().get("currentHealthy", 0) == 0
    evict_pod("default", names[1], {}, now=after(1))


def test_a_percentage_counts_what_the_controller_wants():
    make_node("n1")
    make_budget(maxUnavailable="50%")
    make_owner("ReplicaSet", "rs", 2, app="a")
    uid = get_manifest("ReplicaSet", "default", "rs")["metadata"]["uid"]
    owner = {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": uid, "controller": True,
    }  # fmt: skip
    for name in "ab":
        make_pod(name, "n1", metadata={"labels": {"app": "a"}, "ownerReferences": [owner]})
    statuses.follow(NOW)
    assert status()["expectedPods"] == 2
    assert status()["desiredHealthy"] == 1


def during_execution(key, value):
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    field = "requiredDuringSchedulingRequiredDuringExecution"
    return {"nodeAffinity": {field: {"nodeSelectorTerms": terms}}}


def test_a_label_change_evicts_exactly_the_pods_whose_terms_break():
    """R3, R25, R30, R80: the controller evicts, since the terms must hold during execution."""
    make_node("n1", labels={"zone": "a", "disk": "ssd"})
    make_node("n2", labels={"zone": "a"})
    make_ready("in-zone", affinity=during_execution("zone", "a"))
    make_ready("on-disk", affinity=during_execution("disk", "ssd"))
    make_ready("other-node", "n2", affinity=during_execution("zone", "a"))
    make_ready("plain", nodeSelector={"zone": "a"})
    timers.follow(NOW)
    set_labels("n1", zone="b", disk="ssd")
    assert evict(0) == ["in-zone"]
    condition = pod("in-zone")["status"]["conditions"][-1]
    assert (condition["type"], condition["reason"]) == (
        "DisruptionTarget", "DeletionByNodeAffinity",
    )  # fmt: skip


def test_terms_that_are_ignored_during_execution_evict_nobody():
    """R4 (C4), R31, R79: a pod stays where its required terms ceased to match."""
    make_node("n1", labels={"zone": "a", "disk": "ssd"})
    terms = {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    ]}  # fmt: skip
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    make_ready("by-affinity", affinity={"nodeAffinity": {field: terms}})
    make_ready("by-selector", nodeSelector={"disk": "ssd"})
    timers.follow(NOW)
    set_labels("n1", zone="b")
    assert evict(1e6) == []
    assert count_timers() == 0


def test_a_label_that_comes_back_in_time_keeps_the_pod(settings):
    settings.REQUIRED_DURING_EXECUTION_GRACE_SECONDS = 60
    make_node("n1", labels={"zone": "a"})
    make_ready("p", affinity=during_execution("zone", "a"))
    timers.follow(NOW)
    set_labels("n1", zone="b")
    assert evict(59) == []
    assert waiting_timers()[0].cause == DURING_EXECUTION
    set_labels("n1", zone="a")
    assert evict(61) == []
    assert count_timers() == 0


def test_a_budget_holds_pods_back_and_the_timer_says_so():
    """R3: budgets are respected."""
    make_node("n1", labels={"zone": "a"})
    make_budget(minAvailable=1)
    for name in "ab":
        make_ready(name, affinity=during_execution("zone", "a"))
    statuses.follow(NOW)
    timers.follow(NOW)
    set_labels("n1", zone="b")
    assert len(evict(0)) == 1
    (left,) = waiting_timers()
    assert left.blocked_by == ("The disruption budget pdb needs 1 healthy pods and has 2 currently")
    assert left.due_at > NOW
    assert not terminating(left.name)


def test_a_pod_leaves_for_a_label_only_when_it_is_known_where_it_would_land(settings):
    """R3: with no rate limit either; where is nowhere, the timer says so and the pod leaves."""
    settings.REQUIRED_DURING_EXECUTION_RATE = 0
    make_node("n1", labels={"zone": "a"})
    make_node("n2", labels={"zone": "a"}, taints=[taint("kept", "NoSchedule")])
    make_ready("p", affinity=during_execution("zone", "a"))
    timers.follow(NOW)
    set_labels("n1", zone="b")
    timers.follow(after(1))
    assert fire(after(1)).evicted == []
    (timer,) = waiting_timers()
    assert timer.blocked_by == "where it would go is being worked out"
    assert timer.landing is None
    assert landings.foresee(after(1)) == 1
    (timer,) = waiting_timers()
    assert '"unschedulable"' in timer.landing
    assert timer.blocked_by == ""
    assert evict(1) == ["p"]


def test_nobody_waits_for_ever_for_an_answer():
    make_node("n1", labels={"zone": "a"})
    make_ready("p", affinity=during_execution("zone", "a"))
    timers.follow(NOW)
    set_labels("n1", zone="b")
    timers.follow(NOW)
    fired = [len(fire(after(seconds)).evicted) for seconds in (0, 1, 5, 14, 16)]
    assert fired == [0, 0, 0, 0, 1]


def test_the_rate_limit_gives_each_its_turn(settings):
    settings.REQUIRED_DURING_EXECUTION_RATE = 2
    make_node("n1", labels={"zone": "a"})
    for number in range(6):
        make_ready(f"p{number}", affinity=during_execution("zone", "a"))
    timers.follow(NOW)
    set_labels("n1", zone="b")
    assert len(evict(0)) == 2
    turns = sorted((timer.due_at - NOW).total_seconds() for timer in waiting_timers())
    assert turns == [0.5, 1.0, 1.5, 2.0]
    assert [len(evict(moment)) for moment in (0.25, 0.5, 1, 1.5, 2)] == [0, 1, 1, 1, 1]
    assert count_timers() == 0


def test_a_budget_whose_conditions_were_stored_without_a_reason_is_followed(monkeypatch):
    make_node("n1")
    make_budget(minAvailable=1)
    conditions = [
        {"type": "DisruptionAllowed", "status": "False"},
        {"type": "Other", "status": "True"},
    ]

    def stored(manifest):
        return {**manifest, "status": {"conditions": conditions}}

    with monkeypatch.context() as before:
        before.delitem(kinds._STATUS_RULES, "PodDisruptionBudget")
        place = "PodDisruptionBudget", "default", "pdb"
        objects.update(*place, stored, subresource="status", now=NOW)
    make_ready("a")
    statuses.follow(NOW)
    assert status()["currentHealthy"] == 1
    other, ours = status()["conditions"]
    assert (other["type"], ours["reason"]) == ("Other", "InsufficientPods")
    assert ours["lastTransitionTime"]

"""A group whose disruptionMode is ``all`` leaves as one, whatever makes one of its pods leave."""

from datetime import datetime
from typing import Any

import pytest
from django.db import OperationalError, connection

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.evictions import FiredTimers
from clusterstate.actions.pods import together
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.actions.pods.evict import evict_pod
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.values.errors import TooManyRequests
from clusterstate.queries.evictions.brakes import brakes
from clusterstate.queries.evictions.eviction_timers import due_taints
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id
from scheduling.controllers.budgets import statuses
from scheduling.controllers.evictions import brake, firing, timers
from scheduling.controllers.pods import podgc
from tests import roundtrips
from tests.controllers.support import (
    NOW,
    after,
    evict,
    make_node,
    make_pod,
    pod,
    pod_manifest,
    schedule,
    set_taints,
    taint,
    tolerates,
)

pytestmark = pytest.mark.django_db(transaction=True)
ZONE = "topology.kubernetes.io/zone"


@pytest.fixture(autouse=True)
def cluster(db: None) -> None:
    """Three nodes, each with a pod of a group that leaves together, of one that does not, and one
    that is of no group; a pod of the first group waits.
    """
    bootstrap.add_missing(now=NOW)
    for group, mode in (("g", "all"), ("h", "single")):
        spec = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {mode: {}}}
        manifest = {
            "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
            "metadata": {"name": group, "namespace": "default"}, "spec": spec,
        }  # fmt: skip
        objects.create("PodGroup", "default", manifest, now=NOW)
    for number in range(3):
        make_node(f"n{number}", labels={ZONE: f"z{number}"})
        make_pod(f"plain{number}", f"n{number}")
        for group in "gh":
            make_pod(f"{group}{number}", f"n{number}", schedulingGroup={"podGroupName": group})
    make_pod("g-waits", schedulingGroup={"podGroupName": "g"})


def leaving(revision: int | None = None) -> set[str]:
    found = [decode_object(one) for one in list_page("Pod", "default", exact=revision).items]
    there = {one["metadata"]["name"] for one in found}
    everybody = {f"{kind}{n}" for kind in ("g", "h", "plain") for n in range(3)}
    going = {one["metadata"]["name"] for one in found if "deletionTimestamp" in one["metadata"]}
    failed = {one["metadata"]["name"] for one in found if one["status"].get("phase") == "Failed"}
    return going | failed | (everybody - there)


def reasons() -> set[str]:
    found = set()
    for name in ("g0", "g1", "g2"):
        conditions = (pod(name) or {"status": {}})["status"].get("conditions", ())
        found |= {one["reason"] for one in conditions if one["type"] == "DisruptionTarget"}
    return found


def events() -> list[dict[str, Any]]:
    found = [decode_object(one) for one in list_page("Event", "default").items]
    return [one for one in found if one["involvedObject"]["kind"] == "PodGroup"]


ALL = {"g0", "g1", "g2"}


def at_each_revision(start: int) -> list[set[str]]:
    """Return who of the group is leaving, at each revision from this one on, once each."""
    found: list[set[str]] = []
    for revision in range(start, changes.watermark() + 1):
        here = leaving(revision) & ALL
        if not found or found[-1] != here:
            found.append(here)
    return found


def test_an_eviction_that_is_asked_for_takes_the_group_along_at_one_revision():
    start = changes.watermark()
    evict_pod("default", "g1", {}, now=after(1))
    assert leaving() == ALL
    assert at_each_revision(start) == [set(), ALL]
    assert reasons() == {"EvictionByEvictionAPI"}
    (told,) = events()
    assert told["involvedObject"]["name"] == "g"
    assert told["message"] == ("All 3 pods of the group leave: g1: Eviction API: evicting")
    evict_pod("default", "g2", {}, now=after(2))
    assert len(events()) == 1


def test_a_group_of_which_all_pods_are_named_leaves_at_one_revision():
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    ids = [pod_id for name in sorted(ALL) if (pod_id := find_pod_id("default", name)) is not None]
    start = changes.watermark()
    with together.leaving(ids, condition, now=after(1)) as others:
        assert others == []
        for name in sorted(ALL):
            delete_pod("default", name, now=after(1), condition=condition)
    assert at_each_revision(start) == [set(), ALL]


def test_a_backend_that_is_killed_between_the_first_and_the_others_leaves_nobody_evicted():
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    pod_id = find_pod_id("default", "g1")
    assert pod_id is not None
    start = changes.watermark()

    def killed() -> None:
        with together.leaving([pod_id], condition, now=after(1)):
            delete_pod("default", "g1", now=after(1), condition=condition)
            sql.fetch("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(OperationalError):
        killed()
    connection.close()
    assert leaving() == set()
    assert at_each_revision(start) == [set()]
    evict_pod("default", "g1", {}, now=after(2))
    assert leaving() == ALL


def test_a_dry_run_and_the_pods_of_other_groups_take_nobody_along():
    evict_pod("default", "g1", {"dryRun": True}, now=after(1))
    assert leaving() == set()
    evict_pod("default", "h1", {}, now=after(1))
    assert leaving() == {"h1"}


def make_gangs(*gangs: tuple[str, str, int], may_go: int | None) -> None:
    """Create gangs (name, mode, minCount) of three pods each, and a budget of them unless None."""
    for name, mode, count in gangs:
        policy = {"gang": {"minCount": count}}
        manifest = {
            "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulingPolicy": policy, "disruptionMode": {mode: {}}},
        }  # fmt: skip
        objects.create("PodGroup", "default", manifest, now=NOW)
        for number in range(3):
            made = {"schedulingGroup": {"podGroupName": name}}
            make_pod(f"{name}{number}", f"n{number}", metadata={"labels": {"app": "gangs"}}, **made)
    if may_go is None:
        return
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default",
                     "annotations": {"stowage.dev/disruption-unit": "PodGroup"}},
        "spec": {"maxUnavailable": may_go, "selector": {"matchLabels": {"app": "gangs"}}},
    }  # fmt: skip
    objects.create("PodDisruptionBudget", "default", budget, now=NOW)


def test_a_budget_of_groups_lets_one_group_leave_and_a_gang_lose_what_it_can_spare():
    make_gangs(("a", "all", 3), ("b", "all", 3), ("c", "single", 2), may_go=1)

    def allowed(now: datetime) -> int:
        statuses.sync("default", now)
        (found,) = [decode_object(one) for one in list_page("PodDisruptionBudget").items]
        assert found["status"]["expectedPods"] >= 2
        left: int = found["status"]["disruptionsAllowed"]
        return left

    assert allowed(NOW) == 1
    evict_pod("default", "c0", {}, now=after(1))
    assert leaving() == {"c0"}
    assert allowed(after(1)) == 1
    evict_pod("default", "a1", {}, now=after(2))
    assert allowed(after(2)) == 0
    for name in ("b0", "c1"):
        with pytest.raises(TooManyRequests) as refused:
            evict_pod("default", name, {}, now=after(3))
        (cause,) = refused.value.details["causes"]
        assert cause["message"].endswith("needs 2 healthy pod groups and has 2 currently")
    assert pod("b0") is not None


def test_a_budget_of_groups_counts_the_pods_that_are_ready():
    """Group a has one ready pod more than it needs, b just enough, c too few."""
    make_gangs(("a", "single", 2), ("b", "single", 2), ("c", "single", 3), may_go=0)
    told = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    for name in ("b2", "c2"):
        objects.update(
            "Pod", "default", name, lambda one: {**one, "status": {**one["status"], **told}},
            subresource="status", now=NOW,
        )  # fmt: skip
    statuses.sync("default", NOW)
    (found,) = [decode_object(one) for one in list_page("PodDisruptionBudget").items]
    assert found["status"]["currentHealthy"] == 2
    for name in ("a0", "b2", "c0"):
        evict_pod("default", name, {}, now=after(1))
    for name in ("a1", "b0"):
        with pytest.raises(TooManyRequests):
            evict_pod("default", name, {}, now=after(1))
    assert leaving() == {"a0", "b2", "c0"}


def test_a_budget_asks_for_all_its_groups_at_once():
    make_gangs(("a", "all", 2), may_go=1)
    statuses.sync("default", NOW)
    with roundtrips.counted() as of_one:
        statuses.sync("default", NOW)
    make_gangs(("b", "all", 2), ("c", "all", 2), may_go=None)
    statuses.sync("default", NOW)
    with roundtrips.counted() as of_three:
        statuses.sync("default", NOW)
    assert of_three.number == of_one.number


def test_a_pod_that_left_before_by_the_name_of_one_pays_for_no_group():
    make_gangs(("a", "all", 3), may_go=0)
    statuses.sync("default", NOW)
    gone = {"disruptedPods": {"a2": NOW.isoformat().replace("+00:00", "Z")}}
    objects.update(
        "PodDisruptionBudget", "default", "b",
        lambda one: {**one, "status": {**one["status"], **gone}}, subresource="status", now=NOW,
    )  # fmt: skip
    with pytest.raises(TooManyRequests):
        evict_pod("default", "a0", {}, now=after(1))
    assert leaving() == set()


def test_a_budget_that_refuses_one_keeps_all():
    def labelled(manifest: dict[str, Any]) -> dict[str, Any]:
        return {**manifest, "metadata": {**manifest["metadata"], "labels": {"app": "one"}}}

    objects.update("Pod", "default", "g2", labelled, now=NOW)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "one"}}}
    manifest = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"}, "spec": spec,
    }  # fmt: skip
    objects.create("PodDisruptionBudget", "default", manifest, now=NOW)

    told = {"disruptionsAllowed": 0, "observedGeneration": 1, "currentHealthy": 1,
            "desiredHealthy": 1, "expectedPods": 1}  # fmt: skip
    objects.update(
        "PodDisruptionBudget", "default", "b", lambda one: {**one, "status": told},
        subresource="status", now=NOW,
    )  # fmt: skip
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    objects.update(
        "Pod", "default", "g2", lambda one: {**one, "status": {**one["status"], **ready}},
        subresource="status", now=NOW,
    )  # fmt: skip
    with pytest.raises(TooManyRequests):
        evict_pod("default", "g0", {}, now=after(1))
    assert leaving() == set()
    assert events() == []


def test_a_group_leaves_with_the_first_of_its_pods_that_a_taint_sends_away():
    objects.update(
        "Pod", "default", "g0",
        lambda one: {**one, "spec": {**one["spec"], "tolerations": [tolerates(seconds=60)]}},
        now=NOW,
    )  # fmt: skip
    objects.update(
        "Pod", "default", "g1",
        lambda one: {**one, "spec": {**one["spec"], "tolerations": [tolerates(seconds=600)]}},
        now=NOW,
    )  # fmt: skip
    for node in ("n0", "n1"):
        set_taints(node, taint(), now=NOW)
    evict(59)
    assert leaving() == {"h0", "h1", "plain0", "plain1"}
    start = changes.watermark()
    assert evict(60) == ["g0", "g1", "g2"]
    assert leaving() >= ALL
    assert at_each_revision(start) == [set(), ALL]
    assert reasons() == {"DeletionByTaintManager"}
    assert sql.fetch("SELECT count(*) FROM eviction_timer") == [(0,)]


def fire(seconds: float) -> FiredTimers:
    now = after(seconds)
    brake.judge(now, changed=timers.follow(now) > 0)
    held = brake.held_now(now)
    due = due_taints(now, limit=firing.BATCH, held=held)
    return firing.fire_taints(due, now)


def test_the_event_of_a_group_names_the_taint_and_its_pods_have_none():
    set_taints("n2", taint("broken"), now=NOW)
    timers.follow(NOW)
    told = fire(1).news
    found = {(one.kind, one.name) for one in told}
    assert found == {("PodGroup", "g"), ("Pod", "h2"), ("Pod", "plain2")}
    (group,) = [one.message for one in told if one.kind == "PodGroup"]
    assert group == "All 3 pods of the group leave: g2: taint broken:NoExecute of node n2"


def test_a_brake_on_one_pod_holds_the_group(settings):
    settings.BRAKE_ZONE_PERCENT = 50
    settings.BRAKE_LEAST = 3
    for number in range(6):
        make_pod(f"more{number}", "n1")
    set_taints("n1", taint(), now=after(1))
    assert fire(2).evicted == []
    assert [one.key for one in brakes()] == ["zone.z1"]
    make_pod("g3", "n2", schedulingGroup={"podGroupName": "g"})
    objects.delete("Pod", "default", "plain2", {"gracePeriodSeconds": 0}, now=after(2))
    objects.delete("Pod", "default", "h2", {"gracePeriodSeconds": 0}, now=after(2))
    set_taints("n2", taint(), now=after(3))
    done = fire(4)
    assert (done.evicted, done.busy) == ([], 2)
    assert not leaving() & ALL


def test_a_group_waits_while_another_transaction_holds_one_of_its_pods():
    set_taints("n0", taint(), now=NOW)
    timers.follow(NOW)
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT 1 FROM pod WHERE name = 'g2' FOR UPDATE")
        done = fire(1)
        assert not leaving() & ALL
        assert done.busy == 1
        cursor.execute("ROLLBACK")
    other.close()
    fire(2)
    assert leaving() >= ALL


def test_a_group_leaves_with_a_victim_of_preemption():
    high = {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "high"}, "value": 100,
    }  # fmt: skip
    objects.create("PriorityClass", "", high, now=NOW)
    asks = [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "40"}}}]
    group = {"podGroupName": "g"}
    for number in range(3):
        make_pod(f"g{3 + number}", f"n{number}", containers=asks, schedulingGroup=group)
    important = pod_manifest("important", containers=asks, priorityClassName="high")
    objects.create("Pod", "default", important, now=NOW)
    start = changes.watermark()
    schedule(after(1))
    assert at_each_revision(start) == [set(), ALL]
    assert {"g3", "g4", "g5"} <= leaving()
    assert reasons() == {"PreemptionByScheduler"}
    assert [one["reason"] for one in events()] == ["PreemptionByScheduler"]


def test_a_group_leaves_with_pods_of_a_node_that_is_gone(settings):
    settings.POD_GC_QUARANTINE_SECONDS = 0
    objects.delete("Node", "", "n1", {}, now=after(1))
    podgc.collect(after(2))
    podgc.collect(after(3))
    assert leaving() == {*ALL, "h1", "plain1"}
    assert pod("g1") is None
    assert reasons() == {"DeletionByPodGC"}

"""The rules of Deployments, after pkg/controller/deployment of Kubernetes 1.36."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.controllers.workloads import deployment_records as records
from scheduling.controllers.workloads import deployment_rules as rules
from scheduling.controllers.workloads import deployment_status
from tests.controllers.deployment_cluster import (
    Cluster,
    deployment,
    rolling,
    settled,
    template,
)

NEW, OLD = "nginx:2", "nginx:1"


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (10, "25%", "25%", (3, 2)),  # a surge is rounded up, what is unavailable down
        (3, "25%", "25%", (1, 0)),
        (1, "25%", "25%", (1, 0)),
        (10, 0, "5%", (0, 1)),  # both nothing: one may be unavailable
        (4, "0%", "10%", (0, 1)),
        (10, 2, 3, (2, 3)),
        (2, 0, 5, (0, 2)),  # never more than there are
        (0, "50%", "50%", (0, 0)),
        (10, "100%", "100%", (10, 10)),
    ],
)
def test_fenceposts(replicas, surge, unavailable, expected):
    manifest = deployment(replicas, strategy=rolling(surge, unavailable))
    assert records.fenceposts(manifest) == expected


def test_a_new_deployment_gets_one_replica_set_with_all_replicas():
    cluster = Cluster(deployment(3))
    actions = cluster.step()
    created = actions.created
    assert created is not None
    labels = created["metadata"]["labels"]
    assert created["metadata"]["name"] == f"web-{labels['pod-template-hash']}"
    assert created["spec"]["selector"]["matchLabels"] == labels
    assert created["spec"]["template"]["metadata"]["labels"] == labels
    assert created["spec"]["replicas"] == 3
    assert created["metadata"]["annotations"] == {
        records.REVISION: "1",
        rules.DESIRED: "3",
        rules.MAXIMUM: "4",
    }
    assert cluster.annotations == {records.REVISION: "1"}
    assert cluster.condition("Progressing") == ("True", "NewReplicaSetCreated")
    assert cluster.condition("Available") == ("False", "MinimumReplicasUnavailable")
    name = created["metadata"]["name"]
    assert cluster.events == [f"Scaled up replica set {name} from 0 to 3"]


def test_a_rollout_is_complete_when_all_are_updated_and_available():
    cluster = settled(deployment(3))
    assert cluster.status == {
        "observedGeneration": 1,
        "replicas": 3,
        "updatedReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "conditions": cluster.status["conditions"],
    }
    assert cluster.condition("Available") == ("True", "MinimumReplicasAvailable")
    assert cluster.condition("Progressing") == ("True", "NewReplicaSetAvailable")
    assert cluster.reconcile().due_at is None


@pytest.mark.parametrize(
    ("surge", "unavailable", "steps"),
    [
        # Each step: what the sets are asked for after it; all pods become ready between two.
        (1, 0, [{OLD: 3, NEW: 1}, {OLD: 2, NEW: 1}, {OLD: 2, NEW: 2}, {OLD: 1, NEW: 2}]),
        (0, 1, [{OLD: 3}, {OLD: 2}, {OLD: 2, NEW: 1}, {OLD: 1, NEW: 1}]),
        (3, 0, [{OLD: 3, NEW: 3}, {NEW: 3}]),
        ("100%", "100%", [{OLD: 3, NEW: 3}, {NEW: 3}]),
        (0, "100%", [{OLD: 3}, {}, {NEW: 3}]),
    ],
)
def test_a_rolling_update_goes_step_by_step(surge, unavailable, steps):
    cluster = settled(deployment(3, strategy=rolling(surge, unavailable)))
    cluster.roll_to(NEW)
    seen = []
    for _ in steps:
        cluster.step()
        seen.append(cluster.sizes())
        cluster.start()
    assert seen == steps
    cluster.settle()
    assert cluster.sizes() == {NEW: 3}


def test_equal_amounts_are_no_new_template():
    cluster = Cluster(deployment(1))
    found = []
    for cpu in ("0.5", "500m", "501m"):
        wanted = template(OLD)
        wanted["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
        cluster.deployment["spec"]["template"] = wanted
        cluster.settle()
        found.append(len(cluster.sets))
    assert found == [1, 1, 2]


def test_a_rollout_waits_for_its_new_pods():
    cluster = settled(deployment(3))
    cluster.roll_to(NEW)
    for _ in range(5):
        cluster.step()
    assert cluster.sizes() == {OLD: 3, NEW: 1}
    assert cluster.condition("Available") == ("True", "MinimumReplicasAvailable")


def test_unhealthy_pods_of_the_old_template_go_first():
    """Else they would keep the rollout from ever ending (``cleanupUnhealthyReplicas``)."""
    cluster = settled(deployment(4, strategy=rolling(0, 1)))
    cluster.break_one(OLD)
    cluster.step()
    assert cluster.available() == 3
    cluster.roll_to(NEW)
    cluster.step()
    cluster.step()
    assert cluster.sizes() == {OLD: 3}
    assert cluster.available() == 3


def test_what_is_not_ready_for_long_enough_is_not_available():
    cluster = settled(deployment(2, minReadySeconds=0))
    cluster.edit(minReadySeconds=30)
    cluster.later(31)
    cluster.settle()
    cluster.roll_to(NEW)
    cluster.step()
    cluster.start()
    cluster.step()
    assert cluster.status["readyReplicas"] == 3
    assert cluster.sizes() == {OLD: 2, NEW: 1}
    cluster.later(31)
    cluster.step()
    assert cluster.sizes() == {OLD: 1, NEW: 1}


def test_recreate_waits_until_the_old_pods_are_gone():
    cluster = settled(deployment(3, strategy={"type": "Recreate"}))
    cluster.roll_to(NEW)
    cluster.delete_slowly()
    cluster.step()
    assert cluster.sizes() == {}
    cluster.step()
    assert cluster.sizes() == {}, "the old pods are still ending"
    cluster.end_leaving()
    cluster.step()
    assert cluster.sizes() == {NEW: 3}
    cluster.settle()
    assert cluster.condition("Progressing") == ("True", "NewReplicaSetAvailable")


# Revisions ------------------------------------------------------------------------------------


def test_each_template_is_a_revision_and_an_undone_one_becomes_the_newest():
    cluster = settled(deployment(1))
    for image in (NEW, "nginx:3", OLD):
        cluster.roll_to(image)
        cluster.settle()
    revisions = {
        one["spec"]["template"]["spec"]["containers"][0]["image"]: one["metadata"]["annotations"]
        for one in cluster.sets.values()
    }
    assert {image: notes[records.REVISION] for image, notes in revisions.items()} == {
        OLD: "4",
        NEW: "2",
        "nginx:3": "3",
    }
    assert revisions[OLD][rules.REVISION_HISTORY] == "1"
    assert cluster.annotations[records.REVISION] == "4"


def test_old_revisions_go_beyond_the_limit():
    cluster = settled(deployment(1, revisionHistoryLimit=2))
    for number in range(2, 7):
        cluster.roll_to(f"nginx:{number}")
        cluster.settle()
    images = {
        one["spec"]["template"]["spec"]["containers"][0]["image"] for one in cluster.sets.values()
    }
    assert images == {"nginx:6", "nginx:5", "nginx:4"}


def test_annotations_are_handed_on_to_the_replica_set():
    cluster = settled(deployment(1))
    cluster.annotations["kubernetes.io/change-cause"] = "a better image"
    cluster.annotations["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
    cluster.roll_to(NEW)
    cluster.settle()
    notes = [
        one["metadata"]["annotations"]
        for one in cluster.sets.values()
        if one["spec"]["replicas"]
    ]  # fmt: skip
    assert [one["kubernetes.io/change-cause"] for one in notes] == ["a better image"]
    assert not any("last-applied" in key for one in notes for key in one)


def test_a_template_differs_by_more_than_its_hash():
    one, other = template(OLD), template(OLD, **{records.HASH_LABEL: "abc"})
    assert records.same_template(one, other)
    assert not records.same_template(one, template(NEW))
    assert not records.same_template(one, template(OLD, tier="x"))


def test_another_name_is_tried_after_a_collision():
    assert records.template_hash(template(OLD), 0) == records.template_hash(template(OLD), 0)
    assert records.template_hash(template(OLD), 0) != records.template_hash(template(OLD), 1)
    assert deployment_status.collided({"replicas": 1}) == {"replicas": 1, "collisionCount": 1}


# Pausing and scaling --------------------------------------------------------------------------


def test_a_paused_deployment_does_not_roll_and_goes_on_when_resumed():
    cluster = settled(deployment(3))
    cluster.edit(paused=True)
    cluster.step()
    assert cluster.condition("Progressing") == ("Unknown", "DeploymentPaused")
    cluster.roll_to(NEW)
    cluster.settle()
    assert cluster.sizes() == {OLD: 3}
    cluster.edit(replicas=5)
    cluster.settle()
    assert cluster.sizes() == {OLD: 5}
    cluster.edit(paused=False)
    cluster.step()
    cluster.settle()
    assert cluster.sizes() == {NEW: 5}


def test_scaling_within_a_rollout_is_proportional():
    """As Kubernetes' documentation has it: 10 replicas, 3 may be added, 2 missing; then 15."""
    cluster = settled(deployment(10, strategy=rolling(3, 2)))
    cluster.roll_to(NEW)
    for _ in range(4):
        cluster.step()  # the new image never becomes ready
    assert cluster.sizes() == {OLD: 8, NEW: 5}
    cluster.edit(replicas=15)
    cluster.step()
    assert cluster.sizes() == {OLD: 11, NEW: 7}
    cluster.edit(replicas=5)
    cluster.step()
    assert sum(cluster.sizes().values()) == 8
    assert cluster.sizes()[OLD] > cluster.sizes()[NEW]


@pytest.mark.parametrize(("before", "after"), [(3, 7), (7, 3), (3, 0), (0, 2)])
def test_scaling_without_a_rollout(before, after):
    cluster = settled(deployment(before))
    cluster.edit(replicas=after)
    cluster.settle()
    assert len(cluster.active()) == after
    assert len(cluster.sets) == 1


# Progress -------------------------------------------------------------------------------------


def test_a_rollout_without_progress_runs_into_its_deadline_and_recovers():
    cluster = settled(deployment(3, progressDeadlineSeconds=100))
    cluster.roll_to(NEW)
    for _ in range(4):
        cluster.step()
    due_at = cluster.reconcile().due_at
    assert due_at is not None
    assert (due_at - cluster.now).total_seconds() == 100
    cluster.later(60)
    cluster.step()
    assert cluster.condition("Progressing") != ("False", "ProgressDeadlineExceeded")
    cluster.later(41)
    cluster.step()
    assert cluster.condition("Progressing") == ("False", "ProgressDeadlineExceeded")
    cluster.start()
    cluster.settle()
    assert cluster.condition("Progressing") == ("True", "NewReplicaSetAvailable")


def test_without_a_deadline_nobody_speaks_of_progress():
    cluster = settled(deployment(1, progressDeadlineSeconds=2**31 - 1))
    assert cluster.condition("Progressing") is None


def test_a_replica_set_that_cannot_make_pods_is_told():
    cluster = settled(deployment(1))
    (one,) = cluster.sets.values()
    failure = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": "no",
    }
    one["status"]["conditions"] = [failure]
    status = cluster.reconcile().status
    found = deployment_status.condition(status, "ReplicaFailure")
    assert found is not None
    assert (found["reason"], found["message"]) == ("FailedCreate", "no")
    one["status"]["conditions"] = []
    cluster.deployment["status"] = status
    assert deployment_status.condition(cluster.reconcile().status, "ReplicaFailure") is None


def test_the_explanation_stands_behind_the_message():
    cluster = settled(deployment(1))
    actions = rules.reconcile(
        cluster.deployment,
        map(records.replica_set_of, cluster.sets.values()),
        busy=set(),
        now=cluster.now,
        note="Pods: 1 without a node.",
    )
    found = deployment_status.condition(actions.status, "Available")
    assert found is not None
    assert found["message"] == "Deployment has minimum availability. Pods: 1 without a node."


# Laws -----------------------------------------------------------------------------------------

_COUNTS = st.one_of(st.integers(0, 4), st.sampled_from(["0%", "10%", "25%", "50%", "100%"]))
_MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(1, 3)),
        st.tuples(st.just("start"), st.integers(0, 4)),
        st.tuples(st.just("roll"), st.sampled_from(["a", "b", "c"])),
        st.tuples(st.just("pause"), st.booleans()),
    ),
    max_size=40,
)


@given(replicas=st.integers(0, 12), surge=_COUNTS, unavailable=_COUNTS, moves=_MOVES)
def test_a_rollout_keeps_within_its_bounds_and_ends(replicas, surge, unavailable, moves):
    """Never more pods than replicas + surge, nor fewer available than replicas - unavailable."""
    cluster = settled(deployment(replicas, "a", strategy=rolling(surge, unavailable)))
    most, least = records.fenceposts(cluster.deployment)
    for move, value in moves:
        if move == "step":
            for _ in range(value):
                cluster.step()
        elif move == "start":
            cluster.start(value)
        elif move == "roll":
            cluster.roll_to(value)
        else:
            cluster.edit(paused=value)
        assert len(cluster.active()) <= replicas + most
        assert cluster.available() >= replicas - least
    cluster.edit(paused=False)
    cluster.settle(rounds=200)
    image = cluster.deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert cluster.sizes() == ({image: replicas} if replicas else {})
    assert cluster.condition("Progressing") == ("True", "NewReplicaSetAvailable")


@given(
    start=st.integers(1, 12), surge=st.integers(1, 4), unavailable=st.integers(0, 4),
    sizes=st.lists(st.integers(0, 20), max_size=6), ready=st.lists(st.integers(0, 3), max_size=6),
)  # fmt: skip
def test_scaling_in_the_middle_ends_with_what_was_asked_for(
    start, surge, unavailable, sizes, ready
):
    cluster = settled(deployment(start, "a", strategy=rolling(surge, unavailable)))
    cluster.roll_to("b")
    for size, count in zip(sizes, ready, strict=False):
        cluster.step()
        cluster.edit(replicas=size)
        cluster.step()
        cluster.start(count)
        asked = sum(cluster.sizes().values())
        assert asked <= max(size + surge, 0)
    cluster.settle(rounds=200)
    assert len(cluster.active()) == cluster.deployment["spec"]["replicas"]

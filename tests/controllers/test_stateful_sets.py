"""StatefulSets in the database: order, updates from the last ordinal on, claims, revisions."""

import json

import pytest

from clusterstate.actions import objects
from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.queries.objects import decode_object, get_manifest
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers import garbage
from scheduling.controllers.workloads import follower
from tests.controllers.agents import make_agent, pods, report, run_all
from tests.controllers.support import NOW, after

pytestmark = pytest.mark.django_db

GONE = {"gracePeriodSeconds": 0}


def make_set(replicas=3, image="db:1", **spec):
    labels = {"app": "db"}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "serviceName": "dbs",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
            **spec,
        },
    }
    objects.create("StatefulSet", "default", manifest, now=NOW)


def get():
    return get_manifest("StatefulSet", "default", "db")


def edit(**spec):
    objects.update(
        "StatefulSet", "default", "db", lambda m: {**m, "spec": {**m["spec"], **spec}}, now=NOW
    )


def roll_to(image):
    template = get()["spec"]["template"]
    containers = [{**template["spec"]["containers"][0], "image": image}]
    edit(template={**template, "spec": {**template["spec"], "containers": containers}})


def images():
    """Return the image of each live pod by its name."""
    return {
        one["metadata"]["name"]: one["spec"]["containers"][0]["image"]
        for one in pods()
        if not one["metadata"].get("deletionTimestamp")
    }


def settle(now=NOW, rounds=30):
    """Let controller and agents act in turn; return the pods that there were after each turn."""
    seen = []
    for _ in range(rounds):
        follower.follow(now)
        seen.append(images())
        if not run_all(now=now) and not follower.follow(now):
            return seen
    raise AssertionError("never settled")


def follow_version(version):
    """Store a configuration of the scheduler that names a version of Kubernetes."""
    document = json.dumps({"compatibility": version})
    scheduler_configuration.store(document=document, by="a person", now=NOW)


def rolling(**fields):
    return {"type": "RollingUpdate", "rollingUpdate": fields}


def test_pods_come_one_after_the_other_and_leave_in_reverse():
    make_agent("n")
    make_set()
    sizes = [len(one) for one in settle()]
    assert sizes[:3] == [1, 2, 3]
    assert sorted(images()) == ["db-0", "db-1", "db-2"]
    status = get()["status"]
    assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (3, 3, 3)
    assert status["currentRevision"] == status["updateRevision"]
    pod = get_manifest("Pod", "default", "db-1")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-1", "dbs")
    assert pod["metadata"]["labels"] == {
        "app": "db",
        "apps.kubernetes.io/pod-index": "1",
        "controller-revision-hash": status["updateRevision"],
        "statefulset.kubernetes.io/pod-name": "db-1",
    }
    edit(replicas=1)
    follower.follow(NOW)
    assert sorted(images()) == ["db-0", "db-1"], "only one leaves at a time"
    settle()
    assert sorted(images()) == ["db-0"]


def test_conditions_that_others_set_are_kept():
    make_agent("n")
    make_set()
    theirs = [{"type": "Theirs", "status": "True"}]

    def changed(one):
        return {**one, "status": {"replicas": 0, "conditions": theirs}}

    objects.update("StatefulSet", "default", "db", changed, subresource="status", now=NOW)
    settle()
    status = get()["status"]
    assert (status["readyReplicas"], status["conditions"]) == (3, theirs)


def test_one_that_is_not_ready_holds_up_those_after_it():
    make_agent("n")
    make_set()
    follower.follow(NOW)
    for _ in range(3):
        follower.follow(NOW)
    assert sorted(images()) == ["db-0"]
    run_all()
    follower.follow(NOW)
    assert sorted(images()) == ["db-0", "db-1"]


def test_parallel_ones_come_and_leave_together():
    make_agent("n")
    make_set(podManagementPolicy="Parallel", ordinals={"start": 5})
    follower.follow(NOW)
    assert sorted(images()) == ["db-5", "db-6", "db-7"]
    settle()
    edit(replicas=1)
    follower.follow(NOW)
    assert sorted(images()) == ["db-5"]


def test_an_update_goes_from_the_last_ordinal_to_the_first():
    make_agent("n")
    make_set()
    settle()
    roll_to("db:2")
    order = []
    for step in settle():
        updated = sorted(name for name, image in step.items() if image == "db:2")
        if updated and (not order or order[-1] != updated):
            order.append(updated)
    assert order == [["db-2"], ["db-1", "db-2"], ["db-0", "db-1", "db-2"]]
    status = get()["status"]
    assert (status["updatedReplicas"], status["currentReplicas"]) == (3, 3)
    assert status["currentRevision"] == status["updateRevision"]
    revisions = [decode_object(one) for one in list_page("ControllerRevision", "default").items]
    assert sorted(one["revision"] for one in revisions) == [1, 2]


def test_a_partition_keeps_the_lower_ordinals_even_when_they_are_made_again():
    make_agent("n")
    make_set(updateStrategy=rolling(partition=2))
    settle()
    roll_to("db:2")
    settle()
    assert images() == {"db-0": "db:1", "db-1": "db:1", "db-2": "db:2"}
    status = get()["status"]
    assert status["currentRevision"] != status["updateRevision"]
    assert (status["currentReplicas"], status["updatedReplicas"]) == (2, 1)
    objects.delete("Pod", "default", "db-0", {"gracePeriodSeconds": 0}, now=NOW)
    settle()
    assert images()["db-0"] == "db:1"


def test_on_delete_waits_for_somebody_to_delete():
    make_agent("n")
    make_set(replicas=2, updateStrategy={"type": "OnDelete"})
    settle()
    roll_to("db:2")
    settle()
    assert set(images().values()) == {"db:1"}
    objects.delete("Pod", "default", "db-0", {"gracePeriodSeconds": 0}, now=NOW)
    settle()
    assert images() == {"db-0": "db:2", "db-1": "db:1"}


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_the_current_revision_follows_pods_that_were_deleted_for_an_update(version):
    """kubernetes#136833: until 1.36 it does so where the set itself rolls its pods."""
    follow_version(version)
    make_agent("n")
    make_set(updateStrategy={"type": "OnDelete"})
    settle()
    before = get()["status"]["currentRevision"]
    roll_to("db:2")
    for pod in pods():
        objects.delete("Pod", "default", pod["metadata"]["name"], GONE, now=NOW)
        settle()
    assert set(images().values()) == {"db:2"}
    status = get()["status"]
    assert status["updatedReplicas"] == 3
    assert status["updateRevision"] != before
    expected = before if version == "1.36" else status["updateRevision"]
    assert status["currentRevision"] == expected


@pytest.mark.parametrize("version", ["1.37", "1.38"])
def test_a_parallel_set_shrinks_though_some_pods_cannot_be_created(version):
    """kubernetes#141057: until 1.37 what is missing holds up what is too many."""
    follow_version(version)
    make_agent("n")
    make_set(4, podManagementPolicy="Parallel")
    settle()
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
    objects.create("ResourceQuota", "default", quota, now=NOW)
    objects.delete("Pod", "default", "db-0", GONE, now=NOW)
    edit(replicas=2)
    follower.follow(NOW)
    kept = ["db-1"] if version == "1.38" else ["db-1", "db-2", "db-3"]
    assert sorted(images()) == kept


def test_a_version_without_max_unavailable_takes_one_after_the_other():
    """kubernetes#139466: off in 1.36."""
    follow_version("1.36")
    make_agent("n")
    make_set(updateStrategy=rolling(maxUnavailable=2))
    settle()
    roll_to("db:2")
    assert min(len(one) for one in settle()) == 2


def test_several_may_be_unavailable_where_it_says_so():
    make_agent("n")
    make_set(replicas=4, updateStrategy=rolling(maxUnavailable=2))
    settle()
    roll_to("db:2")
    follower.follow(NOW)
    assert sorted(images()) == ["db-0", "db-1"]
    settle()
    assert set(images().values()) == {"db:2"}


def test_a_pod_that_ended_is_made_again():
    make_agent("n")
    make_set(replicas=2)
    settle()
    before = get_manifest("Pod", "default", "db-1")["metadata"]["uid"]
    report("db-1", "Failed", ready=False)
    settle()
    assert get_manifest("Pod", "default", "db-1")["metadata"]["uid"] != before


def test_a_new_set_takes_over_what_one_of_its_name_left_behind():
    make_agent("n")
    make_set(replicas=2)
    settle()
    before = {one["metadata"]["uid"] for one in pods()}
    kept = get()["status"]["updateRevision"]
    objects.delete("StatefulSet", "default", "db", {"propagationPolicy": "Orphan"}, now=NOW)
    garbage.follow(NOW)
    assert not any(one["metadata"].get("ownerReferences") for one in pods())
    stranger = {
        **pods()[0],
        "metadata": {"name": "db-x", "namespace": "default", "labels": {"app": "db"}},
    }
    objects.create("Pod", "default", {**stranger, "status": {}}, now=NOW)
    make_set(replicas=2)
    settle()
    found = {one["metadata"]["name"]: one["metadata"] for one in pods()}
    assert {found[name]["uid"] for name in ("db-0", "db-1")} == before
    assert "ownerReferences" not in found["db-x"], "its name is none of the set's"
    (revision,) = [decode_object(one) for one in list_page("ControllerRevision", "default").items]
    assert (revision["metadata"]["name"], get()["status"]["updateRevision"]) == (kept, kept)
    assert revision["metadata"]["ownerReferences"][0]["uid"] == get()["metadata"]["uid"]


def test_each_ordinal_has_its_claims_and_they_outlive_it():
    make_agent("n")
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    make_set(replicas=2, volumeClaimTemplates=[claim])
    settle()
    volumes = get_manifest("Pod", "default", "db-1")["spec"]["volumes"]
    claims = [one["persistentVolumeClaim"] for one in volumes if one["name"] == "data"]
    assert claims == [{"claimName": "data-db-1"}]
    edit(replicas=0)
    settle()
    found = [decode_object(one) for one in list_page("PersistentVolumeClaim", "default").items]
    assert [one["metadata"]["name"] for one in found] == ["data-db-0", "data-db-1"]


def test_what_is_ready_for_too_short_a_time_holds_up_the_next():
    make_agent("n")
    make_set(replicas=2, minReadySeconds=10)
    follower.follow(NOW)
    run_all()
    follower.follow(after(9))
    assert sorted(images()) == ["db-0"]
    follower.follow(after(10))
    assert sorted(images()) == ["db-0", "db-1"]


CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def claims():
    found = [decode_object(one) for one in list_page("PersistentVolumeClaim", "default").items]
    return {
        one["metadata"]["name"]: [
            owner["kind"] for owner in one["metadata"].get("ownerReferences") or ()
        ]
        for one in found
    }


def turn_over():
    for _ in range(6):
        follower.follow(NOW)
        run_all()
        garbage.follow(NOW)


def retain(deleted, scaled):
    return {"whenDeleted": deleted, "whenScaled": scaled}


def test_claims_go_with_the_pods_that_are_scaled_away():
    make_agent("n")
    policy = retain("Retain", "Delete")
    make_set(
        replicas=3, volumeClaimTemplates=[CLAIM], podManagementPolicy="Parallel",
        persistentVolumeClaimRetentionPolicy=policy,
    )  # fmt: skip
    turn_over()
    assert claims() == {f"data-db-{ordinal}": [] for ordinal in range(3)}
    edit(replicas=1)
    follower.follow(NOW)
    assert claims()["data-db-2"] == ["Pod"]
    turn_over()
    assert claims() == {"data-db-0": []}
    edit(replicas=2)
    turn_over()
    assert claims() == {"data-db-0": [], "data-db-1": []}
    assert len(pods()) == 2


def test_claims_go_with_the_set_or_stay_as_the_policy_says():
    make_agent("n")
    policy = retain("Delete", "Retain")
    make_set(replicas=2, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=policy)
    turn_over()
    assert claims() == {"data-db-0": ["StatefulSet"], "data-db-1": ["StatefulSet"]}
    edit(replicas=1)
    turn_over()
    assert len(claims()) == 2
    edit(persistentVolumeClaimRetentionPolicy=retain("Retain", "Retain"))
    turn_over()
    assert claims()["data-db-0"] == []
    edit(persistentVolumeClaimRetentionPolicy=policy)
    turn_over()
    objects.delete("StatefulSet", "default", "db", now=NOW)
    turn_over()
    assert claims() == {}

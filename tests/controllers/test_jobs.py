"""Jobs in the database: pods are counted exactly once, and let go."""

import pytest

from clusterstate.actions import objects
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import Invalid
from clusterstate.queries.objects import decode_object, find_object, get_manifest
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers import garbage
from scheduling.controllers.workloads import follower
from scheduling.controllers.workloads.job_policy_rules import FAILURES, INDEX
from tests.controllers.agents import make_agent, pods, report, run_all
from tests.controllers.support import NOW, after

pytestmark = pytest.mark.django_db


def make_job(name="j", owners=(), **spec):
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": list(owners)},
        "spec": {
            "template": {
                "spec": {
                    "containers": [{"name": "main", "image": "busybox"}],
                    "restartPolicy": "Never",
                }
            },
            **spec,
        },
    }
    return objects.create("Job", "default", manifest, now=NOW)


def get(name="j"):
    return get_manifest("Job", "default", name)


def conditions():
    return {
        one["type"]: one["reason"]
        for one in get()["status"].get("conditions", ())
        if one["status"] == "True"
    }


def finish(count=10**6, phase="Succeeded", now=NOW):
    """Let so many running pods end."""
    running = [one for one in pods() if one["status"]["phase"] == "Running"]
    for pod in running[:count]:
        report(pod["metadata"]["name"], phase, ready=False, now=now)


def step(now=NOW):
    follower.follow(now)
    run_all(now=now)


def test_a_job_runs_its_pods_and_completes():
    make_agent("n")
    make_job(completions=3, parallelism=2)
    step()
    assert len(pods()) == 2
    (pod, _) = pods()
    uid = get()["metadata"]["uid"]
    assert pod["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "job-name": "j",
    }
    assert pod["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    follower.follow(NOW)
    assert get()["status"]["ready"] == 2
    finish()
    step()
    assert len(pods()) == 3
    follower.follow(NOW)
    finish()
    step()
    status = get()["status"]
    assert (status["succeeded"], status.get("active"), status.get("failed")) == (3, None, None)
    assert conditions()["Complete"] == "CompletionsReached"
    assert not any("finalizers" in one["metadata"] for one in pods())


def test_a_counted_pod_may_go_and_is_not_run_again():
    make_agent("n")
    make_job(completions=2, parallelism=1)
    step()
    finish()
    follower.follow(NOW)
    done = [one for one in pods() if one["status"]["phase"] == "Succeeded"]
    objects.delete("Pod", "default", done[0]["metadata"]["name"], now=NOW)
    for _ in range(3):
        step()
    assert get()["status"]["succeeded"] == 1
    assert len(pods()) == 1


def test_a_pod_that_is_deleted_before_it_was_counted_stays_until_then():
    make_agent("n")
    make_job(completions=1)
    step()
    finish()
    (pod,) = pods()
    objects.delete("Pod", "default", pod["metadata"]["name"], {"gracePeriodSeconds": 0}, now=NOW)
    assert len(pods()) == 1
    follower.follow(NOW)
    assert pods() == []
    assert get()["status"]["succeeded"] == 1
    assert "Complete" in conditions()


def test_failures_beyond_the_limit_end_it():
    make_agent("n")
    make_job(backoffLimit=1)
    for second in (0, 100, 200):
        step(after(second))
        finish(phase="Failed", now=after(second))
    for _ in range(3):
        step(after(300))
    assert get()["status"]["failed"] == 2
    assert conditions()["Failed"] == "BackoffLimitExceeded"


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_pods_of_a_job_that_is_gone_are_let_go(policy):
    make_agent("n")
    make_job(completions=2, parallelism=2)
    step()
    objects.delete("Job", "default", "j", {"propagationPolicy": policy}, now=NOW)
    for _ in range(6):
        garbage.follow(NOW)
        step()
    assert find_object("Job", "default", "j") is None
    left = pods()
    assert len(left) == (2 if policy == "Orphan" else 0)
    assert not any("finalizers" in one["metadata"] for one in left)


def test_a_finished_job_goes_after_its_time_to_live():
    make_agent("n")
    make_job(ttlSecondsAfterFinished=10)
    step()
    finish()
    for _ in range(3):
        step()
    for second in (9, 10, 11):
        assert (find_object("Job", "default", "j") is None) == (second == 11)
        step(after(second))
        garbage.follow(after(second))
    assert pods() == []


def test_an_indexed_job_tells_each_pod_its_index():
    make_agent("n")
    make_job(completions=2, parallelism=2, completionMode="Indexed")
    step()
    first, second = sorted(pods(), key=lambda one: one["metadata"]["name"])
    assert first["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"
    assert second["metadata"]["name"].startswith("j-1-")
    assert second["spec"]["hostname"] == "j-1"
    assert first["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    finish()
    step()
    assert get()["status"]["completedIndexes"] == "0,1"
    assert "Complete" in conditions()


def test_suspending_ends_the_pods():
    make_agent("n")
    make_job(parallelism=2, completions=4)
    step()
    objects.update(
        "Job", "default", "j", lambda m: {**m, "spec": {**m["spec"], "suspend": True}}, now=NOW
    )
    for _ in range(3):
        step()
    assert pods() == []
    assert conditions()["Suspended"] == "JobSuspended"


@pytest.mark.parametrize("is_bound", [True, False])
@pytest.mark.parametrize("less", [{"suspend": True}, {"parallelism": 1}])
def test_pods_that_a_job_gives_up_are_no_failures(less, is_bound):
    def become(spec):
        objects.update(
            "Job", "default", "j", lambda m: {**m, "spec": {**m["spec"], **spec}}, now=NOW
        )
        for _ in range(3):
            (step if is_bound else follower.follow)(NOW)

    make_agent("n")
    make_job(parallelism=4, backoffLimit=0)
    become({})
    become(less)
    assert len(pods()) == less.get("parallelism", 0)
    become({"suspend": False, "parallelism": 3})
    assert len(pods()) == 3
    status = get()["status"]
    assert (status["active"], status.get("failed"), status["terminating"]) == (3, None, 0)
    assert conditions() == {}


def end(pod, code, now):
    """Let a pod fail with an exit code, as its agent reports it."""

    def ended(manifest):
        state = {"terminated": {"exitCode": code, "finishedAt": document.format_time(now)}}
        statuses = [{"name": "main", "restartCount": 0, "state": state}]
        status = {**manifest["status"], "phase": "Failed", "containerStatuses": statuses}
        return {**manifest, "status": status}

    name = pod["metadata"]["name"]
    objects.update("Pod", "default", name, ended, subresource="status", now=now)


def test_an_index_fails_by_its_own_limit_or_at_once_by_the_policy():
    make_agent("n")
    make_job(
        completionMode="Indexed", completions=3, parallelism=3, backoffLimitPerIndex=1,
        podFailurePolicy={
            "rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [7]}}]
        },
    )  # fmt: skip
    step()
    by_index = {one["metadata"]["annotations"][INDEX]: one for one in pods()}
    assert sorted(by_index) == ["0", "1", "2"]
    assert all(one["metadata"]["annotations"][FAILURES] == "0" for one in by_index.values())
    end(by_index["0"], 7, NOW)
    end(by_index["1"], 1, NOW)
    step(after(1))
    assert get()["status"]["failedIndexes"] == "0"
    step(after(11))
    (again,) = (one for one in pods() if one["metadata"]["annotations"][FAILURES] == "1")
    assert again["metadata"]["annotations"][INDEX] == "1"
    run_all(now=after(11))
    end(again, 1, after(12))
    finish(now=after(12))
    for second in (13, 14):
        step(after(second))
    status = get()["status"]
    assert (status["failedIndexes"], status["completedIndexes"]) == ("0,1", "2")
    assert conditions()["Failed"] == "FailedIndexes"
    assert status["failed"] == 3
    assert not any("finalizers" in one["metadata"] for one in pods())


# Groups -------------------------------------------------------------------------------------------


def groups():
    found = [decode_object(text) for text in list_page("PodGroup", "default").items]
    return [(one["metadata"]["name"], one["spec"]) for one in found]


def test_a_job_that_asks_for_a_gang_has_a_workload_and_a_group_which_its_pods_name():
    """Rule: job_scheduling_manager.go, v1.37."""
    make_agent("n")
    gang = {"schedulingPolicy": {"gang": {}}, "disruptionMode": {"all": {}}}
    make_job(parallelism=3, completions=3, scheduling=gang)
    step()
    ((name, spec),) = groups()
    assert spec["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert spec["disruptionMode"] == {"all": {}}
    workload = get_manifest("Workload", "default", spec["workloadRef"]["workloadName"])
    assert workload["spec"]["controllerRef"] == {"apiGroup": "batch", "kind": "Job", "name": "j"}
    assert [one["name"] for one in workload["spec"]["podGroupTemplates"]] == ["j-pgt-0"]
    assert {one["spec"]["schedulingGroup"]["podGroupName"] for one in pods()} == {name}
    owners = get_manifest("PodGroup", "default", name)["metadata"]["ownerReferences"]
    assert [(one["kind"], one.get("controller")) for one in owners] == [
        ("Job", True), ("Workload", None),
    ]  # fmt: skip
    objects.update(
        "Job", "default", "j",
        lambda one: {**one, "spec": {**one["spec"], "parallelism": 2}}, now=NOW,
    )  # fmt: skip
    step()
    assert [spec["schedulingPolicy"] for _, spec in groups()] == [{"gang": {"minCount": 2}}]


def test_a_job_without_a_policy_has_a_basic_group_and_one_that_says_nothing_has_none():
    make_agent("n")
    make_job("basic", scheduling={})
    make_job("none")
    step()
    assert [spec["schedulingPolicy"] for _, spec in groups()] == [{"basic": {}}]
    named = [one["spec"].get("schedulingGroup") for one in pods()]
    assert sorted(map(bool, named)) == [False, True]


def test_a_job_that_began_without_a_group_stays_without():
    make_agent("n")
    make_job(parallelism=2, completions=2, scheduling={"schedulingPolicy": {"gang": {}}})
    step()
    ((name, spec),) = groups()
    for kind, one in (("PodGroup", name), ("Workload", spec["workloadRef"]["workloadName"])):
        objects.update(
            kind, "default", one,
            lambda found: {**found, "metadata": {**found["metadata"], "finalizers": []}}, now=NOW,
        )  # fmt: skip
        objects.delete(kind, "default", one, {}, now=NOW)
    first = pods()[0]["metadata"]["name"]
    objects.delete("Pod", "default", first, {"gracePeriodSeconds": 0}, now=NOW)
    step(after(60))
    assert groups() == []


def test_the_group_of_a_job_whose_name_has_a_dot_is_made_too():
    make_agent("n")
    make_job("a.b", scheduling={"schedulingPolicy": {"gang": {}}})
    step()
    ((name, spec),) = groups()
    assert spec["workloadRef"]["templateName"] == "a-b-pgt-0"
    assert [one["spec"]["schedulingGroup"]["podGroupName"] for one in pods()] == [name]


def controlled_by(api_version, kind):
    return {"apiVersion": api_version, "kind": kind, "name": "c", "uid": "7", "controller": True}


def test_a_cron_job_s_job_has_its_group_and_one_of_another_controller_has_a_warning():
    """Rule: hasParentWorkloadOwner, v1.37."""
    make_agent("n")
    gang = {"schedulingPolicy": {"gang": {}}}
    of_cron_job = make_job("one", [controlled_by("batch/v1", "CronJob")], scheduling=gang)
    others = [
        make_job(name, [controlled_by(version, kind)], scheduling=gang)
        for name, version, kind in (
            ("two", "jobset.x-k8s.io/v1alpha2", "JobSet"), ("three", "example.com/v1", "CronJob"),
        )
    ]  # fmt: skip
    step()
    named = {one["metadata"]["labels"]["job-name"] for one in pods()
             if "schedulingGroup" in one["spec"]}  # fmt: skip
    assert named == {"one"}
    assert of_cron_job.warnings == []
    assert [one.warnings for one in others] == [
        [f"spec.scheduling has no effect: no PodGroup is made for a Job that a {kind} controls"]
        for kind in ("JobSet", "CronJob")
    ]


@pytest.mark.parametrize(
    ("scheduling", "field"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": -1}}}, "schedulingPolicy.gang.minCount"),
        ({"schedulingPolicy": {"gang": {}, "basic": {}}}, "schedulingPolicy"),
        ({"schedulingConstraints": {"topology": [{"key": ""}]}}, "topology[0].key"),
    ],
)
def test_a_wrong_shape_is_refused(scheduling, field):
    with pytest.raises(Invalid) as told:
        make_job(scheduling=scheduling)
    assert field in told.value.message


def test_only_the_size_of_a_gang_may_change():
    make_job(scheduling={"schedulingPolicy": {"gang": {"minCount": 1}}})

    def change(**scheduling):
        objects.update(
            "Job", "default", "j",
            lambda one: {**one, "spec": {**one["spec"], "scheduling": scheduling}}, now=NOW,
        )  # fmt: skip

    change(schedulingPolicy={"gang": {"minCount": 2}})
    with pytest.raises(Invalid, match=r"spec\.scheduling"):
        change(schedulingPolicy={"basic": {}})

"""The rules of Jobs, after pkg/controller/job of Kubernetes 1.36."""

import pytest

from clusterstate.objects.values import document
from scheduling.controllers.workloads import job_policy_rules as policies
from scheduling.controllers.workloads import job_rules as rules
from scheduling.controllers.workloads.job_indexes import Indexes
from scheduling.controllers.workloads.pods import OwnedPod
from tests.clock import NOW, after

_ids = iter(range(1, 10**6))


def job(*, status=None, restart="Never", **spec):
    return {
        "metadata": {"name": "j", "namespace": "default", "uid": "u"},
        "spec": {
            "parallelism": 2, "completions": 5, "backoffLimit": 2, "completionMode": "NonIndexed",
            "template": {"spec": {"restartPolicy": restart}},
            **spec,
        },
        "status": {"startTime": document.format_time(NOW), **(status or {})},
    }  # fmt: skip


def pod(phase="Running", *, counted=False, index=None, at=0.0, **fields):
    number = next(_ids)
    ended = phase in ("Succeeded", "Failed")
    return OwnedPod(
        id=number, uid=f"u{number}", name=f"p{number}", owner="u", phase=phase,
        created_at=after(at - 1), finished_at=after(at) if ended else None,
        is_tracked=not counted, annotations={} if index is None else {policies.INDEX: str(index)},
        **fields,
    )  # fmt: skip


def reconcile(manifest, pods, seconds=0.0):
    return rules.reconcile(manifest, pods, now=after(seconds))


def outcome(found):
    """Return the conditions that hold, with their reasons."""
    return {
        one["type"]: one["reason"]
        for one in found.status.get("conditions", ())
        if one["status"] == "True"
    }


@pytest.mark.parametrize(
    ("spec", "succeeded", "running", "created"),
    [
        ({}, 0, 0, 2),  # as many at a time as parallelism says
        ({}, 0, 1, 1),
        ({}, 4, 0, 1),  # no more than are lacking
        ({"parallelism": 10}, 2, 1, 2),
        ({"parallelism": 0}, 0, 0, 0),
        ({"completions": None}, 0, 1, 1),  # a work queue
        ({"completions": None}, 1, 1, 0),  # one succeeded: no others are started
    ],
)
def test_how_many_are_started(spec, succeeded, running, created):
    found = reconcile(job(status={"succeeded": succeeded}, **spec), [pod() for _ in range(running)])
    assert len(found.create) == created
    assert found.status.get("active", 0) == running + created
    assert not found.delete


def test_too_many_are_ended():
    pods = [pod() for _ in range(4)]
    assert len(reconcile(job(), pods).delete) == 2


@pytest.mark.parametrize(
    ("spec", "gone"),
    [({"suspend": True}, 3), ({"parallelism": 1}, 2), ({"parallelism": 0}, 3)],
)
def test_pods_that_are_no_longer_wanted_have_not_failed(spec, gone):
    found = reconcile(job(**spec), [pod() for _ in range(3)])
    assert len(found.delete) == gone
    assert found.count == found.delete, "they lose their mark first"
    assert "failed" not in found.status
    leaving = [pod(counted=True, is_leaving=True) for _ in range(3)]
    assert "failed" not in reconcile(job(**spec), leaving).status


def test_a_work_queue_that_has_succeeded_keeps_what_runs():
    found = reconcile(job(completions=None, status={"succeeded": 1}), [pod() for _ in range(3)])
    assert not found.delete


def test_an_indexed_job_gives_up_pods_without_a_place_in_it():
    indexed = job(completionMode="Indexed", completions=3, parallelism=5)
    kept = [pod(index=0), pod(index=1, node_name="n")]
    others = [pod(), pod(index=5), pod(index=1)]
    found = reconcile(indexed, [*others, *kept])
    assert {one.name for one in found.delete} == {one.name for one in others}
    assert not found.create
    beyond = pod("Failed", index=3)
    found = reconcile(indexed, [beyond])
    assert found.count == [beyond]
    assert "failed" not in found.status


@pytest.mark.parametrize(("type_", "failed"), [("FailureTarget", 3), ("SuccessCriteriaMet", 1)])
def test_of_a_job_that_failed_all_pods_did_and_of_one_that_succeeded_not(type_, failed):
    status = {"conditions": [{"type": type_, "status": "True", "reason": "r"}]}
    pods = [pod(), pod(is_leaving=True), pod("Failed")]
    found = reconcile(job(status=status, podReplacementPolicy="Failed"), pods)
    assert {one.name for one in found.count} == {one.name for one in pods}
    assert found.status["failed"] == failed
    assert outcome(found) == {type_: "r"}, "the end is said when no pod runs"


def test_each_pod_that_ended_is_counted_once():
    pods = [pod("Succeeded"), pod("Succeeded", counted=True), pod("Failed"), pod()]
    found = reconcile(job(status={"succeeded": 1}), pods)
    assert [one.phase for one in found.count] == ["Succeeded", "Failed"]
    assert (found.status["succeeded"], found.status["failed"]) == (2, 1)


def test_a_deleted_pod_counts_as_failed():
    found = reconcile(job(), [pod(is_leaving=True)])
    assert found.status["failed"] == 1
    assert found.status["terminating"] == 1
    assert len(found.create) == 2


def test_it_is_complete_when_enough_succeeded():
    found = reconcile(job(completions=2), [pod("Succeeded"), pod("Succeeded")])
    assert outcome(found) == {
        "SuccessCriteriaMet": "CompletionsReached",
        "Complete": "CompletionsReached",
    }
    assert found.status["completionTime"] == document.format_time(NOW)
    assert not found.create


def test_a_work_queue_is_complete_when_one_succeeded_and_none_runs():
    queue = job(completions=None)
    assert outcome(reconcile(queue, [pod("Succeeded"), pod()])) == {}
    assert "Complete" in outcome(reconcile(queue, [pod("Succeeded")]))


def test_it_fails_beyond_the_backoff_limit():
    pods = [pod("Failed"), pod("Failed")]
    assert outcome(reconcile(job(), pods)) == {}
    found = reconcile(job(), [*pods, pod("Failed"), pod()])
    assert outcome(found) == {"FailureTarget": "BackoffLimitExceeded"}
    assert len(found.delete) == 1
    over = reconcile(job(status=found.status), [])
    assert outcome(over)["Failed"] == "BackoffLimitExceeded"


def test_restarts_count_where_pods_are_restarted_in_place():
    again = job(restart="OnFailure")
    assert outcome(reconcile(again, [pod(restarts=1)])) == {}
    assert "FailureTarget" in outcome(reconcile(again, [pod(restarts=1), pod(restarts=1)]))
    assert "FailureTarget" in outcome(
        reconcile(job(restart="OnFailure", backoffLimit=0), [pod(restarts=1)])
    )


def test_it_fails_after_its_deadline():
    short = job(activeDeadlineSeconds=60)
    found = reconcile(short, [pod()], seconds=59)
    assert outcome(found) == {}
    assert found.due_at == after(60)
    found = reconcile(short, [pod()], seconds=60)
    assert outcome(found) == {"FailureTarget": "DeadlineExceeded"}
    assert len(found.delete) == 1


@pytest.mark.parametrize(("failures", "wait"), [(1, 10), (2, 20), (3, 40), (10, 600)])
def test_failures_are_followed_by_longer_and_longer_waits(failures, wait):
    pods = [pod("Failed", counted=True, at=number / 100) for number in range(failures)]
    patient = job(backoffLimit=100)
    early = reconcile(patient, pods, seconds=wait - 1)
    assert not early.create
    assert early.due_at == after(wait + (failures - 1) / 100)
    assert reconcile(patient, pods, seconds=wait + 1).create
    assert reconcile(patient, [*pods, pod("Succeeded", counted=True, at=1)], seconds=2).create


def test_a_suspended_job_has_no_pods_and_starts_anew():
    found = reconcile(job(suspend=True), [pod(), pod()])
    assert len(found.delete) == 2
    assert outcome(found) == {"Suspended": "JobSuspended"}
    assert "startTime" not in found.status
    resumed = reconcile(job(status=found.status), [], seconds=100)
    assert outcome(resumed) == {}
    assert resumed.status["startTime"] == document.format_time(after(100))
    assert len(resumed.create) == 2


def test_it_is_deleted_when_its_time_to_live_is_over():
    over = reconcile(job(completions=1, ttlSecondsAfterFinished=30), [pod("Succeeded")]).status
    done = job(completions=1, ttlSecondsAfterFinished=30, status=over)
    waiting = reconcile(done, [], seconds=29)
    assert (waiting.expired, waiting.due_at) == (False, after(30))
    assert reconcile(done, [], seconds=30).expired
    assert not reconcile(job(completions=1, status=over), [], seconds=10**6).expired


def test_an_indexed_job_needs_each_index_once():
    indexed = job(completionMode="Indexed", completions=5, parallelism=3)
    assert reconcile(indexed, []).create == [0, 1, 2]
    pods = [pod("Succeeded", index=0), pod(index=1), pod("Failed", index=2, at=-100)]
    found = reconcile(indexed, pods)
    assert found.create == [2, 3]
    assert found.status["completedIndexes"] == "0"
    again = reconcile(job(**indexed["spec"], status={"completedIndexes": "0-3", "succeeded": 4}), [
        pod("Succeeded", index=0), pod("Succeeded", index=4),
    ])  # fmt: skip
    assert again.status["succeeded"] == 5
    assert again.status["completedIndexes"] == "0-4"
    assert "Complete" in outcome(again)


@pytest.mark.parametrize("text", ["", "0", "0,1", "0-2", "0,2-4,7,9,10", "3-100"])
def test_indexes_as_text(text):
    assert Indexes.parse(text, 1000).text() == text


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("100%", ""),
        ("0,x,2", "0,2"),
        ("3-,1", "1"),
        ("2-1", ""),
        ("-1", ""),
        ("1-3,2-9", "1-4"),
        ("4,0", "0,4"),
        ("7", ""),
        (",,", ""),
        ("0-99999999999999999999", ""),
        ("0-2000000000", "0-4"),
    ],
)
def test_indexes_that_a_client_wrote_into_the_status_stop_no_job(written, meant):
    spec = {"completionMode": "Indexed", "completions": 5, "parallelism": 5}
    found = reconcile(job(**spec, status={"completedIndexes": written}), [])
    assert found.status.get("completedIndexes", "") == meant


def test_a_billion_indexes_are_an_interval():
    indexes = Indexes.parse("0-1999999999", 2**31 - 1)
    assert indexes.number == 2_000_000_000
    assert next(indexes.missing(2**31 - 1)) == 2_000_000_000
    assert (indexes | Indexes.of([2_000_000_000])).text() == "0-2000000000"
    assert indexes.common(Indexes.parse("5-7,3000000000", 2**33)) == 3


def test_a_job_of_another_controller_is_left_alone():
    assert rules.is_mine(job())
    assert rules.is_mine(job(managedBy="kubernetes.io/job-controller"))
    assert not rules.is_mine(job(managedBy="example.com/other"))

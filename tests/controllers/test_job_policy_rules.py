"""What a Job makes of failures and of indexes, after pkg/controller/job of Kubernetes 1.36."""

import pytest

from scheduling.controllers.workloads import job_policy_rules as policies
from scheduling.controllers.workloads.job_policy_rules import FAILURES, IGNORED, INDEX
from tests.controllers.test_job_rules import job, outcome, pod, reconcile

BY_CODE = {
    "rules": [
        {
            "action": "FailJob",
            "onExitCodes": {"operator": "In", "values": [42], "containerName": "main"},
        },
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [7]}},
        {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [1, 2]}},
    ]
}


def failed(*codes, conditions=(), index=None, failures=None, ignored=None, **fields):
    one = pod("Failed", index=index, **fields)
    notes = dict(one.annotations)
    if failures is not None:
        notes[FAILURES] = str(failures)
    if ignored is not None:
        notes[IGNORED] = str(ignored)
    values = {
        field: getattr(one, field) for field in one.__struct_fields__ if field != "annotations"
    }
    values |= {"exit_codes": tuple(codes), "conditions": tuple(conditions), "annotations": notes}
    return type(one)(**values)


@pytest.mark.parametrize(
    ("ended", "wanted"),
    [
        (failed(("main", 42)), (True, False, True)),
        (failed(("side", 42)), (True, False, False)),  # another container: counted by the last rule
        (failed(("main", 1), conditions=[("DisruptionTarget", "True")]), (False, False, False)),
        (failed(("main", 1), conditions=[("DisruptionTarget", "False")]), (True, False, False)),
        (failed(("main", 42), conditions=[("DisruptionTarget", "True")]), (True, False, True)),
        (failed(("main", 0), ("side", 7)), (True, True, False)),
        (failed(), (True, False, False)),  # no rule knows it
    ],
)
def test_the_first_rule_that_matches_says_what_a_failure_means(ended, wanted):
    found = policies.judge({"podFailurePolicy": BY_CODE}, ended, "default")
    assert (found.counts, found.fails_index, bool(found.fails_job)) == wanted


def test_a_job_that_its_policy_fails_says_by_which_pod_and_rule():
    one = failed(("main", 42))
    found = reconcile(job(podFailurePolicy=BY_CODE), [one, pod()])
    assert outcome(found) == {"FailureTarget": "PodFailurePolicy"}
    (condition,) = found.status["conditions"]
    assert condition["message"] == (
        f"Container main for pod default/{one.name} failed with exit code 42 "
        "matching FailJob rule at index 0"
    )
    assert len(found.delete) == 1
    assert outcome(reconcile(job(podFailurePolicy=BY_CODE, status=found.status), []))["Failed"] == (
        "PodFailurePolicy"
    )


def test_a_failure_that_is_ignored_is_let_go_and_not_counted():
    spec = job(podFailurePolicy=BY_CODE, backoffLimit=0)
    found = reconcile(spec, [failed(conditions=[("DisruptionTarget", "True")])], seconds=100)
    assert len(found.count) == 1
    assert found.status.get("failed") is None
    assert outcome(found) == {}
    assert len(found.create) == 2


def test_with_a_policy_a_deleted_pod_is_awaited_until_it_ended():
    found = reconcile(job(podFailurePolicy=BY_CODE, parallelism=1), [pod(is_leaving=True)])
    assert (found.count, found.create) == ([], [])
    assert found.status["terminating"] == 1


PER_INDEX = {
    "completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimit": 2**31 - 1,
    "backoffLimitPerIndex": 1,
}  # fmt: skip


def test_each_index_counts_its_own_failures_on_its_next_pod():
    one = failed(index=1, failures=0)
    others = [pod(index=0), pod(index=2)]
    early = reconcile(job(**PER_INDEX), [one, *others], seconds=5)
    assert (early.create, early.count) == ([], [])  # it rests, and its pod carries the count
    assert early.due_at is not None
    found = reconcile(job(**PER_INDEX), [one, *others], seconds=11)
    assert found.create == [1]
    assert found.failures == {1: (1, 0)}
    later = reconcile(job(**PER_INDEX), [one, pod(index=1, at=11), *others], seconds=12)
    assert [each.id for each in later.count] == [one.id]
    assert later.status["failed"] == 1
    assert later.status["failedIndexes"] == ""


def test_counts_that_nobody_can_read_are_none():
    """Annotations of pods are written by clients, too."""
    assert policies.failures_of(failed(failures="9" * 5000, ignored="²")) == (0, 0)


def test_an_index_beyond_its_limit_fails_and_the_others_go_on():
    found = reconcile(job(**PER_INDEX), [failed(index=1, failures=1), pod(index=0)], seconds=100)
    assert found.status["failedIndexes"] == "1"
    assert found.create == [2]
    assert outcome(found) == {}
    over = reconcile(
        job(**PER_INDEX, status=found.status),
        [pod("Succeeded", index=0), pod("Succeeded", index=2)],
    )
    assert outcome(over) == {"FailureTarget": "FailedIndexes", "Failed": "FailedIndexes"}
    assert over.status["completedIndexes"] == "0,2"


def test_a_policy_fails_an_index_at_once_or_does_not_count_for_it():
    spec = job(**PER_INDEX, podFailurePolicy=BY_CODE)
    running = [pod(index=0), pod(index=2)]
    at_once = reconcile(spec, [failed(("main", 7), index=1, failures=0), *running], seconds=100)
    assert at_once.status["failedIndexes"] == "1"
    target = [("DisruptionTarget", "True")]
    ignored = reconcile(
        spec, [failed(conditions=target, index=1, failures=1), *running], seconds=100
    )
    assert ignored.create == [1]
    assert ignored.failures == {1: (1, 1)}


def test_too_many_failed_indexes_fail_the_job():
    spec = job(**PER_INDEX, maxFailedIndexes=1)
    pods = [failed(index=index, failures=1) for index in (0, 1)]
    found = reconcile(spec, [*pods, pod(index=2)], seconds=100)
    assert outcome(found) == {"FailureTarget": "MaxFailedIndexesExceeded"}
    assert len(found.delete) == 1


@pytest.mark.parametrize(
    ("rules", "succeeded", "enough"),
    [
        ([{"succeededIndexes": "0,2"}], "0,1", False),
        ([{"succeededIndexes": "0,2"}], "0,2", True),
        ([{"succeededCount": 2}], "3,4", True),
        ([{"succeededIndexes": "0-2", "succeededCount": 1}], "1", True),
        ([{"succeededIndexes": "0-2", "succeededCount": 1}], "3", False),
        ([{"succeededIndexes": "0"}, {"succeededCount": 1}], "3", True),
        ([{"succeededCount": 0}], "", False),
        ([{"succeededIndexes": "0-2000000000", "succeededCount": 2}], "1,3", True),
        ([{"succeededIndexes": "0-2000000000"}], "0-3", False),
    ],
)
def test_enough_indexes_make_the_job_a_success(rules, succeeded, enough):
    spec = {
        "completionMode": "Indexed", "completions": 5, "parallelism": 5,
        "successPolicy": {"rules": rules},
    }  # fmt: skip
    found = reconcile(job(**spec, status={"completedIndexes": succeeded}), [pod(index=4)])
    wanted = {"SuccessCriteriaMet": "SuccessPolicy"} if enough else {}
    assert outcome(found) == wanted
    if enough:
        assert len(found.delete) == 1
        over = reconcile(job(**spec, status=found.status), [])
        assert outcome(over)["Complete"] == "SuccessPolicy"


def test_an_index_is_not_taken_twice_while_its_pod_is_leaving():
    spec = job(
        completionMode="Indexed", completions=3, parallelism=3, podReplacementPolicy="Failed"
    )
    pods = [pod(index=0), pod(index=1, is_leaving=True)]
    assert reconcile(spec, pods).create == [2]
    assert pods[0].annotations == {INDEX: "0"}

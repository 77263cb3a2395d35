"""The rules of CronJobs, after pkg/controller/cronjob of Kubernetes 1.36."""

from clusterstate.objects.values import document
from scheduling.controllers.workloads import cron_job_rules as rules
from tests.clock import NOW, after

START = NOW.replace(minute=0, second=0, microsecond=0)
TEXT = document.format_time


def cron_job(*, status=None, **spec):
    return {
        "metadata": {
            "name": "c", "namespace": "default", "uid": "u", "creationTimestamp": TEXT(START),
        },
        "spec": {
            "schedule": "*/5 * * * *", "concurrencyPolicy": "Allow",
            "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"completions": 2}}, **spec,
        },
        "status": status or {},
    }  # fmt: skip


def job(name, outcome="", at=0):
    conditions = [{"type": outcome, "status": "True"}] if outcome else []
    status = {"conditions": conditions, "startTime": TEXT(minute(at))}
    if outcome == "Complete":
        status["completionTime"] = TEXT(minute(at))
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "status": status}


def minute(count):
    return rules.moments.after(START, 60 * count)


def reconcile(manifest, jobs=(), minutes=0.0):
    return rules.reconcile(manifest, list(jobs), now=minute(minutes))


def reasons(found):
    return [reason for _, reason, _ in [*found.events, *found.standing.values()]]


def test_a_job_is_started_when_the_time_has_come_and_once():
    early = reconcile(cron_job(), minutes=4.9)
    assert (early.start, early.due_at) == (None, minute(5))
    found = reconcile(cron_job(), minutes=5.1)
    assert (found.start, found.due_at) == (minute(5), minute(10))
    assert found.status["lastScheduleTime"] == TEXT(minute(5))
    assert reconcile(cron_job(status=found.status), minutes=5.2).start is None
    assert reconcile(cron_job(status=found.status), minutes=10).start == minute(10)


def test_the_job_is_named_after_its_time_and_says_it():
    made = rules.job_for(cron_job(timeZone="Asia/Tokyo"), minute(5), {"kind": "CronJob"})
    assert made["metadata"]["name"] == f"c-{int(minute(5).timestamp()) // 60}"
    assert made["metadata"]["annotations"][rules.SCHEDULED].endswith(":05:00+09:00")
    assert made["metadata"]["labels"] == {"a": "b"}
    assert made["spec"] == {"completions": 2}
    at_home = rules.job_for(cron_job(), minute(5), {})
    assert at_home["metadata"]["annotations"][rules.SCHEDULED] == TEXT(minute(5))


def test_a_suspended_one_starts_nothing_and_makes_up_for_the_last_time_only():
    assert reconcile(cron_job(suspend=True), minutes=33).start is None
    assert reconcile(cron_job(), minutes=33).start == minute(30)
    assert reasons(reconcile(cron_job(), minutes=33)) == []
    assert reasons(reconcile(cron_job(), minutes=5 * 101)) == ["TooManyMissedTimes"]


def test_whoever_is_too_late_does_not_start():
    assert reconcile(cron_job(startingDeadlineSeconds=30), minutes=6).start is None
    assert reconcile(cron_job(startingDeadlineSeconds=90), minutes=6).start == minute(5)


def test_what_still_runs_is_awaited_replaced_or_joined():
    running, status = [job("old")], {"active": [rules.reference_to(job("old"))]}
    forbidden = reconcile(cron_job(concurrencyPolicy="Forbid", status=status), running, minutes=5)
    assert (forbidden.start, reasons(forbidden)) == (None, ["JobAlreadyActive"])
    assert "lastScheduleTime" not in forbidden.status
    replaced = reconcile(cron_job(concurrencyPolicy="Replace", status=status), running, minutes=5)
    assert (replaced.start, replaced.delete) == (minute(5), running)
    assert "active" not in replaced.status
    joined = reconcile(cron_job(status=status), running, minutes=5)
    assert [one["name"] for one in joined.status["active"]] == ["old"]


def test_active_are_the_jobs_that_were_started_here_until_they_are_gone():
    leaving = job("leaving")
    leaving["metadata"]["deletionTimestamp"] = TEXT(START)
    status = {"active": [rules.reference_to(job(one)) for one in ("lost", "leaving", "done")]}
    there = [leaving, job("done", "Failed"), job("by-hand"), job("by-hand-done", "Complete")]
    forbidding = cron_job(concurrencyPolicy="Forbid", status=status)
    found = reconcile(forbidding, there, minutes=4)
    assert [one["name"] for one in found.status["active"]] == ["leaving"]
    told = [*found.events, *found.standing.values()]
    assert {(kind, reason, text.split(": ")[1]) for kind, reason, text in told} == {
        ("Normal", "MissingJob", "lost"),
        ("Normal", "SawCompletedJob", "done, condition"),
        ("Warning", "UnexpectedJob", "by-hand"),
    }
    assert reconcile(forbidding, there, minutes=5).start is None
    replacing = cron_job(concurrencyPolicy="Replace", status=status)
    assert reconcile(replacing, there, minutes=5).delete == []
    by_hand = reconcile(cron_job(concurrencyPolicy="Forbid"), [job("by-hand")], minutes=5)
    assert by_hand.start == minute(5)
    assert "active" not in by_hand.status


def test_what_goes_on_is_one_occasion_until_it_is_another():
    """A Job that somebody started; each time that is passed over."""
    running = job("old")
    status = {"active": [rules.reference_to(running)]}
    forbidding = cron_job(concurrencyPolicy="Forbid", status=status)
    there = [running, job("by-hand")]
    first, again, next_time = (
        reconcile(forbidding, there, minutes=one).standing for one in (5, 6, 10)
    )
    assert first == again
    assert len(first) == len(next_time) == 2
    assert len(first.keys() & next_time.keys()) == 1


def test_the_oldest_are_forgotten_and_success_is_noted():
    jobs = [job("a", "Complete", 1), job("b", "Complete", 2), job("c", "Failed", 1)]
    before = cron_job(status={"active": [{"uid": "b", "name": "b"}]})
    found = reconcile(before, jobs, minutes=3)
    assert [one["metadata"]["name"] for one in found.delete] == ["a"]
    assert found.status == {"lastSuccessfulTime": TEXT(minute(2))}
    assert reasons(found) == ["SawCompletedJob"]
    none = cron_job(successfulJobsHistoryLimit=0, failedJobsHistoryLimit=0)
    assert len(reconcile(none, jobs, minutes=3).delete) == 3
    assert after(0) == NOW

"""CronJobs in the database: Jobs are started once for each time, and forgotten."""

import pytest

from clusterstate.actions import objects
from clusterstate.database import sql
from clusterstate.objects.values import moments
from clusterstate.objects.values.cron import Schedule
from clusterstate.queries.objects import decode_object, get_manifest
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers.workloads import cron_job_rules as rules
from scheduling.controllers.workloads import cron_jobs, follower
from scheduling.controllers.workloads.control import reference
from tests.controllers.agents import make_agent, pods, report, run_all
from tests.controllers.support import NOW, after

pytestmark = pytest.mark.django_db


def jobs():
    return [decode_object(one) for one in list_page("Job", "default").items]


def test_a_schedule_starts_a_job_each_time_and_keeps_the_last():
    make_agent("n")
    template = {"spec": {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"}}
    manifest = {
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {
            "schedule": "@every 60s", "successfulJobsHistoryLimit": 1,
            "jobTemplate": {"spec": {"template": template}},
        },
    }  # fmt: skip
    objects.create("CronJob", "default", manifest, now=NOW)
    follower.follow(NOW)
    assert jobs() == []
    for minute in (1, 2, 3):
        now = after(60 * minute)
        for _ in range(2):
            follower.follow(now)
            run_all(now=now)
        status = get_manifest("CronJob", "default", "c")["status"]
        (running,) = status["active"]
        assert running["name"] in [one["metadata"]["name"] for one in jobs()]
        for pod in pods():
            if pod["status"]["phase"] == "Running":
                report(pod["metadata"]["name"], "Succeeded", ready=False, now=now)
        for _ in range(3):
            follower.follow(now)
    status = get_manifest("CronJob", "default", "c")["status"]
    assert "active" not in status
    assert {"lastSuccessfulTime", "lastScheduleTime"} <= status.keys()
    assert len(jobs()) == 1
    assert jobs()[0]["metadata"]["ownerReferences"][0]["kind"] == "CronJob"


def test_a_job_of_the_time_that_is_there_already_is_taken_over_if_it_is_its_own():
    template = {"spec": {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"}}
    spec = {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": template}}}
    for name in ("mine", "taken"):
        manifest = {
            "apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        }  # fmt: skip
        objects.create("CronJob", "default", manifest, now=NOW)
        stored = get_manifest("CronJob", "default", name)
        at = Schedule(spec["schedule"]).after(NOW)
        owner = reference(stored) if name == "mine" else {**reference(stored), "uid": "other"}
        objects.create("Job", "default", rules.job_for(stored, at, owner), now=NOW)
    follower.follow(moments.after(at, 1))
    (active,) = get_manifest("CronJob", "default", "mine")["status"]["active"]
    assert active["name"] == rules.job_name({"metadata": {"name": "mine"}}, at)
    assert "lastScheduleTime" in get_manifest("CronJob", "default", "mine")["status"]
    assert not get_manifest("CronJob", "default", "taken").get("status")
    assert len(jobs()) == 2


def _created_one_that_forbids() -> Schedule:
    """Create the CronJob ``c``, whose Jobs may not overlap; return when they begin."""
    template = {"spec": {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"}}
    spec = {
        "schedule": "*/5 * * * *", "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": {"template": template}},
    }  # fmt: skip
    body = {"metadata": {"name": "c", "namespace": "default"}, "spec": spec}
    objects.create("CronJob", "default", body, now=NOW)
    return Schedule("*/5 * * * *")


def test_what_goes_on_is_told_once():
    """A namespace is looked at whenever something in it changes; each look told of it again."""
    schedule = _created_one_that_forbids()
    stored = get_manifest("CronJob", "default", "c")
    first = schedule.after(NOW)
    second = schedule.after(first)
    follower.follow(first)
    by_hand = rules.job_for(stored, first, reference(stored))
    by_hand["metadata"]["name"] = "by-hand"
    objects.create("Job", "default", by_hand, now=first)

    def counted():
        events = [decode_object(one) for one in list_page("Event", "default").items]
        reasons = ("UnexpectedJob", "JobAlreadyActive")
        return {one["reason"]: one["count"] for one in events if one["reason"] in reasons}

    for number, now in enumerate([*[first] * 3, *[second] * 3, *[schedule.after(second)] * 2]):
        _label("CronJob", "c", {"n": str(number)}, now)
        follower.follow(now)
    assert counted() == {"UnexpectedJob": 1, "JobAlreadyActive": 2}


def test_what_could_not_be_told_is_told_when_it_can_be():
    """It was noted as told before the event was recorded, and the pass failed in between."""
    schedule = _created_one_that_forbids()
    first = schedule.after(NOW)
    second = schedule.after(first)
    follower.follow(first)
    sql.run("ALTER TABLE event ADD CHECK (reason <> 'JobAlreadyActive') NOT VALID")
    follower.follow(second)
    sql.run("ALTER TABLE event DROP CONSTRAINT event_reason_check")
    follower.follow(moments.after(second, 60))
    told = [decode_object(one)["reason"] for one in list_page("Event", "default").items]
    assert "JobAlreadyActive" in told


def test_what_was_told_of_deleted_cron_jobs_is_not_kept_for_ever(monkeypatch):
    """Each is deleted while a Job of it goes on that the controller did not start."""
    monkeypatch.setattr(cron_jobs, "_told", {})
    monkeypatch.setattr(cron_jobs, "_MOST_TOLD", 2)
    template = {"spec": {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"}}
    spec = {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": template}}}
    uids = []
    for number in range(4):
        name = f"c{number}"
        body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        objects.create("CronJob", "default", body, now=NOW)
        stored = get_manifest("CronJob", "default", name)
        by_hand = rules.job_for(stored, NOW, reference(stored))
        objects.create("Job", "default", by_hand, now=NOW)
        follower.follow(NOW)
        uids.append(stored["metadata"]["uid"])
        assert uids[-1] in cron_jobs._told
        objects.delete("CronJob", "default", name, {"propagationPolicy": "Orphan"}, now=NOW)
    assert list(cron_jobs._told) == uids[-2:]


def _label(kind, name, labels, now):
    def labelled(old):
        return {**old, "metadata": {**old["metadata"], "labels": labels}}

    objects.update(kind, "default", name, labelled, now=now)

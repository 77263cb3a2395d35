"""Which Job a CronJob starts now, which Jobs it removes from its history, and its status.

Pure. Rules: pkg/controller/cronjob (``cronjob_controllerv2.go``, ``utils.go``), v1.36.
"""

import zoneinfo
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from clusterstate.objects.values import document, moments
from clusterstate.objects.values.cron import Schedule
from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.workloads.job_rules import finished

SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_MANY: Final = 100
"""Starts missed in a row beyond which a warning asks to look at the clocks."""


class CronJobActions(msgspec.Struct, kw_only=True):
    """Actions for a CronJob. ``start``: the time for which a Job must be started.

    ``delete``: Jobs; ``events``: type, reason and message of each. ``standing``: events about
    lasting conditions, by key; each is recorded once. ``due_at``: when to reconcile again.
    """

    status: Manifest
    start: datetime | None = None
    delete: list[Manifest]
    events: list[tuple[str, str, str]]
    standing: dict[str, tuple[str, str, str]]
    due_at: datetime | None = None


def job_name(cron_job: Manifest, at: datetime) -> str:
    """Return the name of the Job of a scheduled time: a fixed one, so that it is created once."""
    return f"{cron_job['metadata']['name']}-{int(at.timestamp()) // 60}"


def job_for(cron_job: Manifest, at: datetime, owner: Manifest) -> Manifest:
    """Return the Job of a time (``getJobFromTemplate2``)."""
    template = cron_job["spec"]["jobTemplate"]
    metadata = template.get("metadata") or {}
    zone = cron_job["spec"].get("timeZone")
    local = at.astimezone(zoneinfo.ZoneInfo(zone) if zone else UTC)
    stamp = local.isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            **({"labels": metadata["labels"]} if metadata.get("labels") else {}),
            "annotations": {**(metadata.get("annotations") or {}), SCHEDULED: stamp},
            "name": job_name(cron_job, at),
            "namespace": cron_job["metadata"]["namespace"],
            "ownerReferences": [owner],
        },
        "spec": template.get("spec") or {},
    }


def reconcile(cron_job: Manifest, jobs: Sequence[Manifest], *, now: datetime) -> CronJobActions:
    """Return what to do for a CronJob; ``jobs`` are the Jobs that it owns."""
    spec, before = cron_job["spec"], cron_job.get("status") or {}
    actions = CronJobActions(status={}, delete=[], events=[], standing={})
    active = _active(actions, before.get("active") or (), jobs)
    _forget(actions, cron_job, jobs)
    last = before.get("lastScheduleTime")
    if not cron_job["metadata"].get("deletionTimestamp") and not spec.get("suspend"):
        _schedule(actions, cron_job, active, now)
    if actions.start is not None:
        last = document.format_time(actions.start)
        if spec.get("concurrencyPolicy") == "Replace":
            replaced = {one["uid"] for one in active}
            actions.delete += [
                one for one in jobs if one["metadata"]["uid"] in replaced and not _is_leaving(one)
            ]
            active = []
    succeeded = [
        at
        for one in jobs
        if finished(one) == "Complete" and (at := (one.get("status") or {}).get("completionTime"))
    ]
    status = {
        "active": active,
        "lastScheduleTime": last,
        "lastSuccessfulTime": max(
            [*succeeded, *filter(None, [before.get("lastSuccessfulTime")])], default=None
        ),
    }
    actions.status = {key: value for key, value in status.items() if value}
    return actions


def _active(
    actions: CronJobActions, before: Sequence[Manifest], jobs: Sequence[Manifest]
) -> list[Manifest]:
    """Return which of the active Jobs still are; record how the others ended.

    A Job that a client started in the CronJob's name, as ``kubectl create job --from`` does, gets
    an event but is never active, so it keeps no other Job from being started.
    """
    unseen = {one["metadata"]["uid"]: one for one in jobs}
    active = []
    for entry in before:
        job = unseen.pop(entry.get("uid"), None)
        if job is None:
            text = f"Active job went missing: {entry.get('name', '')}"
            actions.events.append(("Normal", "MissingJob", text))
        elif outcome := finished(job):
            text = f"Saw completed job: {job['metadata']['name']}, condition: {outcome}"
            actions.events.append(("Normal", "SawCompletedJob", text))
        else:
            active.append(entry)
    for uid, job in unseen.items():
        if not finished(job):
            name = job["metadata"]["name"]
            text = f"Saw a job that the controller did not create or forgot: {name}"
            actions.standing[f"unexpected {uid}"] = ("Warning", "UnexpectedJob", text)
    return active


def _schedule(
    actions: CronJobActions, cron_job: Manifest, running: Sequence[Manifest], now: datetime
) -> None:
    """Set the Job to start, if one is due, and the next time; record why none is started."""
    spec, status = cron_job["spec"], cron_job.get("status") or {}
    schedule = Schedule(spec["schedule"], spec.get("timeZone"))
    text = status.get("lastScheduleTime") or cron_job["metadata"]["creationTimestamp"]
    earliest, patience = document.parse_time(text), spec.get("startingDeadlineSeconds")
    if patience is not None:
        earliest = max(earliest, moments.after(now, -patience))
    actions.due_at = schedule.after(now)
    at = schedule.latest(earliest, now)
    if at is None:
        return
    if at == document.parse_time(text) and status.get("lastScheduleTime"):
        return
    if _is_long_overdue(schedule, earliest, now):
        note = (
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds "
            "or check clock skew"
        )
        actions.standing[f"late {at}"] = ("Warning", "TooManyMissedTimes", note)
    if running and spec.get("concurrencyPolicy") == "Forbid":
        note = (
            "Not starting job because prior execution is running and concurrency policy is Forbid"
        )
        actions.standing[f"active {at}"] = ("Normal", "JobAlreadyActive", note)
        return
    actions.start = at


def _is_long_overdue(schedule: Schedule, earliest: datetime, now: datetime) -> bool:
    at: datetime | None = earliest
    for _ in range(_MANY + 1):
        assert at is not None
        at = schedule.after(at)
        if at is None or at > now:
            return False
    return True


def _forget(actions: CronJobActions, cron_job: Manifest, jobs: Sequence[Manifest]) -> None:
    """Add the oldest Jobs beyond the history limits to ``delete`` (``cleanupFinishedJobs``)."""
    for outcome, field in (
        ("Complete", "successfulJobsHistoryLimit"),
        ("Failed", "failedJobsHistoryLimit"),
    ):
        limit = cron_job["spec"].get(field)
        ended = [one for one in jobs if finished(one) == outcome and not _is_leaving(one)]
        ended.sort(key=lambda one: ((one.get("status") or {}).get("startTime") or "",
                                    one["metadata"]["name"]))  # fmt: skip
        if limit is not None and len(ended) > limit:
            actions.delete += ended[: len(ended) - limit]


def _is_leaving(job: Manifest) -> bool:
    return bool(job["metadata"].get("deletionTimestamp"))


def reference_to(job: Manifest) -> Manifest:
    """Return the entry of a running Job in a CronJob's status."""
    metadata = job["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
        "resourceVersion": metadata.get("resourceVersion") or "",
    }

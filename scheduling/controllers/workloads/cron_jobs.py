"""CronJobs: starts Jobs and deletes old ones, as ``cron_job_rules`` decides.

A namespace is processed whenever an object in it changes. A lasting condition, such as a Job that
was started by hand, gets one event.
"""

from clusterstate.actions import objects
from clusterstate.objects.rules.ownership import is_controlled_by
from clusterstate.objects.values.errors import AlreadyExists, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import memory
from clusterstate.queries.objects import decode_object
from scheduling.controllers.workloads import cron_job_rules as rules
from scheduling.controllers.workloads.control import NamespaceControl, reference
from scheduling.controllers.workloads.job_rules import finished

KIND = "CronJob"
_JOB = "Job"

_MOST_TOLD = 10_000
_told: dict[str, frozenset[str]] = {}
"""The lasting occasions of each CronJob that have an event already, by its uid, latest look last.

A CronJob that was deleted is not looked at any more, so where there are many the one that was not
looked at for longest is dropped. If it is still there, its occasions get an event once more.
"""
memory.when_replaced(_told.clear)


def sync(control: NamespaceControl, cron_job: Manifest) -> None:
    """Start a CronJob's Job if one is due, delete old ones, and update the status."""
    uid = cron_job["metadata"]["uid"]
    jobs = [one for one in control.world.owners[_JOB] if is_controlled_by(one, uid)]
    actions = rules.reconcile(cron_job, jobs, now=control.now)
    recorded = _told.get(uid, frozenset())
    news = [event for occasion, event in actions.standing.items() if occasion not in recorded]
    control.when_recorded(lambda: _note_told(uid, frozenset(actions.standing)))
    for type_, reason, message in [*actions.events, *news]:
        control.record_event(cron_job, type_, reason, message)
    for job in actions.delete:
        control.delete(job)
        text = f"Deleted job {job['metadata']['name']}"
        control.record_event(cron_job, "Normal", "SuccessfulDelete", text)
    status = actions.status
    if actions.start is not None:
        new_job = rules.job_for(cron_job, actions.start, reference(cron_job))
        try:
            stored = objects.create(_JOB, control.world.namespace, new_job, now=control.now)
        except AlreadyExists:
            status = _found_there(cron_job, status, new_job, jobs)
        except StatusError as error:
            text = f"Error creating job: {error.message}"
            control.record_event(cron_job, "Warning", "FailedCreate", text)
            control.retry()
            return
        else:
            job = decode_object(stored.manifest)
            control.wrote = True
            name = job["metadata"]["name"]
            control.world.replace(_JOB, name, job)
            control.record_event(cron_job, "Normal", "SuccessfulCreate", f"Created job {name}")
            status = {**status, "active": [*status.get("active", ()), rules.reference_to(job)]}
    control.write_status(cron_job, status)
    control.look_again(actions.due_at)


def _note_told(uid: str, occasions: frozenset[str]) -> None:
    """Note the lasting conditions for which a CronJob has events."""
    _told.pop(uid, None)
    if occasions:
        _told[uid] = occasions
        if len(_told) > _MOST_TOLD:
            del _told[next(iter(_told))]


def _found_there(
    cron_job: Manifest, status: Manifest, new_job: Manifest, own: list[Manifest]
) -> Manifest:
    """Return the status for a time whose Job exists already.

    A Job of the CronJob itself was started, but the status not written. A client's Job has the
    name: nothing was started at this time.
    """
    name, active = new_job["metadata"]["name"], status.get("active", ())
    mine = next((one for one in own if one["metadata"]["name"] == name), None)
    if mine is None:
        before = (cron_job.get("status") or {}).get("lastScheduleTime")
        return {**status, "lastScheduleTime": before} if before else _without_time(status)
    if any(one["uid"] == mine["metadata"]["uid"] for one in active) or finished(mine):
        return status
    return {**status, "active": [*active, rules.reference_to(mine)]}


def _without_time(status: Manifest) -> Manifest:
    return {key: value for key, value in status.items() if key != "lastScheduleTime"}

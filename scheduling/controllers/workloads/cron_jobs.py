"""CronJobs: starts the Jobs that ``cron_job_rules`` plans, and deletes those that are too many."""

from clusterstate.actions import objects
from clusterstate.objects.errors import AlreadyExists, StatusError
from clusterstate.objects.meta import Manifest
from clusterstate.queries.objects import decode_object
from scheduling.controllers.workloads import cron_job_rules as rules
from scheduling.controllers.workloads.control import NamespaceControl, reference

KIND = "CronJob"
_JOB = "Job"


def sync(control: NamespaceControl, cron_job: Manifest) -> None:
    """Start a CronJob's Job if it is time, forget old ones, and say how it goes."""
    uid = cron_job["metadata"]["uid"]
    jobs = [
        one
        for one in control.world.owners[_JOB]
        if any(
            owner.get("uid") == uid and owner.get("controller")
            for owner in one["metadata"].get("ownerReferences") or ()
        )
    ]
    plan = rules.plan(cron_job, jobs, now=control.now)
    for type_, reason, message in plan.events:
        control.record_event(cron_job, type_, reason, message)
    for job in plan.delete:
        control.delete(job)
        text = f"Deleted job {job['metadata']['name']}"
        control.record_event(cron_job, "Normal", "SuccessfulDelete", text)
    status = plan.status
    if plan.start is not None:
        wanted = rules.job_for(cron_job, plan.start, reference(cron_job))
        try:
            stored = objects.create(_JOB, control.world.namespace, wanted, now=control.now)
        except AlreadyExists:
            pass
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
    control.look_again(plan.due_at)

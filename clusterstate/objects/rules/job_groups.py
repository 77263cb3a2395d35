"""Of which Jobs with ``spec.scheduling`` no group is made.

Rule: pkg/controller/job/job_scheduling_manager.go, v1.37 (``hasParentWorkloadOwner``).
"""

from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.meta import Manifest


def why_no_group(job: Manifest, compatibility: Compatibility) -> str:
    """Return why a Job's ``spec.scheduling`` has no effect; empty if its group is made."""
    if compatibility < Compatibility.V1_37:
        return f'with compatibility "{compatibility.text}", no PodGroup is made for Jobs'
    if (job["spec"]["template"].get("spec") or {}).get("schedulingGroup") is not None:
        return "the template's pods name a PodGroup already (schedulingGroup)"
    for one in (job.get("metadata") or {}).get("ownerReferences") or ():
        of_batch = (one.get("apiVersion") or "").startswith("batch/")
        if one.get("controller") and not (of_batch and one.get("kind") == "CronJob"):
            return f"no PodGroup is made for a Job that a {one.get('kind')} controls"
    return ""

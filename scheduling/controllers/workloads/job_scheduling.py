"""The Workload and the PodGroup of a Job with ``spec.scheduling``.

Both are created before the Job's first pod, which names the group; a Job that has begun without
them stays without. A changed size of the gang is passed on. Rule:
pkg/controller/job/job_scheduling_manager.go, v1.37 (``ensureWorkloadAndPodGroup``). Differences: a
Job without ``spec.scheduling`` gets neither, where Kubernetes creates a basic group for each; a
group that another controller delegates to the Job is not created; a user's own Workload or PodGroup
that refers to the Job (``controllerRef``, ``workloadRef``) is not adopted, a second one is created.
"""

from functools import reduce
from typing import Any, Final

from clusterstate.actions import objects
from clusterstate.objects.rules.job_groups import why_no_group
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, find_object
from scheduling.controllers.workloads.control import NamespaceControl, reference

API_VERSION: Final = "scheduling.k8s.io/v1beta1"
_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
_COPIED: Final = ("schedulingConstraints", "disruptionMode", "resourceClaims")


class GroupRefused(Exception):
    """The Workload or the PodGroup could not be created; the Job's pods wait for it."""


def group_of(control: NamespaceControl, job: Manifest, *, has_pods: bool) -> str:
    """Return the name of the PodGroup of a Job's pods, created if needed; empty for none.

    Raises:
        GroupRefused: it could not be created now; an event says why.
    """
    metadata = job["metadata"]
    if job["spec"].get("scheduling") is None or why_no_group(job, control.compatibility):
        return ""
    is_new = not has_pods and _has_not_begun(job.get("status") or {})
    name = f"{metadata['name'][: _LONGEST_NAME - 11]}-{_hash(metadata['uid'])}"
    template = _template(job)
    desired: Manifest = {
        "apiVersion": API_VERSION, "kind": "Workload", "metadata": _metadata(job, name),
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": metadata["name"]},
            "podGroupTemplates": [template],
        },
    }  # fmt: skip
    workload = _ensured(control, job, desired, is_new=is_new)
    if workload is None:
        return ""
    group_name = _group_name(name, template["name"])
    owner = {"apiVersion": API_VERSION, "kind": "Workload", "name": name,
             "uid": workload["metadata"]["uid"]}  # fmt: skip
    group: Manifest = {
        "apiVersion": API_VERSION, "kind": "PodGroup",
        "metadata": _metadata(job, group_name, owner),
        "spec": {
            "workloadRef": {"workloadName": name, "templateName": template["name"]},
            **{key: value for key, value in template.items() if key != "name"},
        },
    }  # fmt: skip
    return "" if _ensured(control, job, group, is_new=is_new) is None else group_name


def _has_not_begun(status: Manifest) -> bool:
    """Return whether a Job never started (``isNewJob``)."""
    types = {one.get("type") for one in status.get("conditions") or ()}
    begun = any(status.get(key) for key in ("startTime", "succeeded", "failed"))
    return not begun and "Suspended" not in types


def _template(job: Manifest) -> Manifest:
    """Return the template of the Job's group; a gang is as large as the parallelism by default."""
    spec, scheduling = job["spec"], job["spec"]["scheduling"]
    policy: dict[str, Any] = dict(scheduling.get("schedulingPolicy") or {})
    if (gang := policy.get("gang")) is not None:
        size = gang.get("minCount")
        size = spec.get("parallelism", 1) if size is None else size
        policy["gang"] = {"minCount": max(size, 1)}
    name = job["metadata"]["name"][: _LONGEST_LABEL - 6].replace(".", "-")  # a label value
    template: Manifest = {
        "name": f"{name}-pgt-0",
        "schedulingPolicy": policy or {"basic": {}},
        **{key: scheduling[key] for key in _COPIED if scheduling.get(key)},
    }
    if priority := (spec["template"].get("spec") or {}).get("priorityClassName"):
        template["priorityClassName"] = priority
    return template


def _metadata(job: Manifest, name: str, *owners: Manifest) -> Manifest:
    return {
        "name": name, "namespace": job["metadata"]["namespace"],
        "ownerReferences": [reference(job), *owners],
    }  # fmt: skip


def _ensured(
    control: NamespaceControl, job: Manifest, desired: Manifest, *, is_new: bool
) -> Manifest | None:
    """Return the stored object, resized if needed; ``None`` if it is not the Job's."""
    kind, metadata = desired["kind"], desired["metadata"]
    place = metadata["namespace"], metadata["name"]
    text = find_object(kind, *place)
    if text is None and not is_new:
        return None
    if text is None:
        try:
            created = objects.create(kind, place[0], desired, now=control.now)
        except StatusError as error:
            why = f"Failed to create {kind} for Job {job['metadata']['name']}: {error.message}"
            control.record_event(job, "Warning", f"Failed{kind}Create", why)
            control.retry()
            raise GroupRefused from error
        message = f"Created {kind} {place[1]} for Job {job['metadata']['name']}"
        control.record_event(job, "Normal", f"{kind}Created", message)
        control.wrote = True
        return decode_object(created.manifest)
    found = decode_object(text)
    mine = job["metadata"]["uid"]
    owners = found["metadata"].get("ownerReferences") or ()
    if not any(one.get("controller") and one.get("uid") == mine for one in owners):
        return None
    size = _size(desired)
    if size is not None and _size(found) not in (None, size):
        stored = objects.update(kind, *place, lambda one: _sized(one, size), now=control.now)
        control.wrote = control.wrote or stored.changed
    return found


def _policies(manifest: Manifest) -> list[Manifest]:
    spec = manifest["spec"]
    parts = spec["podGroupTemplates"] if manifest["kind"] == "Workload" else [spec]
    return [one["schedulingPolicy"] for one in parts]


def _size(manifest: Manifest) -> int | None:
    found: int | None = (_policies(manifest)[0].get("gang") or {}).get("minCount")
    return found


def _sized(manifest: Manifest, size: int) -> Manifest:
    """Return a Workload or a PodGroup with this gang size."""
    spec = manifest["spec"]
    policy = {"schedulingPolicy": {"gang": {"minCount": size}}}
    if manifest["kind"] == "PodGroup":
        return {**manifest, "spec": {**spec, **policy}}
    templates = [{**one, **policy} for one in spec["podGroupTemplates"]]
    return {**manifest, "spec": {**spec, "podGroupTemplates": templates}}


def _hash(text: str) -> str:
    """Return FNV-1a of 32 bits, in letters that spell nothing (``rand.SafeEncodeString``)."""
    number = reduce(lambda sum_, byte: (sum_ ^ byte) * 16777619 % 2**32, text.encode(), 2166136261)
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(number))


def _group_name(workload: str, template: str) -> str:
    """Return the name of a PodGroup (``computePodGroupName``)."""
    suffix = _hash(workload + template)
    room = _LONGEST_NAME - len(suffix) - 2 - len(template)
    return f"{workload[:room]}-{template}-{suffix}"

"""Jobs: carries out what ``job_rules`` decides about their pods."""

from collections.abc import Mapping

from clusterstate.actions import objects
from clusterstate.actions.cluster import jobs as job_actions
from clusterstate.actions.writing.object_meta import name_suffix
from clusterstate.objects.values.errors import Conflict, NotFound
from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.workloads import job_policy_rules as policies
from scheduling.controllers.workloads import job_rules as rules
from scheduling.controllers.workloads.control import NamespaceControl, pod_of
from scheduling.controllers.workloads.job_scheduling import GroupRefused, group_of

KIND = "Job"


def sync(control: NamespaceControl, job: Manifest) -> None:
    """Start and end a Job's pods, count those that ended, and write the status."""
    if not rules.is_mine(job):
        return
    pods = control.claim(job)
    actions = rules.reconcile(job, pods, now=control.now)
    for type_, reason, message in actions.events:
        control.record_event(job, type_, reason, message)
    if actions.expired:
        _delete(control, job)
        return
    try:
        group = "" if rules.finished(job) else group_of(control, job, has_pods=bool(pods))
    except GroupRefused:
        return
    created = control.create(
        job, [_pod(job, index, actions.failures, group) for index in actions.create]
    )
    status = actions.status
    missing = len(actions.create) - len(created.names)
    if missing:
        status = {**status, "active": status["active"] - missing}
        if not status["active"]:
            del status["active"]
    if actions.count:
        metadata = job["metadata"]
        job_actions.count_pods(
            control.world.namespace,
            metadata["name"],
            metadata["uid"],
            status,
            [(one.name, one.uid) for one in actions.count],
            finalizer=rules.TRACKING,
            now=control.now,
        )
        control.wrote = True
    else:
        control.write_status(job, status)
    control.remove(job, actions.delete)
    control.look_again(actions.due_at)


def release(control: NamespaceControl) -> None:
    """Remove the finalizer of pods whose Job is gone: no Job will count them."""
    for pod in (*control.world.without_owner(KIND), *control.world.orphans()):
        if pod.is_tracked:
            job_actions.release_pod(
                control.world.namespace,
                pod.name,
                pod.uid,
                finalizer=rules.TRACKING,
                now=control.now,
            )
            control.wrote = True


def _delete(control: NamespaceControl, job: Manifest) -> None:
    metadata = job["metadata"]
    options = {
        "preconditions": {"uid": metadata["uid"]},
        "propagationPolicy": "Foreground",
    }
    try:
        objects.delete(KIND, metadata["namespace"], metadata["name"], options, now=control.now)
    except (NotFound, Conflict):
        return
    control.wrote = True


def _pod(
    job: Manifest, index: int | None, failures: Mapping[int, tuple[int, int]], group: str
) -> Manifest:
    template = job["spec"]["template"]
    if group:
        grouped = {**template["spec"], "schedulingGroup": {"podGroupName": group}}
        template = {**template, "spec": grouped}
    name = ""
    notes = labels = {}
    if index is not None:
        notes = labels = {policies.INDEX: str(index)}
        if index in failures:
            counted, ignored = failures[index]
            notes = {**notes, policies.FAILURES: str(counted)}
            if ignored:
                notes[policies.IGNORED] = str(ignored)
        base = f"{job['metadata']['name']}-{index}"
        name = f"{base[:57]}-{name_suffix()}"
        spec = template.get("spec") or {}
        template = {
            **template,
            "spec": {
                **spec,
                "hostname": spec.get("hostname") or base[:63],
                "containers": [_with_index_variable(one) for one in spec.get("containers") or ()],
            },
        }
    pod = pod_of(job, template, name=name, labels=labels, annotations=notes)
    metadata = pod["metadata"]
    metadata["finalizers"] = [*metadata.get("finalizers", ()), rules.TRACKING]
    return pod


def _with_index_variable(container: Manifest) -> Manifest:
    """Return a container with its completion index in its environment."""
    env = container.get("env") or []
    if any(one.get("name") == "JOB_COMPLETION_INDEX" for one in env):
        return container
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{policies.INDEX}']"}}
    return {**container, "env": [*env, {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]}

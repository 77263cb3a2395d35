"""Deployments: carries out what ``deployment_rules`` decides about their ReplicaSets."""

from clusterstate.actions import objects
from clusterstate.objects.rules.ownership import is_controlled_by
from clusterstate.objects.values.errors import AlreadyExists, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, find_object
from scheduling.controllers.workloads import deployment_records as records
from scheduling.controllers.workloads import deployment_rules as rules
from scheduling.controllers.workloads import deployment_status as status_rules
from scheduling.controllers.workloads.claims import claim
from scheduling.controllers.workloads.control import NamespaceControl, reference
from scheduling.controllers.workloads.pods import FINISHED, explanation


def sync(control: NamespaceControl, deployment: Manifest) -> None:
    """Make a Deployment's next step, and update its status."""
    sets = claim(control, deployment, "ReplicaSet")
    pods = [pod for one in sets for pod in control.world.pods_of(one)]
    busy = {pod.owner for pod in pods if pod.phase not in FINISHED}
    actions = rules.reconcile(
        deployment,
        [records.replica_set_of(one) for one in sets],
        busy=busy,
        now=control.now,
        note=explanation(pods),
    )
    if actions.created is not None and not _create(control, deployment, actions.created):
        return
    by_name = {one["metadata"]["name"]: one for one in sets}
    for one in actions.changed:
        _resize(control, by_name[one.name], one)
    for one in actions.deleted:
        control.delete(by_name[one.name])
    for type_, reason, message in actions.events:
        control.record_event(deployment, type_, reason, message)
    annotations = deployment["metadata"].get("annotations") or {}
    if actions.revision is not None and annotations.get(records.REVISION) != actions.revision:
        _note_revision(control, deployment, actions.revision)
    control.write_status(deployment, actions.status)
    control.look_again(actions.due_at)


def _create(control: NamespaceControl, deployment: Manifest, replica_set: Manifest) -> bool:
    """Create the ReplicaSet of the current template; if refused, write the reason, return False."""
    namespace, name = deployment["metadata"]["namespace"], replica_set["metadata"]["name"]
    metadata = {**replica_set["metadata"], "ownerReferences": [reference(deployment)]}
    try:
        stored = objects.create(
            "ReplicaSet", namespace, {**replica_set, "metadata": metadata}, now=control.now
        )
    except AlreadyExists:
        if _is_made(deployment, replica_set):
            return True
        # Another template has this hash, or the name is taken: use the next hash.
        control.write_status(deployment, status_rules.collided(deployment.get("status") or {}))
        control.look_again(control.now)
        return False
    except StatusError as error:
        text = f'Failed to create new replica set "{name}": {error.message}'
        control.record_event(deployment, "Warning", "ReplicaSetCreateError", text)
        status = status_rules.failed_to_create(deployment, name, error.message, control.now)
        control.write_status(deployment, status)
        control.retry()
        return False
    control.wrote = True
    control.world.replace("ReplicaSet", name, decode_object(stored.manifest))
    return True


def _is_made(deployment: Manifest, new_set: Manifest) -> bool:
    """Return whether the ReplicaSet of this name is this Deployment's, with the same template."""
    metadata = new_set["metadata"]
    text = find_object("ReplicaSet", deployment["metadata"]["namespace"], metadata["name"])
    if text is None:
        return True  # deleted since; the next step creates it
    found = decode_object(text)
    mine = is_controlled_by(found, deployment["metadata"]["uid"])
    return mine and records.same_template(found["spec"]["template"], new_set["spec"]["template"])


def _resize(control: NamespaceControl, stored: Manifest, one: records.ReplicaSet) -> None:
    def changed(manifest: Manifest) -> Manifest:
        spec = {**manifest["spec"], "replicas": one.replicas}
        if one.min_ready_seconds or spec.get("minReadySeconds"):
            spec["minReadySeconds"] = one.min_ready_seconds
        annotations = {**(manifest["metadata"].get("annotations") or {}), **one.annotations}
        metadata = {**manifest["metadata"], "annotations": annotations}
        return {**manifest, "metadata": metadata, "spec": spec}

    control.write(stored, changed)


def _note_revision(control: NamespaceControl, deployment: Manifest, revision: str) -> None:
    def noted(manifest: Manifest) -> Manifest:
        annotations = {
            **(manifest["metadata"].get("annotations") or {}),
            records.REVISION: revision,
        }
        return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}

    # An annotation written with the spec would be another generation to observe.
    control.write(deployment, noted, subresource="status")

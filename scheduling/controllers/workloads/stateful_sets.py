"""StatefulSets: carries out what ``stateful_set_rules`` decides about their pods."""

from collections.abc import Iterable
from functools import partial

from clusterstate.actions import objects
from clusterstate.objects.values.errors import AlreadyExists, StatusError
from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.workloads import revisions
from scheduling.controllers.workloads import stateful_set_rules as rules
from scheduling.controllers.workloads.control import NamespaceControl, pod_of, reference
from scheduling.controllers.workloads.pods import OwnedPod
from scheduling.controllers.workloads.revision_rules import HASH_LABEL

_CLAIM = "PersistentVolumeClaim"


def sync(control: NamespaceControl, owner: Manifest) -> None:
    """Make a StatefulSet's next step, and update its status."""
    pods = control.claim(owner, is_named=lambda pod: rules.ordinal_of(owner, pod) is not None)
    history = revisions.trace(control, owner)
    if history is None:
        return
    revisions_by_name = {one["metadata"]["name"]: one for one in (*history.old, history.current)}
    update = history.current["metadata"]["name"]
    current = (owner.get("status") or {}).get("currentRevision") or update
    current = current if current in revisions_by_name else update
    actions = rules.reconcile(
        owner,
        pods,
        current=current,
        update=update,
        now=control.now,
        version=control.compatibility,
    )
    for type_, reason, message in actions.events:
        control.record_event(owner, type_, reason, message)
    new_pods = [
        pod_of(
            owner,
            rules.template_for(owner, revisions_by_name[revision], ordinal),
            name=f"{owner['metadata']['name']}-{ordinal}",
        )
        for ordinal, revision in actions.create[: rules.BURST]
        if _have_claims(control, owner, ordinal)
    ]
    control.create(owner, new_pods)
    _give_claims(control, owner, pods)
    control.remove(owner, actions.delete[: rules.BURST])
    live = {one.labels.get(HASH_LABEL, "") for one in pods} | {current}
    revisions.truncate(control, owner, history, live)
    control.write_status(owner, actions.status)
    control.look_again(actions.due_at)


def _give_claims(control: NamespaceControl, owner: Manifest, pods: Iterable[OwnedPod]) -> None:
    """Write the owners of all pods' claims, before a surplus pod is deleted."""
    claims = {one["metadata"]["name"]: one for one in control.world.owners[_CLAIM]}
    for pod in pods:
        ordinal = rules.ordinal_of(owner, pod)
        if ordinal is None:
            continue
        new_owner = {"": None, "set": reference(owner), "pod": _reference_to(pod)}[
            rules.keeper_of_claims(owner, pod)
        ]
        for template in owner["spec"].get("volumeClaimTemplates") or ():
            claim = claims.get(rules.claim_name(owner, template, ordinal))
            if claim is not None and not claim["metadata"].get("deletionTimestamp"):
                owners = rules.owners_of_claim(claim, owner, pod, new_owner)
                if owners != (claim["metadata"].get("ownerReferences") or []):
                    control.write(claim, partial(_owned, owners=owners))


def _owned(claim: Manifest, owners: list[Manifest]) -> Manifest:
    metadata = {key: value for key, value in claim["metadata"].items() if key != "ownerReferences"}
    return {**claim, "metadata": {**metadata, **({"ownerReferences": owners} if owners else {})}}


def _reference_to(pod: OwnedPod) -> Manifest:
    return {
        "apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid,
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


def _have_claims(control: NamespaceControl, owner: Manifest, ordinal: int) -> bool:
    """Create the missing claims of a pod.

    False if one is refused, with an event, or belongs to a former pod, with which it will be
    deleted.
    """
    present = {one["metadata"]["name"]: one for one in control.world.owners[_CLAIM]}
    for claim in rules.claims_for(owner, ordinal):
        name = claim["metadata"]["name"]
        metadata = (present.get(name) or {}).get("metadata") or {}
        owners = metadata.get("ownerReferences") or ()
        if metadata.get("deletionTimestamp") or any(one.get("kind") == "Pod" for one in owners):
            control.retry()
            return False
        try:
            objects.create(_CLAIM, control.world.namespace, claim, now=control.now)
        except AlreadyExists:
            continue
        except StatusError as error:
            text = f"create Claim {name} for Pod failed: {error.message}"
            control.record_event(owner, "Warning", "FailedCreate", text)
            control.retry()
            return False
        control.wrote = True
    return True

"""Which events may make a pod schedulable that DynamicResources rejected.

Source: dynamicresources.go ``EventsToRegister``, ``isSchedulableAfterClaimChange`` and
``isSchedulableAfterPodChange``, v1.36. Deletions may help as well: of a claim that held devices, of
a class (an older one then provides its extended resource), of a slice (its pool may be complete
then).
"""

import msgspec

from clusterstate.objects.dra.resourceclaim import ClaimError, claim_name, is_for, pod_claims
from clusterstate.objects.dra.world import DeviceWorld
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from scheduling.framework.events import (
    Action,
    ClusterEvent,
    Registration,
    Resource,
    subjects_of,
)

_CHANGES = Action.ADD | Action.UPDATE


def _names(pod: Pod, devices: DeviceWorld | None) -> set[str] | None:
    """Return the names of a pod's claims, ``None`` if one is missing or belongs to another pod."""
    manifest: Manifest = msgspec.to_builtins(pod)
    namespace = manifest["metadata"]["namespace"] = pod.metadata.namespace or "default"
    names: set[str] = set()
    try:
        for entry in pod_claims(manifest):
            name, must_own = claim_name(manifest, entry)
            if name is None:
                continue
            names.add(name)
            if devices is not None and must_own:
                is_for(devices.claims[namespace, name], manifest, "Pod", or_group=True)
            elif devices is not None and (namespace, name) not in devices.claims:
                return None
    except (ClaimError, KeyError):
        return None
    return names


def _claim_changed(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether a claim of the pod has another status, or any claim freed devices."""
    subject, old = event.subject, event.old
    if subject is None:  # it gave its devices back, or is gone
        return bool(_status(old).get("allocation")) and _names(pod, event.devices) is not None
    if subject not in subjects_of(pod) or (old is not None and _status(old) == _status(event.new)):
        return False
    return _names(pod, event.devices) is not None


def _status(claim: object) -> Manifest:
    return (claim.get("status") or {}) if isinstance(claim, dict) else {}


def _claims_made(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether all claims of the pod exist, now that one was made for it."""
    new = event.new
    if not isinstance(new, Pod):
        return True
    return new.metadata.uid == pod.metadata.uid and _names(new, event.devices) is not None


DYNAMIC_RESOURCES = (
    Registration(
        resource=Resource.NODE,
        actions=Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE,
    ),
    Registration(
        resource=Resource.RESOURCE_CLAIM,
        actions=_CHANGES | Action.DELETE,
        hint=_claim_changed,
        own=True,
    ),
    Registration(
        resource=Resource.PENDING_POD,
        actions=Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
        hint=_claims_made,
    ),
    Registration(resource=Resource.UNASSIGNED_POD, actions=Action.ADD, hint=_claims_made),
    Registration(resource=Resource.DEVICE_CLASS, actions=_CHANGES | Action.DELETE),
    Registration(resource=Resource.RESOURCE_SLICE, actions=_CHANGES | Action.DELETE),
)

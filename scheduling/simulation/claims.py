"""Does in a simulation's snapshot what controllers and bindings do about claims, at once.

::

    make       the claims of templates and ephemeral volumes that controllers make for a pod
    another    the class of one more pod like another, with claims of its own
    bind       stores a pod's allocated devices and bound volumes
    give_back  frees the devices of a pod that is gone, and deletes claims made for it

Plugins choose a pod's devices and volumes and ``Snapshot.assume`` marks them as taken, as in the
live scheduler. A volume to be provisioned is not created: its claim keeps the selected node. Rules:
pkg/controller/resourceclaim/controller.go (``claimcontroller``), volume/ephemeral/controller.go and
dynamicresources.go ``bindClaim``, v1.36.
"""

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Any, Final

import msgspec

from clusterstate.admission.defaults import set_defaults
from clusterstate.objects.dra.attempt import ALLOCATED_HERE, MAPPINGS, is_special
from clusterstate.objects.dra.claimcontroller import sync_claim, sync_owner
from clusterstate.objects.dra.resourceclaim import ClaimError, reserved_for
from clusterstate.objects.rules import default_classes
from clusterstate.objects.rules.volume_matching import ephemeral_claim, ephemeral_claim_name
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.storage import BIND_COMPLETED, BOUND, PersistentVolumeClaim
from scheduling.engine.reference.decision import Decision
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.device_claims import manifest_of
from scheduling.framework.types import PodInfo

_CLAIM: Final = "ResourceClaim"
_VOLUME_CLAIM: Final = "PersistentVolumeClaim"
Change = tuple[str, Any, Any]
"""Kind, former value and new value of an object; ``None`` if it did not or does not exist."""


def make(
    snapshot: Snapshot,
    pod: Manifest,
    template: Callable[[str], Manifest | None],
    *,
    suffix: str = "new",
) -> Manifest:
    """Create the claims that a pod lacks; return the pod with their names in its status.

    ``template`` looks up a ResourceClaimTemplate of the pod's namespace. If it is missing, no claim
    is created, and the pod waits. ``suffix`` ends the names of ResourceClaims.
    """
    spec, meta = pod["spec"], pod["metadata"]
    templates = [
        (one["name"], found)
        for one in spec.get("volumes") or ()
        if (found := (one.get("ephemeral") or {}).get("volumeClaimTemplate")) is not None
    ]
    wants_claims = any(
        one.get("resourceClaimTemplateName") for one in spec.get("resourceClaims") or ()
    )
    if not templates and not wants_claims:
        return pod
    pod = {**pod, "metadata": {**meta, "uid": meta.get("uid") or _full_name(meta)}}
    for volume, found in templates:
        _make_volume_claim(snapshot, ephemeral_claim(pod, volume, found))
    status = pod.get("status") or {}
    statuses_ = status.get("resourceClaimStatuses") or ()
    names = [(meta["namespace"], one.get("resourceClaimName")) for one in statuses_]
    claims = [found for name in names if (found := snapshot.devices.claims.get(name)) is not None]
    try:
        outcome = sync_owner(pod, "Pod", claims, template)
    except ClaimError:
        return pod
    statuses = list(statuses_ if outcome.statuses is None else outcome.statuses)
    for entry, claim in outcome.create:
        own = {**claim["metadata"]}
        own["name"] = f"{own.pop('generateName')}{suffix}"
        own["uid"] = _full_name(own)
        claim = msgspec.json.decode(msgspec.json.encode({**claim, "metadata": own}))  # noqa: PLW2901
        set_defaults(_CLAIM, claim)
        snapshot.devices.set(_CLAIM, claim)
        statuses.append({"name": entry, "resourceClaimName": own["name"]})
    return {**pod, "status": {**status, "resourceClaimStatuses": statuses}} if statuses else pod


def _make_volume_claim(snapshot: Snapshot, claim: Manifest) -> None:
    volumes, meta = snapshot.volumes, claim["metadata"]
    if volumes.claim(meta["namespace"], meta["name"]) is not None:
        return
    new: Manifest = msgspec.json.decode(msgspec.json.encode(claim))
    new["metadata"]["uid"] = _full_name(meta)
    set_defaults(_VOLUME_CLAIM, new)
    if new["spec"].get("storageClassName") is None:
        classes = [msgspec.to_builtins(one) for one in volumes.everything("StorageClass")]
        if chosen := default_classes.choose("StorageClass", classes):
            new["spec"]["storageClassName"] = chosen
    volumes.set(msgspec.convert(new, PersistentVolumeClaim))


def _full_name(meta: Manifest) -> str:
    return f"{meta.get('namespace', '')}/{meta.get('name', '')}"


def another(snapshot: Snapshot, info: PodInfo, suffix: str) -> PodInfo:
    """Return the class for one more pod like ``info``'s, with claims like that pod's.

    A pod without claims of its own has the same class.
    """
    meta = info.pod.metadata
    ephemeral = [one for one in info.volumes if one.ephemeral is not None]
    template_names = {
        one.name: one.resource_claim_template_name
        for one in info.pod.spec.resource_claims
        if one.resource_claim_template_name is not None
    }
    if not ephemeral and not template_names:
        return info
    pod = manifest_of(info)
    name = f"{meta.name}-{suffix}"
    pod["metadata"] |= {"name": name, "uid": f"{info.namespace}/{name}"}
    for volume in ephemeral:
        old = snapshot.volumes.claim(info.namespace, ephemeral_claim_name(meta.name, volume.name))
        if old is None:
            continue
        claim = msgspec.to_builtins(msgspec.structs.replace(old.spec, volume_name=""))
        _make_volume_claim(snapshot, ephemeral_claim(pod, volume.name, {"spec": claim}))
    specs: dict[str, Manifest] = {}
    for status in info.pod.status.resource_claim_statuses:
        stored = snapshot.devices.claims.get((info.namespace, status.resource_claim_name or ""))
        if stored is not None and status.name in template_names:
            specs[template_names[status.name]] = {"spec": {"spec": stored["spec"]}}
    pod["status"] = {}
    new_pod = msgspec.convert(make(snapshot, pod, specs.get, suffix=suffix), Pod)
    return snapshot.intern(from_pod(new_pod, compatibility=snapshot.compatibility))


def bind(snapshot: Snapshot, key: Hashable) -> None:
    """Store the devices and volumes that were assumed for a pod, as a binding does."""
    devices, volumes = snapshot.devices, snapshot.volumes
    user = {"resource": "pods", "name": str(key), "uid": str(key)}
    for claim in devices.assumed(key) or ():
        meta = claim["metadata"]
        stored = devices.claims.get((meta.get("namespace", ""), meta["name"]), claim)
        if is_special(claim):
            owner = {"kind": "Pod", "name": str(key), "uid": str(key), "controller": True}
            meta = {**meta, "name": f"{key}-extended-resources", "ownerReferences": [owner]}
        status = {**claim["status"], "reservedFor": [*reserved_for(stored), user]}
        body = {key: claim[key] for key in claim if key not in (ALLOCATED_HERE, MAPPINGS)}
        devices.set(_CLAIM, {**body, "metadata": meta, "status": status})
    devices.confirm(key)
    if (assumed := volumes.assumed(key)) is None:
        return
    for claim_key, name in assumed.bindings:
        of, volume = volumes.claim(*claim_key), volumes.volume(name)
        if of is None or volume is None:
            continue
        phase = msgspec.structs.replace(volume.status, phase=BOUND)
        volumes.set(msgspec.structs.replace(volume, status=phase))
        annotations = {**of.metadata.annotations, BIND_COMPLETED: "yes"}
        bound = msgspec.structs.replace(of.spec, volume_name=name)
        metadata = msgspec.structs.replace(of.metadata, annotations=annotations)
        volumes.set(msgspec.structs.replace(of, metadata=metadata, spec=bound, status=phase))
    for claim_key in assumed.provisions:
        if (of := volumes.claim(*claim_key)) is not None:
            volumes.set(of)  # the claim names the node
    volumes.forget(key)


def settle(snapshot: Snapshot, decision: Decision) -> bool:
    """Bind a decision's claims, so that the next pod may share them. Always returns False."""
    if decision.scheduled:
        bind(snapshot, decision.key)
    return False


def give_back(snapshot: Snapshot, info: PodInfo, key: Hashable, name: str = "") -> list[Change]:
    """Free the claims of a pod that is gone; return the changes. ``name``: the pod's, if known."""
    changes: list[Change] = []
    devices, volumes = snapshot.devices, snapshot.volumes
    names = {str(key), name, info.pod.metadata.name} - {""}
    if info.may_claim:
        here = [one for at, one in devices.claims.items() if at[0] == info.namespace]
        for old in here:
            if _is_of(old["metadata"].get("ownerReferences") or (), names):
                devices.remove(_CLAIM, info.namespace, old["metadata"]["name"])
                changes.append((_CLAIM, old, None))
            elif len(users := [*_others(old, names)]) < len(reserved_for(old)):
                remaining = {one["name"]: {"metadata": {"uid": one.get("uid")}} for one in users}
                for new in sync_claim(old, remaining.get).update:
                    devices.set(_CLAIM, new)
                    changes.append((_CLAIM, old, new))
    for volume in info.volumes:
        if volume.ephemeral is None:
            continue
        of = info.pod.metadata.name
        claim = volumes.remove(_VOLUME_CLAIM, info.namespace, ephemeral_claim_name(of, volume.name))
        if isinstance(claim, PersistentVolumeClaim):
            changes.append((_VOLUME_CLAIM, claim, None))
    return changes


def _is_of(owners: Collection[Manifest], names: Collection[str]) -> bool:
    return any(one.get("kind") == "Pod" and one.get("name") in names for one in owners)


def _others(claim: Manifest, names: Collection[str]) -> Iterator[Manifest]:
    for user in reserved_for(claim):
        if user.get("resource") != "pods" or user["name"] not in names:
            yield user

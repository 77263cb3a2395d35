"""Rules for binding claims and volumes: the next state of each, given all others.

Rules: pkg/controller/volume/persistentvolume/pv_controller.go (``syncUnboundClaim``,
``syncBoundClaim``, ``syncVolume``, ``bind``) and pv_controller_base.go, v1.36.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from clusterstate.objects.rules.volume_matching import (
    MatchingError,
    find_matching_volume,
    has_access_modes,
    is_bound_to,
    modes_differ,
    named_by,
    size_of,
    wanted_size,
    with_annotation,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.storage import (
    AVAILABLE,
    BETA_STORAGE_PROVISIONER,
    BIND_COMPLETED,
    BOUND,
    BOUND_BY_CONTROLLER,
    LOST,
    NO_PROVISIONER,
    PENDING,
    PROVISIONED_BY,
    RELEASED,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)

ClaimKey = tuple[str, str]
NORMAL: Final = "Normal"
WARNING: Final = "Warning"


class VolumeState(msgspec.Struct):
    """All claims, volumes and classes, as lenses; updated with each decision."""

    claims: dict[ClaimKey, PersistentVolumeClaim]
    volumes: dict[str, PersistentVolume]
    classes: dict[str, StorageClass]


class ClaimAction(msgspec.Struct, frozen=True, kw_only=True):
    """The action for a claim.

    ``volume``: bind it. ``phase``: the phase to write. ``provisioner``: the one that must create a
    volume. ``reason``, ``message``: of the event.
    """

    volume: PersistentVolume | None = None
    phase: str = ""
    provisioner: str = ""
    type: str = NORMAL
    reason: str = ""
    message: str = ""


def _failed(message: str, *, reason: str = "FailedBinding", type_: str = NORMAL) -> ClaimAction:
    return ClaimAction(phase=PENDING, reason=reason, message=message, type=type_)


def _lost(reason: str, message: str) -> ClaimAction:
    return ClaimAction(phase=LOST, reason=reason, message=message, type=WARNING)


def fate_of(claim: PersistentVolumeClaim, world: VolumeState) -> ClaimAction:
    """Return what to do about a claim: bind it, have a volume provisioned, or write a phase."""
    if BIND_COMPLETED in claim.metadata.annotations:
        return _bound(claim, world)
    name = claim.spec.volume_name
    if not name:
        return _unbound(claim, world)
    volume = world.volumes.get(name)
    if volume is None:
        return ClaimAction(phase=PENDING)
    if volume.spec.claim_ref is None:
        problem = _unfit(volume, claim)
        if problem:
            text = f'Cannot bind to requested volume "{name}": {problem}'
            return _failed(text, reason="VolumeMismatch", type_=WARNING)
        return ClaimAction(volume=volume)
    if is_bound_to(volume, claim):
        return ClaimAction(volume=volume)
    text = f'volume "{name}" already bound to a different claim.'
    return _failed(text, type_=WARNING)


def _unbound(claim: PersistentVolumeClaim, world: VolumeState) -> ClaimAction:
    found = world.classes.get(claim.class_name) if claim.class_name else None
    waits = (
        found is not None
        and found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        and SELECTED_NODE not in claim.metadata.annotations
    )
    try:
        volume = find_matching_volume(claim, world.volumes.values(), delay_binding=waits)
    except MatchingError as error:
        return _failed(str(error), type_=WARNING)
    if volume is not None:
        return ClaimAction(volume=volume)
    if waits:
        text = "waiting for first consumer to be created before binding"
        return _failed(text, reason="WaitForFirstConsumer")
    if not claim.class_name:
        text = "no persistent volumes available for this claim and no storage class is set"
        return _failed(text)
    if found is None:
        text = f'storageclass.storage.k8s.io "{claim.class_name}" not found'
        return _failed(text, reason="ProvisioningFailed", type_=WARNING)
    if found.provisioner in ("", NO_PROVISIONER):
        text = f'storage class "{claim.class_name}" does not support dynamic provisioning'
        return _failed(text)
    return ClaimAction(phase=PENDING, provisioner=found.provisioner)


def _bound(claim: PersistentVolumeClaim, world: VolumeState) -> ClaimAction:
    name = claim.spec.volume_name
    if not name:
        text = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
        return _lost("ClaimLost", text)
    volume = world.volumes.get(name)
    if volume is None:
        text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        return _lost("ClaimLost", text)
    reference = volume.spec.claim_ref
    if reference is None or reference.uid == claim.metadata.uid:
        return ClaimAction(volume=volume)
    text = "Two claims are bound to the same volume, this one is bound incorrectly"
    return _lost("ClaimMisbound", text)


def _unfit(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Return why a volume does not suit a claim that names it. Rule: checkVolumeSatisfyClaim."""
    if size_of(volume) < wanted_size(claim):
        return "requested PV is too small"
    if volume.class_name != claim.class_name:
        return "storageClassName does not match"
    if modes_differ(claim.spec.volume_mode, volume.spec.volume_mode):
        return "incompatible volumeMode"
    if not has_access_modes(volume, claim):
        return "incompatible accessMode"
    return ""


class VolumeFate(msgspec.Struct, frozen=True):
    """The phase to write to a volume, and what to remove of its ``claimRef``.

    ``forget``: ``all`` of it, its ``uid`` alone, or nothing (empty).
    """

    phase: str
    forget: str = ""


def fate_of_volume(volume: PersistentVolume, world: VolumeState) -> VolumeFate:
    """Return the next phase of a volume, given its claim."""
    reference = volume.spec.claim_ref
    if reference is None or not reference.uid:
        return VolumeFate(AVAILABLE)
    claim = world.claims.get((reference.namespace, reference.name))
    if claim is None or claim.metadata.uid != reference.uid:
        return VolumeFate(volume.status.phase if volume.status.phase == "Failed" else RELEASED)
    bound_to = claim.spec.volume_name
    if bound_to == volume.metadata.name:
        return VolumeFate(BOUND)
    if not bound_to:
        return VolumeFate(volume.status.phase or PENDING)
    if PROVISIONED_BY in volume.metadata.annotations:
        return VolumeFate(RELEASED)  # another volume serves the claim
    chosen = BOUND_BY_CONTROLLER in volume.metadata.annotations
    return VolumeFate(AVAILABLE, "all" if chosen else "uid")


# What is written --------------------------------------------------------------------------------


def bound_volume(volume: Manifest, claim: Manifest) -> Manifest:
    """Return a volume's manifest bound to the claim."""
    named = named_by(volume, claim)
    return with_phase(named, BOUND)


def bound_claim(claim: Manifest, volume: Manifest) -> Manifest:
    """Return a claim's manifest bound to the volume, with the volume's modes and capacity."""
    spec, new = dict(claim["spec"]), claim
    if not spec.get("volumeName"):
        spec["volumeName"] = volume["metadata"]["name"]
        new = with_annotation(new, BOUND_BY_CONTROLLER, "yes")
    new = with_annotation(new, BIND_COMPLETED, "yes")
    status = {**(claim.get("status") or {}), "phase": BOUND}
    status["accessModes"] = volume["spec"].get("accessModes") or []
    if status.get("capacity") is None or (claim.get("status") or {}).get("phase") != BOUND:
        status["capacity"] = volume["spec"].get("capacity") or {}
    if attributes := volume["spec"].get("volumeAttributesClassName"):
        status["currentVolumeAttributesClassName"] = attributes
    return {**new, "spec": spec, "status": status}


def with_phase(manifest: Manifest, phase: str) -> Manifest:
    """Return a claim or volume with another phase."""
    status = manifest.get("status") or {}
    if status.get("phase") == phase:
        return manifest
    return {**manifest, "status": {**status, "phase": phase}}


def forgotten(volume: Manifest, forget: str) -> Manifest:
    """Return a volume without its claim, or without the claim's uid."""
    if not forget:
        return volume
    spec = dict(volume["spec"])
    reference = spec.pop("claimRef", None) or {}
    new = {**volume, "spec": spec}
    if forget == "uid":
        claim_ref = {k: v for k, v in reference.items() if k not in ("uid", "resourceVersion")}
        spec["claimRef"] = claim_ref
        return new
    return with_annotation(new, BOUND_BY_CONTROLLER, None)


def with_provisioner(claim: Manifest, provisioner: str) -> Manifest:
    """Return the claim with the annotation that names its provisioner."""
    named = with_annotation(claim, BETA_STORAGE_PROVISIONER, provisioner)
    return with_annotation(named, STORAGE_PROVISIONER, provisioner)


def index(claims: Mapping[ClaimKey, Manifest]) -> dict[ClaimKey, PersistentVolumeClaim]:
    """Return the claims, decoded, by namespace and name."""
    return {key: msgspec.convert(one, PersistentVolumeClaim) for key, one in claims.items()}

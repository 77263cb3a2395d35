"""Which volume suits a claim: the rules that the scheduler and the volume controller share.

Sources: component-helpers ``storage/volume/pv_helpers.go``, ``storage/volume/helpers.go`` and
``storage/ephemeral/ephemeral.go``, v1.36.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from clusterstate.objects.rules.matching import NodeSelectorMatcher
from clusterstate.objects.values.labels import SelectorError, selector_from_label_selector
from clusterstate.objects.values.meta import Manifest, ObjectMeta
from clusterstate.objects.values.pod import NodeSelector, Volume
from clusterstate.objects.values.quantity import Quantity
from clusterstate.objects.values.storage import (
    AVAILABLE,
    BOUND_BY_CONTROLLER,
    FILESYSTEM,
    STORAGE,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeNodeAffinity,
)

NO_MATCHING_TERMS: Final = "no matching NodeSelectorTerms"
_ZERO: Final = Quantity.of(0)
quantity_of = lru_cache(65_536)(Quantity.parse)
"""The amount of a quantity's text, worked out once."""


class MatchingError(ValueError):
    """The selector of a claim does not parse."""


@lru_cache(65_536)
def _matcher(selector: NodeSelector) -> NodeSelectorMatcher:
    return NodeSelectorMatcher(selector, empty_term="none")


def check_node_affinity(affinity: VolumeNodeAffinity | None, labels: Mapping[str, str]) -> str:
    """Return why a volume cannot be reached from a node with these labels, empty if it can.

    Rule: ``CheckNodeAffinity``.
    """
    if affinity is None or affinity.required is None:
        return ""
    # A volume's terms see no fields of the node.
    matched, errors = _matcher(affinity.required).match(labels, {})
    if matched:
        return ""
    return str(errors[0]) if errors else NO_MATCHING_TERMS


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether a volume refers to the claim by name, and by uid unless it has none."""
    reference = volume.spec.claim_ref
    return (
        reference is not None
        and (reference.namespace, reference.name) == claim.key
        and reference.uid in ("", claim.metadata.uid)
    )


def modes_differ(claim_mode: str | None, volume_mode: str | None) -> bool:
    """Return whether one is a file system and the other a block device; absent: a file system."""
    return (claim_mode or FILESYSTEM) != (volume_mode or FILESYSTEM)


def has_access_modes(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume offers all access modes that the claim wants."""
    return set(claim.spec.access_modes).issubset(volume.spec.access_modes)


def size_of(volume: PersistentVolume) -> Quantity:
    """Return the size of a volume."""
    text = volume.spec.capacity.get(STORAGE)
    return _ZERO if text is None else quantity_of(text)


def wanted_size(claim: PersistentVolumeClaim) -> Quantity:
    """Return the size that a claim wants at least."""
    text = claim.spec.resources.requests.get(STORAGE)
    return _ZERO if text is None else quantity_of(text)


def find_matching_volume(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    *,
    node_labels: Mapping[str, str] | None = None,
    excluded: Collection[str] = (),
    delay_binding: bool = False,
    attributes_classes: bool = True,
) -> PersistentVolume | None:
    """Return the volume for a claim: the one that names it, else the smallest that suits.

    Of equal ones the first is taken. A volume that names the claim is taken whatever its class,
    phase or access modes; if it cannot be reached from the node, nothing suits.

    Args:
        claim: the claim.
        volumes: the candidates.
        node_labels: the scheduler asks for a node; access modes count then. ``None``: a controller
            asks.
        excluded: names of volumes that other claims of the pod take.
        delay_binding: the class waits for a consumer: without a node only volumes that name the
            claim suit.
        attributes_classes: whether there are classes of volume attributes; volumes with one suit
            nobody where there are none.

    Raises:
        MatchingError: the claim's selector does not parse.
    """
    best: PersistentVolume | None = None
    best_size = _ZERO
    requested_size, class_name = wanted_size(claim), claim.class_name
    attributes = claim.spec.volume_attributes_class_name or ""
    try:
        selector = None
        if claim.spec.selector is not None:
            selector = selector_from_label_selector(claim.spec.selector)
    except SelectorError as error:
        raise MatchingError(
            f"error creating internal label selector for claim: {claim.full_name}: {error}"
        ) from error
    for volume in volumes:
        spec = volume.spec
        if volume.metadata.name in excluded:
            continue
        names_it = is_bound_to(volume, claim)
        if spec.claim_ref is not None and not names_it:
            continue
        size = size_of(volume)
        if size < requested_size or modes_differ(claim.spec.volume_mode, spec.volume_mode):
            continue
        offered = spec.volume_attributes_class_name or ""
        if offered != attributes or (not attributes_classes and offered):
            continue
        if volume.metadata.deletion_timestamp is not None:
            continue
        if names_it:
            reachable = node_labels is None or not check_node_affinity(
                spec.node_affinity, node_labels
            )
            return volume if reachable else None
        if node_labels is None and delay_binding:
            continue
        if volume.status.phase != AVAILABLE or volume.class_name != class_name:
            continue
        if best is not None and best_size <= size:
            continue
        if selector is not None and not selector.matches(volume.metadata.labels):
            continue
        if node_labels is not None and (
            not has_access_modes(volume, claim)
            or check_node_affinity(spec.node_affinity, node_labels)
        ):
            continue
        best, best_size = volume, size
    return best


def bound_to_claim(
    volume: PersistentVolume, claim: PersistentVolumeClaim
) -> tuple[PersistentVolume, bool]:
    """Return the volume with a reference to the claim, and whether it changed.

    A new reference gets the annotation that a controller chose it. Rule: ``GetBindVolumeToClaim``.
    """
    meta, spec = volume.metadata, volume.spec
    reference = ClaimReference(
        namespace=claim.metadata.namespace, name=claim.metadata.name, uid=claim.metadata.uid
    )
    chosen = not is_bound_to(volume, claim)
    dirty = spec.claim_ref != reference
    if chosen and BOUND_BY_CONTROLLER not in meta.annotations:
        meta = msgspec.structs.replace(
            meta, annotations={**meta.annotations, BOUND_BY_CONTROLLER: "yes"}
        )
        dirty = True
    if not dirty:
        return volume, False
    bound = msgspec.structs.replace(spec, claim_ref=reference)
    return msgspec.structs.replace(volume, metadata=meta, spec=bound), True


def named_by(volume: Manifest, claim: Manifest) -> Manifest:
    """Return the manifest of a volume as it names a claim: ``bound_to_claim``, to be written."""
    lens, dirty = bound_to_claim(
        msgspec.convert(volume, PersistentVolume), msgspec.convert(claim, PersistentVolumeClaim)
    )
    if not dirty:
        return volume
    meta = claim["metadata"]
    identity = {"uid": meta.get("uid"), "resourceVersion": meta.get("resourceVersion")}
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        **{name: value for name, value in identity.items() if value},
    }
    metadata = {**volume["metadata"]}
    if lens.metadata.annotations:
        metadata["annotations"] = lens.metadata.annotations
    return {**volume, "metadata": metadata, "spec": {**volume["spec"], "claimRef": reference}}


def with_annotation(manifest: Manifest, name: str, value: str | None) -> Manifest:
    """Return an object with an annotation, or without it (``None``)."""
    meta = {**manifest["metadata"]}
    annotations = {k: v for k, v in (meta.pop("annotations", None) or {}).items() if k != name}
    if value is not None:
        annotations[name] = value
    if annotations:
        meta["annotations"] = annotations
    return {**manifest, "metadata": meta}


# Claims of generic ephemeral volumes ------------------------------------------------------------


def ephemeral_claim_name(pod_name: str, volume_name: str) -> str:
    """Return the name of the claim that is made for an ephemeral volume."""
    return f"{pod_name}-{volume_name}"


def ephemeral_claim(pod: Manifest, volume: str, template: Manifest) -> Manifest:
    """Return the claim for an ephemeral volume. Rule: volume/ephemeral/controller.go, v1.36."""
    meta, of_template = pod["metadata"], template.get("metadata") or {}
    owner = {
        "apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    copied = {key: of_template[key] for key in ("labels", "annotations") if of_template.get(key)}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": ephemeral_claim_name(meta["name"], volume),
            "namespace": meta["namespace"],
            "ownerReferences": [owner],
            **copied,
        },
        "spec": template.get("spec") or {},
    }


def not_for_pod(claim: PersistentVolumeClaim, pod: ObjectMeta) -> str:
    """Return why a claim is not the one made for the pod, empty if it is."""
    mine = any(one.controller and one.uid == pod.uid for one in claim.metadata.owner_references)
    if claim.metadata.namespace == pod.namespace and mine:
        return ""
    return (
        f"PVC {claim.full_name} was not created for pod {pod.namespace}/{pod.name} "
        "(pod is not owner)"
    )


# Disks that only some pods may share --------------------------------------------------------------


def is_disk(volume: Volume) -> bool:
    """Return whether only some pods may share the volume."""
    return (
        volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.rbd is not None
        or volume.iscsi is not None
    )


def shares_disk(one: Volume, other: Volume) -> bool:
    """Return whether two volumes are one disk that pods may not share.

    Rule: plugins/volumerestrictions ``isVolumeConflict``.
    """
    disk, there = one.gce_persistent_disk, other.gce_persistent_disk
    if disk and there and disk.pd_name == there.pd_name:
        return not (disk.read_only and there.read_only)
    block, held = one.aws_elastic_block_store, other.aws_elastic_block_store
    if block and held:
        return block.volume_id == held.volume_id
    target, used = one.iscsi, other.iscsi
    if target and used and target.iqn == used.iqn:
        return not (target.read_only and used.read_only)
    image, mounted = one.rbd, other.rbd
    if image and mounted and not set(image.monitors).isdisjoint(mounted.monitors):
        same = (image.pool, image.image) == (mounted.pool, mounted.image)
        return same and not (image.read_only and mounted.read_only)
    return False

"""A pod's claims on a node: bound volumes, volumes to bind, volumes to provision.

Rules: plugins/volumebinding/binder.go, scorer.go, v1.36.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from clusterstate.objects.rules.csi_migration import affinity_on, csi_name, is_migratable
from clusterstate.objects.rules.volume_matching import (
    check_node_affinity,
    ephemeral_claim_name,
    find_matching_volume,
    not_for_pod,
    quantity_of,
    size_of,
    wanted_size,
)
from clusterstate.objects.values.labels import Selector, SelectorError, selector_from_label_selector
from clusterstate.objects.values.meta import Manifest, ObjectMeta
from clusterstate.objects.values.pod import LabelSelector, Volume
from clusterstate.objects.values.quantity import Quantity
from clusterstate.objects.values.remembered import remembered
from clusterstate.objects.values.storage import (
    NO_PROVISIONER,
    SELECTED_NODE,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from scheduling.framework.types import PodInfo
from scheduling.framework.volume_table import AssumedClaims, ClaimKey, VolumeTable, affinity_keys

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NO_SPACE: Final = "node(s) did not have enough free storage"
NO_VOLUME: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"

Resources = dict[str, tuple[int, int]]
"""By StorageClass: the bytes that claims request, and the bytes of the volumes for them."""


class BinderError(ValueError):
    """An error that ends the attempt; the text is the same as in Kubernetes."""


class Provision(msgspec.Struct, frozen=True):
    """A claim whose volume must be provisioned; ``capacity``: the object that states the room."""

    claim: PersistentVolumeClaim
    capacity: CSIStorageCapacity | None = None


class PodVolumes(msgspec.Struct, frozen=True):
    """The bindings and provisions for a pod's claims on one node."""

    bindings: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    provisions: tuple[Provision, ...] = ()

    def assumed(self, node_name: str) -> AssumedClaims:
        """Return the claims in the form that ``VolumeTable.assume`` takes."""
        return AssumedClaims(
            node_name,
            tuple((claim.key, volume.metadata.name) for claim, volume in self.bindings),
            tuple(one.claim.key for one in self.provisions),
        )


class PodVolumeClaims(msgspec.Struct, frozen=True):
    """The claims of a pod: bound ones, and those that the scheduler or controllers must bind."""

    bound: tuple[PersistentVolumeClaim, ...] = ()
    delayed: tuple[PersistentVolumeClaim, ...] = ()
    immediate: tuple[PersistentVolumeClaim, ...] = ()


class NodeSeen(msgspec.Struct, frozen=True):
    """The parts of a node that volumes depend on."""

    name: str
    labels: Mapping[str, str]
    csi: CSINode | None = None


def seen_node(node: Manifest, csi: Manifest | None) -> NodeSeen:
    """Return the parts of a stored node that volumes depend on."""
    return NodeSeen(
        node["metadata"]["name"],
        node["metadata"].get("labels") or {},
        None if csi is None else msgspec.convert(csi, CSINode),
    )


# Claims -----------------------------------------------------------------------------------------


def claim_name(pod: ObjectMeta, volume: Volume) -> str | None:
    """Return the name of the claim of a pod's volume, ``None`` if it has none."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    if volume.ephemeral is not None:
        return ephemeral_claim_name(pod.name, volume.name)
    return None


def meta_of(info: PodInfo) -> ObjectMeta:
    """Return the metadata of a class's pod, with its namespace."""
    meta = info.pod.metadata
    if meta.namespace == info.namespace:
        return meta
    return msgspec.structs.replace(meta, namespace=info.namespace)


def not_found(name: str) -> str:
    """Return the message of Kubernetes' listers that a claim does not exist."""
    return f'persistentvolumeclaim "{name}" not found'


def pod_volume_claims(
    table: VolumeTable, pod: ObjectMeta, volumes: Sequence[Volume]
) -> PodVolumeClaims:
    """Return the claims of a pod by how they are bound. Rule: ``GetPodVolumeClaims``.

    Raises:
        BinderError: a claim does not exist or is another pod's, or its class is incomplete.
    """
    bound: list[PersistentVolumeClaim] = []
    delayed: list[PersistentVolumeClaim] = []
    immediate: list[PersistentVolumeClaim] = []
    for volume in volumes:
        name = claim_name(pod, volume)
        if name is None:
            continue
        claim = table.claim(pod.namespace, name)
        if claim is None:
            full = f"{pod.namespace}/{name}"
            raise BinderError(
                f'error getting PVC "{full}": persistentvolumeclaims "{full}" not found'
            )
        if volume.ephemeral is not None and (problem := not_for_pod(claim, pod)):
            raise BinderError(problem)
        if claim.is_fully_bound:
            bound.append(claim)
        elif waits_for_consumer(table, claim) and not claim.spec.volume_name:
            delayed.append(claim)
        else:
            immediate.append(claim)
    return PodVolumeClaims(tuple(bound), tuple(delayed), tuple(immediate))


def waits_for_consumer(table: VolumeTable, claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim is bound only once a pod that uses it is placed.

    Raises:
        BinderError: its class has no binding mode.
    """
    name = claim.class_name
    found = table.storage_class(name) if name else None
    if found is None:
        return False
    if found.volume_binding_mode is None:
        raise BinderError(f'VolumeBindingMode not set for StorageClass "{name}"')
    return found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


# One node ---------------------------------------------------------------------------------------


def find_pod_volumes(
    table: VolumeTable, claims: PodVolumeClaims, node: NodeSeen
) -> tuple[PodVolumes, tuple[str, ...]]:
    """Return the bindings and provisions of a pod's claims on a node, and the reasons against it.

    Rule: ``FindPodVolumes``.

    Raises:
        BinderError: a class is missing.
        MatchingError: a selector does not parse.
    """
    reachable, found = _bound_claims(table, claims.bound, node)
    satisfied, sufficient = True, True
    bindings: list[tuple[PersistentVolumeClaim, PersistentVolume]] = []
    provisions: tuple[Provision, ...] = ()
    to_match: list[PersistentVolumeClaim] = []
    to_provision: list[PersistentVolumeClaim] = []
    for claim in claims.delayed:
        selected = claim.metadata.annotations.get(SELECTED_NODE)
        if selected is None:
            to_match.append(claim)
        elif selected == node.name:
            to_provision.append(claim)
        else:
            satisfied = False
            break
    else:
        chosen: set[str] = set()
        for claim in sorted(to_match, key=wanted_size):
            volume = find_matching_volume(
                claim,
                table.volumes_for(claim, node.labels),
                node_labels=node.labels,
                excluded=chosen,
                delay_binding=True,
            )
            if volume is None:
                to_provision.append(claim)
                continue
            chosen.add(volume.metadata.name)
            bindings.append((claim, volume))
        if to_provision:
            satisfied, sufficient, provisions = _provisions(table, to_provision, node)
    reasons = (
        (not reachable, NODE_CONFLICT),
        (not satisfied, BIND_CONFLICT),
        (not sufficient, NO_SPACE),
        (not found, NO_VOLUME),
    )
    return (
        PodVolumes(tuple(bindings), provisions),
        tuple(text for holds, text in reasons if holds),
    )


def _bound_claims(
    table: VolumeTable, claims: Sequence[PersistentVolumeClaim], node: NodeSeen
) -> tuple[bool, bool]:
    """Return whether the node reaches the claims' volumes, and whether all of them exist."""
    for claim in claims:
        volume = table.volume(claim.spec.volume_name)
        if volume is None:
            return True, False
        if check_node_affinity(affinity_on(volume, node.csi), node.labels):
            return False, True
    return True, True


def _provisions(
    table: VolumeTable, claims: Sequence[PersistentVolumeClaim], node: NodeSeen
) -> tuple[bool, bool, tuple[Provision, ...]]:
    """Return whether volumes can be provisioned for the node, whether there is room, and which.

    Rule: ``checkVolumeProvisions``.
    """
    made: list[Provision] = []
    for claim in claims:
        name = claim.class_name
        if not name:
            raise BinderError(f'no class for claim "{claim.full_name}"')
        found = table.storage_class(name)
        if found is None:
            raise BinderError(f'failed to find storage class "{name}"')
        if found.provisioner in ("", NO_PROVISIONER) or not found.allows(node.labels):
            return False, True, ()
        sufficient, capacity = _room_for(table, claim, found, node)
        if not sufficient:
            return True, False, ()
        made.append(Provision(claim, capacity))
    return True, True, tuple(made)


def _room_for(
    table: VolumeTable, claim: PersistentVolumeClaim, of: StorageClass, node: NodeSeen
) -> tuple[bool, CSIStorageCapacity | None]:
    """Return whether there is room for a claim's volume, and the CSIStorageCapacity that has it.

    Rule: ``hasEnoughCapacity``.
    """
    driver = table.csi_driver(csi_name(of.provisioner))
    if (
        STORAGE not in claim.spec.resources.requests
        or driver is None
        or not driver.spec.storage_capacity
    ):
        return True, None
    wanted = wanted_size(claim).value()
    for capacity in table.capacities(of.metadata.name):
        limit = limit_of(capacity)
        if limit is not None and limit.value() >= wanted and _has_access(node, capacity):
            return True, capacity
    return False, None


def limit_of(capacity: CSIStorageCapacity) -> Quantity | None:
    """Return the largest volume that can be provisioned, ``None`` if not stated."""
    return None if capacity.limit is None else quantity_of(capacity.limit)


@remembered(4096)
def _topology(selector: bytes) -> Selector | None:
    try:
        return selector_from_label_selector(msgspec.json.decode(selector, type=LabelSelector))
    except SelectorError:
        return None


def _has_access(node: NodeSeen, capacity: CSIStorageCapacity) -> bool:
    if capacity.node_topology is None:
        return False
    selector = _topology(msgspec.json.encode(capacity.node_topology))
    return selector is not None and selector.matches(node.labels)


def seen_labels(table: VolumeTable, claims: PodVolumeClaims) -> set[str] | None:
    """Return the keys of the node labels on which a pod's claims depend.

    Nodes with equal values get the same answer. ``None``: more than labels matters.
    """
    keys: set[str] = set()
    for claim in claims.bound:
        volume = table.volume(claim.spec.volume_name)
        if volume is None:
            continue
        if is_migratable(volume):
            return None
        keys |= affinity_keys(volume.spec.node_affinity)
    for claim in claims.delayed:
        if SELECTED_NODE in claim.metadata.annotations:
            return None
        keys.update(table.affinity_keys(claim.class_name))
        found = table.storage_class(claim.class_name)
        for term in () if found is None else found.allowed_topologies:
            keys.update(one.key for one in term.match_label_expressions)
        for capacity in table.capacities(claim.class_name):
            topology = capacity.node_topology or LabelSelector()
            keys.update(topology.match_labels)
            keys.update(one.key for one in topology.match_expressions)
    return keys


# What a node is worth ---------------------------------------------------------------------------


def class_resources(volumes: PodVolumes, *, storage_capacity: bool) -> Resources:
    """Return, by StorageClass, the bytes that claims request and the bytes of their volumes.

    ``storage_capacity``: if no claim is bound to a volume, count the capacity for volumes to
    provision. Rule: volume_binding.go ``Score``.
    """
    found: Resources = {}
    if volumes.bindings or not storage_capacity:
        for claim, volume in volumes.bindings:
            asked, taken = found.get(volume.spec.storage_class_name, (0, 0))
            found[volume.spec.storage_class_name] = (
                asked + wanted_size(claim).value(),
                taken + size_of(volume).value(),
            )
        return found
    for one in volumes.provisions:
        if one.capacity is None:
            continue
        name = one.claim.spec.storage_class_name or ""
        asked, _ = found.get(name, (0, 0))
        limit = one.capacity.capacity
        free = 0 if limit is None else quantity_of(limit).value()
        found[name] = (asked + wanted_size(one.claim).value(), free)
    return found


def capacity_score(shape: Sequence[tuple[int, int]], resources: Resources) -> int:
    """Return the mean over classes of the shape's score at their utilization in percent, rounded.

    Rule: scorer.go ``buildScorerFunction``.
    """
    if not resources:
        return 0
    total = 0
    for asked, taken in resources.values():
        use = 100 if taken == 0 or asked > taken else asked * 100 // taken
        total += _broken_line(shape, use)
    # Go's math.Round: halves away from zero.
    return (2 * total + len(resources)) // (2 * len(resources))


def _broken_line(shape: Sequence[tuple[int, int]], at: int) -> int:
    """Return the piecewise linear value at ``at``, truncated as in Go (helper/shape_score.go)."""
    if not shape or at <= shape[0][0]:
        return shape[0][1] if shape else 0
    for (left, low), (right, high) in pairwise(shape):
        if at <= right:
            rise = (high - low) * (at - left)
            return low + (rise // (right - left) if rise >= 0 else -(-rise // (right - left)))
    return shape[-1][1]


# Writing it -------------------------------------------------------------------------------------


class StoredVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """The stored objects: manifests by name, those of claims by namespace and name."""

    claims: Mapping[ClaimKey, Manifest] = {}
    volumes: Mapping[str, Manifest] = {}


def check_bindings(
    stored: StoredVolumes,
    node: NodeSeen,
    bindings: Sequence[tuple[Manifest, Manifest]],
    provisions: Sequence[Manifest],
) -> bool:
    """Return whether all claims of a placed pod are bound; ``False``: not yet.

    Args:
        stored: claims and volumes as they are now.
        node: of the pod.
        bindings: claims and volumes as they were written.
        provisions: claims as they were written.

    Rule: ``checkBindings``.

    Raises:
        BinderError: the claims can no longer be bound in this way; the pod must be tried again.
    """
    for claim, volume in bindings:
        name, key = volume["metadata"]["name"], _key(claim)
        if name not in stored.volumes:
            raise BinderError(
                f'failed to check binding: could not find v1.PersistentVolume "{name}"'
            )
        if key not in stored.claims:
            raise BinderError(f"failed to check binding: {_gone(key)}")
        now = stored.volumes[name]
        if _version(volume) > _version(now):
            return False
        lens = msgspec.convert(now, PersistentVolume)
        _check_reach(lens, node)
        reference = lens.spec.claim_ref
        if reference is None or not reference.uid:
            raise BinderError(f'ClaimRef got reset for pv "{name}"')
        if not msgspec.convert(stored.claims[key], PersistentVolumeClaim).is_fully_bound:
            return False
    for claim in provisions:
        key = _key(claim)
        if key not in stored.claims:
            raise BinderError(f"failed to check provisioning pvc: {_gone(key)}")
        if _version(claim) > _version(stored.claims[key]):
            return False
        present = msgspec.convert(stored.claims[key], PersistentVolumeClaim)
        annotations = present.metadata.annotations
        if not annotations:
            raise BinderError(f'selectedNode annotation reset for PVC "{key[1]}"')
        if annotations.get(SELECTED_NODE) != node.name:
            raise BinderError(f'provisioning failed for PVC "{key[1]}"')
        if present.spec.volume_name:
            found = stored.volumes.get(present.spec.volume_name)
            if found is None:
                return False
            _check_reach(msgspec.convert(found, PersistentVolume), node)
        if not present.is_fully_bound:
            return False
    return True


def _check_reach(volume: PersistentVolume, node: NodeSeen) -> None:
    problem = check_node_affinity(affinity_on(volume, node.csi), node.labels)
    if problem:
        name = volume.metadata.name
        raise BinderError(f'pv "{name}" node affinity doesn\'t match node "{node.name}": {problem}')


def _gone(key: ClaimKey) -> str:
    return f'could not find v1.PersistentVolumeClaim "{key[0]}/{key[1]}"'


def _key(claim: Manifest) -> ClaimKey:
    return claim["metadata"]["namespace"], claim["metadata"]["name"]


def _version(manifest: Manifest) -> int:
    return int(manifest["metadata"].get("resourceVersion") or 0)


def updates(
    stored: StoredVolumes,
    bindings: Sequence[tuple[Manifest, Manifest]],
    provisions: Sequence[Manifest],
) -> list[tuple[Manifest, bool]]:
    """Return the volumes, then the claims, to write, each with whether it is still unchanged.

    An object that changed since the decision may not be written (``False``), and ends the list.
    Rule: ``bindAPIUpdate``.
    """
    found: list[tuple[Manifest, bool]] = []
    for volume in (one for _, one in bindings):
        now = stored.volumes.get(volume["metadata"]["name"])
        found.append((volume, now is not None and _version(volume) >= _version(now)))
        if not found[-1][1]:
            return found
    for claim in provisions:
        now = stored.claims.get(_key(claim))
        found.append((claim, now is not None and _version(claim) >= _version(now)))
        if not found[-1][1]:
            return found
    return found

"""Which events may make a pod schedulable that a plugin for volumes rejected.

Sources: ``EventsToRegister`` of the plugins in volumebinding, volumezone, volumerestrictions and
nodevolumelimits, and their hints (``isSchedulableAfter...``), v1.36.
"""

from collections.abc import Collection
from typing import TypeVar

from clusterstate.objects.rules.csi_migration import inline_driver, topologies_of
from clusterstate.objects.rules.volume_matching import shares_disk
from clusterstate.objects.values.pod import Pod, Volume
from clusterstate.objects.values.storage import (
    MIGRATED_PLUGINS,
    WAIT_FOR_FIRST_CONSUMER,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from scheduling.framework.events import Action, ClusterEvent, Hint, Registration, Resource
from scheduling.framework.volume_binder import claim_name, limit_of

T = TypeVar("T")
_NODE_PLACES = Action.ADD | Action.UPDATE_NODE_LABEL
_CHANGES = Action.ADD | Action.UPDATE


def _on(resource: Resource, actions: Action, hint: Hint | None = None) -> Registration:
    return Registration(resource=resource, actions=actions, hint=hint)


def _sides(event: ClusterEvent, kind: type[T]) -> tuple[T | None, T]:
    """Return the object before the event, ``None`` if it is new, and the object now."""
    old, new = event.old, event.new
    assert isinstance(new, kind)
    return old if isinstance(old, kind) else None, new


def _namespace(pod: Pod) -> str:
    return pod.metadata.namespace or "default"


def _claims(pod: Pod, *, ephemeral: bool = True) -> Collection[str]:
    volumes = pod.spec.volumes
    if not ephemeral:
        volumes = tuple(one for one in volumes if one.ephemeral is None)
    return {name for one in volumes if (name := claim_name(pod.metadata, one)) is not None}


def _uses(*, ephemeral: bool) -> Hint:
    """Return a hint that accepts new or changed claims of the pod."""

    def hint(pod: Pod, event: ClusterEvent) -> bool:
        _, claim = _sides(event, PersistentVolumeClaim)
        mine = claim.metadata.namespace == _namespace(pod)
        return mine and claim.metadata.name in _claims(pod, ephemeral=ephemeral)

    return hint


# VolumeBinding ----------------------------------------------------------------------------------


def _topologies_changed(pod: Pod, event: ClusterEvent) -> bool:
    old, new = _sides(event, StorageClass)
    return old is None or old.allowed_topologies != new.allowed_topologies


def _migration_changed(pod: Pod, event: ClusterEvent) -> bool:
    old, new = _sides(event, CSINode)

    def migrated(node: CSINode) -> str:
        return node.metadata.annotations.get(MIGRATED_PLUGINS, "")

    return old is None or migrated(old) != migrated(new)


def _capacity_unchecked(pod: Pod, event: ClusterEvent) -> bool:
    old, new = _sides(event, CSIDriver)
    ceased = old is not None and bool(old.spec.storage_capacity) and not new.spec.storage_capacity
    return ceased and any(
        one.csi is not None and one.csi.driver == new.metadata.name for one in pod.spec.volumes
    )


def _room_grew(pod: Pod, event: ClusterEvent) -> bool:
    old, new = _sides(event, CSIStorageCapacity)
    if old is None:
        return True
    before, after = limit_of(old), limit_of(new)
    return after is not None and (before is None or after.value() > before.value())


VOLUME_BINDING = (
    _on(Resource.STORAGE_CLASS, _CHANGES, _topologies_changed),
    _on(Resource.PERSISTENT_VOLUME_CLAIM, _CHANGES, _uses(ephemeral=True)),
    _on(Resource.PERSISTENT_VOLUME, _CHANGES),
    _on(Resource.NODE, _NODE_PLACES),
    _on(Resource.CSI_NODE, _CHANGES, _migration_changed),
    _on(Resource.CSI_DRIVER, Action.UPDATE, _capacity_unchecked),
    _on(Resource.CSI_STORAGE_CAPACITY, _CHANGES, _room_grew),
)


# VolumeZone -------------------------------------------------------------------------------------


def _waits_for_consumer(pod: Pod, event: ClusterEvent) -> bool:
    return _sides(event, StorageClass)[1].volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def _zones_changed(pod: Pod, event: ClusterEvent) -> bool:
    old, new = _sides(event, PersistentVolume)
    return old is None or topologies_of(old) != topologies_of(new)


VOLUME_ZONE = (
    _on(Resource.STORAGE_CLASS, Action.ADD, _waits_for_consumer),
    _on(Resource.NODE, _NODE_PLACES),
    _on(Resource.PERSISTENT_VOLUME_CLAIM, _CHANGES, _uses(ephemeral=False)),
    _on(Resource.PERSISTENT_VOLUME, _CHANGES, _zones_changed),
)


# VolumeRestrictions -----------------------------------------------------------------------------


def _gave_back(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the deleted pod used a disk of this pod, or a claim of the same name."""
    gone = event.old
    if not isinstance(gone, Pod):
        return True
    held = gone.spec.volumes
    if any(shares_disk(mine, theirs) for mine in pod.spec.volumes for theirs in held):
        return True
    if _namespace(gone) != _namespace(pod):
        return False
    mine = set(_claims(pod, ephemeral=False))
    return not mine.isdisjoint(_claims(gone, ephemeral=False))


VOLUME_RESTRICTIONS = (
    _on(Resource.ASSIGNED_POD, Action.DELETE, _gave_back),
    _on(Resource.UNASSIGNED_POD, Action.DELETE, _gave_back),
    _on(Resource.NODE, Action.ADD),
    _on(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, _uses(ephemeral=False)),
)


# NodeVolumeLimits -------------------------------------------------------------------------------


def _attaches(volume: Volume) -> bool:
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or bool(inline_driver(volume))
    )


def _detached(pod: Pod, event: ClusterEvent) -> bool:
    return not isinstance(event.old, Pod) or any(map(_attaches, event.old.spec.volumes))


def _limit_rose(pod: Pod, event: ClusterEvent) -> bool:
    old, new = _sides(event, CSINode)
    before = {} if old is None else {one.name: one.limit or 0 for one in old.spec.drivers}
    return any((one.limit or 0) > before.get(one.name, 0) for one in new.spec.drivers)


def _attachment_ended(pod: Pod, event: ClusterEvent) -> bool:
    gone = event.old
    if not isinstance(gone, VolumeAttachment):
        return True
    return any(
        one.persistent_volume_claim is not None
        or (bool(driver := inline_driver(one)) and driver == gone.spec.attacher)
        for one in pod.spec.volumes
    )


NODE_VOLUME_LIMITS = (
    _on(Resource.CSI_NODE, Action.ADD),
    _on(Resource.CSI_NODE, Action.UPDATE, _limit_rose),
    _on(Resource.ASSIGNED_POD, Action.DELETE, _detached),
    _on(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, _uses(ephemeral=True)),
    _on(Resource.VOLUME_ATTACHMENT, Action.DELETE, _attachment_ended),
)

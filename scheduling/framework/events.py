"""Cluster events as values, from which the queue knows which pods to wake.

A ``ClusterEvent`` names a resource, what changed about it (``Action`` flags) and the object before
and after. ``diff_node`` and ``diff_pod`` compute the flags; a plugin registers the events that may
make pods schedulable that it rejected, each with a hint that examines the event. Sources:
kube-scheduler ``framework/types.go`` and ``pkg/scheduler/framework/events.go``, v1.36.
"""

from collections.abc import Callable, Hashable, Sequence
from enum import Flag, StrEnum, auto
from functools import cache
from typing import Final, Protocol, runtime_checkable

import msgspec

from clusterstate.objects.dra.world import DeviceWorld
from clusterstate.objects.rules.resources import is_resize_infeasible
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.pod_group import PodGroup
from clusterstate.objects.values.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from scheduling.framework.types import AffinityTerm, group_key


class Resource(StrEnum):
    """The kind of object that an event is about."""

    NODE = "Node"
    ASSIGNED_POD = "AssignedPod"
    """A pod that is on a node, or was when it went."""
    PENDING_POD = "PendingPod"
    """The waiting pod itself; such an event concerns this one pod."""
    UNASSIGNED_POD = "UnassignedPod"
    """Another pod that is on no node; it has no room, so the service sends no such event."""
    NAMESPACE = "Namespace"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    STORAGE_CLASS = "StorageClass"
    CSI_NODE = "CSINode"
    CSI_DRIVER = "CSIDriver"
    CSI_STORAGE_CAPACITY = "CSIStorageCapacity"
    VOLUME_ATTACHMENT = "VolumeAttachment"
    DEVICE_CLASS = "DeviceClass"
    RESOURCE_CLAIM = "ResourceClaim"
    RESOURCE_SLICE = "ResourceSlice"
    POD_GROUP = "PodGroup"
    WORKLOAD = "Workload"
    """A Service or a controller that selects pods came, went, or selects others: constraints by
    default count the pods that these select. kube-scheduler has no such event."""
    ANY = "*"
    """Something else that any plugin may care about."""


class Action(Flag):
    """The kind of change; for updates also which part of the object changed."""

    ADD = auto()
    DELETE = auto()
    UPDATE_NODE_ALLOCATABLE = auto()
    UPDATE_NODE_LABEL = auto()
    UPDATE_NODE_TAINT = auto()
    """Taints, or ``spec.unschedulable``."""
    UPDATE_NODE_CONDITION = auto()
    UPDATE_NODE_ANNOTATION = auto()
    UPDATE_NODE_IMAGES = auto()
    UPDATE_NODE_DECLARED_FEATURE = auto()
    UPDATE_POD_LABEL = auto()
    UPDATE_POD_SCALE_DOWN = auto()
    UPDATE_POD_TOLERATION = auto()
    UPDATE_POD_GATES_ELIMINATED = auto()
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = auto()
    """A claim was made for the pod."""
    UPDATE_POD_OTHER = auto()
    UPDATE_NAMESPACE_LABEL = auto()
    UPDATE = auto()
    """Of an object of another kind; hints compare it with what it was."""
    UPDATE_POD_TERMINATING = auto()
    """A pod on a node began to end: it holds its room, and is not counted any more by spread."""


NOTHING = Action(0)
ANYTHING = ~NOTHING


Looked = (
    Node
    | Pod
    | PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CSINode
    | CSIDriver
    | CSIStorageCapacity
    | VolumeAttachment
    | PodGroup
    | Manifest
)
"""The objects that an event may be about: lenses, and manifests of kinds that have no lens."""


class ClusterEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One change. ``old`` is None for an addition, ``new`` for a deletion.

    ``namespace_labels`` are the labels of the namespace of a pod event, or the new ones of a
    namespace event; None if unknown: hints then assume that selectors match. ``repelling``: for a
    node whose labels changed, the required anti-affinity terms of placed pods over the topology
    keys that changed; None if unknown: hints then assume some. ``at_most_priority``: the event
    concerns pods of no higher priority, None for all: the changed object did not count for pods of
    a higher one. ``devices``: the existing claims; None if unknown: hints then assume that a pod's
    claims exist.
    """

    resource: Resource
    action: Action
    old: Looked | None = None
    new: Looked | None = None
    namespace_labels: dict[str, str] | None = None
    repelling: tuple[AffinityTerm, ...] | None = None
    at_most_priority: int | None = None
    devices: DeviceWorld | None = None

    @property
    def label(self) -> str:
        """The event's name in kube-scheduler's metrics; of several updates at once, the first."""
        return _label(self.resource, self.action)

    @property
    def subject(self) -> Hashable | None:
        """What the event is about, if it can only help pods that have to do with it.

        The key of a PodGroup or of a pod's; of a ResourceClaim its kind, namespace and name. ``()``
        for a pod without a group; ``None`` for other events, and for claims that gave devices back.
        """
        new = self.new
        if isinstance(new, PodGroup):
            return new.key
        if isinstance(new, Pod):
            return group_key(new) or ()
        if self.resource is Resource.RESOURCE_CLAIM and isinstance(new, dict):
            held = (self.old.get("status") or {}) if isinstance(self.old, dict) else {}
            if not held.get("allocation") or (new.get("status") or {}).get("allocation"):
                return _CLAIM, new["metadata"].get("namespace", ""), new["metadata"]["name"]
        return None


_CLAIM: Final = "ResourceClaim"


def subjects_of(pod: Pod) -> set[Hashable]:
    """Return the subjects of events that can help a pod: its PodGroup and its ResourceClaims."""
    namespace = pod.metadata.namespace or "default"
    names = [one.resource_claim_name for one in pod.spec.resource_claims]
    names += [one.resource_claim_name for one in pod.status.resource_claim_statuses]
    found: set[Hashable] = {(_CLAIM, namespace, name) for name in names if name}
    group = group_key(pod)
    return found if group is None else {group, *found}


@cache
def _label(resource: Resource, action: Action) -> str:
    first = next(iter(action), None)
    name = "" if first is None or first.name is None else first.name
    return resource + name.title().replace("_", "")


Hint = Callable[[Pod, ClusterEvent], bool]
"""Whether the event may make the rejected pod schedulable. Must not say no when it may."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of event that a plugin wants; without a hint every such event wakes the pod.

    ``own``: of events that have a ``subject``, its hint accepts only those about one of the pod's
    own (``subjects_of``).
    """

    resource: Resource
    actions: Action
    hint: Hint | None = None
    own: bool = False

    def covers(self, event: ClusterEvent) -> bool:
        """Return whether the event is of this kind."""
        same = self.resource in (event.resource, Resource.ANY) or event.resource is Resource.ANY
        return same and bool(self.actions & event.action)

    def says_yes(self, pod: Pod, event: ClusterEvent) -> bool:
        """Return whether an event of this kind may make a rejected pod schedulable.

        True if the hint fails: an unneeded attempt costs little, and without it the pod could wait
        for ever. Rule: scheduling_queue.go (``isPodWorthRequeuing``), v1.36.
        """
        if self.hint is None:
            return True
        try:
            return bool(self.hint(pod, event))
        except Exception:  # noqa: BLE001  # it may be another package's; the pod is tried again
            return True


@runtime_checkable
class EventsToRegister(Protocol):
    """A plugin that names the events that concern the pods that it rejects.

    Every event wakes the pods of other plugins.
    """

    def events_to_register(self) -> Sequence[Registration]:
        """Return the events; an empty sequence means that no event can help."""


EVERY_EVENT = (Registration(resource=Resource.ANY, actions=ANYTHING),)


def diff_node(old: Node, new: Node) -> Action:
    """Return which parts of a node changed that matter to scheduling; ``NOTHING`` if none did.

    Rule: NodeSchedulingPropertiesChange, v1.36; a changed image list is a flag of its own. Only
    the status of conditions counts, not their heartbeats.
    """
    action = NOTHING
    if old.status.allocatable != new.status.allocatable:
        action |= Action.UPDATE_NODE_ALLOCATABLE
    if old.metadata.labels != new.metadata.labels:
        action |= Action.UPDATE_NODE_LABEL
    if old.spec.taints != new.spec.taints or old.spec.unschedulable != new.spec.unschedulable:
        action |= Action.UPDATE_NODE_TAINT
    if _conditions(old) != _conditions(new):
        action |= Action.UPDATE_NODE_CONDITION
    if old.metadata.annotations != new.metadata.annotations:
        action |= Action.UPDATE_NODE_ANNOTATION
    if old.status.images != new.status.images:
        action |= Action.UPDATE_NODE_IMAGES
    if old.status.declared_features != new.status.declared_features:
        action |= Action.UPDATE_NODE_DECLARED_FEATURE
    return action


def _conditions(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}


def diff_pod(old: Pod, new: Pod) -> Action:
    """Return which parts of a pod changed that matter to scheduling; ``NOTHING`` if none did.

    Any change of container resources counts as scaling down: it may free something, and hints
    examine it. Rule: PodSchedulingPropertiesChange, v1.36.
    """
    action = NOTHING
    if old.metadata.labels != new.metadata.labels:
        action |= Action.UPDATE_POD_LABEL
    if _resources(old) != _resources(new):
        action |= Action.UPDATE_POD_SCALE_DOWN
    if old.spec.tolerations != new.spec.tolerations:
        action |= Action.UPDATE_POD_TOLERATION
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        action |= Action.UPDATE_POD_GATES_ELIMINATED
    if old.status.resource_claim_statuses != new.status.resource_claim_statuses:
        action |= Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM
    if not action and old.spec != new.spec:
        action |= Action.UPDATE_POD_OTHER
    return action


def _resources(pod: Pod) -> tuple[object, ...]:
    spec, status = pod.spec, pod.status
    containers = (*spec.containers, *spec.init_containers)
    held = (
        *status.container_statuses,
        *status.init_container_statuses,
        status.allocated_resources,
        status.resources,
        is_resize_infeasible(pod),
    )
    return tuple(c.resources for c in containers), spec.resources, held

"""Area queueinghints: whether an event may help a waiting pod that a plugin rejected."""

from typing import Any

import msgspec

from clusterstate.objects.dra.world import DeviceWorld
from clusterstate.objects.registry import older_pod_groups
from clusterstate.objects.values.meta import strip_nulls
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.pod_group import PodGroup
from clusterstate.objects.values.storage import KINDS
from scheduling.framework.configuration import BUILT_IN, PluginUse, Profile
from scheduling.framework.configuration.plugin_args import READERS
from scheduling.framework.configuration.reading import Field
from scheduling.framework.events import Action, ClusterEvent, Resource
from scheduling.plugins.queueing_hints import registrations
from tests.conformance import Skip
from tests.conformance.cluster_cases import Case, read_pod

_Unread = dict[str, Any]
_LENSES: dict[str, type] = {
    "Pod": Pod,
    "Node": Node,
    "DeviceClass": _Unread,
    "ResourceClaim": _Unread,
    "PodGroup": PodGroup,
    **KINDS,
}
_ADDED, _DELETED = Action.ADD, Action.DELETE
_UPDATED = ~(_ADDED | _DELETED)


def _object(given: dict[str, Any] | None) -> Any:
    if given is None:
        return None
    value = strip_nulls(given["object"])
    if given["type"] == "PodGroup":
        value = older_pod_groups.stored(value, "v1alpha2")
    return msgspec.convert(value, _LENSES[given["type"]])


def _resource(case: Case, pod: Pod, old: Any, new: Any) -> Resource:
    name = case["event"]["resource"]
    if name != "Pod":
        return Resource(name)
    other = new or old
    if other.metadata.uid == pod.metadata.uid and case["event"]["action"] == "Update":
        return Resource.PENDING_POD
    placed = other.spec.node_name or other.status.nominated_node_name
    return Resource.ASSIGNED_POD if placed else Resource.UNASSIGNED_POD


def _begins_to_end(old: Any, new: Any) -> bool:
    times = [
        one.metadata.deletion_timestamp if isinstance(one, Pod) else None for one in (old, new)
    ]
    return times[0] is None and times[1] is not None


def _claims(world: Case, new: Any) -> list[Any]:
    claims = list(world.get("ResourceClaim") or ())
    names = {one["metadata"]["name"] for one in claims}
    if isinstance(new, dict) and new["metadata"]["name"] not in names and not claims:
        claims.append(new)  # an object is stored before its event is told
    return claims


UNREAD = {
    "gates.DRAExtendedResource", "gates.DynamicResourceAllocation", "gates.GangScheduling",
    "gates.GenericWorkload", "gates.MatchLabelKeysInPodTopologySpread",
    "gates.NodeDeclaredFeatures", "gates.NodeInclusionPolicyInPodTopologySpread",
    "gates.VolumeAttributesClass", "gates.VolumeLimitScaling",
    "world.CSINode", "world.Node", "world.PersistentVolume", "world.PersistentVolumeClaim",
    "world.Pod", "world.PodGroup", "world.ResourceSlice", "world.StorageClass",
}  # fmt: skip
"""No hint depends on these."""


def check(case: Case) -> str | None:
    """Return what differs, None if nothing does."""
    name = case["plugin"]
    if name not in BUILT_IN:
        raise Skip(f"{name} is not a plugin of this package")
    pod, old, new = read_pod(case), _object(case.get("old")), _object(case.get("new"))
    errors: list[Any] = []
    given = {**(case.get("args") or {})}
    if name == "NodeAffinity":
        given["emptyNodeSelectorTerm"] = "none"
    args = {name: READERS[name](Field(given, "args", errors))} if name in READERS else {}
    assert not errors, errors
    profile = Profile(points={"filter": (PluginUse(name),)}, args=args)
    world = case.get("world") or {}
    namespaces = {
        one["metadata"]["name"]: one["metadata"].get("labels") or {}
        for one in world.get("Namespace") or []
    }
    subject = (new or old) if isinstance(new or old, Pod) else pod
    action = {"Add": _ADDED, "Delete": _DELETED}.get(case["event"]["action"], _UPDATED)
    if not (case.get("gates") or {}).get("InPlacePodVerticalScaling", True):
        action &= ~Action.UPDATE_POD_SCALE_DOWN  # where pods are not resized, none scales down
    if not _begins_to_end(old, new):
        action &= ~Action.UPDATE_POD_TERMINATING
    event = ClusterEvent(
        resource=_resource(case, pod, old, new),
        action=action,
        old=old,
        new=new,
        namespace_labels=namespaces.get(subject.metadata.namespace, {}),
        repelling=(),
        devices=DeviceWorld(_claims(world, new), world.get("DeviceClass") or ()),
    )
    found = any(
        one.covers(event) and one.says_yes(pod, event) for one in registrations(profile)[name]
    )
    answer = "Queue" if found else "QueueSkip"
    return None if answer == case["expect"]["hint"] else f"wanted {case['expect']}, found {answer}"

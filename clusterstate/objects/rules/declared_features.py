"""Which features a node must have declared in ``status.declaredFeatures`` to take a pod.

Rule: component-helpers ``nodedeclaredfeatures/features``, v1.37: those that are inferred for
scheduling, and the one that is for a resize.
"""

from collections.abc import Iterator
from typing import Final

from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import PodSpec

RESTART_ALL: Final = "RestartAllContainers"
POD_LEVEL_RESIZE: Final = "InPlacePodLevelResourcesVerticalScaling"


def required_features(spec: PodSpec, version: Compatibility = NEWEST) -> tuple[str, ...]:
    """Return the names of the features that a pod needs, sorted."""
    return tuple(_required(spec, version))


def features_of_resize(spec: Manifest, old: Manifest) -> tuple[str, ...]:
    """Return the features that the agent of a pod's node needs for a change of the pod's spec."""
    changed = (spec.get("resources") or None) != (old.get("resources") or None)
    return (POD_LEVEL_RESIZE,) if changed else ()


def _required(spec: PodSpec, version: Compatibility) -> Iterator[str]:
    containers = (*spec.init_containers, *spec.containers)
    if any(rule.action == RESTART_ALL for one in containers for rule in one.restart_policy_rules):
        yield "RestartAllContainersOnContainerExits"
    if spec.host_network and spec.host_users is False:
        yield "UserNamespacesHostNetworkSupport"
    if version >= Compatibility.V1_37 and any(
        mount.bind_mount_options for one in containers for mount in one.volume_mounts
    ):
        yield "VolumeBindMountOptions"

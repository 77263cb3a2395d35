"""Builds a profile's plugins from its arguments, and loads configurations that name plugins.

Default sets and weights are in ``framework.configuration``. Plugins of other packages come from
``installed``.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from clusterstate.objects.values.errors import Invalid
from scheduling.framework.binding_points import Meter
from scheduling.framework.configuration import KubeSchedulerConfiguration, Profile, documents
from scheduling.framework.configuration.extenders import ExtenderArgs
from scheduling.framework.configuration.plugin_args import (
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    NodeVolumeLimitsArgs,
    PodTopologySpreadArgs,
    PrioritySortArgs,
    RawArgs,
    VolumeBindingArgs,
)
from scheduling.framework.handles import DeviceStore, StoredPods, VolumeStore, WaitingPods
from scheduling.framework.interface import Plugin
from scheduling.framework.runtime import ConfigurationError, Framework
from scheduling.plugins import installed
from scheduling.plugins.default_binder import DefaultBinder
from scheduling.plugins.default_preemption import DefaultPreemption
from scheduling.plugins.dynamic_resources import DynamicResources
from scheduling.plugins.gang_scheduling import GangScheduling
from scheduling.plugins.held_profile import HeldProfile, HeldProfileArgs
from scheduling.plugins.http_extender import HTTPExtender
from scheduling.plugins.image_locality import ImageLocality
from scheduling.plugins.inter_pod_affinity import InterPodAffinity
from scheduling.plugins.node_affinity import NodeAffinity
from scheduling.plugins.node_declared_features import NodeDeclaredFeatures
from scheduling.plugins.node_name import NodeName
from scheduling.plugins.node_ports import NodePorts
from scheduling.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scheduling.plugins.node_resources_fit import NodeResourcesFit
from scheduling.plugins.node_unschedulable import NodeUnschedulable
from scheduling.plugins.node_volume_limits import NodeVolumeLimits
from scheduling.plugins.pod_topology_spread import PodTopologySpread
from scheduling.plugins.priority_sort import PrioritySort
from scheduling.plugins.scheduling_gates import SchedulingGates
from scheduling.plugins.taint_toleration import TaintToleration
from scheduling.plugins.volume_binding import VolumeBinding
from scheduling.plugins.volume_restrictions import VolumeRestrictions
from scheduling.plugins.volume_zone import VolumeZone

A = TypeVar("A", bound=msgspec.Struct)


def load_configuration(document: Mapping[str, Any] | str | bytes) -> KubeSchedulerConfiguration:
    """Return the configuration that ``document`` describes; it may name installed plugins.

    If the document is invalid with the known packages, newly installed ones are looked for first.

    Raises:
        Invalid: with every wrong field; see ``documents.load``.
    """
    try:
        return documents.load(document, extra_plugins=installed.infos())
    except Invalid:
        if not installed.look_again():
            raise
    return documents.load(document, extra_plugins=installed.infos())


def build_plugins(profile: Profile) -> dict[str, Plugin]:
    """Return an instance of every plugin that the profile uses, by name.

    The plugins behave as with Kubernetes' default feature gates of the profile's version.

    Raises:
        ConfigurationError: the profile names a plugin that does not exist or cannot be built.
    """
    args, version = profile.args, profile.compatibility
    affinity = args.get("NodeAffinity", NodeAffinityArgs())
    assert isinstance(affinity, NodeAffinityArgs)

    def of(name: str, kind: type[A], default: A) -> A:
        found = args.get(name, default)
        assert isinstance(found, kind)
        return found

    makers: dict[str, Callable[[], Plugin]] = {
        "SchedulingGates": SchedulingGates,
        "PrioritySort": lambda: PrioritySort(
            of("PrioritySort", PrioritySortArgs, PrioritySortArgs())
        ),
        "NodeUnschedulable": NodeUnschedulable,
        "NodeName": NodeName,
        "TaintToleration": TaintToleration,
        "NodeAffinity": lambda: NodeAffinity(affinity),
        "NodePorts": NodePorts,
        "NodeResourcesFit": lambda: NodeResourcesFit(
            of("NodeResourcesFit", NodeResourcesFitArgs, NodeResourcesFitArgs())
        ),
        "VolumeRestrictions": VolumeRestrictions,
        "NodeVolumeLimits": lambda: NodeVolumeLimits(
            of("NodeVolumeLimits", NodeVolumeLimitsArgs, NodeVolumeLimitsArgs())
        ),
        "VolumeBinding": lambda: VolumeBinding(
            of("VolumeBinding", VolumeBindingArgs, VolumeBindingArgs())
        ),
        "VolumeZone": VolumeZone,
        "PodTopologySpread": lambda: PodTopologySpread(
            of("PodTopologySpread", PodTopologySpreadArgs, PodTopologySpreadArgs()),
            empty_node_selector_term=affinity.empty_node_selector_term,
            compatibility=version,
        ),
        "InterPodAffinity": lambda: InterPodAffinity(
            of("InterPodAffinity", InterPodAffinityArgs, InterPodAffinityArgs())
        ),
        "DefaultPreemption": lambda: DefaultPreemption(
            of("DefaultPreemption", DefaultPreemptionArgs, DefaultPreemptionArgs()), version
        ),
        "NodeResourcesBalancedAllocation": lambda: NodeResourcesBalancedAllocation(
            of(
                "NodeResourcesBalancedAllocation",
                NodeResourcesBalancedAllocationArgs,
                NodeResourcesBalancedAllocationArgs(),
            )
        ),
        "DynamicResources": lambda: DynamicResources(
            of("DynamicResources", DynamicResourcesArgs, DynamicResourcesArgs())
        ),
        "ImageLocality": lambda: ImageLocality(version),
        "DefaultBinder": DefaultBinder,
        "NodeDeclaredFeatures": lambda: NodeDeclaredFeatures(version),
        "GangScheduling": GangScheduling,
    }
    plugins: dict[str, Plugin] = {}
    for name in profile.all_plugins():
        if name in makers:
            plugins[name] = makers[name]()
        elif isinstance(holds := args.get(name), HeldProfileArgs):
            plugins[name] = HeldProfile(holds)
        elif isinstance(extender := args.get(name), ExtenderArgs):
            try:
                plugins[name] = HTTPExtender(extender)
            except OSError as error:
                text = f"profile {profile.scheduler_name!r}: {name}: tlsConfig: {error}"
                raise ConfigurationError(text) from error
        elif name in installed.plugins():
            plugins[name] = installed.plugins()[name].make(args.get(name, RawArgs()))
        else:
            raise ConfigurationError(
                f"profile {profile.scheduler_name!r}: plugin {name!r} does not exist"
            )
    return plugins


def build_framework(
    profile: Profile,
    *,
    waiting_pods: WaitingPods | None = None,
    stored_pods: StoredPods | None = None,
    volume_store: VolumeStore | None = None,
    device_store: DeviceStore | None = None,
    meter: Meter | None = None,
) -> Framework:
    """Return the profile's plugins with their extension points.

    Raises:
        ConfigurationError: a plugin does not exist, or lacks an extension point of the profile.
    """
    plugins = build_plugins(profile)
    return Framework(
        profile,
        plugins,
        waiting_pods=waiting_pods,
        stored_pods=stored_pods,
        volume_store=volume_store,
        device_store=device_store,
        meter=meter,
    )

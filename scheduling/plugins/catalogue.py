"""The plugins of this package: how to make each from a profile's arguments.

Default sets and weights are in ``framework.configuration``. Plugins from elsewhere are passed to
``build`` by name.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from scheduling.framework.configuration import Profile
from scheduling.framework.interface import Plugin
from scheduling.framework.plugin_args import (
    DefaultPreemptionArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    RawArgs,
)
from scheduling.framework.runtime import ConfigurationError, Framework
from scheduling.plugins.default_binder import BindFunction, DefaultBinder
from scheduling.plugins.default_preemption import DefaultPreemption
from scheduling.plugins.image_locality import ImageLocality
from scheduling.plugins.inter_pod_affinity import InterPodAffinity
from scheduling.plugins.node_affinity import NodeAffinity
from scheduling.plugins.node_name import NodeName
from scheduling.plugins.node_ports import NodePorts
from scheduling.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scheduling.plugins.node_resources_fit import NodeResourcesFit
from scheduling.plugins.node_unschedulable import NodeUnschedulable
from scheduling.plugins.pod_topology_spread import PodTopologySpread
from scheduling.plugins.priority_sort import PrioritySort
from scheduling.plugins.scheduling_gates import SchedulingGates
from scheduling.plugins.taint_toleration import TaintToleration

A = TypeVar("A", bound=msgspec.Struct)

Factory = Callable[[msgspec.Struct], Plugin]
"""Makes a third-party plugin from its arguments (``RawArgs`` where it declares no type)."""


class Gates(msgspec.Struct, frozen=True, kw_only=True):
    """Kubernetes' feature gates that plugins look at, with the defaults of 1.36."""

    taint_toleration_comparison_operators: bool = False
    match_label_keys_in_pod_topology_spread: bool = True
    node_inclusion_policy_in_pod_topology_spread: bool = True
    sidecar_containers: bool = True


def build_plugins(
    profile: Profile,
    *,
    bind: BindFunction | None = None,
    extra: Mapping[str, Factory] | None = None,
    gates: Gates = Gates(),  # noqa: B008
) -> dict[str, Plugin]:
    """Return an instance of every plugin that the profile uses, by name.

    Raises:
        ConfigurationError: the profile names a plugin that does not exist.
    """
    args = profile.args
    others = extra or {}
    affinity = args.get("NodeAffinity", NodeAffinityArgs())
    assert isinstance(affinity, NodeAffinityArgs)
    comparison = gates.taint_toleration_comparison_operators

    def of(name: str, kind: type[A], default: A) -> A:
        found = args.get(name, default)
        assert isinstance(found, kind)
        return found

    makers: dict[str, Callable[[], Plugin]] = {
        "SchedulingGates": SchedulingGates,
        "PrioritySort": PrioritySort,
        "NodeUnschedulable": lambda: NodeUnschedulable(comparison_operators=comparison),
        "NodeName": NodeName,
        "TaintToleration": lambda: TaintToleration(comparison_operators=comparison),
        "NodeAffinity": lambda: NodeAffinity(affinity),
        "NodePorts": NodePorts,
        "NodeResourcesFit": lambda: NodeResourcesFit(
            of("NodeResourcesFit", NodeResourcesFitArgs, NodeResourcesFitArgs()),
            sidecar_containers=gates.sidecar_containers,
        ),
        "PodTopologySpread": lambda: PodTopologySpread(
            of("PodTopologySpread", PodTopologySpreadArgs, PodTopologySpreadArgs()),
            empty_node_selector_term=affinity.empty_node_selector_term,
            match_label_keys=gates.match_label_keys_in_pod_topology_spread,
            node_inclusion_policy=gates.node_inclusion_policy_in_pod_topology_spread,
            comparison_operators=comparison,
        ),
        "InterPodAffinity": lambda: InterPodAffinity(
            of("InterPodAffinity", InterPodAffinityArgs, InterPodAffinityArgs())
        ),
        "DefaultPreemption": lambda: DefaultPreemption(
            of("DefaultPreemption", DefaultPreemptionArgs, DefaultPreemptionArgs())
        ),
        "NodeResourcesBalancedAllocation": lambda: NodeResourcesBalancedAllocation(
            of(
                "NodeResourcesBalancedAllocation",
                NodeResourcesBalancedAllocationArgs,
                NodeResourcesBalancedAllocationArgs(),
            )
        ),
        "ImageLocality": ImageLocality,
        "DefaultBinder": lambda: DefaultBinder(bind),
    }
    plugins: dict[str, Plugin] = {}
    for name in profile.all_plugins():
        if name in others:
            plugins[name] = others[name](args.get(name, RawArgs()))
        elif name in makers:
            plugins[name] = makers[name]()
        else:
            raise ConfigurationError(
                f"profile {profile.scheduler_name!r}: plugin {name!r} does not exist"
            )
    return plugins


def build_framework(
    profile: Profile,
    *,
    bind: BindFunction | None = None,
    extra: Mapping[str, Factory] | None = None,
    gates: Gates = Gates(),  # noqa: B008
) -> Framework:
    """Return the profile's plugins, ready to run.

    Raises:
        ConfigurationError: a plugin does not exist or cannot act where the profile puts it.
    """
    return Framework(profile, build_plugins(profile, bind=bind, extra=extra, gates=gates))

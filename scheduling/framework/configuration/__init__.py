"""The scheduler's configuration as a value: profiles, their plugins, weights and arguments.

``framework.configuration.documents`` reads the value from a ``KubeSchedulerConfiguration``
document; the live cycle and the simulations use it. Kubernetes' plugins for features that this
service lacks are accepted by name, have no effect, and cause a warning.

::

    documents       reads a KubeSchedulerConfiguration document
    plugin_sets     the plugin sets of a profile, merged over the default ones
    plugin_args     arguments of plugins: types, defaults, rules
    extenders       the extenders of a document
    legacy          older documents rewritten as v1
    reading         typed reading that notes every wrong field
    advice          warnings about legal but surprising settings
"""

from typing import Any, ClassVar

import msgspec

from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from scheduling.framework.configuration.plugin_args import (
    Args,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    GangSchedulingArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    NodeVolumeLimitsArgs,
    PodTopologySpreadArgs,
    PrioritySortArgs,
    VolumeBindingArgs,
)

GROUP = "kubescheduler.config.k8s.io"
KIND = "KubeSchedulerConfiguration"
API_VERSION = f"{GROUP}/v1"
DEFAULT_SCHEDULER = "default-scheduler"

EXTENSION_POINTS = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
    "placementGenerate",
    "placementFeasible",
    "placementScore",
    "podGroupPostFilter",
)
"""The extension points in the order in which a pod meets them; behind, those of groups of pods."""


class PluginInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin as the loader sees it: its extension points, and the type of its arguments.

    ``args_type`` is a msgspec Struct (camelCase names by its own ``rename``) or None: any object.
    ``problem`` says why an installed plugin cannot be used.
    """

    points: frozenset[str]
    args_type: type[msgspec.Struct] | None = None
    problem: str = ""


class PluginUse(msgspec.Struct, frozen=True):
    """A plugin at an extension point; ``weight`` counts at the point ``score`` only."""

    name: str
    weight: int = 1


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduling profile: the plugins for pods with this ``spec.schedulerName``.

    ``points`` holds the effective plugins by extension point, in order; ``args`` the arguments of
    every effective plugin that takes any. ``percentage_of_nodes_to_score`` is already resolved
    against the global one: 1-100, or 0 for the adaptive formula.
    """

    scheduler_name: str = DEFAULT_SCHEDULER
    percentage_of_nodes_to_score: int = 100
    min_feasible_nodes_to_find: int = 50
    points: dict[str, tuple[PluginUse, ...]] = {}
    args: dict[str, Args] = {}
    compatibility: Compatibility = NEWEST

    def plugins(self, point: str) -> tuple[PluginUse, ...]:
        """Return the plugins to run at ``point``, in order."""
        return self.points.get(point, ())

    def names(self, point: str) -> tuple[str, ...]:
        """Return the names of the plugins to run at ``point``, in order."""
        return tuple(use.name for use in self.points.get(point, ()))

    def weights(self) -> dict[str, int]:
        """Return the weight of each score plugin, by name in order."""
        return {use.name: use.weight for use in self.points.get("score", ())}

    def all_plugins(self) -> tuple[str, ...]:
        """Return each effective plugin once, in the order of its first extension point."""
        found = {use.name: None for p in EXTENSION_POINTS for use in self.points.get(p, ())}
        return tuple(found)


class KubeSchedulerConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration. ``document`` is its v1 form, ``warnings`` is advice for people."""

    API_VERSION: ClassVar[str] = API_VERSION

    profiles: tuple[Profile, ...]
    parallelism: int = 16
    percentage_of_nodes_to_score: int = 100
    min_feasible_nodes_to_find: int = 50
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    pod_max_in_unschedulable_pods_seconds: int = 300
    compatibility: Compatibility = NEWEST
    document: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()

    def profile(self, scheduler_name: str) -> Profile | None:
        """Return the profile for a pod with this ``schedulerName``, None if there is none."""
        for profile in self.profiles:
            if profile.scheduler_name == scheduler_name:
                return profile
        return None


def _info(*points: str, args: type[msgspec.Struct] | None = None) -> PluginInfo:
    return PluginInfo(points=frozenset(points), args_type=args)


BUILT_IN: dict[str, PluginInfo] = {
    "SchedulingGates": _info("preEnqueue"),
    "PrioritySort": _info("queueSort", args=PrioritySortArgs),
    "NodeUnschedulable": _info("filter"),
    "NodeName": _info("filter"),
    "TaintToleration": _info("filter", "preScore", "score"),
    "NodeAffinity": _info("preFilter", "filter", "preScore", "score", args=NodeAffinityArgs),
    "NodePorts": _info("preFilter", "filter"),
    "NodeResourcesFit": _info(
        "preFilter", "filter", "preScore", "score", args=NodeResourcesFitArgs
    ),
    "VolumeRestrictions": _info("preFilter", "filter"),
    "NodeVolumeLimits": _info("preFilter", "filter", args=NodeVolumeLimitsArgs),
    "VolumeBinding": _info(
        "preFilter",
        "filter",
        "preScore",
        "score",
        "reserve",
        "preBind",
        args=VolumeBindingArgs,
    ),
    "VolumeZone": _info("preFilter", "filter"),
    "PodTopologySpread": _info(
        "preFilter", "filter", "preScore", "score", args=PodTopologySpreadArgs
    ),
    "InterPodAffinity": _info(
        "preFilter", "filter", "preScore", "score", args=InterPodAffinityArgs
    ),
    "DynamicResources": _info(
        "preFilter",
        "filter",
        "postFilter",
        "preScore",
        "score",
        "reserve",
        "preBind",
        args=DynamicResourcesArgs,
    ),
    "DefaultPreemption": _info("postFilter", args=DefaultPreemptionArgs),
    "NodeResourcesBalancedAllocation": _info(
        "preScore", "score", args=NodeResourcesBalancedAllocationArgs
    ),
    "ImageLocality": _info("score"),
    "DefaultBinder": _info("bind"),
    "NodeDeclaredFeatures": _info("preFilter", "filter"),
    "GangScheduling": _info("preEnqueue", args=GangSchedulingArgs),
}
"""The plugins of this package, in the order of Kubernetes' default set."""

_WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
}
"""Weights in the default set; the others weigh 1."""

DEFAULT_MULTI_POINT: tuple[PluginUse, ...] = tuple(
    PluginUse(name, _WEIGHTS.get(name, 1)) for name in BUILT_IN
)
"""Kubernetes' default plugins and weights (default_plugins.go, v1.36)."""

WITHOUT_EFFECT = frozenset(
    {
        "DeferredPodScheduling",
        "TopologyPlacementGenerator",
        "PodGroupPodsCount",
    }
)
"""Kubernetes' plugins for things that this service does not have."""

REMOVED = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})

"""Arguments of the plugins of this package: their types, defaults and rules.

Each type is what a plugin receives; each reader takes a ``Field`` (the JSON object ``args``),
collects every error and returns the type with defaults filled in. Rules: apis/config/validation
(validation_pluginargs.go) and apis/config/v1/defaults.go, v1.36.
"""

import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from clusterstate.objects.values import durations
from clusterstate.objects.values.errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    FieldError,
)
from clusterstate.objects.values.pod import NodeAffinity
from clusterstate.objects.values.pod import TopologySpreadConstraint as Constraint
from scheduling.framework.configuration.reading import Field, check_label_name, check_node_affinity


class UtilizationShapePoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One point of a utilization-to-score function; utilization 0-100 (%), score 0-10."""

    utilization: int
    score: int


class ResourceSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A resource and its weight, 1-100, in a scoring strategy."""

    name: str
    weight: int = 1


DEFAULT_RESOURCES = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


class ScoringStrategy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How NodeResourcesFit scores; ``shape`` is empty unless type is RequestedToCapacityRatio."""

    type: str = "LeastAllocated"
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES
    shape: tuple[UtilizationShapePoint, ...] = ()


class NodeAffinityArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Arguments of NodeAffinity: R86, and C1 for ``empty_node_selector_term`` (all or none)."""

    added_affinity: NodeAffinity | None = None
    empty_node_selector_term: str = "all"


class NodeResourcesFitArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Arguments of NodeResourcesFit. Ignored groups are prefixes of resource names before ``/``."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy()


class NodeResourcesBalancedAllocationArgs(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel"
):
    """Arguments of NodeResourcesBalancedAllocation; every weight is 1."""

    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES


class PodTopologySpreadArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Arguments of PodTopologySpread; ``defaulting_type`` System or List."""

    default_constraints: tuple[Constraint, ...] = ()
    defaulting_type: str = "System"


class InterPodAffinityArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Arguments of InterPodAffinity; the weight (0-100) is for existing pods' required terms."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class DefaultPreemptionArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Arguments of DefaultPreemption: how many candidate nodes to try."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class VolumeBindingArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Arguments of VolumeBinding.

    ``bind_timeout_seconds``: the limit for binding a placed pod's volumes. ``shape``: maps the use
    of a class's volumes (%) to a score (0-10), empty without scoring; ``storage_capacity_scoring``
    replaces the alpha gate of that name.
    """

    bind_timeout_seconds: int = 600
    storage_capacity_scoring: bool = False
    shape: tuple[UtilizationShapePoint, ...] = ()


class DynamicResourcesArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Arguments of DynamicResources: how long binding waits for devices to be ready, in seconds."""

    binding_timeout: float = 600.0


class NodeVolumeLimitsArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Arguments of NodeVolumeLimits; its flag replaces the alpha gate VolumeLimitScaling."""

    volume_limit_scaling: bool = False


MOST_AGE_POINTS = 1_000_000_000
"""At this value one minute of waiting outranks every user priority."""


class PrioritySortArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Arguments of PrioritySort; Kubernetes' has none.

    ``age_points_per_minute``: by how much a waiting pod's priority grows in the order of the queue.
    """

    age_points_per_minute: int = 0


STARTUP_TAINTS = ("node.kubernetes.io/not-ready", "node.cloudprovider.kubernetes.io/uninitialized")
MOST_STARTING_SECONDS = 86_400


class GangSchedulingArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Arguments of GangScheduling; Kubernetes' has none.

    ``starting_node_seconds``: for how long after a node's creation a group preempts no pods if it
    would fit once the node has lost its ``startup_taints`` (keys); 0: it never waits.
    """

    starting_node_seconds: int = 0
    startup_taints: tuple[str, ...] = STARTUP_TAINTS


class RawArgs(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a plugin that declares no type: the JSON object as it was given."""

    value: dict[str, Any] = {}


Args = (
    NodeAffinityArgs
    | NodeResourcesFitArgs
    | NodeResourcesBalancedAllocationArgs
    | PodTopologySpreadArgs
    | InterPodAffinityArgs
    | DefaultPreemptionArgs
    | GangSchedulingArgs
    | PrioritySortArgs
    | DynamicResourcesArgs
    | VolumeBindingArgs
    | NodeVolumeLimitsArgs
    | RawArgs
    | msgspec.Struct
)


def _resources(args: Field) -> tuple[ResourceSpec, ...]:
    """Read ``resources``; absent or empty means cpu and memory, no weight or 0 means 1 (R106-7).

    Rule: ``SetDefaults_NodeResourcesFitArgs`` and ``..BalancedAllocationArgs``, v1/defaults.go.
    """
    found = []
    for entry in args.objects("resources"):
        name = entry.text("name")
        if not name:
            entry.errors.append(FieldError(REQUIRED, entry.child("name")))
        # Printed examples write CPU and Memory (R106).
        name = {"CPU": "cpu", "Memory": "memory"}.get(name, name)
        weight = entry.integer("weight", 1) or 1
        entry.finish()
        found.append(ResourceSpec(name=name, weight=weight))
    return tuple(found) or DEFAULT_RESOURCES


def _default_preemption(args: Field) -> Args:
    percentage = args.integer("minCandidateNodesPercentage", 10)
    absolute = args.integer("minCandidateNodesAbsolute", 100)
    if not 0 <= percentage <= 100:
        args.error("minCandidateNodesPercentage", percentage, "not in valid range [0, 100]")
    if absolute < 0:
        args.error("minCandidateNodesAbsolute", absolute, "not in valid range [0, inf)")
    if percentage == 0 and absolute == 0:
        args.error(
            "minCandidateNodesPercentage",
            percentage,
            "cannot be zero at the same time as minCandidateNodesAbsolute",
        )
        args.error(
            "minCandidateNodesAbsolute",
            absolute,
            "cannot be zero at the same time as minCandidateNodesPercentage",
        )
    return DefaultPreemptionArgs(
        min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute
    )


def _inter_pod_affinity(args: Field) -> Args:
    weight = args.integer("hardPodAffinityWeight", 1)
    if not 0 <= weight <= 100:
        args.error("hardPodAffinityWeight", weight, "not in valid range [0, 100]")
    ignore = args.boolean("ignorePreferredTermsOfExistingPods", default=False)
    return InterPodAffinityArgs(
        hard_pod_affinity_weight=weight, ignore_preferred_terms_of_existing_pods=ignore
    )


def _pod_topology_spread(args: Field) -> Args:
    kind = args.text("defaultingType", "System")
    constraints = []
    seen: set[tuple[str, str]] = set()
    for entry in args.objects("defaultConstraints"):
        skew = entry.integer("maxSkew", 0)
        if skew <= 0:
            entry.error("maxSkew", skew, "not in valid range (0, inf)")
        key = entry.text("topologyKey")
        if not key:
            path = entry.child("topologyKey")
            entry.errors.append(FieldError(REQUIRED, path, None, "can not be empty"))
        else:
            check_label_name(key, entry.child("topologyKey"), entry.errors)
        action = entry.text("whenUnsatisfiable")
        path = entry.child("whenUnsatisfiable")
        if not action:
            entry.errors.append(FieldError(REQUIRED, path, None, "can not be empty"))
        elif action not in ("DoNotSchedule", "ScheduleAnyway"):
            detail = 'supported values: "DoNotSchedule", "ScheduleAnyway"'
            entry.errors.append(FieldError(NOT_SUPPORTED, path, action, detail))
        if entry.take("labelSelector") is not None:
            entry.errors.append(
                FieldError(
                    FORBIDDEN,
                    entry.child("labelSelector"),
                    None,
                    "constraint must not define a selector, as they deduced for each pod",
                )
            )
        domains = entry.integer("minDomains", 0) if entry.has("minDomains") else None
        affinity = entry.text("nodeAffinityPolicy") or None
        taints = entry.text("nodeTaintsPolicy") or None
        entry.finish()
        if (key, action) in seen:
            value = f"{{{key}, {action}}}"
            entry.errors.append(FieldError(DUPLICATE, entry.path, value))
        seen.add((key, action))
        constraints.append(
            Constraint(
                max_skew=skew,
                topology_key=key,
                when_unsatisfiable=action,
                min_domains=domains,
                node_affinity_policy=affinity,
                node_taints_policy=taints,
            )
        )
    if kind not in ("System", "List"):
        detail = 'supported values: "List", "System"'
        args.errors.append(FieldError(NOT_SUPPORTED, args.child("defaultingType"), kind, detail))
    elif kind == "System" and constraints:
        args.error("defaultingType", kind, "when .defaultConstraints are not empty")
    return PodTopologySpreadArgs(default_constraints=tuple(constraints), defaulting_type=kind)


def _balanced_allocation(args: Field) -> Args:
    resources = _resources(args)
    seen: set[str] = set()
    for i, resource in enumerate(resources):
        path = f"{args.child('resources')}[{i}]"
        if resource.name in seen:
            args.errors.append(FieldError(DUPLICATE, f"{path}.name", resource.name))
        seen.add(resource.name)
        if resource.weight != 1:
            error = FieldError(INVALID, f"{path}.weight", resource.weight, "must be 1")
            args.errors.append(error)
    return NodeResourcesBalancedAllocationArgs(resources=resources)


def _node_affinity(args: Field) -> Args:
    empty = args.text("emptyNodeSelectorTerm", "all")
    if empty not in ("all", "none"):
        path = args.child("emptyNodeSelectorTerm")
        detail = 'supported values: "all", "none"'
        args.errors.append(FieldError(NOT_SUPPORTED, path, empty, detail))
    added = args.object("addedAffinity")
    affinity = None
    if added is not None:
        affinity = check_node_affinity(added)
    return NodeAffinityArgs(added_affinity=affinity, empty_node_selector_term=empty)


def _node_resources_fit(args: Field) -> Args:
    ignored = args.texts("ignoredResources")
    for i, name in enumerate(ignored):
        check_label_name(name, f"{args.child('ignoredResources')}[{i}]", args.errors)
    groups = args.texts("ignoredResourceGroups")
    for i, group in enumerate(groups):
        path = f"{args.child('ignoredResourceGroups')}[{i}]"
        if "/" in group:
            detail = "resource group name can't contain '/'"
            args.errors.append(FieldError(INVALID, path, group, detail))
        check_label_name(group, path, args.errors)
    strategy = args.object("scoringStrategy")
    return NodeResourcesFitArgs(
        ignored_resources=tuple(ignored),
        ignored_resource_groups=tuple(groups),
        scoring_strategy=ScoringStrategy() if strategy is None else _strategy(strategy),
    )


def _strategy(field: Field) -> ScoringStrategy:
    kind = field.text("type", "LeastAllocated")
    if kind not in ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"):
        detail = 'supported values: "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"'
        field.errors.append(FieldError(NOT_SUPPORTED, field.child("type"), kind, detail))
    resources = _resources(field)
    for i, resource in enumerate(resources):
        if not 0 < resource.weight <= 100:
            detail = f"resource weight of {resource.name} not in valid range (0, 100]"
            path = f"{field.child('resources')}[{i}].weight"
            field.errors.append(FieldError(INVALID, path, resource.weight, detail))
    ratio = field.object("requestedToCapacityRatio")
    path = field.child("requestedToCapacityRatio")
    shape: tuple[UtilizationShapePoint, ...] = ()
    if kind == "RequestedToCapacityRatio":
        if ratio is None:
            detail = "must be specified when type is RequestedToCapacityRatio"
            field.errors.append(FieldError(REQUIRED, path, None, detail))
        else:
            shape = _shape(ratio)
            ratio.finish()
    elif ratio is not None:
        detail = "must be nil when type is not RequestedToCapacityRatio"
        field.errors.append(FieldError(FORBIDDEN, path, None, detail))
    field.finish()
    return ScoringStrategy(type=kind, resources=resources, shape=shape)


def _shape(ratio: Field) -> tuple[UtilizationShapePoint, ...]:
    """Read the points; utilization strictly increasing in 0-100, score in 0-10 (R104, C13)."""
    points = []
    for entry in ratio.objects("shape"):
        utilization = entry.integer("utilization", 0)
        score = entry.integer("score", 0)
        entry.finish()
        points.append((UtilizationShapePoint(utilization=utilization, score=score), entry))
    if not points:
        path = ratio.child("shape")
        detail = "at least one point must be specified"
        ratio.errors.append(FieldError(REQUIRED, path, None, detail))
    for (before, _), (after, entry) in itertools.pairwise(points):
        if before.utilization >= after.utilization:
            detail = "values must be sorted in increasing order"
            entry.error("utilization", after.utilization, detail)
            break
    for point, entry in points:
        if not 0 <= point.utilization <= 100:
            entry.error("utilization", point.utilization, "not in valid range [0, 100]")
        if not 0 <= point.score <= 10:
            entry.error("score", point.score, "not in valid range [0, 10]")
    return tuple(point for point, _ in points)


def _priority_sort(args: Field) -> Args:
    points = args.integer("agePointsPerMinute", 0)
    if not 0 <= points <= MOST_AGE_POINTS:
        args.error("agePointsPerMinute", points, f"not in valid range [0, {MOST_AGE_POINTS}]")
    return PrioritySortArgs(age_points_per_minute=points)


def _gang_scheduling(args: Field) -> Args:
    seconds = args.integer("startingNodeSeconds", 0)
    if not 0 <= seconds <= MOST_STARTING_SECONDS:
        text = f"not in valid range [0, {MOST_STARTING_SECONDS}]"
        args.error("startingNodeSeconds", seconds, text)
    keys = args.texts("startupTaints") if args.has("startupTaints") else STARTUP_TAINTS
    for number, key in enumerate(keys):
        check_label_name(key, f"{args.child('startupTaints')}[{number}]", args.errors)
    return GangSchedulingArgs(starting_node_seconds=seconds, startup_taints=tuple(keys))


def _volume_binding(args: Field) -> Args:
    timeout = args.integer("bindTimeoutSeconds", 600)
    if timeout < 0:
        text = "invalid BindTimeoutSeconds, should not be a negative value"
        args.error("bindTimeoutSeconds", timeout, text)
    scoring = args.boolean("storageCapacityScoring", default=False)
    shape: tuple[UtilizationShapePoint, ...] = ()
    if args.has("shape"):
        if scoring:
            shape = _shape(args)
        else:
            text = "unexpected field `shape`, StorageCapacityScoring feature gate is disabled"
            args.error("shape", args.take("shape"), text)
    elif scoring:
        points = ((0, 10), (100, 0))
        shape = tuple(UtilizationShapePoint(utilization=at, score=of) for at, of in points)
    return VolumeBindingArgs(
        bind_timeout_seconds=timeout, storage_capacity_scoring=scoring, shape=shape
    )


def _dynamic_resources(args: Field) -> Args:
    _duration(args, "filterTimeout", 0.0, "must be zero or positive")
    timeout = _duration(args, "bindingTimeout", 1.0, "must be at least 1 second")
    return DynamicResourcesArgs(binding_timeout=600.0 if timeout is None else timeout)


def _duration(args: Field, name: str, least: float, text: str) -> float | None:
    """Return seconds, ``None`` where the member is absent or wrong."""
    text_ = args.take(name)
    if text_ is None:
        return None
    seconds = durations.parse(text_)
    if seconds is None:
        args.error(name, text_, 'must be a duration such as "100ms", "5s" or "1m30s"')
    elif seconds < least:
        args.error(name, text_, text)
    return seconds


def _node_volume_limits(args: Field) -> Args:
    scaling = args.boolean("volumeLimitScaling", default=False)
    return NodeVolumeLimitsArgs(volume_limit_scaling=scaling)


READERS: dict[str, Callable[[Field], Args]] = {
    "DefaultPreemption": _default_preemption,
    "DynamicResources": _dynamic_resources,
    "GangScheduling": _gang_scheduling,
    "InterPodAffinity": _inter_pod_affinity,
    "NodeAffinity": _node_affinity,
    "NodeResourcesBalancedAllocation": _balanced_allocation,
    "NodeResourcesFit": _node_resources_fit,
    "NodeVolumeLimits": _node_volume_limits,
    "PodTopologySpread": _pod_topology_spread,
    "PrioritySort": _priority_sort,
    "VolumeBinding": _volume_binding,
}
"""By plugin; a plugin without a reader takes no arguments, or is not of this package."""

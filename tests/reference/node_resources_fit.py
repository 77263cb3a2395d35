"""NodeResourcesFit: a pod goes where its requests fit; by default the emptier node is better.

Filter: one pod slot and, for each resource, at most what is left of allocatable. More than
allocatable as a whole is unresolvable: no preemption helps. Score, by strategy, the mean over the
resources of what would be free (LeastAllocated), used (MostAllocated), or of a function of the
utilisation (RequestedToCapacityRatio, R104-R111).

Source: pkg/scheduler/framework/plugins/noderesources/{fit,least_allocated,most_allocated,
requested_to_capacity_ratio}.go and plugins/helper/shape_score.go, v1.36.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from clusterstate.objects.rules.resources import pod_request_ints
from clusterstate.objects.values.pod import Pod
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.helpers import broken_linear
from tests.reference.node_resources import (
    NATIVE,
    allocatable,
    capacity_and_use,
    fit_request,
    is_extended_resource,
    is_scalar_resource,
    requested,
)
from tests.reference.rule import (
    MAX_NODE_SCORE,
    PASS,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    Begun,
    Rule,
    Verdict,
    round_half_away,
)

Weighted = Sequence[tuple[str, int]]
"""Resource names and weights."""
Shape = Sequence[tuple[int, int]]
"""Points (utilisation 0 to 100, score 0 to 10), utilisation strictly increasing."""
Strategy = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]

CPU_AND_MEMORY: Weighted = (("cpu", 1), ("memory", 1))
MAX_SHAPE_SCORE = 10


def least_allocated(used: int, has: int) -> int:
    """Return the free share in percent; 0 when more is used than there is."""
    return 0 if used > has else (has - used) * MAX_NODE_SCORE // has


def most_allocated(used: int, has: int) -> int:
    """Return the used share in percent, at most 100."""
    return min(used, has) * MAX_NODE_SCORE // has


def requested_to_capacity_ratio(
    uses: Sequence[tuple[int, int, int]], shape: Shape, *, top: int = MAX_NODE_SCORE
) -> int:
    """Return the weighted mean of the line over resources given as (used, has, weight).

    A resource that scores 0 is left out of the weights, more used than there is counts as full, and
    the mean is rounded (C12, C13). The shape's scale of 0 to 10 is stretched to ``top``; with
    ``top=10`` this gives the numbers of the design documents (R109, R110).
    """
    scaled = [(x, y * (top // MAX_SHAPE_SCORE)) for x, y in shape]
    total = weights = 0
    for used, has, weight in uses:
        score = broken_linear(scaled, 100 if used > has else used * 100 // has)
        if score > 0:
            total += score * weight
            weights += weight
    return round_half_away(total / weights) if weights else 0


class NodeResourcesFit(Rule[dict[str, int], dict[str, int]]):
    """``shape`` is for RequestedToCapacityRatio alone.

    ``ignored_resources`` and ``ignored_resource_groups`` (the part before the slash) are extended
    resources that the filter does not look at. ``sidecar_containers`` is a feature gate.
    ``class_of`` gives the device class that serves an extended resource, if one does.
    """

    name = "NodeResourcesFit"
    filters = True
    scores = True

    def __init__(
        self,
        *,
        strategy: Strategy = "LeastAllocated",
        resources: Weighted = CPU_AND_MEMORY,
        shape: Shape = (),
        ignored_resources: Sequence[str] = (),
        ignored_resource_groups: Sequence[str] = (),
        sidecar_containers: bool = True,
    ) -> None:
        self.sidecar_containers = sidecar_containers
        self.strategy = strategy
        self.resources = tuple(resources)
        self.shape = tuple(shape)
        self.ignored_resources = frozenset(ignored_resources)
        self.ignored_resource_groups = frozenset(ignored_resource_groups)
        self.class_of: Callable[[str], object] = lambda name: None

    def pre_filter(self, pod: Pod, cluster: Cluster) -> Begun[dict[str, int]]:
        """Add up the pod's requests; reject sidecars where that feature is off."""
        sidecars = any(c.restart_policy == "Always" for c in pod.spec.init_containers)
        if sidecars and not self.sidecar_containers:
            reason = (
                "Pod has a restartable init container and the SidecarContainers feature is disabled"
            )
            return Begun(Verdict(UNRESOLVABLE, (reason,)))
        return Begun(state=pod_request_ints(pod))

    def filter(self, state: dict[str, int] | None, pod: Pod, node: PlacedNode) -> Verdict:
        """Name every resource that is short: pods, cpu, memory, storage, then others by name."""
        has, used = allocatable(node), requested(node)
        reasons = []
        code = UNSCHEDULABLE
        if len(node.pods) + 1 > has.get("pods", 0):
            reasons.append("Too many pods")
        wants = state or {}
        others = sorted(name for name in wants if self._accounted(name))
        for name in (*NATIVE, *others):
            want = wants.get(name, 0)
            if want <= 0 and (name in NATIVE or want == 0):
                continue
            if not has.get(name) and self.class_of(name) is not None:
                continue  # devices serve it there: DynamicResources decides
            if want > has.get(name, 0) - used[name]:
                reasons.append(f"Insufficient {name}")
                if want > has.get(name, 0):
                    code = UNRESOLVABLE
        return Verdict(code, tuple(reasons)) if reasons else PASS

    def _accounted(self, name: str) -> bool:
        if name in NATIVE or not is_scalar_resource(name):
            return False
        ignored = (
            name in self.ignored_resources or name.partition("/")[0] in self.ignored_resource_groups
        )
        return not (ignored and is_extended_resource(name))

    def pre_score(
        self, pod: Pod, cluster: Cluster, candidates: Sequence[PlacedNode]
    ) -> Begun[dict[str, int]]:
        """Add up the requests that scoring counts."""
        return Begun(state={name: fit_request(pod, name) for name, _ in self.resources})

    def score(
        self, state: dict[str, int] | None, pod: Pod, node: PlacedNode, cluster: Cluster
    ) -> int:
        """Return the weighted mean over the resources that the node has, 0 to 100."""
        assert state is not None
        uses = []
        for name, weight in self.resources:
            found = capacity_and_use(node, name, state[name], defaults=True)
            if found is not None:
                has, used, _ = found
                uses.append((used, has, weight))
        if self.strategy == "RequestedToCapacityRatio":
            return requested_to_capacity_ratio(uses, self.shape)
        score = least_allocated if self.strategy == "LeastAllocated" else most_allocated
        weights = sum(weight for _, _, weight in uses)
        total = sum(score(used, has) * weight for used, has, weight in uses)
        return total // weights if weights else 0

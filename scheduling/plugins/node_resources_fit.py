"""NodeResourcesFit: the pod's requests must be free; score by the node's resulting utilisation.

Rule: plugins/noderesources/{fit,least_allocated,most_allocated,requested_to_capacity_ratio,
resource_allocation}.go, v1.36 (R66, R104-R111).
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from scheduling.framework.arrays import Int64, numbered
from scheduling.framework.configuration.plugin_args import (
    NodeResourcesFitArgs,
    UtilizationShapePoint,
)
from scheduling.framework.formulas import (
    LEAST,
    MOST,
    RATIO,
    least_allocated,
    most_allocated,
    never,
    rounded_mean,
    short,
    weighted_mean,
)
from scheduling.framework.interface import (
    MAX_NODE_SCORE,
    CycleState,
    FilterResult,
    Locality,
    PreFilterResult,
    Scores,
)
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import SUCCESS, Code, Status, unresolvable
from scheduling.framework.terms import Rejection, Strategy
from scheduling.framework.types import PodInfo
from scheduling.framework.vectors import resource_columns, scored_resources

NAME = "NodeResourcesFit"
TOO_MANY_PODS = "Too many pods"
SIDECARS_OFF = "Pod has a restartable init container and the SidecarContainers feature is disabled"
MAX_SHAPE_SCORE = 10
_BASE = ("cpu", "memory", "ephemeral-storage")

ResourceScore = Callable[[Int64, Int64], Int64]


class NodeResourcesFit:
    """Filters on free resources and the pod limit; scores by the profile's ``scoringStrategy``."""

    name = NAME
    filter_locality = Locality.PODS
    score_locality = Locality.PODS

    def __init__(
        self,
        args: NodeResourcesFitArgs = NodeResourcesFitArgs(),  # noqa: B008
        *,
        sidecar_containers: bool = True,
    ) -> None:
        self._sidecar_containers = sidecar_containers
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        strategy = args.scoring_strategy
        self._resources = strategy.resources
        self.scored_resources = tuple(resource.name for resource in strategy.resources)
        self._weights = tuple(resource.weight for resource in strategy.resources)
        self._round = strategy.type == "RequestedToCapacityRatio"
        self._resource_score: ResourceScore
        table = np.zeros(101, np.int64)
        kind = LEAST
        if strategy.type == "MostAllocated":
            kind, self._resource_score = MOST, most_allocated
        elif strategy.type == "RequestedToCapacityRatio":
            table = utilization_table(strategy.shape)
            kind, self._resource_score = RATIO, requested_to_capacity(table)
        else:
            self._resource_score = least_allocated
        self.strategy = Strategy(kind, table)

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Reject pods with a sidecar while that feature is off; never Skip."""
        if self._has_sidecar_that_is_off(pod):
            return None, unresolvable(SIDECARS_OFF)
        return None, SUCCESS

    def _has_sidecar_that_is_off(self, pod: PodInfo) -> bool:
        return not self._sidecar_containers and any(
            container.restart_policy == "Always" for container in pod.pod.spec.init_containers
        )

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject nodes without room; Unresolvable if a request exceeds the node's allocatable."""
        # One bit per reason, in the order in which Kubernetes lists them.
        full = short(1, snapshot.allowed_pods[rows], snapshot.pod_count[rows])
        failed: Int64 = full.astype(np.int64)
        unresolvable = np.zeros(len(rows), np.bool_)
        reasons = [TOO_MANY_PODS]
        by_devices = bool(snapshot.devices.classes)
        for name, amount, column in self._checked(pod, snapshot):
            allocatable = snapshot.allocatable[rows, column]
            lacking = short(amount, allocatable, snapshot.requested[rows, column])
            if by_devices and snapshot.devices.class_of(name) is not None:
                lacking &= allocatable != 0  # devices provide it; DynamicResources filters
            if lacking.any():
                failed |= lacking.astype(np.int64) << len(reasons)
                unresolvable |= lacking & never(amount, allocatable)
                reasons.append(f"Insufficient {name}")
        if not failed.any():
            return None
        found, index = numbered(failed)
        texts = tuple(
            tuple(reason for bit, reason in enumerate(reasons) if bits >> bit & 1)
            for bits in found.tolist()
        )
        codes = np.where(failed != 0, np.uint8(Code.UNSCHEDULABLE), np.uint8(Code.SUCCESS))
        codes[unresolvable] = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return FilterResult(codes, index.astype(np.int32), texts)

    def _checked(self, pod: PodInfo, snapshot: NodeTable) -> list[tuple[str, int, int]]:
        """Return (name, amount, column) of requests: cpu, memory, ephemeral-storage first."""
        key = (NAME, self._ignored, self._ignored_groups)
        found = pod.memo.get(key)
        if isinstance(found, list):
            return found
        names = [name for name in _BASE if pod.requests.get(name, 0) > 0]
        for name in sorted(pod.requests):
            if name in _BASE or not snapshot.is_counted(name) or pod.requests[name] == 0:
                continue
            group, slash, _ = name.partition("/")
            extended = slash and "kubernetes.io/" not in name
            if extended and (name in self._ignored or group in self._ignored_groups):
                continue
            names.append(name)
        checked = [(name, pod.requests[name], snapshot.resource(name)) for name in names]
        pod.memo[key] = checked
        return checked

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return ``()``, or ``None`` for a pod with a sidecar that is not allowed."""
        return None if self._has_sidecar_that_is_off(pod) else ()

    def request_checks(self, pod: PodInfo, snapshot: NodeTable) -> list[tuple[int, int]]:
        """Return (amount, resource column) of all requests to check, besides the pod limit."""
        return [(amount, column) for _, amount, column in self._checked(pod, snapshot)]

    def request_rejection(self, pod: PodInfo, snapshot: NodeTable, bits: int) -> Rejection:
        """Return the rejection for ``bits``, with the reasons in Kubernetes' order.

        Bit 0: too many pods. Of the n-th checked request bit 2n + 1: too little is free, bit 2n +
        2: more than the node's allocatable.
        """
        reasons = [TOO_MANY_PODS] if bits & 1 else []
        code = Code.UNSCHEDULABLE
        for number, (name, _, _) in enumerate(self._checked(pod, snapshot)):
            short = bits >> (2 * number + 1)
            if short & 1:
                reasons.append(f"Insufficient {name}")
            if short & 2:
                code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return code, tuple(reasons)

    def scored(self, pod: PodInfo, snapshot: NodeTable) -> list[int]:
        """Return the columns of the resources that the scoring strategy reads."""
        return scored_resources(snapshot, pod, self.scored_resources, self._weights, nonzero=True)

    def _columns(self, pod: PodInfo, snapshot: NodeTable) -> list[tuple[int, int, Int64, Int64]]:
        """Return (weight, request, allocatable, requested) of each scored resource that exists."""
        found = []
        for resource in self._resources:
            columns = resource_columns(snapshot, pod, resource.name, nonzero=True)
            if columns is not None:
                found.append((resource.weight, *columns))
        return found

    def pre_score(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        multiplicity: Int64,
    ) -> Status:
        """Return Success: every pod is scored."""
        return SUCCESS

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Scores:
        """Return the weighted mean of the resources' scores, int64 (rows,).

        Resources that a node does not have are left out.
        """
        total = np.zeros(len(rows), np.int64)
        weights = np.zeros(len(rows), np.int64)
        for weight, request, allocatable, requested in self._columns(pod, snapshot):
            room = allocatable[rows]
            add_resource(
                total,
                weights,
                self._resource_score(requested[rows] + request, np.maximum(room, 1)),
                room,
                weight,
                skip_zero_scores=self._round,
            )
        mean = rounded_mean if self._round else weighted_mean
        scores: Scores = mean(total, np.maximum(weights, 1))
        return scores


def add_resource(
    total: Int64,
    weights: Int64,
    score: Int64,
    allocatable: Int64,
    weight: int,
    *,
    skip_zero_scores: bool,
) -> None:
    """Add a resource's weighted score to the sums, in place, for nodes that have the resource.

    ``skip_zero_scores``: resources that score 0 also stay out of the weights (ruling C13).
    """
    counted = allocatable != 0
    if skip_zero_scores:
        counted = counted & (score > 0)
    total += np.where(counted, score * weight, 0)
    weights += np.where(counted, weight, 0)


def broken_linear(points: Sequence[tuple[int, int]], at: int) -> int:
    """Return the score at utilization ``at``: linear between ``points`` (utilization, score).

    Below the first and above the last point the score is that point's.

    Division truncates towards zero. Rule: helper/shape_score.go ``BuildBrokenLinearFunction``.
    """
    for i, (utilization, score) in enumerate(points):
        if at <= utilization:
            if i == 0:
                return score
            before, start = points[i - 1]
            product = (score - start) * (at - before)
            step = abs(product) // (utilization - before)
            return start + (step if product >= 0 else -step)
    return points[-1][1]


def utilization_table(shape: Sequence[UtilizationShapePoint]) -> Int64:
    """Return the score of each utilization 0..100, int64 (101,), up to MAX_NODE_SCORE."""
    scale = MAX_NODE_SCORE // MAX_SHAPE_SCORE
    points = [(point.utilization, point.score * scale) for point in shape]
    return np.array([broken_linear(points, at) for at in range(101)], np.int64)


def requested_to_capacity(table: Int64) -> ResourceScore:
    """Return a function that looks up the score of a utilisation, in percent, in ``table``."""

    def score(requested: Int64, allocatable: Int64) -> Int64:
        found: Int64 = table[np.clip(most_allocated(requested, allocatable), 0, 100)]
        return found

    return score

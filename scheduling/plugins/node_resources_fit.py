"""NodeResourcesFit: what the pod asks for must be free; score by how full the node gets.

Rule: plugins/noderesources/{fit,least_allocated,most_allocated,requested_to_capacity_ratio,
resource_allocation}.go, v1.36 (R66, R104-R111).
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from scheduling.framework.arrays import Int64
from scheduling.framework.interface import (
    MAX_NODE_SCORE,
    CycleState,
    FilterResult,
    Locality,
    NodeTable,
    PreFilterResult,
    RowFilter,
    Rows,
    RowScore,
    Scores,
)
from scheduling.framework.plugin_args import (
    NodeResourcesFitArgs,
    UtilizationShapePoint,
)
from scheduling.framework.status import SUCCESS, Code, Status, unresolvable
from scheduling.framework.terms import Rejection
from scheduling.framework.types import PodInfo
from scheduling.framework.vectors import resource_columns

NAME = "NodeResourcesFit"
TOO_MANY_PODS = "Too many pods"
SIDECARS_OFF = "Pod has a restartable init container and the SidecarContainers feature is disabled"
MAX_SHAPE_SCORE = 10
_BASE = ("cpu", "memory", "ephemeral-storage")

ResourceScore = Callable[[Int64, Int64], Int64]


class NodeResourcesFit:
    """Filter on free resources and pod places; score by a strategy."""

    name = NAME
    filter_locality = Locality.ROW
    score_locality = Locality.ROW

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
        self._strategy = strategy
        weights = {resource.name: resource.weight for resource in strategy.resources}
        plain = (
            strategy.type == "LeastAllocated"
            and weights.keys() <= {"cpu", "memory"}
            and len(weights) == len(strategy.resources)
        )
        self._plain_weights = (weights.get("cpu", 0), weights.get("memory", 0)) if plain else None
        self._round = strategy.type == "RequestedToCapacityRatio"
        self._resource_score: ResourceScore
        if strategy.type == "MostAllocated":
            self._resource_score = most_allocated
        elif strategy.type == "RequestedToCapacityRatio":
            self._table = utilization_table(strategy.shape)
            self._resource_score = requested_to_capacity(self._table)
        else:
            self._resource_score = least_allocated

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Reject sidecars where that feature is off; always filter, as every pod takes a place."""
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
        """Reject nodes without room; a request above allocatable cannot be helped by preemption."""
        # One bit per reason, in the order in which Kubernetes lists them.
        failed = (snapshot.pod_count[rows] + 1 > snapshot.allowed_pods[rows]).astype(np.int64)
        unresolvable = np.zeros(len(rows), np.bool_)
        reasons = [TOO_MANY_PODS]
        for name, amount, column in self._checked(pod, snapshot):
            allocatable = snapshot.allocatable[rows, column]
            short = amount > allocatable - snapshot.requested[rows, column]
            if short.any():
                failed |= short.astype(np.int64) << len(reasons)
                unresolvable |= short & (amount > allocatable)
                reasons.append(f"Insufficient {name}")
        if not failed.any():
            return None
        found, index = np.unique(failed, return_inverse=True)
        texts = tuple(
            tuple(reason for bit, reason in enumerate(reasons) if bits >> bit & 1)
            for bits in found.tolist()
        )
        codes = np.where(failed != 0, np.uint8(Code.UNSCHEDULABLE), np.uint8(Code.SUCCESS))
        codes[unresolvable] = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return FilterResult(codes, index.astype(np.int32), texts)

    def _checked(self, pod: PodInfo, snapshot: NodeTable) -> list[tuple[str, int, int]]:
        """Return (name, amount, column) of what counts, cpu, memory, ephemeral-storage first."""
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

    def row_filter(self, pod: PodInfo, snapshot: NodeTable) -> RowFilter | None:
        """Return the judge of single rows."""
        pods, allowed = snapshot.pod_count.item, snapshot.allowed_pods.item
        checked = [
            (
                f"Insufficient {name}",
                amount,
                snapshot.allocatable[:, column].item,
                snapshot.requested[:, column].item,
            )
            for name, amount, column in self._checked(pod, snapshot)
        ]

        def judge(row: int) -> tuple[Code, tuple[str, ...]] | None:
            reasons = [TOO_MANY_PODS] if pods(row) + 1 > allowed(row) else []
            code = Code.UNSCHEDULABLE
            for reason, amount, allocatable, requested in checked:
                room = allocatable(row)
                if amount > room - requested(row):
                    reasons.append(reason)
                    if amount > room:
                        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
            return (code, tuple(reasons)) if reasons else None

        return judge

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return nothing beside the requests, unless a feature that is off is asked for."""
        return None if self._has_sidecar_that_is_off(pod) else ()

    def request_checks(self, pod: PodInfo, snapshot: NodeTable) -> list[tuple[int, int]]:
        """Return (amount, resource column) of all that must be free, beside a pod's place."""
        return [(amount, column) for _, amount, column in self._checked(pod, snapshot)]

    def request_rejection(self, pod: PodInfo, snapshot: NodeTable, bits: int) -> Rejection:
        """Return the reasons in the order in which Kubernetes lists them."""
        reasons = [TOO_MANY_PODS] if bits & 1 else []
        code = Code.UNSCHEDULABLE
        for number, (name, _, _) in enumerate(self._checked(pod, snapshot)):
            short = bits >> (2 * number + 1)
            if short & 1:
                reasons.append(f"Insufficient {name}")
            if short & 2:
                code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return code, tuple(reasons)

    def least_allocated_terms(self, pod: PodInfo) -> tuple[int, int, int, int] | None:
        """Return weight and amount of cpu, then of memory; ``None`` where that is not all."""
        if self._plain_weights is None:
            return None
        asked, (cpu, memory) = pod.scored_requests, self._plain_weights
        return cpu, asked.get("cpu", 0), memory, asked.get("memory", 0)

    def row_score(self, pod: PodInfo, snapshot: NodeTable) -> RowScore | None:
        """Return the scorer of single rows."""
        kind, rounded = self._strategy.type, self._round
        columns = [
            (weight, asked, allocatable.item, requested.item)
            for weight, asked, allocatable, requested in self._columns(pod, snapshot)
        ]

        def score(row: int) -> int:
            total = weights = 0
            for weight, asked, allocatable, requested in columns:
                room = allocatable(row)
                if room == 0:
                    continue
                used = requested(row) + asked
                if kind == "LeastAllocated":
                    points = (room - used) * MAX_NODE_SCORE // room if used < room else 0
                elif kind == "MostAllocated":
                    points = used * MAX_NODE_SCORE // room if used < room else MAX_NODE_SCORE
                else:
                    points = self._table.item(100 if used > room else used * 100 // room)
                    if points <= 0:
                        continue
                total += points * weight
                weights += weight
            if not weights:
                return 0
            return (2 * total + weights) // (2 * weights) if rounded else total // weights

        return score

    def _columns(self, pod: PodInfo, snapshot: NodeTable) -> list[tuple[int, int, Int64, Int64]]:
        """Return (weight, asked by the pod, allocatable, requested) of the resources that count."""
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
        """Nothing to prepare; always scores."""
        return SUCCESS

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Scores:
        """Return the weighted mean over resources of which the node has any."""
        total = np.zeros(len(rows), np.int64)
        weights = np.zeros(len(rows), np.int64)
        for weight, asked, allocatable, requested in self._columns(pod, snapshot):
            room = allocatable[rows]
            add_resource(
                total,
                weights,
                self._resource_score(requested[rows] + asked, np.maximum(room, 1)),
                room,
                weight,
                skip_zero_scores=self._round,
            )
        return weighted_mean(total, weights, rounded=self._round)

    def group_keys(self, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> list[Int64]:
        """Return nothing: scores are local and not normalised."""
        return []


def add_resource(
    total: Int64,
    weights: Int64,
    score: Int64,
    allocatable: Int64,
    weight: int,
    *,
    skip_zero_scores: bool,
) -> None:
    """Add a resource's score to the sums, in place, where the node has the resource.

    ``skip_zero_scores``: resources that score 0 also stay out of the weights (ruling C13).
    """
    counted = allocatable != 0
    if skip_zero_scores:
        counted = counted & (score > 0)
    total += np.where(counted, score * weight, 0)
    weights += np.where(counted, weight, 0)


def weighted_mean(total: Int64, weights: Int64, *, rounded: bool) -> Int64:
    """Return total over weights, 0 without weights; truncated, or rounded half up (ruling C12)."""
    divisor = np.maximum(weights, 1)
    mean: Int64 = (2 * total + divisor) // (2 * divisor) if rounded else total // divisor
    return mean


def least_allocated(requested: Int64, allocatable: Int64) -> Int64:
    """Return 100 for an empty node, 0 for a full or overcommitted one."""
    free = np.maximum(allocatable - requested, 0)
    score: Int64 = free * MAX_NODE_SCORE // allocatable
    return score


def most_allocated(requested: Int64, allocatable: Int64) -> Int64:
    """Return 100 for a full node, 0 for an empty one."""
    score: Int64 = np.minimum(requested, allocatable) * MAX_NODE_SCORE // allocatable
    return score


def broken_linear(points: Sequence[tuple[int, int]], at: int) -> int:
    """Return the value at ``at`` of the lines through (utilization, score), constant outside.

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


def utilization_table(
    shape: Sequence[UtilizationShapePoint], *, scale: int = MAX_NODE_SCORE // MAX_SHAPE_SCORE
) -> Int64:
    """Return the score of each utilization 0..100, int64 (101,).

    ``scale`` 10 for scores up to 100, 1 for up to 10.
    """
    points = [(point.utilization, point.score * scale) for point in shape]
    return np.array([broken_linear(points, at) for at in range(101)], np.int64)


def requested_to_capacity(table: Int64) -> ResourceScore:
    """Return the function that scores by the table's entry for the utilization."""

    def score(requested: Int64, allocatable: Int64) -> Int64:
        utilization = np.where(requested > allocatable, 100, requested * 100 // allocatable)
        found: Int64 = table[np.clip(utilization, 0, 100)]
        return found

    return score

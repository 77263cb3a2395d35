"""NodeResourcesBalancedAllocation: prefer nodes whose use of resources the pod evens out.

The spread of a node's utilisations is their standard deviation, at most 0.5. The score is 75 if the
pod does not change the spread, 100 if it removes a spread of 0.5, 50 if it causes one. Rule:
plugins/noderesources/balanced_allocation.go, v1.36 (which scores the change, not the result).
"""

import numpy as np
import numpy.typing as npt

from scheduling.framework.arrays import Float64
from scheduling.framework.configuration.plugin_args import NodeResourcesBalancedAllocationArgs
from scheduling.framework.interface import MAX_NODE_SCORE, CycleState, Locality, Scores
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import SKIP, SUCCESS, Status
from scheduling.framework.types import PodInfo
from scheduling.framework.vectors import resource_columns, scored_resources

NAME = "NodeResourcesBalancedAllocation"


class NodeResourcesBalancedAllocation:
    """Scores nodes by how the pod changes the spread of their utilisations."""

    name = NAME
    filter_locality = Locality.NODE
    score_locality = Locality.PODS

    def __init__(
        self,
        args: NodeResourcesBalancedAllocationArgs = NodeResourcesBalancedAllocationArgs(),  # noqa: B008
    ) -> None:
        self.balanced_resources = tuple(resource.name for resource in args.resources)
        self._weights = (1,) * len(self.balanced_resources)

    def pre_score(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        multiplicity: npt.NDArray[np.int64],
    ) -> Status:
        """Skip pods that request none of the balanced resources."""
        return SUCCESS if self.aspect(pod, snapshot) else SKIP

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Scores:
        """Return 50 to 100, int64 (rows,): above 75 where the pod reduces the spread."""
        after: list[Float64] = []
        before: list[Float64] = []
        has: list[npt.NDArray[np.bool_]] = []
        for request, allocatable, requested in self._columns(pod, snapshot):
            room, used = allocatable[rows], requested[rows]
            present = room != 0
            divisor = np.where(present, room, 1)
            after.append(_fraction(used + request, divisor, present))
            before.append(_fraction(used, divisor, present))
            has.append(present)
        with_pod = _balance(after, has, len(rows))
        without = _balance(before, has, len(rows))
        half = MAX_NODE_SCORE // 2
        return half + (half + with_pod - without) // 2

    def _columns(
        self, pod: PodInfo, snapshot: NodeTable
    ) -> list[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Return (request, allocatable, requested) of each balanced resource that exists."""
        found = (resource_columns(snapshot, pod, n, nonzero=False) for n in self.balanced_resources)
        return [columns for columns in found if columns is not None]

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> bool:
        """Return whether the pod requests a balanced resource, so that it is scored."""
        requests = pod.requests
        for name in self.balanced_resources:  # noqa: SIM110  # any() takes four times as long
            if requests.get(name, 0):
                return True
        return False

    def balanced(self, pod: PodInfo, snapshot: NodeTable) -> list[int]:
        """Return the columns of the resources whose use is balanced."""
        return scored_resources(
            snapshot, pod, self.balanced_resources, self._weights, nonzero=False
        )


def _fraction(
    requested: npt.NDArray[np.int64],
    divisor: npt.NDArray[np.int64],
    present: npt.NDArray[np.bool_],
) -> Float64:
    fraction: Float64 = np.minimum(requested / divisor, 1.0)
    return np.where(present, fraction, 0.0)


def _balance(fractions: list[Float64], has: list[npt.NDArray[np.bool_]], count: int) -> Scores:
    """Return 100 for no spread down to 50 for the widest, truncated, int64 (rows,)."""
    return ((1.0 - _deviation(fractions, has, count)) * MAX_NODE_SCORE).astype(np.int64)


def _deviation(fractions: list[Float64], has: list[npt.NDArray[np.bool_]], count: int) -> Float64:
    """Return the standard deviation of utilisations of resources the node has, float64 (rows,)."""
    if len(fractions) < 2:
        return np.zeros(count)
    # Two resources: half the distance, without the rounding of squares and roots, as upstream.
    if len(fractions) == 2:
        both = has[0] & has[1]
        return np.where(both, np.abs((fractions[0] - fractions[1]) / 2), 0.0)
    number = np.sum(has, axis=0)
    divisor = np.maximum(number, 1)
    total = np.zeros(count)
    for fraction in fractions:
        total = total + fraction
    mean = total / divisor
    squares = np.zeros(count)
    for fraction, present in zip(fractions, has, strict=True):
        squares = squares + np.where(present, (fraction - mean) * (fraction - mean), 0.0)
    deviation: Float64 = np.sqrt(squares / divisor)
    if (number == 2).any():
        stacked = np.array(fractions)
        here = np.array(has)
        highest = np.where(here, stacked, -np.inf).max(axis=0)
        lowest = np.where(here, stacked, np.inf).min(axis=0)
        pair = number == 2
        deviation[pair] = np.abs((highest[pair] - lowest[pair]) / 2)
    deviation[number < 2] = 0.0
    return deviation

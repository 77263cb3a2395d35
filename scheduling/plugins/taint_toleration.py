"""TaintToleration: a pod's untolerated taints exclude a node or lower its score.

Rule: plugins/tainttoleration/taint_toleration.go, v1.36 (R113-R120).
"""

from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

from clusterstate.objects.rules.matching import (
    HARD_EFFECTS,
    PREFER_NO_SCHEDULE,
    find_untolerated,
    tolerated,
)
from clusterstate.objects.values.node import Taint
from scheduling.framework.interface import CycleState, FilterResult, Locality, Scores
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import SUCCESS, Code, Status
from scheduling.framework.types import PodInfo
from scheduling.framework.vectors import by_taint_set, default_normalize

NAME = "TaintToleration"
REASON = "node(s) had untolerated taint(s)"


class TaintToleration:
    """Filter on NoSchedule and NoExecute; score by the number of untolerated PreferNoSchedule."""

    name = NAME
    filter_locality = Locality.NODE
    score_locality = Locality.NODE
    scaled_in_reverse = True

    def __init__(self, *, comparison_operators: bool = False) -> None:
        self._comparison_operators = comparison_operators

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject nodes with a NoSchedule or NoExecute taint that the pod does not tolerate."""

        def untolerated(taints: tuple[Taint, ...]) -> bool:
            return (
                find_untolerated(
                    taints,
                    pod.tolerations,
                    HARD_EFFECTS,
                    comparison_operators=self._comparison_operators,
                )
                is not None
            )

        rejected = by_taint_set(snapshot, rows, untolerated) != 0
        return FilterResult.rejecting(rejected, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, REASON)

    def pre_score(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        multiplicity: npt.NDArray[np.int64],
    ) -> Status:
        """Return Success: every pod is scored."""
        return SUCCESS

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Scores:
        """Return the number of untolerated PreferNoSchedule taints."""
        soft = [t for t in pod.tolerations if t.effect in ("", PREFER_NO_SCHEDULE)]

        def count(taints: tuple[Taint, ...]) -> int:
            return sum(
                taint.effect == PREFER_NO_SCHEDULE
                and not tolerated(taint, soft, comparison_operators=self._comparison_operators)
                for taint in taints
            )

        return by_taint_set(snapshot, rows, count)

    def normalize(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows, scores: Scores
    ) -> Scores:
        """Return 100 for the fewest taints, 0 for the most."""
        return default_normalize(scores, reverse=True)

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return the pod's tolerations."""
        return pod.toleration_key

    def group_keys(
        self, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> list[npt.NDArray[np.int64]]:
        """Return the raw score: nodes with equal raw scores get equal normalized scores."""
        return [self.score(CycleState(), pod, snapshot, rows)]

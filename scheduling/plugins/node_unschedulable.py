"""NodeUnschedulable: a cordoned node rejects pods that do not tolerate its unschedulable taint.

Rule: plugins/nodeunschedulable/node_unschedulable.go, v1.36.
"""

from collections.abc import Hashable

from clusterstate.objects.rules.matching import tolerated
from clusterstate.objects.values.node import Taint
from scheduling.framework.interface import CycleState, FilterResult, Locality
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import Code
from scheduling.framework.types import PodInfo

NAME = "NodeUnschedulable"
REASON = "node(s) were unschedulable"
UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable:
    """Filter on ``spec.unschedulable``."""

    name = NAME
    filter_locality = Locality.NODE
    score_locality = Locality.NODE

    def __init__(self, *, comparison_operators: bool = False) -> None:
        self._comparison_operators = comparison_operators

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return the pod's tolerations."""
        return pod.toleration_key

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject cordoned nodes unless the pod tolerates the unschedulable taint."""
        cordoned = snapshot.unschedulable[rows]
        if not cordoned.any() or tolerated(
            UNSCHEDULABLE_TAINT,
            pod.tolerations,
            comparison_operators=self._comparison_operators,
        ):
            return None
        return FilterResult.rejecting(cordoned, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, REASON)

"""NodeName: a pod with ``spec.nodeName`` fits only that node.

Rule: plugins/nodename/node_name.go, v1.36. Pending pods have no node name; the plugin matters if
placed pods are filtered again, as in simulations.
"""

from collections.abc import Hashable

from scheduling.framework.interface import CycleState, FilterResult, Locality
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import Code
from scheduling.framework.types import PodInfo

NAME = "NodeName"
REASON = "node(s) didn't match the requested node name"


class NodeName:
    """Filter on ``spec.nodeName``."""

    name = NAME
    filter_locality = Locality.NODE
    score_locality = Locality.NODE

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return the pod's ``spec.nodeName``."""
        return pod.pod.spec.node_name

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject every node but the one in ``spec.nodeName``."""
        node_name = pod.pod.spec.node_name
        if not node_name:
            return None
        row = snapshot.row_of(node_name)
        return FilterResult.rejecting(
            rows != (-1 if row is None else row), Code.UNSCHEDULABLE_AND_UNRESOLVABLE, REASON
        )

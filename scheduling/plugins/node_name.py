"""NodeName: a pod that names a node fits only there.

Rule: plugins/nodename/node_name.go, v1.36. Pending pods that the cycle sees have no node name; the
plugin matters where placed pods are judged again, as in simulations.
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
        """Return the name."""
        return pod.pod.spec.node_name

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject every node but the named one."""
        node_name = pod.pod.spec.node_name
        if not node_name:
            return None
        row = snapshot.row_of(node_name)
        return FilterResult.rejecting(
            rows != (-1 if row is None else row), Code.UNSCHEDULABLE_AND_UNRESOLVABLE, REASON
        )

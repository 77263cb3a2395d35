"""NodeUnschedulable: a cordoned node takes only pods that tolerate the cordon.

Source: pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go, v1.36.
"""

from clusterstate.objects.rules.matching import tolerated
from clusterstate.objects.values.node import Taint
from clusterstate.objects.values.pod import Pod
from tests.reference.cluster import PlacedNode
from tests.reference.rule import PASS, UNRESOLVABLE, Rule, Verdict

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable(Rule[None, None]):
    """Rejects ``spec.unschedulable`` nodes unless the pod tolerates the taint of that name."""

    name = "NodeUnschedulable"
    filters = True

    def __init__(self, *, comparison_operators: bool = False) -> None:
        self.comparison_operators = comparison_operators

    def filter(self, state: None, pod: Pod, node: PlacedNode) -> Verdict:
        """Judge the node's ``spec.unschedulable``."""
        if not node.node.spec.unschedulable:
            return PASS
        if tolerated(CORDON, pod.spec.tolerations, comparison_operators=self.comparison_operators):
            return PASS
        return Verdict(UNRESOLVABLE, ("node(s) were unschedulable",))

"""NodeName: a pod that names its node goes there and nowhere else.

Source: pkg/scheduler/framework/plugins/nodename/node_name.go, v1.36 (R100).
"""

from clusterstate.objects.values.pod import Pod
from tests.reference.cluster import PlacedNode
from tests.reference.rule import PASS, UNRESOLVABLE, Rule, Verdict


class NodeName(Rule[None, None]):
    """Passes the named node, or every node when none is named."""

    name = "NodeName"
    filters = True

    def filter(self, state: None, pod: Pod, node: PlacedNode) -> Verdict:
        """Compare ``spec.nodeName`` with the node's name."""
        if pod.spec.node_name in ("", node.name):
            return PASS
        return Verdict(UNRESOLVABLE, ("node(s) didn't match the requested node name",))

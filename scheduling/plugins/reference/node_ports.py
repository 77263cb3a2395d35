"""NodePorts: two pods on one node cannot hold the same host port.

Source: pkg/scheduler/framework/plugins/nodeports/node_ports.go and framework/types.go
(HostPortInfo), v1.36.
"""

from clusterstate.objects.pod import ContainerPort, Pod
from scheduling.plugins.reference.cluster import Cluster, PlacedNode
from scheduling.plugins.reference.rule import PASS, SKIPPED, UNSCHEDULABLE, Begun, Rule, Verdict

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - an address in a pod spec, nothing is bound here


def host_ports(pod: Pod) -> tuple[ContainerPort, ...]:
    """Return the ports that the pod holds on its node: containers' and sidecars' host ports."""
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    return tuple(
        port for c in (*pod.spec.containers, *sidecars) for port in c.ports if port.host_port > 0
    )


def conflict(wanted: ContainerPort, used: ContainerPort) -> bool:
    """Return True when both name one port and protocol, and one address or any address."""
    if wanted.host_port <= 0 or wanted.host_port != used.host_port:
        return False
    if (wanted.protocol or "TCP") != (used.protocol or "TCP"):
        return False
    addresses = {wanted.host_ip or ANY_ADDRESS, used.host_ip or ANY_ADDRESS}
    return len(addresses) == 1 or ANY_ADDRESS in addresses


class NodePorts(Rule[tuple[ContainerPort, ...], None]):
    """Rejects a node where a placed pod holds a wanted host port."""

    name = "NodePorts"
    filters = True

    def pre_filter(self, pod: Pod, cluster: Cluster) -> Begun[tuple[ContainerPort, ...]]:
        """Skip pods without host ports."""
        wanted = host_ports(pod)
        return Begun(state=wanted) if wanted else Begun(SKIPPED)

    def filter(
        self, state: tuple[ContainerPort, ...] | None, pod: Pod, node: PlacedNode
    ) -> Verdict:
        """Compare each wanted port with each used one."""
        used = [port for placed in node.pods for port in host_ports(placed)]
        if any(conflict(w, u) for w in state or () for u in used):
            reason = "node(s) didn't have free ports for the requested pod ports"
            return Verdict(UNSCHEDULABLE, (reason,))
        return PASS

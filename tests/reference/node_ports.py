"""NodePorts: two pods on one node cannot hold the same host port.

Source: pkg/scheduler/framework/plugins/nodeports/node_ports.go and framework/types.go
(HostPortInfo), v1.36.
"""

from clusterstate.objects.values.pod import ContainerPort, Pod
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.helpers import host_port_conflict
from tests.reference.rule import PASS, SKIPPED, UNSCHEDULABLE, Begun, Rule, Verdict


def host_ports(pod: Pod) -> tuple[ContainerPort, ...]:
    """Return the ports that the pod holds on its node: containers' and sidecars' host ports."""
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    return tuple(
        port for c in (*pod.spec.containers, *sidecars) for port in c.ports if port.host_port > 0
    )


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
        used = [_entry(port) for placed in node.pods for port in host_ports(placed)]
        if any(host_port_conflict(used, _entry(port)) for port in state or ()):
            reason = "node(s) didn't have free ports for the requested pod ports"
            return Verdict(UNSCHEDULABLE, (reason,))
        return PASS


def _entry(port: ContainerPort) -> tuple[str, str, int]:
    return port.host_ip, port.protocol, port.host_port

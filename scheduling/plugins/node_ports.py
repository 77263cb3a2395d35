"""NodePorts: one pod per node may have a host port, by protocol and address.

Rule: plugins/nodeports/node_ports.go and framework/types.go ``HostPortInfo``, v1.36.
"""

from collections.abc import Hashable

from scheduling.framework.interface import CycleState, FilterResult, Locality, PreFilterResult
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.reach import HOST_PORT, Reach
from scheduling.framework.status import SKIP, SUCCESS, Code, Status
from scheduling.framework.tables import Counter
from scheduling.framework.terms import Rejection
from scheduling.framework.types import HostPort, PodInfo

NAME = "NodePorts"
REASON = "node(s) didn't have free ports for the requested pod ports"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104


def conflict(first: HostPort, second: HostPort) -> bool:
    """Return whether two host ports conflict on one node; 0.0.0.0 conflicts with any address."""
    return first[1:] == second[1:] and (
        first[0] == second[0] or ANY_ADDRESS in (first[0], second[0])
    )


class NodePorts:
    """Filter on host ports in use."""

    name = NAME
    filter_locality = Locality.PODS
    score_locality = Locality.NODE

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Skip if the pod has no host port."""
        return None, SUCCESS if pod.host_ports else SKIP

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject nodes with a pod whose host port conflicts with one of this pod's."""
        if not pod.host_ports:
            return None
        conflicts = self._conflicts(pod, snapshot).rows[rows] > 0
        return FilterResult.rejecting(conflicts, Code.UNSCHEDULABLE, REASON)

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return ``()`` for pods without host ports, ``None`` for others."""
        return None if pod.host_ports else ()

    def rejecting_counter(self, pod: PodInfo, snapshot: NodeTable) -> tuple[Counter, Rejection]:
        """Return the counter of pods with conflicting host ports, and the rejection they cause."""
        return self._conflicts(pod, snapshot), (Code.UNSCHEDULABLE, (REASON,))

    def _conflicts(self, pod: PodInfo, snapshot: NodeTable) -> Counter:
        ports = pod.host_ports

        def meets(other: PodInfo) -> int:
            return int(any(conflict(mine, theirs) for mine in ports for theirs in other.host_ports))

        reach = Reach((HOST_PORT,))
        return snapshot.counter((NAME, ports), meets, live_only=False, reach=reach)

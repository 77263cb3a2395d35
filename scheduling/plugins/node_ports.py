"""NodePorts: a host port can be taken once per node, protocol and address.

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
    """Whether two host ports cannot be open on one node: the wildcard address meets every other."""
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
        """Skip where the pod wants no host port."""
        return None, SUCCESS if pod.host_ports else SKIP

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject nodes where some pod has a port in conflict with one of this pod's."""
        if not pod.host_ports:
            return None
        conflicts = self._conflicts(pod, snapshot).rows[rows] > 0
        return FilterResult.rejecting(conflicts, Code.UNSCHEDULABLE, REASON)

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return nothing for pods without host ports."""
        return None if pod.host_ports else ()

    def rejecting_counter(self, pod: PodInfo, snapshot: NodeTable) -> tuple[Counter, Rejection]:
        """Return the counter of the pods that have a port in conflict with one of this pod's."""
        return self._conflicts(pod, snapshot), (Code.UNSCHEDULABLE, (REASON,))

    def _conflicts(self, pod: PodInfo, snapshot: NodeTable) -> Counter:
        ports = pod.host_ports

        def meets(other: PodInfo) -> int:
            return int(any(conflict(mine, theirs) for mine in ports for theirs in other.host_ports))

        reach = Reach((HOST_PORT,))
        return snapshot.counter((NAME, ports), meets, live_only=False, reach=reach)

"""DynamicResources: a pod goes where devices for its claims are free.

The rules themselves are on plain values already (``clusterstate.objects.dra``), where the
conformance vectors of single points judge them; this puts them among the other rules. ``world`` is
what the plugin knows of the cluster. ``writes`` tells what binding a pod to a node would write.
"""

from collections.abc import Mapping
from typing import Any

from clusterstate.objects.dra import scoring
from clusterstate.objects.dra.attempt import Attempt, Gates
from clusterstate.objects.dra.slices import NodeView
from clusterstate.objects.dra.world import DeviceWorld
from clusterstate.objects.rules.resources import pod_request_ints
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.quantity import Quantity
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.rule import Begun, Rule, Verdict


def offered(node: PlacedNode, name: str) -> int | None:
    """Return what the node itself offers of a resource."""
    found = node.node.status.allocatable.get(name)
    return None if found is None else Quantity.parse(found).value()


class DynamicResources(Rule[Attempt, Attempt]):
    """``manifest`` is the pod as stored; the lens of a pod has not all of it."""

    name = "DynamicResources"
    filters = True
    scores = True

    def __init__(self, world: DeviceWorld, manifest: Manifest, gates: Gates | None = None) -> None:
        self.world, self.manifest, self.gates = world, manifest, gates
        self.attempt: Attempt | None = None

    def pre_filter(self, pod: Pod, cluster: Cluster) -> Begun[Attempt]:
        """Look at the pod's claims."""
        self.attempt = Attempt(self.world, self.manifest, self.gates, new_id=lambda: "any")
        return Begun(_verdict(self.attempt.pre_filter(pod_request_ints(pod))), self.attempt)

    def filter(self, state: Attempt | None, pod: Pod, node: PlacedNode) -> Verdict:
        """Ask whether devices for the pod's claims are free."""
        assert state is not None
        view = NodeView(node.name, node.labels)
        return _verdict(state.filter(view, lambda name: offered(node, name)))

    def pre_score(self, pod: Pod, cluster: Cluster, candidates: Any) -> Begun[Attempt]:
        """Score with what was found while filtering."""
        if self.attempt is None or not (self.attempt.claims or self.attempt.special):
            return Begun(Verdict("Skip"))
        return Begun(state=self.attempt)

    def score(self, state: Attempt | None, pod: Pod, node: PlacedNode, cluster: Cluster) -> int:
        """Prefer early alternatives."""
        return state.score(node.name) if state is not None else 0

    def normalize(
        self, state: Attempt | None, pod: Pod, scores: Mapping[str, int]
    ) -> dict[str, int] | None:
        """Put the best at 100."""
        return scoring.normalize(scores)


def _verdict(found: Any) -> Verdict:
    return Verdict(found.code, (found.reason,) if found.reason else ())

"""NodeResourcesBalancedAllocation: prefer nodes whose resources fill up evenly.

The balance of a node is 100 minus the standard deviation of the used fractions in percent. The
score is how much the pod changes it, centred at 75: no change gives 75, the best possible 100, the
worst 50. Pods that request none of the resources are not scored.

Source: pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go, v1.36.
"""

import math
from collections.abc import Callable, Sequence

from clusterstate.objects.rules.resources import pod_request_ints
from clusterstate.objects.values.pod import Pod
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.helpers import truncated_quotient
from tests.reference.node_resources import capacity_and_use
from tests.reference.rule import MAX_NODE_SCORE, SKIPPED, Begun, Rule


def balance(uses: Sequence[tuple[int, int]]) -> int:
    """Return the balance of (used, has) pairs, 0 to 100; more used than there is counts as full."""
    fractions = [min(used / has, 1.0) for used, has in uses]
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        # Added up one by one, not by ``sum``, which compensates rounding errors as Go does not.
        mean = _plain_sum(fractions) / len(fractions)
        squares = [(fraction - mean) * (fraction - mean) for fraction in fractions]
        deviation = math.sqrt(_plain_sum(squares) / len(fractions))
    return int((1 - deviation) * MAX_NODE_SCORE)


def _plain_sum(numbers: Sequence[float]) -> float:
    total = 0.0
    for number in numbers:
        total += number
    return total


ByDevices = Callable[[PlacedNode, str, int], tuple[int, int, int] | None]
"""Returns what ``capacity_and_use`` does, for a resource that devices serve on a node."""


class NodeResourcesBalancedAllocation(Rule[None, dict[str, int]]):
    """Scores by the resources named in ``resources``."""

    name = "NodeResourcesBalancedAllocation"
    scores = True

    def __init__(self, *, resources: Sequence[str] = ("cpu", "memory")) -> None:
        self.resources = tuple(resources)
        self.by_devices: ByDevices = lambda node, name, want: None

    def pre_score(
        self, pod: Pod, cluster: Cluster, candidates: Sequence[PlacedNode]
    ) -> Begun[dict[str, int]]:
        """Add up the requests; skip a pod that has none, else all such pods went to one node."""
        known = pod_request_ints(pod)
        requests = {name: known.get(name, 0) for name in self.resources}
        return Begun(state=requests) if any(requests.values()) else Begun(SKIPPED)

    def score(
        self, state: dict[str, int] | None, pod: Pod, node: PlacedNode, cluster: Cluster
    ) -> int:
        """Compare the balance with and without the pod."""
        assert state is not None
        found = [
            capacity_and_use(node, name, state[name], defaults=False)
            or self.by_devices(node, name, state[name])
            for name in self.resources
        ]
        uses = [use for use in found if use is not None]
        after = balance([(used, has) for has, used, _ in uses])
        before = balance([(used, has) for has, _, used in uses])
        half = MAX_NODE_SCORE // 2
        return half + truncated_quotient(half + after - before, 2)

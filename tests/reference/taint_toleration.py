"""TaintToleration: NoSchedule and NoExecute taints repel, PreferNoSchedule taints cost.

Source: pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go, v1.36 (R113-R117).
"""

from collections.abc import Mapping, Sequence

from clusterstate.objects.rules.matching import (
    HARD_EFFECTS,
    PREFER_NO_SCHEDULE,
    find_untolerated,
    tolerated,
)
from clusterstate.objects.values.pod import Pod, Toleration
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.rule import (
    PASS,
    UNRESOLVABLE,
    Begun,
    Rule,
    Verdict,
    normalize_by_highest,
)


class TaintToleration(Rule[None, tuple[Toleration, ...]]):
    """Filters by hard taints, scores by the number of soft taints that are not tolerated."""

    name = "TaintToleration"
    filters = True
    scores = True

    def __init__(self, *, comparison_operators: bool = False) -> None:
        self.comparison_operators = comparison_operators

    def filter(self, state: None, pod: Pod, node: PlacedNode) -> Verdict:
        """Reject a node with a NoSchedule or NoExecute taint that no toleration covers."""
        untolerated = find_untolerated(
            node.node.spec.taints,
            pod.spec.tolerations,
            HARD_EFFECTS,
            comparison_operators=self.comparison_operators,
        )
        if untolerated is None:
            return PASS
        return Verdict(UNRESOLVABLE, ("node(s) had untolerated taint(s)",))

    def pre_score(
        self, pod: Pod, cluster: Cluster, candidates: Sequence[PlacedNode]
    ) -> Begun[tuple[Toleration, ...]]:
        """Keep the tolerations that can cover a PreferNoSchedule taint."""
        soft = tuple(t for t in pod.spec.tolerations if t.effect in ("", PREFER_NO_SCHEDULE))
        return Begun(state=soft)

    def score(
        self,
        state: tuple[Toleration, ...] | None,
        pod: Pod,
        node: PlacedNode,
        cluster: Cluster,
    ) -> int:
        """Count the PreferNoSchedule taints that are not tolerated."""
        return sum(
            taint.effect == PREFER_NO_SCHEDULE
            and not tolerated(taint, state or (), comparison_operators=self.comparison_operators)
            for taint in node.node.spec.taints
        )

    def normalize(
        self, state: tuple[Toleration, ...] | None, pod: Pod, scores: Mapping[str, int]
    ) -> dict[str, int]:
        """Prefer the fewest taints."""
        return normalize_by_highest(scores, reverse=True)

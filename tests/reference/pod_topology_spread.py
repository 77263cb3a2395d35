"""PodTopologySpread: keep the number of matching pods even between topology domains.

A hard constraint (DoNotSchedule) allows a node when its domain would hold at most ``maxSkew`` more
matching pods than the emptiest eligible domain; a soft one (ScheduleAnyway) only costs. Which nodes
count as domains is decided by the pod's node affinity (honoured unless ``nodeAffinityPolicy`` is
Ignore) and by taints (ignored unless ``nodeTaintsPolicy`` is Honor). Pods without constraints of
their own get the defaults, over the pods that their services and controller select.

Source: pkg/scheduler/framework/plugins/podtopologyspread/{common,filtering,scoring}.go and
plugins/helper/spread.go, v1.36.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clusterstate.objects.rules.matching import (
    HARD_EFFECTS,
    EmptyTerm,
    find_untolerated,
)
from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.labels import (
    Selector,
    SelectorError,
    selector_from_label_selector,
    selector_from_set,
)
from clusterstate.objects.values.pod import Pod, TopologySpreadConstraint
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.helpers import default_selector
from tests.reference.node_affinity import required_match
from tests.reference.rule import (
    ERROR,
    MAX_NODE_SCORE,
    PASS,
    SKIPPED,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    Begun,
    Rule,
    Verdict,
    round_half_away,
)

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
NO_DOMAIN = 2**31 - 1
"""The smallest count when there is no domain at all: large enough that no node is too full."""

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(
        topology_key=HOSTNAME, when_unsatisfiable="ScheduleAnyway", max_skew=3
    ),
    TopologySpreadConstraint(topology_key=ZONE, when_unsatisfiable="ScheduleAnyway", max_skew=5),
)
REASON = "node(s) didn't match pod topology spread constraints"


@dataclass(frozen=True)
class Constraint:
    """A constraint with its selector parsed and its defaults filled in."""

    max_skew: int
    topology_key: str
    selector: Selector
    min_domains: int
    honor_affinity: bool
    honor_taints: bool


@dataclass
class FilterState:
    """Hard constraints, and for each the number of matching pods by topology value."""

    constraints: tuple[Constraint, ...]
    counts: tuple[dict[str, int], ...]


@dataclass
class ScoreState:
    """Soft constraints; counts by topology value, and the weight of each constraint's counts.

    ``ignored`` nodes lack a topology key and score 0. Counts of the hostname constraint are taken
    from the node itself.
    """

    constraints: tuple[Constraint, ...]
    counts: tuple[dict[str, int], ...]
    weights: tuple[float, ...]
    ignored: set[str] = field(default_factory=set)


class PodTopologySpread(Rule[FilterState, ScoreState]):
    """Filters by hard constraints and scores by soft ones.

    ``system_defaults`` stands for ``defaultingType: System``; with ``List`` the
    ``default_constraints`` hold, which select no pods by themselves.
    """

    name = "PodTopologySpread"
    filters = True
    scores = True

    def __init__(
        self,
        *,
        default_constraints: Sequence[TopologySpreadConstraint] = (),
        system_defaults: bool = True,
        empty_term: EmptyTerm = "all",
        match_label_keys: bool = True,
        node_inclusion_policy: bool = True,
        comparison_operators: bool = False,
    ) -> None:
        self.system_defaults = system_defaults
        self.defaults = SYSTEM_DEFAULTS if system_defaults else tuple(default_constraints)
        self.empty_term: EmptyTerm = empty_term
        self.match_label_keys = match_label_keys
        self.node_inclusion_policy = node_inclusion_policy
        self.comparison_operators = comparison_operators

    # What both points need --------------------------------------------------------------------

    def constraints(self, pod: Pod, cluster: Cluster, action: str) -> tuple[Constraint, ...]:
        """Return the constraints of ``pod`` with that ``whenUnsatisfiable``, or the defaults.

        Raises:
            SelectorError: a label selector does not parse.
        """
        own = pod.spec.topology_spread_constraints
        if own:
            return tuple(self._parsed(c, pod) for c in own if c.when_unsatisfiable == action)
        selector = default_selector(
            pod,
            cluster.services,
            cluster.replication_controllers,
            cluster.replica_sets,
            cluster.stateful_sets,
        )
        if selector.everything:
            return ()
        return tuple(
            self._parsed(c, pod, selector) for c in self.defaults if c.when_unsatisfiable == action
        )

    def _parsed(
        self, of: TopologySpreadConstraint, pod: Pod, selector: Selector | None = None
    ) -> Constraint:
        if selector is None:
            selector = selector_from_label_selector(of.label_selector)
            keys = of.match_label_keys if self.match_label_keys else ()
            same = {k: pod.metadata.labels[k] for k in keys if k in pod.metadata.labels}
            if same:
                # An absent selector has no requirements to keep: the keys alone then select.
                selector = selector_from_set(same).add(selector.requirements)
        policies = self.node_inclusion_policy
        return Constraint(
            max_skew=of.max_skew,
            topology_key=of.topology_key,
            selector=selector,
            min_domains=1 if of.min_domains is None else of.min_domains,
            honor_affinity=not (policies and of.node_affinity_policy == "Ignore"),
            honor_taints=policies and of.node_taints_policy == "Honor",
        )

    def _counts_for(self, constraint: Constraint, pod: Pod, node: PlacedNode) -> bool:
        """Return whether the constraint regards ``node`` as a place where the pod could run."""
        if constraint.honor_affinity and not required_match(
            pod, node.node, empty_term=self.empty_term
        ):
            return False
        if not constraint.honor_taints:
            return True
        untolerated = find_untolerated(
            node.node.spec.taints,
            pod.spec.tolerations,
            HARD_EFFECTS,
            comparison_operators=self.comparison_operators,
        )
        return untolerated is None

    # Filter -----------------------------------------------------------------------------------

    def pre_filter(self, pod: Pod, cluster: Cluster) -> Begun[FilterState]:
        """Count matching pods by topology value over the eligible nodes."""
        try:
            constraints = self.constraints(pod, cluster, "DoNotSchedule")
        except SelectorError as error:
            message = f"get constraints from pod: {_explained(error, 'hard')}"
            return Begun(Verdict(ERROR, (message,)))
        if not constraints:
            return Begun(SKIPPED)
        counts: tuple[dict[str, int], ...] = tuple({} for _ in constraints)
        for node in cluster.nodes:
            if not has_all_keys(node, constraints):
                continue
            for constraint, count in zip(constraints, counts, strict=True):
                if self._counts_for(constraint, pod, node):
                    value = node.labels[constraint.topology_key]
                    count[value] = count.get(value, 0) + matching_pods(
                        node, constraint, pod, cluster
                    )
        return Begun(state=FilterState(constraints, counts))

    def copy(self, state: FilterState) -> FilterState:
        """Return the state with counts of its own."""
        return FilterState(state.constraints, tuple(dict(count) for count in state.counts))

    def add_pod(
        self, state: FilterState, pod: Pod, other: Pod, node: PlacedNode, cluster: Cluster
    ) -> None:
        """Count ``other`` too."""
        self._change(state, pod, other, node, 1)

    def remove_pod(
        self, state: FilterState, pod: Pod, other: Pod, node: PlacedNode, cluster: Cluster
    ) -> None:
        """Count ``other`` no longer.

        Kubernetes does not ask here whether ``other`` is terminating, although the first count
        left terminating pods out; neither does this.
        """
        self._change(state, pod, other, node, -1)

    def _change(self, state: FilterState, pod: Pod, other: Pod, node: PlacedNode, by: int) -> None:
        if other.metadata.namespace != pod.metadata.namespace:
            return
        if not has_all_keys(node, state.constraints):
            return
        for constraint, count in zip(state.constraints, state.counts, strict=True):
            if not constraint.selector.matches(other.metadata.labels):
                continue
            if self._counts_for(constraint, pod, node):
                value = node.labels[constraint.topology_key]
                count[value] = count.get(value, 0) + by

    def filter(self, state: FilterState | None, pod: Pod, node: PlacedNode) -> Verdict:
        """Reject a node without the topology key, or in a domain that would be too full."""
        assert state is not None
        for constraint, count in zip(state.constraints, state.counts, strict=True):
            value = node.labels.get(constraint.topology_key)
            if value is None:
                return Verdict(UNRESOLVABLE, (f"{REASON} (missing required label)",))
            emptiest = min(count.values(), default=NO_DOMAIN)
            if len(count) < constraint.min_domains:
                emptiest = 0
            itself = int(constraint.selector.matches(pod.metadata.labels))
            if count.get(value, 0) + itself - emptiest > constraint.max_skew:
                return Verdict(UNSCHEDULABLE, (REASON,))
        return PASS

    # Score ------------------------------------------------------------------------------------

    def pre_score(
        self, pod: Pod, cluster: Cluster, candidates: Sequence[PlacedNode]
    ) -> Begun[ScoreState]:
        """Count matching pods in the domains of the candidates, over all eligible nodes.

        With the system defaults a node may lack the zone label and still spread by hostname;
        otherwise a node without one of the keys is left out. Domains weigh in with the logarithm
        of their number, so that a constraint with few domains is not drowned by one with many.
        """
        try:
            constraints = self.constraints(pod, cluster, "ScheduleAnyway")
        except SelectorError as error:
            message = f"calculating preScoreState: {_explained(error, 'soft')}"
            return Begun(Verdict(ERROR, (message,)))
        if not constraints:
            return Begun(SKIPPED)
        need_all = bool(pod.spec.topology_spread_constraints) or not self.system_defaults
        ignored = {n.name for n in candidates if need_all and not has_all_keys(n, constraints)}
        scored = [node for node in candidates if node.name not in ignored]
        counts: tuple[dict[str, int], ...] = tuple(
            {}
            if c.topology_key == HOSTNAME
            else {node.labels.get(c.topology_key, ""): 0 for node in scored}
            for c in constraints
        )
        weights = tuple(
            math.log((len(scored) if c.topology_key == HOSTNAME else len(count)) + 2)
            for c, count in zip(constraints, counts, strict=True)
        )
        for node in cluster.nodes:
            if need_all and not has_all_keys(node, constraints):
                continue
            for constraint, count in zip(constraints, counts, strict=True):
                value = node.labels.get(constraint.topology_key, "")
                if value in count and self._counts_for(constraint, pod, node):
                    count[value] += matching_pods(node, constraint, pod, cluster)
        return Begun(state=ScoreState(constraints, counts, weights, ignored))

    def score(self, state: ScoreState | None, pod: Pod, node: PlacedNode, cluster: Cluster) -> int:
        """Sum the weighted counts of the node's domains: the lower, the better."""
        assert state is not None
        if node.name in state.ignored:
            return 0
        total = 0.0
        parts = zip(state.constraints, state.counts, state.weights, strict=True)
        for constraint, count, weight in parts:
            value = node.labels.get(constraint.topology_key)
            if value is None:
                continue
            if constraint.topology_key == HOSTNAME:
                matching = matching_pods(node, constraint, pod, cluster)
            else:
                matching = count[value]
            total += matching * weight + (constraint.max_skew - 1)
        return round_half_away(total)

    def normalize(
        self, state: ScoreState | None, pod: Pod, scores: Mapping[str, int]
    ) -> dict[str, int]:
        """Turn costs into scores, the cheapest node near 100; ignored nodes get 0."""
        assert state is not None
        costs = {name: cost for name, cost in scores.items() if name not in state.ignored}
        lowest, highest = min(costs.values(), default=0), max(costs.values(), default=0)
        return {
            name: 0
            if name not in costs
            else MAX_NODE_SCORE
            if highest == 0
            else MAX_NODE_SCORE * (highest + lowest - costs[name]) // highest
            for name in scores
        }


def has_all_keys(node: PlacedNode, constraints: Sequence[Constraint]) -> bool:
    """Return whether the node has the topology label of every constraint."""
    return all(c.topology_key in node.labels for c in constraints)


def matching_pods(node: PlacedNode, constraint: Constraint, pod: Pod, cluster: Cluster) -> int:
    """Count the pods on ``node`` that the constraint of ``pod`` is about.

    Terminating pods and other namespaces do not count; until 1.37 a selector without requirements
    counts nobody.
    """
    if constraint.selector.everything and cluster.version < Compatibility.V1_38:
        return 0
    return sum(
        other.metadata.deletion_timestamp is None
        and other.metadata.namespace == pod.metadata.namespace
        and constraint.selector.matches(other.metadata.labels)
        for other in node.pods
    )


def _explained(error: SelectorError, kind: str) -> str:
    return f"obtaining pod's {kind} topology spread constraints: {error}"

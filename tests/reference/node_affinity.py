"""NodeAffinity: the pod's node selector and affinity, and the profile's ``addedAffinity``.

Required rules filter; preferred terms add their weight to the nodes that they match. Terms are
ORed, requirements in a term are ANDed (R8, R10), the node selector holds beside them (R21), and
what is required during execution is required here too (R2). The argument
``emptyNodeSelectorTerm`` decides what a term without requirements matches: ``all`` nodes as the
design documents say, or ``none`` as Kubernetes does (C1).

Source: pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go, v1.36. What a selector
matches is said in ``clusterstate.objects.rules.matching``.
"""

from collections.abc import Mapping, Sequence

from clusterstate.objects.rules.matching import (
    EmptyTerm,
    NodeSelectorMatcher,
    PreferredTerms,
    RequiredNodeAffinity,
    node_fields,
)
from clusterstate.objects.values.labels import aggregate
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import NodeAffinity as NodeAffinitySpec
from clusterstate.objects.values.pod import NodeSelector, Pod
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.rule import (
    ERROR,
    PASS,
    SKIPPED,
    UNRESOLVABLE,
    Begun,
    Rule,
    Verdict,
    normalize_by_highest,
)


def required_match(pod: Pod, node: Node, *, empty_term: EmptyTerm = "all") -> bool:
    """Return whether the node satisfies the pod's ``nodeSelector`` and required affinity."""
    return RequiredNodeAffinity(pod, empty_term=empty_term).matches(
        node.metadata.labels, node_fields(node.metadata.name)
    )


class NodeAffinity(Rule[None, PreferredTerms]):
    """Filters by required node affinity, scores by preferred."""

    name = "NodeAffinity"
    filters = True
    scores = True

    def __init__(
        self, *, added_affinity: NodeAffinitySpec | None = None, empty_term: EmptyTerm = "all"
    ) -> None:
        added = added_affinity or NodeAffinitySpec()
        self.empty_term: EmptyTerm = empty_term
        self.added_required = tuple(
            NodeSelectorMatcher(selector, empty_term=empty_term)
            for selector in _required(added)
            if selector is not None
        )
        self.added_preferred = PreferredTerms(
            added.preferred_during_scheduling_ignored_during_execution
        )
        self.prefers = bool(added.preferred_during_scheduling_ignored_during_execution)

    def pre_filter(self, pod: Pod, cluster: Cluster) -> Begun[None]:
        """Skip pods that require nothing; narrow the search when every term names its nodes."""
        affinity = _node_affinity(pod)
        required = [selector for selector in _required(affinity) if selector is not None]
        if not required and not self.added_required and not pod.spec.node_selector:
            return Begun(SKIPPED)
        named = [names for names in map(_named_nodes, required) if names is not None]
        if not named:
            return Begun()
        names = frozenset.intersection(*named)
        if not names:
            return Begun(Verdict(UNRESOLVABLE, ("pod affinity terms conflict",)))
        return Begun(node_names=names)

    def filter(self, state: None, pod: Pod, node: PlacedNode) -> Verdict:
        """Check the profile's rules first, then the pod's."""
        fields = node_fields(node.name)
        if not all(added.matches(node.labels, fields) for added in self.added_required):
            reason = "node(s) didn't match scheduler-enforced node affinity"
            return Verdict(UNRESOLVABLE, (reason,))
        if not required_match(pod, node.node, empty_term=self.empty_term):
            return Verdict(UNRESOLVABLE, ("node(s) didn't match Pod's node affinity/selector",))
        return PASS

    def pre_score(
        self, pod: Pod, cluster: Cluster, candidates: Sequence[PlacedNode]
    ) -> Begun[PreferredTerms]:
        """Parse the pod's preferences; skip when nobody prefers anything."""
        terms = _node_affinity(pod).preferred_during_scheduling_ignored_during_execution
        if not terms and not self.prefers:
            return Begun(SKIPPED)
        preferred = PreferredTerms(terms)
        if preferred.errors:
            return Begun(Verdict(ERROR, (aggregate(preferred.errors),)))
        return Begun(state=preferred)

    def score(
        self, state: PreferredTerms | None, pod: Pod, node: PlacedNode, cluster: Cluster
    ) -> int:
        """Sum the weights of the matching terms of the pod and the profile (R6)."""
        assert state is not None
        fields = node_fields(node.name)
        return state.score(node.labels, fields) + self.added_preferred.score(node.labels, fields)

    def normalize(
        self, state: PreferredTerms | None, pod: Pod, scores: Mapping[str, int]
    ) -> dict[str, int]:
        """Prefer the highest sum."""
        return normalize_by_highest(scores, reverse=False)


def _node_affinity(pod: Pod) -> NodeAffinitySpec:
    affinity = pod.spec.affinity
    return (affinity.node_affinity if affinity else None) or NodeAffinitySpec()


def _required(affinity: NodeAffinitySpec) -> tuple[NodeSelector | None, NodeSelector | None]:
    return (
        affinity.required_during_scheduling_required_during_execution,
        affinity.required_during_scheduling_ignored_during_execution,
    )


def _named_nodes(selector: NodeSelector) -> frozenset[str] | None:
    """Return the only nodes that can match, ``None`` when some term names none."""
    names: frozenset[str] = frozenset()
    for term in selector.node_selector_terms:
        named = [
            frozenset(field.values)
            for field in term.match_fields
            if field.key == "metadata.name" and field.operator == "In"
        ]
        if not named:
            return None
        names |= frozenset.intersection(*named)
    return names if selector.node_selector_terms else None

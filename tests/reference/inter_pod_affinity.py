"""InterPodAffinity: near some pods, away from others, by topology domain (R88-R99).

A term selects pods by labels and namespaces; its topology key cuts the nodes into domains. The rule
counts, per domain, the pods that a term selects:

- *required affinity*: every term's domain of the node holds a pod that all terms select. The first
  pod of a group that selects itself may start anywhere (C25);
- *required anti-affinity*: no term's domain of the node holds a pod that the term selects;
- *symmetry*: no domain of the node holds a pod whose own required anti-affinity selects the pod
  (C26);
- *preferences*: weights are added per domain, in both directions; an existing pod's required
  affinity counts with ``hardPodAffinityWeight``.

Source: pkg/scheduler/framework/plugins/interpodaffinity/{filtering,scoring}.go and framework/
types.go (AffinityTerm), v1.36.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from clusterstate.objects.values.labels import (
    NOTHING,
    Selector,
    SelectorError,
    selector_from_label_selector,
)
from clusterstate.objects.values.pod import Affinity, Pod, PodAffinity, PodAffinityTerm
from tests.reference.cluster import Cluster, PlacedNode
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
)

Domain = tuple[str, str]
"""A topology key and a node's value of it."""


@dataclass(frozen=True)
class Term:
    """A parsed term; its pods are in ``namespaces`` or where ``namespace_selector`` selects."""

    namespaces: frozenset[str]
    selector: Selector
    topology_key: str
    namespace_selector: Selector
    weight: int = 0

    def selects(self, pod: Pod, namespace_labels: Mapping[str, str]) -> bool:
        """Return whether the term is about ``pod``, whose namespace has these labels."""
        known = pod.metadata.namespace in self.namespaces
        if not known and not self.namespace_selector.matches(namespace_labels):
            return False
        return self.selector.matches(pod.metadata.labels)


@dataclass(frozen=True)
class Terms:
    """All terms of one pod; ``problems`` are the lists that do not parse and count as empty."""

    required_affinity: tuple[Term, ...] = ()
    required_anti_affinity: tuple[Term, ...] = ()
    preferred_affinity: tuple[Term, ...] = ()
    preferred_anti_affinity: tuple[Term, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """The problems in one text."""
        return self.problems[0] if len(self.problems) == 1 else f"[{', '.join(self.problems)}]"


def parse_term(pod: Pod, term: PodAffinityTerm, weight: int = 0) -> Term:
    """Return the term of ``pod``; without namespaces and selector it means the pod's own (R96).

    Raises:
        SelectorError: one of its selectors does not parse.
    """
    namespaces = frozenset(term.namespaces)
    if not namespaces and term.namespace_selector is None:
        namespaces = frozenset((pod.metadata.namespace,))
    return Term(
        namespaces,
        selector_from_label_selector(term.label_selector),
        term.topology_key,
        selector_from_label_selector(term.namespace_selector),
        weight,
    )


def parse_terms(pod: Pod) -> Terms:
    """Return all affinity terms of ``pod``."""
    affinity = pod.spec.affinity or Affinity()
    near = affinity.pod_affinity or PodAffinity()
    away = affinity.pod_anti_affinity or PodAffinity()
    problems: list[str] = []

    def parsed(name: str, parse: Callable[[], tuple[Term, ...]]) -> tuple[Term, ...]:
        try:
            return parse()
        except SelectorError as error:
            problems.append(f"{name}: {error}")
            return ()

    def required(of: PodAffinity) -> tuple[Term, ...]:
        terms = of.required_during_scheduling_ignored_during_execution
        return tuple(parse_term(pod, term) for term in terms)

    def preferred(of: PodAffinity) -> tuple[Term, ...]:
        terms = of.preferred_during_scheduling_ignored_during_execution
        return tuple(parse_term(pod, term.pod_affinity_term, term.weight) for term in terms)

    return Terms(
        parsed("requiredAffinityTerms", lambda: required(near)),
        parsed("requiredAntiAffinityTerms", lambda: required(away)),
        parsed("preferredAffinityTerms", lambda: preferred(near)),
        parsed("preferredAntiAffinityTerms", lambda: preferred(away)),
        tuple(dict.fromkeys(problems)),
    )


def resolve_namespaces(term: Term, cluster: Cluster) -> Term:
    """Return the term with its namespace selector replaced by the names that it selects now.

    A selector that selects everything stays, so that it covers namespaces nobody listed.
    """
    if term.namespace_selector.everything:
        return term
    selected = {
        name
        for name, labels in cluster.namespaces.items()
        if term.namespace_selector.matches(labels)
    }
    return Term(term.namespaces | selected, term.selector, term.topology_key, NOTHING, term.weight)


@dataclass
class FilterState:
    """Pods per domain: those whose anti-affinity selects the pod, and those the pod's terms select.

    Entries that fall to zero are removed, so that emptiness means that no such pod exists.
    """

    terms: Terms
    namespace_labels: Mapping[str, str]
    repelling: Counter[Domain] = field(default_factory=Counter)
    near: Counter[Domain] = field(default_factory=Counter)
    away: Counter[Domain] = field(default_factory=Counter)

    def count(self, pod: Pod, other: Pod, node: PlacedNode, by: int) -> None:
        """Add ``by`` for ``other`` on ``node`` to every domain that it matters for."""
        for term in parse_terms(other).required_anti_affinity:
            if term.selects(pod, self.namespace_labels):
                _add(self.repelling, term, node, by)
        required = self.terms.required_affinity
        if required and all(term.selects(other, {}) for term in required):
            for term in required:
                _add(self.near, term, node, by)
        for term in self.terms.required_anti_affinity:
            if term.selects(other, {}):
                _add(self.away, term, node, by)


def _add(counts: Counter[Domain], term: Term, node: PlacedNode, by: int) -> None:
    if term.topology_key not in node.labels:
        return
    domain = (term.topology_key, node.labels[term.topology_key])
    counts[domain] += by
    if counts[domain] == 0:
        del counts[domain]


Weights = dict[Domain, int]


class InterPodAffinity(Rule[FilterState, Weights]):
    """Filters and scores by the pods around."""

    name = "InterPodAffinity"
    filters = True
    scores = True

    def __init__(
        self,
        *,
        hard_pod_affinity_weight: int = 1,
        ignore_preferred_terms_of_existing_pods: bool = False,
    ) -> None:
        self.hard_pod_affinity_weight = hard_pod_affinity_weight
        self.ignore_preferred_terms_of_existing_pods = ignore_preferred_terms_of_existing_pods

    def pre_filter(self, pod: Pod, cluster: Cluster) -> Begun[FilterState]:
        """Count the pods in every domain; skip when there is nothing that could reject a node."""
        terms = parse_terms(pod)
        if terms.problems:
            return Begun(Verdict(UNRESOLVABLE, (f"parsing pod: {terms.problem}",)))
        terms = Terms(
            tuple(resolve_namespaces(t, cluster) for t in terms.required_affinity),
            tuple(resolve_namespaces(t, cluster) for t in terms.required_anti_affinity),
        )
        state = FilterState(terms, cluster.namespace_labels(pod.metadata.namespace))
        for node in cluster.nodes:
            for other in node.pods:
                state.count(pod, other, node, 1)
        if state.repelling or terms.required_affinity or terms.required_anti_affinity:
            return Begun(state=state)
        return Begun(SKIPPED)

    def copy(self, state: FilterState) -> FilterState:
        """Return the state with counts of its own."""
        return replace(
            state,
            repelling=Counter(state.repelling),
            near=Counter(state.near),
            away=Counter(state.away),
        )

    def add_pod(
        self, state: FilterState, pod: Pod, other: Pod, node: PlacedNode, cluster: Cluster
    ) -> None:
        """Count ``other`` too."""
        state.count(pod, other, node, 1)

    def remove_pod(
        self, state: FilterState, pod: Pod, other: Pod, node: PlacedNode, cluster: Cluster
    ) -> None:
        """Count ``other`` no longer."""
        state.count(pod, other, node, -1)

    def filter(self, state: FilterState | None, pod: Pod, node: PlacedNode) -> Verdict:
        """Check affinity, then anti-affinity, then the anti-affinity of the pods that are there."""
        assert state is not None
        if not self._affinity_holds(state, pod, node):
            return Verdict(UNRESOLVABLE, ("node(s) didn't match pod affinity rules",))
        if any(
            state.away[(term.topology_key, node.labels[term.topology_key])] > 0
            for term in state.terms.required_anti_affinity
            if term.topology_key in node.labels
        ):
            return Verdict(UNSCHEDULABLE, ("node(s) didn't match pod anti-affinity rules",))
        if any(state.repelling[domain] > 0 for domain in node.labels.items()):
            reason = "node(s) didn't satisfy existing pods anti-affinity rules"
            return Verdict(UNSCHEDULABLE, (reason,))
        return PASS

    @staticmethod
    def _affinity_holds(state: FilterState, pod: Pod, node: PlacedNode) -> bool:
        required = state.terms.required_affinity
        if any(term.topology_key not in node.labels for term in required):
            return False
        if all(
            state.near[(term.topology_key, node.labels[term.topology_key])] > 0 for term in required
        ):
            return True
        # Nobody is selected anywhere and the pod selects itself: the group must start somewhere.
        return not state.near and all(term.selects(pod, {}) for term in required)

    def pre_score(
        self, pod: Pod, cluster: Cluster, candidates: Sequence[PlacedNode]
    ) -> Begun[Weights]:
        """Add up the weights per domain; skip when no preference touches the pod."""
        affinity = pod.spec.affinity or Affinity()
        wishes = any(
            of is not None and of.preferred_during_scheduling_ignored_during_execution
            for of in (affinity.pod_affinity, affinity.pod_anti_affinity)
        )
        if self.ignore_preferred_terms_of_existing_pods and not wishes:
            return Begun(SKIPPED)
        own = parse_terms(pod)
        if own.problems:
            return Begun(Verdict(ERROR, (f"failed to parse pod: {own.problem}",)))
        near = [resolve_namespaces(term, cluster) for term in own.preferred_affinity]
        away = [resolve_namespaces(term, cluster) for term in own.preferred_anti_affinity]
        labels = cluster.namespace_labels(pod.metadata.namespace)
        weights: Weights = {}

        def weigh(term: Term, node: PlacedNode, by: int) -> None:
            if term.topology_key in node.labels:
                domain = (term.topology_key, node.labels[term.topology_key])
                weights[domain] = weights.get(domain, 0) + by

        for node in cluster.nodes:
            for other in node.pods:
                for term in near:
                    if term.selects(other, {}):
                        weigh(term, node, term.weight)
                for term in away:
                    if term.selects(other, {}):
                        weigh(term, node, -term.weight)
                theirs = parse_terms(other)
                for term in theirs.required_affinity:
                    if self.hard_pod_affinity_weight > 0 and term.selects(pod, labels):
                        weigh(term, node, self.hard_pod_affinity_weight)
                for term in theirs.preferred_affinity:
                    if term.selects(pod, labels):
                        weigh(term, node, term.weight)
                for term in theirs.preferred_anti_affinity:
                    if term.selects(pod, labels):
                        weigh(term, node, -term.weight)
        return Begun(state=weights) if weights else Begun(SKIPPED)

    def score(self, state: Weights | None, pod: Pod, node: PlacedNode, cluster: Cluster) -> int:
        """Sum the weights of the node's domains."""
        return sum((state or {}).get(domain, 0) for domain in node.labels.items())

    def normalize(
        self, state: Weights | None, pod: Pod, scores: Mapping[str, int]
    ) -> dict[str, int]:
        """Spread the scores from lowest (0) to highest (100); all equal become 0."""
        lowest, highest = min(scores.values()), max(scores.values())
        if highest == lowest:
            return dict.fromkeys(scores, 0)
        return {
            name: int(MAX_NODE_SCORE * ((score - lowest) / (highest - lowest)))
            for name, score in scores.items()
        }

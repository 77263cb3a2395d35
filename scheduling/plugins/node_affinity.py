"""NodeAffinity: node selectors, required and preferred node affinity, and a profile's own rules.

Rule: plugins/nodeaffinity/node_affinity.go, v1.36, with ``emptyNodeSelectorTerm`` (ruling C1),
``requiredDuringSchedulingRequiredDuringExecution`` (R2) and ``addedAffinity`` (R86).
"""

from collections.abc import Hashable
from typing import cast

import msgspec
import numpy as np
import numpy.typing as npt

from clusterstate.objects.rules.matching import EmptyTerm, NodeSelectorMatcher, PreferredTerms
from clusterstate.objects.values.labels import aggregate
from clusterstate.objects.values.pod import NodeAffinity as NodeRules
from clusterstate.objects.values.pod import NodeSelector, NodeSelectorTerm, Pod
from scheduling.framework.configuration.plugin_args import NodeAffinityArgs
from scheduling.framework.interface import (
    CycleState,
    FilterResult,
    Locality,
    PreFilterResult,
    Scores,
)
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import SKIP, SUCCESS, Code, Status, error, unresolvable
from scheduling.framework.types import PodInfo
from scheduling.framework.vectors import (
    default_normalize,
    node_selector_mask,
    preferred_score,
    required_affinity_mask,
)

NAME = "NodeAffinity"
REASON_POD = "node(s) didn't match Pod's node affinity/selector"
REASON_ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
REASON_CONFLICT = "pod affinity terms conflict"


class NodeAffinity:
    """PreFilter, Filter and Score on node labels and names."""

    name = NAME
    filter_locality = Locality.NODE
    score_locality = Locality.NODE
    scaled_in_reverse = False

    def __init__(self, args: NodeAffinityArgs = NodeAffinityArgs()) -> None:  # noqa: B008
        self._empty_term = cast("EmptyTerm", args.empty_node_selector_term)
        added = args.added_affinity
        self._added_required: tuple[NodeSelectorMatcher, ...] = ()
        self._added_preferred = PreferredTerms(())
        # Also true of empty terms, which add nothing but keep the plugin from skipping.
        self._prefers = bool(added and added.preferred_during_scheduling_ignored_during_execution)
        if added is not None:
            self._added_required = tuple(
                NodeSelectorMatcher(selector, empty_term=self._empty_term)
                for selector in (
                    added.required_during_scheduling_required_during_execution,
                    added.required_during_scheduling_ignored_during_execution,
                )
                if selector is not None
            )
            self._added_preferred = PreferredTerms(
                added.preferred_during_scheduling_ignored_during_execution
            )

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Skip a pod without node rules; return the node names if every term names some."""
        spec = pod.pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity else None
        required = [
            selector
            for selector in (
                (
                    affinity.required_during_scheduling_required_during_execution,
                    affinity.required_during_scheduling_ignored_during_execution,
                )
                if affinity
                else ()
            )
            if selector is not None
        ]
        if not required and not self._added_required and not spec.node_selector:
            return None, SKIP
        names: frozenset[str] | None = None
        for selector in required:
            named = _named_nodes(selector)
            if named is not None:
                names = named if names is None else names & named
        if names is None:
            return None, SUCCESS
        if not names:
            return None, unresolvable(REASON_CONFLICT)
        return PreFilterResult(names), SUCCESS

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject nodes that do not match ``addedAffinity`` or the pod's own rules."""
        matches = required_affinity_mask(snapshot, pod.required_affinity(self._empty_term), rows)
        if not self._added_required:
            return FilterResult.rejecting(~matches, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, REASON_POD)
        enforced = np.ones(len(rows), np.bool_)
        for selector in self._added_required:
            enforced &= node_selector_mask(snapshot, selector, rows)
        if bool((matches & enforced).all()):
            return None
        return FilterResult(
            np.where(
                matches & enforced,
                np.uint8(Code.SUCCESS),
                np.uint8(Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
            ),
            np.where(enforced, np.int32(1), np.int32(0)),
            ((REASON_ENFORCED,), (REASON_POD,)),
        )

    def pre_score(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        multiplicity: npt.NDArray[np.int64],
    ) -> Status:
        """Skip if nothing is preferred; a preferred term that does not parse is an error."""
        if pod.preferred.errors:
            return error(aggregate(pod.preferred.errors))
        affinity = pod.pod.spec.affinity
        node_affinity = affinity.node_affinity if affinity else None
        preferred = node_affinity and (
            node_affinity.preferred_during_scheduling_ignored_during_execution
        )
        return SUCCESS if preferred or self._prefers else SKIP

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Scores:
        """Return the sum of the weights of matching preferred terms, of pod and profile."""
        score = preferred_score(snapshot, pod.preferred, rows)
        if self._added_preferred.terms:
            score += preferred_score(snapshot, self._added_preferred, rows)
        return score

    def normalize(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows, scores: Scores
    ) -> Scores:
        """Return scores scaled so that the highest is 100."""
        return default_normalize(scores, reverse=False)

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return the pod's node selector and node affinity."""
        return pod.node_affinity_key

    def named_node(self, pod: PodInfo) -> tuple[str, Hashable] | None:
        """Return the node that the only required term names, and the term's other requirements.

        ``None`` if there is no such term.
        """
        spec = pod.pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity else None
        if affinity is None or affinity.required_during_scheduling_required_during_execution:
            return None
        required = affinity.required_during_scheduling_ignored_during_execution
        if required is None or len(required.node_selector_terms) != 1:
            return None
        (term,) = required.node_selector_terms
        if len(term.match_fields) != 1:
            return None
        (field,) = term.match_fields
        if field.key != "metadata.name" or field.operator != "In" or len(field.values) != 1:
            return None
        return field.values[0], (term.match_expressions, *spec.node_selector.items())

    def without_name(self, pod: PodInfo) -> Pod:
        """Return the pod with only the label requirements of its one required term."""
        spec = pod.pod.spec
        assert spec.affinity is not None
        assert spec.affinity.node_affinity is not None
        required = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        assert required is not None
        expressions = required.node_selector_terms[0].match_expressions
        terms = (NodeSelectorTerm(match_expressions=expressions),)
        rest = NodeRules(
            required_during_scheduling_ignored_during_execution=(
                NodeSelector(node_selector_terms=terms) if expressions else None
            )
        )
        affinity = msgspec.structs.replace(spec.affinity, node_affinity=rest)
        return msgspec.structs.replace(
            pod.pod, spec=msgspec.structs.replace(spec, affinity=affinity)
        )

    def group_keys(
        self, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> list[npt.NDArray[np.int64]]:
        """Return the raw score as the only key: rows with equal scores form a group."""
        return [self.score(CycleState(), pod, snapshot, rows)]


def _named_nodes(selector: NodeSelector) -> frozenset[str] | None:
    """Return the only nodes that can match, ``None`` if some term names no node."""
    names: frozenset[str] = frozenset()
    if not selector.node_selector_terms:
        return None
    for term in selector.node_selector_terms:
        of_term: frozenset[str] | None = None
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == "In":
                values = frozenset(field.values)
                of_term = values if of_term is None else of_term & values
        if of_term is None:
            return None
        names |= of_term
    return names

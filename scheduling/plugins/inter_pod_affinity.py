"""InterPodAffinity: affinity and anti-affinity between pods, of the incoming and the placed ones.

Counts are tables of the snapshot: for each topology key, how many pods on nodes of each value match
the incoming pod's terms, or have terms that match the incoming pod. Terminating pods count. Rule:
plugins/interpodaffinity/{filtering,scoring,plugin}.go, v1.36 (R88-R99, rulings C25 and C26).
"""

from collections.abc import Hashable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from scheduling.framework.configuration.plugin_args import InterPodAffinityArgs
from scheduling.framework.footprints import term_counter
from scheduling.framework.interface import (
    MAX_NODE_SCORE,
    CycleState,
    FilterResult,
    Locality,
    PreFilterResult,
    Scores,
)
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.reach import Reach, term_anchors
from scheduling.framework.status import SKIP, SUCCESS, Code, Status, error, unresolvable
from scheduling.framework.tables import Counter, Table
from scheduling.framework.terms import Kind, Rejection, Term
from scheduling.framework.types import AffinityTerm, PodInfo

NAME = "InterPodAffinity"
REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"

_CODES = np.array(
    [
        Code.SUCCESS,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        Code.UNSCHEDULABLE,
        Code.UNSCHEDULABLE,
    ],
    np.uint8,
)
_REASONS = ((REASON_AFFINITY,), (REASON_ANTI_AFFINITY,), (REASON_EXISTING,))


class InterPodAffinity:
    """PreFilter, Filter and Score on pods that are already placed."""

    name = NAME
    filter_locality = Locality.PODS
    score_locality = Locality.PODS

    def __init__(self, args: InterPodAffinityArgs = InterPodAffinityArgs()) -> None:  # noqa: B008
        self._hard_weight = args.hard_pod_affinity_weight
        self._ignore_existing = args.ignore_preferred_terms_of_existing_pods
        self._memo_key = (NAME, self._hard_weight)

    def _tables(self, pod: PodInfo, snapshot: NodeTable) -> "_Tables":
        """Return the counts by topology domain that a class needs, up to date."""
        versions = (snapshot.peer_version, snapshot.peer_stamp(pod))
        found = pod.memo.get(self._memo_key)
        if isinstance(found, _Tables) and found.versions == versions and found.snapshot is snapshot:
            found.follow()
            return found
        tables = _Tables(
            versions,
            snapshot,
            self._near(pod, snapshot),
            self._anti(pod, snapshot),
            self._existing(pod, snapshot),
            self._scored(pod, snapshot),
        )
        pod.memo[self._memo_key] = tables
        return tables

    # --- tables ----------------------------------------------------------------------------------

    def _existing(self, pod: PodInfo, snapshot: NodeTable) -> list[Table]:
        """Return the counts of placed pods whose required anti-affinity excludes this pod."""
        tables = []
        for key in snapshot.anti_affinity_keys(pod):

            def weigh(other: PodInfo, key: str = key) -> int:
                return sum(
                    [
                        term.topology_key == key and term.means(pod, snapshot.namespace_labels)
                        for term in other.anti_affinity
                    ]
                )

            counter = snapshot.counter(
                (NAME, "existing", key, pod.peer_key), weigh, live_only=False,
                reach=Reach(terms_about=pod),
            )  # fmt: skip
            tables.append(counter.table(snapshot.label_column(key), snapshot.node_version))
        return tables

    def _anti(self, pod: PodInfo, snapshot: NodeTable) -> list[Table]:
        """Return the counts of placed pods that this pod's required anti-affinity excludes."""
        tables = []
        for key in dict.fromkeys(term.topology_key for term in pod.anti_affinity):
            terms = [term for term in pod.anti_affinity if term.topology_key == key]

            def weigh(other: PodInfo, terms: list[AffinityTerm] = terms) -> int:
                return sum([matches_incoming(term, other, snapshot) for term in terms])

            counter = snapshot.counter(
                (NAME, "anti", key, pod.peer_key), weigh, live_only=False, reach=_reach(terms)
            )
            tables.append(counter.table(snapshot.label_column(key), snapshot.node_version))
        return tables

    def _near(self, pod: PodInfo, snapshot: NodeTable) -> list[Table]:
        """Return, per required affinity term, the counts by domain of pods that match all terms."""
        if not pod.affinity:
            return []
        counter = self._near_counter(pod, snapshot)
        return [
            counter.table(snapshot.label_column(term.topology_key), snapshot.node_version)
            for term in pod.affinity
        ]

    @staticmethod
    def _near_counter(pod: PodInfo, snapshot: NodeTable) -> Counter:
        """Return the count of pods that match all terms of required affinity."""

        def weigh(other: PodInfo) -> int:
            return int(all(matches_incoming(term, other, snapshot) for term in pod.affinity))

        reach = _reach(pod.affinity[:1])
        return snapshot.counter((NAME, "near", pod.peer_key), weigh, live_only=False, reach=reach)

    def _scored(self, pod: PodInfo, snapshot: NodeTable) -> list[Table]:
        """Return, per topology key, the sums of weights of matching preferred terms, by domain."""
        keys = dict.fromkeys(snapshot.scored_affinity_keys(pod))
        mine = (*pod.preferred_affinity, *pod.preferred_anti_affinity)
        keys.update(dict.fromkeys(term.topology_key for term in mine))
        tables = []
        for key in keys:

            def weigh(other: PodInfo, key: str = key) -> int:
                return sum(self._preferences(pod, other, key, snapshot))

            counter = snapshot.counter(
                (NAME, "scored", key, pod.peer_key, self._hard_weight), weigh, live_only=False,
                reach=_reach(mine, pod),
            )  # fmt: skip
            tables.append(counter.table(snapshot.label_column(key), snapshot.node_version))
        return tables

    def _preferences(
        self, pod: PodInfo, other: PodInfo, key: str, snapshot: NodeTable
    ) -> Iterator[int]:
        """Yield the signed weight of each preferred term of one pod that matches the other pod.

        Only terms with the topology key ``key`` count.
        """
        for terms, sign in ((pod.preferred_affinity, 1), (pod.preferred_anti_affinity, -1)):
            for term in terms:
                if term.topology_key == key and matches_incoming(term, other, snapshot):
                    yield sign * term.weight
        of_namespace = snapshot.namespace_labels
        for terms, sign in ((other.preferred_affinity, 1), (other.preferred_anti_affinity, -1)):
            for term in terms:
                if term.topology_key == key and term.means(pod, of_namespace):
                    yield sign * term.weight
        if self._hard_weight:
            for term in other.affinity:
                if term.topology_key == key and term.means(pod, of_namespace):
                    yield self._hard_weight

    def _touching(self, pod: PodInfo, snapshot: NodeTable) -> list[Table]:
        """Return, per topology key, how many preferred terms match a pod, by domain."""
        keys = dict.fromkeys(snapshot.scored_affinity_keys(pod))
        mine = (*pod.preferred_affinity, *pod.preferred_anti_affinity)
        keys.update(dict.fromkeys(term.topology_key for term in mine))
        tables = []
        for key in keys:

            def count(other: PodInfo, key: str = key) -> int:
                return sum(1 for _ in self._preferences(pod, other, key, snapshot))

            counter = snapshot.counter(
                (NAME, "touched", key, pod.peer_key, self._hard_weight), count, live_only=False,
                reach=_reach(mine, pod),
            )  # fmt: skip
            tables.append(counter.table(snapshot.label_column(key), snapshot.node_version))
        return tables

    def _touched(self, pod: PodInfo, snapshot: NodeTable) -> bool:
        """Return whether any preferred term matches a pod, even if the weights add up to 0."""
        return any(table.counts_any for table in self._touching(pod, snapshot))

    # --- filtering -------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Skip if neither this pod nor a placed pod has a required rule about the other."""
        if pod.problem:
            return None, unresolvable(f"parsing pod: {pod.problem}")
        if pod.affinity or pod.anti_affinity:
            return None, SUCCESS
        against = any(table.counts_any for table in self._tables(pod, snapshot).existing)
        return None, SUCCESS if against else SKIP

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject by the pod's affinity, then its anti-affinity, then that of placed pods."""
        verdict = np.zeros(len(rows), np.int8)
        tables_of = self._tables(pod, snapshot)
        near = tables_of.near
        if near:
            labelled = np.ones(len(rows), np.bool_)
            present = np.ones(len(rows), np.bool_)
            for table in near:
                ids = table.column.ids[rows]
                labelled &= ids >= 0
                present &= table.at(rows) > 0
            satisfied = labelled & present
            if (
                not satisfied.all()
                and not any(table.counts_any for table in near)
                and all(matches_incoming(term, pod, snapshot) for term in pod.affinity)
            ):
                # The first pod of a group that is affine to itself (ruling C25).
                satisfied = labelled
            verdict[~satisfied] = 1
        for tables, value in ((tables_of.anti, 2), (tables_of.existing, 3)):
            for table in tables:
                hit = table.at(rows) > 0
                verdict[hit & (verdict == 0)] = value
        if not verdict.any():
            return None
        return FilterResult(_CODES[verdict], np.maximum(verdict.astype(np.int32) - 1, 0), _REASONS)

    # --- scoring ---------------------------------------------------------------------------------

    def pre_score(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        multiplicity: npt.NDArray[np.int64],
    ) -> Status:
        """Skip if no preferred term matches a placed pod."""
        affinity = pod.pod.spec.affinity
        wishes = affinity is not None and any(
            rules is not None and rules.preferred_during_scheduling_ignored_during_execution
            for rules in (affinity.pod_affinity, affinity.pod_anti_affinity)
        )
        if self._ignore_existing and not wishes:
            return SKIP
        if pod.problem:
            return error(f"failed to parse pod: {pod.problem}")
        touched = any(table.counts_any for table in self._tables(pod, snapshot).scored)
        return SUCCESS if touched or self._touched(pod, snapshot) else SKIP

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Scores:
        """Return the sum of the preference weights over the node's topology domains."""
        score = np.zeros(len(rows), np.int64)
        for table in self._tables(pod, snapshot).scored:
            score += table.at(rows)
        return score

    def normalize(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows, scores: Scores
    ) -> Scores:
        """Return scores scaled linearly to 0..100; all 0 if they are equal."""
        if not len(scores):
            return scores
        lowest, highest = int(scores.min()), int(scores.max())
        if lowest == highest:
            return np.zeros(len(scores), np.int64)
        share = (scores - lowest).astype(np.float64) / float(highest - lowest)
        return (float(MAX_NODE_SCORE) * share).astype(np.int64)

    # --- for compiled loops ----------------------------------------------------------------------

    affinity_rejections: tuple[Rejection, Rejection, Rejection] = (
        (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (REASON_AFFINITY,)),
        (Code.UNSCHEDULABLE, (REASON_ANTI_AFFINITY,)),
        (Code.UNSCHEDULABLE, (REASON_EXISTING,)),
    )

    def affinity_terms(self, pod: PodInfo, snapshot: NodeTable) -> list[Term]:
        """Return the pod's rules as terms for the fast path."""
        tables = self._tables(pod, snapshot)
        first = all(matches_incoming(term, pod, snapshot) for term in pod.affinity)
        return [
            *self._terms(Kind.NEAR, tables.near, snapshot, matches_self=first),
            *self._terms(Kind.ANTI, tables.anti, snapshot),
            *self._terms(Kind.EXISTING, tables.existing, snapshot),
            *self._terms(Kind.SCORED, tables.scored, snapshot),
        ]

    def untouched_terms(self, pod: PodInfo, snapshot: NodeTable) -> list[Term]:
        """Return the terms by which the fast path decides whether PreScore skips."""
        return self._terms(Kind.UNTOUCHED, self._touching(pod, snapshot), snapshot)

    @staticmethod
    def _terms(
        kind: Kind, tables: list[Table], snapshot: NodeTable, *, matches_self: bool = False
    ) -> list[Term]:
        return [
            Term(
                kind=kind,
                table=table,
                single=table.column.single(snapshot.node_version),
                matches_self=matches_self,
            )
            for table in tables
        ]

    def relied_on(self, pod: PodInfo, snapshot: NodeTable) -> list[Counter]:
        """Return the counter of pods that match the required affinity; ``[]`` without affinity."""
        return [self._near_counter(pod, snapshot)] if pod.affinity else []

    def counters_read(self, pod: PodInfo, snapshot: NodeTable) -> frozenset[bytes]:
        """Return the ids of the counters that required affinity and anti-affinity read."""
        return frozenset(term_counter(term) for term in (*pod.affinity, *pod.anti_affinity))

    # --- caching ---------------------------------------------------------------------------------

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return ``()`` if neither this pod nor a placed one has a term about the other."""
        if (
            pod.problem
            or pod.affinity
            or pod.anti_affinity
            or pod.preferred_affinity
            or pod.preferred_anti_affinity
            or snapshot.has_term_about(pod)
        ):
            return None
        return ()


class _Tables:
    """The counts by domain that a class needs, valid for the given versions of the snapshot."""

    def __init__(
        self,
        versions: tuple[int, int],
        snapshot: NodeTable,
        near: list[Table],
        anti: list[Table],
        existing: list[Table],
        scored: list[Table],
    ) -> None:
        self.versions = versions
        self.snapshot = snapshot
        self.near = near
        self.anti = anti
        self.existing = existing
        self.scored = scored
        self._node_version = snapshot.node_version

    def follow(self) -> None:
        """Update the tables after nodes changed."""
        version = self.snapshot.node_version
        if self._node_version != version:
            for table in (*self.near, *self.anti, *self.existing, *self.scored):
                table.follow(version)
            self._node_version = version


def _reach(terms: Iterable[AffinityTerm], terms_about: PodInfo | None = None) -> Reach:
    """Return which classes can match one of the terms, or can have a term about ``terms_about``."""
    found = dict.fromkeys(anchor for term in terms for anchor in term_anchors(term))
    return Reach(tuple(found), terms_about)


def matches_incoming(term: AffinityTerm, other: PodInfo, snapshot: NodeTable) -> bool:
    """Whether an incoming pod's term matches a placed pod.

    A namespace selector matches only namespaces that exist, but an empty one matches any (plugin.go
    ``mergeAffinityTermNamespacesIfNotEmpty``).
    """
    selector = term.namespace_selector
    if other.namespace not in term.namespaces and not selector.everything:
        if selector.nothing:
            return False
        labels = snapshot.namespace_labels(other.namespace)
        if labels is None or not selector.matches(labels):
            return False
    return term.selector.matches(other.labels)

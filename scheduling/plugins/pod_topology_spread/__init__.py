"""PodTopologySpread: spread matching pods evenly over topology domains.

The snapshot keeps the counts up to date with each pod; a cycle only compares them. Rule:
plugins/podtopologyspread/{common,filtering,scoring,plugin}.go, v1.36; terminating pods do not
count. ``labelSelector: {}`` counts every pod of the namespace (v1.38, kubernetes#141340); until
1.37 it counts no existing pod, though the incoming pod matches itself.

    __init__      PodTopologySpread: the plugin
    constraints   the constraints of a class, its own or the defaults
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable
from typing import cast

import numpy as np
import numpy.typing as npt

from clusterstate.objects.rules.footprint import counter_id
from clusterstate.objects.rules.matching import HARD_EFFECTS, EmptyTerm, find_untolerated
from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from clusterstate.objects.values.labels import Selector
from clusterstate.objects.values.node import HOSTNAME, Taint
from scheduling.framework.arrays import Mask
from scheduling.framework.configuration.plugin_args import PodTopologySpreadArgs
from scheduling.framework.interface import (
    MAX_NODE_SCORE,
    CycleState,
    FilterResult,
    Locality,
    PreFilterResult,
    Scores,
)
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.reach import Reach, anchors
from scheduling.framework.status import SKIP, SUCCESS, Code, Status, error
from scheduling.framework.tables import Counter, Table
from scheduling.framework.terms import Kind, Rejection, Term
from scheduling.framework.types import PodInfo, PodRecord
from scheduling.framework.vectors import by_taint_set, required_affinity_mask
from scheduling.plugins.pod_topology_spread.constraints import (
    NAME,
    Constraint,
    Constraints,
    ConstraintsByClass,
)

__all__ = ["NAME", "PodTopologySpread"]

REASON = "node(s) didn't match pod topology spread constraints"
REASON_LABEL = f"{REASON} (missing required label)"
_NO_MINIMUM = 2**31 - 1
_instances = itertools.count()


class PodTopologySpread:
    """PreFilter, Filter and Score on topology spread constraints."""

    name = NAME
    filter_locality = Locality.PODS
    score_locality = Locality.PODS

    def __init__(
        self,
        args: PodTopologySpreadArgs = PodTopologySpreadArgs(),  # noqa: B008
        *,
        empty_node_selector_term: str = "all",
        match_label_keys: bool = True,
        node_inclusion_policy: bool = True,
        comparison_operators: bool = False,
        compatibility: Compatibility = NEWEST,
    ) -> None:
        self._counts_everything = compatibility >= Compatibility.V1_38
        self._empty_term = cast("EmptyTerm", empty_node_selector_term)
        self._comparison_operators = comparison_operators
        by_class = ConstraintsByClass(
            args,
            empty_term=self._empty_term,
            match_label_keys=match_label_keys,
            node_inclusion_policy=node_inclusion_policy,
            comparison_operators=comparison_operators,
        )
        self._constraints, self._defaults = by_class.of, by_class.defaults
        # They are kept on the pod's class, by plugin instance: two profiles may differ.
        self._tables_key = (NAME, next(_instances), "tables")

    def _counts_any(self, selector: Selector) -> bool:
        return not selector.nothing and (bool(selector.requirements) or self._counts_everything)

    def _counter(self, selector: Selector, pod: PodInfo, snapshot: NodeTable) -> Counter:
        """Return the counter of the pods in the pod's namespace that a selector matches."""
        namespace = pod.namespace
        counts_any = self._counts_any(selector)

        def matches(other: PodInfo) -> int:
            return int(
                counts_any and other.namespace == namespace and selector.matches(other.labels)
            )

        reach = Reach(anchors(selector, (namespace,)) if counts_any else ())
        key = (NAME, namespace, selector, counts_any)
        return snapshot.counter(key, matches, live_only=True, reach=reach)

    def _table(
        self,
        constraint: Constraint,
        counter: Counter,
        keys: tuple[str, ...],
        pod: PodInfo,
        snapshot: NodeTable,
    ) -> Table:
        def eligible() -> Mask:
            rows = np.arange(len(snapshot.alive))
            mask = snapshot.alive.copy()
            for key in keys:
                mask &= snapshot.label_column(key).ids >= 0
            if constraint.honor_affinity:
                mask &= required_affinity_mask(
                    snapshot, pod.required_affinity(self._empty_term), rows
                )
            if constraint.honor_taints:
                mask &= by_taint_set(snapshot, rows, untolerated) == 0
            return mask

        def untolerated(taints: tuple[Taint, ...]) -> bool:
            return (
                find_untolerated(
                    taints,
                    pod.tolerations,
                    HARD_EFFECTS,
                    comparison_operators=self._comparison_operators,
                )
                is not None
            )

        column = snapshot.label_column(constraint.topology_key)
        return counter.table(column, snapshot.node_version, constraint.eligible_key, eligible)

    def _tables(self, pod: PodInfo, snapshot: NodeTable) -> "_Tables":
        """Return the counters and counts by domain of all constraints, up to date."""
        spread = self._constraints(pod, snapshot)
        found = pod.memo.get(self._tables_key)
        if (
            isinstance(found, _Tables)
            and found.version == snapshot.peer_version
            and found.spread is spread
            and found.snapshot is snapshot
        ):
            found.follow()
            return found
        # Default constraints count by one selector: its counter is looked up once.
        counters: dict[int, Counter] = {}
        hard = self._counted(spread.hard_counted(), _keys(spread.hard), pod, snapshot, counters)
        soft_keys = _keys(spread.soft) if spread.all_keys else ()
        soft = self._counted(spread.soft_counted(), soft_keys, pod, snapshot, counters)
        tables = _Tables(snapshot, spread, hard, soft)
        pod.memo[self._tables_key] = tables
        return tables

    def _counted(
        self,
        constraints: Iterable[tuple[Constraint, Selector]],
        keys: tuple[str, ...],
        pod: PodInfo,
        snapshot: NodeTable,
        counters: dict[int, Counter],
    ) -> list[tuple[Counter, Table]]:
        found = []
        for one, selector in constraints:
            counter = counters.get(id(selector))
            if counter is None:
                counter = counters[id(selector)] = self._counter(selector, pod, snapshot)
            found.append((counter, self._table(one, counter, keys, pod, snapshot)))
        return found

    # --- filtering -------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Skip a pod without hard constraints; a selector that does not parse is an error."""
        spread = self._constraints(pod, snapshot)
        if spread.hard_problem:
            return None, error(f"get constraints from pod: {spread.hard_problem}")
        return None, SUCCESS if spread.hard else SKIP

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject nodes that lack a topology key or where the pod would exceed ``maxSkew``."""
        hard = self._constraints(pod, snapshot).hard
        if not hard:
            return None
        tables = self._tables(pod, snapshot).hard
        quirks = state.get(NAME, _Quirks)
        # 0: passes, 1: skew, 2: missing label; the first failing constraint decides.
        verdict = np.zeros(len(rows), np.int8)
        for number, constraint in enumerate(hard):
            table = tables[number][1]
            ids = table.column.ids[rows]
            counts = table.counts
            if quirks is not None:
                counts = quirks.corrected(number, counts)
            if len(table.present) < constraint.min_domains:
                lowest = 0 if len(table.present) or constraint.min_domains > 0 else _NO_MINIMUM
            else:
                domains = counts if len(table.present) == len(counts) else counts[table.present]
                lowest = int(domains.min(initial=_NO_MINIMUM))
            here = counts[ids] if len(counts) else np.zeros(len(rows), np.int64)
            skewed = here + int(constraint.matches_self) - lowest > constraint.max_skew
            judged = np.where(ids < 0, np.int8(2), skewed.astype(np.int8))
            verdict = np.where(verdict == 0, judged, verdict)
        if not verdict.any():
            return None
        return FilterResult(
            _CODES[verdict],
            np.maximum(verdict.astype(np.int32) - 1, 0),
            ((REASON,), (REASON_LABEL,)),
        )

    def pod_attached(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, other: PodRecord, row: int
    ) -> None:
        """Correct the count where Kubernetes' differs from the snapshot's; see ``_Quirks``."""
        self._note(state, pod, snapshot, other, row, 1)

    def pod_detached(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, other: PodRecord, row: int
    ) -> None:
        """Correct the count where Kubernetes' differs from the snapshot's; see ``_Quirks``."""
        self._note(state, pod, snapshot, other, row, -1)

    def _note(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        other: PodRecord,
        row: int,
        delta: int,
    ) -> None:
        spread = self._constraints(pod, snapshot)
        if not spread.hard or other.info.namespace != pod.namespace:
            return
        tables = self._tables(pod, snapshot).hard
        for number, (_, selector) in enumerate(spread.hard_counted()):
            uncounted = other.terminating or not self._counts_any(selector)
            if not uncounted or not selector.matches(other.info.labels):
                continue
            table = tables[number][1]
            value = int(table.column.ids[row])
            if value >= 0 and (table.eligible is None or table.eligible[row]):
                quirks = state.get(NAME, _Quirks)
                if quirks is None:
                    quirks = _Quirks()
                    state.write(NAME, quirks)
                quirks.add(number, value, delta)

    # --- scoring ---------------------------------------------------------------------------------

    def pre_score(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        multiplicity: npt.NDArray[np.int64],
    ) -> Status:
        """Find which nodes are scored and how many domains they span; Skip without constraints."""
        spread = self._constraints(pod, snapshot)
        if spread.soft_problem:
            return error(f"calculating preScoreState: {spread.soft_problem}")
        if not spread.soft:
            return SKIP
        ignored = np.zeros(len(rows), np.bool_)
        if spread.all_keys:
            for constraint in spread.soft:
                ignored |= snapshot.label_column(constraint.topology_key).ids[rows] < 0
        taking_part = ~ignored
        weights = []
        for constraint in spread.soft:
            if constraint.topology_key == HOSTNAME:
                size = int(multiplicity[taking_part].sum())
            else:
                column = snapshot.label_column(constraint.topology_key)
                ids = column.ids[rows][taking_part]
                # Nodes without the label are one domain of their own, as upstream.
                if column.single(snapshot.node_version):
                    inside = multiplicity[taking_part][ids >= 0]
                    size = int(inside.sum()) + int(len(inside) < len(ids))
                else:
                    size = len(np.unique(ids))
            weights.append(math.log(size + 2))
        state.write(f"{NAME}/weights", weights)
        return SUCCESS

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Scores:
        """Return the weighted number of matching pods in each node's domains; fewer is better."""
        spread = self._constraints(pod, snapshot)
        weights = state.read(f"{NAME}/weights", list)
        tables = self._tables(pod, snapshot).soft
        score = np.zeros(len(rows), np.float64)
        for constraint, weight, (counter, table) in zip(spread.soft, weights, tables, strict=True):
            ids = table.column.ids[rows]
            own = constraint.topology_key == HOSTNAME
            here = counter.rows[rows] if own else table.at(rows)
            credit = here * weight + float(constraint.max_skew - 1)
            score = score + np.where(ids >= 0, credit, 0.0)
        score[_ignored(spread, snapshot, rows)] = 0.0
        # Half away from zero, as Go rounds; scores are not negative.
        return np.floor(score + 0.5).astype(np.int64)

    def normalize(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows, scores: Scores
    ) -> Scores:
        """Return 100 for the fewest matching pods; 0 for nodes without a topology key."""
        ignored = _ignored(self._constraints(pod, snapshot), snapshot, rows)
        part = scores[~ignored]
        highest = int(part.max(initial=0))
        if highest == 0:
            result = np.full(len(rows), MAX_NODE_SCORE, np.int64)
        else:
            lowest = int(part.min())
            result = MAX_NODE_SCORE * (highest + lowest - scores) // highest
        result[ignored] = 0
        return result

    # --- for compiled loops ----------------------------------------------------------------------

    spread_rejections: tuple[Rejection, Rejection] = (
        (Code.UNSCHEDULABLE, (REASON,)),
        (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (REASON_LABEL,)),
    )

    def spread_terms(self, pod: PodInfo, snapshot: NodeTable) -> list[Term]:
        """Return the constraints as terms for the fast path."""
        spread, tables = self._constraints(pod, snapshot), self._tables(pod, snapshot)
        terms = []
        for (constraint, selector), (_, table) in zip(
            spread.hard_counted(), tables.hard, strict=True
        ):
            terms.append(
                Term(
                    kind=Kind.HARD,
                    table=table,
                    single=self._by_count(constraint, snapshot, soft=False),
                    matches_self=constraint.matches_self,
                    max_skew=constraint.max_skew,
                    min_domains=constraint.min_domains,
                    taken=None
                    if self._counts_any(selector)
                    else _dry_run_weight(selector, pod.namespace),
                )
            )
        for constraint, (_, table) in zip(spread.soft, tables.soft, strict=True):
            own = constraint.topology_key == HOSTNAME
            terms.append(
                Term(
                    kind=Kind.SOFT,
                    table=table,
                    single=self._by_count(constraint, snapshot, soft=True),
                    whole=own,
                    max_skew=constraint.max_skew,
                    by_size=own,
                    all_keys=spread.all_keys,
                )
            )
        return terms

    def spread_alike(self, pod: PodInfo, snapshot: NodeTable) -> tuple[Hashable, Counter] | None:
        """Return a number that classes with the same default constraints share, and the counter.

        ``None`` unless the pod has default constraints, and only soft ones.
        """
        spread = self._constraints(pod, snapshot)
        if spread.alike is None or spread.hard or not spread.soft:
            return None
        return spread.alike, self._counter(spread.selectors[0], pod, snapshot)

    def relied_on(self, pod: PodInfo, snapshot: NodeTable) -> list[Counter]:
        """Return the counters of hard constraints, on which the decision about the pod relies.

        If other pods are taken back, the lowest count may fall and the skew exceed its limit.
        """
        if not pod.pod.spec.topology_spread_constraints and not self._defaults:
            return []
        hard = self._constraints(pod, snapshot).hard_counted()
        return [self._counter(selector, pod, snapshot) for _, selector in hard]

    def counters_read(self, pod: PodInfo, snapshot: NodeTable) -> frozenset[bytes]:
        """Return the ids of the counters that hard constraints read."""
        hard = self._constraints(pod, snapshot).hard_counted()
        return frozenset(counter_id(selector, (pod.namespace,)) for _, selector in hard)

    # --- caching ---------------------------------------------------------------------------------

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return ``()`` for a pod without constraints, ``None`` for others."""
        if pod.pod.spec.topology_spread_constraints:
            return None
        if not self._defaults:
            return ()
        spread = self._constraints(pod, snapshot)
        return None if spread.hard or spread.soft else ()

    @staticmethod
    def _by_count(constraint: Constraint, snapshot: NodeTable, *, soft: bool) -> bool:
        """Return whether each domain is a single node, so that nodes differ only by counts."""
        if soft and constraint.topology_key == HOSTNAME:
            return True
        return snapshot.label_column(constraint.topology_key).single(snapshot.node_version)


_CODES = np.array([Code.SUCCESS, Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE], np.uint8)


class _Tables:
    """Counters and counts by domain of a class's constraints.

    ``version``: the ``peer_version`` for which they are valid.
    """

    def __init__(
        self,
        snapshot: NodeTable,
        spread: Constraints,
        hard: list[tuple[Counter, Table]],
        soft: list[tuple[Counter, Table]],
    ) -> None:
        self.version = snapshot.peer_version
        self.snapshot = snapshot
        self.spread = spread
        self.hard = hard
        self.soft = soft
        self._node_version = snapshot.node_version

    def follow(self) -> None:
        """Update the tables after nodes changed."""
        version = self.snapshot.node_version
        if self._node_version != version:
            for _, table in (*self.hard, *self.soft):
                table.follow(version)
            self._node_version = version


class _Quirks:
    """Makes the counts of a preemption's dry run equal to Kubernetes' counts, which are inexact.

    ``updateWithPod`` ignores the deletion timestamp and, until 1.37, an empty selector. So the
    removal of such a pod from a node subtracts a pod that was not counted, and putting it back adds
    one.
    """

    def __init__(self) -> None:
        self._deltas: dict[tuple[int, int], int] = {}

    def add(self, constraint: int, value: int, delta: int) -> None:
        key = (constraint, value)
        self._deltas[key] = self._deltas.get(key, 0) + delta

    def corrected(self, constraint: int, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        changes = {v: d for (c, v), d in self._deltas.items() if c == constraint and d}
        if not changes:
            return counts
        copy = counts.copy()
        for value, delta in changes.items():
            copy[value] += delta
        return copy


def _dry_run_weight(selector: Selector, namespace: str) -> Callable[[PodInfo], int] | None:
    """Return a function of what a pod adds in a dry run if the counter ignores it; see ``_Quirks``.

    ``None`` unless the selector is empty: it matches no pod at first and every pod in a dry run.
    """
    if not selector.everything:
        return None
    return lambda other: int(other.namespace == namespace)


def _keys(constraints: tuple[Constraint, ...]) -> tuple[str, ...]:
    return tuple(sorted({constraint.topology_key for constraint in constraints}))


def _ignored(spread: Constraints, snapshot: NodeTable, rows: Rows) -> Mask:
    ignored = np.zeros(len(rows), np.bool_)
    if spread.all_keys:
        for constraint in spread.soft:
            ignored |= snapshot.label_column(constraint.topology_key).ids[rows] < 0
    return ignored

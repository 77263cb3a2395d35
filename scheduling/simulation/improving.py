"""Finds moves of running pods that lower a cost: unmet soft rules, or unevenly full zones.

A ``Term`` says what each node costs a pod. The search goes through the pods: each is taken off its
node, and moves to the node that costs it the least if that saves more than the move's price.
Pods with the largest savings for their price come first. A PodGroup that leaves as a whole moves as
a whole, to the nodes that the scheduler chooses for it.
"""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
import numpy as np

from clusterstate.objects.values.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    Pod,
    PodAffinity,
    PodSpec,
    WeightedPodAffinityTerm,
)
from scheduling.engine.groups import schedule_group
from scheduling.engine.reference.cycle import Options, PodToPlace, new_state
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.arrays import Float64
from scheduling.framework.node_table import Rows
from scheduling.framework.outcomes import Filtered
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo, PodRecord
from scheduling.packing.facts import Seeker
from scheduling.plugins import taint_toleration
from scheduling.simulation.moves import Move, Prices, group_of, put_on
from scheduling.simulation.moves import may_move as movable

TO_BALANCE, TO_MEND = "ToBalanceZones", "ToMendSoftRules"
ZONE: Final = "topology.kubernetes.io/zone"
_OPTIONS: Final = Options(preempt=False, tie_break="first")
_HARD: Final = "DoNotSchedule"


class Term(Protocol):
    """What a node costs a pod. ``worth``: the price of moves for which a unit is saved."""

    worth: float

    def costs(self, pod: Seeker, rows: Rows) -> Float64:
        """Return the cost of having the pod on each row, (rows,).

        The snapshot does not have the pod.
        """
        ...

    def total(self, go_on: Callable[[], None]) -> float:
        """Return the figure of the whole cluster that the moves lower."""
        ...


class SoftRules:
    """Unmet soft rules of pods, each counted once.

    Soft rules are preferred affinity to nodes and pods, spreading with ``ScheduleAnyway``, and
    taints with ``PreferNoSchedule``. Each is judged by the filter of the required rule of its kind.
    """

    worth = 1000.0

    def __init__(self, snapshot: Snapshot, pods: Sequence[Seeker]) -> None:
        self._snapshot = snapshot
        self._pods = pods
        self._hardened: dict[int, list[PodInfo]] = {}

    def costs(self, pod: Seeker, rows: Rows) -> Float64:
        """Return how many soft rules each row leaves unmet."""
        found = np.zeros(len(rows))
        for plugin in pod.framework.score_plugins:
            if plugin.name == taint_toleration.NAME:
                state = new_state(PodToPlace(pod.key, pod.info), _OPTIONS, 0)
                found += plugin.score(state, pod.info, self._snapshot, rows)
        for info in self._variants(pod.info):
            filtered = _filtered(self._snapshot, pod.framework, pod.key, info, rows)
            found += ~np.isin(rows, () if filtered is None else filtered.feasible)
        return found

    def total(self, go_on: Callable[[], None]) -> float:
        """Return how many soft rules of these pods are unmet."""
        found = 0.0
        for pod in self._pods:
            go_on()
            found += _cost_at_home(self._snapshot, self, pod)
        return found

    def _variants(self, info: PodInfo) -> list[PodInfo]:
        """Return classes with one of the pod's soft rules as a required one each."""
        found = self._hardened.get(info.index)
        if found is None:
            made = [from_pod(one, compatibility=self._snapshot.compatibility)
                    for one in _hardened(info.pod)]  # fmt: skip
            found = self._hardened[info.index] = [self._snapshot.intern(one) for one in made]
        return found


class Zones:
    """How full the zones are: of each pod's resources the one that its zone has least of.

    ``key``: the label of nodes that names their zone. A zone's cost is its requested share in
    percent, with the pod.
    """

    worth = 0.2
    """Zones that differ by less than five points count as balanced, if a move has the price 1."""

    def __init__(self, snapshot: Snapshot, key: str) -> None:
        self._snapshot = snapshot
        self._ids = snapshot.label_column(key).ids

    def costs(self, pod: Seeker, rows: Rows) -> Float64:
        """Return the share of each row's zone, infinity for rows without one."""
        asked = np.zeros(self._snapshot.allocatable.shape[1])
        for column, amount in pod.info.amounts:
            asked[column] = amount
        if not asked.any():
            return np.zeros(len(rows))
        shares = self._shares(asked)[:, asked > 0].max(1)
        ids = self._ids[rows]
        return np.where(ids < 0, np.inf, shares[ids])

    def total(self, go_on: Callable[[], None]) -> float:
        """Return by how many points the fullest zone is fuller than the emptiest."""
        shares = self._shares(np.zeros(self._snapshot.allocatable.shape[1]))
        here = np.unique(self._ids[self._snapshot.rows()])
        shares = shares[here[here >= 0]]
        return float((shares.max(0) - shares.min(0)).max(initial=0.0)) if len(shares) else 0.0

    def _shares(self, more: Float64) -> Float64:
        """Return the requested part of each zone's resources in percent, (zones, resources)."""
        snapshot, rows = self._snapshot, self._snapshot.rows()
        ids = self._ids[rows]
        rows, ids = rows[ids >= 0], ids[ids >= 0]
        sums = np.zeros((2, int(ids.max(initial=-1)) + 1, snapshot.allocatable.shape[1]))
        np.add.at(sums[0], ids, snapshot.requested[rows])
        np.add.at(sums[1], ids, snapshot.allocatable[rows])
        has = sums[1] > 0
        shares: Float64 = np.where(has, 100 * (sums[0] + more) / np.where(has, sums[1], 1), 0.0)
        return shares


TERMS: Final = (TO_BALANCE, TO_MEND)


class Improvement(msgspec.Struct, frozen=True):
    """The moves in order, the figure of the cluster before and after them, and their price."""

    moves: list[Move]
    before: float
    after: float
    price: float


def improve(
    snapshot: Snapshot,
    frameworks: Mapping[str, Framework],
    objective: str,
    *,
    prices: Prices = Prices(),  # noqa: B008
    topology_key: str = ZONE,
    most: int = 2**31,
    may_move: Callable[[Seeker], bool] = lambda pod: True,
    seconds: float = 10.0,
    go_on: Callable[[], None] = lambda: None,
) -> Improvement:
    """Return the moves towards an objective; the snapshot has them made.

    Args:
        snapshot: a private copy.
        frameworks: the profiles by scheduler name.
        objective: of ``TERMS``.
        prices: of the moves.
        topology_key: the label of zones to balance.
        most: the most pods to move.
        may_move: says whether a pod may move that could.
        seconds: how long the search may take; it returns what it has by then.
        go_on: raises if the search takes too long.

    Raises:
        PluginFailed: a plugin failed.
    """
    until = time.monotonic() + seconds
    pods = [one for one in movable(snapshot, frameworks, whole_groups=True) if may_move(one)]
    soft = objective == TO_MEND
    term: Term = SoftRules(snapshot, pods) if soft else Zones(snapshot, topology_key)
    before = term.total(go_on)
    units: dict[Hashable, list[Seeker]] = {}
    for pod in pods:
        group = group_of(snapshot, pod.info)
        units.setdefault(pod.key if group is None else group.key, []).append(pod)
    moves: dict[Hashable, Move] = {}
    paid = 0.0
    could_save = _could_save(snapshot, term, pods, go_on)
    priced = {key: prices.of_move(snapshot, *(pod.info for pod in units[key])) for key in units}
    saved = {
        key: (term.worth * sum(could_save[pod.key] for pod in unit), priced[key])
        for key, unit in units.items()
    }
    able = [
        key
        for key, (worth, price) in saved.items()
        if worth > price and _is_whole(snapshot, units[key])
    ]
    for key in sorted(able, key=lambda one: -saved[one][0] / max(saved[one][1], 1e-9)):
        go_on()
        unit, price = units[key], priced[key]
        if time.monotonic() > until:
            break
        if len(moves) + len(unit) > most:
            continue
        for pod, node in _moved(snapshot, term, unit, price):
            moves[pod.key] = Move(pod.key, pod.node_name, node)
            paid += price / len(unit)
    return Improvement(list(moves.values()), before, term.total(go_on) if moves else before, paid)


def _is_whole(snapshot: Snapshot, unit: Sequence[Seeker]) -> bool:
    """Return whether no pod of a group that leaves as a whole is missing."""
    group = group_of(snapshot, unit[0].info)
    return group is None or len(unit) == len(snapshot.members_of(group.key))


def _could_save(
    snapshot: Snapshot, term: Term, pods: Sequence[Seeker], go_on: Callable[[], None]
) -> dict[Hashable, float]:
    """Return by pod at least what a move of it can save now.

    One look for each class, with all pods on their nodes: so a pod is in its own way at home.
    """
    classes: dict[tuple[int, str], list[Seeker]] = {}
    for pod in pods:
        classes.setdefault((pod.info.index, pod.framework.scheduler_name), []).append(pod)
    found: dict[Hashable, float] = {}
    for alike in classes.values():
        go_on()
        first = alike[0]
        rows = np.array([snapshot.row_of(pod.node_name) for pod in alike], np.intp)
        homes, at = np.unique(rows, return_inverse=True)
        costs = term.costs(first, homes)
        least = 0.0
        if costs.max(initial=0.0) > 0:
            filtered = _filtered(snapshot, first.framework, first.key, first.info, snapshot.rows())
            feasible = homes if filtered is None else filtered.feasible
            least = float(term.costs(first, feasible).min(initial=np.inf))
        for pod, cost in zip(alike, costs[at], strict=True):
            found[pod.key] = max(float(cost) - least, 0.0) if np.isfinite(cost) else 0.0
    return found


def _moved(
    snapshot: Snapshot, term: Term, unit: Sequence[Seeker], price: float
) -> list[tuple[Seeker, str]]:
    """Move pods that leave together if that saves more than the price; return their new nodes."""
    homes = sum(_cost_at_home(snapshot, term, pod) for pod in unit)
    records = [_taken_off(snapshot, pod) for pod in unit]
    nodes = _new_nodes(snapshot, term, unit)
    for record, node in zip(records, nodes, strict=False):
        snapshot.forget(record.key)
        put_on(snapshot, record, node)
    saves = homes - sum(_cost_at_home(snapshot, term, pod) for pod in unit) if nodes else 0.0
    if saves * term.worth > price:
        return [(pod, node) for pod, node in zip(unit, nodes, strict=True)
                if node != pod.node_name]  # fmt: skip
    for pod, record in zip(unit, records, strict=True):
        snapshot.remove_pod(pod.key)
        put_on(snapshot, record, pod.node_name)
    return []


def _new_nodes(snapshot: Snapshot, term: Term, unit: Sequence[Seeker]) -> list[str]:
    """Return the best nodes of pods that are on none, none if not all of them fit."""
    first = unit[0]
    if (group := group_of(snapshot, first.info)) is not None:
        if not first.framework.schedules_groups:
            return []
        pods = [PodToPlace(pod.key, pod.info) for pod in unit]
        decided = schedule_group(snapshot, first.framework, group.key, pods, _OPTIONS)
        placed = {one.key: one.node_name for one in decided.decisions if one.scheduled}
        if decided.placed and len(placed) == len(unit):
            return [placed[pod.key] for pod in unit]
        for key in placed:
            snapshot.forget(key)
        return []
    filtered = _filtered(snapshot, first.framework, first.key, first.info, snapshot.rows())
    if filtered is None or not len(filtered.feasible):
        return []
    costs = term.costs(first, filtered.feasible)
    best = filtered.feasible[costs <= costs.min()]
    if len(best) > 1:  # which the scheduler prefers
        state = new_state(PodToPlace(first.key, first.info), _OPTIONS, 0)
        first.framework.pre_score(state, first.info, snapshot, best)
        best = best[[first.framework.score(state, first.info, snapshot, best).total.argmax()]]
    return [snapshot.node_name(int(best[0]))]


def _filtered(
    snapshot: Snapshot, framework: Framework, key: Hashable, info: PodInfo, rows: Rows
) -> Filtered | None:
    state = new_state(PodToPlace(key, info), _OPTIONS, 0)
    begun = framework.pre_filter(state, info, snapshot)
    if not begun.status.ok:
        return None
    return framework.filter(state, info, snapshot, np.intersect1d(rows, begun.rows))


def _cost_at_home(snapshot: Snapshot, term: Term, pod: Seeker) -> float:
    """Return what the pod's present node costs it by ``term``. The snapshot is as before then."""
    node = snapshot.node_of(pod.key) or ""
    record = _taken_off(snapshot, pod)
    (cost,) = term.costs(pod, np.array([snapshot.row_of(node)], np.intp)).tolist()
    put_on(snapshot, record, node)
    return float(cost)


def _taken_off(snapshot: Snapshot, pod: Seeker) -> PodRecord:
    record = snapshot.pod(pod.key)
    assert record is not None
    snapshot.remove_pod(pod.key)
    return record


def _hardened(pod: Pod) -> list[Pod]:
    """Return a copy of a pod for each of its soft rules, which the copy requires."""
    spec = pod.spec
    found: list[PodSpec] = []
    for constraint in spec.topology_spread_constraints:
        if constraint.when_unsatisfiable != _HARD:
            hard = msgspec.structs.replace(constraint, when_unsatisfiable=_HARD)
            found.append(msgspec.structs.replace(spec, topology_spread_constraints=(hard,)))
    preferred = spec.affinity or Affinity()
    required: list[Affinity] = []
    of_nodes = preferred.node_affinity or NodeAffinity()
    for term in of_nodes.preferred_during_scheduling_ignored_during_execution:
        selector = NodeSelector(node_selector_terms=(term.preference,))
        here = NodeAffinity(required_during_scheduling_ignored_during_execution=selector)
        required.append(Affinity(node_affinity=here))
    near = preferred.pod_affinity or PodAffinity()
    required += [
        Affinity(pod_affinity=_requiring(one))
        for one in near.preferred_during_scheduling_ignored_during_execution
    ]
    away = preferred.pod_anti_affinity or PodAffinity()
    required += [
        Affinity(pod_anti_affinity=_requiring(one))
        for one in away.preferred_during_scheduling_ignored_during_execution
    ]
    found += [msgspec.structs.replace(spec, affinity=one) for one in required]
    return [msgspec.structs.replace(pod, spec=one) for one in found]


def _requiring(weighed: WeightedPodAffinityTerm) -> PodAffinity:
    terms = (weighed.pod_affinity_term,)
    return PodAffinity(required_during_scheduling_ignored_during_execution=terms)

"""DefaultPreemption: if a pod fits nowhere, find the node with the least important victims.

Nothing is deleted here: the result names a node and its victims, and ``Binder`` in the scheduling
worker deletes them. On each candidate node all pods of lower priority are removed in the snapshot,
then put back one by one, the important ones first, if the pod still fits. Rule:
plugins/defaultpreemption/default_preemption.go and framework/preemption/preemption.go, v1.36. Among
candidates that are equal by every criterion the first by name is chosen (any in Kubernetes).

``dry_run`` runs every filter again after each pod. ``CycleState.victim_search`` computes the same
with arrays, and is tried first. It returns ``None`` if a filter of another package does not state
in numbers what it compares. ``dry_run`` alone is used if the pod may not preempt some pod of lower
priority, because that pod's group is deleted as one and has no lower priority.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from scheduling.framework.configuration.plugin_args import DefaultPreemptionArgs
from scheduling.framework.interface import CycleState, Handle
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import SUCCESS, Code, Status, unresolvable, unschedulable
from scheduling.framework.types import (
    Candidate,
    Diagnosis,
    DisruptionBudget,
    FitError,
    NodeStatuses,
    Nomination,
    PodInfo,
    PodRecord,
    Victims,
)

NAME = "DefaultPreemption"
NEVER = "Never"
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_CANDIDATE = "no candidate node for preemption"
_NO_VICTIMS = unresolvable(NO_VICTIMS)


class DefaultPreemption:
    """PostFilter that makes room by evicting pods of lower priority."""

    name = NAME

    def __init__(
        self,
        args: DefaultPreemptionArgs = DefaultPreemptionArgs(),  # noqa: B008
        compatibility: Compatibility = NEWEST,
    ) -> None:
        self._compatibility = compatibility
        self._percentage = args.min_candidate_nodes_percentage
        self._absolute = args.min_candidate_nodes_absolute

    def post_filter(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        diagnosis: Diagnosis,
        handle: Handle,
    ) -> tuple[Nomination | None, Status]:
        """Return the node to preempt pods on; ``None`` and Unschedulable if there is none."""
        nominated = state.nominated_node
        if pod.preemption_policy == NEVER or nominated:
            rejection = diagnosis.node_to_status.get(nominated, diagnosis.absent)
            allowed, why = eligible(pod, nominated, rejection, snapshot)
            if not allowed:
                return None, unschedulable(f"preemption: {why}")
        found = self._search(state, pod, snapshot, potential_rows(diagnosis, snapshot), handle)
        best, candidates = found.best, found.candidates
        if best is not None and handle.extenders:
            candidates = _left_by_extenders(state, pod, snapshot, candidates, handle)
            if not candidates:
                return None, unschedulable(f"preemption: {NO_CANDIDATE}")
            best = select_candidate(candidates)
        if best is None:
            counts = found.rejections
            if found.without_victims:
                counts += ((_NO_VICTIMS, found.without_victims),)
            counts += tuple((_no_need(name), 1) for name in found.without_need)
            error = FitError(
                node_count=snapshot.node_count,
                diagnosis=Diagnosis(counts=counts, absent=unresolvable(NOT_HELPFUL)),
            )
            return Nomination(), unschedulable(f"preemption: {error.message()}")
        return (
            Nomination(
                node_name=best.node_name,
                victims=best.victims,
                pdb_violations=best.pdb_violations,
                candidates=candidates,
            ),
            SUCCESS,
        )

    def _search(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        handle: Handle,
    ) -> Victims:
        """Return the victims, found by ``VictimSearch`` if it can, else by ``dry_run``."""
        if not len(rows) or not snapshot.has_pods_below(pod.priority):
            return Victims(best=None, without_victims=len(rows))
        begin, enough = self.extent(state, len(rows))
        state.tells_candidates = state.tells_candidates or bool(handle.extenders)
        if state.victim_search is not None and not snapshot.spares_some(pod):
            found = state.victim_search.find_victims(state, pod, rows, begin=begin, enough=enough)
            if found is not None:
                return found
        candidates, statuses = self.dry_run(
            state, pod, snapshot, rows, handle, begin=begin, enough=enough
        )
        return Victims(
            best=select_candidate(candidates) if candidates else None,
            candidates=tuple(candidates),
            rejections=tuple(Counter(statuses.values()).items()),
        )

    def extent(self, state: CycleState, count: int) -> tuple[int, int]:
        """Return a random index below ``count`` to begin at, and how many candidates to find.

        Rule: ``minCandidateNodes*``; at least one, because the search ends with a candidate.
        """
        enough = min(max(count * self._percentage // 100, self._absolute), count)
        return state.draw_below(count), max(enough, 1)

    def dry_run(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        handle: Handle,
        *,
        begin: int,
        enough: int,
    ) -> tuple[list[Candidate], dict[str, Status]]:
        """Return the candidates, those without a violated budget first, and other nodes' statuses.

        This is the reference implementation: ``VictimSearch.find_victims`` returns the same.
        """
        budgets = snapshot.disruption_budgets()
        fine: list[Candidate] = []
        violating: list[Candidate] = []
        statuses: dict[str, Status] = {}
        for row in np.roll(rows, -begin).tolist():
            name = snapshot.node_name(row)
            victims, violations, status = select_victims(
                state, pod, snapshot, row, budgets, handle, self._compatibility
            )
            if not status.ok:
                statuses[name] = status
                continue
            if not victims:
                statuses[name] = _no_need(name)
                continue
            candidate = Candidate(node_name=name, victims=tuple(victims), pdb_violations=violations)
            (violating if violations else fine).append(candidate)
            if fine and len(fine) + len(violating) >= enough:
                break
        return fine + violating, statuses


def _left_by_extenders(
    state: CycleState,
    pod: PodInfo,
    snapshot: NodeTable,
    candidates: Sequence[Candidate],
    handle: Handle,
) -> tuple[Candidate, ...]:
    """Return the candidates that the extenders accept, with the victims that they name.

    Rule: preemption.go ``callExtenders``: each extender gets the result of the one before it.
    """
    remaining = tuple(candidates)
    for extender in handle.extenders:
        if remaining:
            remaining = tuple(extender.process_preemption(state, pod, snapshot, remaining))
    return remaining


def _no_need(name: str) -> Status:
    """Return the status of a node that fits the pod without preemption, in Kubernetes' words."""
    return Status(Code.ERROR, (f'expected at least one victim pod on node "{name}"',))


def potential_rows(diagnosis: Diagnosis, snapshot: NodeTable) -> Rows:
    """Return the rows, in order, whose rejection of the pod the removal of pods may change."""
    statuses = diagnosis.node_to_status
    if isinstance(statuses, NodeStatuses):
        rejecting = statuses.rows
        alike = bool(diagnosis.counts) and all(
            status.code is Code.UNSCHEDULABLE for status, _ in diagnosis.counts
        )
        found = rejecting if alike else statuses.rows_with(Code.UNSCHEDULABLE)
    else:
        there = {name: row for name in statuses if (row := snapshot.row_of(name)) is not None}
        rejecting = np.array([*there.values()], np.intp)
        chosen = [row for name, row in there.items() if statuses[name].code is Code.UNSCHEDULABLE]
        found = np.array(chosen, np.intp)
    if diagnosis.absent.code is not Code.UNSCHEDULABLE:
        return found
    rows = snapshot.rows()
    return np.concatenate((found, rows[~np.isin(rows, rejecting)]))


def eligible(
    pod: PodInfo, nominated_node: str, nominated_status: Status, snapshot: NodeTable
) -> tuple[bool, str]:
    """Return whether the pod may preempt now, and the reason if not.

    ``nominated_status``: the result of Filter for the node that was nominated before.
    """
    if pod.preemption_policy == NEVER:
        return False, "not eligible due to preemptionPolicy=Never."
    if nominated_node and nominated_status.code is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        row = snapshot.row_of(nominated_node)
        others = [] if row is None else snapshot.pods_on(row)
        for other in others:
            if other.info.priority < pod.priority and other.preempted:
                return False, "not eligible due to a terminating pod on the nominated node."
    return True, ""


def select_victims(
    state: CycleState,
    pod: PodInfo,
    snapshot: NodeTable,
    row: int,
    budgets: Sequence[DisruptionBudget],
    handle: Handle,
    compatibility: Compatibility = NEWEST,
) -> tuple[list[PodRecord], int, Status]:
    """Return the victims on a node, most important first, and how many violate a budget.

    The last value is Success, or why the node is no candidate. The snapshot is changed for the
    search, and restored before this returns.
    """
    potential = snapshot.pods_on(row, below=pod.priority)
    if snapshot.groups:
        potential = [one for one in potential if not snapshot.groups.spares(one.info, pod)]
    if not potential:
        return [], 0, _NO_VICTIMS
    own = state.clone()
    away: dict[int, PodRecord] = {}

    def take(other: PodRecord) -> None:
        snapshot.detach(other)
        handle.pod_detached(own, pod, snapshot, other, row)
        away[other.slot] = other

    def give(other: PodRecord) -> None:
        snapshot.attach(other)
        handle.pod_attached(own, pod, snapshot, other, row)
        del away[other.slot]

    def fits() -> Status:
        return handle.run_filters(own, pod, snapshot, row)

    try:
        for other in potential:
            take(other)
        status = fits()
        if not status.ok:
            return [], 0, status
        # Ties want an order that does not depend on who looks.
        ordered = sorted(potential, key=lambda other: other.order)
        violating, fine = split_by_budget(by_importance(ordered), budgets, compatibility)
        victims: list[PodRecord] = []
        violations = 0
        for group, violates in ((violating, 1), (fine, 0)):
            for other in group:
                give(other)
                if not fits().ok:
                    take(other)
                    victims.append(other)
                    violations += violates
        if violating and fine:
            victims = by_importance(victims)
        return victims, violations, SUCCESS
    finally:
        for other in list(away.values()):
            snapshot.attach(other)


def started(other: PodRecord) -> float:
    """Return the start time, epoch seconds; infinite for a pod that has not started."""
    return math.inf if other.start_time is None else other.start_time


def by_importance(pods: Sequence[PodRecord]) -> list[PodRecord]:
    """Return the pods by importance: higher priority first, then the longer running.

    Equal pods keep their order, except those that have not started: their order is reversed.
    Upstream reads the clock for each of two such pods, so each seems older than the other, and its
    insertion sort then swaps them (``MoreImportantPod``).
    """

    def key(place: int) -> tuple[float, float, int]:
        pod = pods[place]
        return (
            -pod.info.priority,
            started(pod),
            -place if pod.start_time is None else place,
        )

    return [pods[place] for place in sorted(range(len(pods)), key=key)]


def split_by_budget(
    pods: Iterable[PodRecord],
    budgets: Sequence[DisruptionBudget],
    compatibility: Compatibility = NEWEST,
) -> tuple[list[PodRecord], list[PodRecord]]:
    """Return the pods whose eviction would violate a budget, and the others, both in order.

    Rule: ``filterPodsWithPDBViolation``. Each pod uses up its budgets, in the order of the pods.
    """
    disruptions = [budget.disruptions_allowed for budget in budgets]
    violating: list[PodRecord] = []
    fine: list[PodRecord] = []
    for other in pods:
        violates = False
        for number, budget in enumerate(budgets):
            if other.name in budget.disrupted or not budget.guards(other.info, compatibility):
                continue
            disruptions[number] -= 1
            violates = violates or disruptions[number] < 0
        (violating if violates else fine).append(other)
    return violating, fine


def select_candidate(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate that costs least (``pickOneNodeForPreemption``).

    In order: fewest violated budgets, lowest highest priority of a victim, lowest sum of
    priorities, fewest victims, latest start of the oldest of the most important victims, name.
    """

    def cost(candidate: Candidate) -> tuple[float, ...]:
        priorities = [victim.info.priority for victim in candidate.victims]
        highest = max(priorities)
        oldest = min(
            started(victim) for victim in candidate.victims if victim.info.priority == highest
        )
        return (
            candidate.pdb_violations,
            # The list is sorted by importance; a given list may not be, and the first counts.
            priorities[0],
            sum(priority + 2**31 for priority in priorities),
            len(priorities),
            -oldest,
        )

    return min(candidates, key=lambda candidate: (cost(candidate), candidate.node_name))

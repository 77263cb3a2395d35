"""DefaultPreemption: when a pod fits nowhere, find the node where the least must go to make room.

Nothing is deleted here: the result names a node and its victims, and the caller acts on it. On each
candidate node all pods of lower priority are taken off in the accounts, then put back one by one,
the important ones first, as long as the pod still fits. Rule: plugins/defaultpreemption/
default_preemption.go and framework/preemption/preemption.go, v1.36. Among candidates that are equal
by every criterion the first by name is taken (arbitrary upstream).
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from scheduling.framework.interface import CycleState, Handle, NodeTable, RowJudge, Rows
from scheduling.framework.plugin_args import DefaultPreemptionArgs
from scheduling.framework.rooms import Rooms
from scheduling.framework.status import SUCCESS, Code, Status, unresolvable, unschedulable
from scheduling.framework.types import (
    Candidate,
    Diagnosis,
    DisruptionBudget,
    FitError,
    Nomination,
    PodInfo,
    PodRecord,
)

NAME = "DefaultPreemption"
NEVER = "Never"
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
_NO_VICTIMS = unresolvable(NO_VICTIMS)
_AT_ONCE = 16


class DefaultPreemption:
    """PostFilter that makes room by evicting pods of lower priority."""

    name = NAME

    def __init__(self, args: DefaultPreemptionArgs = DefaultPreemptionArgs()) -> None:  # noqa: B008
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
        """Return the node to make room on, Unschedulable when there is none."""
        nominated = state.nominated_node
        status = diagnosis.node_to_status.get(nominated, diagnosis.absent)
        allowed, why = eligible(pod, nominated, status, snapshot)
        if not allowed:
            return None, unschedulable(f"preemption: {why}")
        nodes: list[str] = []
        told = diagnosis.counts
        if not told or any(status.code is Code.UNSCHEDULABLE for status, _ in told):
            nodes += [
                name
                for name, status in diagnosis.node_to_status.items()
                if status.code is Code.UNSCHEDULABLE
            ]
        if diagnosis.absent.code is Code.UNSCHEDULABLE:
            known = diagnosis.node_to_status
            rows = snapshot.rows().tolist()
            nodes += [n for n in map(snapshot.node_name, rows) if n not in known]
        candidates, statuses = self.dry_run(state, pod, snapshot, nodes, handle)
        if not candidates:
            error = FitError(
                node_count=snapshot.node_count,
                diagnosis=Diagnosis(node_to_status=statuses, absent=unresolvable(NOT_HELPFUL)),
            )
            return Nomination(), unschedulable(f"preemption: {error.message()}")
        best = select_candidate(candidates)
        return (
            Nomination(
                node_name=best.node_name,
                victims=best.victims,
                pdb_violations=best.pdb_violations,
                candidates=tuple(candidates),
            ),
            SUCCESS,
        )

    def dry_run(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        nodes: Sequence[str],
        handle: Handle,
    ) -> tuple[list[Candidate], dict[str, Status]]:
        """Return candidates, those that violate no budget first, and why the others are none.

        At least ``minCandidateNodes*`` are looked for, beginning at a random node.
        """
        if not nodes:
            return [], {}
        wanted = max(len(nodes) * self._percentage // 100, self._absolute)
        wanted = min(wanted, len(nodes))
        offset = 0 if state.random is None else int(state.random.integers(len(nodes)))
        budgets = snapshot.disruption_budgets()
        hopeful = snapshot.rows_with_pods_below(pod.priority)
        around = (*nodes[offset:], *nodes[:offset])
        ordered = [(name, row) for name in around if (row := snapshot.row_of(name)) is not None]
        if not hopeful.any():
            return [], dict.fromkeys(nodes, _NO_VICTIMS)
        asked = np.array([row for _, row in ordered if hopeful[row]], np.intp)
        rooms = handle.rooms(state, pod, snapshot, asked)
        guests = snapshot.guests(pod.priority, state.pod_key)
        judge = handle.row_judge(state, pod, snapshot, asked) if rooms is None else None
        fine: list[Candidate] = []
        violating: list[Candidate] = []
        statuses: dict[str, Status] = {}

        def results() -> Iterator[tuple[str, tuple[list[PodRecord], int, Status]]]:
            """Try node after node; where sums tell, as many at once as candidates are missing."""
            first = 0
            while first < len(ordered):
                missing = wanted - len(fine) - len(violating)
                part = ordered[first : first + missing * 3 // 2 + _AT_ONCE]
                first += len(part)
                there = [row for _, row in part if hopeful[row]]
                if rooms is not None:
                    asked_rows = np.array(there, np.intp)
                    told = count_victims(pod, snapshot, asked_rows, budgets, rooms, guests)
                else:
                    told = (
                        select_victims(state, pod, snapshot, row, budgets, handle, judge)
                        for row in there
                    )
                for name, row in part:
                    yield name, next(told) if hopeful[row] else ([], 0, _NO_VICTIMS)

        for name, (victims, violations, status) in results():
            if not status.ok:
                statuses[name] = status
                continue
            if not victims:
                text = f'expected at least one victim pod on node "{name}"'
                statuses[name] = Status(Code.ERROR, (text,))
                continue
            candidate = Candidate(node_name=name, victims=tuple(victims), pdb_violations=violations)
            (violating if violations else fine).append(candidate)
            if fine and len(fine) + len(violating) >= wanted:
                break
        return fine + violating, statuses


def eligible(
    pod: PodInfo, nominated_node: str, nominated_status: Status, snapshot: NodeTable
) -> tuple[bool, str]:
    """Return whether the pod may preempt now, and why not.

    ``nominated_status``: what Filter said of the node that was nominated before.
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
    judge: RowJudge | None = None,
) -> tuple[list[PodRecord], int, Status]:
    """Return the pods that must leave the node, most important first, and violations of budgets.

    ``judge``: from ``handle.row_judge``, where many rows are asked about.

    The snapshot is changed on the way and is as before on return.
    """
    potential = snapshot.pods_on(row, below=pod.priority)
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
        if judge is not None:
            return judge(own, row)
        return handle.run_filters(own, pod, snapshot, row)

    try:
        for other in potential:
            take(other)
        status = fits()
        if not status.ok:
            return [], 0, status
        # The snapshot lists the newest first; ties want the order of arrival.
        violating, fine = split_by_budget(by_importance(potential[::-1]), budgets)
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


def count_victims(
    pod: PodInfo,
    snapshot: NodeTable,
    rows: Rows,
    budgets: Sequence[DisruptionBudget],
    rooms: Rooms,
    guests: Mapping[int, Sequence[PodInfo]],
) -> Iterator[tuple[list[PodRecord], int, Status]]:
    """Yield what ``select_victims`` returns for each of several rows, from sums alone.

    Pods are put back in turns, the most important one of every row first.
    """
    below = snapshot.pods_below(rows, pod.priority)
    taken = rooms.taken(below.classes)[below.of]
    left = rooms.slack(rows, guests)
    np.add.at(left, below.at, taken)
    statuses = rooms.rejections(rows, left)
    order, violating = np.arange(len(below.at)), np.zeros(len(below.at), np.bool_)
    records: list[PodRecord] | None = None
    if budgets:
        records = snapshot.records(below.slots.tolist())
        violating = _violating(below.at, records, budgets)
        order = np.lexsort((order, ~violating, below.at))
    starts = np.searchsorted(below.at[order], np.arange(len(rows) + 1))
    counts = np.diff(starts)
    victim = np.zeros(len(order), np.bool_)
    for turn in range(int(counts.max(initial=0))):
        at = np.flatnonzero(counts > turn)
        which = order[starts[at] + turn]
        with_it = left[at] - taken[which]
        fits = (with_it >= 0).all(axis=1)
        left[at[fits]] = with_it[fits]
        victim[which[~fits]] = True
    bounds = np.searchsorted(below.at, np.arange(len(rows) + 1)).tolist()
    chosen = np.flatnonzero(victim)
    ends = np.searchsorted(chosen, bounds).tolist()
    for position, status in enumerate(statuses):
        first, last = bounds[position], bounds[position + 1]
        there = chosen[ends[position] : ends[position + 1]]
        if first == last:
            yield [], 0, _NO_VICTIMS
        elif not status.ok:
            yield [], 0, status
        elif records is None:
            yield snapshot.records(below.slots[there].tolist()), 0, SUCCESS
        else:
            violates = violating[there]
            own = [*there[violates].tolist(), *there[~violates].tolist()]
            victims = [records[which] for which in own]
            if len(set(violating[first:last].tolist())) > 1:
                victims = by_importance(victims)
            yield victims, int(violates.sum()), SUCCESS


def _violating(
    at: npt.NDArray[np.intp], records: Sequence[PodRecord], budgets: Sequence[DisruptionBudget]
) -> npt.NDArray[np.bool_]:
    """Return which pods violate a budget; of each row by itself."""
    found = np.zeros(len(records), np.bool_)
    bounds = np.flatnonzero(np.r_[True, at[1:] != at[:-1], True]).tolist() if len(at) else []
    for first, last in itertools.pairwise(bounds):
        violating, _ = split_by_budget(records[first:last], budgets)
        slots = {other.slot for other in violating}
        for which in range(first, last):
            found[which] = records[which].slot in slots
    return found


def started(other: PodRecord) -> float:
    """Return the start time in seconds; a pod that has not started counts as starting now."""
    return math.inf if other.start_time is None else other.start_time


def by_importance(pods: Sequence[PodRecord]) -> list[PodRecord]:
    """Return the pods by importance: higher priority first, then the longer running.

    Equal pods keep their order, except those that have not started: they come out reversed. Of two
    such pods upstream takes each for older than the other, because it reads the clock for one after
    the other, and its insertion sort then turns them around (``MoreImportantPod``).
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
    pods: Iterable[PodRecord], budgets: Sequence[DisruptionBudget]
) -> tuple[list[PodRecord], list[PodRecord]]:
    """Return the pods whose eviction would violate a budget, and the others, both in order.

    Rule: ``filterPodsWithPDBViolation``. Budgets are used up in the order of the pods.
    """
    left = [budget.disruptions_allowed for budget in budgets]
    violating: list[PodRecord] = []
    fine: list[PodRecord] = []
    for other in pods:
        violates = False
        labels = other.info.labels
        if labels:
            for number, budget in enumerate(budgets):
                if budget.namespace != other.info.namespace or budget.selector.everything:
                    continue
                if not budget.selector.matches(labels) or other.name in budget.disrupted:
                    continue
                left[number] -= 1
                violates = violates or left[number] < 0
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

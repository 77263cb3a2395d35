"""The scheduling cycle, from a pod and a snapshot to a decision; clock and seed are arguments.

``schedule_pod`` decides one pod and leaves the snapshot as it is; ``schedule_batch`` decides many
in order and assumes each decision, so that the next pod sees it (R150). This is the reference path:
every plugin runs on every node. ``engine.deciding`` makes the same decisions, most of them on the
fast path, and takes precedence if the caller passes one.

Ties are broken uniformly at random among all nodes with the top total (R68). The generator of each
decision is derived from the batch's seed and the pod's number in it, both kept in the decision, so
that any decision can be reproduced (ruling C21). Source: pkg/scheduler/schedule_one.go, v1.36.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Literal, Protocol

import msgspec
import numpy as np

from clusterstate.objects.dra.attempt import Release
from scheduling.engine.preemption.row_program import RowPrograms
from scheduling.engine.reference.decision import (
    ERROR,
    SCHEDULED,
    UNSCHEDULABLE,
    Decision,
    Decisions,
    best_scores,
    count_rejections,
    full_table,
)
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int64, Mask
from scheduling.framework.device_claims import RELEASED
from scheduling.framework.interface import CycleState
from scheduling.framework.node_table import Rows
from scheduling.framework.outcomes import Filtered, PluginFailed, PreFiltered, ScoreTable
from scheduling.framework.runtime import Framework
from scheduling.framework.sampling import feasible_nodes_to_find, next_start
from scheduling.framework.status import Code, Status
from scheduling.framework.types import (
    NO_NODES,
    Diagnosis,
    FitError,
    NodeStatuses,
    Nomination,
    PodInfo,
)

TieBreak = Literal["random", "first"]
"""``first``: the lexicographically first name among the best, for tests and comparisons."""

_MASK = 2**64 - 1


class PodToPlace(msgspec.Struct, frozen=True):
    """A pending pod: its key, its class, and the node to which preemption nominated it, if any."""

    key: Hashable
    info: PodInfo
    nominated_node: str = ""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to decide.

    ``full``: include the table of every node by every plugin. ``preempt``: whether PostFilter runs
    when nothing fits. ``candidates``: whether a nomination lists all candidate nodes, not only the
    chosen one.
    """

    seed: int = 0
    tie_break: TieBreak = "random"
    full: bool = False
    preempt: bool = True
    candidates: bool = False


_SHARE_BITS = 4
"""A negative seed has this many bits for the number of the share, and as many for their count."""


def of_share(seed: int, share: int, count: int) -> int:
    """Return a seed with which one of several schedulers prefers its own part of equal nodes.

    Scheduler ``share`` of ``count`` then chooses among nodes with equal scores only from its part
    of their order, if there are at least ``count``: so two schedulers seldom choose the same node.
    The result is negative; both arguments are below 16. For one scheduler it is the seed itself.
    """
    if count == 1:
        return seed
    bits = (seed << 2 * _SHARE_BITS | share << _SHARE_BITS | count) & (_MASK >> 1)
    return -1 - bits


def _share_of(seed: int) -> tuple[int, int]:
    """Return the share and the number of shares that ``of_share`` put into a negative seed."""
    bits, most = -1 - seed, (1 << _SHARE_BITS) - 1
    count = max(bits & most, 1)
    return (bits >> _SHARE_BITS & most) % count, count


def mix(seed: int, number: int) -> int:
    """Return a 64-bit pseudo-random number for a seed and a number (splitmix64).

    Close seeds give unrelated streams, which plain xorshift does not. A negative seed gives numbers
    of its share of the range (``of_share``).
    """
    z = (seed + 0x9E3779B97F4A7C15 * (number + 1)) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z ^= z >> 31
    if seed >= 0:
        return z
    share, count = _share_of(seed)
    return z // count + share * (_MASK // count)


def draw_below(seed: int, number: int, count: int) -> int:
    """Return a number below ``count``, uniform over seeds (bias below 2**-40 for any cluster)."""
    return (mix(seed, number) * count) >> 64


def draws(seed: int, first: int, count: int) -> tuple[Int64, Int64]:
    """Return the results of ``mix`` for ``count`` numbers from ``first`` on.

    Two int64 (count,): the upper and the lower 32 bits.
    """
    numbers = np.arange(count, dtype=np.uint64) + np.uint64((first + 1) & _MASK)
    z = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed & _MASK)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    if seed < 0:
        share, among = _share_of(seed)
        z = z // np.uint64(among) + np.uint64(share * (_MASK // among) & _MASK)
    return (z >> np.uint64(32)).astype(np.int64), (z & np.uint64(2**32 - 1)).astype(np.int64)


def schedule_pod(
    snapshot: Snapshot,
    framework: Framework,
    pod: PodToPlace,
    options: Options = Options(),  # noqa: B008
    *,
    draw: int = 0,
    start: int = 0,
    state: CycleState | None = None,
    programs: RowPrograms | None = None,
) -> Decision:
    """Return the decision about a pod; the snapshot does not change.

    Args:
        snapshot: the cluster.
        framework: the pod's profile.
        pod: the pod; ``info`` comes from ``snapshot.intern``.
        options: seed, tie break and detail.
        draw: number of the decision under the seed.
        start: index in the node order where the search begins, if the profile samples nodes.
        state: from ``new_state``, for a caller that passes it on to Reserve and Permit.
        programs: those of this snapshot and framework; they run Filter while pods are nominated.
    """
    return _Cycle(snapshot, framework, pod, options, draw, start, state, programs).run()


def new_state(pod: PodToPlace, options: Options, draw: int) -> CycleState:
    """Return a new cycle state for a pod."""
    state = CycleState(
        pod_key=pod.key, nominated_node=pod.nominated_node, seed=mix(options.seed, draw)
    )
    state.tells_candidates = options.candidates
    return state


class Shortcut(Protocol):
    """A faster source of decisions than the reference path; see ``engine.deciding.Decider``."""

    def anew(self) -> "Shortcut":
        """Return a shortcut of the same snapshot and profile with empty caches."""
        ...

    def refused(
        self, pod: PodToPlace, options: Options, *, draw: int = 0, start: int = 0
    ) -> Decision | None:
        """Return a refusal that an earlier one of the pod's class implies, ``None`` if none does.

        Raises:
            PluginFailed: a plugin failed.
        """
        ...

    def keep(self, pod: PodToPlace, options: Options, decision: Decision, *, start: int) -> None:
        """Note a decision before it is applied to the snapshot."""
        ...

    def decide(
        self, pod: PodToPlace, options: Options, *, draw: int = 0, start: int = 0
    ) -> Decision:
        """Return the same decision as the reference path.

        Raises:
            PluginFailed: a plugin failed.
        """
        ...

    def decide_run(
        self,
        pods: Sequence[PodToPlace],
        first: int,
        options: Options,
        *,
        draw: int = 0,
        start: int = 0,
    ) -> Sequence[Decision]:
        """Decide and assume pods from the ``first`` on, as far as possible; return the decisions.

        Raises:
            PluginFailed: a plugin failed; nothing was decided.
        """
        ...


def schedule_batch(
    snapshot: Snapshot,
    framework: Framework,
    pods: Iterable[PodToPlace],
    options: Options = Options(),  # noqa: B008
    *,
    start: int = 0,
    draw: int = 0,
    decider: Shortcut | None = None,
    stop: Callable[[Decision], bool] | None = None,
) -> Decisions:
    """Return a decision for each pod in order; assume placed pods and note nominations.

    Args:
        snapshot: the cluster; the decisions are applied to it.
        framework: the profile of all pods.
        pods: the pods in the order of decision.
        options: seed, tie break and detail.
        start: index in the node order where the search begins, if the profile samples nodes.
        draw: number of the first decision under the seed.
        decider: of this snapshot and framework; without one every pod takes the reference path.
        stop: called with each decision of the reference path, and with each about a pod that got
            devices, after the snapshot has it. If it returns True the batch ends with this
            decision, or with its run.
    """
    decisions = Decisions()
    waiting = list(pods)
    snapshot.gives_devices = framework.gives_devices
    if framework.preparing:
        framework.prepare([pod.info for pod in waiting], snapshot)
    while len(decisions) < len(waiting):
        number = draw + len(decisions)
        pod = waiting[len(decisions)]
        decision: Decision | None = None
        if decider is not None:
            try:
                decision = decider.refused(pod, options, draw=number, start=start)
                if decision is not None:
                    start = decision.next_start
                    assume_or_nominate(snapshot, pod, decision)
                    decisions.append(decision)
                    if stop is not None and stop(decision):
                        break
                    continue
                run = decider.decide_run(waiting, len(decisions), options, draw=number, start=start)
                if run:
                    first = len(decisions)
                    decisions.extend(run)
                    start = decisions.next_start
                    if stop is not None and _stops(stop, waiting[first:], run):
                        break
                    continue
                decision = decider.decide(pod, options, draw=number, start=start)
            except PluginFailed:
                decision = None  # the reference path fails alike, and records it
            except Exception:
                if not framework.third_party:
                    raise
                # A third party's hook for the fast path raised; the reference path calls none.
                decider = None
        if decision is None:
            decision = schedule_pod(snapshot, framework, pod, options, draw=number, start=start)
        if decider is not None:
            decider.keep(pod, options, decision, start=start)
        start = decision.next_start
        assume_or_nominate(snapshot, pod, decision)
        decisions.append(decision)
        if stop is not None and stop(decision):
            break
    return decisions


def _stops(
    stop: Callable[[Decision], bool], pods: Sequence[PodToPlace], run: Sequence[Decision]
) -> bool:
    """Return whether ``stop`` ends the batch at a pod of the run that got devices."""
    got = [at for at in range(len(run)) if pods[at].info.may_claim]
    return max([stop(run[at]) for at in got], default=False)


def assume_or_nominate(snapshot: Snapshot, pod: PodToPlace, decision: Decision) -> None:
    """Apply a decision to the snapshot: assume a placed pod; add or end nominations.

    Later pods find this pod's room taken and the displaced nominations removed; a pod of lower
    priority that is nominated to the node afterwards keeps its nomination.
    """
    if decision.row >= 0:
        snapshot.assume(pod.key, pod.info, decision.row)
    elif decision.nomination is not None:
        for key in decision.displaced:
            snapshot.unnominate(key)
        if decision.nomination.node_name:
            snapshot.nominate(pod.key, pod.info, decision.nomination.node_name)
        else:
            snapshot.unnominate(pod.key)


def explain_unplaced(
    snapshot: Snapshot,
    framework: Framework,
    pod: PodToPlace,
    options: Options,
    filtered: Filtered,
    *,
    draw: int,
    start: int,
    begun: tuple[CycleState, PreFiltered] | None = None,
) -> Decision:
    """Return the decision about a pod that fits nowhere, from the outcome of Filter.

    Runs PostFilter, and PreFilter if ``begun`` lacks its outcome. ``filtered`` covers all rows that
    PreFilter leaves.

    Raises:
        PluginFailed: a plugin failed.
    """
    state, pre_filtered = begun or (None, None)
    cycle = _Cycle(snapshot, framework, pod, options, draw, start, state)
    if pre_filtered is None:
        pre_filtered = framework.pre_filter(cycle.state, pod.info, snapshot)
    cycle.next_start = next_start(start, len(filtered.rows), snapshot.node_count)
    return cycle.unplaced(pre_filtered, filtered)


class _Cycle:
    """Runs the extension points for one pod, up to the choice of a node."""

    def __init__(
        self,
        snapshot: Snapshot,
        framework: Framework,
        pod: PodToPlace,
        options: Options,
        draw: int,
        start: int,
        state: CycleState | None = None,
        programs: RowPrograms | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.framework = framework
        self.pod = pod
        self.info = pod.info
        self.options = options
        self.draw = draw
        self.start = start
        self.next_start = start
        self.state = state or new_state(pod, options, draw)
        self.programs = programs
        if programs is not None:
            self.state.victim_search = programs

    def run(self) -> Decision:
        if not self.snapshot.node_count:
            status = Status(Code.UNSCHEDULABLE, (NO_NODES,))
            return self._decision(
                outcome=UNSCHEDULABLE, message=NO_NODES, status=status, nomination=Nomination()
            )
        try:
            return self._run()
        except PluginFailed as failure:
            status = failure.status
            return self._decision(
                outcome=ERROR,
                message=status.message,
                status=status,
                rejected_by=(status.plugin,) if status.plugin else (),
                nomination=Nomination(),
            )

    def _run(self) -> Decision:
        begun = self.framework.pre_filter(self.state, self.info, self.snapshot)
        if not begun.status.ok:
            return self.unplaced(begun, None)
        filtered = self._nominated(begun) or self._filter(begun.rows)
        feasible = filtered.feasible
        if not len(feasible):
            return self.unplaced(begun, filtered)
        scores: ScoreTable | None = None
        if len(feasible) > 1:
            self.framework.pre_score(self.state, self.info, self.snapshot, feasible)
            scores = self.framework.score(self.state, self.info, self.snapshot, feasible)
        return self._placed(begun, filtered, scores)

    def _nominated(self, begun: PreFiltered) -> Filtered | None:
        """Filter the nominated node alone; if it is feasible it is chosen without scoring."""
        if not self.pod.nominated_node:
            return None
        row = self.snapshot.row_of(self.pod.nominated_node)
        if row is None or row not in begun.rows:
            return None
        rows = np.array([row], np.intp)
        filtered = self.framework.filter(self.state, self.info, self.snapshot, rows)
        return filtered if len(filtered.feasible) else None

    def _filter(self, rows: Rows) -> Filtered:
        """Filter the nodes, all of them or until enough are feasible (R171, R177)."""
        profile = self.framework.profile
        count = (
            min(1, len(rows))
            if self.framework.finds_one
            else feasible_nodes_to_find(
                len(rows),
                profile.percentage_of_nodes_to_score,
                floor=profile.min_feasible_nodes_to_find,
            )
        )
        total = self.snapshot.node_count
        if count >= len(rows):
            self.next_start = next_start(self.start, len(rows), total)
            return self._outside(self._judge(rows))
        order = self.snapshot.ordered_rows()
        if len(rows) != total:
            order = order[np.isin(order, rows)]
        order = np.roll(order, -(self.start % len(order)))
        filtered = self._judge(order)
        cut = enough(filtered.verdict == 0, count)
        self.next_start = next_start(self.start, cut, total)
        return self._outside(Filtered(order[:cut], filtered.verdict[:cut], filtered.statuses))

    def _outside(self, filtered: Filtered) -> Filtered:
        """Call the extenders with the nodes that passed all other filters."""
        return self.framework.ask_extenders(self.state, self.info, self.snapshot, filtered)

    def _judge(self, rows: Rows) -> Filtered:
        """Return the outcome of the filters for rows, without extenders."""
        if self.programs is not None and self.snapshot.has_any_nomination:
            filtered = self.programs.judge(self.state, self.info, rows)
            if filtered is not None:
                return filtered
        return self.framework.filter_inside(self.state, self.info, self.snapshot, rows)

    def _placed(
        self, begun: PreFiltered, filtered: Filtered, scores: ScoreTable | None
    ) -> Decision:
        feasible = filtered.feasible
        options = self.options
        winner, ties, margin, total = 0, 1, None, 0
        tied = np.zeros(1, np.intp)
        if scores is not None:
            total = int(scores.total.max())
            tied = np.flatnonzero(scores.total == total)
            ties = len(tied)
            if options.tie_break == "first":
                winner = int(tied[self.snapshot.name_rank()[feasible[tied]].argmin()])
            else:
                winner = int(tied[draw_below(options.seed, self.draw, ties)])
            margin = 0 if ties > 1 else total - int(np.partition(scores.total, -2)[-2])
        row = int(feasible[winner])
        return self._decision(
            outcome=SCHEDULED,
            node_name=self.snapshot.node_name(row),
            row=row,
            total=total,
            margin=margin,
            ties=ties,
            evaluated=len(filtered.rows),
            feasible=len(feasible),
            plugins=() if scores is None else scores.plugins,
            best_scores=(
                None if scores is None else best_scores(self.snapshot, scores, tied, winner)
            ),
            rejections=count_rejections(filtered),
            full=(
                full_table(self.snapshot, filtered, begun.absent, scores) if options.full else None
            ),
        )

    def unplaced(self, begun: PreFiltered, filtered: Filtered | None) -> Decision:
        """Return the decision about a pod that fits nowhere; runs PostFilter.

        If a PostFilter plugin fails, the pod is refused all the same and keeps its nomination; the
        message includes the failure. Without PostFilter plugins a nomination ends. Rule:
        ``schedulingCycle``, schedule_one.go, v1.36.
        """
        diagnosis = diagnose(self.snapshot, begun, filtered)
        nomination = None if self.framework.post_filter_plugins else Nomination()
        if self.framework.post_filter_plugins and self.options.preempt:
            if self.state.victim_search is None:
                self.state.victim_search = RowPrograms(self.snapshot, self.framework)
            try:
                nomination, status = self.framework.post_filter(
                    self.state, self.info, self.snapshot, diagnosis
                )
            except PluginFailed as failure:
                status = failure.status
            diagnosis.post_filter_message = status.message
        displaced: tuple[Hashable, ...] = ()
        if nomination is not None and not all(one.terminating for one in nomination.victims):
            below = self.snapshot.nominated_below(nomination.node_name, self.info.priority)
            displaced = tuple(below)
        rejections = () if filtered is None else count_rejections(filtered)
        fit_error = FitError(node_count=self.snapshot.node_count, diagnosis=diagnosis)
        message = fit_error.message()
        return self._decision(
            outcome=UNSCHEDULABLE,
            message=message,
            evaluated=0 if filtered is None else len(filtered.rows),
            rejections=rejections,
            rejected_by=diagnosis.rejected_by,
            pending_by=diagnosis.pending_by,
            judged=filtered,
            absent=begun.absent,
            nomination=nomination,
            displaced=displaced,
            released=self.state.get(RELEASED, Release),
            status=Status(Code.UNSCHEDULABLE, (message,)),
            full=(
                full_table(self.snapshot, filtered, begun.absent, None)
                if self.options.full
                else None
            ),
        )

    def _decision(self, **fields: object) -> Decision:
        return Decision(
            key=self.pod.key,
            class_digest=self.info.digest,
            node_count=self.snapshot.node_count,
            seed=self.options.seed,
            draw=self.draw,
            next_start=self.next_start,
            snapshot_revision=self.snapshot.revision,
            profile=self.framework.scheduler_name,
            **fields,  # type: ignore[arg-type]
        )


def enough(feasible: Mask, count: int) -> int:
    """Return how many rows must be filtered to find ``count`` feasible ones; all if too few."""
    found = np.flatnonzero(feasible)
    count = max(count, 1)
    return len(feasible) if len(found) < count else int(found[count - 1]) + 1


def diagnose(snapshot: Snapshot, begun: PreFiltered, filtered: Filtered | None) -> Diagnosis:
    """Return the reasons in the form that PostFilter plugins and FitError read.

    A plugin that selected nodes in PreFilter counts as rejecting, even if another plugin rejects
    the pod on these nodes: the pod may fit if it selects others. Rule: ``findNodesThatFitPod``,
    schedule_one.go, v1.36.
    """
    plugins = set(begun.narrowed_by)
    if filtered is None:
        status = begun.status
        if status.plugin:
            plugins.add(status.plugin)
        return Diagnosis(
            absent=status,
            pre_filter_message=status.message,
            rejected_by=tuple(sorted(plugins)),
        )
    statuses = filtered.statuses
    rows, verdict = filtered.rows, filtered.verdict
    plugins |= {status.plugin for status in statuses[1:]}
    counts = filtered.counts
    return Diagnosis(
        node_to_status=NodeStatuses(rows, verdict, statuses, snapshot.names),
        counts=tuple((s, count) for s, count in zip(statuses, counts, strict=True) if count),
        absent=begun.absent,
        rejected_by=tuple(sorted(plugins)),
        pending_by=tuple(sorted({s.plugin for s in statuses[1:] if s.code is Code.PENDING})),
    )

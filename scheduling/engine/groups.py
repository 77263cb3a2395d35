"""The cycle of a pod group: all of its waiting pods are decided together, all assumed or none.

``schedule_group`` decides the pods in order, on the fast path where it can, and keeps the decisions
if enough of the group has a place; otherwise it restores the snapshot, and each pod's decision
states what its group lacks. A group with a topology constraint is tried domain by domain, the
smallest that has room for all first: its pods are decided as if their node selectors named the
domain. Levels that a group prefers are tried from the narrowest up; where only a wider domain takes
the group, its pods are spread over as few of the narrower ones as have room. Where the group does
not fit and may preempt, ``_Preemption`` looks for victims whose removal lets the whole group fit;
if there are none, no pod is evicted.

Rules: pkg/scheduler/schedule_one_podgroup.go and framework/preemption/podgrouppreemption.go, v1.36
(``framework.pod_groups``). Differences: the pods are bound in one transaction, so no pod waits on
Permit; of several domains that take the whole group the smallest is chosen, not any one.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import permutations
from types import MappingProxyType
from typing import cast

import msgspec
import numpy as np
import numpy.typing as npt

from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.document import format_time, parse_time
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod_group import GroupKey, PodGroup, PodGroupSpec
from scheduling.engine.queue.pending import PendingPod
from scheduling.engine.queue.scheduling_queue import PriorityQueue
from scheduling.engine.reference.cycle import Options, PodToPlace, Shortcut, schedule_batch
from scheduling.engine.reference.decision import ERROR, UNSCHEDULABLE, Decision
from scheduling.engine.snapshot import Snapshot, reliance
from scheduling.engine.snapshot.requirements import digest_of_pod, from_pod
from scheduling.framework import pod_groups as rules
from scheduling.framework.arrays import Float64, Mask
from scheduling.framework.node_table import Rows
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.pod_groups import (
    EVERYWHERE,
    GANG_SCHEDULING,
    Domain,
    Part,
    Placement,
    Victim,
)
from scheduling.framework.runtime import Framework
from scheduling.framework.status import SUCCESS, Code, Status
from scheduling.framework.types import Nomination, PodInfo, PodRecord, group_key

PREEMPTION = "DefaultPreemption"
_OF_DOMAIN = "groups/of-domain"
_MOST_PREFERRED = 4
_MOST_MOVED = 32
_MOST_ORDERS = 24
_MOST_MOVES = 256
_MOST_NAMED = 3


def _keys(batch: Sequence[PendingPod], groups: dict[str, Framework]) -> dict[int, GroupKey]:
    """Return the groups of a batch's pods that are decided as groups, by the pods' class."""
    classes = {pod.class_id: pod.spec for pod in batch}
    return {
        class_id: key
        for class_id, spec in classes.items()
        if spec.spec.scheduler_name in groups and (key := group_key(spec)) is not None
    }


def with_members(
    batch: Sequence[PendingPod], queue: PriorityQueue, groups: dict[str, Framework]
) -> list[PendingPod]:
    """Return the batch with the pods of each group together, after the group's first pod.

    Members of a group that may be tried and are not in the batch are taken from the queue.
    ``groups``: the profiles that decide pods as groups, by scheduler name.
    """
    keys = _keys(batch, groups)
    if not keys:
        return list(batch)
    found: list[PendingPod] = []
    at: dict[GroupKey, list[PendingPod]] = {}
    order: list[PendingPod | GroupKey] = []
    for pod in batch:
        key = keys.get(pod.class_id)
        if key is None:
            order.append(pod)
        elif key in at:
            at[key].append(pod)
        else:
            at[key] = [pod]
            order.append(key)
    for one in order:
        if isinstance(one, tuple):
            members = [*at[one], *queue.pop_members(one)]
            members.sort(key=lambda pod: (-pod.priority, queue.place(pod.pod_id).since, pod.pod_id))
            found += members
        else:
            found.append(one)
    return found


def runs(
    batch: Sequence[PendingPod], groups: dict[str, Framework]
) -> Iterator[tuple[GroupKey | None, Sequence[PendingPod]]]:
    """Yield the pods of a batch in order: each group alone, and each stretch of other pods."""
    keys = _keys(batch, groups)
    if batch and not keys:
        yield None, batch
        return
    run: list[PendingPod] = []
    now: GroupKey | None = None
    for pod in batch:
        key = keys.get(pod.class_id)
        if key != now and run:
            yield now, run
            run = []
        now = key
        run.append(pod)
    if run:
        yield now, run


def lets_in(snapshot: Snapshot, queue: PriorityQueue, pod: PendingPod) -> bool:
    """Return whether a pod's group may be tried: its PodGroup exists and enough of its pods do."""
    key = group_key(pod.spec)
    if key is None:
        return True
    group, known = snapshot.groups.find(key), queue.members(key)
    if group is not None and group.is_gang and known < group.min_count:
        placed = [cast("int", one.key) for one in snapshot.members_of(key)]
        known += len(placed) - len(queue.present(placed))
    return rules.pre_enqueue(key, group, known).ok


class GroupDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a cycle about a group.

    ``decisions``: one for each pod, in order; where the group was placed, those of pods beyond its
    ``minCount`` may be refusals. ``status``: the group's, for its condition. ``fitting``: how many
    pods would have a place, including those already placed. ``placement``: the domains to which the
    placed pods were confined. ``again_at``: when to try a refused group again even if nothing has
    changed, seconds since the epoch.
    """

    key: GroupKey
    decisions: list[Decision]
    status: Status
    fitting: int = 0
    needed: int = 0
    placement: Placement = EVERYWHERE
    again_at: float | None = None

    @property
    def placed(self) -> bool:
        """Whether the group was placed: its pods with a node are assumed, to be bound together."""
        return self.status.ok


@dataclass
class _Cycle:
    """Tries one group at its placements, one after the other."""

    snapshot: Snapshot
    framework: Framework
    key: GroupKey
    group: PodGroup
    pods: Sequence[PodToPlace]
    options: Options
    draw: int
    start: int
    decider: Shortcut | None
    before: int = 0
    now: float | None = None
    next_start: int = field(default=0, init=False)

    def attempt(self, pods: Sequence[PodToPlace]) -> tuple[list[Decision], Status, int]:
        """Decide the pods and assume those that fit.

        Return their decisions, the status of the group, and how many of its pods fit.
        """
        needed, left = self.group.min_count - self.before, len(pods)
        refused = 0

        def hopeless(decision: Decision) -> bool:
            nonlocal refused
            refused += not decision.scheduled
            return left - refused < needed

        made = schedule_batch(
            self.snapshot, self.framework, pods,
            msgspec.structs.replace(self.options, preempt=False),
            start=self.start, draw=self.draw, decider=self.decider, stop=hopeless,
        )  # fmt: skip
        decisions = list(made)
        self.next_start = made.next_start if decisions else self.start
        fitting = 0

        def result(decision: Decision) -> rules.MemberResult:
            nonlocal fitting
            if not decision.scheduled:
                code = Code.ERROR if decision.outcome == ERROR else Code.UNSCHEDULABLE
                return rules.MemberResult(status=Status(code, (decision.message,)))
            fitting += 1
            permit = rules.permit(self.group, self.before + fitting)
            return rules.MemberResult(host=decision.node_name, permit=permit)

        status = rules.try_members(decisions, result).status
        if status.ok and self.framework.placement_feasible_plugins:
            placed = self.placed(decisions)
            try:
                status = self.framework.placement_feasible(self.group, placed, self.snapshot)
            except PluginFailed as failure:
                status = failure.status
        return decisions, status, fitting

    def placed(self, decisions: Sequence[Decision]) -> list[tuple[PodInfo, str]]:
        """Return the pods of the group that have a node, each with its node."""
        infos = {pod.key: pod.info for pod in self.pods}
        return [(infos[one.key], one.node_name) for one in decisions if one.scheduled]

    def forget(self, decisions: Sequence[Decision]) -> None:
        """Remove the pods from their nodes again."""
        for one in decisions:
            if one.scheduled:
                self.snapshot.forget(one.key)


def schedule_group(
    snapshot: Snapshot,
    framework: Framework,
    key: GroupKey,
    pods: Sequence[PodToPlace],
    options: Options = Options(),  # noqa: B008
    *,
    start: int = 0,
    draw: int = 0,
    decider: Shortcut | None = None,
    assigned: Mapping[Hashable, str] = MappingProxyType({}),
    now: float | None = None,
) -> GroupDecision:
    """Decide the waiting pods of a group, and assume all that are placed.

    Args:
        snapshot: the cluster; the decision is applied to it.
        framework: the profile of all pods.
        key: the group.
        pods: its waiting pods in the order in which they are decided.
        options: seed, tie break and detail.
        start: index in the node order where the search begins, if the profile samples nodes.
        draw: number of the first decision under the seed.
        decider: of this snapshot and framework; without one every pod takes the reference path.
        assigned: nodes of pods by key, from a search; tried first, on the reference path.
        now: seconds since the epoch, to compute the work that victims lose; ``None``: when the
            latest
            of them started.
    """
    group = snapshot.groups.find(key)
    mine = {pod.key for pod in pods}
    there = [one for one in snapshot.members_of(key) if one.key not in mine]
    if group is None:
        status = rules.pre_enqueue(key, None, 0)
        return _refused(key, [], pods, status, framework, snapshot, options, draw)
    cycle = _Cycle(
        snapshot, framework, key, group, pods, options, draw, start, decider, len(there), now
    )
    if assigned and (found := _as_assigned(cycle, assigned)) is not None:
        return GroupDecision(
            key=key, decisions=found, status=SUCCESS,
            fitting=sum(one.scheduled for one in found) + len(there), needed=group.min_count,
        )  # fmt: skip
    infos = [pod.info for pod in pods]
    try:
        named = framework.generate_placements(group, infos, snapshot)
        placements, status = (
            _placements(snapshot, framework, group, pods, there)
            if named is None
            else (named, SUCCESS)
        )
        if not status.ok:
            return _refused(key, [], pods, status, framework, snapshot, options, draw)
        chosen = _best(cycle, placements)
    except PluginFailed as failure:
        return _refused(key, [], pods, failure.status, framework, snapshot, options, draw)
    if chosen.status.code is Code.ERROR:
        made = chosen.decisions
        return _refused(key, made, pods, chosen.status, framework, snapshot, options, draw)
    if chosen.status.ok:
        decisions = chosen.decisions
        if chosen.placement.parts or not chosen.is_kept:
            decisions = _really(snapshot, pods, decisions, is_assumed=chosen.is_kept)
        return GroupDecision(
            key=key, decisions=decisions, status=SUCCESS,
            fitting=chosen.fitting + len(there), needed=group.min_count,
            placement=chosen.placement,
        )  # fmt: skip
    decisions, status, fitting = chosen.decisions, chosen.status, chosen.fitting
    if group.topology_keys:
        outcome = rules.best_placement(
            placements, lambda one: rules.GroupOutcome(status), lambda found: []
        )
        status = outcome.status
    refusal = _refused(
        key, decisions, pods, status, framework, snapshot, options, draw,
        fitting=fitting + len(there), needed=group.min_count,
    )  # fmt: skip
    if not options.preempt:
        return refusal
    try:
        nominations = framework.pod_group_post_filter(group, infos, snapshot, refusal.status)
    except PluginFailed as failure:
        return _refused(key, [], pods, failure.status, framework, snapshot, options, draw)
    if nominations is not None:
        return _nominated(snapshot, pods, refusal, nominations)
    return _Preemption(cycle, refusal).run()


class _PlacementOutcome(msgspec.Struct):
    """The result of trying a group at one placement.

    ``is_kept``: the snapshot still counts the group's pods on the nodes of this placement.
    """

    placement: Placement
    decisions: list[Decision]
    status: Status
    fitting: int = 0
    is_kept: bool = False


def _best(cycle: _Cycle, placements: Sequence[Placement]) -> _PlacementOutcome:
    """Return the outcome at the best placement.

    That is the first one that takes all pods, else the first of those that take the most. If
    plugins score placements, it is the one with the highest score. If none is feasible, it is the
    first one, which has the reasons. An error ends the search.
    """
    found: _PlacementOutcome | None = None
    scores = bool(cycle.framework.placement_score_plugins)
    scored: list[_PlacementOutcome] = []
    for placement in placements:
        pods = confined(cycle.snapshot, cycle.pods, placement)
        decisions, status, fitting = cycle.attempt(pods)
        one = _PlacementOutcome(placement, decisions, status, fitting)
        if status.ok and not _in_one(cycle, decisions):  # a plugin named the placement
            one.status = Status(Code.UNSCHEDULABLE, ("the topology constraint is not kept",))
        is_best = fitting == len(pods) or len(placements) == 1
        one.is_kept = one.status.ok and is_best and not scores
        if not one.is_kept:
            cycle.forget(decisions)
        if scores and one.status.ok:
            scored.append(one)
        if one.is_kept or status.code is Code.ERROR:
            return one
        if found is None or (one.status.ok and (not found.status.ok or fitting > found.fitting)):
            found = one
    if scored:
        told = cycle.framework.score_placements(
            cycle.group, [cycle.placed(one.decisions) for one in scored], cycle.snapshot
        )
        return scored[max(range(len(scored)), key=lambda place: told[place])]
    return found or _PlacementOutcome(EVERYWHERE, [], Status(Code.UNSCHEDULABLE))


def _as_assigned(cycle: _Cycle, assigned: Mapping[Hashable, str]) -> list[Decision] | None:
    """Return the decisions for a placement from a search, ``None`` if a filter rejects it.

    Filters see the pods placed so far, so the order matters. A pod with required affinity to others
    must come after them; a pod that matches its own term, and is the only one, must come first. So
    pods that a filter refused are tried first, singly and in pairs, up to 24 times.
    """
    mine = [
        msgspec.structs.replace(pod, nominated_node=assigned[pod.key])
        for pod in cycle.pods
        if pod.key in assigned
    ]
    mine.sort(key=lambda pod: bool(pod.info.affinity))
    decider, cycle.decider = cycle.decider, None
    made, stuck = _one_after_the_other(cycle, mine)
    leads = [(one,) for one in stuck] + list(permutations(stuck[:5], 2))
    for lead in leads[:_MOST_ORDERS]:
        if not stuck:
            break
        keys = {one.key for one in lead}
        order = [*lead, *(one for one in mine if one.key not in keys)]
        made, stuck = _one_after_the_other(cycle, order)
    cycle.decider = decider
    if stuck or len(made) + cycle.before < cycle.group.min_count or not _in_one(cycle, made):
        cycle.forget(made)
        return None
    if rest := [one for one in cycle.pods if one.key not in assigned]:
        if cycle.group.topology_keys:
            made += _refused(
                cycle.key, [], rest,
                Status(Code.UNSCHEDULABLE, ("the group is in another domain",)),
                cycle.framework, cycle.snapshot, cycle.options, cycle.draw + len(made),
            ).decisions  # fmt: skip
        else:
            cycle.before += len(made)
            made += cycle.attempt(rest)[0]
    by_key = {one.key: one for one in made}
    return [by_key[pod.key] for pod in cycle.pods if pod.key in by_key]


def _one_after_the_other(
    cycle: _Cycle, pods: Sequence[PodToPlace]
) -> tuple[list[Decision], list[PodToPlace]]:
    """Assume the pods on their nominated nodes if every filter accepts them.

    A pod that is refused is tried again after the others. Returns the decisions, and the pods that
    were refused to the end; if there are any, nothing stays assumed.
    """
    made: list[Decision] = []
    options = msgspec.structs.replace(cycle.options, preempt=False)
    pending = list(pods)
    while pending:
        refused = []
        for pod in pending:
            (decision,) = schedule_batch(
                cycle.snapshot, cycle.framework, [pod], options,
                start=cycle.start, draw=cycle.draw + len(made),
            )  # fmt: skip
            if decision.node_name == pod.nominated_node:
                made.append(decision)
                continue
            cycle.forget([decision])
            refused.append(pod)
        if len(refused) == len(pending):
            cycle.forget(made)
            return [], refused
        pending = refused
    return made, []


def _in_one(cycle: _Cycle, decisions: Sequence[Decision]) -> bool:
    """Return whether all placed pods are in one domain of each level that the group names."""
    rows = [one.row for one in decisions if one.scheduled]
    for topology_key in cycle.group.topology_keys if rows else ():
        ids = set(cycle.snapshot.label_column(topology_key).ids[rows].tolist())
        if len(ids) != 1 or -1 in ids:
            return False
    return True


def refused_after(
    decision: GroupDecision, pods: Sequence[PodToPlace], refusal: Decision
) -> GroupDecision:
    """Change the decision about a placed group to refused, because one of its pods was."""
    text = f"another pod of group {decision.key[1]} was refused: {refusal.message}"
    found = [
        refusal
        if one.key == refusal.key
        else msgspec.structs.replace(
            one, outcome=refusal.outcome, node_name="", row=-1, best_scores=None, message=text,
            rejected_by=(GANG_SCHEDULING,), status=Status(refusal.status.code, (text,)),
        )
        if one.scheduled
        else one
        for one in decision.decisions
    ]  # fmt: skip
    return msgspec.structs.replace(decision, decisions=found, status=refusal.status)


def _refused(
    key: GroupKey,
    decisions: Sequence[Decision],
    pods: Sequence[PodToPlace],
    status: Status,
    framework: Framework,
    snapshot: Snapshot,
    options: Options,
    draw: int,
    *,
    fitting: int = 0,
    needed: int = 0,
) -> GroupDecision:
    """Return the decision that no pod of the group is placed, with a message for each pod.

    A pod that fits nowhere itself keeps its reasons. The message of the others, which had a place
    or were not tried, says what the group lacks.
    """
    lacking = status.message
    if fitting < needed:
        lacking = f"{fitting} of {needed} needed pods of group {key[1]} have a place"
        reason = next((one.message for one in decisions if not one.scheduled), "")
        lacking += f": {reason}" if reason else ""
    outcome = ERROR if status.code is Code.ERROR else UNSCHEDULABLE
    by_key = {one.key: one for one in decisions}
    found: list[Decision] = []
    for number, pod in enumerate(pods, draw):
        known = by_key.get(pod.key)
        if known is not None and not known.scheduled and known.outcome in (outcome, ERROR):
            by = tuple(sorted({*known.rejected_by, GANG_SCHEDULING}))
            found.append(
                msgspec.structs.replace(known, rejected_by=by, class_digest=pod.info.digest)
            )
            continue
        found.append(
            Decision(
                key=pod.key, class_digest=pod.info.digest, outcome=outcome, message=lacking,
                rejected_by=(GANG_SCHEDULING,), status=Status(status.code, (lacking,)),
                node_count=snapshot.node_count, seed=options.seed, draw=number,
                snapshot_revision=snapshot.revision, profile=framework.scheduler_name,
            )
        )  # fmt: skip
    told = Status(status.code, (lacking,)) if needed else status
    return GroupDecision(key=key, decisions=found, status=told, fitting=fitting, needed=needed)


# Topology --------------------------------------------------------------------------------------


class _Domain(msgspec.Struct, frozen=True):
    """One domain of a level: the room on its nodes, and its labels.

    ``nodes`` returns the mask (rows,) of its nodes.
    """

    room: float
    labels: Domain
    nodes: Callable[[], Mask]


class _Levels:
    """The domains of a group's topology levels, widest first, with the room on their nodes.

    ``room``: how many pods of the group each row can take, at most; summed upwards by level.
    ``rows``: the nodes.
    """

    def __init__(
        self, snapshot: Snapshot, keys: Sequence[str], rows: Rows, room: Float64 | None
    ) -> None:
        self.keys, self.rows = keys, rows
        self.room: Float64 = np.zeros(len(rows)) if room is None else room
        self._columns = [snapshot.label_column(key) for key in keys]
        self._ids = [column.ids[rows] for column in self._columns]

    def domains(self, depth: int, inside: Mask | None = None) -> list[_Domain]:
        """Return the domains of level ``depth``, sorted by name.

        ``inside``: a mask (rows,) of the nodes to consider; ``None``: all.
        """
        known: Mask = np.ones(len(self.rows), np.bool_) if inside is None else inside.copy()
        code: npt.NDArray[np.int64] = np.zeros(len(self.rows), np.int64)
        for column, ids in zip(self._columns[:depth], self._ids[:depth], strict=True):
            known &= ids >= 0
            code = code * len(column.values) + ids
        places = np.flatnonzero(known)
        found, of = np.unique(code[places], return_inverse=True)
        sums = np.bincount(of, weights=self.room[places], minlength=len(found)).tolist()
        result = []
        for number, room in zip(found.tolist(), sums, strict=True):
            values, rest = [], number
            for column in reversed(self._columns[:depth]):
                rest, at = divmod(rest, len(column.values))
                values.append(column.values[at])
            labels = tuple(zip(self.keys[:depth], reversed(values), strict=True))
            result.append(_Domain(room, labels, partial(_of_code, known, code, number)))
        return sorted(result, key=lambda one: one.labels)

    def spread(self, depth: int, domain: Domain, inside: Mask, count: int) -> list[Part]:
        """Return narrow domains within ``domain``, as few as possible, for ``count`` pods."""
        if depth == len(self.keys) or count <= 0:
            return [(domain, count)] if count > 0 else []
        within = [one for one in self.domains(depth + 1, inside) if one.room >= 1]
        within.sort(key=lambda one: (-one.room, one.labels))
        parts: list[Part] = []
        for place, largest in enumerate(within):
            holding = [one for one in within[place:] if one.room >= count]
            best = holding[-1] if holding else largest
            here = min(int(best.room), count)
            parts += self.spread(depth + 1, best.labels, best.nodes(), here)
            count -= here
            if not count:
                break
        return parts if not count else [*parts, (domain, count)]


def _of_code(known: Mask, code: npt.NDArray[np.int64], number: int) -> Mask:
    inside: Mask = known & (code == number)
    return inside


def _placements(
    snapshot: Snapshot,
    framework: Framework,
    group: PodGroup,
    pods: Sequence[PodToPlace],
    there: Sequence[PodRecord],
    *,
    every: bool = False,
) -> tuple[Sequence[Placement], Status]:
    """Return the placements to try, and why there are none: those for the whole group first.

    Among these, small domains first, those of the narrowest preferred level before wider ones.
    Under compatibility with 1.36 levels have no preference, and domains come in the order of the
    nodes: of those that take the most pods the first is chosen (podgrouppodscount.go). Placed pods
    of the group fix the domain. Domains without room for ``minCount`` pods are left out, all but
    one, unless ``every`` one is requested.
    """
    required = group.topology_keys
    is_old = snapshot.compatibility < Compatibility.V1_37
    preferred = () if is_old or every else group.preferred_levels
    count = len(pods)
    if not required and not preferred:
        return [EVERYWHERE], SUCCESS
    rows = snapshot.rows()
    keys = tuple(dict.fromkeys((*required, *preferred)))
    if there:
        return _beside(snapshot, group, keys, there, count)
    levels = _Levels(
        snapshot, keys, rows, None if is_old else _room(snapshot, framework, pods, rows)
    )
    found: list[Placement] = []
    everywhere = np.ones(len(rows), np.bool_)
    for depth in range(len(keys), len(required), -1):
        holding = [one for one in levels.domains(depth) if one.room >= count]
        holding.sort(key=lambda one: (one.room, one.labels))
        found += [
            Placement(tuple(levels.spread(depth, one.labels, one.nodes(), count)))
            for one in holding[:_MOST_PREFERRED]
        ]
    if not required:
        parts = tuple(levels.spread(0, (), everywhere, count))
        return [*found, *([Placement(parts)] if len(parts) > 1 else []), EVERYWHERE], SUCCESS
    domains = levels.domains(len(required))
    if is_old:
        domains.sort(key=lambda one: int(np.argmax(one.nodes())))
        return [Placement(((one.labels, count),)) for one in domains], SUCCESS
    domains.sort(
        key=lambda one: ((0, one.room) if one.room >= count else (1, -one.room), one.labels)
    )
    # The other domains lack room. If all do, one of them is tried, for its reasons.
    enough = sum(one.room >= group.min_count for one in domains)
    for one in domains if every else domains[: max(enough, 1)]:
        if preferred:
            parts = tuple(levels.spread(len(required), one.labels, one.nodes(), count))
            if len(parts) > 1:
                found.append(Placement(parts))
        found.append(Placement(((one.labels, count),)))
    return found, SUCCESS


def _beside(
    snapshot: Snapshot,
    group: PodGroup,
    keys: Sequence[str],
    there: Sequence[PodRecord],
    count: int,
) -> tuple[Sequence[Placement], Status]:
    """Return the placements for late pods: the narrowest domain of the placed pods, then wider."""
    labels = {snapshot.node_name(one.row): snapshot.node(one.row).metadata.labels for one in there}
    required = group.topology_keys
    if required:
        scheduled = {
            f"{group.key[0]}/{one.name or one.key}": snapshot.node_name(one.row) for one in there
        }
        status = rules.generate_placements(group, scheduled, labels, {})[1]
        if not status.ok:
            return [], status
    found = [] if required else [EVERYWHERE]
    shared: Domain = ()
    for number, key in enumerate(keys, 1):
        values = {one.get(key) for one in labels.values()}
        if len(values) != 1 or (value := values.pop()) is None:
            break
        shared = (*shared, (key, value))
        if number >= len(required):
            found.insert(0, Placement(((shared, count),)))
    return found, SUCCESS


def fitting_by_domain(
    snapshot: Snapshot, framework: Framework, key: GroupKey, pods: Sequence[PodToPlace]
) -> dict[str, int]:
    """Return how many of a group's pods fit in each domain, in the order in which they are tried.

    A group without a topology constraint has one domain, named "". Nothing stays assumed.
    """
    group = snapshot.groups.find(key)
    assert group is not None
    there = snapshot.members_of(key)
    any_number = msgspec.structs.replace(group, spec=PodGroupSpec())
    cycle = _Cycle(snapshot, framework, key, any_number, pods, Options(), 0, 0, None, len(there))
    found: dict[str, int] = {}
    for placement in _placements(snapshot, framework, group, pods, there, every=True)[0]:
        decisions, _, fitting = cycle.attempt(confined(snapshot, pods, placement))
        cycle.forget(decisions)
        found[placement.name] = fitting
    return found


def _room(
    snapshot: Snapshot, framework: Framework, pods: Sequence[PodToPlace], rows: Rows
) -> Float64:
    """Return how many pods of the group each row can take, at most, float64 (rows,).

    It considers NodeResourcesFit alone, with the smallest requests among the group's pods.
    """
    fit = framework.request_filter
    if fit is None:
        return np.full(len(rows), float(len(pods)))
    infos = {id(pod.info): pod.info for pod in pods}.values()
    least: dict[int, int] | None = None
    for info in infos:
        asked = {column: amount for amount, column in fit.request_checks(info, snapshot)}
        least = (
            asked if least is None
            else {at: min(amount, asked[at]) for at, amount in least.items() if at in asked}
        )  # fmt: skip
    allocatable, places = snapshot.allocatable[rows], snapshot.allowed_pods[rows]
    room: Float64 = np.maximum(places - snapshot.pod_count[rows], 0).astype(np.float64)
    free = allocatable - snapshot.requested[rows]
    for at, amount in (least or {}).items():
        holds = np.maximum(free[:, at], 0) // amount
        if snapshot.devices.classes:  # devices may provide a resource that the node lacks
            holds = np.where(allocatable[:, at] == 0, room, holds)
        room = np.minimum(room, holds)
    return room


def confined(
    snapshot: Snapshot, pods: Sequence[PodToPlace], placement: Placement
) -> Sequence[PodToPlace]:
    """Return the waiting pods of a group with the placement's domains in their node selectors."""
    if not placement.parts:
        return pods
    domains = [domain for domain, count in placement.parts for _ in range(count)]
    made: dict[tuple[int, Domain], PodInfo] = {}
    found = []
    for pod, domain in zip(pods, domains, strict=True):
        if not domain:
            found.append(pod)
            continue
        if (pod.info.index, domain) not in made:
            made[pod.info.index, domain] = _of_domain(snapshot, pod.info, domain)
        found.append(msgspec.structs.replace(pod, info=made[pod.info.index, domain]))
    return found


def _of_domain(snapshot: Snapshot, info: PodInfo, domain: Domain) -> PodInfo:
    known: dict[Domain, PodInfo] = info.memo.setdefault(_OF_DOMAIN, {})  # type: ignore[assignment]
    found = known.get(domain)
    if found is None:
        selector = {**info.pod.spec.node_selector, **dict(domain)}
        spec = msgspec.structs.replace(info.pod.spec, node_selector=selector, scheduling_group=None)
        pod = msgspec.structs.replace(info.pod, spec=spec)
        digest = digest_of_pod(pod)  # other groups' pods may be the same without their group
        found = snapshot.known_class(digest) or snapshot.intern(
            from_pod(pod, digest, snapshot.compatibility)
        )
        known[domain] = found
    return found


def _really(
    snapshot: Snapshot,
    pods: Sequence[PodToPlace],
    decisions: Sequence[Decision],
    *,
    is_assumed: bool,
) -> list[Decision]:
    """Assume the pods, with their own node selectors, on the nodes in ``decisions``.

    ``is_assumed``: the pods of ``confined`` are assumed already, and only change their class.
    """
    found: list[Decision] = []
    for pod, decision in zip(pods, decisions, strict=False):
        if decision.scheduled and not (is_assumed and snapshot.change_class(pod.key, pod.info)):
            snapshot.forget(pod.key)
            snapshot.assume(pod.key, pod.info, decision.row)
        found.append(msgspec.structs.replace(decision, class_digest=pod.info.digest))
    return found


# Preemption ------------------------------------------------------------------------------------


class _Preemption:
    """Finds victims for a group that fits nowhere, so that all of its pods fit."""

    def __init__(self, cycle: _Cycle, refusal: GroupDecision) -> None:
        self.cycle = cycle
        self.snapshot = cycle.snapshot
        self.refusal = refusal
        self.away: dict[Hashable, PodRecord] = {}
        self.assigned: dict[int, list[PodRecord]] = {}
        self.made: dict[Hashable, Decision] = {}
        self.looks_at_others = False
        self.checks: list[int] | None = None
        self.moves = 0
        self.by_key = {pod.key: at for at, pod in enumerate(cycle.pods)}

    def run(self) -> GroupDecision:
        """Return the refusal; with victims and nominations if victims make the group fit."""
        cycle, snapshot = self.cycle, self.snapshot
        group = cycle.group
        names = {plugin.name for plugin in cycle.framework.post_filter_plugins}
        problem = rules.preemption_problem(cycle.key, group, registered=PREEMPTION in names)
        priority = _priority(group, cycle.pods)
        if (
            problem is not None
            or snapshot.lowest_priority >= priority
            or self._is_waiting(priority)
        ):
            return self.refusal
        policies = [group.spec.preemption_policy]
        policies += [pod.info.preemption_policy for pod in cycle.pods]
        try:
            chosen = rules.select_victims(
                self._victims(priority), priority=priority, policies=policies,
                without=self._without, reprieve=self._reprieve, violating=self._violating,
            )  # fmt: skip
        finally:
            cycle.forget(list(self.made.values()))
            for record in self.away.values():
                snapshot.attach(record)
        if not chosen.status.ok:
            return self.refusal
        if (waits := _waits_for_nodes(cycle)) is not None:
            return self._without_victims(waits)
        return self._with_victims([pod for one in chosen.victims for pod in one.pods])

    def _is_waiting(self, priority: int) -> bool:
        """Return whether victims of an earlier attempt are still terminating."""
        for pod in self.cycle.pods:
            row = self.snapshot.row_of(pod.nominated_node) if pod.nominated_node else None
            if row is not None and any(
                one.terminating and one.preempted and one.info.priority < priority
                for one in self.snapshot.pods_on(row)
            ):
                return True
        return False

    def _without_victims(self, waits: "Waits") -> GroupDecision:
        """Return the refusal, which says for which nodes the group waits."""
        refusal, text = self.refusal, f"preemption: {waits.message}"
        decisions = [
            msgspec.structs.replace(one, message=f"{one.message} {text}")
            for one in refusal.decisions
        ]
        told = Status(refusal.status.code, (f"{refusal.status.message} {text}",))
        return msgspec.structs.replace(
            refusal, decisions=decisions, status=told, again_at=waits.until
        )

    def _victims(self, priority: int) -> list[Victim[PodRecord]]:
        groups, classes = self.snapshot.groups, self.snapshot.classes
        own = self.cycle.key

        def may_leave(info: PodInfo) -> bool:
            key = group_key(info.pod)
            group = groups.find(key)
            if group is not None and group.leaves_together and group.spec.priority is not None:
                return key != own and group.spec.priority < priority
            return key != own and info.priority < priority

        able = [number for number, info in enumerate(classes) if may_leave(info)]
        records = self.snapshot.pods_of(able)
        now = self.cycle.now
        if now is None:
            now = max((one.start_time or 0.0 for one in records), default=0.0)

        def started_at(one: PodRecord) -> float:
            """Return when a pod's present work began, epoch seconds; eviction would lose it."""
            group = groups.find(group_key(one.info.pod))
            lost = None if group is None else group.lost_work
            return now - lost if lost is not None else one.start_time or float("inf")

        return rules.victims_of(
            records,
            key_of=lambda one: group_key(one.info.pod),
            group_of=lambda one: groups.find(group_key(one.info.pod)),
            priority_of=lambda one: one.info.priority,
            started_at=started_at,
        )

    def _without(self, victims: Sequence[Victim[PodRecord]]) -> Status:
        for one in victims:
            for record in one.pods:
                self.snapshot.detach(record)
                self.away[record.key] = record
        if self.cycle.decider is not None:  # the decider's caches do not include the removed pods
            self.cycle.decider = self.cycle.decider.anew()
        made, status, _ = self.cycle.attempt(self.cycle.pods)
        self.made = {decision.key: decision for decision in made}
        for decision in made:
            placed = self.snapshot.pod(decision.key) if decision.scheduled else None
            if placed is not None:
                self.assigned.setdefault(decision.row, []).append(placed)
        infos = list({id(pod.info): pod.info for pod in self.cycle.pods}.values())
        self.looks_at_others = any(map(_looks_at_others, infos))
        self.checks = _room_alone(self.snapshot, self.cycle.framework, infos)
        return status

    def _reprieve(self, victim: Victim[PodRecord]) -> bool:
        """Put a victim back on its node if every pod of the group still fits."""
        snapshot = self.snapshot
        for record in victim.pods:
            snapshot.attach(record)
        if self.looks_at_others or any(_looks_at_others(one.info) for one in victim.pods):
            concerned = [one for records in self.assigned.values() for one in records]
            fit = all(map(self._fits, concerned))
        else:
            rows = {one.row for one in victim.pods}
            concerned = [one for row in rows for one in self.assigned.get(row, ())]
            fit = self._fit(concerned)
        if fit or self._moves(concerned):
            for record in victim.pods:
                del self.away[record.key]
            return True
        for record in victim.pods:
            snapshot.detach(record)
        return False

    def _moves(self, concerned: Sequence[PodRecord]) -> bool:
        """Move the ``concerned`` pods that lost their room; return whether all fit elsewhere.

        1.36 decides the whole group again for each victim; here a few pods, a limited number of
        times.
        """
        if len(concerned) > _MOST_MOVED or self.moves >= _MOST_MOVES:
            return False
        self.moves += 1
        snapshot, cycle = self.snapshot, self.cycle
        pods = [cycle.pods[at] for at in sorted(self.by_key[one.key] for one in concerned)]
        for one in concerned:
            snapshot.forget(one.key)
        options = msgspec.structs.replace(cycle.options, preempt=False)
        again = list(
            schedule_batch(
                snapshot, cycle.framework, pods, options, start=cycle.start, draw=cycle.draw,
                stop=lambda decision: not decision.scheduled,
            )
        )  # fmt: skip
        moved = len(again) == len(pods) and all(one.scheduled for one in again)
        if not moved:
            cycle.forget(again)
            for one in concerned:
                snapshot.assume(one.key, one.info, one.row)
            again = []
        for one in concerned:
            self.assigned[one.row] = [
                other for other in self.assigned[one.row] if other.key != one.key
            ]
        self.made.update((one.key, one) for one in again)
        for one in concerned:
            record = snapshot.pod(one.key)
            if record is not None:
                self.assigned.setdefault(record.row, []).append(record)
        return moved

    def _fit(self, concerned: Sequence[PodRecord]) -> bool:
        """Return whether the ``concerned`` pods still fit on their nodes."""
        if self.checks is None:
            return all(map(self._fits, concerned))
        snapshot = self.snapshot
        return all(
            snapshot.pod_count[row] <= snapshot.allowed_pods[row]
            and all(
                snapshot.requested[row, at] <= snapshot.allocatable[row, at] for at in self.checks
            )
            for row in {one.row for one in concerned}
        )

    def _fits(self, record: PodRecord) -> bool:
        self.snapshot.detach(record)
        try:
            return reliance.fits(self.cycle.framework, record, self.snapshot)
        finally:
            self.snapshot.attach(record)

    def _violating(self, victims: Sequence[Victim[PodRecord]]) -> list[int]:
        budgets = self.snapshot.disruption_budgets()
        allowed = [one.disruptions_allowed for one in budgets]
        version = self.snapshot.compatibility
        guards: dict[int, list[int]] = {}
        counts: list[int] = []
        charged: dict[tuple[int, GroupKey], bool] = {}  # for budgets that count groups
        for victim in victims:
            broken = 0
            for pod in victim.pods:
                info = pod.info
                if info.index not in guards:
                    guards[info.index] = [
                        place for place, one in enumerate(budgets) if one.guards(info, version)
                    ]
                breaks = False
                for place in guards[info.index]:
                    if pod.name in budgets[place].disrupted:
                        continue
                    key = group_key(info.pod) if budgets[place].counts_groups else None
                    if key is None or (place, key) not in charged:
                        allowed[place] -= 1
                    broke = allowed[place] < 0
                    if key is not None:
                        broke = charged.setdefault((place, key), broke)
                    breaks |= broke
                broken += breaks
            counts.append(broken)
        return counts

    def _with_victims(self, leaving: Sequence[PodRecord]) -> GroupDecision:
        """Nominate the pods to the nodes that were found; the first decision names the victims."""
        by_key = {key: one for key, one in self.made.items() if one.scheduled}
        found: list[Nomination | None] = []
        victims: tuple[PodRecord, ...] = tuple(leaving)
        for pod in self.cycle.pods:
            there = by_key.get(pod.key)
            if there is None:
                found.append(None)
                continue
            found.append(Nomination(node_name=there.node_name, victims=victims))
            victims = ()
        return _nominated(self.snapshot, self.cycle.pods, self.refusal, found)


class Waits(msgspec.Struct, frozen=True):
    """Nodes that are starting and would take a group, which preempts no pods until then.

    ``until``: seconds since the epoch.
    """

    nodes: tuple[str, ...]
    until: float

    @property
    def message(self) -> str:
        """Until when, and for which starting nodes, the group waits, as a sentence."""
        more = len(self.nodes) - _MOST_NAMED
        names = ", ".join(self.nodes[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        return (
            f"not before {format_time(datetime.fromtimestamp(self.until, UTC))}, since the group"
            f" fits once starting nodes are ready: {names}"
        )


def waits_for_nodes(
    snapshot: Snapshot,
    framework: Framework,
    key: GroupKey,
    pods: Sequence[PodToPlace],
    now: float,
) -> Waits | None:
    """Return the starting nodes for which a group that does not fit waits; nothing is assumed."""
    group, there = snapshot.groups.find(key), snapshot.members_of(key)
    assert group is not None
    return _waits_for_nodes(
        _Cycle(snapshot, framework, key, group, pods, Options(), 0, 0, None, len(there), now)
    )


def _waits_for_nodes(cycle: _Cycle) -> Waits | None:
    """Return the starting nodes with which the group fits, ``None`` if it does not.

    See ``GangSchedulingArgs``. The nodes lose their startup taints in the snapshot meanwhile.
    """
    snapshot, args = cycle.snapshot, cycle.framework.gang_args
    if not args.starting_node_seconds or cycle.now is None or cycle.group.topology_keys:
        return None
    starting: dict[int, tuple[Node, float]] = {}
    for row in snapshot.rows().tolist():
        node = snapshot.node(row)
        created = node.metadata.creation_timestamp
        if created and any(taint.key in args.startup_taints for taint in node.spec.taints):
            until = parse_time(created).timestamp() + args.starting_node_seconds
            if until > cycle.now:
                starting[row] = node, until
    if not starting:
        return None
    try:
        for node, _ in starting.values():
            rest = tuple(one for one in node.spec.taints if one.key not in args.startup_taints)
            spec = msgspec.structs.replace(node.spec, taints=rest)
            snapshot.set_node(msgspec.structs.replace(node, spec=spec))
        made, status, _ = cycle.attempt(cycle.pods)
        cycle.forget(made)
    finally:
        for node, _ in starting.values():
            snapshot.set_node(node)
    used = sorted({one.row for one in made if one.row in starting})
    if not status.ok or not used:
        return None
    names = tuple(snapshot.node_name(row) for row in used)
    return Waits(names, min(starting[row][1] for row in used))


def _nominated(
    snapshot: Snapshot,
    pods: Sequence[PodToPlace],
    refusal: GroupDecision,
    nominations: Sequence[Nomination | None],
) -> GroupDecision:
    """Return the refusal with the nominations of its pods, and add these to the snapshot."""
    found: list[Decision] = []
    for pod, decision, nomination in zip(pods, refusal.decisions, nominations, strict=True):
        if nomination is None:
            found.append(decision)
            continue
        found.append(msgspec.structs.replace(decision, nomination=nomination))
        if nomination.node_name:
            snapshot.nominate(pod.key, pod.info, nomination.node_name)
    reasons = (*refusal.status.reasons, "pod group is waiting for preemption to complete")
    status = Status(Code.UNSCHEDULABLE, reasons)
    return msgspec.structs.replace(refusal, decisions=found, status=status)


def _priority(group: PodGroup, pods: Sequence[PodToPlace]) -> int:
    if group.spec.priority is not None:
        return group.spec.priority
    return max(pod.info.priority for pod in pods)


def _looks_at_others(info: PodInfo) -> bool:
    """Return whether a pod has hard rules about pods of other nodes, or volumes or devices."""
    return bool(
        info.affinity or info.anti_affinity or info.pod.spec.topology_spread_constraints
        or info.claims or info.pod.spec.resource_claims
    )  # fmt: skip


def _room_alone(
    snapshot: Snapshot, framework: Framework, infos: Sequence[PodInfo]
) -> list[int] | None:
    """Return the columns of amounts that alone decide whether placed pods fit beside a victim.

    ``None``: something else may decide, such as ports, volumes, or plugins of other packages.
    """
    priority = min(info.priority for info in infos)
    fit = framework.request_filter
    if (
        fit is None
        or framework.filters_by_itself
        or snapshot.nominated_pods(priority, None)
        or any(
            info.host_ports or info.volumes or info.may_claim or _looks_at_others(info)
            for info in infos
        )
    ):
        return None
    return sorted({column for info in infos for _, column in fit.request_checks(info, snapshot)})

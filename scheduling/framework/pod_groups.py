"""The rules of pod groups on plain values: when to try one, its outcome, and its preemption.

Nothing here reads a snapshot: the engine (``engine.groups``) calls these with its pods, and the
conformance vectors with theirs. Sources: pkg/scheduler/schedule_one_podgroup.go,
framework/preemption/podgrouppreemption.go, and the plugins gangscheduling, topologyaware and
podgrouppodscount, v1.36.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod_group import (
    INITIALLY_SCHEDULED,
    SCHEDULED,
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    GroupKey,
    PodGroup,
)
from scheduling.framework.status import SUCCESS, Code, Status, error
from scheduling.framework.types import PodInfo, group_key

Pod = TypeVar("Pod")
Choice = TypeVar("Choice")
Key = TypeVar("Key", bound=Hashable)

GANG_SCHEDULING: Final = "GangScheduling"
MAX_SCORE: Final = 100
_NOT_ENOUGH: Final = "waiting for minCount pods from a gang to appear in scheduling queue"
_NOT_SCHEDULED: Final = "waiting for minCount pods from a gang to be scheduled"
_UNSCHEDULABLE: Final = Status(Code.UNSCHEDULABLE, ("pod group is unschedulable",))
_PREEMPTING: Final = "pod group is waiting for preemption to complete"
_CONSTRAINED: Final = (
    "workload aware preemption is not supported for pod groups with scheduling constraints"
)
_NO_PREEMPTION: Final = (
    "default preemption plugin is not registered, workload aware preemption is disabled"
)
NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"
NEVER: Final = "not eligible due to preemptionPolicy=Never."


class GroupTable:
    """The PodGroups that a snapshot knows, and the scheduling classes of each group's pods."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, PodGroup] = {}
        self._classes: dict[GroupKey, list[int]] = {}
        self._together: dict[GroupKey, PodGroup] = {}

    def __bool__(self) -> bool:
        """Return whether any pod of a group is known; otherwise callers skip this table."""
        return bool(self._classes)

    def set(self, group: PodGroup) -> PodGroup | None:
        """Add or replace a group; return the old one."""
        before = self._groups.get(group.key)
        self._groups[group.key] = group
        self._together.pop(group.key, None)
        if group.leaves_together:
            self._together[group.key] = group
        return before

    def remove(self, key: GroupKey) -> PodGroup | None:
        """Remove a group and return it, ``None`` if it was not known."""
        self._together.pop(key, None)
        return self._groups.pop(key, None)

    def find(self, key: GroupKey | None) -> PodGroup | None:
        """Return a group, ``None`` if there is none."""
        return None if key is None else self._groups.get(key)

    def note_class(self, key: GroupKey, index: int) -> None:
        """Note that a class's pods belong to a group."""
        self._classes.setdefault(key, []).append(index)

    def copy(self) -> "GroupTable":
        """Return a copy; it shares the group objects, which are immutable."""
        made = GroupTable()
        made._groups = dict(self._groups)
        made._together = dict(self._together)
        made._classes = {key: list(classes) for key, classes in self._classes.items()}
        return made

    def classes(self, key: GroupKey) -> list[int]:
        """Return the classes of a group's pods, as the snapshot numbers them."""
        return self._classes.get(key, [])

    def spares(self, other: PodInfo, pod: PodInfo) -> bool:
        """Return whether ``other`` is no victim for ``pod``, because its whole group would leave.

        Compares the priorities of the groups, where a pod's group has one.
        """
        key = group_key(other.pod) if self._together else None
        group = None if key is None else self._together.get(key)
        return group is not None and group.outranks(self._priority(pod))

    def spared_classes(self, pod: PodInfo) -> list[int]:
        """Return the classes whose pods are no victims for ``pod`` because of their groups."""
        if not self._together:
            return []
        priority = self._priority(pod)
        return [
            number
            for key, group in self._together.items()
            if group.outranks(priority)
            for number in self.classes(key)
        ]

    def _priority(self, pod: PodInfo) -> int:
        group = self.find(group_key(pod.pod))
        if group is None or group.spec.priority is None:
            return pod.priority
        return group.spec.priority


# When a group may be tried, and when enough of it has a place -----------------------------------


def pre_enqueue(key: GroupKey | None, group: PodGroup | None, known: int) -> Status:
    """Return whether a pod may be tried: its group exists, and has enough pods for the gang.

    ``known``: unfinished pods of the group, waiting or placed. Rule: gangscheduling.go
    ``PreEnqueue``.
    """
    if key is None:
        return SUCCESS
    if group is None:
        text = f'waiting for pods\'s pod group "{key[1]}" to appear in scheduling queue'
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (text,))
    if group.is_gang and known < group.min_count:
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (_NOT_ENOUGH,))
    return SUCCESS


def permit(group: PodGroup | None, placed: int) -> Status:
    """Return Success if enough of a group has a place, else Wait (gangscheduling.go ``Permit``).

    ``placed``: pods of the group that are assumed or bound, including the present one.
    """
    if group is None or not group.is_gang or placed >= group.min_count:
        return SUCCESS
    return Status(Code.WAIT, (_NOT_SCHEDULED,))


# The cycle of a group --------------------------------------------------------------------------


class MemberResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one pod of a group.

    ``host``: the node for it, also if victims must leave first. ``permit``: ``None`` if Permit
    allows the group, or was not run.
    """

    status: Status = SUCCESS
    host: str = ""
    nominated: str = ""
    requires_preemption: bool = False
    permit: Status | None = None


class GroupOutcome(msgspec.Struct, frozen=True):
    """The outcome of a group's cycle; pods without a result have the group's status."""

    status: Status
    results: tuple[MemberResult, ...] = ()
    waiting_on_preemption: bool = False


def try_members(pods: Iterable[Pod], attempt: Callable[[Pod], MemberResult]) -> GroupOutcome:
    """Try the pods of a group in order, and return the outcome for the group.

    A rejected pod does not end the group, an error does. ``attempt`` assumes the pods that it
    places, so that later ones see them. Rule: ``podGroupSchedulingDefaultAlgorithm``.
    """
    results: list[MemberResult] = []
    status, waiting, preempts = _UNSCHEDULABLE, False, False
    for pod in pods:
        result = attempt(pod)
        results.append(result)
        if not result.status.ok and not result.requires_preemption:
            if result.status.code.rejects:
                continue
            text = f"failed to schedule other pod from a pod group: {result.status.message}"
            return GroupOutcome(error(text), tuple(results))
        preempts |= result.requires_preemption
        if result.permit is None or result.permit.ok:
            waiting = preempts
            reasons = (*_UNSCHEDULABLE.reasons, _PREEMPTING)
            status = Status(Code.UNSCHEDULABLE, reasons) if preempts else SUCCESS
    return GroupOutcome(status, tuple(results), waiting)


def best_placement(
    placements: Sequence[Choice],
    attempt: Callable[[Choice], GroupOutcome],
    score: Callable[[Sequence[tuple[Choice, GroupOutcome]]], Sequence[int]],
) -> GroupOutcome:
    """Try a group at each placement; return the outcome at the best, or why there is none.

    Of equal ones the first. Rule: ``podGroupSchedulingPlacementAlgorithm``.
    """
    found: list[tuple[Choice, GroupOutcome]] = []
    first: GroupOutcome | None = None
    for placement in placements:
        outcome = attempt(placement)
        if outcome.status.code is Code.ERROR:
            return outcome
        first = first or outcome
        if outcome.status.ok or outcome.waiting_on_preemption:
            found.append((placement, outcome))
    if not found:
        if first is None:
            return GroupOutcome(Status(Code.UNSCHEDULABLE, ("no feasible placements found",)))
        text = f"0/{len(placements)} placements are available"
        text = f"{text}, first placement status: {first.status.message}"
        return GroupOutcome(Status(Code.UNSCHEDULABLE, (text,)), first.results)
    if len(found) == 1:
        return found[0][1]
    scores = normalize_placement_scores(score(found))
    return found[max(range(len(found)), key=lambda place: scores[place])][1]


def split(outcome: GroupOutcome, pods: Sequence[Key]) -> tuple[list[Key], list[Key], list[Key]]:
    """Return the pods that are bound, those that wait for victims to leave, and those that failed.

    Rule: ``submitPodGroupAlgorithmResult``.
    """
    bound: list[Key] = []
    preempting: list[Key] = []
    failed: list[Key] = []
    status, waiting = outcome.status, outcome.waiting_on_preemption
    for place, pod in enumerate(pods):
        result = outcome.results[place] if place < len(outcome.results) else None
        if result is None or status.code is Code.ERROR:
            failed.append(pod)
        elif result.status.ok:
            (bound if status.ok else preempting if waiting else failed).append(pod)
        else:
            (preempting if result.requires_preemption and waiting else failed).append(pod)
    return bound, preempting, failed


def condition_of(status: Status) -> Manifest:
    """Return the condition that a cycle of a group writes, without its time."""
    reason = SCHEDULED if status.ok else UNSCHEDULABLE
    if not status.ok and not status.code.rejects:
        reason = SCHEDULER_ERROR
    return {
        "type": INITIALLY_SCHEDULED,
        "status": "True" if status.ok else "False",
        "reason": reason,
        "message": status.message,
    }


def order_key(priority: int, since: float, pod_id: int) -> tuple[int, float, int]:
    """Return the sort key of a pod in its group: by priority, then by time in the queue.

    Rule: ``podGroupInfoForPod``.
    """
    return -priority, since, pod_id


# Placements ------------------------------------------------------------------------------------


Domain = tuple[tuple[str, str], ...]
"""Labels of nodes and their values, of the widest level first; empty: the whole cluster."""
Part = tuple[Domain, int]


class Placement(msgspec.Struct, frozen=True):
    """Domains for a group, each with the number of its pods, in order, that go there.

    Without parts all pods may go anywhere.
    """

    parts: tuple[Part, ...] = ()

    @classmethod
    def of(cls, labels: Mapping[str, str], pods: int) -> "Placement":
        """Return the placement of ``pods`` pods on nodes with these labels."""
        return cls(((tuple(labels.items()), pods),))

    @property
    def name(self) -> str:
        """The value of the narrowest label of the first domain."""
        return self.parts[0][0][-1][1] if self.parts and self.parts[0][0] else ""


EVERYWHERE: Final = Placement()


def generate_placements(
    group: PodGroup,
    scheduled: Mapping[str, str],
    parent: Mapping[str, Mapping[str, str]],
    others: Mapping[str, Mapping[str, str]],
    name: str = "",
) -> tuple[dict[str, list[str]], Status]:
    """Return the topology domains in which a group may be placed, each with its nodes.

    ``scheduled``: the group's placed pods and their nodes; they fix the domain. ``parent``: labels
    of the nodes that may be used, ``others`` of all other nodes. Rule: topology_placement.go.
    """
    if not group.topology_keys:
        return {name: list(parent)}, SUCCESS
    key = group.topology_keys[0]
    fixed: set[str] = set()
    for pod, node in scheduled.items():
        labels = parent.get(node, others.get(node))
        if labels is None:
            why = f'getting node for pod {pod}: nodeinfo not found for node name "{node}"'
            return {}, _undetermined(why)
        if key not in labels:
            return {}, _undetermined(f"no topology domain found for pod {pod}")
        fixed.add(labels[key])
    if len(fixed) > 1:
        why = f"more than 1 domain found for pod group: {', '.join(sorted(fixed))}"
        return {}, _undetermined(why)
    domains: dict[str, list[str]] = {}
    for node, labels in parent.items():
        if key in labels and (not fixed or labels[key] in fixed):
            domains.setdefault(labels[key], []).append(node)
    return domains, SUCCESS


def _undetermined(why: str) -> Status:
    return error(f"cannot determine domain for already scheduled pods: {why}")


def normalize_placement_scores(scores: Sequence[int]) -> list[int]:
    """Return the scores, scaled so that the best is 100. Rule: helper ``DefaultNormalizeScore``."""
    most = max(scores, default=0)
    return [MAX_SCORE * score // most for score in scores] if most else list(scores)


# Whom a group may displace ---------------------------------------------------------------------


class Victim(msgspec.Struct, Generic[Pod], frozen=True, kw_only=True):
    """Pods that leave together: one pod, or a group whose mode is ``all``.

    ``in_group``: they belong to a group, whatever its mode. ``started_at``: of the pod that started
    first, seconds since the epoch.
    """

    pods: tuple[Pod, ...] = ()
    priority: int = 0
    in_group: bool = False
    started_at: float = 0.0

    @property
    def importance(self) -> tuple[int, bool, float, int]:
        """A key that is higher the more important the victim is.

        By priority; then a group before a single pod, the earlier start, the larger group. Rule:
        ``moreImportantVictim``.
        """
        return self.priority, self.in_group, -self.started_at, len(self.pods)


def victims_of(
    pods: Iterable[Pod],
    *,
    key_of: Callable[[Pod], GroupKey | None],
    group_of: Callable[[Pod], PodGroup | None],
    priority_of: Callable[[Pod], int],
    started_at: Callable[[Pod], float],
) -> list[Victim[Pod]]:
    """Return victims as units: a group whose mode is ``all`` is one, at the group's priority.

    ``group_of`` returns ``None`` for an unknown group: its pods leave one by one.
    """
    found: list[Victim[Pod]] = []
    together: dict[GroupKey, list[Pod]] = {}
    priorities: dict[GroupKey, int] = {}
    for pod in pods:
        key = key_of(pod)
        group = None if key is None else group_of(pod)
        if key is None or group is None or not group.leaves_together:
            one = Victim(
                pods=(pod,), priority=priority_of(pod), in_group=key is not None,
                started_at=started_at(pod),
            )  # fmt: skip
            found.append(one)
            continue
        together.setdefault(key, []).append(pod)
        if group.spec.priority is None:
            priorities[key] = max(priorities.get(key, priority_of(pod)), priority_of(pod))
        else:
            priorities[key] = group.spec.priority
    found += [
        Victim(
            pods=tuple(members), priority=priorities[key], in_group=True,
            started_at=min(map(started_at, members)),
        )
        for key, members in together.items()
    ]  # fmt: skip
    return found


def preemption_problem(
    key: GroupKey, group: PodGroup | None, *, registered: bool = True
) -> Status | None:
    """Return why a group may not preempt pods, ``None`` if it may.

    Rule: ``runWorkloadAwarePreemption``.
    """
    if not registered:
        return Status(Code.UNSCHEDULABLE, (_NO_PREEMPTION,))
    if group is None:
        text = f'podgroup.scheduling.k8s.io "{key[1]}" not found'
        return error(f"failed to get pod group object: {text}")
    if group.topology_keys:
        return Status(Code.UNSCHEDULABLE, (_CONSTRAINED,))
    return None


class GroupVictims(msgspec.Struct, Generic[Pod], frozen=True):
    """Victims that leave so that a group fits, the most important first.

    ``violations``: how many of their pods would violate a disruption budget.
    """

    victims: tuple[Victim[Pod], ...] = ()
    violations: int = 0
    status: Status = SUCCESS


def select_victims(
    victims: Iterable[Victim[Pod]],
    *,
    priority: int,
    policies: Iterable[str | None],
    without: Callable[[Sequence[Victim[Pod]]], Status],
    reprieve: Callable[[Victim[Pod]], bool],
    violating: Callable[[Sequence[Victim[Pod]]], Sequence[int]],
) -> GroupVictims[Pod]:
    """Return the victims for a group: as few and of as low a priority as possible.

    First all victims of lower priority are removed. Then each is put back if the group still fits
    with it: first those that violate budgets, and the most important first within both parts. Rule:
    ``selectVictimsOnDomain``.

    Args:
        victims: all possible victims, of any priority.
        priority: the group's.
        policies: the preemption policies of its pods.
        without: removes these victims; returns whether the group fits then.
        reprieve: puts a victim back and returns True if the group still fits; else removes it again
            and returns False.
        violating: returns for each victim, in order, how many of its pods violate a budget.
    """
    if any(policy == "Never" for policy in policies):
        return GroupVictims(status=Status(Code.UNSCHEDULABLE, (NEVER,)))
    able = [one for one in victims if one.priority < priority]
    if not able:
        return GroupVictims(status=Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (NO_VICTIMS,)))
    status = without(able)
    if not status.ok:
        return GroupVictims(status=status)
    able.sort(key=lambda one: one.importance, reverse=True)
    counts = violating(able)
    ordered = [place for place, count in enumerate(counts) if count]
    ordered += [place for place, count in enumerate(counts) if not count]
    leaving = [place for place in ordered if not reprieve(able[place])]
    violations = sum(counts[place] for place in leaving)
    return GroupVictims(tuple(able[place] for place in sorted(leaving)), violations)

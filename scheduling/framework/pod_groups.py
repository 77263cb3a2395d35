"""The rules of groups on plain values: when to try one, its outcome, and preemption for it.

Nothing here knows a snapshot. The engine (``engine.groups``) asks these rules about its pods, and
the conformance vectors about theirs. Sources: pkg/scheduler/schedule_one_podgroup.go, framework/
preemption/podgrouppreemption.go, and the plugins gangscheduling, topologyaware and
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
    """The PodGroups that a snapshot knows, and which scheduling classes are of each group."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, PodGroup] = {}
        self._classes: dict[GroupKey, list[int]] = {}
        self._together: dict[GroupKey, PodGroup] = {}

    def __bool__(self) -> bool:
        """Whether any pod of a group is known; without one nothing else here is called."""
        return bool(self._classes)

    def set(self, group: PodGroup) -> PodGroup | None:
        """Add or replace a group; return what it replaced."""
        before = self._groups.get(group.key)
        self._groups[group.key] = group
        self._together.pop(group.key, None)
        if group.leaves_together:
            self._together[group.key] = group
        return before

    def remove(self, key: GroupKey) -> PodGroup | None:
        """Forget a group; return it, ``None`` if it was not known."""
        self._together.pop(key, None)
        return self._groups.pop(key, None)

    def find(self, key: GroupKey | None) -> PodGroup | None:
        """Return a group, ``None`` if there is none."""
        return None if key is None else self._groups.get(key)

    def note_class(self, key: GroupKey, index: int) -> None:
        """Note that pods of a class are of a group."""
        self._classes.setdefault(key, []).append(index)

    def copy(self) -> "GroupTable":
        """Return a table of its own; groups are shared, as they never change."""
        made = GroupTable()
        made._groups = dict(self._groups)
        made._together = dict(self._together)
        made._classes = {key: list(classes) for key, classes in self._classes.items()}
        return made

    def classes(self, key: GroupKey) -> list[int]:
        """Return the classes of a group's pods, as the snapshot numbers them."""
        return self._classes.get(key, [])

    def spares(self, other: PodInfo, pod: PodInfo) -> bool:
        """Return whether a pod is no victim for ``pod``: all of its group would leave with it.

        The priority of such a group counts, if it has one, and likewise that of ``pod``'s group.
        """
        key = group_key(other.pod) if self._together else None
        group = None if key is None else self._together.get(key)
        return group is not None and group.outranks(self._priority(pod))

    def spared_classes(self, pod: PodInfo) -> list[int]:
        """Return the classes of the pods that make no room for ``pod`` because of their group."""
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
    """Return whether enough of a group has a place. Rule: gangscheduling.go ``Permit``.

    ``placed``: pods of the group that are assumed or bound, with the one that is asked about.
    """
    if group is None or not group.is_gang or placed >= group.min_count:
        return SUCCESS
    return Status(Code.WAIT, (_NOT_SCHEDULED,))


# The cycle of a group --------------------------------------------------------------------------


class MemberResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one pod of a group.

    ``host``: where it would go, also once victims are gone. ``permit``: ``None`` where Permit lets
    the group go, or was not asked.
    """

    status: Status = SUCCESS
    host: str = ""
    nominated: str = ""
    requires_preemption: bool = False
    permit: Status | None = None


class GroupOutcome(msgspec.Struct, frozen=True):
    """The outcome of a cycle; for pods behind the last result the group's status holds."""

    status: Status
    results: tuple[MemberResult, ...] = ()
    waiting_on_preemption: bool = False


def try_members(pods: Iterable[Pod], attempt: Callable[[Pod], MemberResult]) -> GroupOutcome:
    """Try the pods of a group in order, and return the outcome for the group.

    A pod that is rejected does not end the group, an error does. ``attempt`` assumes the pods that
    it places, for those behind them. Rule: ``podGroupSchedulingDefaultAlgorithm``.
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

    The first of the best is taken. Rule: ``podGroupSchedulingPlacementAlgorithm``.
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
    """Return which pods are bound, which wait for victims to end, and which failed.

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
    """Return the sort key of a pod in its group: by priority, then by how long it waits.

    Rule: ``podGroupInfoForPod``.
    """
    return -priority, since, pod_id


# Placements ------------------------------------------------------------------------------------


Domain = tuple[tuple[str, str], ...]
"""Labels of nodes and their values, of the widest level first; empty: the whole cluster."""
Part = tuple[Domain, int]


class Placement(msgspec.Struct, frozen=True):
    """Domains in which a group may be, each with how many of its pods in order go there.

    Without parts all pods may go anywhere.
    """

    parts: tuple[Part, ...] = ()

    @classmethod
    def of(cls, labels: Mapping[str, str], pods: int) -> "Placement":
        """Return the placement of this many pods on nodes with these labels."""
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
    """Return the topology domains in which a group may be, each with its nodes.

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

    ``in_group``: they are of a group, whatever its mode. ``started_at``: of the pod that started
    first, seconds since the epoch.
    """

    pods: tuple[Pod, ...] = ()
    priority: int = 0
    in_group: bool = False
    started_at: float = 0.0

    @property
    def importance(self) -> tuple[int, bool, float, int]:
        """A key that is higher the more important the victim is.

        A group is worth more than a single pod, then what began earlier, then the larger group.
        Rule: ``moreImportantVictim``.
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

    ``group_of`` returns ``None`` where there is no such group: its pods leave one by one.
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
    """Return why no pod may be preempted for a group, ``None`` where one may.

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
    """Return the victims of a group: as few and of as low a priority as possible.

    First all victims of lower priority are taken away. Then each is put back if the group still
    fits with it: first those that violate budgets, and among these and among the others the most
    important first. Rule: ``selectVictimsOnDomain``.

    Args:
        victims: everybody who may leave, of any priority.
        priority: the group's.
        policies: the preemption policies of its pods.
        without: takes these victims away; returns whether the group fits then.
        reprieve: puts a victim back and returns True if the group still fits; else takes it away
            again and returns False.
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

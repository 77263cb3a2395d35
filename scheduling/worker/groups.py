"""Pod groups that are decided and not bound yet, and the conditions of their PodGroups.

``Groups`` remembers which pods were placed together until their bindings are submitted, and writes
the condition ``PodGroupInitiallyScheduled``: True once the group's pods are bound, False if they
are refused; when no pod is ready to be tried, or after a second.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Final, cast

import msgspec
import structlog

from clusterstate.actions.kinds import pod_groups
from clusterstate.actions.pods.bind import Binding
from clusterstate.change_log import wake
from clusterstate.objects.values.actor import KUBE_SCHEDULER, acts_as
from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.pod_group import GroupKey
from scheduling.engine.groups import GroupDecision
from scheduling.engine.queue.scheduling_queue import PriorityQueue
from scheduling.engine.reference.cycle import PodToPlace
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.pod_groups import condition_of
from scheduling.framework.runtime import Framework
from scheduling.framework.status import SUCCESS, Code, Status
from scheduling.framework.types import PodInfo
from scheduling.packing import process
from scheduling.packing.gang_facts import assignment, gang_problem, is_worth_it
from scheduling.packing.gangs import FOUND, IMPOSSIBLE, GangSearch
from scheduling.worker import measuring

logger = structlog.get_logger(__name__)

_AT_ONCE: Final = 500
"""The most conditions written in one transaction."""


@dataclass(eq=False)
class _Gang:
    """Pods that were placed together and are not bound yet.

    ``ready``: the bindings that can be written; other pods may still wait, such as for volumes.
    """

    number: int
    key: GroupKey
    pods: frozenset[int]
    ready: list[Binding] = field(default_factory=list)


class Groups:
    """One scheduler's record of the groups that it decided."""

    def __init__(self) -> None:
        self._gang_of: dict[int, _Gang] = {}
        """Pods that were placed together and are not bound yet."""
        self._number = 0
        # Conditions that are not written yet, in order, with the status and the time.
        self._unwritten: OrderedDict[GroupKey, tuple[Status, float]] = OrderedDict()
        self._told: dict[GroupKey, str] = {}
        self._search: GangSearch | None = GangSearch() if process.is_installed() else None
        # Of the groups that are searched: their pods, the refusal, at which revision it was, and
        # the nodes that the answer numbers.
        self._searched: dict[GroupKey, tuple[Sequence[PodToPlace], Status, int, list[str]]] = {}
        # Groups refused again, on a newer state of the cluster, before their search ended.
        self._outdated: set[GroupKey] = set()
        self._assigned: dict[GroupKey, Mapping[Hashable, str]] = {}
        self._again_at: dict[GroupKey, float] = {}

    def __bool__(self) -> bool:
        """Whether there are conditions to write."""
        return bool(self._unwritten)

    def note(self, decision: GroupDecision, now: float) -> None:
        """Remember the decision about a group until its pods and its condition are written."""
        measuring.decided_group(decision)
        self._again_at.pop(decision.key, None)
        if decision.again_at is not None:
            self._again_at[decision.key] = decision.again_at
        if not decision.placed:
            self._tell(decision.key, decision.status, now)
            return
        self._number += 1
        placed = frozenset(cast("int", one.key) for one in decision.decisions if one.scheduled)
        gang = _Gang(self._number, decision.key, placed)
        self._gang_of.update(dict.fromkeys(placed, gang))

    def gather(self, bindings: Sequence[Binding], *, leaning: bool) -> list[Binding]:
        """Return the bindings to submit now: of each gang all or none.

        ``leaning``: some bindings depend on others of the batch, so all are bound in one statement.
        """
        if not self._gang_of:
            return list(bindings)
        found: list[Binding] = []
        for one in bindings:
            gang = self._gang_of.get(one.pod_id)
            if gang is None:
                found.append(one)
                continue
            number = gang.number
            group = 0 if leaning else number
            gang.ready.append(msgspec.structs.replace(one, gang=number, group=group, leans=True))
            if len(gang.ready) == len(gang.pods):
                found += gang.ready
                gang.ready = []
        return found

    def broken(self, is_assumed: Callable[[int], bool]) -> list[int]:
        """Return the placed pods to take back because another pod of their gang was not bound."""
        gangs = {gang.number: gang for gang in self._gang_of.values() if gang.ready}
        gone = [gang for gang in gangs.values() if not all(map(is_assumed, gang.pods))]
        for gang in gone:
            self._drop(gang)
        return [pod_id for gang in gone for pod_id in sorted(gang.pods) if is_assumed(pod_id)]

    def bound(self, pod_ids: Iterable[int], now: float) -> None:
        """Note which pods are bound; the condition of their groups becomes True."""
        for pod_id in pod_ids if self._gang_of else ():
            if (gang := self._gang_of.get(pod_id)) is not None:
                self._drop(gang)
                self._tell(gang.key, SUCCESS, now)

    def came_back(self, pod_ids: Iterable[int]) -> None:
        """Drop the gangs of pods whose bind was refused: a gang is bound whole or not at all."""
        for pod_id in pod_ids if self._gang_of else ():
            if (gang := self._gang_of.get(pod_id)) is not None:
                self._drop(gang)

    def _drop(self, gang: "_Gang") -> None:
        for pod_id in gang.pods:
            if self._gang_of.get(pod_id) is gang:
                del self._gang_of[pod_id]

    def forget(self) -> None:
        """Forget the pods that were placed and not bound, after the mirror was loaded again."""
        self._gang_of = {}

    # --- groups that wait for starting nodes ------------------------------------------------------

    def next_due(self) -> float | None:
        """Return when the first group that waits for starting nodes is to be tried again."""
        return min(self._again_at.values(), default=None)

    def try_again(self, queue: PriorityQueue, now: float) -> None:
        """Activate the groups that have waited long enough for starting nodes."""
        for key in [key for key, at in self._again_at.items() if at <= now]:
            del self._again_at[key]
            queue.activate(queue.member_ids(key), now)

    # --- the search for a placement ---------------------------------------------------------------

    def begin(
        self, queue: PriorityQueue, info_of: Callable[[int], PodInfo], now: float, *, every: bool
    ) -> None:
        """Activate waiting groups for which a former process may have searched a placement.

        The search ended with that process, and nothing else would wake them. ``info_of`` returns a
        class by its id. ``every``: all groups, since some may wait for starting nodes.
        """
        for key in queue.group_keys() if every or self._search is not None else ():
            pods = queue.member_ids(key)
            if every or is_worth_it(info_of(queue.pod(pod_id).class_id) for pod_id in pods):
                queue.activate(pods, now)

    @property
    def is_searching(self) -> bool:
        """Whether a search is still running."""
        return bool(self._search)

    def assigned(self, key: GroupKey) -> Mapping[Hashable, str]:
        """Return, by pod, the nodes that a search found for a group, and forget them."""
        return self._assigned.pop(key, {}) if self._assigned else {}

    def search(
        self,
        snapshot: Snapshot,
        framework: Framework,
        pods: Sequence[PodToPlace],
        decision: GroupDecision,
    ) -> None:
        """Start a search for a placement that deciding the group's pods in order may have missed.

        The search runs in another process. None is started for a group that preempts pods, that has
        a search running, or that was searched and nothing changed since; nor under compatibility
        with 1.36.
        """
        key, group = decision.key, snapshot.groups.find(decision.key)
        if (
            self._search is None
            or group is None
            or snapshot.compatibility < Compatibility.V1_37
            or decision.status.code is not Code.UNSCHEDULABLE
            or any(one.victims for one in decision.decisions)
            or not is_worth_it(pod.info for pod in pods)
        ):
            return
        known = self._searched.get(key)
        if known is not None and key in self._search:
            if known[2] != snapshot.revision:
                self._outdated.add(key)
            return
        if known is not None and known[2] == snapshot.revision and len(known[0]) == len(pods):
            return
        placed = len(snapshot.members_of(key))
        problem = gang_problem(snapshot, framework, group, pods, placed)
        if problem is not None:
            self._searched = {
                other: one
                for other, one in self._searched.items()
                if other in self._search or one[2] == snapshot.revision
            }
            names = [snapshot.node_name(row) for row in snapshot.rows().tolist()]
            self._searched[key] = pods, decision.status, snapshot.revision, names
            self._search.ask(key, problem)

    def hear(self, queue: PriorityQueue, now: float) -> None:
        """Take the results of searches; activate the groups for which a placement was found.

        A group is also activated if the result is older than the group's last refusal. The
        conditions of all other groups say that there is no placement, or that none was found in
        time.
        """
        if self._search is None or not self._search:
            return
        for found, answer in self._search.answers():
            measuring.searched(answer.outcome)
            key = cast("GroupKey", found)
            pods, refusal, _, names = self._searched[key]
            is_outdated = key in self._outdated
            self._outdated.discard(key)
            if answer.outcome == FOUND:
                self._assigned[key] = assignment(names, pods, answer)
            if answer.outcome == FOUND or is_outdated:
                queue.activate(queue.member_ids(key), now)
                continue
            why = "no placement exists (proof)"
            if answer.outcome != IMPOSSIBLE:
                why = f"no placement was found in {self._search.seconds:g} s"
            text = f"{refusal.message}; {why}"
            self._tell(key, Status(refusal.code, (text,)), now)

    def close(self) -> None:
        """End the search process."""
        if self._search is not None:
            self._search.close()

    def _tell(self, key: GroupKey, status: Status, now: float) -> None:
        text = "" if status.ok else f"{status.code.wire}: {status.message}"
        if self._told.get(key) == text:
            return
        if len(self._told) > 100_000:
            self._told.clear()
        self._told[key] = text
        self._unwritten.pop(key, None)
        self._unwritten[key] = status, now

    def is_due(self, now: float) -> bool:
        """Whether a condition has been waiting to be written for a second."""
        return bool(self._unwritten) and now >= next(iter(self._unwritten.values()))[1] + 1.0

    @acts_as(KUBE_SCHEDULER)
    def write(self, most: int = _AT_ONCE) -> int:
        """Write the ``most`` oldest conditions of PodGroups; return their number.

        Raises:
            DatabaseError: none was written; a later call writes them.
        """
        oldest = dict(islice(self._unwritten.items(), most))
        with wake.without_scheduler():
            pod_groups.set_conditions(
                {
                    key: (condition_of(status), datetime.fromtimestamp(at, UTC))
                    for key, (status, at) in oldest.items()
                }
            )
        for key in oldest:
            del self._unwritten[key]
        return len(oldest)

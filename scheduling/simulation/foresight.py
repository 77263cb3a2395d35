"""Predicts a cluster without further writes: evictions, replacement pods and their nodes.

``Foresight`` simulates the future on a snapshot, event by event. A pod that leaves keeps its room
until its grace period ends; its controller creates another one, at once or when the pod is gone.
Waiting pods are in the scheduler's own queue, in virtual time (``simulation.cluster``): events wake
them, backoffs and the periodic flush work, and the live scheduler's core decides batches. A pod
that fits nowhere may preempt: its victims leave as in the live system, and it is decided again when
they are gone.

Pure: no clock, no database. Times are seconds since the start of the simulation, except those of
queue places, which are seconds since the epoch.

It does not predict pods that finish, pods that clients create meanwhile, or slow kubelets. If
nothing changes, refused pods are tried some thousand times and no more, because the answer would be
the same.
"""

import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

import msgspec

from scheduling.engine import deciding
from scheduling.engine.queue.pending import QueuePlace, Stage
from scheduling.engine.reference.decision import Decision
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.types import PodInfo, PodRecord
from scheduling.simulation import claims
from scheduling.simulation.cluster import VirtualCluster
from scheduling.simulation.leaving import BudgetCharges

NEVER, AT_ONCE, WHEN_GONE = "never", "atOnce", "whenGone"
"""When a pod's controller replaces it."""
PREEMPTED = "Preempted"
_WORTH_A_CACHE = 16
_FIRST_ID = 2**60
"""The first id of pods that are not in the database; they sort after those that are."""


class Leaver(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that leaves: when, how long it keeps its room, and whether it is created again.

    ``key``: its key in the snapshot. ``due``: seconds from now; ``grace``: seconds from then until
    it is gone. ``held_by_budgets``: it leaves only if its disruption budgets allow (the eviction
    API). ``grace_given``: the grace period is not the pod's own. ``target``: the node to which its
    replacement is nominated, empty without one. ``by_step``: a step of the plan makes it leave,
    and not a controller.
    """

    key: Hashable
    title: str
    due: float
    grace: float
    cause: str
    rule: str = ""
    comes_again: str = NEVER
    held_by_budgets: bool = False
    grace_given: bool = False
    target: str = ""
    by_step: bool = False


class Waiter(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that waits for a node, at ``place`` in the live queue; ``None``: it is new.

    ``replaces``: the title of the pod that it replaces, or empty. ``comes_again`` and
    ``grace_seconds``: those of the pod itself, if it leaves. ``generation``: how many pods it
    replaces in succession. ``nominated``: the node to which it is nominated, if it is new.
    """

    title: str
    info: PodInfo
    place: QueuePlace | None = None
    replaces: str = ""
    nominated: str = ""
    comes_again: str = NEVER
    grace_seconds: float = 0.0
    generation: int = 0


class LeavingPod(msgspec.Struct, kw_only=True):
    """A pod that leaves after ``at`` seconds; ``None`` if ``blocked_by`` prevents it."""

    leaver: Leaver
    node_name: str
    at: float | None = None
    gone_at: float | None = None
    blocked_by: str = ""
    by: str = ""


class LandedPod(msgspec.Struct, kw_only=True):
    """The node of a pod that waited; empty if it found none, with the reason in ``message``."""

    waiter: Waiter
    node_name: str = ""
    at: float = 0.0
    message: str = ""
    total: int = 0
    margin: int | None = None
    ties: int = 0
    feasible: int = 0
    evaluated: int = 0
    nominated: str = ""
    rejected_by: tuple[str, ...] = ()


Details = Callable[[PodRecord], tuple[str, float, str]]
"""Returns title, grace seconds and time of replacement of a preempted pod."""
Deadline = Callable[[PodInfo, str], tuple[float, str] | None]
"""Returns the seconds that a pod may stay on a node, and the rule; ``None``: without limit."""
TAINTED = "Taint"

_EDIT, _LEAVE, _GONE = range(3)
_MOST_GENERATIONS = 20
"""The most replacements in succession: pods that taints evict at once would never end."""
_MOST_REPEATED = 2000
"""The most repeated attempts between two events on an unchanged cluster."""
_QUIET_SECONDS = 60.0
"""Seconds after the last change for which refused pods are still tried, or two backoffs."""
_LONGEST_SECONDS = 600.0
"""Seconds after the last due event for which pods that preempt each other are simulated."""


class Foresight:
    """Simulates the future of a snapshot, and changes the snapshot.

    Args:
        snapshot: the cluster at the beginning; pods' ``key`` is a key of it.
        configuration: the scheduler's profiles.
        now: when the future begins, seconds since the epoch.
        details: returns title, grace period and successor of a preempted pod.
        deadline: returns how long a pod may stay on a node with NoExecute taints.
        unready: keys of pods that are not ready, which budgets do not count.
        seed: for the random choice among equal nodes.
        go_on: raises if the run takes too long.

    Raises:
        ConfigurationError: a profile's plugin does not exist or lacks the extension point.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        configuration: KubeSchedulerConfiguration,
        *,
        now: float,
        details: Details,
        deadline: Deadline = lambda info, node_name: None,
        unready: Collection[Hashable] = (),
        seed: int = 0,
        go_on: Callable[[], object] = lambda: None,
    ) -> None:
        self.cluster = VirtualCluster(
            snapshot, configuration, seeds=lambda: seed, observer=self, now=now
        )
        self._snapshot = snapshot
        self._began = now
        self._details = details
        self._deadline = deadline
        self._go_on = go_on
        self._events: list[tuple[float, int, object]] = []
        self._count = 0
        self._waiters: dict[int, Waiter] = {}
        self._waiting: set[int] = set()
        self._landed_as: dict[Hashable, Waiter] = {}
        self._leaving: set[Hashable] = set()
        self._without_room: dict[Hashable, tuple[PodInfo | None, str]] = {}
        self._new = _FIRST_ID
        self._version = 0
        self._tried: dict[Hashable, int] = {}
        self._budgets = BudgetCharges(snapshot, unready)
        self._repeated = 0
        self.departures: list[LeavingPod] = []
        self.landed: dict[int, LandedPod] = {}

    def leave(self, leavers: Iterable[Leaver]) -> None:
        """Schedule when pods leave; pods that are due at the same time leave in this order."""
        for one in leavers:
            self._add(one.due, _LEAVE, one)

    def without_room(self, key: Hashable, info: PodInfo | None, node_name: str = "") -> None:
        """Note that a leaving pod takes no room: it has no node yet, or it has ended.

        ``info``: its class; ``None`` if unknown, and then no successor is predicted.
        """
        self._without_room[key] = info, node_name

    def gone(self, leavers: Iterable[Leaver]) -> None:
        """Schedule when terminating pods are gone: after ``due`` seconds."""
        for one in leavers:
            self._leaving.add(one.key)
            self._add(max(one.due, 0.0), _GONE, one)

    def wait(self, waiters: Iterable[Waiter]) -> None:
        """Add pods that wait for a node from the beginning."""
        for one in waiters:
            self._take_in(one)

    def at(self, seconds: float, change: Callable[[VirtualCluster], object]) -> None:
        """Schedule a change of the cluster after ``seconds``, before other events at that time."""
        self._add(seconds, _EDIT, change)

    def run(self, *, horizon: float) -> None:
        """Simulate the next ``horizon`` seconds."""
        pods = len(self._waiting) + sum(isinstance(one, Leaver) for _, _, one in self._events)
        if pods >= _WORTH_A_CACHE:
            deciding.warm_for(pods, self._snapshot.node_count)
        now = last = changed = 0.0
        quiet = max(_QUIET_SECONDS, 2 * self.cluster.backoff.longest)
        while True:
            event = self._events[0][0] if self._events else None
            due = self.cluster.next_due() if self._repeated < _MOST_REPEATED else None
            tried = None if due is None else max(round(due - self._began, 6), now)
            until = min(changed + quiet, last + _LONGEST_SECONDS)
            if event is None and tried is not None and tried > until:
                return
            moments = [one for one in (event, tried) if one is not None]
            if not moments or min(moments) > horizon:
                return
            now = min(moments)
            self.cluster.now = max(self.cluster.now, self._began + now)
            if tried == now and due is not None:  # which rounding may have put behind ``now``
                self.cluster.now = max(self.cluster.now, due)
            while self._events and self._events[0][0] <= now:
                last = now
                self._changed()
                self._happens(now, heapq.heappop(self._events))
            version = self._version
            while self._repeated < _MOST_REPEATED and self.cluster.cycle():
                self._go_on()
            if last == now or self._version != version:
                changed = now

    @property
    def _now(self) -> float:
        return max(round(self.cluster.now - self._began, 6), 0.0)

    def _changed(self) -> None:
        """Note that the cluster changed, so that refused pods may be tried again."""
        self._version += 1
        self._repeated = 0

    def _add(self, at: float, kind: int, what: object) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count + (kind << 40), what))

    def _happens(self, now: float, event: tuple[float, int, object]) -> None:
        _, number, what = event
        if isinstance(what, Leaver):
            if number >> 40 == _LEAVE:
                self._leave(now, what)
            else:
                self._is_gone(what)
        else:
            assert callable(what)
            what(self.cluster)

    # --- leaving ---------------------------------------------------------------------------------

    def _leave(self, now: float, leaver: Leaver, by: str = "") -> bool:
        """Let a pod leave, unless it is gone, terminating, or protected by a budget."""
        self._go_on()
        if leaver.key in self._without_room:
            self._withdraw(now, leaver)
            return True
        record = self._snapshot.pod(leaver.key)
        if record is None or leaver.key in self._leaving:
            return False
        node_name = self._snapshot.node_of(leaver.key) or ""
        departure = LeavingPod(leaver=leaver, node_name=node_name, by=by)
        self.departures.append(departure)
        if leaver.held_by_budgets:
            departure.blocked_by = self._budgets.refusal(record)
            if departure.blocked_by:
                return False
        self._leaving.add(leaver.key)
        departure.at, departure.gone_at = now, now + leaver.grace
        self._budgets.charge(record)
        self._changed()
        # The requests of its claims are known only while the pod exists.
        instead = self._another(record.info) if leaver.comes_again == AT_ONCE else None
        if leaver.grace > 0:
            self.cluster.terminate(record, preempted=leaver.cause == PREEMPTED)
            self._add(now + leaver.grace, _GONE, leaver)
        else:
            self._is_gone(leaver)
        if instead is not None:
            self._come_again(leaver, instead)
        return True

    def _withdraw(self, now: float, leaver: Leaver) -> None:
        """Remove a leaving pod that takes no room, with its nomination."""
        info, node_name = self._without_room.pop(leaver.key)
        self.departures.append(LeavingPod(leaver=leaver, node_name=node_name, at=now, gone_at=now))
        self.cluster.leave(leaver.key)
        self._changed()
        if info is not None and leaver.comes_again != NEVER:
            self._come_again(leaver, self._another(info))

    def _another(self, info: PodInfo) -> PodInfo:
        """Return the class of a pod's successor."""
        return claims.another(self._snapshot, info, f"again-{self._new + 1}")

    def _leave_again(self, pod_id: int, waiter: Waiter, node_name: str) -> None:
        """Let a placed pod leave when its node's taints evict it."""
        self._landed_as[pod_id] = waiter
        limit = self._deadline(waiter.info, node_name)
        if limit is None or waiter.generation >= _MOST_GENERATIONS:
            return
        seconds, rule = limit
        leaver = Leaver(
            key=pod_id,
            title=waiter.title,
            due=self._now + seconds,
            grace=waiter.grace_seconds,
            cause=TAINTED,
            rule=rule,
            comes_again=waiter.comes_again,
        )
        self._add(leaver.due, _LEAVE, leaver)

    def _is_gone(self, leaver: Leaver) -> None:
        record = self._snapshot.pod(leaver.key)
        if record is None:
            return
        instead = self._another(record.info) if leaver.comes_again == WHEN_GONE else None
        self.cluster.leave(leaver.key, leaver.title.rpartition("/")[2])
        self._changed()
        if instead is not None:
            self._come_again(leaver, instead)

    def _come_again(self, leaver: Leaver, info: PodInfo) -> None:
        """Add the successor of a pod to the waiting ones; its name is not known yet."""
        before = self._landed_as.get(leaver.key)
        self._take_in(
            Waiter(
                title=f"{info.namespace}/(instead of {leaver.title})",
                info=info,
                replaces=leaver.title,
                comes_again=leaver.comes_again,
                grace_seconds=leaver.grace,
                nominated=leaver.target,
                generation=1 if before is None else before.generation + 1,
            )
        )

    # --- waiting and landing ---------------------------------------------------------------------

    def _take_in(self, waiter: Waiter) -> None:
        """Add a pod to the queue."""
        place = waiter.place
        if place is None:
            self._new += 1
            pod_id = self._new
            has_profile = self.cluster.add(pod_id, waiter.info, nominated=waiter.nominated)
        else:
            pod_id = place.pod_id
            has_profile = self.cluster.take_in(waiter.info, place)
        self._waiters[pod_id] = waiter
        self._waiting.add(pod_id)
        message = ""
        if not has_profile:
            message = f'no profile is named "{waiter.info.scheduler_name}"'
        elif self.cluster.queue.place(pod_id).stage is Stage.GATED:
            message = self._gate(waiter.info)
        elif place is not None and place.attempts:
            message = (
                f"was rejected by {', '.join(place.rejected_by)}, and no predicted change helps"
            )
        if message:
            self.landed[pod_id] = LandedPod(
                waiter=waiter,
                at=self._now,
                message=message,
                rejected_by=() if place is None else place.rejected_by,
            )

    def _gate(self, info: PodInfo) -> str:
        """Return why PreEnqueue rejects a pod, empty if it does not."""
        try:
            return self.cluster.frameworks[info.scheduler_name].pre_enqueue(info).message
        except PluginFailed as failure:
            return failure.status.message

    # What the scheduler does (``cluster.Observer``).

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Store the decisions by pod, and count repeated refusals."""
        now = self._now
        for decision in decisions:
            key = decision.key
            assert isinstance(key, int)
            nomination = decision.nomination
            self.landed[key] = LandedPod(
                waiter=self._waiters[key],
                node_name=decision.node_name if decision.scheduled else "",
                at=now,
                message=decision.message,
                total=decision.total,
                margin=decision.margin,
                ties=decision.ties,
                feasible=decision.feasible,
                evaluated=decision.evaluated,
                rejected_by=decision.rejected_by,
                nominated="" if nomination is None else nomination.node_name,
            )
            if self._tried.get(key) == self._version:
                self._repeated += 1
            self._tried[key] = self._version

    def placed(self, pod_ids: Sequence[int], node_names: Sequence[str]) -> None:
        """Note that pods were bound; schedule their eviction from nodes with NoExecute taints."""
        if pod_ids:
            self._changed()
        for pod_id, node_name in zip(pod_ids, node_names, strict=True):
            self._waiting.discard(pod_id)
            self._leave_again(pod_id, self._waiters[pod_id], node_name)

    def refused(self, pod_id: int, decision: Decision) -> None:
        """Do nothing: ``Foresight`` has noted the refusal with the decision."""

    def preempts(self, pod_id: int, node_name: str, victims: Sequence[PodRecord]) -> None:
        """Let the victims of a pod leave."""
        waiter = self._waiters[pod_id]
        now = self._now
        for victim in victims:
            landed = self._landed_as.get(victim.key)
            if landed is None:
                title, grace, comes_again = self._details(victim)
            else:
                title, grace, comes_again = landed.title, landed.grace_seconds, landed.comes_again
            leaver = Leaver(
                key=victim.key,
                title=title,
                due=now,
                grace=grace,
                cause=PREEMPTED,
                rule=f"room for {waiter.title} of priority {waiter.info.priority}",
                comes_again=comes_again,
            )
            self._leave(now, leaver, by=waiter.title)

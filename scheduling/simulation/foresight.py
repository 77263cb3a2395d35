"""What happens next in a cluster that is left alone: who leaves, comes again and lands where.

``Foresight`` plays the future on a snapshot, from moment to moment. A pod that leaves keeps its
room until its grace period ends; the controller that owns it makes another one, at once or when it
is gone. After each moment all pods that wait are decided, in the order of the queue, by the live
cycle's own core. A pod that fits nowhere may make room: its victims leave as in the live system,
and it is decided again when they are gone.

Pure: no clock, no database. Times are seconds since the moment at which the future begins.

It knows nothing of what nobody can know: programs that end by themselves, pods that are posted
meanwhile, agents that are slower than they should be. A pod that was refused is tried again, after
its backoff, whenever anything happened, also where the live queue knows that it would not help.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import msgspec

from scheduling.engine import deciding
from scheduling.engine.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.deciding import Decider
from scheduling.engine.decision import Decision
from scheduling.engine.queue.pending import Backoff, aged_sort
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.runtime import Framework
from scheduling.framework.types import DisruptionBudget, PodInfo, PodRecord

NEVER, AT_ONCE, WHEN_GONE = "never", "atOnce", "whenGone"
"""Whether a pod that leaves comes again: its controller makes another one, or nobody does."""
PREEMPTED = "Preempted"
_WORTH_A_CACHE = 16
_AT_ONCE = 1000
"""Pods that are decided together, as the live scheduler does."""


class Leaver(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that leaves: when, for how long it still holds its room, and whether it comes again.

    ``key``: of the snapshot. ``due``: seconds from now; ``grace``: until it is gone after that.
    ``held_by_budgets``: it leaves only if its disruption budgets allow (the eviction API).
    ``grace_given``: the grace period is not the pod's own.
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


class Waiter(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that waits for a node. ``queued_at``: seconds from now, negative for the past.

    ``replaces``: the title of the pod that it comes instead of, empty if it is none of these. It
    was refused ``attempts`` times, and is not tried before ``not_before`` seconds. ``comes_again``
    and ``grace_seconds``: of the pod itself, should it leave. ``generation``: it is the successor
    of a successor, so many times.
    """

    key: Hashable
    title: str
    info: PodInfo
    queued_at: float
    replaces: str = ""
    attempts: int = 0
    not_before: float = 0.0
    comes_again: str = NEVER
    grace_seconds: float = 0.0
    generation: int = 0


class Left(msgspec.Struct, kw_only=True):
    """What became of a leaver: ``at`` seconds, ``None`` if it is held back by ``blocked_by``."""

    leaver: Leaver
    node_name: str
    at: float | None = None
    gone_at: float | None = None
    blocked_by: str = ""
    by: str = ""


class Landed(msgspec.Struct, kw_only=True):
    """Where a pod that waited went; ``node_name`` is empty and ``message`` says why for nowhere."""

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
"""Of a pod that is preempted: title, grace seconds, and whether it comes again."""
Deadline = Callable[[PodInfo, str], tuple[float, str] | None]
"""For how many seconds a pod may stay on a node that it comes to, and the rule; ``None``: ever."""
TAINTED = "Taint"

_EDIT, _LEAVE, _GONE, _COME, _RETRY = range(5)
_MOST_GENERATIONS = 20
"""Of successors: a pod that bears a taint for no time at all would come and go for ever."""
_MOST_ROUNDS = 100
"""Of decisions at one moment: each may send pods away whose successors are decided next."""


class Foresight:
    """The future of a snapshot, which it changes.

    Args:
        snapshot: the cluster at the beginning; ``key`` of pods are its keys.
        frameworks: the profiles by scheduler name.
        details: what is to be known of pods that are preempted.
        deadline: for how long a pod may stay on a node that evicts.
        seed: the chance by which equal nodes are chosen among.
        backoff: how long a pod waits after it was refused.
        starts: where the search begins, by profile, when not all nodes are looked at.
        go_on: raises where it takes too long.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        frameworks: Mapping[str, Framework],
        *,
        details: Details,
        deadline: Deadline = lambda info, node_name: None,
        seed: int = 0,
        backoff: Backoff = Backoff(),  # noqa: B008
        starts: Mapping[str, int] | None = None,
        go_on: Callable[[], object] = lambda: None,
    ) -> None:
        self._snapshot = snapshot
        self._frameworks = frameworks
        self._details = details
        self._deadline = deadline
        self._landed_as: dict[Hashable, Waiter] = {}
        self._options = Options(seed=seed)
        self._go_on = go_on
        self._backoff = backoff
        self._refused: dict[Hashable, tuple[int, float, float]] = {}
        self._retries: set[float] = set()
        self._starts = dict(starts or {})
        self._deciders: dict[str, Decider] = {}
        self._events: list[tuple[float, int, int, object]] = []
        self._count = 0
        self._waiting: dict[Hashable, Waiter] = {}
        self._leaving: set[Hashable] = set()
        self._replaced = 0
        self.left: list[Left] = []
        self.landed: dict[Hashable, Landed] = {}

    def leave(self, leavers: Iterable[Leaver]) -> None:
        """Let pods leave when they are due; of one moment in this order."""
        for one in leavers:
            self._add(one.due, _LEAVE, one)

    def gone(self, leavers: Iterable[Leaver]) -> None:
        """Let pods be gone that are leaving already: ``due`` is when."""
        for one in leavers:
            self._leaving.add(one.key)
            self._add(max(one.due, 0.0), _GONE, one)

    def wait(self, waiters: Iterable[Waiter]) -> None:
        """Let pods wait from their moment on."""
        for one in waiters:
            self._add(max(one.queued_at, 0.0), _COME, one)

    def at(self, seconds: float, change: Callable[[Snapshot], object]) -> None:
        """Change the snapshot at a moment, before whatever else happens then."""
        self._add(seconds, _EDIT, change)

    def run(self, *, horizon: float) -> None:
        """Play the future up to ``horizon`` seconds."""
        pods = sum(kind in (_LEAVE, _COME) for _, _, kind, _ in self._events)
        if pods >= _WORTH_A_CACHE:
            deciding.warm_for(pods, self._snapshot.node_count)
        while self._events and self._events[0][0] <= horizon:
            now = self._events[0][0]
            happened = False
            while self._events and self._events[0][0] <= now:
                _, _, kind, what = heapq.heappop(self._events)
                if kind != _RETRY:
                    happened = True
                    self._happens(now, kind, what)
            changed = False
            for _ in range(_MOST_ROUNDS):
                if not self._decide(now):
                    break
                changed = True
            self._try_again_later(now, happened=happened, changed=changed)

    def _try_again_later(self, now: float, *, happened: bool, changed: bool) -> None:
        """Let refused pods be tried again when their backoff ends, if anything happened since."""
        for key in self._waiting:
            _, refused_at, not_before = self._refused.get(key, (0, now, now))
            news = changed if refused_at == now else happened or changed
            if not_before > now and news and not_before not in self._retries:
                self._retries.add(not_before)
                self._add(not_before, _RETRY, None)

    def _add(self, at: float, kind: int, what: object) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count + (kind << 40), kind, what))

    def _happens(self, now: float, kind: int, what: object) -> None:
        if isinstance(what, Leaver):
            if kind == _LEAVE:
                self._leave(now, what)
            else:
                self._is_gone(now, what)
        elif isinstance(what, Waiter):
            self._waiting[what.key] = what
            if what.attempts:
                self._refused[what.key] = what.attempts, -1.0, what.not_before
        else:
            assert callable(what)
            what(self._snapshot)

    # --- leaving ---------------------------------------------------------------------------------

    def _leave(self, now: float, leaver: Leaver, by: str = "") -> bool:
        """Let a pod leave, unless it is gone, leaves already, or a budget holds it back."""
        self._go_on()
        record = self._snapshot.pod(leaver.key)
        if record is None or leaver.key in self._leaving:
            return False
        node_name = self._snapshot.node_of(leaver.key) or ""
        left = Left(leaver=leaver, node_name=node_name, by=by)
        self.left.append(left)
        if leaver.held_by_budgets:
            left.blocked_by = self._refusal(record)
            if left.blocked_by:
                return False
        self._leaving.add(leaver.key)
        left.at, left.gone_at = now, now + leaver.grace
        self._charge(record)
        if leaver.grace > 0:
            self._snapshot.add_pod(
                record.key,
                record.info,
                node_name,
                start_time=record.start_time,
                terminating=True,
                preempted=leaver.cause == PREEMPTED,
                name=record.name,
            )
            self._add(now + leaver.grace, _GONE, leaver)
        else:
            self._is_gone(now, leaver)
        if leaver.comes_again == AT_ONCE:
            self._come_again(now, leaver, record.info)
        return True

    def _leave_again(self, now: float, waiter: Waiter, node_name: str) -> None:
        """Let a pod that landed leave when its time on a node that evicts is over."""
        self._landed_as[waiter.key] = waiter
        limit = self._deadline(waiter.info, node_name)
        if limit is None or waiter.generation >= _MOST_GENERATIONS:
            return
        seconds, rule = limit
        leaver = Leaver(
            key=waiter.key,
            title=waiter.title,
            due=now + seconds,
            grace=waiter.grace_seconds,
            cause=TAINTED,
            rule=rule,
            comes_again=waiter.comes_again,
        )
        self._add(leaver.due, _LEAVE, leaver)

    def _is_gone(self, now: float, leaver: Leaver) -> None:
        record = self._snapshot.pod(leaver.key)
        if record is None:
            return
        self._snapshot.remove_pod(leaver.key)
        if leaver.comes_again == WHEN_GONE:
            self._come_again(now, leaver, record.info)

    def _come_again(self, now: float, leaver: Leaver, info: PodInfo) -> None:
        """Let the pod that is made instead wait; it has a name that nobody knows yet."""
        self._replaced += 1
        key = f"{info.namespace}/(instead of {leaver.title})#{self._replaced}"
        before = self._landed_as.get(leaver.key)
        self._waiting[key] = Waiter(
            key=key,
            title=key.partition("#")[0],
            info=info,
            queued_at=now,
            replaces=leaver.title,
            comes_again=leaver.comes_again,
            grace_seconds=leaver.grace,
            generation=1 if before is None else before.generation + 1,
        )

    def _refusal(self, record: PodRecord) -> str:
        """Return which budget keeps the pod from leaving, empty if none does."""
        budgets = self._budgets_of(record)
        if len(budgets) > 1:
            return "more than one PodDisruptionBudget covers it"
        for budget in budgets:
            if budget.disruptions_allowed <= 0:
                return f"PodDisruptionBudget {budget.namespace}/{budget.name}"
        return ""

    def _budgets_of(self, record: PodRecord) -> list[DisruptionBudget]:
        """Return the budgets that cover a pod as they stand now."""
        namespace, labels = record.info.namespace, record.info.labels
        return [
            budget
            for budget in self._snapshot.disruption_budgets()
            if budget.namespace == namespace and budget.selector.matches(labels)
        ]

    def _charge(self, record: PodRecord) -> None:
        for budget in self._budgets_of(record):
            left = max(budget.disruptions_allowed - 1, 0)
            self._snapshot.keep_budget(msgspec.structs.replace(budget, disruptions_allowed=left))

    # --- landing ---------------------------------------------------------------------------------

    def _decide(self, now: float) -> bool:
        """Decide the pods that may be tried now, in the order of the queue.

        Returns whether one was placed, or others left for it.
        """
        self._go_on()
        ready = [
            waiter
            for waiter in self._waiting.values()
            if self._refused.get(waiter.key, (0, -1.0, -1.0))[2] <= now
        ]
        if not ready:
            return False
        before = len(self._waiting), len(self.left)
        # All profiles say the same of how priorities grow.
        points = max((one.age_points_per_minute for one in self._frameworks.values()), default=0)

        def place(one: tuple[int, Waiter]) -> tuple[float, ...]:
            number, pod = one
            came = pod.queued_at
            key = aged_sort(pod.info.priority, came, came, points)
            return *key, _number(pod.key), number

        ordered = sorted(enumerate(ready), key=place)
        batch: list[Waiter] = []
        for _, waiter in ordered:
            if batch and (
                batch[-1].info.scheduler_name != waiter.info.scheduler_name
                or len(batch) >= _AT_ONCE
            ):
                self._decide_batch(now, batch)
                batch = []
            batch.append(waiter)
        self._decide_batch(now, batch)
        return before != (len(self._waiting), len(self.left))

    def _decide_batch(self, now: float, batch: Sequence[Waiter]) -> None:
        name = batch[0].info.scheduler_name
        framework = self._frameworks.get(name)
        if framework is None:
            for waiter in batch:
                self._stays(now, waiter, f'no profile is named "{name}"')
            return
        open_ = [waiter for waiter in batch if self._passes(now, framework, waiter)]
        if not open_:
            return
        decisions = schedule_batch(
            self._snapshot,
            framework,
            [
                PodToPlace(one.key, one.info, self._snapshot.nominated_node_of(one.key))
                for one in open_
            ],
            self._options,
            start=self._starts.get(name, 0),
            decider=self._decider(name, framework),
        )
        self._starts[name] = decisions.next_start
        found = [decision for part in decisions.parts for decision in part]
        for waiter, decision in zip(open_, found, strict=True):
            self._note(now, waiter, decision)

    def _decider(self, name: str, framework: Framework) -> Decider:
        decider = self._deciders.get(name)
        if decider is None:
            decider = self._deciders[name] = Decider(self._snapshot, framework)
        return decider

    def _passes(self, now: float, framework: Framework, waiter: Waiter) -> bool:
        """Return whether PreEnqueue lets the pod be tried."""
        try:
            gate = framework.pre_enqueue(waiter.info)
        except PluginFailed as failure:
            self._stays(now, waiter, failure.status.message)
            return False
        if not gate.ok:
            self._stays(now, waiter, gate.message)
        return gate.ok

    def _is_refused(self, now: float, waiter: Waiter) -> None:
        attempts = self._refused.get(waiter.key, (0, 0.0, 0.0))[0] + 1
        self._refused[waiter.key] = attempts, now, now + self._backoff.after(attempts)

    def _stays(self, now: float, waiter: Waiter, message: str) -> None:
        self._is_refused(now, waiter)
        self.landed[waiter.key] = Landed(waiter=waiter, at=now, message=message)

    def _note(self, now: float, waiter: Waiter, decision: Decision) -> None:
        landed = Landed(
            waiter=waiter,
            node_name=decision.node_name if decision.scheduled else "",
            at=now,
            message=decision.message,
            total=decision.total,
            margin=decision.margin,
            ties=decision.ties,
            feasible=decision.feasible,
            evaluated=decision.evaluated,
            rejected_by=decision.rejected_by,
        )
        self.landed[waiter.key] = landed
        if decision.scheduled:
            del self._waiting[waiter.key]
            self._leave_again(now, waiter, decision.node_name)
            return
        self._is_refused(now, waiter)
        nomination = decision.nomination
        if nomination is None or not nomination.node_name:
            return
        landed.nominated = nomination.node_name
        for victim in nomination.victims:
            known = self._landed_as.get(victim.key)
            if known is None:
                title, grace, comes_again = self._details(victim)
            else:
                title, grace, comes_again = known.title, known.grace_seconds, known.comes_again
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


def _number(key: Hashable) -> int:
    """Return where a pod stands among those that came at one moment."""
    return key if isinstance(key, int) else 1 << 60

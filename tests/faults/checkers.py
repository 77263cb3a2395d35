"""What must not happen, read from watches, lists and the clients' history.

Nothing here asks the service or imports it. `Audit` takes the events of the watches in the order of
their revisions and judges every step; the functions below it judge a cluster at rest. Each checker
has a test that plants the violation (`test_checkers.py`).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tests.faults import arithmetic, claims, rules
from tests.faults.history import FAILED, OK, UNKNOWN, Operation
from tests.faults.replay import (
    Event,
    Object,
    State,
    bound_at,
    condition,
    finished,
    key_of,
    labels_of,
    leaving,
    node_of,
    owner_of,
    priority_of,
    revision_of,
    uid_of,
)

LOST = "lost"
REFUSED_YET_DONE = "refused, yet done"
BOUND_TWICE = "bound twice"
OVERCOMMITTED = "overcommitted"
WRONG_NODE = "wrong node"
QUEUE = "queue"
TIMERS = "timers"
WATCH = "watch"
REVISIONS = "revisions"
BUDGETS = "budgets"
PREEMPTION = "preemption"
EVICTED_TWICE = "evicted twice"
REPLICAS = "replicas"
STUCK = "stuck"
HEAL = "healed late"
READY = "ready untrue"
BOUNDS = "unbounded"
ENDED = "ended"
COPIES = "copies"
ADVICE = "advice"
CONSOLE = "console"
CLAIMS = "claims"
ANSWERED_500 = "answered 500"
COLUMNS = (
    LOST, REFUSED_YET_DONE, BOUND_TWICE, OVERCOMMITTED, WRONG_NODE, QUEUE, TIMERS, WATCH, REVISIONS,
    BUDGETS, PREEMPTION, EVICTED_TWICE, REPLICAS, STUCK, HEAL, READY, BOUNDS, ENDED, ANSWERED_500,
    COPIES, ADVICE, CONSOLE, CLAIMS,
)  # fmt: skip
"""The columns of the report: what must stay at zero."""

NEVER = 200e9
"""Beyond the year 8300 a moment means never, with or without a timer."""
INVOLUNTARY_SECONDS = 60.0
"""A pod that went by itself so lately may still count in the status that allows evictions."""


SCENES = 5
TOGETHER = 100
"""Within so many revisions all pods of a batch are bound."""
_SURPLUS = 2000
"""A controller that was held up deletes what was too much so many revisions ago, at most."""


@dataclass(frozen=True)
class Violation:
    """One broken promise: the column it counts in, and a sentence for whoever looks into it."""

    column: str
    text: str


@dataclass
class Audit:
    """Judges every event of the watches.

    ``meddled(pod)`` returns what clients tried to do to a pod (``delete``, ``evict``, ``bind``,
    ``node``) or an empty set; ``decided_on(uid)`` returns the revision of the snapshot
    that a pod was placed on, or None; ``budgets`` are selectors with the least number of healthy
    pods.
    """

    meddled: Callable[[Object], Collection[str]] = lambda pod: ()
    decided_on: Callable[[str], int | None] = lambda uid: None
    budgets: Sequence[tuple[str, Mapping[str, Any], int]] = ()
    state: State = field(default_factory=State)
    violations: list[Violation] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    scenes: list[tuple[str, State]] = field(default_factory=list)
    """The cluster as it was at the first violations, for whoever looks into them."""
    binds: int = 0
    evictions: int = 0
    preemptions: int = 0
    _doubts: list[tuple[State, Object, Object]] = field(default_factory=list)
    _by_hand: set[str] = field(default_factory=set)
    _on_trial: set[str] = field(default_factory=set)
    _went: list[tuple[float, Object]] = field(default_factory=list)
    _held: set[str] = field(default_factory=set)

    def begin(self, state: State) -> None:
        """Start from a list, also where a watch had to start again."""
        self.gone |= set(self.state.pods) - set(state.pods)
        self.state = state
        for pod in state.pods.values():
            self.seen.add(uid_of(pod))
            self.names.add(key_of(pod))

    def take(self, events: Iterable[Event]) -> None:
        """Judge events, the oldest first."""
        for event in events:
            if event.revision <= self.state.revision:
                self._broken(REVISIONS, f"{key_of(event.item)} at {event.revision}, which is over")
            before = self.state.apply(event)
            if event.kind == "Pod":
                self._pod(event, before)
            self._claims(event)
            self._judge_doubts(self.state.revision - TOGETHER)
        self._judge_doubts(self.state.revision + 1)
        self.state.forget()

    def _broken(self, column: str, text: str) -> None:
        self.violations.append(Violation(column, f"{text} (revision {self.state.revision})"))
        if len(self.scenes) < SCENES:
            self.scenes.append((self.violations[-1].text, self.state.copy()))

    def _pod(self, event: Event, before: Object | None) -> None:
        pod, uid, name = event.item, uid_of(event.item), key_of(event.item)
        if event.verb == "ADDED":
            if uid in self.gone:
                self._broken(WATCH, f"{name} ({uid}) was deleted and is there again")
            self.seen.add(uid)
            self.names.add(name)
            if node_of(pod):
                self._placed_by_hand(pod)
            self._made(pod)
            return
        if before is None:
            self._broken(WATCH, f"{event.verb} of {name} ({uid}), of which no watch had told")
            return
        if node_of(before) and node_of(pod) != node_of(before):
            self._broken(BOUND_TWICE, f"{name}: {node_of(before)}, then {node_of(pod) or 'none'}")
        if node_of(pod) and not node_of(before) and event.verb != "DELETED":
            self._bound(pod)
        self._deletion_times(before, pod)
        if (leaving(pod) or event.verb == "DELETED") and not leaving(before):
            self._left(pod, before, event)
        if event.verb == "DELETED":
            self.gone.add(uid)
            self._by_hand.discard(uid)
            self._on_trial.discard(uid)

    # Devices and volumes

    def _claims(self, event: Event) -> None:
        """Judge what is held twice or too much of, once for each finding."""
        bound = event.kind == "Pod" and event.verb == "MODIFIED" and node_of(event.item)
        if event.kind not in claims.KINDS or (event.kind == "Pod" and not bound):
            return
        for text in claims.held_twice(self.state.lists(), event.kind):
            if text not in self._held:
                self._held.add(text)
                self._broken(CLAIMS, text)

    # Workloads

    def _made(self, pod: Object) -> None:
        """Judge a new pod of a ReplicaSet: of so many as are asked for none is made beyond.

        Whoever makes the pods also says how many, and works alone: no look is out of date.
        """
        owner = owner_of(pod)
        if owner in self.state.sets and (beyond := self.state.beyond(owner)) > 0:
            name = key_of(self.state.sets[owner])
            self._broken(REPLICAS, f"{key_of(pod)} was made, {beyond} more than {name} asks for")

    def _is_surplus(self, pod: Object) -> bool:
        """Return whether a pod's ReplicaSet had more than it asks for, a moment ago or lately."""
        owner, uid = owner_of(pod), uid_of(pod)
        return any(
            uid in then.pods and owner in then.sets and then.beyond(owner) > 0
            for then in self.state.copy().back_to(self.state.revision - _SURPLUS)
        )

    # Bindings

    def _placed_by_hand(self, pod: Object) -> None:
        self._by_hand.add(uid_of(pod))
        node = self.state.nodes.get(node_of(pod))
        if node is not None and rules.missing(self.state, node):
            self._on_trial.add(uid_of(pod))  # has to fail soon, or somebody has to go

    def _bound(self, pod: Object) -> None:
        if "bind" in self.meddled(pod):
            self._placed_by_hand(pod)
            return
        self.binds += 1
        name, node = key_of(pod), self.state.nodes.get(node_of(pod))
        if node is None:
            self._broken(WRONG_NODE, f"{name} was bound to {node_of(pod)}, which is not there")
            return
        if leaving(pod):
            self._broken(WRONG_NODE, f"{name} was bound although it is being deleted")
        reasons = rules.node_refuses(self.state, pod, node)
        if reasons and not (claims.waits(pod) and self._accepted_before(pod)):
            self._broken(WRONG_NODE, f"{name} was bound to {node_of(pod)} against {reasons}")
        if away := claims.unreachable(self.state.lists(), pod, node):
            self._broken(WRONG_NODE, f"{name} was bound to {node_of(pod)}, away from {away}")
        trusted = State(
            self.state.nodes,
            {uid: one for uid, one in self.state.pods.items() if uid not in self._on_trial},
        )
        if short := rules.missing(trusted, node):
            self._broken(OVERCOMMITTED, f"{node_of(pod)} after the binding of {name}: {short}")
        if rules.neighbours_refuse(self.state, pod, node) and not self._held_before(pod, node):
            self._doubts.append((self.state.copy(), pod, node))

    def _accepted_before(self, pod: Object) -> bool:
        """Return whether the pod's node accepted it at any state since it was decided.

        A pod that waits for its volumes or devices is bound although its node was tainted or
        cordoned meanwhile: kube-scheduler does not ask again.
        """
        since = self.decided_on(uid_of(pod))
        oldest = self.state.revision - 300 if since is None else since
        then = self.state.copy()
        for _ in then.back_to(oldest):
            node = then.nodes.get(node_of(pod))
            if node is not None and not rules.node_refuses(then, pod, node):
                return True
        return then.revision > oldest  # a watch began anew since: what was before is not known

    def _held_before(self, pod: Object, node: Object) -> bool:
        """Return whether neighbours accepted the pod at any state since it was decided.

        What the scheduler bound itself meanwhile it knew, so that always counts.
        """
        since = self.decided_on(uid_of(pod))
        oldest = self.state.revision - 300 if since is None else since
        own = {
            uid: one
            for uid, one in self.state.pods.items()
            if node_of(one) and uid != uid_of(pod) and uid not in self._by_hand
        }
        for then in self.state.copy().back_to(oldest):
            known = {
                uid: one
                for uid, one in own.items()
                if uid not in then.pods or not node_of(then.pods[uid])
            }
            nodes = {**self.state.nodes, **then.nodes}
            mixed = State(nodes, {**then.pods, **known}, then.revision)
            if not rules.neighbours_refuse(mixed, pod, node):
                return True
        return False

    def _judge_doubts(self, before: int) -> None:
        """Judge pods that their neighbours refused, once all that were decided with them are bound.

        Pods of a batch are decided in sequence and bound together, in any order of revisions: the
        others may have come before this one or after it, but nobody may exclude anybody.
        """
        while self._doubts and self._doubts[0][0].revision < before:
            then, pod, node = self._doubts.pop(0)
            decided = self.decided_on(uid_of(pod))
            mates = {
                uid: one
                for uid, one in self.state.pods.items()
                if node_of(one)
                and uid != uid_of(pod)
                and decided is not None
                and self.decided_on(uid) == decided
            }
            rest = {uid: one for uid, one in then.pods.items() if uid not in mates}
            reasons = {
                reason.split(":")[0]: reason for reason in rules.neighbours_refuse(then, pod, node)
            }
            for pods in (then.pods | mates, rest):
                state = State(then.nodes, pods, then.revision)
                still = {
                    reason.split(":")[0] for reason in rules.neighbours_refuse(state, pod, node)
                }
                reasons = {
                    kind: reason
                    for kind, reason in reasons.items()
                    if kind in still or "anti-affinity" in kind
                }
            if reasons:
                told = f"{key_of(pod)} was bound to {node_of(pod)} against {[*reasons.values()]}"
                self._broken(WRONG_NODE, f"{told} at {then.revision}")

    # Departures

    def _deletion_times(self, before: Object, pod: Object) -> None:
        was = arithmetic.seconds(before["metadata"].get("deletionTimestamp"))
        now = arithmetic.seconds(pod["metadata"].get("deletionTimestamp"))
        if was is not None and (now is None or now > was):
            self._broken(EVICTED_TWICE, f"{key_of(pod)} was to end at {was}, then at {now}")
        cause = condition(before, "DisruptionTarget")
        later = condition(pod, "DisruptionTarget")
        if cause is not None and later != cause:
            self._broken(EVICTED_TWICE, f"{key_of(pod)} left for {cause}, then for {later}")

    def _left(self, pod: Object, before: Object, event: Event) -> None:
        cause = condition(pod, "DisruptionTarget")
        reason = cause["reason"] if cause is not None else ""
        meddled = self.meddled(pod)
        if reason == "PreemptionByScheduler":
            self.preemptions += 1
            self._preempted(pod)
        elif reason == "DeletionByTaintManager":
            self.evictions += 1
            assert cause is not None
            self._evicted_by_taint(before, arithmetic.seconds(cause["lastTransitionTime"]))
        elif reason == "EvictionByEvictionAPI":
            self.evictions += 1
            if "evict" not in meddled:
                self._broken(LOST, f"{key_of(pod)} was evicted, and nobody had asked for it")
            self._within_budget(before, event)
        elif (
            not meddled
            and not self._node_is_gone(before)
            and reason != "DeletionByPodGC"
            and not self._is_surplus(before)
        ):
            self._broken(LOST, f"{key_of(pod)} left for no reason ({reason or 'none is told'})")
        if reason != "EvictionByEvictionAPI":
            self._went.append((event.seen_at, before))

    def _node_is_gone(self, pod: Object) -> bool:
        return bool(node_of(pod)) and node_of(pod) not in self.state.nodes

    def _preempted(self, victim: Object) -> None:
        def somebody(state: State) -> bool:
            return any(
                priority_of(one) > priority_of(victim)
                and one["spec"].get("preemptionPolicy") != "Never"
                and (not node_of(one) or node_of(one) == node_of(victim))
                for one in state.pods.values()
            )

        if somebody(self.state):
            return
        if not any(somebody(then) for then in self.state.copy().back_to(self.state.revision - 300)):
            self._broken(
                PREEMPTION,
                f"{key_of(victim)} of priority {priority_of(victim)} was preempted by none",
            )

    def _evicted_by_taint(self, pod: Object, at: float | None) -> None:
        def due(state: State) -> float | None:
            node = state.nodes.get(node_of(pod))
            taints = (node["spec"].get("taints") or ()) if node else ()
            return arithmetic.taint_due(pod["spec"], taints, bound_at(pod))

        moments = [due(self.state)]
        moments += [due(then) for then in self.state.copy().back_to(self.state.revision - 100)]
        known = [moment for moment in moments if moment is not None]
        if not known:
            self._broken(TIMERS, f"{key_of(pod)} was evicted, and no taint of its node asks for it")
        elif at is not None and at + 1 < min(known):
            early = min(known) - at
            self._broken(TIMERS, f"{key_of(pod)} was evicted {early:.1f} s early")

    def _within_budget(self, pod: Object, event: Event) -> None:
        ready = condition(pod, "Ready")
        if ready is None or ready["status"] != "True":
            return
        for space, selector, least in self.budgets:
            if pod["metadata"]["namespace"] != space:
                continue
            if not arithmetic.selects(selector, labels_of(pod)):
                continue
            healthy = sum(
                1
                for one in self.state.pods.values()
                if one["metadata"]["namespace"] == space
                and arithmetic.selects(selector, labels_of(one))
                and not leaving(one)
                and (condition(one, "Ready") or {}).get("status") == "True"
            )
            lately = sum(
                1
                for at, one in self._went
                if at > event.seen_at - INVOLUNTARY_SECONDS
                and arithmetic.selects(selector, labels_of(one))
            )
            if healthy + lately < least:
                self._broken(
                    BUDGETS, f"{key_of(pod)} was evicted: {healthy} healthy are left, not {least}"
                )


# The clients' history --------------------------------------------------------------------------


def history_violations(
    operations: Sequence[Operation], seen: Collection[str], names: Collection[str]
) -> list[Violation]:
    """Judge what clients were told by what the watches saw: uids and names of pods."""
    found = []
    for one in operations:
        dry = one.detail.get("dry")
        if "answer" in one.detail:
            told = f"{one.verb} {one.name}: {one.detail['answer']}"
            found.append(Violation(ANSWERED_500, told))
        if one.verb == "create pod" and one.outcome == OK and not dry and one.uid not in seen:
            found.append(Violation(LOST, f"{one.name} was acknowledged at {one.revision}"))
        if one.verb == "create pods" and one.outcome == OK:
            missing = [name for name in one.detail["names"] if name not in names]
            if missing:
                found.append(Violation(LOST, f"{missing} of an acknowledged list"))
        if one.verb == "create pods" and one.outcome == UNKNOWN:
            there = [name in names for name in one.detail["names"]]
            if any(there) and not all(there):
                found.append(Violation(LOST, f"a part of the list that begins with {one.name}"))
        refused = one.outcome == FAILED or dry
        if one.verb in ("create pod", "create pods") and refused:
            made = [name for name in one.detail.get("names", [one.name]) if name in names]
            if made:
                found.append(Violation(REFUSED_YET_DONE, f"{made}, told {one.status}"))
    return found


def revision_violations(operations: Iterable[Operation]) -> list[Violation]:
    """Judge the revisions that writers were told by those that were known when they asked."""
    found = []
    lists: dict[tuple[str, str], int] = {}
    for one in operations:
        if one.outcome != OK or not one.revision:
            continue
        if one.verb.startswith(("create", "patch")) and not one.detail.get("dry"):
            if one.revision <= one.saw:
                told = f"{one.verb} {one.name} at {one.revision}, when {one.saw} was known"
                found.append(Violation(REVISIONS, told))
        elif one.verb == "list":
            last = lists.get((one.client, one.name), 0)
            if one.revision < last:
                found.append(Violation(REVISIONS, f"a list at {one.revision} after one at {last}"))
            lists[one.client, one.name] = one.revision
    return found


def patch_violations(
    operations: Iterable[Operation], label: str, objects: Mapping[str, Object]
) -> list[Violation]:
    """Judge labels by the last acknowledged patch of each object, by uid.

    A patch that was not answered may have been carried out at any time, also after later ones.
    """
    allowed: dict[str, set[str]] = defaultdict(set)
    last: dict[str, str] = {}
    for one in operations:
        if one.verb != "patch" or "mark" not in one.detail:
            continue
        if one.outcome == OK:
            last[one.detail["uid"]] = one.detail["mark"]
        elif one.outcome == UNKNOWN:
            allowed[one.detail["uid"]].add(one.detail["mark"])
    found = []
    for uid, mark in last.items():
        item = objects.get(uid)
        if item is None:
            continue
        has = labels_of(item).get(label, "")
        if has != mark and has not in allowed[uid]:
            found.append(Violation(LOST, f"a patch of {key_of(item)}: {has!r}, not {mark!r}"))
    return found


# At rest ---------------------------------------------------------------------------------------


def list_violations(
    kind: str, watched: Mapping[str, Object], listed: Iterable[Object], who: str
) -> list[Violation]:
    """Compare what a watch adds up to with a list of the same revision, object by object."""
    there = {uid_of(item): item for item in listed}
    found = [
        f"{kind} {key_of(there[uid])} is listed and was never told"
        for uid in there.keys() - watched.keys()
    ]
    found += [
        f"{kind} {key_of(watched[uid])} was told and is not listed"
        for uid in watched.keys() - there.keys()
    ]
    for uid in there.keys() & watched.keys():
        one, other = revision_of(watched[uid]), revision_of(there[uid])
        if one != other:
            found.append(f"{kind} {key_of(there[uid])} is at {other}, the watch at {one}")
        elif watched[uid] != there[uid]:
            found.append(f"{kind} {key_of(there[uid])} differs at {one}")
    return [Violation(WATCH, f"{who}: {text}") for text in found[:5]]


def claim_violations(state: State) -> list[Violation]:
    """Return what is held twice, or by nobody."""
    return [Violation(CLAIMS, text) for text in claims.claim_violations(state.lists())]


def room_violations(state: State) -> list[Violation]:
    """Return the nodes that are overcommitted."""
    found = []
    for name, node in state.nodes.items():
        if short := rules.missing(state, node):
            found.append(Violation(OVERCOMMITTED, f"{name} at rest: {short}"))
    return found


def timer_violations(state: State, due: Mapping[str, float], now: float) -> list[Violation]:
    """Compare the timers, due times by pod uid, with those that the taints ask for.

    Whole seconds are told on the wire, so that times may differ by a second.
    """
    found = []
    wanted: dict[str, float] = {}
    for uid, pod in state.pods.items():
        node = state.nodes.get(node_of(pod))
        if node is None or leaving(pod) or finished(pod):
            continue
        moment = arithmetic.taint_due(pod["spec"], node["spec"].get("taints") or (), bound_at(pod))
        if moment is not None:
            wanted[uid] = moment
    for uid, moment in wanted.items():
        name = key_of(state.pods[uid])
        if min(moment, due.get(uid, moment)) > NEVER:
            continue
        if uid not in due:
            found.append(f"{name} has no timer and must leave in {moment - now:.1f} s")
        elif abs(due[uid] - moment) > 1.5:
            found.append(f"{name}: the timer is {due[uid] - moment:+.1f} s from what taints ask")
        elif moment < now - 10:
            found.append(f"{name} should have left {now - moment:.0f} s ago")
    found += [
        f"{key_of(state.pods[uid]) if uid in state.pods else uid} has a timer, and no taint asks"
        for uid in due.keys() - wanted.keys()
    ]
    return [Violation(TIMERS, text) for text in found]


def queue_violations(unbound: Collection[str], queued: Collection[str]) -> list[Violation]:
    """Compare the unbound, unfinished pods with the queue."""
    found = [Violation(QUEUE, f"{one} is not queued") for one in set(unbound) - set(queued)]
    return found + [Violation(QUEUE, f"{one} is queued") for one in set(queued) - set(unbound)]


def stuck_violations(state: State, scheduler: str = "default-scheduler") -> list[Violation]:
    """Return the pods that wait although a node would take them now.

    Room that is kept for a pod with a nominated node is nobody's, so nothing is said meanwhile.
    """
    waiting = [
        pod
        for pod in state.pods.values()
        if not node_of(pod)
        and not finished(pod)
        and not leaving(pod)
        and not pod["spec"].get("schedulingGates")
        and pod["spec"].get("schedulerName") == scheduler
    ]
    if any((pod.get("status") or {}).get("nominatedNodeName") for pod in waiting):
        return []
    found = []
    free = {name: rules.free(state, node) for name, node in state.nodes.items()}
    offer = claims.Offer.of(state.lists())
    for pod in waiting:
        for name, node in state.nodes.items():
            if (
                rules.has_room(free[name], pod)
                and not rules.node_refuses(state, pod, node)
                and not rules.neighbours_refuse(state, pod, node)
                and offer.suffices(pod, node)
            ):
                told = (condition(pod, "PodScheduled") or {}).get("message", "nothing")
                found.append(Violation(STUCK, f"{key_of(pod)} fits on {name}, and is told: {told}"))
                break
    return found


def replica_violations(
    state: State, wanted: Mapping[str, tuple[str, Mapping[str, str], int]]
) -> list[Violation]:
    """Compare workloads (namespace, labels, replicas) with the pods that they have."""
    found = []
    for name, (space, labels, replicas) in wanted.items():
        has = sum(
            1
            for pod in state.pods.values()
            if pod["metadata"]["namespace"] == space
            and labels.items() <= labels_of(pod).items()
            and not leaving(pod)
            and not finished(pod)
        )
        if has != replicas:
            found.append(Violation(REPLICAS, f"{name} wants {replicas} and has {has}"))
    return found


def growth_violations(
    series: Mapping[str, Sequence[float]], *, factor: float = 1.25, floor: Mapping[str, float]
) -> list[Violation]:
    """Return what grew without bound: samples of equal distance, by what was measured.

    The middle of the last third is compared with that of the second; the first is warm-up. A peak
    that goes again, as after bodies of 20 MiB, is no growth.
    ``floor`` is how much of a thing is nothing to speak of, by the beginning of its name: the
    longest that fits.
    """
    found = []
    for name, samples in series.items():
        third = len(samples) // 3
        if third < 4:
            continue
        middle, last = median(samples[third : 2 * third]), median(samples[2 * third :])
        small = max((one for one in floor if name.startswith(one)), key=len, default="")
        if last > max(middle * factor, floor.get(small, 0)):
            found.append(Violation(BOUNDS, f"{name}: {middle:.0f}, then {last:.0f}"))
    return found

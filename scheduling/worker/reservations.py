"""Reserved pods: they have a node, and Reserve, Permit, PreBind or PostBind plugins to run.

For profiles with Reserve, Permit, PreBind or PostBind plugins, or a Bind plugin of their own. Their
pods are decided one by one; Reserve and Permit run before the next pod is decided (R150,
R160-R162). Then::

    permitted, nothing else to do     bound in bulk with the others, in the same cycle
    Permit says Wait                  a row; no thread waits: approval, refusal and deadline are
                                      found in the row (R163, R164)
    PreBind or an own Bind            a row; a task of ``binding_cycle`` does the work,
                                      and the pod is bound in bulk after it (R165, R166)
    bound, with PostBind              the row stays until a task has called the plugins (R167), and
                                      until the pods are activated that they named
    refused at any point              Unreserve in reverse order, the snapshot forgets the pod, the
                                      pod goes to the queue (R151, R161)

A pod that waits on Permit or PreBind is nominated for its node meanwhile, so that clients see it.

The rows are the truth. After a restart ``load`` reads them: the mirror counts their pods, and
Reserve runs again, for plugins that keep in memory what they reserved. Reserve must be idempotent.
Rules: pkg/scheduler/schedule_one.go and framework/runtime/waiting_pods_map.go, v1.36.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec
import structlog

from clusterstate.actions.pods.bind import Binding
from clusterstate.actions.pods.status import nominate
from clusterstate.actions.scheduler import reservations as actions
from clusterstate.actions.scheduler.reservations import NewReservation, Refusal
from clusterstate.change_log import wake
from clusterstate.queries.pods import find_pod_ids, pods_by_id
from clusterstate.queries.scheduler import reservations
from clusterstate.queries.scheduler.reservations import (
    ACTIVATE,
    BINDING,
    BOUND,
    INFORMED,
    READY,
    REFUSED,
    WAITING,
    Reservation,
)
from scheduling.engine.reference.cycle import PodToPlace
from scheduling.engine.reference.decision import (
    ERROR,
    SCHEDULED,
    UNSCHEDULABLE,
    Decision,
    Rejection,
)
from scheduling.engine.snapshot import reliance
from scheduling.framework.device_claims import TAKEN
from scheduling.framework.footprints import footprint_of
from scheduling.framework.interface import PODS_TO_ACTIVATE, CycleState, pods_named
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Code, Status
from scheduling.framework.types import Diagnosis, FitError, Nomination, PodInfo
from scheduling.worker.binder import Binder
from scheduling.worker.mirror import Mirror
from scheduling.worker.reserved_pod import ReservedPod

logger = structlog.get_logger(__name__)

FrameworkAt = Callable[[int, str], Framework | None]
"""Returns a profile's plugins by configuration revision and name, ``None`` if it is gone."""

_PREEMPTION = "DefaultPreemption"
_NOMINATED_AT_ONCE = 20


class Reservations:
    """The reserved pods of one scheduler, and the plugin calls that each cycle makes for them."""

    def __init__(self, mirror: Mirror, binder: Binder, framework_at: FrameworkAt) -> None:
        self._mirror = mirror
        self._binder = binder
        self._framework_at = framework_at
        self._pods: dict[int, ReservedPod] = {}
        self._released: dict[int, PodInfo] = {}
        self._not_nominated: deque[int] = deque()
        """Ids of reserved pods whose nomination is not written yet."""
        self._informing: set[int] = set()
        """Ids of bound pods whose PostBind plugins may not have finished."""
        self._to_activate: dict[tuple[str, str], None] = {}
        """Namespaces and names of pods that plugins want to activate."""
        binder.give_way = self.give_way
        binder.reserved = self._pods.keys
        binder.take_back = self.take_back

    def __contains__(self, pod_id: object) -> bool:
        return pod_id in self._pods

    @property
    def count(self) -> int:
        """Number of reserved pods that are not bound yet."""
        return len(self._pods)

    # --- what plugins see (handles.WaitingPods) --------------------------------------------------

    def all(self) -> Sequence[ReservedPod]:
        """Return the pods that wait on Permit, the longest waiting first."""
        return [
            pod
            for pod in self._pods.values()
            if pod.step == WAITING and pod.waits and pod.refused is None
        ]

    def get(self, uid: str) -> ReservedPod | None:
        """Return the pod with this uid, ``None`` if it does not wait on Permit."""
        return next((pod for pod in self.all() if pod.uid == uid), None)

    # --- in the scheduling cycle -----------------------------------------------------------------

    def begin(
        self,
        framework: Framework,
        revision: int,
        pod: PodToPlace,
        state: CycleState,
        decision: Decision,
        now: float,
    ) -> Decision:
        """Run Reserve and Permit for a pod that was just placed; return the resulting decision.

        The snapshot counts the pod on its node already; if the pod is refused, it is removed there.
        """
        pod_id, info, node_name = cast(int, pod.key), pod.info, decision.node_name
        self._give_tables(state)
        waits: dict[str, float] = {}
        try:
            status = framework.reserve(state, info, node_name)
            if status.ok:
                status, waits = framework.permit(state, info, node_name)
        except PluginFailed as failure:
            status = failure.status
        if not status.ok and status.code is not Code.WAIT:
            # No other pod was decided meanwhile, so none needs to be woken for the room.
            _unreserve(framework, state, info, node_name)
            self._mirror.snapshot.forget(pod_id)
            self._mirror.snapshot.unnominate(pod_id)
            return _refused(decision, status)
        self._to_activate.update(dict.fromkeys(state.take_pods_to_activate()))
        works = framework.works_for(info, self._mirror.snapshot)
        self._pods[pod_id] = ReservedPod(
            pod_id=pod_id,
            pod=info,
            node_name=node_name,
            framework=framework,
            revision=revision,
            state=state,
            step=WAITING if waits else BINDING if works else READY,
            works=works,
            since=now,
            waits={plugin: now + seconds for plugin, seconds in waits.items()},
            stored=False,
        )
        return decision

    def _give_tables(self, state: CycleState) -> None:
        snapshot = self._mirror.snapshot
        state.volumes, state.devices = snapshot.volumes, snapshot.devices

    def write(self, now: float) -> list[Binding]:
        """Write the reservations of pods that must wait; return the bindings of the other pods.

        Called after ``begin`` ran for all pods of a batch, and before anything else is written.
        """
        new: list[NewReservation] = []
        ready: list[Binding] = []
        queue = self._mirror.queue
        for pod in self._pods.values():
            if pod.stored or pod.submitted or pod.refused is not None:
                continue
            framework = cast(Framework, pod.framework)
            if pod.step == WAITING and not pod.waits:  # allowed by a pod of the same batch
                pod.step = _next_step(pod)
            if pod.step == READY:
                ready.append(self._binding(pod))
                pod.submitted = True
                if not framework.post_bind_plugins:
                    continue
            pod.stored = True
            pod.allowed_by.clear()
            queue.park(pod.pod_id)
            new.append(
                NewReservation(
                    pod_id=pod.pod_id,
                    node_name=pod.node_name,
                    profile=framework.scheduler_name,
                    profile_revision=pod.revision,
                    step=pod.step,
                    attempts=queue.place(pod.pod_id).attempts,
                    waits={name: _moment(due) for name, due in pod.waits.items()},
                    notes=pod.state.plain_notes(),
                )
            )
        actions.reserve(new, now=_moment(now))
        self._not_nominated.extend(one.pod_id for one in new if self._pods[one.pod_id].is_nominated)
        if any(one.step == BINDING for one in new):
            wake.send_binding()
        self._activate(now)
        return ready

    def _activate(self, now: float) -> None:
        """Activate the waiting pods that plugins named. Queries once if there are some.

        Rule: schedule_one.go (``schedulingCycle``, ``runBindingCycle``), v1.36.
        """
        named, self._to_activate = self._to_activate, {}
        self._mirror.queue.activate(find_pod_ids(named).values(), now)

    def _hear_of_informed(self, rows: Iterable[Reservation]) -> None:
        """Read which PostBind plugins finished; note the pods to activate, forget those rows."""
        found = {row.pod_id: row for row in rows}
        done = [pod_id for pod_id in self._informing if pod_id in found]
        done = [pod_id for pod_id in done if found[pod_id].step == INFORMED]
        for pod_id in done:
            named = pods_named(found[pod_id].notes.get(ACTIVATE))
            self._to_activate.update(dict.fromkeys(named))
        self._informing = {pod_id for pod_id in self._informing if pod_id in found}.difference(done)
        actions.drop(done)

    def _nominate_some(self, now: float) -> None:
        """Nominate pods that wait on Permit or PreBind for the nodes that they will get.

        Autoscalers and other clients read it to know the pod's future node. The nomination ends
        with the bind or the refusal; a pod that is bound at once gets none. Nominations of a large
        gang are written a few at a time, so that other pods need not wait. Rule: schedule_one.go
        ``bindingCycle`` (NominatedNodeNameForExpectation), v1.36.
        """
        with wake.without_scheduler():
            nodes: dict[int, str] = {}
            for _ in range(min(len(self._not_nominated), _NOMINATED_AT_ONCE)):
                pod = self._pods.get(self._not_nominated.popleft())
                if pod is None or pod.refused is not None or not pod.is_nominated:
                    continue
                # An earlier refusal that is not written yet would end this nomination.
                self._binder.refused.was_nominated(pod.pod_id)
                nodes[pod.pod_id] = pod.node_name
            for pod_id, revision in nominate(nodes, now=_moment(now)):
                self._mirror.nominated_a_reserved_pod(pod_id, revision)

    # --- from cycle to cycle ---------------------------------------------------------------------

    def load(self, now: float) -> None:
        """Replace the known reservations by those that the mirror has read."""
        previous = dict(self._pods)
        self._pods.clear()
        unknown: list[int] = []
        bound: list[ReservedPod] = []
        gone: list[ReservedPod] = []
        self._informing = set()
        for row in self._mirror.reserved.values():
            if row.step in (BOUND, INFORMED):
                self._informing.add(row.pod_id)
                continue
            if not row.uid:
                unknown.append(row.pod_id)
                continue
            pod = previous.get(row.pod_id) or self._taken_over(row)
            pod.submitted = False
            if row.pod_node_name == row.node_name:
                bound.append(pod)
            elif row.alive:
                self._pods[row.pod_id] = pod
            else:
                gone.append(pod)
        self._end(bound, gone)
        actions.drop(unknown)
        self._not_nominated = deque(
            pod_id
            for pod_id, pod in self._pods.items()
            if pod.is_nominated and self._mirror.nominated_in_log(pod_id) != pod.node_name
        )
        if self._pods:
            logger.info("reservations_taken_over", count=len(self._pods))
        if any(pod.step == BINDING for pod in self._pods.values()):
            wake.send_binding()

    def _taken_over(self, row: Reservation) -> ReservedPod:
        """Return a pod reserved before the restart; its plugins reserve it again. May query."""
        framework = self._framework_at(row.profile_revision, row.profile)
        state = CycleState(pod_key=row.pod_id)
        self._give_tables(state)
        state.pod_name, state.pod_uid = f"{row.namespace}/{row.name}", row.uid
        for key, value in row.notes.items():
            state.write(key, value)
        info = self._mirror.info(row.class_id)
        pod = ReservedPod(
            pod_id=row.pod_id,
            pod=info,
            node_name=row.node_name,
            framework=framework,
            revision=row.profile_revision,
            state=state,
            step=row.step,
            since=row.since.timestamp(),
            waits={name: due.timestamp() for name, due in row.waits.items()},
            stored=True,
            works=row.step == BINDING
            or (framework is not None and framework.works_for(info, self._mirror.snapshot)),
        )
        if framework is None:
            text = f"profile {row.profile} of revision {row.profile_revision} cannot be used"
            pod.refused = Status(Code.ERROR, (text,))
        elif row.is_held and row.alive:
            try:
                status = framework.reserve(state, info, row.node_name)
            except PluginFailed as failure:
                status = failure.status
            pod.refused = None if status.ok else status
        return pod

    def next_due(self) -> float | None:
        """Return the next deadline, epoch seconds; ``None`` if no pod waits, 0 for now."""
        if self._not_nominated:
            return 0.0
        return min((due for pod in self._pods.values() for due in pod.waits.values()), default=None)

    def follow(self, now: float) -> list[Binding]:
        """Apply approvals, refusals and results of the reserved pods; return the pods to bind now.

        Queries nothing while there are no reserved pods and no pods with PostBind plugins at work.
        """
        if not self._pods:
            self._not_nominated.clear()
            self._release(now)
            if self._informing:
                self._hear_of_informed(reservations.everything())
            self._activate(now)
            return []
        bound: list[ReservedPod] = []
        gone: list[ReservedPod] = []
        refused: list[tuple[ReservedPod, Status]] = []
        for pod_id, success in self._binder.take_outcomes().items():
            if (pod := self._pods.get(pod_id)) is None:
                continue
            pod.submitted = False
            if success:
                bound.append(self._pods.pop(pod_id))
            elif not pod.stored and pod_id in self._mirror.queue:
                self._give_back(self._pods.pop(pod_id))
                self._mirror.queue.requeue_stale(pod_id, now)
        self._write_answers(now)
        self._read_rows()
        for pod_id, pod in list(self._pods.items()):
            if pod_id not in self._mirror.queue:
                elsewhere = self._mirror.snapshot.is_assumed(pod_id) or (
                    self._mirror.snapshot.node_of(pod_id) != pod.node_name
                )
                (gone if elsewhere else bound).append(self._pods.pop(pod_id))
            elif pod.refused is not None:
                refused.append((self._pods.pop(pod_id), pod.refused))
            elif pod.step == READY and self._mirror.snapshot.row_of(pod.node_name) is None:
                text = f'node "{pod.node_name}" not found'
                refused.append((self._pods.pop(pod_id), Status(Code.ERROR, (text,))))
        self._end(bound, gone)
        self._take_back(refused, now)
        self._release(now)
        self._activate(now)
        self._move_allowed()
        self._nominate_some(now)
        ready = [
            pod
            for pod in self._pods.values()
            if pod.stored and pod.step == READY and not pod.submitted
        ]
        for pod in ready:
            pod.submitted = True
        return [self._binding(pod) for pod in ready]

    def _binding(self, pod: ReservedPod) -> Binding:
        framework = pod.framework
        leans = framework is not None and reliance.leans(framework, pod.pod, self._mirror.snapshot)
        footprint = None
        if framework is not None:
            footprint = footprint_of(pod.pod, framework, self._mirror.snapshot)
        claims = tuple(pod.state.get(TAKEN, list) or ())
        return Binding(pod.pod_id, pod.node_name, footprint, leans=leans, claims=claims)

    def _write_answers(self, now: float) -> None:
        """Write which pods plugins allowed or rejected; reject pods past their Permit deadline."""
        stored = [pod for pod in self._pods.values() if pod.stored]
        actions.allow((pod.pod_id, name) for pod in stored for name in pod.allowed_by)
        rejected = [pod for pod in stored if pod.refused is not None]
        steps = (WAITING, BINDING, READY)
        actions.refuse([_refusal(pod, cast(Status, pod.refused)) for pod in rejected], steps=steps)
        overdue = []
        for pod in stored:
            pod.allowed_by.clear()
            if pod.step == WAITING and pod.waits and pod.refused is None:
                plugin = min(pod.waits, key=lambda name, pod=pod: (pod.waits[name], name))  # type: ignore[misc]
                if pod.waits[plugin] <= now:
                    waited = go_duration(pod.waits[plugin] - pod.since)
                    text = f"rejected due to timeout after waiting {waited} at plugin {plugin}"
                    overdue.append(Refusal(pod_id=pod.pod_id, plugin=plugin, message=text))
        actions.refuse(overdue, steps=(WAITING,), due=_moment(now))

    def _read_rows(self) -> None:
        rows = {row.pod_id: row for row in reservations.everything()}
        self._hear_of_informed(rows.values())
        for pod in self._pods.values():
            row = rows.get(pod.pod_id)
            if not pod.stored:
                continue
            if row is None:
                pod.refused = Status(Code.ERROR, ("the reservation was removed",))
                continue
            pod.step = row.step
            if PODS_TO_ACTIVATE in row.notes:  # named by a PreBind or Bind plugin
                pod.state.write(PODS_TO_ACTIVATE, row.notes[PODS_TO_ACTIVATE])
            pod.waits = {name: due.timestamp() for name, due in row.waits.items()}
            if row.step == REFUSED and pod.refused is None:
                pod.refused = Status(Code(row.code), (row.message,), row.plugin)

    def _move_allowed(self) -> None:
        """Move the pods that all Permit plugins allowed to their next step."""
        allowed = [
            pod
            for pod in self._pods.values()
            if pod.stored and pod.step == WAITING and not pod.waits
        ]
        for step in (BINDING, READY):
            moved = [pod for pod in allowed if _next_step(pod) == step]
            done = actions.move([p.pod_id for p in moved], before=(WAITING,), after=step)
            for pod_id in done:
                self._pods[pod_id].step = step
            if done and step == BINDING:
                wake.send_binding()

    def _end(self, bound: Sequence[ReservedPod], gone: Sequence[ReservedPod]) -> None:
        """Forget pods that are bound or deleted, or that another client bound to another node."""
        for pod in gone:
            self._give_back(pod)
        informed = [p for p in bound if p.framework is not None and p.framework.post_bind_plugins]
        moved = actions.move(
            [pod.pod_id for pod in informed], before=(WAITING, BINDING, READY), after=BOUND
        )
        if moved:
            wake.send_binding()
        moved_ids = set(moved)
        self._informing |= moved_ids
        for pod in bound:
            if pod.pod_id not in moved_ids:
                self._to_activate.update(dict.fromkeys(pod.state.take_pods_to_activate()))
        actions.drop([p.pod_id for p in (*bound, *gone) if p.stored and p.pod_id not in moved_ids])

    def _take_back(self, refused: Sequence[tuple[ReservedPod, Status]], now: float) -> None:
        """Free the room of refused pods, and put them into the queue with their reasons."""
        if not refused:
            return
        decisions = []
        for pod, status in refused:
            self._give_back(pod)
            self._mirror.snapshot.unnominate(pod.pod_id)
            placed = Decision(
                key=pod.pod_id,
                class_digest=pod.pod.digest,
                outcome=SCHEDULED,
                node_name=pod.node_name,
                node_count=1,
                evaluated=1,
                feasible=1,
                snapshot_revision=self._mirror.snapshot.revision,
                profile=pod.pod.scheduler_name,
            )
            decision = _refused(placed, status, fits=not pod.waits)
            self._binder.recorder.note(
                [decision], self._mirror.snapshot, profile_revision=pod.revision, now=now
            )
            if not pod.waits:  # refused by PreBind or Bind: no event helps, but another attempt may
                decision = msgspec.structs.replace(decision, rejected_by=(), pending_by=())
            decisions.append(decision)
        self._binder.refuse(decisions, now)
        actions.drop([pod.pod_id for pod, _ in refused if pod.stored])

    def _give_back(self, pod: ReservedPod) -> None:
        if pod.framework is not None:
            _unreserve(pod.framework, pod.state, pod.pod, pod.node_name)
        self._mirror.snapshot.forget(pod.pod_id)
        self._released[pod.pod_id] = pod.pod

    def _release(self, now: float) -> None:
        """Wake the pods that may find the room that refused pods freed."""
        if self._released:
            released, self._released = self._released, {}
            self._mirror.released(released, now)

    def take_back(self, pod_id: int) -> None:
        """Send a reserved pod back to the queue: its node, or pods it depends on, changed."""
        pod = self._pods.get(pod_id)
        if pod is not None and pod.stored:
            text = "the pods placed together with this one were not bound, or its room was taken"
            pod.reject("", text)

    def cancel(self, pod_id: int) -> None:
        """Undo ``begin`` for a pod of this batch whose group is not placed."""
        pod = self._pods.pop(pod_id)
        framework = cast(Framework, pod.framework)
        _unreserve(framework, pod.state, pod.pod, pod.node_name)
        self._mirror.snapshot.forget(pod_id)

    def give_way(self, pod_id: int) -> bool:
        """Send a reserved pod back to the queue for one of higher priority; return whether done.

        It is tried again after its backoff. A pod that is being bound stays. Rule: executor.go,
        v1.36, where ``Preempt`` on a waiting pod is an error.
        """
        pod = self._pods.get(pod_id)
        if pod is None or not pod.stored or pod.submitted:
            return False
        pod.preempt(_PREEMPTION, "preempted")
        return True


def names(states: Sequence[CycleState]) -> None:
    """Set the pods' names and uids in the states. Queries once."""
    rows = pods_by_id([cast(int, state.pod_key) for state in states])
    for state in states:
        row = rows.get(cast(int, state.pod_key))
        if row is not None:
            state.pod_name, state.pod_uid = f"{row.namespace}/{row.name}", row.uid


def _next_step(pod: ReservedPod) -> str:
    return BINDING if pod.framework and pod.works else READY


def _refusal(pod: ReservedPod, status: Status) -> Refusal:
    return Refusal(
        pod_id=pod.pod_id, plugin=status.plugin, message=status.message, code=int(status.code)
    )


def _unreserve(framework: Framework, state: CycleState, info: PodInfo, node_name: str) -> None:
    for status in framework.unreserve(state, info, node_name):
        logger.error("unreserve_failed", plugin=status.plugin, error=status.message)


def _refused(placed: Decision, status: Status, *, fits: bool = False) -> Decision:
    """Return the decision about a placed pod that a plugin, such as at Permit, then refused.

    The scores of the nodes stay in the record. The pod's nomination ends. Rule: schedule_one.go,
    v1.36, where a rejection by Reserve or Permit becomes a FitError about the one node; a rejection
    by PreBind or Bind (``fits``) has the plugin's own message.
    """
    rejects = status.code.rejects
    message = status.message
    if rejects and not fits:
        diagnosis = Diagnosis(node_to_status={placed.node_name: status})
        message = FitError(node_count=1, diagnosis=diagnosis).message()
    return msgspec.structs.replace(
        placed,
        outcome=UNSCHEDULABLE if rejects else ERROR,
        node_name="",
        row=-1,
        rejections=(*placed.rejections, Rejection(status, 1)),
        message=message,
        rejected_by=(status.plugin,) if status.plugin else (),
        pending_by=(status.plugin,) if status.code is Code.PENDING else (),
        nomination=Nomination(),
        status=status,
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def go_duration(seconds: float) -> str:
    """Return a duration as Go prints it, to the millisecond: ``1m30s``, ``250ms``."""
    milli = round(seconds * 1000)
    if milli < 1000:
        return f"{milli}ms" if milli else "0s"
    minutes, rest = divmod(milli, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text

"""Binds decided pods in batches; a pod whose bind the database refuses goes back to the queue.

A batch of placed pods is bound by one statement on a connection of its own, in a thread, while the
scheduler decides the next batch on the snapshot that assumes this one ("assume, then confirm").
``finish_batch`` applies the result: a bound pod leaves the queue. A pod whose bind was refused,
because the pod is gone or its node changed since the snapshot, *comes back* (``_come_back``): the
snapshot forgets it, and it keeps its position in the queue. Conditions and queue places of pods
that fit nowhere are written in bulk too, when no pod is ready to be tried (``unwritten_refusals``).
Events are written last, because no decision reads them.

Pods that plugins reserved (``reservations``) are bound in the same batches; ``reservations`` calls
``take_outcomes`` to learn which of them were bound.

A decision *leans* on pods that were placed but not bound when it was made
(``engine.snapshot.reliance``); it may be bound only with them. It is bound in one statement with
its batch if the whole batch can be bound. Otherwise, and if pods came back since it was made, its
filters run again without them: if they pass, the decision *stands*; if not, its pod comes back. A
decision that leans on a reserved pod waits until that pod is bound, and its own pod stays assumed
meanwhile. It waits only for pods that were decided before it, so two decisions never wait for each
other. Soft terms and scores are not computed again: an outdated score breaks no rule.
"""

import math
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import cast

import structlog
from django.db import connection

from clusterstate.actions.loops import progress
from clusterstate.actions.pods.bind import Binding, BindRefusal, BindResult, OtherSchedulers
from clusterstate.actions.pods.delete import delete_pods_each
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.actions.pods.status import nominate
from clusterstate.actions.pods.together import leaving
from clusterstate.actions.scheduler.claiming import bind_in_order, release
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.change_log import wake
from clusterstate.database import sql
from clusterstate.objects.dra.attempt import Release
from clusterstate.objects.dra.resourceclaim import full_name
from clusterstate.objects.values import ending
from clusterstate.objects.values.actor import KUBE_SCHEDULER, Actor, acting, acts_as
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import shards
from clusterstate.queries.pods import PodRow, pods_by_id
from clusterstate.telemetry import tracing
from scheduling.engine.queue.pending import PendingPod
from scheduling.engine.reference.decision import ERROR, Decision
from scheduling.engine.snapshot import reliance
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo, PodRecord, group_key
from scheduling.worker import measuring, traces
from scheduling.worker.mirror import Mirror
from scheduling.worker.pod_events import NORMAL, SCHEDULED, WARNING, PodEvents
from scheduling.worker.recorder import Recorder
from scheduling.worker.unwritten_refusals import UnwrittenRefusals, moment, stage

logger = structlog.get_logger(__name__)

_INLINE = 32
"""A batch of at most this many pods is bound on the caller's thread, which is faster."""
_MOST_BESIDE, _FEWEST_BESIDE = 500, 8
"""The most and the fewest pods decided at once if several schedulers work: of more pods, the last
ones would often be decided in vain."""
_MOST_OVERTAKEN = 0.02
"""If other schedulers refuse a larger share of binds, fewer pods are decided at once."""
CONTENDED = 5.0
"""Seconds for which a scheduler then takes turns with others (``Scheduler.cycle``)."""
_BY_OTHERS = (BindRefusal.OVERTAKEN, BindRefusal.NEW_RULES)
_MOVES_AT_ONCE = 2000
_TRACED_AT_ONCE = 10_000
"""The most bound pods whose traces are not sent yet; beyond it the oldest are dropped."""
_REFUSALS_AT_ONCE = 500
"""The most refusals written at once, so that no pod waits for a long write."""
_VICTIMS_AT_ONCE = 500
"""The most victims of one preemptor that one transaction deletes."""
_SCHEDULER_ERROR = "SchedulerError"
_UNSCHEDULABLE = "Unschedulable"


class Binder:
    """Writes one scheduler's results: bindings, refusals, preemptions, records and events."""

    def __init__(
        self,
        mirror: Mirror,
        framework_of: Callable[[str], Framework | None] = lambda name: None,
        shard: int = shards.FIRST,
    ) -> None:
        self._mirror = mirror
        self._framework_of = framework_of
        self.shard = shard
        self.recorder = Recorder(shard)
        self.refused = UnwrittenRefusals()
        # A name of its own for each warm state: the row tells whether another process bound since.
        self._name = shards.holder(shard, str(uuid.uuid4()))
        self.beside: OtherSchedulers | None = None
        """What this scheduler knows of others when it decides a batch; ``None``: there are none."""
        self.was_overtaken = False
        """Whether a bind was refused because of another scheduler's writes."""
        self.at_once = _MOST_BESIDE
        """How many pods to decide at once if several schedulers work: fewer if many binds fail."""
        self.contended_until = -math.inf
        """Until when schedulers take turns, because one took room that this one wanted."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="binder")
        self._closed = False
        self._underway: Future[BindResult] | None = None
        self._batch: list[Binding] = []
        self._decided_at: tuple[int, datetime, OtherSchedulers | None] = (
            0, datetime.fromtimestamp(0, UTC), None,
        )  # fmt: skip
        self._began = self._submitted = time.perf_counter()
        self._traced: deque[tuple[int, traces.Times]] = deque(maxlen=_TRACED_AT_ONCE)
        self._leaning: dict[int, Binding] = {}
        self._leaning_in = mirror.snapshot
        self._turns: dict[int, int] = {}
        self._turn = 0
        self._came_back = False
        self._doubts_reserved = False
        self._events = PodEvents()
        self._reserved: set[int] = set()
        self._outcomes: dict[int, bool] = {}
        self.give_way: Callable[[int], bool] = lambda pod_id: False
        """Takes back a reserved victim that is not bound; returns False if it was not reserved."""
        self.reserved: Callable[[], Collection[int]] = lambda: ()
        """Returns the ids of pods that are reserved and not bound."""
        self.take_back: Callable[[int], None] = lambda pod_id: None
        """Takes back a reserved pod whose decision is no longer valid."""
        self.bound_some: Callable[[Iterable[int], float], None] = lambda pod_ids, now: None
        """Called with the ids of bound pods and the time."""
        self.took_back: Callable[[Iterable[int]], None] = lambda pod_ids: None
        """Called with the ids of placed pods that were not bound."""
        self.refused_some: Callable[[Sequence[Decision]], None] = lambda decisions: None
        """Called with the decisions that placed nothing."""
        self.with_rules: Callable[
            [Sequence[Binding]], tuple[OtherSchedulers | None, list[Binding]]
        ] = lambda bindings: (None, list(bindings))
        """Reads rules about other pods; returns what is known of others, and the bindings with
        their counters, which are ``None`` and no counters for a scheduler alone."""

    def close(self) -> None:
        """Wait for the batch that is being bound, then close the thread's database connection.

        A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        self._thread.submit(lambda: connection.close())  # noqa: PLW0108  # the thread's connection
        self._thread.shutdown(wait=True)

    def work_as(self, shard: int) -> None:
        """Record decisions under this scheduler number from now on."""
        if shard != self.shard:
            self.shard, self.recorder = shard, Recorder(shard)

    # --- placed ----------------------------------------------------------------------------------

    def take_turns(self, batch: Sequence[PendingPod]) -> None:
        """Number the pods in the order in which they are decided.

        Needed where bindings may wait longer than a batch: a decision depends only on earlier pods.
        """
        for pod_id in self._turns.keys() - self._leaning.keys() - set(self.reserved()):
            del self._turns[pod_id]
        for pod in batch:
            self._turn += 1
            self._turns[pod.pod_id] = self._turn

    @property
    def is_binding(self) -> bool:
        """Whether a batch is being bound."""
        return self._underway is not None

    @property
    def has_leaning(self) -> bool:
        """Whether decisions wait because they depend on reserved pods that are not bound yet."""
        return bool(self._leaning)

    def submit(
        self,
        placed: Sequence[Binding],
        now: float,
        reserved: Sequence[Binding] = (),
        *,
        began: float | None = None,
    ) -> int:
        """Begin to bind pods that were just placed, and reserved pods; return their number.

        The batch before is finished first. ``began``: when the attempt began, by the clock of
        ``time.perf_counter``; now by default.
        """
        self.finish_batch(now, later=placed)
        bindings = [*reserved, *placed]
        self._reserved = set(self.reserved())
        doubted = self._came_back or self._doubts_reserved or bool(self._leaning)
        if doubted or (bindings and self.reserved()):
            bindings = self._sorted_out(bindings, now)
        if not bindings:
            return 0
        # Rules are read after the decisions: the binds of who has not read all are refused. A pod
        # that a new rule means is bound only if the snapshot has all binds that the rule counts.
        self.beside, bindings = self.with_rules(bindings)
        self._batch = bindings
        self._began = time.perf_counter() if began is None else began
        self._submitted = time.perf_counter()
        moment = datetime.fromtimestamp(now, UTC)
        self._decided_at = self._mirror.snapshot.revision, moment, self.beside
        if len(bindings) <= _INLINE:
            self._underway = Future()
            self._underway.set_result(self._bind(bindings, *self._decided_at))
            self.finish_batch(now)
        else:
            self._underway = self._thread.submit(self._bind_apart, bindings, *self._decided_at)
        return len(bindings)

    @acts_as(KUBE_SCHEDULER)
    def _bind(
        self, bindings: list[Binding], revision: int, now: datetime, beside: OtherSchedulers | None
    ) -> BindResult:
        began = time.perf_counter()
        with wake.without_scheduler():
            result = bind_in_order(
                bindings,
                snapshot_revision=revision,
                now=now,
                binder=self._name,
                beside=beside,
            )
        measuring.wrote(len(bindings), time.perf_counter() - began)
        return result

    def _bind_apart(
        self, bindings: list[Binding], revision: int, now: datetime, beside: OtherSchedulers | None
    ) -> BindResult:
        sql.drop_dead_connection()
        result = self._bind(bindings, revision, now, beside)
        # The next batch may take long to decide; the bound pods show that the scheduler works.
        progress.step(shards.loop(self.shard))
        progress.tell_steps()
        return result

    def finish_batch(self, now: float, later: Sequence[Binding] = ()) -> int:
        """Wait until the batch is bound and apply the result; return how many were refused.

        ``later``: bindings decided since, on the assumption that the whole batch is bound.

        Raises:
            django.db.Error: the database failed; the caller must load its mirror again.
        """
        if self._underway is None:
            return 0
        underway, self._underway = self._underway, None
        batch, self._batch = self._batch, []
        result = underway.result()
        came_back = 0
        while True:
            result = self._with_new_rules(batch, result)
            came_back += self._apply_result(batch, result, now)
            if not result.held:
                break
            held = set(result.held)
            broken = {one.gang for one in batch if one.gang and one.pod_id in result.refused}
            if fallen := [one.pod_id for one in batch if one.gang in broken and one.pod_id in held]:
                held.difference_update(fallen)
                came_back += len(fallen)
                self._come_back(fallen, now)
            batch = self._sorted_out([one for one in batch if one.pod_id in held], now, later)
            if not batch:
                break
            result = self._bind(batch, *self._decided_at)
        return came_back

    def _with_new_rules(self, batch: Sequence[Binding], result: BindResult) -> BindResult:
        """Try pods once more that were refused because of unread rules; return the whole result."""
        again = [one for one in batch if result.refused.get(one.pod_id) is BindRefusal.NEW_RULES]
        if not again:
            return result
        self.beside, again = self.with_rules(again)
        self._decided_at = *self._decided_at[:2], self.beside
        more = self._bind(again, *self._decided_at)
        named = {one.pod_id for one in again}
        rest = {one: why for one, why in result.refused.items() if one not in named}
        return BindResult(
            [*result.bound, *more.bound], rest | more.refused, [*result.held, *more.held]
        )

    def _apply_result(self, batch: Sequence[Binding], result: BindResult, now: float) -> int:
        """Apply the result of a batch; return how many of its pods were not bound."""
        bound = batch
        if len(result.bound) < len(batch):
            done = {pod_id for pod_id, _ in result.bound}
            bound = [one for one in batch if one.pod_id in done]
        for one in bound:
            self._events.note(one.pod_id, NORMAL, SCHEDULED, one.node_name)
        self.refused.drop(pod_id for pod_id, _ in result.bound)
        self.bound_some([pod_id for pod_id, _ in result.bound], now)
        queue, seconds = self._mirror.queue, time.perf_counter() - self._began
        popped_at = self._decided_at[1].timestamp()
        measuring.bound(queue.waited(one.pod_id for one in bound), popped_at, seconds)
        measuring.bound_in_the_end(
            queue.refused_before(one.pod_id for one in bound), popped_at + seconds
        )
        if tracing.is_on():
            decided_at = popped_at + self._submitted - self._began
            for one in bound:
                since = queue.place(one.pod_id).since if one.pod_id in queue else popped_at
                times = traces.Times(since, popped_at, decided_at, popped_at + seconds)
                self._traced.append((one.pod_id, times))
        for pod_id, _ in result.bound:
            if pod_id in self._reserved:
                self._outcomes[pod_id] = True
            self._mirror.queue.done(pod_id)
        overtaken = 0
        if result.refused:
            overtaken = sum(why in _BY_OTHERS for why in result.refused.values())
            if overtaken and self.beside is not None:
                self.was_overtaken = True
                measuring.overtaken(self.shard, overtaken)
        if overtaken > _MOST_OVERTAKEN * len(batch):
            self.contended_until = now + CONTENDED
            self.at_once = max(_FEWEST_BESIDE, min(self.at_once, len(batch)) // 2)
        elif len(batch) >= self.at_once:
            self.at_once = min(2 * self.at_once, _MOST_BESIDE)
        if result.refused:
            measuring.came_back(queue.waited(result.refused), seconds)
            self._come_back(result.refused, now)
            logger.info(
                "bindings_refused",
                bound=len(result.bound),
                refused=dict(Counter(str(why) for why in result.refused.values())),
            )
        return len(result.refused)

    def _come_back(self, pod_ids: Iterable[int], now: float) -> None:
        """Take back decisions that are not carried out; their pods keep their queue position.

        The change log has no entry about the room that they free, so waiting pods are woken here.
        """
        self._came_back = True
        stale = set(pod_ids)
        self.took_back(stale)
        self._doubts_reserved = bool(self.reserved())
        released: dict[int, PodInfo] = {}
        for pod_id in stale:
            if pod_id in self._reserved:
                self._outcomes[pod_id] = False
                continue
            if (record := self._mirror.snapshot.pod(pod_id)) is not None:
                released[pod_id] = record.info
            self._mirror.snapshot.forget(pod_id)
            self._mirror.queue.requeue_stale(pod_id, now)
        self._mirror.released(released, now)
        self.recorder.came_back(stale)

    def give_up(self, pod_ids: Sequence[int], now: float) -> None:
        """Take back unsubmitted pods because another pod of their gang was not bound."""
        reserved = set(self.reserved())
        for pod_id in pod_ids:
            if pod_id in reserved:
                self._outcomes[pod_id] = False
                self.take_back(pod_id)
        if rest := [pod_id for pod_id in pod_ids if pod_id not in reserved]:
            self._come_back(rest, now)

    # --- decisions that depend on others ---------------------------------------------------------

    def begin_anew(self) -> None:
        """Forget the decisions that wait for reserved pods, after the mirror was loaded again."""
        self._leaning, self._leaning_in = {}, self._mirror.snapshot

    def _sorted_out(
        self, bindings: Sequence[Binding], now: float, later: Sequence[Binding] = ()
    ) -> list[Binding]:
        """Return the bindings that may be written now, in the order of their decisions.

        All pods that are not bound are taken out of the snapshot's counts first. Then each binding
        is checked in turn. If its filters pass, the pod is counted again; if it may depend on a
        reserved pod, it waits; otherwise the pod goes back to the queue.
        """
        snapshot = self._mirror.snapshot
        if self._leaning_in is not snapshot:
            self.begin_anew()
        waited, self._leaning = self._leaning, {}
        turn = self._turns.get
        candidates = sorted(
            [*waited.values(), *bindings], key=lambda one: turn(one.pod_id, self._turn)
        )
        named = {one.pod_id for one in candidates}
        reserved = [
            pod_id
            for pod_id in self.reserved()
            if pod_id not in named and not self._outcomes.get(pod_id)
        ]
        standing: list[Binding] = []
        fallen: list[int] = []
        fallen_reserved: list[int] = []
        unbound = [*reserved, *named, *(one.pod_id for one in later)]
        with reliance.set_apart(snapshot, unbound) as apart:
            holders = {pod_id: apart[pod_id] for pod_id in reserved if pod_id in apart}
            for one in candidates:
                record = apart.get(one.pod_id)
                if record is None or (
                    (
                        not one.leans
                        or self._stands(record, after=fallen, waited=one.pod_id in waited)
                    )
                    and (not self._is_doubtful(one) or self._has_room(record))
                ):
                    standing.append(one)
                    if record is not None:
                        snapshot.attach(apart.pop(one.pod_id))
                elif self._waits(record, holders, turn(one.pod_id, self._turn)):
                    self._leaning[one.pod_id] = one
                    holders[one.pod_id] = record
                else:
                    fallen.append(one.pod_id)
            if self._doubts_reserved:
                # Repeat while reserved pods whose bind was refused are still counted.
                self._doubts_reserved = not all(self._outcomes.values())
                fallen_reserved = [
                    pod_id
                    for pod_id in reserved
                    if (record := apart.get(pod_id)) is not None
                    and self._leans(record.info)
                    and not self._stands(record)
                    and not self._waits(record, holders, turn(pod_id, 0))
                ]
        if broken := {one.gang for one in candidates if one.gang and one.pod_id in set(fallen)}:
            fallen += [one.pod_id for one in standing if one.gang in broken]
            standing = [one for one in standing if one.gang not in broken]
            for one in candidates:
                if one.gang in broken and self._leaning.pop(one.pod_id, None) is not None:
                    fallen.append(one.pod_id)
        for pod_id in self._leaning.keys() - waited.keys():
            if pod_id in self._mirror.queue:
                self._mirror.queue.park(pod_id)
        if fallen:
            fallen_reserved += [pod_id for pod_id in fallen if pod_id in self._reserved]
            self._come_back(fallen, now)
            logger.info("decisions_fell", count=len(fallen))
        for pod_id in fallen_reserved:
            self.take_back(pod_id)
        return standing

    def _is_doubtful(self, one: Binding) -> bool:
        """Whether other writers may have put pods on the node since this binding was decided.

        A reserved pod waits, and so may the others of its gang. A bind checks only that the node is
        as in the snapshot now, so a pod that a client bound meanwhile would go unnoticed.
        """
        return one.pod_id in self._reserved or (self.beside is not None and bool(one.gang))

    def _has_room(self, record: PodRecord) -> bool:
        framework = self._framework_of(record.info.scheduler_name)
        return framework is None or reliance.has_room(framework, record, self._mirror.snapshot)

    def _leans(self, info: PodInfo) -> bool:
        framework = self._framework_of(info.scheduler_name)
        return framework is not None and reliance.leans(framework, info, self._mirror.snapshot)

    def _stands(
        self, record: PodRecord, after: Sequence[int] = (), *, waited: bool = False
    ) -> bool:
        """Whether a pod that is not counted may go to its node, given the pods that are counted.

        Every filter runs again for a pod that ``waited``, because its node may have changed. It is
        unknown what plugins of other packages read, so a pod whose node they helped to choose is
        refused if other pods went back to the queue (``after``: their ids).
        """
        framework = self._framework_of(record.info.scheduler_name)
        if framework is None:
            return True
        if framework.filters_by_itself and (after or self._came_back):
            return False
        try:
            ask = reliance.fits if waited else reliance.stands
            return ask(framework, record, self._mirror.snapshot)
        except PluginFailed as failure:
            logger.warning("plugin_failed", plugin=failure.status.plugin, error=str(failure))
            return False

    def _waits(self, record: PodRecord, holders: dict[int, PodRecord], turn: int) -> bool:
        """Whether the pod may depend on one that was decided before it and is not bound yet."""
        framework = self._framework_of(record.info.scheduler_name)
        snapshot = self._mirror.snapshot
        return framework is not None and any(
            self._turns.get(pod_id, 0) < turn
            and reliance.counts(framework, record.info, holder.info, snapshot)
            for pod_id, holder in holders.items()
        )

    def let_go(self, now: float) -> None:
        """Take back all decisions that wait for reserved pods; their pods return to the queue."""
        if self._leaning:
            leaning, self._leaning = self._leaning, {}
            self._come_back(leaning, now)

    def take_outcomes(self) -> dict[int, bool]:
        """Return, by pod id, whether a reserved pod was bound or refused since the last call."""
        outcomes, self._outcomes = self._outcomes, {}
        return outcomes

    # --- not placed ------------------------------------------------------------------------------

    def refuse(
        self,
        refused: Sequence[Decision],
        now: float,
        *,
        configuration: int = 0,
        began: float | None = None,
    ) -> None:
        """Put pods that were not placed back into the queue.

        ``write_refused`` writes the reasons later. A pod that preempts others has its nomination
        written at once, and its victims are deleted.

        Args:
            refused: decisions that placed nothing.
            now: the time.
            configuration: revision of the configuration that they were made under.
            began: when the attempt began, as for ``submit``.
        """
        queue = self._mirror.queue
        seconds = 0.0 if began is None else time.perf_counter() - began
        at_once: list[Unschedulable] = []
        refused = self._worth_carrying_out(refused, now)
        self.refused_some(refused)
        measuring.refused(refused, seconds)
        for decision in refused:
            pod_id = cast(int, decision.key)
            if decision.outcome == ERROR:
                queue.requeue_failed(pod_id, now)
            else:
                queue.requeue_unschedulable(
                    pod_id, decision.rejected_by, now, pending_by=decision.pending_by
                )
            if pod_id not in queue:
                continue
            place = queue.place(pod_id)
            item = Unschedulable(
                pod_id=pod_id,
                message=decision.message,
                reason=_SCHEDULER_ERROR if decision.outcome == ERROR else _UNSCHEDULABLE,
                rejected_by=place.rejected_by,
                stage=stage(place),
                attempts=place.attempts,
                early=place.early,
                not_before=moment(place),
                refused_revision=decision.snapshot_revision,
                refused_under=configuration,
                nominated_node_name=self._nomination_to_write(decision),
            )
            if item.nominated_node_name:
                at_once.append(item)
            else:
                self.refused.note(item, now)
            self._events.note(pod_id, WARNING, "FailedScheduling", decision.message)
        self._give_back(one for one in refused if one.displaced and cast(int, one.key) not in queue)
        now_ = datetime.fromtimestamp(now, UTC)
        for decision in refused:
            if decision.released is not None:
                self._release(decision.released, now_)
        if not at_once:
            return
        self.refused.drop(item.pod_id for item in at_once)
        with wake.without_scheduler():
            self._mirror.wrote_nominations(set_unschedulable(at_once, now=now_))
            queue.mark_written(item.pod_id for item in at_once)
            for decision in refused:
                if decision.victims:
                    self._displace(decision, now_)
                    self._preempt(decision, now_)

    def _nomination_to_write(self, decision: Decision) -> str | None:
        """Return the node name to write as a refused pod's nomination, "" to clear it.

        ``None`` leaves the row unchanged, so that a nomination that a client wrote meanwhile stays.
        """
        if decision.nomination is None:
            return None
        if not decision.nomination.node_name:
            return "" if self._mirror.may_be_nominated(cast(int, decision.key)) else None
        return decision.nomination.node_name

    def write_refused(self, now: float) -> int:
        """Write conditions and queue places of some refused pods; return their number.

        Writes nothing while pods are ready to be tried, unless a refusal is overdue.
        """
        queue = self._mirror.queue
        if not self.refused or (queue.has_ready and not self.refused.is_due(now)):
            return 0
        with wake.without_scheduler():
            return self.refused.write(self._mirror, now, _REFUSALS_AT_ONCE)

    def _worth_carrying_out(self, refused: Sequence[Decision], now: float) -> Sequence[Decision]:
        """Return the refusals, without preemptions that may be in vain; these pods go to the queue.

        A preemption may have counted on an assumed pod whose bind was refused. If several
        schedulers work, another one may have bound or nominated the preemptor meanwhile, because it
        took this scheduler for a dead one.
        """
        preempting = [decision for decision in refused if decision.victims]
        if preempting:
            self.finish_batch(now)
        came_back, self._came_back = self._came_back, False
        if not came_back:
            if self.beside is None or not preempting:
                return refused
            rows = pods_by_id([cast(int, decision.key) for decision in preempting])
            preempting = [
                decision
                for decision in preempting
                if (row := rows.get(cast(int, decision.key))) is None
                or row.revision > decision.snapshot_revision
            ]
        for decision in preempting:
            pod_id = cast(int, decision.key)
            self._mirror.take_back_nomination(pod_id)
            self._mirror.queue.requeue_stale(pod_id, now)
        self._give_back(preempting)
        dropped = {decision.key for decision in preempting}
        return [decision for decision in refused if decision.key not in dropped]

    def _release(self, what: Release, now: datetime) -> None:
        """Release a pod's ResourceClaim; the change wakes the pods that it may help."""
        try:
            release(what, now=now)
        except StatusError as error:
            # The claim changed meanwhile, which wakes the pods as well.
            logger.info("claim_kept", claim=full_name(what.claim), error=error.message)

    def _give_back(self, preempting: Iterable[Decision]) -> None:
        """Restore the nominations that were cleared for preemptions that are not carried out."""
        for decision in preempting:
            for key in decision.displaced:
                if not self._mirror.snapshot.nominated_node_of(key):
                    self._mirror.take_back_nomination(cast(int, key))

    def _displace(self, decision: Decision, now: datetime) -> None:
        """Clear the nominations of pods of lower priority to the node of the victims.

        The snapshot did that at the decision, and a pod that was decided later in the same batch
        may be nominated again. The changes in the log wake these pods, and pods that could not use
        the node because of them.
        """
        mirror = self._mirror
        if cast(int, decision.key) not in mirror.queue:
            return
        nominated = mirror.snapshot.nominated_node_of
        displaced = [cast(int, key) for key in decision.displaced if not nominated(key)]
        mirror.wrote_nominations(nominate(dict.fromkeys(displaced, ""), now=now))

    def _preempt(self, decision: Decision, now: datetime) -> None:
        """Delete the victims gracefully.

        The victims' events and conditions name the preemptor by its uid and not by its name,
        because the readers of a victim may not be allowed to know the preemptor's namespace
        (preemption.go, v1.36). The victim's trail in the API names the preemptor to users with the
        right to get it.
        """
        preemptor, mirror = cast(int, decision.key), self._mirror
        victims = {cast(int, record.key): record.info for record in decision.victims}
        rows = pods_by_id([preemptor, *victims])
        if preemptor not in rows:
            return
        uid = rows[preemptor].uid
        groups = mirror.snapshot.groups
        mine = mirror.info(rows[preemptor].class_id) if groups else None
        made_room = Actor(KUBE_SCHEDULER.name, cause=uuid.UUID(uid))
        leaving_rows: dict[int, PodRow] = {}
        for pod_id, info in victims.items():
            if (row := rows.get(pod_id)) is None or row.deletion_at is not None:
                continue
            if mine is not None and groups.spares(info, mine):
                continue  # an extender named it, or its group came to be worth more meanwhile
            if self.give_way(pod_id):
                node_name = "" if decision.nomination is None else decision.nomination.node_name
                text = f"Preempted by pod {uid} on node {node_name} (in kube-scheduler memory)."
                self._events.note(pod_id, NORMAL, "Preempted", text)
                continue
            if self._leaning.pop(pod_id, None) is not None:
                self._come_back([pod_id], now.timestamp())
                continue
            leaving_rows[pod_id] = row
        condition = ending.condition(
            ending.PREEMPTED, f"{decision.profile}: preempting to accommodate a higher priority pod"
        )

        def delete(rows: dict[int, PodRow]) -> list[int]:
            together = any(group_key(victims[pod_id].pod) for pod_id in rows)
            with acting(made_room):
                return self._delete(rows, condition, now, together=together)

        def delete_apart(parts: Iterable[dict[int, PodRow]]) -> list[int]:
            sql.drop_dead_connection()
            found = []
            with wake.without_scheduler():
                for rows in parts:
                    found += delete(rows)
                    progress.step(shards.loop(self.shard))  # very many victims take long
                    progress.tell_steps()
            return found

        pairs, step = list(leaving_rows.items()), _VICTIMS_AT_ONCE
        parts = [dict(pairs[first : first + step]) for first in range(0, len(pairs), step)]
        # Of many victims the binder's thread, which is idle now, deletes every second part: one
        # thread computes while the other waits for the database.
        beside = [self._thread.submit(delete_apart, parts[1::2])] if len(parts) > 1 else []
        try:
            gone = {pod_id for rows in parts[::2] for pod_id in delete(rows)}
        finally:
            wait(beside)
        for one in beside:
            gone.update(one.result())
        for pod_id, row in leaving_rows.items():
            if pod_id in gone:
                text = f"Preempted by pod {uid} on node {row.node_name}"
                self._events.note(pod_id, NORMAL, "Preempted", text)

    def _delete(
        self, rows: Mapping[int, PodRow], condition: Manifest, now: datetime, *, together: bool
    ) -> list[int]:
        """Delete victims and their groups in one transaction; return the ids of the deleted pods.

        If a pod of a group may not be deleted, the victims are deleted one by one. ``together``:
        some of them are of groups.
        """
        deletions = [
            Deletion(namespace=row.namespace, name=row.name, uid=row.uid, condition=condition)
            for row in rows.values()
        ]
        try:
            with leaving(list(rows), condition, now=now) if together else nullcontext():
                found = delete_pods_each(deletions, now=now)
        except StatusError as error:
            if len(rows) > 1:
                each = ({pod_id: row} for pod_id, row in rows.items())
                return [
                    pod_id
                    for one in each
                    for pod_id in self._delete(one, condition, now, together=together)
                ]
            found = [error]
        gone = []
        for (pod_id, row), result in zip(rows.items(), found, strict=True):
            if isinstance(result, StatusError):
                # The victim is gone: its room is free, or the next cycle reads the change.
                logger.info("victim_kept", pod=row.name, error=result.message)
            else:
                gone.append(pod_id)
        return gone

    # --- news ------------------------------------------------------------------------------------

    def write_records(self, now: float, most: int | None = None) -> bool:
        """Write decision records, moves in the queue and events, the oldest of each first.

        Returns whether everything is written. ``most`` is about how many are written in all;
        ``None``: no limit. A batch that is being bound is finished first, so that its refused binds
        are recorded.
        """
        if len(self.recorder):
            self.finish_batch(now)
        budget = math.inf if most is None else most
        budget -= self.recorder.record(most)
        queue = self._mirror.queue
        if budget > 0 and queue.has_changes:
            with wake.without_scheduler():
                budget -= self.refused.move(queue, int(min(budget, _MOVES_AT_ONCE)))
        if budget > 0:
            if self._traced:
                traced = list(self._traced)
                self._traced.clear()
                traces.send(traced)
            self._events.write(now, None if most is None else int(budget))
        return not self.has_news

    @property
    def has_news(self) -> bool:
        """Whether ``write_records`` has something to write."""
        return len(self._events) > 0 or len(self.recorder) > 0 or self._mirror.queue.has_changes

"""Decisions become actions; those that came too late come back.

A batch of placed pods is bound by one statement on a connection of its own, in a thread, while the
runner already decides the next batch on the snapshot that assumes it ("assume, then confirm").
``settle`` learns what became of it: a bound pod leaves the queue, a stale one (gone, or its node
changed since the snapshot) is forgotten by the snapshot and keeps its turn. Pods that fit nowhere
get their condition and their place in the queue in bulk too, when no pod is ready to be tried
(``scheduling.refused``). Events are told last, when there is nothing more urgent; they are news,
not state.

Pods that plugins reserved (``scheduling.reserved``) are bound in the same batches; what became of
them is for who reserved them to know (``take_outcomes``).
"""

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import cast

import structlog
from django.db import connection

from clusterstate import queries, sql
from clusterstate.actions import events, pods
from clusterstate.actions.events import Occurrence
from clusterstate.actions.pods import Binding, BindResult, Unschedulable
from clusterstate.objects.errors import StatusError
from scheduling import wake
from scheduling.engine.decision import ERROR, Decision
from scheduling.recorder import Recorder
from scheduling.refused import Refused, moment, stage
from scheduling.sync import Mirror

logger = structlog.get_logger(__name__)

_INLINE = 32
"""Up to so many pods are bound on the caller's thread: handing over would cost more."""
_EVENTS_AT_ONCE = 2000
_REFUSALS_AT_ONCE = 500
"""So many refusals are written at a time: no pod waits for a long list."""
_SCHEDULER_ERROR = "SchedulerError"
_UNSCHEDULABLE = "Unschedulable"


class Binder:
    """Writes what one runner decides."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self.recorder = Recorder()
        self.refused = Refused()
        # A name of its own for each warm state: the rows tell whether somebody else bound since.
        self._name = f"scheduler-{uuid.uuid4()}"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="binder")
        self._closed = False
        self._underway: Future[BindResult] | None = None
        self._news: list[tuple[int, str, str, str]] = []
        self._reserved: set[int] = set()
        self._outcomes: dict[int, bool] = {}
        self.give_way: Callable[[int], bool] = lambda pod_id: False
        """Asked to take back a victim that is reserved and not bound; True if it was."""

    def close(self) -> None:
        """Wait for the batch that is under way, whatever becomes of it, and hang up, once."""
        if self._closed:
            return
        self._closed = True
        self._thread.submit(lambda: connection.close())  # noqa: PLW0108  # that thread's
        self._thread.shutdown(wait=True)

    # --- placed ----------------------------------------------------------------------------------

    def submit(
        self, placed: Sequence[Binding], now: float, reserved: Sequence[Binding] = ()
    ) -> None:
        """Begin to bind what was decided on the snapshot as it is, and reserved pods.

        The batch before is settled first.
        """
        self.settle(now)
        bindings = [*placed, *reserved]
        if not bindings:
            return
        self._reserved = {one.pod_id for one in reserved}
        self._news += [
            (one.pod_id, "Normal", "Scheduled", f"to {one.node_name}") for one in bindings
        ]
        revision = self._mirror.snapshot.revision
        moment = datetime.fromtimestamp(now, UTC)
        if len(bindings) <= _INLINE:
            self._underway = Future()
            self._underway.set_result(self._bind(bindings, revision, moment))
            self.settle(now)
        else:
            self._underway = self._thread.submit(self._bind_apart, bindings, revision, moment)

    def _bind(self, bindings: list[Binding], revision: int, now: datetime) -> BindResult:
        with wake.without_scheduler():
            return pods.bind_pods(bindings, snapshot_revision=revision, now=now, binder=self._name)

    def _bind_apart(self, bindings: list[Binding], revision: int, now: datetime) -> BindResult:
        sql.drop_dead_connection()
        return self._bind(bindings, revision, now)

    def settle(self, now: float) -> int:
        """Wait for the batch under way and apply what became of it; return how many came back.

        Raises:
            django.db.Error: the database failed; the caller must load its mirror again.
        """
        if self._underway is None:
            return 0
        underway, self._underway = self._underway, None
        result = underway.result()
        reserved, self._reserved = self._reserved, set()
        if reserved:
            self._outcomes.update((id_, True) for id_, _ in result.bound if id_ in reserved)
            self._outcomes.update((id_, False) for id_ in result.stale if id_ in reserved)
        self.refused.drop(pod_id for pod_id, _ in result.bound)
        for pod_id, _ in result.bound:
            self._mirror.queue.done(pod_id)
        for pod_id in result.stale:
            if pod_id not in reserved:
                self._mirror.snapshot.forget(pod_id)
                self._mirror.queue.requeue_stale(pod_id, now)
        if result.stale:
            self.recorder.came_back(result.stale)
            stale = set(result.stale)
            self._news = [news for news in self._news if news[0] not in stale]
            logger.info("bindings_came_back", stale=len(result.stale), bound=len(result.bound))
        return len(result.stale)

    def take_outcomes(self) -> dict[int, bool]:
        """Return which reserved pods were bound, and which could not be, since the last call."""
        outcomes, self._outcomes = self._outcomes, {}
        return outcomes

    # --- not placed ------------------------------------------------------------------------------

    def refuse(self, refused: Sequence[Decision], now: float, *, configuration: int = 0) -> None:
        """Put pods that were not placed back into the queue.

        Their reasons are written by ``write_refused``; those that make room for themselves, at
        once, and their victims are deleted.

        Args:
            refused: decisions that placed nothing.
            now: the time.
            configuration: revision of the configuration that they were made under.
        """
        queue = self._mirror.queue
        at_once: list[Unschedulable] = []
        for decision in refused:
            pod_id = cast(int, decision.key)
            if decision.outcome == ERROR:
                queue.requeue_failed(pod_id, now)
            else:
                queue.requeue_unschedulable(pod_id, decision.rejected_by, now)
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
                not_before=moment(place),
                refused_revision=decision.snapshot_revision,
                refused_under=configuration,
                nominated_node_name=(
                    None if decision.nomination is None else decision.nomination.node_name
                ),
            )
            if item.nominated_node_name:
                at_once.append(item)
            else:
                self.refused.note(item, now)
            self._news.append((pod_id, "Warning", "FailedScheduling", decision.message))
        if not at_once:
            return
        now_ = datetime.fromtimestamp(now, UTC)
        self.refused.drop(item.pod_id for item in at_once)
        with wake.without_scheduler():
            pods.set_unschedulable(at_once, now=now_)
            queue.told(item.pod_id for item in at_once)
            for decision in refused:
                if decision.nomination is not None and decision.nomination.victims:
                    self._preempt(decision, now_)

    def write_refused(self, now: float) -> int:
        """Write why pods were refused, and where they wait now, some at a time; return how many.

        Nothing, while pods are ready to be tried and no refusal has waited for long.
        """
        queue = self._mirror.queue
        if not self.refused or (queue.has_ready and not self.refused.is_due(now)):
            return 0
        with wake.without_scheduler():
            return self.refused.write(queue, now, _REFUSALS_AT_ONCE)

    def _preempt(self, decision: Decision, now: datetime) -> None:
        """Delete the victims gracefully, each with the name of the pod that it makes room for."""
        assert decision.nomination is not None
        preemptor = cast(int, decision.key)
        victims = [cast(int, record.key) for record in decision.nomination.victims]
        rows = queries.pods_by_id([preemptor, *victims])
        if preemptor not in rows:
            return
        name = f"{rows[preemptor].namespace}/{rows[preemptor].name}"
        for pod_id in victims:
            if (row := rows.get(pod_id)) is None or row.deletion_at is not None:
                continue
            if self.give_way(pod_id):
                continue
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": f"{decision.profile}: preempting to accommodate {name}, a pod of"
                f" higher priority ({rows[preemptor].priority} over {row.priority})",
            }
            try:
                pods.delete_pod(row.namespace, row.name, uid=row.uid, condition=condition, now=now)
            except StatusError as error:
                # Gone or replaced meanwhile: the room is made already, or the next cycle sees it.
                logger.info("victim_kept", pod=row.name, error=error.message)
                continue
            self._news.append(
                (pod_id, "Normal", "Preempted", f"Preempted by {name} on node {row.node_name}")
            )

    # --- news ------------------------------------------------------------------------------------

    def tell(self, now: float, most: int | None = None) -> None:
        """Record the decisions and the events of what happened, ``most`` of each: the oldest."""
        self.recorder.record(most)
        with wake.without_scheduler():
            self.refused.move(self._mirror.queue, _EVENTS_AT_ONCE if most is None else most)
        news, self._news = self._news[:most], [] if most is None else self._news[most:]
        moment = datetime.fromtimestamp(now, UTC)
        for first in range(0, len(news), _EVENTS_AT_ONCE):
            part = news[first : first + _EVENTS_AT_ONCE]
            rows = queries.pods_by_id([pod_id for pod_id, *_ in part])
            with wake.without_scheduler():
                events.record_many(
                    [
                        Occurrence(
                            kind="Pod",
                            namespace=row.namespace,
                            name=row.name,
                            uid=row.uid,
                            type=type_,
                            reason=reason,
                            message=(
                                f"Successfully assigned {row.namespace}/{row.name} {message}"
                                if reason == "Scheduled"
                                else message
                            ),
                        )
                        for pod_id, type_, reason, message in part
                        if (row := rows.get(pod_id)) is not None
                    ],
                    now=moment,
                )

    @property
    def has_news(self) -> bool:
        """Whether ``tell`` has something to record."""
        return bool(self._news) or len(self.recorder) > 0 or self._mirror.queue.has_changes

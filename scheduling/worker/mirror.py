"""The cluster in memory, kept up with the change log: news in, snapshot deltas and queue moves out.

``Mirror`` owns the warm state of one scheduling worker: the snapshot of nodes and placed pods, and
the queue of pending ones. ``load`` builds both from the rows; ``refresh`` applies what was
committed since. The mirror is a cache: throw it away at any moment, load again, and the next cycle
decides the same. It never writes.

Applying a change twice, or one that the loaded rows already contain, does no harm: every delta
states the last state of one object. A pod that this worker assumed is confirmed by its own change;
a pod that somebody else put on a node is noted in ``arrivals``, for the node's admission to judge,
and in ``homeless`` as long as that node does not exist.
Reserved pods (``clusterstate.reservations``) are counted on the node that is set aside for them.

A refused pod's row says up to which revision the refusal had read the log. After a restart the pod
waits where its row says, and what the log tells since then moves it as it would have moved it in
the queue. Where the log is too long, or trimmed, or another configuration is in force, the pod is
tried again instead.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import cast

import msgspec
import numpy as np
import structlog

from clusterstate import bulk, changes, pod_log, reservations
from clusterstate.actions import aside
from clusterstate.actions.aside import Which, is_an_objects_fault
from clusterstate.aside import objects as objects_aside
from clusterstate.changes import Change
from clusterstate.objects.document import SLOT
from clusterstate.objects.errors import Expired
from clusterstate.objects.node import Node
from clusterstate.objects.pod import Pod
from clusterstate.objects.workloads import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from clusterstate.queries.lists import list_page
from clusterstate.queries.loading import consistent_read, load_classes, load_nodes
from clusterstate.queries.objects import decode_object
from clusterstate.queries.queue import (
    WaitingPod,
    load_arrivals,
    load_nominations,
    load_waiting,
)
from clusterstate.reservations import Reservation
from scheduling.engine.queue import (
    Backoff,
    PendingPod,
    Place,
    PreEnqueue,
    PriorityQueue,
    Registrations,
    SortKey,
    Stage,
    priority_sort,
    scheduling_gates,
)
from scheduling.engine.requirements import from_class
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.events import (
    NOTHING,
    Action,
    ClusterEvent,
    Resource,
    diff_node,
    diff_pod,
)
from scheduling.framework.types import PodInfo
from scheduling.worker import pod_news

logger = structlog.get_logger(__name__)

FOLLOWED = (
    "Pod",
    "Node",
    "Namespace",
    "PodDisruptionBudget",
    "Service",
    "ReplicationController",
    "ReplicaSet",
    "StatefulSet",
)
"""Kinds whose changes matter to scheduling."""

_DOCUMENTED = tuple(kind for kind in FOLLOWED if kind != "Pod")
"""Those of them whose documents are read along."""

_OTHERS: Mapping[str, type] = {
    "PodDisruptionBudget": PodDisruptionBudget,
    "Service": Service,
    "ReplicationController": ReplicationController,
    "ReplicaSet": ReplicaSet,
    "StatefulSet": StatefulSet,
}
NAME = "scheduler"
"""Under this name objects are set aside that scheduling goes on without."""
ADMISSION = "node-admission"
"""Up to which change the nodes' admission has judged arrivals: a cursor in a row."""
_FINISHED = ("Succeeded", "Failed")
_FEW = 128
"""So many changes are read as rows; where there are more, the others come as columns."""
_READ_AT_ONCE = 5000
_REPLAYED = 20_000
"""So many of the last changes are read again for pods that were refused before them."""
_LOOKED_THROUGH = 1_000_000
"""So many revisions before the present one are looked through for these."""
_TOGETHER = 16
"""From so many pods on it is faster to add them at once."""
_decode_node = msgspec.json.Decoder(Node).decode
_decode_namespace = msgspec.json.Decoder(Namespace).decode


class Mirror:
    """Snapshot and queue, following the change log from ``cursor``."""

    def __init__(
        self,
        registrations: Registrations,
        backoff: Backoff,
        *,
        sort_key: SortKey = priority_sort,
        pre_enqueue: PreEnqueue = scheduling_gates,
    ) -> None:
        self._registrations = registrations
        self._backoff = backoff
        self._sort_key = sort_key
        self._pre_enqueue = pre_enqueue
        self.reserved: dict[int, Reservation] = {}
        self.configuration = 0
        """Revision of the configuration in force, by which refusals hold."""
        self.cursor = -1
        self.snapshot = Snapshot()
        self.queue = self._new_queue()
        self.arrivals: dict[int, None] = {}
        # Pods that were assumed and are bound, by class, until waiting ones are told.
        self._confirmed: dict[int, PodInfo] = {}
        self.homeless: set[int] = set()
        self._classes: dict[int, PodInfo] = {}
        self.indigestible: list[tuple[Which, Exception]] = []
        """What could not be taken over, and why, until somebody sets it aside."""
        self._unread: dict[int, Exception] = {}
        self._shut: set[str] = set()

    def _new_queue(self) -> PriorityQueue:
        return PriorityQueue(
            registrations=self._registrations,
            backoff=self._backoff,
            sort_key=self._sort_key,
            pre_enqueue=self._pre_enqueue,
        )

    @property
    def loaded(self) -> bool:
        """Whether there is something to refresh."""
        return self.cursor >= 0

    def reconfigure(
        self, revision: int, registrations: Registrations, backoff: Backoff, now: float
    ) -> None:
        """Take over another configuration: the queue is filled again from its rows."""
        self.configuration = revision
        self._registrations = registrations
        self._backoff = backoff
        self.queue = self._new_queue()
        self.reserved = {one.pod_id: one for one in reservations.everything()}
        self._load_pending(now, self.cursor)

    # --- cold start ------------------------------------------------------------------------------

    def load(self, now: float) -> None:
        """Build everything from the rows. Queries a dozen times, in one database snapshot."""
        self.snapshot = Snapshot()
        self.queue = self._new_queue()
        self.arrivals.clear()
        self._confirmed.clear()
        self.homeless.clear()
        self._classes.clear()
        self._unread.clear()
        self._shut.clear()
        with consistent_read() as revision:
            row_of_node: dict[int, int] = {}
            for node in load_nodes():
                with self._digesting(Which("Node", node.id)):
                    row_of_node[node.id] = self.snapshot.set_node(_decode_node(node.manifest))
            for kind in ("Namespace", *_OTHERS):
                for manifest in list_page(kind).items:
                    with self._digesting(kind, manifest):
                        self._set_other(kind, manifest)
            self._load_bound(bulk.bound_pods(), row_of_node)
            self._set_aside(reservations.everything())
            self._load_pending(now, revision)
            self.arrivals = dict.fromkeys(load_arrivals(ADMISSION))
        self.snapshot.revision = self.cursor = revision
        logger.info(
            "mirror_loaded",
            revision=revision,
            nodes=self.snapshot.node_count,
            pods=self.snapshot.pod_total,
            pending=len(self.queue),
        )

    @contextmanager
    def _digesting(self, which: Which | str, manifest: bytes = b"") -> Iterator[None]:
        """Note what fails inside, and go on without it.

        ``which`` is the object, or its kind, when ``manifest`` tells the rest.
        """
        try:
            yield
        except Exception as error:
            if not is_an_objects_fault(error):
                raise
            if isinstance(which, str):
                metadata = decode_object(manifest)["metadata"]
                namespace, name = metadata.get("namespace") or "", metadata["name"]
                which = Which(which, namespace=namespace, name=name)
            self.indigestible.append((which, error))

    def _shut_node(self, name: str) -> None:
        """Do without a node, some pod of which cannot be counted: it is loaded again with all."""
        self._shut.add(name)
        self.snapshot.remove_node(name)

    def _readable(self, bound: bulk.BoundPods, row_of_node: Mapping[int, int]) -> bulk.BoundPods:
        """Return the pods whose class can be read; nodes that have others are shut."""
        bad = np.isin(bound.classes, np.array(list(self._unread), np.int64))
        pairs = zip(bound.ids[bad].tolist(), bound.classes[bad].tolist(), strict=True)
        for pod_id, class_id in pairs:
            self.indigestible.append((aside.pod(pod_id), self._unread[class_id]))
        for row in {row_of_node.get(node_id) for node_id in bound.nodes[bad].tolist()} - {None}:
            self._shut.add(self.snapshot.node(cast(int, row)).metadata.name)
        return bulk.BoundPods(
            **{name: getattr(bound, name)[~bad] for name in bulk.BoundPods.__struct_fields__}
        )

    def _load_bound(self, bound: bulk.BoundPods, row_of_node: Mapping[int, int]) -> None:
        """Add all pods on nodes: those on existing nodes as columns, the few others one by one."""
        class_ids, class_numbers = np.unique(bound.classes, return_inverse=True)
        self._learn_classes(class_ids.tolist())
        if self._unread:
            bound = self._readable(bound, row_of_node)
            class_ids, class_numbers = np.unique(bound.classes, return_inverse=True)
        node_ids, node_numbers = np.unique(bound.nodes, return_inverse=True)
        indices = np.array([self._classes[i].index for i in class_ids.tolist()], np.int32)
        rows = np.array([row_of_node.get(i, -1) for i in node_ids.tolist()], np.int32)
        row_of_pod = rows[node_numbers]
        known = row_of_pod >= 0
        self.snapshot.add_pods(
            bound.ids[known].tolist(),
            indices[class_numbers][known],
            row_of_pod[known],
            started=bound.started[known],
            terminating=bound.terminating[known],
        )
        others = np.flatnonzero(~known).tolist()
        if others:
            names = bulk.node_names_of_pods(bound.ids[others].tolist())
            for number in others:
                pod_id = int(bound.ids[number])
                self.snapshot.add_pod(
                    pod_id,
                    self._classes[int(bound.classes[number])],
                    names[pod_id],
                    start_time=None
                    if np.isnan(bound.started[number])
                    else bound.started.item(number),
                    terminating=bool(bound.terminating[number]),
                )
        for name in self._shut:
            self.snapshot.remove_node(name)

    def _load_pending(self, now: float, revision: int) -> None:
        """Fill the queue from its rows, as of ``revision``."""
        rows = load_waiting()
        self._learn_classes({row.class_id for row in rows})
        left_out = objects_aside(NAME)
        fit: list[tuple[WaitingPod, PendingPod]] = []
        for row in rows:
            if row.leaves or row.scheduler_name not in self._registrations:
                continue
            if left_out and left_out.get(("Pod", row.id)) == row.revision:
                continue
            if row.class_id in self._unread:
                self.indigestible.append((aside.pod(row.id), self._unread[row.class_id]))
                continue
            fit.append((row, self._pending_pod(row.id, row.class_id)))
        kept = self._take_in(fit, revision, now)
        logger.info("queue_loaded", pods=len(self.queue), refusals_kept=kept)

    def take_in_again(self, rows: Iterable[WaitingPod], now: float) -> None:
        """Put pods of the queue where their rows say now, as of ``cursor``.

        Somebody else works with the queue and wrote the rows; what the log has told since then is
        taken into account. Rows of pods that are not in the queue (any more) are passed over.
        """
        fit = [(row, self.queue.pod(row.id)) for row in rows if row.id in self.queue]
        if not fit:
            return
        mine, self.queue = self.queue, self._new_queue()
        try:
            self._take_in(fit, self.cursor, now)
        finally:
            again, self.queue = self.queue, mine
        self.queue.adopt(again, now)

    def _take_in(
        self, rows: Iterable[tuple[WaitingPod, PendingPod]], revision: int, now: float
    ) -> int:
        """Add pods to the queue at the places that their rows tell.

        Returns how many go on waiting because a refusal still holds.
        """
        refused: list[tuple[int, PendingPod, Place]] = []
        for row, pod in rows:
            since = row.since.timestamp()
            place = Place(
                pod_id=row.id,
                stage=Stage.GATED if row.stage == Stage.GATED else Stage.ACTIVE,
                attempts=row.attempts,
                queued_at=since,
                since=since,
                not_before=0.0 if row.not_before is None else row.not_before.timestamp(),
                rejected_by=tuple(row.rejected_by),
            )
            if row.id in self.reserved:
                self.queue.restore_parked(pod, place)
                continue
            if (
                row.stage == Stage.UNSCHEDULABLE
                and place.rejected_by
                and row.refused_under == self.configuration
                and max(revision - _LOOKED_THROUGH, 0) < row.refused_revision <= revision
            ):
                refused.append((row.refused_revision, pod, place))
            else:
                self.queue.restore(pod, place, now)
            if row.nominated_node_name:
                self.snapshot.nominate(row.id, self.info(pod.class_id), row.nominated_node_name)
        refused.sort(key=lambda one: (one[0], one[1].pod_id))
        return self._restore_refused(refused, revision, now)

    def take_over(self, now: float) -> None:
        """Learn what only the one who works needs to know. Queries twice; looks at all pods."""
        self.arrivals = dict.fromkeys(load_arrivals(ADMISSION))
        self.homeless.clear()
        nominated = load_nominations()
        for pod_id in self.snapshot.nominations.node_of.keys() - nominated.keys():
            self.snapshot.unnominate(pod_id)
        for pod_id, node_name in nominated.items():
            if pod_id in self.queue and self.snapshot.nominated_node_of(pod_id) != node_name:
                info = self.info(self.queue.pod(pod_id).class_id)
                self.snapshot.nominate(pod_id, info, node_name)

    # --- refused before the restart --------------------------------------------------------------

    def _restore_refused(
        self, refused: Sequence[tuple[int, PendingPod, Place]], revision: int, now: float
    ) -> int:
        """Let refused pods wait, and move those that something happened to, or for, since then.

        ``refused``: in the order of the revisions up to which their decisions had read the log.
        Returns how many were let wait; the others are tried again.
        """
        if not refused:
            return 0
        known_since, happened = self._happened(refused[0][0], revision)
        kept = [one for one in refused if one[0] >= known_since]
        for _, pod, place in refused[: len(refused) - len(kept)]:
            self.queue.restore(pod, place, now)
        refused = kept
        mine = {pod.pod_id for _, pod, _ in refused}
        ahead = iter(refused)
        following = next(ahead, None)
        # The same happens to many pods of a class: once is enough until others wait for it.
        seen: set[tuple[object, ...]] = set()
        for change in happened:
            while following is not None and following[0] < change.revision:
                self._let_wait(following, now)
                following = next(ahead, None)
                seen.clear()
            if change.object_id in mine and change.kind == "Pod":
                if change.class_id != change.previous_class_id:
                    self.queue.activate([change.object_id], now)
                continue
            event = self._event_of(change, seen)
            if event is not None:
                self.queue.move_on_event(event, now)
        while following is not None:
            self._let_wait(following, now)
            following = next(ahead, None)
        return len(kept)

    def _let_wait(self, refused: tuple[int, PendingPod, Place], now: float) -> None:
        _, pod, place = refused
        # The flush counts from the refusal, which is when its backoff began.
        at = place.not_before - self._backoff.after(place.attempts) if place.not_before else now
        place = msgspec.structs.replace(place, stage=Stage.UNSCHEDULABLE, queued_at=at)
        self.queue.restore(pod, place, now)

    def _happened(self, since: int, until: int) -> tuple[int, list[Change]]:
        """Return what happened up to a revision, and the revision from which on that is all."""
        since, found = changes.read_placements(since, until, most=_REPLAYED)
        class_ids = {c.class_id for c in found} | {c.previous_class_id for c in found}
        class_ids.discard(None)
        self._learn_classes(cast("set[int]", class_ids))
        # What a class was that no pod has any more is not known; what came after it is.
        for number in range(len(found) - 1, -1, -1):
            if not {found[number].class_id, found[number].previous_class_id} <= (
                self._classes.keys() | {None}
            ):
                return found[number].revision, found[number + 1 :]
        return since, found

    def _event_of(self, change: Change, seen: set[tuple[object, ...]]) -> ClusterEvent | None:
        """Return what a change means for waiting pods; ``None`` if nothing, or nothing new."""
        if change.kind == "Namespace":
            return self._cluster_event(Resource.NAMESPACE, Action.UPDATE_NAMESPACE_LABEL)
        if change.kind == "Node":
            old = _node_of(change.previous_text)
            if change.verb == changes.DELETED:
                return self._cluster_event(
                    Resource.NODE, Action.DELETE, old=old or _node_of(change.text)
                )
            new = _node_of(change.text)
            if new is None:  # trimmed while it was read; a later change tells the rest
                return None
            # Unchanged documents are not repeated.
            same = change.previous_document_id == change.document_id
            if old is None and not same:
                return self._cluster_event(Resource.NODE, Action.ADD, new=new)
            action = NOTHING if old is None else diff_node(old, new)
            return self._cluster_event(Resource.NODE, action, old=old, new=new) if action else None
        assert change.class_id is not None
        gone = change.verb == changes.DELETED or change.phase in _FINISHED
        was_on = bool(change.previous_node_name) and change.previous_phase not in _FINISHED
        is_on = bool(change.node_name) and not gone
        before = self._classes[change.previous_class_id or change.class_id].pod
        after = self._classes[change.class_id].pod
        action = NOTHING
        if was_on and not is_on:
            action = Action.DELETE
        elif is_on and not was_on:
            action = Action.ADD
        elif is_on and change.class_id != change.previous_class_id:
            action = diff_pod(before, after)
        told = (action, change.previous_class_id, change.class_id)
        if not action or told in seen:
            return None
        seen.add(told)
        return self._cluster_event(
            Resource.ASSIGNED_POD,
            action,
            old=None if action == Action.ADD else before,
            new=None if action == Action.DELETE else after,
        )

    # --- reserved --------------------------------------------------------------------------------

    def _set_aside(self, found: Iterable[Reservation]) -> None:
        """Take over the reservations, and count their pods where they are to go."""
        self.reserved = {one.pod_id: one for one in found}
        waiting = [one for one in self.reserved.values() if one.alive and one.is_held]
        self._learn_classes(one.class_id for one in waiting)
        for one in waiting:
            row = self.snapshot.row_of(one.node_name)
            if row is not None and self.snapshot.node_of(one.pod_id) is None:
                self.snapshot.assume(one.pod_id, self._classes[one.class_id], row)

    def follow_reservations(self) -> None:
        """Count the pods that are reserved now, and no longer those that were. Queries once.

        For whoever does not reserve; to be called before ``refresh``, so that a pod whose
        reservation ended by its binding is never missing.
        """
        before = self.reserved
        self._set_aside(reservations.everything())
        for pod_id in before.keys() - self.reserved.keys():
            self.snapshot.forget(pod_id)

    def released(self, pods: Mapping[int, PodInfo], now: float) -> None:
        """Wake the pods that may find room where these (by id) were to go; not they themselves."""
        for info in {id(info): info for info in pods.values()}.values():
            self._move(Resource.ASSIGNED_POD, Action.DELETE, now, old=info.pod, but_not=pods.keys())

    # --- classes ---------------------------------------------------------------------------------

    def _learn_classes(self, class_ids: Iterable[int]) -> None:
        unknown = sorted(set(class_ids) - self._classes.keys())
        if not unknown:
            return
        for row in load_classes(unknown):
            try:
                info = from_class(row.id.to_bytes(8, "big"), row.spec)
                self._classes[row.id] = self.snapshot.intern(info)
            except Exception as error:  # noqa: BLE001  # told of each pod that has this class
                self._unread[row.id] = error

    def info(self, class_id: int) -> PodInfo:
        """Return the requirements of a class; queries when it was never met."""
        if class_id not in self._classes:
            self._learn_classes((class_id,))
            if class_id in self._unread:
                raise ValueError(f"scheduling class {class_id}") from self._unread[class_id]
        return self._classes[class_id]

    def _pending_pod(self, pod_id: int, class_id: int) -> PendingPod:
        info = self.info(class_id)
        return PendingPod(pod_id, class_id, info.pod, info.priority)

    # --- keeping up ------------------------------------------------------------------------------

    def refresh(self, now: float, *, mark: int | None = None) -> int:
        """Apply what was committed since the cursor; return how many changes. Queries twice.

        Up to the present watermark, or to ``mark``, one that the caller knows.
        When the log no longer reaches back to the cursor, everything is loaded again.
        """
        applied = 0
        try:
            news = changes.read_since(
                self.cursor, mark=mark, kinds=FOLLOWED, limit=_FEW, documents=_DOCUMENTED
            )
            applied += len(news.items)
            self._learn_classes(
                change.class_id for change in news.items if change.class_id is not None
            )
            self._apply_all(news.items, now)
            self.snapshot.revision = self.cursor = news.cursor
            more = news.more
            while more:
                many = pod_log.read_since(
                    self.cursor, mark=news.mark, others=_DOCUMENTED, limit=_READ_AT_ONCE
                )
                applied += len(many.pods) + len(many.others)
                self._apply_many(many, now)
                self.snapshot.revision = self.cursor = many.cursor
                more = many.more
        except Expired:
            logger.warning("mirror_behind_history", cursor=self.cursor)
            self.load(now)
        return applied

    # --- many changes at once --------------------------------------------------------------------

    def _apply_many(self, news: pod_log.News, now: float) -> None:
        """Apply changes in order, those of pods that follow each other together."""
        class_ids = np.unique(news.pods.classes).tolist()
        self._learn_classes(class_id for class_id in class_ids if class_id)
        for one in news.in_order():
            if isinstance(one, Change):
                self._apply_all([one], now)
            elif len(one) < _TOGETHER:
                self._apply_all(map(one.change, range(len(one))), now)
            else:
                self._apply_pods(one, now)
        self._tell_confirmed(now)

    def _apply_pods(self, pods: pod_log.PodChanges, now: float) -> None:
        """Apply changes of pods, as one after the other; waiting pods hear of each class once."""
        found = pod_news.sort_out(pods, self.snapshot, self._classes)
        self._stay(pods, found.same)
        self._leave(found.left, now)
        self._come(pods, found.came, now)
        self._wait(pods, found, now)
        self._apply_all(map(pods.change, found.rest), now)

    def _stay(self, pods: pod_log.PodChanges, same: pod_news.Pods) -> None:
        """Confirm pods on nodes; most are what this worker assumed."""
        snapshot = self.snapshot
        started = pod_news.seconds(pods, same)
        assumed = snapshot.confirm_all(same.ids, same.slots, started)
        for info in snapshot.infos_of(same.slots[assumed]):
            self._confirmed[info.index] = info
        self._leave_queue_all(same.ids)

    def _come(self, pods: pod_log.PodChanges, came: pod_news.Pods, now: float) -> None:
        """Count pods that others put on nodes."""
        if not came.ids:
            return
        names = pods.names
        self.snapshot.add_pods(
            came.ids,
            came.classes,
            came.rows,
            started=pod_news.seconds(pods, came),
            names=[names[number] for number in came.numbers],
        )
        self._leave_queue_all(came.ids)
        pending = pods.pending[came.numbers].tolist()
        self.arrivals.update(
            dict.fromkeys(one for one, waits in zip(came.ids, pending, strict=True) if waits)
        )
        for index in np.unique(came.classes).tolist():
            self._move(Resource.ASSIGNED_POD, Action.ADD, now, new=self.snapshot.classes[index].pod)

    def _leave(self, left: pod_news.Pods, now: float) -> None:
        """Count pods no longer that were deleted, or finished."""
        if not left.ids:
            return
        infos = self.snapshot.infos_of(left.slots)
        for pod_id in left.ids:
            self.snapshot.remove_pod(pod_id)
        self._leave_queue_all(left.ids)
        if self.arrivals or self.homeless:
            for pod_id in left.ids:
                self._is_judged(pod_id)
        for info in infos:
            self._move(Resource.ASSIGNED_POD, Action.DELETE, now, old=info.pod)

    def _wait(self, pods: pod_log.PodChanges, found: pod_news.Sorted, now: float) -> None:
        """Take pods that are on no node into the queue, at the time of their first change."""
        waiting = found.waiting
        at = pods.at[found.first[waiting.numbers]].tolist()
        class_ids = pods.classes[waiting.numbers].tolist()
        judged = bool(self.arrivals or self.homeless)
        for number, pod_id, class_id, since in zip(
            waiting.numbers, waiting.ids, class_ids, at, strict=True
        ):
            try:
                if judged:
                    self._is_judged(pod_id)
                self._join_queue(pod_id, class_id, since, now)
            except Exception as error:  # noqa: BLE001  # kept in indigestible, or raised again
                self._give_up(pods.change(number), error)

    def _leave_queue_all(self, pod_ids: list[int]) -> None:
        for pod_id in self.queue.present(pod_ids):
            self.queue.delete(pod_id)
        if self.snapshot.nominations.node_of:
            for pod_id in pod_ids:
                self.snapshot.unnominate(pod_id)

    # --- one change after the other --------------------------------------------------------------

    def _apply_all(self, news: Iterable[Change], now: float) -> None:
        """Apply changes in order; pods that arrive on nodes one after the other, together."""
        arriving: dict[int, Change] = {}
        for change in news:
            if change.object_id not in arriving and self._is_arrival(change):
                arriving[change.object_id] = change
                continue
            if arriving:
                self._arrive(arriving, now)
            try:
                self._apply(change, now)
            except Exception as error:  # noqa: BLE001  # kept in indigestible, or raised again
                self._give_up(change, error)
        self._arrive(arriving, now)
        self._tell_confirmed(now)

    def _give_up(self, change: Change, error: Exception) -> None:
        """Do without an object whose change could not be applied."""
        if not is_an_objects_fault(error):
            raise error
        self.indigestible.append((Which(change.kind, change.object_id), error))
        if change.kind == "Node":
            self.snapshot.remove_node(change.name)
        elif change.kind == "Pod":
            self._leave_queue(change.object_id)
            if change.node_name and change.verb != changes.DELETED:
                self._shut_node(change.node_name)

    def _tell_confirmed(self, now: float) -> None:
        """Wake who waited for pods that this worker placed; one of a class speaks for all."""
        confirmed, self._confirmed = self._confirmed, {}
        if self.queue.has_waiting:
            for info in confirmed.values():
                event = self._cluster_event(Resource.ASSIGNED_POD, Action.ADD, new=info.pod)
                self.queue.move_on_event(event, now, seen=True)

    def _is_arrival(self, change: Change) -> bool:
        """Whether a change tells of a pod on a known node that was on none."""
        return (
            change.kind == "Pod"
            and change.node_name is not None
            and change.verb != changes.DELETED
            and change.phase not in _FINISHED
            and change.deletion_at is None
            and not self.snapshot.knows(change.object_id)
            and change.class_id in self._classes
            and self.snapshot.row_of(change.node_name) is not None
        )

    def _arrive(self, arriving: dict[int, Change], now: float) -> None:
        """Apply arrivals, which are known no longer afterwards."""
        came = list(arriving.values())
        arriving.clear()
        if len(came) < _TOGETHER:
            for change in came:
                self._apply_pod(change, now)
            return
        infos = [self._classes[change.class_id] for change in came if change.class_id is not None]
        at = [change.scheduled_at for change in came]
        self.snapshot.add_pods(
            [change.object_id for change in came],
            np.array([info.index for info in infos], np.int32),
            np.array([self.snapshot.row_of(c.node_name or "") for c in came], np.int32),
            started=np.array([np.nan if t is None else t.timestamp() for t in at], np.float64),
            names=[change.name for change in came],
        )
        for change, info in zip(came, infos, strict=True):
            if change.object_id in self.queue:
                self.queue.delete(change.object_id)
            if change.phase == "Pending":
                self.arrivals[change.object_id] = None
            if len(self.queue):
                self._move(Resource.ASSIGNED_POD, Action.ADD, now, new=info.pod)

    def _apply(self, change: Change, now: float) -> None:
        if change.kind == "Pod":
            self._apply_pod(change, now)
        elif change.kind == "Node":
            self._apply_node(change, now)
        elif change.verb == changes.DELETED:
            self._remove_other(change)
        elif change.text is not None:
            self._set_other(change.kind, change.text.replace(SLOT, ""))
            if change.kind == "Namespace":
                self._move(Resource.NAMESPACE, Action.UPDATE_NAMESPACE_LABEL, now)

    def _apply_node(self, change: Change, now: float) -> None:
        row = self.snapshot.row_of(change.name)
        old = None if row is None else self.snapshot.node(row)
        if change.verb == changes.DELETED:
            self.snapshot.remove_node(change.name)
            self._move(Resource.NODE, Action.DELETE, now, old=old)
            return
        if change.text is None:  # trimmed while it was read; a later change tells the rest
            return
        if change.name in self._shut:
            return
        new = _decode_node(change.text.replace(SLOT, ""))
        row = self.snapshot.set_node(new)
        if old is None and self.homeless:
            here = {one.key for one in self.snapshot.pods_on(row)}
            self.arrivals |= dict.fromkeys(one for one in self.homeless if one in here)
            self.homeless.difference_update(self.arrivals)
        action = Action.ADD if old is None else diff_node(old, new)
        if action:
            self._move(Resource.NODE, action, now, old=old, new=new)

    def _apply_pod(self, change: Change, now: float) -> None:
        pod_id, class_id = change.object_id, change.class_id
        assert class_id is not None, f"change {change.revision} of a pod names no class"
        gone = change.verb == changes.DELETED or change.phase in _FINISHED
        if change.node_name and not gone:
            self._place(change, self.info(class_id), change.node_name, now)
            return
        known = self.snapshot.pod(pod_id)
        if known is not None and not self.snapshot.is_assumed(pod_id):
            self.snapshot.remove_pod(pod_id)
            self._move(Resource.ASSIGNED_POD, Action.DELETE, now, old=known.info.pod)
        self._is_judged(pod_id)
        if gone or change.deletion_at is not None:
            self._leave_queue(pod_id)
        elif known is None:
            self._join_queue(pod_id, class_id, change.at.timestamp(), now)
        elif known.info is not self.info(class_id):
            self._change_assumed(pod_id, known.row, class_id, now)

    def _change_assumed(self, pod_id: int, row: int, class_id: int, now: float) -> None:
        """Count an assumed pod as what it became since; if it comes back, it is that in the queue.

        Its bind is refused if it was decided as of another class (``actions.pods.bind``).
        """
        pod = self._pending_pod(pod_id, class_id)
        self.snapshot.forget(pod_id)
        self.snapshot.assume(pod_id, self._classes[class_id], row)
        if pod_id in self.queue:
            self.queue.update(pod, now)

    def _place(self, change: Change, info: PodInfo, node_name: str, now: float) -> None:
        """Apply a change of a pod that is on a node; most are what this worker assumed."""
        pod_id, snapshot = change.object_id, self.snapshot
        started, terminating = _seconds(change.scheduled_at), change.deletion_at is not None
        assumed = snapshot.is_assumed(pod_id)
        if snapshot.confirm(pod_id, info, node_name, start_time=started, terminating=terminating):
            if assumed:
                self._confirmed[info.index] = info
            self._leave_queue(pod_id)
            return
        known = snapshot.pod(pod_id)
        snapshot.add_pod(
            pod_id,
            info,
            node_name,
            start_time=started,
            terminating=terminating,
            name=change.name,
        )
        self._leave_queue(pod_id)
        if change.phase != "Pending":
            self._is_judged(pod_id)
        if known is None:
            if change.phase == "Pending" and not terminating:
                self.arrivals[pod_id] = None
            self._move(Resource.ASSIGNED_POD, Action.ADD, now, new=info.pod)
        elif known.info is not info:
            action = diff_pod(known.info.pod, info.pod)
            if action:
                self._move(Resource.ASSIGNED_POD, action, now, old=known.info.pod, new=info.pod)

    def _is_judged(self, pod_id: int) -> None:
        """Note that the node's admission has no more to say: the pod runs, or went."""
        self.arrivals.pop(pod_id, None)
        self.homeless.discard(pod_id)

    def _join_queue(self, pod_id: int, class_id: int, since: float, now: float) -> None:
        pod = self._pending_pod(pod_id, class_id)
        if pod.spec.spec.scheduler_name not in self._registrations:
            return
        if pod_id in self.queue:
            self.queue.update(pod, now)
            return
        self.queue.add(pod, since)

    def _leave_queue(self, pod_id: int) -> None:
        self.queue.delete(pod_id)
        self.snapshot.unnominate(pod_id)

    def _move(
        self,
        resource: Resource,
        action: Action,
        now: float,
        *,
        old: Node | Pod | None = None,
        new: Node | Pod | None = None,
        but_not: Collection[int] = (),
    ) -> None:
        if len(self.queue) == 0:
            return
        event = self._cluster_event(resource, action, old=old, new=new)
        self.queue.move_on_event(event, now, but_not=but_not)

    def _cluster_event(
        self,
        resource: Resource,
        action: Action,
        *,
        old: Node | Pod | None = None,
        new: Node | Pod | None = None,
    ) -> ClusterEvent:
        subject = new or old
        labels = None
        if isinstance(subject, Pod):
            known = self.snapshot.namespace_labels(subject.metadata.namespace)
            labels = None if known is None else dict(known)
        return ClusterEvent(
            resource=resource, action=action, old=old, new=new, namespace_labels=labels
        )

    # --- what else scheduling looks up -----------------------------------------------------------

    def _set_other(self, kind: str, manifest: bytes | str) -> None:
        if kind == "Namespace":
            namespace = _decode_namespace(manifest)
            self.snapshot.set_namespace(namespace.metadata.name, namespace.metadata.labels)
            return
        value: object = msgspec.json.decode(manifest, type=_OTHERS[kind])
        if isinstance(value, PodDisruptionBudget):
            self.snapshot.set_budget(value)
        elif isinstance(value, Service):
            self.snapshot.set_service(value)
        elif isinstance(value, ReplicationController | ReplicaSet | StatefulSet):
            self.snapshot.set_controller(value)

    def _remove_other(self, change: Change) -> None:
        if change.kind == "Namespace":
            self.snapshot.remove_namespace(change.name)
        elif change.kind == "PodDisruptionBudget":
            self.snapshot.remove_budget(change.namespace, change.name)
        elif change.kind == "Service":
            self.snapshot.remove_service(change.namespace, change.name)
        else:
            self.snapshot.remove_controller(change.kind, change.namespace, change.name)


def _node_of(text: str | None) -> Node | None:
    return None if text is None else _decode_node(text.replace(SLOT, ""))


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()

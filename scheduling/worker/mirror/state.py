"""The warm state of one scheduling worker, and which waiting pods a change of it may help."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from clusterstate.actions.loops.aside import ObjectRef, is_an_objects_fault
from clusterstate.change_log.changes import Change
from clusterstate.database import bulk
from clusterstate.objects.dra.world import KINDS as DEVICE_KINDS
from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod_group import GroupKey, PodGroup
from clusterstate.objects.values.storage import KINDS
from clusterstate.objects.values.workloads import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from clusterstate.queries.loops.loading import load_classes
from clusterstate.queries.objects import decode_object
from clusterstate.queries.scheduler.reservations import Reservation
from scheduling.engine.groups import lets_in
from scheduling.engine.queue.pending import (
    Backoff,
    HeldBy,
    PendingPod,
    SortKey,
    Stage,
    priority_sort,
    scheduling_gates,
)
from scheduling.engine.queue.scheduling_queue import PriorityQueue
from scheduling.engine.queue.waiting import Registrations
from scheduling.engine.queue.waking import PodState, Waking
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_stored_class
from scheduling.framework.events import Action, ClusterEvent, Resource
from scheduling.framework.types import PodInfo

OTHERS: Mapping[str, type] = {
    "PodDisruptionBudget": PodDisruptionBudget,
    "Service": Service,
    "ReplicationController": ReplicationController,
    "ReplicaSet": ReplicaSet,
    "StatefulSet": StatefulSet,
    **KINDS,
}
FINISHED = ("Succeeded", "Failed")
GROWN_CLASSES = 50_000
GROWN_RESOURCES = 256
"""This many classes and resources are allowed in any case (``WarmState.has_outgrown``): 250 MB and
more, and half of a snapshot's resource columns."""
decode_node = msgspec.json.Decoder(Node).decode
_decode_namespace = msgspec.json.Decoder(Namespace).decode
_decode_group = msgspec.json.Decoder(PodGroup).decode


class WarmState(Waking):
    """A scheduler's copy of the stored objects: snapshot, queue, and changes that failed."""

    def __init__(
        self,
        registrations: Registrations,
        backoff: Backoff,
        *,
        sort_key: SortKey = priority_sort,
        pre_enqueue: HeldBy = scheduling_gates,
    ) -> None:
        self._registrations = registrations
        self._backoff = backoff
        self._sort_key = sort_key
        self._pre_enqueue = pre_enqueue
        self.reserved: dict[int, Reservation] = {}
        # For which nodes the rows, or the log as far as it was read, nominate waiting pods. The
        # snapshot differs where this scheduler decided otherwise and has not read that back yet.
        self._nominated_in_log: dict[int, str] = {}
        # Up to which revision the log says nothing new of a pod's nomination: this scheduler wrote
        # it then, or read the row.
        self._nominated_as_of: dict[int, int] = {}
        self.compatibility: Compatibility = NEWEST
        """The version of Kubernetes in the configuration in force; the mirror's owner sets it."""
        self.configuration = 0
        """Revision of the configuration in force; refusals under another one do not count."""
        self.cursor = -1
        self.snapshot = Snapshot()
        self.queue = self._new_queue()
        self.is_mine: Callable[[PodInfo, int], bool] | None = None
        """Returns whether this scheduler decides pods of a class (with its id); ``None``: all."""
        self.has_reserved = True
        """Whether this scheduler has the reserved pods."""
        self.elsewhere: dict[int, int] = {}
        """Pending pods of other schedulers with their class ids; they are not in the queue."""
        self.arrivals: dict[int, None] = {}
        # Pods that were assumed and are bound, by class, until the queue is informed of them.
        self._confirmed: dict[int, PodInfo] = {}
        self.of_unknown_nodes: set[int] = set()
        self._classes: dict[int, PodInfo] = {}
        # How many classes and resources may be known before everything is built anew.
        self._most_classes, self._most_resources = GROWN_CLASSES, GROWN_RESOURCES
        # Pods on nodes that began to end, until the reason is read (``_note_preempted``).
        self._ending: list[int] = []
        self.failed_objects: list[tuple[ObjectRef, Exception]] = []
        """Objects that could not be applied, and why, until the scheduler sets them aside."""
        self._unread: dict[int, Exception] = {}
        self._left_out_nodes: set[str] = set()

    def _new_queue(self) -> PriorityQueue:
        return PriorityQueue(
            registrations=self._registrations,
            backoff=self._backoff,
            sort_key=self._sort_key,
            pre_enqueue=self._pre_enqueue,
            is_nominated=lambda pod_id: bool(self.snapshot.nominated_node_of(pod_id)),
        )

    def _note_preempted(self) -> None:
        """Mark terminating pods that the scheduler preempted. Queries once if there are new ones.

        While a victim terminates, its preemptor preempts no other pods
        (``default_preemption.eligible``).
        """
        ending, self._ending = self._ending, []
        if ending:
            for pod_id in bulk.preempted_pods(ending):
                self.snapshot.mark_preempted(pod_id)

    @property
    def loaded(self) -> bool:
        """Whether the mirror was loaded."""
        return self.cursor >= 0

    # --- classes ---------------------------------------------------------------------------------

    @property
    def has_outgrown(self) -> bool:
        """Whether the snapshot has to be rebuilt.

        True if the configuration names another version of Kubernetes than the snapshot was built
        for, or if many of its classes and resources belong to deleted pods.

        The snapshot never drops a class, and each Job and each pod of a StatefulSet is a class of
        its own, by its labels. A long-running process then loads the mirror again, with only the
        classes in use, and calls ``collector.calm`` when nothing refers to the old snapshot any
        more: that one was frozen for the garbage collector, and would stay in memory for ever.
        """
        snapshot = self.snapshot
        return (
            snapshot.compatibility is not self.compatibility
            or len(snapshot.classes) > self._most_classes
            or len(snapshot.resources) > self._most_resources
        )

    def _bound_growth(self) -> None:
        """Set the numbers of classes and resources above which the snapshot must be rebuilt."""
        self._most_classes = max(GROWN_CLASSES, 2 * len(self.snapshot.classes))
        self._most_resources = max(GROWN_RESOURCES, 2 * len(self.snapshot.resources))

    def _learn_classes(self, class_ids: Iterable[int]) -> None:
        unknown = sorted(set(class_ids) - self._classes.keys())
        if not unknown:
            return
        for row in load_classes(unknown):
            try:
                info = from_stored_class(row.id, row.spec, self.snapshot.compatibility)
                self._classes[row.id] = self.snapshot.intern(info)
            except Exception as error:  # noqa: BLE001  # reported for each pod that has this class
                self._unread[row.id] = error

    def info(self, class_id: int) -> PodInfo:
        """Return a class by its id; queries if it is not in memory.

        Raises:
            ValueError: the stored class cannot be parsed.
        """
        if class_id not in self._classes:
            self._learn_classes((class_id,))
            if class_id in self._unread:
                raise ValueError(f"scheduling class {class_id}") from self._unread[class_id]
        return self._classes[class_id]

    def _pending_pod(self, pod_id: int, class_id: int) -> PendingPod:
        info = self.info(class_id)
        return PendingPod(pod_id, class_id, info.pod, info.priority)

    # --- objects that fail -----------------------------------------------------------------------

    @contextmanager
    def _noting_failures(self, which: ObjectRef | str, manifest: bytes = b"") -> Iterator[None]:
        """Context that records an exception as the failure of one object, and suppresses it.

        ``which``: the object, or its kind if ``manifest`` is given. Errors of the database are
        raised.
        """
        try:
            yield
        except Exception as error:
            if not is_an_objects_fault(error):
                raise
            if isinstance(which, str):
                metadata = decode_object(manifest)["metadata"]
                namespace, name = metadata.get("namespace") or "", metadata["name"]
                which = ObjectRef(which, namespace=namespace, name=name)
            self.failed_objects.append((which, error))

    def _leave_out_node(self, name: str) -> None:
        """Remove a node because one of its pods cannot be counted; the next load tries again."""
        self._left_out_nodes.add(name)
        self.snapshot.remove_node(name)

    # --- the queue -------------------------------------------------------------------------------

    def _join_queue(self, pod_id: int, class_id: int, since: float, now: float) -> None:
        pod = self._pending_pod(pod_id, class_id)
        if pod.spec.spec.scheduler_name not in self._registrations:
            return
        if self.is_mine is not None and self._leave_to_others(pod_id, class_id):
            return
        if pod_id in self.queue:
            event = self.event_of_itself(self.queue.pod(pod_id), pod)
            self.queue.update(pod, now, event)
            self.snapshot.renew_nomination(pod_id, self.info(class_id))
            return
        self.queue.add(pod, since)

    def _leave_to_others(self, pod_id: int, class_id: int) -> bool:
        """Return whether another scheduler decides a pending pod; if so, move it to ``elsewhere``.

        A queued pod that is assumed on a node stays until its bind is confirmed or refused.
        """
        info = self.info(class_id)
        if pod_id in self.reserved:
            is_mine = self.has_reserved
        else:
            is_mine = self.is_mine is None or self.is_mine(info, class_id)
        if is_mine or (pod_id in self.queue and self.snapshot.is_assumed(pod_id)):
            self.elsewhere.pop(pod_id, None)
            return False
        self.queue.delete(pod_id)
        self.snapshot.renew_nomination(pod_id, info)
        self.elsewhere[pod_id] = class_id
        return True

    def _leave_queue(self, pod_id: int) -> None:
        self.queue.delete(pod_id)
        self.elsewhere.pop(pod_id, None)
        self._end_nomination(pod_id)

    # --- nominations -----------------------------------------------------------------------------

    def _end_nomination(self, pod_id: int) -> None:
        """Forget the nomination of a pod that no longer waits."""
        self.snapshot.unnominate(pod_id)
        self._nominated_in_log.pop(pod_id, None)
        self._nominated_as_of.pop(pod_id, None)

    def _follow_nomination(self, pod_id: int, node_name: str, revision: int, now: float) -> None:
        """Apply the log's nomination of a queued pod; ``node_name`` is empty for none.

        Ignored are a repetition of the nomination known from the log, because this scheduler may
        have decided otherwise since and not have written it yet, and changes older than this
        scheduler's own last write. Pods that were kept off the former node because of the
        nomination are woken.
        """
        before = self._nominated_in_log.get(pod_id, "")
        if before == node_name:
            return
        class_id = self.elsewhere.get(pod_id)
        if class_id is None:
            if pod_id not in self.queue:
                return
            class_id = self.queue.pod(pod_id).class_id
        if node_name:
            self._nominated_in_log[pod_id] = node_name
        else:
            del self._nominated_in_log[pod_id]
        info = self.info(class_id)
        if revision > self._nominated_as_of.get(pod_id, 0):
            self.snapshot.nominate_when_unassumed(pod_id, info, node_name)
        self.pod_changed(
            PodState(pod=info.pod, nominated=before),
            PodState(pod=info.pod, nominated=node_name),
            now,
        )

    def wrote_nominations(self, revisions: Iterable[tuple[int, int]]) -> None:
        """Note at which revisions (pod id, revision) this scheduler wrote its nominations."""
        for pod_id, revision in revisions:
            if self.may_be_nominated(pod_id) or self.snapshot.nominated_node_of(pod_id):
                self._nominated_as_of[pod_id] = revision

    def nominated_a_reserved_pod(self, pod_id: int, revision: int) -> None:
        """Note that this scheduler nominated a reserved pod for the node that it is counted on.

        ``revision``: of that write, so that the log's entry is ignored. The snapshot has no
        nomination beside the reservation, so none is left when the pod is refused.
        """
        self._nominated_as_of[pod_id] = revision

    def may_be_nominated(self, pod_id: int) -> bool:
        """Return whether a pending pod's row may have a nominated node, as last read or written."""
        return pod_id in self._nominated_in_log or pod_id in self._nominated_as_of

    def nominated_in_log(self, pod_id: int) -> str:
        """Return the nominated node in a pending pod's row, as last read; "" for none."""
        return self._nominated_in_log.get(pod_id, "")

    def take_back_nomination(self, pod_id: int) -> None:
        """Undo a nomination that this scheduler decided and does not write."""
        if pod_id in self.queue:
            info = self.info(self.queue.pod(pod_id).class_id)
            there = self._nominated_in_log.get(pod_id, "")
            self.snapshot.nominate_when_unassumed(pod_id, info, there)
        else:
            self.snapshot.unnominate(pod_id)

    def _drop_arrival(self, pod_id: int) -> None:
        """Remove a pod from ``arrivals``: it runs or is gone, so it needs no check."""
        self.arrivals.pop(pod_id, None)
        self.of_unknown_nodes.discard(pod_id)

    def released(self, pods: Mapping[int, PodInfo], now: float) -> None:
        """Wake pods that may use the room that ``pods`` (by id) freed; never those themselves."""
        for info in {id(info): info for info in pods.values()}.values():
            before = PodState(pod=info.pod, on_node=True)
            self.pod_changed(before, None, now, but_not=pods.keys())

    # --- other objects ---------------------------------------------------------------------------

    def lets_group_in(self, pod: PendingPod) -> bool:
        """Return whether a pod's PodGroup exists and enough of its pods exist to try it."""
        return lets_in(self.snapshot, self.queue, pod)

    def nominated(self) -> list[int]:
        """Return the ids of queued pods that have a nominated node, by the log."""
        return list(self._nominated_in_log)

    def _apply_group(self, key: GroupKey, manifest: bytes | str | None, now: float) -> None:
        """Store a PodGroup, or remove it (``manifest=None``); wake the pods that this may help."""
        groups = self.snapshot.groups
        if manifest is None:
            gone = groups.remove(key)
            # Usually a group is deleted after its pods; then it kept no pod from preempting.
            if gone is not None and gone.leaves_together and self.snapshot.members_of(key):
                self._wake_preemptors(now)
            return
        new = _decode_group(manifest)
        old = groups.set(new)
        if old is not None and old.spec == new.spec:
            return
        self.queue.release_group(key, now)
        action = Action.ADD if old is None else Action.UPDATE
        event = ClusterEvent(resource=Resource.POD_GROUP, action=action, old=old, new=new)
        if len(self.queue):
            self._wake(event, now)

    def _wake_preemptors(self, now: float) -> None:
        """Activate the pods that may not have preempted because of a group that is gone now.

        No queueing hint covers them, since DefaultPreemption is not a plugin that rejects. Cached
        victims become invalid, as after a change of disruption budgets.
        """
        self.snapshot.budget_version += 1
        lowest, queue = self.snapshot.lowest_priority, self.queue
        refused = [one.pod_id for one in queue.places() if one.stage is Stage.UNSCHEDULABLE]
        queue.activate([one for one in refused if queue.pod(one).priority > lowest], now)

    def _set_other(
        self, kind: str, manifest: bytes | str
    ) -> tuple[msgspec.Struct | None, msgspec.Struct] | None:
        """Store an object; return its former and new value if it is of a volume kind."""
        if kind in DEVICE_KINDS:
            self.set_device(kind, msgspec.json.decode(manifest))
            return None
        if kind == "PodGroup":
            self.snapshot.groups.set(_decode_group(manifest))
            return None
        if kind == "Namespace":
            namespace = _decode_namespace(manifest)
            self.snapshot.set_namespace(namespace.metadata.name, namespace.metadata.labels)
            return None
        value: msgspec.Struct = msgspec.json.decode(manifest, type=OTHERS[kind])
        if isinstance(value, PodDisruptionBudget):
            self.snapshot.set_budget(value)
        elif isinstance(value, Service):
            self.snapshot.set_service(value)
        elif isinstance(value, ReplicationController | ReplicaSet | StatefulSet):
            self.snapshot.set_controller(value)
        elif kind in KINDS:
            return self.snapshot.set_object(value), value
        return None

    def _remove_other(self, change: Change) -> msgspec.Struct | None:
        """Remove an object; return its former value if it is of a volume kind."""
        if change.kind == "Namespace":
            self.snapshot.remove_namespace(change.name)
        elif change.kind == "PodDisruptionBudget":
            self.snapshot.remove_budget(change.namespace, change.name)
        elif change.kind == "Service":
            self.snapshot.remove_service(change.namespace, change.name)
        elif change.kind in KINDS:
            return self.snapshot.remove_object(change.kind, change.namespace, change.name)
        else:
            self.snapshot.remove_controller(change.kind, change.namespace, change.name)
        return None

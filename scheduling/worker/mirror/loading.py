"""Builds the mirror from the rows, and reads some of the rows again."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

import numpy as np
import structlog

from clusterstate.actions.loops import aside
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.database import bulk
from clusterstate.health.aside import objects as objects_aside
from clusterstate.objects.dra.world import KINDS as DEVICE_KINDS
from clusterstate.processes import shards
from clusterstate.queries.loops.loading import consistent_read, load_nodes
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods.queue import WaitingPod, load_arrivals, load_waiting
from clusterstate.queries.scheduler import reservations
from clusterstate.queries.scheduler.reservations import Reservation
from scheduling.engine.queue.pending import Backoff, PendingPod
from scheduling.engine.queue.waiting import Registrations
from scheduling.engine.snapshot import Snapshot
from scheduling.worker.mirror.refused import RefusedPods
from scheduling.worker.mirror.state import OTHERS, decode_node

logger = structlog.get_logger(__name__)

NAME = shards.loop(shards.FIRST)
"""The follower under whose name objects that the scheduler cannot read are set aside."""
ADMISSION = "node-admission"
"""The name of a cursor in a row: the last change whose arrivals ``arrival_checks`` checked."""


class StateLoader(RefusedPods):
    """Reads nodes, bound pods, the queue and reservations."""

    def load(self, now: float) -> None:
        """Build snapshot and queue from the rows. Queries a dozen times, in one transaction."""
        self.snapshot = Snapshot()
        self.snapshot.compatibility = self.compatibility
        self.queue = self._new_queue()
        self.arrivals.clear()
        self.elsewhere.clear()
        self._confirmed.clear()
        self.of_unknown_nodes.clear()
        self._classes.clear()
        self._unread.clear()
        self._left_out_nodes.clear()
        with consistent_read() as revision:
            row_of_node: dict[int, int] = {}
            for node in load_nodes():
                with self._noting_failures(ObjectRef("Node", node.id)):
                    row_of_node[node.id] = self.snapshot.set_node(decode_node(node.manifest))
            for kind in ("Namespace", *OTHERS, *DEVICE_KINDS, "PodGroup"):
                for manifest in list_page(kind).items:
                    with self._noting_failures(kind, manifest):
                        self._set_other(kind, manifest)
            self._load_bound(bulk.bound_pods(), row_of_node)
            self._note_preempted()
            self._count_reserved(reservations.everything())
            self._load_pending(now, revision)
            self.arrivals = dict.fromkeys(load_arrivals(ADMISSION))
        self.snapshot.revision = self.cursor = revision
        self._bound_growth()
        logger.info(
            "mirror_loaded",
            revision=revision,
            nodes=self.snapshot.node_count,
            pods=self.snapshot.pod_total,
            pending=len(self.queue),
        )

    def _readable(self, bound: bulk.BoundPods, row_of_node: Mapping[int, int]) -> bulk.BoundPods:
        """Return the pods whose class could be parsed; note the nodes of the others as left out."""
        bad = np.isin(bound.classes, np.array(list(self._unread), np.int64))
        pairs = zip(bound.ids[bad].tolist(), bound.classes[bad].tolist(), strict=True)
        for pod_id, class_id in pairs:
            self.failed_objects.append((aside.pod(pod_id), self._unread[class_id]))
        for row in {row_of_node.get(node_id) for node_id in bound.nodes[bad].tolist()} - {None}:
            self._left_out_nodes.add(self.snapshot.node(cast(int, row)).metadata.name)
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
        is_known = row_of_pod >= 0
        self.snapshot.add_pods(
            bound.ids[is_known].tolist(),
            indices[class_numbers][is_known],
            row_of_pod[is_known],
            started=bound.started[is_known],
            terminating=bound.terminating[is_known],
        )
        self._ending = bound.ids[bound.terminating].tolist()
        others = np.flatnonzero(~is_known).tolist()
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
        for name in self._left_out_nodes:
            self.snapshot.remove_node(name)

    def _load_pending(self, now: float, revision: int) -> None:
        """Fill the queue from the rows of pending pods, read at ``revision``."""
        fit = list(self._fit(load_waiting()))
        mine = fit
        if self.is_mine is not None:
            mine = [
                (row, pod) for row, pod in fit if not self._leave_to_others(row.id, row.class_id)
            ]
        restored = self._restore_pods(mine, revision, now)
        self.queue.release_groups(now)
        self._restore_nominations(fit)
        logger.info(
            "queue_loaded",
            pods=len(self.queue),
            refusals_kept=restored,
            of_others=len(self.elsewhere),
        )

    def _fit(self, rows: Sequence[WaitingPod]) -> Iterator[tuple[WaitingPod, PendingPod]]:
        """Yield the pods that can be decided; record why the others cannot."""
        self._learn_classes({row.class_id for row in rows})
        left_out = objects_aside(NAME)
        for row in rows:
            if row.leaves or row.scheduler_name not in self._registrations:
                continue
            if left_out and left_out.get(("Pod", row.id)) == row.revision:
                continue
            if row.class_id in self._unread:
                self.failed_objects.append((aside.pod(row.id), self._unread[row.class_id]))
                continue
            yield row, self._pending_pod(row.id, row.class_id)

    def divide(self, now: float) -> tuple[int, int]:
        """Divide pending pods among schedulers again; return how many left and joined the queue.

        Pods that join take the places that their rows state. Queries up to four times if there are
        some.
        """
        if self.is_mine is None:
            return 0, 0
        gone = [
            place.pod_id
            for place in list(self.queue.places())
            if self._leave_to_others(place.pod_id, self.queue.pod(place.pod_id).class_id)
        ]
        return len(gone), self.take_from_others(now)

    def take_from_others(self, now: float) -> int:
        """Add pods to the queue that have become this scheduler's; return their number."""
        if self.is_mine is None or not self.elsewhere:
            return 0
        mine = {one for one in set(self.elsewhere.values()) if self.is_mine(self.info(one), one)}
        if not mine:
            return 0
        ids = [pod_id for pod_id, class_id in self.elsewhere.items() if class_id in mine]
        for pod_id in ids:  # the log has the changes of pods without a row
            del self.elsewhere[pod_id]
        came = [
            (row, pod)
            for row, pod in self._fit(load_waiting(ids))
            if not self._leave_to_others(row.id, row.class_id)
        ]
        self._restore_pods(came, self.cursor, now)
        self.queue.release_groups(now)
        return len(came)

    def hand_over(self, pods: Sequence[PendingPod]) -> list[PendingPod]:
        """Return the popped pods that this scheduler decides; leave the rest to the others."""
        return [pod for pod in pods if not self._leave_to_others(pod.pod_id, pod.class_id)]

    def _restore_nominations(self, rows: Iterable[tuple[WaitingPod, PendingPod]]) -> None:
        """Set the nominations of queued pods to those in their rows; end all others."""
        nominated = [(row, pod) for row, pod in rows if row.nominated_node_name]
        self._nominated_in_log = {row.id: row.nominated_node_name for row, _ in nominated}
        self._nominated_as_of = {row.id: row.revision for row, _ in nominated}
        for key in self.snapshot.nominations.node_of.keys() - self._nominated_in_log.keys():
            self.snapshot.unnominate(key)
        for row, pod in nominated:
            info = self.info(pod.class_id)
            self.snapshot.nominate_when_unassumed(row.id, info, row.nominated_node_name)

    def reconfigure(
        self, revision: int, registrations: Registrations, backoff: Backoff, now: float
    ) -> None:
        """Use another configuration: the queue is filled again from its rows."""
        self.configuration = revision
        self._registrations = registrations
        self._backoff = backoff
        self.queue = self._new_queue()
        self.elsewhere.clear()
        self.reserved = {one.pod_id: one for one in reservations.everything()}
        self._load_pending(now, self.cursor)

    def take_in_again(self, rows: Iterable[WaitingPod], now: float) -> None:
        """Move queued pods to the queue places that their rows state, as of ``cursor``.

        Another process works with the queue and wrote the rows; changes in the log since then are
        applied. Rows of pods that are not in the queue are ignored.
        """
        fit = [(row, self.queue.pod(row.id)) for row in rows if row.id in self.queue]
        if not fit:
            return
        mine, self.queue = self.queue, self._new_queue()
        try:
            self._restore_pods(fit, self.cursor, now)
        finally:
            again, self.queue = self.queue, mine
        self.queue.adopt(again, now)
        self.queue.release_groups(now)

    def take_over(self, now: float) -> None:
        """Read the pods that clients put on nodes and that are not checked yet. Queries once."""
        self.arrivals = dict.fromkeys(load_arrivals(ADMISSION))
        self.of_unknown_nodes.clear()

    def _count_reserved(self, found: Iterable[Reservation]) -> None:
        """Store the reservations, and count each pod on its reserved node."""
        self.reserved = {one.pod_id: one for one in found}
        waiting = [one for one in self.reserved.values() if one.alive and one.is_held]
        self._learn_classes(one.class_id for one in waiting)
        for one in waiting:
            row = self.snapshot.row_of(one.node_name)
            if row is not None and self.snapshot.node_of(one.pod_id) is None:
                self.snapshot.assume(one.pod_id, self._classes[one.class_id], row)

    def follow_reservations(self) -> None:
        """Read the reservations again and count their pods, not the former ones. Queries once.

        For processes that make no reservations; to be called before ``refresh``, so that a pod
        whose reservation ended by its binding is never missing.
        """
        before = self.reserved
        self._count_reserved(reservations.everything())
        for pod_id in before.keys() - self.reserved.keys():
            self.snapshot.forget(pod_id)

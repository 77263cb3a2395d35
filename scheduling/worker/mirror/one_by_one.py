"""Applies changes one after the other: of nodes, pods, and objects that plugins look up."""

from collections.abc import Iterable
from datetime import datetime

import msgspec
import numpy as np

from clusterstate.actions.loops.aside import ObjectRef, is_an_objects_fault
from clusterstate.change_log import changes
from clusterstate.change_log.changes import Change
from clusterstate.objects.dra.world import KINDS as DEVICE_KINDS
from clusterstate.objects.values.document import SLOT
from scheduling.engine.queue.waking import PodState
from scheduling.framework.events import Action, Resource
from scheduling.framework.types import PodInfo
from scheduling.worker.mirror.state import FINISHED, WarmState, decode_node

TOGETHER = 16
"""From this number of pods on it is faster to add them together."""


class SingleChanges(WarmState):
    """Applies changes in order."""

    def _apply_all(self, news: Iterable[Change], now: float) -> None:
        """Apply changes in order; successive arrivals of pods on nodes are applied together."""
        arriving: dict[int, Change] = {}
        for change in news:
            if change.object_id not in arriving and self._is_arrival(change):
                arriving[change.object_id] = change
                continue
            if arriving:
                self._arrive(arriving, now)
            try:
                self._apply(change, now)
            except Exception as error:  # noqa: BLE001  # kept in failed_objects, or raised again
                self._give_up(change, error)
        self._arrive(arriving, now)
        self._move_on_confirmed(now)

    def _give_up(self, change: Change, error: Exception) -> None:
        """Record that a change failed, and remove its node or queued pod; raise database errors."""
        if not is_an_objects_fault(error):
            raise error
        self.failed_objects.append((ObjectRef(change.kind, change.object_id), error))
        if change.kind == "Node":
            self.snapshot.remove_node(change.name)
        elif change.kind == "Pod":
            self._leave_queue(change.object_id)
            if change.node_name and change.verb != changes.DELETED:
                self._leave_out_node(change.node_name)

    def _move_on_confirmed(self, now: float) -> None:
        """Wake the pods that pods placed by this worker may help, once for each class of these."""
        confirmed, self._confirmed = self._confirmed, {}
        if self.queue.has_waiting:
            for info in confirmed.values():
                after = PodState(pod=info.pod, on_node=True)
                self.pod_changed(None, after, now, is_own=True)

    def _is_arrival(self, change: Change) -> bool:
        """Whether a change puts a pod that had no node on a node in the snapshot."""
        return (
            change.kind == "Pod"
            and change.node_name is not None
            and change.verb != changes.DELETED
            and change.phase not in FINISHED
            and change.deletion_at is None
            and not self.snapshot.knows(change.object_id)
            and change.class_id in self._classes
            and self.snapshot.row_of(change.node_name) is not None
        )

    def _arrive(self, arriving: dict[int, Change], now: float) -> None:
        """Apply the arrivals of pods on nodes, and empty ``arriving``."""
        came = list(arriving.values())
        arriving.clear()
        if len(came) < TOGETHER:
            for change in came:
                self._apply_pod(change, now)
            return
        infos = [self._classes[change.class_id] for change in came if change.class_id is not None]
        at = [change.started_at or change.scheduled_at for change in came]
        self.snapshot.add_pods(
            [change.object_id for change in came],
            np.array([info.index for info in infos], np.int32),
            np.array([self.snapshot.row_of(c.node_name or "") for c in came], np.int32),
            started=np.array([np.nan if t is None else t.timestamp() for t in at], np.float64),
            names=[change.name for change in came],
        )
        for change, info in zip(came, infos, strict=True):
            if change.object_id in self.queue:
                self._leave_for(change.object_id, info, change.node_name or "", now)
            if change.phase == "Pending":
                self.arrivals[change.object_id] = None
            if len(self.queue):
                self.pod_changed(None, PodState(pod=info.pod, on_node=True), now)

    def _apply(self, change: Change, now: float) -> None:
        if change.kind == "Pod":
            self._apply_pod(change, now)
        elif change.kind == "Node":
            self._apply_node(change, now)
        elif change.kind in DEVICE_KINDS:
            self._apply_device(change, now)
        elif change.kind == "PodGroup":
            text = None if change.text is None else change.text.replace(SLOT, "")
            if text is not None or change.verb == changes.DELETED:
                there = None if change.verb == changes.DELETED else text
                self._apply_group((change.namespace, change.name), there, now)
        elif change.verb == changes.DELETED or change.text is not None:
            selects = self.snapshot.selection_version
            if change.verb == changes.DELETED:
                gone = self._remove_other(change)
                if gone is not None:
                    self.object_changed(change.kind, gone, None, now)
            elif change.text is not None:
                sides = self._set_other(change.kind, change.text.replace(SLOT, ""))
                if sides is not None:
                    self.object_changed(change.kind, *sides, now)
                if change.kind == "Namespace":
                    self.something_changed(Resource.NAMESPACE, Action.UPDATE_NAMESPACE_LABEL, now)
            if self.snapshot.selection_version != selects:
                self.something_changed(Resource.WORKLOAD, Action.ADD, now)

    def _apply_device(self, change: Change, now: float) -> None:
        if change.verb == changes.DELETED:
            event = self.remove_device(change.kind, change.namespace, change.name)
        elif change.text is not None:
            new = msgspec.json.decode(change.text.replace(SLOT, ""))
            event = self.set_device(change.kind, new)
        else:
            return
        if len(self.queue):
            self._wake(event, now)

    def _apply_node(self, change: Change, now: float) -> None:
        row = self.snapshot.row_of(change.name)
        old = None if row is None else self.snapshot.node(row)
        if change.verb == changes.DELETED:
            self.snapshot.remove_node(change.name)
            self.node_changed(old, None, now)
            return
        if change.text is None:  # the text was trimmed meanwhile; a later change has it
            return
        if change.name in self._left_out_nodes:
            return
        new = decode_node(change.text.replace(SLOT, ""))
        row = self.snapshot.set_node(new)
        if old is None and self.of_unknown_nodes:
            here = {one.key for one in self.snapshot.pods_on(row)}
            self.arrivals |= dict.fromkeys(one for one in self.of_unknown_nodes if one in here)
            self.of_unknown_nodes.difference_update(self.arrivals)
        self.node_changed(old, new, now)

    def _apply_pod(self, change: Change, now: float) -> None:
        pod_id, class_id = change.object_id, change.class_id
        assert class_id is not None, f"change {change.revision} of a pod names no class"
        gone = change.verb == changes.DELETED or change.phase in FINISHED
        if change.node_name and not gone:
            self._place(change, self.info(class_id), change.node_name, now)
            return
        record = self.snapshot.pod(pod_id)
        if record is not None and not self.snapshot.is_assumed(pod_id):
            before = self.standing(pod_id)
            self.snapshot.remove_pod(pod_id)
            self.pod_changed(before, None, now)
        self._drop_arrival(pod_id)
        if gone or change.deletion_at is not None:
            before = self.standing(pod_id) if record is None else None
            self._leave_queue(pod_id)
            self.pod_changed(before, None, now)
            return
        if record is None:
            self._join_queue(pod_id, class_id, change.at.timestamp(), now)
        elif record.info is not self.info(class_id):
            self._change_assumed(pod_id, record.row, class_id, now)
        self._follow_nomination(pod_id, change.nominated_node_name or "", change.revision, now)

    def _change_assumed(self, pod_id: int, row: int, class_id: int, now: float) -> None:
        """Count an assumed pod with its new class; in the queue it gets the new class, too.

        Its bind is refused if it was decided with the former class (``actions.pods.bind``).
        ``row``: the row of its node; -1 if the node is gone, and then the pod is counted nowhere.
        """
        pod = self._pending_pod(pod_id, class_id)
        self.snapshot.forget(pod_id)
        if row >= 0:
            self.snapshot.assume(pod_id, self._classes[class_id], row)
        if pod_id in self.queue:
            self.queue.update(pod, now)

    def _place(self, change: Change, info: PodInfo, node_name: str, now: float) -> None:
        """Apply a change of a pod that is on a node, usually one that this worker assumed there."""
        pod_id, snapshot = change.object_id, self.snapshot
        started = _seconds(change.started_at or change.scheduled_at)
        terminating = change.deletion_at is not None
        assumed = snapshot.is_assumed(pod_id)
        if snapshot.confirm(pod_id, info, node_name, start_time=started, terminating=terminating):
            if assumed:
                self._confirmed[info.index] = info
            self._leave_for(pod_id, info, node_name, now)
            if change.phase != "Pending":
                self._drop_arrival(pod_id)
            return
        record = snapshot.pod(pod_id)
        snapshot.add_pod(
            pod_id,
            info,
            node_name,
            start_time=started,
            terminating=terminating,
            name=change.name,
        )
        if terminating:
            self._ending.append(pod_id)
        self._leave_for(pod_id, info, node_name, now)
        if change.phase != "Pending":
            self._drop_arrival(pod_id)
        elif (record is None or assumed) and not terminating:
            # A client put the pod there: this worker assumed it on no node, or on another one.
            self.arrivals[pod_id] = None
        before = None
        if record is not None:
            was = record.terminating
            before = PodState(pod=record.info.pod, on_node=True, terminating=was)
        after = PodState(pod=info.pod, on_node=True, terminating=terminating)
        self.pod_changed(before, after, now)

    def _leave_for(self, pod_id: int, info: PodInfo, node_name: str, now: float) -> None:
        """Take a pod that is on a node out of the queue.

        If it was nominated for another node, waiting pods that may now fit there are woken.
        """
        claimed = self._nominated_in_log.get(pod_id, "")
        self._leave_queue(pod_id)
        if claimed != node_name:
            self.pod_changed(PodState(pod=info.pod, nominated=claimed), None, now)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()

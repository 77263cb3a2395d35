"""Applies many changes of pods at once, as columns."""

import msgspec
import numpy as np

from clusterstate.change_log import pod_log
from clusterstate.change_log.changes import MODIFIED, Change
from scheduling.engine.queue.pending import PendingPod
from scheduling.engine.queue.waking import PodState
from scheduling.worker.mirror import one_by_one, pod_news
from scheduling.worker.mirror.one_by_one import SingleChanges


class ManyChanges(SingleChanges):
    """Applies many successive changes of pods at once."""

    def _apply_many(self, news: pod_log.News, now: float) -> None:
        """Apply changes in order; successive changes of pods are applied together."""
        class_ids = np.unique(news.pods.classes).tolist()
        self._learn_classes(class_id for class_id in class_ids if class_id)
        for some in news.in_order(self._keeps_its_place):
            if isinstance(some, list):
                self._apply_all(some, now)
            elif len(some) < one_by_one.TOGETHER:
                self._apply_all(map(some.change, range(len(some))), now)
            else:
                self._apply_pods(some, now)
        self._move_on_confirmed(now)

    def _keeps_its_place(self, change: Change) -> bool:
        """Return whether pods' changes before and after this one must be applied separately.

        True for new and deleted nodes, and for namespaces, because rules about pods read their
        labels. Other changes may be applied after the pods, since a pod that leaves wakes the same
        waiting pods. They are frequent: nodes report their status all the time, and a ReplicaSet
        changes with each of its pods. If each ended a run, hardly any pods would be left together.
        """
        if change.kind == "Node":
            return change.verb != MODIFIED or self.snapshot.row_of(change.name) is None
        return change.kind == "Namespace"

    def _apply_pods(self, pods: pod_log.PodChanges, now: float) -> None:
        """Apply changes of pods, as if one by one; wake waiting pods once per class."""
        found = pod_news.sort_out(pods, self.snapshot, self._classes)
        self._confirm_pods(pods, found.same, now)
        self._remove_pods(found.left, now)
        self._forget_pods(found.unseen, now)
        self._end_pods(pods, found.ending, now)
        self._add_pods(pods, found.came, now)
        self._queue_pods(pods, found, now)
        self._apply_all(map(pods.change, found.rest), now)

    def _confirm_pods(self, pods: pod_log.PodChanges, same: pod_news.Pods, now: float) -> None:
        """Confirm pods on nodes; this worker assumed most of them there."""
        snapshot = self.snapshot
        started = pod_news.seconds(pods, same)
        assumed = snapshot.confirm_all(same.ids, same.slots, started)
        for info in snapshot.infos_of(same.slots[assumed]):
            self._confirmed[info.index] = info
        self._leave_for_all(pods, same, now)
        self._drop_running(pods, same)

    def _leave_for_all(self, pods: pod_log.PodChanges, some: pod_news.Pods, now: float) -> None:
        """Take pods that are on nodes out of the queue, each as ``_leave_for`` does."""
        claims, classes = self._nominated_in_log, self.snapshot.classes
        if claims:
            for pod_id, number, index in zip(some.ids, some.numbers, some.classes, strict=True):
                if pod_id in claims:
                    self._leave_for(pod_id, classes[index], pods.node_names[number], now)
        self._leave_queue_all(some.ids)

    def _add_pods(self, pods: pod_log.PodChanges, came: pod_news.Pods, now: float) -> None:
        """Add pods that clients and other processes put on nodes to the snapshot."""
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
        self._leave_for_all(pods, came, now)
        pending = pods.pending[came.numbers].tolist()
        self.arrivals.update(
            dict.fromkeys(one for one, waits in zip(came.ids, pending, strict=True) if waits)
        )
        for index in np.unique(came.classes).tolist():
            came_on = PodState(pod=self.snapshot.classes[index].pod, on_node=True)
            self.pod_changed(None, came_on, now)

    def _remove_pods(self, pods: pod_news.Pods, now: float) -> None:
        """Remove pods that were deleted, or finished, from the snapshot."""
        if not pods.ids:
            return
        infos = self.snapshot.infos_of(pods.slots)
        self.snapshot.remove_pods(pods.ids, pods.slots)
        self._leave_queue_all(pods.ids)
        self._drop_arrivals(pods.ids)
        for info in infos:
            self.pod_changed(PodState(pod=info.pod, on_node=True), None, now)

    def _forget_pods(self, unseen: pod_news.Pods, now: float) -> None:
        """Remove deleted or finished pods without a node from the queue."""
        nominated = self.snapshot.nominations.node_of
        held_room = []
        if nominated:
            held_room = [self.standing(pod_id) for pod_id in unseen.ids if pod_id in nominated]
        self._leave_queue_all(unseen.ids)
        self._drop_arrivals(unseen.ids)
        for before in held_room:
            self.pod_changed(before, None, now)

    def _end_pods(self, pods: pod_log.PodChanges, ending: pod_news.Pods, now: float) -> None:
        """Count pods as terminating; they stay on their nodes until they are deleted."""
        if not ending.ids:
            return
        names, infos = pods.names, self.snapshot.infos_of(ending.slots)
        self.snapshot.remove_pods(ending.ids, ending.slots)
        self.snapshot.add_pods(
            ending.ids,
            ending.classes,
            ending.rows,
            started=pod_news.seconds(pods, ending),
            terminating=np.ones(len(ending.ids), np.bool_),
            names=[names[number] for number in ending.numbers],
        )
        self._ending += ending.ids
        self._leave_queue_all(ending.ids)
        self._drop_running(pods, ending)
        for info in infos:
            before = PodState(pod=info.pod, on_node=True)
            self.pod_changed(before, msgspec.structs.replace(before, terminating=True), now)

    def _queue_pods(
        self, pods: pod_log.PodChanges, found: pod_news.SortedChanges, now: float
    ) -> None:
        """Add pods without a node to the queue, each with the time of its first change."""
        waiting = found.waiting
        since = pods.at[found.first[waiting.numbers]].tolist()
        class_ids = pods.classes[waiting.numbers].tolist()
        self._drop_arrivals(waiting.ids)
        came = list(zip(waiting.numbers, waiting.ids, class_ids, since, strict=True))
        try:
            self._join_queue_all(came, now)
        except Exception:  # noqa: BLE001  # each one is tried by itself, and given up or raised
            self._join_queue_singly(pods, came, now)
        if self._nominated_in_log or any(pods.nominated):
            for number, pod_id, _, _ in came:
                revision = pods.revisions.item(number)
                self._follow_nomination(pod_id, pods.nominated[number], revision, now)

    def _join_queue_all(self, came: list[tuple[int, int, int, float]], now: float) -> None:
        """Add pods, as (number, id, class id, time), to the queue together."""
        infos, queue, ours = self._classes, self.queue, self._registrations
        for _, pod_id, class_id, since in came:
            if pod_id in queue or self.is_mine is not None:
                self._join_queue(pod_id, class_id, since, now)
                continue
            info = infos[class_id]
            if info.pod.spec.scheduler_name in ours:
                queue.add(PendingPod(pod_id, class_id, info.pod, info.priority), since)

    def _join_queue_singly(
        self, pods: pod_log.PodChanges, came: list[tuple[int, int, int, float]], now: float
    ) -> None:
        """Add pods to the queue one by one; leave out pods that cannot be parsed."""
        for number, pod_id, class_id, since in came:
            try:
                self._join_queue(pod_id, class_id, since, now)
            except Exception as error:  # noqa: BLE001  # kept in failed_objects, or raised again
                self._give_up(pods.change(number), error)

    def _drop_arrivals(self, pod_ids: list[int]) -> None:
        if self.arrivals or self.of_unknown_nodes:
            for pod_id in pod_ids:
                self._drop_arrival(pod_id)

    def _drop_running(self, pods: pod_log.PodChanges, some: pod_news.Pods) -> None:
        """Remove pods that run, or have finished, from ``arrivals``."""
        if self.arrivals or self.of_unknown_nodes:
            runs = ~pods.pending[some.numbers]
            self._drop_arrivals([some.ids[place] for place in np.flatnonzero(runs).tolist()])

    def _leave_queue_all(self, pod_ids: list[int]) -> None:
        for pod_id in self.queue.present(pod_ids):
            self.queue.delete(pod_id)
        if self.elsewhere:
            for pod_id in pod_ids:
                self.elsewhere.pop(pod_id, None)
        if self.snapshot.nominations.node_of or self._nominated_in_log or self._nominated_as_of:
            for pod_id in pod_ids:
                self._end_nomination(pod_id)

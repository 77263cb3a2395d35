"""Many changes of pods at once, in columns."""

import numpy as np

from clusterstate import pod_log
from clusterstate.changes import Change
from scheduling.engine.queue.pending import PendingPod
from scheduling.engine.waking import Standing
from scheduling.worker.mirror import one_by_one, pod_news
from scheduling.worker.mirror.one_by_one import SingleChanges


class ManyChanges(SingleChanges):
    """Applies changes of pods that follow each other together."""

    def _apply_many(self, news: pod_log.News, now: float) -> None:
        """Apply changes in order, those of pods that follow each other together."""
        class_ids = np.unique(news.pods.classes).tolist()
        self._learn_classes(class_id for class_id in class_ids if class_id)
        for one in news.in_order():
            if isinstance(one, Change):
                self._apply_all([one], now)
            elif len(one) < one_by_one.TOGETHER:
                self._apply_all(map(one.change, range(len(one))), now)
            else:
                self._apply_pods(one, now)
        self._move_on_confirmed(now)

    def _apply_pods(self, pods: pod_log.PodChanges, now: float) -> None:
        """Apply changes of pods as if one by one; waiting pods are woken once for each class."""
        found = pod_news.sort_out(pods, self.snapshot, self._classes)
        self._confirm_pods(pods, found.same)
        self._remove_pods(found.left, now)
        self._add_pods(pods, found.came, now)
        self._queue_pods(pods, found, now)
        self._apply_all(map(pods.change, found.rest), now)

    def _confirm_pods(self, pods: pod_log.PodChanges, same: pod_news.Pods) -> None:
        """Confirm pods on nodes; most are what this worker assumed."""
        snapshot = self.snapshot
        started = pod_news.seconds(pods, same)
        assumed = snapshot.confirm_all(same.ids, same.slots, started)
        for info in snapshot.infos_of(same.slots[assumed]):
            self._confirmed[info.index] = info
        self._leave_queue_all(same.ids)

    def _add_pods(self, pods: pod_log.PodChanges, came: pod_news.Pods, now: float) -> None:
        """Count pods that clients and other processes put on nodes."""
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
            came_on = Standing(pod=self.snapshot.classes[index].pod, on_node=True)
            self.pod_changed(None, came_on, now)

    def _remove_pods(self, left: pod_news.Pods, now: float) -> None:
        """Count pods no longer that were deleted, or finished."""
        if not left.ids:
            return
        infos = self.snapshot.infos_of(left.slots)
        self.snapshot.remove_pods(left.ids, left.slots)
        self._leave_queue_all(left.ids)
        if self.arrivals or self.of_unknown_nodes:
            for pod_id in left.ids:
                self._drop_arrival(pod_id)
        for info in infos:
            self.pod_changed(Standing(pod=info.pod, on_node=True), None, now)

    def _queue_pods(self, pods: pod_log.PodChanges, found: pod_news.Sorted, now: float) -> None:
        """Take pods that are on no node into the queue, at the time of their first change."""
        waiting = found.waiting
        since = pods.at[found.first[waiting.numbers]].tolist()
        class_ids = pods.classes[waiting.numbers].tolist()
        if self.arrivals or self.of_unknown_nodes:
            for pod_id in waiting.ids:
                self._drop_arrival(pod_id)
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
        """Take pods (number, id, class id, time) into the queue together."""
        infos, queue, ours = self._classes, self.queue, self._registrations
        for _, pod_id, class_id, since in came:
            if pod_id in queue:
                self._join_queue(pod_id, class_id, since, now)
                continue
            info = infos[class_id]
            if info.pod.spec.scheduler_name in ours:
                queue.add(PendingPod(pod_id, class_id, info.pod, info.priority), since)

    def _join_queue_singly(
        self, pods: pod_log.PodChanges, came: list[tuple[int, int, int, float]], now: float
    ) -> None:
        """Take pods into the queue one by one; leave out pods that cannot be read."""
        for number, pod_id, class_id, since in came:
            try:
                self._join_queue(pod_id, class_id, since, now)
            except Exception as error:  # noqa: BLE001  # kept in failed_objects, or raised again
                self._give_up(pods.change(number), error)

    def _leave_queue_all(self, pod_ids: list[int]) -> None:
        for pod_id in self.queue.present(pod_ids):
            self.queue.delete(pod_id)
        if self.snapshot.nominations.node_of or self._nominated_in_log or self._nominated_as_of:
            for pod_id in pod_ids:
                self._end_nomination(pod_id)

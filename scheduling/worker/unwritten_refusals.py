"""Writes conditions and queue places of refused pods later: placing pods comes first.

A refused pod is back in the queue in memory at once. Its PodScheduled condition and its place in
the queue are written later, in slices: when no pod is ready to be tried, or when a refusal has
waited for a second. If the process ends before that, the pod's row still has its earlier condition
and place, and the next scheduler tries the pod again.
"""

from collections import OrderedDict
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from clusterstate.actions.pods.queue import (
    QueueMove,
    Unschedulable,
    move_pending,
    set_unschedulable,
)
from scheduling.engine.queue.pending import QueuePlace, Stage
from scheduling.engine.queue.scheduling_queue import PriorityQueue
from scheduling.worker.mirror import Mirror

_LONGEST = 1.0
"""Seconds after which a refusal is written although pods are ready to be tried."""
_PAUSE = 0.5
"""Seconds between two writes of overdue refusals, so that most of the time is for placing pods."""


class UnwrittenRefusals:
    """The refusals of one scheduler that are not written yet, the oldest first."""

    def __init__(self) -> None:
        # Each with the time of its decision, in order of that time.
        self._waiting: OrderedDict[int, tuple[float, Unschedulable]] = OrderedDict()
        self._wrote_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, item: Unschedulable, now: float) -> None:
        """Keep a refusal to be written, in place of an earlier one of the same pod.

        If the earlier refusal was to end the pod's nomination, the new one ends it, too.
        """
        earlier = self._waiting.pop(item.pod_id, None)
        if earlier is not None and item.nominated_node_name is None:
            ended = earlier[1].nominated_node_name
            item = msgspec.structs.replace(item, nominated_node_name=ended)
        self._waiting[item.pod_id] = now, item

    def drop(self, pod_ids: Iterable[int]) -> None:
        """Drop the refusals of pods that were placed, or that another process writes."""
        if self._waiting:
            for pod_id in pod_ids:
                self._waiting.pop(pod_id, None)

    def was_nominated(self, pod_id: int) -> None:
        """Note that a pod was nominated after its refusal: the refusal must not clear that.

        Does nothing for a pod without an unwritten refusal.
        """
        if (found := self._waiting.get(pod_id)) is not None:
            noted_at, item = found
            if item.nominated_node_name == "":
                item = msgspec.structs.replace(item, nominated_node_name=None)
                self._waiting[pod_id] = noted_at, item

    def is_due(self, now: float) -> bool:
        """Whether a refusal has waited too long to be written."""
        if not self._waiting or self._wrote_at <= now < self._wrote_at + _PAUSE:
            return False
        noted_at = next(iter(self._waiting.values()))[0]
        return not noted_at <= now < noted_at + _LONGEST

    def write(self, mirror: Mirror, now: float, most: int) -> int:
        """Write the oldest refusals, at most ``most``; return how many were taken from the list.

        A pod's place in the queue and its nomination are read now, because an event may have moved
        the pod, and a client may have nominated it, since it was refused.
        """
        queue = mirror.queue
        items: list[Unschedulable] = []
        self._wrote_at = now
        count = 0
        while self._waiting and count < most:
            pod_id, (_, item) = self._waiting.popitem(last=False)
            count += 1
            if pod_id not in queue:
                continue
            place = queue.place(pod_id)
            if place.stage is not Stage.IN_FLIGHT:
                item = msgspec.structs.replace(
                    item,
                    stage=place.stage.value,
                    attempts=place.attempts,
                    early=place.early,
                    not_before=moment(place),
                )
            if item.nominated_node_name == "" and mirror.snapshot.nominated_node_of(pod_id):
                item = msgspec.structs.replace(item, nominated_node_name=None)
            items.append(item)
        written = set_unschedulable(items, now=datetime.fromtimestamp(now, UTC))
        ended = {item.pod_id for item in items if item.nominated_node_name == ""}
        mirror.wrote_nominations(one for one in written if one[0] in ended)
        queue.mark_written(item.pod_id for item in items)
        return count

    def move(self, queue: PriorityQueue, most: int) -> int:
        """Write the places of pods that moved in the queue, at most ``most``; return their number.

        Pods in flight are left out: their outcome is written, or their reservation.
        """
        places = queue.take_changes(most)
        move_pending(
            [
                QueueMove(
                    pod_id=place.pod_id,
                    stage=place.stage.value,
                    attempts=place.attempts,
                    since=datetime.fromtimestamp(place.since, UTC),
                    early=place.early,
                    not_before=moment(place),
                )
                for place in places
                if place.stage is not Stage.IN_FLIGHT and place.pod_id not in self._waiting
            ]
        )
        return len(places)


def stage(place: QueuePlace) -> str:
    """Return the stage to store: "active" for a pod in flight, as it is after a restart."""
    return (Stage.ACTIVE if place.stage is Stage.IN_FLIGHT else place.stage).value


def moment(place: QueuePlace) -> datetime | None:
    """Return when the pod's backoff ends, ``None`` if it has none."""
    return datetime.fromtimestamp(place.not_before, UTC) if place.not_before else None

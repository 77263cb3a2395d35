"""Turns changes of nodes, pods and other objects into events for a scheduling queue.

Each owner of a queue beside a snapshot is a ``Waking``: the mirror of the scheduler that works,
which follows the log; the same mirror at its start, which reads again what happened since a
refusal; a cluster in virtual time. Each reports only the former and the new state of a node or pod,
so a plan wakes the same pods as the live queue. The plugins that rejected a waiting pod then decide
(``framework.events``).

A waiting pod takes room, too, while it is nominated: pods of no higher priority are judged as if it
were on that node. When its nomination ends, by another one, by none or by its deletion, they are
woken as if a pod had left, and so is the pod itself; when it is bound, they are not. Rules:
eventhandlers.go, v1.36 (``hasNominatedNodeNameChanged``, ``getLEPriorityPreCheck``).
"""

from collections.abc import Collection, Hashable
from typing import cast

import msgspec

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from scheduling.engine.queue.pending import PendingPod
from scheduling.engine.queue.scheduling_queue import PriorityQueue
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.events import (
    NOTHING,
    Action,
    ClusterEvent,
    Looked,
    Resource,
    diff_node,
    diff_pod,
)
from scheduling.framework.types import AffinityTerm


class PodState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an existing pod, as far as its change can wake pods in the queue.

    ``pod``: the lens of its class. ``nominated``: the node that a waiting pod is nominated to; may
    be omitted for a pod on a node. ``terminating``: it is on a node, and terminates.
    """

    pod: Pod
    on_node: bool = False
    terminating: bool = False
    nominated: str = ""


class Waking:
    """A scheduling queue and a snapshot: changes of the snapshot move pods of the queue."""

    snapshot: Snapshot
    queue: PriorityQueue

    def node_changed(self, old: Node | None, new: Node | None, now: float) -> None:
        """Wake the waiting pods that a new, changed or deleted node may help."""
        if len(self.queue):
            self._wake(self.event_of_node(old, new), now)

    def pod_changed(
        self,
        before: PodState | None,
        after: PodState | None,
        now: float,
        *,
        but_not: Collection[int] = (),
        is_own: bool = False,
    ) -> None:
        """Wake the waiting pods that a new, changed or deleted pod may help.

        Args:
            before: its state before, ``None`` if it did not exist.
            after: its state now, ``None`` if it is gone, or terminates without a node.
            now: the time.
            but_not: the pods that caused the change.
            is_own: this scheduler caused it (``PriorityQueue.move_on_event``).
        """
        if len(self.queue):
            self._wake(self.event_of_pod(before, after), now, but_not=but_not, is_own=is_own)

    def object_changed(
        self,
        kind: str,
        old: msgspec.Struct | Manifest | None,
        new: msgspec.Struct | Manifest | None,
        now: float,
    ) -> None:
        """Wake the pods that a change of an object may help, for kinds that plugins read."""
        if len(self.queue) and old != new:
            action = Action.ADD if old is None else Action.UPDATE
            if new is None:
                action = Action.DELETE
            event = ClusterEvent(
                resource=Resource(kind),
                action=action,
                old=cast(Looked | None, old),
                new=cast(Looked | None, new),
                devices=self.snapshot.devices,
            )
            self._wake(event, now)

    def set_device(self, kind: str, new: Manifest) -> ClusterEvent:
        """Store a claim, class, slice or rule of devices; return the event for waiting pods."""
        return self._device_changed(kind, self.snapshot.devices.set(kind, new), new)

    def remove_device(self, kind: str, namespace: str, name: str) -> ClusterEvent:
        """Forget a claim, class, slice or rule of devices; return the event for waiting pods."""
        old = self.snapshot.devices.remove(kind, namespace, name)
        return self._device_changed(kind, old, None)

    def _device_changed(
        self, kind: str, old: Manifest | None, new: Manifest | None
    ) -> ClusterEvent:
        action = Action.DELETE if new is None else Action.ADD if old is None else Action.UPDATE
        if kind == "DeviceTaintRule":  # the rule changes the taints in slices
            kind, action, old, new = "ResourceSlice", Action.UPDATE, None, None
        return ClusterEvent(
            resource=Resource(kind), action=action, old=old, new=new, devices=self.snapshot.devices
        )

    def something_changed(self, resource: Resource, action: Action, now: float) -> None:
        """Wake the pods that a change of a namespace, or of any other object, may help."""
        if len(self.queue):
            self._wake(ClusterEvent(resource=resource, action=action), now)

    def _wake(
        self,
        event: ClusterEvent | None,
        now: float,
        *,
        but_not: Collection[int] = (),
        is_own: bool = False,
    ) -> None:
        if event is not None:
            self.queue.move_on_event(event, now, but_not=but_not, is_own=is_own)

    # --- what it means ---------------------------------------------------------------------------

    def event_of_node(self, old: Node | None, new: Node | None) -> ClusterEvent | None:
        """Return the event of a new, changed or deleted node; ``None`` if it helps no pod."""
        if new is None:
            action = Action.DELETE
        else:
            action = Action.ADD if old is None else diff_node(old, new)
        if not action:
            return None
        return ClusterEvent(
            resource=Resource.NODE, action=action, old=old, new=new, devices=self.snapshot.devices,
            repelling=self._repelling(old, new) if action & Action.UPDATE_NODE_LABEL else None,
        )  # fmt: skip

    def _repelling(self, old: Node | None, new: Node | None) -> tuple[AffinityTerm, ...]:
        """Return anti-affinity terms of placed pods, for the topology labels that a node lost."""
        if old is None or new is None:
            return ()
        labels = new.metadata.labels
        keys = [key for key, value in old.metadata.labels.items() if labels.get(key) != value]
        return tuple(self.snapshot.anti_affinity_by(keys))

    def event_of_pod(self, before: PodState | None, after: PodState | None) -> ClusterEvent | None:
        """Return the event of a new, changed or deleted pod for other pods, ``None`` if none."""
        was_on = before is not None and before.on_node
        is_on = after is not None and after.on_node
        old = None if before is None else before.pod
        new = None if after is None else after.pod
        action, at_most = NOTHING, None
        if was_on and not is_on:
            action = Action.DELETE
        elif is_on and not was_on:
            action = Action.ADD
        elif before is not None and after is not None and was_on:
            if before.pod is not after.pod:
                action = diff_pod(before.pod, after.pod)
            if after.terminating and not before.terminating:
                action |= Action.UPDATE_POD_TERMINATING
        elif before is not None and _ends(before.nominated, after):
            # It had no node; pods that its nomination kept off one may find room there now.
            action, at_most = Action.DELETE, before.pod.spec.priority or 0
        if not action:
            return None
        subject = new or old
        assert subject is not None
        labels = self.snapshot.labels_of_namespace(subject.metadata.namespace)
        return ClusterEvent(
            resource=Resource.ASSIGNED_POD,
            action=action,
            old=None if action == Action.ADD else old,
            new=None if action == Action.DELETE else new,
            namespace_labels=None if labels is None else dict(labels),
            at_most_priority=at_most,
        )

    def event_of_itself(self, old: PendingPod, new: PendingPod) -> ClusterEvent | None:
        """Return the event of a change of a waiting pod; ``None`` if plugins do not read it."""
        if old.class_id == new.class_id:
            return None
        action = diff_pod(old.spec, new.spec)
        if not action:
            return None
        return ClusterEvent(
            resource=Resource.PENDING_POD,
            action=action,
            old=old.spec,
            new=new.spec,
            devices=self.snapshot.devices,
        )

    def standing(self, key: Hashable) -> PodState | None:
        """Return the state of a pod that is on a node or nominated for one, else ``None``."""
        record = self.snapshot.pod(key)
        if record is not None:
            return PodState(pod=record.info.pod, on_node=True, terminating=record.terminating)
        node_name = self.snapshot.nominated_node_of(key)
        if not node_name:
            return None
        info = self.snapshot.nominations.of_node[node_name][key]
        return PodState(pod=info.pod, nominated=node_name)


def _ends(nominated: str, after: PodState | None) -> bool:
    """Return whether a pod's nomination for the node ``nominated`` has ended.

    ``nominated``: empty if it was nominated for none.
    """
    return bool(nominated) and (after is None or after.nominated != nominated)

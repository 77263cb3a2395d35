"""Objects that plugins look up beside nodes and pods, and the volumes of assumed pods."""

from collections.abc import Callable, Hashable, Iterable, Sequence

import msgspec

from clusterstate.objects.dra.counting import Kind
from clusterstate.objects.rules.volume_matching import MatchingError
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod_group import GroupKey
from scheduling.engine.snapshot.counters import PodCounters
from scheduling.engine.snapshot.device_columns import DeviceColumns
from scheduling.framework.arrays import Float64, Int32
from scheduling.framework.attached_volumes import AttachedVolumes
from scheduling.framework.device_claims import DeviceTable, concerns, counted_claims
from scheduling.framework.pod_groups import GroupTable
from scheduling.framework.types import PodInfo, PodRecord, group_key
from scheduling.framework.volume_binder import (
    BinderError,
    NodeSeen,
    find_pod_volumes,
    meta_of,
    pod_volume_claims,
)
from scheduling.framework.volume_table import VolumeTable


class LookedUp(PodCounters):
    """Volumes, claims and devices by name, and those that assumed pods use on their nodes."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.volumes = VolumeTable()
        self.devices = DeviceTable()
        self.gives_devices = True
        """Whether pods that are assumed now get devices: their profile has DynamicResources."""
        self.groups = GroupTable()
        self._device_columns = DeviceColumns()
        self._attached_volumes = AttachedVolumes()

    # --- devices and attached volumes ----------------------------------------------------------

    def set_node(self, node: Node) -> int:
        """Add or replace a node. Return its row. Errors: see ``NodeColumns``."""
        row = super().set_node(node)
        self._device_columns.node_set(row)
        return row

    def device_column(self, kind: Kind) -> int:
        """Return the column in which devices of a kind are counted, -1 if they cannot be."""
        return self._device_columns.of(kind, self)

    def follow_columns(self, *, of_volumes: bool) -> None:
        """Update the columns of devices, and those of volumes if ``of_volumes``."""
        self._device_columns.follow(self, self._touch)
        if of_volumes:
            self.attached_volumes()

    def attached_volumes(self) -> AttachedVolumes:
        """Return the volumes attached to nodes, updated."""
        self._attached_volumes.follow(self, self._touch)
        return self._attached_volumes

    def are_apart(self, one: int, other: int) -> bool:
        """Return whether no device or volume counts in both of two columns."""
        of_volumes = self._attached_volumes.columns
        if one in of_volumes or other in of_volumes:
            return one != other
        return self._device_columns.are_apart(one, other, self)

    def is_taken(self, once: Iterable[str]) -> bool:
        """Return whether pods use a volume that a class requested (``ColumnRequest.once``)."""
        return not self._attached_volumes.at.keys().isdisjoint(once)

    @property
    def column_generation(self) -> int:
        """A number that changes when columns of devices are assigned to other kinds."""
        return self._device_columns.generation

    # --- objects and pods ------------------------------------------------------------------------

    def set_object(self, value: msgspec.Struct) -> msgspec.Struct | None:
        """Add or replace an object of a kind that plugins look up; return the old one."""
        return self.volumes.set(value)

    def remove_object(self, kind: str, namespace: str, name: str) -> msgspec.Struct | None:
        """Remove an object and return it, ``None`` if it was not known."""
        return self.volumes.remove(kind, namespace, name)

    def intern(self, info: PodInfo) -> PodInfo:
        """Return the known class with the same digest, or add ``info`` to the known classes.

        Raises:
            TooManyResources: it requests too many resources that no other object has.
        """
        interned = super().intern(info)
        if interned is info and (key := group_key(info.pod)) is not None:
            self.groups.note_class(key, info.index)
        return interned

    def members_of(self, key: GroupKey) -> list[PodRecord]:
        """Return the pods of a group that are on known nodes, including assumed ones."""
        placed = self._class_pods
        classes = [number for number in self.groups.classes(key) if placed[number]]
        return self.pods_of(classes) if classes else []

    def spares_some(self, pod: PodInfo) -> bool:
        """Return whether groups protect some pods below ``pod``'s priority from its preemption."""
        classes = self.groups.spared_classes(pod)
        return any(
            self.classes[number].priority < pod.priority and self._class_pods[number] > 0
            for number in classes
        )

    def peer_stamp(self, info: PodInfo) -> int:
        """Return a number that changes when the decision about a class may change.

        It changes with terms about the class, services and controllers that select it, and objects
        that it uses.
        """
        found = self._peers.stamps[info.peer]
        # All versions only grow, so no two states have the same sum.
        if info.volumes:
            found += self.volumes.version
        return found + self.devices.version if info.may_claim else found

    def claim_users(self, namespace: str, name: str) -> int:
        """Return how many pods on known nodes use a claim."""
        pods = self._peers.pods
        users = sum(pods[peer] for peer in self._claimed.get((namespace, name), ()))
        for info, _ in self._counted_nominated:
            users += info.namespace == namespace and name in info.claims
        return users

    @property
    def is_trying(self) -> bool:
        """Whether a dry run is in progress, so that counts differ from ``pods_on``."""
        return bool(self._detached or self._counted_nominated)

    def counted_on(self, row: int) -> list[PodInfo]:
        """Return the class of each pod that a row counts, with the changes of a dry run."""
        found = [one.info for one in self.pods_on(row) if one.slot not in self._detached]
        return found + [info for info, at in self._counted_nominated if at == row]

    def assume(self, key: Hashable, info: PodInfo, row: int) -> None:
        """Add a pod that was just decided, with the volumes and devices on its node."""
        super().assume(key, info, row)
        if info.claims:
            self._take_volumes(key, info, row)
        if self.gives_devices and concerns(info, self.devices):
            self.devices.take(key, info, self.node(row))

    def change_class(self, key: Hashable, info: PodInfo) -> bool:
        """Change the class of an assumed pod; return False if the classes' peers differ.

        Both classes must request the same. Volumes and devices are given out by class, so for pods
        that may have some this does nothing and returns False.
        """
        slot = self._slot_of[key]
        before = self.classes[self._pod_class.item(slot)]
        if info.claims or info.may_claim or info.peer != before.peer:
            return False
        self._class_pods[before.index] -= 1
        self._class_pods[info.index] += 1
        self._pod_class[slot] = info.index
        return True

    def assume_run(
        self,
        keys: Sequence[Hashable],
        infos: Sequence[PodInfo],
        rows: Int32,
        link: Callable[..., None],
    ) -> None:
        """Add pods that were just decided, as ``ManyPods`` does, and allocate devices to them."""
        super().assume_run(keys, infos, rows, link)
        if not self.gives_devices or self.devices.is_empty:
            return
        devices = self.devices
        # No two pods of a run share a claim, so what is known of a claim stays valid until its
        # pod's turn.
        claiming = [
            (key, info, row, counted_claims(info, devices))
            for key, info, row in zip(keys, infos, rows.tolist(), strict=True)
            if info.may_claim and concerns(info, devices)
        ]
        for key, info, row, counted in claiming:
            devices.take(key, info, self.node(row), counted)

    def confirm(
        self,
        key: Hashable,
        info: PodInfo,
        node_name: str,
        *,
        start_time: float | None = None,
        terminating: bool = False,
    ) -> bool:
        """Confirm a pod that is known with the same class and node; return whether there is one."""
        found = super().confirm(
            key, info, node_name, start_time=start_time, terminating=terminating
        )
        if found and info.claims:
            self.volumes.forget(key)  # the stored objects include it now
        if found and info.may_claim:
            self.devices.confirm(key)
        return found

    def confirm_all(self, keys: Sequence[Hashable], slots: Int32, started: Float64) -> list[int]:
        """Confirm that pods are on their nodes; return the positions of those that were assumed."""
        if self.volumes.is_taken:
            for key in keys:
                self.volumes.forget(key)
        if self.devices.is_taken:
            for key in keys:
                self.devices.confirm(key)
        return super().confirm_all(keys, slots, started)

    def remove_pod(self, key: Hashable) -> None:
        """Remove a pod; nothing happens if it is unknown."""
        self.volumes.forget(key)
        self.devices.forget(key)
        super().remove_pod(key)

    def remove_pods(self, keys: Sequence[Hashable], slots: Int32) -> None:
        """Remove many pods on live rows at once, as ``remove_pod`` would one by one."""
        if self.volumes.is_taken or self.devices.is_taken:
            for key in keys:
                self.volumes.forget(key)
                self.devices.forget(key)
        super().remove_pods(keys, slots)

    def _take_volumes(self, key: Hashable, info: PodInfo, row: int) -> None:
        table, name = self.volumes, self.node_name(row)
        try:
            claims = pod_volume_claims(table, meta_of(info), info.volumes)
            if claims.delayed:
                node = NodeSeen(name, self.node(row).metadata.labels, table.csi_node(name))
                table.assume(key, find_pod_volumes(table, claims, node)[0].assumed(name))
        except (BinderError, MatchingError):
            return  # nothing is taken; the next attempt reports why

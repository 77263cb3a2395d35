"""Volumes attached to nodes, by CSI driver: how many there are, and how many a node takes.

This module has the rules for a pod's attached volumes, and ``AttachedVolumes``, which keeps them
for all nodes of a snapshot. A volume counts once on a node, however many pods use it there.

Rule: plugins/nodevolumelimits/csi.go, v1.36.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from clusterstate.objects.rules.csi_migration import (
    csi_source,
    driver_of,
    is_in_tree,
    is_migratable,
)
from clusterstate.objects.rules.volume_matching import not_for_pod
from clusterstate.objects.values.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from scheduling.framework.arrays import Float64, Int32, Int64, Mask
from scheduling.framework.types import PodInfo
from scheduling.framework.volume_binder import claim_name, meta_of
from scheduling.framework.volume_table import ClaimKey, VolumeTable

Rows = npt.NDArray[np.intp]
_Key = TypeVar("_Key", bound=Hashable)
_UNBOUND: Final = "\0unbound "
"""Prefix of the handle of a volume that does not exist yet."""
Handles = dict[str, str]
"""Drivers by ``driver/handle``."""
_ANY: Final = 2**40
"""A limit that nobody reaches."""
_MOST: Final = 16
"""This many drivers have a column; pods with volumes of others take the reference path."""
_BROUGHT: Final = "AttachedVolumes/brought"
_OF_NODES: Final = frozenset({"CSINode", "VolumeAttachment"})
_NONE: Final[Handles] = {}
_UNATTACHED: Final[tuple[set[str], Handles]] = set(), {}
_NOBODY: Final[set[int]] = set()
_CLASS_BITS: Final = 32
_CLASS: Final = (1 << _CLASS_BITS) - 1


class LimitError(ValueError):
    """The claim of an ephemeral volume belongs to another pod: the attempt ends."""


class MissingClaim(ValueError):
    """A claim does not exist."""


def attached_by(table: VolumeTable, pod: PodInfo, node: CSINode | None, *, is_new: bool) -> Handles:
    """Return the volumes that are attached to a pod's node because of the pod.

    Raises:
        LimitError: the claim of an ephemeral volume belongs to another pod.
        MissingClaim: a claim of a new pod does not exist.
    """
    found: Handles = {}
    meta = meta_of(pod)
    for volume in pod.volumes:
        name = claim_name(meta, volume)
        if name is None:
            source = csi_source(volume, node) if is_migratable(volume) else None
            if source is not None:
                found[f"{source.driver}/{source.volume_handle}"] = source.driver
            continue
        if not name:
            raise LimitError("PersistentVolumeClaim had no name")
        claim = table.claim(pod.namespace, name)
        if claim is None:
            if is_new:
                full = f"{pod.namespace}/{name}"
                raise MissingClaim(
                    f'looking up PVC {full}: persistentvolumeclaims "{name}" not found'
                )
            continue
        if volume.ephemeral is not None and (problem := not_for_pod(claim, meta)):
            raise LimitError(problem)
        driver, handle = _served_by(table, claim, node)
        if driver and handle:
            found[f"{driver}/{handle}"] = driver
    return found


def _served_by(
    table: VolumeTable, claim: PersistentVolumeClaim, node: CSINode | None
) -> tuple[str, str]:
    """Return CSI driver and handle of a claim's volume on a node; both empty without CSI."""
    volume, storage_class = _provided_by(table, claim)
    if volume is not None:
        source = csi_source(volume, node)
        return ("", "") if source is None else (source.driver, source.volume_handle)
    if storage_class is None:
        return "", ""
    return driver_of(storage_class.provisioner, node), f"{_UNBOUND}{claim.full_name}"


def _provided_by(
    table: VolumeTable, claim: PersistentVolumeClaim
) -> tuple[PersistentVolume | None, StorageClass | None]:
    """Return the volume of a claim, else the class that provisions it; ``None`` where unknown."""
    volume = table.volume(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None or not claim.class_name:
        return volume, None
    return None, table.storage_class(claim.class_name)


def _remembered(table: VolumeTable, pod: PodInfo) -> tuple[int, Handles | None] | None:
    """Return the cached (table version, result of ``brought_by``); ``None`` if out of date."""
    found: Any = pod.memo.get(_BROUGHT)
    return None if found is None or found[0] != table.version else found


def known_of(table: VolumeTable, pod: PodInfo) -> Handles | None:
    """Return the last result of ``brought_by`` for a class, ``None`` if it is out of date."""
    found = _remembered(table, pod)
    return None if found is None else found[1]


def brought_by(table: VolumeTable, pod: PodInfo) -> Handles | None:
    """Return the volumes that a new pod attaches, ``None`` if they differ from node to node.

    Raises:
        LimitError: the claim of an ephemeral volume belongs to another pod.
        MissingClaim: a claim does not exist.
    """
    found = _remembered(table, pod)
    if found is None:
        alike = not _has_in_tree(table, pod)
        brought = attached_by(table, pod, None, is_new=True) if alike else None
        found = pod.memo[_BROUGHT] = table.version, brought
    return found[1]


def _has_in_tree(table: VolumeTable, pod: PodInfo) -> bool:
    """Return whether nodes may differ in the driver that serves a volume of the pod."""
    if any(map(is_migratable, pod.volumes)):
        return True
    for name in pod.claims:
        claim = table.claim(pod.namespace, name)
        if claim is None:
            continue
        volume, storage_class = _provided_by(table, claim)
        if volume is not None and is_migratable(volume):
            return True
        if storage_class is not None and is_in_tree(storage_class.provisioner):
            return True
    return False


def attached_to(table: VolumeTable, name: str) -> tuple[set[str], Handles]:
    """Return the volume names in a node's VolumeAttachments, and those volumes that CSI serves.

    An attached volume that no pod of the node uses still counts against the limit.
    """
    names: set[str] = set()
    found: Handles = {}
    for attachment in table.attachments(name):
        spec = attachment.spec
        volume_name = spec.source.persistent_volume_name or ""
        names.add(volume_name)
        volume = table.volume(volume_name)
        if spec.attacher and volume is not None and volume.spec.csi is not None:
            found[f"{spec.attacher}/{volume.spec.csi.volume_handle}"] = spec.attacher
    return names, found


def on_node(table: VolumeTable, pods: Iterable[PodInfo], name: str) -> tuple[Handles, Handles]:
    """Return the volumes that a node's pods attach, and these with its VolumeAttachments."""
    node, by_pods = table.csi_node(name), Handles()
    for pod in pods:
        by_pods |= attached_by(table, pod, node, is_new=False)
    return by_pods, attached_to(table, name)[1] | by_pods


class _Nodes(Protocol):
    """The parts of a snapshot that volume columns read and write."""

    allocatable: Int64
    requested: Int64
    alive: Mask
    volumes: VolumeTable
    classes: list[PodInfo]

    @property
    def capacity(self) -> int: ...
    @property
    def log_end(self) -> int: ...
    def rows(self) -> Rows: ...
    def row_of(self, name: str) -> int | None: ...
    def node_name(self, row: int) -> str: ...
    def resource(self, name: str) -> int: ...
    def touched_since(self, position: int) -> Int32 | None: ...
    def slot_columns(self) -> tuple[Int32, Int32, Int32, Float64, Mask, Int64]: ...


class _Use(NamedTuple):
    """The volumes that a placed pod attaches to its row, and the objects that determine them."""

    row: int
    handles: Handles
    watched: Sequence[tuple[str, ClaimKey]]


class AttachedVolumes:
    """Volumes attached to the nodes of one snapshot, by row.

    ``used``, ``limits``: by driver how many volumes a row has, and takes; int64 (rows,). ``at``:
    the rows where pods use a volume. ``failures``: the error of each pod with another pod's claim.

    A driver that a class requests also has a column among the snapshot's resources, as devices have
    (``device_columns``). It is derived from this, which is authoritative.
    """

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}
        self._begin(0)

    def _begin(self, capacity: int) -> None:
        self._seen = (-1, -1)
        self._capacity = capacity
        self.used: dict[str, Int64] = {}
        self.limits: dict[str, Int64] = {}
        self.at: dict[str, set[int]] = {}
        self.failures: dict[int, str] = {}
        # A pod is its slot and its class, combined into one number.
        self._uses: dict[int, _Use] = {}
        self._pods: dict[int, set[int]] = {}
        self._counts: dict[int, dict[str, int]] = {}
        self._attached: dict[int, tuple[set[str], Handles]] = {}
        self._names: dict[int, str] = {}
        # Pods, and rows with attachments, to look at again when an object changes.
        self._watching: dict[tuple[str, ClaimKey], set[int]] = {}
        self._attached_to: dict[str, set[int]] = {}
        self._brings: Mask = np.zeros(0, np.bool_)

    def follow(self, snapshot: _Nodes, touch: Callable[[int], None]) -> None:
        """Apply the changes since the last call.

        ``touch`` is called with each row whose columns changed.
        """
        table = snapshot.volumes
        now = snapshot.log_end, table.end
        if self._seen == now and self._capacity == snapshot.capacity:
            return
        position, end = self._seen
        touched = snapshot.touched_since(position) if position >= 0 else None
        changes = table.changes_since(end) if end >= 0 else None
        if touched is None or changes is None or self._capacity != snapshot.capacity:
            self._begin(snapshot.capacity)
            rows, changes = snapshot.rows(), ()
        else:
            rows = np.unique(touched).astype(np.intp)
        self._seen = (-1, -1)  # until all changes are applied
        moved = {row for one in set(changes) for row in self._object_changed(snapshot, one)}
        if moved:
            rows = np.union1d(rows, np.fromiter(moved, np.intp, len(moved)))
        self._follow_rows(snapshot, rows)
        for driver, column in self._columns.items():
            self._write(snapshot, driver, column, rows, touch)
        self._seen = snapshot.log_end, table.end

    def column(self, driver: str, snapshot: _Nodes) -> int:
        """Return the column in which volumes of a driver are counted, -1: there is no space.

        ``follow`` must have been called before.
        """
        found = self._columns.get(driver, -1)
        if found < 0 and len(self._columns) < _MOST:
            found = snapshot.resource(f"volumes {len(self._columns)}")
            self._columns[driver] = found
            # The column is new, so no cache needs to learn which rows changed.
            self._write(snapshot, driver, found, snapshot.rows(), lambda row: None)
        return found

    @property
    def stamp(self) -> tuple[int, int]:
        """A value that changes whenever anything here may change."""
        return self._seen

    @property
    def columns(self) -> Iterable[int]:
        """The resource columns in which drivers' volumes are counted."""
        return self._columns.values()

    def _write(
        self,
        snapshot: _Nodes,
        driver: str,
        column: int,
        rows: Rows,
        touch: Callable[[int], None],
    ) -> None:
        """Write a driver's volume limit and attached volumes into its column, for ``rows``."""
        rows = rows[snapshot.alive[rows]]
        limits, used = self.limits.get(driver), self.used.get(driver)
        most = np.full(len(rows), _ANY, np.int64) if limits is None else limits[rows]
        there = np.zeros(len(rows), np.int64) if used is None else used[rows]
        differs = snapshot.allocatable[rows, column] != most
        differs |= snapshot.requested[rows, column] != there
        if differs.any():
            changed = rows[differs]
            snapshot.allocatable[changed, column] = most[differs]
            snapshot.requested[changed, column] = there[differs]
            for row in changed.tolist():
                touch(row)

    # --- following -------------------------------------------------------------------------------

    def _object_changed(self, snapshot: _Nodes, change: tuple[str, ClaimKey]) -> Iterator[int]:
        """Forget everything derived from an object; yield the rows concerned."""
        kind, key = change
        rows: Iterable[int | None] = ()
        if kind in _OF_NODES:
            rows = (snapshot.row_of(key[1]),)
        elif kind == "PersistentVolume":
            rows = self._attached_to.get(key[1], ())
        for row in rows:
            if row is not None:
                self._names.pop(row, None)
                yield row
        for pod in list(self._watching.get(change, ())):
            yield self._uses[pod].row
            self._drop(pod)

    def _follow_rows(self, snapshot: _Nodes, rows: Rows) -> None:
        """Update the pods on rows; for new nodes read limits and attachments too.

        Pods that left are dropped from all rows before any is added: a slot that became free on one
        row may now belong to a pod of the same class on another row.
        """
        there = self._pods_on(snapshot, rows)
        came: list[tuple[int, set[int]]] = []
        for row in rows.tolist():
            name = snapshot.node_name(row) if snapshot.alive[row] else ""
            if self._names.get(row, "") != name or not name:
                self._forget_row(row)
                if not name:
                    continue
                self._begin_row(snapshot.volumes, row, name)
            before, now = self._pods.get(row, _NOBODY), there.get(row, _NOBODY)
            if before != now:
                came.append((row, now - before))
                for pod in before - now:
                    self._drop(pod)
        for row, pods in came:
            for pod in pods:
                self._add(snapshot, row, pod)

    def _pods_on(self, snapshot: _Nodes, rows: Rows) -> dict[int, set[int]]:
        """Return the pods with volumes on each of the rows."""
        more = snapshot.classes[len(self._brings) :]
        if more:
            known = np.fromiter([bool(info.volumes) for info in more], np.bool_, len(more))
            self._brings = np.concatenate((self._brings, known))
        first, following, classes, *_ = snapshot.slot_columns()
        at, slots = rows, first[rows]
        found: dict[int, set[int]] = {}
        while (left := slots >= 0).any():
            at, slots = at[left], slots[left]
            kinds = classes[slots]
            bring = self._brings[kinds]
            pods = (slots[bring].astype(np.int64) << _CLASS_BITS) | kinds[bring]
            for row, pod in zip(at[bring].tolist(), pods.tolist(), strict=True):
                found.setdefault(row, set()).add(pod)
            slots = following[slots]
        return found

    def _begin_row(self, table: VolumeTable, row: int, name: str) -> None:
        """Read a node's limits, and the volumes attached to it, used by pods or not."""
        self._names[row] = name
        node = table.csi_node(name)
        for one in node.spec.drivers if node is not None else ():
            if one.limit is not None:
                self._of(self.limits, one.name, _ANY)[row] = one.limit
        volumes, handles = attached_to(table, name)
        for volume in volumes:
            self._attached_to.setdefault(volume, set()).add(row)
        for driver in handles.values():
            self._of(self.used, driver, 0)[row] += 1
        if volumes:
            self._attached[row] = volumes, handles

    def _forget_row(self, row: int) -> None:
        for pod in list(self._pods.get(row, ())):
            self._drop(pod)
        volumes, handles = self._attached.pop(row, _UNATTACHED)
        for volume in volumes:
            _discard(self._attached_to, volume, row)
        for driver in handles.values():
            self.used[driver][row] -= 1
        for column in self.limits.values():
            column[row] = _ANY
        self._names.pop(row, None)

    def _add(self, snapshot: _Nodes, row: int, pod: int) -> None:
        """Count the volumes that a pod attaches to its row."""
        table, info = snapshot.volumes, snapshot.classes[pod & _CLASS]
        handles = known_of(table, info)
        if handles is None:
            node = table.csi_node(self._names[row])
            try:
                handles = attached_by(table, info, node, is_new=False)
            except LimitError as failed:
                self.failures[pod] = str(failed)
                handles = _NONE
        use = self._uses[pod] = _Use(row, handles, tuple(_looked_at(table, info)))
        self._pods.setdefault(row, set()).add(pod)
        for change in use.watched:
            self._watching.setdefault(change, set()).add(pod)
        counts = self._counts.setdefault(row, {})
        for handle, driver in handles.items():
            count = counts[handle] = counts.get(handle, 0) + 1
            if count == 1:
                self.at.setdefault(handle, set()).add(row)
                if handle not in self._attached.get(row, _UNATTACHED)[1]:
                    self._of(self.used, driver, 0)[row] += 1

    def _drop(self, pod: int) -> None:
        """Stop counting the volumes that a pod attaches to its row."""
        row, handles, watched = self._uses.pop(pod)
        self.failures.pop(pod, None)
        _discard(self._pods, row, pod)
        for change in watched:
            _discard(self._watching, change, pod)
        counts = self._counts.get(row, {})
        for handle, driver in handles.items():
            counts[handle] -= 1
            if not counts[handle]:
                del counts[handle]
                _discard(self.at, handle, row)
                if handle not in self._attached.get(row, _UNATTACHED)[1]:
                    self.used[driver][row] -= 1
        if not counts:
            self._counts.pop(row, None)

    def _of(self, columns: dict[str, Int64], driver: str, value: int) -> Int64:
        found = columns.get(driver)
        if found is None:
            found = columns[driver] = np.full(self._capacity, value, np.int64)
        return found


def _looked_at(table: VolumeTable, pod: PodInfo) -> Iterator[tuple[str, ClaimKey]]:
    """Yield kind and key of the objects that determine a placed pod's attached volumes.

    Objects of its node are left out.
    """
    for name in pod.claims:
        yield "PersistentVolumeClaim", (pod.namespace, name)
        claim = table.claim(pod.namespace, name)
        if claim is not None and claim.spec.volume_name:
            yield "PersistentVolume", ("", claim.spec.volume_name)
        if claim is not None and claim.class_name:  # even if the volume is missing
            yield "StorageClass", ("", claim.class_name)


def _discard(sets: dict[_Key, set[int]], key: _Key, number: int) -> None:
    """Remove a number from the set of a key, and the set if it becomes empty."""
    found = sets.get(key)
    if found is not None:
        found.discard(number)
        if not found:
            del sets[key]

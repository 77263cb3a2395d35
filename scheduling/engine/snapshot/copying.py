"""A copy of a snapshot that may be changed freely, for what-if.

Columns are copied, nodes and everything frozen are shared; classes are copied, since plugins store
data in them that is valid for one snapshot; counters and label columns are rebuilt on demand.
Measured: 15 ms at 5,000 nodes and 50,000 pods, 0.15 s at 50,000 and a million.
"""

import copy
from typing import Any, Final

import numpy as np

from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.device_columns import DeviceColumns
from scheduling.engine.snapshot.interning import Interner
from scheduling.engine.snapshot.nominations import Nominations
from scheduling.framework.attached_volumes import AttachedVolumes
from scheduling.framework.device_claims import DeviceTable
from scheduling.framework.pod_groups import GroupTable
from scheduling.framework.types import PodInfo
from scheduling.framework.volume_table import VolumeTable

_SHARED: Final = (int, float, bool, str, bytes, type(None))
_MADE_AGAIN: Final = frozenset(
    {
        "_attached_volumes", "_columns", "_counters", "_device_columns", "_image_columns",
        "_nominated_rows", "_nominated_stamp", "_peers",
    }
)  # fmt: skip


def copy_snapshot(snapshot: Snapshot) -> Snapshot:
    """Return an independent copy of a snapshot.

    Raises:
        TypeError: the snapshot has an attribute of a type that this function does not copy.
    """
    classes = {id(info): _copy_class(info) for info in snapshot.classes}
    new = Snapshot.__new__(Snapshot)
    for name, value in vars(snapshot).items():
        if name not in _MADE_AGAIN:
            setattr(new, name, _copied(name, value, classes))
    new.taint_sets = new._taints.values
    new._columns, new._counters, new._image_columns = {}, {}, {}
    new._nominated_rows, new._nominated_stamp = {}, (-1, -1)
    new._device_columns = DeviceColumns()
    new._attached_volumes = AttachedVolumes()
    new._peers = snapshot._peers.copy(classes, new.namespace_labels)
    return new


def _copy_class(info: PodInfo) -> PodInfo:
    new = copy.copy(info)
    new.memo = {}
    new._required = {}
    return new


def _copied(name: str, value: Any, classes: dict[int, PodInfo]) -> Any:
    if isinstance(value, _SHARED):
        return value
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    if isinstance(value, PodInfo):
        return classes.get(id(value)) or _copy_class(value)
    if isinstance(value, dict):
        if not value or not _has_inner(next(iter(value.values()))):
            return value.copy()
        return {key: _copied(name, inner, classes) for key, inner in value.items()}
    if isinstance(value, list):
        if not value or not _has_inner(value[0]):
            return value.copy()
        return [_copied(name, inner, classes) for inner in value]
    if isinstance(value, set):
        return value.copy()
    if isinstance(value, VolumeTable | DeviceTable | GroupTable):
        return value.copy()
    if isinstance(value, Nominations):
        return value.copied(classes)
    if isinstance(value, Interner):
        new: Interner[Any] = Interner()
        new.values = value.values.copy()
        new._numbers = value._numbers.copy()
        return new
    raise TypeError(f"{name}: do not know how to copy {type(value).__name__}")


def _has_inner(value: Any) -> bool:
    """Return whether a container has mutable values, so that each needs a copy."""
    return isinstance(value, PodInfo | dict | list | set | np.ndarray)

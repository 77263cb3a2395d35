"""Nodes as columns: one row per node, with the values that plugins read.

A row keeps its number while its node exists; freed rows are reused. Label columns, image scores and
the order of rows are made on first use and then updated or rebuilt.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from clusterstate.objects.values.node import Node, Taint
from clusterstate.objects.values.quantity import QuantityError, milli_value, value
from scheduling.engine.snapshot.arrays import lengthen, widen
from scheduling.engine.snapshot.interning import BASE_RESOURCES, Interner, is_scalar_resource
from scheduling.engine.snapshot.touched import TouchedRows
from scheduling.framework.arrays import Int32, Int64, Mask
from scheduling.framework.tables import LabelColumn

ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
REGION_LABELS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")

MOST_RESOURCES = 512
"""Limit of counted resources: each is a column of every node as long as the process lives.

Real clusters have some dozens. A pod that asks for ten thousand, or a node that offers them, is
valid, but would cost every scheduler minutes and gigabytes, now and at each start.
"""
KEPT_FOR_NODES = 64
"""This many of them are reserved for resources that nodes offer: whoever may create pods must not
be able to use up all columns, so that later nodes are set aside. No pod gets what no node has."""

_MOST_CHANGES = 8192


class TooManyResources(QuantityError):
    """An object names more resources that no other object has than the snapshot can count.

    An object of the cluster is set aside; in a question this is reported as an invalid amount.
    """


class NodeColumns(TouchedRows):
    """The node table. ``requested`` and ``pod_count`` are maintained by ``snapshot.pods``."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = max(capacity, 1)
        size = self._capacity
        self.names: list[str] = [""] * size
        self._nodes: list[Node | None] = [None] * size
        self._row_of: dict[str, int] = {}
        self._free: list[int] = list(range(size - 1, -1, -1))
        self.resources: Interner[str] = Interner(BASE_RESOURCES)
        self.allocatable: Int64 = np.zeros((size, 3), np.int64, order="F")
        self.requested: Int64 = np.zeros((size, 3), np.int64, order="F")
        self.nonzero_requested: Int64 = np.zeros((size, 2), np.int64, order="F")
        self.allowed_pods: Int64 = np.zeros(size, np.int64)
        self.pod_count: Int64 = np.zeros(size, np.int64)
        self.unschedulable: Mask = np.zeros(size, np.bool_)
        self.alive: Mask = np.zeros(size, np.bool_)
        self.taint_set: Int32 = np.zeros(size, np.int32)
        self._taints: Interner[tuple[Taint, ...]] = Interner(((),))
        self.taint_sets: list[tuple[Taint, ...]] = self._taints.values
        self._columns: dict[str, LabelColumn] = {}
        self._image_nodes: dict[str, dict[int, int]] = {}
        self._image_columns: dict[tuple[str, ...], tuple[int, Int64]] = {}
        self.node_version = 0
        # The rows whose changes ``node_version`` counted, from the version after ``_changes_after``
        # on.
        self._changes: list[int] = []
        self._changes_after = 0
        self.image_version = 0
        """Number of changes of the images on nodes, and of the share of nodes that have them."""
        self.reads_whole_nodes = False
        """Whether ``node_version`` counts every change of a node's labels and spec."""
        self._names_version = 0
        self._rank: Int32 = np.zeros(0, np.int32)
        self._rank_version = -1
        self._rows: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._rows_version = -1
        self._order: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._order_version = -1
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}

    # --- reading ---------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Number of rows for which the columns have space."""
        return self._capacity

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self._row_of)

    def rows(self) -> npt.NDArray[np.intp]:
        """Return all live rows, ascending. The caller must not write to it."""
        if self._rows_version != self.node_version:
            self._rows = np.flatnonzero(self.alive)
            self._rows_version = self.node_version
        return self._rows

    def row_of(self, name: str) -> int | None:
        """Return the row of a node, or ``None``."""
        return self._row_of.get(name)

    def rows_of(self, names: Iterable[str]) -> Int32:
        """Return the rows of nodes, int32 (names,), -1 where a node is not known."""
        find = self._row_of.get
        return np.array([find(name, -1) for name in names], np.int32)

    def node(self, row: int) -> Node:
        """Return the node in ``row``; the row must be live."""
        node = self._nodes[row]
        assert node is not None
        return node

    def node_name(self, row: int) -> str:
        """Return the name of the node in ``row``; empty when the row is free."""
        return self.names[row]

    def node_names(self) -> Iterable[str]:
        """Return the names of all nodes, in order of arrival."""
        return self._row_of.keys()

    def name_rank(self) -> Int32:
        """Return the rank of each row's node name, sorted, int32 (capacity,).

        0 for rows without a node. Shared: the caller must not write to it.
        """
        if self._rank_version != self._names_version or len(self._rank) != self._capacity:
            self._rank = np.zeros(self._capacity, np.int32)
            rows = [self._row_of[name] for name in sorted(self._row_of)]
            self._rank[rows] = np.arange(len(rows))
            self._rank_version = self._names_version
        return self._rank

    def ordered_rows(self) -> npt.NDArray[np.intp]:
        """Return live rows interleaved by zone: 1, 5, 2, 6, 3, 4 for {1,2,3,4} and {5,6} (R178).

        Zones, and the nodes in each, are in order of arrival. Rule:
        pkg/scheduler/backend/cache/node_tree.go, v1.36.
        """
        if self._order_version != self.node_version:
            queues = [list(names) for names in self._zones.values()]
            order = [
                self._row_of[queue[i]]
                for i in range(max(map(len, queues), default=0))
                for queue in queues
                if i < len(queue)
            ]
            self._order = np.array(order, np.intp)
            self._order_version = self.node_version
        return self._order

    def changed_since(self, version: int) -> Sequence[int] | None:
        """Return the rows that changed since ``node_version`` was ``version``, with repeats.

        ``None``: the changes concern all rows, or are too many. The caller must not write to it.
        """
        begin = version - self._changes_after
        return None if begin < 0 else self._changes[begin:]

    def _node_changed(self, row: int) -> None:
        """Raise ``node_version`` for a change of one row's node that rules can see."""
        self.node_version += 1
        if len(self._changes) >= _MOST_CHANGES:
            del self._changes[: _MOST_CHANGES // 2]
            self._changes_after += _MOST_CHANGES // 2
        self._changes.append(row)

    def _all_changed(self) -> None:
        """Raise ``node_version`` for a change that concerns all rows."""
        self.node_version += 1
        self._changes_after = self.node_version
        self._changes = []

    # --- nodes that come, change and go ----------------------------------------------------------

    def set_node(self, node: Node) -> int:
        """Add or replace a node. Return its row.

        Raises:
            QuantityError: an allocatable amount does not parse; nothing was changed.
            TooManyResources: it offers too many resources that no other object has; nothing was
                changed.
        """
        name = node.metadata.name
        amounts = {
            key: milli_value(amount) if key == "cpu" else value(amount)
            for key, amount in node.status.allocatable.items()
        }
        self.require_resources(amounts)
        row = self._row_of.get(name)
        before: Node | None = None
        if row is None:
            if not self._free:
                self._grow_rows()
            row = self._free.pop()
            self._row_of[name] = row
            self.names[row] = name
            self.alive[row] = True
            self._names_version += 1
            self._node_changed(row)
            self._share_changed()
        else:
            before = self._nodes[row]
        self._nodes[row] = node
        self.allocatable[row] = 0
        for key, amount in amounts.items():
            if key in BASE_RESOURCES or is_scalar_resource(key):
                number = self.resource(key)  # may replace the array, so it comes first
                self.allocatable[row, number] = amount
        self.allowed_pods[row] = amounts.get("pods", 0)
        looked_at = False
        if before is None or before.spec != node.spec:
            taints = self._taints.number(node.spec.taints)
            looked_at = (
                self.reads_whole_nodes
                or self.unschedulable.item(row) != node.spec.unschedulable
                or self.taint_set.item(row) != taints
            )
            self.unschedulable[row] = node.spec.unschedulable
            self.taint_set[row] = taints
        if before is None or before.metadata.labels != node.metadata.labels:
            labels = node.metadata.labels
            changed = [column.set(row, labels.get(column.key)) for column in self._columns.values()]
            moved = self._place_in_zone(name, _zone_key(labels))
            looked_at = looked_at or self.reads_whole_nodes or moved or any(changed)
        if before is not None:
            declared = before.status.declared_features
            looked_at = looked_at or declared != node.status.declared_features
        if looked_at:
            self._node_changed(row)
        old_images = () if before is None else before.status.images
        if old_images != node.status.images:
            self._set_images(row, before, node)
        if before is None:
            self._node_came(name, row)
        self._touch(row)
        return row

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods are remembered in case it returns."""
        row = self._row_of.get(name)
        if row is None:
            return
        self._node_leaves(name, row)
        node = self.node(row)
        if node.status.images:
            self._set_images(row, node, None)
        for column in self._columns.values():
            column.set(row, None)
        del self._row_of[name]
        self._names_version += 1
        self._place_in_zone(name, None)
        self.names[row] = ""
        self._nodes[row] = None
        self.alive[row] = False
        self.unschedulable[row] = False
        self.allocatable[row] = 0
        self.allowed_pods[row] = 0
        self.taint_set[row] = 0
        self._free.append(row)
        self._node_changed(row)
        self._share_changed()
        self._touch(row)

    def _node_came(self, name: str, row: int) -> None:
        """Apply to a new node's row everything that was remembered under the node's name."""

    def _node_leaves(self, name: str, row: int) -> None:
        """Remove pods and nominations from a node's row, and remember them by the node's name."""

    def _grow_rows(self) -> None:
        old = self._capacity
        new = old * 2
        self._capacity = new
        self.names += [""] * (new - old)
        self._nodes += [None] * (new - old)
        self._free = list(range(new - 1, old - 1, -1))
        self.allocatable = lengthen(self.allocatable, new)
        self.requested = lengthen(self.requested, new)
        self.nonzero_requested = lengthen(self.nonzero_requested, new)
        self.allowed_pods = lengthen(self.allowed_pods, new)
        self.pod_count = lengthen(self.pod_count, new)
        self.unschedulable = lengthen(self.unschedulable, new)
        self.alive = lengthen(self.alive, new)
        self.taint_set = lengthen(self.taint_set, new)
        for column in self._columns.values():
            column.grow(new)
        self._image_columns.clear()
        self._all_changed()

    def _place_in_zone(self, name: str, zone: str | None) -> bool:
        """Store the zone of a node. Return whether the node moved."""
        before = self._zone_of.get(name)
        if before == zone:
            return False
        if before is not None:
            members = self._zones[before]
            del members[name]
            if not members:
                del self._zones[before]
            del self._zone_of[name]
        if zone is not None:
            self._zones.setdefault(zone, {})[name] = None
            self._zone_of[name] = zone
        return True

    # --- images ----------------------------------------------------------------------------------

    def _set_images(self, row: int, before: Node | None, after: Node | None) -> None:
        """Update which nodes have which images after the node of a row changed."""
        held, gone, now = self._image_nodes, _sizes(before), _sizes(after)
        same_names = True
        for name in gone.keys() - now.keys():
            holders = held.get(name, {})
            holders.pop(row, None)
            if not holders:
                held.pop(name, None)
                same_names = False
        for name, size in now.items():
            same_names = same_names and name in held
            held.setdefault(name, {})[row] = size
        self.image_version += 1
        if same_names:
            self._node_changed(row)
        else:
            self._all_changed()  # ``has_any_image`` may change for any class

    def _share_changed(self) -> None:
        """Note that the number of nodes changed, on which every image score depends."""
        if self._image_nodes:
            self.image_version += 1

    def has_any_image(self, images: tuple[str, ...]) -> bool:
        """Return whether some node has one of the images."""
        held = self._image_nodes
        return bool(held) and any(image in held for image in images)

    def image_score_column(self, images: tuple[str, ...]) -> Int64:
        """Return, per row, the sum over ``images`` of size times share of nodes that have it.

        int64 (capacity,), bytes, each summand truncated. Rule: imagelocality/image_locality.go
        ``scaledImageScore``, v1.36. The array is shared: the caller must not write to it.
        """
        stamp = self.node_version
        found = self._image_columns.get(images)
        if found is not None and found[0] == stamp:
            return found[1]
        column = np.zeros(self._capacity, np.int64)
        total = self.node_count
        for image in images:
            holders = self._image_nodes.get(image)
            if holders:
                spread = len(holders) / total
                for row, size in holders.items():
                    column[row] += int(float(size) * spread)
        if len(self._image_columns) > 1024:
            self._image_columns.clear()
        self._image_columns[images] = (stamp, column)
        return column

    # --- labels and resources --------------------------------------------------------------------

    def label_column(self, key: str) -> LabelColumn:
        """Return the column of a node label's values; made on first use."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = LabelColumn(key, self._capacity)
            rows, nodes = list(self._row_of.values()), self._nodes
            column.set_all(rows, [nodes[row].metadata.labels.get(key) for row in rows])  # type: ignore[union-attr]
        return column

    def is_counted(self, resource: str) -> bool:
        """Return whether the scheduler counts the resource."""
        return resource in BASE_RESOURCES or is_scalar_resource(resource)

    def resource(self, name: str) -> int:
        """Return the column number of a resource; made on first use."""
        number = self.resources.number(name)
        width = self.allocatable.shape[1]
        if number >= width:
            # By half, so that hundreds of names do not cause hundreds of copies.
            self._grow_resources(max(number + 1, width + max(2, width // 2)))
            self._all_changed()
        return number

    def require_resources(self, names: Iterable[str], most: int = MOST_RESOURCES) -> None:
        """Check that an object's resources keep the number of counted ones within ``most``.

        Raises:
            TooManyResources: the object names too many resources that no other object has.
        """
        fresh = sum(self.is_counted(name) and self.resources.find(name) is None for name in names)
        if fresh and len(self.resources) + fresh > most:
            raise TooManyResources(
                f"{fresh} new resource names: all objects together may name"
                f" at most {most} resources"
            )

    def _grow_resources(self, width: int) -> None:
        """Widen all arrays by resource to ``width`` columns."""
        self.allocatable = widen(self.allocatable, width)
        self.requested = widen(self.requested, width)


def _sizes(node: Node | None) -> dict[str, int]:
    """Return the size of each image that a node has, in bytes, by each of its names."""
    images = () if node is None else node.status.images
    return {name: image.size_bytes for image in images for name in image.names}


def _zone_key(labels: Mapping[str, str]) -> str:
    """Return region and zone as one name (component-helpers ``GetZoneKey``)."""
    zone = next((labels[key] for key in ZONE_LABELS if key in labels), "")
    region = next((labels[key] for key in REGION_LABELS if key in labels), "")
    return f"{region}:\0:{zone}" if region or zone else ""

"""Devices as columns: how many of a kind each node has, and how many of these are taken.

A column is one of the snapshot's resources, with a name that no node offers and no pod requests, so
the fast path compares and counts devices as it does any amount. It is made when a class first
requests a kind (``clusterstate.objects.dra.counting``), and is updated before each run for the
nodes whose devices were taken, given back or changed. It is derived from the ``DeviceTable``, which
is authoritative.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from clusterstate.objects.dra.counting import Kind, are_apart, countable
from clusterstate.objects.dra.slices import NodeView
from clusterstate.objects.values.node import Node
from scheduling.framework.arrays import Int64, Mask
from scheduling.framework.device_claims import GATES, DeviceTable
from scheduling.framework.node_table import Rows


class _Nodes(Protocol):
    """The parts of a snapshot that device columns read and write."""

    allocatable: Int64
    requested: Int64
    alive: Mask
    devices: DeviceTable

    def rows(self) -> Rows: ...
    def row_of(self, name: str) -> int | None: ...
    def node(self, row: int) -> Node: ...
    def resource(self, name: str) -> int: ...


_MOST: Final = 32
"""At most this many kinds have a column at a time; devices of other kinds are not counted."""
_MOST_REFUSED: Final = 4096
_IDLE: Final = 64
"""If columns are lacking and a kind was not asked for in this many runs, all are assigned anew.
"""


class DeviceColumns:
    """The device columns of one snapshot. ``generation`` rises when columns change their kinds."""

    def __init__(self) -> None:
        self.generation = 0
        self._kinds: dict[bytes, tuple[Kind, int]] = {}
        self._given = 0
        self._runs = 0
        self._asked: dict[bytes, int] = {}
        """By kind that has a column: the run in which it was last asked for."""
        self._is_lacking = False
        self._refused: dict[bytes, int] = {}
        """Kinds that cannot be counted, and the devices (``DeviceWorld.shapes``) for which."""
        self._apart: dict[tuple[int, int], tuple[int, bool]] = {}
        self._position = -1
        self._renewed: set[int] = set()

    def node_set(self, row: int) -> None:
        """Note that a node was added or changed: its row must be counted again."""
        if self._kinds:
            self._renewed.add(row)

    def of(self, kind: Kind, snapshot: _Nodes) -> int:
        """Return the column of a kind, made on first use; -1 where it cannot be counted."""
        known = self._kinds.get(kind.key)
        if known is not None:
            self._asked[kind.key] = self._runs
            return known[1]
        shapes = snapshot.devices.shapes
        if self._refused.get(kind.key) == shapes:
            return -1
        if self._given >= _MOST:
            self._is_lacking = True
            return -1
        if not self._kinds:
            self._position = snapshot.devices.position
            self._renewed.clear()
        column = snapshot.resource(f"devices {self._given}")
        # The column is new, so no cache needs to learn which rows changed.
        if not self._write(snapshot, kind, column, snapshot.rows().tolist(), lambda row: None):
            if len(self._refused) >= _MOST_REFUSED:
                self._refused.clear()
            self._refused[kind.key] = shapes
            return -1
        self._given += 1
        self._kinds[kind.key] = kind, column
        self._asked[kind.key] = self._runs
        return column

    def follow(self, snapshot: _Nodes, touch: Callable[[int], None]) -> None:
        """Update all columns before a run; ``touch`` is called with each row that changed."""
        self._runs += 1
        if self._is_lacking:
            self._give_out_anew()
        if not self._kinds:
            return
        devices = snapshot.devices
        touched = devices.touched_since(self._position)
        self._position = devices.position
        if touched is None:
            rows: Iterable[int] = snapshot.rows().tolist()
        else:
            found = {row for name in touched if (row := snapshot.row_of(name)) is not None}
            rows = found | {row for row in self._renewed if snapshot.alive[row]}
        self._renewed.clear()
        if rows:
            for kind, column in list(self._kinds.values()):
                if not self._write(snapshot, kind, column, rows, touch):
                    self._refused[kind.key] = devices.shapes
                    # Its column is not reused at once, but classes may still request it.
                    del self._kinds[kind.key], self._asked[kind.key]
                    self.generation += 1

    def _give_out_anew(self) -> None:
        """Forget all kinds if some column was not used lately, so that its number can be reused."""
        self._is_lacking = False
        last = min(self._asked.values(), default=0)
        if len(self._kinds) == _MOST and self._runs - last < _IDLE:
            return
        self.generation += 1
        self._given = 0
        self._kinds.clear()
        self._asked.clear()
        self._refused.clear()
        self._apart.clear()

    def are_apart(self, one: int, other: int, snapshot: _Nodes) -> bool:
        """Return whether no device counts in both of two columns."""
        key, shapes = (min(one, other), max(one, other)), snapshot.devices.shapes
        known = self._apart.get(key)
        if known is None or known[0] != shapes:
            first, second = [kind for kind, column in self._kinds.values() if column in key]
            allocator = snapshot.devices.allocator(GATES.allocator)
            known = self._apart[key] = shapes, are_apart(allocator, first, second)
        return known[1]

    @staticmethod
    def _write(
        snapshot: _Nodes,
        kind: Kind,
        column: int,
        rows: Iterable[int],
        touch: Callable[[int], None],
    ) -> bool:
        """Write how many devices of a kind rows have; False if a device cannot be counted."""
        allocator = snapshot.devices.allocator(GATES.allocator)
        allocatable, requested = snapshot.allocatable, snapshot.requested
        for row in rows:
            node = snapshot.node(row)
            view = NodeView(node.metadata.name, node.metadata.labels)
            found = countable(allocator, view, kind)
            if found is None:
                return False
            used = len(allocator.state.held_among(found))
            if allocatable.item(row, column) != len(found) or requested.item(row, column) != used:
                allocatable[row, column], requested[row, column] = len(found), used
                touch(row)
        return True

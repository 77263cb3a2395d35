"""The nominations of pending pods to nodes, as lists by row and as sums by row.

Preemption nominates a pod to the node where its victims leave. Until the pod is placed, pods of no
higher priority are judged as if it ran there (runtime/framework.go
``RunFilterPluginsWithNominatedPods``, v1.36). ``first``, ``following`` and ``kind`` are for
compiled loops: the nominations of a row form a linked list of numbers, and ``kind`` is the class of
each. ``requested`` and ``pods`` are the sums over all nominations of a row.
"""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from scheduling.framework.arrays import Int32, Int64
from scheduling.framework.types import PodInfo

NO_PRIORITY = 2**31
"""``lowest_priority`` where no pod is nominated: above all priorities."""


class Nominations:
    """The pods nominated to nodes of a snapshot: for each row a linked list, and sums of requests.

    ``first`` int32 (rows,), ``following`` and ``kind`` int32 (nominations,); -1 ends a list.
    ``requested`` int64 (rows, resources), ``pods`` int64 (rows,). Nominations to nodes that are not
    known are remembered and belong to no row.
    """

    def __init__(self, capacity: int, width: int) -> None:
        self.first: Int32 = np.full(capacity, -1, np.int32)
        self.following: Int32 = np.full(16, -1, np.int32)
        self.kind: Int32 = np.full(16, -1, np.int32)
        self.requested: Int64 = np.zeros((capacity, width), np.int64, order="F")
        self.pods: Int64 = np.zeros(capacity, np.int64)
        self.of_node: dict[str, dict[Hashable, PodInfo]] = {}
        self.node_of: dict[Hashable, str] = {}
        self._number_of: dict[Hashable, int] = {}
        self._free: list[int] = list(range(15, -1, -1))
        self._priorities: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.node_of)

    def copied(self, classes: Mapping[int, PodInfo]) -> "Nominations":
        """Return a copy; ``classes``: the copied classes, by ``id`` of the old ones."""
        new = Nominations.__new__(Nominations)
        new.first, new.following = self.first.copy(), self.following.copy()
        new.kind, new.pods = self.kind.copy(), self.pods.copy()
        new.requested = self.requested.copy(order="K")
        new.of_node = {
            name: {key: classes[id(info)] for key, info in there.items()}
            for name, there in self.of_node.items()
        }
        new.node_of, new._number_of = self.node_of.copy(), self._number_of.copy()
        new._free, new._priorities = self._free.copy(), self._priorities.copy()
        return new

    # --- noting ----------------------------------------------------------------------------------

    def add(
        self, key: Hashable, info: PodInfo, node_name: str, row: int | None, vector: Int64
    ) -> None:
        """Add the nomination of a pod that has none. ``row``: of the node, ``None`` if unknown."""
        if not self._free:
            size = len(self.kind)
            self.following = np.concatenate((self.following, np.full(size, -1, np.int32)))
            self.kind = np.concatenate((self.kind, np.full(size, -1, np.int32)))
            self._free = list(range(2 * size - 1, size - 1, -1))
        number = self._number_of[key] = self._free.pop()
        self.kind[number] = info.index
        self.of_node.setdefault(node_name, {})[key] = info
        self.node_of[key] = node_name
        self._priorities[info.priority] = self._priorities.get(info.priority, 0) + 1
        if row is not None:
            self._link(number, row, vector)

    def remove(self, key: Hashable, row: int | None, vector: Int64) -> None:
        """Drop a pod's nomination; the pod must have one. ``row``: as in ``add``."""
        node_name = self.node_of.pop(key)
        there = self.of_node[node_name]
        info = there.pop(key)
        if not there:
            del self.of_node[node_name]
        number = self._number_of.pop(key)
        remaining = self._priorities[info.priority] - 1
        if remaining:
            self._priorities[info.priority] = remaining
        else:
            del self._priorities[info.priority]
        if row is not None:
            before, at = -1, self.first.item(row)
            while at != number:
                before, at = at, self.following.item(at)
            if before < 0:
                self.first[row] = self.following[number]
            else:
                self.following[before] = self.following[number]
            self.requested[row] -= vector
            self.pods[row] -= 1
        self.following[number] = self.kind[number] = -1
        self._free.append(number)

    def _link(self, number: int, row: int, vector: Int64) -> None:
        self.following[number] = self.first[row]
        self.first[row] = number
        self.requested[row] += vector
        self.pods[row] += 1

    def node_came(self, name: str, row: int, vectors: Sequence[Int64]) -> None:
        """Link the nominations to a node that became known. ``vectors``: requests by class."""
        for key, info in self.of_node.get(name, {}).items():
            self._link(self._number_of[key], row, vectors[info.index])

    def node_left(self, row: int) -> None:
        """Unlink the nominations of a row; they are remembered by the node's name."""
        self.first[row] = -1
        self.requested[row] = 0
        self.pods[row] = 0

    def grow(self, capacity: int, width: int) -> None:
        """Grow the arrays to more rows and resources."""
        rows, columns = self.requested.shape
        first = np.full(capacity, -1, np.int32)
        first[:rows] = self.first
        requested = np.zeros((capacity, width), np.int64, order="F")
        requested[:rows, :columns] = self.requested
        pods = np.zeros(capacity, np.int64)
        pods[:rows] = self.pods
        self.first, self.requested, self.pods = first, requested, pods

    # --- asking ----------------------------------------------------------------------------------

    @property
    def lowest_priority(self) -> int:
        """The lowest priority of a nominated pod; ``NO_PRIORITY`` if there is none."""
        return min(self._priorities, default=NO_PRIORITY)

    def number_of(self, key: Hashable) -> int:
        """Return the number of a pod's own nomination, -1 if it has none."""
        return self._number_of.get(key, -1)

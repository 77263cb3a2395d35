"""Nominated pods: pending pods for which preemption makes room on a node.

``engine.snapshot.nominations`` has the sums by row; this module applies them to the snapshot.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from scheduling.engine.snapshot.classes import ClassColumns
from scheduling.engine.snapshot.nominations import Nominations
from scheduling.framework.arrays import Int32
from scheduling.framework.node_table import Rows
from scheduling.framework.types import PodInfo


class NominatedPods(ClassColumns):
    """The nominations of pods to nodes; a context manager counts nominated pods as placed."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.nominations = Nominations(self._capacity, self.allocatable.shape[1])
        self.nomination_version = 0
        self._nominated_before: dict[Hashable, str] = {}
        """Nodes that assumed pods were nominated to, for pods that are forgotten again."""
        self._counted_nominated: list[tuple[PodInfo, int]] = []
        self._nominated_rows: dict[int, dict[int, list[PodInfo]]] = {}
        self._nominated_stamp: tuple[int, int] = (-1, -1)

    def nominate(self, key: Hashable, info: PodInfo, node_name: str) -> None:
        """Nominate a pending pod to a node; replaces an earlier nomination."""
        self.unnominate(key)
        row = self._row_of.get(node_name)
        self.nominations.add(key, info, node_name, row, self._vectors[info.index])
        self._nominations_changed(row)

    def unnominate(self, key: Hashable) -> None:
        """Drop a pod's nomination; nothing happens if it has none."""
        if self._nominated_before:
            self._nominated_before.pop(key, None)
        node_name = self.nominations.node_of.get(key)
        if node_name is not None:
            row = self._row_of.get(node_name)
            info = self.nominations.of_node[node_name][key]
            self.nominations.remove(key, row, self._vectors[info.index])
            self._nominations_changed(row)

    def renew_nomination(self, key: Hashable, info: PodInfo) -> None:
        """Change the class of a nominated pod; does nothing without a nomination."""
        node_name = self.nominations.node_of.get(key)
        if node_name is not None and self.nominations.of_node[node_name][key] is not info:
            self.nominate(key, info, node_name)

    def _suspend_nomination(self, key: Hashable) -> None:
        """Drop the nomination of a pod that is now assumed, and remember its node."""
        node_name = self.nominations.node_of.get(key)
        if node_name is not None:
            self.unnominate(key)
            self._nominated_before[key] = node_name

    def _nominations_changed(self, row: int | None) -> None:
        self.nomination_version += 1
        if row is not None:
            self._touch(row)

    def nominated_node_of(self, key: Hashable) -> str:
        """Return the node to which a pod is nominated, empty if there is none."""
        return self.nominations.node_of.get(key, "")

    def nominated_below(self, node_name: str, priority: int) -> Mapping[Hashable, PodInfo]:
        """Return the pods of lower priority that are nominated to a node.

        They lose the nomination when a pod of ``priority`` preempts pods there, since they may no
        longer fit (preemption/executor.go ``getLowerPriorityNominatedPods``, v1.36).
        """
        there = self.nominations.of_node.get(node_name, {})
        return {key: info for key, info in there.items() if info.priority < priority}

    @property
    def has_any_nomination(self) -> bool:
        """Whether any pod is nominated to any node."""
        return bool(self.nominations.node_of)

    def nominated_pods(
        self, priority: int, key: Hashable, rows: Rows | None = None
    ) -> Mapping[int, Sequence[PodInfo]]:
        """Return nominated pods of at least ``priority`` by row, except the pod ``key``.

        ``rows``: only these rows must be in the result. Such pods count as if they ran there
        (``RunFilterPluginsWithNominatedPods``). The mapping is shared: the caller must not write to
        it.
        """
        nominations = self.nominations
        if not nominations.node_of:
            return {}
        if rows is not None and len(rows) == 1:  # as for a large gang
            there = nominations.of_node.get(self.node_name(rows[0]), {})
            infos = [i for other, i in there.items() if other != key and i.priority >= priority]
            return {int(rows[0]): infos} if infos else {}
        stamp = (self.nomination_version, self.node_version)
        if self._nominated_stamp != stamp:
            self._nominated_rows.clear()
            self._nominated_stamp = stamp
        found = self._nominated_rows.get(priority)
        if found is None:
            found = self._nominated_rows[priority] = {
                row: infos
                for name, there in nominations.of_node.items()
                if (row := self._row_of.get(name)) is not None
                and (infos := [info for info in there.values() if info.priority >= priority])
            }
        own = nominations.node_of.get(key)
        row = None if own is None else self._row_of.get(own)
        if own is None or row not in found:
            return found
        others = [
            info
            for other, info in nominations.of_node[own].items()
            if other != key and info.priority >= priority
        ]
        rest = {at: infos for at, infos in found.items() if at != row}
        return {**rest, row: others} if others else rest

    @contextmanager
    def counting_nominated(self, nominated: Mapping[int, Sequence[PodInfo]]) -> Iterator[None]:
        """Count nominated pods on their rows within the block; apply no delta meanwhile."""
        pairs = [(info, row) for row, infos in nominated.items() for info in infos]
        rows_of: dict[int, list[int]] = {}
        for info, row in pairs:
            rows_of.setdefault(info.index, []).append(row)
        rows = {index: np.array(there, np.int32) for index, there in rows_of.items()}
        self._count_nominated(rows, 1)
        before = self._counted_nominated
        self._counted_nominated = [*before, *pairs]
        try:
            yield
        finally:
            self._counted_nominated = before
            self._count_nominated(rows, -1)

    def _count_nominated(self, rows: Mapping[int, Int32], sign: int) -> None:
        for index, there in rows.items():
            info = self.classes[index]
            np.add.at(self.requested, there, sign * self._vectors[index])
            np.add.at(self.nonzero_requested[:, 0], there, sign * info.nonzero_cpu)
            np.add.at(self.nonzero_requested[:, 1], there, sign * info.nonzero_memory)
            np.add.at(self.pod_count, there, sign)
            for counter, weight in self._peers.weights[info.peer]:
                counter.bump_all(there, sign * weight)

    def _node_came(self, name: str, row: int) -> None:
        super()._node_came(name, row)
        self.nominations.node_came(name, row, self._vectors)

    def _node_leaves(self, name: str, row: int) -> None:
        super()._node_leaves(name, row)
        self.nominations.node_left(row)

    def _grow_rows(self) -> None:
        super()._grow_rows()
        self.nominations.grow(self._capacity, self.allocatable.shape[1])

    def _grow_resources(self, width: int) -> None:
        super()._grow_resources(width)
        self.nominations.grow(self._capacity, width)

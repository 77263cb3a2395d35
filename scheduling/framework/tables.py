"""Columns that plugins read and the snapshot keeps up to date: node labels and pod counts.

``LabelColumn`` has the values of one label key as small numbers. ``Counter`` holds, per row, the
sum of weights of the pods there; the weight depends on a pod's peer (for instance, 1 if a selector
matches it, else 0). ``Table`` sums a counter by the values of a label, over eligible nodes. All
three change in place as pods come and go: O(1) per pod and table.
"""

import itertools
from collections.abc import Callable, Hashable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from scheduling.framework.arrays import Mask
from scheduling.framework.reach import Reach
from scheduling.framework.types import PodInfo

_MOST_DOMAINS = 256
_SPARSE = 16
"""While fewer than one in this many rows has a count, only these rows are kept."""
_FEW_ROWS = 8
"""Up to this many pods are counted faster one by one than as arrays."""
_NOTHING: npt.NDArray[np.int64] = np.zeros(0, np.int64)
_NO_ROWS: npt.NDArray[np.intp] = np.zeros(0, np.intp)
_numbers = itertools.count()


class LabelColumn:
    """Values of one node label.

    ``ids``: int32 (rows,), index into ``values``, -1 where the node lacks the label (or the row is
    free). So ``table[column.ids]`` with an extra last entry gives that entry to nodes without it.
    """

    __slots__ = (
        "_domains",
        "_everywhere",
        "_numbers",
        "_single",
        "_single_version",
        "ids",
        "key",
        "values",
    )

    def __init__(self, key: str, capacity: int) -> None:
        self.key = key
        self.ids: npt.NDArray[np.int32] = np.full(capacity, -1, np.int32)
        self.values: list[str] = []
        self._numbers: dict[str, int] = {}
        self._domains: dict[Hashable, Domains] = {}
        self._everywhere = (-1, False)
        self._single = False
        self._single_version = -1

    def single(self, version: int) -> bool:
        """Return whether no two nodes share a value, as with hostnames; False if no node has one.

        ``version`` is the snapshot's ``node_version``.
        """
        if self._single_version != version:
            ids = self.ids[self.ids >= 0]
            self._single = int(np.bincount(ids).max(initial=0)) == 1
            self._single_version = version
        return self._single

    def everywhere(self, rows: npt.NDArray[np.intp], version: int) -> bool:
        """Return whether all of the live ``rows`` have the label; ``version``: of the nodes."""
        if self._everywhere[0] != version:
            self._everywhere = (version, bool((self.ids[rows] >= 0).all()))
        return self._everywhere[1]

    def domains(
        self, version: int, eligible_key: Hashable, make_eligible: Callable[[], Mask] | None
    ) -> "Domains":
        """Return the label's values and their numbers of eligible nodes, cached by ``version``."""
        found = self._domains.get(eligible_key)
        if found is None or found.version != version or len(found.nodes) != len(self.values):
            if len(self._domains) > _MOST_DOMAINS:
                self._domains.clear()
            eligible = None if make_eligible is None else make_eligible()
            ids = self.ids.copy()
            if eligible is not None:
                ids[~eligible] = -1
            nodes = np.bincount(ids[ids >= 0], minlength=len(self.values))
            follows, moved = -1, _NO_ROWS
            if found is not None and len(found.ids) == len(ids):
                follows, moved = found.number, np.flatnonzero(found.ids != ids)
            found = Domains(
                eligible, ids, nodes, np.flatnonzero(nodes), version, next(_numbers), follows, moved
            )
            self._domains[eligible_key] = found
        return found

    def set(self, row: int, value: str | None) -> bool:
        """Set a node's value, ``None`` for none. Return whether it changed."""
        number = -1 if value is None else self.number(value)
        if self.ids[row] == number:
            return False
        self.ids[row] = number
        return True

    def set_all(self, rows: Sequence[int], values: Sequence[str | None]) -> None:
        """Set the values of nodes that have none yet; ``None`` for none."""
        there = [value for value in dict.fromkeys(values) if value is not None]
        self.values += there
        self._numbers.update(zip(there, range(len(there)), strict=True))
        find = self._numbers.get
        self.ids[rows] = [-1 if value is None else find(value, -1) for value in values]

    def number(self, value: str) -> int:
        """Return the id of ``value``; a new value gets the next one."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number

    def find(self, value: str) -> int | None:
        """Return the id of ``value``, ``None`` when no node ever had it."""
        return self._numbers.get(value)

    def grow(self, capacity: int) -> None:
        """Grow the column to more rows."""
        ids = np.full(capacity, -1, np.int32)
        ids[: len(self.ids)] = self.ids
        self.ids = ids


class Domains(msgspec.Struct, frozen=True):
    """The domains of a topology key among the eligible nodes, shared by all tables over them.

    ``eligible`` bool (rows,), ``None`` for all nodes. ``ids`` int32 (rows,): each node's domain, -1
    without the label or where it is not eligible. ``nodes`` int64 (domains,): eligible nodes of
    each domain. ``present``: domains with at least one. ``version``: of the nodes. ``moved``: rows
    whose ``ids`` differ from those of version ``follows``.
    """

    eligible: Mask | None
    ids: npt.NDArray[np.int32]
    nodes: npt.NDArray[np.int64]
    present: npt.NDArray[np.intp]
    version: int
    number: int
    follows: int
    moved: npt.NDArray[np.intp]


class Table:
    """Sums of a counter by label value: ``counts`` int64 (values,).

    ``nodes``: int64 (values,), number of eligible nodes with the value; ``present``: the ids of
    values with at least one. ``eligible_key``: identifies the content of ``eligible``, ``None`` for
    all nodes. After nodes changed, the table is updated when it is next requested; until then it
    counts pods by the old labels. The sums are computed when first read, since for some tables only
    the nodes are read.
    """

    __slots__ = (
        "_counts",
        "_ids",
        "_number",
        "column",
        "counter",
        "eligible",
        "eligible_key",
        "make_eligible",
        "nodes",
        "present",
        "size",
        "version",
    )

    def __init__(
        self,
        counter: "Counter",
        column: LabelColumn,
        eligible_key: Hashable,
        make_eligible: Callable[[], Mask] | None,
    ) -> None:
        self.counter = counter
        self.column = column
        self.eligible_key = eligible_key
        self.make_eligible = make_eligible
        self.eligible: Mask | None = None
        self._counts: npt.NDArray[np.int64] | None = None
        self._ids: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._number = -1
        self.size = 0
        self.nodes: npt.NDArray[np.int64] = _NOTHING
        self.present: npt.NDArray[np.intp] = _NOTHING
        self.version = -1

    def follow(self, version: int) -> None:
        """Update the table if nodes changed; ``version``: the snapshot's ``node_version``."""
        if self.version == version and self.size == len(self.column.values):
            return
        domains = self.column.domains(version, self.eligible_key, self.make_eligible)
        counts, before = self._counts, self._ids
        self._counts = None
        if counts is not None and domains.follows == self._number and self.version >= 0:
            self._counts = self._moved(counts, before, domains)
        self.eligible, self.nodes, self.present = domains.eligible, domains.nodes, domains.present
        self._ids, self._number = domains.ids, domains.number
        self.size = len(domains.nodes)
        self.version = version

    def _moved(
        self,
        counts: npt.NDArray[np.int64],
        before: npt.NDArray[np.int32],
        domains: Domains,
    ) -> npt.NDArray[np.int64] | None:
        """Return the sums after some rows moved to other values, ``None`` if too many moved."""
        if len(domains.moved) > _FEW_ROWS:
            return None
        if len(domains.nodes) > len(counts):
            counts = np.concatenate((counts, np.zeros(len(domains.nodes) - len(counts), np.int64)))
        for row in domains.moved.tolist():
            weight = self.counter.at(row)
            if weight:
                old, new = before.item(row), domains.ids.item(row)
                if old >= 0:
                    counts[old] -= weight
                if new >= 0:
                    counts[new] += weight
        return counts

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The sums, int64 (values,). The caller must not write to it."""
        if self._counts is None:
            self._counts = self.sums_of(self.counter)
        return self._counts

    def sums_of(self, counter: "Counter") -> npt.NDArray[np.int64]:
        """Return the sums of another counter by this table's label and nodes, int64 (values,)."""
        counts = np.zeros(self.size, np.int64)
        if counter.changes:
            busy, weights = counter.busy()
            ids = self._ids[busy]
            counted = ids >= 0
            np.add.at(counts, ids[counted], weights[counted])
        return counts

    @property
    def counts_any(self) -> bool:
        """Whether any sum is not 0."""
        return bool(self.counter.changes) and bool(self.counts.any())

    def at(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Return the sums at the rows' values, 0 for rows without one; int64 over ``rows``."""
        ids = self.column.ids[rows]
        if not self.size:
            return np.zeros(len(rows), np.int64)
        # Without the label, index -1 reads an arbitrary count, which is not used.
        return np.where(ids >= 0, self.counts[ids], 0)

    def bump(self, row: int, weight: int) -> None:
        """Add ``weight`` for a pod on ``row``."""
        counts = self._counts
        if self.version < 0 or counts is None:
            return
        value = self._ids.item(row)
        if value >= 0:
            counts[value] += weight

    def bump_all(self, rows: npt.NDArray[np.int32], weight: int) -> None:
        """Add ``weight`` for a pod on each of ``rows``."""
        if self.version < 0 or self._counts is None:
            return
        values = self._ids[rows]
        np.add.at(self._counts, values[values >= 0], weight)


class Counter:
    """A weighted count of pods by row.

    ``live_only``: terminating pods do not count. ``total``: sum over all rows. ``changes`` counts
    additions and removals. ``reach`` bounds the classes that count, ``None``: any may.

    While few rows have a count they are in a dictionary, so that the counts of a thousand
    Deployments take no column over all nodes each; with more rows, or once ``rows`` was read, a
    column is used.
    """

    __slots__ = (
        "_few",
        "_rows",
        "capacity",
        "changes",
        "key",
        "live_only",
        "reach",
        "tables",
        "total",
        "weigh",
    )

    def __init__(
        self,
        key: Hashable,
        weigh: Callable[[PodInfo], int],
        *,
        live_only: bool,
        capacity: int,
        reach: Reach | None = None,
    ) -> None:
        self.key = key
        self.weigh = weigh
        self.live_only = live_only
        self.capacity = capacity
        self.total = 0
        self.tables: dict[Hashable, Table] = {}
        self.changes = 0
        self.reach = reach
        self._few: dict[int, int] = {}
        self._rows: npt.NDArray[np.int64] | None = None

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The counts of all rows, int64 (capacity,). The caller must not write to it."""
        if self._rows is None:
            self._rows = self._as_column()
        return self._rows

    def _as_column(self) -> npt.NDArray[np.int64]:
        rows = np.zeros(self.capacity, np.int64)
        if self._few:
            rows[list(self._few)] = list(self._few.values())
            self._few = {}
        return rows

    def at(self, row: int) -> int:
        """Return the count of a row."""
        return self._few.get(row, 0) if self._rows is None else self._rows.item(row)

    def busy(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the rows with a count other than 0, ascending, and their counts."""
        if self._rows is not None:
            busy = np.flatnonzero(self._rows)
            return busy, self._rows[busy]
        there = sorted(self._few.items())
        pairs: npt.NDArray[np.int64] = np.array(there, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def table(
        self,
        column: LabelColumn,
        version: int,
        eligible_key: Hashable = None,
        make_eligible: Callable[[], Mask] | None = None,
    ) -> Table:
        """Return the sums by the values of ``column``, up to date.

        ``version`` is the snapshot's ``node_version``. ``eligible_key`` identifies the content of
        the mask that ``make_eligible`` builds (over all rows); ``None`` for all nodes.
        """
        name = (column.key, eligible_key)
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = Table(self, column, eligible_key, make_eligible)
        table.follow(version)
        return table

    def grow(self, capacity: int) -> None:
        """Grow to more rows; tables are rebuilt when next requested."""
        self.capacity = capacity
        if self._rows is not None:
            rows = np.zeros(capacity, np.int64)
            rows[: len(self._rows)] = self._rows
            self._rows = rows
        for table in self.tables.values():
            table.version = -1

    def bump(self, row: int, weight: int) -> None:
        """Add ``weight`` for a pod on ``row`` (negative: it left)."""
        if self._rows is not None:
            self._rows[row] += weight
        else:
            self._add_to_few(row, weight)
        self.total += weight
        self.changes += 1
        for table in self.tables.values():
            table.bump(row, weight)

    def bump_all(self, rows: npt.NDArray[np.int32], weight: int) -> None:
        """Add ``weight`` for a pod on each of ``rows``, which may repeat."""
        if len(rows) <= _FEW_ROWS:
            for row in rows.tolist():
                self.bump(row, weight)
            return
        self.fill(rows, np.full(len(rows), weight, np.int64))
        for table in self.tables.values():
            table.bump_all(rows, weight)

    def fill(self, rows: npt.NDArray[np.int32], weights: npt.NDArray[np.int64]) -> None:
        """Add ``weights`` for pods on ``rows``, which may repeat, without updating tables."""
        if self._rows is None and _SPARSE * (len(self._few) + len(rows)) <= self.capacity:
            for row, weight in zip(rows.tolist(), weights.tolist(), strict=True):
                self._add_to_few(row, weight)
        else:
            np.add.at(self.rows, rows, weights)
        self.total += int(weights.sum())
        self.changes += 1

    def _add_to_few(self, row: int, weight: int) -> None:
        few = self._few
        count = few.get(row, 0) + weight
        if not count:
            few.pop(row, None)
            return
        few[row] = count
        if _SPARSE * len(few) > self.capacity:
            self._rows = self._as_column()

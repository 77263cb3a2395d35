"""Copies of the snapshot's counts of pods, side by side in one array for the compiled loops.

A copy is of a counter by row, or of a table by label value; programs refer to it by number. Before
a run, copies are updated (counts by row only for rows in the snapshot's log); the loop changes
them; after the run the snapshot changes the originals alike. Numbers hold until the snapshot
rebuilds its counters, or a label gets more values than copies have space for.
"""

import math
from collections.abc import Collection, Hashable, Sequence

import numpy as np

from scheduling.engine.compiled import arguments, layout
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Float64, Int64
from scheduling.framework.tables import Counter, LabelColumn, Table
from scheduling.framework.terms import Kind, Term
from scheduling.framework.types import PodInfo

_NO_MINIMUM = 2**31 - 1
_SUMMED = (Kind.NEAR, Kind.UNTOUCHED, Kind.HARD)
"""Kinds of terms that look at all counts of a table: at their sum, or at the lowest one."""
_BYTES = 128 * 2**20
"""How many bytes all copies may take; the reference path decides classes that find no room."""


class _Copy:
    """A counter's copy, from ``first`` on in the array; ``table`` ``None``: all its rows count.

    The copy for an UNTOUCHED term has only the total, which is all that the loop looks at: counts
    by hostname of some hundred classes would fill the array on 50,000 nodes. ``table`` states the
    label and the nodes that it counts by, and may be another counter's. ``cursor``: position in the
    snapshot's log up to which the copy is up to date, -1: it was never filled. ``seen``: the
    counter's number of changes that it includes, -1: none.
    """

    __slots__ = ("by_row", "counter", "cursor", "first", "kind", "seen", "table")

    def __init__(
        self, counter: Counter, table: Table | None, first: int, *, by_row: bool, kind: Kind | None
    ) -> None:
        self.counter = counter
        self.table = table
        self.first = first
        self.by_row = by_row
        self.kind = kind
        self.cursor = -1
        self.seen = -1


class CounterColumns:
    """The copies of all counters that the programs of a profile read, over one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        capacity = snapshot.capacity
        self.version = snapshot.peer_version
        self._copies: list[_Copy] = []
        self._number_of: dict[tuple[int, int], int] = {}
        self._shapes: dict[Hashable, int] = {}
        self._of_counter: dict[int, list[int]] = {}
        self._place_of: dict[Hashable, int] = {}
        self._tables: list[tuple[Table | None, bool]] = []
        # By label that copies count by: its column, and how many values the copies have space for.
        self._sizes: dict[str, tuple[LabelColumn, int]] = {}
        self._filled = 0
        self.most_values = 1
        """How many values the label has at most by which a copy counts."""
        self._logarithms: Float64 = np.array([0.0, *map(math.log, range(1, capacity + 4))])
        self.arrays = arguments.Counts(
            counters=np.zeros((4, layout.COUNTER_COLUMNS), np.int64),
            counts=np.zeros(64, np.int64),
            present=np.zeros(64, np.bool_),
            where=np.zeros((1, capacity), np.int32),
            first_bump=np.zeros(1, np.int64),
            last_bump=np.zeros(1, np.int64),
            bump_counter=np.zeros(0, np.int32),
            bump_weight=np.zeros(0, np.int64),
            logarithms=self._logarithms,
        )

    def clear(self) -> None:
        """Forget all counters."""
        self.version = self._snapshot.peer_version
        self._copies.clear()
        self._number_of.clear()
        self._shapes.clear()
        self._of_counter.clear()
        self._place_of.clear()
        self._tables.clear()
        self._sizes.clear()
        self._filled = 0

    def nodes_changed(self, rows: Sequence[int]) -> bool:
        """Apply changes of the nodes in ``rows``; False if a label has more values than fit."""
        if any(len(column.values) > size for column, size in self._sizes.values()):
            return False
        version = self._snapshot.node_version
        for place, (table, whole) in enumerate(self._tables):
            if table is not None:
                table.follow(version)
                self._write_place(place, table, whole=whole)
        # Counts by label value change only if a node with pods moved to another value.
        with_pods = bool(self._snapshot.pod_count[rows].any())
        for number, copy in enumerate(self._copies):
            if copy.kind is Kind.HARD:
                self._note_present(number)
            if with_pods or copy.kind is Kind.HARD:
                copy.seen = -1
        return True

    # --- making ----------------------------------------------------------------------------------

    def of_term(self, term: Term) -> int:
        """Return the number of a term's copy, -1 if there is no space."""
        table = term.table
        kind = term.kind if term.kind in _SUMMED else None
        return self._number(table.counter, table, whole=term.whole, by_row=term.single, kind=kind)

    def of_counter(self, counter: Counter) -> int:
        """Return the number of the copy of a counter of all rows, -1 if there is no space."""
        return self._number(counter, None, whole=True, by_row=True, kind=None)

    def of_terms_alike(self, term: Term, counters: Sequence[Counter]) -> Int64 | None:
        """Copy each of ``counters`` as the term's own counter would be; return the copies' numbers.

        int64 (counters,); ``None``: there is no space. The term must not be by row, nor of a kind
        in ``_SUMMED``.
        """
        table, begin = term.table, len(self._copies)
        place, size, first = self._place(table, whole=term.whole), table.size, self._filled
        if place < 0 or not self._room(len(counters) * size):
            return None
        self._note_size(table)
        shape = self._shape(table, term.whole, False, None)
        numbers = []
        for counter in counters:
            key = (id(counter), shape)
            number = self._number_of.get(key)
            if number is None:
                number = self._number_of[key] = len(self._copies)
                copy = _Copy(counter, table, self._filled, by_row=False, kind=None)
                if not counter.changes:
                    copy.seen = 0  # the counter is empty, as the copy is
                self._copies.append(copy)
                self._of_counter.setdefault(id(counter), []).append(number)
                self._filled += size
            numbers.append(number)
        self.arrays.counts[first : self._filled] = 0
        self.arrays.present[first : self._filled] = False
        self._reserve(len(self._copies))
        # OFFSET, BY_ROW, PLACES, TOTAL, LOWEST, AT_LOWEST and LENGTH.
        lines = self.arrays.counters[begin : len(self._copies)]
        lines[:] = (0, False, place, 0, 0, 0, size)
        lines[:, layout.OFFSET] = first + size * np.arange(len(lines))
        return np.array(numbers, np.int64)

    def _shape(self, table: Table | None, *of: object) -> int:
        """Return a number for the shape of a copy: its label, its nodes and ``of``."""
        by = None if table is None else (table.column.key, table.eligible_key)
        return self._shapes.setdefault((by, *of), len(self._shapes))

    def _reserve(self, count: int) -> None:
        """Grow the arrays to ``count`` copies."""
        known = len(self.arrays.counters)
        if count > known:
            more = np.zeros((max(2 * known, count), layout.COUNTER_COLUMNS), np.int64)
            more[:known] = self.arrays.counters
            self.arrays = self.arrays._replace(counters=more)

    def _number(
        self,
        counter: Counter,
        table: Table | None,
        *,
        whole: bool,
        by_row: bool,
        kind: Kind | None,
    ) -> int:
        key = (id(counter), self._shape(table, whole, by_row, kind))
        number = self._number_of.get(key)
        if number is not None:
            return number
        size = self._snapshot.capacity
        if kind is Kind.UNTOUCHED:
            size = 0
        elif not by_row and table is not None:
            size = table.size
            self._note_size(table)
        place = self._place(table, whole=whole)
        if place < 0 or not self._room(size):
            return -1
        number = self._number_of[key] = len(self._copies)
        self._copies.append(_Copy(counter, table, self._filled, by_row=by_row, kind=kind))
        self._of_counter.setdefault(id(counter), []).append(number)
        self._reserve(number + 1)
        # OFFSET, BY_ROW, PLACES, TOTAL, LOWEST, AT_LOWEST and LENGTH.
        self.arrays.counters[number] = (self._filled, by_row, place, 0, 0, 0, size)
        self._filled += size
        self._note_present(number)
        return number

    def _note_present(self, number: int) -> None:
        """Set which label values, or rows, have a node that counts for a hard constraint."""
        copy, line = self._copies[number], self.arrays.counters[number]
        present = self.arrays.present[copy.first : copy.first + line[layout.LENGTH]]
        present[:] = False
        if copy.table is None or copy.kind is not Kind.HARD:
            return
        if copy.by_row:
            present[:] = self.arrays.where[line[layout.PLACES]] >= 0
        else:
            copy.table.follow(self._snapshot.node_version)
            present[copy.table.present] = True

    def _note_size(self, table: Table) -> None:
        self.most_values = max(self.most_values, table.size)
        known = self._sizes.get(table.column.key)
        if known is None or table.size < known[1]:
            self._sizes[table.column.key] = table.column, table.size

    def _room(self, size: int) -> bool:
        needed = self._filled + size
        if 9 * needed > _BYTES:
            return False
        arrays = self.arrays
        if needed > len(arrays.counts):
            counts = np.zeros(2 * needed, np.int64)
            present = np.zeros(2 * needed, np.bool_)
            counts[: self._filled] = arrays.counts[: self._filled]
            present[: self._filled] = arrays.present[: self._filled]
            self.arrays = arrays._replace(counts=counts, present=present)
        return True

    def _place(self, table: Table | None, *, whole: bool) -> int:
        """Return the line of ``where`` with the rows' label values, -1 if there is no space.

        A row that does not count has -1 there. Tables of the same label and eligible nodes share a
        line.
        """
        key: Hashable = None
        if table is not None:
            key = (table.column.key, None if whole else table.eligible_key)
        number = self._place_of.get(key)
        if number is not None:
            return number
        number = len(self._place_of)
        capacity = self._snapshot.capacity
        if 4 * capacity * (number + 1) > _BYTES:
            return -1
        self._place_of[key] = number
        if number == len(self.arrays.where):
            more = np.zeros((2 * number, capacity), np.int32)
            more[:number] = self.arrays.where
            self.arrays = self.arrays._replace(where=more)
        self._tables.append((table, whole))
        if table is None:
            self.arrays.where[number] = 0
        else:
            self._write_place(number, table, whole=whole)
        return number

    def _write_place(self, place: int, table: Table, *, whole: bool) -> None:
        line = self.arrays.where[place]
        line[:] = table.column.ids
        if not whole and table.eligible is not None:
            line[~table.eligible] = -1

    # --- running ---------------------------------------------------------------------------------

    def prepare(self, used: Collection[int], infos: Sequence[PodInfo]) -> None:
        """Update the counters in ``used``, and note the ones that each class of a run changes."""
        self.follow(used)
        counters: list[int] = []
        weights: list[int] = []
        ends = [0]
        for info in infos:
            for counter, weight in self._snapshot.counted_by(info):
                for number in self._of_counter.get(id(counter), ()):
                    if number in used:
                        counters.append(number)
                        weights.append(weight)
            ends.append(len(counters))
        self.arrays = self.arrays._replace(
            first_bump=np.array(ends[:-1] or [0], np.int64),
            last_bump=np.array(ends[1:] or [0], np.int64),
            bump_counter=np.array(counters, np.int32),
            bump_weight=np.array(weights, np.int64),
        )

    def follow(self, used: Collection[int]) -> None:
        """Update the copies in ``used`` from their counters."""
        for number in used:
            self._follow(number)

    def _follow(self, number: int) -> None:
        """Update one copy from its counter."""
        copy, snapshot = self._copies[number], self._snapshot
        if copy.seen == copy.counter.changes:
            return
        copy.seen = copy.counter.changes
        line, table = self.arrays.counters[number], copy.table
        first = copy.first
        if copy.kind is Kind.UNTOUCHED:
            rows, weights = copy.counter.busy()
            counted = self.arrays.where[line[layout.PLACES], rows] >= 0
            line[layout.TOTAL] = weights[counted].sum()
            return
        if copy.by_row:
            counts = self.arrays.counts[first : first + snapshot.capacity]
            touched = snapshot.touched_since(copy.cursor) if copy.cursor >= 0 else None
            if touched is None or len(touched) > snapshot.capacity:
                counts[:] = copy.counter.rows
            else:
                counts[touched] = copy.counter.rows[touched]
            copy.cursor = snapshot.log_end
        else:
            assert table is not None
            table.follow(snapshot.node_version)
            counts = self.arrays.counts[first : first + table.size]
            is_its_own = table.counter is copy.counter
            counts[:] = table.counts if is_its_own else table.sums_of(copy.counter)
        if copy.kind is Kind.HARD:
            there = counts[self.arrays.present[first : first + len(counts)]]
            lowest = int(there.min(initial=_NO_MINIMUM))
            line[layout.LOWEST] = lowest
            line[layout.AT_LOWEST] = np.count_nonzero(there == lowest)
        elif copy.kind is not None:
            line[layout.TOTAL] = counts.sum()

    def ran(self, used: Collection[int]) -> None:
        """Mark copies as current: the loop changed them as the snapshot changed the counters."""
        end = self._snapshot.log_end
        for number in used:
            copy = self._copies[number]
            copy.cursor, copy.seen = end, copy.counter.changes

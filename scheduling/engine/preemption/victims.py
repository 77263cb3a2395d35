"""The preemption cost of a class on each row, cached from pod to pod.

A search for victims reads thousands of rows for each pod (``minCandidateNodesPercentage``), but the
result for a row changes only with that row's pods. So each row is computed once
(``compiled.rows.examine``), and again after it was touched; the search compares columns. Valid for
classes whose filters read single rows (``FilterProgram.stays_in_rows``).
"""

from collections.abc import Callable, Hashable

import numpy as np

from scheduling.engine.compiled import row_arguments
from scheduling.engine.preemption.filter_program import FilterProgram
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Float64, Int64, Mask
from scheduling.framework.node_table import Rows

_AT_ONCE = 64
Examine = Callable[[Rows], row_arguments.Examination]
"""Returns all candidates among some rows."""


class VictimsByRow:
    """For one class of pods: the rows that are candidates for preemption, and their cost.

    Args:
        snapshot: the cluster.
        program: that of the class.
    """

    def __init__(self, snapshot: Snapshot, program: FilterProgram) -> None:
        self._snapshot = snapshot
        self.program = program
        self._stamp: Hashable = None
        self._cursor = -1
        size = snapshot.capacity
        self._is_judged: Mask = np.zeros(size, np.bool_)
        self._is_candidate: Mask = np.zeros(size, np.bool_)
        # The cost, in the order of comparison: lower is better, except for the last.
        self._violations: Int64 = np.zeros(size, np.int64)
        self._highest: Int64 = np.zeros(size, np.int64)
        self._sum: Int64 = np.zeros(size, np.int64)
        self._count: Int64 = np.zeros(size, np.int64)
        self._oldest: Float64 = np.zeros(size)

    def follow(self) -> None:
        """Forget the touched rows, or all rows if a change concerns all of them."""
        snapshot = self._snapshot
        stamp = (snapshot.start_version, snapshot.budget_version)
        touched = snapshot.touched_since(self._cursor) if self._cursor >= 0 else None
        if touched is None or stamp != self._stamp:
            self._is_judged[:] = False
            self._stamp = stamp
        else:
            self._is_judged[touched] = False
        self._cursor = snapshot.log_end

    def best(self, rows: Rows, examine: Examine, *, begin: int, least_count: int) -> int | None:
        """Return the row of the candidate of lowest cost; ``None`` if there is none or no space.

        Args:
            rows: the rows to search, int64.
            examine: judges the rows that are not cached.
            begin: position at which to begin; the search wraps around.
            least_count: the least number of candidates; one of them must violate no budget.
        """
        found = fine = looked = 0
        chosen: list[Rows] = []
        while looked < len(rows) and not (fine and found >= least_count):
            count = min(max(least_count - found, _AT_ONCE), len(rows) - looked)
            places = np.arange(begin + looked, begin + looked + count)
            part = rows.take(places, mode="wrap")
            if not self._judge(part[~self._is_judged[part]], examine):
                return None
            part = part[self._is_candidate[part]]
            is_fine = self._violations[part] == 0
            enough = (np.arange(found + 1, found + 1 + len(part)) >= least_count) & (
                fine + np.cumsum(is_fine) > 0
            )
            if enough.any():
                part = part[: int(enough.argmax()) + 1]
            chosen.append(part)
            found += len(part)
            fine += int(np.count_nonzero(is_fine[: len(part)]))
            looked += count
        if not found:
            return None
        return self._cheapest(np.concatenate(chosen))

    def _cheapest(self, rows: Rows) -> int:
        """Return the candidate of lowest cost (preemption.go ``pickOneNodeForPreemption``).

        Of equal ones, that with the first name.
        """
        for price in (self._violations, self._highest, self._sum, self._count):
            here = price[rows]
            rows = rows[here == here.min()]
        oldest = self._oldest[rows]
        rows = rows[oldest == oldest.max()]
        return int(rows[self._snapshot.name_rank()[rows].argmin()])

    def _judge(self, rows: Rows, examine: Examine) -> bool:
        """Judge rows and cache the results; return False if they do not all fit."""
        if not len(rows):
            return True
        found = examine(rows)
        if found.why:
            return False
        self._is_judged[rows] = True
        self._is_candidate[rows] = False
        if not found.candidates:
            return True
        room, count = found.room, found.candidates
        candidates, end = rows[room.position[:count]], room.end[:count]
        begins = np.r_[0, end[:-1]]
        slots = room.victims[: int(end[-1])]
        counts = np.diff(np.r_[begins, len(slots)])
        _, _, kind, started, _, _ = self._snapshot.slot_columns()
        priorities = self._snapshot.class_columns()[0][kind[slots]]
        highest = priorities[begins]  # the first victim is the most important
        among_highest = priorities == np.repeat(highest, counts)
        since: Float64 = np.where(among_highest, started[slots], np.inf)
        since[np.isnan(since)] = np.inf
        self._is_candidate[candidates] = True
        self._violations[candidates] = room.violations[:count]
        self._highest[candidates] = highest
        self._sum[candidates] = np.add.reduceat(priorities + 2**31, begins)
        self._count[candidates] = counts
        self._oldest[candidates] = np.minimum.reduceat(since, begins)
        return True

"""What follows from a pod's requests alone, kept once for all classes that ask for the same.

A *shape* is what is asked for and how NodeResourcesFit and NodeResourcesBalancedAllocation score
it. Of every row it knows whether the requests fit (``shared.fit_bits``) and what the row scores,
weighted; it follows the snapshot's log by itself, in the loop.
"""

import msgspec
import numpy as np

from scheduling.engine.compiled import grouped, shared
from scheduling.engine.snapshot import Snapshot

CHECKS = 8
"""So many amounts are compared at most."""
_BYTES = 128 * 2**20


class Shape(msgspec.Struct, frozen=True):
    """What is asked for: (amount, resource column) of all that must be free; how it is scored.

    ``least``: weight and amount of cpu, then of memory, and the score's weight; ``balanced``:
    amounts of cpu and memory, and the weight. A weight of 0: there is no such score.
    """

    checks: tuple[tuple[int, int], ...]
    least: tuple[int, int, int, int, int]
    balanced: tuple[int, int, int]


class Shapes:
    """The shapes of one pool, each with the number of lines that use it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._number_of: dict[Shape, int] = {}
        self._shapes: list[Shape | None] = []
        self._users: list[int] = []
        self.arrays = self._allocate(1)

    def _allocate(self, size: int) -> grouped.Shapes:
        return grouped.Shapes(
            amounts=np.zeros((size, CHECKS), np.int64),
            columns=np.full((size, CHECKS), -1, np.int64),
            terms=np.zeros((size, grouped.TERMS), np.int64),
            marks=np.zeros((size, self._snapshot.capacity, 4), np.int32),
            cursor=np.full(size, -1, np.int64),
        )

    def take(self, shape: Shape) -> int:
        """Return the number of a shape for one more line, up to date; -1 where there is no room."""
        number = self._number_of.get(shape, -1)
        if number < 0:
            number = self._place(shape)
            if number < 0:
                return -1
        self._users[number] += 1
        self._follow(number)
        return number

    def leave(self, number: int) -> None:
        """Note that a line uses a shape no longer."""
        self._users[number] -= 1
        if not self._users[number]:
            shape = self._shapes[number]
            assert shape is not None
            del self._number_of[shape]
            self._shapes[number] = None

    def _place(self, shape: Shape) -> int:
        if None in self._shapes:
            number = self._shapes.index(None)
        else:
            number = len(self._shapes)
            size = len(self.arrays.cursor)
            if number == size:
                if 2 * size * 16 * self._snapshot.capacity > _BYTES:
                    return -1
                wider = self._allocate(2 * size)
                for name in grouped.Shapes._fields:
                    getattr(wider, name)[:size] = getattr(self.arrays, name)
                self.arrays = wider
            self._shapes.append(None)
            self._users.append(0)
        self._shapes[number] = shape
        self._number_of[shape] = number
        arrays = self.arrays
        arrays.columns[number] = -1
        for at, (amount, column) in enumerate(shape.checks):
            arrays.amounts[number, at], arrays.columns[number, at] = amount, column
        arrays.terms[number] = (*shape.least, *shape.balanced)
        arrays.cursor[number] = -1
        return number

    def _follow(self, number: int) -> None:
        snapshot = self._snapshot
        cursor = int(self.arrays.cursor[number])
        touched = snapshot.touched_since(cursor) if cursor >= 0 else None
        if touched is None or len(touched) > snapshot.capacity:
            touched = np.arange(snapshot.capacity, dtype=np.int32)
        grouped.mark_rows(touched, number, self.arrays, columns(snapshot))
        self.arrays.cursor[number] = snapshot.log_end


def columns(snapshot: Snapshot) -> shared.Nodes:
    """Return the columns that loops read and account in."""
    return shared.Nodes(
        snapshot.allocatable,
        snapshot.requested,
        snapshot.nonzero_requested,
        snapshot.allowed_pods,
        snapshot.pod_count,
    )

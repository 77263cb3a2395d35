"""Operations of the loops on single rows: fitting, scoring, picking.

Rows come in blocks; of each block the loops know the highest total (``highest``) and how many rows
have it (``tied``). Totals at or below ``NOT_FEASIBLE`` are of rows that are not feasible.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from scheduling.engine.compiled import arithmetic  # noqa: F401  # formulas for Numba
from scheduling.engine.compiled.arguments import Nodes, NominatedAmounts
from scheduling.engine.compiled.caching import inlined, inner, outer
from scheduling.engine.compiled.layout import AMOUNT, BLOCK, COLUMN, KEPT, LOW, WEIGHT
from scheduling.framework.arrays import Int32, Int64
from scheduling.framework.formulas import (
    LEAST,
    RATIO,
    least_allocated,
    most_allocated,
    never,
    rounded_mean,
    short,
    weighted_mean,
)

NOT_FEASIBLE = LOW // 2


@inlined
def fit_bits(
    row: int, amounts: Int64, columns: Int64, nodes: Nodes, nominated: NominatedAmounts | None
) -> int:
    """Return why NodeResourcesFit rejects the row as bits, 0 where the pod fits.

    Bit 0: too many pods; then two bits per amount: too little is free, too little exists. Column -1
    ends the list. ``nominated``: pods nominated to the row, which count as if they were there.
    """
    places = nodes.pod_count[row]
    if nominated is not None:
        places += nominated.pods[row]
    found = 1 if short(1, nodes.allowed_pods[row], places) else 0
    for check in range(len(columns)):
        column = columns[check]
        if column < 0:
            break
        room = nodes.allocatable[row, column]
        used = nodes.requested[row, column]
        if nominated is not None:
            used += nominated.requested[row, column]
        if short(amounts[check], room, used):
            found |= (3 if never(amounts[check], room) else 1) << (2 * check + 1)
    return found


@inner
def allocation(row: int, scored: Int64, strategy: int, table: Int64, nodes: Nodes) -> int:
    """Return NodeResourcesFit's score of a row, computed with integers.

    ``scored`` (resources, SCORED_COLUMNS); an entry with a column below 0 is ignored.
    """
    total = np.int64(0)
    weights = np.int64(0)
    for at in range(scored.shape[0]):
        column = scored[at, COLUMN]
        if column < 0:
            continue
        room = nodes.allocatable[row, column]
        if room == 0:
            continue
        if column < 2:
            used = nodes.nonzero_requested[row, column] + scored[at, AMOUNT]
        else:
            used = nodes.requested[row, column] + scored[at, AMOUNT]
        if strategy == LEAST:
            points = least_allocated(used, room)
        else:
            points = most_allocated(used, room)
            if strategy == RATIO:
                points = table[points]
                if points <= 0:
                    continue
        total += points * scored[at, WEIGHT]
        weights += scored[at, WEIGHT]
    if weights == 0:
        return 0
    if strategy == RATIO:
        return int(rounded_mean(total, weights))
    return int(weighted_mean(total, weights))


@inner
def evenness(deviation: float) -> int:
    """Return the score for a deviation: 100 for equal fractions, 50 for the largest one."""
    return int((1.0 - deviation) * 100)


@inlined
def fraction(row: int, scored: Int64, at: int, with_pod: int, nodes: Nodes) -> float:
    """Return the used fraction of a resource, at most 1; -1 if the node has none of it.

    ``with_pod``: 1 to include the pod's own amount, else 0.
    """
    column = scored[at, COLUMN]
    if column < 0 or nodes.allocatable[row, column] == 0:
        return -1.0
    used = nodes.requested[row, column] + with_pod * scored[at, AMOUNT]
    return min(1.0, used / nodes.allocatable[row, column])  # type: ignore[no-any-return]


@inlined
def deviation(row: int, scored: Int64, with_pod: int, nodes: Nodes) -> float:
    """Return the standard deviation of used fractions; for two resources, half the difference."""
    count = 0
    total = 0.0
    first = 0.0
    last = 0.0
    for at in range(scored.shape[0]):
        here = fraction(row, scored, at, with_pod, nodes)
        if here < 0.0:
            continue
        if count == 0:
            first = here
        last = here
        total += here
        count += 1
    if count < 2:
        return 0.0
    if count == 2:
        return abs((first - last) / 2)
    mean = total / count
    squares = 0.0
    for at in range(scored.shape[0]):
        here = fraction(row, scored, at, with_pod, nodes)
        if here >= 0.0:
            squares += (here - mean) * (here - mean)
    return np.sqrt(squares / count)  # type: ignore[no-any-return]


@inner
def balance(row: int, scored: Int64, nodes: Nodes) -> int:
    """Return NodeResourcesBalancedAllocation's score of a row."""
    after = evenness(deviation(row, scored, 1, nodes))
    before = evenness(deviation(row, scored, 0, nodes))
    return 50 + (50 + after - before) // 2


@inlined
def draw_below(high: int, low: int, count: int) -> int:
    """Return ``cycle.draw_below`` for 64 random bits in two halves; ``count`` below 2**31."""
    return (high * count + ((low * count) >> 32)) >> 32


@inlined
def summit(highest: Int32, tied: Int32) -> tuple[int, int]:
    """Return the highest total of all blocks, and how many rows have it."""
    top = highest[0]
    for block in range(1, len(highest)):
        top = max(top, highest[block])
    ties = np.int32(0)
    for block in range(len(highest)):
        ties += tied[block] if highest[block] == top else np.int32(0)
    return int(top), int(ties)


def picker(block_of: Callable[[int, Any], Int32]) -> Callable[..., tuple[int, int, int]]:
    """Return a function that picks a row, for one layout of the totals.

    Args:
        block_of: inlined; returns the totals of a block's rows, given its number and a ``source``.
    """

    @inlined
    def pick(
        source: Any,
        highest: Int32,
        tied: Int32,
        top: int,
        ties: int,
        left: int,
        feasible: int,
        rank: Int32,
        best: Int32,
        picks: Int32,
    ) -> tuple[int, int, int]:
        """Pick a row with the highest total, and write the ten best rows to ``picks``, in order.

        Args:
            source: what ``block_of`` reads from.
            highest: highest total of each block.
            tied: rows with that total, of each block.
            top: the highest total.
            ties: how many rows have it.
            left: how many of these rows to pass over, if ``rank`` is empty.
            feasible: how many rows are feasible, not 0.
            rank: of each row: among those with the highest total the lowest rank wins; or empty.
            best: working space for the ten best totals.
            picks: output, ten rows; of equal totals the first rows are kept, and the winner.

        Returns:
            The row, its lead over the next total (-1: nothing to compare), and the number of
                ``picks``.
        """
        winner = -1
        for block in range(len(highest)):
            if highest[block] != top:
                continue
            if len(rank):
                totals = block_of(block, source)
                for at in range(BLOCK):
                    row = block * BLOCK + at
                    if totals[at] == top and (winner < 0 or rank[row] < rank[winner]):
                        winner = row
                continue
            if left >= tied[block]:
                left -= tied[block]
                continue
            totals = block_of(block, source)
            for at in range(BLOCK):
                if totals[at] == top:
                    if left == 0:
                        winner = block * BLOCK + at
                        break
                    left -= 1
            break
        if feasible == 1:
            return winner, -1, 0
        count = 0
        if ties >= KEPT:
            for block in range(len(highest)):
                if highest[block] != top:
                    continue
                totals = block_of(block, source)
                for at in range(BLOCK):
                    if totals[at] == top:
                        picks[count] = block * BLOCK + at
                        count += 1
                        if count == KEPT:
                            break
                if count == KEPT:
                    break
            if picks[KEPT - 1] < winner:
                picks[KEPT - 1] = winner
            return winner, 0, count
        kept = min(KEPT, feasible)
        border = NOT_FEASIBLE  # what a total must be above
        for block in range(len(highest)):
            if highest[block] <= border:
                continue
            totals = block_of(block, source)
            for offset in range(BLOCK):
                found = totals[offset]
                if found <= border:
                    continue
                if count < kept:
                    count += 1
                at = count - 1
                while at > 0 and best[at - 1] < found:
                    best[at] = best[at - 1]
                    picks[at] = picks[at - 1]
                    at -= 1
                best[at] = found
                picks[at] = block * BLOCK + offset
                if count == kept:
                    border = best[kept - 1]
        for last in range(1, count):
            row = picks[last]
            at = last
            while at > 0 and picks[at - 1] > row:
                picks[at] = picks[at - 1]
                at -= 1
            picks[at] = row
        return winner, top - best[1] if ties == 1 else 0, count

    return pick


@inlined
def account(row: int, vector: Int64, nonzero: Int64, nodes: Nodes) -> None:
    """Add a pod's requests to the sums of its row."""
    for column in range(len(vector)):
        nodes.requested[row, column] += vector[column]
    nodes.nonzero_requested[row, 0] += nonzero[0]
    nodes.nonzero_requested[row, 1] += nonzero[1]
    nodes.pod_count[row] += 1


@outer
def link(slots: Int32, rows: Int32, first: Int32, following: Int32, previous: Int32) -> None:
    """Insert slots at the head of their rows' linked lists, in order."""
    for number in range(len(slots)):
        slot, row = slots[number], rows[number]
        head = first[row]
        following[slot] = head
        previous[slot] = -1
        if head >= 0:
            previous[head] = slot
        first[row] = slot

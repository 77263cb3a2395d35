"""What nodes score, in blocks of 64 rows.

``Mirror.fields`` float64 (blocks * 9 * 64,) holds what scores need of the nodes, block by block and
within a block field by field, so that the loop over a block is vector instructions alone: it has no
branch and no gather. The formulas are those of the plugins (``framework.formulas``), whose results
in floats are those of integers below 2**41. Nodes with more of a resource, or with none, and nodes
that pods are nominated to (*guests*, which count when it is asked whether there is room) are *odd*
and judged one by one with integers; so are all nodes of a profile that scores other resources than
cpu and memory, or by another strategy than LeastAllocated. A property test holds both equal.
"""

import numpy as np

from scheduling.engine.compiled.arguments import Guests, Mirror, Nodes
from scheduling.engine.compiled.caching import inlined, inner, outer
from scheduling.engine.compiled.entries import count_of
from scheduling.engine.compiled.layout import FIELDS, LOW
from scheduling.engine.compiled.shared import allocation, balance, evenness
from scheduling.framework.arrays import Float64, Int32, Int64
from scheduling.framework.formulas import least_allocated, short

_LARGE = 2**41
_HUGE = 2**51
_NO_PLACE = -(2**20)
# Fields of a row, 64 of each in a block.
_ROOM_CPU, _ROOM_MEMORY, _USED_CPU, _USED_MEMORY = 0, 64, 128, 192
_NONZERO_CPU, _NONZERO_MEMORY, _PER_CPU, _PER_MEMORY, _BALANCE = 256, 320, 384, 448, 512
# Columns of ``Lines.terms``.
_CPU, _MEMORY, _SCORED_CPU, _SCORED_MEMORY, _BALANCED_CPU, _BALANCED_MEMORY = range(6)
_WEIGHT_CPU, _WEIGHT_MEMORY, _SHARE = range(6, 9)


@inlined
def mirror_row(row: int, mirror: Mirror, nodes: Nodes, guests: Guests) -> None:
    """Bring a row of the mirror up to date."""
    block, at = row // 64, row % 64
    cpu, memory = nodes.allocatable[row, 0], nodes.allocatable[row, 1]
    used_cpu, used_memory = nodes.requested[row, 0], nodes.requested[row, 1]
    nonzero_cpu, nonzero_memory = nodes.nonzero_requested[row, 0], nodes.nonzero_requested[row, 1]
    is_odd = (
        mirror.by_rows
        or guests.pods[row] > 0
        or cpu <= 0
        or memory <= 0
        or cpu >= _LARGE
        or memory >= _LARGE
        or abs(used_cpu) >= _HUGE
        or abs(used_memory) >= _HUGE
        or abs(nonzero_cpu) >= _HUGE
        or abs(nonzero_memory) >= _HUGE
    )
    if is_odd != mirror.odd[row]:
        mirror.odd[row] = is_odd
        mirror.odd_in[block] += 1 if is_odd else -1
    fields = mirror.fields
    at += block * FIELDS * 64
    if is_odd:
        for field in range(FIELDS):
            fields[field * 64 + at] = 1.0
        fields[_BALANCE + at] = _NO_PLACE
        return
    fields[_ROOM_CPU + at] = cpu
    fields[_ROOM_MEMORY + at] = memory
    fields[_USED_CPU + at] = used_cpu
    fields[_USED_MEMORY + at] = used_memory
    fields[_NONZERO_CPU + at] = nonzero_cpu
    fields[_NONZERO_MEMORY + at] = nonzero_memory
    fields[_PER_CPU + at] = 1.0 / cpu
    fields[_PER_MEMORY + at] = 1.0 / memory
    before = evenness(abs((min(1.0, used_cpu / cpu) - min(1.0, used_memory / memory)) / 2))
    has_place = not short(1, nodes.allowed_pods[row], nodes.pod_count[row])
    fields[_BALANCE + at] = 50 - before if has_place else _NO_PLACE


@outer
def mirror_rows(rows: Int32, mirror: Mirror, nodes: Nodes, guests: Guests) -> None:
    """Bring rows of the mirror up to date."""
    for row in rows:
        mirror_row(row, mirror, nodes, guests)


@inlined
def has_room(at: int, fields: Float64, terms: Float64) -> bool:
    """Return whether a row that is not odd has room for cpu, memory and a pod.

    ``at``: where its fields begin. To slice an array costs more than to read from it.
    """
    return bool(
        (not short(terms[_CPU], fields[_ROOM_CPU + at], fields[_USED_CPU + at]))
        & (not short(terms[_MEMORY], fields[_ROOM_MEMORY + at], fields[_USED_MEMORY + at]))
        & (fields[_BALANCE + at] > -1000)
    )


@inlined
def scores_at(at: int, fields: Float64, terms: Float64) -> tuple[int, int]:
    """Return what ``row_scores`` does of a row that is not odd; ``at``: as in ``has_room``."""
    room_cpu, room_memory = fields[_ROOM_CPU + at], fields[_ROOM_MEMORY + at]
    used_cpu = fields[_NONZERO_CPU + at] + terms[_SCORED_CPU]
    used_memory = fields[_NONZERO_MEMORY + at] + terms[_SCORED_MEMORY]
    free_cpu = least_allocated(used_cpu, room_cpu, fields[_PER_CPU + at])
    free_memory = least_allocated(used_memory, room_memory, fields[_PER_MEMORY + at])
    # The mean: to multiply with the weights' reciprocal gives the quotient, rounded down.
    summed = free_cpu * terms[_WEIGHT_CPU] + free_memory * terms[_WEIGHT_MEMORY]
    x = (fields[_USED_CPU + at] + terms[_BALANCED_CPU]) / room_cpu
    y = (fields[_USED_MEMORY + at] + terms[_BALANCED_MEMORY]) / room_memory
    after = np.int32((1.0 - abs((min(1.0, x) - min(1.0, y)) / 2)) * 100)
    even = 50 + ((np.int32(fields[_BALANCE + at]) + after) >> 1)
    return np.int32((summed + 0.5) * terms[_SHARE]), even  # type: ignore[return-value]


@inlined
def row_scores(
    row: int, terms: Float64, scored: Int64, mirror: Mirror, nodes: Nodes
) -> tuple[int, int]:
    """Return the scores of NodeResourcesFit and NodeResourcesBalancedAllocation, not weighted."""
    if not mirror.odd[row]:
        return scores_at(row // 64 * (FIELDS * 64) + row % 64, mirror.fields, terms)
    free = allocation(row, scored[0], mirror.strategy, mirror.table, nodes)
    return np.int32(free), np.int32(balance(row, scored[1], nodes))  # type: ignore[return-value]


@inner
def score_block(
    block: int, fields: Float64, base: Int32, terms: Float64, least: int, balanced: int,
    totals: Int32,
) -> tuple[int, int]:  # fmt: skip
    """Set the totals of a block's rows that are not odd; return the highest, and how many have it.

    ``terms``: see ``engine.lines.Lines``.
    """
    begin = block * FIELDS * 64
    top = np.int32(LOW)
    least_weight, balanced_weight = np.int32(least), np.int32(balanced)
    for at in range(64):
        free, even = scores_at(begin + at, fields, terms)
        total = free * least_weight + even * balanced_weight + base[at]
        good = has_room(begin + at, fields, terms) & (base[at] != LOW)
        totals[at] = total if good else LOW
        top = max(top, totals[at])
    return top, count_of(top, totals)  # type: ignore[return-value, arg-type]


@inner
def need(totals: Int32, amount: int, allocatable: Int64, requested: Int64) -> None:
    """Rule out rows of a block where less than ``amount`` is free."""
    for at in range(len(allocatable)):
        totals[at] = LOW if short(amount, allocatable[at], requested[at]) else totals[at]


@inner
def count_feasible(totals: Int32) -> int:
    """Return how many totals are of feasible rows."""
    found = np.int32(0)
    for at in range(len(totals)):
        found += np.int32(totals[at] != LOW)
    return found  # type: ignore[return-value]

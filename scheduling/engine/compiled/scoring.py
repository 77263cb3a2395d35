"""Scores of nodes, in blocks of 64 rows.

``ScoreColumns.fields`` float64 (blocks, 9 * 64) holds what scores need of the nodes, field by field
within a block, so that the loop over a block compiles to vector instructions: it has no branch, no
gather and no integer division. A quotient that is rounded down is a product with a reciprocal, plus
half a unit of the numerator, so that floating-point error cannot reach the next integer; that holds
below 2**41 units of a resource on a node. Nodes with more, or with none, and nodes to which pods
are nominated (whose requests count when a pod is fitted, and not when it is scored) are *odd*: they
are scored one by one with integers. Quotients that stay fractions are divided as the plugin divides
them. All nodes are odd where a profile scores other resources than cpu and memory, or by another
strategy than LeastAllocated. The float formulas here repeat ``framework.formulas`` in a form that
vectors take quickest: calling those takes twice as long. A property test compares both.
"""

import numpy as np

from scheduling.engine.compiled.arguments import Nodes, NominatedAmounts, ScoreColumns
from scheduling.engine.compiled.caching import inlined, inner, outer
from scheduling.engine.compiled.entries import count_of
from scheduling.engine.compiled.layout import FIELDS, LOW
from scheduling.engine.compiled.shared import allocation, balance, evenness
from scheduling.framework.arrays import Float64, Int32, Int64
from scheduling.framework.formulas import short

_LARGE = 2**41
_HUGE = 2**51
_NO_PLACE = -(2**20)


@inlined
def refresh_row(
    row: int, score_columns: ScoreColumns, nodes: Nodes, nominated: NominatedAmounts
) -> None:
    """Update the score columns of a row."""
    block, at = row // 64, row % 64
    cpu, memory = nodes.allocatable[row, 0], nodes.allocatable[row, 1]
    used_cpu, used_memory = nodes.requested[row, 0], nodes.requested[row, 1]
    nonzero_cpu, nonzero_memory = nodes.nonzero_requested[row, 0], nodes.nonzero_requested[row, 1]
    is_odd = (
        score_columns.by_rows
        or nominated.pods[row] > 0
        or cpu <= 0
        or memory <= 0
        or cpu >= _LARGE
        or memory >= _LARGE
        or abs(used_cpu) >= _HUGE
        or abs(used_memory) >= _HUGE
        or abs(nonzero_cpu) >= _HUGE
        or abs(nonzero_memory) >= _HUGE
    )
    if is_odd != score_columns.odd[row]:
        score_columns.odd[row] = is_odd
        score_columns.odd_in[block] += 1 if is_odd else -1
    fields = score_columns.fields[block]
    if is_odd:
        for field in range(FIELDS):
            fields[field * 64 + at] = 1.0
        fields[512 + at] = _NO_PLACE
        return
    per_cpu, per_memory = 100.0 / cpu, 100.0 / memory
    fields[at] = (cpu - nonzero_cpu + 0.005) * per_cpu
    fields[64 + at] = per_cpu
    fields[128 + at] = (memory - nonzero_memory + 0.005) * per_memory
    fields[192 + at] = per_memory
    fields[256 + at] = used_cpu
    fields[320 + at] = cpu
    fields[384 + at] = used_memory
    fields[448 + at] = memory
    before = evenness(abs((min(1.0, used_cpu / cpu) - min(1.0, used_memory / memory)) / 2))
    has_place = not short(1, nodes.allowed_pods[row], nodes.pod_count[row])
    fields[512 + at] = 50 - before if has_place else _NO_PLACE


@outer
def refresh_rows(
    rows: Int32, score_columns: ScoreColumns, nodes: Nodes, nominated: NominatedAmounts
) -> None:
    """Update the score columns of several rows."""
    for row in rows:
        refresh_row(row, score_columns, nodes, nominated)


@inlined
def scores_at(block: int, at: int, fields: Float64, terms: Float64) -> tuple[int, int]:
    """Return the two scores of ``row_scores``, for a row that is not odd."""
    a = fields[block, at] - terms[2] * fields[block, 64 + at]
    b = fields[block, 128 + at] - terms[3] * fields[block, 192 + at]
    summed = np.floor(max(a, 0.0)) * terms[6] + np.floor(max(b, 0.0)) * terms[7]
    x = (fields[block, 256 + at] + terms[4]) / fields[block, 320 + at]
    y = (fields[block, 384 + at] + terms[5]) / fields[block, 448 + at]
    after = int((1.0 - abs((min(1.0, x) - min(1.0, y)) / 2)) * 100)
    balance = 50 + ((int(fields[block, 512 + at]) + after) >> 1)
    return int((summed + 0.5) * terms[8]), balance


@inlined
def row_scores(
    row: int, terms: Float64, scored: Int64, score_columns: ScoreColumns, nodes: Nodes
) -> tuple[int, int]:
    """Return NodeResourcesFit's and BalancedAllocation's scores of a row, not weighted."""
    if not score_columns.odd[row]:
        return scores_at(row // 64, row % 64, score_columns.fields, terms)
    free = allocation(row, scored[0], score_columns.strategy, score_columns.table, nodes)
    return free, balance(row, scored[1], nodes)


@inner
def score_block(
    fields: Float64, base: Int32, terms: Float64, least: int, balanced: int, totals: Int32
) -> tuple[int, int, int]:
    """Set the totals of a block's rows that are not odd; LOW where a row is not feasible.

    Return the highest total, how many rows have it, and how many are feasible. ``terms``: see
    ``engine.fast.lines.Lines``.
    """
    top = np.int32(LOW)
    able = np.int32(0)
    cpu, memory = terms[0], terms[1]
    least_cpu, least_memory = terms[2], terms[3]
    more_cpu, more_memory = terms[4], terms[5]
    weight_cpu, weight_memory, share = terms[6], terms[7], terms[8]
    least_weight, balanced_weight = np.int32(least), np.int32(balanced)
    for at in range(64):
        a = fields[at] - least_cpu * fields[64 + at]
        b = fields[128 + at] - least_memory * fields[192 + at]
        a = np.floor(a) if a > 0.0 else 0.0
        b = np.floor(b) if b > 0.0 else 0.0
        free = np.int32((a * weight_cpu + b * weight_memory + 0.5) * share)
        used_cpu, room_cpu = fields[256 + at], fields[320 + at]
        used_memory, room_memory = fields[384 + at], fields[448 + at]
        x = (used_cpu + more_cpu) / room_cpu
        y = (used_memory + more_memory) / room_memory
        x = min(1.0, x)
        y = min(1.0, y)
        after = np.int32((1.0 - abs((x - y) / 2)) * 100)
        before = np.int32(fields[512 + at])
        good = (
            (cpu <= room_cpu - used_cpu)
            & (memory <= room_memory - used_memory)
            & (before > -1000)
            & (base[at] != LOW)
        )
        total = free * least_weight + (50 + ((before + after) >> 1)) * balanced_weight + base[at]
        totals[at] = total if good else LOW
        able += np.int32(good)
        top = max(top, totals[at])
    return top, count_of(top, totals), able  # type: ignore[return-value, arg-type]


@inner
def need(totals: Int32, amount: int, allocatable: Int64, requested: Int64) -> None:
    """Set the totals of a block's rows to LOW where less than ``amount`` is free."""
    for at in range(len(allocatable)):
        totals[at] = LOW if short(amount, allocatable[at], requested[at]) else totals[at]


@inner
def count_feasible(totals: Int32) -> int:
    """Return how many totals are not LOW: those of feasible rows."""
    found = np.int32(0)
    for at in range(len(totals)):
        found += np.int32(totals[at] != LOW)
    return found  # type: ignore[return-value]

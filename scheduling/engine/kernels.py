"""The loops of ``engine.runs``, compiled by Numba. Import it only where they are to run.

Importing Numba takes 0.2 s and 70 MB, so only the scheduling worker does (``runs.warm``). Compiled
code is kept in ``__pycache__`` beside this file, or in NUMBA_CACHE_DIR. What can be read instead:
``class_cache.ClassState`` does the same with NumPy, and a property test holds both equal. Integer
divisions are of numbers that are not negative; floating point as in the plugins, term by term.
"""

import numba
import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

_LOW = -(2**30)
_KEPT = 10
_BLOCK = 64

compiled = numba.njit(cache=True, nogil=True, error_model="numpy")


@compiled
def fit_bits(
    row: int,
    amounts: Int64,
    columns: Int64,
    allocatable: Int64,
    requested: Int64,
    allowed: Int64,
    pod_count: Int64,
) -> int:
    """Return why NodeResourcesFit rejects the row, 0 where it fits.

    Bit 0: too many pods; two bits per amount: too little is free, too little exists. Column -1
    ends the list.
    """
    found = 1 if pod_count[row] + 1 > allowed[row] else 0
    for check in range(len(columns)):
        column = columns[check]
        if column < 0:
            break
        room = allocatable[row, column]
        if amounts[check] > room - requested[row, column]:
            found |= (3 if amounts[check] > room else 1) << (2 * check + 1)
    return found


@compiled
def all_bits(
    found: Int32,
    amounts: Int64,
    columns: Int64,
    allocatable: Int64,
    requested: Int64,
    allowed: Int64,
    pod_count: Int64,
) -> None:
    """Set ``found`` to ``fit_bits`` of all rows."""
    for row in range(len(found)):
        found[row] = fit_bits(row, amounts, columns, allocatable, requested, allowed, pod_count)


@compiled
def least_allocated(row: int, terms: Int64, allocatable: Int64, nonzero_requested: Int64) -> int:
    """Return NodeResourcesFit's score of cpu and memory; terms: weight, asked, weight, asked."""
    total = 0
    weights = 0
    for column in range(2):
        weight = terms[2 * column]
        room = allocatable[row, column]
        if weight == 0 or room == 0:
            continue
        used = nonzero_requested[row, column] + terms[2 * column + 1]
        if used < room:
            total += (room - used) * 100 // room * weight
        weights += weight
    return total // weights if weights else 0


@compiled
def balanced(row: int, terms: Int64, allocatable: Int64, requested: Int64) -> int:
    """Return NodeResourcesBalancedAllocation's score of cpu and memory; terms: asked, asked."""
    cpu, memory = allocatable[row, 0], allocatable[row, 1]
    after = 0.0
    before = 0.0
    if cpu != 0 and memory != 0:
        used_cpu, used_memory = requested[row, 0], requested[row, 1]
        a = min(1.0, (used_cpu + terms[0]) / cpu)
        b = min(1.0, (used_memory + terms[1]) / memory)
        after = abs((a - b) / 2)
        a = min(1.0, used_cpu / cpu)
        b = min(1.0, used_memory / memory)
        before = abs((a - b) / 2)
    with_pod = int((1.0 - after) * 100)
    without = int((1.0 - before) * 100)
    return 50 + (50 + with_pod - without) // 2


@compiled
def decide(
    classes: Int32,
    high: Int64,
    low: Int64,
    total: Int32,
    offset: Int32,
    local: Int32,
    scores: Int32,
    bits: Int32,
    fixed: npt.NDArray[np.bool_],
    position: Int32,
    amounts: Int64,
    columns: Int64,
    terms: Int64,
    vectors: Int64,
    nonzero: Int64,
    cursor: Int64,
    allocatable: Int64,
    requested: Int64,
    nonzero_requested: Int64,
    allowed: Int64,
    pod_count: Int64,
    log: Int32,
    filled: int,
    told: Int32,
    chosen: Int32,
    chosen_scores: Int32,
    chosen_position: Int32,
) -> int:
    """Decide for pods in order and account for each; return for how many.

    Stops before a pod whose class finds a row where what NodeResourcesFit says has changed; the
    cursor then points at that row's entry in the log. Arguments are those of ``runs.Pool``, by
    class, and of the snapshot; ``high`` and ``low`` are the halves of 64 random bits for each pod.
    ``told``: row, total, ties, margin, number of chosen rows. ``terms``: four of
    ``least_allocated``, its line (-1: none) and weight, two of ``balanced``, line, weight, lines,
    and how many rows are feasible.
    """
    rows = total.shape[1]
    blocks = (rows + _BLOCK - 1) // _BLOCK
    highest = np.empty(blocks, np.int32)
    values = np.empty(_KEPT, np.int32)
    for pod in range(len(classes)):
        c = classes[pod]
        term = terms[c]
        least_line, least_weight = term[4], term[5]
        balanced_line, balanced_weight = term[8], term[9]
        lines = term[10]
        totals = total[c]
        # Follow what was touched since the class was last asked.
        for entry in range(cursor[c], filled + pod):
            row = log[entry]
            if fixed[c, row]:
                continue
            now = fit_bits(row, amounts[c], columns[c], allocatable, requested, allowed, pod_count)
            if now != bits[c, row]:
                cursor[c] = entry
                return pod
            if totals[row] == _LOW:
                continue
            if least_line >= 0:
                scores[c, least_line, row] = (
                    least_allocated(row, term[:4], allocatable, nonzero_requested) * least_weight
                )
            if balanced_line >= 0:
                scores[c, balanced_line, row] = (
                    balanced(row, term[6:8], allocatable, requested) * balanced_weight
                )
            summed = 0
            for line in range(lines):
                summed += scores[c, line, row]
            local[c, row] = summed
            totals[row] = summed + offset[c, row]
        cursor[c] = filled + pod
        # The highest total, block by block; then the blocks that have it.
        top = _LOW
        for block in range(blocks):
            best = totals[block * _BLOCK]
            for row in range(block * _BLOCK + 1, min((block + 1) * _BLOCK, rows)):
                best = max(best, totals[row])
            highest[block] = best
            top = max(top, best)
        ties = 0
        for block in range(blocks):
            if highest[block] == top:
                for row in range(block * _BLOCK, min((block + 1) * _BLOCK, rows)):
                    ties += totals[row] == top
        drawn = (high[pod] * ties + ((low[pod] * ties) >> 32)) >> 32
        winner = -1
        seen = 0
        count = 0
        picks = chosen[pod]
        for block in range(blocks):
            if highest[block] != top:
                continue
            for row in range(block * _BLOCK, min((block + 1) * _BLOCK, rows)):
                if totals[row] == top:
                    if ties >= _KEPT and count < _KEPT:
                        picks[count] = row
                        count += 1
                    if seen == drawn:
                        winner = row
                    seen += 1
            if winner >= 0 and seen >= _KEPT:
                break
        margin = 0
        if ties >= _KEPT:
            if picks[_KEPT - 1] < winner:
                picks[_KEPT - 1] = winner
        else:
            kept = min(_KEPT, term[11])
            for block in range(blocks):
                if count == kept and highest[block] <= values[kept - 1]:
                    continue
                for row in range(block * _BLOCK, min((block + 1) * _BLOCK, rows)):
                    found = totals[row]
                    if found == _LOW or (count == kept and found <= values[kept - 1]):
                        continue
                    if count < kept:
                        count += 1
                    at = count - 1
                    while at > 0 and values[at - 1] < found:
                        values[at] = values[at - 1]
                        picks[at] = picks[at - 1]
                        at -= 1
                    values[at] = found
                    picks[at] = row
            if ties == 1:
                margin = top - values[1]
            picks[:count].sort()
        told[pod, 0] = winner
        told[pod, 1] = top
        told[pod, 2] = ties
        told[pod, 3] = margin
        told[pod, 4] = count
        for at in range(count):
            row = picks[at]
            chosen_position[pod, at] = position[c, row]
            for line in range(lines):
                chosen_scores[pod, line, at] = scores[c, line, row]
        # Assume it.
        for column in range(vectors.shape[1]):
            requested[winner, column] += vectors[c, column]
        nonzero_requested[winner, 0] += nonzero[c, 0]
        nonzero_requested[winner, 1] += nonzero[c, 1]
        pod_count[winner] += 1
        log[filled + pod] = winner
    return len(classes)


@compiled
def link(slots: Int32, rows: Int32, first: Int32, following: Int32, previous: Int32) -> None:
    """Put slots at the head of their rows' lists, in order."""
    for number in range(len(slots)):
        slot, row = slots[number], rows[number]
        head = first[row]
        following[slot] = head
        previous[slot] = -1
        if head >= 0:
            previous[head] = slot
        first[row] = slot

"""The loops of ``engine.plain``, compiled by Numba. Import it only where they are to run.

Columns come in blocks of 64 rows. ``mirror`` float64 (blocks, 9 * 64) holds what scores need of the
nodes, field by field within a block, so that the loop over a block is vector instructions alone: it
has no branch, no gather and no integer division. Quotients that are rounded down are products with
a reciprocal, half a unit of the numerator above the border, where the error of floating point
cannot reach the next integer: that needs fewer than 2**41 units of a resource on a node. Nodes with
more, or with none, and nodes that pods are nominated to (*guests*, which count when it is asked
whether there is room) are *odd* and judged one by one with integers. Quotients that stay fractions
are divided as the plugin divides them. What can be read instead is ``class_cache``; a property test
holds both equal.
"""

import numba
import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

BLOCK = 64
FIELDS = 9
KEPT = 10
KINDS = 16
TOLD = 7
LOW = -(2**30)
FINISHED, OTHER_GROUPS, NOWHERE, MANY_KINDS = 0, 1, 2, 3

_LARGE = 2**41
_HUGE = 2**51
_NO_PLACE = -(2**20)
_REBUILD = 12
"""So many rows are scored anew, in vectors, in the time in which one changed row is followed."""

compiled = numba.njit(cache=True, nogil=True, error_model="numpy")


@compiled
def draw_below(seed: np.uint64, number: np.uint64, count: int) -> int:
    """Return ``engine.cycle.draw_below``; ``count`` below 2**32."""
    z = seed + np.uint64(0x9E3779B97F4A7C15) * (number + np.uint64(1))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    below = np.uint64(count)
    high, low = z >> np.uint64(32), z & np.uint64(0xFFFFFFFF)
    return int((high * below + ((low * below) >> np.uint64(32))) >> np.uint64(32))


@compiled
def balance(first: float, second: float) -> int:
    """Return 100 for two equal fractions to 50 for the widest spread."""
    return int((1.0 - abs((first - second) / 2)) * 100)


@compiled
def mirror_row(
    row: int,
    mirror: Float64,
    odd: Mask,
    odd_in: Int32,
    allocatable: Int64,
    requested: Int64,
    nonzero_requested: Int64,
    allowed: Int64,
    pod_count: Int64,
    guest_count: Int64,
) -> None:
    """Bring a row of the mirror up to date."""
    block, at = row // 64, row % 64
    cpu, memory = allocatable[row, 0], allocatable[row, 1]
    used_cpu, used_memory = requested[row, 0], requested[row, 1]
    is_odd = (
        guest_count[row] > 0
        or cpu <= 0
        or memory <= 0
        or cpu >= _LARGE
        or memory >= _LARGE
        or abs(used_cpu) >= _HUGE
        or abs(used_memory) >= _HUGE
        or abs(nonzero_requested[row, 0]) >= _HUGE
        or abs(nonzero_requested[row, 1]) >= _HUGE
    )
    if is_odd != odd[row]:
        odd[row] = is_odd
        odd_in[block] += 1 if is_odd else -1
    fields = mirror[block]
    if is_odd:
        for field in range(FIELDS):
            fields[field * 64 + at] = 1.0
        fields[512 + at] = _NO_PLACE
        return
    per_cpu, per_memory = 100.0 / cpu, 100.0 / memory
    fields[at] = (cpu - nonzero_requested[row, 0] + 0.005) * per_cpu
    fields[64 + at] = per_cpu
    fields[128 + at] = (memory - nonzero_requested[row, 1] + 0.005) * per_memory
    fields[192 + at] = per_memory
    fields[256 + at] = used_cpu
    fields[320 + at] = cpu
    fields[384 + at] = used_memory
    fields[448 + at] = memory
    before = balance(min(1.0, used_cpu / cpu), min(1.0, used_memory / memory))
    has_place = pod_count[row] + 1 <= allowed[row]
    fields[512 + at] = 50 - before if has_place else _NO_PLACE


@compiled
def mirror_rows(
    rows: Int32,
    mirror: Float64,
    odd: Mask,
    odd_in: Int32,
    allocatable: Int64,
    requested: Int64,
    nonzero_requested: Int64,
    allowed: Int64,
    pod_count: Int64,
    guest_count: Int64,
) -> None:
    """Bring rows of the mirror up to date."""
    for row in rows:
        mirror_row(
            row, mirror, odd, odd_in, allocatable, requested, nonzero_requested, allowed,
            pod_count, guest_count,
        )  # fmt: skip


@compiled
def fit_bits(
    row: int,
    amounts: Int64,
    columns: Int64,
    allocatable: Int64,
    requested: Int64,
    allowed: Int64,
    pod_count: Int64,
    guest_requested: Int64,
    guest_count: Int64,
) -> int:
    """Return why NodeResourcesFit rejects the row with its guests, 0 where it fits.

    Bit 0: too many pods; two bits per amount: too little is free, too little exists. Column -1
    ends the list.
    """
    found = 1 if pod_count[row] + guest_count[row] + 1 > allowed[row] else 0
    for check in range(len(columns)):
        column = columns[check]
        if column < 0:
            break
        room = allocatable[row, column]
        if amounts[check] > room - requested[row, column] - guest_requested[row, column]:
            found |= (3 if amounts[check] > room else 1) << (2 * check + 1)
    return found


@compiled
def row_scores(
    row: int,
    terms: Float64,
    asked: Int64,
    mirror: Float64,
    odd: Mask,
    allocatable: Int64,
    requested: Int64,
    nonzero_requested: Int64,
) -> tuple[int, int]:
    """Return the scores of NodeResourcesFit and NodeResourcesBalancedAllocation, not weighted."""
    if not odd[row]:
        fields, at = mirror[row // 64], row % 64
        a = np.floor(max(fields[at] - terms[2] * fields[64 + at], 0.0))
        b = np.floor(max(fields[128 + at] - terms[3] * fields[192 + at], 0.0))
        least = int((a * terms[6] + b * terms[7] + 0.5) * terms[8])
        x = min(1.0, (fields[256 + at] + terms[4]) / fields[320 + at])
        y = min(1.0, (fields[384 + at] + terms[5]) / fields[448 + at])
        return least, 50 + ((int(fields[512 + at]) + balance(x, y)) >> 1)
    total = 0
    weights = 0
    for column in range(2):
        weight = int(terms[6 + column])
        room = allocatable[row, column]
        if weight == 0 or room == 0:
            continue
        used = nonzero_requested[row, column] + asked[column]
        if used < room:
            total += (room - used) * 100 // room * weight
        weights += weight
    cpu, memory = allocatable[row, 0], allocatable[row, 1]
    after = 100
    before = 100
    if cpu != 0 and memory != 0:
        used_cpu, used_memory = requested[row, 0], requested[row, 1]
        after = balance(
            min(1.0, (used_cpu + asked[2]) / cpu), min(1.0, (used_memory + asked[3]) / memory)
        )
        before = balance(min(1.0, used_cpu / cpu), min(1.0, used_memory / memory))
    return total // weights if weights else 0, 50 + (50 + after - before) // 2


@compiled
def score_block(
    fields: Float64, base: Int32, terms: Float64, least: int, balanced: int, totals: Int32
) -> None:
    """Set the totals of a block's rows that are not odd; ``terms``: see ``decide``."""
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


@compiled
def need(totals: Int32, amount: int, allocatable: Int64, requested: Int64) -> None:
    """Rule out rows of a block where less than ``amount`` is free."""
    for at in range(len(allocatable)):
        short = amount > allocatable[at] - requested[at]
        totals[at] = LOW if short else totals[at]


@compiled
def block_top(totals: Int32) -> tuple[int, int]:
    """Return the highest total of a block, and how many rows have it."""
    top = totals[0]
    for at in range(64):
        top = max(top, totals[at])
    ties = np.int32(0)
    for at in range(64):
        ties += np.int32(totals[at] == top)
    return top, ties  # type: ignore[return-value]


@compiled
def count_feasible(totals: Int32) -> int:
    """Return how many totals are of feasible rows."""
    found = np.int32(0)
    for at in range(len(totals)):
        found += np.int32(totals[at] != LOW)
    return found  # type: ignore[return-value]


@compiled
def note_kind(kinds: Int32, bits: int, change: int) -> bool:
    """Count a row rejected with ``bits``; False where there are too many kinds. Count 0: free."""
    vacant = -1
    for number in range(KINDS):
        if kinds[number, 1] == 0:
            if vacant < 0:
                vacant = number
        elif kinds[number, 0] == bits:
            kinds[number, 1] += change
            return True
    if vacant < 0:
        return False
    kinds[vacant, 0] = bits
    kinds[vacant, 1] = change
    return True


@compiled
def decide(
    first: int,
    lines: Int32,
    seed: np.uint64,
    draw: np.uint64,
    total: Int32,
    bits: Int32,
    highest: Int32,
    tied: Int32,
    kinds: Int32,
    feasible: Int64,
    cursor: Int64,
    amounts: Int64,
    columns: Int64,
    more: Mask,
    terms: Float64,
    weights: Int32,
    asked: Int64,
    vectors: Int64,
    nonzero: Int64,
    base_of: Int32,
    mask_of: npt.NDArray[np.uint64],
    plan_of: Int32,
    bases: Int32,
    group: npt.NDArray[np.int8],
    group_count: Int32,
    hint: Int32,
    witness: Int32,
    open_rows: Int64,
    mirror: Float64,
    odd: Mask,
    odd_in: Int32,
    allocatable: Int64,
    requested: Int64,
    nonzero_requested: Int64,
    allowed: Int64,
    pod_count: Int64,
    guest_requested: Int64,
    guest_count: Int64,
    log: Int32,
    filled: int,
    told: Int32,
    chosen: Int32,
    chosen_scores: Int32,
    told_kinds: Int32,
    told_masks: npt.NDArray[np.uint64],
) -> tuple[int, int, np.uint64]:
    """Decide for pods from the ``first`` on and account for each.

    Return how many are decided, why it ends there, and for OTHER_GROUPS the groups that have
    feasible rows, as bits. Arguments are those of ``plain.Lines``, by line, of ``plain.Plans``, by
    plan, and of the snapshot. Of the dice see ``engine.cycle.draw_below``.
    ``terms``: what must be free of cpu and memory (minus infinity: of no interest), then as asked
    for least allocated and for balance, weights of cpu and memory, one over their sum.
    ``told``: row, total, ties, margin (-1: nothing was compared), chosen and feasible rows, kinds.
    """
    blocks = highest.shape[1]
    values = np.empty(KEPT, np.int32)
    for pod in range(first, len(lines)):
        c = lines[pod]
        plan = plan_of[c]
        base = bases[base_of[c]]
        totals, tops, ties_in, of = total[c], highest[c], tied[c], kinds[c]
        term, ask = terms[c], asked[c]
        least_weight, balanced_weight = weights[c, 0], weights[c, 1]
        groups = group_count[plan]
        end = filled + pod
        anew = cursor[c] < 0 or (end - cursor[c]) * _REBUILD > len(totals)
        if not anew:
            for entry in range(cursor[c], end):
                row = log[entry]
                if base[row] == LOW:
                    continue
                block, at = row // 64, row % 64
                old = totals[row]
                simple = not (odd[row] or more[c])
                fits = (
                    simple
                    and term[0] <= mirror[block, 320 + at] - mirror[block, 256 + at]
                    and term[1] <= mirror[block, 448 + at] - mirror[block, 384 + at]
                    and mirror[block, 512 + at] > -1000
                )
                now = 0
                if not fits:
                    now = fit_bits(
                        row,
                        amounts[c],
                        columns[c],
                        allocatable,
                        requested,
                        allowed,
                        pod_count,
                        guest_requested,
                        guest_count,
                    )
                if now != 0:
                    new = LOW
                    if old != LOW:
                        feasible[c] -= 1
                        if groups > 1 and witness[c, group[plan, row]] == row:
                            anew = True  # perhaps the group's last one: look at all rows
                    elif bits[c, row] != now:
                        note_kind(of, bits[c, row], -1)
                    if (old != LOW or bits[c, row] != now) and not note_kind(of, now, 1):
                        cursor[c] = -1
                        return pod, MANY_KINDS, np.uint64(0)
                    bits[c, row] = now
                    if old == LOW:
                        continue
                else:
                    if old == LOW:
                        feasible[c] += 1
                        note_kind(of, bits[c, row], -1)
                        if groups > 1:
                            seen = np.uint64(1) << np.uint64(group[plan, row])
                            if mask_of[c] & seen == np.uint64(0):
                                anew = True
                    if simple:
                        x = mirror[block, at] - term[2] * mirror[block, 64 + at]
                        y = mirror[block, 128 + at] - term[3] * mirror[block, 192 + at]
                        x = np.floor(max(x, 0.0)) * term[6] + np.floor(max(y, 0.0)) * term[7]
                        a = int((x + 0.5) * term[8])
                        x = (mirror[block, 256 + at] + term[4]) / mirror[block, 320 + at]
                        y = (mirror[block, 384 + at] + term[5]) / mirror[block, 448 + at]
                        after = int((1.0 - abs((min(1.0, x) - min(1.0, y)) / 2)) * 100)
                        b = 50 + ((int(mirror[block, 512 + at]) + after) >> 1)
                    else:
                        a, b = row_scores(
                            row, term, ask, mirror, odd, allocatable, requested, nonzero_requested
                        )
                    new = a * least_weight + b * balanced_weight + base[row]
                if new == old:
                    continue
                totals[row] = new
                if new > tops[block]:
                    tops[block] = new
                    ties_in[block] = 1
                elif new == tops[block]:
                    ties_in[block] += 1
                elif old == tops[block]:
                    ties_in[block] -= 1
                    if ties_in[block] == 0:
                        tops[block], ties_in[block] = block_top(
                            totals[block * 64 : block * 64 + 64]
                        )
                if anew:
                    break
        if anew:
            for block in range(blocks):
                begin = block * 64
                part = totals[begin : begin + 64]
                score_block(
                    mirror[block], base[begin : begin + 64], term, least_weight, balanced_weight,
                    part,
                )  # fmt: skip
                if odd_in[block]:
                    for at in range(64):
                        row = begin + at
                        if not odd[row] or base[row] == LOW:
                            continue
                        now = fit_bits(
                            row,
                            amounts[c],
                            columns[c],
                            allocatable,
                            requested,
                            allowed,
                            pod_count,
                            guest_requested,
                            guest_count,
                        )
                        if now == 0:
                            a, b = row_scores(
                                row, term, ask, mirror, odd, allocatable, requested,
                                nonzero_requested,
                            )  # fmt: skip
                            part[at] = a * least_weight + b * balanced_weight + base[row]
                for check in range(columns.shape[1]):
                    column = columns[c, check]
                    if column < 0:
                        break
                    if column > 1:
                        need(
                            part, amounts[c, check], allocatable[begin : begin + 64, column],
                            requested[begin : begin + 64, column],
                        )  # fmt: skip
                tops[block], ties_in[block] = block_top(part)
            feasible[c] = count_feasible(totals)
            of[:, 1] = 0
            if feasible[c] < open_rows[plan]:
                for row in range(len(allowed)):
                    if totals[row] == LOW and base[row] != LOW:
                        now = fit_bits(
                            row,
                            amounts[c],
                            columns[c],
                            allocatable,
                            requested,
                            allowed,
                            pod_count,
                            guest_requested,
                            guest_count,
                        )
                        bits[c, row] = now
                        if not note_kind(of, now, 1):
                            cursor[c] = -1
                            return pod, MANY_KINDS, np.uint64(0)
            if groups > 1:
                mask = np.uint64(0)
                for number in range(groups):
                    row = witness[c, number]
                    if row < 0 or totals[row] == LOW:
                        row = hint[plan, number]
                    if row < 0 or totals[row] == LOW:
                        row = -1
                        for other in range(len(allowed)):
                            if group[plan, other] == number and totals[other] != LOW:
                                row = other
                                break
                        hint[plan, number] = row
                    witness[c, number] = row
                    if row >= 0:
                        mask |= np.uint64(1) << np.uint64(number)
                if feasible[c] > 1 and mask != mask_of[c]:
                    cursor[c] = -1
                    return pod, OTHER_GROUPS, mask
        cursor[c] = end
        if feasible[c] == 0:
            return pod, NOWHERE, np.uint64(0)
        # The highest total, block by block; then the blocks that have it.
        top = tops[0]
        for block in range(1, blocks):
            top = max(top, tops[block])
        ties = 0
        for block in range(blocks):
            if tops[block] == top:
                ties += ties_in[block]
        left = draw_below(seed, draw + np.uint64(pod), ties)
        winner = -1
        for block in range(blocks):
            if tops[block] != top:
                continue
            if left >= ties_in[block]:
                left -= ties_in[block]
                continue
            for row in range(block * 64, block * 64 + 64):
                if totals[row] == top:
                    if left == 0:
                        winner = row
                        break
                    left -= 1
            break
        margin = 0
        count = 0
        picks = chosen[pod]
        if feasible[c] == 1:
            margin = -1
            top = 0
            cursor[c] = -1  # the groups were not looked at
        elif ties >= KEPT:
            for block in range(blocks):
                if tops[block] != top:
                    continue
                for row in range(block * 64, block * 64 + 64):
                    if totals[row] == top:
                        picks[count] = row
                        count += 1
                        if count == KEPT:
                            break
                if count == KEPT:
                    break
            if picks[KEPT - 1] < winner:
                picks[KEPT - 1] = winner
        else:
            kept = min(KEPT, feasible[c])
            for block in range(blocks):
                if tops[block] == LOW or (count == kept and tops[block] <= values[kept - 1]):
                    continue
                for row in range(block * 64, block * 64 + 64):
                    found = totals[row]
                    if found == LOW or (count == kept and found <= values[kept - 1]):
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
        told[pod, 5] = feasible[c]
        number = 0
        for kind in range(KINDS):
            if of[kind, 1] != 0:
                told_kinds[pod, number, 0] = of[kind, 0]
                told_kinds[pod, number, 1] = of[kind, 1]
                number += 1
        told[pod, 6] = number
        told_masks[pod] = mask_of[c]
        for at in range(count):
            a, b = row_scores(
                picks[at], term, ask, mirror, odd, allocatable, requested, nonzero_requested
            )
            chosen_scores[pod, 0, at] = a * least_weight
            chosen_scores[pod, 1, at] = b * balanced_weight
        # Assume it.
        for column in range(vectors.shape[1]):
            requested[winner, column] += vectors[c, column]
        nonzero_requested[winner, 0] += nonzero[c, 0]
        nonzero_requested[winner, 1] += nonzero[c, 1]
        pod_count[winner] += 1
        log[end] = winner
        mirror_row(
            winner, mirror, odd, odd_in, allocatable, requested, nonzero_requested, allowed,
            pod_count, guest_count,
        )  # fmt: skip
    return len(lines), FINISHED, np.uint64(0)


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

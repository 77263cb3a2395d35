"""The loops of ``engine.runs``, compiled by Numba. Import it only where they are to run.

Importing Numba takes 0.2 s and 70 MB, so only the scheduling worker does (``runs.warm``). Compiled
code is kept in ``__pycache__`` beside this file, or in NUMBA_CACHE_DIR; with NUMBA_DISABLE_JIT=1
the same functions run as plain Python. What can be read instead: ``class_cache.ClassState`` does
the same with NumPy, and a property test holds both equal. Integer divisions are of numbers that are
not negative; floating point as in the plugins, term by term.

A class's rows fall into groups, and a row's total is its own score plus its group's. Rows come in
blocks of 128; of each group in a block an *entry* knows the highest score of a row and how many
rows have it. So a decision looks at groups, then at entries, then at the rows of a few blocks.
"""

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Int16 = npt.NDArray[np.int16]
Float64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

LOW = -(2**30)
"""Below every score: marks rows and groups that are not feasible."""
KEPT = 10
BLOCK = 128
KINDS = 24
TAKEN = 2**30
"""In place of the bits of NodeResourcesFit: rejected by a counter, before that plugin."""

# Columns of ``Shapes.marks``.
FIT, LEAST, BALANCED, SUM = range(4)
# Columns of ``Shapes.terms``: weights and amounts of cpu and memory, then of balance.
LEAST_WEIGHT, BALANCED_ASKED, BALANCED_WEIGHT = 4, 5, 7
TERMS = 8
# Columns of ``Lines.closed``; only AFTER also holds for open rows.
GROUP, BITS, AFTER = range(3)
# ``Lines.standing``: the row's score times 2**SHIFT plus its group where it is open.
SHIFT = 10
GROUP_BITS = 2**SHIFT - 1
CLOSED = -1
OUTSIDE = -2
"""Rejected before the filters that follow pods, or no row of a node."""
# Columns of ``Lines.form``.
SHAPE, FIXED, GROUPS, RULES, WATCHES, PLUGINS, TAKEN_SLOT = range(7)
AFFINITY_FIRST, STUCK, WIDEST = range(7, 10)
FORM = 10
# Columns of ``Lines.rules``; kinds are ``framework.terms.Kind``.
KIND, SLOT, WATCH, MATCHES_SELF, MAX_SKEW, FROM_ZERO, BY_SIZE, ALL_KEYS = range(8)
NEAR, ANTI, EXISTING, SCORED, HARD, SOFT, UNTOUCHED = range(7)
# Columns of ``Counts.slots``.
OFFSET, BY_ROW, PLACES, TOTAL, LOWEST, AT_LOWEST, LENGTH = range(7)
SLOT_COLUMNS = 7
# Where a plugin's scores come from: ``Lines.plan``.
OF_SHAPE, OF_NODE, SCALED, REVERSED, AFFINITY, SPREAD = range(6)
# What a group is refused for, and how many row filters' kinds follow in ``Told.refused``.
SKEWED, UNLABELLED, NOT_NEAR, TOO_NEAR, UNWELCOME = range(5)
REFUSALS = 5


class Shapes(NamedTuple):
    """What follows from requests alone; see ``shapes.Shapes``."""

    amounts: Int64
    columns: Int64
    terms: Int64
    marks: Int32
    cursor: Int64


class Lines(NamedTuple):
    """What is kept of the classes, one line each; see ``pool.Pool``."""

    standing: Int32
    closed: Int32
    fixed: Int32
    entry_group: Int16
    entry_top: Int32
    entry_ties: Int16
    entries: Int16
    form: Int64
    plan: Int64
    raw: Int64
    rules: Int64
    place: Int32
    watch: Int64
    values: Int64
    base: Int32
    size: Int32
    members: Int32
    kind: Int32
    kind_count: Int32
    vectors: Int64
    nonzero: Int64
    cursor: Int64


class Counts(NamedTuple):
    """Counts of pods, and who bumps which; see ``slots.Slots``."""

    slots: Int64
    counts: Int64
    present: Mask
    where: Int32
    first_bump: Int64
    last_bump: Int64
    bump_slot: Int32
    bump_weight: Int64
    logarithms: Float64


class Nodes(NamedTuple):
    """Columns of the snapshot."""

    allocatable: Int64
    requested: Int64
    nonzero_requested: Int64
    allowed_pods: Int64
    pod_count: Int64


class Told(NamedTuple):
    """What was decided, by pod.

    ``numbers``: row, total, ties, margin (-1: nothing was compared), chosen rows, feasible rows,
    plugins (bits) that score all chosen rows alike. ``scores``: weighted (pods, plugins, chosen).
    ``refused``: rows refused for their group, then by kind of row filters' bits.
    """

    numbers: Int32
    chosen: Int32
    scores: Int32
    refused: Int32


compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
inlined = numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")
"""For what loops call for every row: to hand over arrays costs more than the work."""


@inlined
def fit_bits(
    row: int,
    shape: int,
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
    for check in range(columns.shape[1]):
        column = columns[shape, check]
        if column < 0:
            break
        room = allocatable[row, column]
        if amounts[shape, check] > room - requested[row, column]:
            found |= (3 if amounts[shape, check] > room else 1) << (2 * check + 1)
    return found


@inlined
def least_allocated(
    row: int, shape: int, terms: Int64, allocatable: Int64, nonzero_requested: Int64
) -> int:
    """Return NodeResourcesFit's score of cpu and memory; terms: weight, asked, weight, asked."""
    total = 0
    weights = 0
    for column in range(2):
        weight = terms[shape, 2 * column]
        room = allocatable[row, column]
        if weight == 0 or room == 0:
            continue
        used = nonzero_requested[row, column] + terms[shape, 2 * column + 1]
        if used < room:
            total += (room - used) * 100 // room * weight
        weights += weight
    return total // weights if weights else 0


@inlined
def balanced(row: int, shape: int, terms: Int64, allocatable: Int64, requested: Int64) -> int:
    """Return NodeResourcesBalancedAllocation's score of cpu and memory; terms: asked, asked."""
    cpu, memory = allocatable[row, 0], allocatable[row, 1]
    after = 0.0
    before = 0.0
    if cpu != 0 and memory != 0:
        used_cpu, used_memory = requested[row, 0], requested[row, 1]
        a = min(1.0, (used_cpu + terms[shape, BALANCED_ASKED]) / cpu)
        b = min(1.0, (used_memory + terms[shape, BALANCED_ASKED + 1]) / memory)
        after = abs((a - b) / 2)
        a = min(1.0, used_cpu / cpu)
        b = min(1.0, used_memory / memory)
        before = abs((a - b) / 2)
    with_pod = int((1.0 - after) * 100)
    without = int((1.0 - before) * 100)
    return 50 + (50 + with_pod - without) // 2


@inlined
def mark(
    row: int,
    shape: int,
    amounts: Int64,
    columns: Int64,
    terms: Int64,
    marks: Int32,
    allocatable: Int64,
    requested: Int64,
    nonzero_requested: Int64,
    allowed: Int64,
    pod_count: Int64,
) -> None:
    """Say of a row what follows from requests: whether they fit, and weighted scores if so."""
    bits = fit_bits(row, shape, amounts, columns, allocatable, requested, allowed, pod_count)
    marks[shape, row, FIT] = bits
    if bits != 0:
        return
    least = 0
    balance = 0
    if terms[shape, LEAST_WEIGHT] > 0:
        least = least_allocated(row, shape, terms, allocatable, nonzero_requested)
        least *= terms[shape, LEAST_WEIGHT]
    if terms[shape, BALANCED_WEIGHT] > 0:
        balance = balanced(row, shape, terms, allocatable, requested)
        balance *= terms[shape, BALANCED_WEIGHT]
    marks[shape, row, LEAST] = least
    marks[shape, row, BALANCED] = balance
    marks[shape, row, SUM] = least + balance


@compiled
def mark_rows(rows: Int32, shape: int, shapes: Shapes, nodes: Nodes) -> None:
    """Say of rows what follows from requests."""
    for row in rows:
        mark(
            row, shape, shapes.amounts, shapes.columns, shapes.terms, shapes.marks,
            nodes.allocatable, nodes.requested, nodes.nonzero_requested, nodes.allowed_pods,
            nodes.pod_count,
        )  # fmt: skip


@inlined
def enter(
    c: int,
    row: int,
    number: int,
    score: int,
    form: Int64,
    entries: Int16,
    entry_group: Int16,
    entry_top: Int32,
    entry_ties: Int16,
) -> None:
    """Count a row among its block's entries."""
    block = row // BLOCK
    used = entries[c, block]
    for at in range(used):
        if entry_group[c, at, block] == number:
            if score > entry_top[c, at, block]:
                entry_top[c, at, block] = score
                entry_ties[c, at, block] = 1
            elif score == entry_top[c, at, block]:
                entry_ties[c, at, block] += 1
            return
    entry_group[c, used, block] = number
    entry_top[c, used, block] = score
    entry_ties[c, used, block] = 1
    entries[c, block] += 1
    form[c, WIDEST] = max(form[c, WIDEST], used + 1)


@inlined
def leave(
    c: int,
    row: int,
    number: int,
    score: int,
    standing: Int32,
    entries: Int16,
    entry_group: Int16,
    entry_top: Int32,
    entry_ties: Int16,
) -> None:
    """Take a row out of its block's entries; it is CLOSED already."""
    block = row // BLOCK
    last = entries[c, block] - 1
    for at in range(last + 1):
        if entry_group[c, at, block] != number:
            continue
        if score < entry_top[c, at, block]:
            return
        entry_ties[c, at, block] -= 1
        if entry_ties[c, at, block] > 0:
            return
        top = CLOSED
        ties = 0
        end = min((block + 1) * BLOCK, standing.shape[1])
        for other in range(block * BLOCK, end):
            found = standing[c, other]
            top = max(top, found if found & GROUP_BITS == number else CLOSED)
        if top >= 0:
            for other in range(block * BLOCK, end):
                ties += standing[c, other] == top
        if ties > 0:
            entry_top[c, at, block] = top >> SHIFT
            entry_ties[c, at, block] = ties
        else:
            entry_group[c, at, block] = entry_group[c, last, block]
            entry_top[c, at, block] = entry_top[c, last, block]
            entry_ties[c, at, block] = entry_ties[c, last, block]
            entry_group[c, last, block] = 0
            entry_top[c, last, block] = LOW
            entry_ties[c, last, block] = 0
            entries[c, block] -= 1
        return


@compiled
def survey(
    widest: int,
    entry_group: Int16,
    entry_top: Int32,
    entry_ties: Int16,
    offset: Int32,
    highest: Int32,
    ties_in: Int32,
) -> None:
    """Set the highest total of each block and how many rows have it; below 0: none is feasible."""
    highest[:] = -1
    ties_in[:] = 0
    for at in range(widest):
        for block in range(len(highest)):
            total = entry_top[at, block] + offset[entry_group[at, block]]
            ties = np.int32(entry_ties[at, block])
            best, known = highest[block], ties_in[block]
            more = known + ties if total == best else known
            ties_in[block] = ties if total > best else more
            highest[block] = max(best, total)


@inlined
def watched(
    c: int, k: int, row: int, watch: Int64, slots: Int64, counts: Int64, where: Int32
) -> int:
    """Return a count on a row that tells it from others of its base, 0 where it is outside."""
    slot = watch[c, k, 0]
    if where[slots[slot, PLACES], row] < 0:
        return 0
    found = int(counts[slots[slot, OFFSET] + row])
    if watch[c, k, 1]:
        return 1 if found > 0 else 0
    return found


@compiled
def find_group(
    c: int,
    row: int,
    old: int,
    form: Int64,
    watch: Int64,
    values: Int64,
    base: Int32,
    size: Int32,
    members: Int32,
    slots: Int64,
    counts: Int64,
    where: Int32,
    scratch: Int64,
) -> int:
    """Return the group that a row belongs to now, made if need be; -1 where there are too many."""
    watches = form[c, WATCHES]
    for k in range(watches):
        scratch[k] = watched(c, k, row, watch, slots, counts, where)
    vacant = -1
    for number in range(form[c, GROUPS]):
        if members[c, number] == 0:
            if vacant < 0:
                vacant = number
            continue
        if base[c, number] != base[c, old]:
            continue
        same = True
        for k in range(watches):
            if values[c, number, k] != scratch[k]:
                same = False
                break
        if same:
            return number
    if vacant < 0:
        vacant = form[c, GROUPS]
        if vacant == size.shape[1]:
            return -1
        form[c, GROUPS] += 1
    base[c, vacant] = base[c, old]
    for k in range(watches):
        values[c, vacant, k] = scratch[k]
    size[c, vacant] = 0
    members[c, vacant] = 0
    return vacant


@compiled
def find_kind(c: int, bits: int, kind: Int32, kind_count: Int32) -> int:
    """Return the number of a kind of rejection, -1 where there are too many."""
    for number in range(KINDS):
        if kind[c, number] == bits:
            return number
        if kind[c, number] == 0:
            kind[c, number] = bits
            kind_count[c, number] = 0
            return number
    return -1


@compiled
def bump(
    slot: int, row: int, weight: int, slots: Int64, counts: Int64, present: Mask, where: Int32
) -> None:
    """Add a pod's weight on a row to a slot, and keep its total and its lowest count."""
    value = where[slots[slot, PLACES], row]
    if value < 0:
        return
    first = slots[slot, OFFSET]
    at = first + (row if slots[slot, BY_ROW] else value)
    before = counts[at]
    counts[at] = before + weight
    slots[slot, TOTAL] += weight
    if slots[slot, AT_LOWEST] > 0 and before == slots[slot, LOWEST]:
        slots[slot, AT_LOWEST] -= 1
        if slots[slot, AT_LOWEST] == 0:
            lowest = before + weight
            ties = 0
            for other in range(first, first + slots[slot, LENGTH]):
                if present[other] and counts[other] <= lowest:
                    ties = ties + 1 if counts[other] == lowest else 1
                    lowest = counts[other]
            slots[slot, LOWEST] = lowest
            slots[slot, AT_LOWEST] = ties


@compiled
def judge(
    c: int,
    number: int,
    nobody: int,
    form: Int64,
    rules: Int64,
    place: Int32,
    values: Int64,
    base: Int32,
    slots: Int64,
    counts: Int64,
) -> int:
    """Return what a group is refused for, -1 where it passes.

    ``nobody``: whether (1) no pod meets the class's required affinity anywhere.
    """
    of = base[c, number]
    spread = -1
    labelled = True
    present = True
    too_near = False
    unwelcome = False
    for t in range(form[c, RULES]):
        kind = rules[c, t, KIND]
        if kind in (SCORED, SOFT, UNTOUCHED):
            continue
        value = place[c, t, of]
        found = 0
        slot = rules[c, t, SLOT]
        if value >= 0:
            if rules[c, t, WATCH] >= 0:
                found = values[c, number, rules[c, t, WATCH]]
            else:
                found = counts[slots[slot, OFFSET] + value]
        if kind == HARD:
            if spread < 0:
                if value < 0:
                    spread = UNLABELLED
                else:
                    lowest = 0 if rules[c, t, FROM_ZERO] else slots[slot, LOWEST]
                    if found + rules[c, t, MATCHES_SELF] - lowest > rules[c, t, MAX_SKEW]:
                        spread = SKEWED
        elif kind == NEAR:
            if value < 0:
                labelled = False
            elif found <= 0 and not (nobody and rules[c, t, MATCHES_SELF]):
                present = False
        elif kind == ANTI:
            too_near |= found > 0
        else:
            unwelcome |= found > 0
    affinity = -1
    if not labelled or not present:
        affinity = NOT_NEAR
    elif too_near:
        affinity = TOO_NEAR
    elif unwelcome:
        affinity = UNWELCOME
    if form[c, AFFINITY_FIRST]:
        return affinity if affinity >= 0 else spread
    return spread if spread >= 0 else affinity


@compiled
def affinity_scores(
    c: int,
    active: Int32,
    count: int,
    form: Int64,
    rules: Int64,
    place: Int32,
    values: Int64,
    base: Int32,
    slots: Int64,
    counts: Int64,
    found: Int64,
) -> None:
    """Set InterPodAffinity's normalised scores of the active groups."""
    lowest = 0
    highest = 0
    for i in range(count):
        number = active[i]
        of = base[c, number]
        total = 0
        for t in range(form[c, RULES]):
            if rules[c, t, KIND] != SCORED or place[c, t, of] < 0:
                continue
            if rules[c, t, WATCH] >= 0:
                total += values[c, number, rules[c, t, WATCH]]
            else:
                total += counts[slots[rules[c, t, SLOT], OFFSET] + place[c, t, of]]
        found[number] = total
        lowest = total if i == 0 else min(lowest, total)
        highest = total if i == 0 else max(highest, total)
    for i in range(count):
        number = active[i]
        if lowest == highest:
            found[number] = 0
        else:
            share = float(found[number] - lowest) / float(highest - lowest)
            found[number] = int(100.0 * share)


@compiled
def spread_size(
    c: int,
    t: int,
    active: Int32,
    count: int,
    rules: Int64,
    place: Int32,
    base: Int32,
    size: Int32,
    ignored: Mask,
    seen: Int64,
    stamp: int,
) -> int:
    """Return how many domains a soft constraint spans, over groups that are not ignored."""
    domains = 0
    outside = 0
    for i in range(count):
        number = active[i]
        if ignored[number]:
            continue
        value = place[c, t, base[c, number]]
        if rules[c, t, BY_SIZE]:
            domains += size[c, number]
        elif value < 0:
            outside = 1
        elif rules[c, t, WATCH] >= 0:
            domains += size[c, number]
        elif seen[value] != stamp:
            seen[value] = stamp
            domains += 1
    return domains + outside


@compiled
def spread_scores(
    c: int,
    active: Int32,
    count: int,
    form: Int64,
    rules: Int64,
    place: Int32,
    values: Int64,
    base: Int32,
    size: Int32,
    slots: Int64,
    counts: Int64,
    logarithms: Float64,
    ignored: Mask,
    seen: Int64,
    stamp: int,
    weights: Float64,
    found: Int64,
) -> int:
    """Set PodTopologySpread's normalised scores of the active groups; return the next stamp."""
    for i in range(count):
        number = active[i]
        ignored[number] = False
        for t in range(form[c, RULES]):
            if rules[c, t, KIND] == SOFT and rules[c, t, ALL_KEYS]:
                ignored[number] |= place[c, t, base[c, number]] < 0
    for t in range(form[c, RULES]):
        if rules[c, t, KIND] == SOFT:
            stamp += 1
            domains = spread_size(
                c, t, active, count, rules, place, base, size, ignored, seen, stamp
            )
            weights[t] = logarithms[domains + 2]
    lowest = 0
    highest = 0
    taking_part = 0
    for i in range(count):
        number = active[i]
        if ignored[number]:
            continue
        score = 0.0
        of = base[c, number]
        for t in range(form[c, RULES]):
            if rules[c, t, KIND] != SOFT or place[c, t, of] < 0:
                continue
            if rules[c, t, WATCH] >= 0:
                here = values[c, number, rules[c, t, WATCH]]
            else:
                here = counts[slots[rules[c, t, SLOT], OFFSET] + place[c, t, of]]
            score += float(here) * weights[t] + float(rules[c, t, MAX_SKEW] - 1)
        total = int(score + 0.5)
        found[number] = total
        lowest = total if taking_part == 0 else min(lowest, total)
        highest = total if taking_part == 0 else max(highest, total)
        taking_part += 1
    for i in range(count):
        number = active[i]
        if ignored[number]:
            found[number] = 0
        elif highest == 0:
            found[number] = 100
        else:
            found[number] = 100 * (highest + lowest - found[number]) // highest
    return stamp


@compiled
def scaled_scores(
    c: int,
    plugin: int,
    in_reverse: int,
    active: Int32,
    count: int,
    raw: Int64,
    base: Int32,
    found: Int64,
) -> None:
    """Set the scores of a plugin that looks at nodes alone, scaled over the active groups."""
    highest = 0
    for i in range(count):
        highest = max(highest, raw[c, plugin, base[c, active[i]]])
    for i in range(count):
        number = active[i]
        score = raw[c, plugin, base[c, number]]
        if highest > 0:
            score = 100 * score // highest
            found[number] = 100 - score if in_reverse else score
        else:
            found[number] = 100 if in_reverse else score


@compiled
def index(c: int, lines: Lines) -> None:
    """Make the entries of a line anew."""
    lines.entries[c] = 0
    lines.entry_group[c] = 0
    lines.entry_top[c] = LOW
    lines.entry_ties[c] = 0
    lines.form[c, WIDEST] = 0
    for row in range(lines.standing.shape[1]):
        stands = int(lines.standing[c, row])
        if stands >= 0:
            enter(
                c, row, stands & GROUP_BITS, stands >> SHIFT, lines.form, lines.entries,
                lines.entry_group, lines.entry_top, lines.entry_ties,
            )  # fmt: skip


@compiled
def judge_rows(c: int, lines: Lines, shapes: Shapes, counts: Counts) -> None:
    """Set standing and bits of all rows of a line, which are in no group yet."""
    slot = lines.form[c, TAKEN_SLOT]
    shape = lines.form[c, SHAPE]
    for row in range(lines.standing.shape[1]):
        after = int(lines.closed[c, row, AFTER])
        lines.standing[c, row] = OUTSIDE
        lines.closed[c, row, BITS] = 0
        if after < 0:
            continue
        bits = int(shapes.marks[shape, row, FIT])
        if slot >= 0 and counts.counts[counts.slots[slot, OFFSET] + row] > 0:
            bits = TAKEN
        elif bits == 0:
            bits = -after
        lines.closed[c, row, BITS] = bits
        lines.standing[c, row] = CLOSED
        if bits == 0:
            score = int(shapes.marks[shape, row, SUM])
            for number in range(lines.form[c, FIXED]):
                score += lines.fixed[c, number, row]
            lines.standing[c, row] = score << SHIFT


@compiled
def decide(
    classes: Int32,
    high: Int64,
    low: Int64,
    lines: Lines,
    shapes: Shapes,
    counted: Counts,
    nodes: Nodes,
    log: Int32,
    log_start: int,
    filled: int,
    told: Told,
) -> int:
    """Decide for pods in order and account for each; return for how many.

    Stops before a pod for which no row is feasible, whose class has more groups or kinds of
    rejections than there is room for (``STUCK``), or starts to take a plugin's scores into account
    (UNTOUCHED). ``classes``: their lines. ``high`` and ``low``: the halves of 64 random bits for
    each pod. ``log``: the snapshot's, ``filled`` entries long, which begins at ``log_start``.
    """
    standing, closed, fixed = lines.standing, lines.closed, lines.fixed
    form, plan, raw = lines.form, lines.plan, lines.raw
    entry_group, entry_top, entry_ties, entries = (
        lines.entry_group, lines.entry_top, lines.entry_ties, lines.entries,
    )  # fmt: skip
    amounts, columns, terms, marks, marked = (
        shapes.amounts, shapes.columns, shapes.terms, shapes.marks, shapes.cursor,
    )  # fmt: skip
    rules, place, watch, values = lines.rules, lines.place, lines.watch, lines.values
    base, size, members = lines.base, lines.size, lines.members
    kind, kind_count, cursor = lines.kind, lines.kind_count, lines.cursor
    vectors, nonzero = lines.vectors, lines.nonzero
    slots, counts, present, where = (
        counted.slots, counted.counts, counted.present, counted.where,
    )  # fmt: skip
    allocatable, requested, nonzero_requested = (
        nodes.allocatable, nodes.requested, nodes.nonzero_requested,
    )  # fmt: skip
    allowed, pod_count = nodes.allowed_pods, nodes.pod_count
    rows = standing.shape[1]
    blocks = entries.shape[1]
    most = size.shape[1]
    highest = np.empty(blocks, np.int32)
    ties_in = np.empty(blocks, np.int32)
    best = np.empty(KEPT, np.int32)
    scratch = np.empty(max(watch.shape[1], 1), np.int64)
    active = np.empty(most, np.int32)
    offset = np.empty(most, np.int32)
    found = np.empty(most, np.int64)
    weighted = np.empty((plan.shape[1], most), np.int32)
    ignored = np.zeros(most, np.bool_)
    weights = np.zeros(rules.shape[1], np.float64)
    longest = 1
    for slot in range(slots.shape[0]):
        if not slots[slot, BY_ROW]:
            longest = max(longest, slots[slot, LENGTH])
    seen = np.zeros(longest, np.int64)
    nothing = int(np.int64(0))  # no literal, for which what takes it would be compiled as well
    stamp = nothing
    for pod in range(len(classes)):
        c = int(classes[pod])
        shape, fixed_lines, plugins = form[c, SHAPE], form[c, FIXED], form[c, PLUGINS]
        taken, watches = form[c, TAKEN_SLOT], form[c, WATCHES]
        # Follow what was touched: for its requests, then since the class was last asked.
        for entry in range(marked[shape] - log_start, filled + pod):
            mark(
                log[entry], shape, amounts, columns, terms, marks, allocatable, requested,
                nonzero_requested, allowed, pod_count,
            )  # fmt: skip
        marked[shape] = log_start + filled + pod
        for entry in range(cursor[c] - log_start, filled + pod):
            row = log[entry]
            stands = int(standing[c, row])
            if stands == OUTSIDE:
                continue
            if stands >= 0:
                old, old_group, before, after = stands >> SHIFT, stands & GROUP_BITS, 0, 0
            else:
                old, old_group = LOW, int(closed[c, row, GROUP])
                before, after = int(closed[c, row, BITS]), int(closed[c, row, AFTER])
            number = old_group
            for k in range(watches):
                here = watched(c, k, row, watch, slots, counts, where)
                if here != values[c, old_group, k]:
                    number = -1
                    break
            if number < 0:
                number = find_group(
                    c, row, old_group, form, watch, values, base, size, members, slots, counts,
                    where, scratch,
                )  # fmt: skip
            now = int(marks[shape, row, FIT])
            if taken >= 0 and counts[slots[taken, OFFSET] + row] > 0:
                now = TAKEN
            elif now == 0:
                now = -after
            if number < 0 or (
                now != 0 and now != before and find_kind(c, now, kind, kind_count) < 0
            ):
                form[c, STUCK] = 1
                cursor[c] = log_start + entry
                return pod
            if now != before:
                if before != 0:
                    kind_count[c, find_kind(c, before, kind, kind_count)] -= 1
                if now != 0:
                    kind_count[c, find_kind(c, now, kind, kind_count)] += 1
                closed[c, row, BITS] = now
            score = LOW
            if now == 0:
                score = int(marks[shape, row, SUM])
                for line in range(fixed_lines):
                    score += fixed[c, line, row]
            if score == old and number == old_group:
                continue
            standing[c, row] = CLOSED
            if old != LOW:
                leave(c, row, old_group, old, standing, entries, entry_group, entry_top, entry_ties)
                size[c, old_group] -= 1
            if number != old_group:
                members[c, old_group] -= 1
                members[c, number] += 1
            if score == LOW:
                closed[c, row, GROUP] = number
            else:
                standing[c, row] = score << SHIFT | number
                enter(c, row, number, score, form, entries, entry_group, entry_top, entry_ties)
                size[c, number] += 1
        cursor[c] = log_start + filled + pod

        # Which groups pass, and what they get.
        nobody = nothing + 1
        for t in range(form[c, RULES]):
            total = slots[rules[c, t, SLOT], TOTAL]
            if rules[c, t, KIND] == NEAR and total != 0:
                nobody = nothing
            if rules[c, t, KIND] == UNTOUCHED and total != 0:
                form[c, STUCK] = 1
                return pod
        refused = told.refused[pod]
        refused[:REFUSALS] = 0
        feasible = 0
        count = nothing
        for number in range(form[c, GROUPS]):
            offset[number] = LOW
            if size[c, number] == 0:
                continue
            reason = judge(c, number, nobody, form, rules, place, values, base, slots, counts)
            if reason >= 0:
                refused[reason] += size[c, number]
                continue
            offset[number] = 0
            active[count] = number
            count += 1
            feasible += size[c, number]
        if feasible == 0:
            return pod
        if feasible > 1:
            for plugin in range(plugins):
                source = plan[c, plugin, 0]
                if source in (OF_SHAPE, OF_NODE):
                    continue
                if source == AFFINITY:
                    affinity_scores(
                        c, active, count, form, rules, place, values, base, slots, counts, found
                    )
                elif source == SPREAD:
                    stamp = spread_scores(
                        c, active, count, form, rules, place, values, base, size, slots, counts,
                        counted.logarithms, ignored, seen, stamp, weights, found,
                    )  # fmt: skip
                else:
                    scaled_scores(
                        c, plugin, int(source == REVERSED), active, count, raw, base, found
                    )
                for i in range(count):
                    number = active[i]
                    weighted[plugin, number] = found[number] * plan[c, plugin, 2]
                    offset[number] += weighted[plugin, number]

        # The highest total, block by block; then the blocks that have it.
        survey(
            form[c, WIDEST], entry_group[c], entry_top[c], entry_ties[c], offset, highest, ties_in
        )
        top = 0
        for block in range(blocks):
            top = max(top, highest[block])
        ties = 0
        for block in range(blocks):
            if highest[block] == top:
                ties += ties_in[block]
        left = (high[pod] * ties + ((low[pod] * ties) >> 32)) >> 32
        winner = -1
        for block in range(blocks):
            if highest[block] != top:
                continue
            if left >= ties_in[block]:
                left -= ties_in[block]
                continue
            for row in range(block * BLOCK, min((block + 1) * BLOCK, rows)):
                stands = int(standing[c, row])
                if stands >= 0 and (stands >> SHIFT) + offset[stands & GROUP_BITS] == top:
                    if left == 0:
                        winner = row
                        break
                    left -= 1
            break
        margin = 0
        kept = 0
        picks = told.chosen[pod]
        if feasible == 1:
            top = 0
            margin = -1
        elif ties >= KEPT:
            for block in range(blocks):
                if highest[block] != top:
                    continue
                for row in range(block * BLOCK, min((block + 1) * BLOCK, rows)):
                    stands = int(standing[c, row])
                    if stands >= 0 and (stands >> SHIFT) + offset[stands & GROUP_BITS] == top:
                        picks[kept] = row
                        kept += 1
                        if kept == KEPT:
                            break
                if kept == KEPT:
                    break
            if picks[KEPT - 1] < winner:
                picks[KEPT - 1] = winner
        else:
            wanted = min(KEPT, feasible)
            for block in range(blocks):
                if ties_in[block] == 0 or (kept == wanted and highest[block] <= best[kept - 1]):
                    continue
                for row in range(block * BLOCK, min((block + 1) * BLOCK, rows)):
                    stands = int(standing[c, row])
                    if stands < 0 or offset[stands & GROUP_BITS] == LOW:
                        continue
                    total = (stands >> SHIFT) + offset[stands & GROUP_BITS]
                    if kept == wanted and total <= best[kept - 1]:
                        continue
                    if kept < wanted:
                        kept += 1
                    at = kept - 1
                    while at > 0 and best[at - 1] < total:
                        best[at] = best[at - 1]
                        picks[at] = picks[at - 1]
                        at -= 1
                    best[at] = total
                    picks[at] = row
            if ties == 1:
                margin = top - best[1]
            for last in range(1, kept):
                row = picks[last]
                at = last
                while at > 0 and picks[at - 1] > row:
                    picks[at] = picks[at - 1]
                    at -= 1
                picks[at] = row
        alike = 0
        for plugin in range(plugins):
            source, line = plan[c, plugin, 0], plan[c, plugin, 1]
            same = True
            for at in range(kept):
                row = picks[at]
                if source == OF_SHAPE:
                    score = marks[shape, row, line]
                elif source == OF_NODE:
                    score = fixed[c, line, row]
                else:
                    score = weighted[plugin, standing[c, row] & GROUP_BITS]
                told.scores[pod, plugin, at] = score
                same &= score == told.scores[pod, plugin, 0]
            if same:
                alike |= 1 << plugin
        numbers = told.numbers[pod]
        numbers[0] = winner
        numbers[1] = top
        numbers[2] = ties
        numbers[3] = margin
        numbers[4] = kept
        numbers[5] = feasible
        numbers[6] = alike
        for number in range(KINDS):
            refused[REFUSALS + number] = kind_count[c, number]

        # Assume it.
        for column in range(vectors.shape[1]):
            requested[winner, column] += vectors[c, column]
        nonzero_requested[winner, 0] += nonzero[c, 0]
        nonzero_requested[winner, 1] += nonzero[c, 1]
        pod_count[winner] += 1
        log[filled + pod] = winner
        for at in range(counted.first_bump[c], counted.last_bump[c]):
            bump(
                counted.bump_slot[at], winner, counted.bump_weight[at], slots, counts, present,
                where,
            )  # fmt: skip
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

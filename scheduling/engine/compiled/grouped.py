"""The loops of ``engine.runs``.

What can be read instead: ``class_cache.ClassState`` does the same with NumPy, and a property test
holds both equal. Integer divisions are of numbers that are not negative; floating point as in the
plugins, term by term.

A class's rows fall into groups, and a row's total is its own score plus its group's. Rows come in
blocks of 128; of each group in a block an *entry* knows the highest score of a row and how many
rows have it. So a decision looks at groups, then at entries, then at the rows of a few blocks.
"""

from typing import NamedTuple

import numpy as np

from scheduling.engine.compiled.caching import inlined, inner, outer
from scheduling.engine.compiled.shared import (
    KEPT,
    LOW,
    Nodes,
    account,
    balanced,
    draw_below,
    fit_bits,
    least_allocated,
    picker,
    summit,
)
from scheduling.framework.arrays import Float64, Int16, Int32, Int64, Mask

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


class Terms(NamedTuple):
    """What groups are judged and scored by: of ``Lines`` and ``Counts`` what that takes.

    A tuple is handed over field by field: to hand over all of them costs more than to judge.
    """

    form: Int64
    rules: Int64
    place: Int32
    values: Int64
    base: Int32
    size: Int32
    slots: Int64
    counts: Int64


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


@inlined
def mark(row: int, shape: int, shapes: Shapes, nodes: Nodes) -> None:
    """Say of a row what follows from requests: whether they fit, and weighted scores if so."""
    marks, terms = shapes.marks, shapes.terms
    bits = fit_bits(row, shapes.amounts[shape], shapes.columns[shape], nodes, None)
    marks[shape, row, FIT] = bits
    if bits != 0:
        return
    least = 0
    balance = 0
    if terms[shape, LEAST_WEIGHT] > 0:
        least = least_allocated(
            row, terms[shape, 0], terms[shape, 1], terms[shape, 2], terms[shape, 3], nodes
        )
        least *= terms[shape, LEAST_WEIGHT]
    if terms[shape, BALANCED_WEIGHT] > 0:
        balance = balanced(
            row, terms[shape, BALANCED_ASKED], terms[shape, BALANCED_ASKED + 1], nodes
        )
        balance *= terms[shape, BALANCED_WEIGHT]
    marks[shape, row, LEAST] = least
    marks[shape, row, BALANCED] = balance
    marks[shape, row, SUM] = least + balance


@outer
def mark_rows(rows: Int32, shape: int, shapes: Shapes, nodes: Nodes) -> None:
    """Say of rows what follows from requests."""
    for row in rows:
        mark(row, shape, shapes, nodes)


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


@inner
def survey(
    widest: int,
    entry_group: Int16,
    entry_top: Int32,
    entry_ties: Int16,
    offset: Int32,
    highest: Int32,
    tied: Int32,
) -> None:
    """Set the highest total of each block and how many rows have it."""
    highest[:] = LOW
    tied[:] = 0
    for at in range(widest):
        for block in range(len(highest)):
            total = entry_top[at, block] + offset[entry_group[at, block]]
            ties = np.int32(entry_ties[at, block])
            best, known = highest[block], tied[block]
            more = known + ties if total == best else known
            tied[block] = ties if total > best else more
            highest[block] = max(best, total)


@inlined
def total_of(row: int, source: tuple[Int32, Int32]) -> int:
    """Return the total of a row; ``source``: standing, offsets of groups."""
    stands = int(source[0][row])
    return (stands >> SHIFT) + source[1][stands & GROUP_BITS] if stands >= 0 else LOW


pick = picker(total_of, BLOCK)


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


@inner
def find_group(
    c: int,
    row: int,
    old: int,
    watch: Int64,
    where: Int32,
    members: Int32,
    scratch: Int64,
    terms: Terms,
) -> int:
    """Return the group that a row belongs to now, made if need be; -1 where there are too many."""
    watches = terms.form[c, WATCHES]
    for k in range(watches):
        scratch[k] = watched(c, k, row, watch, terms.slots, terms.counts, where)
    vacant = -1
    for number in range(terms.form[c, GROUPS]):
        if members[c, number] == 0:
            if vacant < 0:
                vacant = number
            continue
        if terms.base[c, number] != terms.base[c, old]:
            continue
        same = True
        for k in range(watches):
            if terms.values[c, number, k] != scratch[k]:
                same = False
                break
        if same:
            return number
    if vacant < 0:
        vacant = terms.form[c, GROUPS]
        if vacant == terms.size.shape[1]:
            return -1
        terms.form[c, GROUPS] += 1
    terms.base[c, vacant] = terms.base[c, old]
    for k in range(watches):
        terms.values[c, vacant, k] = scratch[k]
    terms.size[c, vacant] = 0
    members[c, vacant] = 0
    return vacant


@inlined
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


@inner
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


@inlined
def count_at(c: int, t: int, number: int, value: int, terms: Terms) -> int:
    """Return what a rule counts for a group, whose nodes have a label ``value``."""
    if terms.rules[c, t, WATCH] >= 0:
        return int(terms.values[c, number, terms.rules[c, t, WATCH]])
    return int(terms.counts[terms.slots[terms.rules[c, t, SLOT], OFFSET] + value])


@inner
def judge(c: int, number: int, nobody: int, terms: Terms) -> int:
    """Return what a group is refused for, -1 where it passes.

    ``nobody``: whether (1) no pod meets the class's required affinity anywhere.
    """
    of = terms.base[c, number]
    spread = -1
    labelled = True
    present = True
    too_near = False
    unwelcome = False
    for t in range(terms.form[c, RULES]):
        kind = terms.rules[c, t, KIND]
        if kind in (SCORED, SOFT, UNTOUCHED):
            continue
        value = terms.place[c, t, of]
        found = 0
        if value >= 0:
            found = count_at(c, t, number, value, terms)
        if kind == HARD:
            if spread < 0:
                if value < 0:
                    spread = UNLABELLED
                else:
                    lowest = 0
                    if not terms.rules[c, t, FROM_ZERO]:
                        lowest = terms.slots[terms.rules[c, t, SLOT], LOWEST]
                    if (
                        found + terms.rules[c, t, MATCHES_SELF] - lowest
                        > terms.rules[c, t, MAX_SKEW]
                    ):
                        spread = SKEWED
        elif kind == NEAR:
            if value < 0:
                labelled = False
            elif found <= 0 and not (nobody and terms.rules[c, t, MATCHES_SELF]):
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
    if terms.form[c, AFFINITY_FIRST]:
        return affinity if affinity >= 0 else spread
    return spread if spread >= 0 else affinity


@inner
def affinity_scores(c: int, active: Int32, count: int, found: Int64, terms: Terms) -> None:
    """Set InterPodAffinity's normalised scores of the active groups."""
    lowest = 0
    highest = 0
    for i in range(count):
        number = active[i]
        of = terms.base[c, number]
        total = 0
        for t in range(terms.form[c, RULES]):
            if terms.rules[c, t, KIND] != SCORED or terms.place[c, t, of] < 0:
                continue
            total += count_at(c, t, number, terms.place[c, t, of], terms)
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


@inner
def spread_size(
    c: int, t: int, active: Int32, count: int, ignored: Mask, seen: Int64, stamp: int, terms: Terms
) -> int:
    """Return how many domains a soft constraint spans, over groups that are not ignored."""
    domains = 0
    outside = 0
    for i in range(count):
        number = active[i]
        if ignored[number]:
            continue
        value = terms.place[c, t, terms.base[c, number]]
        if terms.rules[c, t, BY_SIZE]:
            domains += terms.size[c, number]
        elif value < 0:
            outside = 1
        elif terms.rules[c, t, WATCH] >= 0:
            domains += terms.size[c, number]
        elif seen[value] != stamp:
            seen[value] = stamp
            domains += 1
    return domains + outside


@inner
def spread_scores(
    c: int,
    active: Int32,
    count: int,
    ignored: Mask,
    seen: Int64,
    stamp: int,
    weights: Float64,
    logarithms: Float64,
    found: Int64,
    terms: Terms,
) -> int:
    """Set PodTopologySpread's normalised scores of the active groups; return the next stamp."""
    for i in range(count):
        number = active[i]
        ignored[number] = False
        for t in range(terms.form[c, RULES]):
            if terms.rules[c, t, KIND] == SOFT and terms.rules[c, t, ALL_KEYS]:
                ignored[number] |= terms.place[c, t, terms.base[c, number]] < 0
    for t in range(terms.form[c, RULES]):
        if terms.rules[c, t, KIND] == SOFT:
            stamp += 1
            domains = spread_size(c, t, active, count, ignored, seen, stamp, terms)
            weights[t] = logarithms[domains + 2]
    lowest = 0
    highest = 0
    taking_part = 0
    for i in range(count):
        number = active[i]
        if ignored[number]:
            continue
        score = 0.0
        of = terms.base[c, number]
        for t in range(terms.form[c, RULES]):
            if terms.rules[c, t, KIND] != SOFT or terms.place[c, t, of] < 0:
                continue
            here = count_at(c, t, number, terms.place[c, t, of], terms)
            score += float(here) * weights[t] + float(terms.rules[c, t, MAX_SKEW] - 1)
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


@inner
def scaled_scores(
    c: int, plugin: int, in_reverse: int, active: Int32, count: int, found: Int64, lines: Lines
) -> None:
    """Set the scores of a plugin that looks at nodes alone, scaled over the active groups."""
    highest = 0
    for i in range(count):
        highest = max(highest, lines.raw[c, plugin, lines.base[c, active[i]]])
    for i in range(count):
        number = active[i]
        score = lines.raw[c, plugin, lines.base[c, number]]
        if highest > 0:
            score = 100 * score // highest
            found[number] = 100 - score if in_reverse else score
        else:
            found[number] = 100 if in_reverse else score


@outer
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


@outer
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


@outer
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
    form, plan, rules, values = lines.form, lines.plan, lines.rules, lines.values
    size, members, cursor = lines.size, lines.members, lines.cursor
    kind, kind_count = lines.kind, lines.kind_count
    marks, marked = shapes.marks, shapes.cursor
    entry_group, entry_top, entry_ties, entries = (
        lines.entry_group, lines.entry_top, lines.entry_ties, lines.entries,
    )  # fmt: skip
    watch, slots, counts = lines.watch, counted.slots, counted.counts
    present, where = counted.present, counted.where
    terms = Terms(form, rules, lines.place, values, lines.base, size, slots, counts)
    most = size.shape[1]
    highest = np.empty(entries.shape[1], np.int32)
    tied = np.empty(entries.shape[1], np.int32)
    best = np.empty(KEPT, np.int32)
    scratch = np.empty(max(lines.watch.shape[1], 1), np.int64)
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
            mark(log[entry], shape, shapes, nodes)
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
                number = find_group(c, row, old_group, watch, where, members, scratch, terms)
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
            reason = judge(c, number, nobody, terms)
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
                    affinity_scores(c, active, count, found, terms)
                elif source == SPREAD:
                    stamp = spread_scores(
                        c,
                        active,
                        count,
                        ignored,
                        seen,
                        stamp,
                        weights,
                        counted.logarithms,
                        found,
                        terms,
                    )
                else:
                    scaled_scores(c, plugin, int(source == REVERSED), active, count, found, lines)
                for i in range(count):
                    number = active[i]
                    weighted[plugin, number] = found[number] * plan[c, plugin, 2]
                    offset[number] += weighted[plugin, number]

        # The highest total, block by block; then the blocks that have it.
        survey(form[c, WIDEST], entry_group[c], entry_top[c], entry_ties[c], offset, highest, tied)
        top, ties = summit(highest, tied)
        left = draw_below(high[pod], low[pod], ties)
        picks = told.chosen[pod]
        winner, margin, kept = pick(
            (standing[c], offset),
            standing.shape[1],
            highest,
            tied,
            top,
            ties,
            left,
            feasible,
            best,
            picks,
        )
        if feasible == 1:
            top = nothing
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
        account(winner, lines.vectors[c], lines.nonzero[c], nodes)
        log[filled + pod] = winner
        for at in range(counted.first_bump[c], counted.last_bump[c]):
            bump(
                counted.bump_slot[at], winner, counted.bump_weight[at], slots, counts, present,
                where,
            )  # fmt: skip
    return len(classes)

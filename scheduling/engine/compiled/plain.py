"""The loops of ``engine.plain``, on blocks of 64 rows.

``Mirror.fields`` float64 (blocks, 9 * 64) holds what scores need of the nodes, field by field
within a block, so that the loop over a block is vector instructions alone: it has no branch, no
gather and no integer division. Quotients that are rounded down are products with a reciprocal, half
a unit of the numerator above the border, where the error of floating point cannot reach the next
integer: that needs fewer than 2**41 units of a resource on a node. Nodes with more, or with none,
and nodes that pods are nominated to (*guests*, which count when it is asked whether there is room)
are *odd* and judged one by one with integers. Quotients that stay fractions are divided as the
plugin divides them. What can be read instead is ``class_cache``; a property test holds both equal.
"""

from typing import NamedTuple

import numpy as np

from scheduling.engine.compiled.caching import inlined, inner, outer
from scheduling.engine.compiled.grouped import (
    AFFINITY,
    LENGTH,
    NEAR,
    PLUGINS,
    REVERSED,
    RULES,
    SLOT,
    SPREAD,
    TOTAL,
    UNTOUCHED,
    Counts,
    Terms,
    affinity_scores,
    bump,
    judge,
    spread_scores,
)
from scheduling.engine.compiled.grouped import GROUPS as GROUPS_OF
from scheduling.engine.compiled.grouped import KIND as RULE_KIND
from scheduling.engine.compiled.shared import (
    KEPT,
    LOW,
    Guests,
    Nodes,
    account,
    balanced,
    draw_below,
    evenness,
    fit_bits,
    least_allocated,
    picker,
    summit,
)
from scheduling.framework.arrays import Float64, Int8, Int32, Int64, Mask, UInt64

BLOCK = 64
FIELDS = 9
KINDS = 16
FINISHED, OTHER_GROUPS, NOWHERE, MANY_KINDS, STALE = 0, 1, 2, 3, 4
EXCEPTIONS = 192
"""So many rows of a class may differ from their group."""
WATCHES = 3
"""So many counts by row may tell them apart."""
GROUPS = 64

_LARGE = 2**41
_HUGE = 2**51
_NO_PLACE = -(2**20)
_REBUILD = 12
"""So many rows are scored anew, in vectors, in the time in which one changed row is followed."""


class Mirror(NamedTuple):
    """What scores need of the nodes; ``odd``: rows without it, ``odd_in``: how many in a block."""

    fields: Float64
    odd: Mask
    odd_in: Int32


class Lines(NamedTuple):
    """See ``engine.plain.Lines``."""

    total: Int32
    bits: Int32
    highest: Int32
    tied: Int32
    kinds: Int32
    feasible: Int64
    cursor: Int64
    amounts: Int64
    columns: Int64
    more: Mask
    terms: Float64
    weights: Int32
    asked: Int64
    vectors: Int64
    nonzero: Int64
    base_of: Int32
    mask_of: UInt64
    plan_of: Int32
    witness: Int32
    entry_top: Int32
    entry_ties: Int32
    group_size: Int32


class Plans(NamedTuple):
    """See ``engine.plain.Plans``."""

    bases: Int32
    group: Int8
    group_count: Int32
    hint: Int32
    open_rows: Int64
    keyed: Int32


class Programs(NamedTuple):
    """The rules of classes that look at pods; see ``engine.programs.Programs``.

    ``of_pod`` and ``who`` are by pod of the run: its class's program, -1 for none, and its class's
    place among those of the run, which is the index of ``first_mark`` and ``last_mark``.
    """

    of_pod: Int32
    who: Int32
    exceptions: Int32
    row: Int32
    plan: Int64
    raw: Int64
    full: Mask
    first_mark: Int64
    last_mark: Int64
    mark_program: Int32
    mark_watch: Int32
    mark_weight: Int64


class Pins(NamedTuple):
    """Pods that one node alone can hold: ``of_pod`` is the pod's line of the others, -1 for none.

    ``row``: the node. ``amounts`` and ``columns``: what must be free. ``vectors`` and ``nonzero``:
    what is accounted for.
    """

    of_pod: Int32
    row: Int64
    amounts: Int64
    columns: Int64
    vectors: Int64
    nonzero: Int64


class Work(NamedTuple):
    """Room to judge the groups of a class in."""

    active: Int32
    offset: Int32
    found: Int64
    weighted: Int32
    ignored: Mask
    seen: Int64
    weights: Float64


class Told(NamedTuple):
    """What was decided, by pod; see ``engine.plain_run.PlainRun``."""

    numbers: Int32
    chosen: Int32
    scores: Int32
    kinds: Int32
    masks: UInt64
    refused: Int32
    term_scores: Int32


@inlined
def mirror_row(row: int, mirror: Mirror, nodes: Nodes, guests: Guests) -> None:
    """Bring a row of the mirror up to date."""
    block, at = row // 64, row % 64
    cpu, memory = nodes.allocatable[row, 0], nodes.allocatable[row, 1]
    used_cpu, used_memory = nodes.requested[row, 0], nodes.requested[row, 1]
    nonzero_cpu, nonzero_memory = nodes.nonzero_requested[row, 0], nodes.nonzero_requested[row, 1]
    is_odd = (
        guests.pods[row] > 0
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
    fields = mirror.fields[block]
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
    before = evenness(min(1.0, used_cpu / cpu), min(1.0, used_memory / memory))
    has_place = nodes.pod_count[row] + 1 <= nodes.allowed_pods[row]
    fields[512 + at] = 50 - before if has_place else _NO_PLACE


@outer
def mirror_rows(rows: Int32, mirror: Mirror, nodes: Nodes, guests: Guests) -> None:
    """Bring rows of the mirror up to date."""
    for row in rows:
        mirror_row(row, mirror, nodes, guests)


@inlined
def scores_at(block: int, at: int, fields: Float64, terms: Float64) -> tuple[int, int]:
    """Return what ``row_scores`` does of a row that is not odd."""
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
    row: int, terms: Float64, asked: Int64, mirror: Mirror, nodes: Nodes
) -> tuple[int, int]:
    """Return the scores of NodeResourcesFit and NodeResourcesBalancedAllocation, not weighted."""
    if not mirror.odd[row]:
        return scores_at(row // 64, row % 64, mirror.fields, terms)
    least = least_allocated(row, int(terms[6]), asked[0], int(terms[7]), asked[1], nodes)
    return least, balanced(row, asked[2], asked[3], nodes)


@inner
def count_of(top: int, totals: Int32) -> int:
    """Return how many totals of a block are ``top``."""
    ties = np.int32(0)
    for at in range(64):
        ties += np.int32(totals[at] == top)
    return ties  # type: ignore[return-value]


@inner
def score_block(
    fields: Float64, base: Int32, terms: Float64, least: int, balanced: int, totals: Int32
) -> tuple[int, int]:
    """Set the totals of a block's rows that are not odd; return the highest, and how many have it.

    ``terms``: see ``engine.plain.Lines``.
    """
    top = np.int32(LOW)
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
        top = max(top, totals[at])
    return top, count_of(top, totals)  # type: ignore[return-value, arg-type]


@inner
def need(totals: Int32, amount: int, allocatable: Int64, requested: Int64) -> None:
    """Rule out rows of a block where less than ``amount`` is free."""
    for at in range(len(allocatable)):
        short = amount > allocatable[at] - requested[at]
        totals[at] = LOW if short else totals[at]


@inlined
def total_of(row: int, totals: Int32) -> int:
    """Return the total of a row."""
    return totals[row]  # type: ignore[no-any-return]


pick = picker(total_of, BLOCK)


@inlined
def total_in_group(row: int, source: tuple[Int32, Int8, Int32, Int32, Int32]) -> int:
    """Return the total of a row; ``source``: totals, groups, offsets, patched blocks, patches."""
    patch = source[3][row // 64]
    found = source[0][row]
    if patch >= 0:
        found = source[4][patch, row % 64]
    elif found != LOW:
        found += source[2][source[1][row]]
    return found  # type: ignore[no-any-return]


pick_in_groups = picker(total_in_group, BLOCK)


@inner
def block_top(totals: Int32) -> tuple[int, int]:
    """Return the highest total of a block, and how many rows have it."""
    top = totals[0]
    for at in range(64):
        top = max(top, totals[at])
    return top, count_of(top, totals)


@inner
def count_feasible(totals: Int32) -> int:
    """Return how many totals are of feasible rows."""
    found = np.int32(0)
    for at in range(len(totals)):
        found += np.int32(totals[at] != LOW)
    return found  # type: ignore[return-value]


@inner
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


@inner
def top_of_group(totals: Int32, of: Int8, number: int) -> tuple[int, int]:
    """Return the highest total of a group in a block, and how many rows have it."""
    top = np.int32(LOW)
    ties = np.int32(0)
    for at in range(64):
        if of[at] == number and totals[at] != LOW:
            if totals[at] > top:
                top = totals[at]
                ties = np.int32(1)
            elif totals[at] == top:
                ties += np.int32(1)
    return top, ties  # type: ignore[return-value]


@inner
def index_groups(
    groups: int, totals: Int32, of: Int8, tops: Int32, ties: Int32, sizes: Int32
) -> None:
    """Set the entries of a line, by group and block, and how many rows of a group are feasible."""
    tops[:groups] = LOW
    ties[:groups] = 0
    sizes[:groups] = 0
    for row in range(len(totals)):
        total = totals[row]
        if total == LOW:
            continue
        number, block = of[row], row // 64
        sizes[number] += 1
        if total > tops[number, block]:
            tops[number, block] = total
            ties[number, block] = 1
        elif total == tops[number, block]:
            ties[number, block] += 1


@inner
def scaled(
    t: int, plugin: int, in_reverse: int, active: Int32, count: int, found: Int64, raw: Int64,
    base: Int32,
) -> None:  # fmt: skip
    """Set the scores of a plugin that looks at nodes alone, scaled over the active units."""
    highest = np.int64(0)
    for i in range(count):
        highest = max(highest, raw[t, plugin, base[t, active[i]]])
    for i in range(count):
        score = raw[t, plugin, base[t, active[i]]]
        if highest > 0:
            score = 100 * score // highest
            found[active[i]] = 100 - score if in_reverse else score
        else:
            found[active[i]] = 100 if in_reverse else score


@inlined
def weigh(
    t: int,
    groups: int,
    of: Int8,
    totals: Int32,
    sizes: Int32,
    refused: Int32,
    stamp: int,
    work: Work,
    programs: Programs,
    terms: Terms,
    logarithms: Float64,
) -> tuple[int, int]:
    """Set what each unit of a class adds to its rows' totals: groups, then excepted rows.

    Return how many rows are feasible, -1 where the program is stale, and the next stamp.
    """
    size, base = terms.size, terms.base
    for number in range(groups):
        size[t, number] = sizes[number]
    units = groups + programs.exceptions[t]
    for unit in range(groups, units):
        row = programs.row[t, unit - groups]
        size[t, unit] = 0
        if totals[row] != LOW:
            size[t, unit] = 1
            size[t, of[row]] -= 1
            base[t, unit] = of[row]
    nobody = int(np.int64(1))
    for rule in range(terms.form[t, RULES]):
        kind = terms.rules[t, rule, RULE_KIND]
        if kind in (NEAR, UNTOUCHED) and terms.slots[terms.rules[t, rule, SLOT], TOTAL] != 0:
            if kind == UNTOUCHED:
                return -1, stamp
            nobody = 0
    feasible = 0
    count = int(np.int64(0))
    for unit in range(units):
        work.offset[unit] = LOW
        if size[t, unit] == 0:
            continue
        reason = judge(t, unit, nobody, terms)
        if reason >= 0:
            refused[reason] += size[t, unit]
            continue
        work.offset[unit] = 0
        work.active[count] = unit
        count += 1
        feasible += size[t, unit]
    if feasible > 1:
        for plugin in range(terms.form[t, PLUGINS]):
            source = programs.plan[t, plugin, 0]
            if source == AFFINITY:
                affinity_scores(t, work.active, count, work.found, terms)
            elif source == SPREAD:
                stamp = spread_scores(
                    t, work.active, count, work.ignored, work.seen, stamp, work.weights,
                    logarithms, work.found, terms,
                )  # fmt: skip
            else:
                in_reverse = int(source == REVERSED)
                scaled(t, plugin, in_reverse, work.active, count, work.found, programs.raw, base)
            for i in range(count):
                unit = work.active[i]
                work.weighted[plugin, unit] = work.found[unit] * programs.plan[t, plugin, 2]
                work.offset[unit] += work.weighted[plugin, unit]
    return feasible, stamp


@inner
def survey_groups(
    groups: int, tops: Int32, ties: Int32, offset: Int32, highest: Int32, tied: Int32
) -> None:
    """Set the highest total of each block and how many rows have it, without exceptions."""
    highest[:] = LOW
    tied[:] = 0
    for number in range(groups):
        more = offset[number]
        if more == LOW:
            continue
        for block in range(len(highest)):
            total = tops[number, block] + more
            here = ties[number, block]
            best, known = highest[block], tied[block]
            alike = known + here if total == best else known
            tied[block] = here if total > best else alike
            highest[block] = max(best, total)


@inner
def patch_blocks(
    groups: int,
    excepted: Int32,
    size: Int32,
    of: Int8,
    totals: Int32,
    offset: Int32,
    highest: Int32,
    tied: Int32,
    patch_of: Int32,
    patches: Int32,
    patched: Int32,
) -> int:
    """Write out the totals of blocks with excepted rows; return how many blocks.

    ``size``: of the units, the groups first, then one for each of the ``excepted`` rows.
    """
    made = 0
    for number in range(len(excepted)):
        unit = groups + number
        if size[unit] == 0:
            continue
        row = excepted[number]
        block = row // 64
        patch = patch_of[block]
        if patch < 0:
            patch = made
            patch_of[block] = patch
            patched[patch] = block
            made += 1
            for at in range(64):
                found = totals[block * 64 + at]
                if found != LOW:
                    found += offset[of[block * 64 + at]]
                patches[patch, at] = found
        patches[patch, row % 64] = totals[row] + offset[unit]
    for patch in range(made):
        highest[patched[patch]], tied[patched[patch]] = block_top(patches[patch])
    return made


@inner
def mark_row(
    t: int, row: int, watch: int, weight: int, groups: int, exceptions: Int32, rows: Int32,
    full: Mask, values: Int64,
) -> None:  # fmt: skip
    """Add a pod's weight on a row to what a class watches there; note where it finds no room."""
    at = -1
    for number in range(exceptions[t]):
        if rows[t, number] == row:
            at = number
            break
    if at < 0:
        at = exceptions[t]
        if at == EXCEPTIONS:
            full[t] = True
            return
        exceptions[t] += 1
        rows[t, at] = row
        values[t, groups + at, :] = 0
    values[t, groups + at, watch] += weight


@inlined
def follow(who: int, row: int, programs: Programs, count_terms: Terms, counted: Counts) -> None:
    """Let counts and exceptions follow a pod that was placed on a row."""
    for at in range(counted.first_bump[who], counted.last_bump[who]):
        bump(
            counted.bump_slot[at], row, counted.bump_weight[at], counted.slots, counted.counts,
            counted.present, counted.where,
        )  # fmt: skip
    for at in range(programs.first_mark[who], programs.last_mark[who]):
        other = programs.mark_program[at]
        mark_row(
            other, row, programs.mark_watch[at], programs.mark_weight[at],
            count_terms.form[other, GROUPS_OF], programs.exceptions, programs.row, programs.full,
            count_terms.values,
        )  # fmt: skip


@outer
def decide(
    first: int,
    run: Int32,
    high: Int64,
    low: Int64,
    lines: Lines,
    plans: Plans,
    mirror: Mirror,
    nodes: Nodes,
    guests: Guests,
    log: Int32,
    filled: int,
    told: Told,
    programs: Programs,
    count_terms: Terms,
    counted: Counts,
    pins: Pins,
) -> tuple[int, int, np.uint64]:
    """Decide for pods from the ``first`` on and account for each.

    Return how many are decided, why it ends there, and for OTHER_GROUPS the groups that have
    feasible rows, as bits. ``run``: the pods' lines. ``high`` and ``low``: the halves of 64 random
    bits for each pod. ``log``: the snapshot's, ``filled`` entries long.
    """
    total, bits, highest, tied, kinds = (
        lines.total, lines.bits, lines.highest, lines.tied, lines.kinds,
    )  # fmt: skip
    feasible, cursor, amounts, columns = lines.feasible, lines.cursor, lines.amounts, lines.columns
    more, terms, weights, asked = lines.more, lines.terms, lines.weights, lines.asked
    mask_of, witness = lines.mask_of, lines.witness
    group, hint, open_rows = plans.group, plans.hint, plans.open_rows
    fields, odd, odd_in = mirror.fields, mirror.odd, mirror.odd_in
    allocatable, requested, rows = nodes.allocatable, nodes.requested, len(nodes.pod_count)
    blocks = highest.shape[1]
    best = np.empty(KEPT, np.int32)
    units = GROUPS + EXCEPTIONS
    longest = 1
    for slot in range(counted.slots.shape[0]):
        longest = max(longest, counted.slots[slot, LENGTH])
    work = Work(
        np.empty(units, np.int32), np.empty(units, np.int32), np.empty(units, np.int64),
        np.empty((programs.plan.shape[1], units), np.int32), np.zeros(units, np.bool_),
        np.zeros(longest, np.int64), np.zeros(count_terms.rules.shape[1], np.float64),
    )  # fmt: skip
    stamp = int(np.int64(0))
    summits = np.empty(blocks, np.int32)
    ties_at = np.empty(blocks, np.int32)
    patch_of = np.full(blocks, -1, np.int32)
    patches = np.empty((EXCEPTIONS, 64), np.int32)
    patched = np.empty(EXCEPTIONS, np.int32)
    entry_top, entry_ties, group_size = lines.entry_top, lines.entry_ties, lines.group_size
    for pod in range(first, len(run)):
        c = run[pod]
        numbers = told.numbers[pod]
        if c < 0:
            pin = pins.of_pod[pod]
            winner = pins.row[pin]
            if fit_bits(winner, pins.amounts[pin], pins.columns[pin], nodes, guests) != 0:
                return pod, NOWHERE, np.uint64(0)
            numbers[:] = 0
            numbers[0] = winner
            numbers[2] = numbers[5] = 1
            numbers[3] = -1
            account(winner, pins.vectors[pin], pins.nonzero[pin], nodes)
            log[filled + pod] = winner
            mirror_row(winner, mirror, nodes, guests)
            follow(programs.who[pod], winner, programs, count_terms, counted)
            continue
        plan = lines.plan_of[c]
        base = plans.bases[lines.base_of[c]]
        totals, tops, ties_in, of = total[c], highest[c], tied[c], kinds[c]
        term, ask = terms[c], asked[c]
        least_weight, balanced_weight = weights[c, 0], weights[c, 1]
        groups = plans.group_count[plan]
        keyed = plans.keyed[plan]
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
                    and term[0] <= fields[block, 320 + at] - fields[block, 256 + at]
                    and term[1] <= fields[block, 448 + at] - fields[block, 384 + at]
                    and fields[block, 512 + at] > -1000
                )
                now = 0
                if not fits:
                    now = fit_bits(row, amounts[c], columns[c], nodes, guests)
                if now != 0:
                    new = LOW
                    if old != LOW:
                        feasible[c] -= 1
                        if keyed > 0:
                            group_size[c, group[plan, row]] -= 1
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
                        if keyed > 0:
                            group_size[c, group[plan, row]] += 1
                        note_kind(of, bits[c, row], -1)
                        if groups > 1:
                            seen = np.uint64(1) << np.uint64(group[plan, row])
                            if mask_of[c] & seen == np.uint64(0):
                                anew = True
                    if odd[row]:
                        a, b = row_scores(row, term, ask, mirror, nodes)
                    else:
                        a, b = scores_at(block, at, fields, term)
                    new = a * least_weight + b * balanced_weight + base[row]
                if new == old:
                    continue
                totals[row] = new
                if keyed > 0:
                    mine = int(group[plan, row])
                    known = entry_top[c, mine, block]
                    if new > known:
                        entry_top[c, mine, block] = new
                        entry_ties[c, mine, block] = 1
                    elif new == known:
                        entry_ties[c, mine, block] += 1
                    elif old == known:
                        entry_ties[c, mine, block] -= 1
                        if entry_ties[c, mine, block] == 0:
                            begin = block * 64
                            entry_top[c, mine, block], entry_ties[c, mine, block] = top_of_group(
                                totals[begin : begin + 64], group[plan, begin : begin + 64], mine
                            )
                    continue
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
                tops[block], ties_in[block] = score_block(
                    fields[block], base[begin : begin + 64], term, least_weight, balanced_weight,
                    part,
                )  # fmt: skip
                if not odd_in[block] and not more[c]:
                    continue
                if odd_in[block]:
                    for at in range(64):
                        row = begin + at
                        if not odd[row] or base[row] == LOW:
                            continue
                        now = fit_bits(row, amounts[c], columns[c], nodes, guests)
                        if now == 0:
                            a, b = row_scores(row, term, ask, mirror, nodes)
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
            if keyed > 0:
                index_groups(keyed, totals, group[plan], entry_top[c], entry_ties[c], group_size[c])
            of[:, 1] = 0
            if feasible[c] < open_rows[plan]:
                for row in range(rows):
                    if totals[row] == LOW and base[row] != LOW:
                        now = fit_bits(row, amounts[c], columns[c], nodes, guests)
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
                        for other in range(rows):
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
        t = programs.of_pod[pod]
        picks = told.chosen[pod]
        able = feasible[c]
        made = 0
        if t >= 0:
            if programs.full[t]:
                return pod, STALE, np.uint64(0)
            told.refused[pod, :] = 0
            able, stamp = weigh(
                t, keyed, group[plan], totals, group_size[c], told.refused[pod], stamp, work,
                programs, count_terms, counted.logarithms,
            )  # fmt: skip
            if able <= 0:
                return pod, STALE if able < 0 else NOWHERE, np.uint64(0)
            survey_groups(keyed, entry_top[c], entry_ties[c], work.offset, summits, ties_at)
            if programs.exceptions[t] > 0:
                made = patch_blocks(
                    keyed, programs.row[t, : programs.exceptions[t]], count_terms.size[t],
                    group[plan], totals, work.offset, summits, ties_at, patch_of, patches, patched,
                )  # fmt: skip
            top, ties = summit(summits, ties_at)
            left = draw_below(high[pod], low[pod], ties)
            winner, margin, count = pick_in_groups(
                (totals, group[plan], work.offset, patch_of, patches), len(totals), summits,
                ties_at, top, ties, left, able, best, picks,
            )  # fmt: skip
        else:
            top, ties = summit(tops, ties_in)
            left = draw_below(high[pod], low[pod], ties)
            winner, margin, count = pick(
                totals, len(totals), tops, ties_in, top, ties, left, able, best, picks
            )
        if margin < 0:
            top = 0
            if t < 0:
                cursor[c] = -1  # the groups were not looked at
        numbers[0] = winner
        numbers[1] = top
        numbers[2] = ties
        numbers[3] = margin
        numbers[4] = count
        numbers[5] = able
        number = 0
        for kind in range(KINDS):
            if of[kind, 1] != 0:
                told.kinds[pod, number, 0] = of[kind, 0]
                told.kinds[pod, number, 1] = of[kind, 1]
                number += 1
        numbers[6] = number
        told.masks[pod] = mask_of[c]
        for at in range(count):
            a, b = row_scores(picks[at], term, ask, mirror, nodes)
            told.scores[pod, 0, at] = a * least_weight
            told.scores[pod, 1, at] = b * balanced_weight
            if t < 0:
                continue
            unit = int(group[plan, picks[at]])
            if patch_of[picks[at] // 64] >= 0:
                for number in range(programs.exceptions[t]):
                    if programs.row[t, number] == picks[at]:
                        unit = keyed + number
                        break
            for plugin in range(count_terms.form[t, PLUGINS]):
                told.term_scores[pod, plugin, at] = work.weighted[plugin, unit]
        for patch in range(made):
            patch_of[patched[patch]] = -1
        # Assume it.
        account(winner, lines.vectors[c], lines.nonzero[c], nodes)
        log[end] = winner
        mirror_row(winner, mirror, nodes, guests)
        follow(programs.who[pod], winner, programs, count_terms, counted)
    return len(run), FINISHED, np.uint64(0)

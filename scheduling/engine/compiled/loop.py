"""The loop of the fast path: decides a run of pods and accounts for each.

A pod's line has the rows' scores for its request; its sheet says which rows may take it and what
plugins that look at nodes alone add; its program does the same for its rules about other pods. The
reference path, ``engine.reference.cycle``, decides the same in plain Python; a property test
compares the two.
"""

import numpy as np

from scheduling.engine.compiled.anew import note_kind, place_of, score_anew
from scheduling.engine.compiled.arguments import (
    Counts,
    Lines,
    Nodes,
    NominatedAmounts,
    Pins,
    Programs,
    Results,
    ScoreColumns,
    Sheets,
    Terms,
    Work,
)
from scheduling.engine.compiled.caching import inlined, inner, outer
from scheduling.engine.compiled.entries import (
    add_row,
    block_top,
    patch,
    remove_row,
    survey,
    write_out,
)
from scheduling.engine.compiled.layout import (
    ANEW,
    DENSE,
    FINISHED,
    GROUPS,
    KINDS,
    LOW,
    MANY_KINDS,
    MORE_GROUPS,
    NOWHERE,
    OFFSET,
    PLUGINS,
    STALE,
    TAKEN,
)
from scheduling.engine.compiled.programs import follow, regroup, weigh
from scheduling.engine.compiled.scoring import (
    refresh_row,
    row_scores,
    scores_at,
)
from scheduling.engine.compiled.shared import (
    account,
    draw_below,
    fit_bits,
    picker,
    summit,
)
from scheduling.framework.arrays import Int16, Int32, Int64

_REBUILD = 12
"""Vectors score this many rows in the time that bringing one changed row up to date takes."""


@inlined
def block_of(block: int, totals: Int32) -> Int32:
    """Return the totals of a block's rows."""
    return totals[block * 64 : block * 64 + 64]


pick = picker(block_of)


@inlined
def block_with_groups(block: int, source: tuple[Int32, Int16, Int32, Int32, Int32, Int32]) -> Int32:
    """Return the totals of a block's rows, with what their groups add.

    ``source``: totals, groups, what each group adds, patched blocks, patches, working space.
    """
    totals, of, offset, patch_of, patches, room = source
    at = patch_of[block]
    if at >= 0:
        return patches[at]  # type: ignore[no-any-return]
    write_out(totals[block * 64 : block * 64 + 64], of[block * 64 : block * 64 + 64], offset, room)
    return room


pick_in_groups = picker(block_with_groups)


@inner
def decide_as_known(
    first: int,
    run: Int32,
    high: Int64,
    low: Int64,
    lines: Lines,
    sheets: Sheets,
    score_columns: ScoreColumns,
    nodes: Nodes,
    nominated: NominatedAmounts,
    log: Int32,
    filled: int,
    results: Results,
    programs: Programs,
    count_terms: Terms,
    counted: Counts,
    pins: Pins,
    work: Work,
) -> tuple[int, int, np.uint64]:
    """Do what ``decide`` does, but return ANEW when all rows of a class must be scored anew.

    Scoring many rows is a separate function: inlined here it would take registers that single rows
    need.
    """
    total, bits, highest, tied, kinds = (
        lines.total, lines.bits, lines.highest, lines.tied, lines.kinds,
    )  # fmt: skip
    feasible, cursor, amounts, columns = lines.feasible, lines.cursor, lines.amounts, lines.columns
    more, terms, weights = lines.more, lines.terms, lines.weights
    mask_of, witness = lines.mask_of, lines.witness
    group, odd, fields = sheets.group, score_columns.odd, score_columns.fields
    stamp = int(np.int64(0))
    work.seen[:] = 0
    work.patch_of[:] = -1
    best, summits, ties_at, room = work.best, work.summits, work.ties, work.block
    patch_of, patches, patched = work.patch_of, work.patches, work.patched
    group_size, entries = lines.group_size, lines.entries
    entry_group, entry_top, entry_ties = lines.entry_group, lines.entry_top, lines.entry_ties
    for pod in range(first, len(run)):
        c = run[pod]
        numbers = results.figures[pod]
        if c < 0:
            pin = pins.of_pod[pod]
            winner = pins.row[pin]
            if fit_bits(winner, pins.amounts[pin], pins.columns[pin], nodes, nominated) != 0:
                return pod, NOWHERE, np.uint64(0)
            numbers[:] = 0
            numbers[0] = winner
            numbers[2] = numbers[5] = 1
            numbers[3] = -1
            account(winner, pins.vectors[pin], pins.nonzero[pin], nodes)
            log[filled + pod] = winner
            refresh_row(winner, score_columns, nodes, nominated)
            follow(programs.who[pod], winner, programs, count_terms, counted)
            continue
        sheet = lines.sheet_of[c]
        base = sheets.bases[lines.base_of[c]]
        p = place_of(c)
        totals, tops, ties_in, of = total[p], highest[p], tied[p], kinds[c]
        term, scored = terms[c], lines.scored[c]
        least_weight, balanced_weight = weights[c, 0], weights[c, 1]
        groups = sheets.group_count[sheet]
        keyed = sheets.keyed[sheet]
        t = programs.of_pod[pod]
        own = t >= 0 and programs.private[t]
        taken = -1
        if own:
            if cursor[c] < 0:
                return pod, STALE, np.uint64(0)
            if programs.taken[t] >= 0:
                taken = counted.counters[programs.taken[t], OFFSET]
        of_group = lines.group[p]
        dense = int(lines.dense[p])
        end = filled + pod
        anew = lines.anew[c] or cursor[c] < 0 or (end - cursor[c]) * _REBUILD > len(totals)
        if anew and own:
            for entry in range(cursor[c], end):
                row = log[entry]
                if base[row] != LOW and not regroup(
                    t, row, of_group, programs, count_terms, counted.where
                ):
                    programs.full[t] = True
                    cursor[c] = -1
                    return pod, STALE, np.uint64(0)
        if not anew:
            # The changed rows lie far apart in memory. This loop only reads them, so that the
            # processor loads them together; their sum is used so that the compiler keeps the loop.
            near = np.int32(0)
            for entry in range(cursor[c], end):
                near += totals[log[entry]]
            numbers[6] = near
            for entry in range(cursor[c], end):
                row = log[entry]
                if base[row] == LOW:
                    continue
                block, at = row // 64, row % 64
                old = totals[row]
                before = int(of_group[row]) if keyed > 0 else 0
                if own and not regroup(t, row, of_group, programs, count_terms, counted.where):
                    programs.full[t] = True
                    cursor[c] = -1
                    return pod, STALE, np.uint64(0)
                if own and dense and of_group[row] >= DENSE:
                    # From here on the entries have the other layout, not dense.
                    lines.anew[c] = True
                    return pod, MORE_GROUPS, np.uint64(0)
                simple = not (odd[row] or more[c])
                fits = (
                    simple
                    and term[0] <= fields[block, 320 + at] - fields[block, 256 + at]
                    and term[1] <= fields[block, 448 + at] - fields[block, 384 + at]
                    and fields[block, 512 + at] > -1000
                )
                now = 0
                if taken >= 0 and counted.counts[taken + row] > 0:
                    now = TAKEN
                elif not fits:
                    now = fit_bits(row, amounts[c], columns[c], nodes, nominated)
                if now != 0:
                    new = LOW
                    if old != LOW:
                        feasible[c] -= 1
                        if groups > 1 and witness[c, group[sheet, row]] == row:
                            anew = True  # perhaps the group's last row: look at all rows
                    elif bits[p, row] != now:
                        note_kind(of, bits[p, row], -1)
                    if (old != LOW or bits[p, row] != now) and not note_kind(of, now, 1):
                        cursor[c] = -1
                        return pod, MANY_KINDS, np.uint64(0)
                    bits[p, row] = now
                else:
                    if old == LOW:
                        feasible[c] += 1
                        note_kind(of, bits[p, row], -1)
                        if groups > 1:
                            seen = np.uint64(1) << np.uint64(group[sheet, row])
                            if mask_of[c] & seen == np.uint64(0):
                                anew = True
                    if odd[row]:
                        a, b = row_scores(row, term, scored, score_columns, nodes)
                    else:
                        a, b = scores_at(block, at, fields, term)
                    new = a * least_weight + b * balanced_weight + base[row]
                after = int(of_group[row]) if keyed > 0 else 0
                if new == old and after == before:
                    continue
                if keyed > 0:
                    if old != LOW:
                        totals[row] = LOW
                        remove_row(
                            p, dense, block, before, old, totals, of_group, entries, entry_group,
                            entry_top, entry_ties,
                        )  # fmt: skip
                        group_size[p, before] -= 1
                    if new != LOW:
                        totals[row] = new
                        used = add_row(
                            p, dense, block, after, new, entries, entry_group, entry_top,
                            entry_ties,
                        )  # fmt: skip
                        lines.widest[p] = max(lines.widest[p], used)
                        group_size[p, after] += 1
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
            return pod, ANEW, np.uint64(0)
        cursor[c] = end
        if feasible[c] == 0:
            return pod, NOWHERE, np.uint64(0)
        picks = results.chosen[pod]
        able = feasible[c]
        made = 0
        if t >= 0:
            if programs.full[t]:
                return pod, STALE, np.uint64(0)
            results.refused[pod, :] = 0
            able, stamp = weigh(
                t, of_group, totals, group_size[p], results.refused[pod], stamp, work, programs,
                count_terms, counted.logarithms,
            )  # fmt: skip
            if able <= 0:
                return pod, STALE if able < 0 else NOWHERE, np.uint64(0)
            survey(
                dense, lines.widest[p], entry_group[p], entry_top[p], entry_ties[p], work.offset,
                summits, ties_at,
            )  # fmt: skip
            if programs.exceptions[t] > 0:
                made = patch(
                    count_terms.form[t, GROUPS], programs.row[t, : programs.exceptions[t]],
                    count_terms.size[t], of_group, totals, work.offset, summits, ties_at, patch_of,
                    patches, patched,
                )  # fmt: skip
            top, ties = summit(summits, ties_at)
            left = draw_below(high[pod], low[pod], ties)
            winner, margin, count = pick_in_groups(
                (totals, of_group, work.offset, patch_of, patches, room), summits, ties_at, top,
                ties, left, able, score_columns.rank, best, picks,
            )  # fmt: skip
        else:
            top, ties = summit(tops, ties_in)
            left = draw_below(high[pod], low[pod], ties)
            winner, margin, count = pick(
                totals, tops, ties_in, top, ties, left, able, score_columns.rank, best, picks
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
                results.kinds[pod, number, 0] = of[kind, 0]
                results.kinds[pod, number, 1] = of[kind, 1]
                number += 1
        numbers[6] = number
        results.masks[pod] = mask_of[c]
        for at in range(count):
            a, b = row_scores(picks[at], term, scored, score_columns, nodes)
            results.scores[pod, 0, at] = a * least_weight
            results.scores[pod, 1, at] = b * balanced_weight
            if t < 0:
                continue
            unit = int(of_group[picks[at]])
            if patch_of[picks[at] // 64] >= 0:
                for number in range(programs.exceptions[t]):
                    if programs.row[t, number] == picks[at]:
                        unit = int(count_terms.form[t, GROUPS]) + number
                        break
            for plugin in range(count_terms.form[t, PLUGINS]):
                results.term_scores[pod, plugin, at] = work.weighted[plugin, unit]
        for at in range(made):
            patch_of[patched[at]] = -1
        # Assume the pod on the row.
        account(winner, lines.vectors[c], lines.nonzero[c], nodes)
        log[end] = winner
        refresh_row(winner, score_columns, nodes, nominated)
        follow(programs.who[pod], winner, programs, count_terms, counted)
    return len(run), FINISHED, np.uint64(0)


@outer
def decide(
    first: int,
    run: Int32,
    high: Int64,
    low: Int64,
    lines: Lines,
    sheets: Sheets,
    score_columns: ScoreColumns,
    nodes: Nodes,
    nominated: NominatedAmounts,
    log: Int32,
    filled: int,
    results: Results,
    programs: Programs,
    count_terms: Terms,
    counted: Counts,
    pins: Pins,
    work: Work,
) -> tuple[int, int, np.uint64]:
    """Decide pods from the ``first`` on, and account for each on its row.

    Return the number of the first pod that is not decided, the reason, and, if that is
    OTHER_GROUPS, the groups that have feasible rows, as bits. ``run``: the pods' lines. ``high``
    and ``low``: the halves of 64 random bits for each pod. ``log``: the snapshot's log of touched
    rows, which has ``filled`` entries.
    """
    done = first
    while True:
        done, why, mask = decide_as_known(
            done, run, high, low, lines, sheets, score_columns, nodes, nominated, log, filled,
            results, programs, count_terms, counted, pins, work,
        )  # fmt: skip
        if why != ANEW:
            return done, why, mask
        why, mask = score_anew(
            done, filled + done, run, work.lines, lines, sheets, score_columns, nodes, nominated,
            programs, count_terms, counted,
        )  # fmt: skip
        if why != FINISHED:
            return done, why, mask

"""Scores all rows anew for several lines (array of totals, see ``fast``), by blocks of 64 rows.

The columns of 64 rows stay in the first-level cache of the processor while all lines are scored;
those of 50,000 nodes exceed the second-level cache.
"""

import numpy as np

from scheduling.engine.compiled.arguments import (
    Counts,
    Lines,
    Nodes,
    NominatedAmounts,
    Programs,
    ScoreColumns,
    Sheets,
    Terms,
)
from scheduling.engine.compiled.caching import inlined, inner
from scheduling.engine.compiled.entries import block_top, index
from scheduling.engine.compiled.layout import (
    DENSE,
    FINISHED,
    GROUPS,
    KINDS,
    LOW,
    MANY_KINDS,
    OFFSET,
    ONCE,
    OTHER_GROUPS,
    TAKEN,
    TOGETHER,
)
from scheduling.engine.compiled.scoring import count_feasible, need, row_scores, score_block
from scheduling.engine.compiled.shared import fit_bits
from scheduling.framework.arrays import Int32, Int64

_AHEAD = 64
"""This many pods are looked at for lines to be scored together."""
_NEAR = 4
"""This many blocks stay in the nearest cache beside what is written."""


@inlined
def place_of(c: int) -> int:
    """Return the place of line ``c``: the index of its totals; see ``engine.fast.lines.Lines``."""
    return c % TOGETHER if c < ONCE else c - ONCE + TOGETHER


@inner
def note_kind(kinds: Int32, bits: int, change: int) -> bool:
    """Add ``change`` to the count of rows rejected with ``bits``; False if ``kinds`` is full.

    ``kinds`` (KINDS, 2): bits and count; a row whose count is 0 is vacant.
    """
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
def lines_ahead(
    pod: int, run: Int32, found: Int32, lines: Lines, sheets: Sheets, programs: Programs
) -> int:
    """Find lines of the next pods that must be scored anew too; return how many ``found`` has.

    ``found[0]`` is the pod's own line, set by the caller. Left out are lines of sheets with several
    groups, whose scores may have to be computed first. The search ends at a line that is used once
    and whose place a line before it still needs.
    """
    count = 1
    lowest = found[0] if found[0] < ONCE else np.int32(ONCE)
    for other in range(pod + 1, min(pod + _AHEAD, len(run))):
        c = run[other]
        if c < 0:
            continue
        if c < ONCE:
            lowest = min(lowest, c)
            if c - lowest >= TOGETHER:
                break
        if lines.cursor[c] >= 0 and not lines.anew[c]:
            continue
        t = programs.of_pod[other]
        if sheets.group_count[lines.sheet_of[c]] > 1 or (t >= 0 and programs.private[t]):
            continue
        known = False
        for at in range(count):
            known = known or found[at] == c
        if known:
            continue
        found[count] = c
        count += 1
        if count == len(found):
            break
    return count


@inner
def score_lines(
    which: Int32, taken: int, lines: Lines, sheets: Sheets, score_columns: ScoreColumns,
    nodes: Nodes, nominated: NominatedAmounts, counts: Int64,
) -> None:  # fmt: skip
    """Score all rows anew for the lines ``which``; each block is read once for all of them.

    ``taken``: where a counter's counts by row begin in ``counts``, -1 for none. Rows whose count is
    above 0 are not feasible.
    """
    fields, odd, odd_in = score_columns.fields, score_columns.odd, score_columns.odd_in
    columns, amounts, rows = lines.columns, lines.amounts, len(nodes.pod_count)
    blocks = lines.highest.shape[1]
    for c in which:
        lines.feasible[c] = 0
    for first in range(0, blocks, _NEAR):
        for c in which:
            p = place_of(c)
            base, totals, term = sheets.bases[lines.base_of[c]], lines.total[p], lines.terms[c]
            tops, ties = lines.highest[p], lines.tied[p]
            least_weight, balanced_weight = lines.weights[c, 0], lines.weights[c, 1]
            by_column = lines.more[c] or taken >= 0
            feasible = 0
            for block in range(first, min(first + _NEAR, blocks)):
                begin = block * 64
                part = totals[begin : begin + 64]
                tops[block], ties[block], able = score_block(
                    fields[block], base[begin : begin + 64], term, least_weight, balanced_weight,
                    part,
                )  # fmt: skip
                feasible += able
                if not odd_in[block] and not by_column:
                    continue
                if odd_in[block]:
                    for at in range(64):
                        row = begin + at
                        if not odd[row] or base[row] == LOW:
                            continue
                        if fit_bits(row, amounts[c], columns[c], nodes, nominated) == 0:
                            a, b = row_scores(row, term, lines.scored[c], score_columns, nodes)
                            part[at] = a * least_weight + b * balanced_weight + base[row]
                for check in range(columns.shape[1]):
                    column = columns[c, check]
                    if column < 0:
                        break
                    if column > 1:
                        need(
                            part, amounts[c, check], nodes.allocatable[begin : begin + 64, column],
                            nodes.requested[begin : begin + 64, column],
                        )  # fmt: skip
                if taken >= 0:
                    for row in range(begin, min(begin + 64, rows)):
                        if counts[taken + row] > 0:
                            totals[row] = LOW
                tops[block], ties[block] = block_top(part)
                feasible += count_feasible(part) - able
            lines.feasible[c] += feasible


@inner
def sum_up(
    c: int, taken: int, sized: int, lines: Lines, sheets: Sheets, nodes: Nodes,
    nominated: NominatedAmounts, counts: Int64,
) -> tuple[int, np.uint64]:  # fmt: skip
    """Set the best totals of each group of line ``c``, and count the reasons of unfit rows.

    Called after all rows were scored. Return FINISHED, or why pods of the class cannot be decided,
    as ``decide`` does. ``taken``: see ``score_lines``. ``sized``: how many groups the rows have, 0
    where a sheet is not keyed.
    """
    p = place_of(c)
    sheet, totals, of = lines.sheet_of[c], lines.total[p], lines.kinds[c]
    base, rows = sheets.bases[lines.base_of[c]], len(nodes.pod_count)
    groups = sheets.group_count[sheet]
    lines.anew[c] = False
    if sheets.keyed[sheet] > 0:
        dense = int(sized <= DENSE)
        lines.dense[p] = dense
        lines.widest[p] = index(
            p, dense, lines.widest[p], totals, lines.group[p], lines.entries, lines.entry_group,
            lines.entry_top, lines.entry_ties, lines.group_size[p],
        )  # fmt: skip
    of[:, 1] = 0
    if lines.feasible[c] < sheets.open_rows[sheet]:
        for row in range(rows):
            if totals[row] == LOW and base[row] != LOW:
                now = TAKEN
                if taken < 0 or counts[taken + row] == 0:
                    now = fit_bits(row, lines.amounts[c], lines.columns[c], nodes, nominated)
                lines.bits[p, row] = now
                if not note_kind(of, now, 1):
                    return MANY_KINDS, np.uint64(0)
    if groups > 1:
        mask = np.uint64(0)
        witness, hint, group = lines.witness, sheets.hint, sheets.group
        for number in range(groups):
            row = witness[c, number]
            if row < 0 or totals[row] == LOW:
                row = hint[sheet, number]
            if row < 0 or totals[row] == LOW:
                row = -1
                for other in range(rows):
                    if group[sheet, other] == number and totals[other] != LOW:
                        row = other
                        break
                hint[sheet, number] = row
            witness[c, number] = row
            if row >= 0:
                mask |= np.uint64(1) << np.uint64(number)
        if lines.feasible[c] > 1 and mask != lines.mask_of[c]:
            return OTHER_GROUPS, mask
    return FINISHED, np.uint64(0)


@inner
def score_anew(
    pod: int, end: int, run: Int32, found: Int32, lines: Lines, sheets: Sheets,
    score_columns: ScoreColumns, nodes: Nodes, nominated: NominatedAmounts, programs: Programs,
    count_terms: Terms, counted: Counts,
) -> tuple[int, np.uint64]:  # fmt: skip
    """Score the line of a pod anew, and those lines of the next pods that need it as well.

    Return FINISHED, or why the pod cannot be decided, as ``decide`` does. ``end``: the present end
    of the log. ``found``: int32 working space for ``TOGETHER`` lines.
    """
    c, t = run[pod], programs.of_pod[pod]
    own = t >= 0 and programs.private[t]
    taken = -1
    if own and programs.taken[t] >= 0:
        taken = counted.counters[programs.taken[t], OFFSET]
    found[0] = c
    count = 1
    if not own:
        count = lines_ahead(pod, run, found, lines, sheets, programs)
    score_lines(
        found[:count], taken, lines, sheets, score_columns, nodes, nominated, counted.counts
    )
    reason, groups = FINISHED, np.uint64(0)
    for at in range(count):
        line = found[at]
        sized = count_terms.form[t, GROUPS] if own else sheets.keyed[lines.sheet_of[line]]
        why, mask = sum_up(line, taken, sized, lines, sheets, nodes, nominated, counted.counts)
        lines.cursor[line] = end if why == FINISHED else -1
        if at == 0:
            reason, groups = why, mask
    return reason, groups

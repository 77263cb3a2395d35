"""What the rules of a class about other pods add to rows, and how counts follow placed pods.

A *unit* is a group of rows that the rules treat alike, or a single row that became an exception
since the program was written.
"""

import numpy as np

from scheduling.engine.compiled.arguments import Counts, Programs, Terms, Work
from scheduling.engine.compiled.caching import inlined, inner
from scheduling.engine.compiled.layout import (
    AFFINITY,
    COUNTER,
    GROUPS,
    KIND,
    LOW,
    NEAR,
    PLUGINS,
    REVERSED,
    RULES,
    SHUT,
    SHUT_FIRST,
    SPREAD,
    TOTAL,
    UNTOUCHED,
    WATCHES,
)
from scheduling.engine.compiled.terms import (
    affinity_scores,
    bump,
    judge,
    new_group,
    scaled_scores,
    spread_scores,
    watched,
)
from scheduling.framework.arrays import Float64, Int16, Int32, Int64, Mask


@inlined
def weigh(
    t: int,
    of: Int16,
    totals: Int32,
    sizes: Int32,
    refused: Int32,
    stamp: int,
    work: Work,
    programs: Programs,
    terms: Terms,
    logarithms: Float64,
) -> tuple[int, int]:
    """Set ``work.offset``: what each unit adds to the totals of its rows, for program ``t``.

    Units are the groups, then the excepted rows. Return how many rows are feasible (-1: the program
    is stale), and the next stamp.
    """
    size, base = terms.size, terms.base
    groups = terms.form[t, GROUPS]
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
        kind = terms.rules[t, rule, KIND]
        if kind in (NEAR, UNTOUCHED) and terms.counters[terms.rules[t, rule, COUNTER], TOTAL] != 0:
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
        shut = programs.shut[t, base[t, unit]]
        if shut > 0 and (reason < 0 or terms.form[t, SHUT_FIRST]):
            reason = SHUT + shut - 1
        if reason >= 0:
            refused[reason] += size[t, unit]
            continue
        work.offset[unit] = 0
        work.active[count] = unit
        count += 1
        feasible += size[t, unit]
    if feasible > 1:
        for plugin in range(terms.form[t, PLUGINS]):
            source = programs.sheet[t, plugin, 0]
            if source == AFFINITY:
                affinity_scores(t, work.active, count, work.found, terms)
            elif source == SPREAD:
                stamp = spread_scores(
                    t, work.active, count, work.ignored, work.seen, stamp, work.weights,
                    logarithms, work.found, terms,
                )  # fmt: skip
            else:
                in_reverse = int(source == REVERSED)
                scaled_scores(
                    t, plugin, in_reverse, work.active, count, work.found, programs.raw, base
                )
            for i in range(count):
                unit = work.active[i]
                work.weighted[plugin, unit] = work.found[unit] * programs.sheet[t, plugin, 2]
                work.offset[unit] += work.weighted[plugin, unit]
    return feasible, stamp


@inner
def mark_row(
    t: int, row: int, watch: int, weight: int, groups: int, exceptions: Int32, room: Int32,
    rows: Int32, full: Mask, values: Int64,
) -> None:  # fmt: skip
    """Add a pod's weight to a count that program ``t`` watches; ``row`` becomes an exception.

    Set ``full`` if the program has no room for another exception.
    """
    at = -1
    for number in range(exceptions[t]):
        if rows[t, number] == row:
            at = number
            break
    if at < 0:
        at = exceptions[t]
        if at == room[t]:
            full[t] = True
            return
        exceptions[t] += 1
        rows[t, at] = row
        values[t, groups + at, :] = 0
    values[t, groups + at, watch] += weight


@inlined
def follow(who: int, row: int, programs: Programs, count_terms: Terms, counted: Counts) -> None:
    """Update counts and exceptions after a pod of class ``who`` was placed on a row."""
    for at in range(counted.first_bump[who], counted.last_bump[who]):
        bump(
            counted.bump_counter[at], row, counted.bump_weight[at], counted.counters,
            counted.counts, counted.present, counted.where,
        )  # fmt: skip
    for at in range(programs.first_mark[who], programs.last_mark[who]):
        other = programs.mark_program[at]
        mark_row(
            other, row, programs.mark_watch[at], programs.mark_weight[at],
            count_terms.form[other, GROUPS], programs.exceptions, programs.room, programs.row,
            programs.full, count_terms.values,
        )  # fmt: skip


@inlined
def regroup(
    t: int, row: int, of: Int16, programs: Programs, count_terms: Terms, where: Int32
) -> bool:
    """Move a row to the group that its counts put it into, in the line of a private program.

    Return False if there is no room for another group.
    """
    before = int(of[row])
    alike = True
    for k in range(count_terms.form[t, WATCHES]):
        here = watched(t, k, row, programs.watch, count_terms.counters, count_terms.counts, where)
        if here != count_terms.values[t, before, k]:
            alike = False
    if alike:
        return True
    now = new_group(t, row, before, programs.watch, where, programs.members, count_terms)
    if now < 0:
        return False
    programs.members[t, before] -= 1
    programs.members[t, now] += 1
    of[row] = now
    return True

"""Judges and scores groups of rows by the rules of classes about other pods.

A *group* is rows that are alike in everything that a class's terms and normalised scores look at.
Its *base* says which topology values it has and what plugins say of its nodes; ``values`` has its
counts of pods by row. The plugins compute the same for single nodes; a property test compares both.
Integer divisions are of numbers that are not negative; floating point as in the plugins, term by
term.
"""

import numpy as np

from scheduling.engine.compiled.arguments import Terms
from scheduling.engine.compiled.caching import inlined, inner
from scheduling.engine.compiled.layout import (
    AFFINITY_FIRST,
    ALL_KEYS,
    ANTI,
    AT_LOWEST,
    BY_ROW,
    BY_SIZE,
    COUNTER,
    FROM_ZERO,
    GROUPS,
    HARD,
    KIND,
    LENGTH,
    LOWEST,
    MATCHES_SELF,
    MAX_SKEW,
    NEAR,
    NOT_NEAR,
    OFFSET,
    PLACES,
    RULES,
    SCORED,
    SKEWED,
    SOFT,
    TOO_NEAR,
    TOTAL,
    UNLABELLED,
    UNTOUCHED,
    UNWELCOME,
    WATCH,
    WATCHES,
)
from scheduling.framework.arrays import Float64, Int32, Int64, Mask


@inlined
def watched(
    t: int, k: int, row: int, watch: Int64, counters: Int64, counts: Int64, where: Int32
) -> int:
    """Return a row's count in the counter of watch ``k``; 0 where the counter leaves the row out.

    For watches that need only whether the count is above 0 the result is 0 or 1.
    """
    counter = watch[t, k, 0]
    if where[counters[counter, PLACES], row] < 0:
        return 0
    found = int(counts[counters[counter, OFFSET] + row])
    if watch[t, k, 1]:
        return 1 if found > 0 else 0
    return found


@inner
def new_group(
    t: int, row: int, old: int, watch: Int64, where: Int32, members: Int32, terms: Terms
) -> int:
    """Return the group that a row belongs to now, a new one if there is none like it.

    ``old``: the group that it leaves. Return -1 if there is no room for another group.
    """
    watches = terms.form[t, WATCHES]
    vacant = -1
    for number in range(terms.form[t, GROUPS]):
        if members[t, number] == 0:
            if vacant < 0:
                vacant = number
            continue
        if terms.base[t, number] != terms.base[t, old]:
            continue
        alike = True
        for k in range(watches):
            here = watched(t, k, row, watch, terms.counters, terms.counts, where)
            alike &= here == terms.values[t, number, k]
        if alike:
            return number
    if vacant < 0:
        vacant = terms.form[t, GROUPS]
        if vacant == terms.size.shape[1]:
            return -1
        terms.form[t, GROUPS] += 1
    terms.base[t, vacant] = terms.base[t, old]
    for k in range(watches):
        terms.values[t, vacant, k] = watched(t, k, row, watch, terms.counters, terms.counts, where)
    members[t, vacant] = 0
    return vacant


@inner
def bump(
    counter: int, row: int, weight: int, counters: Int64, counts: Int64, present: Mask, where: Int32
) -> None:
    """Add a pod's weight on a row to a counter; update the counter's total and lowest count.

    A counter of LENGTH 0 has nothing but a total.
    """
    value = where[counters[counter, PLACES], row]
    if value < 0:
        return
    if counters[counter, LENGTH] == 0:
        counters[counter, TOTAL] += weight
        return
    first = counters[counter, OFFSET]
    at = first + (row if counters[counter, BY_ROW] else value)
    before = counts[at]
    counts[at] = before + weight
    counters[counter, TOTAL] += weight
    if counters[counter, AT_LOWEST] > 0 and before == counters[counter, LOWEST]:
        counters[counter, AT_LOWEST] -= 1
        if counters[counter, AT_LOWEST] == 0:
            lowest = before + weight
            ties = 0
            for other in range(first, first + counters[counter, LENGTH]):
                if present[other] and counts[other] <= lowest:
                    ties = ties + 1 if counts[other] == lowest else 1
                    lowest = counts[other]
            counters[counter, LOWEST] = lowest
            counters[counter, AT_LOWEST] = ties


@inlined
def count_at(c: int, t: int, number: int, value: int, terms: Terms) -> int:
    """Return a rule's count for group ``number``, whose nodes have its label's ``value``."""
    if terms.rules[c, t, WATCH] >= 0:
        return int(terms.values[c, number, terms.rules[c, t, WATCH]])
    return int(terms.counts[terms.counters[terms.rules[c, t, COUNTER], OFFSET] + value])


@inner
def judge(c: int, number: int, nobody: int, terms: Terms) -> int:
    """Return the code of the rule that rejects a group (``layout``), -1 if it passes.

    ``nobody``: 1 if no pod anywhere meets the class's required affinity, else 0.
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
                        lowest = terms.counters[terms.rules[c, t, COUNTER], LOWEST]
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
    """Set InterPodAffinity's normalised scores of the active groups, in ``found``."""
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
    """Return how many domains soft constraint ``t`` spans, over groups that are not ignored."""
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
    """Set PodTopologySpread's normalised scores of the active groups in ``found``.

    Return the next stamp.
    """
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
    t: int, plugin: int, in_reverse: int, active: Int32, count: int, found: Int64, raw: Int64,
    base: Int32,
) -> None:  # fmt: skip
    """Set in ``found`` a node-only plugin's scores of the active groups, scaled to the highest."""
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

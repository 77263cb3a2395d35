"""Judges rows one by one: why each rejects a pod, and which pods are victims there.

``examine`` is one function for both questions, because both apply the same rules to a row: the
diagnosis with all pods there, the dry run of preemption without some of them
(``default_preemption.go`` ``SelectVictimsOnNode`` and ``preemption.go``
``pickOneNodeForPreemption``, v1.36). ``engine.preemption.row_program`` writes the rules of a class
as arrays.

It calls only NumPy and ``framework.formulas``. ``row_program.warm`` compiles it; a process without
Numba runs it as plain Python, slower and with the same result.
"""

import numpy as np

from scheduling.engine.compiled.row_arguments import (
    AFFINITY,
    ALL_ROWS,
    ANTI,
    AT_LOWEST,
    COUNT,
    FEASIBLE,
    FIT,
    FROM_ZERO,
    KIND,
    LIVE_ONLY,
    LOWEST,
    MATCHES_SELF,
    MAX_SKEW,
    MOST_CODES,
    NEAR,
    NO_NEED,
    NO_VICTIMS,
    OFFSET,
    SECOND,
    STATIC,
    STEP_BITS,
    TOO_MANY,
    TOTAL,
    Budgets,
    Classes,
    Nodes,
    NominatedPods,
    PlacedPods,
    Room,
    Rules,
    Terms,
    Verdicts,
)
from scheduling.framework.arrays import Int32, Int64
from scheduling.framework.formulas import never, short


def examine(
    rows: Int64,
    begin: int,
    wanted: int,
    priority: int,
    own: int,
    nodes: Nodes,
    placed: PlacedPods,
    classes: Classes,
    nominated: NominatedPods,
    rules: Rules,
    terms: Terms,
    budgets: Budgets,
    rank: Int32,
    verdicts: Verdicts,
    room: Room,
) -> tuple[int, int, int, int]:
    """Judge rows with all their pods, or look for candidates of preemption.

    Return the fields of ``Examination`` before ``room``.

    Args:
        rows: the rows, int64.
        begin: position at which to begin; the search wraps around.
        wanted: 0 to judge rows as they are, stopping at the first that passes; ``ALL_ROWS`` to
            judge them all; else the number of candidates to find, more if each of them violates a
            budget.
        priority: of the pod; pods of lower priority may leave, nominated ones of lower priority do
            not count.
        own: number of the pod's own nomination, -1 without one.
        nodes: of the snapshot.
        placed: of the snapshot.
        classes: of the snapshot.
        nominated: of the snapshot.
        rules: of the pod's class.
        terms: of the pod's class.
        budgets: used if ``wanted`` is above 0.
        rank: position of each row's name in the order of names.
        verdicts: output.
        room: output, used if ``wanted`` is above 0; large enough for as many candidates as rows,
            and for all pods.
    """
    # Arrays are taken out of the tuples once: each access to a tuple's field costs more than a
    # read.
    steps, static, amounts, columns = rules.steps, rules.static, rules.amounts, rules.columns
    allocatable, requested, allowed_pods, pod_count = (
        nodes.allocatable,
        nodes.requested,
        nodes.allowed_pods,
        nodes.pod_count,
    )
    first_pod, next_pod, class_of, started, terminating, order_of = (
        placed.first,
        placed.following,
        placed.kind,
        placed.started,
        placed.terminating,
        placed.order,
    )
    priorities, peers, requests = classes.priority, classes.peer, classes.requests
    first_nominated, next_nominated, nominated_class = (
        nominated.first,
        nominated.following,
        nominated.kind,
    )
    term, counts, domains, counted, seat, take = (
        terms.columns,
        terms.counts,
        terms.domain,
        terms.counted,
        terms.seat,
        terms.take,
    )
    first_budget, guards, allowed, spared_pods = (
        budgets.first,
        budgets.which,
        budgets.allowed,
        budgets.spared,
    )
    verdict, codes, code_counts = verdicts.verdict, verdicts.codes, verdicts.counts
    count, checks, total_terms = len(rows), len(amounts), len(term)
    position, end, violations, victims = room.position, room.end, room.violations, room.victims
    lower, turn, left = room.lower, room.turn, room.left
    # By amount: what the pods that stay request of the resource, and what pods nominated to the row
    # do.
    used, to_come = room.used, room.to_come
    gone_weight, to_come_weight = room.gone_weight, room.to_come_weight
    gone_weight[:] = 0
    why = kinds = last = found = fine = filled = 0
    best = -1
    best_violations = best_priority = best_sum = best_count = best_rank = 0
    best_started = 0.0
    for step in range(count):
        at = begin + step
        if at >= count:
            at -= count
        row = rows[at]
        code = 0

        # Pods that are nominated to the row.
        nominated_here = 0
        number = first_nominated[row]
        while number >= 0:
            kind = nominated_class[number]
            if number != own and priorities[kind] >= priority:
                if nominated_here == 0:
                    to_come[:] = 0
                    to_come_weight[:] = 0
                nominated_here += 1
                for check in range(checks):
                    to_come[check] += requests[kind, columns[check]]
                for t in range(total_terms):
                    to_come_weight[t] += seat[peers[kind], t]
            number = next_nominated[number]

        for check in range(checks):
            used[check] = requested[row, columns[check]]
        # Pods of lower priority, the newest first: all of them leave to begin with.
        away = 0
        if wanted > 0:
            slot = first_pod[row]
            while slot >= 0:
                if priorities[class_of[slot]] < priority:
                    lower[away] = slot
                    away += 1
                slot = next_pod[slot]
            if away == 0:
                code = NO_VICTIMS
            gone_weight[:] = 0
            for which in range(away):
                slot = lower[which]
                kind = class_of[slot]
                for check in range(checks):
                    used[check] -= requests[kind, columns[check]]
                for t in range(total_terms):
                    if term[t, LIVE_ONLY] == 0 or not terminating[slot]:
                        gone_weight[t] += take[peers[kind], t]
        pods = away
        begun = filled
        violating = violated = 0

        # Trial 0 is without all of them; each later one puts one pod back.
        trial = 0
        while code == 0:
            if trial:
                slot = turn[trial - 1]
                kind = class_of[slot]
                away -= 1
                for check in range(checks):
                    used[check] += requests[kind, columns[check]]
                for t in range(total_terms):
                    if term[t, LIVE_ONLY] == 0 or not terminating[slot]:
                        gone_weight[t] -= take[peers[kind], t]

            # The first rejection: with nominated pods counted, then without them.
            rejection = 0
            for counting in range(1 if nominated_here else 0, -1, -1):
                for filtering in range(len(steps)):
                    what = steps[filtering, 0]
                    local = 0
                    if what == STATIC:
                        local = int(static[steps[filtering, 1], row])
                    elif what == FIT:
                        pods_there = pod_count[row] - away + counting * nominated_here
                        if short(1, allowed_pods[row], pods_there):
                            local = 1
                        for check in range(checks):
                            there = allocatable[row, columns[check]]
                            taken = used[check] + counting * to_come[check]
                            if short(amounts[check], there, taken):
                                bits = 3 if never(amounts[check], there) else 1
                                local |= bits << (2 * check + 1)
                    elif what == COUNT:
                        t = steps[filtering, 1]
                        here = counts[term[t, OFFSET] + row] - gone_weight[t]
                        if here + counting * to_come_weight[t] > 0:
                            local = 1
                    elif what == AFFINITY:
                        near = anti = existing = meant = False
                        labelled = present = nowhere = True
                        for t in range(steps[filtering, 1], steps[filtering, 2]):
                            domain = domains[t, row]
                            change = 0
                            here = 0
                            if domain >= 0:
                                if counted[t, row]:
                                    change = counting * to_come_weight[t] - gone_weight[t]
                                here = counts[term[t, OFFSET] + domain] + change
                            if term[t, KIND] == NEAR:
                                near = True
                                meant = term[t, MATCHES_SELF] != 0
                                labelled = labelled and domain >= 0
                                present = present and here > 0
                                nowhere = nowhere and term[t, TOTAL] + change == 0
                            elif here > 0:
                                if term[t, KIND] == ANTI:
                                    anti = True
                                else:
                                    existing = True
                        if near and not (labelled and (present or (nowhere and meant))):
                            local = 1
                        elif anti:
                            local = 2
                        elif existing:
                            local = 3
                    else:
                        for t in range(steps[filtering, 1], steps[filtering, 2]):
                            domain = domains[t, row]
                            if domain < 0:
                                local = 2
                                break
                            change = 0
                            if counted[t, row]:
                                change = counting * to_come_weight[t] - gone_weight[t]
                            before = counts[term[t, OFFSET] + domain]
                            lowest = term[t, LOWEST]
                            if term[t, FROM_ZERO]:
                                lowest = 0
                            elif change != 0:
                                if before == lowest and term[t, AT_LOWEST] == 1:
                                    lowest = term[t, SECOND]
                                lowest = min(lowest, before + change)
                            here = before + change
                            if here + term[t, MATCHES_SELF] - lowest > term[t, MAX_SKEW]:
                                local = 1
                                break
                    if local:
                        rejection = (filtering << STEP_BITS) | local
                        break
                if rejection:
                    break

            if trial == 0:
                code = rejection
                if code or wanted <= 0:
                    break
                # Victims in order of importance: higher priority, longer running; of two that have
                # not started the later one first (``plugins.default_preemption``). The list has the
                # oldest last, so it is nearly in order when reversed.
                for which in range(pods // 2):
                    lower[which], lower[pods - 1 - which] = lower[pods - 1 - which], lower[which]
                for which in range(1, pods):
                    slot = lower[which]
                    place = which
                    while place > 0 and order_of[slot] < order_of[lower[place - 1]]:
                        lower[place] = lower[place - 1]
                        place -= 1
                    lower[place] = slot
                for which in range(1, pods):
                    slot = lower[which]
                    mine = priorities[class_of[slot]]
                    since = started[slot]
                    place = which
                    while place > 0:
                        other = lower[place - 1]
                        theirs = priorities[class_of[other]]
                        until = started[other]
                        if mine < theirs or (
                            mine == theirs and not (since < until or np.isnan(until))
                        ):
                            break
                        lower[place] = other
                        place -= 1
                    lower[place] = slot
                # Pods whose eviction violates a budget are put back first.
                if len(left):
                    filling = pods
                    for which in range(pods):
                        slot = lower[which]
                        kind = class_of[slot]
                        over = False
                        for budget in range(first_budget[kind], first_budget[kind + 1]):
                            guard = guards[budget]
                            if len(spared_pods):
                                key = int(slot) * len(left) + guard
                                spared = np.searchsorted(spared_pods, key)
                                if spared < len(spared_pods) and spared_pods[spared] == key:
                                    continue
                            left[guard] -= 1
                            over = over or left[guard] < 0
                        if over:
                            turn[violating] = slot
                            violating += 1
                        else:
                            filling -= 1
                            turn[filling] = slot
                    for which in range((pods - violating) // 2):
                        first, second = violating + which, pods - 1 - which
                        turn[first], turn[second] = turn[second], turn[first]
                    for which in range(pods):
                        kind = class_of[lower[which]]
                        for budget in range(first_budget[kind], first_budget[kind + 1]):
                            left[guards[budget]] = allowed[guards[budget]]
                else:
                    for which in range(pods):
                        turn[which] = lower[which]
            elif rejection:
                slot = turn[trial - 1]
                kind = class_of[slot]
                away += 1
                for check in range(checks):
                    used[check] -= requests[kind, columns[check]]
                for t in range(total_terms):
                    if term[t, LIVE_ONLY] == 0 or not terminating[slot]:
                        gone_weight[t] += take[peers[kind], t]
                victims[filled] = slot
                filled += 1
                violated += trial <= violating
            if trial == pods:
                break
            trial += 1

        if code == 0:
            if wanted == ALL_ROWS:
                continue
            if not wanted:
                why = FEASIBLE
                break
            if filled == begun:
                code = NO_NEED
        if code:
            if last >= kinds or codes[last] != code:
                last = 0
                while last < kinds and codes[last] != code:
                    last += 1
                if last == kinds:
                    if kinds == MOST_CODES:
                        why = TOO_MANY
                        break
                    codes[kinds] = code
                    code_counts[kinds] = 0
                    kinds += 1
            code_counts[last] += 1
            verdict[at] = last + 1
            continue

        if 0 < violating < pods:
            # Pods that violate a budget were judged apart from the others: merge both in order.
            for which in range(begun + 1, filled):
                slot = victims[which]
                mine = priorities[class_of[slot]]
                since = started[slot]
                place = which
                while place > begun:
                    other = victims[place - 1]
                    theirs = priorities[class_of[other]]
                    until = started[other]
                    if mine < theirs or (mine == theirs and not (since < until or np.isnan(until))):
                        break
                    victims[place] = other
                    place -= 1
                victims[place] = slot
        highest = priorities[class_of[victims[begun]]]
        total = 0
        oldest = np.inf
        for which in range(begun, filled):
            slot = victims[which]
            mine = priorities[class_of[slot]]
            total += mine + 2**31
            # A NaN start time (not started) is never the smaller one.
            if mine == highest and started[slot] < oldest:
                oldest = started[slot]
        size = filled - begun
        better = best < 0
        if not better:
            if violated != best_violations:
                better = violated < best_violations
            elif highest != best_priority:
                better = highest < best_priority
            elif total != best_sum:
                better = total < best_sum
            elif size != best_count:
                better = size < best_count
            elif oldest != best_started:
                better = oldest > best_started
            else:
                better = rank[row] < best_rank
        if better:
            best = found
            best_violations, best_priority, best_sum = violated, highest, total
            best_count, best_started, best_rank = size, oldest, rank[row]
        position[found] = at
        end[found] = filled
        violations[found] = violated
        found += 1
        fine += violated == 0
        if fine and found >= wanted:
            break
    return why, kinds, found, best

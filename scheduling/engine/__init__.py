"""Deciding, in memory: a snapshot in, full decision records out.

    interning, requirements   manifests -> classes: everything a pod asks for, parsed once
    snapshot                  the cluster as columns, kept up to date by deltas
    cycle                     one pod, or a batch, through the extension points
    class_cache               the same decisions from what earlier pods of a class left behind
    peers                     who counts whom: terms and counters, filed under what they mean
    plain                     runs of pods on lines shared by request, in a compiled loop
    plans, lines, programs    what it keeps: verdicts of nodes, totals of rows, rules about pods
    runs                      classes that have no program: a line each (pool, slots, shapes)
    row_program               why rows reject a class, and who would have to leave them, in numbers
    budgets, nominations      what the dry run of preemption counts with
    compiled                  the loops of all these, and how they are compiled
    decision                  the record of what was decided and why
    queue                     which pending pod is next, and what wakes the others
    copying                   a snapshot of one's own, for what-if

``cycle.schedule_batch`` is the main entry; ``scheduling.worker.mirror`` feeds the snapshot, and
simulations feed one of their own. Nothing here reads a clock or rolls dice that it was not given
(seeds are arguments), so equal inputs give equal decisions.

                   deltas                      pods, seed
                     |                             |
    plugins <--- snapshot <--- class_cache <--- cycle ---> decisions
                     ^                             |
                     +--------- assume ------------+
"""

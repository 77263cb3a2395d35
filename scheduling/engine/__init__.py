"""Deciding, in memory: a snapshot in, full decision records out.

    interning, requirements   manifests -> classes: everything a pod asks for, parsed once
    snapshot                  the cluster as columns, kept up to date by deltas
    cycle                     one pod, or a batch, through the extension points
    class_cache               which way a pod is decided: the lines below, in this order
    fast_lane                 runs of pods in one compiled loop
    compiling                 a class becomes a plan, a program and a request (plans, programs)
    statements, slots         what plugins state about other pods, and the counts that this needs
    lines, run                totals of rows by request; what was decided, as columns
    refusals                  what was said to a sister and still holds
    class_state               the reference path's answers, from what earlier pods left behind
    peers                     who counts whom: terms and counters, filed under what they mean
    row_program               why rows reject a class, and who would have to leave them, in numbers
    budgets, nominations      what the dry run of preemption counts with
    compiled                  the loop of the fast lane, and how it is compiled
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

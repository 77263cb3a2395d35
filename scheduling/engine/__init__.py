"""Deciding, in memory: a snapshot in, full decision records out.

    interning, requirements   manifests -> classes: everything a pod asks for, parsed once
    snapshot                  the cluster as columns, kept up to date by deltas
    cycle                     the reference path: every plugin is asked about every node
    deciding                  which of the two ways a pod is decided
    fast_lane                 the other way: runs of pods in one compiled loop
    looking_ahead             which of the next pods a run takes in, and their classes
    compiling                 a class becomes a plan, a program and a request
    lane_profile              what of a profile takes part in the fast lane
    plans                     what plugins say of nodes alone; it follows nodes row by row
    programs                  rules about other pods, as numbers for the loop
    requests                  what classes ask for, as the numbers that lines say
    statements                what plugins state about other pods, as terms
    program_forms             what the programs of classes with alike terms share
    counter_columns           copies of the counts that terms look at, for the loop
    lines, run                totals of rows by request; what was decided, as columns
    refusals                  why a pod of the class was refused, as long as that still holds
    peers                     who counts whom: terms and counters, filed under what they mean
    victims                   what making room would cost on each row, kept from pod to pod
    row_program               why rows reject a class, and who would have to leave them, in numbers
    filter_program            the filters for one class, as arrays
    budgets, nominations      what the dry run of preemption counts with
    reliance                  placed pods, not bound yet, that a decision leans on
    compiled                  the loop of the fast lane, and how it is compiled
    decision, record          what was decided and why; the same, packed to be kept
    queue                     which pending pod is next, and what wakes the others
    waking                    what happens in a cluster, as what wakes pods of its queue
    copying                   a snapshot of one's own, for what-if

Two things are called a program. ``programs`` makes one of a class's rules about other pods, which
the loop of the fast lane adds to the class's plan. ``row_program`` makes one of all the class's
filters (``filter_program``), which says why rows reject the class and who would have to leave them.

``cycle.schedule_batch`` is the main entry; ``scheduling.worker.mirror`` feeds the snapshot, and
simulations feed one of their own. Nothing here reads a clock or rolls dice that it was not given
(seeds are arguments), so equal inputs give equal decisions.

                   deltas                      pods, seed
                     |                             |
    plugins <--- snapshot <--- deciding <-- cycle ---> decisions
                     ^                             |
                     +--------- assume ------------+
"""

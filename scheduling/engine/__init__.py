"""Decides where pods go, in memory: takes a snapshot and pods, returns complete decision records.

    snapshot      the cluster as columns, kept up to date by deltas
    queue         the pending pods: their order, and the events that wake them
    reference     the reference path: every plugin runs on every node
    fast          the fast path: runs of pods in one compiled loop
    deciding      chooses one of the two paths for a pod
    groups        the cycle of a group: all of its pods are placed, or none
    preemption    which pods of a node to preempt
    compiled      the compiled loops of fast path and preemption

Two things are called a program. ``fast.programs`` writes one of a class's rules about other pods,
for the loop of the fast path. ``preemption.row_program`` writes one of all filters for a class,
which says why rows reject the class and which pods would have to leave them.

``reference.cycle.schedule_batch`` is the main entry. ``scheduling.worker.mirror`` feeds the
snapshot; simulations feed one of their own. Clock and random seed are arguments, so equal inputs
give equal decisions.

                   deltas                      pods, seed
                     |                             |
    plugins <--- snapshot <--- deciding <-- cycle ---> decisions
                     ^                             |
                     +--------- assume ------------+
"""

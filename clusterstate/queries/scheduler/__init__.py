"""Reads about the scheduler: decisions, canaries, reservations, plans.

::

    decisions, decision_search    decisions of a pod; a search across pods
    seals                         the chain of digests over decisions
    decision_checks               decisions that were made again: which is next, what differed
    canaries                      configurations on trial
    reaching                      classes with hard rules about other pods
    reservations                  pods that have a node and are not bound yet
    plans, planning               plans and how far they are; what a plan reads of nodes and pods
    overview                      what waits, what leaves, what was decided last
"""

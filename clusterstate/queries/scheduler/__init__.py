"""Reads about the scheduler: decisions, canaries, reservations, plans.

::

    decisions, decision_search    decisions of a pod; a search across pods
    seals                         the chain of digests over decisions
    decision_checks               repeated decisions: which is next, which differed
    canaries                      configurations on trial
    reaching                      classes with hard rules about other pods
    reservations                  pods that have a node and are not bound yet
    plans, planning               plans and their progress; what a plan reads of nodes and pods
    overview                      waiting pods, evictions, the last decisions
"""

"""Answers about scheduling that change no pod: what would happen, and what happened and why.

::

    advisor      asking: a question and its answer go through Redis, with a deadline
    advising     the loop and the threads of an advisor process, which answers
    registry     the questions by name; a new one is a line there
    live         the world that a question gets: a mirror that follows the change log
    questions    simulations, headroom, landings of evicted pods, decisions, the configuration
    why          every filter on every node, the scores, and what would let a pod in
    waiting_groups  waiting pods by what stands in their way
    zones        how the zones were at a moment of the past
    room_left    headroom for ``/metrics``: how many more pods of the usual shapes fit, and what
                 blocks the next (``simulation.headroom`` computes it)
    node_advice  which nodes to add for the pods that wait
    packing          what fits if all pods are looked at together
    present      the cluster as it is now with the pods that wait
    plans        what will happen if these changes are made: plan_nodes (what they become),
                 plan_leavers (who leaves), plan_brakes (what waits for approval), plan_queue
                 (where pods wait), plan_steps (what is done), plan_scaling (pods that come or go
                 with replicas), plan_holding (for whom a place can be held), plan_rebalancing
                 (which nodes can be emptied), plan_answer (the answer)
    replay       a recorded decision made again, on the cluster as it was then
    effective    which plugins a configuration comes to, where each acts, and why
    comparing    the recent past (``recorded``) beside what other configurations would have made
                 of it

A question about the live cluster is answered on a copy of a mirror (``scheduling.worker.mirror``)
that an advisor keeps up with the change log; a question about the past is answered on a snapshot
that is rebuilt from stored documents and the change log. ``scheduling.simulation`` computes the
answers; it does not query. Answers take from the worker only its mirror and its profiles.
"""

"""Answers about scheduling that change no pod: what would happen, and what happened and why.

::

    advisor      sends a question to an advisor through Redis and waits for the answer
    advising     the loop and the threads of an advisor process, which answers
    registry     the questions by name; a new one is a line there
    live         the world that a question gets: a mirror that follows the change log
    questions    simulations, headroom, landings of evicted pods, decisions, the configuration
    why          every filter on every node, the scores, and remedies for a pod
    waiting_groups  waiting pods grouped by what rejects them
    zones        the state of zones at a past moment
    room_left    headroom for ``/metrics``: how many more pods of the usual shapes fit, and what
                 blocks the next (``simulation.headroom`` computes it)
    node_advice  which nodes to add for the pods that wait
    packing      places all pods together
    present      the cluster as it is now with the pods that wait
    plans        predicts a plan: plan_nodes (nodes after it), plan_leavers (pods that leave),
                 plan_brakes (evictions that wait for approval), plan_queue (pods in the queue),
                 plan_steps (the steps to carry out), plan_scaling (changed replicas), plan_holding
                 (room that can be reserved), plan_rebalancing (nodes to empty), plan_answer
    replay       a recorded decision made again, on the cluster as it was then
    effective    a configuration's plugins, their extension points and the source of each
    comparing    the recent past (``recorded``) beside what other configurations would have made
                 of it

A question about the live cluster is answered on a copy of a mirror (``scheduling.worker.mirror``)
that an advisor keeps up with the change log; a question about the past is answered on a snapshot
that is rebuilt from stored documents and the change log. ``scheduling.simulation`` computes the
answers; it does not query. Answers take from the worker only its mirror and its profiles.
"""

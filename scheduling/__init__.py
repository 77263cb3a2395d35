"""Scheduling and controllers. It imports ``clusterstate``, never the reverse.

Packages, each importing only from those below it (checked by import-linter)::

    apps, tasks, celery    entry points of Django and Celery; ``management`` has the commands
    __main__               the command that starts a worker or beat
    processes              the loops that the worker processes run
    answers                what-if questions; recorded decisions explained and repeated
    worker                 the scheduling worker: reads changes, decides, binds, refuses, records
    controllers            loops over the change log: evictions, nodes, budgets, garbage, ...
    scenarios              simulated hours of a cluster, under several configurations
    passes                 runs one pass of a loop; logs its failure, closes its session
    simulation             a world and pods in, placements out; neither queries nor stores
    packing                places all pods together with a solver, and bounds the result
    engine, plugins        the decision core: snapshot in, decisions out
    framework              shared by plugins, configuration and engine

``framework``, ``engine`` and ``plugins`` read no clock and no database. A lost wake-up
(``clusterstate.change_log.wake``) costs latency, never a pod: every loop also polls by itself.
"""

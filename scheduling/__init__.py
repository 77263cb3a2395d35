"""Decide and react: knows ``clusterstate``, never the reverse.

Packages, each importing only from those below it (checked by import-linter)::

    apps, tasks, celery    entry points of Django and Celery; ``management`` has the commands
    __main__               the command that starts a worker or beat
    processes              the loops that the worker processes run
    answers                what-if questions, and recorded decisions explained and made again
    worker                 the scheduling worker: mirror, decide, bind, refuse, record
    controllers            what follows the change log: evictions, nodes, budgets, garbage, ...
    scenarios              the fate of a cluster over hours, under several configurations
    passes                 what a pass that fails logs, and the fate of its session
    simulation             a world and pods in, placements out; neither queries nor keeps anything
    packing                all pods looked at together: a solver, and how good its answer is
    engine, plugins        the decision core: snapshot in, decisions out
    framework              what plugins, configuration and engine share

``framework``, ``engine`` and ``plugins`` read no clock and no database. A lost wake-up
(``clusterstate.change_log.wake``) costs latency, never a pod: every loop also looks by itself.
"""

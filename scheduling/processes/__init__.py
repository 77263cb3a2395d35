"""The loops that worker processes run from their start to their end; ``loops`` starts them.

The scheduling worker, the timers worker and the worker with the controllers each run one loop.
Celery starts and stops the processes and sends tasks; no loop needs a task or Redis to go on. A
``loop`` is a thread; ``duties`` is the work of the process with the controllers, some of it on an
``own_thread``; ``landings`` predicts the new nodes of pods to be evicted soon, ``rounds`` the plans
that are carried out on a schedule; ``decision_checks`` repeats decisions in an idle advisor.
``nudges`` limits what beat logs while Redis takes no tasks; ``broker`` waits for tasks without
polling each second; ``messages`` keeps a worker running after errors of Redis and of tasks.
"""

"""The loops that worker processes run from their start to their end; ``loops`` starts them.

The scheduling worker, the timers worker and the worker with the controllers each run one loop.
Celery starts and stops the processes and sends tasks; no loop needs a task or Redis to go on.
A ``loop`` is a thread; ``duties`` is the work of the process with the controllers, some of it on an
``own_thread``; ``landings`` is where pods go that leave soon; ``decision_checks`` makes
decisions again in an advisor that has nothing else to do. ``nudges`` limits what beat logs
while Redis takes no tasks; ``broker`` waits for tasks without asking each second; ``messages``
lets a worker go on whatever Redis answers, and whatever becomes of a task.
"""

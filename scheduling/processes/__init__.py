"""What the worker processes do for all their life: ``loops`` starts and ends with the process.

The scheduling worker, the timers worker and the worker with the controllers each run one loop.
Celery starts and stops the processes and sends tasks; no loop needs a task or Redis to go on.
A ``loop`` is a thread; ``duties`` is what the one with the controllers does; ``nudges`` is what
beat says while Redis takes no tasks.
"""

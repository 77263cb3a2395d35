"""Celery's entry points: keyword-only, idempotent, one call each.

A task stands for the work of a worker process's loop (``processes``): in a process with that loop
the task ends the loop's pause, in any other it does the work once. So plain Celery workers on these
queues are enough to run a cluster.

Each task imports its modules itself: beat and the other workers import this module, too, and need
neither NumPy nor the compiled loops.
"""

from celery import shared_task

from clusterstate.processes import steady_clock
from scheduling.processes.messages import stopping

LINGER_SECONDS = 10.0
"""Seconds that a task works in a process without the loop."""


def _nudged(loop: str) -> bool:
    from scheduling.processes import loops

    return loops.nudge(loop)


@shared_task(name="scheduling.tasks.run_cycles", ignore_result=True)
def run_cycles(*, longest: float = LINGER_SECONDS, **_: object) -> int:
    """Run scheduling cycles for at most ``longest`` seconds (``worker.loop``)."""
    from scheduling.worker import loop
    from scheduling.worker.scheduler import NAME

    return 0 if _nudged(NAME) else loop.run(longest=longest, stopping=stopping)


@shared_task(name="scheduling.tasks.run_bindings", ignore_result=True)
def run_bindings(**_: object) -> int:
    """Run the waiting PreBind, Bind and PostBind plugins (``worker.binding_cycle``)."""
    from clusterstate.queries.scheduler import reservations

    if not reservations.with_work():
        return 0
    from scheduling.worker import binding_cycle

    return binding_cycle.run(stopping=stopping)


@shared_task(name="scheduling.tasks.run_evictions", ignore_result=True)
def run_evictions(*, longest: float = LINGER_SECONDS, **_: object) -> int:
    """Evict due pods for at most ``longest`` seconds (``controllers.evictions.timekeeper``)."""
    from scheduling.controllers.evictions import timekeeper

    return 0 if _nudged(timekeeper.NAME) else timekeeper.run(longest=longest, stopping=stopping)


@shared_task(name="scheduling.tasks.run_controllers", ignore_result=True)
def run_controllers(**_: object) -> None:
    """Run one pass of the controllers (``controllers.manager``)."""
    from scheduling.controllers import manager
    from scheduling.controllers.nodes import lifecycle

    if not _nudged(manager.NAME):
        manager.run(steady_clock.now())
        lifecycle.run(steady_clock.now())


@shared_task(name="scheduling.tasks.foresee_landings", ignore_result=True)
def foresee_landings(**_: object) -> None:
    """Predict the new nodes of pods to be evicted soon for node labels."""
    from scheduling.processes import landings

    landings.foresee(steady_clock.now())


@shared_task(name="scheduling.tasks.deliver_webhooks", ignore_result=True)
def deliver_webhooks(**_: object) -> int:
    """Deliver due events to webhooks (``controllers.webhooks``)."""
    from scheduling.controllers.webhooks import delivery

    return delivery.deliver_due(steady_clock.now(), stopping=stopping)


@shared_task(name="scheduling.tasks.trim_history", ignore_result=True)
def trim_history(**_: object) -> None:
    """Delete changes, documents, events and decisions older than their retention time."""
    from scheduling.processes import duties

    if not _nudged("controllers"):
        duties.trim()

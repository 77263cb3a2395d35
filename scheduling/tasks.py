"""Celery's entry points: keyword-only, idempotent, one call each.

The runner is imported by the task that needs it: beat and the other worker know this module too,
and do without NumPy and the compiled loops.
"""

from datetime import UTC, datetime, timedelta

from celery import shared_task
from celery.worker import state

from clusterstate import reservations, timers
from clusterstate.actions import decisions, history

LINGER_SECONDS = 10.0


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # a task is an edge


def _stopping() -> bool:
    """Return whether this worker was asked to shut down; then a flag holds an exit code, also 0."""
    flags = (state.should_stop, state.should_terminate)
    return any(flag is not None and flag is not False for flag in flags)


@shared_task(name="scheduling.tasks.run_cycles", ignore_result=True)
def run_cycles(*, longest: float = LINGER_SECONDS, **_: object) -> int:
    """Run scheduling cycles, lingering for more work; see ``scheduling.runner``."""
    from scheduling import runner

    return runner.run(longest=longest, stopping=_stopping)


@shared_task(name="scheduling.tasks.run_bindings", ignore_result=True)
def run_bindings(**_: object) -> int:
    """Do what PreBind, Bind and PostBind plugins have to do; see ``scheduling.binding``."""
    if not reservations.with_work():
        return 0
    from scheduling import binding

    return binding.run(stopping=_stopping)


@shared_task(name="scheduling.tasks.run_evictions", ignore_result=True)
def run_evictions(*, longest: float = LINGER_SECONDS, **_: object) -> int:
    """Follow the log and evict what is due, lingering; see ``controllers.timekeeper``."""
    from scheduling.controllers import timekeeper

    return timekeeper.run(longest=longest, stopping=_stopping)


@shared_task(name="scheduling.tasks.run_controllers", ignore_result=True)
def run_controllers(**_: object) -> None:
    """Let the controllers look at what is new; see ``controllers.manager``."""
    from scheduling.controllers import manager

    manager.run(_now())
    if timers.unforeseen(_now() + timedelta(seconds=30), limit=1):
        foresee_landings.delay()


@shared_task(name="scheduling.tasks.judge_nodes", ignore_result=True)
def judge_nodes(**_: object) -> None:
    """Turn silence and conditions of nodes into taints."""
    from scheduling.controllers import node_lifecycle

    node_lifecycle.run(_now())


@shared_task(name="scheduling.tasks.foresee_landings", ignore_result=True)
def foresee_landings(**_: object) -> None:
    """Work out where pods would go that are about to leave for node labels."""
    from scheduling import whatif

    whatif.foresee(_now())


@shared_task(name="scheduling.tasks.trim_history", ignore_result=True)
def trim_history(**_: object) -> None:
    """Drop changes, documents, events and decisions that are older than what is kept."""
    history.trim(now=_now())
    decisions.trim(now=_now())

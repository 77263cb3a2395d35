"""The Celery application: ``python -m scheduling worker``, or ``celery -A scheduling worker``.

Four kinds of workers run it, each with a loop that lives as long as the process
(``scheduling.processes``). The scheduling worker (``--queue scheduling``) keeps the warm snapshot;
the timers worker (``--queue timers``) sleeps until the next pod is to be evicted; an advisor
(``--queue advisor``) answers questions about the cluster, which it takes from its own Redis lists
(``scheduling.answers.advisor``); every other task goes to the default queue, whose worker has
threads for binding cycles (``scheduling.worker.binding_cycle``) and the loop of the controllers.
Beat sends the tasks in ``beat_schedule``. No loop needs them: they are for workers without a loop.
"""

import os
import signal
import warnings
from typing import Any

from celery import Celery, bootsteps
from celery.exceptions import CPendingDeprecationWarning
from celery.platforms import SecurityWarning
from celery.signals import (
    beat_init,
    setup_logging,
    task_prerun,
    worker_init,
    worker_shutting_down,
)
from django.conf import settings
from kombu.transport import TRANSPORT_ALIASES

from clusterstate.processes import shards

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clusterstate.settings")

# It warns of workers that run as root, where pickled messages could do harm; ours are JSON.
warnings.filterwarnings("ignore", category=SecurityWarning)
# It warns, each time that the broker was lost, of a default that may change. A task that is done
# twice does no harm.
warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)

_LOAD_SECONDS = 120.0
_STOP_SECONDS = 5.0
_NUDGE_SECONDS = 30.0
"""Seconds between two tasks of each kind; without a loop a task works as long."""
_TICK_SECONDS = 90.0  # each message may wait for a broker that is frozen

TRANSPORT_ALIASES |= dict.fromkeys(("redis", "rediss"), "scheduling.processes.broker:Transport")
app = Celery("stowage", task_cls="scheduling.processes.messages:Nudge")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.imports = ("scheduling.tasks",)
app.conf.task_routes = {
    "scheduling.tasks.run_cycles": {"queue": shards.queue(shards.FIRST)},
    "scheduling.tasks.run_evictions": {"queue": "timers"},
}
app.conf.beat_schedule = {
    "schedule": {
        "task": "scheduling.tasks.run_cycles",
        "schedule": _NUDGE_SECONDS,
        "options": {"expires": _NUDGE_SECONDS, "queue": shards.queue(shards.FIRST)},
    },
    "bind": {
        "task": "scheduling.tasks.run_bindings",
        "schedule": _NUDGE_SECONDS,
        "options": {"expires": _NUDGE_SECONDS},
    },
    "evict": {
        "task": "scheduling.tasks.run_evictions",
        "schedule": _NUDGE_SECONDS,
        "options": {"expires": _NUDGE_SECONDS, "queue": "timers"},
    },
    "run-controllers": {
        "task": "scheduling.tasks.run_controllers",
        "schedule": _NUDGE_SECONDS,
        "options": {"expires": _NUDGE_SECONDS},
    },
    "deliver-webhooks": {
        "task": "scheduling.tasks.deliver_webhooks",
        "schedule": _NUDGE_SECONDS,
        "options": {"expires": _NUDGE_SECONDS},
    },
    "trim-history": {
        "task": "scheduling.tasks.trim_history",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
}


@setup_logging.connect
def _keep_logging(**_: object) -> None:
    """Keep the logging of Django's settings.

    Without a receiver of this signal Celery sets the level of the root logger, and
    ``STOWAGE_LOG_LEVEL`` has no effect.
    """


@task_prerun.connect
def _check_connection(**_: object) -> None:
    """Drop a dead database connection before each task, as Django does before each request."""
    from clusterstate.database import sql

    sql.drop_dead_connection()


@worker_init.connect
def _warm_up(**_: object) -> None:
    """Load the engine's compiled loops before the process's loop starts, or start to compile them.

    Compiled loops are cached on disk; then this takes a fraction of a second.
    """
    from clusterstate.health import heartbeats
    from clusterstate.processes import collector
    from clusterstate.telemetry import slowness

    slowness.own.begin()  # the keeper of the loops measures it from then on
    if settings.PROCESS in ("scheduler", "advisor"):
        from scheduling.engine.deciding import LoopsUnavailable
        from scheduling.processes.loops import LOOPS
        from scheduling.worker import warming

        heartbeats.begin(settings.STATE_DIR, settings.PROCESS)
        loop = LOOPS[settings.PROCESS][0]
        try:
            with heartbeats.patience(loop, _LOAD_SECONDS):
                warming.begin(_end)
        except LoopsUnavailable as error:
            if settings.PROCESS == "scheduler":
                # Celery logs what a handler raises and goes on; an exit it lets through.
                raise SystemExit(f"the scheduler cannot start: {error}") from error
            # Without them an advisor's answers are slow, and right.
    collector.calm()


def _end() -> None:
    """End the scheduler's process if the loops cannot be loaded; an advisor works without them."""
    if settings.PROCESS == "scheduler":
        os.kill(os.getpid(), signal.SIGTERM)


class _Loops(bootsteps.StartStopStep):
    """Runs the process's loops, before the worker connects to Redis until it has disconnected."""

    def start(self, parent: object) -> None:
        from scheduling.processes import loops

        loops.start(settings.PROCESS)

    def stop(self, parent: object) -> None:
        from scheduling.processes import loops

        loops.stop()
        loops.join(_STOP_SECONDS)

    terminate = stop


app.steps["worker"].add(_Loops)


@worker_shutting_down.connect
def _stop_loops(**_: object) -> None:
    """Stop the loops while the worker still waits for its tasks, or for Redis."""
    from scheduling.processes import broker, loops

    loops.stop()
    broker.wake()


@beat_init.connect
def _beat_tells(sender: Any, **_: object) -> None:
    """Let each tick of beat write a heartbeat, and limit its log lines about Redis."""
    from clusterstate.health import heartbeats
    from clusterstate.processes import collector
    from scheduling.processes.nudges import Nudges

    heartbeats.begin(settings.STATE_DIR, settings.PROCESS)
    scheduler = sender.scheduler
    scheduler.apply_entry = Nudges(scheduler.apply_async).apply_entry
    tick = scheduler.tick

    def ticking(*arguments: Any, **named: Any) -> Any:
        heartbeats.beat("beat", _TICK_SECONDS)
        return tick(*arguments, **named)

    scheduler.tick = ticking
    collector.calm()

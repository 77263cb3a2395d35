"""The Celery application: ``celery -A scheduling worker``.

Three kinds of workers run it. The scheduling worker (``-Q scheduling -P solo -c 1``) keeps the warm
snapshot between tasks; the timers worker (``-Q timers -P solo -c 1``) sleeps until the next pod is
to be evicted; every other task goes to the default queue, whose worker has threads for the binding
cycles that wait (``scheduling.binding``) beside those for the controllers. Beat sends the backstops
listed in ``beat_schedule``: each is also triggered by what it waits for, so beat alone or the
triggers alone are enough.
"""

import os
import warnings

from celery import Celery
from celery.platforms import SecurityWarning
from celery.signals import beat_init, task_prerun, worker_init, worker_ready
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clusterstate.settings")

# It warns of workers that run as root, where pickled messages could do harm; ours are JSON.
warnings.filterwarnings("ignore", category=SecurityWarning)

app = Celery("stowage")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.conf.task_routes = {
    "scheduling.tasks.run_cycles": {"queue": "scheduling"},
    "scheduling.tasks.run_evictions": {"queue": "timers"},
}
app.conf.beat_schedule = {
    "schedule": {
        "task": "scheduling.tasks.run_cycles",
        "schedule": 1.0,
        "options": {"expires": 2, "queue": "scheduling"},
    },
    "bind": {
        "task": "scheduling.tasks.run_bindings",
        "schedule": 1.0,
        "options": {"expires": 2},
    },
    "evict": {
        "task": "scheduling.tasks.run_evictions",
        "schedule": 1.0,
        "options": {"expires": 2, "queue": "timers"},
    },
    "run-controllers": {
        "task": "scheduling.tasks.run_controllers",
        "schedule": 1.0,
        "options": {"expires": 2},
    },
    "judge-nodes": {
        "task": "scheduling.tasks.judge_nodes",
        "schedule": settings.NODE_MONITOR_PERIOD_SECONDS,
        "options": {"expires": 5},
    },
    "trim-history": {
        "task": "scheduling.tasks.trim_history",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
}


@task_prerun.connect
def _check_connection(**_: object) -> None:
    """Drop a dead database connection before each task, as Django does before each request."""
    from clusterstate import sql

    sql.drop_dead_connection()


@worker_init.connect
def _warm_up(**_: object) -> None:
    """Compile what deciding needs before `/readyz` counts the scheduler as there.

    Once compiled it is kept beside the code; then this takes a fraction of a second.
    """
    from clusterstate import collector

    if settings.PROCESS == "scheduler":
        from scheduling.engine import class_cache

        class_cache.warm()
    collector.calm()


@worker_ready.connect
@beat_init.connect
def _announce_alive(**_: object) -> None:
    """Show `/readyz` that this process, scheduler, worker or beat, is there."""
    from clusterstate import heartbeats

    heartbeats.start(settings.PROCESS)

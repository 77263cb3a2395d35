"""The application's configuration: commits wake the scheduler, processes write heartbeats."""

from datetime import datetime
from typing import Any

from django.apps import AppConfig

_REVISED = ("DaemonSet", "Deployment", "StatefulSet")
_NOT_SCHEDULED = frozenset({"Event", "Lease"})


class SchedulingConfig(AppConfig):
    """The Django application: it has no tables, and connects commits with wake-ups of loops."""

    name = "scheduling"
    verbose_name = "Scheduling"

    def ready(self) -> None:
        """Connect the signals, once all applications are loaded."""
        from clusterstate.actions import objects
        from clusterstate.actions.scheduler import scheduler_configuration
        from clusterstate.change_log.changes import committed
        from scheduling.celery import app

        app.set_default()  # tasks are sent by every thread of every process

        committed.connect(_announce, dispatch_uid="clusterstate.change_log.wake")
        scheduler_configuration.check_with(_check_configuration)
        objects.follow_with(_follow, _REVISED)


def _check_configuration(document: object) -> tuple[str, list[str]]:
    from scheduling.answers import questions  # imports NumPy, which most requests do not need

    return questions.check_configuration(document)


def _follow(kind: str, namespace: str, name: str, now: datetime) -> None:
    from scheduling.controllers.workloads import promptly

    promptly.make_revision(kind, namespace, name, now)


def _announce(*, revision: int, kinds: frozenset[str], leaving: bool, **_: Any) -> None:
    from clusterstate.change_log import wake

    if kinds <= _NOT_SCHEDULED:
        with wake.without_scheduler():
            wake.announce(revision=revision)
    else:
        wake.announce(revision=revision, kinds=kinds, leaving=leaving)

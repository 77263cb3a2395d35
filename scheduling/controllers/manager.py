"""Runs the controllers that look at the log once a second, as kube-controller-manager does.

They are passes of a few queries each, so one task runs all: a message for each would cost more
than what they find. Nodes are judged, and pods evicted and bound, by tasks of their own.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from clusterstate import queries, sql
from clusterstate.actions import namespaces
from scheduling.controllers import disruption, pressure, replicas, runtime_classes

logger = structlog.get_logger(__name__)


def _finish_namespaces(now: datetime) -> None:
    for name in queries.terminating_namespaces():
        namespaces.finish_deletion(name, now=now)


CONTROLLERS: Final[dict[str, Callable[[datetime], object]]] = {
    "disruption": disruption.follow,
    "pressure": pressure.run,
    "runtime-classes": runtime_classes.follow,
    "replicas": replicas.follow,
    "namespaces": _finish_namespaces,
}


def run(now: datetime) -> None:
    """Let each controller look at what is new; one that fails is logged, and the rest goes on."""
    for name, look in CONTROLLERS.items():
        sql.drop_dead_connection()
        try:
            look(now)
        except Exception:
            logger.exception("controller_failed", controller=name)

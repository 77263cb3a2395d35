"""Which namespaces the workload controllers process, in which order, and when again."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec
import structlog
from django.conf import settings

from clusterstate.actions.loops import aside
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.change_log import wake
from clusterstate.database import locks
from clusterstate.objects.values.actor import acting, controller
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.loops.controllers import PendingWork
from clusterstate.queries.objects.workloads import namespaces_of_pods_of, namespaces_with
from scheduling.controllers import by_namespace
from scheduling.controllers.workloads import (
    autoscalers,
    cron_jobs,
    daemon_sets,
    deployments,
    jobs,
    replica_sets,
    stateful_sets,
)
from scheduling.controllers.workloads.control import NamespaceControl
from scheduling.controllers.workloads.world import NamespaceState, daemon_nodes

logger = structlog.get_logger(__name__)

NAME: Final = "workloads"
_ROUNDS: Final = 3
"""Steps in a pass: what a Deployment wants of a ReplicaSet is done before the next second."""

_Sync = Callable[[NamespaceControl, Manifest], object]


class _Step(msgspec.Struct, frozen=True):
    """A controller: its name in the settings and in the log, its kind, its work on one object.

    ``reads``: the other kinds that it reads.
    """

    name: str
    account: str
    kind: str
    work: _Sync
    reads: tuple[str, ...] = ()
    before: Callable[[NamespaceControl], object] = lambda control: None
    """What it does for the namespace, before the objects."""


_STEPS: Final = (
    _Step(
        "horizontalpodautoscaler",
        "horizontal-pod-autoscaler",
        "HorizontalPodAutoscaler",
        autoscalers.sync,
        autoscalers.TARGETS,
    ),
    _Step(
        "deployment",
        "deployment-controller",
        "Deployment",
        deployments.sync,
        ("ReplicaSet",),
    ),
    _Step("replicaset", "replicaset-controller", "ReplicaSet", replica_sets.sync),
    _Step(
        "replicationcontroller",
        "replication-controller",
        "ReplicationController",
        replica_sets.sync,
    ),
    _Step(
        "daemonset",
        "daemon-set-controller",
        "DaemonSet",
        daemon_sets.sync,
        ("ControllerRevision",),
    ),
    _Step(
        "statefulset",
        "statefulset-controller",
        "StatefulSet",
        stateful_sets.sync,
        ("ControllerRevision", "PersistentVolumeClaim"),
    ),
    _Step("cronjob", "cronjob-controller", "CronJob", cron_jobs.sync, ("Job",)),
    _Step("job", "job-controller", "Job", jobs.sync, before=jobs.release),
)
"""In the order in which they work."""
_DAEMONS: Final = "DaemonSet"

_NODES: Final = by_namespace.Around(daemon_nodes, lambda: set(namespaces_with([_DAEMONS])))
"""What matters of nodes to DaemonSets."""


def must_look_again(pending: PendingWork, now: datetime) -> bool:
    """Return whether a workload is due without a change."""
    return by_namespace.is_due(NAME, pending, now)


def _at_work() -> list[_Step]:
    return [step for step in _STEPS if step.name in settings.CONTROLLERS]


def follow(now: datetime) -> int:
    """Reconcile workloads where something changed; return in how many namespaces.

    Does nothing while another pass runs, which would create the same pods twice.
    """
    if not settings.CONTROLLERS:
        return 0
    with locks.alone(locks.WORKLOADS) as mine, wake.without_workloads():
        return _pass(now) if mine else 0


def _pass(now: datetime) -> int:
    kinds = [step.kind for step in _at_work()]

    def present(cursor: int | None, mark: int) -> set[str]:
        found = set(namespaces_with(kinds))
        if "Job" in kinds:  # pods must be released after their Job is deleted, too
            found |= namespaces_of_pods_of("Job", cursor, mark)
        return found

    return by_namespace.follow(
        NAME,
        now,
        kinds=("Pod", "Node", *dict.fromkeys([*kinds, "ReplicaSet"])),
        present=present,
        sync=lambda namespace: sync(namespace, now),
        around=_NODES if _DAEMONS in kinds else None,
    )


def sync(namespace: str, now: datetime) -> datetime | None:
    """Reconcile the workloads of a namespace.

    Returns when to do so again without a change, ``None`` for never.
    """
    due_at: datetime | None = None
    for _ in range(_ROUNDS):
        steps = _at_work()
        kinds = dict.fromkeys(kind for one in steps for kind in (one.kind, *one.reads))
        control = NamespaceControl(NamespaceState(namespace, list(kinds)), now)
        for step in steps:
            with acting(controller(step.account)):
                step.before(control)
                for owner in list(control.world.owners[step.kind]):
                    _alone(control, owner, step.work)
        due_at = control.finish()
        if not control.wrote:
            break
    return due_at


def _alone(control: NamespaceControl, owner: Manifest, work: _Sync) -> None:
    """Work on one workload; if it fails it is set aside for a while, and the others continue."""
    metadata = owner["metadata"]
    which = ObjectRef(owner["kind"], namespace=metadata["namespace"], name=metadata["name"])
    aside.one(
        NAME,
        which,
        lambda: work(control, owner),
        now=control.now,
        instead=lambda: control.look_again(control.now + by_namespace.AGAIN),
    )

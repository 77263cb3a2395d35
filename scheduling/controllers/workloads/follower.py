"""Which namespaces the workload controllers look at, in which order, and when again."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog
from django.conf import settings

from clusterstate import changes, locks, memory
from clusterstate.actions import aside, controller_state
from clusterstate.actions.aside import Which
from clusterstate.objects import document
from clusterstate.objects.actor import acting, controller
from clusterstate.objects.meta import Manifest
from clusterstate.queries.controllers import PendingWork, stored_state
from clusterstate.queries.namespaces import changed_namespaces
from clusterstate.queries.workloads import namespaces_of_pods_of, namespaces_with
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
from scheduling.controllers.workloads.daemon_set_rules import DaemonNode
from scheduling.controllers.workloads.world import World, daemon_nodes

logger = structlog.get_logger(__name__)

NAME: Final = "workloads"
_CLUSTER: Final = ""
"""The namespace, in the log, of objects that have none."""
_ROUNDS: Final = 3
"""Steps in a pass: what a Deployment wants of a ReplicaSet is done before the next second."""

_Sync = Callable[[NamespaceControl, Manifest], object]


class _Step(msgspec.Struct, frozen=True):
    """A controller: its name in the settings and in the log, its kind, what it does for one of it.

    ``reads`` are the kinds that it looks at besides.
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

_known_nodes: list[list[DaemonNode]] = []
"""The nodes as the DaemonSets have seen them: none, or one list."""
memory.when_replaced(_known_nodes.clear)


def must_look_again(seen: PendingWork, now: datetime) -> bool:
    """Return whether a workload waits for nothing but the time."""
    return bool(_due(seen.states.get(NAME, {}), now))


def _due(kept: Mapping[str, str], now: datetime) -> list[str]:
    return [name for name, at in kept.items() if document.parse_time(at) <= now]


def _at_work() -> list[_Step]:
    return [step for step in _STEPS if step.name in settings.CONTROLLERS]


def follow(now: datetime) -> int:
    """Bring workloads to what they ask for where something changed; return how many namespaces.

    Does nothing while another pass runs, whose pods would be made twice.
    """
    if not settings.CONTROLLERS:
        return 0
    with locks.alone(locks.WORKLOADS) as mine:
        return _pass(now) if mine else 0


def _pass(now: datetime) -> int:
    cursor = controller_state.cursor(NAME)
    kept: dict[str, Any] = stored_state(NAME)
    before = dict(kept)
    mark = changes.watermark()
    kinds = [step.kind for step in _at_work()]
    present = set(namespaces_with(kinds))
    if "Job" in kinds:  # its pods have to be let go after it, too
        present |= namespaces_of_pods_of("Job", cursor, mark)
    followed = ("Pod", "Node", *dict.fromkeys([*kinds, "ReplicaSet"]))
    if cursor is None or (found := changed_namespaces(cursor, mark, followed)) is None:
        chosen = present
        if _DAEMONS in kinds:
            _are_nodes_others()
    else:
        chosen = present & {*found, *_due(kept, now)}
        if _CLUSTER in found and _DAEMONS in kinds and _are_nodes_others():
            chosen |= set(namespaces_with([_DAEMONS]))
    for namespace in sorted(chosen):
        done = aside.each(
            NAME,
            [namespace],
            lambda names: sync(names[0], now),
            which=lambda name: Which("Namespace", name=name),
            now=now,
        )
        kept.pop(namespace, None)
        if done and done[0] is not None:
            kept[namespace] = done[0].isoformat()
    kept = {name: at for name, at in kept.items() if name in present}
    if kept != before:
        controller_state.set_state(NAME, kept)
    if cursor is None or mark > cursor:
        controller_state.set_cursor(NAME, mark)
    return len(chosen)


def _are_nodes_others() -> bool:
    """Return whether nodes came, went or changed in what matters to daemons, since last asked."""
    found = daemon_nodes()
    if _known_nodes == [found]:
        return False
    _known_nodes[:] = [found]
    return True


def sync(namespace: str, now: datetime) -> datetime | None:
    """Bring the workloads of a namespace to what they ask for.

    Returns when to look again though nothing changed, ``None`` for never.
    """
    due_at: datetime | None = None
    for _ in range(_ROUNDS):
        steps = _at_work()
        kinds = dict.fromkeys(kind for one in steps for kind in (one.kind, *one.reads))
        control = NamespaceControl(World(namespace, list(kinds)), now)
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
    """Work on one workload; what it cannot digest is set aside, and the others go on."""
    metadata = owner["metadata"]
    which = Which(owner["kind"], namespace=metadata["namespace"], name=metadata["name"])
    aside.each(
        NAME,
        [owner],
        lambda some: work(control, some[0]),
        which=lambda one: which,
        now=control.now,
    )

"""Runs the controllers that check for work once a second, as kube-controller-manager's do.

In most seconds nothing happened, so one query finds which of them have work. A pass is a few
queries, or half a minute of work when thousands of pods are to be created: the worker process
therefore gives each controller a thread of its own (``scheduling.processes.duties``), and none
waits for another. Each holds its own lock, or its writes are idempotent. Separate loops evict and
bind pods, and judge nodes.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

import msgspec
from django.conf import settings

from clusterstate.actions.cluster import namespaces
from clusterstate.actions.loops import aside
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.objects.values import actor
from clusterstate.objects.values.actor import Actor
from clusterstate.queries.loops.controllers import PendingWork, pending_work
from clusterstate.queries.objects.namespaces import terminating_namespaces
from scheduling import passes
from scheduling.controllers import (
    by_namespace,
    canaries,
    cluster_roles,
    garbage,
    namespace_defaults,
    quotas,
    resizes,
    runtime_classes,
)
from scheduling.controllers.budgets import statuses
from scheduling.controllers.endpoints import follower as endpoints
from scheduling.controllers.evictions import devices as device_taints
from scheduling.controllers.nodes import pressure
from scheduling.controllers.pods import podgc, resource_claims
from scheduling.controllers.volumes import follower as volumes
from scheduling.controllers.workloads import follower as workloads

WORKLOADS: Final = workloads.NAME
CLAIMS: Final = resource_claims.NAME
NAME: Final = "controllers"
"""The loop's name in heartbeats, and of its row of progress."""


class Controller(msgspec.Struct, frozen=True):
    """One pass of a controller, and whether a pass would find anything to do.

    ``actor``: the user under which its changes are recorded: Kubernetes' controller for the same
    task, if there is one.
    """

    look: Callable[[datetime], object]
    has_work: Callable[[PendingWork, datetime], bool]
    actor: Actor


def _finish_namespaces(now: datetime) -> None:
    aside.each(
        "namespaces",
        terminating_namespaces(),
        lambda names: [namespaces.finish_deletion(name, now=now) for name in names],
        which=lambda name: ObjectRef("Namespace", name=name),
        now=now,
    )


def _is_on_and_due(setting: str, name: str, pending: PendingWork, now: datetime) -> bool:
    """Return whether a controller works here (``STOWAGE_CONTROLLERS``) and has something to do."""
    is_due = pending.is_behind(name) or by_namespace.is_due(name, pending, now)
    return is_due and setting in settings.CONTROLLERS


CONTROLLERS: Final[dict[str, Controller]] = {
    statuses.NAME: Controller(
        statuses.follow,
        lambda seen, now: (
            seen.is_behind(statuses.NAME) or by_namespace.is_due(statuses.NAME, seen, now)
        ),
        actor.controller("disruption-controller"),
    ),
    pressure.NAME: Controller(
        pressure.run, lambda seen, now: seen.unjudged, actor.controller("node-pressure-controller")
    ),
    runtime_classes.NAME: Controller(
        runtime_classes.follow,
        lambda seen, now: seen.is_behind(runtime_classes.NAME),
        actor.controller("runtime-class-controller"),
    ),
    workloads.NAME: Controller(
        workloads.follow,
        lambda seen, now: seen.is_behind(workloads.NAME) or workloads.must_look_again(seen, now),
        actor.controller("workload-controllers"),  # see `workloads.follower`
    ),
    endpoints.NAME: Controller(
        endpoints.follow,
        endpoints.has_work,
        actor.controller("endpointslice-controller"),  # each controller records its own name
    ),
    namespace_defaults.NAME: Controller(
        namespace_defaults.follow,
        lambda seen, now: namespace_defaults.has_work(seen),
        actor.controller("service-account-controller"),
    ),
    cluster_roles.NAME: Controller(
        cluster_roles.follow,
        lambda seen, now: seen.is_behind(cluster_roles.NAME),
        actor.controller("clusterrole-aggregation-controller"),
    ),
    resource_claims.NAME: Controller(
        resource_claims.follow,
        partial(_is_on_and_due, "resourceclaim", resource_claims.NAME),
        resource_claims.ACTOR,
    ),
    device_taints.NAME: Controller(
        device_taints.follow,
        lambda seen, now: (
            seen.is_behind(device_taints.NAME) or by_namespace.is_due(device_taints.NAME, seen, now)
        ),
        actor.controller("device-taint-eviction-controller"),
    ),
    quotas.NAME: Controller(
        quotas.settle,
        lambda seen, now: seen.unsettled_quotas,
        actor.controller("resourcequota-controller"),
    ),
    resizes.NAME: Controller(
        resizes.follow,
        lambda seen, now: resizes.has_work(seen),
        actor.controller("pod-resize-controller"),
    ),
    garbage.NAME: Controller(
        garbage.follow,
        lambda seen, now: garbage.has_work(seen),
        actor.controller("generic-garbage-collector"),
    ),
    canaries.NAME: Controller(
        canaries.follow,
        lambda seen, now: seen.guards_canary,
        actor.controller("canary-controller"),
    ),
    volumes.NAME: Controller(
        volumes.follow, volumes.has_work, actor.controller("persistent-volume-binder")
    ),
    podgc.NAME: Controller(
        podgc.collect, podgc.has_work, actor.controller("pod-garbage-collector")
    ),
    "namespaces": Controller(
        _finish_namespaces,
        lambda seen, now: seen.terminating_namespaces,
        actor.controller("namespace-controller"),
    ),
    "aside": Controller(
        aside.sweep, lambda seen, now: seen.set_aside, actor.controller("aside-controller")
    ),
}


def with_work(now: datetime) -> list[str]:
    """Return the controllers that have work, in the order in which they run.

    Queries once.
    """
    pending = pending_work(list(CONTROLLERS))
    return [name for name, one in CONTROLLERS.items() if one.has_work(pending, now)]


def work_of(name: str) -> str:
    """Return the name of a controller's passes in the log, and of the thread that runs them."""
    return f"controller-{name}"


def run_pass(name: str, now: datetime) -> None:
    """Run one pass of a controller; raises the controller's errors."""
    with actor.acting(CONTROLLERS[name].actor):
        CONTROLLERS[name].look(now)


def run(now: datetime) -> list[str]:
    """Run every controller that has work, one after the other; return the names of those that ran.

    An error is logged (`passes.attempt`), and the other controllers run. Queries once if none has
    work.
    """
    looked = with_work(now)
    for name in looked:
        passes.attempt(work_of(name), partial(run_pass, name, now))
    return looked

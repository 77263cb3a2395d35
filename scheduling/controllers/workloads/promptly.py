"""The revision of a changed template, created before the client that changed it has its answer.

``kubectl rollout undo`` uses the revision before the newest one: if the controllers' next pass came
after it, it would find none, or the wrong one. So the ReplicaSet (without replicas) or the
ControllerRevision of the present template is created, or becomes the newest, in a transaction after
that of the change. The controllers' pass creates it if this failed.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog
from django.conf import settings

from clusterstate.actions import objects
from clusterstate.objects.rules.ownership import is_controlled_by
from clusterstate.objects.values.actor import acting, controller
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers.workloads import deployment_records as records
from scheduling.controllers.workloads import deployment_rules, revision_rules
from scheduling.controllers.workloads.control import reference
from scheduling.controllers.workloads.world import selector_of

logger = structlog.get_logger(__name__)

_Make = Callable[[Manifest, list[Manifest], datetime], None]


def make_revision(kind: str, namespace: str, name: str, now: datetime) -> None:
    """Make the present template of a workload its newest revision.

    Queries a few times, and writes only if a newer revision is needed. Does nothing if another
    program is the controller. Leaves refusals (a quota, a taken name) to the controllers, which
    report them.
    """
    if kind.lower() not in settings.CONTROLLERS:
        return
    account, revision_kind, make = _KINDS[kind]
    text = find_object(kind, namespace, name)
    owner = None if text is None else decode_object(text)
    if owner is None or owner["metadata"].get("deletionTimestamp"):
        return
    listed = list_page(revision_kind, namespace, label_selector=selector_of(owner)).items
    mine = [
        one for one in map(decode_object, listed) if is_controlled_by(one, owner["metadata"]["uid"])
    ]
    try:
        with acting(controller(account)):
            make(owner, mine, now)
    except StatusError as error:
        logger.debug("revision_left_to_the_controllers", kind=kind, name=name, error=error.message)


def _of_deployment(owner: Manifest, sets: list[Manifest], now: datetime) -> None:
    replica_sets = [records.replica_set_of(one) for one in sets]
    busy = {one.uid for one in replica_sets if one.present or one.replicas}
    actions = deployment_rules.reconcile(owner, replica_sets, busy=busy, now=now)
    if actions.created is not None:
        _create(
            "ReplicaSet",
            owner,
            {**actions.created, "spec": {**actions.created["spec"], "replicas": 0}},
            now,
        )
        return
    before = {one.name: one.annotations.get(records.REVISION) for one in replica_sets}
    for one in actions.changed:
        revision = one.annotations.get(records.REVISION)
        if revision != before[one.name]:
            _annotate(owner, one.name, one.annotations, now)


def _annotate(owner: Manifest, name: str, annotations: dict[str, str], now: datetime) -> None:
    def annotated(manifest: Manifest) -> Manifest:
        metadata = manifest["metadata"]
        if not is_controlled_by(manifest, owner["metadata"]["uid"]):
            return manifest
        return {
            **manifest,
            "metadata": {
                **metadata,
                "annotations": {**(metadata.get("annotations") or {}), **annotations},
            },
        }

    objects.update("ReplicaSet", owner["metadata"]["namespace"], name, annotated, now=now)


def _of_others(owner: Manifest, revisions: list[Manifest], now: datetime) -> None:
    history = revision_rules.trace(owner, revisions)
    current = history.current
    if history.created:
        _create("ControllerRevision", owner, current, now)
    elif history.raised:
        number = current["revision"]
        objects.update(
            "ControllerRevision",
            owner["metadata"]["namespace"],
            current["metadata"]["name"],
            lambda one: {**one, "revision": number},
            now=now,
        )


def _create(kind: str, owner: Manifest, manifest: Manifest, now: datetime) -> None:
    metadata = {**manifest["metadata"], "ownerReferences": [reference(owner)]}
    namespace = owner["metadata"]["namespace"]
    objects.create(kind, namespace, {**manifest, "metadata": metadata}, now=now)


_KINDS: Final[dict[str, tuple[str, str, _Make]]] = {
    "Deployment": ("deployment-controller", "ReplicaSet", _of_deployment),
    "DaemonSet": ("daemon-set-controller", "ControllerRevision", _of_others),
    "StatefulSet": ("statefulset-controller", "ControllerRevision", _of_others),
}

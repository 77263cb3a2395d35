"""Finds which pods a change of replicas creates or deletes, by the controllers' own rules.

A Deployment scales its newest ReplicaSet. In the middle of a rollout the further rollout is not
predicted, and a warning says so.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.objects.rules.ownership import is_controlled_by
from clusterstate.objects.values.errors import NOT_FOUND, FieldError, Invalid
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural
from scheduling.controllers.workloads.control import pod_of
from scheduling.controllers.workloads.pods import OwnedPod, surplus
from scheduling.controllers.workloads.world import NamespaceState
from scheduling.simulation.document import GROUP
from scheduling.simulation.plan_document import KIND, PlanChange

_REVISION: Final = "deployment.kubernetes.io/revision"


class ScaleEffect(msgspec.Struct, frozen=True):
    """The effect of a change of replicas.

    ``gone``: ids of deleted pods, in order. ``new``: manifests of new pods. ``warning``: what the
    plan does not predict; empty if it predicts everything.
    """

    title: str
    replicas: int
    gone: tuple[int, ...]
    new: tuple[Manifest, ...]
    warning: str = ""


def scaling(change: PlanChange, now: datetime) -> ScaleEffect:
    """Return the effect of a change of replicas. Queries; reads one namespace.

    Raises:
        Invalid: there is no such workload.
    """
    kind, namespace, name = change.workload
    world = NamespaceState(namespace, ("Deployment", "ReplicaSet", "StatefulSet"))
    owner = _named(world.owners[kind], name)
    if owner is None:
        error = FieldError(NOT_FOUND, f"{change.path}.name", f"{namespace}/{name}")
        raise Invalid(KIND, "", [error], GROUP)
    warning, sets = "", [owner]
    if kind == "Deployment":
        sets = _sets_of(world, owner)
        busy = [one for one in sets if _active(world, one)]
        if len(busy) > 1:
            warning = f"{kind} {namespace}/{name}: its rollout is under way and is not predicted"
    pods = [pod for one in sets for pod in _active(world, one)]
    missing = change.replicas - len(pods)
    maker = sets[0] if sets else owner
    title = f"{kind} {namespace}/{name}"
    if missing >= 0:
        new = _new(owner if kind == "StatefulSet" else maker, pods, missing, kind)
        return ScaleEffect(title, change.replicas, (), tuple(new), warning)
    if kind == "StatefulSet":
        gone = sorted(pods, key=lambda pod: -_ordinal(pod))[:-missing]
    else:
        gone = surplus(pods, -missing, related=pods, now=now)
    return ScaleEffect(title, change.replicas, tuple(pod.id for pod in gone), (), warning)


def _named(owners: Sequence[Manifest], name: str) -> Manifest | None:
    return next((one for one in owners if one["metadata"]["name"] == name), None)


def _sets_of(world: NamespaceState, deployment: Manifest) -> list[Manifest]:
    """Return the ReplicaSets of a Deployment, the newest first."""
    uid = deployment["metadata"]["uid"]
    mine = [one for one in world.owners["ReplicaSet"] if is_controlled_by(one, uid)]
    return sorted(mine, key=_revision, reverse=True)


def _revision(owner: Manifest) -> int:
    return natural((owner["metadata"].get("annotations") or {}).get(_REVISION, "")) or 0


def _active(world: NamespaceState, owner: Manifest) -> list[OwnedPod]:
    return [pod for pod in world.pods_of(owner) if pod.is_active]


def _ordinal(pod: OwnedPod) -> int:
    found = natural(pod.name.rpartition("-")[2])
    return -1 if found is None else found


def _new(owner: Manifest, pods: Sequence[OwnedPod], count: int, kind: str) -> list[Manifest]:
    template = (owner.get("spec") or {}).get("template") or {}
    if kind != "StatefulSet":
        return [pod_of(owner, template)] * count
    used = {_ordinal(pod) for pod in pods}
    first = int(((owner["spec"].get("ordinals") or {}).get("start")) or 0)
    free = (one for one in range(first, first + len(pods) + count) if one not in used)
    name = owner["metadata"]["name"]
    return [pod_of(owner, template, name=f"{name}-{next(free)}") for _ in range(count)]

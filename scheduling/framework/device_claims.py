"""Claims of devices in a snapshot: which pods have some, and what assumed pods hold.

``DeviceTable`` is the snapshot's table of claims, classes and slices; the rules are in
``clusterstate.objects.dra``. A pod with claims made from templates is a class of its own, as its
claims are.
"""

import uuid
from collections.abc import Hashable
from typing import Any, Final

import msgspec

from clusterstate.objects.dra.allocated import results
from clusterstate.objects.dra.allocator import Features
from clusterstate.objects.dra.attempt import (
    ALLOCATED_HERE,
    MAPPINGS,
    SKIP,
    Attempt,
    Gates,
    NodeAnswer,
    Verdict,
    allocated_claim,
    is_special,
)
from clusterstate.objects.dra.extended import is_extended
from clusterstate.objects.dra.slices import NodeView
from clusterstate.objects.dra.world import DeviceWorld
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.quantity import Quantity
from scheduling.framework.types import PodInfo

TAKEN: Final = "DynamicResources/claims"
"""The note with the claims that a pod was given: plain data, written with its binding."""
RELEASED: Final = "DynamicResources/released"
"""The note with the claim that PostFilter gives back (``Release``)."""
GATES: Final = Gates(allocator=Features(list_attributes=True))
"""What acts here: the defaults of 1.36, and lists of attributes."""
_BOUND_AT_ONCE: Final = Gates(allocator=Features(binding_conditions=False, list_attributes=True))
"""For extended resources: their claim is made with the binding, which cannot wait for devices."""


class DeviceTable(DeviceWorld):
    """A ``DeviceWorld`` that judges nodes of a snapshot and takes devices for assumed pods."""

    gates = GATES

    def __init__(self) -> None:
        super().__init__()
        self.memo: dict[Hashable, object] = {}
        """What plugins derive from the table, by their names; a copy begins without."""

    def copy(self) -> "DeviceTable":
        """Return an equal table; neither sees what happens to the other afterwards."""
        made = DeviceTable()
        made.take_over(super().copy())
        return made

    def take_over(self, other: DeviceWorld) -> None:
        """Become equal to another table."""
        self.__dict__.update(other.__dict__)

    def judge(self, attempt: Attempt, node: Node) -> Verdict:
        """Return what an attempt finds on a node."""
        offered = node.status.allocatable
        view = NodeView(node.metadata.name, node.metadata.labels)
        return attempt.filter(
            view, lambda name: Quantity.parse(offered[name]).value() if name in offered else None
        )

    def take(self, key: Hashable, info: PodInfo, node: Node) -> None:
        """Take what a pod that was just decided gets on its node."""
        attempt = new_attempt(info, self)
        verdict = attempt.pre_filter(info.requests)
        if verdict.code == SKIP:
            self.assume(key, [])
            return
        if not verdict.ok or not self.judge(attempt, node).ok:
            return  # nothing is taken; whoever binds the pod is told why
        answer = attempt.answers.get(node.metadata.name) or NodeAnswer([], [])
        given = zip(answer.claims, answer.allocations, strict=True)
        claims = [allocated_claim(claim, allocation) for claim, allocation in given]
        for claim in claims:
            claim[ALLOCATED_HERE] = True
            if is_special(claim):
                claim[MAPPINGS] = answer.mappings
        self.assume(key, [*claims, *(c for c in attempt.claims if not _is_among(c, answer.claims))])


def _is_among(claim: Manifest, claims: list[Manifest]) -> bool:
    return any(one is claim for one in claims)


def concerns(info: PodInfo, devices: DeviceWorld) -> bool:
    """Return whether pods of a class claim devices."""
    if not info.may_claim or info.pod.spec.resource_claims:
        return info.may_claim
    return _is_served(info, devices)


def _is_served(info: PodInfo, devices: DeviceWorld) -> bool:
    """Return whether device classes serve extended resources that pods of a class ask for."""
    return bool(devices.classes) and any(
        count and is_extended(name) and devices.class_of(name) is not None
        for name, count in info.requests.items()
    )


def waits_for_devices(claim: Manifest) -> bool:
    """Return whether devices that a claim has must get ready before pods are bound."""
    return any(one.get("bindingConditions") for one in results(claim))


def new_attempt(info: PodInfo, devices: DeviceTable) -> Attempt:
    """Return an attempt for a pod of a class."""
    gates = _BOUND_AT_ONCE if _is_served(info, devices) else devices.gates
    return Attempt(devices, manifest_of(info), gates, new_id=_new_id)


def manifest_of(info: PodInfo) -> Manifest:
    """Return the pod of a class as a manifest, as far as claims look at it."""
    made: Any = msgspec.to_builtins(info.pod)
    meta = {**made["metadata"], "namespace": info.namespace}
    containers = [*made["spec"].get("initContainers", ()), *made["spec"].get("containers", ())]
    for index, container in enumerate(containers):
        container["name"] = str(index)  # a class has no names; who writes them looks them up
    told = made["status"].get("resourceClaimStatuses", ())
    return {"metadata": meta, "spec": made["spec"], "status": {"resourceClaimStatuses": told}}


def _new_id() -> str:
    return str(uuid.uuid4())

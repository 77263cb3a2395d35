"""Device claims in a snapshot: which pods have some, and which devices assumed pods hold.

``DeviceTable`` is the snapshot's table of claims, classes and slices; ``clusterstate.objects.dra``
has the rules. A pod with claims made from templates is a class of its own, since its claims are its
own.
"""

import itertools
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
    TimedOut,
    Verdict,
    allocated_claim,
    is_special,
)
from clusterstate.objects.dra.counting import Kind, kind_and_count, pick
from clusterstate.objects.dra.extended import is_extended
from clusterstate.objects.dra.slices import NodeView
from clusterstate.objects.dra.world import DeviceWorld
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.quantity import Quantity
from scheduling.framework.types import PodInfo

DYNAMIC_RESOURCES: Final = "DynamicResources"
"""The plugin's name."""
TAKEN: Final = "DynamicResources/claims"
"""The note with the claims allocated for a pod: plain data, written with its binding."""
RELEASED: Final = "DynamicResources/released"
"""The note with the claim that PostFilter gives back (``Release``)."""
GATES: Final = Gates(allocator=Features(list_attributes=True, unready_on_node=True))
"""The gates in force here: the defaults of 1.36, lists of attributes, and fixes of v1.38."""
_MOST_STEPS: Final = 50_000
"""Steps of the search for devices on one node, some 0.2 s; kube-scheduler ends it after 10 s. A
number, and no time: equal inputs give equal decisions."""
_COUNTED: Final = "DynamicResources/counted"
_BOUND_AT_ONCE: Final = Gates(allocator=Features(binding_conditions=False, list_attributes=True))
"""For extended resources: their claim is made with the binding, which cannot wait for devices."""


class CountedClaims(msgspec.Struct, frozen=True):
    """Unallocated claims of a pod that request a number of devices of one kind."""

    kind: Kind
    count: int
    claims: tuple[Manifest, ...]

    @property
    def uids(self) -> tuple[str, ...]:
        """The claims' UIDs."""
        return tuple([claim["metadata"]["uid"] for claim in self.claims])


class DeviceTable(DeviceWorld):
    """A ``DeviceWorld`` that judges nodes of a snapshot and allocates devices to assumed pods."""

    gates = GATES

    def __init__(self) -> None:
        super().__init__()
        self.memo: dict[Hashable, object] = {}
        """A cache of what plugins derive from the table, by plugin; a copy begins with none."""

    def copy(self) -> "DeviceTable":
        """Return an equal table that changes independently."""
        made = DeviceTable()
        made.take_over(super().copy())
        return made

    def take_over(self, other: DeviceWorld) -> None:
        """Replace the content of this table by that of another."""
        self.__dict__.update(other.__dict__)

    def judge(self, attempt: Attempt, node: Node) -> Verdict:
        """Return the verdict of an attempt on a node; times out after too many search steps."""
        offered = node.status.allocatable
        view = NodeView(node.metadata.name, node.metadata.labels)
        steps = itertools.count()

        def check() -> None:
            if next(steps) >= _MOST_STEPS:
                raise TimedOut

        return attempt.filter(
            view,
            lambda name: Quantity.parse(offered[name]).value() if name in offered else None,
            check,
        )

    def take(
        self, key: Hashable, info: PodInfo, node: Node, counted: CountedClaims | None = None
    ) -> None:
        """Allocate devices of its node to a pod that was just decided.

        ``counted``: the result of ``counted_claims`` for its class, if it is known and still valid.
        """
        if counted is not None or (counted := counted_claims(info, self)) is not None:
            view = NodeView(node.metadata.name, node.metadata.labels)
            allocator = self.allocator(self.gates.allocator)
            picked = pick(allocator, view, counted.kind, counted.claims)
            if picked is not None:
                found = zip(counted.claims, picked[0], strict=True)
                self.assume_free(
                    key, [self._allocated(*one) for one in found], view.name, picked[1]
                )
                return
        attempt = new_attempt(info, self)
        verdict = attempt.pre_filter(info.requests)
        if verdict.code == SKIP:
            self.assume(key, [])
            return
        if not verdict.ok or not self.judge(attempt, node).ok:
            return  # nothing is allocated; the binder reports why
        answer = attempt.answers.get(node.metadata.name) or NodeAnswer([], [])
        given = zip(answer.claims, answer.allocations, strict=True)
        claims = [self._allocated(claim, allocation) for claim, allocation in given]
        for claim in claims:
            if is_special(claim):
                claim[MAPPINGS] = answer.mappings
        self.assume(key, [*claims, *(c for c in attempt.claims if not _is_among(c, answer.claims))])

    @staticmethod
    def _allocated(claim: Manifest, allocation: Manifest) -> Manifest:
        """Return a claim with its allocation, marked as made for this pod (ALLOCATED_HERE)."""
        made = allocated_claim(claim, allocation)
        made[ALLOCATED_HERE] = True
        return made


def _is_among(claim: Manifest, claims: list[Manifest]) -> bool:
    return any(one is claim for one in claims)


def lacks_claims(pod: Pod) -> bool:
    """Return whether a claim of a pod is still to be made from its template."""
    made = {one.name for one in pod.status.resource_claim_statuses}
    return any(
        one.resource_claim_template_name is not None and one.name not in made
        for one in pod.spec.resource_claims
    )


def concerns(info: PodInfo, devices: DeviceWorld) -> bool:
    """Return whether pods of a class claim devices."""
    if not info.may_claim or info.pod.spec.resource_claims:
        return info.may_claim
    return _is_served(info, devices)


def _is_served(info: PodInfo, devices: DeviceWorld) -> bool:
    """Return whether device classes provide extended resources that pods of a class request."""
    return bool(devices.classes) and any(
        amount and devices.class_of(name) is not None and is_extended(name)
        for name, amount in info.requests.items()
    )


def counted_claims(info: PodInfo, devices: DeviceTable) -> CountedClaims | None:
    """Return the claims of a class as a number of devices, ``None`` if more than that matters.

    More matters if a claim is allocated, is being allocated, or does not exist.
    """
    known = info.memo.get(_COUNTED)
    if not isinstance(known, tuple) or known[0] != devices.version:
        known = info.memo[_COUNTED] = devices.version, _counted_claims(info, devices)
    found: CountedClaims | None = known[1]
    return found


def _counted_claims(info: PodInfo, devices: DeviceTable) -> CountedClaims | None:
    claims = _unallocated(info, devices)
    if not claims or _is_served(info, devices):
        return None
    asked = kind_and_count(claims)
    return None if asked is None else CountedClaims(*asked, tuple(claims))


def _unallocated(info: PodInfo, devices: DeviceTable) -> list[Manifest]:
    """Return a class's claims; empty if one is missing, another pod's, or already has devices."""
    found: list[Manifest] = []
    made = {one.name: one.resource_claim_name for one in info.pod.status.resource_claim_statuses}
    for entry in info.pod.spec.resource_claims:
        name = entry.resource_claim_name
        if (must_own := name is None) and entry.name in made and made[entry.name] is None:
            continue  # its template makes no claim
        claim = devices.claims.get((info.namespace, name or made.get(entry.name) or ""))
        if claim is None or _is_among(claim, found):
            return []
        meta = claim["metadata"]
        if must_own and not any(
            owner.get("controller") and owner.get("uid") == info.pod.metadata.uid
            for owner in meta.get("ownerReferences") or ()
        ):
            return []
        status, uid = claim.get("status"), meta.get("uid", "")
        if meta.get("deletionTimestamp") or not uid or uid in devices.in_flight:
            return []
        if status and status.get("allocation"):
            return []
        found.append(claim)
    return found


def waits_for_devices(claim: Manifest) -> bool:
    """Return whether devices of a claim must become ready before pods are bound."""
    return any(one.get("bindingConditions") for one in results(claim))


def new_attempt(info: PodInfo, devices: DeviceTable) -> Attempt:
    """Return an attempt for a pod of a class."""
    gates = _BOUND_AT_ONCE if _is_served(info, devices) else devices.gates
    return Attempt(devices, manifest_of(info), gates, new_id=_new_id)


def manifest_of(info: PodInfo) -> Manifest:
    """Return the parts of a class's pod that claims depend on, as a manifest."""
    made: Any = msgspec.to_builtins(info.pod)
    meta = {**made["metadata"], "namespace": info.namespace}
    containers = [*made["spec"].get("initContainers", ()), *made["spec"].get("containers", ())]
    for index, container in enumerate(containers):
        container["name"] = str(index)  # a class has no names; the writer looks them up
    told = made["status"].get("resourceClaimStatuses", ())
    return {"metadata": meta, "spec": made["spec"], "status": {"resourceClaimStatuses": told}}


def _new_id() -> str:
    return str(uuid.uuid4())

"""One pod's attempt to get its claims allocated: DynamicResources at each point of scheduling.

Rules: kube-scheduler ``plugins/dynamicresources``, v1.36 (``dynamicresources.go``,
``extendeddynamicresources.go``). ``DeviceWorld`` is the plugin's state of the cluster; ``Attempt``
lasts from PreFilter to the binding. Nothing is written here: the writes of PreBind and PostFilter
are returned as claims.

An answer is a ``Verdict``: code and reason as kube-scheduler's. Time is seconds since the epoch.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from clusterstate.objects.dra import extended
from clusterstate.objects.dra.allocator import AllocationError, Allocator, FailedOnNode, Features
from clusterstate.objects.dra.resourceclaim import (
    EXTENDED_CLAIM,
    FINALIZER,
    ClaimError,
    can_be_reserved,
    claim_name,
    device_requests,
    full_name,
    group_name,
    is_reserved_for,
    pod_claims,
    requests_of,
    reserved_for,
)
from clusterstate.objects.dra.scoring import allocation_score
from clusterstate.objects.dra.slices import (
    NodeAccess,
    NodeView,
)
from clusterstate.objects.dra.world import DeviceWorld
from clusterstate.objects.values.document import parse_time
from clusterstate.objects.values.meta import Manifest

ALLOCATED_HERE = "allocatedHere"
"""What a claim says that was decided for a pod, if its devices were found for this pod."""
MAPPINGS = "requestMappings"
"""Where the claim for extended resources, not written yet, says which request is for what."""
SUCCESS, SKIP = "Success", "Skip"
UNSCHEDULABLE, UNRESOLVABLE = "Unschedulable", "UnschedulableAndUnresolvable"
ERROR = "Error"
BINDING_TIMEOUT: Final = 600.0
"""Seconds that binding waits for the conditions of devices (DynamicResourcesArgs)."""


class Verdict(msgspec.Struct, frozen=True):
    """The plugin's answer at an extension point."""

    code: str = SUCCESS
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is Success."""
        return self.code == SUCCESS


class Release(msgspec.Struct, frozen=True):
    """A claim that is released, so that its pod may find a node: before and after.

    ``becomes`` is ``None`` for a claim that is deleted.
    """

    claim: Manifest
    becomes: Manifest | None


_OK: Final = Verdict()
NO_DEVICES: Final = "cannot allocate all claims"
NOTHING_TO_RELEASE: Final = Verdict(UNSCHEDULABLE, "no new claims to deallocate")
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Gates(msgspec.Struct, frozen=True):
    """Feature gates of the plugin with the defaults of 1.36; ``allocator`` has the others."""

    enabled: bool = True
    extended_resources: bool = True
    workload_claims: bool = False
    allocator: Features = Features()


class TimedOut(Exception):
    """The search took longer than it may on one node."""


class Cancelled(Exception):
    """The caller does not want the answer any more; the text says why."""


def pre_enqueue(world: DeviceWorld, pod: Manifest, gates: Gates) -> Verdict:
    """Return whether the pod's claims exist; if not, the pod is not tried."""
    if not gates.enabled:
        return _OK
    try:
        world.claims_of(pod, workload_claims=gates.workload_claims)
    except ClaimError as error:
        return Verdict(UNRESOLVABLE, str(error))
    return _OK


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


def _allocation(claim: Manifest) -> Manifest | None:
    return (claim.get("status") or {}).get("allocation")


class NodeAnswer(msgspec.Struct):
    """Filter's result for one node: an allocation for each unallocated claim, in order."""

    claims: list[Manifest]
    allocations: list[Manifest]
    mappings: list[Manifest] = []


class Attempt:
    """The state of plugin DynamicResources in the scheduling cycles of one pod."""

    def __init__(
        self,
        world: DeviceWorld,
        pod: Manifest,
        gates: Gates | None = None,
        *,
        now: float = 0.0,
        binding_timeout: float = BINDING_TIMEOUT,
        new_id: Callable[[], str] = lambda: "",
    ) -> None:
        self.world, self.pod, self.gates = world, pod, gates or Gates()
        self.now, self.binding_timeout = now, binding_timeout
        self.new_id = new_id
        self.claims: list[Manifest] = []
        self.special: Manifest | None = None
        self.resources: dict[str, int] = {}
        self.unavailable: set[str] = set()  # UIDs of claims
        self.answers: dict[str, NodeAnswer] = {}
        self._allocator: Allocator | None = None

    @property
    def signature(self) -> bytes | None:
        """Return everything that verdicts depend on besides devices and nodes.

        ``None`` if they depend on more: allocated claims, also of an earlier attempt.
        """
        special = self.special
        if any(map(_allocation, self.claims)) or (special is not None and requests_of(special)):
            return None
        specs = [claim.get("spec") for claim in self.claims]
        if special is None:
            return _encode(specs)
        spec = self.pod["spec"]
        requests = [
            (one.get("restartPolicy"), (one.get("resources") or {}).get("requests"))
            for one in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        ]
        return _encode([specs, self.resources, len(spec.get("initContainers") or ()), requests])

    @property
    def is_plain(self) -> bool:
        """Whether nodes without own slices get equal verdicts: no allocation is involved."""
        return self.special is None and not any(map(_allocation, self.claims))

    # --- PreFilter and Filter ---

    def pre_filter(self, requests: Mapping[str, int]) -> Verdict:
        """Look at the pod's claims; ``requests`` are its scalar resources in whole units."""
        if not self.gates.enabled:
            return Verdict(SKIP)
        try:
            claims = self.world.claims_of(self.pod, workload_claims=self.gates.workload_claims)
        except ClaimError as error:
            return Verdict(UNRESOLVABLE, str(error))
        self.special = self._special_claim(requests)
        if not claims and self.special is None:
            return Verdict(SKIP)
        for claim in claims:
            verdict = self._check(claim)
            if not verdict.ok:
                return verdict
        self.claims = claims
        return _OK

    def _special_claim(self, requests: Mapping[str, int]) -> Manifest | None:
        """Return the claim for extended resources: of an earlier attempt, or one not written."""
        if not self.gates.extended_resources:
            return None
        self.resources = {
            name: count for name, count in requests.items()
            if count and extended.is_extended(name)
        }  # fmt: skip
        if not any(self.world.class_of(name) for name in self.resources):
            return None
        meta = self.pod["metadata"]
        if (stored := self.world.extended_claim_of(self.pod)) is not None:
            return stored
        owner = {
            "apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta.get("uid", ""),
            "controller": True,
        }  # fmt: skip
        return {
            "metadata": {
                "name": extended.CLAIM_IN_MEMORY,
                "generateName": f"{meta['name']}-extended-resources-",
                "namespace": meta.get("namespace", ""),
                "uid": self.new_id(),
                "annotations": {EXTENDED_CLAIM: "true"},
                "ownerReferences": [owner],
            },
            "spec": {"devices": {}},
        }

    def _check(self, claim: Manifest) -> Verdict:
        if _allocation(claim) is not None:
            if not can_be_reserved(claim) and not self._is_reserved(claim):
                return Verdict(UNRESOLVABLE, "resourceclaim in use")
            return _OK
        if claim["metadata"].get("uid", "") in self.world.in_flight:
            return Verdict(
                UNRESOLVABLE,
                f"resource claim {full_name(claim)} is in the process of being allocated",
            )
        for request in requests_of(claim):
            if request.get("firstAvailable") and not self.gates.allocator.prioritized_list:
                return Verdict(
                    UNRESOLVABLE,
                    f"resource claim {full_name(claim)}, request {request['name']}: has "
                    "subrequests, but the DRAPrioritizedList feature is disabled",
                )
        for name, request in device_requests(claim):
            if not (of_class := request.get("deviceClassName")):
                return Verdict(ERROR, f"request {name}: unsupported request type")
            if of_class not in self.world.classes:
                return Verdict(
                    UNRESOLVABLE, f"request {name}: device class {of_class} does not exist"
                )
        return _OK

    def _consumer(self) -> Manifest:
        meta = self.pod["metadata"]
        return {"resource": "pods", "name": meta["name"], "uid": meta.get("uid", "")}

    def _consumer_of(self, claim: Manifest) -> Manifest:
        """Return the consumer of a claim: the pod, or its group if that has the same claim."""
        group = self._group()
        if group is not None:
            entries = [
                entry for entry in pod_claims(self.pod)
                if claim_name(self.pod, entry)[0] == claim["metadata"]["name"]
            ]  # fmt: skip
            if any(entry in (group["spec"].get("resourceClaims") or ()) for entry in entries):
                meta = group["metadata"]
                return {
                    "apiGroup": "scheduling.k8s.io", "resource": "podgroups",
                    "name": meta["name"], "uid": meta.get("uid", ""),
                }  # fmt: skip
        return self._consumer()

    def _group(self) -> Manifest | None:
        name = group_name(self.pod) if self.gates.workload_claims else None
        return self.world.pod_groups.get((self.pod["metadata"].get("namespace", ""), name or ""))

    def _is_reserved(self, claim: Manifest) -> bool:
        return is_reserved_for(claim, self._consumer_of(claim)["uid"])

    def filter(
        self,
        node: NodeView,
        allocatable: Callable[[str], int | None] = lambda name: None,
        check: Callable[[], None] = lambda: None,
    ) -> Verdict:
        """Judge a node; ``allocatable`` returns the node's allocatable amount of a resource."""
        if not self.claims and self.special is None:
            return _OK
        unavailable = {claim["metadata"].get("uid", "") for claim in self.claims
                       if not self._is_available(claim, node)}  # fmt: skip
        special, mappings, verdict = self._special_on(allocatable)
        if not verdict.ok:
            return verdict
        waiting = [claim for claim in self.claims if _allocation(claim) is None]
        if special is not None:
            waiting.append(special)
        if waiting:
            if self._allocator is None:
                self._allocator = self.world.allocator(self.gates.allocator)
                self._allocator.share_id = self.new_id
            try:
                found = self._allocator.allocate(node, waiting, check)
            except TimedOut:
                reason = f"node {node.name}: timed out trying to allocate devices"
                return Verdict(ERROR, reason)
            except Cancelled as why:
                reason = f"asked by caller to stop allocating devices: {why}"
                return Verdict(UNRESOLVABLE, reason)
            except FailedOnNode as error:
                return Verdict(UNRESOLVABLE, str(error))
            except AllocationError as error:
                return Verdict(ERROR, str(error))
            if found is None:
                return Verdict(UNRESOLVABLE, NO_DEVICES)
        else:
            found = []
        if unavailable:
            self.unavailable |= unavailable
            return Verdict(UNRESOLVABLE, "resourceclaim not available on the node")
        self.answers[node.name] = NodeAnswer(waiting, found, mappings)
        return _OK

    def _is_available(self, claim: Manifest, node: NodeView) -> bool:
        """Return whether an allocated claim can be used on a node, and its devices get ready."""
        allocation = _allocation(claim)
        if allocation is None:
            return True
        selector = allocation.get("nodeSelector")
        if selector is not None and not NodeAccess({"nodeSelector": selector}).matches(node):
            return False
        if not self.gates.allocator.binding_conditions:
            return True
        ready, failed = binding_state(claim)
        return not failed and (ready or not self.is_overdue(claim, self.now))

    def is_overdue(self, claim: Manifest, now: float) -> bool:
        """Return whether devices of a claim have had their time to get ready."""
        stamp = (_allocation(claim) or {}).get("allocationTimestamp")
        began = parse_time(stamp) if isinstance(stamp, str) else None
        return began is not None and began.timestamp() + self.binding_timeout <= now

    def _special_on(
        self, allocatable: Callable[[str], int | None]
    ) -> tuple[Manifest | None, list[Manifest], Verdict]:
        """Return the claim for the extended resources that the node offers as devices."""
        special = self.special
        if special is None:
            return None, [], _OK
        if requests_of(special):
            # It is left from an earlier attempt; PostFilter deletes it.
            self.unavailable.add(special["metadata"].get("uid", ""))
            return None, [], Verdict(UNRESOLVABLE, "cannot schedule extended resource claim")
        by_devices = []
        for name in self.resources:
            offered = allocatable(name)
            if self.world.class_of(name) is not None and not offered:
                by_devices.append(name)
            elif offered is None:
                return None, [], Verdict(UNRESOLVABLE, "cannot fit resource")
        if not by_devices:
            return None, [], _OK
        requests, mappings = extended.requests_and_mappings(
            self.pod, by_devices, self.world.class_of
        )
        spec = {"devices": {"requests": requests}}
        return {**special, "spec": spec}, mappings, _OK

    def score(self, node: str) -> int:
        """Return the raw score of a node that passed."""
        answer = self.answers.get(node)
        return allocation_score(answer.claims, answer.allocations) if answer else 0

    # --- PostFilter ---

    def post_filter(self) -> tuple[Verdict, Release | None]:
        """Return the verdict about a pod that fits nowhere, and the claim to release for it.

        Of several claims the first (in kube-scheduler any one).
        """
        if not self.gates.enabled:
            return Verdict(UNSCHEDULABLE, "plugin disabled"), None
        if not pod_claims(self.pod) and not self.gates.extended_resources:
            return Verdict(UNSCHEDULABLE), None
        if not self.claims and self.special is None:
            return NOTHING_TO_RELEASE, None
        for claim in self.claims:
            if claim["metadata"].get("uid", "") not in self.unavailable:
                continue
            users, consumer = reserved_for(claim), self._consumer_of(claim)
            if users and [user.get("uid") for user in users] != [consumer["uid"]]:
                continue
            status = dict(claim.get("status") or {})
            status.pop("reservedFor", None)
            if users and consumer["resource"] == "podgroups":
                # Others of the group may run with it: it is only given up for now.
                verdict = Verdict(UNRESOLVABLE, "ResourceClaim unreserved for PodGroup")
                return verdict, Release(claim, with_status(claim, status))
            for field in ("allocation", "devices"):
                status.pop(field, None)
            verdict = Verdict(UNSCHEDULABLE, "deallocation of ResourceClaim completed")
            return verdict, Release(claim, with_status(claim, status))
        if self.special is not None and not is_special(self.special):
            # It is left from an earlier attempt.
            verdict = Verdict(UNSCHEDULABLE, "deletion of ResourceClaim completed")
            return verdict, Release(self.special, None)
        return Verdict(UNSCHEDULABLE, "still not schedulable"), None

    # --- Reserve to the binding ---

    def reserve(self, node: str) -> Verdict:
        """Store the allocations of a node as in flight."""
        if not self.claims and self.special is None:
            return _OK
        answer = self.answers.get(node)
        if answer is None:
            return Verdict(ERROR, "claim allocation not found for node")
        for claim, allocation in zip(answer.claims, answer.allocations, strict=True):
            self.world.hold(allocated_claim(claim, allocation))
        return _OK

    def forget(self, node: str) -> None:
        """Remove what ``reserve`` stored for the node."""
        for claim in self._answer(node).claims:
            self.world.release(claim)

    def _answer(self, node: str) -> NodeAnswer:
        return self.answers.get(node) or NodeAnswer([], [])

    def bound_claims(self, node: str, now: str, current: Iterable[Manifest] = ()) -> list[Manifest]:
        """Return the pod's claims as PreBind writes them: allocated, and reserved for it.

        ``current``: the claims as they are stored now, where they may have changed since. One that
        is reserved already is left out.

        Raises:
            ClaimError: a claim goes away, or was allocated elsewhere, or is full.
        """
        answer, stored = self._answer(node), {_key(one): one for one in current}
        allocations = {
            claim["metadata"].get("uid", ""): allocation
            for claim, allocation in zip(answer.claims, answer.allocations, strict=True)
        }
        special = [c for c in answer.claims if is_special(c)]
        bound = []
        for claim in [*self.claims, *special]:
            latest = stored.get(_key(claim), claim)
            allocation = allocations.get(claim["metadata"].get("uid", ""))
            if self._is_reserved(latest):
                continue
            bound.append(self._bound(latest, allocation, now))
        return bound

    def _bound(self, claim: Manifest, allocation: Manifest | None, now: str) -> Manifest:
        if claim["metadata"].get("deletionTimestamp"):
            raise ClaimError(f"claim {full_name(claim)} got deleted in the meantime")
        if allocation is not None:
            if _allocation(claim) is not None:
                raise ClaimError(
                    f"claim {full_name(claim)} got allocated elsewhere in the meantime"
                )
            claim = allocated_claim(claim, allocation)
        if (held := _allocation(claim)) is None:
            raise ClaimError(f"claim {full_name(claim)} got deallocated elsewhere in the meantime")
        if not can_be_reserved(claim):
            raise ClaimError(f"claim {full_name(claim)} is in use")
        status = dict(claim.get("status") or {})
        fresh = not held.get("allocationTimestamp") and not status.get("devices")
        if self.gates.allocator.binding_conditions and fresh:
            status["allocation"] = {**held, "allocationTimestamp": now}
        status["reservedFor"] = [*reserved_for(claim), self._consumer_of(claim)]
        return with_status(claim, status)

    def pod_status(self, node: str, name: str) -> Manifest | None:
        """Return ``extendedResourceClaimStatus`` for the special claim under its written name."""
        mappings = self._answer(node).mappings
        return {"requestMappings": mappings, "resourceClaimName": name} if mappings else None

    def unreserved(self, claims: Iterable[Manifest]) -> list[Manifest]:
        """Return the claims that are reserved for the pod, with that reservation removed."""
        uid = self._consumer()["uid"]
        found = []
        for claim in claims:
            if _allocation(claim) is not None and is_reserved_for(claim, uid):
                users = [user for user in reserved_for(claim) if user.get("uid") != uid]
                status = {**claim["status"], "reservedFor": users}
                if not users:
                    del status["reservedFor"]
                found.append(with_status(claim, status))
        return found

    def binding_verdict(self, claims: Sequence[Manifest], now: float) -> Verdict | None:
        """Return whether devices are ready to be bound, ``None`` while binding has to wait."""
        if not self.gates.allocator.binding_conditions:
            return _OK
        waiting = False
        for claim in claims:
            ready, failed = binding_state(claim)
            if failed:
                return Verdict(ERROR, f"claim {claim['metadata']['name']} binding failed: {failed}")
            if not ready:
                if self.is_overdue(claim, now):
                    name = claim["metadata"]["name"]
                    return Verdict(ERROR, f"device binding timeout: claim={name}")
                waiting = True
        return None if waiting else _OK


def is_special(claim: Manifest) -> bool:
    """Return whether a claim is the one for extended resources that is not written yet."""
    return bool(claim["metadata"]["name"] == extended.CLAIM_IN_MEMORY)


def with_status(claim: Manifest, status: Manifest) -> Manifest:
    """Return the claim with another status; an empty one is left out."""
    new = {**claim, "status": status}
    if not status:
        del new["status"]
    return new


def allocated_claim(claim: Manifest, allocation: Manifest) -> Manifest:
    """Return the claim with an allocation, and the finalizer that keeps it."""
    meta = claim["metadata"]
    finalizers = meta.get("finalizers") or []
    if FINALIZER not in finalizers:
        meta = {**meta, "finalizers": [*finalizers, FINALIZER]}
    status = {**(claim.get("status") or {}), "allocation": allocation}
    return {**claim, "metadata": meta, "status": status}


def binding_state(claim: Manifest) -> tuple[bool, str]:
    """Return whether a claim's devices are ready for binding, and the condition that failed."""
    status = claim.get("status") or {}
    statuses = {
        (one.get("driver"), one.get("pool"), one.get("device"), one.get("shareID")): one
        for one in status.get("devices") or ()
    }
    ready = True
    for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
        needed = result.get("bindingConditions") or ()
        if not needed:
            continue
        key = (result["driver"], result["pool"], result["device"], result.get("shareID"))
        true = {
            one["type"] for one in (statuses.get(key) or {}).get("conditions") or ()
            if one.get("status") == "True"
        }  # fmt: skip
        for condition in result.get("bindingFailureConditions") or ():
            if condition in true:
                return False, condition
        ready = ready and all(condition in true for condition in needed)
    return ready, ""


def stamp(moment: dt.datetime) -> str:
    """Return a time in the format of ``allocationTimestamp``."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

"""Resizes of pods in place: requests, allocations, and the difference.

The spec has a pod's requests. The node's *allocation* is in the status of its containers if the two
differ, as agents report it. On a node without an agent, the service decides and writes the same
fields: ``verdict`` says whether a resize fits, ``hold`` keeps the allocation of a pod whose resize
does not, and ``carry_out`` allocates the requests. Pure.

Rules: pkg/kubelet/allocation/allocation_manager.go (``handlePodResourcesResize``,
``sortPendingResizes``) and ``generalFilter`` of pkg/kubelet/lifecycle/predicate.go, v1.36.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from clusterstate.objects.rules import resources, scheduling_class
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.quantity import QuantityError

PENDING: Final = "PodResizePending"
IN_PROGRESS: Final = "PodResizeInProgress"
DEFERRED: Final = "Deferred"
INFEASIBLE: Final = "Infeasible"
_MUTABLE: Final = (resources.CPU, resources.MEMORY)
_LISTS: Final = (("containers", "containerStatuses"), ("initContainers", "initContainerStatuses"))

Amounts = Mapping[str, int]
"""CPU in thousandths and memory in bytes, by the name of the resource."""


class Verdict(msgspec.Struct, frozen=True):
    """Why a node cannot carry out a resize: ``Deferred`` or ``Infeasible``, and what it lacks."""

    reason: str
    message: str


def amounts(pod: Manifest) -> dict[str, int]:
    """Return the requests of a pod's spec, in the scheduler's units."""
    spec = {"spec": pod.get("spec") or {}}
    return resources.pod_request_ints(msgspec.convert(spec, Pod))


def counted(pod: Manifest) -> dict[str, int]:
    """Return the requests that a pod's node counts: during a resize, the maximum of all amounts.

    A status whose amounts cannot be read says nothing, as in its scheduling class.
    """
    if not _is_readable(pod):
        return amounts(pod)
    return resources.pod_request_ints(msgspec.convert(pod, Pod))


def _is_readable(pod: Manifest) -> bool:
    """Return whether all amounts that a status tells can be read; agents may write anything."""
    try:
        status = msgspec.convert({"status": pod.get("status") or {}}, Pod).status
        containers = (*status.container_statuses, *status.init_container_statuses)
        allocated_ = [status.allocated_resources, *(one.allocated_resources for one in containers)]
        actual = [status.resources, *(one.resources for one in containers)]
        for one in filter(None, actual):
            allocated_ += [one.requests, one.limits]
        for amounts_ in allocated_:
            resources.parse_resources(amounts_)
    except (msgspec.ValidationError, QuantityError):
        return False
    return True


def allocated(pod: Manifest) -> Manifest:
    """Return a pod as its node has set resources aside for it: with the allocation as its spec.

    What the status does not tell, or not so that it can be read, is as the spec says.
    """
    spec, status = dict(pod.get("spec") or {}), pod.get("status") or {}
    if not _is_readable(pod):
        return pod
    for asking, telling in _LISTS:
        statuses = {one.get("name"): one for one in status.get(telling) or ()}
        if statuses and spec.get(asking):
            spec[asking] = [_allocated(one, statuses.get(one.get("name"))) for one in spec[asking]]
    whole = spec.get("resources")
    if whole and (status.get("allocatedResources") or status.get("resources")):
        spec["resources"] = _without(_merged(whole, status), _overhead(spec))
    return {**pod, "spec": spec}


def _overhead(spec: Manifest) -> resources.ResourceList:
    """Return what a pod's runtime takes besides its containers, exact."""
    return resources.parse_resources(spec.get("overhead") or {})


def _allocated(container: Manifest, status: Manifest | None) -> Manifest:
    if not status or not (status.get("allocatedResources") or status.get("resources")):
        return container
    return {**container, "resources": _merged(container.get("resources") or {}, status)}


def _merged(resources_: Manifest, status: Manifest) -> Manifest:
    """Return a container's resources with the requests and limits that its status has.

    Requests are those that the node has allocated, else the actual ones; limits the actual ones.
    """
    actual = status.get("resources") or {}
    promised = status.get("allocatedResources") or actual.get("requests") or {}
    found = dict(resources_)
    for part, amounts_ in (("requests", promised), ("limits", actual.get("limits") or {})):
        if amounts_:
            found[part] = {**(resources_.get(part) or {}), **amounts_}
    return found


def _without(whole: Manifest, overhead: resources.ResourceList) -> Manifest:
    """Subtract the pod's overhead from pod-level requests, as a status includes the overhead."""
    if not overhead:
        return whole
    requests = {
        name: str(resources.less(amount, overhead.get(name)))
        for name, amount in resources.parse_resources(whole.get("requests") or {}).items()
    }
    return {**whole, "requests": requests}


def differs(new: Manifest, old: Manifest) -> bool:
    """Return whether two specs of a pod ask for different resources."""
    return _resources_of(new) != _resources_of(old)


def _resources_of(spec: Manifest) -> tuple[Any, ...]:
    lists = [[one.get("resources") for one in spec.get(asking) or ()] for asking, _ in _LISTS]
    return spec.get("resources"), *lists


def grows(new: Manifest, old: Manifest) -> bool:
    """Return whether the pod's counted requests rise for any resource."""
    if not _may_count_otherwise(new, old):
        return False
    after, before = counted(new), counted(old)
    return any(amount > before.get(name, 0) for name, amount in after.items())


def _may_count_otherwise(new: Manifest, old: Manifest) -> bool:
    spec, former = new.get("spec") or {}, old.get("spec") or {}
    if spec is not former and differs(spec, former):
        return True
    after, before = (
        scheduling_class.status_amounts(one.get("spec") or {}, one.get("status") or {})
        for one in (new, old)
    )
    return after != before


def verdict(requested: Amounts, has: Amounts, others: Amounts, offered: Amounts) -> Verdict | None:
    """Return why a node cannot allocate a pod's new requests, ``None`` if it can.

    Args:
        requested: the pod's requests.
        has: its allocation; a resource of which it requests no more always fits.
        others: the allocations of all other pods of the node.
        offered: the node's allocatable amounts.
    """
    more = [name for name in _MUTABLE if requested.get(name, 0) > has.get(name, 0)]
    for name in more:
        if requested[name] > offered.get(name, 0):
            message = (
                f"Node didn't have enough capacity: {name}, requested: {requested[name]},"
                f" capacity: {offered.get(name, 0)}"
            )
            return Verdict(INFEASIBLE, message)
    for name in more:
        used = others.get(name, 0)
        if requested[name] + used > offered.get(name, 0):
            message = (
                f"Node didn't have enough resource: {name}, requested: {requested[name]},"
                f" used: {used}, capacity: {offered.get(name, 0)}"
            )
            return Verdict(DEFERRED, message)
    return None


def carry_out(pod: Manifest, generation: int) -> Manifest:
    """Return the pod once its node has allocated what the spec requests."""
    spec, status = pod.get("spec") or {}, dict(pod.get("status") or {})
    for asking, telling in _LISTS:
        if status.get(telling):
            specs = {one.get("name"): one.get("resources") or {} for one in spec.get(asking) or ()}
            status[telling] = [_renewed(one, specs.get(one.get("name"))) for one in status[telling]]
    if status.get("allocatedResources") or status.get("resources"):
        status |= _whole(pod)
    status["conditions"] = [
        one
        for one in status.get("conditions") or ()
        if one.get("type") not in (PENDING, IN_PROGRESS)
    ]
    if not status["conditions"]:
        del status["conditions"]
    return {**pod, "status": {**status, "observedGeneration": generation}}


def _renewed(status: Manifest, resources_: Manifest | None) -> Manifest:
    if resources_ is None or not (status.get("allocatedResources") or status.get("resources")):
        return status
    return {**status, **reported_resources(resources_)}


def reported_resources(resources_: Manifest) -> Manifest:
    """Return resources in the form in which a container's status reports them."""
    actual = {part: resources_[part] for part in ("requests", "limits") if resources_.get(part)}
    return {"allocatedResources": dict(resources_.get("requests") or {}), "resources": actual}


def _whole(pod: Manifest) -> Manifest:
    """Return how a status tells of the resources of a pod as a whole, with its overhead."""
    read = msgspec.convert({"spec": pod.get("spec") or {}}, Pod)
    requests = {name: str(amount) for name, amount in resources.pod_requests(read).items()}
    limits = {name: str(amount) for name, amount in resources.pod_limits(read).items()}
    actual = {part: each for part, each in (("requests", requests), ("limits", limits)) if each}
    return {"allocatedResources": requests, "resources": actual}


def hold(new: Manifest, had: Manifest, why: Verdict, generation: int, now: str) -> Manifest:
    """Return a pod with a pending resize: with its condition, and the amounts still allocated.

    ``had`` is the pod with its allocation as its spec (``allocated``). ``now`` is the time of the
    condition, if the pod had none.
    """
    status = dict(new.get("status") or {})
    for asking, telling in _LISTS:
        containers = (had.get("spec") or {}).get(asking) or ()
        if containers:
            container_statuses = {one.get("name"): one for one in status.get(telling) or ()}
            status[telling] = [
                {**(container_statuses.get(one.get("name")) or _unheard_of(one)),
                 **reported_resources(one.get("resources") or {})}
                for one in containers
            ]  # fmt: skip
    if (had.get("spec") or {}).get("resources"):
        status |= _whole(had)
    listed = [one for one in status.get("conditions") or () if one.get("type") != IN_PROGRESS]
    before: Manifest = next((one for one in listed if one.get("type") == PENDING), {})
    condition = {
        "type": PENDING,
        "status": "True",
        "reason": why.reason,
        "message": why.message,
        "lastTransitionTime": before.get("lastTransitionTime") or now,
        "observedGeneration": generation,
    }
    # In its place, so that who says the same again changes nothing.
    conditions = [condition if one is before else one for one in listed]
    status["conditions"] = conditions if before else [*conditions, condition]
    status["observedGeneration"] = generation
    return {**new, "status": status}


def _unheard_of(container: Manifest) -> Manifest:
    """Return the status of a container that no agent has reported."""
    return {
        "name": container.get("name", ""),
        "image": container.get("image", ""),
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": {}},
    }


def waits(pod: Manifest) -> bool:
    """Return whether a pod has a pending resize, by its status."""
    return bool(reported_reason(pod)[0])


def reported_reason(pod: Manifest) -> tuple[str, str]:
    """Return reason and message of the condition PodResizePending, empty without it."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == PENDING:
            return one.get("reason") or "", one.get("message") or ""
    return "", ""


def turn(pod: Manifest, since: str) -> tuple[Any, ...]:
    """Return a sort key for pending resizes; the lowest is tried first.

    Those that ask for no more than they have come first, then by priority, Guaranteed pods before
    others, and by how long they wait; ``since`` is when that began.
    """
    requested, has = amounts(pod), amounts(allocated(pod))
    more = any(requested.get(name, 0) > has.get(name, 0) for name in _MUTABLE)
    priority = (pod.get("spec") or {}).get("priority") or 0
    guaranteed = (pod.get("status") or {}).get("qosClass") == "Guaranteed"
    return more, -priority, not guaranteed, since

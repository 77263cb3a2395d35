"""The requests of a pod, and its QoS class.

``pod_requests`` is the exact form over ``Quantity``; ``pod_request_ints`` gives the integers that
the scheduler counts with: thousandths of a CPU, whole units of everything else, rounded up once at
the end. Rules: component-helpers ``resource/helpers.go``, ``pkg/apis/core/v1/helper/qos`` and
``pkg/scheduler/framework/types.go`` (``CalculateResource``), v1.36.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Literal

import msgspec

from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from clusterstate.objects.values.node import QuantityText
from clusterstate.objects.values.pod import (
    Container,
    ContainerStatus,
    Pod,
    ResourceRequirements,
    Resources,
)
from clusterstate.objects.values.quantity import MAX_INT64, MIN_INT64, Quantity
from clusterstate.objects.values.remembered import remembered

CPU: Final = "cpu"
MEMORY: Final = "memory"
HUGE_PAGES_PREFIX: Final = "hugepages-"

DEFAULT_CPU_MILLI: Final = 100
"""What a container without a CPU request counts for in scoring, in thousandths."""
DEFAULT_MEMORY_BYTES: Final = 200 * 1024 * 1024
"""What a container without a memory request counts for in scoring."""

ResourceList = dict[str, Quantity]


class PodResourcesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to add up a pod's resources (``PodResourcesOptions``).

    ``non_missing_container_requests`` stand in for requests that a container does not state.
    ``use_status_resources`` also looks at what running containers hold while they are resized.
    Until 1.36 (``compatibility``) the most of what each container states, was promised and has is
    summed; from 1.37 on the largest of the three sums counts, and a sum is the pod's own status
    where that says it.
    """

    use_status_resources: bool = False
    exclude_overhead: bool = False
    skip_pod_level_resources: bool = False
    skip_container_level_resources: bool = False
    non_missing_container_requests: ResourceList = {}
    compatibility: Compatibility = NEWEST


_DEFAULT_OPTIONS: Final = PodResourcesOptions()


def parse_resources(resources: Mapping[str, QuantityText]) -> ResourceList:
    """Return the resource list with its quantities parsed.

    Raises:
        QuantityError: one of them is not a quantity.
    """
    return {name: Quantity.parse(text) for name, text in resources.items()}


def is_supported_pod_level_resource(name: str) -> bool:
    """Return whether ``spec.resources`` of a pod may contain this resource."""
    return name in (CPU, MEMORY) or name.startswith(HUGE_PAGES_PREFIX)


def pod_level_requests_set(pod: Pod) -> bool:
    """Return whether the pod states a supported request for itself as a whole."""
    resources = pod.spec.resources
    return resources is not None and any(map(is_supported_pod_level_resource, resources.requests))


def pod_level_resources_set(pod: Pod) -> bool:
    """Return whether the pod states a supported request or limit for itself as a whole."""
    resources = pod.spec.resources
    return resources is not None and any(
        map(is_supported_pod_level_resource, (*resources.requests, *resources.limits))
    )


def is_resize_infeasible(pod: Pod) -> bool:
    """Return whether the pod's pending resize was found infeasible."""
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _add(total: ResourceList, more: ResourceList) -> None:
    for name, quantity in more.items():
        present = total.get(name)
        total[name] = quantity if present is None else present.add(quantity)


def _raise_to(total: ResourceList, floor: ResourceList) -> None:
    for name, quantity in floor.items():
        present = total.get(name)
        if present is None or quantity > present:
            total[name] = quantity


def _max(first: ResourceList, *others: ResourceList) -> ResourceList:
    result = dict(first)
    for other in others:
        _raise_to(result, other)
    return result


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    found: dict[str, ContainerStatus] = {}
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        found.setdefault(status.name, status)
    return found


_Choose = Callable[[ContainerStatus, Resources], Resources]
"""Which resources count for a container, given its status and what its spec states."""


def _allocated(status: ContainerStatus, spec: Resources) -> Resources:
    return status.allocated_resources or spec


def _actuated_requests(status: ContainerStatus, spec: Resources) -> Resources:
    reported = status.resources.requests if status.resources is not None else {}
    return reported or _allocated(status, spec)


def _actuated_limits(status: ContainerStatus, spec: Resources) -> Resources:
    reported = status.resources.limits if status.resources is not None else {}
    return reported or spec


def _aggregate(
    pod: Pod,
    field: Literal["requests", "limits"],
    options: PodResourcesOptions,
    choose: _Choose | None = None,
) -> ResourceList:
    """Return what the pod's containers need: the sum while running, or the peak during start.

    A restartable init container (a sidecar) keeps running; an ordinary one needs its own resources
    plus those of the sidecars started before it. ``choose`` reads the status of a container;
    without a status the spec counts, unless a resize to it was found infeasible. Until 1.36 the
    spec counts then, too, and for each ordinary init container.
    """
    statuses = _statuses(pod) if choose else {}
    infeasible = choose is not None and is_resize_infeasible(pod)
    if options.compatibility < Compatibility.V1_37:
        infeasible = False
        for container in pod.spec.init_containers:
            if container.restart_policy != "Always":
                statuses.pop(container.name, None)
    missing = options.non_missing_container_requests

    def needs(container: Container) -> ResourceList:
        resources: Resources = getattr(container.resources, field)
        if infeasible:
            resources = {}
        status = statuses.get(container.name)
        if choose is not None and status is not None:
            resources = choose(status, resources)
        return {**missing, **parse_resources(resources)}

    total: ResourceList = {}
    for container in pod.spec.containers:
        _add(total, needs(container))
    sidecars: ResourceList = {}
    peak: ResourceList = {}
    for container in pod.spec.init_containers:
        resources = needs(container)
        if container.restart_policy == "Always":
            _add(total, resources)
            _add(sidecars, resources)
            _raise_to(peak, sidecars)
        else:
            _add(resources, sidecars)
            _raise_to(peak, resources)
    _raise_to(total, peak)
    return total


def _most_of_requests(status: ContainerStatus, spec: Resources, *, infeasible: bool) -> Resources:
    """Return the most of what a container states, was promised and has, by resource (v1.36)."""
    if status.resources is None:
        return spec
    sides = (status.resources.requests, status.allocated_resources)
    return _most(*sides) if infeasible else _most(spec, *sides)


def _most_of_limits(status: ContainerStatus, spec: Resources, *, infeasible: bool) -> Resources:
    if status.resources is None:
        return spec
    has = status.resources.limits
    return has if infeasible else _most(spec, has)


def _most(*sides: Resources) -> Resources:
    result: Resources = {}
    for name, text in (pair for side in sides for pair in side.items()):
        if name not in result or Quantity.parse(text) > Quantity.parse(result[name]):
            result[name] = text
    return result


def aggregate_container_requests(
    pod: Pod, options: PodResourcesOptions = _DEFAULT_OPTIONS
) -> ResourceList:
    """Return the requests of all containers together (``AggregateContainerRequests``)."""
    if not options.use_status_resources:
        return _aggregate(pod, "requests", options)
    if options.compatibility < Compatibility.V1_37:
        infeasible = is_resize_infeasible(pod)
        return _aggregate(
            pod, "requests", options, partial(_most_of_requests, infeasible=infeasible)
        )
    status = pod.status
    if status.allocated_resources and status.resources is not None and status.resources.requests:
        allocated = parse_resources(status.allocated_resources)
        actuated = parse_resources(status.resources.requests)
    else:
        allocated = _aggregate(pod, "requests", options, _allocated)
        actuated = _aggregate(pod, "requests", options, _actuated_requests)
    if is_resize_infeasible(pod):
        return _max(actuated, allocated)
    return _max(_aggregate(pod, "requests", options), actuated, allocated)


def aggregate_container_limits(
    pod: Pod, options: PodResourcesOptions = _DEFAULT_OPTIONS
) -> ResourceList:
    """Return the limits of all containers together (``AggregateContainerLimits``)."""
    options = msgspec.structs.replace(options, non_missing_container_requests={})
    if not options.use_status_resources:
        return _aggregate(pod, "limits", options)
    if options.compatibility < Compatibility.V1_37:
        infeasible = is_resize_infeasible(pod)
        return _aggregate(pod, "limits", options, partial(_most_of_limits, infeasible=infeasible))
    actual = pod.status.resources
    if actual is not None and actual.limits:
        actuated = parse_resources(actual.limits)
    else:
        actuated = _aggregate(pod, "limits", options, _actuated_limits)
    if is_resize_infeasible(pod):
        return actuated
    return _max(_aggregate(pod, "limits", options), actuated)


def _apply_pod_level(total: ResourceList, resources: ResourceList) -> None:
    for name, quantity in resources.items():
        if is_supported_pod_level_resource(name):
            total[name] = quantity


def _pod_level_requests(pod: Pod, options: PodResourcesOptions) -> ResourceList:
    """Return the pod-level requests that the scheduler counts.

    During a resize these are the maximum of requested, allocated and actual amounts; if the resize
    was found infeasible, of the last two. What the status says includes the overhead.
    """
    assert pod.spec.resources is not None
    requests = parse_resources(pod.spec.resources.requests)
    held = [pod.status.allocated_resources]
    if pod.status.resources is not None:
        held.append(pod.status.resources.requests)
    if not options.use_status_resources or not any(held):
        return requests
    overhead = parse_resources(pod.spec.overhead)
    without = [
        {name: less(amount, overhead.get(name)) for name, amount in parse_resources(one).items()}
        for one in held
    ]
    return _max({} if is_resize_infeasible(pod) else requests, *without)


def less(amount: Quantity, overhead: Quantity | None) -> Quantity:
    """Return ``amount``, which includes ``overhead``, without it; at least 0."""
    return amount if overhead is None else Quantity(max(amount.nano - overhead.nano, 0))


def pod_requests(pod: Pod, options: PodResourcesOptions = _DEFAULT_OPTIONS) -> ResourceList:
    """Return the pod's requests: containers, then pod-level ones over them, then overhead (R139).

    Raises:
        QuantityError: a resource is not a quantity.
    """
    total = (
        {} if options.skip_container_level_resources else aggregate_container_requests(pod, options)
    )
    if not options.skip_pod_level_resources and pod_level_requests_set(pod):
        _apply_pod_level(total, _pod_level_requests(pod, options))
    if not options.exclude_overhead:
        _add(total, parse_resources(pod.spec.overhead))
    return total


def pod_limits(pod: Pod, options: PodResourcesOptions = _DEFAULT_OPTIONS) -> ResourceList:
    """Return the pod's limits; overhead is added only where there is a limit that is not zero."""
    total = aggregate_container_limits(pod, options)
    if not options.skip_pod_level_resources and pod_level_resources_set(pod):
        assert pod.spec.resources is not None
        _apply_pod_level(total, parse_resources(pod.spec.resources.limits))
    if not options.exclude_overhead:
        for name, quantity in parse_resources(pod.spec.overhead).items():
            if total.get(name):
                total[name] = total[name].add(quantity)
    return total


class ControlGroup(msgspec.Struct, frozen=True):
    """The cgroup settings of a pod; None: no limit.

    ``cpu_shares`` is the weight against other pods, ``cpu_quota_us`` the time in each 100,000
    microseconds, ``memory_bytes`` the most memory.
    """

    cpu_shares: int
    cpu_quota_us: int | None
    memory_bytes: int | None


def control_group(pod: Pod) -> ControlGroup:
    """Return the size of a pod's control group: limits, and shares from requests, with overhead.

    Rule: ``ResourceConfigForPod``, pkg/kubelet/cm/helpers_linux.go, v1.36.

    Raises:
        QuantityError: a resource is not a quantity.
    """
    requests, limits = pod_requests(pod), pod_limits(pod)
    milli = -(-requests[CPU].nano // 10**6) if CPU in requests else 0
    limited = [
        {name for name in (CPU, MEMORY) if name in container.resources.limits}
        for container in (*pod.spec.containers, *pod.spec.init_containers)
    ]
    has_cpu = all(CPU in one for one in limited) and CPU in limits
    has_memory = all(MEMORY in one for one in limited) and MEMORY in limits
    return ControlGroup(
        cpu_shares=min(max(milli * 1024 // 1000, 2), 262_144),
        cpu_quota_us=max(-(-limits[CPU].nano // 10**6) * 100, 1000) if has_cpu else None,
        memory_bytes=-(-limits[MEMORY].nano // 10**9) if has_memory else None,
    )


# Integers for the scheduler -------------------------------------------------------------------


def _has_status_resources(pod: Pod) -> bool:
    pod_status = pod.status
    return (
        any(
            status.allocated_resources or status.resources is not None
            for status in (*pod_status.container_statuses, *pod_status.init_container_statuses)
        )
        or bool(pod_status.allocated_resources)
        or pod_status.resources is not None
        or (bool(pod_status.conditions) and is_resize_infeasible(pod))
    )


def current_requests(pod: Pod, compatibility: Compatibility = NEWEST) -> ResourceList:
    """Return the requests that count now: of a pod that is resized also what it still holds."""
    if not _has_status_resources(pod):
        return pod_requests(pod)
    options = PodResourcesOptions(use_status_resources=True, compatibility=compatibility)
    return pod_requests(pod, options)


@remembered(65_536, longest=64)
def _nano(text: QuantityText) -> int:
    return Quantity.parse(text).nano


def _nano_requests(pod: Pod, missing: Mapping[str, int]) -> dict[str, int]:
    """Return what ``pod_requests`` does, in billionths and without building quantities."""
    spec = pod.spec
    total: dict[str, int] = {}
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in spec.containers:
        requests = container.resources.requests
        for name, text in requests.items():
            total[name] = total.get(name, 0) + _nano(text)
        for name, amount in missing.items():
            if name not in requests:
                total[name] = total.get(name, 0) + amount
    for container in spec.init_containers:
        needs = {name: _nano(text) for name, text in container.resources.requests.items()}
        for name, amount in missing.items():
            needs.setdefault(name, amount)
        if container.restart_policy == "Always":
            for name, amount in needs.items():
                total[name] = total.get(name, 0) + amount
                sidecars[name] = sidecars.get(name, 0) + amount
            needs = sidecars
        else:
            for name, amount in sidecars.items():
                needs[name] = needs.get(name, 0) + amount
        for name, amount in needs.items():
            if name not in peak or amount > peak[name]:
                peak[name] = amount
    for name, amount in peak.items():
        if name not in total or amount > total[name]:
            total[name] = amount
    if spec.resources is not None:
        for name, text in spec.resources.requests.items():
            if is_supported_pod_level_resource(name):
                total[name] = _nano(text)
    for name, text in spec.overhead.items():
        total[name] = total.get(name, 0) + _nano(text)
    return total


def whole(name: str, nano: int) -> int:
    """Return billionths as the scheduler counts them: CPU in thousandths, the rest in whole units.

    Rounded away from zero, and within int64 as ``MilliValue`` and ``Value`` are from 1.38 on
    (kubernetes#141305); before, they wrap around.
    """
    unit = 10**6 if name == CPU else 10**9
    rounded = -(-nano // unit) if nano >= 0 else nano // unit
    return max(min(rounded, MAX_INT64), MIN_INT64)


def pod_request_ints(pod: Pod, compatibility: Compatibility = NEWEST) -> dict[str, int]:
    """Return the requests that the scheduler counts: CPU in thousandths, the rest in whole units.

    Sums are exact and rounded up once, as in ``Resource.Add``. Resources that a running pod holds
    while it is resized count too. The result is within int64.

    Raises:
        QuantityError: a resource is not a quantity.
    """
    if _has_status_resources(pod):
        exact = {name: q.nano for name, q in current_requests(pod, compatibility).items()}
    else:
        exact = _nano_requests(pod, {})
    return {name: whole(name, nano) for name, nano in exact.items()}


def non_zero_requests(pod: Pod, compatibility: Compatibility = NEWEST) -> tuple[int, int]:
    """Return (CPU in thousandths, memory in bytes) for scoring.

    A container without a request counts as 100m and 200Mi; where the pod states requests for
    itself, only resources it leaves open get the default. Rule: ``CalculateResource``.
    """
    missing = {CPU: DEFAULT_CPU_MILLI * 10**6, MEMORY: DEFAULT_MEMORY_BYTES * 10**9}
    status = _has_status_resources(pod)
    if pod_level_requests_set(pod):
        present = current_requests(pod, compatibility)
        missing = {name: nano for name, nano in missing.items() if name not in present}
    if status:
        options = PodResourcesOptions(
            use_status_resources=True,
            compatibility=compatibility,
            non_missing_container_requests={n: Quantity(nano) for n, nano in missing.items()},
        )
        exact = {name: q.nano for name, q in pod_requests(pod, options).items()}
    else:
        exact = _nano_requests(pod, missing)
    return whole(CPU, exact.get(CPU, 0)), whole(MEMORY, exact.get(MEMORY, 0))


# Quality of service ---------------------------------------------------------------------------


def _positive(resources: Mapping[str, QuantityText]) -> ResourceList:
    found = {name: Quantity.parse(resources[name]) for name in (CPU, MEMORY) if name in resources}
    return {name: quantity for name, quantity in found.items() if quantity.sign > 0}


def qos_class(pod: Pod) -> str:
    """Return ``Guaranteed``, ``Burstable`` or ``BestEffort`` (``ComputePodQOS``)."""
    requests: ResourceList = {}
    limits: ResourceList = {}
    guaranteed = True
    requirements: Iterable[ResourceRequirements]
    if pod_level_resources_set(pod):
        assert pod.spec.resources is not None
        requirements = (pod.spec.resources,)
    else:
        requirements = [c.resources for c in (*pod.spec.containers, *pod.spec.init_containers)]
    for resources in requirements:
        _add(requests, _positive(resources.requests))
        own_limits = _positive(resources.limits)
        _add(limits, own_limits)
        guaranteed = guaranteed and len(own_limits) == 2
    if not requests and not limits:
        return "BestEffort"
    if guaranteed and requests == limits:
        return "Guaranteed"
    return "Burstable"

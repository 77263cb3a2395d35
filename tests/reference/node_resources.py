"""What nodes have and what is taken, in whole units, for the resource rules.

CPU is in thousandths, everything else in units (bytes for memory). Two sums of requests exist: the
true one, and for scoring one in which a container that does not say counts as 100m CPU and 200Mi,
so that pods without requests still weigh something.

Source: pkg/scheduler/framework/types.go (Resource, NodeInfo), scheduler/util/utils.go
(IsScalarResourceName) and pkg/apis/core/v1/helper/helpers.go, v1.36.
"""

from collections import Counter

from clusterstate.objects.rules.resources import (
    CPU,
    DEFAULT_CPU_MILLI,
    DEFAULT_MEMORY_BYTES,
    MEMORY,
    PodResourcesOptions,
    non_zero_requests,
    parse_resources,
    pod_request_ints,
    pod_requests,
)
from clusterstate.objects.values.labels import is_qualified_name
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.quantity import Quantity
from tests.reference.cluster import PlacedNode

NATIVE = (CPU, MEMORY, "ephemeral-storage")
"""Resources with accounts of their own; ``pods`` is counted apart, all others are *scalar*."""


def is_extended_resource(name: str) -> bool:
    """Return whether ``name`` is a resource of somebody else than Kubernetes: ``vendor/thing``."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return not is_qualified_name(f"requests.{name}")


def is_scalar_resource(name: str) -> bool:
    """Return whether nodes keep an account of ``name`` beside the native ones."""
    return (
        is_extended_resource(name)
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in name
    )


def amount(name: str, quantity: Quantity) -> int:
    """Return a quantity in thousandths for CPU and in whole units otherwise, rounded up.

    It saturates at the bounds of int64 (kubernetes#141305).
    """
    found = quantity.milli_value() if name == CPU else quantity.value()
    return max(min(found, 2**63 - 1), -(2**63))


def allocatable(node: PlacedNode) -> dict[str, int]:
    """Return what pods may use on ``node``."""
    quantities = parse_resources(node.node.status.allocatable)
    return {name: amount(name, quantity) for name, quantity in quantities.items()}


def requested(node: PlacedNode) -> Counter[str]:
    """Return what the pods on ``node`` request together."""
    total: Counter[str] = Counter()
    for pod in node.pods:
        total.update(pod_request_ints(pod))
    return total


def non_zero_requested(node: PlacedNode) -> dict[str, int]:
    """Return requested CPU and memory of the pods on ``node`` with the scoring defaults."""
    pairs = [non_zero_requests(pod) for pod in node.pods]
    return {CPU: sum(cpu for cpu, _ in pairs), MEMORY: sum(memory for _, memory in pairs)}


def fit_request(pod: Pod, name: str) -> int:
    """Return the request that NodeResourcesFit counts when it scores the incoming pod.

    Containers that do not say count with the defaults. Requests of the pod as a whole are left out:
    the scorer of this plugin is built without that feature (noderesources/fit.go,
    nodeResourceStrategyTypeMap), although its filter has it.
    """
    missing = {
        CPU: Quantity(DEFAULT_CPU_MILLI * 10**6),
        MEMORY: Quantity.of(DEFAULT_MEMORY_BYTES),
    }
    options = PodResourcesOptions(
        skip_pod_level_resources=True, non_missing_container_requests=missing
    )
    requests = pod_requests(pod, options)
    return amount(name, requests[name]) if name in requests else 0


def capacity_and_use(
    node: PlacedNode, name: str, pod_request: int, *, defaults: bool
) -> tuple[int, int, int] | None:
    """Return (allocatable, used with the pod, used without it), or None if there is no score.

    Not scored: a scalar resource that the pod does not request, and what the node does not have.
    Rule: noderesources/resource_allocation.go, calculateResourceAllocatableRequest.
    """
    if pod_request == 0 and is_scalar_resource(name):
        return None
    if name not in NATIVE and not is_scalar_resource(name):
        return None
    has = allocatable(node).get(name, 0)
    if has == 0:
        return None
    if defaults and name in (CPU, MEMORY):
        used = non_zero_requested(node)[name]
    else:
        used = requested(node)[name]
    return has, used + pod_request, used

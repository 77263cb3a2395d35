"""The usage of an object in the quotas of its namespace.

A pod counts for itself and for what it asks for, overhead included (R140), until it has ended; then
it only counts as an object that is stored. Everything a pod's scheduling class holds is worked out
once for all pods of the class. Services and claims count for what their specs say, all other
objects for one of their resource. Devices of a class count under three names, whether a pod or a
claim asks for them: ``NAME.deviceclass.resource.k8s.io/devices`` (claims alone),
``requests.deviceclass.resource.kubernetes.io/NAME``, and ``requests.`` with the class's
``extendedResourceName``. Rules: pkg/quota/v1/evaluator/core/{pods,services,
persistent_volume_claims,resource_claims}.go, apiserver quota/v1/generic/evaluator.go, v1.36.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from clusterstate.objects.rules import resources
from clusterstate.objects.rules.resources import ResourceList
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Container, Pod, PodAffinity, PodAffinityTerm
from clusterstate.objects.values.quantity import Quantity, QuantityError
from clusterstate.objects.values.remembered import remembered

ONE: Final = Quantity.of(1)
ZERO: Final = Quantity.of(0)
NONE: Final[ResourceList] = {}
FINISHED: Final = ("Succeeded", "Failed")
UNCOUNTED: Final = frozenset({"Event"})
"""Kinds that no quota counts: the service records events itself, many in one statement."""
CHANGING: Final = frozenset({"PersistentVolumeClaim", "Service"})
"""Kinds other than pods whose objects may count for something else after an update."""

_LEGACY: Final = frozenset(
    {
        "ConfigMap",
        "PersistentVolumeClaim",
        "ReplicationController",
        "ResourceQuota",
        "Secret",
        "Service",
    }
)
"""Kinds that quotas may count by their resource's name, without ``count/``."""
_COMPUTE: Final = ("cpu", "memory")
_NATIVE: Final = (*_COMPUTE, "ephemeral-storage")
COMPUTE: Final = frozenset(f"{prefix}{name}" for prefix in ("", "requests.", "limits.")
                           for name in _COMPUTE)  # fmt: skip
"""What each container must state where a quota limits it."""
_OF_PODS: Final = frozenset(
    ["pods", *(f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in _NATIVE)]
)
_HUGE_PAGES: Final = resources.HUGE_PAGES_PREFIX
_REQUESTS: Final = "requests."
_OF_CLAIMS: Final = ("persistentvolumeclaims", "requests.storage")
_STORAGE_CLASS: Final = ".storageclass.storage.k8s.io/"
_DEVICES: Final = ".deviceclass.resource.k8s.io/devices"
_OF_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""What stands before the name of a device class where a pod asks for its devices as a resource."""
_FOR_A_POD: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of a claim that a scheduler made for what a pod asks for as resources."""
_MOST_DEVICES: Final = 32
"""What a request for all devices counts for: more are never allocated to a claim."""
_STORAGE_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"


class Usage(msgspec.Struct, frozen=True):
    """The usage of an object by resource, and the facts that quota scopes look at.

    ``resource_names``: by container, which resources of ``COMPUTE`` it states; empty where the pod
    itself states resources, and for other objects.
    """

    amounts: Mapping[str, Quantity] = NONE
    is_pod: bool = False
    terminating: bool = False
    best_effort: bool = False
    cross_namespace: bool = False
    priority_class: str = ""
    attribute_classes: frozenset[str] = frozenset()
    resource_names: tuple[frozenset[str], ...] = ()


NOTHING: Final = Usage()
"""What an object counts for that is not there."""


def count_name(kind: Kind) -> str:
    """Return the resource under which a quota counts a kind: ``count/deployments.apps``."""
    return f"count/{kind.resource}"


def kinds_counted(name: str) -> list[Kind]:
    """Return the kinds whose objects count for a resource of a quota; empty: nothing does."""
    return [kind for kind in ALL_KINDS if tracks(kind, name)]


def tracks(kind: Kind, name: str) -> bool:
    """Return whether objects of a kind may count for a resource of a quota."""
    if not kind.namespaced or kind.name in UNCOUNTED:
        return False
    if name == count_name(kind):
        return True
    if kind.name == "Pod":
        return (
            name in _OF_PODS
            or name.startswith((_HUGE_PAGES, _REQUESTS + _HUGE_PAGES))
            or _is_request_of_extended(name)
        )
    if kind.name in _LEGACY and name == kind.plural:
        return True
    if kind.name == "Service":
        return name in ("services.nodeports", "services.loadbalancers")
    if kind.name == "PersistentVolumeClaim":
        return name in _OF_CLAIMS or name.endswith(
            tuple(_STORAGE_CLASS + one for one in _OF_CLAIMS)
        )
    if kind.name == "ResourceClaim":
        return (name.endswith(_DEVICES) and name != _DEVICES) or _is_request_of_extended(name)
    return False


def _is_request_of_extended(name: str) -> bool:
    return name.startswith(_REQUESTS) and _is_extended(name.removeprefix(_REQUESTS))


def _is_extended(name: str) -> bool:
    """Return whether a resource name is of devices: a device plugin's or a device class'."""
    if name.startswith(_OF_CLASS):
        return name != _OF_CLASS
    return "/" in name and "kubernetes.io/" not in name


# Pods -----------------------------------------------------------------------------------------


class Extras(msgspec.Struct, frozen=True):
    """Facts of a pod, beyond its scheduling class, that quotas look at."""

    terminating: bool = False
    priority_class: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    active_deadline_seconds: int | None = None
    priority_class_name: str | None = None


class _Pod(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


_decode_extras: Final = msgspec.json.Decoder(_Pod).decode
_decode_pod: Final = msgspec.json.Decoder(Pod).decode
NO_EXTRAS: Final = Extras()


def extras_of(pod: bytes) -> Extras:
    """Return the facts of a pod, given as JSON, that quotas need beyond its scheduling class."""
    spec = _decode_extras(pod).spec
    return Extras(_ends(spec.active_deadline_seconds), spec.priority_class_name or "")


def is_terminating(pod: Manifest) -> bool:
    """Return whether a pod has a time by which it has to end."""
    return _ends((pod.get("spec") or {}).get("activeDeadlineSeconds"))


def _ends(active_deadline_seconds: int | None) -> bool:
    return active_deadline_seconds is not None and active_deadline_seconds >= 0


def pod_usage(class_spec: str, *, finished: bool, extras: Extras = NO_EXTRAS) -> Usage:
    """Return the quota usage of a pod of a scheduling class."""
    usage = _of_class(class_spec)
    amounts = _FINISHED_POD if finished else usage.amounts
    if not finished and extras == NO_EXTRAS:
        return usage
    return msgspec.structs.replace(
        usage,
        amounts=amounts,
        terminating=extras.terminating,
        priority_class=extras.priority_class,
    )


_COUNT_PODS: Final = count_name(KINDS["Pod"])
_FINISHED_POD: Final = {_COUNT_PODS: ONE}


@remembered(4096, longest=16_384)
def _of_class(class_spec: str) -> Usage:
    pod = _decode_pod(class_spec)
    requests, limits = resources.current_requests(pod), resources.pod_limits(pod)
    amounts = {_COUNT_PODS: ONE, "pods": ONE, **_compute(requests, limits)}
    for name, amount in requests.items():
        if name.startswith(_HUGE_PAGES):
            amounts[name] = amounts[_REQUESTS + name] = amount
        elif _is_extended(name):
            amounts[_REQUESTS + name] = amount
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return Usage(
        amounts,
        is_pod=True,
        best_effort=resources.qos_class(pod) == "BestEffort",
        cross_namespace=_crosses_namespaces(pod),
        resource_names=()
        if resources.pod_level_resources_set(pod)
        else tuple(map(_resource_names, containers)),
    )


def _compute(requests: ResourceList, limits: ResourceList) -> dict[str, Quantity]:
    amounts = {}
    for name in _NATIVE:
        if name in requests:
            amounts[name] = amounts[_REQUESTS + name] = requests[name]
        if name in limits:
            amounts["limits." + name] = limits[name]
    return amounts


def _resource_names(container: Container) -> frozenset[str]:
    resources = container.resources
    names = set()
    for name in _COMPUTE:
        if name in resources.requests:
            names |= {name, _REQUESTS + name}
        if name in resources.limits:
            names.add("limits." + name)
    return frozenset(names)


def _crosses_namespaces(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    if affinity is None:
        return False
    return any(
        term.namespaces or term.namespace_selector is not None
        for one in (affinity.pod_affinity, affinity.pod_anti_affinity)
        if one is not None
        for term in _terms(one)
    )


def _terms(affinity: PodAffinity) -> list[PodAffinityTerm]:
    return [
        *affinity.required_during_scheduling_ignored_during_execution,
        *(
            weighted.pod_affinity_term
            for weighted in affinity.preferred_during_scheduling_ignored_during_execution
        ),
    ]


# Other objects --------------------------------------------------------------------------------


def object_usage(kind: Kind, manifest: Manifest, resources_of: Mapping[str, str]) -> Usage:
    """Return the quota usage of an object that is not a pod.

    ``resources_of``: the ``extendedResourceName`` of each device class that has one. It is asked
    for kinds alone that count by it (``looks_into_device_classes``).
    """
    if looks_into_device_classes(kind):
        return _devices_usage(manifest, resources_of)
    special = _SPECIAL.get(kind.name)
    return plain_usage(kind) if special is None else special(manifest)


def looks_into_device_classes(kind: Kind) -> bool:
    """Return whether the quota usage of objects of a kind depends on device classes."""
    return kind.name == "ResourceClaim"


def needs_document(kind: Kind) -> bool:
    """Return whether the quota usage of a kind (not Pod) depends on the object's document."""
    return kind.name in _SPECIAL or looks_into_device_classes(kind)


@lru_cache(maxsize=256)
def _plain(name: str) -> Usage:
    kind = KINDS[name]
    if not kind.namespaced or name in UNCOUNTED:
        return NOTHING
    amounts = {count_name(kind): ONE}
    if name in _LEGACY:
        amounts[kind.plural] = ONE
    return Usage(amounts)


def plain_usage(kind: Kind) -> Usage:
    """Return the usage of each object of a kind as one object, without its content."""
    return _plain(kind.name)


def _service_usage(service: Manifest) -> Usage:
    spec = service.get("spec") or {}
    ports = spec.get("ports") or []
    balanced = spec.get("type") == "LoadBalancer"
    if balanced and spec.get("allocateLoadBalancerNodePorts") is False:
        node_ports = sum(1 for port in ports if port.get("nodePort"))
    else:
        node_ports = len(ports) if balanced or spec.get("type") == "NodePort" else 0
    return Usage(
        {
            **_plain("Service").amounts,
            "services.nodeports": Quantity.of(node_ports),
            "services.loadbalancers": ONE if balanced else ZERO,
        }
    )


def _claim_usage(claim: Manifest) -> Usage:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    storage_class = annotations.get(_STORAGE_CLASS_ANNOTATION, spec.get("storageClassName")) or ""
    counted = {"persistentvolumeclaims": ONE}
    storage = _quantity((spec.get("resources") or {}).get("requests") or {}, "storage")
    if storage is not None:
        allocated = _quantity(status.get("allocatedResources") or {}, "storage")
        if allocated is not None and allocated > storage:
            storage = allocated
        counted["requests.storage"] = storage.round_up(0)[0]
    amounts = {**_plain("PersistentVolumeClaim").amounts, **counted}
    if storage_class:
        amounts |= {f"{storage_class}{_STORAGE_CLASS}{name}": n for name, n in counted.items()}
    changing = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    names = (
        spec.get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        changing,
    )
    return Usage(amounts, attribute_classes=frozenset(name for name in names if name))


def _devices_usage(claim: Manifest, resources_of: Mapping[str, str]) -> Usage:
    """Return the quota usage of a ResourceClaim: of alternatives the maximum for each class.

    Where a scheduler made the claim for a pod, the pod counts already for the resource that it asks
    for: the class's ``extendedResourceName`` if it has one, else the resource of the class. Which
    one is told by the class alone, so that the claim counts for the same when the pod is gone.
    """
    total: dict[str, int] = {}
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        alternatives = request.get("firstAvailable") or [request.get("exactly") or {}]
        most: dict[str, int] = {}
        for one in alternatives:
            name, count = one.get("deviceClassName") or "", one.get("count") or 1
            if one.get("allocationMode") == "All":
                count = _MOST_DEVICES
            most[name] = max(most.get(name, 0), count)
        for name, count in most.items():
            total[name] = total.get(name, 0) + count
    total.pop("", None)
    for_a_pod = _is_for_a_pod(claim.get("metadata") or {})
    counted: dict[str, int] = {}
    for name, count in total.items():
        counted[name + _DEVICES] = count
        resource = resources_of.get(name)
        if resource or not for_a_pod:
            counted[_REQUESTS + _OF_CLASS + name] = count
        if resource and not for_a_pod:  # several classes may be known by one name
            counted[_REQUESTS + resource] = counted.get(_REQUESTS + resource, 0) + count
    amounts = {name: Quantity.of(count) for name, count in counted.items()}
    return Usage({**_plain("ResourceClaim").amounts, **amounts})


def _is_for_a_pod(metadata: Manifest) -> bool:
    if (metadata.get("annotations") or {}).get(_FOR_A_POD) != "true":
        return False
    return any(
        owner.get("controller") and owner.get("kind") == "Pod" and owner.get("apiVersion") == "v1"
        for owner in metadata.get("ownerReferences") or ()
    )


def _quantity(amounts: Manifest, name: str) -> Quantity | None:
    try:
        return Quantity.parse(amounts[name]) if name in amounts else None
    except QuantityError:
        return None


_SPECIAL: Final[dict[str, Callable[[Manifest], Usage]]] = {
    "PersistentVolumeClaim": _claim_usage,
    "Service": _service_usage,
}

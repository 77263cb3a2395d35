"""Extended resources that device classes provide: the class, and the claim for them.

Rules: kube-scheduler ``dynamicresources/extendeddynamicresources.go`` and
``dynamicresources/extended``, v1.36. A class provides the resource in its ``extendedResourceName``,
and always ``deviceclass.resource.kubernetes.io/NAME``. If several name one resource, the youngest
provides it; among equally young ones the first by name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import Quantity

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
CLAIM_IN_MEMORY: Final = "<extended-resources>"
"""What the claim that the scheduler makes is called before it is written."""


def classes_by_resource(classes: Iterable[Manifest]) -> dict[str, Manifest]:
    """Return the class that serves each extended resource."""
    found: dict[str, Manifest] = {}
    for one in classes:
        found[IMPLICIT + one["metadata"]["name"]] = one
        name = (one.get("spec") or {}).get("extendedResourceName")
        if name and (name not in found or _rank(one) < _rank(found[name])):
            found[name] = one
    return found


def _rank(one: Manifest) -> tuple[str, str]:
    """Sort the youngest first, then by name; time stamps sort as texts once inverted."""
    stamp = str(one["metadata"].get("creationTimestamp") or "")
    return "".join(chr(0x7F - ord(c)) for c in stamp), one["metadata"]["name"]


def is_extended(name: str) -> bool:
    """Return whether a resource's name is one that a class may serve."""
    if name.startswith(IMPLICIT):
        return True
    domain, slash, _ = name.partition("/")
    native = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(slash) and not native and not name.startswith("requests.")


def requests_and_mappings(
    pod: Manifest, resources: Iterable[str], class_of: Callable[[str], Manifest | None]
) -> tuple[list[Manifest], list[Manifest]]:
    """Return the device requests for a pod's extended resources, and their mapping to containers.

    Init containers reuse the devices of containers that run beside or after them.
    """
    initial = pod["spec"].get("initContainers") or []
    containers = [*initial, *(pod["spec"].get("containers") or ())]
    brief = {index for index, one in enumerate(initial) if one.get("restartPolicy") != "Always"}
    requests: list[Manifest] = []
    mappings: list[Manifest] = []
    for resource in sorted(resources):
        if (of_class := class_of(resource)) is None:
            continue
        name = of_class["metadata"]["name"]
        lasting: list[Manifest | None] = [None] * len(containers)
        for index in range(len(containers)):
            if index not in brief:
                lasting[index], more = _request(index, containers[index], resource, name, ())
                mappings += more
        largest, names, short = None, set(), []
        for index in sorted(brief):
            request, more = _request(
                index, containers[index], resource, name, [r for r in lasting[index:] if r]
            )
            short += more
            if request is not None:
                names.add(request["name"])
                if largest is None or largest["exactly"]["count"] < request["exactly"]["count"]:
                    largest = request
        if largest is not None:
            requests.append(largest)
            for mapping in short:
                if mapping["requestName"] in names:
                    mapping["requestName"] = largest["name"]
        requests += [request for request in lasting if request]
        mappings += short
    return sorted(requests, key=lambda request: str(request["name"])), mappings


def _request(
    index: int, container: Manifest, resource: str, class_name: str, reusable: Sequence[Manifest]
) -> tuple[Manifest | None, list[Manifest]]:
    """Return a container's request for devices that it cannot reuse, and all its mappings."""
    requests: Mapping[str, Any] = (container.get("resources") or {}).get("requests") or {}
    count = Quantity.parse(requests[resource]).value() if resource in requests else 0
    if count == 0:
        return None, []

    def mapping(request: str) -> Manifest:
        return {
            "containerName": container["name"], "resourceName": resource, "requestName": request,
        }  # fmt: skip

    have, mappings = 0, []
    for request in reusable:
        have += request["exactly"]["count"]
        mappings.append(mapping(request["name"]))
        if have >= count:
            return None, mappings
    name = f"container-{index}-request-{sorted(requests).index(resource)}"
    exactly = {
        "deviceClassName": class_name, "allocationMode": "ExactCount", "count": count - have,
    }  # fmt: skip
    return {"name": name, "exactly": exactly}, [*mappings, mapping(name)]


def status_equal(one: Manifest | None, other: Manifest | None) -> bool:
    """Return whether two ``extendedResourceClaimStatus`` are equal, including the order."""
    if one is None or other is None:
        return one is other
    return (one.get("resourceClaimName"), one.get("requestMappings") or []) == (
        other.get("resourceClaimName"), other.get("requestMappings") or []
    )  # fmt: skip

"""Workloads with claims of devices, in the shapes of scheduler_perf's ``dra`` folder (v1.36).

Each node has one slice of its driver's devices; each pod has a claim that a template makes. Beside
those, what upstream has no benchmark for: selectors over one large pool, and a claim for which the
allocator has to search.
"""

from typing import Any

from tests.perf.workloads import Manifest, Workload, node, pod

DRIVER = "test-driver.cdi.k8s.io"
TEMPLATE = "test-claim-template"


def device_class(name: str = "test-class", expression: str = "") -> Manifest:
    """Return a class of the driver's devices."""
    selects = expression or f"device.driver == {DRIVER!r}"
    return {
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": selects}}]},
    }


def resource_slice(number: int, count: int) -> Manifest:
    """Return the slice of a node's devices."""
    name = node(number)["metadata"]["name"]
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-slice"},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"instance-{at:02d}"} for at in range(count)],
        },
    }


def template(count: int = 1, **exactly: Any) -> Manifest:
    """Return a template of claims for some devices of the class."""
    asked = {"deviceClassName": "test-class", "allocationMode": "ExactCount", "count": count}
    requests = [{"name": "req-0", "exactly": asked | exactly}]
    return {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }


def claiming_pod(number: int) -> Manifest:
    """Return a pod that has one claim, made from the template."""
    claims = [{"name": "resource", "resourceClaimTemplateName": TEMPLATE}]
    return pod(number, resourceClaims=claims)


def _many_by_selector(nodes: int) -> list[Manifest]:
    """Return 80 devices a node, 40,000 on 500 nodes, that differ in their attributes."""
    slices = [resource_slice(number, 80) for number in range(nodes)]
    for one in slices:
        for at, device in enumerate(one["spec"]["devices"]):
            device["attributes"] = {"index": {"int": at}, "model": {"string": f"m{at % 4}"}}
    for one in list(slices):
        rest = {**one, "spec": {**one["spec"], "devices": one["spec"]["devices"][64:]}}
        rest["metadata"] = {"name": f"{one['metadata']['name']}-more"}
        one["spec"]["devices"] = one["spec"]["devices"][:64]
        slices.append(rest)
    for one in slices:
        one["spec"]["pool"] = {**one["spec"]["pool"], "resourceSliceCount": 2}
    return [device_class(), *slices]


def _selected() -> Manifest:
    expression = (
        f"device.attributes[{DRIVER!r}].model == 'm3' && device.attributes[{DRIVER!r}].index > 40"
    )
    return template(selectors=[{"cel": {"expression": expression}}])


def _objects(nodes: int) -> list[Manifest]:
    return [device_class(), *(resource_slice(number, 10) for number in range(nodes))]


CLAIMS: tuple[Workload, ...] = (
    Workload(
        name="SchedulingWithResourceClaimTemplate",
        about="ten devices a node, a claim of one for each pod; half is taken before",
        node=node, pod=claiming_pod, init_pod=claiming_pod, init=lambda nodes: 5 * nodes,
        measured=lambda nodes: min(5 * nodes, 2_500), classes=2_500, warms=False,
        objects=_objects, template_of_claims=template(),
    ),
    Workload(
        name="SteadyStateClusterResourceClaimTemplate",
        about="the same while as many pods leave as come",
        node=node, pod=claiming_pod, init_pod=claiming_pod, init=lambda nodes: 5 * nodes,
        measured=lambda nodes: min(5 * nodes, 2_500), classes=2_500, warms=False, leave=1.0,
        objects=_objects, template_of_claims=template(),
    ),
    Workload(
        name="DevicesBySelector",
        about="80 devices a node, claims by CEL selectors that most devices do not match",
        node=node, pod=claiming_pod, measured=lambda nodes: min(5 * nodes, 2_500), classes=2_500,
        warms=False, objects=_many_by_selector, template_of_claims=_selected(),
    ),
)  # fmt: skip

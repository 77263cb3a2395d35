"""The structured allocator: what it gives for claims on one node, or why not."""

import json

from clusterstate.objects.dra.allocated import AllocatedState
from clusterstate.objects.dra.allocator import AllocationError, Allocator, Features
from clusterstate.objects.dra.slices import NodeView, SliceView
from clusterstate.objects.values.quantity import Quantity

FEATURES = {
    "DRAAdminAccess": "admin_access",
    "DRAPrioritizedList": "prioritized_list",
    "DRAPartitionableDevices": "partitionable_devices",
    "DRADeviceTaints": "device_taints",
    "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus": "binding_conditions",
    "DRAConsumableCapacity": "consumable_capacity",
    "DRAListTypeAttributes": "list_attributes",
}


def features(names):
    return Features(**{field: name in names for name, field in FEATURES.items()})


def state(case):
    ids = lambda key: {tuple(name.split("/")) for name in case.get(key) or ()}  # noqa: E731
    consumed = {
        tuple(name.split("/")): {key: Quantity.parse(value) for key, value in amounts.items()}
        for name, amounts in (case.get("consumedCapacity") or {}).items()
    }
    return AllocatedState(ids("allocatedDevices"), ids("allocatedSharedDevices"), consumed)


def normal(allocations):
    """Compare quantities by what they say, whatever their notation."""
    for allocation in allocations or ():
        for result in (allocation.get("devices") or {}).get("results") or ():
            for name, value in (result.get("consumedCapacity") or {}).items():
                result["consumedCapacity"][name] = str(Quantity.parse(value).nano)
    return allocations


def run(case):
    classes = {one["metadata"]["name"]: one for one in case.get("classes") or ()}
    slices = [SliceView(one) for one in case.get("slices") or ()]
    allocator = Allocator(slices, classes, state(case), features(case["features"]), lambda: "any")
    node = (case.get("node") or {}).get("metadata") or {}
    # The test's claims have no namespace; the recording gave them one.
    claims = json.loads(json.dumps(case["claims"]))
    for claim in claims:
        claim["metadata"].pop("namespace", None)
    try:
        found = allocator.allocate(NodeView(node.get("name", ""), node.get("labels") or {}), claims)
    except AllocationError as error:
        # The test's lister of classes has a text of its own for what is not there.
        text = str(error)
        head, missing, _rest = text.partition("deviceclass.resource.k8s.io")
        return {"error": f'{head} "not found" not found' if missing else text}
    return {"satisfied": found is not None, **({"allocations": normal(found)} if found else {})}


UNREAD = {"allocators", "mutation"}
"""Which of Kubernetes' allocators gave the result, and how the case came about."""


def check(case):
    found = run(case)
    expect = {**case["expect"]}
    if "allocations" in expect:
        expect["allocations"] = normal(expect["allocations"])
    if not expect.get("allocations"):
        expect.pop("allocations", None)
    return None if found == expect else f"got {json.dumps(found)}, expected {json.dumps(expect)}"

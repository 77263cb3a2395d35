"""The structured allocator beside an exhaustive search in small worlds."""

from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.dra.allocated import AllocatedState, allocated_state
from clusterstate.objects.dra.allocator import Allocator, FailedOnNode
from clusterstate.objects.dra.slices import NodeView, SliceView
from clusterstate.objects.values.quantity import Quantity
from scheduling.framework.device_claims import GATES

NODE = NodeView("node-1", {})
CLASSES = {"any": {"metadata": {"name": "any"}, "spec": {}}}
SHARED = "gpu.example.com"


def devices():
    return st.lists(
        st.fixed_dictionaries(
            {"kind": st.sampled_from("ab"), "numa": st.integers(0, 2), "memory": st.integers(0, 4)}
        ),
        min_size=1,
        max_size=6,
    )


def device(index, drawn):
    made = {
        "name": f"dev-{index}",
        "attributes": {"kind": {"string": drawn["kind"]}, "numa": {"int": drawn["numa"]}},
    }
    if drawn["memory"]:
        taken = {"memory": {"value": f"{drawn['memory']}Gi"}}
        made["consumesCounters"] = [{"counterSet": "board", "counters": taken}]
    return made


def slices(drawn):
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 2}
    common = {"driver": SHARED, "pool": pool, "nodeName": "node-1"}
    board = [{"name": "board", "counters": {"memory": {"value": "6Gi"}}}]
    return [
        SliceView({"metadata": {"name": "counters"}, "spec": {**common, "sharedCounters": board}}),
        SliceView(
            {
                "metadata": {"name": "devices"},
                "spec": {**common, "devices": [device(i, one) for i, one in enumerate(drawn)]},
            }
        ),
    ]


REQUESTS = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from(["", "a", "b"])), min_size=1, max_size=3
)


def claim(requests, constraint):
    made = []
    for index, (count, kind) in enumerate(requests):
        expression = f'device.attributes["{SHARED}"].kind == "{kind}"'
        selectors = [{"cel": {"expression": expression}}] if kind else []
        exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}
        made.append({"name": f"r{index}", "exactly": {**exactly, "selectors": selectors}})
    constraints = [{"matchAttribute": f"{SHARED}/numa"}] if constraint else []
    spec = {"devices": {"requests": made, "constraints": constraints}}
    return {"metadata": {"name": "claim", "namespace": "default"}, "spec": spec}


def is_valid(drawn, requests, constraint, picked):
    """Say whether sets of devices, one for each request, are an allocation."""
    flat = [index for chosen in picked for index in chosen]
    if len(flat) != len(set(flat)) or sum(drawn[i]["memory"] for i in flat) > 6:
        return False
    if constraint and len({drawn[i]["numa"] for i in flat}) > 1:
        return False
    return all(
        len(chosen) == count and all(not kind or drawn[i]["kind"] == kind for i in chosen)
        for (count, kind), chosen in zip(requests, picked, strict=True)
    )


def exhaustive(drawn, requests, constraint, taken):
    free = [index for index in range(len(drawn)) if index not in taken]
    choices = [list(combinations(free, count)) for count, _ in requests]
    room = {**dict(enumerate(drawn))}
    held = sum(drawn[index]["memory"] for index in taken)
    return any(
        is_valid(drawn, requests, constraint, picked)
        and held + sum(room[i]["memory"] for chosen in picked for i in chosen) <= 6
        for picked in product(*choices)
    )


@given(devices(), REQUESTS, st.booleans(), st.sets(st.integers(0, 5), max_size=1))
@settings(max_examples=150, deadline=None)
def test_it_finds_an_allocation_exactly_where_a_full_search_does(drawn, requests, match, taken):
    taken = {index for index in taken if index < len(drawn) and drawn[index]["memory"] <= 6}
    state = AllocatedState({(SHARED, "pool", f"dev-{index}") for index in taken})
    found = Allocator(slices(drawn), CLASSES, state).allocate(NODE, [claim(requests, match)])
    assert (found is not None) == exhaustive(drawn, requests, match, taken)
    if found is None:
        return
    results = found[0]["devices"]["results"]
    picked = [
        [int(r["device"].removeprefix("dev-")) for r in results if r["request"] == f"r{index}"]
        for index in range(len(requests))
    ]
    assert is_valid(drawn, requests, match, picked)
    assert not taken & {index for chosen in picked for index in chosen}
    again = allocated_state([{"status": {"allocation": found[0]}}])
    assert len(again.devices) == sum(count for count, _ in requests)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8))
def test_what_shares_of_one_device_take_never_exceeds_its_capacity(sizes):
    shared = {
        "name": "nic", "allowMultipleAllocations": True,
        "capacity": {"bandwidth": {"value": "10", "requestPolicy": {
            "default": "1", "validRange": {"min": "1", "step": "2"}}}},
    }  # fmt: skip
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "nic", "pool": pool, "nodeName": "node-1", "devices": [shared]}
    view = SliceView({"metadata": {"name": "s"}, "spec": spec})
    claims, total = [], 0
    for index, size in enumerate(sizes):
        exactly = {
            "deviceClassName": "any", "allocationMode": "ExactCount", "count": 1,
            "capacity": {"requests": {"bandwidth": str(size)}},
        }  # fmt: skip
        one = {
            "metadata": {"name": f"c{index}", "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        }
        state = allocated_state(claims)
        allocator = Allocator([view], CLASSES, state, share_id=lambda: str(len(claims)))
        found = allocator.allocate(NODE, [one])
        rounded = size + (1 - size % 2)  # to 1, 3, 5, as the step says
        assert (found is not None) == (total + rounded <= 10)
        if found is not None:
            total += rounded
            claims.append({**one, "status": {"allocation": found[0]}})
    taken = allocated_state(claims).consumed.get(("nic", "pool", "nic"), Counter())
    assert taken.get("bandwidth", Quantity.of(0)).value() == total


def of_pool(*made, count=1, **fields):
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": count}
    spec = {"driver": "nic", "pool": pool, "nodeName": "node-1", "devices": list(made), **fields}
    return SliceView({"metadata": {"name": "s"}, "spec": spec})


def asking(name, **exactly):
    wanted = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1, **exactly}
    if wanted["allocationMode"] == "All":
        del wanted["count"]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": wanted}]}},
    }


@pytest.mark.parametrize("published", ["size", "nic/size"])
@pytest.mark.parametrize("asked", ["size", "nic/size"])
@pytest.mark.parametrize("before", ["size", "nic/size"])
def test_a_capacity_has_its_name_with_the_prefix_of_its_driver_and_without(
    published, asked, before
):
    """Of a device, of a request, and in what was allocated when the device called it otherwise."""
    shared = {
        "name": "a", "allowMultipleAllocations": True, "capacity": {published: {"value": "10"}},
    }  # fmt: skip
    held = {
        "driver": "nic", "pool": "pool", "device": "a", "shareID": "1", "request": "r",
        "consumedCapacity": {before: "4"},
    }  # fmt: skip
    state = allocated_state([{"status": {"allocation": {"devices": {"results": [held]}}}}])
    allocator = Allocator([of_pool(shared)], CLASSES, state, share_id=lambda: "2")
    fits = asking("c", capacity={"requests": {asked: "6"}})
    (found,) = allocator.allocate(NODE, [fits])
    assert found["devices"]["results"][0]["consumedCapacity"] == {published: "6"}
    more = asking("c", capacity={"requests": {asked: "7"}})
    assert allocator.allocate(NODE, [more]) is None


def test_a_capacity_that_a_device_names_with_the_prefix_and_without_is_one():
    capacity = {"size": {"value": "10"}, "nic/size": {"value": "10"}}
    shared = {"name": "a", "allowMultipleAllocations": True, "capacity": capacity}
    allocator = Allocator([of_pool(shared)], CLASSES, AllocatedState(), share_id=lambda: "1")
    (found,) = allocator.allocate(NODE, [asking("c", capacity={"requests": {"size": "6"}})])
    (result,) = found["devices"]["results"]
    assert result["consumedCapacity"] == {"size": "6", "nic/size": "6"}
    held = allocated_state([{"status": {"allocation": found}}]).consumed["nic", "pool", "a"]
    assert {name: amount.value() for name, amount in held.items()} == {"size": 6}


def test_a_device_of_which_shares_are_taken_is_given_to_nobody_as_a_whole():
    """Its slice said that it may be shared when they were taken, and says so no more."""
    held = {"driver": "nic", "pool": "pool", "device": "a", "shareID": "1", "request": "r"}
    state = allocated_state([{"status": {"allocation": {"devices": {"results": [held]}}}}])
    assert Allocator([of_pool({"name": "a"})], CLASSES, state).allocate(NODE, [asking("c")]) is None
    both = of_pool({"name": "a"}, {"name": "b"})
    (found,) = Allocator([both], CLASSES, state).allocate(NODE, [asking("c")])
    assert [one["device"] for one in found["devices"]["results"]] == ["b"]


def test_who_asks_for_all_devices_of_an_unready_pool_may_find_them_on_another_node():
    allocator = Allocator([of_pool(count=2)], CLASSES, AllocatedState(), GATES.allocator)
    with pytest.raises(FailedOnNode, match="pool nic/pool is currently being updated"):
        allocator.allocate(NODE, [asking("c", allocationMode="All")])

"""What is kept of devices agrees with what is worked out anew, whatever happens in between."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.dra.world import DeviceWorld
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.interface import CycleState
from scheduling.plugins.dynamic_resources import DynamicResources
from tests.builders import make_node, make_pod

NODES = ("n0", "n1", "n2", "n3")
DRIVER = "gpu.example.com"


def device_class(name: str, expression: str) -> Manifest:
    selectors = [{"cel": {"expression": expression}}]
    return {"metadata": {"name": name}, "spec": {"selectors": selectors}}


def slice_of(
    pool: str, node: str | None, count: int, *, slices: int = 1, at: int = 0, zone: str = ""
) -> Manifest:
    devices = [
        {"name": f"d{at}-{number}", "attributes": {"big": {"bool": number % 2 == 0}}}
        for number in range(count)
    ]
    where: Manifest = {"allNodes": True} if node is None else {"nodeName": node}
    if zone:
        wanted = {"key": "zone", "operator": "In", "values": [zone]}
        where = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}
    of_pool = {"name": pool, "generation": 1, "resourceSliceCount": slices}
    return {
        "metadata": {"name": f"{pool}-{node}-{at}"},
        "spec": {"driver": DRIVER, "pool": of_pool, "devices": devices, **where},
    }


def claim_of(name: str, class_name: str, count: int, devices: list[str]) -> Manifest:
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
    claim: Manifest = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }
    if devices:
        results = [
            {"request": "r", "driver": DRIVER, "pool": pool, "device": device}
            for pool, _, device in (one.partition("/") for one in devices)
        ]
        claim["status"] = {"allocation": {"devices": {"results": results}}}
    return claim


def node_of(name: str, zone: str) -> Node:
    return make_node(name).labelled(zone=zone).build()


devices = st.builds(
    lambda pool, number: f"{pool}/d0-{number}", st.sampled_from((*NODES, "net")), st.integers(0, 2)
)
steps = st.one_of(
    st.tuples(st.just("slice"), st.sampled_from((*NODES, None)), st.integers(0, 3)),
    st.tuples(st.just("two"), st.sampled_from(NODES), st.integers(1, 2)),
    st.tuples(st.just("unslice"), st.sampled_from((*NODES, None)), st.just(0)),
    st.tuples(
        st.just("claim"),
        st.integers(0, 4),
        st.lists(devices, max_size=2, unique=True),
    ),
    st.tuples(st.just("unclaim"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("assume"), st.integers(0, 4), st.lists(devices, min_size=1, max_size=2)),
    st.tuples(st.just("forget"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(("a", "b"))),
    st.tuples(st.just("class"), st.sampled_from(("true", "device.attributes['" + DRIVER + "'].big")), st.just(0)),  # noqa: E501
    st.tuples(st.just("offer"), st.sampled_from(NODES), st.integers(0, 2)),
    st.tuples(st.just("zone"), st.sampled_from(("a", "b")), st.integers(0, 3)),
)  # fmt: skip


@given(st.lists(steps, min_size=5, max_size=40))
def test_answers_that_are_kept_are_those_of_a_new_look(
    some: list[tuple[str, object, object]],
) -> None:
    snapshot = Snapshot(capacity=8)
    for name in NODES:
        snapshot.set_node(node_of(name, "a"))
    table = snapshot.devices
    for name in ("all", "some"):
        table.set("DeviceClass", device_class(name, "true"))
    served = device_class("served", "true")
    served["spec"]["extendedResourceName"] = "e.io/g"
    table.set("DeviceClass", served)
    asking = []
    for number, (of_class, count) in enumerate([("all", 1), ("all", 2), ("some", 1)]):
        table.set("ResourceClaim", claim_of(f"new{number}", of_class, count, []))
        claims = [{"name": "x", "resourceClaimName": f"new{number}"}]
        pod = make_pod(f"p{number}").with_("spec", "resourceClaims", value=claims)
        asking.append(snapshot.intern(from_pod(pod.build())))
        extended = make_pod(f"e{number}").asks_also({"e.io/g": str(number + 1)})
        asking.append(snapshot.intern(from_pod(extended.build())))
    for kind, one, other in [("none", "", ""), *some]:
        if kind == "slice":
            table.set("ResourceSlice", slice_of(str(one or "net"), one, other))  # type: ignore[arg-type]
        elif kind == "zone":
            table.set("ResourceSlice", slice_of("zone", None, other, zone=str(one)))  # type: ignore[arg-type]
        elif kind == "two":  # half of a pool on this node, and half on the first
            table.set("ResourceSlice", slice_of("wide", one, other, slices=2, at=1))  # type: ignore[arg-type]
        elif kind == "unslice":
            table.remove("ResourceSlice", "", f"{one or 'net'}-{one}-0")
        elif kind == "claim":
            table.set("ResourceClaim", claim_of(f"c{one}", "all", 1, other))  # type: ignore[arg-type]
        elif kind == "unclaim":
            table.remove("ResourceClaim", "default", f"c{one}")
        elif kind == "assume":
            table.assume(one, [claim_of(f"c{one}", "all", 1, other)])  # type: ignore[arg-type,list-item]
        elif kind == "forget":
            table.forget(one)  # type: ignore[arg-type]
        elif kind == "node":
            snapshot.set_node(node_of(str(one), str(other)))
        elif kind == "offer":
            node = make_node(str(one)).labelled(zone="a").offers_also({"e.io/g": str(other)})
            snapshot.set_node(node.build())
        elif kind == "class":
            table.set("DeviceClass", device_class("some", str(one)))
        kept = [answers(snapshot, info) for info in asking]
        memo = dict(table.memo)
        table.memo.clear()
        assert [answers(snapshot, info) for info in asking] == kept
        table.memo.clear()
        table.memo.update(memo)
        fresh, held = DeviceWorld.copy(table).allocated(), table.allocated()
        assert (held.devices, held.shares) == (fresh.devices, fresh.shares)


def answers(snapshot: Snapshot, info: object) -> list[tuple[int, tuple[str, ...]]]:
    plugin, state, rows = DynamicResources(), CycleState(), snapshot.rows()
    _, status = plugin.pre_filter(state, info, snapshot)  # type: ignore[arg-type]
    assert status.ok, status
    found = plugin.filter(state, info, snapshot, rows)  # type: ignore[arg-type]
    if found is None:
        return [(0, ())] * len(rows)
    codes: np.ndarray = found.codes
    return [
        (code, found.reasons[reason] if code else ())
        for code, reason in zip(codes.tolist(), found.reason.tolist(), strict=True)
    ]

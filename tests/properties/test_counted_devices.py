"""Pods whose claims count devices: the loop decides and gives what the reference path does."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clusterstate.objects.dra import counting, slices
from clusterstate.objects.dra.counting import Kind, kind_and_count
from clusterstate.objects.values.meta import Manifest
from scheduling.engine.deciding import Decider
from scheduling.engine.fast import fast_lane
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.device_claims import GATES
from tests.builders import make_node, make_pod
from tests.engine import lanes
from tests.harness import kubernetes_framework

DRIVER = "gpu.example.com"
MODEL = f"device.attributes['{DRIVER}'].model"
KINDS = ("gpu", "large", "small", "broken")
EXPRESSIONS = ("true", f"{MODEL} == 'l'", f"{MODEL} == 's'", f"{MODEL} == 7")


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    with lanes.only(fast_lane):
        yield


def worlds(*odd: str, of_requests: tuple[str, ...] = ()) -> st.SearchStrategy[Any]:
    """Slices, the pods that are decided first, and what happens then."""
    devices = st.tuples(st.sampled_from("lls"), st.sampled_from([*[""] * 6, *odd]))
    slices = st.tuples(
        st.integers(0, 3),
        st.lists(devices, min_size=1, max_size=4),
        st.sampled_from([1, 1, 1, 2] if odd else [1]),
    )
    requests = st.tuples(
        st.sampled_from([*KINDS[:3] * 4, *(["broken"] if of_requests else [])]),
        st.sampled_from([1, 1, 1, 2]),
        st.sampled_from([*[""] * 6, *of_requests]),
    )
    pods = st.tuples(
        st.lists(requests, min_size=1, max_size=2) | st.just([]),
        st.sampled_from(["", "200m", "1"]),
        st.sampled_from("ooonb"),
    )
    batches = st.lists(st.tuples(pods, st.integers(1, 4)), min_size=1, max_size=4).map(
        lambda found: [pod for pod, times in found for _ in range(times)]
    )
    step = st.one_of(
        st.tuples(st.just("decide"), batches),
        st.tuples(st.just("slice"), slices),
        st.tuples(st.just("leave"), st.integers(0, 20)),
        st.tuples(st.just("written"), st.integers(0, 20)),
        st.tuples(st.just("node"), st.integers(0, 3)),
    )
    return st.tuples(
        st.lists(slices, min_size=2, max_size=6),
        batches,
        st.lists(step, max_size=8),
    )


SOME = worlds()
ANY = worlds(
    "taint", "counter", "shared", "condition", "nodes",
    of_requests=("All", "first", "match", "tolerates", "config"),
)  # fmt: skip


def slice_of(node: int, devices: list[tuple[str, str]], count: int) -> Manifest:
    made: list[Manifest] = []
    for at, (model, odd) in enumerate(devices):
        one: Manifest = {"name": f"d{at}", "attributes": {"model": {"string": model}}}
        match odd:
            case "taint":
                one["taints"] = [{"key": "k", "effect": "NoSchedule"}]
            case "shared":
                one["allowMultipleAllocations"] = True
            case "counter":
                one["consumesCounters"] = [{"counterSet": "c", "counters": {"n": {"value": "1"}}}]
            case "condition":
                one["bindingConditions"] = ["Ready"]
        made.append(one)
    all_nodes = any(odd == "nodes" for _, odd in devices)
    where: Manifest = {"allNodes": True} if all_nodes else {"nodeName": f"n{node}"}
    pool = {"name": f"p{node}", "generation": 1, "resourceSliceCount": count}
    return {
        "metadata": {"name": f"s{node}"},
        "spec": {"driver": DRIVER, "pool": pool, "devices": made, **where},
    }


def request(name: str, kind: str, count: int, odd: str) -> Manifest:
    exactly: Manifest = {"deviceClassName": kind, "allocationMode": "ExactCount", "count": count}
    match odd:
        case "All":
            return {"name": name, "exactly": {"deviceClassName": kind, "allocationMode": "All"}}
        case "first":
            return {"name": name, "firstAvailable": [{"name": "a", **exactly}]}
        case "tolerates":
            exactly["tolerations"] = [{"operator": "Exists"}]
    return {"name": name, "exactly": exactly}


class World:
    """A cluster with devices, of which one is decided in loops and one is not."""

    def __init__(self, *, quick: bool) -> None:
        self.snapshot = Snapshot(capacity=64)
        for number in range(4):
            self.set_node(number)
        for kind, expression in zip(KINDS, EXPRESSIONS, strict=True):
            selectors = [{"cel": {"expression": expression}}]
            self.snapshot.devices.set(
                "DeviceClass", {"metadata": {"name": kind}, "spec": {"selectors": selectors}}
            )
        self.framework = kubernetes_framework()
        self.decider = Decider(self.snapshot, self.framework) if quick else None
        self.made = 0
        self.keys: list[str] = []

    def set_node(self, number: int) -> None:
        node = make_node(f"n{number}").offers(cpu=str(1 + self.count(number)), memory="8Gi")
        self.snapshot.set_node(node.build())

    def count(self, number: int) -> int:
        return number % 3

    def pod(self, wanted: tuple[list[tuple[str, int, str]], str, str]) -> PodToPlace:
        asked, cpu, shared = wanted
        name = f"pod{self.made}"
        self.made += 1
        pod = make_pod(name).asks(**({"cpu": cpu} if cpu else {}))
        entries = []
        for number, (kind, count, odd) in enumerate(asked):
            claim = f"{name}-{number}" if shared != "b" else f"shared-{kind}-{count}-{odd}"
            entries.append({"name": f"c{number}", "resourceClaimName": claim})
            if ("default", claim) in self.snapshot.devices.claims:
                continue
            devices: Manifest = {"requests": [request("r", kind, count, odd)]}
            if odd == "match":
                devices["constraints"] = [{"matchAttribute": f"{DRIVER}/model"}]
            if odd == "config":
                devices["config"] = [{"opaque": {"driver": DRIVER, "parameters": {}}}]
            if shared == "n":
                devices["requests"].append(request("q", kind, 1, odd))
            meta = {"name": claim, "namespace": "default", "uid": f"uid-{claim}"}
            self.snapshot.devices.set(
                "ResourceClaim", {"metadata": meta, "spec": {"devices": devices}}
            )
        if entries:
            pod = pod.with_("spec", "resourceClaims", value=entries)
        return PodToPlace(name, self.snapshot.intern(from_pod(pod.build())))

    def do(self, step: str, what: Any) -> list[Any]:
        """Take a step; return what must be the same in both worlds."""
        snapshot, devices = self.snapshot, self.snapshot.devices
        if step == "slice":
            devices.set("ResourceSlice", slice_of(*what))
        elif step == "node":
            self.set_node(what)
        elif step == "no node":
            snapshot.remove_node(f"n{what}")
        elif step == "object":
            devices.set("ResourceSlice", what)
        elif step == "class":
            devices.set("DeviceClass", {"metadata": {"name": what}, "spec": {}})
        elif step == "leave" and what < len(self.keys):
            snapshot.remove_pod(self.keys[what])
        elif step == "written" and what < len(self.keys):
            for claim in devices.assumed(self.keys[what]) or ():
                devices.set("ResourceClaim", copy.deepcopy(claim))
        elif step == "decide":
            waiting = [self.pod(one) for one in what]
            made = schedule_batch(
                snapshot, self.framework, waiting, Options(seed=3, preempt=False),
                decider=self.decider,
            )  # fmt: skip
            self.keys += [str(one.key) for one in made if one.scheduled]
            return [
                *[
                    (one.node_name, one.total, one.plugins, one.rejections, one.message)
                    for one in made
                ],
                without_ids({key: devices.assumed(key) for key in self.keys}),
            ]
        return []


def without_ids(of: Any) -> Any:
    if isinstance(of, dict):
        return {key: without_ids(value) for key, value in of.items() if key != "shareID"}
    return [without_ids(one) for one in of] if isinstance(of, list) else of


SLICES = [(0, [("l", ""), ("l", ""), ("s", "")], 1), (1, [("s", ""), ("l", "")], 1)]
IN_TURN = [
    ([(kind, 1, "")], "", "o") for kind in ("large", "small", "large", "gpu", "gpu", "large")
]


@example((SLICES, IN_TURN, [("leave", 1), ("decide", IN_TURN)]))
@given(SOME | worlds("taint", of_requests=("tolerates", "config")) | ANY)
def test_the_loop_gives_the_devices_that_the_reference_path_gives(
    world: tuple[list[Any], list[Any], list[Any]],
) -> None:
    some, first, after = world
    quick, plain = World(quick=True), World(quick=False)
    for step, what in [*(("slice", one) for one in some), ("decide", first), *after]:
        assert quick.do(step, what) == plain.do(step, what), step
    held = [world.snapshot.devices.allocated().devices for world in (quick, plain)]
    assert held[0] == held[1]


def both(*steps: tuple[str, Any]) -> list[str]:
    """Take the steps in both worlds, where they must do the same; return the nodes of the last."""
    quick, plain = World(quick=True), World(quick=False)
    made: list[Any] = []
    for step, what in steps:
        made = quick.do(step, what)
        assert made == plain.do(step, what)
    return [one[0] for one in made[:-1]]


def of_kinds(*kinds: str) -> list[Any]:
    return [([(kind, 1, "")], "", "o") for kind in kinds]


def test_more_kinds_are_asked_for_than_there_are_columns() -> None:
    for count in (20, 40):  # more than fit beside other resources, and more than there may be
        kinds = [f"kind{number}" for number in range(count)]
        made = both(
            *[("slice", (number, [("l", "")] * count, 1)) for number in range(4)],
            *[("class", kind) for kind in kinds],
            ("decide", of_kinds(*kinds, *kinds)),
        )
        assert all(made)


def test_kinds_that_share_devices_of_a_node_that_comes_after_them() -> None:
    assert both(
        ("slice", (0, [("s", "")], 1)),
        ("no node", 1),
        ("slice", (1, [("l", "")], 1)),
        ("decide", of_kinds("gpu", "large")),
        ("node", 1),
        ("decide", of_kinds("large", "gpu")),
    ) == ["n1", ""]


def test_devices_of_one_name_in_slices_of_several_nodes_are_one_device() -> None:
    other = slice_of(0, [("l", "")], 1)
    other["metadata"]["name"], other["spec"]["nodeName"] = "other", "n1"
    made = both(
        ("slice", (0, [("l", "")], 1)), ("object", other), ("decide", of_kinds("large", "large"))
    )
    assert sum(map(bool, made)) == 1


def test_who_binds_claims_as_pods_are_decided_is_told_each_pod_that_got_devices() -> None:
    world = World(quick=True)
    for one in SLICES:
        world.do("slice", one)
    waiting = [world.pod(one) for one in [*IN_TURN[:3], ([], "", "o")]]
    told: list[object] = []
    made = schedule_batch(
        world.snapshot, world.framework, waiting, Options(seed=3), decider=world.decider,
        stop=lambda decision: bool(told.append(decision.key)),
    )  # fmt: skip
    assert all(one.scheduled for one in made)
    assert told == [one.key for one in waiting[:3]]


def test_a_search_without_end_is_given_up() -> None:
    world = World(quick=True)
    world.do("slice", (0, [("l", "")] * 16, 1))
    pod = world.pod(([("large", 1, "")], "", "o"))
    (claim,) = world.snapshot.devices.claims.values()
    of_claim = claim["spec"]["devices"]["requests"]
    of_claim += [request(f"r{number}", "large", 1, "") for number in range(9)]
    of_claim.append(request("last", "small", 1, ""))
    (made,) = schedule_batch(
        world.snapshot, world.framework, [pod], Options(), decider=world.decider
    )
    assert made.message.endswith("node n0: timed out trying to allocate devices")


def kind_of(name: str, number: int) -> Kind:
    """Return the kind of a class's devices; by the number others that say the same."""
    asked = request("r", name, 1, "")
    asked["exactly"]["selectors"] = [{"cel": {"expression": f"{number} == {number}"}}]
    found = kind_and_count([{"spec": {"devices": {"requests": [asked]}}}])
    assert found is not None
    return found[0]


def test_columns_that_mean_other_kinds_now_are_compared_anew() -> None:
    world = World(quick=True)
    world.do("slice", (0, [("l", ""), ("s", "")], 1))
    snapshot = world.snapshot

    def column(name: str, number: int = 0) -> int:
        return snapshot.device_column(kind_of(name, number))

    first = column("small"), column("large")
    assert snapshot.are_apart(*first)
    number = generation = snapshot.column_generation
    while snapshot.column_generation == generation:
        number += 1
        snapshot.follow_columns(of_volumes=False)
        latest = column("gpu", number)
    assert (latest, column("large")) == first
    assert not snapshot.are_apart(*first)


def test_kinds_without_number_are_not_remembered_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "_MOST_KEPT", 8)
    monkeypatch.setattr(slices, "_MOST_ANSWERS", 8)
    world = World(quick=True)
    world.do("slice", (0, [("of nobody else", "")], 1))
    allocator = world.snapshot.devices.allocator(GATES.allocator)
    for number in range(20):
        kind = kind_of("gpu", number)
        assert world.snapshot.device_column(kind) >= 0
        (of_slice,) = allocator.slices
        answers = [device.content._answers for device in of_slice.devices]
        assert max(map(len, [allocator.counted, allocator.places, *answers])) <= 8

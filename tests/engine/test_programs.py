"""Classes that look at other pods, on shared lines: decisions and records of the reference path."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from clusterstate.objects.node import Node
from clusterstate.objects.pod import Pod
from clusterstate.objects.workloads import Service
from scheduling.engine import class_cache, plain, runs
from scheduling.engine.class_cache import Cache
from scheduling.engine.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.decision import Decision
from scheduling.engine.plain_run import PlainRun
from scheduling.engine.record import pack
from scheduling.engine.requirements import from_pod
from scheduling.engine.snapshot import Snapshot
from tests.builders import make_node, make_pod
from tests.engine import lanes
from tests.engine.test_kernels import assert_counts_are_true, read
from tests.harness import kubernetes_framework
from tests.properties.test_recorded_worlds import told
from tests.strategies import HOSTNAME, ZONE

Manifest = dict[str, Any]
APPS = 6


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    with lanes.only(plain, runs):
        yield


def node_of(number: int, dice: random.Random) -> Node:
    labels = {HOSTNAME: f"n{number}"}
    if number < 3 or dice.random() < 0.9:
        labels[ZONE] = f"z{number % 3}"
    offer = {
        "cpu": dice.choice(["2", "4", "8"]),
        "memory": "8Gi",
        "pods": dice.choice(["4", "10", "110"]),
    }
    node = make_node(f"n{number}").labelled(labels).with_("status", "allocatable", value=offer)
    if dice.random() < 0.1:
        node = node.tainted("spot", effect="PreferNoSchedule")
    return node.build()


def service(number: int) -> Service:
    return msgspec.convert(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"s{number}", "namespace": "default"},
            "spec": {"selector": {"app": f"app-{number}"}},
        },
        Service,
    )


def world(nodes: int, seed: int, services: int = 4) -> Snapshot:
    dice = random.Random(seed)
    snapshot = Snapshot()
    for number in range(nodes):
        snapshot.set_node(node_of(number, dice))
    for number in range(services):
        snapshot.set_service(service(number))
    return snapshot


def affinity_of(number: int, dice: random.Random) -> Manifest:
    """Return what a class asks about other pods: often nothing."""
    selector = {"matchLabels": {"app": f"app-{dice.randrange(APPS)}"}}
    own = {"matchLabels": {"app": f"app-{number % APPS}"}}
    key = dice.choice([HOSTNAME, ZONE])
    match dice.randrange(8):
        case 0:
            term = {"topologyKey": dice.choice([HOSTNAME, ZONE]), "labelSelector": selector}
            return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        case 1:
            term = {"topologyKey": ZONE, "labelSelector": own}
            return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        case 2 | 3 as which:
            wish = {"weight": 7, "podAffinityTerm": {"topologyKey": key, "labelSelector": selector}}
            kind = "podAffinity" if which == 2 else "podAntiAffinity"
            return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
        case 4:
            requirement = {
                "key": "metadata.name", "operator": "In", "values": [f"n{dice.randrange(3)}"],
            }  # fmt: skip
            terms = [{"matchFields": [requirement]}]
            rule = {"nodeSelectorTerms": terms}
            return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule}}
    return {}


def pod_of(number: int, dice: random.Random) -> Pod:
    cpu, memory = dice.choice(["100m", "300m", "500m"]), dice.choice(["100Mi", "1Gi"])
    labels = {"app": f"app-{number % APPS}", "kind": str(number)}
    pod = make_pod("p").asks(cpu=cpu, memory=memory).labelled(**labels)
    affinity = affinity_of(number, dice)
    if affinity:
        pod = pod.with_("spec", "affinity", value=affinity)
    if dice.random() < 0.3:
        constraint = {
            "maxSkew": dice.choice([1, 2]),
            "topologyKey": ZONE,
            "whenUnsatisfiable": dice.choice(["DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": {"matchLabels": {"app": f"app-{number % APPS}"}},
        }
        pod = pod.with_("spec", "topologySpreadConstraints", value=[constraint])
    if dice.random() < 0.2:
        tolerations = [{"key": "spot", "operator": "Exists"}]
        pod = pod.with_("spec", "tolerations", value=tolerations)
    return pod.build()


class Sides:
    """The same cluster twice: decided by the reference path, and with the compiled loops."""

    def __init__(self, snapshots: list[Snapshot], seed: int) -> None:
        self.snapshots = snapshots
        self.framework = kubernetes_framework()
        self.caches: list[Cache | None] = [None, Cache(snapshots[1], self.framework)]
        self.seed = seed
        self.draw = 0
        self.by_loop = 0

    def place(self, pods: list[Pod], keys: list[str]) -> list[Decision]:
        """Decide on both sides, compare, and return the decisions."""
        found = []
        for snapshot, cache in zip(self.snapshots, self.caches, strict=True):
            kinds = {id(pod): snapshot.intern(from_pod(pod)) for pod in pods}
            batch = [PodToPlace(k, kinds[id(p)]) for k, p in zip(keys, pods, strict=True)]
            options = Options(seed=self.seed, preempt=False)
            found.append(
                schedule_batch(
                    snapshot, self.framework, batch, options, draw=self.draw, cache=cache
                )
            )
        self.draw += len(pods)
        slow, fast = list(found[0]), list(found[1])
        for expected, decided in zip(slow, fast, strict=True):
            assert told(decided) == told(expected)
        for part in found[1].parts:
            if isinstance(part, PlainRun):
                self.by_loop += len(part)
                for body, decision in zip(part.bodies(), part, strict=True):
                    assert read(body) == read(pack(decision))
        return slow


@pytest.mark.parametrize("nodes", [1, 3, 20, 63, 64, 65, 500])
@pytest.mark.parametrize("seed", range(6))
def test_programs_decide_as_the_reference_path(nodes: int, seed: int) -> None:
    """Over pods that come and leave, classes that come, and terms that become known."""
    dice = random.Random(seed * 1000 + nodes)
    sides = Sides([world(nodes, seed), world(nodes, seed)], seed)
    pods = [pod_of(number, dice) for number in range(8)]
    placed: list[str] = []
    for step in range(6):
        wanted = [dice.choice(pods[: 2 + step]) for _ in range(dice.choice([3, 12, 25]))]
        decided = sides.place(wanted, [f"default/{step}-{at}" for at in range(len(wanted))])
        placed += [str(decision.key) for decision in decided if decision.scheduled]
        for _ in range(dice.randrange(4)):
            if placed:
                key = placed.pop(dice.randrange(len(placed)))
                for snapshot in sides.snapshots:
                    snapshot.remove_pod(key)
        if step == 3:
            changed = node_of(0, random.Random(seed + 7))
            for snapshot in sides.snapshots:
                snapshot.set_node(changed)
    assert_counts_are_true(sides.snapshots[1])


def behind_service(number: int) -> Pod:
    return make_pod("p").asks(cpu="10m").labelled(app=f"app-{number}").build()


def test_deployments_behind_services_are_decided_by_the_loop_from_their_first_pod_on() -> None:
    sides = Sides([world(70, 1, services=20), world(70, 1, services=20)], 5)
    pods = [behind_service(number % 20) for number in range(20)]
    sides.place(pods * 3, [f"default/{at}" for at in range(60)])
    assert sides.by_loop == 60


def test_a_class_with_more_excepted_rows_than_there_is_room_for_is_decided_all_the_same() -> None:
    sides = Sides([world(300, 2, services=1), world(300, 2, services=1)], 3)
    apart = make_pod("p").asks(cpu="10m").labelled(app="app-0").away_from(HOSTNAME, app="app-0")
    for step in range(4):
        sides.place([apart.build()] * 70, [f"default/{step}-{at}" for at in range(70)])
    assert 160 <= sides.by_loop < 280


def pinned(name: str) -> Pod:
    requirement = {"key": "metadata.name", "operator": "In", "values": [name]}
    rule = {"nodeSelectorTerms": [{"matchFields": [requirement]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule}}
    pod = make_pod("p").asks(cpu="100m").labelled(app="app-0")
    return pod.with_("spec", "affinity", value=affinity).build()


def test_pods_that_name_a_node_of_their_own_are_decided_by_the_loop() -> None:
    """Behind a Service as well: what spreading would score does not matter on one node."""
    sides = Sides([world(70, 4), world(70, 4)], 9)
    pods = [pinned(f"n{number}") for number in range(70)]
    decided = sides.place(pods, [f"default/{at}" for at in range(70)])
    assert [decision.node_name for decision in decided] == [f"n{number}" for number in range(70)]
    assert sides.by_loop == 70
    # The counts of those that are placed by name matter to those that are spread.
    sides.place([behind_service(0)] * 10, [f"default/more-{at}" for at in range(10)])


def test_a_class_without_a_program_costs_the_classes_beside_it_no_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run that decides for it ends before them, though it could go on."""
    monkeypatch.setattr(class_cache, "_FEW_STATES", 1)
    sides = Sides([world(20, 2, services=12), world(20, 2, services=12)], 3)
    near = make_pod("p").asks(cpu="10m").labelled(app="app-0").near(HOSTNAME, app="app-0").build()
    pods = [behind_service(number) for number in range(12)]
    sides.place(pods, [f"default/first-{at}" for at in range(12)])
    mixed = [near, *pods, near, *pods]
    sides.place(mixed, [f"default/{at}" for at in range(26)])
    cache = sides.caches[1]
    assert cache is not None
    assert len(cache._states) <= 2
    assert sides.by_loop >= 30

"""Classes that look at other pods, on shared lines: decisions and records of the reference path."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.workloads import Service
from scheduling.engine.deciding import Decider
from scheduling.engine.fast import counter_columns, fast_lane
from scheduling.engine.fast.run import Run
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.reference.decision import Decision
from scheduling.engine.reference.record import pack
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.interface import CycleState, FilterResult, Locality
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Code
from scheduling.framework.types import PodInfo
from tests.builders import make_node, make_pod
from tests.engine import lanes
from tests.engine.test_runs import assert_counts_are_true, read
from tests.forms import many
from tests.harness import framework_with, kubernetes_framework
from tests.properties.test_recorded_worlds import facts_of
from tests.strategies import HOSTNAME, ZONE

Manifest = dict[str, Any]
APPS = 6


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    with lanes.only(fast_lane):
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
    match dice.randrange(9):
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
            if dice.random() < 0.5:
                zones = {"key": ZONE, "operator": "In", "values": ["z0", "z1"]}
                terms[0]["matchExpressions"] = [zones]
            rule = {"nodeSelectorTerms": terms}
            return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule}}
        case 5:
            term = {"topologyKey": HOSTNAME, "labelSelector": own}
            return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
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
            "topologyKey": dice.choice([ZONE, ZONE, HOSTNAME]),
            "whenUnsatisfiable": dice.choice(["DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": {"matchLabels": {"app": f"app-{number % APPS}"}},
            "nodeTaintsPolicy": dice.choice(["Ignore", "Honor"]),
        }
        pod = pod.with_("spec", "topologySpreadConstraints", value=[constraint])
    if dice.random() < 0.2:
        tolerations = [{"key": "spot", "operator": "Exists"}]
        pod = pod.with_("spec", "tolerations", value=tolerations)
    if dice.random() < 0.15:
        ports = [{"hostPort": dice.choice([80, 81])}]
        asked = {"requests": {"cpu": cpu, "memory": memory}}
        containers = [{"name": "c", "ports": ports, "resources": asked}]
        pod = pod.with_("spec", "containers", value=containers)
    return pod.build()


class Sides:
    """The same cluster twice: decided by the reference path, and with the compiled loops."""

    def __init__(
        self, snapshots: list[Snapshot], seed: int, framework: Framework | None = None
    ) -> None:
        self.snapshots = snapshots
        self.framework = framework or kubernetes_framework()
        self.deciders: list[Decider | None] = [None, Decider(snapshots[1], self.framework)]
        self.seed = seed
        self.draw = 0
        self.by_loop = 0

    def place(self, pods: list[Pod], keys: list[str]) -> list[Decision]:
        """Decide on both sides, compare, and return the decisions."""
        found = []
        for snapshot, decider in zip(self.snapshots, self.deciders, strict=True):
            kinds = {id(pod): snapshot.intern(from_pod(pod)) for pod in pods}
            batch = [PodToPlace(k, kinds[id(p)]) for k, p in zip(keys, pods, strict=True)]
            options = Options(seed=self.seed, preempt=False)
            found.append(
                schedule_batch(
                    snapshot, self.framework, batch, options, draw=self.draw, decider=decider
                )
            )
        self.draw += len(pods)
        slow, fast = list(found[0]), list(found[1])
        for expected, decided in zip(slow, fast, strict=True):
            assert facts_of(decided) == facts_of(expected)
        for part in found[1].parts:
            if isinstance(part, Run):
                self.by_loop += len(part)
                for body, decision in zip(part.bodies(), part, strict=True):
                    assert read(body) == read(pack(decision))
        return slow


def nominate(sides: Sides, number: int, pod: Pod, node_name: str) -> None:
    for snapshot in sides.snapshots:
        snapshot.nominate(f"default/waits-{number}", snapshot.intern(from_pod(pod)), node_name)


@pytest.mark.parametrize("seed", range(6))
def test_programs_decide_as_the_reference_path_while_pods_are_nominated(seed: int) -> None:
    """Whether their own filters count the nominated pods, their scores alone, or neither."""
    dice = random.Random(seed)
    sides = Sides([world(20, seed), world(20, seed)], seed)
    pods = [pod_of(number, dice) for number in range(8)]
    preemptors = [
        msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=9))
        for pod in (*pods, make_pod("p").asks(cpu="1").labelled(app="another").build())
    ]
    for step in range(6):
        wanted = [dice.choice(pods) for _ in range(12)]
        for number in range(step):
            nominate(sides, number, dice.choice(preemptors), f"n{dice.randrange(20)}")
        sides.place(wanted, [f"default/{step}-{at}" for at in range(len(wanted))])
        if step == 3:
            for snapshot in sides.snapshots:
                snapshot.unnominate("default/waits-0")
    assert_counts_are_true(sides.snapshots[1])


def test_nominated_pods_that_no_filter_counts_leave_pods_with_terms_to_the_loop() -> None:
    sides = Sides([world(70, 1, services=2), world(70, 1, services=2)], 5)
    base = make_pod("p").asks(cpu="10m")
    apart = base.labelled(app="app-0").away_from(HOSTNAME, app="app-0").build()
    spread = behind_service(1)
    other = base.labelled(app="another").priority(9)
    nominate(sides, 0, other.build(), "n1")
    nominate(sides, 1, base.labelled(app="app-1").priority(9).build(), "n2")
    sides.place([apart, spread] * 20, [f"default/{at}" for at in range(40)])
    assert sides.by_loop == 40, "only the scores of the second class count a nominated pod"
    nominate(sides, 2, base.labelled(app="app-0").priority(9).build(), "n3")
    sides.place([apart] * 5, [f"default/apart-{at}" for at in range(5)])
    assert sides.by_loop == 40


@pytest.mark.drawn
@pytest.mark.parametrize("nodes", [1, 3, 20, 63, 64, 65, 500])
@pytest.mark.parametrize("seed", range(many(3, 20)))
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


def test_deployments_behind_services_share_all_but_what_they_count() -> None:
    """Also when pods left outside of a run, and when a new node has all compiled again."""
    sides = Sides([world(70, 1, services=20), world(70, 1, services=20)], 5)
    pods = [behind_service(number) for number in range(20)]
    for step in range(4):
        sides.place(pods * 3, [f"default/{step}-{at}" for at in range(60)])
        for snapshot in sides.snapshots:
            for at in range(step, 60, 7):
                snapshot.remove_pod(f"default/{step}-{at}")
            if step == 1:
                snapshot.set_node(node_of(99, random.Random(9)))
    assert sides.by_loop == 240
    counters = sides.snapshots[1]._counters.values()
    assert len(counters) == 20
    assert sum(bool(one.tables) for one in counters) <= 4, "one class of a run speaks for all"
    assert_counts_are_true(sides.snapshots[1])


@pytest.mark.parametrize("seed", range(4))
def test_without_zones_programs_decide_as_the_reference_path(seed: int) -> None:
    dice = random.Random(seed)
    snapshots = [Snapshot(), Snapshot()]
    for snapshot in snapshots:
        for number in range(4):
            snapshot.set_service(service(number))
        for number in range(70):
            snapshot.set_node(make_node(f"n{number}").labelled({HOSTNAME: f"n{number}"}).build())
    sides = Sides(snapshots, seed)
    pods = [pod_of(number, dice) for number in range(12)]
    for step in range(3):
        wanted = [dice.choice(pods) for _ in range(20)]
        sides.place(wanted, [f"default/{step}-{at}" for at in range(20)])
    spread = [behind_service(number) for number in range(4)]
    by_loop = sides.by_loop
    sides.place(spread, [f"default/spread-{at}" for at in range(4)])
    assert sides.by_loop == by_loop + 4
    decider = sides.deciders[1]
    assert decider is not None
    made = {program.info: program for program in decider._lane._programs._programs}
    infos = [sides.snapshots[1].intern(from_pod(pod)) for pod in spread]
    assert not any(made[info].private for info in infos), "they share lines as elsewhere"


@pytest.mark.parametrize("seed", range(8))
def test_programs_that_are_written_together_say_what_each_says_alone(seed: int) -> None:
    dice = random.Random(seed)
    snapshot = world(20, seed)
    infos = [snapshot.intern(from_pod(pod_of(number, dice))) for number in range(60)]
    for number in range(40):
        snapshot.assume(f"default/{number}", dice.choice(infos), number % 20)
    compiler = Decider(snapshot, kubernetes_framework())._lane._compiler
    for info in infos:
        compiler.compile(info, compiler._versions())
    written, stamp = compiler._programs, compiler._versions()
    pairs = list(compiler.compile_alike(infos, stamp))
    together = [(info, found, found.program) for info, found in pairs]
    assert sum(program is not None for _, _, program in together) > 10
    for info, found, program in together:
        if program is None:
            continue
        before = {name: array[program.number].copy() for name, array in written._arrays.items()}
        alone = compiler.compile(info, stamp)
        assert alone.program is not None
        assert (alone.sheet, alone.key, alone.stamp) == (found.sheet, found.key, found.stamp)
        assert msgspec.structs.asdict(alone.program) == msgspec.structs.asdict(program)
        for name, array in written._arrays.items():
            assert np.array_equal(array[program.number], before[name]), name
    assert written._private_count == np.count_nonzero(written._arrays["private"])


def test_a_class_with_more_excepted_rows_than_there_is_room_for_is_decided_all_the_same() -> None:
    sides = Sides([world(300, 2, services=1), world(300, 2, services=1)], 3)
    apart = make_pod("p").asks(cpu="10m").labelled(app="app-0").away_from(HOSTNAME, app="app-0")
    for step in range(4):
        sides.place([apart.build()] * 70, [f"default/{step}-{at}" for at in range(70)])
    assert sides.by_loop == 280


def test_whether_preferences_touch_a_class_takes_no_column_of_all_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of many classes that prefer to be apart by host, from before their first pod is placed."""
    monkeypatch.setattr(counter_columns, "_BYTES", 20 * 9 * 70)  # for 20 columns of 70 nodes
    sides = Sides([world(70, 1), world(70, 1)], 5)
    base = make_pod("p").asks(cpu="10m")
    pods = [
        base.labelled(app=f"app-{number}")
        .away_from(HOSTNAME, 1 + number % 3, app=f"app-{number}")
        .build()
        for number in range(60)
    ]
    for step in range(3):
        sides.place(pods, [f"default/{step}-{at}" for at in range(60)])
        for snapshot in sides.snapshots:
            for at in range(step, 60, 7):
                snapshot.remove_pod(f"default/{step}-{at}")
    assert sides.by_loop == 180
    assert_counts_are_true(sides.snapshots[1])


def test_classes_that_only_a_line_of_their_own_can_serve_are_decided_by_the_loop() -> None:
    """Required affinity and hard spreading by hostname, and host ports, while nodes fill up."""
    sides = Sides([world(130, 6), world(130, 6)], 8)
    base = make_pod("p").asks(cpu="100m")
    port = [{"name": "c", "ports": [{"hostPort": 80}]}]
    kinds = [
        base.labelled(app="app-0").near(HOSTNAME, app="app-0"),
        base.labelled(app="app-1").spread(HOSTNAME, 1, app="app-1"),
        base.labelled(app="app-2").spread(HOSTNAME, 2, app="app-1").spread(ZONE, 1, app="app-2"),
        base.labelled(app="app-3").with_("spec", "containers", value=port),
    ]
    pods = [kind.build() for kind in kinds]
    placed = 0
    for step in range(3):
        decided = sides.place(pods * 20, [f"default/{step}-{at}" for at in range(80)])
        placed += sum(decision.scheduled for decision in decided)
    assert sides.by_loop == placed >= 180


@pytest.mark.parametrize("racks", [70, 400])
def test_many_racks_are_no_reason_to_leave_the_loop(racks: int) -> None:
    snapshots = [Snapshot(), Snapshot()]
    for snapshot in snapshots:
        for number in range(500):
            labels = {HOSTNAME: f"n{number}", "rack": f"r{number % racks}"}
            snapshot.set_node(make_node(f"n{number}").labelled(labels).build())
    sides = Sides(snapshots, 2)
    base = make_pod("p").asks(cpu="100m")
    pods = [
        base.labelled(app="app-0").spread("rack", 1, app="app-0").build(),
        base.labelled(app="app-1").away_from("rack", app="app-0").build(),
        base.labelled(app="app-2").spread("rack", 1, hard=False, app="app-2").build(),
        base.labelled(app="app-3").spread(HOSTNAME, 1, app="app-3").build(),
    ]
    sides.place(pods * 20, [f"default/{at}" for at in range(80)])
    assert sides.by_loop == 80


class Quarter:
    """A package's rule about nodes alone: no node whose number four divides, even ones first."""

    name = "Quarter"
    filter_locality = score_locality = Locality.NODE

    def _numbers(self, snapshot: NodeTable, rows: Rows) -> npt.NDArray[np.int64]:
        values = snapshot.label_column(HOSTNAME).ids[rows]
        return values.astype(np.int64)

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        fourth = self._numbers(snapshot, rows) % 4 == 0
        return FilterResult.rejecting(fourth, Code.UNSCHEDULABLE, "node(s) were a fourth")

    def score(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> npt.NDArray[np.int64]:
        return 50 * (1 - self._numbers(snapshot, rows) % 2)


@pytest.mark.parametrize("place", [0, None])
def test_another_packages_rule_about_nodes_alone_is_decided_by_the_loop(
    place: int | None,
) -> None:
    """Wherever its filter stands, and named in the order of the filters."""
    framework = framework_with(Quarter(), place, weight=2)
    sides = Sides([world(66, 3), world(66, 3)], 4, framework)
    base = make_pod("p")
    pods = [
        base.asks(cpu="1", memory="2Gi").labelled(app="none").build(),
        base.asks(cpu="100m").labelled(app="app-0").away_from(HOSTNAME, app="app-0").build(),
        base.asks(cpu="500m").labelled(app="app-1").spread(ZONE, 1, app="app-1").build(),
    ]
    decided = []
    for step in range(3):
        decided += sides.place(pods * 14, [f"default/{step}-{at}" for at in range(42)])
    placed = [decision for decision in decided if decision.scheduled]
    assert sides.by_loop == len(placed) > 100
    told_by = {r.status.plugin for decision in placed for r in decision.rejections}
    assert {"Quarter", "NodeResourcesFit", "InterPodAffinity"} <= told_by


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


def test_pods_that_name_a_node_are_judged_by_all_else_that_they_ask_of_it() -> None:
    """Those that differ in the name alone are judged as one pod, which must not mix others in."""
    sides = Sides([world(70, 4), world(70, 4)], 9)
    for snapshot in sides.snapshots:
        for number in (3, 40):
            tainted = make_node(f"n{number}").labelled({HOSTNAME: f"n{number}", ZONE: "z0"})
            snapshot.set_node(tainted.tainted("spot", effect="NoSchedule").build())
    zones = [{"key": ZONE, "operator": "In", "values": ["z1"]}]
    tolerations = [{"key": "spot", "operator": "Exists"}]
    pods = []
    for number in (1, 3, 4, 40, 41, 99, 3, 4):
        pod = make_pod("p").asks(cpu="100m").with_("spec", "affinity", value=naming(number))
        pods += [
            pod.build(),
            pod.with_("spec", "tolerations", value=tolerations).build(),
            pod.with_("spec", "nodeSelector", value={ZONE: "z0"}).build(),
            make_pod("p").with_("spec", "affinity", value=naming(number, zones)).build(),
            make_pod("p").with_("spec", "affinity", value=naming(number, None, 4)).build(),
        ]
    decided = sides.place(pods, [f"default/{at}" for at in range(len(pods))])
    assert {decision.node_name for decision in decided} == {"", "n1", "n3", "n4", "n40", "n41"}


def naming(number: int, expressions: list[Manifest] | None = None, *others: int) -> Manifest:
    """An affinity to a node by name; ``others``: in terms of their own."""
    terms: list[Manifest] = []
    for one in (number, *others):
        field = {"key": "metadata.name", "operator": "In", "values": [f"n{one}"]}
        terms.append({"matchFields": [field], "matchExpressions": expressions or []})
    rule = {"nodeSelectorTerms": terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule}}

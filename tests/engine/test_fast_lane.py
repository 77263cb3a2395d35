"""Runs of plain pods: the decisions, and the snapshot after them, of the reference path."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.workloads import Service
from scheduling.engine.deciding import Decider
from scheduling.engine.fast import fast_lane, lines, sheets
from scheduling.engine.fast.compiling import CompiledClass
from scheduling.engine.fast.run import Run
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.reference.record import LARGEST_BODY, pack, unpack
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.interface import CycleState, FilterResult, Locality
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.types import PodInfo
from tests import strategies
from tests.builders import make_node, make_pod
from tests.engine import lanes
from tests.engine.test_runs import state_of
from tests.forms import many
from tests.harness import build_snapshot, framework_with, kubernetes_framework
from tests.properties.test_recorded_worlds import facts_of

Manifest = dict[str, Any]


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    with lanes.only(fast_lane):
        yield


def tolerating(kind: str) -> list[Manifest]:
    return [{"key": "spot", "operator": "Exists", "effect": kind}] if kind else []


plain_pods: st.SearchStrategy[Manifest] = st.builds(
    lambda amounts, label, priority, effect, zone: (
        make_pod("p")
        .asks(**{k: v for k, v in amounts.items() if v})
        .labelled(app=label)
        .priority(priority)
        .with_("spec", "tolerations", value=tolerating(effect))
        .with_("spec", "nodeSelector", value={strategies.ZONE: zone} if zone else {})
        .manifest
    ),
    st.fixed_dictionaries(
        {
            "cpu": st.sampled_from(["", "0", "50m", "300m", "1", "3", "17"]),
            "memory": st.sampled_from(["", "1Gi", "100Mi", "3000Mi", "4Ti"]),
            "ephemeral-storage": st.sampled_from(["", "", "1Gi"]),
            strategies.EXTENDED: st.sampled_from(["", "", "1"]),
        }
    ),
    st.sampled_from(["a", "b"]),
    st.integers(0, 1),
    st.sampled_from(["", "NoSchedule", "PreferNoSchedule"]),
    st.sampled_from(["", "", "z0"]),
)

steps = strategies.happenings(
    st.lists(st.integers(0, 6), min_size=1, max_size=30),
    st.lists(st.integers(0, 4), min_size=10, max_size=60),
    fewest=2, most=10,
    remove=30, replace_node=12, remove_node=180, join_node=180, new_kind=4,
    nominate=20, unnominate=20,
)  # fmt: skip


@cache
def more_node(number: int) -> Node:
    """Nodes of very different sizes, a few with none or very much of something."""
    sizes = ("4", "4", "1500m", "64", "0", "3000000000")
    memories = ("8Gi", "8Gi", "7777777", "1Ti", "3Ti", "8Gi", "0")
    places = ("110", "110", "3", "110", "20")
    node = make_node(f"more-{number}").labelled(
        {strategies.HOSTNAME: f"h{number}", strategies.ZONE: f"z{number % 3}"}
    )
    node = node.with_(
        "status",
        "allocatable",
        value={
            "cpu": sizes[number % len(sizes)],
            "memory": memories[number % len(memories)],
            "pods": places[number % len(places)],
            "ephemeral-storage": "2Gi",
            strategies.EXTENDED: "2",
        },
    )
    if number % 5 == 0:
        node = node.tainted("spot", effect="PreferNoSchedule")
    if number % 11 == 0:
        node = node.tainted("spot", effect="NoSchedule")
    return node.build()


@settings(max_examples=many(15, 300), deadline=None)
@given(
    strategies.clusters(),
    st.lists(plain_pods, min_size=5, max_size=5),
    st.lists(strategies.pods(), min_size=2, max_size=2),
    st.sampled_from([0, 3, 12, 80, 180]),  # a block has 64 rows
    steps,
    st.data(),
    st.integers(0, 2**70),
)
def test_a_run_of_plain_pods_decides_as_the_reference_path(
    world: Manifest,
    pods: list[Manifest],
    others: list[Manifest],
    more: int,
    happenings: list[tuple[str, Any]],
    data: st.DataObject,
    seed: int,
) -> None:
    framework = kubernetes_framework()
    worlds = [build_snapshot(world), build_snapshot(world)]
    for number in range(more):
        for snapshot in worlds:
            snapshot.set_node(more_node(number))
    decider = Decider(worlds[1], framework)
    read = [msgspec.convert(m, Pod) for m in (*pods, *others)]
    infos = [[snapshot.intern(from_pod(pod)) for pod in read] for snapshot in worlds]
    placed: list[str] = [str(record.key) for record in worlds[0].pods()]
    draw = 0
    for number, (what, which) in enumerate(happenings):
        if what == "place":
            decided = []
            for snapshot, classes, shortcut in zip(worlds, infos, (None, decider), strict=True):
                batch = [
                    PodToPlace(f"default/new-{number}-{i}", classes[kind])
                    for i, kind in enumerate(which)
                ]
                decided.append(
                    schedule_batch(
                        snapshot, framework, batch, Options(seed=seed), draw=draw, decider=shortcut
                    )
                )
            for slow, fast in zip(*decided, strict=True):
                assert facts_of(fast) == facts_of(slow)
            for part in decided[1].parts:
                if isinstance(part, Run):
                    assert_bodies_say_the_same(part)
            draw += len(which)
            placed += [str(d.key) for d in decided[0] if d.scheduled]
        elif what == "remove" and placed:
            key = placed.pop(which % len(placed))
            for snapshot in worlds:
                snapshot.remove_pod(key)
        elif what == "replace node":
            node = msgspec.convert(data.draw(strategies.nodes(which % 5)), Node)
            for snapshot in worlds:
                snapshot.set_node(node)
        elif what == "remove node":
            for snapshot in worlds:
                snapshot.remove_node(f"more-{which}" if which % 2 else f"node-{which}")
        elif what == "join node":
            for snapshot in worlds:
                snapshot.set_node(more_node(which))
        elif what == "nominate":
            name = f"more-{which}" if which % 2 else f"node-{which % 4}"
            for snapshot, classes in zip(worlds, infos, strict=True):
                snapshot.nominate(f"default/waits-{which}", classes[which % 7], name)
        elif what == "unnominate":
            for snapshot in worlds:
                snapshot.unnominate(f"default/waits-{which}")
        elif what == "new kind":
            pod = msgspec.convert(data.draw(plain_pods), Pod)
            for snapshot, classes in zip(worlds, infos, strict=True):
                classes[which] = snapshot.intern(from_pod(pod))
        assert state_of(worlds[0]) == state_of(worlds[1])


@contextmanager
def lines_kept(most: int) -> Iterator[None]:
    """Let so few lines be kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_LINE_BYTES", 0)
        patch.setattr(lines, "SHORTEST", most)
        yield


@settings(max_examples=many(3, 20), deadline=None)
@given(
    st.lists(plain_pods, min_size=30, max_size=30, unique_by=repr),
    st.sampled_from([1, 9, 20]),
    st.integers(0, 2**70),
)
def test_many_kinds_in_turn_are_decided_as_by_the_reference_path(
    pods: list[Manifest], most: int, seed: int
) -> None:
    """Lines scored together, of which some are used once, and some are kept."""
    with lines_kept(most):
        decide_in_turns(pods, seed)


def decide_in_turns(pods: list[Manifest], seed: int) -> None:
    """Decide twice for pods of each kind, on both paths."""
    framework = kubernetes_framework()
    worlds = [Snapshot(), Snapshot()]
    for snapshot in worlds:
        for number in range(200):
            snapshot.set_node(more_node(number))
    decider = Decider(worlds[1], framework)
    read = [msgspec.convert(manifest, Pod) for manifest in pods]
    draw = 0
    for turn in range(2):
        decided = []
        for snapshot, shortcut in zip(worlds, (None, decider), strict=True):
            batch = [
                PodToPlace(f"default/new-{turn}-{number}", snapshot.intern(from_pod(pod)))
                for number, pod in enumerate(read)
            ]
            decided.append(
                schedule_batch(
                    snapshot, framework, batch, Options(seed=seed), draw=draw, decider=shortcut
                )
            )
        for slow, fast in zip(*decided, strict=True):
            assert facts_of(fast) == facts_of(slow)
        draw += len(read)
        assert state_of(worlds[0]) == state_of(worlds[1])


def assert_bodies_say_the_same(run: Run) -> None:
    """The columns pack into what the decisions pack into."""
    for body, decision in zip(run.bodies(), run, strict=True):
        ours, theirs = unpack(body), unpack(pack(decision))
        assert ours.plugins == theirs.plugins
        assert ours.best(decision.node_name) == theirs.best(decision.node_name)
        assert ours.rejections == theirs.rejections
        assert len(body) <= LARGEST_BODY


def world_of(count: int) -> Snapshot:
    snapshot = Snapshot()
    for number in range(count):
        snapshot.set_node(make_node(f"n-{number}").build())
    return snapshot


def test_pods_that_are_all_different_are_decided_in_one_run() -> None:
    snapshot, framework = world_of(20), kubernetes_framework()
    infos = [
        snapshot.intern(
            from_pod(make_pod("p").asks(cpu=f"{50 + i}m", memory="10Mi").labelled(n=f"{i}").build())
        )
        for i in range(60)
    ]
    pods = [PodToPlace(f"default/p-{i}", info) for i, info in enumerate(infos)]
    run = Decider(snapshot, framework).decide_run(pods, 0, Options(seed=3))
    assert [d.key for d in run] == [pod.key for pod in pods]
    assert snapshot.pod_count.sum() == len(pods)


def test_a_run_leaves_no_reference_to_the_arrays_that_it_was_given() -> None:
    """The loops are compiled without counting who refers to an array."""
    snapshot, framework = world_of(100), kubernetes_framework()
    decider = Decider(snapshot, framework)
    info = snapshot.intern(from_pod(make_pod("p").asks(cpu="50m").build()))
    columns = [snapshot.allocatable, snapshot.requested, snapshot.pod_count]
    references = []
    for turn in range(3):
        pods = [PodToPlace(f"default/p-{turn}-{i}", info) for i in range(40)]
        decided = schedule_batch(snapshot, framework, pods, Options(seed=turn), decider=decider)
        assert all(isinstance(part, Run) for part in decided.parts)
        references.append([sys.getrefcount(column) for column in columns])
    assert references[0] == references[1] == references[2]


def test_a_request_that_comes_again_gets_a_line_that_is_kept() -> None:
    """Where all lines are given away, the first pod that asks for something takes none of them."""
    snapshot, framework = world_of(20), kubernetes_framework()
    infos = [
        snapshot.intern(from_pod(make_pod("p").asks(cpu=f"{50 + i}m").labelled(n=f"{i}").build()))
        for i in range(40)
    ]
    with lines_kept(8):
        decider = Decider(snapshot, framework)
        kept = decider._lane._lines.of_key

        def decide(name: str, numbers: list[int]) -> set[int]:
            """Return which classes have a line that is kept after pods of these were decided."""
            pods = [PodToPlace(f"default/{name}-{at}", infos[n]) for at, n in enumerate(numbers)]
            assert len(decider.decide_run(pods, 0, Options(seed=3))) == len(pods)
            memo_key = decider._lane._memo_key
            return {
                number
                for number, info in enumerate(infos)
                if (compiled := info.memo.get(memo_key)) and compiled.line_key in kept
            }

        assert decide("new", list(range(36))) == set(range(8))
        assert decide("again", [20, 2]) == {20, *range(1, 8)}
        assert decide("new-twice", [39, 39]) == {39, 20, *range(2, 8)}
        assert decide("once", [38]) == {39, 20, *range(2, 8)}


@settings(max_examples=many(10, 100), deadline=None)
@given(st.lists(plain_pods | strategies.pods(), min_size=2, max_size=20))
def test_classes_that_are_compiled_together_come_to_what_each_does_alone(
    pods: list[Manifest],
) -> None:
    snapshot, framework = world_of(3), kubernetes_framework()
    compiler, stamp = Decider(snapshot, framework)._lane._compiler, (0,)
    infos = [snapshot.intern(from_pod(msgspec.convert(manifest, Pod))) for manifest in pods]
    for info in infos:
        compiler.compile(info, stamp)
    stamp = compiler._versions()
    for info, found in compiler.compile_alike(infos, stamp):
        alone = compiler.compile(info, stamp)
        assert (found.program is None) == (alone.program is None)  # equal: ``test_programs``
        for name in set(CompiledClass.__slots__) - {"program"}:
            assert getattr(found, name) == getattr(alone, name), name


def test_classes_that_differ_in_amounts_alone_are_compiled_together() -> None:
    snapshot, framework = world_of(3), kubernetes_framework()
    lane = Decider(snapshot, framework)._lane
    builders = [
        make_pod("p").labelled(app="a").asks(cpu=f"{n + 1}m", memory="1Mi") for n in range(6)
    ]
    builders[3] = builders[3].selects({strategies.HOSTNAME: "n-1"})  # one node alone can hold it
    builders[4] = builders[4].asks(cpu="0")
    infos = [snapshot.intern(from_pod(builder.build())) for builder in builders]
    found = list(lane._compiler.compile_alike(infos, lane._versions()))
    assert not found  # nothing like them was compiled
    lane._compiler.compile(infos[0], lane._versions())
    found = list(lane._compiler.compile_alike(infos, lane._versions()))
    assert [info for info, _ in found] == [infos[at] for at in (0, 1, 2, 5)]
    service = {
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"selector": {"app": "a"}},
    }
    snapshot.set_service(msgspec.convert(service, Service))  # they are spread from here on
    assert not list(lane._compiler.compile_alike(infos, lane._versions()))
    lane._compiler.compile(infos[0], lane._versions())
    found = list(lane._compiler.compile_alike(infos, lane._versions()))
    assert [info for info, _ in found] == [infos[at] for at in (0, 1, 2, 5)]
    assert all(compiled.program is not None for _, compiled in found)


def test_a_run_goes_on_where_nodes_fill_up_until_nothing_fits() -> None:
    snapshot, framework = world_of(3), kubernetes_framework()
    info = snapshot.intern(from_pod(make_pod("p").asks(cpu="1").build()))
    room = int(snapshot.allocatable[:, 0].sum()) // 1000
    pods = [PodToPlace(f"default/p-{i}", info) for i in range(room + 5)]
    assert len(Decider(snapshot, framework).decide_run(pods, 0, Options(seed=3))) == room


def test_a_run_leaves_room_for_pods_that_are_nominated() -> None:
    """Guests count for pods of no higher priority (RunFilterPluginsWithNominatedPods)."""
    snapshot, framework = world_of(2), kubernetes_framework()
    low, high = (
        snapshot.intern(from_pod(make_pod("p").asks(cpu="1").priority(p).build())) for p in (0, 9)
    )
    room = int(snapshot.allocatable[0, 0]) // 1000
    for number in range(room):
        snapshot.nominate(f"default/waits-{number}", high, "n-0")
    decider = Decider(snapshot, framework)
    pods = [PodToPlace(f"default/p-{i}", low) for i in range(room + 3)]
    run = decider.decide_run(pods, 0, Options(seed=3))
    assert [d.node_name for d in run] == ["n-1"] * room
    snapshot.unnominate("default/waits-0")
    (decision,) = decider.decide_run(pods[room:], 0, Options(seed=3))
    assert decision.node_name == "n-0"


def test_labels_matter_only_where_terms_look_at_them() -> None:
    snapshot, framework = world_of(5), kubernetes_framework()
    far = make_pod("far").labelled(app="a").with_(
        "spec", "affinity", "podAntiAffinity",
        value={
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": "zone"}
            ]
        },
    )  # fmt: skip
    one, other = (
        snapshot.intern(from_pod(make_pod("p").asks(cpu="1").labelled(app=label).build()))
        for label in ("b", "c")
    )
    decider = Decider(snapshot, framework)
    assert len(decider.decide_run([PodToPlace("default/1", one)], 0, Options()))
    snapshot.intern(from_pod(far.build()))
    programs = []
    for number, info in enumerate((one, other)):
        run = decider.decide_run([PodToPlace(f"default/more-{number}", info)], 0, Options())
        assert isinstance(run, Run)
        programs.append(run.programs[0])
    assert programs[0] is not None, "its pods are meant by a term now"
    assert programs[1] is None


def test_more_kinds_of_selectors_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheets, "_SHEET_BYTES", 1)
    framework = kubernetes_framework()
    decided = []
    for cached in (False, True):
        snapshot = Snapshot()
        for number in range(12):
            snapshot.set_node(make_node(f"n-{number}").labelled({"kind": str(number % 6)}).build())
        infos = [
            snapshot.intern(
                from_pod(
                    make_pod("p").asks(cpu="100m")
                    .with_("spec", "nodeSelector", value={"kind": str(number)}).build()
                )
            )
            for number in range(6)
        ]  # fmt: skip
        decider = Decider(snapshot, framework) if cached else None
        found = []
        for turn in range(4):
            pods = [PodToPlace(f"default/p-{turn}-{i}", infos[(i * 5) % 6]) for i in range(18)]
            found += schedule_batch(
                snapshot, framework, pods, Options(seed=9), draw=len(found), decider=decider
            )
        decided.append([facts_of(decision) for decision in found])
    assert decided[0] == decided[1]


class Careless:
    """A package's plugin that prefers old nodes, and fails where there is no label or no such node.

    What it looks at in a pod is its label ``team``.
    """

    name = "Careless"
    filter_locality = score_locality = Locality.NODE

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> str | None:
        return pod.labels["team"]

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        return None

    def _are_old(self, snapshot: NodeTable, rows: Rows) -> npt.NDArray[np.int64]:
        return (snapshot.label_column("old").ids[rows] >= 0).astype(np.int64)

    def group_keys(
        self, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> list[npt.NDArray[np.int64]]:
        return [self._are_old(snapshot, rows)]

    def score(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> npt.NDArray[np.int64]:
        return self._are_old(snapshot, rows)

    def normalize(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        scores: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int64]:
        if not scores.any():
            raise ValueError("no old node")
        return 100 * scores


class Counting(Careless):
    """Looks at the label ``team``, at more without it, and counts how often it is asked."""

    name = "Counting"

    def __init__(self) -> None:
        self.asked: Counter[bytes] = Counter()

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> str | None:
        self.asked[pod.digest] += 1
        return pod.labels.get("team")


def test_classes_that_are_like_no_other_are_not_looked_at_again_by_each_run() -> None:
    """Each run ends before the next pod of a class that the loop does not decide for."""
    plugin, snapshot = Counting(), world_of(0)
    for number in range(3):
        snapshot.set_node(make_node(f"n-{number}").labelled(old="").build())
    slow = make_pod("p").asks(cpu="1m").build()
    pods = [
        PodToPlace(f"default/{number}-{kind}", snapshot.intern(from_pod(pod)))
        for number in range(20)
        for kind, pod in enumerate(
            (make_pod("p").labelled(team=f"t{number}").asks(cpu="1m").build(), slow)
        )
    ]
    framework = framework_with(plugin)
    decisions = schedule_batch(
        snapshot, framework, pods, Options(), decider=Decider(snapshot, framework)
    )
    assert len(list(decisions.placed())) == len(pods)
    assert len(plugin.asked) == 21
    assert max(plugin.asked.values()) <= 4


def place_on_both_paths(batches: list[list[Pod]], old_nodes: int, new_nodes: int) -> list[str]:
    """Decide batches of pods with ``Careless`` on both paths; return what became of each pod."""
    framework = framework_with(Careless(), weight=5)
    snapshots = [world_of(0), world_of(0)]
    for snapshot in snapshots:
        for number in range(old_nodes + new_nodes):
            node = make_node(f"n-{number}").offers(cpu="4", memory="8Gi", pods="110")
            snapshot.set_node((node.labelled(old="") if number < old_nodes else node).build())
    decider, draw, outcomes = Decider(snapshots[1], framework), 0, []
    for number, batch in enumerate(batches):
        decided = []
        for snapshot, shortcut in zip(snapshots, (None, decider), strict=True):
            pods = [
                PodToPlace(f"default/{number}-{at}", snapshot.intern(from_pod(pod)))
                for at, pod in enumerate(batch)
            ]
            decided.append(
                schedule_batch(
                    snapshot, framework, pods, Options(seed=5), draw=draw, decider=shortcut
                )
            )
        for slow, fast in zip(*decided, strict=True):
            assert facts_of(fast) == facts_of(slow)
        outcomes += [decision.outcome for decision in decided[1]]
        draw += len(batch)
        assert state_of(snapshots[0]) == state_of(snapshots[1])
    return outcomes


def test_a_hook_that_fails_for_one_class_leaves_no_line_unwritten_for_others() -> None:
    """The classes before it had been given lines, which nobody wrote."""
    good = [make_pod("p").labelled(team="a").asks(cpu=f"{n}m").build() for n in range(200, 203)]
    bad = make_pod("p").asks(cpu="100m").build()
    outcomes = place_on_both_paths([[*good, bad], good * 4, [*good, bad]], 3, 3)
    assert set(outcomes) == {"scheduled"}


def test_a_plugin_that_fails_in_the_middle_of_a_run_takes_nothing_back() -> None:
    """Old nodes are full: the scores of those that are left are asked for, and that fails."""
    pod = make_pod("p").labelled(team="a").asks(cpu="1").build()
    outcomes = place_on_both_paths([[pod] * 12], 2, 2)
    assert outcomes == ["scheduled"] * 8 + ["error"] * 4

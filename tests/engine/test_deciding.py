"""The decider agrees with the reference path, whatever happened to the cluster in between."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from scheduling.engine.deciding import Decider
from scheduling.engine.preemption import row_program
from scheduling.engine.reference.cycle import (
    Options,
    PodToPlace,
    assume_or_nominate,
    schedule_batch,
    schedule_pod,
)
from scheduling.engine.reference.decision import Decision
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from tests import strategies
from tests.builders import make_node, make_pod
from tests.engine import lanes
from tests.forms import many
from tests.harness import build_snapshot, kubernetes_framework
from tests.properties.test_recorded_worlds import facts_of

Manifest = dict[str, Any]


@pytest.fixture(autouse=True, scope="module", params=["programs", "plugins"])
def _judged_by(request: pytest.FixtureRequest) -> Iterator[None]:
    """Filter is answered by the compiled program while pods are nominated, or by the plugins."""
    with lanes.only(*([row_program] if request.param == "programs" else [])):
        yield


def same(snapshot: Snapshot, decider: Decider, pod: PodToPlace, seed: int, draw: int) -> Decision:
    options = Options(seed=seed)
    plain = schedule_pod(snapshot, kubernetes_framework(), pod, options, draw=draw)
    assert facts_of(decider.decide(pod, options, draw=draw)) == facts_of(plain)
    return plain


_one = st.integers(0, 3)
steps = strategies.happenings(
    _one, _one, _one, fewest=3, most=25,
    remove=30, replace_node=4, remove_node=4, nominate=11, unnominate=11,
)  # fmt: skip


@settings(max_examples=many(12, 300), deadline=None)
@given(
    strategies.clusters(),
    st.lists(strategies.pods(), min_size=4, max_size=4),
    steps,
    st.data(),
    st.integers(0, 2**32),
)
def test_the_cache_decides_as_the_reference_path(
    world: Manifest,
    templates: list[Manifest],
    happenings: list[tuple[str, int]],
    data: st.DataObject,
    seed: int,
) -> None:
    snapshot = build_snapshot(world)
    decider = Decider(snapshot, kubernetes_framework())
    infos = [snapshot.intern(from_pod(msgspec.convert(t, Pod))) for t in templates]
    placed: list[str] = [str(record.key) for record in snapshot.pods()]
    for number, (what, which) in enumerate(happenings):
        if what == "place":
            pod = PodToPlace(f"default/new-{number}", infos[which])
            decision = same(snapshot, decider, pod, seed, number)
            assume_or_nominate(snapshot, pod, decision)
            if decision.scheduled:
                placed.append(str(pod.key))
        elif what == "remove" and placed:
            snapshot.remove_pod(placed.pop(which % len(placed)))
        elif what == "replace node":
            snapshot.set_node(msgspec.convert(data.draw(strategies.nodes(which)), Node))
        elif what == "remove node":
            snapshot.remove_node(f"node-{which}")
        elif what == "nominate":
            key = f"default/waits-{which}"
            snapshot.nominate(key, infos[which % 4], f"node-{which % 5}")
        elif what == "unnominate":
            snapshot.unnominate(f"default/waits-{which}")


def test_the_cache_decides_a_batch_as_the_reference_path() -> None:
    def world() -> Snapshot:
        snapshot = Snapshot()
        for number in range(40):
            node = make_node(f"node-{number}").labelled(
                {
                    "topology.kubernetes.io/zone": f"z{number % 3}",
                    "kubernetes.io/hostname": f"n{number}",
                }
            )
            if number % 7 == 0:
                node = node.tainted("spot", effect="PreferNoSchedule")
            snapshot.set_node(node.build())
        return snapshot

    base = make_pod("p").asks(cpu="300m", memory="500Mi").labelled(app="web")
    spread = base.with_(
        "spec",
        "topologySpreadConstraints",
        value=[
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": action,
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
            for key, action in (
                ("topology.kubernetes.io/zone", "DoNotSchedule"),
                ("kubernetes.io/hostname", "ScheduleAnyway"),
            )
        ],
    )
    decided = []
    for cached in (False, True):
        snapshot = world()
        infos = [snapshot.intern(from_pod(b.build())) for b in (base, spread)]
        pods = [PodToPlace(f"default/p-{i}", infos[i % 2]) for i in range(200)]
        framework = kubernetes_framework()
        decider = Decider(snapshot, framework) if cached else None
        decisions = schedule_batch(snapshot, framework, pods, Options(seed=7), decider=decider)
        decided.append([facts_of(d) for d in decisions])
    assert decided[0] == decided[1]
    assert all(d["node_name"] for d in decided[0])


_kind = st.tuples(st.integers(1, 3), st.booleans(), st.sampled_from(("", "", "", "a")))


@settings(max_examples=many(60, 600), deadline=None)
@given(
    st.lists(_kind, min_size=2, max_size=8),
    st.lists(_kind, min_size=2, max_size=2),
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from((0, 0, 0, 1))), max_size=3),
    st.permutations(range(8)),
    st.integers(0, 2**32),
)
def test_pods_that_are_nominated_for_different_nodes_are_decided_as_one_by_one(
    nodes: list[tuple[int, bool, str]],
    kinds: list[tuple[int, bool, str]],
    others: list[tuple[int, int]],
    order: list[int],
    seed: int,
) -> None:
    """Nodes are of a size, tainted or not, in a zone; pods ask, tolerate and select alike."""

    def outcome(*, fast: bool) -> tuple[list[Any], dict[Any, str | None]]:
        snapshot, framework = Snapshot(), kubernetes_framework()
        for number, (cpu, tainted, zone) in enumerate(nodes):
            node = make_node(f"node-{number}").offers(cpu=str(cpu + 1), pods="9")
            node = node.labelled({"zone": zone}) if zone else node
            snapshot.set_node((node.tainted("k") if tainted else node).build())
        infos = []
        for cpu, tolerates, zone in kinds:
            pod = make_pod("p").asks(cpu=str(cpu))
            pod = pod.with_("spec", "nodeSelector", value={"zone": zone}) if zone else pod
            pod = pod.tolerates("k") if tolerates else pod
            infos.append(snapshot.intern(from_pod(pod.build())))
        wanted = [*((node, int((seed >> 3 * node) % 8 == 0)) for node in order), *others]
        pods = []
        for number, (where, which) in enumerate(wanted):
            made = PodToPlace(f"default/waits-{number}", infos[which], f"node-{where}")
            snapshot.nominate(made.key, made.info, made.nominated_node)
            pods.append(made)
        decider = Decider(snapshot, framework) if fast else None
        made_ = schedule_batch(
            snapshot, framework, pods, Options(seed=seed), decider=decider, draw=3
        )
        facts = [facts_of(one) for one in made_]
        return facts, {pod.key: snapshot.node_of(pod.key) for pod in pods}

    assert outcome(fast=True) == outcome(fast=False)


def test_a_gang_whose_pods_are_nominated_each_for_a_node_is_decided_in_one_run() -> None:
    snapshot, framework = Snapshot(), kubernetes_framework()
    for number in range(8):
        cpu = "1" if number == 5 else "4"
        snapshot.set_node(make_node(f"node-{number}").offers(cpu=cpu, pods="9").build())
    info = snapshot.intern(from_pod(make_pod("p").asks(cpu="3").build()))
    pods = [PodToPlace(f"default/p{number}", info, f"node-{number}") for number in range(8)]
    run = Decider(snapshot, framework).decide_run(pods, 0, Options(seed=1))
    assert [one.node_name for one in run] == [f"node-{number}" for number in range(5)]
    assert [one.draw for one in run] == list(range(5))
    assert all(snapshot.is_assumed(f"default/p{number}") for number in range(5))


def test_nominated_pods_of_which_every_second_does_not_fit_cost_no_more_for_being_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot, framework = Snapshot(), kubernetes_framework()
    judged: list[int] = []
    filter_alone = framework.filter_alone

    def counted(state: Any, pod: Any, table: Any, rows: Any) -> Any:
        judged.append(len(rows))
        return filter_alone(state, pod, table, rows)

    monkeypatch.setattr(framework, "filter_alone", counted)
    for number in range(200):
        cpu = "1" if number % 2 else "4"
        snapshot.set_node(make_node(f"node-{number}").offers(cpu=cpu, pods="9").build())
    info = snapshot.intern(from_pod(make_pod("p").asks(cpu="3").build()))
    pods = [PodToPlace(f"default/p{number}", info, f"node-{number}") for number in range(200)]
    decider = Decider(snapshot, framework)
    for first in range(200):
        decider.decide_run(pods, first, Options(seed=1))
    assert 200 < sum(judged) <= 200 * 32

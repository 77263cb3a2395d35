"""Preemption in numbers names the node and the victims that the reference's dry run names.

The reference takes pods off a node one by one and asks every filter again
(``DefaultPreemption.dry_run``); the search in numbers is ``RowPrograms.find_victims``.
"""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from clusterstate.objects.values.pod_group import PodGroup
from clusterstate.objects.values.workloads import PodDisruptionBudget
from scheduling.engine.deciding import Decider
from scheduling.engine.preemption import row_program
from scheduling.engine.preemption.row_program import RowPrograms
from scheduling.engine.reference.cycle import (
    Options,
    PodToPlace,
    diagnose,
    schedule_batch,
    schedule_pod,
)
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.configuration import PluginUse
from scheduling.framework.interface import CycleState, FilterResult
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Code
from scheduling.framework.types import PodInfo, group_key
from scheduling.plugins.catalogue import build_framework
from scheduling.plugins.default_preemption import DefaultPreemption, potential_rows
from tests.builders import PodBuilder, make_node, make_pod
from tests.engine import lanes
from tests.harness import kubernetes_framework, same_victims
from tests.properties.test_recorded_worlds import facts_of

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


@pytest.fixture(params=["compiled", "plain Python"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    with lanes.only(*([row_program] if request.param == "compiled" else [])):
        yield


def _kind(chance: random.Random, name: str) -> PodBuilder:
    """Return a pod of one of many kinds; kinds meet each other by labels, ports and domains."""
    app = chance.choice(("web", "db", "job"))
    pod = make_pod(name).labelled(app=app) if chance.random() < 0.9 else make_pod(name)
    if chance.random() < 0.1:
        pod = pod.in_namespace("blue")
    pod = pod.asks(cpu=chance.choice(("500m", "1", "1500m")), memory="64Mi")
    pod = pod.priority(chance.choice((0, 0, 1, 5, 10)))
    match chance.randrange(12):
        case 0:
            pod = pod.away_from(chance.choice((ZONE, HOSTNAME)), app=chance.choice(("web", "db")))
        case 1:
            pod = pod.near(ZONE, app=app)
        case 2:
            key = chance.choice((ZONE, HOSTNAME, "rack"))
            pod = pod.spread(key, max_skew=chance.randrange(1, 3), app=app)
        case 3:
            pod = pod.spread(ZONE, max_skew=1)
        case 4:
            pod = pod.host_port(8080)
        case 5:
            pod = pod.tolerates("gpu")
    return pod


def _world(chance: random.Random, nodes: int) -> tuple[Snapshot, list[PodInfo]]:
    """Return a full cluster with budgets and nominations, and the classes of its pods."""
    snapshot = Snapshot(capacity=1)
    for number in range(nodes):
        node = make_node(f"node-{number:03}").offers(cpu=chance.choice(("2", "4")), pods=6)
        labels = {HOSTNAME: f"node-{number:03}", ZONE: f"zone-{number % 3}"}
        if chance.random() < 0.5:
            labels["rack"] = f"rack-{chance.randrange(4)}"
        if chance.random() < 0.1:
            node = node.tainted("gpu")
        snapshot.set_node(node.labelled(labels).build())
    infos = [snapshot.intern(from_pod(_kind(chance, f"kind-{n}").build())) for n in range(24)]
    for number in range(nodes * 5):
        snapshot.add_pod(
            f"default/pod-{number}",
            chance.choice(infos),
            f"node-{chance.randrange(nodes):03}",
            start_time=chance.choice((None, 1.0, 2.0, 3.0)),
            terminating=chance.random() < 0.1,
        )
    for number in range(3):
        selector: dict[str, Any] = chance.choice(
            ({}, {"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "db"}},
             {"matchExpressions": [{"key": "app", "operator": "Exists"}]})
        )  # fmt: skip
        status = {
            "disruptionsAllowed": chance.randrange(3),
            "disruptedPods": {f"pod-{chance.randrange(nodes * 5)}": "2026-01-01T00:00:00Z"},
        }
        manifest = {
            "metadata": {"name": f"b{number}", "namespace": "default"},
            "spec": {"selector": selector},
            "status": status if chance.random() < 0.5 else {"disruptionsAllowed": number},
        }
        snapshot.set_budget(msgspec.convert(manifest, PodDisruptionBudget))
    for number in range(nodes // 8 + 1):
        name = f"node-{chance.randrange(nodes):03}"
        snapshot.nominate(f"default/waits-{number}", chance.choice(infos), name)
    return snapshot, infos


def _askers(chance: random.Random, snapshot: Snapshot, count: int) -> Iterator[PodInfo]:
    for number in range(count):
        pod = _kind(chance, f"asks-{number}").priority(chance.choice((1, 5, 20)))
        pod = pod.asks(cpu=chance.choice(("1", "2", "3")), memory="64Mi")
        yield snapshot.intern(from_pod(pod.build()))


@pytest.mark.parametrize(("nodes", "worlds"), [(1, 12), (63, 3), (64, 3), (65, 3), (500, 1)])
@pytest.mark.usefixtures("_way")
def test_the_search_finds_the_candidates_and_victims_of_the_dry_run(
    nodes: int, worlds: int
) -> None:
    framework = kubernetes_framework()
    plugin = next(p for p in framework.post_filter_plugins if isinstance(p, DefaultPreemption))
    searched = with_candidates = 0
    for seed in range(worlds):
        chance = random.Random(f"{nodes}/{seed}")
        snapshot, _ = _world(chance, nodes)
        for number, info in enumerate(_askers(chance, snapshot, 4 if nodes < 500 else 2)):
            key = f"default/waits-{number % 2}"  # the pod's own nomination does not count
            state = CycleState(pod_key=key, seed=seed)
            begun = framework.pre_filter(state, info, snapshot)
            judged = framework.filter(state, info, snapshot, begun.rows)
            programs = RowPrograms(snapshot, framework)
            numbers = programs.diagnose(state, info, begun.rows)
            if len(judged.feasible):
                assert numbers is None
            else:
                assert numbers is not None
                assert [numbers.status(at) for at in range(nodes)] == [
                    judged.status(at) for at in range(nodes)
                ]
            found = diagnose(snapshot, begun, judged)
            rows = potential_rows(found, snapshot)
            if not len(rows):
                continue
            before = snapshot.requested.copy(), snapshot.pod_count.copy()
            begin, wanted = plugin.extent(state, len(rows))
            wanted = chance.choice((1, 5, wanted))
            candidates, statuses = plugin.dry_run(
                state, info, snapshot, rows, framework, begin=begin, enough=wanted
            )
            assert same_victims(
                state, info, snapshot, framework, rows, begin, wanted, candidates, statuses
            )
            assert (snapshot.requested == before[0]).all()
            assert (snapshot.pod_count == before[1]).all()
            searched += 1
            with_candidates += bool(candidates)
    assert searched
    assert with_candidates or nodes == 1


@pytest.mark.parametrize("nodes", [1, 64, 200])
def test_a_run_that_preempts_decides_as_the_reference(nodes: int) -> None:
    """Decision after decision: victims leave, nominations count, the next pod sees both."""
    with lanes.only(row_program):
        _assert_a_run_decides_as_the_reference(nodes)


def _assert_a_run_decides_as_the_reference(nodes: int) -> None:
    framework = kubernetes_framework()
    for seed in range(3):
        chance = random.Random(f"run {nodes}/{seed}")
        snapshot, _ = _world(chance, nodes)
        decider = Decider(snapshot, framework)
        askers = list(_askers(chance, snapshot, 3))
        options = Options(seed=seed)
        for number in range(12):
            key = f"default/asks-{number}"
            pod = PodToPlace(key, askers[number % 3], snapshot.nominated_node_of(key))
            fresh = schedule_pod(snapshot, framework, pod, options, draw=number)
            (cached,) = schedule_batch(
                snapshot, framework, [pod], options, draw=number, decider=decider
            )
            assert facts_of(cached) == facts_of(fresh)
            if cached.nomination is not None:
                for victim in cached.nomination.victims:
                    snapshot.remove_pod(victim.key)


def _with_groups(chance: random.Random, snapshot: Snapshot) -> None:
    """Make groups known, some of which leave together and are worth more than their pods."""
    for number in range(4):
        spec = {"disruptionMode": chance.choice(({"all": {}}, {"all": {}}, {"single": {}}))}
        if chance.random() < 0.7:
            spec["priority"] = chance.choice((0, 5, 100))
        metadata = {"name": f"g{number}", "namespace": "default"}
        snapshot.groups.set(msgspec.convert({"metadata": metadata, "spec": spec}, PodGroup))


def _of_group(pod: PodBuilder, number: int) -> PodBuilder:
    return pod.with_("spec", "schedulingGroup", value={"podGroupName": f"g{number}"})


@pytest.mark.usefixtures("_way")
def test_nobody_is_to_leave_whose_group_would_leave_with_it_and_is_worth_more() -> None:
    framework = kubernetes_framework()
    spared = with_victims = 0
    for seed in range(30):
        chance = random.Random(seed)
        snapshot = Snapshot()
        for number in range(6):
            snapshot.set_node(make_node(f"node-{number}").offers(cpu="3", pods=9).build())
        _with_groups(chance, snapshot)
        for number in range(18):
            pod = make_pod(f"low-{number}").asks(cpu="1").priority(chance.choice((0, 1, 5)))
            if chance.random() < 0.6:
                pod = _of_group(pod, chance.randrange(4))
            info = snapshot.intern(from_pod(pod.build()))
            snapshot.add_pod(f"default/low-{number}", info, f"node-{number % 6}")
        builder = make_pod("mid").asks(cpu="2").priority(chance.choice((5, 50)))
        mid = snapshot.intern(from_pod(builder.build()))
        able = {
            row: [one for one in snapshot.pods_on(row, below=mid.priority)
                  if (group := snapshot.groups.find(group_key(one.info.pod))) is None
                  or not (group.leaves_together and group.outranks(mid.priority))]
            for row in range(6)
        }  # fmt: skip
        (decision,) = schedule_batch(
            snapshot, framework, [PodToPlace("default/mid", mid)],
            decider=Decider(snapshot, framework),
        )  # fmt: skip
        assert decision.nomination is not None
        victims = {one.key for one in decision.nomination.victims}
        assert victims <= {one.key for records in able.values() for one in records}
        assert bool(victims) == any(len(records) >= 2 for records in able.values())
        with_victims += bool(victims)
        spared += sum(map(len, able.values())) < snapshot.pod_total
    assert spared
    assert with_victims


class Odd:
    """A filter of another package that does not say what it compares: the app must not be alone."""

    name = "Odd"

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: Any, rows: Any
    ) -> FilterResult | None:
        crowded = snapshot.pod_count[rows] >= 2
        return FilterResult.rejecting(crowded, Code.UNSCHEDULABLE, "crowded")


def test_a_filter_that_states_no_numbers_is_asked_after_each_pod() -> None:
    profile = kubernetes_framework().profile
    points = {**profile.points, "filter": (*profile.points["filter"], PluginUse("Odd"))}
    names = {use.name for uses in points.values() for use in uses} - {"Odd"}
    built = build_framework(profile)
    plugins: dict[str, Any] = {}
    for one in (*built.filter_plugins, *built.pre_filter_plugins, *built.score_plugins,
                *built.post_filter_plugins, *built.queue_sort, *built.pre_enqueue_plugins,
                *built.bind_plugins):  # fmt: skip
        plugins[one.name] = one
    assert names == set(plugins)
    odd = msgspec.structs.replace(profile, points=points)
    framework = Framework(odd, {**plugins, "Odd": Odd()})
    snapshot = Snapshot()
    snapshot.set_node(make_node("node-0").offers(cpu="4", pods=9).build())
    low = snapshot.intern(from_pod(make_pod("low").asks(cpu="1").priority(0).build()))
    for number in range(3):
        snapshot.add_pod(f"default/low-{number}", low, "node-0", start_time=float(number))
    high = snapshot.intern(from_pod(make_pod("high").asks(cpu="1").priority(9).build()))
    decider = Decider(snapshot, framework)
    pod = PodToPlace("default/high", high)
    (decision,) = schedule_batch(snapshot, framework, [pod], decider=decider)
    assert decision.nomination is not None
    # All resources fit with one pod less; Odd lets the pod in beside one other.
    victims = [victim.key for victim in decision.nomination.victims]
    assert victims == ["default/low-1", "default/low-2"]


def test_where_no_pod_of_lower_priority_is_placed_nobody_looks() -> None:
    """The constant answer: known classes of low priority do not matter, placed pods do."""
    framework = kubernetes_framework()
    snapshot = Snapshot()
    for number in range(3):
        snapshot.set_node(make_node(f"node-{number}").offers(cpu="1", pods=5).build())
    low = snapshot.intern(from_pod(make_pod("low").asks(cpu="1").priority(0).build()))
    high = snapshot.intern(from_pod(make_pod("high").asks(cpu="1").priority(9).build()))
    large = snapshot.intern(from_pod(make_pod("large").asks(cpu="7").priority(9).build()))
    for number in range(3):
        snapshot.add_pod(f"default/high-{number}", high, f"node-{number}")
    assert not snapshot.has_pods_below(9)
    decision = schedule_pod(snapshot, framework, PodToPlace("default/p", high))
    assert decision.message.endswith(
        "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
    )
    snapshot.remove_pod("default/high-0")
    snapshot.add_pod("default/low", low, "node-0")
    assert snapshot.has_pods_below(9)
    decision = schedule_pod(snapshot, framework, PodToPlace("default/p", high))
    assert decision.nomination is not None
    assert decision.nomination.node_name == "node-0"
    decision = schedule_pod(snapshot, framework, PodToPlace("default/q", large))
    assert decision.judged is not None
    assert {s.code for s in decision.judged.statuses[1:]} == {Code.UNSCHEDULABLE_AND_UNRESOLVABLE}
    snapshot.remove_pod("default/low")
    assert not snapshot.has_pods_below(9)
    snapshot.add_pods(
        ["default/a", "default/b"], np.array([low.index] * 2, np.int32), np.zeros(2, np.int32)
    )
    assert snapshot.has_pods_below(9)

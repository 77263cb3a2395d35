"""One pod through the whole cycle: where it goes, by which dice, and how far was looked."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.deciding import Decider
from scheduling.engine.reference.cycle import (
    Options,
    PodToPlace,
    draw_below,
    of_share,
    schedule_batch,
    schedule_pod,
)
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.runtime import Framework
from scheduling.plugins.catalogue import build_framework
from tests.builders import PodBuilder, make_node, make_pod
from tests.harness import kubernetes_framework, kubernetes_profile
from tests.strategies import ZONE


def cluster(count: int, **offers: str) -> Snapshot:
    snapshot = Snapshot()
    for number in range(count):
        node = make_node(f"node-{number:03}").labelled({ZONE: f"z{number % 2}"})
        snapshot.set_node((node.offers(**offers) if offers else node).build())
    return snapshot


def place(snapshot: Snapshot, pod: PodBuilder, key: str = "default/p") -> PodToPlace:
    return PodToPlace(key, snapshot.intern(from_pod(pod.build())))


def sampling(percentage: int, floor: int) -> Framework:
    profile = msgspec.structs.replace(
        kubernetes_profile(),
        percentage_of_nodes_to_score=percentage,
        min_feasible_nodes_to_find=floor,
    )
    return build_framework(profile)


def test_a_pod_goes_where_its_requests_are_free() -> None:
    """R66, R67: a node must have the requests free; otherwise the pod stays unscheduled."""
    snapshot = cluster(2, cpu="2")
    taken = snapshot.intern(from_pod(make_pod("x").asks(cpu="1500m").build()))
    snapshot.add_pod("default/x", taken, "node-000")
    framework = kubernetes_framework()
    fits = schedule_pod(snapshot, framework, place(snapshot, make_pod("p").asks(cpu="1")))
    assert fits.node_name == "node-001"
    big = schedule_pod(snapshot, framework, place(snapshot, make_pod("q").asks(cpu="3")))
    assert not big.scheduled
    assert big.message == (
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )
    assert big.rejected_by == ("NodeResourcesFit",)


def test_no_nodes_at_all_has_its_own_message() -> None:
    snapshot = Snapshot()
    decision = schedule_pod(snapshot, kubernetes_framework(), place(snapshot, make_pod("p")))
    assert decision.message == "no nodes available to schedule pods"


@pytest.mark.parametrize("cached", [False, True])
def test_among_equal_nodes_the_choice_is_uniform(cached: bool) -> None:
    """R68: chi-square over 8 equal nodes and 4000 draws, far below the 0.001 quantile (24.3)."""
    snapshot = cluster(8)
    pod = place(snapshot, make_pod("p"))
    framework = kubernetes_framework()
    decider = Decider(snapshot, framework)
    chosen: Counter[str] = Counter()
    for draw in range(4000):
        options = Options(seed=11)
        decision = decider.decide(pod, options, draw=draw) if cached else None
        if decision is None:
            decision = schedule_pod(snapshot, framework, pod, options, draw=draw)
        assert decision.ties == 8
        chosen[decision.node_name] += 1
        if not cached and draw == 400:
            break
    expected = sum(chosen.values()) / 8
    assert sum((n - expected) ** 2 / expected for n in chosen.values()) < 24.3
    assert len(chosen) == 8


def test_close_seeds_give_unrelated_first_draws() -> None:
    first = Counter(draw_below(seed, 0, 10) for seed in range(2000))
    assert sum((n - 200) ** 2 / 200 for n in first.values()) < 27.9


@given(st.integers(0, 2**63 - 1), st.integers(1, 8), st.integers(1, 40))
def test_schedulers_draw_among_equals_each_in_its_share(seed: int, count: int, ties: int) -> None:
    """Shares of ``ties`` nodes meet at their borders at most, and leave none out."""
    drawn: list[set[int]] = []
    for share in range(count):
        one = of_share(seed, share, count)
        assert -(2**63) <= one < 2**63
        drawn.append({draw_below(one, number, ties) for number in range(100)})
        first, last = share * ties // count, -(-(share + 1) * ties // count)
        assert drawn[-1] <= set(range(first, last))
    assert count > 1 or of_share(seed, 0, 1) == seed
    if ties <= 10:
        assert set().union(*drawn) == set(range(ties))


def test_the_same_seed_decides_alike() -> None:
    keys = [f"default/p-{n}" for n in range(20)]
    runs = []
    for _ in range(2):
        snapshot = cluster(10)
        pods = [place(snapshot, make_pod("p"), key) for key in keys]
        decisions = schedule_batch(snapshot, kubernetes_framework(), pods, Options(seed=5))
        runs.append([d.node_name for d in decisions])
    assert runs[0] == runs[1]


def test_the_first_by_name_wins_where_chance_is_switched_off() -> None:
    snapshot = cluster(5)
    decision = schedule_pod(
        snapshot, kubernetes_framework(), place(snapshot, make_pod("p")), Options(tie_break="first")
    )
    assert decision.node_name == "node-000"


def test_the_first_by_name_wins_whatever_came_first_and_after_nodes_came_and_went() -> None:
    snapshot, framework = Snapshot(), kubernetes_framework()
    pod = place(snapshot, make_pod("p"))

    def first() -> str:
        return schedule_pod(snapshot, framework, pod, Options(tie_break="first")).node_name

    for name in ("n-9", "n-10", "n-1"):
        snapshot.set_node(make_node(name).build())
    assert first() == "n-1"
    snapshot.remove_node("n-1")
    assert first() == "n-10"
    snapshot.set_node(make_node("n-0").build())
    assert first() == "n-0"


def test_a_batch_sees_its_own_placements() -> None:
    snapshot = cluster(3, cpu="1")
    pods = [place(snapshot, make_pod("p").asks(cpu="800m"), f"default/p-{n}") for n in range(4)]
    decisions = schedule_batch(snapshot, kubernetes_framework(), pods)
    assert sorted(d.node_name for d in decisions) == ["", "node-000", "node-001", "node-002"]
    assert not decisions[3].scheduled


def test_the_search_stops_when_enough_nodes_are_feasible() -> None:
    """R171, R176: 10 % of 40 nodes is 4; the next pod goes on where this one stopped (R177)."""
    snapshot = cluster(40)
    framework = sampling(10, 1)
    pod = place(snapshot, make_pod("p"))
    first = schedule_pod(snapshot, framework, pod)
    assert (first.evaluated, first.feasible, first.next_start) == (4, 4, 4)
    second = schedule_pod(snapshot, framework, pod, start=first.next_start)
    order = [snapshot.node_name(row) for row in snapshot.ordered_rows().tolist()]
    assert {best.node_name for best in first.best} == set(order[:4])
    assert {best.node_name for best in second.best} == set(order[4:8])
    last = schedule_pod(snapshot, framework, pod, start=38)
    assert {best.node_name for best in last.best} == {*order[38:], *order[:2]}


def test_below_the_floor_every_node_is_looked_at() -> None:
    """R175, R176."""
    snapshot = cluster(40)
    decision = schedule_pod(snapshot, sampling(10, 50), place(snapshot, make_pod("p")))
    assert decision.evaluated == 40


def test_a_nominated_node_wins_without_comparison() -> None:
    snapshot = cluster(5)
    info = snapshot.intern(from_pod(make_pod("p").build()))
    pod = PodToPlace("default/p", info, "node-003")
    decision = schedule_pod(snapshot, kubernetes_framework(), pod)
    assert (decision.node_name, decision.evaluated) == ("node-003", 1)


def test_the_record_names_the_ten_best_by_plugin() -> None:
    snapshot = cluster(15)
    full = snapshot.intern(from_pod(make_pod("x").asks(cpu="3").build()))
    for number in range(12):
        snapshot.add_pod(f"default/x-{number}", full, f"node-{number:03}")
    pod = place(snapshot, make_pod("p").asks(cpu="500m"))
    decision = schedule_pod(snapshot, kubernetes_framework(), pod)
    assert len(decision.best) == 10
    assert decision.best[0].node_name == decision.node_name
    assert all(sum(best.weighted) == best.total for best in decision.best)
    assert {best.node_name for best in decision.best[:3]} == {"node-012", "node-013", "node-014"}
    assert decision.margin == 0
    assert decision.plugins[0] == "TaintToleration"


def test_a_refusal_has_the_words_of_every_default_plugin_that_takes_part() -> None:
    """``FailedScheduling`` of kube-scheduler 1.36, by both ways to decide."""
    snapshot = cluster(2, cpu="2")
    framework = kubernetes_framework()
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "none"}}
    big = make_pod("p").asks(cpu="3")
    lost = make_pod("q").append("spec", "volumes", value=claim)
    for pod, message in (
        (
            big,
            (
                "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, "
                "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
            ),
        ),
        # VolumeBinding ends PreFilter before DynamicResources is asked; its PostFilter fails.
        (lost, '0/2 nodes are available: persistentvolumeclaim "none" not found. not found'),
    ):
        placed = place(snapshot, pod)
        assert schedule_pod(snapshot, framework, placed).message == message
        decider = Decider(snapshot, framework)
        for _ in range(2):
            (decision,) = schedule_batch(snapshot, framework, [placed], decider=decider)
            assert decision.message == message

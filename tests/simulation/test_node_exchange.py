"""Nodes that are removed and bought: every choice is proved, and comes true in its waves."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from clusterstate.objects.values.errors import Invalid
from clusterstate.objects.values.labels import parse_selector
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.copying import copy_snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.management.commands.pack import table
from scheduling.packing import process, purchase, search
from scheduling.packing.facts import Seeker
from scheduling.packing.problem import Bought, Needs, PackingAnswer, Problem
from scheduling.simulation import Base
from scheduling.simulation.moves import Prices
from scheduling.simulation.node_advice import Offer
from scheduling.simulation.node_advice_document import run_node_advice
from scheduling.simulation.node_exchange import Exchange, Frontier, frontier
from scheduling.simulation.packing import read_packing
from tests import harness
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.forms import many
from tests.simulation.builders import owned

FRAMEWORKS = {"default-scheduler": harness.kubernetes_framework()}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search here: by the measure of work alone, so that a busy machine changes no answer."""

    def ask(problem: Problem, *, work: float, seconds: float, go_on: Any) -> PackingAnswer:
        return search.pack(problem, work=min(work, 0.01), seconds=100.0)

    def buy(needs: Needs, *, work: float, seconds: float, go_on: Any) -> Bought:
        return purchase.buy(needs, work=min(work, 0.02), seconds=100.0)

    monkeypatch.setattr(process, "ask", ask)
    monkeypatch.setattr(process, "buy", buy)


def sized(name: str, cpu: int, size: str) -> NodeBuilder:
    return make_node(name).labelled(size=size).offers(cpu=str(cpu), memory="64Gi", pods="110")


SMALL = Offer("small", 1.0, sized("", 2, "small").build())
LARGE = Offer("large", 5.0, sized("", 16, "large").build())
PRICES = Prices(
    ((parse_selector("size=small"), 1.0), (parse_selector("size=large"), 5.0)),
    0.0,
)


def found(
    nodes: list[NodeBuilder],
    pods: Mapping[str, PodBuilder],
    *,
    prices: Prices = PRICES,
    **more: Any,
) -> tuple[Snapshot, Frontier]:
    """Return the world as it was, and the answer; pods without a node wait."""
    snapshot = harness.build_snapshot({"nodes": [one.manifest for one in nodes]})
    waiting = []
    for name, pod in pods.items():
        made = pod.build()
        spec = msgspec.structs.replace(made.spec, node_name="")
        info = snapshot.intern(from_pod(msgspec.structs.replace(made, spec=spec)))
        if made.spec.node_name:
            snapshot.add_pod(f"default/{name}", info, made.spec.node_name)
        else:
            waiting.append(Seeker(f"default/{name}", info, FRAMEWORKS["default-scheduler"]))
    before = copy_snapshot(snapshot)
    answer = frontier(
        snapshot, waiting, [SMALL, LARGE], frameworks=FRAMEWORKS, prices=prices, most=10, **more
    )
    return before, answer


def counts(one: Exchange) -> list[int]:
    return [sum(number == at for _, number in one.buy) for at in range(2)]


def test_nodes_are_replaced_by_cheaper_ones_and_others_stay() -> None:
    nodes = [sized("a", 16, "large"), sized("b", 16, "large"), sized("c", 2, "none")]
    pods = {f"p{n}": owned(make_pod().asks(cpu="1").on(on)) for n, on in enumerate("aab")}
    pods["own"] = make_pod().asks(cpu="1").on("c")  # it has no controller
    _, answer = found(nodes, pods)
    best = answer.exchanges[answer.chosen]
    # One of the three fits on c, which costs nothing.
    assert (best.remove, counts(best), best.after) == (("a", "b"), [1, 0], 1.0)
    assert (answer.today, answer.least) == (10.0, pytest.approx(1.0))
    assert not answer.exchanges[0].packing.moves
    assert answer.exchanges[0].after == 10.0


def test_what_a_move_costs_decides_and_no_more_move_than_allowed() -> None:
    nodes = [sized("a", 16, "large"), sized("b", 16, "large")]
    pods = {f"p{n}": owned(make_pod().asks(cpu="1").on(on)) for n, on in enumerate("aaaaab")}
    pods = {n: pod.labelled(app="db" if n == "p5" else "web") for n, pod in pods.items()}
    _, answer = found(nodes, pods)
    assert answer.exchanges[answer.chosen].after == 3.0
    dear = Prices(PRICES.nodes, 0.5)
    _, answer = found(nodes, pods, prices=dear)
    best = answer.exchanges[answer.chosen]
    assert (best.remove, best.after, best.moves_cost) == (("b",), 5.0, 0.5)
    dearest = Prices(PRICES.nodes, 0.5, ((parse_selector("app=db"), 50.0),))
    _, answer = found(nodes, pods, prices=dearest)
    assert answer.exchanges[answer.chosen].moves_cost < 50
    _, answer = found(nodes, pods, most_moves=1)
    assert len(answer.exchanges[answer.chosen].packing.moves) <= 1


def test_without_pods_that_may_move_empty_nodes_are_removed() -> None:
    nodes = [sized("a", 16, "large"), sized("b", 2, "small")]
    _, answer = found(nodes, {"own": make_pod().asks(cpu="1").on("b")})
    (only,) = answer.exchanges
    assert (only.remove, only.after, answer.today) == (("a",), 1.0, 6.0)


def test_files_are_asked_as_the_live_cluster_is() -> None:
    nodes = [sized(name, 16, "large") for name in "ab"]
    pods = [owned(make_pod(f"p{name}").asks(cpu="1").on(name)) for name in "ab"]
    spec = {
        "base": "empty",
        "objects": [one.manifest for one in (*nodes, *pods)],
        "pods": [
            make_pod("waits").asks(cpu="1").manifest,
            make_pod("huge").asks(cpu="99").manifest,
        ],
    }
    world = read_packing({"apiVersion": "stowage.dev/v1", "kind": "Packing", "spec": spec})
    small = {"name": "small", "price": 1, "node": {"status": {"capacity": {"cpu": "2"}}}}
    asked = {"catalogue": [small], "prices": [{"selector": "size=large", "price": 5}]}
    answer = run_node_advice({"spec": asked}, world, Base())
    status = answer["status"]
    assert (status["remove"], status["nodes"]) == (
        ["a", "b"], [{"name": "small", "count": 2, "price": 2}]
    )  # fmt: skip
    assert sorted(one["pod"] for one in status["moves"]) == ["default/pa", "default/pb"]
    assert [one["pod"] for one in status["left"]] == ["default/huge"]
    shown = table(answer)
    assert shown.startswith("Nodes cost 10 today and 2 after; no choice costs less than 2.")
    assert "Buy: 2 small. Remove: a, b." in shown
    status = run_node_advice({"spec": {"catalogue": [small]}}, world, Base())["status"]
    assert (status["moves"], status["remove"], status["fitAnyway"]) == ([], [], 1)
    for_live = {"namespace": "shop", "schedulerName": "other", "nominate": False}
    with pytest.raises(Invalid) as wrong:
        run_node_advice({"spec": {"catalogue": [small], **for_live}}, world, Base())
    assert [one.field for one in wrong.value.errors] == [f"spec.{name}" for name in for_live]


def test_nobody_moves_who_must_not_even_where_a_pod_finds_no_room_else() -> None:
    nodes = [sized("a", 2, "large"), sized("b", 3, "large")]
    pods = [owned(make_pod(f"p{name}").asks(cpu="1").on(name)) for name in "ab"]
    spec = {
        "base": "empty",
        "objects": [one.manifest for one in (*nodes, *pods)],
        "pods": [make_pod("waits").asks(cpu="3").manifest],
    }
    world = read_packing({"apiVersion": "stowage.dev/v1", "kind": "Packing", "spec": spec})
    status = {"allocatable": {"cpu": "1"}}  # and 110 pods, as it does not say
    catalogue = [{"name": "tiny", "price": 1, "node": {"status": status}}]
    found = run_node_advice({"spec": {"catalogue": catalogue}}, world, Base())["status"]
    assert (found["moves"], found["frees"], len(found["left"])) == ([], 0, 1)
    asked = {"catalogue": catalogue, "prices": [{"selector": "size=none", "price": 1}]}
    for most_moves, frees in ((1, 1), (0, 0)):
        answer = run_node_advice({"spec": {**asked, "mostMoves": most_moves}}, world, Base())
        assert (answer["status"]["frees"], len(answer["status"]["moves"])) == (frees, most_moves)
    spec |= {"objects": [], "pods": [make_pod("small").asks(cpu="1").manifest]}
    world = read_packing({"apiVersion": "stowage.dev/v1", "kind": "Packing", "spec": spec})
    assert (
        run_node_advice({"spec": {"catalogue": catalogue}}, world, Base())["status"]["frees"] == 1
    )


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(many(1, 100)))
def test_what_is_told_comes_true_wave_by_wave(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = [
        sized(f"n{n}", *((16, "large") if rng.random() < 0.6 else (2, "small"))) for n in range(6)
    ]
    free = {one.build().metadata.name: one.build() for one in nodes}
    room = {name: int(one.status.allocatable["cpu"]) * 10 for name, one in free.items()}
    pods = {}
    for n in range(25):
        cpu = int(rng.integers(2, 16))
        pod = make_pod().labelled(app=str(n % 3)).asks(cpu=f"{cpu}00m")
        if n % 5 == 0:
            pod = pod.away_from("kubernetes.io/hostname", app="0")
        on = str(rng.choice(sorted(room)))
        if room[on] >= cpu and n % 5 and rng.random() < 0.8:
            room[on] -= cpu
            pod = pod.on(on)
        pods[f"p{n}"] = owned(pod)
    before, answer = found(nodes, pods)
    best = answer.exchanges[answer.chosen]
    assert answer.least <= best.after + 1e-6
    prices = [one.after for one in answer.exchanges]
    assert prices == sorted(prices, reverse=True)
    assert len({len(one.packing.placed) for one in answer.exchanges}) == 1
    world = before
    for node, _ in best.buy:
        world.set_node(node)
    options = Options(preempt=False)

    def lands(key: object, info: Any, told: str) -> int:
        place = PodToPlace(key, info, told)
        decision = schedule_pod(world, FRAMEWORKS["default-scheduler"], place, options)
        assert decision.node_name == told
        world.assume(key, info, decision.row)
        return decision.row

    for wave in sorted({move.wave for move in best.packing.moves} - {0}):
        going = [move for move in best.packing.moves if move.wave == wave]
        for move in going:  # its place is taken before it leaves
            record = world.pod(move.key)
            assert record is not None
            lands(("new", move.key), record.info, move.target)
        for move in going:
            world.remove_pod(move.key)
    swaps = [(move, world.pod(move.key)) for move in best.packing.moves if not move.wave]
    for move, _ in swaps:
        world.remove_pod(move.key)
    for move, record in swaps:
        assert record is not None
        lands(("new", move.key), record.info, move.target)
    for key, name in best.packing.placed.items():
        manifest = pods[str(key).partition("/")[2]].build()
        lands(key, world.intern(from_pod(manifest)), name)
    for name in best.remove:
        row = world.row_of(name)
        assert row is not None
        assert not world.pod_count[row]
    assert msgspec.structs.asdict(best)["after"] == pytest.approx(
        sum(PRICES.of(world.node(row).metadata.labels) for row in world.rows().tolist())
        - sum(PRICES.of(free[name].metadata.labels) for name in best.remove)
    )

"""Random worlds of unlike gangs, with CP-SAT as the referee: whatever can be placed is (issue 34).

The referee knows nothing of classes, columns or the product's model: it places pod by pod, each
after those that it needs. Of each world it says whether the gang can be placed at all; it has a
minute for that, the product's search one second.
"""

import random
from typing import Any

import pytest

from clusterstate.objects.values.compatibility import Compatibility
from scheduling.engine.groups import schedule_group
from scheduling.engine.reference.cycle import Options
from scheduling.engine.snapshot import Snapshot
from scheduling.packing.gang_facts import assignment, gang_problem
from scheduling.packing.gangs import IMPOSSIBLE, search
from tests.engine.test_gang_search import HOST, names_of, places, with_terms
from tests.engine.test_groups import RACK, cluster, group, in_rack, member
from tests.forms import many
from tests.harness import kubernetes_framework

pytest.importorskip("ortools")

WISHES = (None, None, ("podAffinity", "a"), ("podAntiAffinity", "a"), ("podAntiAffinity", "b"))


class World:
    """A gang of 4 to 9 pods of a few kinds, and 3 to 7 nodes in racks, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.sizes = [draw.choice((2, 4, 6, 8)) for _ in range(draw.randint(3, 7))]
        self.racks = [draw.choice("xyz"[: draw.randint(1, 3)]) for _ in self.sizes]
        kinds = [
            (draw.randint(1, 4), draw.choice("ab"), draw.choice(WISHES), draw.choice((HOST, RACK)))
            for _ in range(draw.randint(2, 4))
        ]
        self.pods = [draw.choice(kinds) for _ in range(draw.randint(4, 9))]
        self.one_rack = draw.random() < 0.4

    def snapshot(self) -> Snapshot:
        return cluster(*map(str, self.sizes), racks=tuple(self.racks))

    def members(self) -> list[Any]:
        found = []
        for number, (cpu, app, wish, key) in enumerate(self.pods):
            pod = member(f"p{number}", cpu=str(cpu)).labelled(app=app)
            found.append(with_terms(pod, *wish, key) if wish else pod)
        return found

    def domain(self, node: int, key: str) -> object:
        return node if key == HOST else self.racks[node]


def can_be_placed(world: World, seconds: float = 60.0) -> bool:
    """Return the referee's verdict. Rules: interpodaffinity/filtering.go, v1.36."""
    from ortools.sat.python import cp_model

    model, pods, nodes = cp_model.CpModel(), range(len(world.pods)), range(len(world.sizes))
    on = {(p, n): model.new_bool_var("") for p in pods for n in nodes}
    turn = [model.new_int_var(0, len(world.pods) - 1, "") for _ in pods]
    model.add_all_different(turn)
    for p in pods:
        model.add_exactly_one(on[p, n] for n in nodes)
    for n in nodes:
        model.add(sum(world.pods[p][0] * on[p, n] for p in pods) <= world.sizes[n])
    if world.one_rack:
        rack = {one: model.new_bool_var("") for one in set(world.racks)}
        model.add_exactly_one(rack.values())
        for p in pods:
            for n in nodes:
                model.add_implication(on[p, n], rack[world.racks[n]])
    for p in pods:
        _, app, wish, key = world.pods[p]
        if wish is None:
            continue
        others = [q for q in pods if q != p and world.pods[q][1] == wish[1]]
        together = {}
        for q in others:
            near = together[q] = model.new_bool_var("")
            for n in nodes:
                beside = [on[q, m] for m in nodes if world.domain(m, key) == world.domain(n, key)]
                model.add(sum(beside) == 1).only_enforce_if(near, on[p, n])
                model.add(sum(beside) == 0).only_enforce_if(~near, on[p, n])
        if wish[0] == "podAntiAffinity":
            for near in together.values():
                model.add(near == 0)
            continue
        served = []
        for q in others:
            first = model.new_bool_var("")
            model.add(turn[q] < turn[p]).only_enforce_if(first)
            model.add_implication(first, together[q])
            served.append(first)
        if app == wish[1]:  # nobody of that kind is anywhere yet
            alone = model.new_bool_var("")
            for q in others:
                model.add(turn[q] > turn[p]).only_enforce_if(alone)
            served.append(alone)
        model.add_bool_or(served)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE), "too late"
    return status != cp_model.INFEASIBLE


def outcome(world: World) -> str:
    """Return how the product places a world: ``greedy``, ``search``, ``proof`` or ``late``."""
    made = group(count=len(world.pods), **(in_rack() if world.one_rack else {}))
    framework = kubernetes_framework()
    snapshot = world.snapshot()
    snapshot.groups.set(made)
    ready = places(snapshot, world.members())
    if schedule_group(snapshot, framework, made.key, ready, Options(seed=1)).placed:
        return "greedy"
    problem = gang_problem(snapshot, framework, made, ready, 0)
    assert problem is not None
    answer = search(problem, 1.0)
    if answer.outcome == IMPOSSIBLE:
        return "proof"
    found = schedule_group(
        snapshot, framework, made.key, ready, Options(seed=1),
        assigned=assignment(names_of(snapshot), ready, answer),
    )  # fmt: skip
    return "search" if found.placed else "late"


def placed_by_kubernetes(world: World, seed: int = 1) -> bool:
    """Return whether kube-scheduler's rules for groups place a world (``compatibility: 1.36``)."""
    made = group(count=len(world.pods), **(in_rack() if world.one_rack else {}))
    snapshot = world.snapshot()
    snapshot.compatibility = Compatibility.V1_36
    snapshot.groups.set(made)
    ready = places(snapshot, world.members())
    framework = kubernetes_framework(Compatibility.V1_36)
    return schedule_group(snapshot, framework, made.key, ready, Options(seed=seed)).placed


@pytest.mark.drawn
def test_of_random_worlds_those_are_placed_that_can_be(capsys: pytest.CaptureFixture[str]):
    counts = {"greedy": 0, "search": 0, "proof": 0, "late": 0}
    missed, wrong, possible, kubernetes = [], [], 0, 0
    for seed in range(many(25, 1000)):
        world = World(seed)
        told, can = outcome(world), can_be_placed(world)
        counts[told] += 1
        possible += can
        kubernetes += placed_by_kubernetes(world)
        assert can or not placed_by_kubernetes(world)
        if can and told not in ("greedy", "search"):
            missed.append((seed, told))
        if not can and told in ("greedy", "search"):
            wrong.append((seed, told))
    with capsys.disabled():
        print(f"\n{counts}, {possible} can be placed, missed {missed}, wrong {wrong}")
        print(f"kube-scheduler's rules place {kubernetes}")
    assert wrong == []
    assert missed == []

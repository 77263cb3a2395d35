"""Which nodes to buy: every pod has a place, the bound bounds, and the price is near the best."""

import itertools
import math

import msgspec
import numpy as np
import pytest

from scheduling.framework.arrays import Int64
from scheduling.packing import patterns, purchase, search
from scheduling.packing.problem import Bought, Needs, Problem
from tests.forms import many
from tests.packing import worlds

_COPIES = 5


def world(seed: int, pods: int = 24, kinds: int = 6, shapes: int = 4) -> tuple[Needs, Problem]:
    """Return what is asked, and the same with copies of each shape, to be solved exactly."""
    rng = np.random.default_rng(seed)
    cpu = rng.choice([4, 8, 16, 32], shapes)
    memory = cpu * rng.choice([2, 4, 8], shapes)
    prices = np.round(cpu * (1 + memory / cpu / 8) * rng.uniform(0.8, 1.2, shapes), 2)
    sorts = [(int(rng.integers(1, 13)), int(rng.integers(1, 33))) for _ in range(kinds)]
    asked = [sorts[int(at)] for at in rng.integers(0, kinds, pods)]
    free = list(zip((cpu * 4).tolist(), (memory * 4).tolist(), strict=True))
    priorities = rng.integers(0, 3, len(set(asked))).tolist()
    needs = Needs(
        problem=worlds.problem(free, asked, priorities=priorities),
        prices=prices,
        most=np.full(shapes, _COPIES),
    )
    cents = [math.ceil(price * 100) for price in prices]
    exact = worlds.problem(free * _COPIES, asked, prices=cents * _COPIES)
    return needs, exact


def check(needs: Needs, found: Bought) -> Int64:
    """Return how many nodes of each shape; every rule holds."""
    problem = needs.problem
    counts: Int64 = np.bincount(found.shapes, minlength=len(needs.prices))
    assert (found.pods.sum(0) <= problem.counts).all()
    assert (counts <= needs.most).all()
    for shape, pods in zip(found.shapes.tolist(), found.pods, strict=True):
        assert (pods @ problem.requests <= problem.free[shape]).all()
        assert (pods <= problem.limits[:, shape]).all()
        assert not any(pods[a] and pods[b] for a, b in problem.apart)
    assert math.isclose(found.price, float(needs.prices @ counts), abs_tol=1e-9)
    return counts


def test_for_no_pods_nothing_is_bought() -> None:
    needs, _ = world(0, pods=3, kinds=3)
    needs.problem.limits[:] = 0  # no shape takes any of these
    by_class = ("requests", "counts", "weights", "limits", "stays", "move_costs", "start")
    empty = {name: getattr(needs.problem, name)[:0] for name in by_class}
    no_pods = msgspec.structs.replace(needs.problem, apart=[], **empty)
    for problem in (needs.problem, no_pods):
        asked = msgspec.structs.replace(needs, problem=problem)
        found = purchase.buy(asked, work=0.05, seconds=60.0)
        assert not found.shapes.size
        assert found.pods.shape == (0, len(problem.counts))
        assert (found.price, found.least) == (0.0, 0.0)


@pytest.mark.drawn
def test_the_price_is_near_the_proven_optimum_and_the_bound_is_below_it() -> None:
    gaps = []
    for seed in range(many(2, 4)):
        needs, exact = world(seed)
        found = purchase.buy(needs, work=0.4, seconds=200.0)
        check(needs, found)
        assert (found.pods.sum(0) == needs.problem.counts).all()
        exact = msgspec.structs.replace(exact, start=_first_fit(exact))
        best = search.pack(exact, work=0.6, seconds=400.0)
        assert best.value == best.most
        assert found.least <= best.cost / 100 + 1e-6
        gaps.append(found.price / (best.cost / 100) - 1)
    assert float(np.mean(gaps)) <= 0.01
    assert max(gaps) <= 0.03


def _first_fit(problem: Problem) -> Int64:
    """Return each pod on the first node that has room."""
    x, free = np.zeros_like(problem.start), problem.free.copy()
    for c, count in enumerate(problem.counts.tolist()):
        for _ in range(count):
            node = int(np.flatnonzero((free >= problem.requests[c]).all(1))[0])
            x[c, node] += 1
            free[node] -= problem.requests[c]
    return x


@pytest.mark.drawn
def test_a_thousand_pods_of_fifty_classes_cost_little_more_than_the_bound() -> None:
    gaps = []
    for seed in (2, 9, 21, 36)[: many(1, 4)]:
        needs = worlds.catalogue(seed)
        found = purchase.buy(needs, work=0.4, seconds=100.0)
        check(needs, found)
        assert (found.pods.sum(0) == needs.problem.counts).all()
        gaps.append(found.price / found.least - 1)
    assert float(np.mean(gaps)) <= 0.01, gaps
    assert max(gaps) <= 0.02, gaps


def test_no_filling_is_worth_more_than_the_pattern_that_the_search_ends_with() -> None:
    rng = np.random.default_rng(4)
    for _ in range(60):
        requests = rng.integers(0, 6, (5, 2)).astype(np.int64)
        requests[:, 0] += 1
        free, caps = rng.integers(3, 14, 2).astype(np.int64), rng.integers(0, 4, 5).astype(np.int64)
        worth, rents = rng.uniform(0, 5, 5), rng.uniform(0, 1, 2)
        apart = np.zeros((5, 5), np.bool_)
        apart[0, 1] = apart[1, 0] = rng.random() < 0.5
        best = 0.0
        for pods in itertools.product(*(range(cap + 1) for cap in caps.tolist())):
            taken = np.array(pods, np.int64)
            if (taken @ requests <= free).all() and not (apart[0, 1] and pods[0] and pods[1]):
                best = max(best, float(taken @ worth))
        found = np.zeros(5, np.int64)
        bound = patterns.most_value(worth, requests, free, caps, rents, 40)
        value, is_complete, _ = patterns.best_pattern(
            worth, requests, free, caps, apart, rents, 0.0, 100_000, found
        )
        assert is_complete
        assert math.isclose(value, best, abs_tol=1e-6)
        assert math.isclose(float(found @ worth), best, abs_tol=1e-6)
        assert bound >= best - 1e-6


def test_limits_and_pods_that_keep_apart_are_kept_and_what_fits_nowhere_is_left() -> None:
    problem = worlds.problem([(4, 4), (2, 2)], [(1, 1)] * 3 + [(2, 2)] + [(9, 9)], apart=[(0, 1)])
    needs = Needs(problem=problem, prices=np.array([3.0, 2.0]), most=np.array([1, 2]))
    found = purchase.buy(needs, work=0.2, seconds=100.0)
    counts = check(needs, found)
    assert found.pods.sum(0).tolist() == [3, 1, 0]
    assert counts.tolist() == [1, 1]
    nothing = purchase.buy(
        msgspec.structs.replace(needs, most=np.array([0, 0])), work=0.2, seconds=100.0
    )
    assert (len(nothing.shapes), nothing.price) == (0, 0.0)


def test_the_same_question_has_the_same_answer() -> None:
    needs, _ = world(5)
    first, again = (purchase.buy(needs, work=0.2, seconds=200.0) for _ in range(2))
    assert np.array_equal(first.shapes, again.shapes)
    assert np.array_equal(first.pods, again.pods)

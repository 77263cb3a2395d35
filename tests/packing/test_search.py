"""The packer's search on numbers: what fits is found, rules are kept, bounds bound.

Limits are in the solver's own measure of work, so that a busy machine changes no answer.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.packing import bounds, search
from scheduling.packing.problem import PackingAnswer, Problem, weights_of
from tests.forms import few
from tests.packing import worlds
from tests.strategies import by_chance

WORLDS = {
    "all pods and nodes different": worlds.exact(100, 10, 4, mixed=True),
    "with devices": worlds.exact(80, 8, 7, mixed=True, devices=True),
    "few classes": worlds.classes(100, 20, 1),
    "all pods different": worlds.exact(100, 10, 3),
    "large pods": worlds.exact(100, 5, 6),
    "many classes, nodes differ": worlds.classes(100, 60, 2, mixed=True),
}


def packed(problem: Problem, work: float = 0.6, seed: int = 0) -> PackingAnswer:
    return search.pack(problem, work=work, seconds=100.0, seed=seed)


@pytest.mark.parametrize("name", few(WORLDS, 3))
def test_of_pods_that_fill_a_cluster_exactly_99_in_100_are_placed(name: str) -> None:
    problem = worlds.problem(*WORLDS[name])
    found = packed(problem)
    assert problem.is_valid(found.x)
    assert found.value >= 0.99 * problem.counts.sum()
    assert found.most == problem.counts.sum()


def test_the_same_question_has_the_same_answer() -> None:
    problem = worlds.problem(*worlds.exact(30, 8, 11))
    first, again = packed(problem, 0.2), packed(problem, 0.2)
    assert np.array_equal(first.x, again.x)
    assert (first.steps, first.work) == (again.steps, again.work)


def test_what_does_not_fit_is_bounded_closely() -> None:
    capacities, pods = worlds.classes(60, 20, 5)
    problem = worlds.problem(capacities[:45], pods)
    found = packed(problem)
    assert problem.is_valid(found.x)
    assert found.value <= found.most < problem.counts.sum()
    assert found.value >= 0.95 * found.most


def test_one_pod_of_high_priority_goes_before_many_of_low_priority() -> None:
    problem = worlds.problem([(10, 10)], [(1, 1)] * 10 + [(10, 10)], priorities=[0, 1000])
    found = packed(problem)
    assert found.x.sum(1).tolist() == [0, 1]
    assert found.complete


def test_prices_of_nodes_leave_no_pod_out() -> None:
    capacities, pods = worlds.exact(40, 8, 9)
    problem = worlds.problem(capacities, pods, prices=[1000] * 40)
    found = packed(problem, 0.1)
    assert problem.is_valid(found.x)
    assert found.value >= 0.97 * problem.counts.sum()
    assert found.greedy >= 0.9 * problem.counts.sum()


def test_weights_keep_the_order_of_priorities_as_far_as_numbers_reach() -> None:
    counts = [100] * 12
    weights = weights_of(list(range(12)), counts)
    assert weights[11] > weights[10] * counts[10]
    assert int(weights @ np.array(counts)) < 2**50
    assert (np.diff(weights) >= 0).all()


def brute_force(problem: Problem) -> tuple[int, int]:
    """Return value and cost of the best placement, all of them tried."""
    caps = problem.most_of_each()
    best = (-1, 0)
    ranges = [range(int(cap) + 1) for cap in caps.ravel()]
    for choice in itertools.product(*ranges):
        x = np.array(choice, np.int64).reshape(caps.shape)
        if problem.is_valid(x):
            best = max(best, (problem.placed_value(x), -problem.cost(x)))
    return best[0], -best[1]


@st.composite
def small(draw: st.DrawFn) -> Problem:
    amounts = st.tuples(st.integers(1, 6), st.integers(0, 6))
    nodes = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=3))
    pods = draw(st.lists(amounts, min_size=1, max_size=4))
    kinds = len(set(pods))
    prices = draw(st.lists(st.integers(0, 5), min_size=len(nodes), max_size=len(nodes)))
    apart = [(0, 1)] if kinds > 1 and draw(st.booleans()) else []
    levels = draw(st.lists(st.integers(0, 2), min_size=kinds, max_size=kinds))
    problem = worlds.problem(nodes, pods, prices=prices, apart=apart, priorities=levels)
    problem.limits *= np.array(
        draw(st.lists(st.booleans(), min_size=problem.limits.size, max_size=problem.limits.size))
    ).reshape(problem.limits.shape)
    if draw(st.booleans()):  # pods that run already, where the search would begin
        running = search.pack(problem, work=0.1, seconds=100.0).x
        problem.start = running
        problem.stays = running.copy()
        problem.move_costs = np.ones(kinds, np.int64)
    return problem


@by_chance
@given(small())
def test_small_problems_are_solved_and_bounded_as_trying_everything_says(problem: Problem) -> None:
    value, cost = brute_force(problem)
    found = packed(problem, 1.0)
    assert problem.is_valid(found.x)
    assert (found.value, found.cost) == (value, cost)
    assert found.most >= value
    assert found.least <= cost
    caps = problem.most_of_each()
    assert bounds.most_value(problem, caps) >= value
    assert bounds.least_price(problem, caps, found.x.sum(1)) <= cost

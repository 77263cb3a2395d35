"""Which nodes to remove and to buy: every proposal keeps the rules, and what it saves."""

import msgspec
import numpy as np

from scheduling.framework.arrays import Int64
from scheduling.packing import exchange, purchase, search
from scheduling.packing.exchange import Exchanges
from scheduling.packing.problem import Bought, Needs, PackingAnswer, Problem
from tests.forms import many
from tests.packing import worlds

_SHAPES = 10


def explored(problem: Problem, shapes: int, *, most: int = 50, work: float = 0.02) -> Exchanges:
    def buy(needs: Needs) -> Bought:
        return purchase.buy(needs, work=3 * work, seconds=100.0)

    def pack(asked: Problem) -> PackingAnswer:
        return search.pack(asked, work=work, seconds=100.0)

    prices = problem.prices.astype(float)
    of_each = np.full(shapes, most)
    return exchange.explore(problem, prices, of_each, most, buy=buy, pack=pack)


def price(problem: Problem, x: Int64) -> int:
    return int(problem.prices @ x.any(0))


def one_at_a_time(problem: Problem, shapes: int) -> tuple[int, int]:
    """Return price and moves by Karpenter's rule: a node is removed or replaced by a cheaper one.

    The node with the fewest pods first, again and again. Its pods go to nodes that are there, each
    to the one with the least room left, and those that fit on none together to one new node, the
    cheapest that takes them, if that is cheaper than the node (karpenter.sh, Disruption,
    single-node consolidation).
    """
    asked, scale = problem.requests, np.maximum(problem.free.max(0), 1)
    here = len(problem.free) - shapes
    nodes = [(int(problem.prices[n]), problem.free[n], problem.start[:, n]) for n in range(here)]
    nodes, moves = [one for one in nodes if one[2].any()], 0
    largest = np.argsort(-(asked / scale).sum(1)).tolist()
    at = 0
    while at < len(nodes):
        nodes.sort(key=lambda one: one[2].sum())
        (cost, _, left), others = nodes[at], nodes[:at] + nodes[at + 1 :]
        rooms = [free - pods @ asked for _, free, pods in others]
        taken, left = [pods.copy() for _, _, pods in others], left.copy()
        for c in largest:
            while left[c]:
                fits = [n for n, room in enumerate(rooms) if (room >= asked[c]).all()]
                if not fits:
                    break
                best = min(fits, key=lambda n: float((rooms[n] / scale).sum()))
                rooms[best] = rooms[best] - asked[c]
                taken[best][c] += 1
                left[c] -= 1
        cheaper = [
            (int(problem.prices[n]), n)
            for n in range(here, here + shapes)
            if problem.prices[n] < cost and (left @ asked <= problem.free[n]).all()
        ]
        if left.any() and not cheaper:
            at += 1
            continue
        moves += int(nodes[at][2].sum())
        nodes = [(p, free, pods) for (p, free, _), pods in zip(others, taken, strict=True)]
        if left.any():
            nodes.append((min(cheaper)[0], problem.free[min(cheaper)[1]], left))
        at = 0
    return sum(cost for cost, _, _ in nodes), moves


def test_a_combination_costs_a_tenth_less_than_one_node_at_a_time() -> None:
    ours = theirs = 0
    for seed in range(many(1, 16)):
        _, problem = worlds.running(seed, shapes=_SHAPES)
        found = explored(problem, _SHAPES)
        assert all(found.problem.is_valid(x) for x in found.placements)
        costs = [price(found.problem, x) for x in found.placements]
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] >= found.least - 1e-6
        today, moved = price(problem, problem.start), found.problem.stays - found.placements[0]
        assert costs[0] <= today or moved.any()
        ours += costs[-1]
        theirs += one_at_a_time(problem, _SHAPES)[0]
    assert ours <= 0.9 * theirs


def test_for_pods_that_wait_nodes_are_bought_where_no_move_pays() -> None:
    """A pod of 3 waits, nodes of 4 cost 4; moving two pods of 1 would spare the second node."""
    nodes = [(4, 9), (4, 9), (4, 9)]  # the third is the shape
    problem = worlds.problem(nodes, [(1, 1)] * 4 + [(3, 1)], prices=[4, 4, 4])
    problem.start[0] = problem.stays[0] = [2, 2, 0]
    problem.move_costs = np.array([3, 3])
    found = explored(problem, 1, most=2)
    told = [
        (price(found.problem, x), int(np.maximum(found.problem.stays - x, 0).sum()))
        for x in found.placements
    ]
    assert told == [(12, 0), (8, 1)]
    assert found.least <= 8
    # None can be bought, and one move makes room.
    none = explored(problem, 1, most=0)
    assert [price(none.problem, x) for x in none.placements] == [8]


def test_no_more_nodes_are_bought_than_asked_for_and_the_bound_is_of_as_many_pods() -> None:
    """Nobody moves with one node of 4, all move with one of 9; no choice has both of these."""
    pods = [(2, 1), (3, 1), (4, 1)]
    problem = worlds.problem([(4, 9), (4, 9), (4, 9), (9, 9)], pods, prices=[4, 4, 1, 2])
    problem.start[[0, 1], [0, 1]] = problem.stays[[0, 1], [0, 1]] = 1
    problem.move_costs = np.array([1, 1, 0])
    both = np.array([[0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]])

    def pack(asked: Problem) -> PackingAnswer:
        found = search.pack(asked, work=0.001, seconds=100.0)
        return msgspec.structs.replace(found, x=both)

    def buy(needs: Needs) -> Bought:
        return purchase.buy(needs, work=0.02, seconds=100.0)

    prices, one_each = problem.prices.astype(float), np.array([1, 1])
    found = exchange.explore(problem, prices, one_each, 1, buy=buy, pack=pack)
    assert [price(found.problem, x) for x in found.placements] == [9, 2]
    three = worlds.problem([(4, 9), (4, 9)], [(4, 1)] * 3, prices=[4, 4])
    for most in (2, 3):
        found = explored(three, 2, most=most)
        (x,) = found.placements
        assert (price(found.problem, x), x.sum()) == (4 * most, most)
        assert round(found.least) == (12 if most == 3 else 0)

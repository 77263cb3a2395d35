"""Which nodes to remove and which to buy in their place: several answers to choose from.

Savings are weighed against moves. At one extreme no pod moves and nodes are bought only for waiting
pods; at the other all movable pods are packed anew into the cheapest set of nodes (``purchase``).
``search`` looks for placements between and around these, from the best known placement, at several
prices of a move.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from scheduling.framework.arrays import Float64, Int64
from scheduling.packing.problem import Bought, Needs, PackingAnswer, Problem

_SPARE: Final = 2
"""The search may use this many more nodes of each shape than the purchases used."""
_FACTORS: Final = (4.0, 2.0, 1.0, 0.5)
"""Prices of a move to try, as multiples of what a move saves on average if all is packed anew."""

Buy = Callable[[Needs], Bought]
Pack = Callable[[Problem], PackingAnswer]


class Exchanges(msgspec.Struct, frozen=True):
    """Placements to choose from, the one with the lowest cost of moves first.

    ``columns``: for each node of ``problem`` its column in the original problem; each shape occurs
    as often as it may be bought. ``placements``: each int64 (C, N), with a lower sum of prices than
    those before it. ``least``: a lower bound of that sum, for sets of nodes that take as many pods.
    """

    problem: Problem
    columns: list[int]
    placements: list[Int64]
    least: float


def explore(
    problem: Problem, prices: Float64, many: Int64, most: int, *, buy: Buy, pack: Pack
) -> Exchanges:
    """Return placements of the pods; each places as many pods as the best one that was found.

    Args:
        problem: the existing nodes, then one of each shape; ``start``: where the pods are now.
        prices: (N,) of the nodes; those of ``problem`` are rounded to whole numbers.
        many: (S,) how many nodes of each shape can be bought.
        most: the most nodes of all shapes together.
        buy: the solver for sets of nodes.
        pack: the solver for placements.
    """
    here = len(problem.free) - len(many)
    anew, least = _packed_anew(problem, prices, many, buy)
    sets = (_added(problem, prices, many, buy), anew)
    used = np.zeros(len(many), np.int64)
    for one in sets:
        of_set = np.bincount([c - here for c, _ in one if c >= here], minlength=len(many))
        used = np.maximum(used, of_set)
    spare = max(min(_SPARE, (most - int(used.sum())) // max(len(many), 1)), 0)
    copies = np.minimum(used + spare, many).tolist()
    columns = [*range(here), *(here + s for s, count in enumerate(copies) for _ in range(count))]
    wide = columns_of(problem, columns)
    found = [wide.start]
    for one in sets:
        x = _within(wide, _placed(wide, columns, one, here), here, most)
        if wide.is_valid(x):
            found.append(x)
    worth = [int(wide.prices @ x.any(0)) for x in found]
    moves = [wide.cost(x) - price for x, price in zip(found, worth, strict=True)]
    saved, moved = max(worth) - min(worth), max(moves)
    for factor in (*_FACTORS, 0.0):
        costs = problem.move_costs
        if factor and moved:
            costs = np.rint(costs * (factor * saved / moved)).astype(np.int64)
            costs = np.where(problem.move_costs > 0, np.maximum(costs, 1), 0)
        asked = msgspec.structs.replace(wide, move_costs=costs)
        best = min(found, key=lambda x: (-asked.placed_value(x), asked.cost(x)))
        packed = pack(msgspec.structs.replace(asked, start=best))
        x = _within(wide, packed.x, here, most)
        if wide.is_valid(x):
            found.append(x)
    value = max(map(wide.placed_value, found))
    if sum(int(problem.weights @ pods) for _, pods in anew) > value:
        least = 0.0  # a bound for more pods than that many nodes take
    return Exchanges(wide, columns, _undominated(wide, found, value), least)


def _undominated(problem: Problem, found: Sequence[Int64], value: int) -> list[Int64]:
    """Return the placements for which no other one has lower costs of both nodes and moves."""
    worth = [
        (problem.cost(x) - int(problem.prices @ x.any(0)), int(problem.prices @ x.any(0)), at)
        for at, x in enumerate(found)
        if problem.placed_value(x) == value
    ]
    kept: list[Int64] = []
    lowest: float = np.inf
    for _, price, at in sorted(worth):
        if price < lowest:
            lowest = price
            kept.append(found[at])
    return kept


_Set = list[tuple[int, Int64]]
"""Nodes by their number among those that were asked about, with the pods (C,) of each."""


def _packed_anew(problem: Problem, prices: Float64, many: Int64, buy: Buy) -> tuple[_Set, float]:
    """Return the cheapest set for all pods, and a lower bound of the price of any set.

    Nodes without a price belong to every set; those with one are bought like the shapes.
    """
    here = len(problem.free) - len(many)
    kept = [n for n in range(here) if not problem.prices[n]]
    alike: dict[tuple[bytes, bytes, float], list[int]] = {}
    for n in range(here):
        if problem.prices[n]:
            key = problem.free[n].tobytes(), problem.limits[:, n].tobytes(), float(prices[n])
            alike.setdefault(key, []).append(n)
    kinds = list(alike.values())
    order = [*kept, *(nodes[0] for nodes in kinds), *range(here, len(problem.free))]
    counts = np.array([*(len(nodes) for nodes in kinds), *many.tolist()], np.int64)
    needs = Needs(
        problem=columns_of(problem, order), prices=prices[order[len(kept) :]], most=counts
    )
    bought = buy(needs)
    found: _Set = []
    of_kind: dict[int, list[Int64]] = {}
    for shape, pods in zip(bought.shapes.tolist(), bought.pods, strict=True):
        if shape < 0:
            found.append((kept[-1 - shape], pods))
        elif shape < len(kinds):
            of_kind.setdefault(shape, []).append(pods)
        else:
            found.append((here + shape - len(kinds), pods))
    for kind, filled in of_kind.items():
        found += _nearest(problem, kinds[kind], filled)
    return found, bought.least


def _nearest(problem: Problem, nodes: Sequence[int], filled: Sequence[Int64]) -> _Set:
    """Return a set that assigns the ``filled`` patterns to like nodes so that few pods move."""
    left, found = np.array(nodes, np.int64), []
    for pods in sorted(filled, key=lambda one: -int(one.sum())):
        staying = problem.move_costs @ np.minimum(pods[:, None], problem.stays[:, left])
        best = int(staying.argmax())
        found.append((int(left[best]), pods))
        left = np.delete(left, best)
    return found


def _added(problem: Problem, prices: Float64, many: Int64, buy: Buy) -> _Set:
    """Return a set in which all placed pods stay, with nodes bought for the others."""
    here, start = len(problem.free) - len(many), problem.start
    waiting = problem.counts - start.sum(1)
    found = {n: start[:, n].copy() for n in np.flatnonzero(start.any(0)).tolist()}
    if waiting.any():
        limits = problem.limits - start
        for a, b in problem.apart:
            limits[a] *= start[b] == 0
            limits[b] *= start[a] == 0
        left = msgspec.structs.replace(
            problem, counts=waiting, free=problem.free - start.T @ problem.requests, limits=limits
        )
        bought = buy(Needs(problem=left, prices=prices[here:], most=many))
        more: _Set = []
        for shape, pods in zip(bought.shapes.tolist(), bought.pods, strict=True):
            if shape < 0:
                found[-1 - shape] = found.get(-1 - shape, 0) + pods
            else:
                more.append((here + shape, pods))
        return [*found.items(), *more]
    return list(found.items())


def _within(problem: Problem, x: Int64, here: int, most: int) -> Int64:
    """Return a placement with at most ``most`` new nodes, without the pods of the others.

    New nodes are those from column ``here`` on, which all known sets share; those whose pods weigh
    least are emptied.
    """
    bought = here + np.flatnonzero(x[:, here:].any(0))
    least_first = np.argsort(problem.weights @ x[:, bought], kind="stable")
    x = x.copy()
    x[:, bought[least_first[: max(len(bought) - most, 0)]]] = 0
    return x


def _placed(problem: Problem, columns: Sequence[int], found: _Set, here: int) -> Int64:
    """Return a set as a placement, int64 (C, N); nodes of a shape are used in order."""
    x = np.zeros_like(problem.start)
    free: dict[int, list[int]] = {}
    for at, n in enumerate(columns):
        free.setdefault(n, []).append(at)
    for n, pods in found:
        x[:, free[n].pop(0) if n >= here else n] = pods
    return x


def columns_of(problem: Problem, columns: Sequence[int]) -> Problem:
    """Return the problem with the nodes of these columns, in this order; columns may repeat."""
    return msgspec.structs.replace(
        problem,
        free=problem.free[columns],
        limits=problem.limits[:, columns],
        stays=problem.stays[:, columns],
        prices=problem.prices[columns],
        start=problem.start[:, columns],
    )

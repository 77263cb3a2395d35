"""A packing problem in numbers, and the value of an answer.

Axes of the arrays are classes of pods (C), nodes (N) and resources (R). A placement is an int64
array (C, N): how many pods of each class are on each node.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from scheduling.framework.arrays import Float64, Int64, Mask

MOST_CELLS: Final = 20_000_000
"""Limit of classes times nodes, so that the process takes a few hundred megabytes."""
_LARGEST_WEIGHT: Final = 2**30
"""This times the prices and pods of a step must stay below 2**63."""


class Problem(msgspec.Struct, kw_only=True):
    """The pods to place, and the free amounts of the nodes.

    A placement has the value ``weights`` for each pod that it places; of equal ones the better has
    the lower sum of ``prices`` of the nodes in use and ``move_costs`` of the pods that leave their
    nodes. Pods that are on nodes (``stays``) must be on some node again.
    """

    requests: Int64
    """(C, R) the amounts that one pod takes, in the units of ``free``."""
    counts: Int64
    """(C,) pods, those of ``stays`` included."""
    weights: Int64
    """(C,) what each placed pod is worth."""
    free: Int64
    """(N, R) what the node has for these pods."""
    limits: Int64
    """(C, N) the most pods that rules other than amounts allow on the node; 0: none."""
    apart: list[tuple[int, int]]
    """Pairs of classes whose pods must not share a node."""
    stays: Int64
    """(C, N) pods that are there already and may move."""
    prices: Int64
    """(N,) the price of having any of these pods on the node."""
    move_costs: Int64
    """(C,) the cost of one pod's move to another node."""
    start: Int64
    """(C, N) a placement that is known."""

    def most_of_each(self) -> Int64:
        """Return how many pods of each class a node takes if it takes no others, int64 (C, N)."""
        found = np.minimum(self.limits, self.counts[:, None])
        for at in range(self.free.shape[1]):
            asked = self.requests[:, at]
            some = asked > 0
            fits = np.maximum(self.free[:, at], 0)[None, :] // asked[some, None]
            found[some] = np.minimum(found[some], fits)
        return found

    def placed_value(self, x: Int64) -> int:
        """Return the sum of the weights of the pods that a placement places."""
        return int(self.weights @ x.sum(1))

    def cost(self, x: Int64) -> int:
        """Return the cost of a placement: prices of its nodes in use, and costs of its moves."""
        moved = np.maximum(self.stays - x, 0).sum(1)
        return int(self.prices @ (x.any(0))) + int(self.move_costs @ moved)

    def broken(self) -> Mask:
        """Return a mask (N,): the nodes on which the placement ``start`` breaks a rule."""
        x = self.start
        wrong: Mask = np.any(x > self.limits, axis=0)
        wrong = wrong | np.any(x.T @ self.requests > np.maximum(self.free, 0), axis=1)
        for a, b in self.apart:
            wrong = wrong | ((x[a] > 0) & (x[b] > 0))
        return wrong

    def is_valid(self, x: Int64) -> bool:
        """Return whether a placement keeps every rule."""
        return bool(
            (x >= 0).all()
            and (x <= self.limits).all()
            and (x.sum(1) <= self.counts).all()
            and (x.sum(1) >= self.stays.sum(1)).all()
            and (x.T @ self.requests <= np.maximum(self.free, 0)).all()
            and not any((x[a].astype(bool) & x[b].astype(bool)).any() for a, b in self.apart)
        )


class PackingAnswer(msgspec.Struct, kw_only=True):
    """An answer: the placement, bounds for any placement, and the course of the search.

    ``value``: of the placed pods; ``most``: an upper bound of it. ``cost`` and ``least``: the cost,
    and a lower bound. ``greedy``: the value at the start of the search. ``work``: the solver's
    deterministic time. ``complete``: no limit ended the search early.
    """

    x: Int64
    value: int
    most: int
    cost: int
    least: int
    greedy: int
    steps: int
    work: float
    complete: bool = False


class Bought(msgspec.Struct, kw_only=True):
    """An answer: for each node in use its shape and its pods, (nodes, C).

    Shape ``-1 - n`` is the existing node n. ``price``: of all bought nodes; ``least``: a lower
    bound of the price of any set that takes as many pods.
    """

    shapes: Int64
    pods: Int64
    price: float
    least: float
    work: float


class Needs(msgspec.Struct, kw_only=True):
    """The pods to place, the existing nodes, and the shapes that may be bought.

    ``problem``: its first nodes exist and cost nothing, the others are one of each shape.
    ``prices`` (S,) and ``most`` (S,): of the shapes, and how many of each there are.
    """

    problem: Problem
    prices: Float64
    most: Int64


def weights_of(priorities: Sequence[int], counts: Sequence[int]) -> Int64:
    """Return the weight of a placed pod of each class, int64 (C,).

    A pod weighs more than all pods of lower priorities together. Where the solver's numbers are too
    small for that, the lowest priorities have the same weight.
    """
    levels = sorted(set(priorities), reverse=True)
    pods = dict.fromkeys(levels, 0)
    for priority, count in zip(priorities, counts, strict=True):
        pods[priority] += count
    # From the highest down: how many levels fit below the largest weight.
    product, kept = 1, 0
    for level in levels:
        product *= pods[level] + 1
        if product > _LARGEST_WEIGHT and kept:
            break
        kept += 1
    weight, worth, below = {}, 1, 0
    for level in reversed(levels[kept - 1 :] if kept else levels):
        weight[level] = worth
        below += pods[level]
    total = below
    for level in reversed(levels[: max(kept - 1, 0)]):
        worth = total + 1
        weight[level] = worth
        total += worth * pods[level]
    return np.array([weight[one] for one in priorities], np.int64)

"""Upper bounds on every placement, by linear programming.

Nodes are merged into groups and pods may be divided. The sums of any placement over a group obey
the relaxed rules too, so the optimum of the relaxed problem bounds every placement. Groups are
nodes that are open to the same classes; if those are too many, any nodes are merged.
"""

import math
from typing import Final

import numpy as np
from ortools.linear_solver import pywraplp

from scheduling.framework.arrays import Int64
from scheduling.packing.problem import Problem

_MOST_VARIABLES: Final = 20_000
_MOST_MILLISECONDS: Final = 5_000


def most_value(problem: Problem, caps: Int64) -> int:
    """Return an upper bound of the value of all placements.

    Args:
        problem: the pods and nodes of the packing problem.
        caps: (C, N) how many pods of each class fit on each node if it takes no others.
    """
    solver, x, _ = _relaxed(problem, caps)
    for c, ones in x.items():
        solver.Add(sum(ones.values()) <= float(problem.counts[c]))
    solver.Maximize(
        sum(float(problem.weights[c]) * one for c, ones in x.items() for one in ones.values())
    )
    trivial = int(problem.weights @ np.minimum(caps.sum(1), problem.counts))
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return trivial
    best: float = solver.Objective().Value()
    return min(trivial, math.floor(best * (1 + 1e-9) + 1e-6))


def least_price(problem: Problem, caps: Int64, placed: Int64) -> int:
    """Return a lower bound of the price of all nodes in use, for any placement of these pods.

    Args:
        problem: the pods and nodes of the packing problem.
        caps: (C, N) how many pods of each class fit on each node if it takes no others.
        placed: (C,) how many pods of each class have to be placed.
    """
    solver, x, used = _relaxed(problem, caps, priced=True)
    for c, ones in x.items():
        solver.Add(sum(ones.values()) >= float(placed[c]))
    solver.Minimize(sum(price * one for one, price in used))
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return 0
    best: float = solver.Objective().Value()
    return math.ceil(best * (1 - 1e-9) - 1e-6)


def _relaxed(
    problem: Problem, caps: Int64, *, priced: bool = False
) -> tuple[
    pywraplp.Solver, dict[int, dict[int, pywraplp.Variable]], list[tuple[pywraplp.Variable, float]]
]:
    """Return the relaxed problem: solver, pods by class and group, and nodes in use with price."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    solver.set_time_limit(_MOST_MILLISECONDS)
    groups = _groups(problem, caps, priced=priced)
    scale = np.maximum(problem.free.max(0, initial=1), 1).astype(float)
    x: dict[int, dict[int, pywraplp.Variable]] = {c: {} for c in range(len(problem.counts))}
    used: list[tuple[pywraplp.Variable, float]] = []
    for number, nodes in enumerate(groups):
        size = float(len(nodes))
        here = caps[:, nodes].sum(1)
        one_node = caps[:, nodes].max(1)
        for c in np.flatnonzero(here).tolist():
            x[c][number] = solver.NumVar(0, float(min(here[c], problem.counts[c])), "")
        in_use = None
        price = float(problem.prices[nodes].min())
        if priced and price:
            in_use = solver.NumVar(0, size, "")
            used.append((in_use, price))
            for c in np.flatnonzero(here).tolist():
                solver.Add(x[c][number] <= float(one_node[c]) * in_use)
        free = np.maximum(problem.free[nodes], 0)
        for r in range(problem.free.shape[1]):
            taken = sum(
                float(problem.requests[c, r] / scale[r]) * ones[number]
                for c, ones in x.items()
                if number in ones and problem.requests[c, r]
            )
            if isinstance(taken, int):
                continue
            if in_use is None:
                solver.Add(taken <= float(free[:, r].sum() / scale[r]))
            else:
                solver.Add(taken <= float(free[:, r].max() / scale[r]) * in_use)
    return solver, x, used


def _groups(problem: Problem, caps: Int64, *, priced: bool) -> list[Int64]:
    """Return groups of like nodes, as columns; coarser groups if there would be too many."""
    nodes = len(problem.free)
    most = max(_MOST_VARIABLES // max(len(problem.counts), 1), 1)
    prices = problem.prices if priced else np.zeros_like(problem.prices)
    opened = caps > 0
    found: dict[tuple[bytes, bytes, int], list[int]] = {}
    for keys in (
        [(problem.free[j].tobytes(), caps[:, j].tobytes(), int(prices[j])) for j in range(nodes)],
        [(b"", opened[:, j].tobytes(), int(prices[j])) for j in range(nodes)],
        [(b"", b"", int(prices[j])) for j in range(nodes)],
        [(b"", b"", 0)] * nodes,
    ):
        found.clear()
        for node, key in enumerate(keys):
            found.setdefault(key, []).append(node)
        if len(found) <= most:
            break
    return [np.array(one, np.int64) for one in found.values()]

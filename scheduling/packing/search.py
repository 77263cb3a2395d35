"""The search for a better placement: greedy first, then a few nodes at a time.

A model of all pods and nodes finds nothing within seconds. A model of a few nodes, with their pods
and all unplaced ones as counts by class, is solved in a tenth of a second; repeated with other
nodes it places more than 99 of 100 pods of clusters that can be filled exactly. Nodes with much
free room are drawn more often. The solver has one thread: more are no faster, and one is
deterministic. Limits are in the solver's own measure of work (``deterministic_time``), so that a
busy machine changes nothing; the deadline in seconds ends the search in any case.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from ortools.sat.python import cp_model

from scheduling.framework.arrays import Int64, Mask
from scheduling.packing import bounds
from scheduling.packing.problem import PackingAnswer, Problem

_STEP_WORK: Final = 0.05
_FIRST_NODES: Final = 6
_FEWEST_NODES: Final = 3
_MOST_NODES: Final = 16
_MOST_VARIABLES: Final = 1500
_LARGEST_EXACT: Final = 600
"""A problem of at most this many variables is tried as a whole before the search ends."""
_GREEDY_EFFORT: Final = 4_000_000
_OVERHEAD: Final = 0.004
"""Each step counts as this much work, in addition to what the solver counts."""


def pack(
    problem: Problem,
    *,
    work: float,
    seconds: float,
    seed: int = 0,
    told: Callable[[Int64], None] = lambda x: None,
) -> PackingAnswer:
    """Return the best placement that was found.

    Args:
        problem: the pods and nodes; ``start`` must keep every rule.
        work: how much the solver may do, in its own units, each about half a second.
        seconds: when the search ends at the latest.
        seed: for the random choice of nodes.
        told: called with each better placement.
    """
    return _Search(problem, work, seconds, seed, told).run()


class _Search:
    """One search: the best placement so far and what is left of the limits."""

    def __init__(
        self,
        problem: Problem,
        work: float,
        seconds: float,
        seed: int,
        told: Callable[[Int64], None],
    ) -> None:
        self._problem = problem
        self._most_work, self._until = work, time.monotonic() + seconds
        self._rng = np.random.default_rng(seed)
        self._told = told
        self._caps = problem.most_of_each()
        self._x = problem.start.copy()
        self._work, self._steps = 0.0, 0
        self._most = int(problem.weights @ np.minimum(self._caps.sum(1), problem.counts))
        self._least = 0
        self._complete = False

    def run(self) -> PackingAnswer:
        problem = self._problem
        begun = problem.placed_value(self._x)
        if len(problem.free) and begun < self._most and not problem.stays.any():
            for x in _greedy(problem, self._caps, self._until):
                if self._rank(x) > self._rank(self._x):
                    self._x = x
        if problem.stays.any() and problem.prices.any():
            self._empty_one_by_one()
        greedy = problem.placed_value(self._x)
        self._told(self._x)
        many = _FIRST_NODES
        nodes = len(problem.free)
        while not self._is_done():
            drawn = self._draw(min(many, nodes))
            before = self._x
            status = self._step(drawn, _STEP_WORK)
            if status == cp_model.OPTIMAL:
                if self._x is before:
                    many = min(many + 1, _MOST_NODES)
                if len(drawn) == nodes:
                    break
            else:
                many = max(many - 1, _FEWEST_NODES)
        self._try_as_a_whole()
        if not self._complete:
            self._bound()
        return PackingAnswer(
            x=self._x,
            value=problem.placed_value(self._x),
            most=self._most,
            cost=problem.cost(self._x),
            least=self._least,
            greedy=greedy,
            steps=self._steps,
            work=round(self._work, 6),
            complete=self._complete,
        )

    def _empty_one_by_one(self) -> None:
        """Empty nodes with a price, those with the fewest pods first, while that saves cost.

        Each pod goes to the node in use on which it leaves the least room. Pods that fit on none go
        together to the cheapest node that is not in use.
        """
        problem = self._problem
        size = problem.requests / np.maximum(problem.free.max(0, initial=1), 1)
        order = np.argsort(-size.sum(1), kind="stable")
        gained = True
        while gained:
            gained = False
            used = np.flatnonzero(self._x.any(0) & (problem.prices > 0))
            for node in used[np.argsort(self._x[:, used].sum(0), kind="stable")].tolist():
                if time.monotonic() >= self._until:
                    return
                after = self._without(node, order)
                if after is not None and self._rank(after) > self._rank(self._x):
                    self._x, gained = after, True

    def _without(self, node: int, order: Int64) -> Int64 | None:
        """Return a cheaper placement without a node, its pods on others; ``None`` if there is none.

        Args:
            node: the node to empty.
            order: the order in which classes are moved.
        """
        problem, x = self._problem, self._x.copy()
        room = problem.free - x.T @ problem.requests
        is_open: Mask = np.asarray(x.any(0))
        is_open[node] = False
        share = 1 / np.maximum(problem.free.max(0, initial=1), 1)
        left = x[:, node].copy()
        x[:, node] = 0
        others: dict[int, list[int]] = {}
        for first, second in problem.apart:
            others.setdefault(first, []).append(second)
            others.setdefault(second, []).append(first)
        for c in order[left[order] > 0].tolist():
            asked = problem.requests[c]
            while left[c]:
                fits = is_open & (x[c] < self._caps[c]) & (room >= asked).all(1)
                for other in others.get(c, ()):
                    fits &= x[other] == 0
                if not fits.any():
                    break
                rows = np.flatnonzero(fits)
                best = rows[((room[rows] - asked) * share).sum(1).argmin()]
                x[c, best] += 1
                left[c] -= 1
                room[best] -= asked
        if not left.any():
            return x
        fits = ~x.any(0) & (problem.prices < problem.prices[node])
        fits &= (self._caps >= left[:, None]).all(0) & (room >= left @ problem.requests).all(1)
        if not fits.any() or any(left[a] and left[b] for a, b in problem.apart):
            return None
        rows = np.flatnonzero(fits)
        x[:, rows[problem.prices[rows].argmin()]] = left
        return x

    def _is_done(self) -> bool:
        problem = self._problem
        return (
            self._work >= self._most_work
            or time.monotonic() >= self._until
            or not len(problem.free)
            or (problem.placed_value(self._x) >= self._most and problem.cost(self._x) == 0)
        )

    def _rank(self, x: Int64) -> tuple[int, int]:
        return self._problem.placed_value(x), -self._problem.cost(x)

    def _bound(self) -> None:
        """Compute bounds of value and cost by linear programming, if they may improve."""
        problem = self._problem
        if problem.placed_value(self._x) < self._most:
            self._most = max(
                min(self._most, bounds.most_value(problem, self._caps)),
                problem.placed_value(self._x),
            )
        if problem.prices.any():
            least = bounds.least_price(problem, self._caps, self._x.sum(1))
            self._least = min(least, problem.cost(self._x))

    def _try_as_a_whole(self) -> None:
        """Solve a small problem over all of its nodes at once, to prove the optimum."""
        problem = self._problem
        value, cost = problem.placed_value(self._x), problem.cost(self._x)
        if value >= self._most and cost == 0:
            self._complete = True
            return
        if np.count_nonzero(self._caps) > _LARGEST_EXACT or time.monotonic() >= self._until:
            return
        left = max(self._most_work - self._work, _STEP_WORK)
        nodes = np.arange(len(problem.free))
        if self._step(nodes, left) == cp_model.OPTIMAL:
            self._complete = True
            self._most, self._least = problem.placed_value(self._x), problem.cost(self._x)

    def _draw(self, many: int) -> Int64:
        """Return ``many`` random nodes; every other time those with much free room are more likely.

        If nodes have prices, add as many nodes that are not in use, or all of these.
        """
        problem = self._problem
        every = np.arange(len(problem.free))
        is_spare = (problem.prices > 0) & ~self._x.any(0)
        spare, others = every[is_spare], every[~is_spare]
        chances = None
        if self._steps % 2 and len(others):
            room = problem.free - self._x.T @ problem.requests
            share = (room / np.maximum(problem.free.max(0), 1)).clip(0, 1).sum(1) + 1e-3
            chances = share[others] / share[others].sum()
        drawn = self._rng.choice(others, min(many, len(others)), replace=False, p=chances)
        some = self._rng.choice(spare, min(many, len(spare)), replace=False)
        return np.sort(np.concatenate([drawn, some]).astype(np.int64))

    def _step(self, nodes: Int64, work: float) -> cp_model.CpSolverStatus:
        """Solve for some nodes while the others stay as they are; return the solver's status."""
        self._steps += 1
        problem, x = self._problem, self._x
        here = x[:, nodes]
        elsewhere = x.sum(1) - here.sum(1)
        most = problem.counts - elsewhere
        least = np.maximum(problem.stays.sum(1) - elsewhere, 0)
        caps = np.minimum(self._caps[:, nodes], most[:, None])
        if np.count_nonzero(caps) > _MOST_VARIABLES and len(nodes) > _FEWEST_NODES:
            return cp_model.UNKNOWN
        model = cp_model.CpModel()
        total = cp_model.LinearExpr.weighted_sum
        variables: dict[tuple[int, int], cp_model.IntVar] = {}
        by_node: list[list[tuple[int, cp_model.IntVar]]] = [[] for _ in nodes]
        objective: list[cp_model.LinearExprT] = []
        amounts: list[int] = []
        large = 1 + int(problem.prices[nodes].sum()) + int(problem.move_costs @ here.sum(1))
        for c in np.flatnonzero(caps.any(1)).tolist():
            mine = []
            for at in np.flatnonzero(caps[c]).tolist():
                one = model.new_int_var(0, int(caps[c, at]), "")
                model.add_hint(one, int(here[c, at]))
                variables[c, at] = one
                by_node[at].append((c, one))
                mine.append(one)
                before = int(problem.stays[c, nodes[at]])
                if before and problem.move_costs[c]:
                    gone = model.new_int_var(0, before, "")
                    model.add(gone + one >= before)
                    model.add_hint(gone, max(before - int(here[c, at]), 0))
                    objective.append(gone)
                    amounts.append(-int(problem.move_costs[c]))
            model.add(cp_model.LinearExpr.sum(mine) <= int(most[c]))
            if least[c]:
                model.add(cp_model.LinearExpr.sum(mine) >= int(least[c]))
            objective += mine
            amounts += [int(problem.weights[c]) * large] * len(mine)
        for at, node in enumerate(nodes.tolist()):
            ones = [one for _, one in by_node[at]]
            if not ones:
                continue
            asked = problem.requests[[c for c, _ in by_node[at]]]
            used = None
            if price := int(problem.prices[node]):
                used = model.new_bool_var("")
                model.add_hint(used, bool(here[:, at].any()))
                objective.append(used)
                amounts.append(-price)
                for c, one in by_node[at]:
                    model.add(one <= int(caps[c, at]) * used)
            for r in range(asked.shape[1]):
                room = max(int(problem.free[node, r]), 0)
                taken = total(ones, asked[:, r].tolist())
                if used is not None:
                    model.add(taken <= room * used)
                elif int(asked[:, r] @ caps[[c for c, _ in by_node[at]], at]) > room:
                    model.add(taken <= room)
        for first, second in problem.apart:
            for at in range(len(nodes)):
                if (first, at) in variables and (second, at) in variables:
                    which = model.new_bool_var("")
                    model.add(variables[first, at] <= int(caps[first, at]) * which)
                    model.add(variables[second, at] <= int(caps[second, at]) * ~which)
        goal = total(objective, amounts)
        model.maximize(goal)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = self._steps
        solver.parameters.max_deterministic_time = work
        left = self._until - time.monotonic()
        solver.parameters.max_time_in_seconds = max(left, 0.01)
        status = solver.solve(model)
        self._work += solver.response_proto.deterministic_time + _OVERHEAD
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            found = np.zeros_like(here)
            for (c, at), one in variables.items():
                found[c, at] = solver.value(one)
            after = x.copy()
            after[:, nodes] = found
            # An equally good placement is accepted too: the next step may find a better one from
            # it.
            gained = self._rank(after) > self._rank(x)
            if gained or self._rank(after) == self._rank(x):
                self._x = after
            if gained:
                self._told(after)
        return status


def _greedy(problem: Problem, caps: Int64, until: float) -> Iterator[Int64]:
    """Yield placements made greedily: one pod after the other, the largest first.

    If there is not room for all, the smallest come first, so that more of them fit. Each placement
    uses another measure of a pod's size and of the best node. The last one comes before ``until``,
    in monotonic seconds.
    """
    requests, counts = problem.requests, problem.counts
    effort = max(int(counts.sum()), 1) * (50 + len(problem.free)) * 3
    scale = 1 / np.maximum(problem.free.sum(0), 1)
    sizes = requests * scale
    ways = [(size, kind) for size in range(3) for kind in range(3)]
    room = np.maximum(problem.free, 0).sum(0)
    sign = 1 if (counts @ requests > room).any() else -1
    others: dict[int, list[int]] = {}
    for first, second in problem.apart:
        others.setdefault(first, []).append(second)
        others.setdefault(second, []).append(first)
    for size, kind in ways[: max(_GREEDY_EFFORT // effort, 1)]:
        measure = sign * (sizes.sum(1), sizes.max(1), (sizes**2).sum(1))[size]
        x = np.zeros_like(caps)
        free = np.maximum(problem.free, 0).copy()
        share = 1 / np.maximum(free.max(0), 1)
        for c in np.lexsort((measure, -problem.weights)).tolist():
            if time.monotonic() >= until:
                return
            asked = requests[c]
            open_nodes = caps[c] > 0
            for other in others.get(c, ()):
                open_nodes &= x[other] == 0
            for _ in range(int(counts[c])):
                fits = np.flatnonzero(open_nodes & (x[c] < caps[c]) & (free >= asked).all(1))
                if not len(fits):
                    break
                rest = (free[fits] - asked) * share
                if kind == 0:
                    told = rest.sum(1)
                elif kind == 1:
                    told = (rest**2).sum(1)
                else:  # the node with the free amounts most parallel to the pod's requests
                    left = free[fits] * share
                    told = -(left @ (asked * share)) / np.sqrt((left**2).sum(1) + 1e-9)
                node = fits[told.argmin()]
                x[c, node] += 1
                free[node] -= asked
        yield x

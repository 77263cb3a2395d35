"""Which nodes to buy: the cheapest set found for the pods, and a lower bound of the price.

A linear program with divisible pods and nodes gives a lower bound, and from it the value of a pod
of each class and of each resource of a node. With these ``refilling`` makes a set, ``patterns``
composes a better one and finds a higher bound, and ``refilling`` improves that. The best set may
cost more than the bound: the result is a bound, not a distance from the optimum.
"""

import time
from copy import copy
from typing import Final

import numpy as np
from ortools.linear_solver import pywraplp

from scheduling.framework.arrays import Float64, Int64
from scheduling.packing import patterns, refilling
from scheduling.packing.patterns import Patterns
from scheduling.packing.problem import Bought, Needs, Problem
from scheduling.packing.refilling import Facts, Set

_TRIES: Final = 150_000_000
"""One unit of ``work`` is this many tries of a pod on a node."""
_STEPS: Final = 500
"""This many steps pass between two checks of the limits."""
_FIRST: Final = 0.1
"""The share of the work for a first set, which also supplies the first patterns."""
_GENERATING: Final = 0.5
_DIVING: Final = 0.4
"""The largest share of the work for dives; the rest improves the set made of patterns."""
_PROMISING: Final = 300
"""A dive begins with this many patterns."""
_SECOND_HEAT: Final = 0.3
_CHANCE: Final = 0.3
"""The chance that a kind is tried although the linear program does not use it."""
_MOST_CUT: Final = 400
"""Up to this many classes times kinds the bound is computed with whole nodes."""
_EPSILON: Final = 1e-7


def buy(needs: Needs, *, work: float, seconds: float, seed: int = 0) -> Bought:
    """Return a cheap set of nodes for all pods that any node or shape takes.

    Args:
        needs: the pods, the existing nodes, and the shapes.
        work: how much the solver may do, in units of ``_TRIES`` tries.
        seconds: when the search ends at the latest.
        seed: of the search.
    """
    return _Purchase(needs).run(work, seconds, seed)


def warm() -> None:
    """Load the compiled loops that ``buy`` runs, compiling those that are not on disk.

    Takes a second from disk, and 20 s of CPU time to compile, which may exceed a request's
    deadline.
    """
    kinds, shapes = 3, 2
    small = Problem(
        requests=np.array([[1, 1], [2, 3], [3, 2]], np.int64),
        counts=np.array([7, 5, 3], np.int64),
        weights=np.ones(kinds, np.int64),
        free=np.array([[4, 5], [8, 7]], np.int64),
        limits=np.full((kinds, shapes), 9, np.int64),
        apart=[(0, 1)],
        stays=np.zeros((kinds, shapes), np.int64),
        prices=np.zeros(shapes, np.int64),
        move_costs=np.zeros(kinds, np.int64),
        start=np.zeros((kinds, shapes), np.int64),
    )
    buy(
        Needs(problem=small, prices=np.array([1.0, 1.7]), most=np.full(shapes, 9)),
        work=0.05,
        seconds=60.0,
    )


class _Search:
    """One search for a cheap set of nodes: the present set, and the best so far."""

    def __init__(self, facts: Facts, demand: Int64, rng: np.random.Generator, least: float) -> None:
        self._facts, self._rng = facts, rng
        self.least, self.until = least, 0.0
        self._now = refilling.begin(facts, demand, rng)
        self.best = Set(*map(copy, self._now))
        self._now, self.best, _ = refilling.improve(facts, self._now, self.best, 0, 0.0, rng)
        self.tries = 0

    def improve(self, limit: float, heat: float) -> None:
        """Improve the set until ``limit`` tries were made, or until no set can be cheaper."""
        begun = self.tries
        while self.tries < limit and self.best.nodes and time.monotonic() < self.until:
            if self.best.price <= self.least * (1 + _EPSILON):
                return
            now = heat * (1 - (self.tries - begun) / (limit - begun))
            self._now, self.best, some = refilling.improve(
                self._facts, self._now, self.best, _STEPS, now, self._rng
            )
            self.tries += some

    def begin_with(self, nodes: list[tuple[int, Int64]], left: Int64) -> None:
        """Continue with these nodes, and with new ones for the remaining pods."""
        facts = self._facts
        used = np.bincount([kind for kind, _ in nodes], minlength=len(facts.prices))
        rest = refilling.begin(facts._replace(most=facts.most - used), left, self._rng)
        kinds, pods = np.zeros_like(self.best.kinds), np.zeros_like(self.best.pods)
        more = zip(rest.kinds[: rest.nodes].tolist(), rest.pods, strict=False)
        for at, (kind, some) in enumerate([*nodes, *more]):
            kinds[at], pods[at] = kind, some
        many = len(nodes) + rest.nodes
        price = float(facts.prices[kinds[:many]].sum()) + rest.price
        price -= float(facts.prices[rest.kinds[: rest.nodes]].sum())
        self._now = Set(many, price, kinds, pods, rest.left)
        if price < self.best.price:
            self.best = Set(*map(copy, self._now))


class _Purchase:
    """The state of one call of ``buy``; ``_here``: how many nodes exist already.

    Kinds (K) are sets of like nodes: the existing ones, and one of each shape.
    """

    def __init__(self, needs: Needs) -> None:
        problem = self._problem = needs.problem
        self._prices, self._most = needs.prices, needs.most
        self._here = len(problem.free) - len(needs.prices)
        self._caps = problem.most_of_each()
        many = np.concatenate([np.ones(self._here, np.int64), needs.most])
        # Pods that no set of nodes takes are left out.
        self._demand = np.minimum(problem.counts, self._caps @ many)
        alike: dict[tuple[bytes, bytes], list[int]] = {}
        for node in range(self._here):
            if self._caps[:, node].any():
                key = (problem.free[node].tobytes(), self._caps[:, node].tobytes())
                alike.setdefault(key, []).append(node)
        self._kinds = [*alike.values(), *([self._here + s] for s in range(len(needs.prices)))]
        first = [nodes[0] for nodes in self._kinds]
        self._kind_caps = self._caps[:, first]
        self._kind_free = np.maximum(problem.free[first], 0)
        self._kind_prices = np.array([0.0] * len(alike) + list(needs.prices))
        self._kind_most = np.array(
            [len(one) for one in alike.values()] + list(needs.most), np.int64
        )

    def run(self, work: float, seconds: float, seed: int) -> Bought:
        problem, classes = self._problem, len(self._demand)
        if not self._demand.any():
            nothing: Int64 = np.zeros((0, classes), np.int64)
            return self._answer(nothing.sum(1), nothing, 0.0, 0.0)
        worth, rents, least, uses = self._relaxed()
        apart = np.zeros((classes, classes), np.bool_)
        for first, second in problem.apart:
            apart[first, second] = apart[second, first] = True
        facts = Facts(
            requests=np.ascontiguousarray(problem.requests),
            free=self._kind_free,
            caps=np.ascontiguousarray(self._kind_caps.T),
            apart=apart,
            rents=rents,
            class_losses=np.maximum(rents @ problem.requests.T.astype(float) - worth, 0.0),
            worth=worth,
            prices=self._kind_prices,
            most=self._kind_most,
            chances=np.where(uses > _EPSILON, 1.0, _CHANCE),
        )
        patterns.compile_search(facts)  # on a new machine that takes longer than the search
        search = _Search(facts, self._demand, np.random.default_rng(seed), least)
        until = search.until = time.monotonic() + seconds
        limit = work * _TRIES
        search.improve(limit * _FIRST, 1.0)
        if not search.best.left.any():
            best = search.best
            program = Patterns(facts, self._demand)
            for kind, pods in zip(best.kinds[: best.nodes].tolist(), best.pods, strict=False):
                program.add(kind, pods)
            program.generate(limit * _GENERATING, until)
            least = search.least = max(least, program.least * (1 - 1e-9))
            if program.is_solved:
                few = program.promising(_PROMISING)
                search.begin_with(few.dive(limit * _DIVING, until), few.left)
                search.tries += program.work + few.work
        search.improve(limit, _SECOND_HEAT)
        best = search.best
        if best.left.any():
            least = 0.0  # there is no lower bound for fewer pods
        elif best.price > least * (1 + _EPSILON):
            least = max(least, self._least())
        kinds, pods = best.kinds[: best.nodes], best.pods[: best.nodes]
        return self._answer(kinds, pods, least, search.tries / _TRIES)

    def _answer(self, kinds: Int64, pods: Int64, least: float, work: float) -> Bought:
        """Return a set as an answer: bought shapes, and single existing nodes."""
        used = [0] * len(self._kinds)
        shapes = []
        for kind in kinds.tolist():
            here = self._kinds[kind]
            node = here[min(used[kind], len(here) - 1)]
            shapes.append(node - self._here if node >= self._here else -1 - node)
            used[kind] += 1
        price = float(self._kind_prices[kinds].sum())
        return Bought(
            shapes=np.array(shapes, np.int64),
            pods=pods.copy(),
            price=price,
            least=min(least, price),
            work=work,
        )

    def _least(self) -> float:
        """Return a lower bound of the price of any set: whole nodes, but pods may be divided.

        0 if that takes too long.
        """
        if self._kind_caps.size > _MOST_CUT:
            return 0.0
        solver, _, bought, _, _ = self._program("SCIP")
        for used in bought:
            used.SetInteger(True)
        if solver.Solve() != pywraplp.Solver.OPTIMAL:
            return 0.0
        return float(solver.Objective().BestBound()) * (1 - 1e-9)

    def _relaxed(self) -> tuple[Float64, Float64, float, Float64]:
        """Return values of pods (C,), values of resources (K, R), a bound, and uses of kinds (K,).

        Pods and nodes may be divided; no set costs less than the bound.
        """
        solver, needs, bought, resources, scale = self._program("GLOP")
        kinds = len(bought)
        if solver.Solve() != pywraplp.Solver.OPTIMAL:
            return np.ones(len(needs)), np.zeros((kinds, len(scale))), 0.0, np.ones(kinds)
        worth = np.array([max(need.dual_value(), 0.0) for need in needs])
        floor = worth[worth > 0].min(initial=1.0) * 1e-3  # so that no pod has the value 0
        rents = np.array([[max(-room.dual_value(), 0.0) for room in one] for one in resources])
        uses = np.array([used.solution_value() for used in bought])
        least = float(solver.Objective().Value()) * (1 - 1e-9)
        return np.maximum(worth, floor), rents.reshape(kinds, -1) / scale, least, uses

    def _program(
        self, kind_of_solver: str
    ) -> tuple[
        pywraplp.Solver,
        list[pywraplp.Constraint],
        list[pywraplp.Variable],
        list[list[pywraplp.Constraint]],
        Float64,
    ]:
        """Return the linear program: solver, needs of classes, uses and resources of kinds.

        Also the scale (R,) of the resources.
        """
        problem = self._problem
        solver = pywraplp.Solver.CreateSolver(kind_of_solver)
        infinity = solver.infinity()
        goal = solver.Objective()
        goal.SetMinimization()
        needs = [solver.Constraint(float(one), infinity) for one in self._demand]
        scale = np.maximum(problem.free.max(0, initial=1), 1).astype(float)
        bought, resources = [], []
        for kind, most in enumerate(self._kind_most.tolist()):
            used = solver.NumVar(0, float(most), "")
            bought.append(used)
            goal.SetCoefficient(used, float(self._kind_prices[kind]))
            rooms = [solver.Constraint(-infinity, 0.0) for _ in scale]
            resources.append(rooms)
            for r, room in enumerate(rooms):
                room.SetCoefficient(used, -float(self._kind_free[kind, r]) / scale[r])
            for c in np.flatnonzero(self._kind_caps[:, kind]).tolist():
                one = solver.NumVar(0, infinity, "")
                needs[c].SetCoefficient(one, 1)
                for r, room in enumerate(rooms):
                    room.SetCoefficient(one, float(problem.requests[c, r]) / scale[r])
                cap = solver.Constraint(-infinity, 0.0)
                cap.SetCoefficient(one, 1)
                cap.SetCoefficient(used, -float(self._kind_caps[c, kind]))
        return solver, needs, bought, resources, scale

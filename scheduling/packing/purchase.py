"""Which nodes to buy: the cheapest set found that holds the pods, and what none goes below.

A *pattern* says how many pods of each class a node of one kind holds. Linear programming says how
often to use each pattern, and by that what a pod of each class is worth; filling nodes with the
worthiest pods gives new patterns, until none lowers the cost (column generation: Gilmore and
Gomory, "A linear programming approach to the cutting stock problem", 1961, with several kinds).
Then nodes are bought one after the other as the linear program says, which is solved again for the
pods that are left, and ``search`` improves the set: some nodes with their pods, and some that are
not bought, solved anew. What pods were worth at first bounds every set from below (Farley's bound).
"""

import math
import time
from typing import Final

import msgspec
import numpy as np
from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model

from scheduling.framework.arrays import Float64, Int64
from scheduling.packing import search
from scheduling.packing.problem import Bought, Needs, Problem

_SPARE: Final = 2
"""Nodes of each shape that are not bought and that the search may take instead."""
_UNITS: Final = 1_000_000
"""The dearest node costs so much in whole numbers."""
_FIRST_ROUNDS: Final = 60
_LATER_ROUNDS: Final = 3
_ROUND_WORK: Final = 0.003
_EXACT_WORK: Final = 0.01
_TRIED_ALONE: Final = 3
"""Kinds that pods are placed on as long as they take any; the rest goes to the others."""
_DIVE_SHARE: Final = 0.6
"""Of the work, for patterns and buying; the rest is for the search."""
_SLACK: Final = 1_000.0
"""A pod without a node costs so many times the dearest node."""
_EPSILON: Final = 1e-7


def buy(needs: Needs, *, work: float, seconds: float, seed: int = 0) -> Bought:
    """Return a cheap set of nodes for all pods that any node or shape takes.

    Args:
        needs: what is needed and what may be had.
        work: how much the solver may do, in its own measure.
        seconds: when the search ends at the latest.
        seed: of the search.
    """
    return _Purchase(needs).run(work, seconds, seed)


class _Master:
    """The linear program over the patterns so far; columns are added to it, never taken away."""

    def __init__(self, demand: Int64, prices: Float64, most: Int64) -> None:
        self._solver = solver = pywraplp.Solver.CreateSolver("GLOP")
        self._infinity = infinity = solver.infinity()
        self._needs = [solver.Constraint(float(one), infinity) for one in demand]
        self._has = [solver.Constraint(-infinity, float(one)) for one in most]
        self._prices = prices
        self._goal = solver.Objective()
        self._goal.SetMinimization()
        dear = max(float(prices.max(initial=0.0)), 1.0) * _SLACK
        for need in self._needs:
            slack = solver.NumVar(0, infinity, "")
            need.SetCoefficient(slack, 1)
            self._goal.SetCoefficient(slack, dear)
        self.patterns: list[tuple[int, Int64]] = []
        self._uses: list[pywraplp.Variable] = []
        self._known: set[tuple[int, bytes]] = set()

    def add(self, kind: int, pattern: Int64) -> bool:
        """Add a pattern of a node; return whether it is new."""
        key = (kind, pattern.tobytes())
        if key in self._known or not pattern.any():
            return False
        self._known.add(key)
        use = self._solver.NumVar(0, self._infinity, "")
        self._goal.SetCoefficient(use, float(self._prices[kind]))
        self._has[kind].SetCoefficient(use, 1)
        for c in np.flatnonzero(pattern).tolist():
            self._needs[c].SetCoefficient(use, float(pattern[c]))
        self.patterns.append((kind, pattern))
        self._uses.append(use)
        return True

    def solve(self, left: Int64, most: Int64) -> tuple[Float64, Float64, Float64]:
        """Return uses of the patterns, worths of classes (C,), charges of scarce kinds (K,)."""
        for need, one in zip(self._needs, left.tolist(), strict=True):
            need.SetBounds(float(one), self._infinity)
        for has, one in zip(self._has, most.tolist(), strict=True):
            has.SetBounds(-self._infinity, float(one))
        self._solver.Solve()
        uses = np.array([use.solution_value() for use in self._uses])
        worth = np.array([max(need.dual_value(), 0.0) for need in self._needs])
        return uses, worth, np.array([min(has.dual_value(), 0.0) for has in self._has])


class _Purchase:
    """One purchase; ``_here``: nodes that are there already.

    Kinds (K) are nodes that are alike: those that are there, and one of each shape.
    """

    def __init__(self, needs: Needs) -> None:
        problem = self._problem = needs.problem
        self._prices, self._most = needs.prices, needs.most
        self._here = len(problem.free) - len(needs.prices)
        self._caps = problem.most_of_each()
        many = np.concatenate([np.ones(self._here, np.int64), needs.most])
        # What no set of nodes takes is not asked for.
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
        self._work = 0.0

    def run(self, work: float, seconds: float, seed: int) -> Bought:
        until = time.monotonic() + seconds
        self._rng = np.random.default_rng(seed)
        worth, least, wanted = self._relaxed()
        tried = [self._one_by_one(worth, only) for only in (None, *wanted)]
        nodes, pods = min(tried, key=lambda one: (self._unplaced(one[1]), self._price(one[0])))
        if work > 0:
            others, their_pods, bound = self._dive(worth, pods, work, until)
            least = max(least, bound)
            if not self._unplaced(their_pods) and self._price(others) < self._price(nodes):
                nodes, pods = others, their_pods
        problem, kinds = self._with_spares(nodes, pods)
        found = search.pack(
            problem, work=max(work - self._work, 0.0), seconds=until - time.monotonic(), seed=seed
        )
        x = found.x
        kept = np.flatnonzero(x.any(0))
        price = float(sum(self._prices[kinds[at]] for at in kept.tolist() if kinds[at] >= 0))
        return Bought(
            shapes=np.array([kinds[at] for at in kept.tolist()], np.int64),
            pods=x[:, kept].T.copy(),
            price=price,
            least=min(least, price),
            work=self._work + found.work,
        )

    def _price(self, nodes: list[int]) -> float:
        """Return the price of nodes by their number in the problem."""
        return float(sum(self._prices[node - self._here] for node in nodes if node >= self._here))

    def _unplaced(self, pods: list[Int64]) -> int:
        """Return how many pods that could be placed have no place."""
        return int(self._demand.sum()) - int(sum(one.sum() for one in pods))

    def _relaxed(self) -> tuple[Float64, float, list[int]]:
        """Return what a pod of each class is worth, a price that no set goes below, and kinds.

        With pods and nodes cut at will: worths (C,), and the kinds that are bought most.
        """
        problem = self._problem
        solver = pywraplp.Solver.CreateSolver("GLOP")
        infinity = solver.infinity()
        goal = solver.Objective()
        goal.SetMinimization()
        needs = [solver.Constraint(float(one), infinity) for one in self._demand]
        scale = np.maximum(problem.free.max(0, initial=1), 1).astype(float)
        bought = []
        for kind, most in enumerate(self._kind_most.tolist()):
            used = solver.NumVar(0, float(most), "")
            bought.append(used)
            goal.SetCoefficient(used, float(self._kind_prices[kind]))
            rooms = [solver.Constraint(-infinity, 0.0) for _ in scale]
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
        if solver.Solve() != pywraplp.Solver.OPTIMAL:
            return np.ones(len(needs)), 0.0, []
        worth = np.array([max(need.dual_value(), 0.0) for need in needs])
        floor = worth[worth > 0].min(initial=1.0) * 1e-3  # so that nobody is worth nothing
        uses = np.array([used.solution_value() for used in bought])
        wanted = np.argsort(-uses, kind="stable")[: min(_TRIED_ALONE, int((uses > 1e-6).sum()))]
        return np.maximum(worth, floor), float(goal.Value()) * (1 - 1e-9), wanted.tolist()

    def _one_by_one(self, worth: Float64, only: int | None = None) -> tuple[list[int], list[Int64]]:
        """Return nodes in use and their pods: those that are there, then the best for its price.

        What is bought is the node whose filling is worth most for its price, as often as there are
        pods for that filling; of the kind ``only`` as long as it takes any pod.
        """
        left, most = self._demand.copy(), self._kind_most.copy()
        used = [0] * len(self._kinds)
        nodes: list[int] = []
        pods: list[Int64] = []
        while left.any():
            kind_of, found = self._fillings(worth, left)
            value = (found @ worth) / np.maximum(self._kind_prices, _EPSILON)[kind_of]
            value[most[kind_of] <= 0] = 0
            if only is not None and value[kind_of == only].any():
                value[kind_of != only] = 0
            lane = int(value.argmax())
            if value[lane] <= 0:
                break
            kind, pattern = int(kind_of[lane]), found[lane]
            some = pattern > 0
            times = int(min((left[some] // pattern[some]).min(), most[kind]))
            here = self._kinds[kind]
            for _ in range(times):
                nodes.append(here[min(used[kind], len(here) - 1)])
                pods.append(pattern)
                used[kind] += 1
            most[kind] -= times
            left -= times * pattern
        return nodes, pods

    def _dive(
        self, worth: Float64, known: list[Int64], work: float, until: float
    ) -> tuple[list[int], list[Int64], float]:
        """Return nodes in use, by their number in the problem, the pods of each, and the bound.

        Args:
            worth: a first guess of what pods are worth.
            known: fillings of nodes; tried for every kind that holds them.
            work: see ``buy``.
            until: when it ends, in monotonic seconds.
        """
        left, most = self._demand.copy(), self._kind_most.copy()
        master = _Master(left, self._kind_prices, most)
        first = worth
        for pattern in {one.tobytes(): one for one in known}.values():
            amounts = pattern @ self._problem.requests
            fits = (amounts <= self._kind_free).all(1)
            fits &= (pattern[:, None] <= self._kind_caps).all(0)
            for kind in np.flatnonzero(fits).tolist():
                master.add(kind, pattern)
        self._fill(master, worth, left)
        least = 0.0
        nodes: list[int] = []
        pods: list[Int64] = []
        used = [0] * len(self._kinds)
        rounds = _FIRST_ROUNDS
        while left.any():
            uses, worth, charges = master.solve(left, most)
            for _ in range(rounds):
                if self._work >= work * _DIVE_SHARE or time.monotonic() >= until:
                    break
                came = self._fill(master, worth, left)
                if rounds == _FIRST_ROUNDS:  # prices that swing less converge sooner
                    came |= self._fill(master, (worth + first) / 2, left)
                if not came:
                    break
                uses, worth, charges = master.solve(left, most)
                self._work += _ROUND_WORK
            if rounds == _FIRST_ROUNDS:
                if work > 0:
                    least = self._bound(master, worth, charges, until)
                    uses, worth, charges = master.solve(left, most)
                rounds = _LATER_ROUNDS
            taken = self._taken(master, uses, worth, left, most)
            if not taken:
                break
            for kind, whole in taken:
                pattern = np.minimum(whole, left)
                if not pattern.any() or not most[kind]:
                    continue
                here = self._kinds[kind]
                nodes.append(here[used[kind]] if used[kind] < len(here) else here[-1])
                pods.append(pattern)
                used[kind] += 1
                most[kind] -= 1
                left -= pattern
        return nodes, pods, least

    def _taken(
        self, master: _Master, uses: Float64, worth: Float64, left: Int64, most: Int64
    ) -> list[tuple[int, Int64]]:
        """Return the nodes to buy next: whole uses of patterns, else the one that is used most."""
        taken = []
        for at in np.flatnonzero(uses > 1 - 1e-6).tolist():
            taken += [master.patterns[at]] * int(uses[at] + 1e-6)
        if taken or not len(uses):
            return taken
        best: tuple[float, int] | None = None
        for at in np.flatnonzero(uses > 1e-6).tolist():
            kind, pattern = master.patterns[at]
            price = max(float(self._kind_prices[kind]), 1e-9)
            fill = min(float(worth @ np.minimum(pattern, left)) / price, 2.0)
            if most[kind] and (best is None or (uses[at] * fill, -at) > best):
                best = (float(uses[at]) * fill, -at)
        return [] if best is None else [master.patterns[-best[1]]]

    def _fill(self, master: _Master, worth: Float64, left: Int64) -> bool:
        """Add the fillings of a node of each kind; return whether one is new."""
        is_new = False
        kind_of, found = self._fillings(worth, left)
        for lane, pattern in enumerate(found):
            is_new |= master.add(int(kind_of[lane]), pattern)
        return is_new

    def _fillings(self, worth: Float64, left: Int64) -> tuple[Int64, Int64]:
        """Fill a node of each kind with the worthiest pods, in several orders, all at once.

        Returns the kind of each filling, (F,), and the fillings, (F, C).
        """
        requests = self._problem.requests
        kinds, classes = len(self._kinds), len(left)
        share = requests[None] / np.maximum(self._kind_free, 1)[:, None, :]
        load = (share * np.maximum(left, 1)[None, :, None]).sum(1, keepdims=True)
        scarce = (share * load / load.sum(2, keepdims=True).clip(1e-12)).sum(2)
        lanes = np.concatenate([share.max(2), share.sum(2), scarce, share.sum(2) ** 0.5])
        order = np.argsort(-(worth[None, :] / np.maximum(lanes, 1e-12)), axis=1, kind="stable")
        kind_of = np.tile(np.arange(kinds), 4)
        free = self._kind_free[kind_of].copy()
        caps = np.minimum(self._kind_caps.T, left[None, :])[kind_of]
        caps[:, worth <= _EPSILON * worth.max(initial=0.0)] = 0
        found = np.zeros((len(lanes), classes), np.int64)
        every = np.arange(len(lanes))
        for place in range(classes):
            c = order[:, place]
            asked = requests[c]
            fits = np.where(asked > 0, free // np.maximum(asked, 1), 2**40).min(1)
            many = np.minimum(fits, caps[every, c])
            found[every, c] = many
            free -= many[:, None] * asked
        for first, second in self._problem.apart:
            both = (found[:, first] > 0) & (found[:, second] > 0)
            found[both, second if worth[first] >= worth[second] else first] = 0
        return kind_of, found

    def _bound(self, master: _Master, worth: Float64, charges: Float64, until: float) -> float:
        """Return a price that no set goes below: worths made small enough for every pattern."""
        most = 1.0
        for kind in range(len(self._kinds)):
            price = float(self._kind_prices[kind]) - float(charges[kind])
            best = self._best_pattern(master, kind, worth, until)
            if price <= _EPSILON:
                if best > _EPSILON:
                    return 0.0
            else:
                most = max(most, best / price)
        charged = float(charges @ self._kind_most)
        return max((float(worth @ self._demand) + charged) / most * (1 - 1e-9), 0.0)

    def _best_pattern(self, master: _Master, kind: int, worth: Float64, until: float) -> float:
        """Return what no pattern of a kind exceeds in worth; the best that was found is added."""
        problem = self._problem
        some = np.flatnonzero(
            (self._kind_caps[:, kind] > 0) & (worth > _EPSILON * worth.max())
        ).tolist()
        if not some:
            return 0.0
        units = _UNITS / float(worth.max())
        model = cp_model.CpModel()
        ones = {c: model.new_int_var(0, int(self._kind_caps[c, kind]), "") for c in some}
        total, listed = cp_model.LinearExpr.weighted_sum, list(ones.values())
        for r in range(problem.free.shape[1]):
            amounts = problem.requests[some, r].tolist()
            model.add(total(listed, amounts) <= int(self._kind_free[kind, r]))
        for first, second in problem.apart:
            if first in ones and second in ones:
                which = model.new_bool_var("")
                model.add(ones[first] <= int(self._kind_caps[first, kind]) * which)
                model.add(ones[second] <= int(self._kind_caps[second, kind]) * ~which)
        model.maximize(total(listed, [math.ceil(worth[c] * units) for c in some]))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = _EXACT_WORK
        solver.parameters.max_time_in_seconds = max(until - time.monotonic(), 0.01)
        status = solver.solve(model)
        self._work += solver.response_proto.deterministic_time
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return float(worth @ self._kind_caps[:, kind])
        pattern = np.zeros(len(worth), np.int64)
        for c, one in ones.items():
            pattern[c] = solver.value(one)
        master.add(kind, pattern)
        return float(solver.best_objective_bound) / units

    def _with_spares(self, nodes: list[int], pods: list[Int64]) -> tuple[Problem, list[int]]:
        """Return the problem with all nodes that are used and some that could be, and their shapes.

        Of nodes that were there already the shape is ``-1 - n``.
        """
        problem = self._problem
        had = np.bincount(
            [node - self._here for node in nodes if node >= self._here],
            minlength=len(self._prices),
        )
        listed = list(nodes)
        listed += [node for node in range(self._here) if node not in set(nodes)]
        for s in range(len(self._prices)):
            listed += [self._here + s] * int(min(_SPARE, self._most[s] - had[s]))
        start = np.zeros((len(self._demand), len(listed)), np.int64)
        for at, filling in enumerate(pods):
            start[:, at] = filling
        units = _UNITS / max(float(self._prices.max(initial=0.0)), 1e-9)
        prices = [
            math.ceil(float(self._prices[node - self._here]) * units - 1e-9)
            if node >= self._here
            else 0
            for node in listed
        ]
        kinds = [node - self._here if node >= self._here else -1 - node for node in listed]
        return (
            msgspec.structs.replace(
                problem,
                counts=start.sum(1),
                weights=np.ones(len(start), np.int64),
                free=problem.free[listed],
                limits=problem.limits[:, listed],
                prices=np.array(prices, np.int64),
                stays=np.zeros_like(start),
                start=start,
            ),
            kinds,
        )

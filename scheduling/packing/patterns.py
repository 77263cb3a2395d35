"""Patterns: fillings of one node with pods, from which a cheap set of nodes is composed.

A linear program takes a fraction of each pattern so that every pod is in some node. From the value
of a pod in its solution, new patterns that would lower the cost are searched, one for each kind of
node, until there are none (column generation: Gilmore and Gomory, "A linear programming approach to
the cutting stock problem", 1961). Then the patterns with fractions of 1 or more are bought, else
the one with the largest fraction, and the program is solved again for the remaining pods, until all
are placed (diving).

Numba compiles the search for a pattern, as in ``refilling``.
"""

import time
from typing import Any, Final

import numba
import numpy as np
from ortools.linear_solver import pywraplp

from scheduling.framework.arrays import Float64, Int64, Mask
from scheduling.packing.refilling import Facts

_STEPS: Final = 300
"""Of a search for a pattern, at first and while pods are left over in a dive."""
_MOST_STEPS: Final = 100_000
_SMOOTHING: Final = 0.5
"""What the worths of the best bound count beside those of the last linear program."""
_CLOSE: Final = 1e-4
"""Bound and value of the linear program so near need no more patterns."""
_ROUNDS: Final = 3
"""Times that a dive solves for the pods that are left, with new patterns between them."""
_MISSING: Final = 1_000.0
"""A pod that no pattern has costs so many times the dearest node."""
_EPSILON: Final = 1e-6
_SOLVING: Final = 30_000
_A_COLUMN: Final = 150
"""Work of solving a linear program, and of each of its columns, in tries of ``refilling``."""

_compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def most_value(
    worth: Float64, requests: Int64, free: Int64, caps: Int64, rents: Float64, steps: int
) -> float:
    """Return an upper bound of the value of any pattern's pods; improves ``rents`` (R,).

    The bound is the value of the free amounts at the rents, plus the values of pods above their
    rent. The rents follow its gradient for ``steps`` steps.
    """
    classes, resources = requests.shape
    best, best_rents, now = np.inf, rents.copy(), rents.copy()
    slope = np.empty(resources)
    for step in range(steps):
        total = 0.0
        for r in range(resources):
            slope[r] = float(free[r])
            total += now[r] * free[r]
        for c in range(classes):
            gain = worth[c]
            for r in range(resources):
                gain -= now[r] * requests[c, r]
            if caps[c] and gain > 0:
                total += gain * caps[c]
                for r in range(resources):
                    slope[r] -= requests[c, r] * caps[c]
        if total < best:
            best = total
            best_rents[:] = now
        norm = 0.0
        for r in range(resources):
            if free[r]:
                norm += (slope[r] / free[r]) ** 2
        if norm == 0:
            break
        length = best * 0.2 * 0.85**step / np.sqrt(norm)
        for r in range(resources):
            if free[r]:
                now[r] = max(best_rents[r] - length * slope[r] / free[r] / free[r], 0.0)
    rents[:] = best_rents
    return best


@_compiled
def best_pattern(
    worth: Float64,
    requests: Int64,
    free: Int64,
    caps: Int64,
    apart: Mask,
    rents: Float64,
    above: float,
    most: int,
    pods: Int64,
) -> tuple[float, bool, int]:
    """Search the most valuable pattern depth first, densest class first; write it to ``pods`` (C,).

    Args:
        worth: (C,) value of a pod.
        requests: (C, R) of a pod.
        free: (R,) of the node.
        caps: (C,) the most pods of a class.
        apart: (C, C) whether pods of two classes must not share a node.
        rents: (R,) price of a unit of each resource, to compare different resources.
        above: only more valuable patterns are searched.
        most: steps after which the search stops.
        pods: output; 0 if nothing was found.

    Returns:
        The value (``above`` if nothing was found), whether the search was complete, and its steps.
    """
    classes, resources = requests.shape
    pods[:] = 0
    sizes, densities = np.full(classes, 1e-12), np.zeros(classes)
    # Every resource gets a rent above 0: the rent of the remaining room bounds the search.
    rents = rents + 1e-6 * worth.max() / np.maximum(free, 1)
    for c in range(classes):
        for r in range(resources):
            sizes[c] += rents[r] * requests[c, r]
        if caps[c] and worth[c] > 0:
            densities[c] = worth[c] / sizes[c]
    order = np.argsort(-densities)
    many = 0
    while many < classes and densities[order[many]] > 0:
        many += 1
    beyond = np.zeros(many + 1)  # value of the classes from here on, above their rent
    for at in range(many - 1, -1, -1):
        c = order[at]
        beyond[at] = beyond[at + 1] + max(worth[c] - sizes[c], 0.0) * caps[c]
    counts, room, rent = np.zeros(many, np.int64), free.copy(), 0.0
    for r in range(resources):
        rent += rents[r] * room[r]
    value, best = 0.0, above
    at, steps, is_down = 0, 0, True
    while True:
        steps += 1
        bar = best * (1 + 1e-9) + 1e-12
        if is_down:
            if (
                at < many
                and value + densities[order[at]] * rent > bar
                and value + rent + beyond[at] > bar
            ):
                c = order[at]
                n = caps[c]
                for r in range(resources):
                    if requests[c, r]:
                        n = min(n, room[r] // requests[c, r])
                if n:
                    for other in range(at):
                        if counts[other] and apart[c, order[other]]:
                            n = 0
                            break
                for r in range(resources):
                    room[r] -= n * requests[c, r]
                    rent -= rents[r] * n * requests[c, r]
                value += n * worth[c]
                counts[at] = n
                at += 1
                continue
            if value > bar:
                best = value
                pods[:] = 0
                for one in range(at):
                    pods[order[one]] = counts[one]
                bar = best * (1 + 1e-9) + 1e-12
        # Back to the last class with pods: one less of it, or none where that cannot help.
        at -= 1
        while at >= 0 and not counts[at]:
            at -= 1
        if at < 0 or steps >= most:
            return best, at < 0, steps
        c = order[at]
        after = densities[order[at + 1]] if at + 1 < many else 0.0
        drop = 1
        if value - worth[c] + after * (rent + sizes[c]) <= bar:
            drop = counts[at]
        counts[at] -= drop
        value -= drop * worth[c]
        for r in range(resources):
            room[r] += drop * requests[c, r]
            rent += rents[r] * drop * requests[c, r]
        is_down = value + after * rent > bar
        if is_down or counts[at]:
            at += 1


def compile_search(facts: Facts) -> None:
    """Compile the search for patterns, if it is not compiled."""
    nobody = np.zeros(len(facts.worth), np.int64)
    for kind in range(min(len(facts.prices), 1)):
        of_kind = facts.requests, facts.free[kind], nobody
        rents = facts.rents[kind].copy()
        most_value(facts.worth, *of_kind, rents, 1)
        best_pattern(facts.worth, *of_kind, facts.apart, rents, 0.0, 1, nobody.copy())


class Patterns:
    """The linear program over the known patterns, for the remaining pods.

    ``least``: a lower bound of the cost of any set for all pods. ``work``: in tries of
    ``refilling``. ``worth``: (C,) value of a pod in the last solution; ``is_solved``: whether there
    is one.
    """

    def __init__(self, facts: Facts, demand: Int64) -> None:
        self._facts = facts
        self.left = demand.copy()
        self._most = facts.most.copy()
        self._rents = facts.rents.copy()
        self._known: set[tuple[int, bytes]] = set()
        self.columns: list[tuple[int, Int64]] = []
        self._uses: list[pywraplp.Variable] = []
        self.least, self.work = 0.0, 0
        self.is_solved = False
        self.worth = np.zeros(len(demand))
        solver = self._solver = pywraplp.Solver.CreateSolver("GLOP")
        solver.SuppressOutput()
        infinity = solver.infinity()
        self._needs = [solver.Constraint(float(one), infinity) for one in demand.tolist()]
        self._limits = [solver.Constraint(0.0, float(most)) for most in self._most.tolist()]
        solver.Objective().SetMinimization()
        for need in self._needs:
            missing = solver.NumVar(0, infinity, "")
            solver.Objective().SetCoefficient(
                missing, _MISSING * float(facts.prices.max(initial=1.0))
            )
            need.SetCoefficient(missing, 1)

    def add(self, kind: int, pods: Int64) -> bool:
        """Add a pattern; return whether it is new."""
        key = (kind, pods.tobytes())
        if key in self._known or not pods.any():
            return False
        self._known.add(key)
        use = self._solver.NumVar(0, self._solver.infinity(), "")
        self._solver.Objective().SetCoefficient(use, float(self._facts.prices[kind]))
        self._limits[kind].SetCoefficient(use, 1)
        for c in np.flatnonzero(pods).tolist():
            self._needs[c].SetCoefficient(use, float(pods[c]))
        self.columns.append((kind, pods.copy()))
        self._uses.append(use)
        return True

    def generate(self, work: float, until: float) -> None:
        """Add patterns until none lowers the linear program's cost much, or a limit is reached.

        Args:
            work: stop at this many tries of ``refilling``.
            until: stop at this monotonic time, in seconds.
        """
        facts, steps = self._facts, _STEPS
        best: Float64 | None = None
        while self.work < work and time.monotonic() < until and self._solve():
            worth, smooth = self.worth, best is not None
            if best is not None:
                worth = _SMOOTHING * best + (1 - _SMOOTHING) * worth
            added, complete, most = self._price(worth, steps)
            least = _least(facts.prices, self._most, most, float(worth @ self.left))
            if least > self.least:
                self.least, best = least, worth
            if self._value - self.least < _CLOSE * self._value:
                return
            if not added:
                if smooth and best is not worth:
                    best = None  # continue with the last values, not smoothed
                elif complete or steps > _MOST_STEPS:
                    return
                else:
                    steps *= 4

    def promising(self, many: int) -> "Patterns":
        """Return a program with the ``many`` patterns of least loss at the pods' ``worth``."""
        prices = self._facts.prices
        losses = [prices[kind] - self.worth @ pods for kind, pods in self.columns]
        found = Patterns(self._facts, self.left)
        for at in np.argsort(losses, kind="stable")[:many].tolist():
            found.add(*self.columns[at])
        return found

    def dive(self, work: float, until: float) -> list[tuple[int, Int64]]:
        """Return nodes for the pods, each as its kind and its pods by class, int64 (C,).

        ``left`` then has the pods without a node. ``work``, ``until``: as for ``generate``.
        """
        found: list[tuple[int, Int64]] = []
        while self.left.any() and self.work < work and time.monotonic() < until:
            for turn in range(_ROUNDS):
                if not self._solve():
                    return found
                if turn + 1 < _ROUNDS and not self._price(self.worth, _STEPS)[0]:
                    break
            uses = np.array([use.solution_value() for use in self._uses])
            before = len(found)
            for at in np.flatnonzero(uses >= 1 - _EPSILON).tolist():
                kind, pods = self.columns[at]
                many = min(int(uses[at] + _EPSILON), int(self._most[kind]))
                while many and (pods <= self.left).all():
                    found.append(self._take(kind, pods))
                    many -= 1
            if len(found) == before:
                order = np.argsort(-uses, kind="stable").tolist()
                for at in order:
                    kind, pods = self.columns[at]
                    pods = np.minimum(pods, self.left)
                    if self._most[kind] and pods.any():
                        found.append(self._take(kind, pods))
                        break
                else:
                    return found
            self._cut(uses)
        return found

    def _take(self, kind: int, pods: Int64) -> tuple[int, Int64]:
        self.left -= pods
        self._most[kind] -= 1
        return kind, pods

    def _cut(self, uses: Float64) -> None:
        """Limit the program to the remaining pods, without patterns that have more."""
        for need, many in zip(self._needs, self.left.tolist(), strict=True):
            need.SetLb(float(many))
        for limit, most in zip(self._limits, self._most.tolist(), strict=True):
            limit.SetUb(float(most))
        for at, used in enumerate(uses.tolist()):
            kind, pods = self.columns[at]
            if (pods > self.left).any():
                self._uses[at].SetUb(0.0)
                if used > _EPSILON:
                    self.add(kind, np.minimum(pods, self.left))

    def _solve(self) -> bool:
        """Solve the program and set its values; return whether that succeeded."""
        self.work += _SOLVING + _A_COLUMN * len(self.columns)
        if self._solver.Solve() != pywraplp.Solver.OPTIMAL:
            return False
        self.is_solved = True
        self.worth = np.array([max(need.dual_value(), 0.0) for need in self._needs])
        self._dues = np.array([max(-limit.dual_value(), 0.0) for limit in self._limits])
        self._value = float(self._solver.Objective().Value())
        return True

    def _price(self, worth: Float64, steps: int) -> tuple[int, bool, Float64]:
        """Search for a pattern of each kind that lowers the program's cost.

        Returns:
            How many were added, whether all searches were complete, and (K,) an upper bound of the
            value of the pods in a pattern of each kind.
        """
        facts = self._facts
        caps = np.ascontiguousarray(np.minimum(facts.caps, self.left[None, :]))
        added, complete = 0, True
        most = np.zeros(len(facts.prices))
        pods = np.zeros(len(worth), np.int64)
        for kind in np.flatnonzero(self._most).tolist():
            of_kind = facts.requests, facts.free[kind], caps[kind]
            rents = self._rents[kind]
            most[kind] = most_value(worth, *of_kind, rents, 40)
            price = facts.prices[kind] + self._dues[kind]
            if most[kind] <= price:
                continue
            # A little below the price: the bound needs the best pattern also where none lowers the
            # cost.
            value, is_complete, some = best_pattern(
                worth, *of_kind, facts.apart, rents, 0.95 * price, steps, pods
            )
            self.work += some * 4
            complete = complete and is_complete
            if is_complete:
                most[kind] = max(value, 0.0)
            if self.worth @ pods > price * (1 + 1e-7) + 1e-12:
                added += self.add(kind, pods)
        return added, complete, most


def _least(prices: Float64, many: Int64, most: Float64, worth: float) -> float:
    """Return a lower bound of the price of any set, from values of pods and patterns.

    The pods together have the value ``worth``, those of a node of a kind at most ``most``. Values
    may be scaled by any factor; the best one at which a kind begins to pay is taken.
    """
    factors = np.append(prices / np.maximum(most, 1e-12), 1.0)
    found = 0.0
    for factor in factors[factors <= 1].tolist():
        spared = np.maximum(factor * most - prices, 0.0)
        found = max(found, factor * worth - float(many @ spared))
    return found

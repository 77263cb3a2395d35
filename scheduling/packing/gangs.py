"""Whether a group can be placed at all: an exact search, in a child process.

The scheduler takes the pods of a group in order, and so may miss a placement of unlike pods, or of
pods with anti-affinity. ``GangProblem`` states the rules for every placement in numbers; ``search``
decides it by CP-SAT within a deadline: a placement, a proof that there is none, or neither.
``GangSearch`` runs it in a child process without blocking: a searched group waits, and the caller
polls ``answers``.
"""

import atexit
import subprocess
import sys
import threading
from collections.abc import Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import msgspec

from scheduling.packing import child_process

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

FOUND: Final = "found"
IMPOSSIBLE: Final = "impossible"
LATE: Final = "late"
MOST_CELLS: Final = 200_000
"""Pairs of a class and a node beyond which a group is not searched."""
_MOST_TURNS: Final = 40_000
_GRACE_SECONDS: Final = 2.0
_START_SECONDS: Final = 30.0
_NICENESS: Final = 10
"""Higher priority than the packer's, since pods wait for the answer, a second by default."""


class Apart(msgspec.Struct, frozen=True):
    """Anti-affinity: pods of two classes share no domain; ``domains``: of each node, -1: none."""

    first: int
    second: int
    domains: list[int]


class GangAffinity(msgspec.Struct, frozen=True):
    """A required pod affinity of the class ``cls``.

    Its pods may go only to a domain with a pod of a class in ``others``, or in ``served`` (a
    matching pod runs there). ``domains``: of each node, -1 for none. ``first_may``: the class
    matches its own term, so its first pod may go anywhere.
    """

    cls: int
    others: list[int]
    domains: list[int]
    served: list[int] = []
    first_may: bool = False


class GangProblem(msgspec.Struct, frozen=True):
    """A group in numbers.

    ``counts``: pods of each class; ``needed``: how many of all must be placed. ``asks``: requests
    of each class by resource; ``free``: amounts of each node. ``allowed``: for each class the nodes
    that every other rule allows. ``one_of``: by level, the domain of each node, -1: none; all pods
    share one.
    """

    counts: list[int]
    needed: int
    asks: list[list[int]]
    free: list[list[int]]
    allowed: list[list[int]]
    one_of: list[int] = []
    apart: list[Apart] = []
    beside: list[GangAffinity] = []


class GangAnswer(msgspec.Struct, frozen=True):
    """The result of a search. ``placed``: for each class, pairs of a node and a number of pods."""

    outcome: str
    placed: list[list[tuple[int, int]]] = []


def search(problem: GangProblem, seconds: float) -> GangAnswer:
    """Return a placement, or that none exists, or that the time was too short to find out."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    nodes = len(problem.free)
    x: list[dict[int, cp_model.IntVar]] = []
    for cls, allowed in enumerate(problem.allowed):
        asks = [(at, ask) for at, ask in enumerate(problem.asks[cls]) if ask > 0]
        most = {
            node: min(problem.counts[cls], *(problem.free[node][at] // ask for at, ask in asks))
            for node in allowed
        }
        x.append({node: model.new_int_var(0, top, "") for node, top in most.items() if top > 0})
        model.add(sum(x[cls].values()) <= problem.counts[cls])
    model.add(sum(one for row in x for one in row.values()) >= problem.needed)
    for node in range(nodes):
        here = [(cls, row[node]) for cls, row in enumerate(x) if node in row]
        for place, free in enumerate(problem.free[node]):
            asked = [
                problem.asks[cls][place] * one for cls, one in here if problem.asks[cls][place]
            ]
            if asked:
                model.add(sum(asked) <= max(free, 0))

    def there(
        cls: int, domains: list[int]
    ) -> dict[int, tuple[cp_model.IntVar, list[cp_model.IntVar]]]:
        """Return, by domain, whether a pod of the class is in it, and the class's counts there."""
        found: dict[int, list[cp_model.IntVar]] = {}
        for node, one in x[cls].items():
            if domains[node] >= 0:
                found.setdefault(domains[node], []).append(one)
        made = {}
        for domain, ones in found.items():
            some = model.new_bool_var("")
            model.add(sum(ones) >= 1).only_enforce_if(some)
            model.add(sum(ones) == 0).only_enforce_if(~some)
            made[domain] = some, ones
        return made

    if problem.one_of:
        chosen = {one: model.new_bool_var("") for one in set(problem.one_of) if one >= 0}
        model.add_exactly_one(chosen.values())
        for row in x:
            for node, one in row.items():
                if problem.one_of[node] < 0:
                    model.add(one == 0)
                else:
                    model.add(one == 0).only_enforce_if(~chosen[problem.one_of[node]])
    for rule in problem.apart:
        first = there(rule.first, rule.domains)
        if rule.first == rule.second:
            for _, ones in first.values():
                model.add(sum(ones) <= 1)
            continue
        second = there(rule.second, rule.domains)
        for domain in first.keys() & second.keys():
            model.add_at_most_one(first[domain][0], second[domain][0])
    for wish in problem.beside:
        mine = there(wish.cls, wish.domains)
        others = [there(one, wish.domains) for one in wish.others if one != wish.cls]
        seeds = []
        for domain, (some, _) in mine.items():
            if domain in wish.served:
                continue
            helpers = [one[domain][0] for one in others if domain in one]
            if wish.first_may:
                seed = model.new_bool_var("")
                seeds.append(seed)
                helpers.append(seed)
            model.add_bool_or([~some, *helpers])
        if seeds:
            model.add_at_most_one(seeds)
        for node, one in x[wish.cls].items():
            if wish.domains[node] < 0:
                model.add(one == 0)
    _state_turns(model, x, problem)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        placed = [
            [(node, solver.value(one)) for node, one in row.items() if solver.value(one)]
            for row in x
        ]
        return GangAnswer(FOUND, placed)
    return GangAnswer(IMPOSSIBLE if status == cp_model.INFEASIBLE else LATE)


def _state_turns(
    model: "cp_model.CpModel", x: "list[dict[int, cp_model.IntVar]]", problem: GangProblem
) -> None:
    """Add constraints for an order of pods in which each finds the pods that its affinity requires.

    Without them two pods might need each other, or two be the first of their kind, which no filter
    passes. If they would be more than ``_MOST_TURNS``, none is added: the model is then a
    relaxation, whose proofs that no placement exists still hold.
    """
    wanted = {one for wish in problem.beside for one in (wish.cls, *wish.others)}
    cells = [(cls, node) for cls in sorted(wanted) for node in x[cls]]
    company = {
        at: [cell for cell in cells if cell[0] in wish.others]
        for at, wish in enumerate(problem.beside)
    }
    pairs = sum(len(company[at]) * len(x[wish.cls]) for at, wish in enumerate(problem.beside))
    if not cells or pairs > _MOST_TURNS:
        return
    there, turn = {}, {}
    for cell in cells:
        there[cell], turn[cell] = model.new_bool_var(""), model.new_int_var(0, len(cells), "")
        count = x[cell[0]][cell[1]]
        model.add(count >= 1).only_enforce_if(there[cell])
        model.add(count == 0).only_enforce_if(~there[cell])
    for at, wish in enumerate(problem.beside):
        for node in x[wish.cls]:
            mine, domain = (wish.cls, node), wish.domains[node]
            if domain < 0 or domain in wish.served:
                continue
            ways = []
            for cell in company[at]:
                if cell != mine and wish.domains[cell[1]] == domain:
                    ways.append(before := model.new_bool_var(""))
                    model.add_implication(before, there[cell])
                    model.add(turn[cell] < turn[mine]).only_enforce_if(before)
            if wish.first_may:
                ways.append(first := model.new_bool_var(""))
                for cell in company[at]:
                    if cell != mine:
                        model.add(turn[mine] < turn[cell]).only_enforce_if(first, there[cell])
            model.add_bool_or([~there[mine], *ways])


class _Question(msgspec.Struct):
    problem: GangProblem
    seconds: float


class GangSearch:
    """Searches placements of gangs in a child process, one gang at a time, without blocking.

    Args:
        seconds: how long each search may take.
    """

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self._asked: dict[Hashable, Future[GangAnswer]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gangs")
        self._child: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        atexit.register(self.close)

    def __contains__(self, key: object) -> bool:
        return key in self._asked

    def __bool__(self) -> bool:
        """Return whether an answer is still to come."""
        return bool(self._asked)

    def ask(self, key: Hashable, problem: GangProblem) -> None:
        """Queue a search for a group, behind the searches that were queued before."""
        if key not in self._asked:
            self._asked[key] = self._thread.submit(self._answer, problem)

    def answers(self) -> list[tuple[Hashable, GangAnswer]]:
        """Return the answers since the last call, each with the key of its group."""
        done = [key for key, future in self._asked.items() if future.done()]
        return [(key, self._asked.pop(key).result()) for key in done]

    def close(self) -> None:
        """End the child, if there is one; nothing may be asked afterwards."""
        self._is_closed = True
        self._end()

    def _end(self) -> None:
        child, self._child = self._child, None
        child_process.end(child)

    def _answer(self, problem: GangProblem) -> GangAnswer:
        """Return the child's answer; if the child dies, try another one, once.

        If that dies too, or a child is too late, the answer is that nothing was found.
        """
        return self._ask_child(problem) or self._ask_child(problem) or GangAnswer(LATE)

    def _ask_child(self, problem: GangProblem) -> GangAnswer | None:
        """Return a child's answer, ``None`` if it died."""
        if self._is_closed:
            return GangAnswer(LATE)
        limit = self.seconds + _GRACE_SECONDS
        if self._child is None or self._child.poll() is not None:
            self._end()
            limit += _START_SECONDS
            self._child = child_process.start("scheduling.packing.gangs")
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            child.kill()

        timer = threading.Timer(limit, end)
        timer.start()
        try:
            child.stdin.write(msgspec.json.encode(_Question(problem, self.seconds)) + b"\n")
            child.stdin.flush()
            line = child.stdout.readline()
            if line:
                return msgspec.json.decode(line, type=GangAnswer)
        except (BrokenPipeError, ValueError):
            pass
        finally:
            timer.cancel()
        self._end()
        return GangAnswer(LATE) if is_late.is_set() else None


def main() -> None:
    """Answer the requests on standard input, one per line, until it ends."""
    child_process.give_way(_NICENESS)
    for line in sys.stdin.buffer:
        asked = msgspec.json.decode(line, type=_Question)
        answer = search(asked.problem, asked.seconds)
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

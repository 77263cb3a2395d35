"""The solver's process: bounded, replaced when it dies, and nothing without OR-tools."""

import importlib.util
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from clusterstate.objects.values.errors import ServiceUnavailable
from scheduling.packing import child_process, process, search
from tests.packing import worlds


@pytest.fixture
def solver() -> Iterator[process._Solver]:
    solver = process._Solver()
    yield solver
    solver.end()


def ask(solver: process._Solver, problem: Any, **more: Any) -> Any:
    asked = {"problem": problem, "work": 0.1, "seconds": 60.0, "seed": 3}
    return solver.ask(asked, 60.0, more.get("go_on", lambda: None))


def test_the_process_answers_as_the_search_does_and_serves_again(solver: process._Solver) -> None:
    problem = worlds.problem(*worlds.exact(12, 6, 2))
    expected = search.pack(problem, work=0.1, seconds=60.0, seed=3)
    for _ in range(2):
        found = ask(solver, problem)
        assert np.array_equal(found.x, expected.x)
        assert (found.value, found.most, found.steps) == (
            expected.value,
            expected.most,
            expected.steps,
        )
    assert solver._child is not None
    pid = solver._child.pid
    assert os.getpriority(os.PRIO_PROCESS, pid) == 19
    most = child_process.MOST_MEMORY
    assert resource.prlimit(pid, resource.RLIMIT_DATA) == (most, most)


def test_a_process_that_is_killed_leaves_its_last_answer_and_is_replaced(
    solver: process._Solver,
) -> None:
    problem = worlds.problem(*worlds.exact(40, 10, 5))
    ask(solver, worlds.problem([(2, 2)], [(1, 1)]))
    first = solver._child
    assert first is not None
    told = 0

    def kill() -> None:
        nonlocal told
        told += 1
        if told == 3:
            assert first is not None
            os.kill(first.pid, signal.SIGKILL)

    asked = {"problem": problem, "work": 50.0, "seconds": 60.0, "seed": 0}
    with suppress(ServiceUnavailable):  # killed before it had sent anything
        found = solver.ask(asked, 60.0, kill)
        assert isinstance(found, np.ndarray)
        assert problem.is_valid(found)
    assert ask(solver, worlds.problem([(2, 2)], [(1, 1)])).value == 1
    assert solver._child is not first


def test_an_asker_who_gives_up_ends_the_process(solver: process._Solver) -> None:
    def give_up() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        ask(solver, worlds.problem(*worlds.exact(12, 6, 2)), go_on=give_up)
    assert solver._child is None


def test_a_problem_beyond_what_fits_into_memory_is_refused() -> None:
    problem = worlds.problem([(10, 10)] * 3000, [(1, 1)])
    problem.limits = np.broadcast_to(problem.limits[:, :1], (7000, 3000))
    with pytest.raises(ServiceUnavailable, match="more than the packer takes"):
        process.ask(problem, work=0.1, seconds=1.0)


def test_without_the_solver_the_question_answers_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ServiceUnavailable, match="extra `solver`"):
        process.ask(worlds.problem([(2, 2)], [(1, 1)]), work=0.1, seconds=1.0)

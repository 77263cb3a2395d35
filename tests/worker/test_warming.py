"""A process that has to work at once does not wait for the engine's loops to be compiled."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusterstate.database import sql
from scheduling.engine import deciding
from scheduling.worker import loop, warming
from tests.waiting import running, until

ROOT = Path(__file__).resolve().parents[2]
PROCESS = """
import sys
import structlog
from scheduling.engine.fast import fast_lane
from scheduling.engine.preemption import row_program
from scheduling.worker import warming
from tests.engine.test_runs import facts_of, small_case

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

def decide():
    plain, others, by_runs = small_case(40)
    assert [facts_of(one) for one in others] == [facts_of(one) for one in plain]
    loops = fast_lane.enabled(), row_program.enabled()
    print(by_runs >= 35, *loops, flush=True)

warming.begin(lambda: print("gave up", flush=True))
decide()
sys.stdin.readline()
for thread in warming._threads:
    thread.join()
decide()
"""


@contextmanager
def process(cache: Path | None) -> Iterator[subprocess.Popen[str]]:
    environment = dict(os.environ)
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    child = subprocess.Popen(
        [sys.executable, "-c", PROCESS],
        cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def compiler_of(pid: int) -> int:
    """Return the process that a process started, 0 if there is none."""
    started = [
        int(number)
        for file in Path(f"/proc/{pid}/task").glob("*/children")
        for number in file.read_text().split()
    ]
    return started[0] if started else 0


def test_loops_that_are_on_disk_are_loaded_at_once() -> None:
    deciding.warm()
    with process(None) as child:
        assert said(child) == "True True True"
        assert not compiler_of(child.pid)


def test_pods_are_decided_while_another_process_compiles(tmp_path: Path) -> None:
    with process(tmp_path) as child:
        assert said(child) == "False False False"
        compiler = until(lambda: compiler_of(child.pid), what="a process that compiles")
        assert running(compiler)
        child.kill()
        until(lambda: not running(compiler), what="the compiling process to end with its parent")


def test_of_processes_that_begin_together_one_has_the_loops_compiled(tmp_path: Path) -> None:
    with process(tmp_path) as first, process(tmp_path) as second:
        children = [first, second]
        assert [said(one) for one in children] == ["False False False"] * 2
        (one,) = until(
            lambda: [one for one in children if compiler_of(one.pid)],
            what="a process that compiles",
        )
        one.kill()  # its compiler goes with it, and the other one's turn comes
        (other,) = {first, second} - {one}
        until(lambda: compiler_of(other.pid), what="another process that compiles")


@pytest.mark.django_db(transaction=True)
def test_the_scheduler_says_that_it_works_while_another_process_compiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It places pods by the reference path."""
    compiled = threading.Event()
    compiling = threading.Thread(target=compiled.wait, args=(60,))
    compiling.start()
    monkeypatch.setattr(warming, "_threads", [compiling])
    try:
        loop.run(longest=0.2)
        assert reported() == {"scheduler"}
    finally:
        compiled.set()
        compiling.join()
        loop.discard()


def reported() -> set[str]:
    return {name for (name,) in sql.fetch("SELECT name FROM loop_progress")}


@pytest.mark.long
def test_what_another_process_compiled_decides_from_then_on(tmp_path: Path) -> None:
    with process(tmp_path) as child:
        assert said(child) == "False False False"
        assert child.stdin is not None
        child.stdin.write("go on when it is compiled\n")
        child.stdin.flush()
        assert said(child) == "True True True"
        assert child.wait(60) == 0

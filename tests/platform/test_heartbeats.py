"""Signs of life, written by one process and read by another."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusterstate.health import heartbeats
from tests.live import ROOT
from tests.waiting import running, until

BEATING = """
import sys
from pathlib import Path
from clusterstate.health import heartbeats
heartbeats.begin(Path(sys.argv[1]), "worker")
for line in sys.stdin:
    name, seconds = line.split()
    if name == "begin":
        heartbeats.begin(Path(sys.argv[1]), "worker")
    elif seconds == "rest":
        heartbeats.rest(name)
    else:
        heartbeats.beat(name, float(seconds))
    print("done", flush=True)
"""


@pytest.fixture
def beat(tmp_path: Path) -> Iterator[Callable[[str, object], int]]:
    """Have another process beat; returns its pid."""
    process = subprocess.Popen(
        [sys.executable, "-c", BEATING, str(tmp_path)],
        cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip

    def say(name: str, seconds: object) -> int:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{name} {seconds}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        return process.pid

    yield say
    process.kill()
    process.wait()


def test_who_begins_again_after_a_first_loop_began_is_not_awaited_again(
    tmp_path: Path, beat: Callable[[str, object], int]
) -> None:
    """The scheduler's process begins before it compiles, and again with its loop."""
    beat("first", 60)
    beat("begin", 0)
    beat("first", 2 * heartbeats.START_SECONDS)
    later = time.monotonic() + 1.5 * heartbeats.START_SECONDS
    assert heartbeats.hung(heartbeats.signs(tmp_path), later) == []


def test_a_loop_at_rest_does_not_beat(tmp_path: Path, beat: Callable[[str, object], int]) -> None:
    pid = beat("first", 60)
    assert heartbeats.beating(tmp_path, "first") == {pid}
    assert heartbeats.beating(tmp_path, "second") == set()
    beat("first", "rest")
    assert heartbeats.beating(tmp_path, "first") == set()


def late(state: Path) -> list[str]:
    return [one.loop for one in heartbeats.hung(heartbeats.signs(state))]


def test_a_loop_hangs_when_its_deadline_has_passed_and_not_when_it_asked_for_more(
    tmp_path: Path, beat: Callable[[str, object], int]
) -> None:
    pid = beat("first", 60)
    beat("second", 0.01)
    (found,) = until(lambda: heartbeats.hung(heartbeats.signs(tmp_path)))
    assert (found.process, found.pid, found.loop) == ("worker", pid, "second")
    beat("second", 60)
    assert late(tmp_path) == []
    beat("first", -1)  # less time than before counts as well
    assert late(tmp_path) == ["first"]


def test_a_dead_process_and_one_that_got_its_number_are_no_hung_ones(
    tmp_path: Path, beat: Callable[[str, object], int]
) -> None:
    pid = beat("loop", -1)
    file = tmp_path / heartbeats.FOLDER / f"worker-{pid}"
    text = file.read_bytes()
    file.write_bytes(text.replace(b".000", b".001", 1))  # started at another time
    assert late(tmp_path) == []
    assert not file.exists()


def test_the_health_check_wants_a_process_and_kills_one_that_hangs(
    tmp_path: Path, beat: Callable[[str, object], int]
) -> None:
    def check(process: str = "worker") -> int:
        done = subprocess.run(
            [sys.executable, "-m", "clusterstate.health.heartbeats"],
            cwd=ROOT, env={"STOWAGE_STATE": str(tmp_path), "STOWAGE_PROCESS": process},
            check=False, capture_output=True,
        )  # fmt: skip
        return done.returncode

    pid = beat("loop", 60)
    assert check() == 0
    assert check("timers") == 1
    beat("loop", -1)
    assert check() == 1
    until(lambda: not running(pid), what="the process to be killed")


def test_without_room_for_its_file_a_process_works_all_the_same(tmp_path: Path) -> None:
    (tmp_path / heartbeats.FOLDER).write_text("in the way")
    done = subprocess.run(
        [sys.executable, "-c", BEATING, str(tmp_path)],
        cwd=ROOT, text=True, input="loop 1\n", capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout == "done\n"

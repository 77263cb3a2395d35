"""The supervisor over trivial children: order, restarts, crashes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.starving import Starved
from tests.waiting import running, until

NAMES = ["first", "second", "third"]


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.platform.supervised", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def pid(folder: Path, name: str) -> int:
    file = folder / f"{name}.pid"
    return int(file.read_text()) if file.exists() else 0


def pids(folder: Path) -> list[int]:
    return [pid(folder, name) for name in NAMES]


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = start(tmp_path)
    until(lambda: all(pids(tmp_path)), what="three children")
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_a_killed_child_is_restarted(supervisor, tmp_path: Path) -> None:
    before = pid(tmp_path, "second")
    others = pid(tmp_path, "first"), pid(tmp_path, "third")
    os.kill(before, signal.SIGKILL)
    until(lambda: pid(tmp_path, "second") not in (0, before), what="a new pid")
    assert (pid(tmp_path, "first"), pid(tmp_path, "third")) == others
    supervisor.send_signal(signal.SIGTERM)
    output, _ = supervisor.communicate(timeout=20)
    assert "second | was ended by SIGKILL; starts again" in output
    assert "second | hello from second" in output


def test_a_full_disk_does_not_end_the_supervisor(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.platform.supervised", str(tmp_path)],
            stdout=full, stderr=full,
        )  # fmt: skip
    try:
        until(lambda: all(pids(tmp_path)), what="three children")
        before = pid(tmp_path, "second")
        os.kill(before, signal.SIGKILL)
        until(lambda: pid(tmp_path, "second") not in (0, before), what="a new pid")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_a_stopped_child_is_replaced(supervisor, tmp_path: Path) -> None:
    before = pid(tmp_path, "second")
    os.kill(before, signal.SIGSTOP)
    until(lambda: pid(tmp_path, "second") not in (0, before), what="a new pid")
    assert not running(before)


def test_a_child_that_is_continued_again_and_again_is_slow_and_stays(
    supervisor, tmp_path: Path
) -> None:
    before = pid(tmp_path, "second")
    began = time.monotonic()
    with Starved(lambda: [before], 0.1):
        until(lambda: time.monotonic() - began > 8, what="looks at a process mostly stopped")
    assert pid(tmp_path, "second") == before
    assert running(before)


def test_a_child_is_restarted_where_the_supervisors_owner_asks_for_it(
    supervisor, tmp_path: Path
) -> None:
    before = pids(tmp_path)
    (tmp_path / "restart").touch()
    until(lambda: pid(tmp_path, "first") not in (0, before[0]), what="a new pid")
    assert pids(tmp_path)[1:] == before[1:]
    assert (tmp_path / "stops").read_text().split() == ["first"]


def test_a_child_that_is_silent_longer_than_it_said_is_replaced(supervisor, tmp_path: Path) -> None:
    before = pid(tmp_path, "second")
    (tmp_path / "second.silent").touch()
    until(lambda: pid(tmp_path, "second") not in (0, before), what="a new pid")
    supervisor.send_signal(signal.SIGTERM)
    output, _ = supervisor.communicate(timeout=20)
    assert f"second | loop is silent: killed (pid {before})" in output


def test_a_stopped_server_continues(supervisor, tmp_path: Path) -> None:
    before = pid(tmp_path, "third")
    os.kill(before, signal.SIGSTOP)
    os.kill(before, signal.SIGTERM)  # served when it continues
    until(lambda: (tmp_path / "stops").exists(), what="the child to continue")
    until(lambda: pid(tmp_path, "third") not in (0, before), what="a new pid")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all_in_order(supervisor, tmp_path: Path, number: signal.Signals) -> None:
    children = pids(tmp_path)
    supervisor.send_signal(number)
    supervisor.communicate(timeout=20)
    assert supervisor.returncode == 0
    assert (tmp_path / "stops").read_text().split() == ["third", "second", "first"]
    assert not any(running(child) for child in children)


def test_a_killed_supervisor_leaves_no_orphan(supervisor, tmp_path: Path) -> None:
    children = pids(tmp_path)
    supervisor.kill()
    supervisor.wait()
    until(lambda: not any(running(child) for child in children), what="no orphan")


def test_a_second_start_names_the_first(supervisor, tmp_path: Path) -> None:
    second = start(tmp_path)
    output, _ = second.communicate(timeout=20)
    assert second.returncode == 1
    assert f"already running (pid {supervisor.pid})" in output


def test_a_start_after_a_killed_supervisor_succeeds(supervisor, tmp_path: Path) -> None:
    before = pids(tmp_path)
    supervisor.kill()
    supervisor.wait()
    again = start(tmp_path)
    until(lambda: all(new not in (0, *before) for new in pids(tmp_path)), what="new children")
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=20)
    assert again.returncode == 0


def test_children_are_replaced_by_successors_that_are_warm(supervisor, tmp_path: Path) -> None:
    before = pids(tmp_path)
    supervisor.send_signal(signal.SIGUSR1)
    until(lambda: "all replaced" in (tmp_path / "log").read_text(), what="all replaced")
    after = pids(tmp_path)
    assert [old != new for old, new in zip(before, after, strict=True)] == [True, True, False]
    assert not running(before[0])
    assert not running(before[1])
    assert (tmp_path / "stops").read_text().split() == ["first", "second"], "they were asked"
    os.kill(after[0], signal.SIGKILL)
    until(lambda: pid(tmp_path, "first") not in (0, after[0]), what="a successor that is kept up")


def test_a_successor_that_stays_cold_changes_nothing(supervisor, tmp_path: Path) -> None:
    before = pids(tmp_path)
    (tmp_path / "first.cold").touch()
    supervisor.send_signal(signal.SIGUSR1)
    until(lambda: "not all replaced" in (tmp_path / "log").read_text(), what="giving up")
    assert running(before[0])
    assert running(before[1])
    assert "the old process continues" in (tmp_path / "log").read_text()

"""A run of the tests that is killed, or interrupted, leaves no service behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.forms import few
from tests.live import ROOT
from tests.waiting import running, until

pytestmark = [pytest.mark.slow, pytest.mark.real_clock, pytest.mark.timeout(300)]
_OURS = ("PYTEST", "TEST_", "STOWAGE_", "DATABASE_URL", "REDIS_URL")


@pytest.mark.parametrize(
    ("arguments", "whom", "number"),
    few(
        [
            (["-n", "1"], "run", signal.SIGKILL),
            ([], "run", signal.SIGINT),
            (["-n", "1"], "worker", signal.SIGKILL),
            ([], "run", signal.SIGKILL),
        ],
    ),
    ids=["killed with workers", "interrupted", "worker killed", "killed"],
)
def test_nothing_is_left_behind_by_a_run_that(
    tmp_path: Path, arguments: list[str], whom: str, number: int
) -> None:
    file = tmp_path / "pids"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments,
             "tests/platform/leaving_behind.py"],
            cwd=ROOT, env=environment | {"LEAVING_BEHIND": str(file)}, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        until(
            lambda: file.exists() or run.poll() is not None, seconds=200, what="a running service"
        )
        assert file.exists(), (tmp_path / "log").read_text()
        worker, supervisor, *_ = pids = [int(pid) for pid in file.read_text().split()]
        everything = {*pids, *(one.pid for one in psutil.Process(supervisor).children(True))}
        os.kill(worker if whom == "worker" else run.pid, number)
        until(
            lambda: not any(running(pid) for pid in everything - {run.pid}),
            seconds=60, what=f"the end of {everything}",
        )  # fmt: skip
    finally:
        run.kill()
        run.wait()

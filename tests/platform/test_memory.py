"""Memory of processes: what a burst took is given back."""

import os
import subprocess
import sys

import pytest

from clusterstate.local import parts
from clusterstate.processes import collector
from tests.live import ROOT

_CODE = """
from pathlib import Path
from clusterstate.processes import collector

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) << 12

before = resident()
burst = [bytes([n % 251]) * 3000 for n in range(50_000)]  # 150 MB, too large for pymalloc
full = resident()
kept = burst[::100]  # and something stays in each place
del burst
free = collector.give_back()
print(before, full, free, resident(), collector.give_back())
"""


@pytest.mark.skipif(collector._figures is None, reason="the C library gives nothing back")
def test_memory_that_a_burst_took_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CODE],
        cwd=ROOT, env=os.environ | {"MALLOC_ARENA_MAX": "2"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    before, full, free, after, free_then = map(int, done.stdout.split())
    assert full - before > 140_000_000
    assert free > 100_000_000
    assert after - before < 40_000_000
    assert free_then >= collector.MUCH_BYTES  # the addresses stay, without memory behind them


ENGINE = {"numpy", "numba", "scheduling.engine", "scheduling.plugins"}
BROWSER = {"api", "axes", "django.contrib.admin", "rest_framework", "unfold"}
COMMANDS = {"celery.bin.celery", "click_repl", "prompt_toolkit"}
CONTROLLERS = {"scheduling.controllers.manager", "scheduling.controllers.workloads"}
WEB = "import api.asgi"
UP = "import django; django.setup(); import clusterstate.management.commands.up"
CELERY = """
import os, runpy, celery.apps.beat, celery.apps.worker
def imported(process):
    process.app.loader.import_default_modules()
    if os.environ["STOWAGE_PROCESS"] != "beat":
        from scheduling.processes import loops
        process = os.environ["STOWAGE_PROCESS"]
        for name, work in (loops.LOOPS[process], *loops.BESIDE.get(process, ())):
            work()
celery.apps.beat.Beat.run = celery.apps.worker.Worker.start = imported
celery.apps.worker.Worker.exitcode = 0
try:
    runpy.run_module("scheduling", run_name="__main__")
except SystemExit:
    pass
"""
"""What a process of Celery's imports by its own command, until it begins to work."""
DOES_WITHOUT = {
    "http": (WEB, ENGINE | COMMANDS),
    "manage": (UP, ENGINE | COMMANDS | CONTROLLERS),
    "beat": (CELERY, ENGINE | COMMANDS | CONTROLLERS | BROWSER | {"redis", "scheduling.worker"}),
    "timers": (CELERY, ENGINE | COMMANDS | CONTROLLERS | BROWSER),
    "worker": (CELERY, ENGINE | COMMANDS | BROWSER),
    "scheduler": (CELERY, COMMANDS | CONTROLLERS | BROWSER),
    "advisor": (CELERY, COMMANDS | CONTROLLERS | BROWSER),
}
"""By STOWAGE_PROCESS: what a process of the service imports until it works, and what it must not.

NumPy and the engine are 18 MB and a third of a second in every process that has them; the commands
of Celery and what people see in a browser are a quarter of a second each.
"""
LIKE_HTTP = {"https", "console"}
PARTS = {
    part.process: part
    for part in parts.parts(
        parts.PartOptions(
            http_port=1, https_port=2, host="", certificate=ROOT, key=ROOT, console=ROOT
        )
    )
}


def test_it_is_said_of_every_process_what_it_does_without() -> None:
    assert PARTS.keys() == (DOES_WITHOUT.keys() - {"manage"}) | LIKE_HTTP


@pytest.mark.parametrize("process", DOES_WITHOUT)
def test_a_process_starts_without_what_only_others_need(process: str) -> None:
    code, unwanted = DOES_WITHOUT[process]
    arguments = PARTS[process].arguments[2:] if code is CELERY else ()
    settings = {"STOWAGE_PROCESS": process, "DJANGO_SETTINGS_MODULE": "clusterstate.settings"}
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)", *arguments],
        cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=True,
    )  # fmt: skip
    modules = set(done.stdout.split())
    assert {"clusterstate.settings", "scheduling.apps"} <= modules
    assert unwanted & modules == set()

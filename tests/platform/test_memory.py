"""Memory of processes: what a burst took is given back."""

import os
import subprocess
import sys

import pytest

from clusterstate import collector
from tests.live import ROOT

_CODE = """
from pathlib import Path
from clusterstate import collector

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


def test_a_web_process_starts_without_what_only_an_advisor_needs() -> None:
    """NumPy and the engine are 18 MB and a third of a second in each of them."""
    code = (
        "import sys, api.asgi\n"
        "print(sorted({'numpy', 'numba', 'scheduling.engine.cycle'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=os.environ | {"STOWAGE_PROCESS": "http"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"

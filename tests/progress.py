"""How long a run takes, how far it is, how many tests there are; ``-p tests.progress``.

A line at the beginning, one each minute, and at the end the time, the CPU of all processes and the
files that took longest. The process that a person or CI looks at writes them, not xdist's workers.
"""

import os
import time
from collections import defaultdict
from typing import Any, Final

import pytest

EVERY_SECONDS: Final = 60.0
_FILES: Final = 12
_SHORT_SECONDS: Final = 60.0
"""A run that is over by then says nothing of its own."""


def clock(seconds: float) -> str:
    """Return minutes and seconds, as ``8:05``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


class Progress:
    """Counts the tests of a run and writes what has become of it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began = self._told = time.monotonic()
        self._tests = 0
        self._done = 0
        self._seconds: dict[str, float] = defaultdict(float)

    def _write(self, line: str) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"\n{line}")  # after the dots

    def _since(self) -> float:
        return time.monotonic() - self._began

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._has(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        if not self._tests:  # all workers collect the same
            self._has(len(ids))

    def _has(self, count: int) -> None:
        self._tests = count
        if count > 1000:
            self._write(f"{count} tests, found in {clock(self._since())}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.split("::", 1)[0]] += report.duration
        if report.when != "teardown":
            return
        self._done += 1
        if time.monotonic() - self._told >= EVERY_SECONDS:
            self._told = time.monotonic()
            self._write(f"{clock(self._since())}  {self._done} of {self._tests} tests")

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self) -> None:
        if self._since() < _SHORT_SECONDS:
            return
        longest = sorted(self._seconds.items(), key=lambda each: -each[1])[:_FILES]
        listed = ", ".join(f"{file} {seconds:.0f} s" for file, seconds in longest)
        self._write(f"The longest files: {listed}")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Workers and servers have ended: their CPU is known to this process."""
        if self._since() >= _SHORT_SECONDS:
            times = os.times()
            cpu = times.user + times.system + times.children_user + times.children_system
            print(f"The run took {clock(self._since())}, and {clock(cpu)} of CPU in all processes")


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Progress(config), "tests.progress of this run")

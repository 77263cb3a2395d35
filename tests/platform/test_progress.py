"""What a run of the tests says about itself."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests import progress
from tests.progress import Progress


class Reporter:
    """Keeps the lines that were written."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_line(self, line: str) -> None:
        self.lines.append(line.strip())


@pytest.fixture
def reporter() -> Reporter:
    return Reporter()


@pytest.fixture
def run(reporter: Reporter) -> Progress:
    plugins = SimpleNamespace(get_plugin=lambda _: reporter)
    config: Any = SimpleNamespace(pluginmanager=plugins)
    return Progress(config)


def reported(nodeid: str, duration: float = 1.0, when: str = "teardown") -> Any:
    return SimpleNamespace(nodeid=nodeid, duration=duration, when=when)


def test_a_long_run_says_how_many_tests_there_are_and_each_minute_how_many_have_run(
    run: Progress, reporter: Reporter
) -> None:
    run.pytest_xdist_node_collection_finished(["a"] * 2000)
    run.pytest_xdist_node_collection_finished(["a"] * 2000)  # the second worker
    assert reporter.lines == ["2000 tests, found in 0:00"]
    run.pytest_runtest_logreport(reported("tests/a.py::test_1"))
    assert len(reporter.lines) == 1
    run._told -= progress.EVERY_SECONDS
    run.pytest_runtest_logreport(reported("tests/a.py::test_2", when="call"))
    run.pytest_runtest_logreport(reported("tests/a.py::test_2"))
    assert reporter.lines[1:] == ["0:00  2 of 2000 tests"]


def test_a_long_run_ends_with_its_time_and_its_longest_files(
    run: Progress, reporter: Reporter, capsys: pytest.CaptureFixture[str]
) -> None:
    for nodeid in ("tests/short.py::test_1", "tests/long.py::test_1", "tests/long.py::test_2"):
        run.pytest_runtest_logreport(reported(nodeid, 4))
    run.pytest_terminal_summary()
    run.pytest_unconfigure()
    assert reporter.lines == []
    assert capsys.readouterr().out == ""
    run._began -= 485
    run.pytest_terminal_summary()
    run.pytest_unconfigure()
    assert reporter.lines == ["The longest files: tests/long.py 8 s, tests/short.py 4 s"]
    assert capsys.readouterr().out.startswith("The run took 8:05, and ")

"""One clock for a test and the rows that it reads; loaded with ``-p tests.clock``.

Every test begins at ``NOW``, and so does everything in its process that asks for the time: the
edges of the service, Django's sessions, the rows that Django writes when it empties the tables. A
test that writes a row at ``NOW`` and one that lets the service write it meet the same day,
whichever day it is. Time goes on from there as it does; what waits or measures takes the monotonic
clock, which is not moved.

``TEST_CLOCK=2028-02-29T23:59:59Z`` moves ``NOW``; ``make later`` runs what depends on time at
other moments.
PostgreSQL's clock is another one and stays where it is, so a statement that asks for ``now()`` and
a row that was written by this process do not agree, and the test of it fails.

A test that starts processes shares the real clock with them: ``@pytest.mark.real_clock``.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
import time_machine

from api import clock

VARIABLE: Final = "TEST_CLOCK"
_USUAL: Final = "2026-11-21T12:00:00Z"
_REAL_CLOCK: Final = frozenset({"live"})
"""Fixtures that start processes."""


def _read(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None or found.microsecond:
        raise pytest.UsageError(f"{VARIABLE}: {text} is not a whole second with a time zone")
    return found.astimezone(UTC)


NOW: Final = _read(os.environ.get(VARIABLE, _USUAL))
"""When every test begins."""


def after(seconds: float) -> datetime:
    """Return the moment so many seconds after a test began."""
    return NOW + timedelta(seconds=seconds)


def moment(seconds: float = 0) -> str:
    """Return the moment so many seconds after a test began as Kubernetes writes times."""
    return after(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_clock: shares the real clock with other processes")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _REAL_CLOCK & set(getattr(item, "fixturenames", ())):
            item.add_marker("real_clock")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let set-up, test and tear-down begin at ``NOW``."""
    # A test that has this process serve others has it follow the database's clock, too.
    clock.compare(database=0.0, before=0.0, after=0.0)
    if item.get_closest_marker("real_clock"):
        return (yield)
    with time_machine.travel(NOW, tick=True):
        return (yield)

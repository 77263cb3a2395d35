"""Which tests run, and which worker of a parallel run takes them; ``-p tests.distribution``.

A file's tests stay together, and so do all files that ask the shared service: one worker starts it
for all of them, and it ends after the last. Otherwise each worker would start one, at 6 s of CPU,
and keep it to the end.

Tests of whole services and of a browser wait for processes two thirds of the time, all others
compute. Of five workers three begin with the files that wait (``WAITING``) and two with the others,
so that both cores have work from the first minute to the last. A worker that finds no more files of
its own kind takes one of the other. The workers that compute yield to the services (``NICENESS``),
which have deadlines.

Of each kind the long files come first: those of a browser, of faults, and those with a test that is
marked slow. So no worker is left alone with one. The first service of a fresh clone compiles the
engine's loops for a minute, on one core, and whoever else needs these waits for it: the workers
that compute begin with long files that need none. The runner keeps this order with
--no-loadscope-reorder.

``TEST_VARIANTS=3`` leaves at most so many variants of each test that uses the database: the first,
the last and those in the middle. ``make later`` runs these: what a test's parameters vary is not
the time, and each test runs. Parameters that are times belong to tests without a database, which
cost nothing and run in full, or are marked ``every_variant``.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests import live

SHARED: Final = "live"
"""The fixture of the shared service."""
OF_SHARED: Final = (
    "tests/api/test_rights.py",
    "tests/api/test_waiting.py",
    "tests/api/test_watch.py",
    "tests/clients/",
    "tests/journeys/test_decision_explained.py",
    "tests/journeys/test_stores_and_web_servers.py",
    "tests/kubectl/",
)
"""Files and folders whose tests ask it. The process that distributes tests sees only names."""
WAITING: Final = (
    SHARED,
    "tests/browser/",
    "tests/drills/",
    "tests/faults/",
    "tests/journeys/",
    "tests/platform/",
)
"""Units of work whose tests wait most of the time: the shared service's, and folders."""
NICENESS: Final = 5
_WITHOUT_THE_ENGINE: Final = ("test_dry_run.py", "test_every_kind.py", "test_schema.py")


VARIANTS: Final = "TEST_VARIANTS"


def shares(file: str) -> bool:
    """Return whether the file's tests ask the shared service."""
    return file.startswith(OF_SHARED)


def begins_waiting(worker: str, count: int) -> bool:
    """Return whether a worker (``gw0`` is the first) of so many begins with the files that wait."""
    return int(worker.removeprefix("gw")) < (count + 1) // 2


def chosen(units: Iterable[str], *, waits: bool) -> str:
    """Return the first unit of those that wait, or of the others; the first if there is none."""
    left = list(units)
    return next((unit for unit in left if unit.startswith(WAITING) is waits), left[0])


class Together(LoadFileScheduling):
    """Hands out files, those of the shared service as one, to each worker of its kind first."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return SHARED if shares(file) else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        waits = begins_waiting(node.gateway.id, self.numnodes)
        self.workqueue.move_to_end(chosen(self.workqueue, waits=waits), last=False)
        super()._assign_work_unit(node)

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        """Forget a unit that is done: xdist counts all that a worker has after each test."""
        unit = self._split_scope(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        if all(self.assigned_work[node][unit].values()):
            del self.assigned_work[node][unit]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together | None:
    return Together(config, log) if config.option.dist == "loadfile" else None


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::", 1)[0]


def some(count: int, most: int) -> set[int]:
    """Return which of so many variants run, from the first to the last."""
    if count <= most:
        return set(range(count))
    return {round(place * (count - 1) / max(1, most - 1)) for place in range(most)}


def _leave_some(config: pytest.Config, items: list[pytest.Item], most: int) -> None:
    variants: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("db") and not item.get_closest_marker("every_variant"):
            variants[item.nodeid.split("[", 1)[0]].append(item)
    left_out = {
        item
        for group in variants.values()
        for place, item in enumerate(group)
        if place not in some(len(group), most)
    }
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_variant: runs in full where others run in part")
    worker = getattr(config, "workerinput", None)
    if worker and not begins_waiting(worker["workerid"], worker["workercount"]):
        os.nice(NICENESS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if most := int(os.environ.get(VARIANTS, "0")):
        _leave_some(config, items, most)
    long_files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(
        key=lambda item: (
            item.path.name != "test_soak.py",
            item.path.name not in _WITHOUT_THE_ENGINE,
            not shares(_file(item)),
            not {"browser", "faults"} & {*item.path.parts},
            item.path not in long_files,
        )
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End the shared service after the last test that asks it."""
    try:
        return (yield)
    finally:
        if shares(_file(item)) and (nextitem is None or not shares(_file(nextitem))):
            live.shared.end()


def pytest_sessionfinish() -> None:
    live.shared.end()  # also after Ctrl-C

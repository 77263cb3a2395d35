"""A real PostgreSQL and a real Redis-protocol server for the tests, thrown away afterwards.

Loaded with ``-p tests.servers`` so that it runs before pytest-django reads the settings. The URLs
are known before the servers are: a socket's path is chosen first. The servers start when the
selected tests turn out to need them, so that pure tests run without any.

Reads TEST_DATABASE_URL and TEST_REDIS_URL, never DATABASE_URL: a stray variable in a developer's
shell must not make the tests run on that database.
"""

import atexit
import contextlib
import gc
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from clusterstate.local import embedded, places
from tests import leftovers, prepared

# A test that uses one of these, or is marked django_db or db, gets the servers.
# (pytest-django's own fixtures reach django_db_setup in every test, so that one says nothing.)
DATABASE_FIXTURES = frozenset({"db", "transactional_db", "live_server", "servers", "live"})


PREFIX = "stowage-test-"


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of runs that were killed; their servers died with them (`leftovers`)."""
    for folder in [*parent.glob(f"{PREFIX}*"), *Path(tempfile.gettempdir()).glob("stowage-live-*")]:
        pid = folder.name.split("-")[2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


class _Servers:
    """The servers of one test run; started at most once, by the process that collects tests."""

    def __init__(self) -> None:
        self.base: Path | None = None
        self.owner = os.getpid()
        self.processes: list[subprocess.Popen[bytes]] = []

    def choose(self) -> None:
        """Make the folder of this run and export the URLs the servers will have."""
        parent = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())
        _remove_abandoned(parent)
        prefix = f"{PREFIX}{os.getpid()}-"
        self.base = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        places.make_state(self.base)
        places.make_state(self.base / "prepared")
        os.environ[prepared.PLACE] = str(self.base / "prepared")
        os.environ["DATABASE_URL"] = places.postgres_url(self.base)
        os.environ["REDIS_URL"] = places.redis_url(self.base)
        atexit.register(self.stop)

    def start(self) -> None:
        if self.base is None or self.processes:
            return
        with (self.base / "servers.log").open("wb") as log:
            servers: list[embedded.Server] = [
                embedded.Postgres(self.base, durable=False),
                embedded.Redis(self.base, durable=False),
            ]
            self.processes = [server.spawn(log.fileno()) for server in servers]
        for server, process in zip(servers, self.processes, strict=True):
            embedded.wait_ready(server, process)

    def stop(self) -> None:
        if os.getpid() != self.owner or self.base is None:
            return
        for process in self.processes:
            process.send_signal(signal.SIGQUIT)  # at once: nothing needs to be kept
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
        shutil.rmtree(self.base, ignore_errors=True)


_servers = _Servers()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> None:
    # What is imported and collected stays. `conftest` sets the collector for the tests afterwards.
    gc.set_threshold(200_000, 50, 100)
    leftovers.watch()
    state = tempfile.mkdtemp(prefix="stowage-state-")
    atexit.register(shutil.rmtree, state, ignore_errors=True)
    os.environ["STOWAGE_STATE"] = state
    os.environ.setdefault("STOWAGE_PROCESS", "test")
    # Most tests that trim the log ask what is answered where nothing is kept.
    os.environ.setdefault("STOWAGE_PAST_HOURS", "0")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:  # the controller's servers, but a Redis database of its own
        number = int(worker.removeprefix("gw")) + 1
        os.environ["REDIS_URL"] = os.environ["REDIS_URL"].replace("db=0", f"db={number}")
    elif "TEST_DATABASE_URL" in os.environ:
        os.environ["DATABASE_URL"] = os.environ["TEST_DATABASE_URL"]
        os.environ["REDIS_URL"] = os.environ["TEST_REDIS_URL"]
    else:
        _servers.choose()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "db: uses PostgreSQL or Redis (set by the fixtures it asks for)"
    )
    config.addinivalue_line("markers", "slow: takes more than a few seconds")
    config.addinivalue_line("markers", "conformance: runs the vectors")


def pytest_sessionstart(session: pytest.Session) -> None:
    # With xdist the controller collects nothing, so it cannot know; only "not db" tells it.
    if getattr(session.config.option, "numprocesses", None) and (
        "not db" not in session.config.option.markexpr
    ):
        _servers.start()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("django_db") or DATABASE_FIXTURES & set(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker("db")


def pytest_unconfigure() -> None:
    _servers.stop()


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly and any(
        item.get_closest_marker("db") for item in session.items
    ):
        _servers.start()

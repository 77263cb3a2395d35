"""A whole service for a drill: `manage.py up` in a directory of its own, removed afterwards."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psycopg
import redis
from django.conf import settings

from clusterstate.health import heartbeats
from clusterstate.local import places
from tests import prepared
from tests.perf.service import Client, ServiceError

_START_SECONDS = 300.0


class Scratch:
    """The running service: its API, its database, and its parts to kill."""

    def __init__(self, state: Path, port: int, process: "subprocess.Popen[bytes]") -> None:
        self.state = state
        self.url = f"http://127.0.0.1:{port}"
        self._process = process

    @property
    def token(self) -> str:
        """The administrator's token."""
        return (self.state / "token").read_text().strip()

    def client(self) -> Client:
        """Return a new connection to the API."""
        return Client(self.url, self.token)

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, asked of PostgreSQL itself."""
        with psycopg.connect(places.postgres_url(self.state), autocommit=True) as connection:
            return connection.execute(statement, parameters).fetchall()

    def flush_redis(self) -> None:
        """Empty Redis: messages, wake-ups, signs of life."""
        with redis.Redis.from_url(places.redis_url(self.state)) as client:
            client.flushall()

    def signal(self, part: str, number: signal.Signals) -> int:
        """Send a signal to a part by its process name (`timers`, `worker`, `beat` ...).

        Waits for one that is being started again. Returns its pid.
        """
        pid: int = until(lambda: self._find(part), seconds=120, what=f"a process for {part}")
        os.kill(pid, number)
        return pid

    def standing_by(self) -> set[int]:
        """Return the schedulers that are warm and wait for their turn, by pid."""
        return heartbeats.beating(self.state, "standby")

    def _find(self, part: str) -> int:
        """Return a process of a part, of the schedulers the one that works; 0: none is there."""
        idle = self.standing_by() if part == "scheduler" else set()
        wanted = (f"STOWAGE_PROCESS={part}\0".encode(), f"STOWAGE_STATE={self.state}\0".encode())
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (folder / "environ").read_bytes()
                if all(text in environment for text in wanted) and int(folder.name) not in idle:
                    return int(folder.name)
        return 0

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes of the service so far."""
        return sum(self.cpu_by_part().values())

    def cpu_by_part(self) -> dict[str, float]:
        """Return the CPU time of the service so far, by the names of its processes.

        What ended processes took is their parent's, such as that of closed sessions PostgreSQL's.
        """
        found: dict[str, float] = {}
        for part, pid in self.processes():
            found[part] = found.get(part, 0.0) + cpu_seconds_of(pid, with_ended=True)
        return found

    def processes(self) -> list[tuple[str, int]]:
        """Return part and pid of each process, and of each session of the database.

        The database and Redis, which have no such name, have those of their programs.
        """
        found = []
        wanted = str(self.state).encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (folder / "environ").read_bytes()
                if wanted not in environment and wanted not in bytes((folder / "cwd").resolve()):
                    continue
                _, _, named = environment.partition(b"STOWAGE_PROCESS=")
                program = (folder / "comm").read_text().strip()
                is_store = program.startswith(("postgres", "redis", "valkey"))
                part = program if is_store else named.partition(b"\0")[0].decode() or "up"
                found.append((part, int(folder.name)))
        return found


def cpu_seconds_of(pid: int, *, with_ended: bool = False) -> float:
    """Return the CPU time of one process so far, 0 when it is gone.

    ``with_ended``: and that of its children that ended.
    """
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = sum(map(int, fields[11 : 15 if with_ended else 13]))
        return ticks / os.sysconf("SC_CLK_TCK")
    return 0.0


@contextlib.contextmanager
def running(
    environment: Mapping[str, str], say: Callable[[str], None], *, build: Path | None = None
) -> Iterator[Scratch]:
    """Start a service with these settings, and remove it and its data at the end.

    Within a run of the tests it begins with a prepared database. ``build`` is the folder of another
    version to start.
    """
    folder = Path(tempfile.mkdtemp(prefix="stowage-drill-"))
    folder.chmod(0o711)
    state = folder / "state"
    prepared.begin_with(state)
    http, https = _free_ports()
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("STOWAGE_") and key not in ("DATABASE_URL", "REDIS_URL")
    }
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "up"],
            cwd=build or settings.BASE_DIR, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
            env=inherited | {
                "STOWAGE_STATE": str(state), "STOWAGE_HTTP_PORT": str(http),
                "STOWAGE_HTTPS_PORT": str(https), **environment,
            },
        )  # fmt: skip
    scratch = Scratch(state, http, process)
    try:
        say(f"starting a service in {state}")
        until(lambda: _ready(scratch, process), seconds=_START_SECONDS, what="the service")
        yield scratch
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(90)
        except subprocess.TimeoutExpired:
            process.kill()
        if "STOWAGE_DRILL_KEEP" not in os.environ:
            shutil.rmtree(folder, ignore_errors=True)


def until(look: Callable[[], Any], *, seconds: float, what: str, every: float = 0.2) -> Any:
    """Return the first true answer.

    Raises:
        ServiceError: there was none in time.
    """
    end = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > end:
            raise ServiceError(f"not within {seconds:.0f} s: {what}")
        time.sleep(every)
    return found


def _ready(scratch: Scratch, process: "subprocess.Popen[bytes]") -> bool:
    if process.poll() is not None:
        raise ServiceError(f"the service ended with {process.returncode}")
    try:
        scratch.client().call("GET", "/readyz")
    except (OSError, ServiceError, HTTPException):
        return False
    except ValueError:  # "ok" is no JSON
        return True
    return True


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]

"""The whole service as a user starts it: `manage.py up` in a directory of its own.

Everything is real: processes, sockets, PostgreSQL with fsync on, Redis with its append-only file.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from clusterstate.local import places
from tests import prepared
from tests.waiting import running, until

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 240
_PREFIX = "STOWAGE_"


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def state_folder() -> Iterator[Path]:
    """A place for a state directory on disk, which PostgreSQL can enter when root runs the tests.

    pytest's own temporary folders are closed to others, so its data would lie elsewhere and stay.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"stowage-live-{os.getpid()}-"))
    folder.chmod(0o711)
    try:
        yield folder / "state"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Service:
    """One running service. Unless ``begins_prepared``, its first start makes its database."""

    begins_prepared = True

    def __init__(self, state: Path, **settings: str) -> None:
        self.state = state
        self.http_port, self.https_port = free_ports(2)
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.log = state.parent / "up.log"

    @property
    def token(self) -> str:
        return (self.state / "token").read_text().strip()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The supervisor."""
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start and wait until /readyz says that every part works."""
        if self.begins_prepared and "DATABASE_URL" not in self._settings:
            prepared.begin_with(self.state)
        self._process = self.launch(self.log)
        until(self.ready, seconds=START_SECONDS, what=f"ready; see {self.state}/stowage.log")

    def launch(self, log: Path) -> subprocess.Popen[bytes]:
        """Run `manage.py up` with its output in a file; return the supervisor."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_PREFIX) and name not in ("DATABASE_URL", "REDIS_URL")
        }
        environment |= {
            "STOWAGE_STATE": str(self.state),
            "STOWAGE_HTTP_PORT": str(self.http_port),
            "STOWAGE_HTTPS_PORT": str(self.https_port),
            "STOWAGE_SCHEDULERS": "1",  # one that stands by costs seconds of each start
            "STOWAGE_ADVISORS": "0",  # so does one that nobody asks
            "STOWAGE_CONSOLE": "here",
            **self._settings,
        }
        with log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "manage.py", "up"],
                cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    def stop(self) -> None:
        """Stop as Ctrl-C does and wait for the end."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        finally:
            if self._process.poll() is None:
                self._process.kill()

    def ready(self) -> bool:
        """Return whether the service can place a pod now; fails when it has ended."""
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()[-3000:]
        try:
            socket.create_connection(("127.0.0.1", self.https_port), timeout=1).close()
            return self.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        seconds: float = 30,
    ) -> tuple[int, Any]:
        """Return status and decoded body of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=seconds)
        headers = {}
        if (self.state / "token").exists():
            headers["Authorization"] = f"Bearer {self.token}"
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers["Content-Type"] = content_type
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode(errors="replace")

    def pid(self, part: str) -> int:
        """Return the pid of a part: postgres, redis, or a process by its STOWAGE_PROCESS name."""
        return until(lambda: self._find(part), what=f"a process for {part}")

    def _find(self, part: str) -> int:
        if part == "postgres":
            file = self.state / "postgres" / "postmaster.pid"
            pid = int(file.read_text().split("\n", 1)[0]) if file.exists() else 0
            return pid if pid and running(pid) else 0
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes()
                environment = (folder / "environ").read_bytes()
            except OSError:
                continue
            if part == "redis":
                if b"-server" in command and self._lives_in_state(folder):
                    return int(folder.name)
            elif (
                b"scheduling.packing" not in command  # a child that searches for this part
                and f"STOWAGE_PROCESS={part}\0".encode() in environment
                and f"STOWAGE_STATE={self.state}\0".encode() in environment
            ):
                return int(folder.name)
        return 0

    def _lives_in_state(self, process: Path) -> bool:
        try:
            return (process / "cwd").resolve().is_relative_to(self.state.resolve())
        except OSError:
            return False

    def kill(self, part: str) -> int:
        """Kill a part with SIGKILL; return the pid it had."""
        pid = self.pid(part)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not running(pid), what=f"{part} to be gone")
        return pid

    @contextmanager
    def database(self) -> Iterator["psycopg.Connection[Any]"]:
        """A connection to the service's database."""
        with psycopg.connect(places.postgres_url(self.state), autocommit=True) as connection:
            yield connection


_Kind = TypeVar("_Kind", bound=Service)


@contextmanager
def started(kind: Callable[..., _Kind] = Service, **settings: str) -> Iterator[_Kind]:
    """A service of a test's own, ready, with these settings; stopped and removed at the end."""
    with state_folder() as state:
        service = kind(state, **settings)
        try:
            service.start()
            yield service
        finally:
            service.stop()


class Shared:
    """The service that tests of many files ask: begun by the first of them."""

    def __init__(self) -> None:
        self._service: Service | None = None
        self._until = ExitStack()

    def service(self) -> Service:
        """Return it, ready."""
        if self._service is None:
            self._service = self._until.enter_context(started(STOWAGE_ADVISORS="1"))
        return self._service

    def end(self) -> None:
        """Stop and remove it, if it was begun; the next test that asks begins another one."""
        self._service = None
        self._until.close()


shared = Shared()


def node(
    name: str, *, cpu: str = "4", memory: str = "32Gi", pods: str = "110", **labels: str
) -> dict[str, Any]:
    """Return the manifest of a ready node."""
    offer = {"cpu": cpu, "memory": memory, "pods": pods}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {
            "capacity": offer,
            "allocatable": offer,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, *, cpu: str = "100m", memory: str = "50Mi", **spec: Any) -> dict[str, Any]:
    """Return the manifest of a pod with one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [
                {
                    "name": "work",
                    "image": "busybox",
                    "resources": {"requests": {"cpu": cpu, "memory": memory}},
                }
            ],
            **spec,
        },
    }

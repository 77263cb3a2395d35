"""Two web processes behind one port: no number that was told runs backwards, whoever answers."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from prometheus_client.parser import text_string_to_metric_families

from clusterstate.actions.cluster import bootstrap
from tests.api.conftest import make_token
from tests.clock import NOW
from tests.live import free_ports
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True), pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


class Web:
    """A web server of two processes on the tests' database."""

    def __init__(self, state: Path) -> None:
        (self.port,) = free_ports(1)
        self.token = make_token("monitor", ["system:masters"])
        settings = connection.get_connection_params()
        url = f"postgresql://{settings['user']}@/{settings['dbname']}?host={settings['host']}"
        environment = os.environ | {
            "DATABASE_URL": url, "STOWAGE_STATE": str(state), "STOWAGE_PROCESS": "web",
            "STOWAGE_LOG_LEVEL": "ERROR", "DJANGO_SETTINGS_MODULE": "clusterstate.settings",
        }  # fmt: skip
        self.pids: set[int] = set()
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "uvicorn", "--interface", "asgi3", "--log-level", "error",
                "--http", "api.server.protocol:Protocol", "--loop", "api.server.protocol:loop",
                "--ws", "none", "--workers", "2", "--timeout-graceful-shutdown", "3",
                "--port", str(self.port),
                "api.asgi:application",
            ],
            cwd=ROOT, env=environment, start_new_session=True,
        )  # fmt: skip

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text; each request on a connection of its own, so either may answer."""
        found = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            found.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            answer = found.getresponse()
            return answer.status, answer.read().decode()
        finally:
            found.close()

    def answers(self) -> bool:
        try:
            return self.get("/livez")[0] == 200
        except OSError:
            return False

    def scrape(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Return the numbers that only grow, and the pids of the processes under ``pid``."""
        code, text = self.get("/metrics")
        assert code == 200, text
        found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self.pids = set()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if "pid" in sample.labels:
                    self.pids.add(int(sample.labels["pid"]))
                elif family.type in ("counter", "histogram"):
                    found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
        return found


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    bootstrap.add_missing(now=NOW)
    server = Web(tmp_path)
    try:
        until(server.answers, seconds=120, what="the web server")
        yield server
    finally:
        server.process.send_signal(signal.SIGTERM)
        try:
            server.process.wait(30)
        finally:
            with contextlib.suppress(ProcessLookupError):  # workers that outlived the first
                os.killpg(server.process.pid, signal.SIGKILL)


def lists(found: dict[tuple[str, tuple[tuple[str, str], ...]], float]) -> float:
    """Return how many LISTs were counted."""
    return sum(
        value
        for (name, labels), value in found.items()
        if name == "apiserver_request_total" and ("verb", "LIST") in labels
    )


def test_numbers_never_run_backwards_and_outlive_a_killed_process(web: Web) -> None:
    last: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def turn() -> None:
        nonlocal last
        try:
            for _ in range(3):
                web.get("/api/v1/pods")
            found = web.scrape()
        except (OSError, http.client.HTTPException):  # the one that was killed had this connection
            return
        assert {key: value for key, value in last.items() if found.get(key, 0.0) < value} == {}
        last = found

    def both() -> set[int]:
        turn()
        children = web.pids - {os.getpid()}
        return children if len(children) >= 2 else set()

    before = until(both, seconds=120, what="both processes to be told of")
    for _ in range(3):
        turn()
    told = lists(last)
    assert told > 0
    os.kill(min(before), signal.SIGKILL)

    def another() -> bool:
        turn()
        return len(web.pids - before - {os.getpid()}) >= 1

    until(another, seconds=120, what="a process in its place")
    for _ in range(3):
        turn()
    assert lists(last) >= told

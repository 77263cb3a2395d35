"""A web process that is told to end answers what it still works on."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connection as database

from tests.api.conftest import make_token
from tests.api.serve import Server, request, status_of
from tests.api.serve import answer as answer_on
from tests.waiting import BLOCKED, until

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[Server, "subprocess.Popen[bytes]"]]:
    """A web process of its own on the tests' database."""
    settings = database.get_connection_params()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"postgresql://{settings['user']}@/{settings['dbname']}?host={settings['host']}"
    running = subprocess.Popen(
        [
            sys.executable, "-m", "uvicorn", "api.asgi:application", "--interface", "asgi3",
            "--http", "api.server.protocol:Protocol", "--loop", "api.server.protocol:loop",
            "--host", "127.0.0.1", "--port", str(port), "--log-level", "critical",
            "--timeout-graceful-shutdown", "1", "--no-proxy-headers",
        ],
        cwd=ROOT,
        env=os.environ | {
            "DATABASE_URL": url, "STOWAGE_STATE": str(tmp_path), "STOWAGE_PROCESS": "http",
            "DJANGO_SETTINGS_MODULE": "clusterstate.settings",
        },
    )  # fmt: skip
    server = Server(port)

    def listens() -> bool:
        try:
            return server.ask("GET", "/livez")[0] == 200
        except OSError:
            return False

    try:
        until(listens, what="the web process to listen")
        yield server, running
    finally:
        running.kill()
        running.wait()


def test_what_it_still_works_on_is_answered_503_and_a_sentence(
    process: tuple[Server, "subprocess.Popen[bytes]"],
) -> None:
    server, running = process
    token = make_token("root", ["system:masters"])
    assert server.ask("GET", "/api/v1/nodes", token)[0] == 200
    settings = database.get_connection_params()
    with (
        psycopg.connect(
            host=settings["host"], dbname=settings["dbname"], user=settings["user"]
        ) as blocker,
        server.connect(20) as waiting,
        server.connect(20) as waiting_without_a_task,
    ):
        blocker.execute("LOCK TABLE node, pod IN ACCESS EXCLUSIVE MODE")
        waiting.sendall(request("GET", "/api/v1/nodes/a", token))
        path = "/api/v1/namespaces/default/pods/a"
        waiting_without_a_task.sendall(request("GET", path, token))
        until(
            lambda: len(blocker.execute(BLOCKED).fetchall()) == 2,
            what="both requests to wait for the lock",
        )
        running.send_signal(signal.SIGTERM)
        for connection in (waiting, waiting_without_a_task):
            code, status = status_of(answer_on(connection))
            assert (code, status["kind"], status["reason"]) == (503, "Status", "ServiceUnavailable")
            assert "ending" in status["message"]

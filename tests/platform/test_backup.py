"""`manage.py backup` and `manage.py restore` beside the running service, and without it."""

import http.client
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clusterstate.local import places
from tests.live import Service, node, pod, started
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.db, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with started() as service:
        yield service


def manage(*arguments: Any, state: Path | None = None, url: str = "") -> tuple[int, str]:
    """Run a command as somebody at a terminal does; return its code and what it printed."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("STOWAGE_") and name not in ("DATABASE_URL", "REDIS_URL")
    }
    if state is not None:
        environment["STOWAGE_STATE"] = str(state)
    if url:
        environment["DATABASE_URL"] = url
    done = subprocess.run(
        [sys.executable, "manage.py", *map(str, arguments)], cwd=ROOT, env=environment,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def pods(service: Service) -> dict[str, Any]:
    items = service.request("GET", PODS)[1]["items"]
    return {item["metadata"]["name"]: item for item in items}


def bound(service: Service, name: str) -> bool:
    return bool(pods(service).get(name, {}).get("spec", {}).get("nodeName"))


class Watch(threading.Thread):
    """Reads a watch to its end."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        version = service.request("GET", PODS)[1]["metadata"]["resourceVersion"]
        self.connection = http.client.HTTPConnection("127.0.0.1", service.http_port, timeout=120)
        self.connection.request(
            "GET", f"{PODS}?watch=true&resourceVersion={version}",
            headers={"Authorization": f"Bearer {service.token}"},
        )  # fmt: skip
        self.answer = self.connection.getresponse()
        self.events: list[Any] = []
        self.start()

    def run(self) -> None:
        self.events = [json.loads(line) for line in self.answer]


def test_a_backup_is_put_back_under_the_running_service(service: Service, tmp_path: Path) -> None:
    assert service.request("POST", "/api/v1/nodes", node("n1", cpu="2", pods="20"))[0] == 201
    for number in range(3):
        assert service.request("POST", PODS, pod(f"kept-{number}", cpu="500m"))[0] == 201
    until(lambda: all(bound(service, f"kept-{n}") for n in range(3)), what="the pods to be bound")
    file = tmp_path / "cluster.backup"
    code, output = manage("backup", file, state=service.state)
    assert code == 0, output
    assert output.splitlines()[-1].startswith("saved ")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.backup"]
    before = pods(service)

    watch = Watch(service)
    assert service.request("DELETE", f"{PODS}/kept-0?gracePeriodSeconds=0")[0] == 200
    assert service.request("POST", PODS, pod("later", cpu="500m"))[0] == 201
    until(lambda: bound(service, "later"), what="the later pod to be bound")
    code, output = manage("restore", file, state=service.state)
    assert code == 0, output
    assert "a new history begins at revision" in output.splitlines()[-1]
    assert pods(service) == before
    watch.join(30)
    assert [event["type"] for event in watch.events][-1] == "ERROR"
    assert watch.events[-1]["object"]["code"] == 410

    # The scheduler has seen that kept-0 is there again: half a CPU is left, not one.
    for number in range(2):
        assert service.request("POST", PODS, pod(f"new-{number}", cpu="500m"))[0] == 201
    until(lambda: bound(service, "new-0") or bound(service, "new-1"), what="one to be bound")
    path = f"{PODS}/new-1?waitFor=PodScheduled&timeoutSeconds=30"
    other = service.request("GET", path)[1]
    assert "Insufficient cpu" in other["status"]["conditions"][0]["message"]
    code, output = manage("restore", file, state=service.state)  # and once more
    assert code == 0, output
    assert pods(service) == before


@pytest.mark.long
def test_a_backup_goes_into_an_empty_external_database(
    service: Service, servers: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "cluster.backup"
    assert manage("backup", file, state=service.state)[0] == 0
    name = f"restore_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(servers["DATABASE_URL"], autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
        url = servers["DATABASE_URL"].replace(f"/{places.DATABASE}?", f"/{name}?")
        try:
            code, output = manage("restore", file, state=tmp_path / "none", url=url)
            assert code == 0, output
            with psycopg.connect(url) as other, service.database() as ours:
                question = "SELECT namespace, name, uid, node_name FROM pod ORDER BY 1, 2"
                assert other.execute(question).fetchall() == ours.execute(question).fetchall()
                (history,) = other.execute("SELECT uid, first_revision FROM history").fetchall()
                assert history[0] != ours.execute("SELECT uid FROM history").fetchone()[0]
            again = tmp_path / "again.backup"
            assert manage("backup", again, state=tmp_path / "none", url=url)[0] == 0
        finally:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.long
def test_what_cannot_be_saved_or_restored_is_said(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "there"
    file.write_bytes(b"something else")
    code, output = manage("backup", file, state=service.state)
    assert (code, output.strip()) == (
        1, f"CommandError: {file} is there already: remove it, or name another file.",
    )  # fmt: skip
    code, output = manage("restore", file, state=service.state)
    assert (code, output.strip()) == (1, "CommandError: The file is no backup of Stowage.")
    code, output = manage("restore", tmp_path / "nowhere", state=service.state)
    assert code == 1
    assert output.strip().endswith("cannot be read: No such file or directory.")
    code, output = manage("backup", "/dev/full/file", state=service.state)
    assert code == 1
    assert "cannot be written" in output
    code, output = manage("backup", tmp_path / "x", state=tmp_path / "no-service")
    assert code == 1
    assert "does not run: start the service" in output
    assert file.read_bytes() == b"something else"

"""The whole service under `manage.py up`: first start, crashes, second start, stop."""

import http.client
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.waiting import running, until

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.db, pytest.mark.slow, pytest.mark.xdist_group("up")]


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Service:
    """One `manage.py up` in a state directory of its own."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.http_port, self.https_port = free_ports(2)
        self.environment = {
            key: value
            for key, value in os.environ.items()
            if key not in {"DATABASE_URL", "REDIS_URL"} and not key.startswith("PYTEST")
        } | {
            "STOWAGE_STATE": str(state),
            "STOWAGE_HTTP_PORT": str(self.http_port),
            "STOWAGE_HTTPS_PORT": str(self.https_port),
        }
        self.output = state.with_name("output")
        self.start()

    def start(self) -> None:
        self.process = self.launch(self.output)
        try:
            until(self.ready, seconds=90, what="ready")
        except AssertionError as error:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
            raise AssertionError(self.output.read_text()) from error

    def launch(self, output: Path) -> subprocess.Popen[bytes]:
        with output.open("wb") as file:
            return subprocess.Popen(
                [sys.executable, "manage.py", "up"],
                cwd=ROOT,
                env=self.environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def ready(self) -> bool:
        assert self.process.poll() is None, self.output.read_text()
        return "Stowage is ready" in self.output.read_text()

    def get(self, path: str, *, token: str = "", secure: bool = False) -> tuple[int, str]:
        if secure:
            context = ssl.create_default_context(cafile=self.state / "ca.crt")
            asked: http.client.HTTPConnection = http.client.HTTPSConnection(
                "localhost", self.https_port, timeout=10, context=context
            )
        else:
            asked = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=10)
        try:
            asked.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = asked.getresponse()
            return answer.status, answer.read().decode()
        except OSError as error:
            return 0, str(error)
        finally:
            asked.close()

    def descendants(self) -> dict[int, str]:
        """The command lines of all processes below the supervisor, by pid."""
        parents = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                parents[int(folder.name)] = int(fields[1])
        found: dict[int, str] = {}
        level = {self.process.pid}
        while level:
            level = {pid for pid, parent in parents.items() if parent in level}
            for pid in level:
                try:
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                found[pid] = line.replace(b"\0", b" ").decode()
        return found

    def pid_of(self, words: str) -> int:
        """The oldest process whose command line contains the words."""
        return min((pid for pid, line in self.descendants().items() if words in line), default=0)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="stowage-up-", dir=parent) as folder:
        Path(folder).chmod(0o711)
        service = Service(Path(folder) / "state")
        yield service
        if service.process.poll() is None:
            service.process.send_signal(signal.SIGTERM)
            service.process.wait(60)


def test_the_first_start_makes_private_files_and_says_where(service: Service) -> None:
    output = service.output.read_text()
    for name in ("kubeconfig", "token", "ca.crt", "admin-password"):
        assert stat.S_IMODE((service.state / name).stat().st_mode) == 0o600
        assert str(service.state / name) in output
    assert f"https://127.0.0.1:{service.https_port}" in output
    assert f"http://127.0.0.1:{service.http_port}" in output


def test_https_http_and_readiness_answer(service: Service) -> None:
    token = (service.state / "token").read_text().strip()
    assert service.get("/readyz")[0] == 200
    assert service.get("/readyz", secure=True)[0] == 200
    assert service.get("/api/v1/namespaces/default", token=token)[0] == 200
    assert service.get("/api/v1/namespaces/default", token="wrong")[0] == 401
    assert service.get("/admin/login/")[0] == 200


def test_the_kubeconfig_points_at_https(service: Service) -> None:
    document = yaml.safe_load((service.state / "kubeconfig").read_text())
    assert document["clusters"][0]["cluster"]["server"] == (
        f"https://127.0.0.1:{service.https_port}"
    )


def test_http_listens_on_loopback_only(service: Service) -> None:
    listening = {
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    port = f"{service.http_port:04X}"
    assert {address for address in listening if address.endswith(port)} == {f"0100007F:{port}"}


def test_a_second_start_says_so(service: Service) -> None:
    second = service.launch(service.output.with_name("second"))
    assert second.wait(60) == 1
    said = service.output.with_name("second").read_text()
    assert f"Stowage is already running (pid {service.process.pid})" in said


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("-Q scheduling", "scheduler"),
        ("beat --schedule", "beat"),
        ("valkey-server", "redis"),
        ("bin/postgres -D", "database"),
    ],
)
def test_a_killed_part_is_restarted(service: Service, words: str, part: str) -> None:
    before = until(lambda: service.pid_of(words), what=part)
    os.kill(before, signal.SIGKILL)
    until(lambda: service.pid_of(words) not in {0, before}, seconds=30, what=f"new {part}")
    until(lambda: service.get("/readyz")[0] == 200, seconds=60, what=f"ready after {part}")


def test_a_killed_web_server_is_restarted(service: Service) -> None:
    before = service.pid_of("--ssl-certificate")
    os.kill(before, signal.SIGKILL)
    until(
        lambda: service.pid_of("--ssl-certificate") not in {0, before}, seconds=30, what="new web"
    )
    until(lambda: service.get("/healthz", secure=True)[0] == 200, seconds=60, what="https")


def test_a_killed_supervisor_leaves_no_orphan_and_the_next_start_works(service: Service) -> None:
    below = service.descendants()
    assert len(below) > 10
    token = (service.state / "token").read_text()
    service.process.kill()
    service.process.wait()
    until(lambda: not any(running(pid) for pid in below), seconds=30, what="no orphan")
    service.start()
    assert (service.state / "token").read_text() == token
    assert service.get("/api/v1/nodes", token=token.strip())[0] == 200


def test_ctrl_c_stops_everything_in_order(service: Service) -> None:
    below = service.descendants()
    service.process.send_signal(signal.SIGINT)
    assert service.process.wait(60) == 0
    assert not any(running(pid) for pid in below)
    assert "the data stays in" in service.output.read_text()


def test_a_taken_port_is_named_with_the_variable_to_set(service: Service) -> None:
    assert service.process.poll() is not None
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", service.https_port))
        taken.listen()
        process = service.launch(service.output)
        assert process.wait(60) == 1
    said = service.output.read_text()
    assert f"Port {service.https_port} on 127.0.0.1 is taken" in said
    assert "STOWAGE_HTTPS_PORT=" in said


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none"),
        ("REDIS_URL", "redis://127.0.0.1:1/0"),
    ],
)
def test_a_configured_server_that_is_away_is_named(
    tmp_path: Path, servers: dict[str, str], variable: str, value: str
) -> None:
    http_port, https_port = free_ports(2)
    process = subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=ROOT,
        env=os.environ
        | servers
        | {
            "STOWAGE_STATE": str(tmp_path / "state"),
            "STOWAGE_HTTP_PORT": str(http_port),
            "STOWAGE_HTTPS_PORT": str(https_port),
            variable: value,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert process.returncode == 1
    assert f"CommandError: {variable}: cannot connect" in process.stderr

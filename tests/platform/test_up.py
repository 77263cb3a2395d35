"""The whole service under `manage.py up`: first start, crashes, second start, stop."""

import http.client
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from clusterstate.local import credentials
from tests.forms import few
from tests.live import ROOT, Service, free_ports, node, pod, started
from tests.waiting import running, until

pytestmark = [pytest.mark.db, pytest.mark.slow, pytest.mark.real_clock]
PODS = "/api/v1/namespaces/default/pods"


class Whole(Service):
    """The service from its first start, and what is below its supervisor."""

    begins_prepared = False

    def secure(self, path: str) -> int:
        """Return the status of a GET over https; 0 when nobody answers."""
        context = ssl.create_default_context(cafile=self.state / "ca.crt")
        asked = http.client.HTTPSConnection(
            "localhost", self.https_port, timeout=10, context=context
        )
        try:
            asked.request("GET", path)
            return asked.getresponse().status
        except OSError:
            return 0
        finally:
            asked.close()

    def descendants(self) -> set[int]:
        """Return the pids of all processes below the supervisor."""
        parents = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(fields[1])
        found: set[int] = set()
        level = {self.process.pid}
        while level:
            level = {pid for pid, parent in parents.items() if parent in level}
            found |= level
        return found


@pytest.fixture(scope="module")
def service() -> Iterator[Whole]:
    with started(Whole) as service:
        yield service


def test_the_first_start_makes_private_files_and_says_where(service: Whole) -> None:
    output = until(lambda: (text := service.log.read_text()) and "Try next" in text and text)
    for name in ("kubeconfig", "token", "ca.crt", "admin-password"):
        assert stat.S_IMODE((service.state / name).stat().st_mode) == 0o600
        assert str(service.state / name) in output
    assert f"https://127.0.0.1:{service.https_port}" in output
    assert f"http://127.0.0.1:{service.http_port}" in output
    assert "Service Unavailable" not in output  # to ask whether it is ready is no error


def test_https_http_and_readiness_answer(service: Whole) -> None:
    assert service.request("GET", "/readyz")[0] == 200
    # The https server is a process of its own, and looks for itself.
    until(lambda: service.secure("/readyz") == 200, what="https ready")
    assert service.request("GET", "/api/v1/namespaces/default")[0] == 200
    assert service.secure("/api/v1/namespaces/default") == 401
    assert service.request("GET", "/admin/login/")[0] == 200


def test_tls_is_spoken_without_cbc(service: Whole) -> None:
    def shaken(ciphers: str) -> str:
        context = ssl.create_default_context(cafile=service.state / "ca.crt")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(ciphers)
        with socket.create_connection(("127.0.0.1", service.https_port), timeout=10) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="localhost") as secured:
                    return secured.cipher()[0]
            except ssl.SSLError:
                return ""

    assert "GCM" in shaken("ECDHE+AESGCM")
    assert "CHACHA20" in shaken("ECDHE+CHACHA20")
    every = ssl.create_default_context()
    every.set_ciphers("ALL:COMPLEMENTOFDEFAULT:@SECLEVEL=0")
    named = {one["name"] for one in every.get_ciphers() if one["protocol"] != "TLSv1.3"}
    weak = sorted(one for one in named if not re.search("GCM|CHACHA20|CCM", one))
    assert len(weak) > 5
    assert {one: found for one in weak if (found := shaken(f"{one}:@SECLEVEL=0"))} == {}


def test_the_kubeconfig_points_at_https(service: Whole) -> None:
    document = yaml.safe_load((service.state / "kubeconfig").read_text())
    assert document["clusters"][0]["cluster"]["server"] == (
        f"https://127.0.0.1:{service.https_port}"
    )


def test_http_listens_on_loopback_only(service: Whole) -> None:
    listening = {
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    port = f"{service.http_port:04X}"
    assert {address for address in listening if address.endswith(port)} == {f"0100007F:{port}"}


def test_a_second_start_says_so(service: Whole) -> None:
    log = service.log.with_name("second")
    assert service.launch(log).wait(60) == 1
    said = log.read_text()
    assert f"Stowage is already running (pid {service.process.pid})" in said


@pytest.mark.parametrize("part", ["scheduler", "worker", "beat", "http", "redis", "postgres"])
def test_a_killed_part_is_restarted(service: Whole, part: str) -> None:
    before = service.kill(part)
    until(lambda: service.pid(part) != before, seconds=120, what=f"new {part}")
    until(service.ready, seconds=60, what=f"ready after {part}")


def test_a_certificate_that_ends_soon_is_renewed_while_the_service_runs(service: Whole) -> None:
    def shown() -> x509.Certificate | None:
        try:
            text = ssl.get_server_certificate(("127.0.0.1", service.https_port), timeout=5)
        except OSError:
            return None
        return x509.load_pem_x509_certificate(text.encode())

    first = until(shown, what="https")
    now = datetime.fromtimestamp(time.time(), UTC)
    for name in ("tls.crt", "tls.key"):
        (service.state / name).unlink()
    past = now - timedelta(days=380)
    file, _ = credentials.ensure_certificate(service.state, host="127.0.0.1", now=past)
    ends_soon = x509.load_pem_x509_certificate(file.read_bytes())
    assert ends_soon.not_valid_after_utc < now + timedelta(days=30)
    before = service.pid("http")

    def renewed() -> bool:
        found = shown()
        return found is not None and found.serial_number not in (
            first.serial_number, ends_soon.serial_number,
        )  # fmt: skip

    until(renewed, seconds=90, what="another certificate")
    assert service.secure("/healthz") == 200
    assert service.pid("http") == before


def test_a_killed_supervisor_leaves_no_orphan_and_the_next_start_keeps_everything(
    service: Whole,
) -> None:
    assert service.request("POST", "/api/v1/nodes", node("small"))[0] == 201
    assert service.request("POST", PODS, pod("fits"))[0] == 201
    assert service.request("POST", PODS, pod("large", cpu="32"))[0] == 201
    for name, status in (("fits", "True"), ("large", "False")):
        path = f"{PODS}/{name}?waitFor=PodScheduled&timeoutSeconds=30"
        (condition,) = service.request("GET", path)[1]["status"]["conditions"]
        assert condition["status"] == status
    assert "Insufficient cpu" in condition["message"]
    before = service.request("GET", PODS)[1]["items"]
    # The part that was killed last may still be coming back with its helpers.
    below = until(lambda: found if len(found := service.descendants()) > 10 else None)
    token = (service.state / "token").read_text()
    service.process.kill()
    service.process.wait()
    until(lambda: not any(running(pid) for pid in below), seconds=120, what="no orphan")
    service.start()
    assert (service.state / "token").read_text() == token
    assert service.request("GET", PODS)[1]["items"] == before
    assert service.request("POST", "/api/v1/nodes", node("big", cpu="64"))[0] == 201
    until(
        lambda: service.request("GET", f"{PODS}/large")[1]["spec"].get("nodeName") == "big",
        seconds=30,
        what="the large pod on the big node",
    )


def test_ctrl_c_stops_everything_in_order(service: Whole) -> None:
    below = service.descendants()
    service.process.send_signal(signal.SIGINT)
    assert service.process.wait(60) == 0
    assert not any(running(pid) for pid in below)
    assert "the data stays in" in service.log.read_text()


def test_a_taken_port_is_named_with_the_variable_to_set(service: Whole) -> None:
    service.stop()
    with socket.socket() as taken:
        # Connections that the service closed may still be in TIME_WAIT.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", service.https_port))
        taken.listen()
        log = service.log.with_name("taken")
        assert service.launch(log).wait(60) == 1
    said = log.read_text()
    assert f"Port {service.https_port} on 127.0.0.1 is taken" in said
    assert "STOWAGE_HTTPS_PORT=" in said


@pytest.mark.parametrize(
    ("variable", "value"),
    few(
        [
            ("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none"),
            ("REDIS_URL", "redis://127.0.0.1:1/0"),
        ]
    ),
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


def test_a_small_service_places_a_pod_and_answers_a_plan() -> None:
    """With as many schedulers, advisors and consoles as it chooses itself."""
    chosen = dict.fromkeys(("STOWAGE_SCHEDULERS", "STOWAGE_ADVISORS", "STOWAGE_CONSOLE"), "")
    with started(STOWAGE_SIZE="small", **chosen) as service:
        assert "size: small, 7 processes" in service.log.read_text()
        with service.database() as database:
            assert database.execute("SHOW shared_buffers").fetchone() == ("64MB",)
        assert service.request("POST", "/api/v1/nodes", node("n"))[0] == 201
        assert service.request("POST", PODS, pod("p"))[0] == 201
        until(lambda: service.request("GET", f"{PODS}/p")[1]["spec"].get("nodeName") == "n")
        changes = [{"pods": {"objects": [pod("q")]}}]
        status, plan = service.request(
            "POST", "/apis/stowage.dev/v1/plans",
            {"apiVersion": "stowage.dev/v1", "kind": "Plan", "spec": {"changes": changes}},
        )  # fmt: skip
        assert status == 201, plan
        assert [one["nodeName"] for one in plan["status"]["placed"]] == ["n"]
        assert service.request("GET", "/console/")[0] in (200, 302)

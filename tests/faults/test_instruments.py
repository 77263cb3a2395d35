"""The instruments of the fault machine do what they say: the proxy, the clock, the history."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from tests.faults import patroni
from tests.faults.clock import Clock
from tests.faults.history import OK, History
from tests.faults.probe import Probe
from tests.faults.proxy import Proxy
from tests.faults.wire import Wire
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
STARTUP = b"user\0postgres\0application_name\0stowage-%s\0\0"


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy before a server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def echo(one: socket.socket) -> None:
        with one:
            while data := one.recv(1 << 16):
                one.sendall(data)

    def serve() -> None:
        while True:
            try:
                one, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(one,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    proxy = Proxy(server.getsockname()[1])
    yield proxy
    proxy.close()
    server.close()


def connect(proxy: Proxy, part: bytes) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
    one.sendall(STARTUP % part)
    return one


def answers(one: socket.socket, *, within: float = 10) -> bool:
    one.settimeout(within)
    try:
        return bool(one.recv(1 << 16))
    except TimeoutError:
        return False


def test_a_silent_proxy_keeps_what_was_sent_and_passes_it_on_later(proxy: Proxy) -> None:
    one = connect(proxy, b"http")
    assert answers(one)
    proxy.hush()
    one.sendall(b"held")
    assert not answers(one, within=0.3)
    late = connect(proxy, b"http")  # whoever comes now is accepted, and hears nothing
    assert not answers(late, within=0.3)
    proxy.heal()
    assert answers(one)
    assert answers(late)


def test_silence_may_be_for_one_part_only(proxy: Proxy) -> None:
    one, other = connect(proxy, b"http"), connect(proxy, b"scheduler")
    assert answers(one)
    assert answers(other)
    proxy.hush("scheduler")
    one.sendall(b"x")
    other.sendall(b"x")
    assert answers(one)
    assert not answers(other, within=0.3)


def test_cutting_ends_connections(proxy: Proxy) -> None:
    one = connect(proxy, b"http")
    assert answers(one)
    proxy.cut()

    def ended() -> bool:
        one.settimeout(5)
        try:
            return one.recv(1) == b""
        except ConnectionError:
            return True

    assert ended()
    assert answers(connect(proxy, b"http"))


@pytest.mark.real_clock
def test_the_clock_of_a_running_process_steps_and_steps_back(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    if not clock.works:
        pytest.skip("there is no C compiler here")
    code = "import sys,time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=clock.environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None

        def ask() -> tuple[float, float]:
            process.stdin.write("\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            of_day, monotonic = process.stdout.readline().split()  # type: ignore[union-attr]
            return float(of_day) - time.time(), float(monotonic) - time.monotonic()

        assert abs(ask()[0]) < 5
        clock.step(-3600)
        of_day, monotonic = ask()
        assert -3605 < of_day < -3595
        assert abs(monotonic) < 5
        clock.step(3600)
        assert abs(ask()[0]) < 5
        process.stdin.close()


def test_a_history_is_on_disk_before_the_answer_comes(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    history = History(file)
    one = history.begin("c", "create pod", "soak/a")
    (asked,) = file.read_text().splitlines()
    assert json.loads(asked)["what"] == "invoke"
    history.end(one, OK, status=201, revision=7, uid="u")
    until(lambda: len(file.read_text().splitlines()) == 2, seconds=5)
    assert history.begin("c", "create pod", "soak/b").saw == 7
    history.close()


def test_a_probe_tells_a_pod_that_is_gone_from_one_that_waits() -> None:
    """A database that is put back has no pods that came after the backup; none of them waits."""

    class Service(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.answer(200 if self.path == "/readyz" else 404)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(201)

        def do_DELETE(self) -> None:
            self.answer(404)

        def answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    with HTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            wire = Wire(server.server_port, lambda: "")
            look = Probe("x", [wire], threading.Event()).look(wire, 20)
            wire.close()
        finally:
            server.shutdown()
            thread.join()
    assert look.gone
    assert look.acknowledged
    assert (look.seconds, look.claimed) == (None, 0.0)


def test_the_drill_of_failovers_has_the_settings_of_the_page_on_operations(tmp_path: Path) -> None:
    text = (ROOT / "docs/operations.md").read_text()
    found = re.search(
        r"^### Three servers under Patroni$.*?^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    )
    assert found is not None
    page = yaml.safe_load(found[1])
    drill = patroni.Patroni(tmp_path / "servers").settings("m1")
    assert page["bootstrap"] == drill["bootstrap"]
    same = page["postgresql"]["authentication"], drill["postgresql"]["authentication"]
    users = [{role: one["username"] for role, one in each.items()} for each in same]
    assert users[0] == users[1]

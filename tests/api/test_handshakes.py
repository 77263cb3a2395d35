"""Handshakes that say nothing keep nobody out: real sockets, TLS, and a web process's own loop."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from api.server import protocol
from clusterstate.local import credentials
from tests.waiting import until

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
MOST = 16


class Echo(asyncio.Protocol):
    """Answers what it is sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


@pytest.fixture
def served(tmp_path: Path, settings) -> Iterator[SimpleNamespace]:
    """A TLS server on a loop of a web process, and how clients trust it."""
    settings.MAX_CONNECTIONS = 4 * MOST
    certificate, key = credentials.ensure_certificate(
        tmp_path, host=HERE, advertised=HERE, now=datetime.fromtimestamp(time.time(), UTC)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    trusts = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    loop = protocol.loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(
        loop.create_server(Echo, HERE, 0, ssl=context, backlog=1000), loop
    ).result(10)
    try:
        yield SimpleNamespace(port=server.sockets[0].getsockname()[1], trusts=trusts)
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


@pytest.fixture
def silent(served) -> Iterator[Callable[..., socket.socket]]:
    """Connect from an address, and say nothing."""
    with contextlib.ExitStack() as stack:

        def connect(address: str = HERE) -> socket.socket:
            connection = socket.create_connection(
                (HERE, served.port), timeout=10, source_address=(address, 0)
            )
            return stack.enter_context(connection)

        yield connect


def echoed(served, text: bytes = b"hello", address: str = HERE) -> bytes:
    """Send right behind the handshake; return the answer."""
    with (
        socket.create_connection((HERE, served.port), 4, source_address=(address, 0)) as plain,
        served.trusts.wrap_socket(plain, server_hostname=HERE) as connection,
    ):
        connection.sendall(text)
        found = b""
        while len(found) < len(text):
            found += connection.recv(65536)
        return found


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_a_crowd_that_says_nothing_keeps_nobody_out(served, silent) -> None:
    crowd = [silent() for _ in range(20 * MOST)]
    for _ in range(20):
        assert echoed(served) == b"hello"
    until(lambda: sum(map(is_open, crowd)) <= MOST, seconds=4, what="the crowd to be let go")


def test_a_crowd_pushes_out_none_but_its_own_address(served, silent) -> None:
    slow = [silent(ELSEWHERE) for _ in range(MOST // 4)]
    crowd = [silent() for _ in range(20 * MOST)]
    until(lambda: sum(map(is_open, crowd)) <= MOST, seconds=4, what="the crowd to be let go")
    assert all(map(is_open, slow))
    with served.trusts.wrap_socket(
        slow[0], server_hostname=HERE, do_handshake_on_connect=False
    ) as one:
        one.settimeout(4)
        one.do_handshake()
        one.sendall(b"late")
        assert one.recv(10) == b"late"


def test_what_is_sent_right_behind_the_handshake_arrives(served) -> None:
    for size in (1, 1000, 100_000, *([10] * 100)):
        assert echoed(served, b"x" * size) == b"x" * size


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"])
def test_a_handshake_that_does_not_go_on_ends(said, tmp_path, monkeypatch, request) -> None:
    monkeypatch.setattr(protocol, "HANDSHAKE_SECONDS", 0.3)
    served = request.getfixturevalue("served")
    connection = request.getfixturevalue("silent")()
    connection.sendall(said)
    until(lambda: not is_open(connection), seconds=4, what="the end")
    assert echoed(served) == b"hello"

"""The web process's own server in a thread of the test: real sockets, the tests' database."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from clusterstate.actions.loops import metrics
from tests.waiting import until


class Server:
    """A running server; requests are written as bytes, since hostile ones are."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self, seconds: float = 30, receive_buffer: int = 0) -> socket.socket:
        """Return a connection."""
        found = socket.socket()
        if receive_buffer:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        found.settimeout(seconds)
        found.connect(("127.0.0.1", self.port))
        return found

    def ask(
        self, method: str, path: str, token: str = "", body: bytes = b"", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Return the answer to one request on a connection of its own."""
        with self.connect() as connection:
            connection.sendall(request(method, path, token, body, **headers))
            return answer(connection)


def request(method: str, path: str, token: str = "", body: bytes = b"", **headers: str) -> bytes:
    """Return a request's bytes; a header ``content_length`` replaces the true one."""
    given = {"host": "stowage", "content_length": str(len(body))}
    if token:
        given["authorization"] = f"Bearer {token}"
    given |= headers
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in given.items() if value]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of the next answer, which has a length."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        assert part, received
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        part = connection.recv(1 << 20)
        assert part, (head, len(body))
        body += part
    return int(first.split()[1]), headers, body


def status_of(found: tuple[int, dict[str, str], bytes]) -> tuple[int, Any]:
    """Return the code and the Status of an answer."""
    return found[0], json.loads(found[2])


@contextmanager
def serving() -> Iterator[Server]:
    """Run the server until the end of the block; once in a process, whose lanes end with it.

    It adds what it counted when it is scraped and when it ends, and not by itself: its thread would
    write in the middle of other tests, and count what they count.
    """
    metrics.EVERY_SECONDS = 24 * 3600.0
    config = uvicorn.Config(
        "api.asgi:application", interface="asgi3", http="api.server.protocol:Protocol",
        loop="api.server.protocol:loop", ws="none", host="127.0.0.1", port=0, log_level="warning",
        access_log=False, proxy_headers=False, timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="server", daemon=True)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive(), what="the server to listen")
        yield Server(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(30)

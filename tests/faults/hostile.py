"""Clients that mean harm: deep and large bodies, floods, slow senders, strange values."""

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable

from tests.faults import world

_STRANGE: list[tuple[str, str, bytes]] = [
    ("POST", world.PODS, b'{"kind":"Pod","metadata":{"name":"a\\u0000b"},"spec":{}}'),
    ("POST", world.PODS, '{"metadata":{"name":"x"},"spec":{"containers":[{"name":"c","image":"i",'
     '"resources":{"requests":{"cpu":"²"}}}]}}'.encode()),
    ("POST", world.PODS, b'{"metadata":{"name":"x","creationTimestamp":"9999-99-99T99:99:99Z"}}'),
    ("POST", world.PODS, b'{"metadata":{"name":"x","labels":{"a":"\\ud800"}}}'),
    ("POST", world.PODS, b'{"metadata":{"name":["x"]},"spec":7}'),
    ("GET", f"{world.PODS}?limit=%C2%B2", b""),
    ("GET", f"{world.PODS}?labelSelector=%00", b""),
    ("GET", f"{world.PODS}?resourceVersion=99999999999999999999999999&watch=1", b""),
    ("GET", f"{world.PODS}/%00", b""),
    ("GET", "/api/v1/namespaces/%F0%9F%92%A9/pods", b""),
]  # fmt: skip
_DEEP = (
    ("application/yaml", b"- " * 60_000),
    ("application/yaml", b"[" * 100_000),
    ("application/yaml", b"{a: " * 50_000),
    ("application/yaml", b"a: &a [x]\n" + b"".join(b"b%d: [*a,*a]\n" % n for n in range(5000))),
    ("application/yaml", b"x: " + b":".join([b"59"] * 40_000)),
    ("application/json", b"[" * 200_000),
    ("application/json", b'{"a":' * 100_000),
)


class Hostile:
    """One harm at a time, on threads of its own, until it is told to stop."""

    def __init__(self, port: int, token: Callable[[], str]) -> None:
        self.port = port
        self.errors: list[str] = []
        """Requests that were answered with 500."""
        self._token = token
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self, kind: str) -> None:
        harm = {
            "deep": self._deep, "flood": self._flood, "slow": self._slow, "large": self._large,
            "strange": self._strange,
        }[kind]  # fmt: skip
        for _ in range(16 if kind == "flood" else 1):
            self._threads.append(threading.Thread(target=harm, daemon=True))
            self._threads[-1].start()

    def end(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)

    def _send(self, method: str, path: str, body: bytes, content: str, *, known: bool) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        headers = {"Content-Type": content}
        if known:
            headers["Authorization"] = f"Bearer {self._token()}"
        try:
            connection.request(method, path, body or None, headers)
            if "watch=1" in path:
                return connection.getresponse().status
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()
        if answer.status == http.client.INTERNAL_SERVER_ERROR:
            self.errors.append(f"{method} {path} {body[:80]!r}: {text[:200]!r}")
        return answer.status

    def _deep(self) -> None:
        while not self._stopping.is_set():
            for content, body in _DEEP:
                for known in (False, True):
                    self._send("POST", world.PODS, body, content, known=known)
                    if self._stopping.wait(0.02):
                        return

    def _strange(self) -> None:
        while not self._stopping.is_set():
            for method, path, body in _STRANGE:
                self._send(method, path, body, "application/json", known=True)
                if self._stopping.wait(0.02):
                    return

    def _large(self) -> None:
        body = json.dumps({"metadata": {"name": "x"}, "data": "x" * (20 << 20)}).encode()
        while not self._stopping.wait(0.2):
            self._send("POST", world.PODS, body, "application/json", known=False)
            self._send("POST", world.PODS, body, "application/json", known=True)

    def _flood(self) -> None:
        while not self._stopping.is_set():
            self._send("GET", world.PODS, b"", "application/json", known=True)

    def _slow(self) -> None:
        """Hold connections open with requests that never end."""
        held: list[socket.socket] = []
        while not self._stopping.wait(0.5):
            with contextlib.suppress(OSError):
                if len(held) < 150:
                    for _ in range(30):
                        one = socket.create_connection(("127.0.0.1", self.port), timeout=2)
                        one.sendall(b"POST " + world.PODS.encode() + b" HTTP/1.1\r\nHost: x\r\n")
                        held.append(one)
            for one in held:
                with contextlib.suppress(OSError):
                    one.sendall(b"X-%d: 1\r\n" % int(time.time()))
        for one in held:
            one.close()

"""HTTP and JSON, as little as the clients of the fault machine need."""

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

JSON = "application/json"
MERGE = "application/merge-patch+json"


class NoAnswer(Exception):
    """The request may or may not have been carried out."""


class Wire:
    """Requests on one kept connection at a time; not for several threads."""

    def __init__(
        self, port: int, token: Callable[[], str], *, secure: bool = False, seconds: float = 10
    ) -> None:
        self._port = port
        self._token = token
        self._secure = secure
        self._seconds = seconds
        self._connection: http.client.HTTPConnection | None = None

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is None:
            if self._secure:
                context = ssl._create_unverified_context()
                self._connection = http.client.HTTPSConnection(
                    "127.0.0.1", self._port, timeout=self._seconds, context=context
                )
            else:
                self._connection = http.client.HTTPConnection(
                    "127.0.0.1", self._port, timeout=self._seconds
                )
            self._connection.connect()
            assert self._connection.sock is not None
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._connection

    def _headers(self, content_type: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token()}", "Content-Type": content_type}

    def call(
        self, method: str, path: str, body: Any = None, content_type: str = JSON
    ) -> tuple[int, Any]:
        """Return status and decoded answer.

        Raises:
            NoAnswer: the connection could not be made, or ended or timed out first.
        """
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection = self._connect()
            connection.request(method, path, data, self._headers(content_type))
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoAnswer(f"{type(error).__name__}: {error}") from error
        if answer.will_close:
            self.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode(errors="replace")

    def stream(self, path: str) -> Iterator[Any]:
        """Give the JSON lines of a watch until it ends; connects anew.

        Raises:
            NoAnswer: the connection could not be made, or ended or timed out.
            Refused: the answer was not 200.
        """
        self.close()
        try:
            connection = self._connect()
            connection.request("GET", path, None, self._headers(JSON))
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                text = answer.read().decode(errors="replace")
                raise Refused(answer.status, text)
            while line := answer.readline():
                yield json.loads(line)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from error
        finally:
            self.close()

    def cut(self) -> None:
        """End the connection from another thread, so that whoever reads from it stops."""
        if self._connection is not None and self._connection.sock is not None:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Refused(Exception):
    """A watch was answered with a status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text[:300]}")
        self.status = status

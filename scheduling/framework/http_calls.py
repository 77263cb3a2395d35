"""HTTP calls with one deadline for the whole call, to services that a plugin uses.

``HTTPCaller.post`` ends at its deadline, whatever the service does: name lookup, connecting, the
TLS handshake, sending, and reading status, headers and body share the seconds. A service that sends
one byte now and then cannot delay the scheduler, nor can one that sends without end: an answer has
at most ``LARGEST_ANSWER`` bytes. Connections are reused. Redirects are not followed, and proxies of
the environment are not used.
"""

import http.client
import io
import select
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from typing import Any, Final
from urllib.parse import urlsplit

LARGEST_ANSWER: Final = 64 * 2**20
_CONNECTIONS_KEPT: Final = 4


class HTTPCaller:
    """Calls one service. Several threads may call at the same time.

    Args:
        url: ``http`` or ``https``, with a path to which verbs are appended.
        seconds: the limit of a whole call.
        context: how to check the certificate; ``None`` for ``http``.
    """

    def __init__(self, url: str, seconds: float, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._host, self._port = parts.hostname, parts.port or (443 if context else 80)
        self._path = parts.path.rstrip("/")
        self._seconds = seconds
        self._context = context
        self._idle: deque[_Connection] = deque()
        weakref.finalize(self, _close, self._idle)

    def post(self, verb: str, body: bytes) -> bytes:
        """POST a JSON document, and return the body of the answer.

        Raises:
            OSError: the service cannot be reached or is too slow.
            http.client.HTTPException: it answers with an error, breaks the protocol, or sends too
                much.
        """
        deadline = time.monotonic() + self._seconds
        connection = self._open_connection() or _Connection(self._host, self._port, self._context)
        try:
            connection.deadline = deadline
            path = f"{self._path}/{verb}"
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise http.client.HTTPException(f"status {response.status}")
            text = response.read(LARGEST_ANSWER + 1)
            if len(text) > LARGEST_ANSWER:
                raise http.client.HTTPException(f"the answer has more than {LARGEST_ANSWER} bytes")
            if response.length:
                raise http.client.IncompleteRead(text, response.length)
        except BaseException:
            connection.close()
            raise
        if connection.sock is None or len(self._idle) >= _CONNECTIONS_KEPT:
            connection.close()
        else:
            self._idle.append(connection)
        return text

    def _open_connection(self) -> "_Connection | None":
        """Return an idle connection that the service has not closed, ``None`` if there is none."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            # No request is pending: readable data means a closed connection, or an unexpected
            # answer.
            if connection.sock is not None and not _readable(connection.sock):
                return connection
            connection.close()


def _close(idle: "deque[_Connection]") -> None:
    while idle:
        idle.pop().close()


def _readable(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


class _Connection(http.client.HTTPConnection):
    """A connection on which every wait ends at ``deadline``."""

    deadline = 0.0

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        super().__init__(host, port)
        self._context = context

    def _seconds_left(self) -> float:
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("timed out")
        return seconds

    def connect(self) -> None:
        """Connect to the first address that answers."""
        failure: OSError | None = None
        for family, kind, protocol, _, address in _look_up(
            self.host, self.port, self._seconds_left()
        ):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(self._seconds_left())
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._context is not None:
                    sock.settimeout(self._seconds_left())
                    sock = self._context.wrap_socket(sock, server_hostname=self.host)
            except OSError as error:
                sock.close()
                failure = error
                continue
            self.sock = sock
            return
        raise failure or OSError("the host name has no address")

    def send(self, data: Any) -> None:
        """Send bytes, a piece at a time: a TLS socket counts its time-out anew for each."""
        if self.sock is None:
            self.connect()
        view = memoryview(data)
        while view:
            self.sock.settimeout(self._seconds_left())
            view = view[self.sock.send(view[:65536]) :]

    def response_class(  # type: ignore[override]  # called as a class is
        self, sock: socket.socket, *arguments: Any, **named: Any
    ) -> http.client.HTTPResponse:
        """Return the response over a socket whose reads end at the deadline."""
        return http.client.HTTPResponse(_Timed(self, sock), *arguments, **named)  # type: ignore[arg-type]


class _Timed:
    """The socket interface that ``HTTPResponse`` needs."""

    def __init__(self, connection: _Connection, sock: socket.socket) -> None:
        self._connection = connection
        self._sock = sock

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._connection, self._sock), 65536)


class _Reader(io.RawIOBase):
    def __init__(self, connection: _Connection, sock: socket.socket) -> None:
        self._connection = connection
        self._sock = sock
        # Keeps the socket open if the connection is closed before the answer was read.
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._connection._seconds_left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _look_up(host: str, port: int, seconds: float) -> list[Any]:
    """Return the addresses of a name; a thread, because the resolver has no time-out.

    Raises:
        OSError: the name has no address, or it took too long.
    """
    try:
        flags = socket.AI_NUMERICHOST
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
    except socket.gaierror:
        pass  # a name, no address
    found: list[Any] = []
    failed: list[OSError] = []

    def ask() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            failed.append(error if isinstance(error, OSError) else OSError(str(error)))

    thread = threading.Thread(target=ask, name="look-up", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"looking up {host} timed out")
    if failed:
        raise failed[0]
    return found

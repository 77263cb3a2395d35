"""One signed POST to an address that an administrator allows.

The host is resolved once, and the connection goes to the address that was checked. Redirects are
not followed, proxies of the environment are not used, and only the status of the answer is read.
Signatures are those of Standard Webhooks (``webhook-id``, ``webhook-timestamp``,
``webhook-signature``), for which receivers have libraries.
"""

import base64
import hashlib
import hmac
import http.client
import queue
import socket
import ssl
import threading
import time
from typing import Final

import msgspec
from django.conf import settings

from clusterstate.objects.rules.webhook_targets import AllowedTargets, Target

SECONDS: Final = 10.0
"""How long a receiver may take, from the question for its address to its answer, all in all."""
_TOO_LATE: Final = "no answer in time"


class Answer(msgspec.Struct, frozen=True):
    """The answer of a receiver: an HTTP status, or 0 and the error.

    ``retry_after``: the Retry-After seconds of the answer, 0 without.
    """

    code: int
    error: str
    seconds: float
    retry_after: float = 0.0


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``; the key is ``secret`` as UTF-8."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def post(
    target: Target, body: bytes, *, media_type: str, message_id: str, secret: str, timestamp: int
) -> Answer:
    """Send a body and return the answer or the failure; never raises."""
    started = time.monotonic()
    headers = {
        "Content-Type": media_type,
        "User-Agent": "stowage-webhook",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(secret, message_id, timestamp, body),
        "Connection": "close",
    }
    deadline = started + SECONDS
    code, error, later = 0, "", 0.0
    try:
        code, later = _send(target, body, headers, deadline)
    except (OSError, http.client.HTTPException, ValueError) as problem:
        error = _problem_text(problem) if time.monotonic() < deadline else _TOO_LATE
    return Answer(code, error, time.monotonic() - started, later)


def _problem_text(problem: Exception) -> str:
    if isinstance(problem, TimeoutError):
        return _TOO_LATE
    return str(problem)[:200] or type(problem).__name__


def _seconds_left(deadline: float) -> float:
    """Return the seconds until a deadline.

    Raises:
        TimeoutError: it has passed.
    """
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def _send(
    target: Target, body: bytes, headers: dict[str, str], deadline: float
) -> tuple[int, float]:
    """Return the status, and the seconds of ``Retry-After``."""
    address = _address(target, _addresses(target, deadline))
    plain = socket.create_connection((address, target.port), _seconds_left(deadline))
    connection = _connection(target, plain)
    # A receiver that sends a byte now and then would never exceed the time limit of a single wait.
    watch = threading.Timer(_seconds_left(deadline), _shut, (connection,))
    watch.daemon = True
    watch.start()
    try:
        if isinstance(connection.sock, ssl.SSLSocket):
            connection.sock.do_handshake()
        connection.request("POST", target.path, body, headers)
        answer = connection.getresponse()
        return answer.status, _retry_after(answer.getheader("Retry-After"))
    finally:
        watch.cancel()
        connection.close()


def _retry_after(text: str | None) -> float:
    """Return the seconds of a header; a date counts as none."""
    return float(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else 0.0


def _addresses(target: Target, deadline: float) -> list[str]:
    """Return the addresses of a host.

    The resolver has time limits of its own, so it runs on a thread, which is abandoned at the
    deadline.

    Raises:
        OSError: the host has no address, or the deadline has passed.
    """
    found: queue.SimpleQueue[list[str] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            infos = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            found.put(list(dict.fromkeys(str(each[4][0]) for each in infos)))
        except (OSError, UnicodeError) as problem:
            found.put(problem if isinstance(problem, OSError) else OSError(str(problem)))

    threading.Thread(target=ask, name="webhook-resolver", daemon=True).start()
    try:
        answer = found.get(timeout=_seconds_left(deadline))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def _address(target: Target, addresses: list[str]) -> str:
    """Return the address to connect to.

    Raises:
        ValueError: no address of the host is allowed.
    """
    chosen = AllowedTargets(settings.WEBHOOK_TARGETS).choose(target.host, addresses)
    if chosen is None:
        raise ValueError(f"{target.host} has no address that STOWAGE_WEBHOOK_TARGETS allows")
    return chosen


def _connection(target: Target, plain: socket.socket) -> http.client.HTTPConnection:
    """Return a connection over a socket, with the host's name in Host and in TLS."""
    connection: http.client.HTTPConnection
    try:
        plain.settimeout(SECONDS)
        if target.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(target.host, target.port, context=context)
            # The handshake waits for the receiver, so it happens later, under the time limit.
            connection.sock = context.wrap_socket(
                plain, server_hostname=target.host, do_handshake_on_connect=False
            )
        else:
            connection = http.client.HTTPConnection(target.host, target.port)
            connection.sock = plain
    except (OSError, ValueError):
        plain.close()
        raise
    return connection


def _shut(connection: http.client.HTTPConnection) -> None:
    try:
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended meanwhile

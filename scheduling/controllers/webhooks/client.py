"""One signed POST to an address that an administrator allows.

The host is resolved once; the address that was judged is the one that is connected to. No redirect
is followed, no proxy of the environment is asked, and of the answer only the status is looked at.
Signatures are those of Standard Webhooks (``webhook-id``, ``webhook-timestamp``,
``webhook-signature``), for which receivers have libraries.
"""

import base64
import hashlib
import hmac
import http.client
import socket
import ssl
import threading
import time
from typing import Final

import msgspec
from django.conf import settings

from clusterstate.objects.webhook_targets import Allowed, Target

SECONDS: Final = 10.0
"""How long a receiver may take to answer, all in all."""
_CONNECT_SECONDS: Final = 5.0


class Answer(msgspec.Struct, frozen=True):
    """What came back: a status, or 0 and why there is none."""

    code: int
    error: str
    seconds: float


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``; the key is ``secret`` as UTF-8."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def post(
    target: Target, body: bytes, *, media_type: str, message_id: str, secret: str, timestamp: int
) -> Answer:
    """Send a body and return what came back; raises nothing."""
    started = time.monotonic()
    headers = {
        "Content-Type": media_type,
        "User-Agent": "stowage-webhook",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(secret, message_id, timestamp, body),
        "Connection": "close",
    }
    try:
        code, error = _send(target, body, headers), ""
    except (OSError, http.client.HTTPException, ValueError) as problem:
        code, error = 0, _said(problem)
    return Answer(code, error, time.monotonic() - started)


def _said(problem: Exception) -> str:
    if isinstance(problem, TimeoutError):
        return "no answer in time"
    return str(problem)[:200] or type(problem).__name__


def _send(target: Target, body: bytes, headers: dict[str, str]) -> int:
    address = _address(target)
    connection = _connection(target, address)
    # A receiver that sends a byte now and then would keep each single wait short.
    watch = threading.Timer(SECONDS, _shut, (connection,))
    watch.daemon = True
    watch.start()
    try:
        connection.request("POST", target.path, body, headers)
        return connection.getresponse().status
    finally:
        watch.cancel()
        connection.close()


def _address(target: Target) -> str:
    """Return the address to connect to.

    Raises:
        OSError: the host has none.
        ValueError: none of those that it has is allowed.
    """
    allowed = Allowed(settings.WEBHOOK_TARGETS)
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    chosen = allowed.choose(target.host, addresses)
    if chosen is None:
        raise ValueError(f"{target.host} has no address that STOWAGE_WEBHOOK_TARGETS allows")
    return chosen


def _connection(target: Target, address: str) -> http.client.HTTPConnection:
    """Return a connection to the address, for the host: its name is in Host and in TLS."""
    plain = socket.create_connection((address, target.port), _CONNECT_SECONDS)
    plain.settimeout(SECONDS)
    connection: http.client.HTTPConnection
    try:
        if target.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(target.host, target.port, context=context)
            connection.sock = context.wrap_socket(plain, server_hostname=target.host)
        else:
            connection = http.client.HTTPConnection(target.host, target.port)
            connection.sock = plain
    except OSError:
        plain.close()
        raise
    return connection


def _shut(connection: http.client.HTTPConnection) -> None:
    try:
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended meanwhile

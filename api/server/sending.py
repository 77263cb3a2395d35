"""Sends answers: whole, in parts, or before the request was read."""

import asyncio
from contextlib import suppress
from functools import lru_cache

from django.http import HttpResponse
from django.http.response import HttpResponseBase

from api.server.batches import DeferredAnswer
from api.server.budget import SMALL_BYTES
from api.server.protocol import CONNECTION
from api.server.scopes import COMPLETE, Receive, Scope, Send, announced, raw_header

Headers = list[tuple[bytes, bytes]]
Answer = tuple[int, Headers, bytes]
"""Status, headers and body."""

PART_BYTES = 256 << 10
"""What is handed to the connection at a time of a large answer."""

LINGER_SECONDS = 2.0
LINGER_BYTES = 64 << 20
"""How long, and how much, is read of a body whose request has been refused already."""

PLAIN_TEXT: Headers = [
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"cache-control", b"no-cache, private"),
]


async def reply(scope: Scope, send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a small answer, in one packet if the connection can."""
    connection = scope.get(CONNECTION)
    if connection is None or not connection.answer(scope, status, headers, body):
        await _reply_by_messages(send, status, headers, body)


async def _reply_by_messages(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send an answer through ``send``, which may add headers or record the answer."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def reply_in_parts(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a large answer as fast as the client reads it."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    last = len(body) - PART_BYTES
    for start in range(0, len(body), PART_BYTES):
        part = body[start : start + PART_BYTES]
        await send({"type": "http.response.body", "body": part, "more_body": start < last})


async def refuse(scope: Scope, receive: Receive, send: Send, response: HttpResponse) -> None:
    """Answer a request that may not have been read completely.

    Incoming data is read and dropped for a moment: closing at once would reset the connection, and
    the client would lose the answer.
    """
    length = announced(scope)
    if scope.get(COMPLETE) or not (length or raw_header(scope, b"transfer-encoding")):
        await reply_with(send, response)
        return
    if 0 < length <= SMALL_BYTES:
        await drop(receive, length)
        await reply_with(send, response)
        return
    body = response.content
    headers = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in response.items()]
    headers += [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            await drop(receive, LINGER_BYTES)
    await send({"type": "http.response.body", "body": b""})


async def drop(receive: Receive, most: int) -> None:
    """Read and drop the rest of a body, at most ``most`` bytes."""
    dropped = 0
    while dropped < most:
        message = await receive()
        dropped += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            return


async def reply_with(send: Send, response: HttpResponse) -> None:
    """Send a response of Django's."""
    headers = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in response.items()]
    headers.append((b"content-length", str(len(response.content)).encode()))
    await _reply_by_messages(send, response.status_code, headers, response.content)


@lru_cache(maxsize=256)
def _pair(key: str, value: str) -> tuple[bytes, bytes]:
    """Return a header in its wire form, cached: most answers have the same two."""
    return key.lower().encode("latin-1"), value.encode("latin-1")


def answer_of(response: HttpResponseBase) -> Answer:
    """Return a Django response as status, headers and body."""
    if isinstance(response, DeferredAnswer):
        assert response.answer is not None
        response = response.answer
    headers = [_pair(key, value) for key, value in response.items()]
    body: bytes = response.content  # type: ignore[attr-defined]  # no API view streams here
    headers.append((b"content-length", str(len(body)).encode()))
    return response.status_code, headers, body

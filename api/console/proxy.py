"""The gate: how the API's servers hand requests for the console over to the console's process.

Pages are long to make, and the process that makes them shares its interpreter with nobody, so that
open consoles do not slow the API. People see one address all the same: what comes for ``/console/``
goes on over a unix socket (or to another host), one connection for each request, and the answer is
passed on as it comes, streams of events as well.

The console's process takes requests from the gate alone, which proves itself by a digest of the
secret key that both have. So the process may believe what the gate says of the sender: the address,
which counts for the lock-out and the audit log, and whether the connection is secure.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

import httptools
from django.conf import settings

from api.console.page import layout
from api.server.sending import answer_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

PREFIX: Final = "/console"
_PROOF: Final = b"x-stowage-gate"
_ADDRESS: Final = b"x-stowage-address"
_SCHEME: Final = b"x-stowage-scheme"
_OURS: Final = frozenset({_PROOF, _ADDRESS, _SCHEME})
_HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
        *(b"proxy-authorization", b"proxy-connection", b"content-length", b"expect"),
    }
)
CONSOLE_NICENESS: Final = 5
"""How much the console's process yields to the others: it has a third of an API server's share."""
_CONNECT_SECONDS: Final = 3.0
FIRST_SECONDS: Final = 30.0
"""How long the console's process may take to begin a page; one that was stopped never does."""
PART_SECONDS: Final = 75.0
"""The same for a part of a page, which shows progress meanwhile: an advisor's longest question, a
comparison, takes a minute."""
NEXT_SECONDS: Final = 30.0
"""How long it may be silent within an answer: a stream gives a sign of life every few seconds."""
_PART: Final = 64 << 10
_UNSURE: Final = (
    " Your change may or may not have been made: open the console and look before you send it"
    " again."
)
_NOT_AFFECTED: Final = "The API and the scheduler are not affected."


@cache
def proof() -> bytes:
    """Return the secret by which the console recognises requests from the API's servers."""
    key = settings.SECRET_KEY.encode()
    return hmac.new(key, b"stowage console gate", hashlib.sha256).hexdigest().encode()


def leads_to_console(scope: Scope) -> bool:
    """Return whether the console's process serves the request."""
    path: str = scope["path"]
    return bool(settings.CONSOLE_AT) and (path == PREFIX or path.startswith(PREFIX + "/"))


async def forward(scope: Scope, receive: Receive, send: Send) -> int:
    """Hand a request over and pass the answer on; return the status that was answered."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await _connect(settings.CONSOLE_AT)
    except (OSError, TimeoutError):
        return await _unavailable(scope, send)
    is_part = any(name == b"hx-request" for name, _ in scope["headers"])
    answer = _Answer(scope["method"] == "HEAD", PART_SECONDS if is_part else FIRST_SECONDS)
    answer.is_sent = not _has_body(scope)
    # Runs to the end of the answer, too: it tells when the browser has gone.
    pump = asyncio.ensure_future(_pump(scope, receive, writer, answer))
    relay = asyncio.ensure_future(_relay(reader, answer, send))
    try:
        await asyncio.wait({pump, relay}, return_when=asyncio.FIRST_COMPLETED)
        if any(task.done() and task.exception() is not None for task in (relay, pump)):
            return await _broken(scope, answer, send)
        return answer.status or 499
    finally:
        for task in (pump, relay):
            task.cancel()
        with suppress(Exception):
            await asyncio.wait({pump, relay})
        writer.close()


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.startswith("unix:"):
        return await asyncio.open_unix_connection(address.removeprefix("unix:"))
    host, _, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    return await asyncio.open_connection(host, int(port))


def _head(scope: Scope) -> bytes:
    """Return the request's first line and headers; a body follows in chunks."""
    target = scope.get("raw_path") or scope["path"].encode()
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    client = scope.get("client") or ("", 0)
    lines = [b"%s %s HTTP/1.1" % (scope["method"].encode(), target)]
    lines += [
        b"%s: %s" % (name, value)
        for name, value in scope["headers"]
        if name not in _HOP and name not in _OURS
    ]
    lines += [
        b"%s: %s" % (_PROOF, proof()),
        b"%s: %s" % (_ADDRESS, str(client[0]).encode()),
        b"%s: %s" % (_SCHEME, scope.get("scheme", "http").encode()),
        b"connection: close",
    ]
    if _has_body(scope):
        lines.append(b"transfer-encoding: chunked")
    return b"\r\n".join([*lines, b"", b""])


def _has_body(scope: Scope) -> bool:
    return scope["method"] not in ("GET", "HEAD")


async def _pump(
    scope: Scope, receive: Receive, writer: asyncio.StreamWriter, answer: "_Answer"
) -> None:
    """Send the request, then wait until the browser has gone.

    Raises:
        TimeoutError: the console's process takes no more of it.
    """
    writer.write(_head(scope))
    more = _has_body(scope)
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not more:
            continue
        part, more = message.get("body", b""), message.get("more_body", False)
        if part:
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
        if not more:
            answer.is_sent = True
            writer.write(b"0\r\n\r\n")
        with suppress(ConnectionError):  # answered and closed before all was sent
            async with asyncio.timeout(FIRST_SECONDS):
                await writer.drain()


class _Answer:
    """Collects status, headers and body of an answer, as the HTTP parser's callbacks."""

    def __init__(self, is_head: bool, patience: float) -> None:  # noqa: FBT001
        self.is_head = is_head
        self.patience = patience
        """Seconds in which the answer has to begin."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []
        self.is_sent = False
        """The whole request went on to the console's process."""
        self.is_begun = False
        self.is_complete = False
        self.parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Take the status."""
        self.status = self.parser.get_status_code()
        self.is_complete = self.is_head or self.status in (204, 304)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self.parts.append(body)

    def on_message_complete(self) -> None:
        """Note the end."""
        self.is_complete = True


async def _relay(reader: asyncio.StreamReader, answer: _Answer, send: Send) -> None:
    """Send the console process's answer to the browser as it arrives.

    Raises:
        ConnectionError: the console's process ended before its answer did.
        TimeoutError: it said nothing for too long. A browser that takes its time to send a body is
            waited for.
    """
    while not answer.is_complete:
        data = await _read(reader, answer)
        if not data:
            raise ConnectionError("the answer ended early")
        answer.parser.feed_data(data)
        if answer.status and not answer.is_begun:
            answer.is_begun = True
            headers = [
                pair
                for pair in answer.headers
                if pair[0] not in (b"connection", b"transfer-encoding", b"date")
            ]
            start = {"type": "http.response.start", "status": answer.status, "headers": headers}
            await send(start)
        if answer.parts:
            body = b"".join(answer.parts)
            answer.parts.clear()
            await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _read(reader: asyncio.StreamReader, answer: _Answer) -> bytes:
    """Return the next part of an answer, empty at its end."""
    while True:
        was_sent = answer.is_sent
        try:
            async with asyncio.timeout(NEXT_SECONDS if answer.is_begun else answer.patience):
                return await reader.read(_PART)
        except TimeoutError:
            if was_sent:
                raise


async def _broken(scope: Scope, answer: _Answer, send: Send) -> int:
    """Answer 503 if the console's process failed before its answer began, else end the answer."""
    if not answer.is_begun:
        return await _unavailable(scope, send, was_asked=True)
    await send({"type": "http.response.body", "body": b""})
    return answer.status


async def _unavailable(scope: Scope, send: Send, *, was_asked: bool = False) -> int:
    # What was posted may have been done; a page that asks again by itself would not tell.
    changes = _has_body(scope)
    title = "The console is not ready yet"
    sentence = "Its process is starting or restarting."
    if was_asked:
        title = "The console did not answer"
        sentence = (
            "There was no answer within half a minute: the request takes too long, or the console's"
            " process hangs."
        )
        sentence += _UNSURE if changes else " Nothing was changed."
    elif changes:
        sentence += " What you sent was not done: go back and send it again in a moment."
    page = layout.without_database(
        title, sentence, changes=changes, heals=not (was_asked or changes), note=_NOT_AFFECTED
    )
    status, headers, body = answer_of(page)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    return status


class BehindGate:
    """The console process's application; accepts only requests that the proxy forwards."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it where it does not come from the gate."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        headers = {name: value for name, value in scope["headers"] if name in _OURS}
        if not hmac.compare_digest(headers.get(_PROOF, b""), proof()):
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] not in _OURS]
        scope["client"] = (headers.get(_ADDRESS, b"").decode("latin-1"), 0)
        scope["scheme"] = headers.get(_SCHEME, b"http").decode("latin-1")
        await self._application(scope, receive, send)

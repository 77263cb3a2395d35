"""uvicorn's HTTP protocol with deadlines and limits, so that clients cannot hold connections.

Each phase of a request has a deadline: headers within ``HEADER_SECONDS`` and ``HEADER_BYTES``, a
complete body within ``BODY_SECONDS``; a client that does not read its answer for ``READ_SECONDS``
is disconnected. A process keeps at most ``settings.MAX_CONNECTIONS``: one more replaces the one
that has waited longest without a request. TLS handshakes end after ``HANDSHAKE_SECONDS``, and a
quarter as many are allowed (``handshakes``); only the event loop can set that (``_Loop``).

A sweep over all connections each second (``_sweep``) finds overdue ones, so that a request needs no
timer; it only notes when its phase began.

uvicorn writes the head and the body of an answer separately, which sends two packets and wakes the
client twice: a tenth of the time of reading an object. A small answer is written at once
(``Protocol.answer``), without the two ASGI messages that uvicorn would parse, check and join again.
The same sweep closes connections without a further request, for which uvicorn sets a timer after
each answer.
"""

import asyncio
import logging
import re
import resource
import socket
import struct
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, Final

import uvicorn
import uvloop
from django.conf import settings
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from api.forms import errors
from api.server.handshakes import Handshakes
from clusterstate.objects.values.errors import StatusError

CONNECTION = "stowage.connection"
"""Where a scope holds the connection that the request came on. It stands here, since uvicorn reads
this module before Django is set up, so that it can import nothing that has models below it."""
HEADER_SECONDS: Final = 10.0
HEADER_BYTES: Final = 64 << 10
IDLE_SECONDS: Final = 5.0
"""How long a connection stays open behind an answer."""
BODY_SECONDS: Final = 60.0
BODY_PAUSE_SECONDS: Final = 10.0
READ_SECONDS: Final = 20.0
CLOSE_SECONDS: Final = 5.0
"""How long a client may take to read what was left when its connection was closed."""
HANDSHAKE_SECONDS: Final = 5.0
PIPELINED: Final = 16
"""Requests that may be sent ahead on one connection."""

_SWEEP_SECONDS: Final = 1.0

_OF_THE_CONNECTION: Final = frozenset({b"connection", b"transfer-encoding"})
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What no value of a header may hold, as uvicorn has it."""

Asgi = Callable[[Any, Any, Any], Awaitable[None]]
Begin = Callable[[Any, bytes, Callable[[Asgi], None]], None]
"""What an application may have beside ASGI, ``begin(scope, body, go_on)``: it answers a request
that came whole, or has ``go_on`` call an ASGI application in a task."""

# Phases of a connection.
_IDLE, _HEADERS, _BODY, _ANSWER = range(4)


_logger = logging.getLogger("uvicorn.error.requests")
_logger.setLevel(logging.ERROR)  # else malformed requests would let strangers fill the log


class RequestTimeout(StatusError):
    """The client did not send its request in time."""

    code, reason = 408, "Timeout"


class HeadersTooLarge(StatusError):
    """The request line and headers exceed the limit."""

    code, reason = 431, "RequestHeaderFieldsTooLarge"


class TooManyConnections(StatusError):
    """All connections that this process keeps are in use."""

    code, reason = 503, "ServiceUnavailable"


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _logger
        self._phase = _IDLE
        self._since = self._heard = self.loop.time()
        self._header_bytes = 0
        self._paused_since = 0.0
        self._closing_since = 0.0
        self._answering: RequestResponseCycle | None = None
        self._begin: Begin | None = getattr(self.app, "begin", None)
        self._parses = False
        self._begun: RequestResponseCycle | None = None

    # ---------------------------------------------------------------------- what asyncio calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection, or refuse it when all are in use."""
        super().connection_made(transport)
        _sweeper(self.loop, self.connections)
        if len(self.connections) > max_connections() and not self._make_room():
            self.refuse(TooManyConnections("too many connections are open"))

    def data_received(self, data: bytes) -> None:
        """Receive data of the client."""
        if self.transport.is_closing():
            return
        self._heard = self.loop.time()
        if self._phase == _IDLE:
            self._phase, self._since = _HEADERS, self._heard
        if self._phase == _HEADERS:
            self._header_bytes += len(data)
        self._parses = self._begin is not None
        super().data_received(data)
        self._parses = False
        if (cycle := self._begun) is not None:
            self._begun = None
            if self.transport.is_closing():
                return  # the request after it was refused, and the client takes that for the answer
            go_on = partial(super()._start_asgi_task, cycle)
            if cycle.more_body or self._begin is None:
                go_on(self.app)
            else:
                self._begin(cycle.scope, bytes(cycle.body), go_on)
        if self._phase == _HEADERS and self._header_bytes > HEADER_BYTES:
            self.refuse(
                HeadersTooLarge(f"the request's headers are larger than {HEADER_BYTES} bytes")
            )

    def pause_writing(self) -> None:
        """Note since when the client has not read."""
        self._paused_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self._paused_since = 0.0
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify every request of the connection of its end, not only the latest one."""
        self._disconnect()
        super().connection_lost(exc)

    # ----------------------------------------------------------------- what the parser calls

    def on_message_begin(self) -> None:
        """Begin a request, even if it arrived together with the one before."""
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]
        if self._phase != _HEADERS:
            self._phase, self._since, self._header_bytes = _HEADERS, self._heard, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers after a chunked body are ignored."""
        if self._phase == _HEADERS:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request on."""
        self._phase, self._since, self._header_bytes = _BODY, self._heard, 0
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED:
            self.hang_up()

    def on_message_complete(self) -> None:
        """Note that the request is complete; it may have been answered before its body came."""
        if self.cycle.response_complete:
            self._phase, self._since, self._header_bytes = _IDLE, self._heard, 0
        else:
            self._phase = _ANSWER
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, without uvicorn's timer: ``check`` closes idle connections."""
        if self._phase == _ANSWER and not self.pipeline:
            self._phase, self._since, self._header_bytes = _IDLE, self.loop.time(), 0
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start answering a request, once all its received data is parsed."""
        self._answering = cycle
        if self._parses:
            self._begun = cycle
        else:
            super()._start_asgi_task(cycle, app)

    # ---------------------------------------------------------------------------- answers

    def answer(
        self,
        scope: MutableMapping[str, Any],
        status: int,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
    ) -> bool:
        """Send a whole answer in one packet; return False if ASGI's two messages must be used.

        ``headers`` have lower-case names. The bytes are those that uvicorn would write
        (``RequestResponseCycle.send``). The two messages are used for a client that pipelines
        requests or does not read, for HEAD, and for headers that describe the body's encoding or
        are invalid.
        """
        cycle: RequestResponseCycle = self.cycle
        if (
            cycle.scope is not scope
            or cycle.response_started
            or cycle.disconnected
            or self.flow.write_paused
            or scope["method"] == "HEAD"
        ):
            return False
        parts = [STATUS_LINE[status]]
        has_length = False
        for name, value in [*cycle.default_headers, *headers]:
            if name in _OF_THE_CONNECTION or _CONTROL.search(value):
                return False
            if name == b"content-length":
                has_length = True
            parts += (name, b": ", value, b"\r\n")
        if not has_length:
            return False
        parts.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
        parts.append(body)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self.transport.write(b"".join(parts))
        cycle.message_event.set()
        cycle.on_response = _nothing  # a method of this object, which would keep both
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()
        return True

    # ------------------------------------------------------------------------------- ends

    @property
    def reads(self) -> bool:
        """Whether the client has read everything sent so far, except for a buffer."""
        return not self._paused_since

    @property
    def waits(self) -> bool:
        """Whether no request is being answered."""
        return self._phase in (_IDLE, _HEADERS)

    @property
    def since(self) -> float:
        """When the present phase began, in the loop's time."""
        return self._since

    def refuse(self, error: StatusError) -> None:
        """Refuse the incoming request with a ``Status``, and close the connection.

        Nothing is sent if its answer has begun, or an earlier one is still being answered: the
        client would take the refusal for the answer to that.
        """
        refused = None if self._phase in (_IDLE, _HEADERS) else self.cycle
        answering = self._answering
        if answering is None or answering.response_complete:
            silent = False
        else:
            silent = answering is not refused or answering.response_started
        if not silent:
            body = errors.encode(errors.as_status(error))
            head = (
                f"HTTP/1.1 {error.code} {error.reason}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self._leave()

    def end(self, last: bytes) -> None:
        """End a chunked answer whose client does not read: write a last chunk, then the end.

        The chunk bypasses the flow control that the answer's own task waits for; if the client
        reads within ``CLOSE_SECONDS``, it learns why the answer ends.
        """
        self.transport.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(last), last))
        self._leave()

    def _leave(self) -> None:
        """Close after the written data; wake tasks that wait for more of the request."""
        self._disconnect()
        self.flow.resume_writing()
        self.transport.close()

    def _disconnect(self) -> None:
        """Notify requests without an answer that their client is gone; drop waiting ones.

        The super class notifies only the latest one. If a client pipelined several, that is not the
        one being answered, whose task would wait for ever, or write to a closed connection.
        """
        self.pipeline.clear()
        for cycle in (self._answering, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def hang_up(self) -> None:
        """Close at once, discarding data that the kernel has buffered."""
        self._disconnect()
        found = self.transport.get_extra_info("socket")
        if found is not None:
            with suppress(OSError):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _make_room(self) -> bool:
        """Close the connection that has waited longest without a request, if there is one."""
        waiting = [
            each
            for each in self.connections
            if each is not self
            and isinstance(each, Protocol)
            and each.waits
            and not each.transport.is_closing()
        ]
        if not waiting:
            return False
        min(waiting, key=lambda each: each.since).hang_up()
        return True

    def check(self, now: float) -> None:
        """Close the connection if its deadline has passed."""
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            if now - self._closing_since > CLOSE_SECONDS:
                self.hang_up()
        elif self._paused_since and now - self._paused_since > READ_SECONDS:
            self.hang_up()
        elif self._phase == _HEADERS and now - self._since > HEADER_SECONDS:
            self.refuse(RequestTimeout(f"the headers did not come within {HEADER_SECONDS:.0f} s"))
        elif self._phase == _IDLE and now - self._since > self._patience():
            self.transport.close()
        elif self._phase == _BODY and (
            now - self._since > BODY_SECONDS
            or (not self.flow.read_paused and now - self._heard > BODY_PAUSE_SECONDS)
        ):
            self.refuse(RequestTimeout("the body did not come in time"))

    def _patience(self) -> float:
        """Return how many seconds the next request may take to begin."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return HEADER_SECONDS if cycle is None else IDLE_SECONDS


def _nothing() -> None:
    """Do nothing: a callback in place of a method that uvicorn removed."""


_sweeping: set[asyncio.AbstractEventLoop] = set()


def _sweeper(loop: asyncio.AbstractEventLoop, connections: "set[Any]") -> None:
    """Sweep the connections of a loop each second while there are any."""
    if loop not in _sweeping:
        _sweeping.add(loop)
        loop.call_later(_SWEEP_SECONDS, _sweep, loop, connections)


def _sweep(loop: asyncio.AbstractEventLoop, connections: "set[Any]") -> None:
    now = loop.time()
    for each in list(connections):
        if isinstance(each, Protocol):
            each.check(now)
    if connections:
        loop.call_later(_SWEEP_SECONDS, _sweep, loop, connections)
    else:
        _sweeping.discard(loop)


class Server(uvicorn.Server):
    """A server that sleeps while idle: uvicorn's checks ten times a second whether it must end."""

    async def main_loop(self) -> None:
        """Write the date of answers each second, until a signal ends the server."""
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        while not await self.on_tick(0):
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _SWEEP_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note the signal, and wake ``main_loop`` if it has begun."""
        super().handle_exit(sig, frame)
        if hasattr(self, "_ended"):
            self._loop.call_soon_threadsafe(self._ended.set)


_descriptors = 0


def max_connections() -> int:
    """Return how many connections this process keeps, leaving room for its other files.

    Raises the process's soft limit of open files to the hard one at first.
    """
    global _descriptors  # noqa: PLW0603  # a fact about the process, found once
    if not _descriptors:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = max(soft, min(hard, 2 * settings.MAX_CONNECTIONS))
        if hard == resource.RLIM_INFINITY:
            limit = max(soft, 2 * settings.MAX_CONNECTIONS)
        if limit != soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        _descriptors = limit
    room = _descriptors - 128
    return max(16, min(settings.MAX_CONNECTIONS, room - room // 5))  # a fifth is for handshakes


class _Loop(uvloop.Loop):
    """An event loop whose TLS handshakes are limited."""

    async def create_server(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        context = kwargs.pop("ssl", None)
        if context is not None:
            shaking = Handshakes(
                most=lambda: max_connections() // 4,
                seconds=HANDSHAKE_SECONDS,
                end_seconds=CLOSE_SECONDS,
            )
            protocol_factory = shaking.serve(protocol_factory, context)
        return await super().create_server(protocol_factory, *args, **kwargs)


def loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of a web process (uvicorn's ``--loop``)."""
    return _Loop()

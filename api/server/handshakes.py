"""Limits the number of TLS handshakes: a new one replaces a silent one.

A handshake has five seconds (``HANDSHAKE_SECONDS``). Until it is complete there is no connection
that ``protocol`` counts, so a client that opens some hundred silent ones would use up the process's
descriptors, and others would be refused meanwhile. So a process keeps few of them. One more
replaces the oldest one *of the address with the most*: a client that opens many replaces only those
of its own address, and an active handshake is over in milliseconds.
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Final

LEAST: Final = 16
"""Handshakes that a process keeps, however few descriptors it has."""


class Handshakes:
    """The incomplete handshakes of one process; used on its event loop only.

    ``most`` returns their limit. ``seconds``: how long one may take.
    """

    def __init__(self, *, most: Callable[[], int], seconds: float, end_seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._end_seconds = end_seconds
        self._open: dict[str, dict[asyncio.Transport, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def serve(
        self, make: Callable[[], asyncio.Protocol], context: ssl.SSLContext
    ) -> Callable[[], asyncio.Protocol]:
        """Return a factory for plain TCP: it does the TLS handshake, then calls ``make``."""
        return lambda: _Begun(self, make, context)

    def begin(self, transport: asyncio.Transport) -> str:
        """Add a connection and return its address; abort another one if there are too many."""
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self._open.setdefault(address, {})[transport] = None
        self._count += 1
        while self._count > max(LEAST, self._most()):
            crowd = max(self._open, key=lambda one: len(self._open[one]))
            oldest = next(iter(self._open[crowd]))
            self.end(crowd, oldest)
            oldest.abort()
        return address

    def end(self, address: str, transport: asyncio.Transport) -> None:
        """Remove a handshake that is complete or over; does nothing if it is not there."""
        of_address = self._open.get(address, {})
        if transport in of_address:
            del of_address[transport]
            self._count -= 1
            if not of_address:
                del self._open[address]

    def shake(
        self, transport: asyncio.Transport, waiting: asyncio.Protocol, context: ssl.SSLContext
    ) -> Coroutine[asyncio.Future[None], None, asyncio.Transport | None]:
        """Return a coroutine that returns the transport after the handshake, or raises OSError."""
        return asyncio.get_running_loop().start_tls(
            transport,
            waiting,
            context,
            server_side=True,
            ssl_handshake_timeout=self._seconds,
            ssl_shutdown_timeout=self._end_seconds,
        )


class _Begun(asyncio.Protocol):
    """A connection during its handshake, after which its protocol is created."""

    def __init__(
        self,
        handshakes: Handshakes,
        make: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
    ) -> None:
        self._handshakes = handshakes
        self._make = make
        self._context = context
        self._waiting = _HandshakeBuffer()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin at once: a task would start later and miss the client's first bytes."""
        self._transport = transport
        self._address = self._handshakes.begin(transport)
        self._shaking = self._handshakes.shake(transport, self._waiting, self._context)
        self._shaking.send(None).add_done_callback(self._go_on)

    def _go_on(self, shaken: "asyncio.Future[None]") -> None:
        self._handshakes.end(self._address, self._transport)
        secured: asyncio.Transport | None = None
        try:
            self._shaking.send(None)
        except StopIteration as done:
            secured = done.value
        except OSError:  # the client hung up, spoke no TLS, was too slow or was replaced
            self._transport.abort()
            return
        if secured is not None and not secured.is_closing() and not self._waiting.lost:
            protocol = self._make()
            secured.set_protocol(protocol)
            protocol.connection_made(secured)
            self._waiting.hand_over(protocol)


class _HandshakeBuffer(asyncio.Protocol):
    """Buffers bytes after the handshake until the HTTP protocol is attached."""

    def __init__(self) -> None:
        self._came: list[bytes] = []
        self._ended = False
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self._came.append(bytes(data))

    def eof_received(self) -> bool | None:
        self._ended = True
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Pass the data buffered during the handshake to the HTTP protocol."""
        for data in self._came:
            protocol.data_received(data)
        if self._ended:
            protocol.eof_received()

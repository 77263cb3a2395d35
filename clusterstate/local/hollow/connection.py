"""HTTP/1.1 on kept connections, and watches, for clients on one event loop."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

_encode = msgspec.json.encode
_decode = msgspec.json.decode


class Answer(msgspec.Struct, frozen=True):
    """Status and decoded body of a request."""

    status: int
    body: Any


class Connection:
    """A kept HTTP/1.1 connection, opened again after the server closed it."""

    def __init__(self, url: str, token: str, tls: ssl.SSLContext | None) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = tls if parts.scheme == "https" else None
        self._head = (
            f"Host: {self._host}:{self._port}\r\nAuthorization: Bearer {token}\r\n"
            "Accept: application/json\r\n"
        )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def close(self) -> None:
        """Close the connection; the next request opens it again."""
        if self._streams is not None:
            self._streams[1].close()
            with contextlib.suppress(OSError, ssl.SSLError):
                await self._streams[1].wait_closed()
        self._streams = None

    async def _send(
        self, method: str, path: str, body: Any, content_type: str
    ) -> tuple[int, dict[str, str], asyncio.StreamReader]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, limit=1 << 24
            )
        reader, writer = self._streams
        data = b"" if body is None else _encode(body)
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(data)}\r\n"
        if data:
            head += f"Content-Type: {content_type}\r\n"
        writer.write(f"{head}\r\n".encode() + data)
        await writer.drain()
        status = int((await reader.readline()).split(b" ", 2)[1])
        headers: dict[str, str] = {}
        while (line := await reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            headers[name.strip().lower()] = value.strip()
        return status, headers, reader

    async def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Answer:
        """Send a request; return the answer. Tries again once if the connection was closed."""
        for attempt in (1, 2):
            try:
                status, headers, reader = await self._send(method, path, body, content_type)
                if "content-length" in headers:
                    data = await reader.readexactly(int(headers["content-length"]))
                else:
                    data = b"".join([part async for part in _chunks(reader)])
                return Answer(status, _decode(data) if data else None)
            except (OSError, IndexError, ValueError, asyncio.IncompleteReadError):
                await self.close()
                if attempt == 2:
                    raise
        raise AssertionError("the loop returns or raises")

    async def watch(self, path: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of a watch until the server ends it."""
        try:
            status, _, reader = await self._send("GET", path, None, "")
            if status != 200:
                yield {"type": "ERROR", "object": {"code": status}}
                return
            rest = b""
            async for part in _chunks(reader):
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _decode(line)
        finally:
            await self.close()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        size = int((await reader.readline()).strip() or b"0", 16)
        data = await reader.readexactly(size) if size else b""
        await reader.readline()
        if not size:
            return
        yield data

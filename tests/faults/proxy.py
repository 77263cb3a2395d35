"""A TCP proxy between the service and its servers, which can fall silent or hang up.

Connections to PostgreSQL are told apart by the application_name of their first message. Silence
means that nothing is read from either side: what was sent stays with the kernel, as it does when
the network swallows it, and goes on when the silence ends.
"""

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

_PIECE = 1 << 16
_APPLICATION = re.compile(rb"application_name\0([^\0]+)\0")
EVERYBODY = ""


@dataclass(eq=False)
class _Link:
    """One connection: the two ends, and whose it is."""

    client: asyncio.StreamWriter
    name: str = ""
    server: asyncio.StreamWriter | None = None
    flows: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        for side in (self.client, self.server):
            if side is not None:
                side.transport.abort()
        self.flows.set()


class Proxy:
    """Listens on a port of its own and passes on to a server; runs on a thread of its own."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._links: set[_Link] = set()
        self._silent: set[str] = set()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait(10)

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()
        server.close()
        for link in list(self._links):
            link.end()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    def _hushed(self, name: str) -> bool:
        return EVERYBODY in self._silent or name in self._silent

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer)
        self._links.add(link)
        try:
            first = await reader.read(_PIECE)
            if found := _APPLICATION.search(first):
                link.name = found.group(1).decode().removeprefix("stowage-")
            if not self._hushed(link.name):
                link.flows.set()
            await link.flows.wait()
            back, link.server = await asyncio.open_connection("127.0.0.1", self.target)
            link.server.write(first)
            await asyncio.gather(
                self._pass(reader, link.server, link), self._pass(back, writer, link)
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._links.discard(link)
            link.end()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link
    ) -> None:
        try:
            while piece := await reader.read(_PIECE):
                await link.flows.wait()
                writer.write(piece)
                await writer.drain()
        finally:
            with contextlib.suppress(OSError, RuntimeError):
                writer.close()

    def _do(self, work: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            work()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait(5)

    def hush(self, name: str = EVERYBODY) -> None:
        """Let the connections of a part (`http`, `scheduler` ...) or all fall silent."""

        def work() -> None:
            self._silent.add(name)
            for link in self._links:
                if self._hushed(link.name):
                    link.flows.clear()

        self._do(work)

    def heal(self) -> None:
        """Pass everything on again, also what was held back."""

        def work() -> None:
            self._silent.clear()
            for link in self._links:
                link.flows.set()

        self._do(work)

    def cut(self, name: str = EVERYBODY) -> None:
        """Reset the connections of a part, or all."""

        def work() -> None:
            for link in list(self._links):
                if name in (EVERYBODY, link.name):
                    link.end()

        self._do(work)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

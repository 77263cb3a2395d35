"""A TCP proxy between the service and its servers, which can fall silent or hang up.

Connections to PostgreSQL are told apart by the application_name of their first message. Silence
means that nothing is read from either side: what was sent stays with the kernel, as it does when
the network swallows it, and goes on when the silence ends.

It is a process of its own, told by lines of JSON what to do: beside the clients' threads it would
be slow, and the service would wait for the fault machine.
"""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

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


class _Server:
    """What runs in the process: listens on a port of its own and passes on."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._links: set[_Link] = set()
        self._silent: set[str] = set()

    async def run(self) -> None:
        """Tell the port, then do what each line of standard input asks for, until it ends."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        while line := await asyncio.to_thread(sys.stdin.readline):
            what, value = json.loads(line)
            getattr(self, f"do_{what}")(value)
            sys.stdout.write("ok\n")
            sys.stdout.flush()

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
            back, link.server = await asyncio.open_connection("127.0.0.1", self._target)
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

    def do_target(self, port: int) -> None:
        self._target = port

    def do_hush(self, name: str) -> None:
        self._silent.add(name)
        for link in self._links:
            if self._hushed(link.name):
                link.flows.clear()

    def do_heal(self, _: str) -> None:
        self._silent.clear()
        for link in self._links:
            link.flows.set()

    def do_cut(self, name: str) -> None:
        for link in list(self._links):
            if name in (EVERYBODY, link.name):
                link.end()


class Proxy:
    """A proxy to a port of this machine; ``port`` is its own."""

    def __init__(self, target: int) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.proxy", str(target)],
            cwd=Path(__file__).resolve().parents[2], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.port = int(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _do(self, what: str, value: str | int = EVERYBODY) -> None:
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([what, value]) + "\n")
            self._process.stdin.flush()
            self._read()

    def aim(self, target: int) -> None:
        """Pass connections that come from now on to another port."""
        self._do("target", target)

    def hush(self, name: str = EVERYBODY) -> None:
        """Let the connections of a part (`http`, `scheduler` ...) or all fall silent."""
        self._do("hush", name)

    def heal(self) -> None:
        """Pass everything on again, also what was held back."""
        self._do("heal")

    def cut(self, name: str = EVERYBODY) -> None:
        """Reset the connections of a part, or all."""
        self._do("cut", name)

    def close(self) -> None:
        """End it, with all connections."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)


if __name__ == "__main__":
    asyncio.run(_Server(int(sys.argv[1])).run())

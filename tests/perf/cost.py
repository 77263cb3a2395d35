"""What a request, a watch and an idle minute cost: CPU time of all processes, and their memory.

A service of its own is left idle; then clients in a process of their own create nodes and pods,
read, list, watch and delete them over some connections. Each step's figure is the CPU time of all
processes of the service, its database included, until nothing is left to be done, less what the
service takes when it is idle, for one request. Memory is the proportional share (PSS) of each
process when idle and after the load. With the folder of another build, such as a worktree of the
version before, both are measured in turn: before, now, now, before.
"""

import asyncio
import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings

from tests.perf import forms, scratch
from tests.perf.scratch import Scratch
from tests.perf.workloads import node

_CALM_SECONDS: Final = 10.0
_CALM_SHARE: Final = 0.25
"""What a start leaves to do, such as loops to compile, is done when less of a core is used."""
_IDLE_SECONDS: Final = 20.0
_SETTLE_SECONDS: Final = 3.0
_LISTS: Final = 10
_WARM: Final = 300
"""Pods that come and go before anything is measured, so that each build has its caches filled."""
_WATCHES: Final = 200
_OPEN: Final = 1000
_NOW: Final = "?gracePeriodSeconds=0"
Figures = dict[str, float]


def run(
    *, nodes: int, pods: int, connections: int, before: Path | None, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Yield what each step costs in this build, and in the one before if there is a folder of it.

    Raises:
        ServiceError: a request is refused, or pods are not bound in five minutes.
    """
    now = Path(settings.BASE_DIR)
    found: dict[str, list[Figures]] = {}
    for build in [before, now, now, before] if before else [now]:
        name = "now" if build == now else "before"
        with scratch.running({}, say, build=build) as service:
            figures = _measured(service, nodes, pods, connections, say)
        found.setdefault(name, []).append(figures)
        say(f"{name}: {figures}")
    for what in dict.fromkeys(what for all_of in found.values() for one in all_of for what in one):
        row = {
            name: round(min(one.get(what, 0.0) for one in all_of), 3)
            for name, all_of in found.items()
        }
        say(f"{what:<44}" + "".join(f"{name:>10} {figure:>9}" for name, figure in row.items()))
        yield {"mode": "cost", "nodes": nodes, "pods": pods, "what": what, **row}


def _measured(
    service: Scratch, nodes: int, pods: int, connections: int, say: Callable[[str], None]
) -> Figures:
    found: Figures = {}

    def is_calm() -> bool:
        began = service.cpu_seconds()
        time.sleep(_CALM_SECONDS)
        return service.cpu_seconds() - began < _CALM_SHARE * _CALM_SECONDS

    scratch.until(is_calm, seconds=300, what="idleness")
    began = service.cpu_seconds()
    time.sleep(_IDLE_SECONDS)
    idle = (service.cpu_seconds() - began) / _IDLE_SECONDS
    found["idle, % of a core"] = idle * 100
    found |= _memory(service, "idle")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as clients:

        def spent(what: str, requests: list[bytes], each: int = 1, watches: int = 0) -> float:
            say(what)
            began, at = service.cpu_seconds(), time.monotonic()
            arguments = (service.url, service.token, requests, connections, watches)
            clients.submit(_load, *arguments).result()
            scratch.until(
                lambda: not service.client().unbound("default"), seconds=300, what="bound pods"
            )
            time.sleep(_SETTLE_SECONDS)
            seconds = service.cpu_seconds() - began - idle * (time.monotonic() - at)
            found[f"{what}, ms"] = seconds * 1000 / len(requests) / each
            return seconds

        def request(method: str, path: str, body: Any = None, form: str = forms.JSON) -> bytes:
            sent = b"" if body is None else forms.body(body, form)
            return forms.request(method, path, service.token, form, sent)

        many = [request("POST", "/api/v1/nodes", node(number)) for number in range(nodes)]
        spent("POST of a node", many)
        warm = [forms.manifest(number, f"w{number}") for number in range(_WARM)]
        spent("pod of the first", [request("POST", forms.PODS, one) for one in warm])
        for one in warm:
            service.client().call("DELETE", f"{forms.PODS}/{one['metadata']['name']}{_NOW}")
        for form, short in ((forms.JSON, ""), (forms.PROTOBUF, ", protobuf")):
            made = [forms.manifest(number, f"p{number}") for number in range(pods)]
            paths = [f"{forms.PODS}/{one['metadata']['name']}" for one in made]
            posts = [request("POST", forms.PODS, one, form) for one in made]
            alone = spent(f"pod from POST to bound{short}", posts)
            spent(f"GET{short}", [request("GET", path, form=form) for path in paths])
            lists = [request("GET", forms.PODS, form=form)] * _LISTS
            spent(f"LIST of {pods} pods{short}", lists)
            if not short:
                found |= _memory(service, "after")
            deletes = [request("DELETE", path + _NOW, form=form) for path in paths]
            spent(f"DELETE{short}", deletes)
            watched = spent(f"pod with {_WATCHES} watches{short}", posts, watches=_WATCHES)
            found[f"event of a watch{short}, ms"] = (
                (watched - alone) * 1000 / (_WATCHES * 2 * len(posts))
            )  # an event tells that a pod was made, another one that it was bound
            spent(f"DELETE of a pod once more{short}", deletes)
        # --- what watches that see nothing keep in memory
        before = sum(memory(service).values())
        with _open(service, _OPEN):
            found["memory of an open watch, KiB"] = (
                (sum(memory(service).values()) - before) * 1024 / _OPEN
            )
    return found


def memory(service: Scratch) -> Figures:
    """Return the proportional share of memory (PSS) of a service's processes in MiB, by part."""
    found: Figures = {}
    for part, pid in service.processes():
        with contextlib.suppress(OSError, ValueError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    found[part] = found.get(part, 0.0) + int(line.split()[1]) / 1024
    return found


def _memory(service: Scratch, when: str) -> Figures:
    parts = memory(service)
    return {
        f"processes and sessions {when}": len(service.processes()),
        f"memory {when}, MiB": sum(parts.values()),
        **{f"memory {when}, MiB: {part}": size for part, size in sorted(parts.items())},
    }


def _load(url: str, token: str, requests: list[bytes], connections: int, watches: int) -> None:
    """Send requests over connections while so many watches of all pods are read."""

    async def load() -> None:
        open_at = [await _watch(url, token) for _ in range(watches)]
        readers = [asyncio.create_task(_drain(reader)) for reader, _ in open_at]
        await forms.closed_loop(url, requests, connections)
        if watches:
            await asyncio.sleep(_SETTLE_SECONDS)
        for task in readers:
            task.cancel()
        for _, writer in open_at:
            writer.close()

    asyncio.run(load())


async def _watch(url: str, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a watch of all pods; return when it is answered."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    path = f"{forms.PODS}?watch=true&timeoutSeconds=300"
    writer.write(forms.request("GET", path, token, forms.JSON))
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 20):
        pass


@contextlib.contextmanager
def _open(service: Scratch, count: int) -> Iterator[None]:
    """Keep so many watches open that see no event."""
    with asyncio.Runner() as loop:

        async def begin() -> list[asyncio.StreamWriter]:
            return [(await _watch(service.url, service.token))[1] for _ in range(count)]

        opened = loop.run(begin())
        try:
            yield
        finally:
            for writer in opened:
                writer.close()

"""Hollow nodes: agents without machines, over the public HTTP API.

A fleet registers nodes, renews their leases, takes the pods that are bound to them to Running, ends
their deletions, and loses and regains nodes on a script. It is a client like any other: one token,
a few kept connections, one watch for all nodes.

    register   POST node, POST lease, PATCH status (Ready)
    heartbeat  PATCH lease, each node in its turn of the period; a node that was set not to be
               ready reports again
    watch      pod on a node of ours -> Running; terminating -> DELETE with grace 0
    script     ``lose 200@30``: from second 30 on, 200 nodes neither beat nor look after pods
"""

import asyncio
import contextlib
import random
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

MERGE = "application/merge-patch+json"
_encode = msgspec.json.encode
_decode = msgspec.json.decode
_CONFLICT, _NOT_FOUND = 409, 404


class Answer(msgspec.Struct, frozen=True):
    """Status and decoded body of a request."""

    status: int
    body: Any


class Connection:
    """One kept HTTP/1.1 connection; opened again when the server closed it."""

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
        """Close; the next request opens again."""
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
        """Send and return the answer; once more on a connection that turned out to be closed."""
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


class Script(msgspec.Struct, frozen=True):
    """At ``second`` after the fleet is up, ``count`` nodes are lost or come back."""

    second: float
    count: int
    lose: bool


def parse_script(text: str, *, lose: bool) -> Script:
    """Return ``COUNT@SECOND`` as a step.

    Raises:
        ValueError: it is not of that form.
    """
    count, sign, second = text.partition("@")
    if not sign:
        raise ValueError(f"{text!r} is not COUNT@SECOND")
    return Script(float(second), int(count), lose)


class Fleet:
    """Nodes and the agents that play them."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        count: int,
        prefix: str,
        allocatable: dict[str, str],
        zones: int,
        period: float,
        connections: int,
        stop_seconds: float,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self._connect = connect
        self.names = [f"{prefix}{number:05}" for number in range(count)]
        self._mine = set(self.names)
        self._allocatable = allocatable
        self._zones = zones
        self._period = period
        self._pool: asyncio.Queue[Connection] = asyncio.Queue()
        for _ in range(connections):
            self._pool.put_nowait(connect())
        # Heartbeats do not wait behind a thousand pods.
        self._beat_pool: asyncio.Queue[Connection] = asyncio.Queue()
        for _ in range(connections):
            self._beat_pool.put_nowait(connect())
        self._stop_seconds = stop_seconds
        self._random = random.Random(seed)  # noqa: S311  # which nodes are lost, not a secret
        self._say = say
        self.lost: set[str] = set()
        self._pods: dict[tuple[str, str], dict[str, Any]] = {}
        self._work: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._busy: set[tuple[str, str]] = set()
        self.registered = self.beats = self.started = self.finished = self.failures = 0
        self.leaving: dict[str, float] = {}
        """When a watch first showed a pod of ours terminating: seconds since the epoch by uid."""

    # --- requests --------------------------------------------------------------------------------

    async def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        patch: bool = False,
        pool: asyncio.Queue[Connection] | None = None,
    ) -> Answer:
        pool = pool or self._pool
        connection = await pool.get()
        try:
            content_type = MERGE if patch else "application/json"
            answer = await connection.request(method, path, body, content_type)
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError):
            answer = Answer(0, None)
        finally:
            pool.put_nowait(connection)
        if answer.status >= 500 or answer.status in (0, 401, 403, 429):
            self.failures += 1
        return answer

    # --- nodes -----------------------------------------------------------------------------------

    async def register(self) -> None:
        """Register every node that is not there, and say that all are ready."""
        queue = deque(enumerate(self.names))

        async def work() -> None:
            while queue:
                number, name = queue.popleft()
                await self._register(number, name)
                self.registered += 1

        await asyncio.gather(*(work() for _ in range(self._pool.qsize())))

    async def _register(self, number: int, name: str) -> None:
        zone = f"zone-{number % self._zones}"
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/region": "hollow",
            "topology.kubernetes.io/zone": zone,
        }
        status = {"capacity": self._allocatable, "allocatable": self._allocatable}
        node = {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}
        answer = await self._ask("POST", "/api/v1/nodes", node)
        if answer.status not in (201, _CONFLICT):
            raise RuntimeError(f"node {name}: {answer.status} {answer.body}")
        lease = {
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": 40,
                "renewTime": _micro(),
            },
        }
        await self._ask("POST", f"{_LEASES}", lease)
        await self._report(name)

    async def _report(self, name: str) -> None:
        now = _now()
        conditions = [
            {
                "type": kind,
                "status": "True" if kind == "Ready" else "False",
                "reason": "KubeletReady" if kind == "Ready" else "KubeletHasSufficient",
                "message": "hollow",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
        ]
        status = {"conditions": conditions}
        await self._ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, patch=True)

    async def _heartbeats(self) -> None:
        """Renew each lease once a period, spread evenly over it."""
        loop = asyncio.get_running_loop()
        slots = max(1, int(self._period * 20))
        turn = 0
        while True:
            began = loop.time()
            names = [name for name in self.names[turn::slots] if name not in self.lost]
            await asyncio.gather(*(self._beat(name) for name in names))
            turn = (turn + 1) % slots
            await asyncio.sleep(max(0.0, self._period / slots - (loop.time() - began)))

    async def _beat(self, name: str) -> None:
        body = {"spec": {"renewTime": _micro()}}
        path = f"{_LEASES}/{name}"
        answer = await self._ask("PATCH", path, body, patch=True, pool=self._beat_pool)
        self.beats += answer.status == 200

    async def _follow_nodes(self) -> None:
        """Report again for a node of ours that was set not to be ready, as a kubelet does."""
        connection = self._connect()
        while True:
            answer = await self._ask("GET", "/api/v1/nodes", pool=self._beat_pool)
            if answer.status != 200:
                await asyncio.sleep(1)
                continue
            for node in answer.body.get("items", ()):
                await self._look_at(node)
            revision = answer.body["metadata"]["resourceVersion"]
            path = f"/api/v1/nodes?watch=true&resourceVersion={revision}"
            with contextlib.suppress(OSError, ValueError, IndexError, asyncio.IncompleteReadError):
                async for event in connection.watch(path):
                    if event["type"] == "ERROR":
                        break
                    await self._look_at(event["object"])
            await asyncio.sleep(0.2)

    async def _look_at(self, node: dict[str, Any]) -> None:
        name = node["metadata"]["name"]
        if name not in self._mine or name in self.lost:
            return
        for one in node.get("status", {}).get("conditions", ()):
            if one["type"] == "Ready" and one["status"] != "True":
                await self._beat(name)
                await self._report(name)

    # --- pods ------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """List, then watch; again from the list when the server no longer knows the place."""
        connection = self._connect()
        while True:
            answer = await self._ask("GET", "/api/v1/pods")
            if answer.status != 200:
                await asyncio.sleep(1)
                continue
            revision = answer.body["metadata"]["resourceVersion"]
            self._pods.clear()
            for pod in answer.body.get("items", ()):
                self._see(pod)
            with contextlib.suppress(OSError, ValueError, IndexError, asyncio.IncompleteReadError):
                while revision:
                    path = f"/api/v1/pods?watch=true&resourceVersion={revision}"
                    path += "&allowWatchBookmarks=true"
                    async for event in connection.watch(path):
                        pod = event["object"]
                        if event["type"] == "ERROR":
                            revision = ""
                            break
                        revision = pod["metadata"]["resourceVersion"]
                        if event["type"] == "DELETED":
                            self._pods.pop(_key(pod), None)
                        elif event["type"] != "BOOKMARK":
                            self._see(pod)
            await asyncio.sleep(0.2)

    def _see(self, pod: dict[str, Any]) -> None:
        if pod.get("spec", {}).get("nodeName") not in self._mine:
            return
        key = _key(pod)
        self._pods[key] = pod
        if pod["metadata"].get("deletionTimestamp"):
            self.leaving.setdefault(pod["metadata"]["uid"], time.time())
        if self._wants(pod) and key not in self._busy:
            self._busy.add(key)
            self._work.put_nowait(key)

    def _wants(self, pod: dict[str, Any]) -> bool:
        if pod["spec"]["nodeName"] in self.lost:
            return False
        if pod["metadata"].get("deletionTimestamp"):
            return True
        status = pod.get("status", {})
        if status.get("phase") == "Running":  # the node was lost, and is back
            return any(
                one["type"] == "Ready" and one["status"] == "False"
                for one in status.get("conditions", ())
            )
        return bool(status.get("phase") == "Pending")

    async def _attend(self) -> None:
        """Take pods to Running and end deletions, one after the other; many of these run."""
        while True:
            key = await self._work.get()
            try:
                pod = self._pods.get(key)
                if pod is not None and self._wants(pod):
                    if pod["metadata"].get("deletionTimestamp"):
                        await self._finish(pod)
                    else:
                        await self._start(pod)
            finally:
                self._busy.discard(key)
            pod = self._pods.get(key)
            if pod is not None and pod["metadata"].get("deletionTimestamp") and self._wants(pod):
                self._see(pod)

    async def _start(self, pod: dict[str, Any]) -> None:
        now = _now()
        running = {"state": {"running": {"startedAt": now}}, "ready": True, "restartCount": 0}
        statuses = [
            {"name": one["name"], "image": one.get("image", ""), "imageID": "", **running}
            for one in pod["spec"].get("containers", ())
        ]
        present = [
            one
            for one in pod["status"].get("conditions", ())
            if one["type"] not in ("Ready", "ContainersReady", "Initialized")
        ]
        added = [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("Initialized", "Ready", "ContainersReady")
        ]
        status = {
            "phase": "Running",
            "startTime": now,
            "conditions": [*present, *added],
            "containerStatuses": statuses,
        }
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        answer = await self._ask("PATCH", f"{_path(pod)}/status", body, patch=True)
        if answer.status == 200:
            self.started += 1

    async def _finish(self, pod: dict[str, Any]) -> None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
        await asyncio.sleep(min(self._stop_seconds, grace))
        if pod["spec"]["nodeName"] in self.lost:
            return
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        answer = await self._ask("DELETE", _path(pod), options)
        if answer.status in (200, 202):
            self.finished += 1
        if answer.status in (200, 202, _NOT_FOUND, _CONFLICT):
            self._pods.pop(_key(pod), None)

    # --- script ----------------------------------------------------------------------------------

    async def _play(self, script: list[Script]) -> None:
        began = asyncio.get_running_loop().time()
        for step in sorted(script, key=lambda one: one.second):
            await asyncio.sleep(max(0.0, began + step.second - asyncio.get_running_loop().time()))
            if step.lose:
                self.lose(step.count)
            else:
                chosen = sorted(self.lost)[: step.count]
                self.lost.difference_update(chosen)
                self._say(f"{len(chosen)} nodes are back")
                for name in chosen:
                    await self._beat(name)
                    await self._report(name)
                for pod in list(self._pods.values()):
                    self._see(pod)

    def lose(self, count: int) -> list[str]:
        """Let so many agents fall silent; return their nodes. Any thread may call it."""
        there = [name for name in self.names if name not in self.lost]
        chosen = self._random.sample(there, min(count, len(there)))
        self.lost.update(chosen)
        self._say(f"lost {len(chosen)} nodes")
        return chosen

    async def _progress(self, every: float) -> None:
        beats = 0
        while True:
            await asyncio.sleep(every)
            rate = (self.beats - beats) / every
            beats = self.beats
            self._say(
                f"{len(self.names) - len(self.lost)} nodes up, {len(self.lost)} lost;"
                f" {len(self._pods)} pods here, {self.started} started, {self.finished} ended;"
                f" {rate:.0f} heartbeats/s; {self.failures} failed requests"
            )

    async def run(self, script: list[Script], *, seconds: float | None, every: float) -> None:
        """Register, then play agents until the time is over (``None``: until cancelled)."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        registering = asyncio.create_task(self.register())
        while not registering.done():
            await asyncio.wait({registering}, timeout=2)
            self._say(f"registered {self.registered} of {len(self.names)} nodes")
        await registering
        self._say(f"all {len(self.names)} nodes are up after {loop.time() - began:.1f} s")
        tasks = [self._play(script), self._heartbeats(), self._follow(), self._follow_nodes()]
        tasks += [self._progress(every)]
        tasks += [self._attend() for _ in range(4 * self._pool.qsize())]
        running = [asyncio.create_task(task) for task in tasks]
        playing = running[0]
        try:
            done, _ = await asyncio.wait(
                set(running) - {playing}, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in done:
                task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def _key(pod: dict[str, Any]) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _path(pod: dict[str, Any]) -> str:
    namespace, name = _key(pod)
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251  # an agent's own clock


def _micro() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # noqa: TID251


__all__ = ["Connection", "Fleet", "Script", "parse_script"]

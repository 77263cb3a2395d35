"""The same load in JSON and in protobuf, on a whole service: what the form costs.

Clients in a process of their own create pods, one in each request, over some connections as fast as
they are answered; then they read them one by one, list them, and delete them one by one. Each round
does so in both forms, in turns, so that a machine that becomes slower does not count against one of
them. In protobuf bodies are sent and answers are taken in protobuf alone, as a Go program may ask.
"""

import asyncio
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from clusterstate.objects.wire import protobuf
from tests.perf import scratch
from tests.perf.scratch import Scratch
from tests.perf.service import ServiceError
from tests.perf.workloads import Manifest, node, pod

JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_LISTS = 5
_LONGEST = 600.0
PODS = "/api/v1/namespaces/default/pods"


def run(
    *, nodes: int, pods: int, connections: int, rounds: int, say: Callable[[str], None]
) -> list[Any]:
    """Return requests a second and times of each form, and the ratio of the two.

    Raises:
        ServiceError: a request is refused.
    """
    shape = {"mode": "forms", "nodes": nodes, "pods": pods, "connections": connections}
    with scratch.running({}, say) as service:
        service.client().create("/api/v1/nodes", "Node", [node(n) for n in range(nodes)])
        found = compare(service, pods=pods, connections=connections, rounds=rounds, say=say)
        return [shape | one for one in found]


def compare(
    service: Scratch, *, pods: int, connections: int, rounds: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return the results on a service that has nodes with room for the pods."""
    times: dict[tuple[str, str], list[dict[str, float]]] = {}
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as clients:
        for turn in range(rounds):
            for form in (JSON, PROTOBUF):
                say(f"round {turn + 1} of {rounds}: {pods} pods in {form}")
                found = clients.submit(
                    _load, service.url, service.token, form, f"r{turn}", pods, connections
                ).result()
                for what, figures in found.items():
                    times.setdefault((form, what), []).append(figures)
    results: list[dict[str, Any]] = []
    for (form, what), all_rounds in times.items():
        middle = {
            key: sorted(one[key] for one in all_rounds)[len(all_rounds) // 2]
            for key in all_rounds[0]
        }
        results.append({"form": form, "what": what, **middle})
    rate = {(one["form"], one["what"]): one["per_second"] for one in results}
    ratios = {
        what: round(rate[PROTOBUF, what] / rate[JSON, what], 3)
        for form, what in rate
        if form == JSON
    }
    return [*results, {"what": "protobuf to JSON, requests a second", **ratios}]


def _load(
    url: str, token: str, form: str, prefix: str, pods: int, connections: int
) -> dict[str, dict[str, float]]:
    """Create, read, list and delete pods; return figures by what was done."""
    return asyncio.run(_loaded(url, token, form, prefix, pods, connections))


async def _loaded(
    url: str, token: str, form: str, prefix: str, pods: int, connections: int
) -> dict[str, dict[str, float]]:
    manifests = [manifest(number, f"{prefix}-{number}") for number in range(pods)]
    names = [one["metadata"]["name"] for one in manifests]
    create = [request("POST", PODS, token, form, body(one, form)) for one in manifests]
    read = [request("GET", f"{PODS}/{name}", token, form) for name in names]
    listing = [request("GET", PODS, token, form)] * _LISTS
    now = "?gracePeriodSeconds=0"
    delete = [request("DELETE", f"{PODS}/{name}{now}", token, form) for name in names]
    return {
        "create": await closed_loop(url, create, connections),
        "get": await closed_loop(url, read, connections),
        "list": await closed_loop(url, listing, 1),
        "delete": await closed_loop(url, delete, connections),
    }


def manifest(number: int, name: str) -> Manifest:
    """Return a pod for the namespace ``default``."""
    made = pod(number, cpu=f"{1 + number % 100}m", memory="1Mi")
    made["metadata"] |= {"name": name, "namespace": "default"}
    return made


def body(manifest: Manifest, form: str) -> bytes:
    """Return the object in this form."""
    return protobuf.encode(manifest) if form == PROTOBUF else json.dumps(manifest).encode()


def request(method: str, path: str, token: str, form: str, body: bytes = b"") -> bytes:
    """Return a request whose body and answer have this form."""
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n"
        f"accept: {form}\r\ncontent-type: {form}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def closed_loop(url: str, requests: Iterable[bytes], connections: int) -> dict[str, float]:
    """Send requests over connections, each as soon as the one before is answered."""
    waiting = iter(requests)
    seconds: list[float] = []
    sizes: list[int] = []
    began = time.perf_counter()
    workers = (_worker(url, waiting, seconds, sizes) for _ in range(connections))
    await asyncio.wait_for(asyncio.gather(*workers), _LONGEST)
    took = time.perf_counter() - began
    seconds.sort()
    return {
        "per_second": round(len(seconds) / took, 1),
        "p50_ms": round(seconds[len(seconds) // 2] * 1000, 2),
        "p99_ms": round(seconds[len(seconds) * 99 // 100] * 1000, 2),
        "answer_bytes": round(sum(sizes) / len(sizes)),
    }


async def _worker(url: str, waiting: Any, seconds: list[float], sizes: list[int]) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=64 << 20)
    try:
        for request in waiting:
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            body = await reader.readexactly(length)
            if head[9:10] != b"2":
                raise ServiceError(f"{head[:40]!r} {body[:200]!r}")
            seconds.append(time.perf_counter() - began)
            sizes.append(length)
    finally:
        writer.close()

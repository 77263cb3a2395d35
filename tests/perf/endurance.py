"""Churn on one service for a long while: does any of its processes grow with the work it has done?

Clients create, read, change, list and delete pods, as fast as they are answered, while watches are
opened and closed and a node's labels change. Some of the pods fit nowhere, some are like no other
pod. Nothing that they make stays. After each round, when everything is deleted, the resident memory
of each process is read. The first rounds fill caches; the result is how much each process grew
after them, for a thousand pods that came and went. The fault machine restarts every process again
and again, so it cannot see this.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.perf import scratch
from tests.perf.scratch import Scratch
from tests.perf.service import Client, ServiceError
from tests.perf.workloads import Manifest, node, pod

WARM_ROUNDS = 2
_REFUSED_EVERY = 20
_OWN_CLASS_EVERY = 3
_LIST_EVERY = 50
SETTLE_SECONDS = 3.0
_NAMESPACE = "endurance"
_PODS = f"/api/v1/namespaces/{_NAMESPACE}/pods"


def run(
    *, nodes: int, connections: int, seconds: float, rounds: int, say: Callable[[str], None]
) -> list[Any]:
    """Return for each process how it grew; ``seconds`` is the length of one round.

    Raises:
        ServiceError: something is refused.
    """
    with scratch.running({}, say) as service:
        return churn(
            service, nodes=nodes, connections=connections, seconds=seconds, rounds=rounds, say=say
        )


def churn(
    service: Scratch,
    *,
    nodes: int,
    connections: int,
    seconds: float,
    rounds: int,
    settle: float = SETTLE_SECONDS,
    say: Callable[[str], None],
) -> list[Any]:
    """Return for each process of a running service how it grew."""
    client = service.client()
    client.create("/api/v1/nodes", "Node", [_node(number) for number in range(nodes)])
    client.call("POST", "/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
    done: list[int] = []
    sizes: list[dict[str, int]] = []
    for number in range(WARM_ROUNDS + rounds):
        done.append(_round(service, connections, seconds))
        client.call("DELETE", f"{_PODS}?gracePeriodSeconds=0")
        time.sleep(settle)
        sizes.append(memory(service))
        shown = ", ".join(f"{part} {size >> 10}" for part, size in sorted(sizes[-1].items()))
        say(f"round {number + 1}: {done[-1]} pods came and went; MiB: {shown}")
    pods = sum(done[WARM_ROUNDS:])
    return [
        {
            "mode": "endurance",
            "process": part,
            "pods": pods,
            "mib": sizes[-1][part] >> 10,
            "grown_mib": round((sizes[-1][part] - sizes[WARM_ROUNDS - 1][part]) / 1024, 1),
            "kib_per_1000_pods": round(
                (sizes[-1][part] - sizes[WARM_ROUNDS - 1][part]) / max(pods, 1) * 1000, 1
            ),
        }
        for part in sorted(sizes[-1])
        if part in sizes[WARM_ROUNDS - 1]
    ]


def _node(number: int) -> Manifest:
    made = node(number)
    made["metadata"]["name"] = f"endurance-{number}"
    return made


def memory(service: Scratch) -> dict[str, int]:
    """Return the resident memory of each process of a service in KiB, by its part."""
    found: dict[str, int] = {}
    sign = f"STOWAGE_STATE={service.state}"
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (folder / "environ").read_text("utf-8", "replace").split("\0")
            if sign not in variables:
                continue
            part = next((v[16:] for v in variables if v.startswith("STOWAGE_PROCESS=")), "")
            for line in (folder / "status").read_text().splitlines():
                if part and line.startswith("VmRSS:"):
                    found[part] = max(found.get(part, 0), int(line.split()[1]))
    return found


def _round(service: Scratch, connections: int, seconds: float) -> int:
    """Let clients work for so long; return how many pods they made."""
    counts = [0] * connections
    failures: list[BaseException] = []
    end = time.monotonic() + seconds

    def work(number: int) -> None:
        try:
            counts[number] = _work(service.client(), number, end)
        except (ServiceError, OSError, HTTPException) as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    _look_on(service, end)
    for thread in threads:
        thread.join()
    if failures:
        raise ServiceError(f"a client failed: {failures[0]}") from failures[0]
    return sum(counts)


def _work(client: Client, number: int, end: float) -> int:
    count = 0
    moment = time.monotonic_ns()
    while time.monotonic() < end:
        count += 1
        name = f"p-{number}-{moment}-{count}"
        manifest = pod(count, cpu="999" if count % _REFUSED_EVERY == 0 else "1m")
        manifest["metadata"] |= {"name": name, "namespace": _NAMESPACE}
        if count % _OWN_CLASS_EVERY == 0:  # as the pods of each Job
            manifest["metadata"]["labels"] = {"batch.kubernetes.io/job-name": name}
        client.call("POST", _PODS, manifest)
        client.call("GET", f"{_PODS}/{name}")
        client.call(
            "PATCH", f"{_PODS}/{name}", {"metadata": {"annotations": {"seen": str(count)}}},
            content_type="application/merge-patch+json",
        )  # fmt: skip
        if count % _LIST_EVERY == 0:
            client.call("GET", f"{_PODS}?limit=500")
        client.call("DELETE", f"{_PODS}/{name}?gracePeriodSeconds=0")
    return count


def _look_on(service: Scratch, end: float) -> None:
    """Open and close watches, and change a label of a node, until the round ends."""
    client = service.client()
    (first,) = client.call("GET", "/api/v1/nodes?limit=1")["items"]
    path = f"/api/v1/nodes/{first['metadata']['name']}"
    turn = 0
    while time.monotonic() < end:
        turn += 1
        with contextlib.suppress(ValueError):  # lines of JSON are no JSON
            client.call("GET", f"{_PODS}?watch=true&timeoutSeconds=1")
        client.call(
            "PATCH", path, {"metadata": {"labels": {"turn": str(turn % 7)}}},
            content_type="application/merge-patch+json",
        )  # fmt: skip

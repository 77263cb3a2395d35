"""What features that touch the way of a pod cost: CPU time per bound pod, with and without each.

Two services run side by side, one with a feature and one where its setting switches it off. Both
get the same pods, in turns: a list of a thousand, and the next one when they are bound, so that as
much is done together whatever else the machine does. Measured is the CPU time of all processes of a
service, its database included, until some seconds after the last pod was bound, so that what is
written and sealed a little later is counted. The first pair differs in nothing: what it shows is
how exact the others are.

What is packed of the past minutes later is not in it: ``--past`` says what that costs per change.
What has no setting is measured by itself: the digests over decisions (``_sealed``). That a change
names who caused it is two columns of a row that is written anyway.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from clusterstate.actions.scheduler.seals import MOST
from clusterstate.queries.scheduler import seals
from tests.perf import scratch
from tests.perf.scratch import Scratch
from tests.perf.workloads import Manifest, node, pod

_OFF: Final[Mapping[str, Mapping[str, str]]] = {
    "nothing": {},
    "the past": {"STOWAGE_PAST_HOURS": "0"},
    "advisors": {"STOWAGE_ADVISORS": "0"},
}
"""What is switched off, and how."""
_BRAKES: Final = {
    "STOWAGE_BRAKE_ZONE": "30", "STOWAGE_BRAKE_NAMESPACE": "30", "STOWAGE_BRAKE_OWNER": "30",
}  # fmt: skip
_LIST: Final = 1000
_SETTLE_SECONDS: Final = 2.0
_TRIES: Final = 5
_GOAL: Final = 1.03


def run(
    *, nodes: int, pods: int, rounds: int, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Yield the figures of each feature as soon as they are known.

    Raises:
        ServiceError: something is refused, or not all pods are bound in five minutes.
    """
    pairs: list[tuple[str, Mapping[str, str], Mapping[str, str]]] = [
        *((what, {}, off) for what, off in _OFF.items()),
        ("brakes", _BRAKES, {}),
    ]
    for what, with_it, without in pairs:
        yield _compared(what, with_it, without, nodes=nodes, pods=pods, rounds=rounds, say=say)


def _compared(
    what: str,
    with_it: Mapping[str, str],
    without: Mapping[str, str],
    *,
    nodes: int,
    pods: int,
    rounds: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    say(f"with and without {what}")
    with scratch.running(with_it, say) as one, scratch.running(without, say) as other:
        for service in (one, other):
            service.client().create("/api/v1/nodes", "Node", [node(n) for n in range(nodes)])
        spent: dict[Scratch, list[float]] = {one: [], other: []}
        for number in range(rounds + 1):
            order = (one, other) if number % 2 else (other, one)
            for service in order:
                seconds = _burst(service, f"r{number}", pods)
                if number:  # the first one warms caches
                    spent[service].append(seconds / pods * 1e6)
        sealed = _sealed(one) if not (with_it or without) else {}
    # Whatever disturbs a round makes it dearer, so the cheapest one tells most.
    ratio = min(spent[one]) / min(spent[other])
    return {
        "mode": "features",
        "switched_off": what,
        "nodes": nodes,
        "pods": pods,
        "microseconds_with": [round(found) for found in sorted(spent[one])],
        "microseconds_without": [round(found) for found in sorted(spent[other])],
        "ratio": round(ratio, 3),
        "met": ratio <= _GOAL,
    } | sealed


def _burst(service: Scratch, name: str, pods: int) -> float:
    """Post pods, wait until they are bound, and delete them; return the CPU time until bound."""
    namespace = f"bench-{name}"
    client = service.client()
    client.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    made = [_pod(number, namespace) for number in range(pods)]
    before = _nanoseconds(service)
    for first in range(0, pods, _LIST):
        client.create(f"/api/v1/namespaces/{namespace}/pods", "Pod", made[first : first + _LIST])
        scratch.until(
            lambda: not client.unbound(namespace), seconds=300, what="pods to be bound", every=0.1
        )
    time.sleep(_SETTLE_SECONDS)
    spent = _nanoseconds(service) - before
    client.call("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
    client.call("DELETE", f"/api/v1/namespaces/{namespace}")
    time.sleep(_SETTLE_SECONDS)
    return spent / 1e9


def _pod(number: int, namespace: str) -> Manifest:
    manifest = pod(number, cpu="10m")
    manifest["metadata"] |= {"name": f"p{number}", "namespace": namespace}
    return manifest


def _nanoseconds(service: Scratch) -> int:
    """Return the CPU time of the threads of all processes of a service so far, database included.

    ``Scratch.cpu_seconds`` counts in hundredths of a second for each process.
    """
    found = 0
    wanted = str(service.state).encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            inside = wanted in (folder / "environ").read_bytes()
            if inside or wanted in bytes((folder / "cwd").resolve()):
                for thread in (folder / "task").iterdir():
                    found += int((thread / "schedstat").read_text().split()[0])
    return found


def _sealed(service: Scratch) -> dict[str, Any]:
    """Return what the digest over a decision costs the database, the best of some tries."""
    took = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        ((count, *_),) = service.query(seals.ROWS, (0, 1 << 62, MOST))
        took.append(time.perf_counter() - began)
    return {"decisions": count, "microseconds_to_seal_one": round(min(took) / count * 1e6, 1)}

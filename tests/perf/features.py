"""What features that touch the way of a pod cost: CPU time per bound pod, with and without each.

Two services run side by side, one with a feature and one where its setting switches it off. Both
get the same pods, in turns: single POSTs by a few clients at a time, until all are bound. Measured
is the CPU time of all processes of a service, its database included, until some seconds after the
last pod was bound, so that what is written and sealed a little later is counted. Others on the
machine disturb CPU time less than time, and taking turns disturbs both alike.

What is packed of the past minutes later is not in it: ``--past`` says what that costs per change.
What has no setting is measured by itself: the digests over decisions (``_sealed``). That a change
names who caused it is two columns of a row that is written anyway.
"""

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from clusterstate.actions.seals import MOST
from clusterstate.queries import seals
from tests.perf import scratch
from tests.perf.scratch import Scratch
from tests.perf.service import Client
from tests.perf.workloads import node, pod

_OFF: Final[Mapping[str, Mapping[str, str]]] = {
    "nothing": {},
    "the past": {"STOWAGE_PAST_HOURS": "0"},
    "the audit log": {"STOWAGE_AUDIT_KEEP_HOURS": "0"},
    "advisors": {"STOWAGE_ADVISORS": "0"},
}
"""What is switched off, and how; where it is nothing, the difference is that of measuring."""
_BRAKES: Final = {
    "STOWAGE_BRAKE_ZONE": "30", "STOWAGE_BRAKE_NAMESPACE": "30", "STOWAGE_BRAKE_OWNER": "30",
}  # fmt: skip
_CLIENTS: Final = 8
_SETTLE_SECONDS: Final = 4.0
_TRIES: Final = 5
_GOAL: Final = 1.03


def run(*, nodes: int, pods: int, rounds: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return a figure for each feature.

    Raises:
        ServiceError: something is refused, or not all pods are bound in five minutes.
    """
    pairs: list[tuple[str, Mapping[str, str], Mapping[str, str]]] = [
        *((what, {}, off) for what, off in _OFF.items()),
        ("brakes", _BRAKES, {}),
    ]
    return [
        _compared(what, with_it, without, nodes=nodes, pods=pods, rounds=rounds, say=say)
        for what, with_it, without in pairs
    ]


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
    # Rounds are compared in pairs, which were neighbours in time.
    ratios = [mine / its for mine, its in zip(spent[one], spent[other], strict=True)]
    ratio = statistics.median(ratios)
    return {
        "mode": "features",
        "switched_off": what,
        "nodes": nodes,
        "pods": pods,
        "microseconds_with": round(statistics.median(spent[one])),
        "microseconds_without": round(statistics.median(spent[other])),
        "ratio": round(ratio, 3),
        "ratios": [round(found, 3) for found in sorted(ratios)],
        "met": ratio <= _GOAL,
    } | sealed


def _burst(service: Scratch, name: str, pods: int) -> float:
    """Post pods, wait until they are bound, and delete them; return the CPU time until bound."""
    namespace = f"bench-{name}"
    client = service.client()
    client.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    before = service.cpu_seconds()
    posting = [
        threading.Thread(
            target=_post, args=(service.client(), namespace, range(first, pods, _CLIENTS))
        )
        for first in range(_CLIENTS)
    ]
    for thread in posting:
        thread.start()
    for thread in posting:
        thread.join()
    scratch.until(
        lambda: not client.unbound(namespace), seconds=300, what="all pods to be bound", every=0.5
    )
    time.sleep(_SETTLE_SECONDS)
    spent = service.cpu_seconds() - before
    client.call("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
    client.call("DELETE", f"/api/v1/namespaces/{namespace}")
    time.sleep(_SETTLE_SECONDS)
    return spent


def _post(client: Client, namespace: str, numbers: range) -> None:
    for number in numbers:
        manifest = pod(number, cpu="10m")
        manifest["metadata"] |= {"name": f"p{number}", "namespace": namespace}
        client.call("POST", f"/api/v1/namespaces/{namespace}/pods", manifest)


def _sealed(service: Scratch) -> dict[str, Any]:
    """Return what the digest over a decision costs the database, the best of some tries."""
    took = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        ((count, *_),) = service.query(seals.ROWS, (0, 1 << 62, MOST))
        took.append(time.perf_counter() - began)
    return {"decisions": count, "microseconds_to_seal_one": round(min(took) / count * 1e6, 1)}

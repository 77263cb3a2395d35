"""Eviction timers: how fast they are set and fired, and how late, while very many others wait.

On a throw-away PostgreSQL with fsync on. The waiting ones are rows without a pod behind them worth
the name; those that fire are real: pods created by the action, nodes tainted by the action, timers
set by the controller, documents rewritten, the change log written.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from clusterstate import sql, timers
from clusterstate.actions import objects, pods, rehearsal
from scheduling import wake
from scheduling.controllers import evictions

_ON_A_NODE = 100
_SPARSE = 200
_GAP_SECONDS = 0.02
_KEY = "bench"


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # a benchmark is an edge


def run(*, waiting: int, due: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return one result for each measurement. The database must be empty and migrated."""
    results = []
    say(f"{waiting} timers that wait")
    rehearsal.add_waiting_timers(waiting, now=_now())
    say(f"{due} pods that will leave")
    nodes = _populate("due", due, seconds=None)
    evictions.follow(_now())
    say("a taint on each of their nodes")
    for name in nodes:
        _taint(name)
    began = time.perf_counter()
    evictions.follow(_now())
    planned = time.perf_counter() - began
    results.append({"what": "timers set", "timers": due, "seconds": round(planned, 3)})
    say("fire")
    fired, first = 0, 0.0
    began = time.perf_counter()
    while (done := evictions.fire(_now())).evicted:
        fired += len(done.evicted)
        first = first or time.perf_counter() - began
    seconds = time.perf_counter() - began
    results.append(
        {
            "what": "due at one instant",
            "waiting": waiting,
            "fired": fired,
            "seconds": round(seconds, 3),
            "per_second": round(fired / seconds) if seconds else 0,
            "first_batch_ms": round(first * 1000, 1),
        }
    )
    say("one every 20 ms")
    results.append({"what": "sparse", "waiting": waiting, **_sparse()})
    return results


def _populate(
    prefix: str, count: int, *, seconds: int | None, on_a_node: int = _ON_A_NODE
) -> list[str]:
    names = []
    for first in range(0, count, on_a_node):
        name = f"{prefix}-{first // on_a_node}"
        names.append(name)
        allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        manifest = {"metadata": {"name": name}, "status": {"allocatable": allocatable}}
        objects.create("Node", "", manifest, now=_now())
    manifests = [
        {
            "metadata": {"name": f"{prefix}-{number}", "namespace": "default"},
            "spec": {
                "nodeName": names[number // on_a_node],
                "containers": [{"name": "main", "image": "nginx:1"}],
                "tolerations": []
                if seconds is None
                else [
                    {
                        "key": _KEY,
                        "operator": "Exists",
                        "effect": "NoExecute",
                        "tolerationSeconds": seconds,
                    }
                ],
            },
        }
        for number in range(count)
    ]
    for first in range(0, count, 1000):
        pods.create_pods(manifests[first : first + 1000], now=_now())
    return names


def _taint(name: str) -> None:
    taint = {"key": _KEY, "effect": "NoExecute"}
    objects.update(
        "Node",
        "",
        name,
        lambda manifest: {**manifest, "spec": {**(manifest.get("spec") or {}), "taints": [taint]}},
        now=_now(),
    )


def _sparse() -> dict[str, Any]:
    """Fire timers that are due one after the other, asleep in between as the worker is."""
    nodes = _populate("sparse", _SPARSE, seconds=5, on_a_node=1)
    evictions.follow(_now())
    for name in nodes:
        _taint(name)
    # timeAdded has whole seconds; the column takes any time, and it is the column that counts.
    base = _now() - timedelta(seconds=4)
    for number, name in enumerate(nodes):
        rehearsal.date_taints(name, base + timedelta(seconds=number * _GAP_SECONDS))
    evictions.follow(_now())
    late: list[float] = []
    with wake.Subscription(wake.TIMERS) as subscription:
        while len(late) < len(nodes):
            done = evictions.fire(_now())
            moment = time.time()
            late += [moment - due for due in _due_times(done.evicted, base)]
            evictions.follow(_now())
            following = timers.next_due()
            if following is not None:
                subscription.wait(max(0.0, min(0.25, following.timestamp() - time.time())))
    ordered = sorted(late)
    return {
        "fired": len(ordered),
        "late_p50_ms": round(ordered[len(ordered) // 2] * 1000, 2),
        "late_p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 2),
        "late_max_ms": round(ordered[-1] * 1000, 2),
    }


def _due_times(pod_ids: list[int], base: datetime) -> list[float]:
    """Return when pods called ``sparse-N`` were due, in seconds since the epoch. Queries once."""
    rows = sql.fetch("SELECT name FROM pod WHERE id = ANY(%s)", (sql.Int8s(pod_ids),))
    start = base.timestamp() + 5
    return [start + int(row[0].rpartition("-")[2]) * _GAP_SECONDS for row in rows]

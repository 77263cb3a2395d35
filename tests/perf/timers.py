"""Eviction timers: how fast they are set and fired, and how late, while very many others wait.

On a throw-away PostgreSQL with fsync on. The waiting ones are rows without a pod behind them worth
the name; those that fire are real: pods created by the action, nodes tainted by the action, timers
set by the controller, documents rewritten, the change log written.
"""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings

from clusterstate.actions import objects
from clusterstate.actions.pods.create import create_pods
from clusterstate.change_log import wake
from clusterstate.database import sql
from clusterstate.queries.evictions.eviction_timers import next_due
from scheduling.controllers.evictions import timers, workers
from tests.perf import rehearsal
from tests.rows import count_timers

_ON_A_NODE = 100
_SPARSE = 200
_GAP_SECONDS = 0.02
_KEY = "bench"


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # a benchmark is an edge


def run(*, waiting: int, due: Sequence[int], say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return one result for each measurement. The database must be empty and migrated.

    ``due`` are how many pods leave at one instant, one measurement each.
    """
    results = []
    say(f"{waiting} timers that wait")
    timers.follow(_now())  # the log is followed from here; what is inserted by hand stays
    rehearsal.add_waiting_timers(waiting, now=_now())
    # First, while the disk is idle: what a burst wrote is still being flushed for a while.
    say("one every 20 ms")
    results.append({"what": "sparse", **_sparse()})
    for number, count in enumerate(due):
        say(f"{count} pods that leave at one instant")
        results += _instant(f"due{number}", count)
    return [{**result, "waiting": count_timers()} for result in results]


def _instant(prefix: str, count: int) -> list[dict[str, Any]]:
    """Set timers that are all due at once, and fire them as the worker does."""
    nodes = _populate(prefix, count, seconds=5)
    timers.follow(_now())
    for name in nodes:
        _taint(name)
    began, cpu = time.perf_counter(), time.process_time()
    timers.follow(_now())
    planned = {
        "what": "timers set",
        "timers": count,
        "seconds": round(time.perf_counter() - began, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
    }
    base = _now() + timedelta(seconds=len(nodes) * 0.002)
    for name in nodes:
        rehearsal.date_taints(name, base)
    timers.follow(_now())
    timers.restate_nodes(nodes, _now())
    due_at = next_due()
    assert due_at is not None
    assert due_at == base + timedelta(seconds=5)
    sql.run("CHECKPOINT")
    late: list[float] = []
    batches, cpu = 0, time.process_time()
    with workers.Workers() as helpers:
        time.sleep(max(0.0, due_at.timestamp() - time.time()))
        while len(late) < count:
            volley = helpers.fire(time.time)
            late += volley.lateness
            batches += volley.batches
    cpu = time.process_time() - cpu
    late.sort()
    fired = {
        "what": "due at one instant",
        "fired": len(late),
        "batches": batches,
        "connections": settings.TIMER_CONNECTIONS,
        "durable_first_ms": round(late[0] * 1000, 1),
        "durable_p50_ms": round(late[len(late) // 2] * 1000, 1),
        "durable_last_ms": round(late[-1] * 1000, 1),
        "per_second": round(len(late) / late[-1]),
        "cpu_seconds": round(cpu, 3),
    }
    return [planned, fired]


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
        create_pods(manifests[first : first + 1000], now=_now())
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
    nodes = _populate("sparse", _SPARSE, seconds=1, on_a_node=1)
    timers.follow(_now())
    for name in nodes:
        _taint(name)
    # timeAdded has whole seconds; the column takes any time, and it is the column that counts.
    base = _now()
    for number, name in enumerate(nodes):
        rehearsal.date_taints(name, base + timedelta(seconds=number * _GAP_SECONDS))
    timers.follow(_now())
    timers.restate_nodes(nodes, _now())
    late: list[float] = []
    with wake.Subscription(wake.TIMERS) as subscription, workers.Workers() as helpers:
        while len(late) < len(nodes):
            late += helpers.fire(time.time).lateness
            timers.follow(_now())
            following = next_due()
            if following is not None:
                subscription.wait(max(0.0, min(0.25, following.timestamp() - time.time())))
    ordered = sorted(late)
    return {
        "fired": len(ordered),
        "late_p50_ms": round(ordered[len(ordered) // 2] * 1000, 2),
        "late_p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 2),
        "late_max_ms": round(ordered[-1] * 1000, 2),
    }

"""The scheduler's snapshot from a full database, and from a thousand changes, on a throw-away one.

The rows are copies of a few nodes and pods that were created by the actions: what is read is what a
cluster of that size would hold, but that pods share documents, which loading does not read.
"""

import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from clusterstate.actions import objects
from clusterstate.actions.pods.create import create_pods
from scheduling.engine.queue.pending import Backoff
from scheduling.worker.mirror import Mirror
from tests.perf import rehearsal
from tests.perf.workloads import Manifest, node, pod

_CLASSES = 100
_TIMES = 5


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # a benchmark is an edge


def run(
    *, nodes: int, bound: int, changes: int = 1000, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return one result for each measurement. The database must be empty and migrated."""
    say(f"{nodes} nodes")
    template = node(0)
    name = template["metadata"]["name"]
    offer = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    template["status"]["allocatable"] = template["status"]["capacity"] = offer
    objects.create("Node", "", template, now=_now())
    rehearsal.copy_node(name, "node-", nodes - 1)
    say(f"{bound} pods on them")
    create_pods([_on(f"kind-{i}", name, i) for i in range(_CLASSES)], now=_now())
    rehearsal.copy_pods("default", "copy-", bound, nodes=nodes - 1, node_prefix="node-", now=_now())
    say("load")
    mirror = Mirror({}, Backoff())
    before = _peak_mb()
    began, cpu = time.perf_counter(), time.process_time()
    mirror.load(time.time())
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    results: list[dict[str, Any]] = [
        {
            "mode": "cold start",
            "nodes": mirror.snapshot.node_count,
            "pods": mirror.snapshot.pod_total,
            "seconds": round(wall, 3),
            "cpu_seconds": round(cpu, 3),
            "peak_mb": _peak_mb(),
            "peak_mb_before": before,
        }
    ]
    for mode, told in (("refresh", 0), ("refresh, nodes report", changes // 10)):
        say(f"{changes} changes of pods, {told} of nodes among them")
        walls, cpus = [], []
        for turn in range(_TIMES):
            made = [
                _on(f"{told}-{turn}-{i}", f"node-{i % (nodes - 1)}", i % _CLASSES)
                for i in range(changes)
            ]
            apart = 10 if told else changes
            for first in range(0, changes, apart):
                create_pods(made[first : first + apart], now=_now())
                if told:
                    _report(f"node-{first % (nodes - 1)}")
            began, cpu = time.perf_counter(), time.process_time()
            applied = mirror.refresh(time.time())
            cpus.append(time.process_time() - cpu)
            walls.append(time.perf_counter() - began)
            assert applied >= changes + told
        results.append(
            {
                "mode": mode,
                "changes": changes + told,
                "milliseconds": round(min(walls) * 1000, 2),
                "cpu_milliseconds": round(min(cpus) * 1000, 2),
            }
        )
    return results


def _report(node_name: str) -> None:
    """Change a node's status, as its agent does all the time."""

    def change(old: Manifest) -> Manifest:
        # The time alone is kept in whole seconds.
        ready = {"type": "Ready", "status": "True", "message": str(time.time_ns())}
        return {**old, "status": {**old["status"], "conditions": [ready]}}

    objects.update("Node", "", node_name, change, now=_now(), subresource="status")


def _on(name: str, node_name: str, kind: int) -> Manifest:
    manifest = pod(0, cpu=f"{10 + kind}m", labels={"app": f"bench-{kind}"}, nodeName=node_name)
    manifest["metadata"] |= {"name": name, "namespace": "default"}
    return manifest


def _peak_mb() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

"""A simulation of many pods, as ``manage.py simulate`` runs one: no database, one thread."""

import time
from collections.abc import Iterator
from typing import Any

from clusterstate.processes import collector
from scheduling import simulation
from scheduling.engine import deciding
from tests.perf.engine import Progress
from tests.perf.workloads import HOSTNAME, Manifest

_KINDS = 5
_TIMES = 3


def _document(nodes: int, pods: int) -> Manifest:
    offer = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    objects = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"node-{number}",
                "labels": {
                    HOSTNAME: f"node-{number}",
                    "topology.kubernetes.io/zone": f"zone-{number % 3}",
                },
            },
            "status": {"capacity": offer, "allocatable": offer},
        }
        for number in range(nodes)
    ]
    asked = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}"},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "nginx",
                        "resources": {
                            "requests": {
                                "cpu": f"{100 * (1 + number % _KINDS)}m",
                                "memory": "200Mi",
                            }
                        },
                    }
                ]
            },
        }
        for number in range(pods)
    ]
    return {"spec": {"base": "empty", "objects": objects, "pods": asked, "explain": "none"}}


def run(*, nodes: int, pods: int, say: Progress) -> Iterator[dict[str, Any]]:
    """Yield the figures of some runs of one document: seconds of wall and of CPU."""
    say(f"simulation: {pods} pods on {nodes} nodes")
    deciding.warm()
    document = _document(nodes, pods)
    collector.calm()
    for _ in range(_TIMES):
        began, cpu = time.perf_counter(), time.process_time()
        read = simulation.read(document)
        ready = time.perf_counter()
        results = simulation.run(read, simulation.Base())["status"]["results"]
        done, cpu = time.perf_counter(), time.process_time() - cpu
        yield {
            "mode": "simulation",
            "nodes": nodes,
            "pods": pods,
            "placed": sum(one["status"] == "scheduled" for one in results),
            "read_seconds": round(ready - began, 4),
            "run_seconds": round(done - ready, 4),
            "seconds": round(done - began, 4),
            "cpu_seconds": round(cpu, 4),
        }

"""The drain of many nodes: foretold, carried out, cut off in the middle; and a taint under a brake.

``run`` measures on a whole service of its own what a user waits for. ``foretold`` measures in this
process, on a throw-away database, what the plan costs in CPU time, and where it goes.
"""

import cProfile
import io
import pstats
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from clusterstate.actions import objects
from clusterstate.actions.pods.create import create_pods
from scheduling.answers import registry
from scheduling.engine import deciding
from tests.perf import rehearsal, scratch
from tests.perf.service import Client
from tests.perf.workloads import ZONE, Manifest, node, pod

_PODS_PER_NODE = 20
_CLASSES = 100
_TIMES = 5
_LONGEST = 600.0
_PLANS = "/apis/stowage.dev/v1/plans"
_OWNER = {"apiVersion": "bench.example/v1", "kind": "ReplicaSet", "controller": True}
"""Nobody makes pods for it again, and nobody collects its pods because it is not there."""


def run(*, nodes: int, drained: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return the figures of a service with twenty pods on each node.

    Raises:
        ServiceError: something is refused, or takes longer than ten minutes.
    """
    shape = {"mode": "drain", "nodes": nodes, "pods": nodes * _PODS_PER_NODE, "drained": drained}
    environment = {"STOWAGE_BRAKE_ZONE": "30"}
    with scratch.running(environment, say) as service:
        client = service.client()
        client.create("/api/v1/nodes", "Node", [_node(number) for number in range(nodes)])
        say(f"{shape['pods']} pods")
        for first in range(0, nodes, 50):
            made = [
                _pod(f"p{number}-{one}", node(number)["metadata"]["name"], number + one)
                for number in range(first, min(first + 50, nodes))
                for one in range(_PODS_PER_NODE)
            ]
            client.create("/api/v1/namespaces/default/pods", "Pod", made)
        plan = _drain([node(number)["metadata"]["name"] for number in range(drained)])
        client.call("POST", f"{_PLANS}?dryRun=All", plan)
        say("plan")
        foreseen = [
            _timed(lambda: client.call("POST", f"{_PLANS}?dryRun=All", plan)) for _ in range(_TIMES)
        ]
        status = client.call("POST", _PLANS, plan)
        found = [shape | {"what": "planned", "ms": [round(one * 1000) for one in sorted(foreseen)]}]
        found.append(shape | _carried_out(service, client, status, say))
        found.append(shape | _braked(client, nodes, drained, say))
        return found


def _carried_out(
    service: scratch.Scratch, client: Client, plan: Manifest, say: Callable[[str], None]
) -> dict[str, Any]:
    """Apply a plan, kill the process that carries it out in the middle, and wait for its end."""
    path = f"{_PLANS}/{plan['metadata']['name']}"
    say(f"apply {plan['metadata']['name']}: {plan['status']['summary']}")
    began = time.monotonic()
    client.call("POST", f"{path}/apply?holding=leaving", {})
    applied = time.monotonic() - began

    def told() -> dict[str, Any]:
        operation: dict[str, Any] = client.call("GET", path)["status"]["operation"]
        return operation

    steps = told()["steps"]
    scratch.until(lambda: told()["done"] * 3 >= steps, seconds=_LONGEST, what="a third", every=0.05)
    service.signal("worker", signal.SIGKILL)
    killed_at = told()["done"]
    say(f"killed the worker after {killed_at} of {steps} steps")
    scratch.until(lambda: told()["state"] == "Done", seconds=_LONGEST, what="the end", every=0.1)
    return {
        "what": "carried out",
        "apply_ms": round(applied * 1000),
        "steps": steps,
        "killed_after": killed_at,
        "seconds": round(time.monotonic() - began, 1),
        "failed": told()["failed"],
    }


def _braked(client: Client, nodes: int, drained: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Taint 40 % of a zone's nodes where 30 % may go; approve after five seconds."""
    # The drained nodes are the first ones, and the zones take turns.
    zone = [number for number in range(drained, nodes) if number % 3 == 0]
    tainted = zone[: (len(zone) * 2 + 4) // 5]
    say(f"taint {len(tainted)} of {len(zone)} nodes of a zone")
    taint = {"spec": {"taints": [{"key": "bench", "effect": "NoExecute"}]}}
    merge = "application/merge-patch+json"
    began = time.monotonic()
    for number in tainted:
        name = node(number)["metadata"]["name"]
        client.call("PATCH", f"/api/v1/nodes/{name}", taint, content_type=merge)
    brakes = "/apis/stowage.dev/v1/brakes"
    held = scratch.until(
        lambda: client.call("GET", brakes)["items"], seconds=60, what="a brake", every=0.05
    )
    seconds = time.monotonic() - began
    time.sleep(5.0)
    timers = "/apis/stowage.dev/v1/evictions?limit=1"
    status = client.call("GET", brakes)["items"][0]["status"]
    blocked = client.call("GET", timers)["items"][0]["status"]
    began = time.monotonic()
    client.call("POST", f"{brakes}/{held[0]['metadata']['name']}/approve", {})
    scratch.until(
        lambda: not client.call("GET", timers)["items"],
        seconds=_LONGEST, what="the evictions", every=0.1,
    )  # fmt: skip
    return {
        "what": "a taint on 40 % of a zone",
        "tainted_and_held_seconds": round(seconds, 1),
        "held": f"{status['leaving']} of {status['total']}",
        "blocked_by": blocked.get("blockedBy", ""),
        "gone_after_approval_seconds": round(time.monotonic() - began, 1),
    }


def foretold(*, nodes: int, drained: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return what the plan costs in this process. The database must be empty and migrated."""
    deciding.warm()
    say(f"{nodes} nodes with {_PODS_PER_NODE} pods each")
    template = _node(0)
    name = template["metadata"]["name"]
    objects.create("Node", "", template, now=_now())
    rehearsal.copy_node(name, "node-", nodes - 1)
    create_pods([_pod(f"kind-{one}", name, one) for one in range(_CLASSES)], now=_now())
    count = nodes * _PODS_PER_NODE
    rehearsal.copy_pods("default", "copy-", count, nodes=nodes - 1, node_prefix="node-", now=_now())
    plan = _drain([f"node-{number}" for number in range(drained)])
    say("plan")
    told = b""
    walls, cpus = [], []
    profile = cProfile.Profile()
    for turn in range(_TIMES + 2):
        began, cpu = time.perf_counter(), time.process_time()
        if turn == _TIMES + 1:
            profile.enable()
        told = registry.answer("plan", plan)
        profile.disable()
        if 0 < turn <= _TIMES:
            walls.append(time.perf_counter() - began)
            cpus.append(time.process_time() - cpu)
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("cumulative").print_stats(40)
    say(text.getvalue())
    return [
        {
            "mode": "drain, in process",
            "nodes": nodes,
            "pods": count,
            "drained": drained,
            "summary": msgspec.json.decode(told)["status"]["summary"],
            "answer_bytes": len(told),
            "ms": [round(one * 1000) for one in sorted(walls)],
            "cpu_ms": [round(one * 1000) for one in sorted(cpus)],
        }
    ]


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # a benchmark is an edge


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _drain(names: list[str]) -> Manifest:
    changes = [{"drain": {"nodes": names}}]
    return {"apiVersion": "stowage.dev/v1", "kind": "Plan", "spec": {"changes": changes}}


def _node(number: int) -> Manifest:
    made = node(number)
    offer = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    made["metadata"]["labels"][ZONE] = f"zone{number % 3 + 1}"
    made["status"]["allocatable"] = made["status"]["capacity"] = offer
    return made


def _pod(name: str, node_name: str, kind: int) -> Manifest:
    kind %= _CLASSES
    made = pod(0, cpu=f"{10 + kind}m", labels={"app": f"bench-{kind}"}, nodeName=node_name)
    owner = {**_OWNER, "name": f"bench-{kind}", "uid": f"uid-of-bench-{kind}"}
    made["metadata"] |= {"name": name, "namespace": "default", "ownerReferences": [owner]}
    return made

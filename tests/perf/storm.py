"""A storm of pods that fit nowhere, on a whole service: how long the next easy pod waits.

Four questions, one result each: an easy pod right after the storm was posted; one while all of them
wait; one after the scheduler was killed; and, when a node comes that fits one class, how fast the
pods of that class are bound. The easy pods before the storm say what the machine gives when it is
quiet: compare with those.
"""

import signal
import tempfile
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.perf import scratch
from tests.perf.scratch import Scratch
from tests.perf.service import Client, ServiceError
from tests.perf.workloads import Manifest, node, pod
from tests.plugins.packages import install

_NAMESPACE = "default"
_PODS = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_KIND = "bench.stowage.dev/kind"
_LOOK_EVERY = 0.002
_PROBES = 20
_KILLS = 7
_LONGEST = 600.0
_ROOM = 2000
_SLOW_PODS = 600
_SLOW = """
import time


class Sluggish:
    name = "Sluggish"

    def filter(self, state, pod, snapshot, rows):
        time.sleep(0.005)
"""
_SLOW_PROJECT = """
[project]
name = "sluggish"
version = "1.0"

[project.entry-points."stowage.plugins"]
Sluggish = "sluggish:Sluggish"
"""


def run(*, nodes: int, waiting: int, classes: int, say: Callable[[str], None]) -> list[Any]:
    """Return the results of one storm.

    Raises:
        ServiceError: the service refuses something, or an easy pod is not bound in ten minutes.
    """
    shape = {"mode": "storm", "nodes": nodes, "waiting": waiting, "classes": classes}
    with scratch.running({}, say) as service:
        quiet = _quiet(service, nodes, say)
        results = storm(service, waiting=waiting, classes=classes, kills=_KILLS, say=say)
        return [shape | result for result in [quiet, *results]]


def storm(
    service: Scratch, *, waiting: int, classes: int, kills: int, say: Callable[[str], None]
) -> list[Any]:
    """Return the results of one storm on a service that has nodes."""
    client = service.client()
    easy = _Easy(client, "beside-storm")
    results: list[dict[str, Any]] = []
    say(f"{waiting} pods of {classes} classes that fit nowhere")
    cpu = service.cpu_seconds()
    began = time.perf_counter()
    client.create(_PODS, "Pod", [_stuck(number, classes) for number in range(waiting)])
    posted = time.perf_counter() - began
    after = easy.seconds()
    results.append(_result("just posted", [after]) | {"post_seconds": round(posted, 3)})
    results.append(_result("while they are written", easy.several(_PROBES, every=0.05)))
    scratch.until(
        lambda: _refused(service) >= waiting, seconds=_LONGEST, what="all pods refused", every=0.5
    )
    results.append(
        {
            "what": "all are refused",
            "seconds": round(time.perf_counter() - began, 3),
            "cpu_seconds": round(service.cpu_seconds() - cpu, 2),
        }
    )
    results.append(_result("all wait", easy.several(_PROBES)))

    say(f"kill -9 of the scheduler, {kills} times")
    results.append(_killed(service, easy, kills))
    results.append(_result("after the restart", easy.several(_PROBES, every=0.05)))

    say("a node that fits one class")
    results.append(_fitting(service, client, easy))
    return results


def _quiet(service: Scratch, nodes: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Create the nodes and measure easy pods before anything else happens."""
    client = service.client()
    say(f"{nodes} nodes")
    client.create("/api/v1/nodes", "Node", [node(number) for number in range(nodes)])
    easy = _Easy(client, "quiet")
    for _ in range(_PROBES):  # the first ones wait for caches and connections
        easy.seconds()
    return _result("quiet", easy.several(_PROBES))


def _killed(service: Scratch, easy: "_Easy", kills: int) -> dict[str, Any]:
    """Kill the scheduler that works so many times, each time when another one stands by."""
    seconds: list[float] = []
    cpu: list[float] = []
    for _ in range(kills):
        (successor, *_) = scratch.until(
            lambda: sorted(service.standing_by()), seconds=_LONGEST, what="a scheduler standing by"
        )
        before = scratch.cpu_seconds_of(successor)
        service.signal("scheduler", signal.SIGKILL)
        seconds.append(easy.seconds())
        cpu.append(scratch.cpu_seconds_of(successor) - before)
    cpu.sort()
    return _result("after kill -9", seconds) | {
        "cpu_seconds_p50": round(cpu[len(cpu) // 2], 3),
        "cpu_seconds_worst": round(cpu[-1], 3),
    }


def _fitting(service: Scratch, client: Client, easy: "_Easy") -> dict[str, Any]:
    """Add a node with room for all pods of the first class, and see them bound."""
    manifest = node(0)
    manifest["metadata"]["name"] = "bench-fitting"
    manifest["metadata"]["labels"] = {_KIND: "kind-0"}
    # Room for the easy pod, too, which may well come here.
    offer = {"cpu": "100", "memory": "1Ti", "pods": str(_ROOM + 1)}
    manifest["status"]["allocatable"] = manifest["status"]["capacity"] = offer
    wanted = min(_ROOM, _waiting_of_first(service))
    began = time.perf_counter()
    client.call("POST", "/api/v1/nodes", manifest)
    beside = easy.seconds()
    scratch.until(
        lambda: _on(service, "bench-fitting") >= wanted,
        seconds=_LONGEST,
        what="the pods of the class bound",
        every=0.02,
    )
    seconds = time.perf_counter() - began
    return {
        "what": "a node for one class",
        "pods": wanted,
        "seconds": round(seconds, 3),
        "pods_per_second": round(wanted / seconds),
        "easy_pod_seconds": round(beside, 4),
    }


def isolation(
    *, nodes: int, schedulers: int, waiting: int, classes: int, say: Callable[[str], None]
) -> list[Any]:
    """Return how long easy pods wait beside a profile with a slow plugin, and beside a storm.

    With so many schedulers at work. Raises as ``run``.
    """
    shape = {"mode": "isolation", "nodes": nodes, "schedulers": schedulers}
    with tempfile.TemporaryDirectory() as folder:
        source, packages = Path(folder, "source"), Path(folder, "packages")
        source.mkdir()
        (source / "sluggish.py").write_text(_SLOW)
        (source / "pyproject.toml").write_text(_SLOW_PROJECT)
        install(source, packages)
        settings = {
            "PYTHONPATH": str(packages),
            "STOWAGE_SCHEDULERS": str(schedulers),
            "STOWAGE_ACTIVE_SCHEDULERS": str(schedulers),
        }
        with scratch.running(settings, say) as service:
            results = [_quiet(service, nodes, say)]
            client = service.client()
            easy = _Easy(client, "isolated")
            results.append(_result("alone", easy.several(10 * _PROBES)))
            plugins = {"multiPoint": {"enabled": [{"name": "Sluggish"}]}}
            document = {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [
                    {"schedulerName": "default-scheduler"},
                    {"schedulerName": "slow", "plugins": plugins},
                ],
            }
            client.call("PUT", "/apis/stowage.dev/v1/schedulerconfiguration", document)
            time.sleep(2.0)  # until every scheduler has read it
            say(f"{_SLOW_PODS} pods whose plugin takes 5 ms each")
            client.create(_PODS, "Pod", [_slow(number) for number in range(_SLOW_PODS)])
            found = easy.several(3)
            while _unbound(service) > 1:
                found.append(easy.seconds())
            results.append(_result("beside a slow profile", found))
            say(f"{waiting} pods of {classes} classes that fit nowhere")
            client.create(_PODS, "Pod", [_stuck(number, classes) for number in range(waiting)])
            results.append(_result("beside a storm", easy.several(10 * _PROBES)))
            return [shape | result for result in results]


def _slow(number: int) -> Manifest:
    manifest = pod(number, cpu="1m", memory="1Mi", schedulerName="slow")
    manifest["metadata"] |= {"name": f"slow-{number}", "namespace": _NAMESPACE}
    return manifest


def aftermath(*, nodes: int, burst: int, say: Callable[[str], None]) -> list[Any]:
    """Return how long easy pods wait after a burst of pods that fit.

    Raises:
        ServiceError: the service refuses something, or takes longer than ten minutes.
    """
    shape = {"mode": "aftermath", "nodes": nodes, "burst": burst}
    with scratch.running({}, say) as service:
        quiet = _quiet(service, nodes, say)
        return [shape | result for result in [quiet, *after_burst(service, burst=burst, say=say)]]


def after_burst(service: Scratch, *, burst: int, say: Callable[[str], None]) -> list[Any]:
    """Return what ``aftermath`` measures, on a service that has nodes with room for the burst."""
    client = service.client()
    easy = _Easy(client, "beside-burst")
    say(f"{burst} pods of 100 classes that fit")
    began = time.perf_counter()
    client.create(_PODS, "Pod", [_small(number) for number in range(burst)])
    posted = time.perf_counter() - began
    scratch.until(
        lambda: _unbound(service) == 0, seconds=_LONGEST, what="all pods bound", every=0.1
    )
    bound = time.perf_counter() - began
    seconds: list[float] = []
    while _events(service) < burst:
        seconds += easy.several(5, every=0.02)
    written = time.perf_counter() - began
    return [
        _result("while the burst's events are written", seconds or [0.0])
        | {
            "post_seconds": round(posted, 3),
            "bound_seconds": round(bound, 3),
            "events_seconds": round(written, 3),
        },
        _result("afterwards", easy.several(_PROBES, every=0.02)),
    ]


def _small(number: int) -> Manifest:
    manifest = pod(number, cpu=f"{1 + number % 100}m", memory="1Mi")
    manifest["metadata"] |= {"name": f"small-{number}", "namespace": _NAMESPACE}
    return manifest


def _unbound(service: Scratch) -> int:
    (row,) = service.query("SELECT count(*) FROM pending_pod")
    count: int = row[0]
    return count


def _events(service: Scratch) -> int:
    (row,) = service.query(
        "SELECT count(*) FROM event"
        " WHERE reason = 'Scheduled' AND strpos(involved_name, 'small-') = 1"
    )
    count: int = row[0]
    return count


class _Easy:
    """Pods that fit on every node, posted one at a time and watched until they are bound."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._count = 0

    def seconds(self) -> float:
        """Return how long the next one takes from its POST to when a GET shows its node."""
        self._count += 1
        name = f"{self._name}-{self._count}"
        manifest = pod(self._count, cpu="1m")
        manifest["metadata"] |= {"name": name, "namespace": _NAMESPACE}
        began = time.perf_counter()
        self._client.call("POST", _PODS, manifest)
        while not self._node_of(name):
            if time.perf_counter() - began > _LONGEST:
                raise ServiceError(f"{name} was not bound in {_LONGEST:.0f} s")
            time.sleep(_LOOK_EVERY)
        return time.perf_counter() - began

    def several(self, count: int, every: float = 0.0) -> list[float]:
        """Return how long so many took, one after the other."""
        found = []
        for _ in range(count):
            found.append(self.seconds())
            time.sleep(every)
        return found

    def _node_of(self, name: str) -> str:
        try:
            found = self._client.call("GET", f"{_PODS}/{name}")
        except (OSError, HTTPException):
            return ""
        node_name: str = found["spec"].get("nodeName", "")
        return node_name


def _stuck(number: int, classes: int) -> Manifest:
    """Return a pod that asks for a kind of node that there is none of; its class fits no other."""
    kind = number % classes
    manifest = pod(number, cpu=f"{10 + kind}m", nodeSelector={_KIND: f"kind-{kind}"})
    manifest["metadata"] |= {"name": f"stuck-{number}", "namespace": _NAMESPACE}
    return manifest


def _refused(service: Scratch) -> int:
    (row,) = service.query(
        "SELECT count(*) FROM pod WHERE node_name = '' AND unschedulable IS NOT NULL"
    )
    count: int = row[0]
    return count


def _waiting_of_first(service: Scratch) -> int:
    (row,) = service.query(
        "SELECT count(*) FROM pod p JOIN scheduling_class c ON c.id = p.class_id"
        " WHERE p.node_name = '' AND strpos(c.spec, '\"kind-0\"') > 0"
    )
    count: int = row[0]
    return count


def _on(service: Scratch, node_name: str) -> int:
    """Return how many pods of the storm are on a node; an easy pod may be there, too."""
    (row,) = service.query(
        "SELECT count(*) FROM pod WHERE node_name = %s AND strpos(name, 'stuck-') = 1",
        (node_name,),
    )
    count: int = row[0]
    return count


def _result(what: str, seconds: list[float]) -> dict[str, Any]:
    ordered = sorted(seconds)
    return {
        "what": what,
        "easy_pods": len(ordered),
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 1),
        "p99_ms": round(ordered[len(ordered) * 99 // 100] * 1000, 1),
        "worst_ms": round(ordered[-1] * 1000, 1),
    }

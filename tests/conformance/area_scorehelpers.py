"""Area scorehelpers: normalisation, shape functions, host ports and default selectors.

Judges what the scheduler runs (columns, the snapshot, the plugins) and the plain reference.
"""

from typing import Any

import msgspec
import numpy as np

from clusterstate.objects.values.labels import Selector, parse_selector
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.workloads import (
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.configuration.documents import default_configuration
from scheduling.framework.interface import MAX_NODE_SCORE, CycleState
from scheduling.framework.vectors import default_normalize
from scheduling.plugins import node_resources_fit
from scheduling.plugins.catalogue import build_plugins
from scheduling.plugins.node_ports import NAME as NODE_PORTS
from tests.reference import helpers


def check(case: dict[str, Any]) -> str | None:
    """Return what differs, None if nothing does."""
    judge = _OPERATIONS.get(case["op"])
    return judge(case) if judge else f"unknown op {case['op']!r}"


def _equal(found: object, wanted: object) -> str | None:
    return None if found == wanted else f"{found!r}, wanted {wanted!r}"


def _default_normalize(case: dict[str, Any]) -> str | None:
    scores, reverse = case["scores"], case["reverse"]
    if case["maxPriority"] != MAX_NODE_SCORE:
        return f"the scheduler normalises to {MAX_NODE_SCORE} only"
    live = default_normalize(np.array(scores, np.int64), reverse=reverse).tolist()
    reference = helpers.default_normalize(scores, MAX_NODE_SCORE, reverse=reverse)
    return _equal(live, case["result"]) or _equal(reference, case["result"])


def _broken_linear(case: dict[str, Any]) -> str | None:
    points = [(point["utilization"], point["score"]) for point in case["points"]]
    live = node_resources_fit.broken_linear(points, case["p"])
    reference = helpers.broken_linear(points, case["p"])
    return _equal(live, case["result"]) or _equal(reference, case["result"])


def _port(value: dict[str, Any]) -> tuple[str, str, int]:
    return value.get("ip", ""), value.get("protocol", ""), value.get("port", 0)


def _pod_with_port(name: str, port: tuple[str, str, int]) -> Pod:
    address, protocol, number = port
    wanted = {"containerPort": 80, "hostIP": address, "protocol": protocol, "hostPort": number}
    manifest = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "ports": [wanted]}]},
    }
    return msgspec.convert(manifest, Pod)


def _host_port_conflict(case: dict[str, Any]) -> str | None:
    used = [_port(port) for port in case["used"] or ()]
    asked = _port(case["check"])
    snapshot = Snapshot()
    snapshot.set_node(msgspec.convert({"metadata": {"name": "node"}}, Node))
    for number, port in enumerate(used):
        info = snapshot.intern(from_pod(_pod_with_port(f"used-{number}", port)))
        snapshot.add_pod(number, info, "node")
    pod = snapshot.intern(from_pod(_pod_with_port("asking", asked)))
    plugin = build_plugins(default_configuration().profiles[0])[NODE_PORTS]
    rejections = plugin.filter(CycleState(), pod, snapshot, snapshot.rows())
    live = rejections is not None and bool(rejections.codes.any())
    reference = helpers.host_port_conflict(used, asked)
    return _equal(live, case["conflict"]) or _equal(reference, case["conflict"])


def _default_selector(case: dict[str, Any]) -> str | None:
    pod = msgspec.convert(case["pod"], Pod)
    services = msgspec.convert(case.get("services") or [], list[Service])
    controllers = (
        msgspec.convert(case.get("replicationControllers") or [], list[ReplicationController]),
        msgspec.convert(case.get("replicaSets") or [], list[ReplicaSet]),
        msgspec.convert(case.get("statefulSets") or [], list[StatefulSet]),
    )
    snapshot = Snapshot()
    for service in services:
        snapshot.set_service(service)
    for kind in controllers:
        for controller in kind:
            snapshot.set_controller(controller)
    live = snapshot.default_selector(from_pod(pod))
    reference = helpers.default_selector(pod, services, *controllers)
    wanted = parse_selector(case["selector"])
    return _equal(_requirements(live), _requirements(wanted)) or _equal(
        _requirements(reference), _requirements(wanted)
    )


def _requirements(selector: Selector | None) -> list[str]:
    """Return the requirements as texts; those on different keys may come in any order."""
    return [] if selector is None else sorted(map(str, selector.requirements))


_OPERATIONS = {
    "defaultNormalize": _default_normalize,
    "brokenLinear": _broken_linear,
    "hostPortConflict": _host_port_conflict,
    "defaultSelector": _default_selector,
}

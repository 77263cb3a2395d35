"""Area scorehelpers: normalisation, shape functions, host ports and default selectors."""

from typing import Any

import msgspec

from clusterstate.objects.labels import parse_selector
from clusterstate.objects.pod import Pod
from clusterstate.objects.workloads import (
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from scheduling.plugins import helpers


def check(case: dict[str, Any]) -> str | None:
    """Return what differs, None if nothing does."""
    judge = _OPERATIONS.get(case["op"])
    return judge(case) if judge else f"unknown op {case['op']!r}"


def _equal(found: object, wanted: object) -> str | None:
    return None if found == wanted else f"{found!r}, wanted {wanted!r}"


def _default_normalize(case: dict[str, Any]) -> str | None:
    found = helpers.default_normalize(case["scores"], case["maxPriority"], reverse=case["reverse"])
    return _equal(found, case["result"])


def _broken_linear(case: dict[str, Any]) -> str | None:
    points = [(point["utilization"], point["score"]) for point in case["points"]]
    return _equal(helpers.broken_linear(points, case["p"]), case["result"])


def _port(value: dict[str, Any]) -> tuple[str, str, int]:
    return value.get("ip", ""), value.get("protocol", ""), value.get("port", 0)


def _host_port_conflict(case: dict[str, Any]) -> str | None:
    used = [_port(port) for port in case["used"] or ()]
    return _equal(helpers.host_port_conflict(used, _port(case["check"])), case["conflict"])


def _default_selector(case: dict[str, Any]) -> str | None:
    selector = helpers.default_selector(
        msgspec.convert(case["pod"], Pod),
        msgspec.convert(case.get("services") or [], list[Service]),
        msgspec.convert(case.get("replicationControllers") or [], list[ReplicationController]),
        msgspec.convert(case.get("replicaSets") or [], list[ReplicaSet]),
        msgspec.convert(case.get("statefulSets") or [], list[StatefulSet]),
    )
    if str(selector) == case["selector"]:
        return None
    # Requirements on one key may come in any order.
    wanted = parse_selector(case["selector"])
    return _equal(sorted(map(str, selector.requirements)), sorted(map(str, wanted.requirements)))


_OPERATIONS = {
    "defaultNormalize": _default_normalize,
    "brokenLinear": _broken_linear,
    "hostPortConflict": _host_port_conflict,
    "defaultSelector": _default_selector,
}

"""Small rules that several plugins share, one number or pod at a time.

The plain statement of arithmetic that the plugins do on whole columns. Rules:
``framework/plugins/helper/normalize_score.go``, ``shape_score.go``, ``spread.go`` and
``framework/types.go`` (``HostPortInfo``), v1.36.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from clusterstate.objects.values.labels import (
    Selector,
    SelectorError,
    selector_from_label_selector,
    selector_from_set,
)
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.workloads import (
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)

ANY_ADDRESS: Final = "0.0.0.0"  # the wildcard of host ports; nothing listens here


def truncated_quotient(dividend: int, divisor: int) -> int:
    """Return the quotient rounded towards zero, as Go divides integers."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def default_normalize(scores: Sequence[int], highest: int, *, reverse: bool) -> list[int]:
    """Return the scores scaled so that the largest becomes ``highest``; truncated.

    ``reverse`` turns them around. With no score above 0 nothing is divided: all stay as they are,
    or all get ``highest`` when reversed (ruling C19).
    """
    largest = max(scores, default=0)
    if largest <= 0:
        return [highest] * len(scores) if reverse else list(scores)
    scaled = [truncated_quotient(highest * score, largest) for score in scores]
    return [highest - score for score in scaled] if reverse else scaled


def broken_linear(points: Sequence[tuple[int, int]], x: int) -> int:
    """Return the value at ``x`` of the line through ``points`` (x ascending, y); truncated.

    Left of the first point and right of the last the line is flat (R104, R105).
    """
    for index, (right, right_y) in enumerate(points):
        if x <= right:
            if index == 0:
                return right_y
            left, left_y = points[index - 1]
            return left_y + truncated_quotient((right_y - left_y) * (x - left), right - left)
    return points[-1][1]


def host_port_conflict(used: Iterable[tuple[str, str, int]], wanted: tuple[str, str, int]) -> bool:
    """Return whether ``wanted`` (host IP, protocol, port) clashes with any of ``used``.

    An empty IP means all addresses, an empty protocol TCP, a port of 0 wants nothing.
    """
    address, protocol, port = _sanitized(wanted)
    if port <= 0:
        return False
    for entry in used:
        other_address, other_protocol, other_port = _sanitized(entry)
        if (
            other_port == port
            and other_protocol == protocol
            and (address in (ANY_ADDRESS, other_address) or other_address == ANY_ADDRESS)
        ):
            return True
    return False


def _sanitized(entry: tuple[str, str, int]) -> tuple[str, str, int]:
    address, protocol, port = entry
    return address or ANY_ADDRESS, protocol or "TCP", port


def default_selector(
    pod: Pod,
    services: Iterable[Service] = (),
    replication_controllers: Iterable[ReplicationController] = (),
    replica_sets: Iterable[ReplicaSet] = (),
    stateful_sets: Iterable[StatefulSet] = (),
) -> Selector:
    """Return the selector of the pods that belong together with ``pod``.

    It joins the selectors of the services that select the pod and of its controller; everything is
    selected where there are none. Used by default topology spreading.
    """
    namespace = pod.metadata.namespace
    pairs: dict[str, str] = {}
    for service in services:
        wanted = service.spec.selector
        if (
            wanted
            and service.metadata.namespace == namespace
            and wanted.items() <= pod.metadata.labels.items()
        ):
            pairs.update(wanted)
    owner = next((o for o in pod.metadata.owner_references if o.controller), None)
    if owner is None:
        return selector_from_set(pairs)
    if (owner.api_version, owner.kind) == ("v1", "ReplicationController"):
        for controller in replication_controllers:
            if (controller.metadata.namespace, controller.metadata.name) == (namespace, owner.name):
                pairs.update(controller.spec.selector)
        return selector_from_set(pairs)
    selector = selector_from_set(pairs)
    workloads: Iterable[ReplicaSet | StatefulSet] = ()
    if (owner.api_version, owner.kind) == ("apps/v1", "ReplicaSet"):
        workloads = replica_sets
    elif (owner.api_version, owner.kind) == ("apps/v1", "StatefulSet"):
        workloads = stateful_sets
    for workload in workloads:
        if (workload.metadata.namespace, workload.metadata.name) != (namespace, owner.name):
            continue
        try:
            more = selector_from_label_selector(workload.spec.selector)
        except SelectorError:
            continue
        selector = selector.add(more.requirements)
    return selector

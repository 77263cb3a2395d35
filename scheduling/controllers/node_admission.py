"""What a node's agent would say to a pod that somebody put there without the scheduler.

A pod created with ``spec.nodeName``, or bound by a client, was never filtered. Kubernetes' kubelet
checks it when it arrives and fails what it cannot run; here the scheduling worker does, since it
has the node's accounts at hand. Rules: ``pkg/kubelet/lifecycle/predicate.go``, v1.36 (R24,
R100-R102). A pod on a node that does not exist stays as it is (R101).
"""

from collections.abc import Mapping
from datetime import UTC, datetime

import structlog

from clusterstate.actions import pods
from scheduling import wake
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.interface import CycleState
from scheduling.framework.runtime import Framework, PluginFailed
from scheduling.framework.types import PodRecord
from scheduling.plugins.node_affinity import NodeAffinity
from scheduling.plugins.node_name import NodeName
from scheduling.plugins.node_ports import NodePorts
from scheduling.sync import Mirror

logger = structlog.get_logger(__name__)

_PREDICATES = (NodeName.name, NodeAffinity.name, NodePorts.name)


def judge(mirror: Mirror, frameworks: Mapping[str, Framework], now: float) -> int:
    """Fail the arrivals that their node cannot take; return how many. Clears ``arrivals``."""
    failed: list[tuple[int, str, str]] = []
    for pod_id in list(mirror.arrivals):
        record = mirror.snapshot.pod(pod_id)
        if record is None or record.row < 0 or record.terminating:
            continue
        framework = frameworks.get(record.info.scheduler_name) or next(iter(frameworks.values()))
        problem = verdict(mirror.snapshot, framework, record)
        if problem is not None:
            failed.append((pod_id, *problem))
            mirror.snapshot.remove_pod(pod_id)
    mirror.arrivals.clear()
    if failed:
        with wake.without_scheduler():
            pods.fail_pods(failed, now=datetime.fromtimestamp(now, UTC))
        logger.info("arrivals_failed", count=len(failed))
    return len(failed)


def verdict(snapshot: Snapshot, framework: Framework, record: PodRecord) -> tuple[str, str] | None:
    """Return reason and message of why the node cannot run the pod, or ``None`` if it can."""
    snapshot.detach(record)
    try:
        return _lacking(snapshot, record) or _rejected(snapshot, framework, record)
    finally:
        snapshot.attach(record)


def _lacking(snapshot: Snapshot, record: PodRecord) -> tuple[str, str] | None:
    """Return what the node has too little of: OutOfcpu, OutOfmemory, OutOfpods ..."""
    row = record.row
    allowed, count = int(snapshot.allowed_pods[row]), int(snapshot.pod_count[row])
    if count + 1 > allowed:
        return _out_of("pods", 1, count, allowed)
    for name, amount in record.info.requests.items():
        column = snapshot.resources.find(name)
        if not amount or column is None:
            continue
        offered = int(snapshot.allocatable[row, column])
        used = int(snapshot.requested[row, column])
        if used + amount > offered:
            return _out_of(name, amount, used, offered)
    return None


def _out_of(resource: str, requested: int, used: int, capacity: int) -> tuple[str, str]:
    message = (
        f"Pod was rejected: Node didn't have enough resource: {resource}, requested: {requested},"
        f" used: {used}, capacity: {capacity}"
    )
    return f"OutOf{resource}", message


def _rejected(
    snapshot: Snapshot, framework: Framework, record: PodRecord
) -> tuple[str, str] | None:
    """Return which of the node's own rules the pod breaks."""
    state = CycleState(pod_key=record.key)
    try:
        begun = framework.pre_filter(state, record.info, snapshot)
        status = (
            framework.run_filters(state, record.info, snapshot, record.row)
            if begun.status.ok
            else begun.status
        )
    except PluginFailed as failure:
        logger.warning("arrival_not_judged", pod=record.key, error=failure.status.message)
        return None
    if status.ok or status.plugin not in _PREDICATES:
        return None
    return (
        status.plugin,
        f"Pod was rejected: Predicate {status.plugin} failed: {', '.join(status.reasons)}",
    )

"""Nodes that run out of memory, disk or processes: ranks their pods, and fails the first (R135).

Agents report what their nodes and pods use; each report is judged once. ``pressure_rules`` ranks
the node's pods as the kubelet does. The result, the pressures and the next victims by name, is
stored in the row of the report (``actions.agents.usage`` has set the node's condition, and so its
taint, when the report came). While a node is under pressure for longer than its grace period, the
victims are failed: ``phase: Failed``, reason ``Evicted``, the object stays (C24).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
import structlog

from clusterstate.actions.agents import usage
from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.loops import aside
from clusterstate.actions.pods.status import fail_pods, set_condition
from clusterstate.actions.pods.together import leaving
from clusterstate.database import locks
from clusterstate.objects.rules.resources import qos_class
from clusterstate.objects.values import ending, moments
from clusterstate.objects.values.pod import Pod
from clusterstate.queries.nodes.usage import NodeReport, PodUsage, unjudged_reports
from clusterstate.queries.pods import pod_manifests, pods_on_node
from scheduling.controllers.nodes.pressure_rules import (
    REASON,
    Candidate,
    Pressure,
    Usage,
    candidate,
    is_critical,
    message,
    next_victims,
    rank,
)

logger = structlog.get_logger(__name__)

NAME = "pressure"
_SHOWN = 10
_FINISHED = ("Succeeded", "Failed")
_CONDITION = ending.condition(ending.UNDER_PRESSURE)
_decode_pod = msgspec.json.Decoder(Pod).decode


def run(now: datetime) -> int:
    """Judge every new report; return how many pods were failed."""
    with locks.alone(locks.PRESSURE) as mine:
        if not mine:
            return 0
        failed = aside.each(
            NAME,
            unjudged_reports(),
            lambda some: sum(judge(reported, now) for reported in some),
            which=lambda reported: aside.node(reported.node_name),
            now=now,
            # Marked as judged in spite of the failure: the node's next report is judged again.
            instead=lambda reported: usage.conclude(reported, reported.outcome, now=now),
        )
        return sum(failed)


def judge(reported: NodeReport, now: datetime) -> int:
    """Judge one report and fail the pods that must go; return how many."""
    on_node = _pods(reported.node_name)
    usages = {(one.namespace, one.name): one for one in reported.usage.pods}
    outcome: dict[str, Any] = {"pressures": {}, "victims": []}
    failing: dict[int, tuple[str, str, str]] = {}
    before = reported.outcome.get("pressures", {})
    for condition, signal in reported.usage.signals.items():
        pressure = Pressure(condition)
        candidates = {
            pod_id: candidate(pod, _usage(pod, usages), pressure) for pod_id, pod in on_node.items()
        }
        ids = {one.key: pod_id for pod_id, one in candidates.items()}
        ranked = [one for one in rank(candidates.values(), pressure) if not is_critical(one.pod)]
        outcome["victims"] += [
            _victim(one, pressure, place) for place, one in enumerate(ranked[:_SHOWN], 1)
        ]
        if signal.available >= signal.threshold:
            continue
        since = before.get(pressure.value, reported.reported_at.isoformat())
        began = min(datetime.fromisoformat(since), now)
        outcome["pressures"][pressure.value] = began.isoformat()
        if now < moments.after(began, signal.grace_period_seconds):
            continue
        for one in next_victims(
            list(candidates.values()),
            pressure,
            available=signal.available,
            threshold=signal.threshold,
            minimum_reclaim=signal.minimum_reclaim,
            finished=_going,
        ):
            text = message(one, pressure, available=signal.available, threshold=signal.threshold)
            failing.setdefault(ids[one.key], (REASON, text, one.pod.metadata.uid))
    _fail(failing, on_node, now)
    usage.conclude(reported, outcome, now=now)
    return len(failing)


def _pods(node_name: str) -> dict[int, Pod]:
    rows = [row for row in pods_on_node(node_name) if row.phase not in _FINISHED]
    manifests = pod_manifests([row.id for row in rows])
    return {id_: _decode_pod(text) for id_, text in manifests.items()}


def _usage(pod: Pod, usages: Mapping[tuple[str, str], PodUsage]) -> Usage | None:
    found = usages.get((pod.metadata.namespace, pod.metadata.name))
    if found is None:
        return None
    return Usage(
        memory_bytes=found.memory_bytes,
        disk_bytes=found.disk_bytes,
        processes=found.processes,
        containers=found.containers,
    )


def _going(one: Candidate) -> bool:
    return one.pod.metadata.deletion_timestamp is not None


def _victim(one: Candidate, pressure: Pressure, place: int) -> dict[str, Any]:
    return {
        "pressure": pressure.value,
        "place": place,
        "namespace": one.pod.metadata.namespace,
        "name": one.pod.metadata.name,
        "qosClass": qos_class(one.pod),
        "priority": one.pod.spec.priority or 0,
        "request": one.request,
        "usage": None if one.usage is None else one.usage.of(pressure),
    }


def _fail(
    failing: Mapping[int, tuple[str, str, str]], on_node: Mapping[int, Pod], now: datetime
) -> None:
    if not failing:
        return
    for pod_id, (reason, text, _) in failing.items():
        condition = {**_CONDITION, "message": text}
        # Agents end the group's other pods: only the node's own may be called failed.
        with leaving([pod_id], condition, now=now):
            set_condition(pod_id, condition, now=now)
            fail_pods([(pod_id, reason, text)], now=now)
    events.record_many(
        [
            Occurrence(
                kind="Pod",
                namespace=on_node[id_].metadata.namespace,
                name=on_node[id_].metadata.name,
                uid=uid,
                type="Warning",
                reason=REASON,
                message=text,
                component="kubelet",
            )
            for id_, (_, text, uid) in failing.items()
        ],
        now=now,
    )
    logger.info("pods_failed_by_pressure", count=len(failing))

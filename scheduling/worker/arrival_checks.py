"""Checks the pods that clients put on nodes when they arrive; fails pods that cannot run there.

A pod created with ``spec.nodeName``, or bound by a client, was never filtered. Kubernetes' kubelet
checks it when it arrives and fails what it cannot run; here the scheduling worker does, since it
knows what the node has left. Rules: ``pkg/kubelet/lifecycle/predicate.go`` (``generalFilter``) and
``AdmissionCheck`` of ``pkg/scheduler``, v1.36 (R24, R100-R102): enough resources, then node
affinity, then host ports. These checks are the agent's own, whatever plugins a profile enables, so
neither a cordon nor a profile's ``addedAffinity`` counts. A NoExecute taint, which the kubelet
checks as well, evicts the pod in any case.

Pods that come to a node together are checked in order of age, the oldest first, each with the pods
that were accepted before it (kubelet, ``HandlePodAdditions``), so that no pod fails because of one
that fails too. Pods that the scheduler only assumes there do not count: the arrival is later than
the snapshot on which they were decided, so their binds are refused; of pods that waited, such as
for their volumes, the binder checks again whether there is room.

A pod on a node that does not exist stays as it is (R101), and is judged when the node comes. A
cursor in a row says which arrivals were checked: the next worker checks those that came while no
worker ran.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import cast

import numpy as np
import structlog

from clusterstate.actions.loops import aside, controller_state
from clusterstate.actions.pods.status import fail_pods
from clusterstate.change_log import wake
from clusterstate.objects.rules.matching import EmptyTerm
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.configuration import Profile
from scheduling.framework.configuration.plugin_args import NodeAffinityArgs
from scheduling.framework.formulas import short
from scheduling.framework.interface import CycleState
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodRecord
from scheduling.framework.vectors import required_affinity_mask
from scheduling.plugins import node_affinity
from scheduling.plugins.node_ports import NodePorts
from scheduling.worker.mirror import Mirror
from scheduling.worker.mirror.loading import ADMISSION

logger = structlog.get_logger(__name__)

Failure = tuple[int, str, str]
"""Pod id, reason and message."""
Problem = tuple[str, str]
"""Reason and message for the pod's status."""

_ports = NodePorts()
_FIRST = ("cpu", "memory", "ephemeral-storage")
"""The resources that are checked first, in this order; others follow by name."""


def judge(mirror: Mirror, frameworks: Mapping[str, Framework], now: float) -> int:
    """Fail those of ``mirror.arrivals`` that cannot run; empty it; return how many failed."""
    snapshot = mirror.snapshot
    came: dict[int, list[PodRecord]] = {}
    for pod_id in mirror.arrivals:
        record = snapshot.pod(pod_id)
        if record is None or record.terminating:
            continue
        if record.row < 0:
            mirror.of_unknown_nodes.add(pod_id)
        else:
            came.setdefault(record.row, []).append(record)
    default = next(iter(frameworks.values())).profile
    profiles = {name: framework.profile for name, framework in frameworks.items()}
    moment = datetime.fromtimestamp(now, UTC)
    failed: list[Failure] = []
    for row, records in came.items():
        try:
            found = _verdicts(snapshot, row, records, profiles, default, moment)
        except Exception as error:  # noqa: BLE001  # the caller sets the pod aside
            keys = [cast(int, record.key) for record in records]
            mirror.failed_objects += [(aside.pod(key), error) for key in keys]
            continue
        failed += [(pod_id, *problem) for pod_id, problem in found.items()]
    if failed:
        with wake.without_scheduler():
            _carry_out(failed, moment)
        for pod_id, *_ in failed:
            snapshot.remove_pod(pod_id)
        logger.info("arrivals_failed", count=len(failed))
    mirror.arrivals.clear()
    controller_state.set_cursor(ADMISSION, mirror.cursor)
    return len(failed)


def _carry_out(failed: Sequence[Failure], now: datetime) -> None:
    """Write the failures. A pod whose write raises is set aside; the others are written."""
    aside.each(
        ADMISSION,
        failed,
        lambda some: fail_pods(some, now=now),
        which=lambda one: aside.pod(one[0]),
        now=now,
    )


def _verdicts(
    snapshot: Snapshot,
    row: int,
    came: Sequence[PodRecord],
    profiles: Mapping[str, Profile],
    default: Profile,
    now: datetime,
) -> dict[int, Problem]:
    """Return, by pod id, why the node cannot run a pod that came to it."""
    guessed = [one for one in snapshot.pods_on(row) if snapshot.is_assumed(one.key)]
    away = {one.slot: one for one in (*came, *guessed)}
    result: dict[int, Problem] = {}
    for record in away.values():
        snapshot.detach(record)
    try:
        for record in sorted(came, key=lambda one: cast(int, one.key)):
            pod_id = cast(int, record.key)
            profile = profiles.get(record.info.scheduler_name, default)
            judge = partial(verdict, snapshot, profile, record)
            problem = aside.one(ADMISSION, aside.pod(pod_id), judge, now=now, instead=lambda: None)
            if problem is None:
                snapshot.attach(away.pop(record.slot))
            else:
                result[pod_id] = problem
    finally:
        for record in away.values():
            snapshot.attach(record)
    return result


def verdict(snapshot: Snapshot, profile: Profile, record: PodRecord) -> Problem | None:
    """Return why the pod's node cannot run it, or ``None`` if it can.

    The pod must be detached from the snapshot, so that its own requests do not count against it.

    The first problem is reported, as the kubelet does. ``profile`` states whether an empty node
    selector term matches all nodes or none (C1).
    """
    return _lacking(snapshot, record) or _rejected(snapshot, profile, record)


def _lacking(snapshot: Snapshot, record: PodRecord) -> Problem | None:
    """Return OutOfcpu, OutOfmemory, OutOfpods ... for the first resource that the node lacks."""
    row = record.row
    allowed, count = int(snapshot.allowed_pods[row]), int(snapshot.pod_count[row])
    if short(1, allowed, count):
        return _out_of("pods", 1, count, allowed)
    requests = record.info.requests
    names = [name for name in _FIRST if name in requests]
    for name in (*names, *sorted(requests.keys() - set(names))):
        amount, column = requests[name], snapshot.resources.find(name)
        if not amount or column is None:
            continue
        offered = int(snapshot.allocatable[row, column])
        used = int(snapshot.requested[row, column])
        if short(amount, offered, used):
            return _out_of(name, amount, used, offered)
    return None


def _out_of(resource: str, requested: int, used: int, capacity: int) -> Problem:
    message = (
        f"Pod was rejected: Node didn't have enough resource: {resource}, requested: {requested},"
        f" used: {used}, capacity: {capacity}"
    )
    return f"OutOf{resource}", message


def _rejected(snapshot: Snapshot, profile: Profile, record: PodRecord) -> Problem | None:
    """Return the problem if the pod's node affinity or host ports do not fit its node."""
    info, rows = record.info, np.array([record.row], np.intp)
    args = profile.args.get(node_affinity.NAME)
    empty_term = args.empty_node_selector_term if isinstance(args, NodeAffinityArgs) else "all"
    affinity = info.required_affinity(cast(EmptyTerm, empty_term))
    if not required_affinity_mask(snapshot, affinity, rows)[0]:
        return _failed(node_affinity.NAME, node_affinity.REASON_POD)
    conflicts = _ports.filter(CycleState(pod_key=record.key), info, snapshot, rows)
    if conflicts is not None and conflicts.codes[0]:
        return _failed(_ports.name, ", ".join(conflicts.reasons[conflicts.reason[0]]))
    return None


def _failed(predicate: str, reason: str) -> Problem:
    return predicate, f"Pod was rejected: Predicate {predicate} failed: {reason}"

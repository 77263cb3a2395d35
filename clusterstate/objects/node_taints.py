"""The taints that speak for a node's state, by key, and which of them a change brings or ends.

Pure. The node-lifecycle controller puts every node's taints right every few seconds; ``governed``
does so for what a single write changes, so that a cordon and its taint come in one version.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from clusterstate.objects.matching import NO_SCHEDULE

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
DISK_PRESSURE = "node.kubernetes.io/disk-pressure"
PID_PRESSURE = "node.kubernetes.io/pid-pressure"
NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"
OUT_OF_DISK = "node.kubernetes.io/out-of-disk"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"

BY_CONDITION: Mapping[str, Mapping[str, str]] = {
    "Ready": {"False": NOT_READY, "Unknown": UNREACHABLE},
    "MemoryPressure": {"True": MEMORY_PRESSURE},
    "DiskPressure": {"True": DISK_PRESSURE},
    "PIDPressure": {"True": PID_PRESSURE},
    "NetworkUnavailable": {"True": NETWORK_UNAVAILABLE},
    "OutOfDisk": {"True": OUT_OF_DISK},
}
"""Taint key by condition type and status (R126; the union of the seeds' list and today's, C17)."""


def governed(
    taints: Sequence[Mapping[str, Any]],
    *,
    unschedulable: bool,
    before: Sequence[Mapping[str, Any]] | None,
    after: Sequence[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    """Return the taints with those NoSchedule taints put right that a write decides.

    That of ``unschedulable`` always; those of a condition whose status differs ``before`` and
    ``after`` (lists of conditions as on the wire). ``before`` is ``None`` for a new node, about
    which only its agent or controller knows: its conditions decide nothing yet. Others stay, in
    their order; new ones come last. Rule: doNoScheduleTaintingPass,
    pkg/controller/nodelifecycle/node_lifecycle_controller.go, v1.36.
    """
    decided = {UNSCHEDULABLE: unschedulable}
    if before is not None:
        old = {one.get("type"): one.get("status") for one in before}
        for one in after:
            keys, status = BY_CONDITION.get(one.get("type", ""), {}), one.get("status")
            if keys and old.get(one["type"]) != status:
                decided |= {key: at == status for at, key in keys.items()}
    kept = [
        taint
        for taint in taints
        if taint.get("effect") != NO_SCHEDULE or decided.get(taint.get("key", ""), True)
    ]
    present = {taint.get("key") for taint in kept if taint.get("effect") == NO_SCHEDULE}
    missing = [key for key, wanted in decided.items() if wanted and key not in present]
    return [*kept, *({"key": key, "effect": NO_SCHEDULE} for key in missing)]

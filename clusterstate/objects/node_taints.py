"""The taints that speak for a node's state, by key, and which of them a change brings or ends.

Pure. The node-lifecycle controller puts every node's taints right every few seconds; ``governed``
does so for what a single write changes, so that a cordon and its taint come in one version.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from clusterstate.objects.matching import NO_EXECUTE, NO_SCHEDULE

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
    """Return the taints with those put right that a write decides.

    What ``unschedulable`` and the conditions ``after`` ask for is there in any case. What they do
    not ask for goes if the condition said something else ``before``, or has gone itself, and then
    its NoExecute taints go too (both are lists of conditions as on the wire; ``before`` is ``None``
    for a new node). Others stay, in their order; new ones come last. Rule:
    doNoScheduleTaintingPass, pkg/controller/nodelifecycle/node_lifecycle_controller.go, v1.36.
    """
    decided = {UNSCHEDULABLE: unschedulable}
    old = {one.get("type", ""): one.get("status") for one in before or ()}
    for one in after:
        keys, status = BY_CONDITION.get(one.get("type", ""), {}), one.get("status")
        for at, key in keys.items():
            if at == status:
                decided[key] = True
            elif before is not None and old.get(one["type"]) != status:
                decided[key] = False
    gone = {
        key
        for type_ in old.keys() - {one.get("type", "") for one in after}
        for key in BY_CONDITION.get(type_, {}).values()
    }
    decided |= dict.fromkeys(gone, False)
    kept = [
        taint
        for taint in taints
        if (taint.get("effect") != NO_SCHEDULE or decided.get(taint.get("key", ""), True))
        and not (taint.get("effect") == NO_EXECUTE and taint.get("key") in gone)
    ]
    present = {taint.get("key") for taint in kept if taint.get("effect") == NO_SCHEDULE}
    missing = [key for key, wanted in decided.items() if wanted and key not in present]
    return [*kept, *({"key": key, "effect": NO_SCHEDULE} for key in missing)]

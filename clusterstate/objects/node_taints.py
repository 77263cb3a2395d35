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
EVICTING = frozenset({NOT_READY, UNREACHABLE})
"""Keys that the node-lifecycle controller also uses with the effect NoExecute."""

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
    not ask for goes if the condition said something else ``before``, or has gone itself (both are
    lists of conditions as on the wire; ``before`` is ``None`` for a new node). The NoExecute taint
    of ``Ready`` goes in the same write: with it alone a node would take pods and evict them at
    once. Where ``Ready`` now asks for the other key, that one's NoExecute taint takes its place;
    a first one is added by the controller, as fast as the node's zone allows. Others stay, in
    their order; new ones come last. Rule: doNoScheduleTaintingPass and processTaintBaseEviction,
    pkg/controller/nodelifecycle/node_lifecycle_controller.go, v1.36.
    """
    decided = {UNSCHEDULABLE: unschedulable}
    ended: set[str] = set()
    old = {one.get("type", ""): one.get("status") for one in before or ()}
    for one in after:
        keys, status = BY_CONDITION.get(one.get("type", ""), {}), one.get("status")
        for at, key in keys.items():
            if at == status:
                decided[key] = True
            elif before is not None and old.get(one["type"]) != status:
                decided[key] = False
                ended |= {key} & EVICTING
    gone = {
        key
        for type_ in old.keys() - {one.get("type", "") for one in after}
        for key in BY_CONDITION.get(type_, {}).values()
    }
    decided |= dict.fromkeys(gone, False)
    ended |= gone
    evicted = {taint.get("key") for taint in taints if taint.get("effect") == NO_EXECUTE}
    kept = [
        taint
        for taint in taints
        if (taint.get("effect") != NO_SCHEDULE or decided.get(taint.get("key", ""), True))
        and not (taint.get("effect") == NO_EXECUTE and taint.get("key") in ended)
    ]
    present = {taint.get("key") for taint in kept if taint.get("effect") == NO_SCHEDULE}
    missing = [key for key, wanted in decided.items() if wanted and key not in present]
    swapped = [
        key for key in sorted(EVICTING - evicted) if decided.get(key) and evicted & ended & EVICTING
    ]
    return [
        *kept,
        *({"key": key, "effect": NO_SCHEDULE} for key in missing),
        *({"key": key, "effect": NO_EXECUTE} for key in swapped),
    ]

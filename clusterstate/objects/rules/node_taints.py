"""The taints that follow from a node's state, and which of them a write adds or removes.

Pure. The node-lifecycle controller corrects every node's taints every few seconds; ``governed``
does so for the changes of a single write, so that a cordon and its taint are in one version.
``settle_taints`` applies all rules for a node's taints and their times to a write (R123).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from clusterstate.objects.rules.matching import NO_EXECUTE, NO_SCHEDULE
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest

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
    """Return a node's taints after a write, with those that follow from its conditions.

    ::

        a key of a condition that now    NoSchedule  NoExecute (keys of ``Ready`` only)
        requires it                      present     stays, or replaces the other key's
        does not, and changed or is gone removed     removed
        does not, and is unchanged       stays       stays

    ``unschedulable`` likewise sets or removes its NoSchedule taint. ``before`` and ``after`` are
    the conditions as on the wire; ``before`` is ``None`` for a new node, whose conditions count as
    unchanged. Both effects end in one write: with NoExecute alone a node would take pods and evict
    them at once. The controller adds a first NoExecute taint, at its zone's rate. Other taints
    stay, in order; new ones come last. Rule: doNoScheduleTaintingPass and processTaintBaseEviction,
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
    ended |= gone & EVICTING
    evicted = {taint.get("key") for taint in taints if taint.get("effect") == NO_EXECUTE}
    remaining = [
        taint
        for taint in taints
        if (taint.get("effect") != NO_SCHEDULE or decided.get(taint.get("key", ""), True))
        and not (taint.get("effect") == NO_EXECUTE and taint.get("key") in ended)
    ]
    present = {taint.get("key") for taint in remaining if taint.get("effect") == NO_SCHEDULE}
    missing = [key for key, is_required in decided.items() if is_required and key not in present]
    swapped = [
        key for key in sorted(EVICTING - evicted) if decided.get(key) and evicted & ended & EVICTING
    ]
    return [
        *remaining,
        *({"key": key, "effect": NO_SCHEDULE} for key in missing),
        *({"key": key, "effect": NO_EXECUTE} for key in swapped),
    ]


def taints_of(manifest: Manifest | None) -> list[dict[str, Any]]:
    """Return ``spec.taints``."""
    if manifest is None:
        return []
    return (manifest.get("spec") or {}).get("taints") or []


def _initialize(manifest: Manifest, old: Manifest | None) -> Manifest:
    """Return the node with or without its ``uninitialized`` taint (R127)."""
    spec = manifest.get("spec") or {}
    present = taints_of(manifest)
    has_provider = bool(spec.get("providerID"))
    if old is None and not has_provider and not any(t.get("key") == UNINITIALIZED for t in present):
        taint = {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
        return {**manifest, "spec": {**spec, "taints": [*present, taint]}}
    if old is not None and has_provider and not (old.get("spec") or {}).get("providerID"):
        rest = [taint for taint in present if taint.get("key") != UNINITIALIZED]
        return {**manifest, "spec": {**spec, "taints": rest}}
    return manifest


def _govern(manifest: Manifest, old: Manifest | None) -> Manifest:
    """Return the node with the taints that the changes of this write require (R126, R133)."""
    spec = manifest.get("spec") or {}
    present = taints_of(manifest)
    taints = governed(
        present,
        unschedulable=bool(spec.get("unschedulable")),
        before=None if old is None else _conditions(old),
        after=_conditions(manifest),
    )
    if taints == present:
        return manifest
    spec = {**spec, "taints": taints}
    if not taints:
        del spec["taints"]
    return {**manifest, "spec": spec}


def _conditions(manifest: Manifest) -> list[dict[str, Any]]:
    return (manifest.get("status") or {}).get("conditions") or []


def settle_taints(
    manifest: Manifest, old: Manifest | None, now: datetime, *, is_cloud: bool
) -> Manifest:
    """Return the node with the taints that follow from the write, and times on NoExecute ones.

    ``is_cloud``: an external cloud provider initializes nodes. A new node is then tainted until it
    has a providerID; the program that sets that may also remove the taint.

    An existing taint (same key and effect) keeps its ``timeAdded`` if the client omits it, as
    clients do that send the whole list, so a countdown does not restart. A time in the future, from
    a clock that is ahead, counts as missing: otherwise an untolerated taint would evict no pod
    until then (R122).
    """
    if is_cloud:
        manifest = _initialize(manifest, old)
    manifest = _govern(manifest, old)
    spec: Manifest = manifest.get("spec") or {}
    taints = taints_of(manifest)
    if not taints:
        if "taints" not in spec:
            return manifest
        return {**manifest, "spec": {key: spec[key] for key in spec if key != "taints"}}
    times = {(one.get("key"), one.get("effect")): one.get("timeAdded") for one in taints_of(old)}
    settled = [_settled(taint, times, now) for taint in taints]
    if settled == taints:
        return manifest
    return {**manifest, "spec": {**spec, "taints": settled}}


def _settled(
    taint: dict[str, Any], times: Mapping[tuple[Any, Any], str | None], now: datetime
) -> dict[str, Any]:
    """Return the taint as its row has it: no other fields, no empty value, whole seconds."""
    key, effect, time_added = taint.get("key"), taint.get("effect"), taint.get("timeAdded")
    added = document.parse_time(time_added) if time_added else None
    if added is not None and added > now:
        added = None
    if added is None and effect == NO_EXECUTE:
        before = times.get((key, effect))
        added = min(document.parse_time(before), now) if before else now
    result = {"effect": effect, "key": key}
    if added is not None:
        result["timeAdded"] = document.format_time(added)
    if value := taint.get("value"):
        result["value"] = value
    return result

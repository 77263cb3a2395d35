"""The values of kinds' own columns, read from manifests that admission has checked."""

from datetime import datetime
from typing import Any

import msgspec

from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import Quantity

_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")


def unschedulable(node: Manifest) -> bool:
    """Return whether the node is cordoned."""
    return bool((node.get("spec") or {}).get("unschedulable"))


def cpu_milli(node: Manifest) -> int:
    """Return the allocatable CPU in thousandths."""
    return _bigint(Quantity.parse(_allocatable(node).get("cpu", "0")).milli_value())


def memory_bytes(node: Manifest) -> int:
    """Return the allocatable memory in bytes."""
    return _units(_allocatable(node).get("memory", "0"))


def ephemeral_bytes(node: Manifest) -> int:
    """Return the allocatable ephemeral storage in bytes."""
    return _units(_allocatable(node).get("ephemeral-storage", "0"))


def pods(node: Manifest) -> int:
    """Return how many pods the node may have."""
    return _units(_allocatable(node).get("pods", "0"))


def extended(node: Manifest) -> str:
    """Return all other allocatable resources as a JSON object of whole units."""
    found = {
        name: _units(quantity)
        for name, quantity in _allocatable(node).items()
        if name not in _NATIVE
    }
    return msgspec.json.encode(found).decode()


def taints(node: Manifest) -> list[Manifest]:
    """Return the node's taints."""
    return (node.get("spec") or {}).get("taints") or []


def taint_key(taint: Manifest) -> str:
    """Return a taint's key."""
    return taint.get("key") or ""


def taint_value(taint: Manifest) -> str:
    """Return a taint's value."""
    return taint.get("value") or ""


def taint_effect(taint: Manifest) -> str:
    """Return a taint's effect."""
    return taint.get("effect") or ""


def taint_added_at(taint: Manifest) -> datetime | None:
    """Return when a NoExecute taint was added."""
    added = taint.get("timeAdded")
    return document.parse_time(added) if added else None


def namespace_phase(namespace: Manifest) -> str:
    """Return ``Active`` or ``Terminating``."""
    return (namespace.get("status") or {}).get("phase") or "Active"


def handler(runtime_class: Manifest) -> str:
    """Return the handler of a RuntimeClass."""
    return runtime_class.get("handler") or ""


def priority_value(priority_class: Manifest) -> int:
    """Return the priority (``value``) of a PriorityClass."""
    return priority_class.get("value") or 0


def global_default(priority_class: Manifest) -> bool:
    """Return whether pods without a class get this one."""
    return bool(priority_class.get("globalDefault"))


def lease_holder(lease: Manifest) -> str:
    """Return who holds a lease, empty when it is free."""
    return (lease.get("spec") or {}).get("holderIdentity") or ""


def renewed_at(lease: Manifest) -> datetime | None:
    """Return when the holder renewed its lease last."""
    renewed = (lease.get("spec") or {}).get("renewTime")
    return document.parse_time(renewed) if renewed else None


def _allocatable(node: Manifest) -> dict[str, Any]:
    return (node.get("status") or {}).get("allocatable") or {}


def _units(quantity: Any) -> int:
    return _bigint(Quantity.parse(quantity).value())


def _bigint(value: int) -> int:
    return max(-(2**63), min(2**63 - 1, value))

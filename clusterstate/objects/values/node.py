"""Nodes and taints as lenses over their manifests."""

from typing import Final

import msgspec

from clusterstate.objects.values.meta import Manifest, ObjectMeta, prepare

HOSTNAME: Final = "kubernetes.io/hostname"
"""The label that names a node, by which rules mean one node alone."""
QuantityText = str | int | float
"""A resource quantity as it stands in a manifest: ``"500m"``, ``"1Gi"``, ``2``."""
USUAL_PODS: Final = "110"
"""Pods that a node takes whose kubelet is not told otherwise."""


class Taint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of ``spec.taints``. ``time_added`` is RFC 3339 text, set on write for NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the node's owner asks for."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ContainerImage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An image present on a node, with all its names; ``size_bytes`` in bytes."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of ``status.conditions``."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status that the node's agent reports; the scheduler may use up to ``allocatable``."""

    capacity: dict[str, QuantityText] = {}
    allocatable: dict[str, QuantityText] = {}
    images: tuple[ContainerImage, ...] = ()
    conditions: tuple[NodeCondition, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of a node that scheduling rules read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


prepare(Node)


def with_pods(node: Manifest) -> Manifest:
    """Return the manifest of a node that takes ``USUAL_PODS`` where it does not say how many."""
    status = node.get("status") or {}
    capacity = {"pods": USUAL_PODS, **(status.get("capacity") or {})}
    status = {**status, "capacity": capacity}
    if status.get("allocatable") is not None:
        status["allocatable"] = {"pods": capacity["pods"], **status["allocatable"]}
    return {**node, "status": status}

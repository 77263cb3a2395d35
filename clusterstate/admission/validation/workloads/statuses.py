"""Counts in a write of the subresource ``status``: none below 0, parts not above the whole.

Rules: pkg/apis/{apps,autoscaling,batch,core,policy}/validation/validation.go, v1.36, functions
``Validate<Kind>Status`` and ``Validate<Kind>StatusUpdate``.
"""

from typing import Final

from clusterstate.admission.validation.core.field import Errors, invalid, none_negative
from clusterstate.objects.values.meta import Manifest

_REPLICAS: Final = ("replicas", "readyReplicas", "availableReplicas", "observedGeneration")
_COUNTS: Final[dict[str, tuple[str, ...]]] = {
    "DaemonSet": (
        "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
        "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable",
        "collisionCount",
    ),
    "Deployment": (
        *_REPLICAS, "updatedReplicas", "unavailableReplicas", "terminatingReplicas",
        "collisionCount",
    ),
    "HorizontalPodAutoscaler": ("currentReplicas", "desiredReplicas"),
    "Job": ("active", "succeeded", "failed", "ready", "terminating"),
    "PodDisruptionBudget": (
        "disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods",
    ),
    "ReplicaSet": (*_REPLICAS, "fullyLabeledReplicas", "terminatingReplicas"),
    "ReplicationController": (*_REPLICAS, "fullyLabeledReplicas"),
    "StatefulSet": (*_REPLICAS, "currentReplicas", "updatedReplicas", "collisionCount"),
}  # fmt: skip
_PARTS: Final = (
    "updatedReplicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas",
    "currentReplicas",
)  # fmt: skip
KINDS: Final = frozenset(_COUNTS)


def validate_counts(kind: str, new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in the counts of a status; ``kind`` is one of ``KINDS``."""
    status, before = new.get("status") or {}, (old or {}).get("status") or {}
    counts = _COUNTS[kind]
    errors = none_negative(status, "status", *counts)
    if "replicas" in counts:
        for name in [name for name in _PARTS if name in counts]:
            if (value := status.get(name) or 0) > (status.get("replicas") or 0):
                detail = "cannot be greater than status.replicas"
                errors.append(invalid(f"status.{name}", value, detail))
        if (value := status.get("availableReplicas") or 0) > (status.get("readyReplicas") or 0):
            detail = "cannot be greater than readyReplicas"
            errors.append(invalid("status.availableReplicas", value, detail))
    if (collisions := before.get("collisionCount")) is not None and "collisionCount" in counts:
        value = status.get("collisionCount")
        if value is None or value < collisions:
            errors.append(invalid("status.collisionCount", value or 0, "cannot be decremented"))
    return errors

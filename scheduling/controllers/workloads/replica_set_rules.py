"""Rules of ReplicaSets and ReplicationControllers: pods to create or delete, and the status.

Pure. Rules: pkg/controller/replicaset (``replica_set.go``, ``replica_set_utils.go``), v1.36.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.workloads.pods import FINISHED, OwnedPod, next_available

REPLICA_FAILURE: Final = "ReplicaFailure"
BURST: Final = 500
"""Pods that are created or deleted for one owner in a pass."""


class Counts(msgspec.Struct, frozen=True):
    """Numbers of an owner's pods, as its status has them."""

    replicas: int
    fully_labeled: int
    ready: int
    available: int
    terminating: int


def missing(owner: Manifest, active: int) -> int:
    """Return how many pods to create, negative: to delete; at most ``BURST`` at a time."""
    replicas = owner["spec"].get("replicas")
    return max(-BURST, min(BURST, (1 if replicas is None else int(replicas)) - active))


def count(
    owner: Manifest, pods: Sequence[OwnedPod], *, created: int, now: datetime
) -> tuple[Counts, datetime | None]:
    """Return the counts of an owner's pods, and when they change without a change of objects.

    ``created``: pods that were just created and are not among ``pods``.
    """
    spec = owner["spec"]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    patience = spec.get("minReadySeconds") or 0
    active = [one for one in pods if one.is_active]
    ready = [one for one in active if one.is_ready]
    counts = Counts(
        replicas=len(active) + created,
        fully_labeled=created + sum(labels.items() <= one.labels.items() for one in active),
        ready=len(ready),
        available=sum(one.is_available(patience, now) for one in ready),
        terminating=sum(one.is_leaving and one.phase not in FINISHED for one in pods),
    )
    return counts, next_available(ready, patience, now) if patience else None


def status(owner: Manifest, counts: Counts, *, short: int, error: str, now: datetime) -> Manifest:
    """Return the status of an owner.

    ``error``: why pods could not be created (``short`` is positive) or deleted; empty for none.
    """
    before = owner.get("status") or {}
    fields: Manifest = {
        "replicas": counts.replicas,
        "fullyLabeledReplicas": counts.fully_labeled,
        "readyReplicas": counts.ready,
        "availableReplicas": counts.available,
        "observedGeneration": owner["metadata"].get("generation") or 0,
    }
    if owner["kind"] == "ReplicaSet":
        fields["terminatingReplicas"] = counts.terminating
    result = {
        key: value
        for key, value in fields.items()
        if value or key in ("replicas", "terminatingReplicas")
    }
    conditions = before.get("conditions") or []
    failed = any(one.get("type") == REPLICA_FAILURE for one in conditions)
    if error and not failed:
        failure = {
            "type": REPLICA_FAILURE,
            "status": "True",
            "lastTransitionTime": document.format_time(now),
            "reason": "FailedCreate" if short > 0 else "FailedDelete",
            "message": error,
        }
        conditions = [*conditions, failure]
    elif not error and failed:
        conditions = [one for one in conditions if one.get("type") != REPLICA_FAILURE]
    if conditions:
        result["conditions"] = conditions
    return result

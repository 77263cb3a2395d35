"""Deployments and ReplicaSets as records: the templates and numbers that the rules read.

Pure. Rules: pkg/controller/deployment/util/deployment_util.go, v1.36.
"""

import hashlib
from typing import Final

import msgspec

from clusterstate.objects.rules import templates
from clusterstate.objects.values.int_or_percent import scaled
from clusterstate.objects.values.meta import Manifest

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
REPLICA_FAILURE: Final = "ReplicaFailure"
NO_LIMIT: Final = 2**31 - 1
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_encode = msgspec.json.Encoder(order="sorted").encode


class ReplicaSet(msgspec.Struct, kw_only=True):
    """A ReplicaSet as ``deployment_rules`` sees it; the rules change their own copies.

    ``replicas``: of its spec; ``present``, ``ready``, ``available`` and ``terminating``: pod counts
    of its status.
    """

    name: str
    uid: str
    created: str
    template: Manifest
    annotations: dict[str, str]
    replicas: int
    min_ready_seconds: int = 0
    present: int = 0
    ready: int = 0
    available: int = 0
    terminating: int = 0
    is_observed: bool = True
    is_leaving: bool = False
    failure: Manifest | None = None


def replica_set_of(manifest: Manifest) -> ReplicaSet:
    """Return a stored ReplicaSet as ``deployment_rules`` sees it."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    status = manifest.get("status") or {}
    failures = [one for one in status.get("conditions") or () if one.get("type") == REPLICA_FAILURE]
    replicas = spec.get("replicas")
    return ReplicaSet(
        name=metadata["name"],
        uid=metadata["uid"],
        created=metadata.get("creationTimestamp") or "",
        template=spec.get("template") or {},
        annotations=dict(metadata.get("annotations") or {}),
        replicas=1 if replicas is None else replicas,
        min_ready_seconds=spec.get("minReadySeconds") or 0,
        present=status.get("replicas") or 0,
        ready=status.get("readyReplicas") or 0,
        available=status.get("availableReplicas") or 0,
        terminating=status.get("terminatingReplicas") or 0,
        is_observed=(status.get("observedGeneration") or 0) >= (metadata.get("generation") or 0),
        is_leaving=bool(metadata.get("deletionTimestamp")),
        failure=failures[0] if failures else None,
    )


# Numbers --------------------------------------------------------------------------------------


def fenceposts(deployment: Manifest) -> tuple[int, int]:
    """Return how many pods a rollout may add to the replicas, and how many may be unavailable."""
    strategy = deployment["spec"].get("strategy") or {}
    if strategy.get("type") != "RollingUpdate":
        return 0, 0
    total = wanted_replicas(deployment)
    rolling = strategy.get("rollingUpdate") or {}
    surge = scaled(rolling.get("maxSurge"), total, round_up=True)
    unavailable = scaled(rolling.get("maxUnavailable"), total, round_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1  # maxUnavailable 0 with maxSurge 0 would stall every rollout
    return surge, (min(unavailable, total) if total else 0)


def wanted_replicas(owner: Manifest) -> int:
    """Return ``spec.replicas``, which is 1 when it is absent."""
    replicas = owner["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


def template_hash(template: Manifest, collisions: int) -> str:
    """Return the hash label's value for a template, another one after each name collision."""
    digest = hashlib.sha256(_encode(template))
    if collisions:
        digest.update(str(collisions).encode())
    number = int.from_bytes(digest.digest()[:4], "big")
    return "".join(_LETTERS[ord(letter) % len(_LETTERS)] for letter in str(number))


def same_template(one: Manifest, other: Manifest) -> bool:
    """Return whether two templates are equal except for the hash label and the form of amounts.

    Rule: ``EqualIgnoreHash``, pkg/controller/deployment/util/deployment_util.go, v1.36.
    """
    return templates.same_template(_without_hash(one), _without_hash(other))


def _without_hash(template: Manifest) -> Manifest:
    metadata = {k: v for k, v in (template.get("metadata") or {}).items() if k != "labels" and v}
    labels = (template.get("metadata") or {}).get("labels") or {}
    metadata["labels"] = {key: value for key, value in labels.items() if key != HASH_LABEL}
    return {**template, "metadata": metadata}

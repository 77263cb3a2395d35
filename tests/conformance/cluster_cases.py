"""Reading the cluster of a case, and the shape in which both implementations answer.

A case's outcome is compared in the form of the vectors: ``{"code": ..., "reasons": [...]}``.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.compatibility import parse as parse_version
from clusterstate.objects.values.meta import Manifest, strip_nulls
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.workloads import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from tests.reference.cluster import Cluster, build_cluster

Case = dict[str, Any]
Outcome = dict[str, Any]


def read(kind: type, manifests: Any) -> Any:
    """Decode manifests, an absent list as an empty one."""
    return msgspec.convert(strip_nulls(manifests or []), list[kind])


def with_gates(case: Case) -> Case:
    """Return the case as a cluster with its feature gates would store it.

    The API drops fields of disabled features, so nobody downstream sees them.
    """
    if (case.get("featureGates") or {}).get("PodLevelResources", True):
        return case

    def without(pod: Manifest) -> Manifest:
        spec = {name: value for name, value in pod["spec"].items() if name != "resources"}
        return {**pod, "spec": spec}

    stored = {**case, "pods": [without(pod) for pod in case.get("pods") or []]}
    return {**stored, "pod": without(case["pod"])} if "pod" in case else stored


def read_pod(case: Case, key: str = "pod") -> Pod:
    return msgspec.convert(strip_nulls(case[key]), Pod)


def version_of(case: Case) -> Compatibility:
    """Return which version of Kubernetes a case is about; the vectors are of 1.36."""
    found = parse_version(case.get("compatibility", "1.36"))
    assert found is not None
    return found


def read_cluster(case: Case) -> Cluster:
    return build_cluster(
        read(Node, case.get("nodes")),
        read(Pod, case.get("pods")),
        namespaces=read(Namespace, case.get("namespaces")),
        services=read(Service, case.get("services")),
        replication_controllers=read(ReplicationController, case.get("replicationControllers")),
        replica_sets=read(ReplicaSet, case.get("replicaSets")),
        stateful_sets=read(StatefulSet, case.get("statefulSets")),
        budgets=read(PodDisruptionBudget, case.get("pdbs")),
        nominated=read(Pod, case.get("nominatedPods")),
        version=version_of(case),
    )


def status(code: str, reasons: Iterable[str] = (), **more: Any) -> Outcome:
    """Return a status in the form of the vectors, which leave out what is empty."""
    found: Outcome = {"code": code, **{k: v for k, v in more.items() if v is not None}}
    if reasons := list(reasons):
        found["reasons"] = reasons
    return found


def differences(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Say where ``found`` is not ``wanted``, objects compared member by member."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            text
            for key in sorted(wanted.keys() | found.keys())
            for text in differences(wanted.get(key), found.get(key), f"{path}.{key}".lstrip("."))
        ]
    return [] if wanted == found else [f"{path}: wanted {wanted!r}, found {found!r}"]

"""Simulation documents for tests."""

from typing import Any

from clusterstate.objects.values.meta import Manifest
from scheduling.simulation import Base, read, run
from tests.builders import NodeBuilder, PodBuilder

KATA_FC: Manifest = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata-fc"},
    "handler": "kata-fc",
    "overhead": {"podFixed": {"memory": "120Mi", "cpu": "250m"}},
}


def simulate(document: object) -> Manifest:
    """Return the answer to a document, on the empty world unless it says otherwise."""
    return run(read(document, default_base="empty"), Base())


def manifest_of(thing: NodeBuilder | PodBuilder | Manifest) -> Manifest:
    return thing if isinstance(thing, dict) else thing.manifest


def document(objects: Any = (), pods: Any = (), **spec: Any) -> Manifest:
    return {
        "apiVersion": "stowage.dev/v1",
        "kind": "Simulation",
        "spec": {
            "base": "empty",
            "objects": [manifest_of(thing) for thing in objects],
            "pods": [manifest_of(pod) for pod in pods],
            "tieBreak": "first",
            **spec,
        },
    }


def results(objects: Any = (), pods: Any = (), **spec: Any) -> list[Manifest]:
    found: list[Manifest] = simulate(document(objects, pods, **spec))["status"]["results"]
    return found


def result(objects: Any, pod: Any, **spec: Any) -> Manifest:
    return results(objects, [pod], **spec)[0]


def owned(pod: PodBuilder, kind: str = "ReplicaSet") -> PodBuilder:
    """Return the pod with a controller that makes it again."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": True}
    return pod.with_("metadata", "ownerReferences", value=[owner])

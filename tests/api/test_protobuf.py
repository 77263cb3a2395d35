"""Bodies in protobuf do what the same bodies in JSON do."""

import json
from typing import Any

import pytest

from clusterstate.objects.protobuf import encode

pytestmark = pytest.mark.django_db(transaction=True)

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
META = {"name": "one"}
LABELS = {"matchLabels": {"app": "a"}}
CONTAINER = {
    "name": "main", "image": "nginx:1", "ports": [{"containerPort": 80, "protocol": "TCP"}],
    "resources": {"requests": {"cpu": "100m"}},
    "livenessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 5},
    "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}],
}  # fmt: skip
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [CONTAINER]}}
POD_SPEC = {
    "containers": [CONTAINER],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute",
                     "tolerationSeconds": 0}],
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": LABELS, "topologyKey": "kubernetes.io/hostname"}]}},
}  # fmt: skip
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Pod": ("/api/v1/namespaces/default/pods", {"apiVersion": "v1", "spec": POD_SPEC}),
    "Node": (
        "/api/v1/nodes",
        {
            "apiVersion": "v1",
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "pods": "110"}, "capacity": {"cpu": "4"}},
        },
    ),
    "Namespace": ("/api/v1/namespaces", {"apiVersion": "v1"}),
    "Service": (
        "/api/v1/namespaces/default/services",
        {"apiVersion": "v1", "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}},
    ),
    "Event": (
        "/api/v1/namespaces/default/events",
        {
            "apiVersion": "v1", "reason": "R", "message": "M", "type": "Normal", "count": 1,
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "one"},
        },
    ),
    "Lease": (
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        {
            "apiVersion": "coordination.k8s.io/v1",
            "spec": {"holderIdentity": "h", "renewTime": "2026-11-22T01:02:03.000004Z"},
        },
    ),
    "RuntimeClass": (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "apiVersion": "node.k8s.io/v1", "handler": "kata",
            "overhead": {"podFixed": {"cpu": "250m"}},
        },
    ),
    "PriorityClass": (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"apiVersion": "scheduling.k8s.io/v1", "value": 0},
    ),
    "PodDisruptionBudget": (
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {"apiVersion": "policy/v1", "spec": {"maxUnavailable": "50%", "selector": {}}},
    ),
    "ReplicaSet": (
        "/apis/apps/v1/namespaces/default/replicasets",
        {"apiVersion": "apps/v1", "spec": {"replicas": 0, "selector": LABELS,
                                           "template": TEMPLATE}},
    ),
    "Deployment": (
        "/apis/apps/v1/namespaces/default/deployments",
        {"apiVersion": "apps/v1", "spec": {"replicas": 0, "selector": LABELS,
                                           "template": TEMPLATE}},
    ),
    "ReplicationController": (
        "/api/v1/namespaces/default/replicationcontrollers",
        {"apiVersion": "v1", "spec": {"replicas": 0, "selector": {"app": "a"},
                                      "template": TEMPLATE}},
    ),
    "LimitRange": (
        "/api/v1/namespaces/default/limitranges",
        {"apiVersion": "v1", "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}},
    ),
    "ResourceQuota": (
        "/api/v1/namespaces/default/resourcequotas",
        {"apiVersion": "v1", "spec": {"hard": {"pods": "10"}}},
    ),
}  # fmt: skip
SERVER_SET = ("uid", "resourceVersion", "creationTimestamp", "managedFields")


def stored(api: Any, path: str, manifest: dict[str, Any], media_type: str) -> dict[str, Any]:
    """Return what the server made of a body that it was to try only (dry run)."""
    body = encode(manifest) if media_type == MEDIA_TYPE else json.dumps(manifest).encode()
    found: dict[str, Any] = api.post(f"{path}?dryRun=All", body, content_type=media_type).ok(201)
    for name in SERVER_SET:
        found["metadata"].pop(name, None)
    return found


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_in_protobuf_makes_the_object_that_the_same_json_makes(api: Any, kind: str) -> None:
    path, manifest = BODIES[kind]
    manifest = {"kind": kind, "metadata": META, **manifest}
    in_protobuf = stored(api, path, manifest, MEDIA_TYPE)
    assert in_protobuf == stored(api, path, manifest, "application/json")

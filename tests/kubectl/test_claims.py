"""A walk with kubectl through claims, volumes and devices: get, describe, wait, delete."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubectl.conftest import Kubectl
from tests.kubelets import MERGE, Kubelets
from tests.live import Service, node
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.db]

OBJECTS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: {own}}}
provisioner: stowage.dev/hollow
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data}}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: {own}
  resources: {{requests: {{storage: 1Gi}}}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: {own}}}
spec:
  selectors: [{{cel: {{expression: "device.driver == '{own}.example.com'"}}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: {own}}}
spec:
  driver: {own}.example.com
  nodeName: {own}
  pool: {{name: {own}, generation: 1, resourceSliceCount: 1}}
  devices: [{{name: gpu-0}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: gpu}}
spec:
  devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: {own}}}}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: user}}
spec:
  nodeSelector: {{own: {own}}}
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: example.com/main:1
    resources: {{claims: [{{name: gpu}}]}}
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}]
  resourceClaims: [{{name: gpu, resourceClaimName: gpu}}]
"""


@pytest.fixture
def own(kubectl: Kubectl, live: Service) -> Iterator[str]:
    name = kubectl.namespace
    status, answer = live.request("POST", "/api/v1/nodes", node(name, own=name))
    assert status == 201, answer
    yield name
    for kind in ("resourceslices", "deviceclasses", "storageclasses"):
        group = "storage.k8s.io" if kind == "storageclasses" else "resource.k8s.io"
        live.request("DELETE", f"/apis/{group}/v1/{kind}/{name}")


def field(kubectl: Kubectl, what: str, path: str) -> str:
    return kubectl.run("get", what, "-o", f"jsonpath={{{path}}}")


def going(kubectl: Kubectl, *arguments: str) -> "subprocess.Popen[str]":
    """Begin to delete something that is protected, and return kubectl, which waits for its end."""
    process = kubectl.start("delete", *arguments)
    what = arguments[0]
    until(lambda: field(kubectl, what, ".metadata.deletionTimestamp"), what=f"{what} to be going")
    assert process.poll() is None, "kubectl waits until it is gone"
    return process


def test_claims_volumes_and_devices_are_shown_waited_for_and_protected(
    kubectl: Kubectl, own: str
) -> None:
    kubectl.says("pod/user created", "apply", "-f", "-", stdin=OBJECTS.format(own=own))
    kubectl.says(
        "condition met", "wait", "--for=condition=PodScheduled", "pod/user", "--timeout=30s"
    )
    volume = field(kubectl, "pvc/data", ".spec.volumeName")
    assert volume.startswith("pvc-")

    kubectl.says(rf"^data +Bound +{volume} +1Gi +RWO +{own} ", "get", "pvc")
    kubectl.says(rf"^{volume} +1Gi +RWO +Delete +Bound +{own}/data +{own} ", "get", "pv")
    kubectl.says(rf"^{own} +stowage.dev/hollow +Delete +WaitForFirstConsumer +true ", "get", "sc")
    kubectl.says(r"^gpu +allocated,reserved ", "get", "resourceclaims")
    kubectl.says(rf"^{own} +{own} +{own}.example.com +{own} ", "get", "resourceslices")
    kubectl.says(rf"^{own} ", "get", "deviceclasses")
    kubectl.says(r"^Used By: +user$", "describe", "pvc", "data")
    kubectl.says(r"ProvisioningSucceeded", "describe", "pvc", "data")
    kubectl.says(rf"^Claim: +{own}/data$", "describe", "pv", volume)
    for kind, name in (("resourceclaims", "gpu"), ("resourceslices", own), ("deviceclasses", own)):
        kubectl.says(rf"^Name: +{name}$", "describe", kind, name)
    kubectl.says(r"claimName|ClaimName: +data", "describe", "pod", "user")

    kubectl.says("patched", "patch", "pvc", "data", "-p", json.dumps(
        {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    ))  # fmt: skip
    until(lambda: field(kubectl, "pvc/data", ".status.capacity.storage") == "2Gi", what="2Gi")

    of_claim = going(kubectl, "pvc/data")
    of_volume = going(kubectl, f"pv/{volume}")
    of_devices = going(kubectl, "resourceclaim/gpu")
    kubectl.says(r"^data +Terminating ", "get", "pvc")
    kubectl.says("deleted", "delete", "pod", "user")
    for process in (of_claim, of_volume, of_devices):
        printed, _ = process.communicate(timeout=30)
        assert process.returncode == 0, printed
    kubectl.says("No resources found", "get", "pvc")
    kubectl.says("No resources found", "get", "resourceclaims")
    kubectl.says("NotFound", "get", "pv", volume, fails=True)


def test_a_chart_with_claims_is_installed_and_waited_for(
    kubectl: Kubectl, own: str, live: Service
) -> None:
    """The requests of ``helm install --wait``: what it does not know it creates last."""
    space = f"namespaces/{own}"
    of_volumes, _, of_devices, slices, *_ = OBJECTS.format(own=own).split("---")
    kubectl.run("apply", "-f", "-", stdin="---".join([of_volumes, of_devices, slices]))
    labels = {"app.kubernetes.io/managed-by": "Helm", "app": "store"}
    notes = {"meta.helm.sh/release-name": "store", "meta.helm.sh/release-namespace": own}
    meta = {"name": "store", "labels": labels, "annotations": notes}
    container = {
        "name": "main", "image": "example.com/main:1", "resources": {"claims": [{"name": "gpu"}]},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }  # fmt: skip
    template = {
        "metadata": {"labels": {"app": "store"}},
        "spec": {
            "nodeSelector": {"own": own},
            "containers": [container],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "store"}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "store"}],
        },
    }
    size = {"requests": {"storage": "1Gi"}}
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": own, "resources": size}
    devices = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": own}}]}
    selector = {"matchLabels": {"app": "store"}}
    chart = [
        ("v1", "persistentvolumeclaims", "PersistentVolumeClaim", claim),
        ("apps/v1", "deployments", "Deployment", {"selector": selector, "template": template}),
        (
            "resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate",
            {"spec": {"devices": devices}},
        ),
    ]  # fmt: skip
    paths = [
        f"/{'api' if version == 'v1' else 'apis'}/{version}/{space}/{plural}"
        for version, plural, _, _ in chart
    ]
    assert [live.request("GET", f"{path}/store")[0] for path in paths] == [404] * 3
    release: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": {
            "name": "sh.helm.release.v1.store.v1",
            "labels": {"owner": "helm", "name": "store", "status": "pending-install"},
        },
        "stringData": {"release": "H4sI"},
    }  # fmt: skip
    assert live.request("POST", f"/api/v1/{space}/secrets", release)[0] == 201
    for path, (version, _, kind, spec) in zip(paths, chart, strict=True):
        manifest = {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
        status, answer = live.request("POST", f"{path}?fieldManager=helm", manifest)
        assert status == 201, answer

    def is_ready() -> bool:
        claim, deployment = (live.request("GET", f"{path}/store")[1] for path in paths[:2])
        sets = f"/apis/apps/v1/{space}/replicasets?labelSelector=app%3Dstore"
        items = live.request("GET", sets)[1]["items"]
        found = [one["status"].get("readyReplicas", 0) for one in items]
        seen = deployment["status"].get("observedGeneration", 0)
        current = seen >= deployment["metadata"]["generation"]
        return current and claim["status"]["phase"] == "Bound" and found == [1]

    with Kubelets(live, own, [], own) as kubelets:
        kubelets.nodes.append(own)  # it is there already
        until(is_ready, what="the chart to be ready")
    change = {"metadata": {"labels": {"status": "deployed"}}}
    path = f"/api/v1/{space}/secrets/{release['metadata']['name']}"
    assert live.request("PATCH", path, change, content_type=MERGE)[0] == 200

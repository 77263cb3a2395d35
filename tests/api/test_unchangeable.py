"""What of an object cannot be changed once it is there: of every kind, as in Kubernetes.

Each patch is sent to the small object of ``tests.api.bodies``. Rules: the ``Validate...Update``
functions of pkg/apis/*/validation and pkg/registry/*/strategy.go, v1.36.
"""

from typing import Any

import pytest

from clusterstate.objects.registry.kinds import KINDS
from tests.api.bodies import body_of, collection, named
from tests.api.conftest import Api

OTHER = {"matchLabels": {"a": None, "z": "z"}}
ELSEWHERE = {"selector": OTHER, "template": {"metadata": {"labels": {"a": None, "z": "z"}}}}
TERM = {"matchExpressions": [{"key": "other", "operator": "Exists"}]}
ANOTHER_NODE = {"required": {"nodeSelectorTerms": [TERM]}}
REQUEST = {"name": "q", "exactly": {"deviceClassName": "x"}}

FIXED = [
    ("CSIDriver", {"spec": {"attachRequired": True}}, "spec.attachRequired"),
    ("CSINode", {"spec": {"drivers": [{"name": "csi.example.org", "nodeID": "m"}]}},
     "spec.drivers"),
    ("CSIStorageCapacity", {"storageClassName": "slow"}, "storageClassName"),
    ("CSIStorageCapacity", {"nodeTopology": {"matchLabels": {"a": "c"}}}, "nodeTopology"),
    ("ClusterRoleBinding", {"roleRef": {"name": "other"}}, "roleRef"),
    ("RoleBinding", {"roleRef": {"name": "other"}}, "roleRef"),
    ("ControllerRevision", {"data": {"spec": {"a": [2]}}}, "data"),
    ("DaemonSet", {"spec": ELSEWHERE}, "spec.selector"),
    ("Deployment", {"spec": ELSEWHERE}, "spec.selector"),
    ("ReplicaSet", {"spec": ELSEWHERE}, "spec.selector"),
    ("StatefulSet", {"spec": {"serviceName": "other"}}, "spec"),
    ("StatefulSet", {"spec": {"podManagementPolicy": "Parallel"}}, "spec"),
    ("EndpointSlice", {"addressType": "FQDN", "endpoints": []}, "addressType"),
    ("IPAddress", {"spec": {"parentRef": {"name": "other"}}}, "spec.parentRef"),
    ("IngressClass", {"spec": {"controller": "example.org/other"}}, "spec.controller"),
    ("Job", {"spec": {"completionMode": "Indexed", "completions": 1}}, "spec.completionMode"),
    ("Job", {"spec": {"managedBy": "example.org/jobs"}}, "spec.managedBy"),
    ("PersistentVolume", {"spec": {"volumeMode": "Block"}}, "volumeMode"),
    ("PersistentVolumeClaim", {"spec": {"accessModes": ["ReadOnlyMany"]}}, "spec"),
    ("PersistentVolumeClaim", {"spec": {"volumeMode": "Block"}}, "spec"),
    ("Pod", {"spec": {"nodeSelector": {"a": "b"}}}, "spec"),
    ("Pod", {"spec": {"terminationGracePeriodSeconds": 1}}, "spec"),
    ("PodGroup", {"spec": {"disruptionMode": {"single": None, "all": {}}}}, "spec.disruptionMode"),
    ("PodGroup", {"spec": {"schedulingPolicy": {"gang": None, "basic": {}}}},
     "spec.schedulingPolicy.basic"),
    ("PodGroup", {"spec": {"priorityClassName": "other"}}, "spec.priorityClassName"),
    ("PriorityClass", {"value": 8}, "value"),
    ("PriorityClass", {"preemptionPolicy": "Never"}, "preemptionPolicy"),
    ("ResourceClaim", {"spec": {"devices": {"requests": [REQUEST]}}}, "spec"),
    ("ResourceClaimTemplate", {"spec": {"spec": {"devices": {"requests": [REQUEST]}}}}, "spec"),
    ("ResourceQuota", {"spec": {"scopes": ["BestEffort"]}}, "spec.scopes"),
    ("ResourceSlice", {"spec": {"driver": "other.example.org"}}, "spec.driver"),
    ("RuntimeClass", {"handler": "other"}, "handler"),
    ("Secret", {"type": "example.org/other"}, "type"),
    ("Service", {"spec": {"clusterIP": "10.96.9.9", "clusterIPs": ["10.96.9.9"]}},
     "spec.clusterIPs[0]"),
    ("ServiceCIDR", {"spec": {"cidrs": ["198.51.100.0/24"]}}, "spec.cidrs"),
    ("StorageClass", {"provisioner": "example.org/other"}, "provisioner"),
    ("StorageClass", {"parameters": {"a": "b"}}, "parameters"),
    ("StorageClass", {"reclaimPolicy": "Retain"}, "reclaimPolicy"),
    ("StorageClass", {"volumeBindingMode": "WaitForFirstConsumer"}, "volumeBindingMode"),
    ("VolumeAttachment", {"spec": {"nodeName": "other"}}, "spec"),
    ("VolumeAttributesClass", {"parameters": {"iops": "8"}}, "parameters"),
    ("VolumeAttributesClass", {"driverName": "csi.example.com"}, "driverName"),
    ("Workload", {"spec": {"controllerRef": {"kind": "Job", "name": "j"}}}, "spec.controllerRef"),
    ("Workload", {"spec": {"podGroupTemplates": [
        {"name": "other", "schedulingPolicy": {"basic": {}}}
    ]}}, "spec.podGroupTemplates[0]"),
]  # fmt: skip
FREE = {
    "ClusterRole", "ConfigMap", "CronJob", "DeviceClass", "DeviceTaintRule", "Endpoints", "Event",
    "FlowSchema",
    "HorizontalPodAutoscaler", "Ingress", "Lease", "LimitRange", "Namespace", "NetworkPolicy",
    "Node", "PodDisruptionBudget", "PodTemplate", "PriorityLevelConfiguration",
    "ReplicationController", "Role", "ServiceAccount",
}  # fmt: skip
"""Kinds of whose small object everything may change."""
IGNORED = {"CertificateSigningRequest"}
"""Kinds of which a change of the spec is dropped, as in Kubernetes."""


def test_every_kind_is_looked_at():
    assert {kind for kind, _, _ in FIXED} | FREE | IGNORED == {one.name for one in KINDS.values()}
    assert not {kind for kind, _, _ in FIXED} & (FREE | IGNORED)


@pytest.mark.parametrize(("kind", "patch", "field"), FIXED)
def test_what_cannot_be_changed_is_refused_and_named(api: Api, kind, patch, field) -> None:
    path = f"{collection(KINDS[kind])}/{named(KINDS[kind], 'e')}"
    before = api.post(collection(KINDS[kind]), body_of(KINDS[kind], "e")).ok(201)
    status = api.patch(path, patch).fails(422, "Invalid")
    assert field in [cause["field"] for cause in status["details"]["causes"]]
    after = api.get(path).ok()
    assert {**after, "metadata": {}, "status": {}} == {**before, "metadata": {}, "status": {}}


def test_a_certificate_request_keeps_its_spec(api: Api) -> None:
    kind = KINDS["CertificateSigningRequest"]
    made = api.post(collection(kind), body_of(kind, "e")).ok(201)
    changed = api.patch(f"{collection(kind)}/e", {"spec": {"usages": ["server auth"]}}).ok()
    assert changed["spec"] == made["spec"]


@pytest.mark.parametrize(
    ("kind", "more", "patch", "field"),
    [
        ("ConfigMap", {"immutable": True}, {"data": {"key": "other"}}, "data"),
        ("ConfigMap", {"immutable": True}, {"immutable": None}, "immutable"),
        ("Secret", {"immutable": True}, {"data": {"password": "bw=="}}, "data"),
        (
            "PersistentVolume",
            {
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "local": {"path": "/mnt"},
                    "nodeAffinity": {
                        "required": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
                            ]
                        }
                    },
                }
            },
            {"spec": {"nodeAffinity": ANOTHER_NODE}},
            "nodeAffinity",
        ),
    ],
)  # fmt: skip
def test_what_was_decided_once_stays(api: Api, kind, more, patch, field) -> None:
    path = collection(KINDS[kind])
    api.post(path, {**body_of(KINDS[kind], "e"), **more}).ok(201)
    status = api.patch(f"{path}/e", patch).fails(422, "Invalid")
    assert field in [cause["field"] for cause in status["details"]["causes"]]


def test_a_volume_may_name_a_label_as_it_is_called_today(api: Api) -> None:
    """Nothing else of its node affinity changes with that. Rule: ``validatePvNodeAffinity``."""
    former, today = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"

    def affinity(*terms: tuple[str, str]) -> dict[str, Any]:
        listed = [
            {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
            for key, value in terms
        ]
        return {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": listed}}}}

    volume = body_of(KINDS["PersistentVolume"], "e")
    volume["spec"] |= affinity((former, "a"), (former, "b"))["spec"]
    path = collection(KINDS["PersistentVolume"])
    api.post(path, volume).ok(201)
    for terms in (
        [(today, "a"), (today, "c")], [(today, "a")], [("other", "a"), (former, "b")],
        [("topology.kubernetes.io/region", "a"), (former, "b")],
    ):  # fmt: skip
        status = api.patch(f"{path}/e", affinity(*terms)).fails(422, "Invalid")
        assert "except for updating from beta label to GA" in status["message"]
    mixed = affinity((today, "a"), (former, "b"))
    assert (
        api.patch(f"{path}/e", mixed).ok()["spec"]["nodeAffinity"] == mixed["spec"]["nodeAffinity"]
    )
    api.patch(f"{path}/e", affinity((former, "a"), (former, "b"))).fails(422, "Invalid")
    api.patch(f"{path}/e", {"spec": {"nodeAffinity": None}}).fails(422, "Invalid")


def test_what_a_volume_may_become_is_stored_and_stays(api):
    classes = "/apis/storage.k8s.io/v1/volumeattributesclasses"
    body = {"metadata": {"name": "gold"}, "driverName": "csi.example.org", "parameters": {"a": "b"}}
    api.post(classes, body).ok(201)
    api.post(classes, {**body, "metadata": {"name": "x"}, "parameters": {}}).fails(422, "Invalid")
    api.patch(f"{classes}/gold", {"parameters": {"a": "c"}}).fails(422, "Invalid")
    api.patch(f"{classes}/gold", {"metadata": {"labels": {"a": "b"}}}).ok()

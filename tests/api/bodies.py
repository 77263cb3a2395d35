"""A small valid object of every kind, for the tests that go through all kinds."""

import base64
import copy
import ipaddress
import zlib
from typing import Any, Final

from clusterstate.objects.registry.kind import Kind
from tests.api.builders import node, pod

CORE: Final = "/api/v1"
RBAC: Final = "rbac.authorization.k8s.io"
"""Said, though it is the default: an apply compares the reference as a whole."""
TEMPLATE: Final = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "m", "image": "i"}]},
}
WORKLOAD: Final = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
ONCE: Final = {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}
CLAIM: Final = {
    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
}  # fmt: skip
DEVICES: Final = {  # with its defaults: an apply compares the list as a whole
    "devices": {
        "requests": [
            {
                "name": "r",
                "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
            }
        ]
    },
}  # fmt: skip

CERTIFICATE_REQUEST: Final = base64.b64encode(
    b"-----BEGIN CERTIFICATE REQUEST-----\nMA==\n-----END CERTIFICATE REQUEST-----\n"
).decode()

_BODIES: Final[dict[str, dict[str, Any]]] = {
    "CSIDriver": {"spec": {"attachRequired": False}},
    "CSINode": {"spec": {"drivers": [{"name": "csi.example.org", "nodeID": "n"}]}},
    "CSIStorageCapacity": {"storageClassName": "fast", "capacity": "1Gi"},
    "CertificateSigningRequest": {
        "spec": {
            "request": CERTIFICATE_REQUEST, "signerName": "example.org/signer",
            "usages": ["client auth"],
        }
    },
    "ClusterRoleBinding": {"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "r"}},
    "ConfigMap": {"data": {"key": "value"}, "binaryData": {"bytes": "AAEC"}},
    "ControllerRevision": {"revision": 1, "data": {"spec": {"a": [1, 2]}}},
    "CronJob": {"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": ONCE}}},
    "DaemonSet": {"spec": WORKLOAD},
    "Deployment": {"spec": WORKLOAD},
    "DeviceClass": {
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.org'"}}]}
    },
    "Endpoints": {
        "subsets": [
            {
                "addresses": [{"ip": "10.1.2.3"}],
                "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
            },
        ]
    },
    "EndpointSlice": {
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    },
    "Event": {
        "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p"}, "reason": "Because",
    },
    "HorizontalPodAutoscaler": {
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1, "maxReplicas": 5,
        }
    },
    "FlowSchema": {
        "spec": {
            "priorityLevelConfiguration": {"name": "global-default"},
            "rules": [
                {
                    "subjects": [{"kind": "User", "user": {"name": "ann"}}],
                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                }
            ],
        }
    },
    "Ingress": {
        "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}
    },
    "IPAddress": {"spec": {"parentRef": {"resource": "services", "name": "s"}}},
    "IngressClass": {"spec": {"controller": "example.org/ingress"}},
    "Job": {
        "spec": {
            "manualSelector": True, "selector": {"matchLabels": {"a": "b"}},
            "template": {**TEMPLATE, **ONCE["template"]},
        }
    },
    "LimitRange": {"spec": {"limits": [{"type": "Pod"}]}},
    "NetworkPolicy": {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}},
    "Node": node("new"),
    "PersistentVolume": {
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/data"},
        }
    },
    "PersistentVolumeClaim": {"spec": CLAIM},
    "Pod": pod("new"),
    "PodDisruptionBudget": {"spec": {"minAvailable": 1}},
    "PodGroup": {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}},
    "PodTemplate": {"template": TEMPLATE},
    "PriorityClass": {"value": 7},
    "ReplicaSet": {"spec": WORKLOAD},
    "ReplicationController": {"spec": {"selector": {"a": "b"}, "template": TEMPLATE}},
    "DeviceTaintRule": {
        "spec": {
            "deviceSelector": {"driver": "gpu.example.org"},
            "taint": {"key": "example.org/broken", "effect": "NoExecute"},
        }
    },
    "ResourceClaim": {"spec": DEVICES},
    "ResourceClaimTemplate": {"spec": {"spec": DEVICES}},
    "ResourceSlice": {
        "spec": {
            "driver": "gpu.example.org", "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        }
    },
    "RoleBinding": {"roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "r"}},
    "RuntimeClass": {"handler": "h"},
    "Secret": {"type": "Opaque", "data": {"password": "c2VjcmV0"}},
    "PriorityLevelConfiguration": {
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    },
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "ServiceAccount": {},
    "StatefulSet": {"spec": {**WORKLOAD, "serviceName": "s"}},
    "ServiceCIDR": {"spec": {"cidrs": ["203.0.113.0/24"]}},
    "StorageClass": {"provisioner": "example.org/disks"},
    "VolumeAttachment": {
        "spec": {
            "attacher": "csi.example.org", "nodeName": "n",
            "source": {"persistentVolumeName": "v"},
        }
    },
    "VolumeAttributesClass": {"driverName": "csi.example.org", "parameters": {"iops": "9"}},
    "Workload": {
        "spec": {
            "podGroupTemplates": [{"name": "all", "schedulingPolicy": {"gang": {"minCount": 2}}}]
        }
    },
}  # fmt: skip
_CONDITIONS: Final = {"conditions": [{"type": "X", "status": "True"}]}
_STATUSES: Final[dict[str, dict[str, Any]]] = {
    "CertificateSigningRequest": {
        "conditions": [
            {
                "type": "X",
                "status": "True",
                "lastUpdateTime": "2026-01-01T00:00:00Z",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
    },
    "CronJob": {"lastScheduleTime": "2026-01-01T00:00:00Z"},
    "Ingress": {"loadBalancer": {"ingress": [{"ip": "10.1.2.3"}]}},
    "DeviceTaintRule": {
        "conditions": [
            {
                "type": "EvictionInProgress",
                "status": "True",
                "reason": "PodsPending",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
    },
    "PodDisruptionBudget": {
        "conditions": [
            {
                "type": "X",
                "status": "True",
                "reason": "R",
                "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }
        ]
    },
    "Namespace": {"phase": "Active", **_CONDITIONS},
    "PersistentVolume": {"phase": "Available", "message": "seen"},
    "PodGroup": {
        "conditions": [
            {
                "type": "PodGroupInitiallyScheduled",
                "status": "True",
                "reason": "Scheduled",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
    },
    "ResourceClaim": {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "r", "driver": "gpu.example.org", "pool": "n", "device": "gpu-0"}
                ]
            }
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    },
    "ResourceQuota": {"hard": {"cpu": "1"}},
    "VolumeAttachment": {"attached": True},
}


def named(kind: Kind, word: str) -> str:
    """Return a name for an object of a kind: the word, or where names are addresses, one of these.

    The same word always gives the same name.
    """
    if kind.name != "IPAddress":
        return word
    return str(ipaddress.IPv6Address((0x20010DB8 << 96) + zlib.crc32(word.encode())))


def body_of(kind: Kind, name: str) -> dict[str, Any]:
    """Return an object of a kind, called ``named(kind, name)``, in the namespace ``ns`` if any."""
    given = copy.deepcopy(_BODIES.get(kind.name, {}))
    metadata = {**given.get("metadata", {}), "name": named(kind, name)}
    if kind.namespaced:
        metadata["namespace"] = "ns"
    return {**given, "apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}


def status_of(kind: Kind) -> dict[str, Any]:
    """Return a status that an agent or a controller may write."""
    return copy.deepcopy(_STATUSES.get(kind.name, _CONDITIONS))


def collection(kind: Kind) -> str:
    """Return the path of a kind's objects, in the namespace ``ns``."""
    root = f"/apis/{kind.api_version}" if kind.group else CORE
    return f"{root}/namespaces/ns/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"

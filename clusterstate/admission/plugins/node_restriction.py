"""NodeRestriction: a node's own credential may change that node and its pods only (R59, R77, C10).

A node authenticates as ``system:node:NAME`` in the group ``system:nodes``. Without this rule a
compromised node could label itself so that sensitive pods are placed on it.
Rule: plugin/pkg/admission/noderestriction/admission.go, v1.36; the labels that a node may set
itself: kubelet/pkg/apis/well_known_labels.go.
"""

from collections.abc import Iterator
from typing import Any

from clusterstate.admission.request import CREATE, DELETE, UPDATE, Request, User
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import MIRROR_POD

USER_PREFIX = "system:node:"
GROUP = "system:nodes"
LEASE_NAMESPACE = "kube-node-lease"
RESTRICTED = "node-restriction.kubernetes.io"

KUBELET_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    }
)
KUBELET_LABEL_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")


def node_of(user: User) -> str | None:
    """Return the node's name if ``user`` is a node (maybe empty), else ``None``."""
    if GROUP in user.groups and user.name.startswith(USER_PREFIX):
        return user.name.removeprefix(USER_PREFIX)
    return None


def admit(request: Request) -> None:
    """Refuse writes that a node may not make; requests of other users pass.

    Raises:
        Forbidden: with the reason.
        NotFound: the pod to delete or evict does not exist.
    """
    user = request.user
    if not user.groups or GROUP not in user.groups:
        return
    node = node_of(user)
    if node is None:
        return
    if not node:
        raise request.forbidden(f'could not determine node from user "{user.name}"')
    if request.kind == "Pod":
        if not request.subresource:
            _pod(request, node)
        elif request.subresource == "status":
            _pod_status(request, node)
        elif request.subresource == "eviction":
            _pod_eviction(request, node)
        else:
            raise request.forbidden(
                f'unexpected pod subresource "{request.subresource}", '
                "only 'status' and 'eviction' are allowed"
            )
    elif request.kind == "Node":
        _node(request, node)
    elif request.kind == "Lease":
        _lease(request, node)
    elif request.kind == "CSINode":
        _csi_node(request, node)
    elif request.kind == "ResourceSlice":
        _resource_slice(request, node)
    elif request.kind == "PersistentVolumeClaim":
        _claim(request, node)


OTHER_KINDS = frozenset({"CSINode", "Lease", "PersistentVolumeClaim", "ResourceSlice"})
"""The kinds besides pods and nodes of which agents of nodes write only some objects."""


def _pod(request: Request, node: str) -> None:
    if request.operation == CREATE:
        _pod_create(request, node)
    elif request.operation == DELETE:
        if _bound_to(_existing_pod(request)) != node:
            raise request.forbidden(
                f'node "{node}" can only delete pods with spec.nodeName set to itself'
            )
    else:
        raise request.forbidden(
            f'unexpected operation "{request.operation}", '
            f'node "{node}" can only create and delete mirror pods'
        )


def _pod_create(request: Request, node: str) -> None:
    meta = request.manifest.get("metadata") or {}
    spec = request.manifest.get("spec") or {}
    if MIRROR_POD not in (meta.get("annotations") or {}):
        raise request.forbidden(
            f'pod does not have "{MIRROR_POD}" annotation, '
            f'node "{node}" can only create mirror pods'
        )
    if spec.get("nodeName", "") != node:
        raise request.forbidden(
            f'node "{node}" can only create pods with spec.nodeName set to itself'
        )
    _owner(request, node, meta.get("ownerReferences") or [])
    _refuse_references(request, node, spec)


def _refuse_references(request: Request, node: str, spec: Manifest) -> None:
    try:
        resource = api_object_reference(spec)
    except ValueError as error:
        raise request.forbidden(f"error checking mirror pod for API references: {error}") from error
    if resource is not None:
        raise request.forbidden(f'node "{node}" can not create pods that reference {resource}')


def _owner(request: Request, node: str, owners: list[Manifest]) -> None:
    if len(owners) > 1:
        raise request.forbidden(
            f'node "{node}" can only create pods with a single owner reference set to itself'
        )
    own = f'node "{node}" can only create pods with an owner reference set to itself'
    if not owners:
        raise request.forbidden(own)
    owner = owners[0]
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
        raise request.forbidden(own)
    if not owner.get("controller"):
        raise request.forbidden(
            f'node "{node}" can only create pods with a controller owner reference set to itself'
        )
    if owner.get("blockOwnerDeletion"):
        raise request.forbidden(
            f'node "{node}" must not set blockOwnerDeletion on an owner reference'
        )
    stored = request.context.node(node)
    if stored is None:
        raise NotFound(f'node "{node}" not found', {"name": node, "kind": "node"})
    uid = (stored.get("metadata") or {}).get("uid", "")
    if owner.get("uid", "") != uid:
        raise request.forbidden(
            f"node {node} UID mismatch: expected {owner.get('uid', '')} got {uid}"
        )


def _pod_status(request: Request, node: str) -> None:
    if request.operation != UPDATE:
        raise request.forbidden(f'unexpected operation "{request.operation}"')
    old = request.old or {}
    if _bound_to(old) != node:
        raise request.forbidden(
            f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
        )
    old_labels = (old.get("metadata") or {}).get("labels") or {}
    new_labels = (request.manifest.get("metadata") or {}).get("labels") or {}
    if old_labels != new_labels:
        raise request.forbidden(f'node "{node}" cannot update labels through pod status')
    old_claims = (old.get("status") or {}).get("resourceClaimStatuses") or []
    new_claims = (request.manifest.get("status") or {}).get("resourceClaimStatuses") or []
    if old_claims != new_claims:
        raise request.forbidden(f'node "{node}" cannot update resource claim statues')
    field = "extendedResourceClaimStatus"
    if (old.get("status") or {}).get(field) != (request.manifest.get("status") or {}).get(field):
        raise request.forbidden(f'node "{node}" cannot update extended resource claim status')


def _pod_eviction(request: Request, node: str) -> None:
    if request.operation != CREATE:
        raise request.forbidden(f"unexpected operation {request.operation}")
    if not request.name:
        meta = request.manifest.get("metadata") or {}
        if not meta.get("name"):
            raise request.forbidden("could not determine pod from request data")
        request.name = meta["name"]
    if _bound_to(_existing_pod(request)) != node:
        raise request.forbidden(f"node {node} can only evict pods with spec.nodeName set to itself")


def _existing_pod(request: Request) -> Manifest:
    pod = request.context.pod(request.namespace, request.name)
    if pod is None:
        raise NotFound(f'pod "{request.name}" not found', {"name": request.name, "kind": "pod"})
    return pod


def _bound_to(pod: Manifest) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _node(request: Request, node: str) -> None:
    if request.name != node:
        raise request.forbidden(f'node "{node}" is not allowed to modify node "{request.name}"')
    spec = request.manifest.get("spec") or {}
    meta = request.manifest.get("metadata") or {}
    labels = meta.get("labels") or {}
    if request.operation == CREATE:
        if "configSource" in spec:
            raise request.forbidden(
                f'node "{node}" is not allowed to create pods with a non-nil configSource'
            )
        forbidden = forbidden_labels(labels, {})
        if forbidden:
            raise request.forbidden(
                f'node "{node}" is not allowed to set the following labels: {", ".join(forbidden)}'
            )
    elif request.operation == UPDATE:
        old = request.old or {}
        old_spec = old.get("spec") or {}
        old_meta = old.get("metadata") or {}
        if "configSource" in spec and spec["configSource"] != old_spec.get("configSource"):
            raise request.forbidden(
                f'node "{node}" is not allowed to update configSource to a new non-nil configSource'
            )
        if (spec.get("taints") or []) != (old_spec.get("taints") or []):
            raise request.forbidden(f'node "{node}" is not allowed to modify taints')
        forbidden = forbidden_labels(labels, old_meta.get("labels") or {})
        if forbidden:
            raise request.forbidden(f"is not allowed to modify labels: {', '.join(forbidden)}")
        if (meta.get("ownerReferences") or []) != (old_meta.get("ownerReferences") or []):
            raise request.forbidden(f'node "{node}" is not allowed to modify ownerReferences')


def forbidden_labels(new: dict[str, str], old: dict[str, str]) -> list[str]:
    """Return the changed label keys that a node may not set on itself, sorted."""
    changed = {key for key in new.keys() | old.keys() if new.get(key) != old.get(key)}
    return sorted(key for key in changed if _is_forbidden(key))


def _is_forbidden(key: str) -> bool:
    namespace, slash, _ = key.partition("/")
    if not slash:
        return False
    if _within(namespace, RESTRICTED):
        return True
    if not (_within(namespace, "kubernetes.io") or _within(namespace, "k8s.io")):
        return False
    return key not in KUBELET_LABELS and not any(
        _within(namespace, allowed) for allowed in KUBELET_LABEL_NAMESPACES
    )


def _within(namespace: str, domain: str) -> bool:
    return namespace == domain or namespace.endswith("." + domain)


def _lease(request: Request, node: str) -> None:
    if request.namespace != LEASE_NAMESPACE:
        raise request.forbidden(
            f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
        )
    if _written_name(request) != node:
        raise request.forbidden(
            "can only access node lease with the same name as the requesting node"
        )


def _written_name(request: Request) -> str:
    """Return the name that the object has or is to have."""
    if request.operation == CREATE:
        return str((request.manifest.get("metadata") or {}).get("name") or "")
    return request.name


def _csi_node(request: Request, node: str) -> None:
    if _written_name(request) != node:
        raise request.forbidden("can only access CSINode with the same name as the requesting node")


def _resource_slice(request: Request, node: str) -> None:
    # The authorizer decides which existing object may be read and changed. It knows neither an
    # object # that is to be created nor each object that a deletion of a collection deletes.
    subject = {CREATE: request.manifest, DELETE: request.old}.get(request.operation)
    if subject is None or (subject.get("spec") or {}).get("nodeName") == node:
        return
    raise request.forbidden(
        f"can only {request.operation.lower()} ResourceSlice with the same NodeName"
        " as the requesting node"
    )


_OF_CLAIM_STATUS = ("capacity", "conditions", "allocatedResourceStatuses", "allocatedResources")
_OF_EVERY_WRITE = ("resourceVersion", "managedFields")


def _claim(request: Request, node: str) -> None:
    if request.subresource != "status":
        raise request.forbidden("may only update PVC status")
    if request.operation != UPDATE:
        raise request.forbidden(f'unexpected operation "{request.operation}"')
    if _rest_of_claim(request.manifest) != _rest_of_claim(request.old or {}):
        raise request.forbidden(
            f'node "{node}" is not allowed to update fields other than status.quantity and'
            " status.conditions"
        )


def _rest_of_claim(claim: Manifest) -> Manifest:
    """Return the parts of a claim that a node's agent may not change."""
    meta, status = claim.get("metadata") or {}, claim.get("status") or {}
    return {
        "metadata": {name: value for name, value in meta.items() if name not in _OF_EVERY_WRITE},
        "spec": claim.get("spec") or {},
        "status": {name: value for name, value in status.items() if name not in _OF_CLAIM_STATUS},
    }


def admit_token(request: Request) -> None:
    """Refuse a token that a node's agent requests for anything but a pod of its own.

    ``request`` names the ServiceAccount; its manifest is the TokenRequest.

    Raises:
        Forbidden: with the reason.
        NotFound: the pod does not exist.
    """
    node = node_of(request.user)
    if node is None:
        return
    bound = (request.manifest.get("spec") or {}).get("boundObjectRef") or {}
    if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not bound.get("name"):
        raise request.forbidden("node requested token not bound to a pod")
    if not bound.get("uid"):
        raise request.forbidden("node requested token with a pod binding without a uid")
    pod = request.context.pod(request.namespace, bound["name"])
    if pod is None:
        raise NotFound(f'pod "{bound["name"]}" not found', {"name": bound["name"], "kind": "pod"})
    if bound["uid"] != pod["metadata"].get("uid"):
        raise request.forbidden(
            f"the UID in the bound object reference ({bound['uid']}) does not match the UID in"
            " record. The object might have been deleted and then recreated"
        )
    if _bound_to(pod) != node:
        raise request.forbidden("node requested token bound to a pod scheduled on a different node")


_OF_NO_OBJECT = frozenset(
    {
        "awsElasticBlockStore",
        "azureDisk",
        "cephfs",
        "cinder",
        "downwardAPI",
        "emptyDir",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "hostPath",
        "image",
        "iscsi",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    }
)
_OF_AN_OBJECT = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_PROJECTED = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


def api_object_reference(spec: Manifest) -> str | None:
    """Return the first kind of object that a pod needs from the API, ``None`` if it needs none.

    Rule: pkg/api/pod/util.go HasAPIObjectReference.

    Raises:
        ValueError: a volume of an unknown kind.
    """
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if any(_secret_names(spec)):
        return "secrets"
    if any(_config_map_names(spec)):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in spec.get("volumes") or ():
        resource = _volume_reference(volume)
        if resource is not None:
            return resource
    return None


def _volume_reference(volume: Manifest) -> str | None:
    name = volume.get("name") or ""
    sources = [kind for kind in volume if kind != "name" and volume[kind] is not None]
    if not _OF_NO_OBJECT.isdisjoint(sources):
        return None
    for kind, resource in _OF_AN_OBJECT.items():
        if kind in sources:
            return resource
    if "projected" not in sources:
        raise ValueError(f'unknown volume type for volume  "{name}"')
    for source in volume["projected"].get("sources") or ():
        for kind, resource in _PROJECTED.items():
            if source.get(kind) is not None:
                return resource
        if source.get("downwardAPI") is None:
            raise ValueError(f'unknown source for projected volume "{name}"')
    return None


def _containers(spec: Manifest) -> Iterator[Manifest]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(field) or ()


_VOLUME_SECRETS = (
    ("azureFile", "secretName"),
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("flexVolume", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("secret", "secretName"),
    ("iscsi", "secretRef"),
    ("storageos", "secretRef"),
    ("csi", "nodePublishSecretRef"),
)


def _secret_names(spec: Manifest) -> Iterator[Any]:
    """Yield a true value per reference to a Secret (api/pod/util.go VisitPodSecretNames)."""
    for _ in spec.get("imagePullSecrets") or ():
        yield True
    for container in _containers(spec):
        for source in container.get("envFrom") or ():
            yield "secretRef" in source
        for variable in container.get("env") or ():
            yield "secretKeyRef" in (variable.get("valueFrom") or {})
    for volume in spec.get("volumes") or ():
        for kind, field in _VOLUME_SECRETS:
            yield (volume.get(kind) or {}).get(field)
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield "secret" in source


def _config_map_names(spec: Manifest) -> Iterator[Any]:
    for container in _containers(spec):
        for source in container.get("envFrom") or ():
            yield "configMapRef" in source
        for variable in container.get("env") or ():
            yield "configMapKeyRef" in (variable.get("valueFrom") or {})
    for volume in spec.get("volumes") or ():
        yield "configMap" in volume
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield "configMap" in source

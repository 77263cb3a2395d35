"""Which objects a pod and a volume name, so that the agent of the pod's node may read them.

Rule: pkg/api/pod/util.go, ``VisitPodSecretNames`` and ``VisitPodConfigmapNames``; pkg/api/v1/
persistentvolume/util.go, ``VisitPVSecretNames``; plugin/pkg/auth/authorizer/node/graph.go,
``AddPod`` and ``AddPV``, v1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import MIRROR_POD

_OF_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_WITH_SECRET_REF: Final = (
    "cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos",
)  # fmt: skip
_CSI_SECRETS: Final = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")
"""The Secrets that a driver is given on the node; the others are for its controller."""


def names(pod: Manifest, resource: str) -> set[str]:
    """Return the names of objects of a resource that a pod refers to.

    ``resource`` is secrets, configmaps, persistentvolumeclaims, resourceclaims or serviceaccounts;
    of any other there are none. Of a mirror pod there are none: an agent makes those pods, and
    would choose what it may read.
    """
    if MIRROR_POD in (pod["metadata"].get("annotations") or {}):
        return set()
    spec = pod.get("spec") or {}
    found: Iterator[Any]
    if resource == "secrets":
        found = _secrets(spec)
    elif resource == "configmaps":
        found = _config_maps(spec)
    elif resource == "persistentvolumeclaims":
        found = _claims(spec, pod["metadata"]["name"])
    elif resource == "resourceclaims":
        found = _device_claims(spec, pod.get("status") or {})
    elif resource == "serviceaccounts":
        found = iter((spec.get("serviceAccountName"),))
    else:
        return set()
    return {name for name in found if name}


def secrets_of_volume(volume: Manifest) -> set[tuple[str, str]]:
    """Return namespace and name of each Secret that a PersistentVolume names for its node's agent.

    A reference without a namespace is to a Secret beside the claim that the volume is bound to.
    """
    spec = volume.get("spec") or {}
    beside = (spec.get("claimRef") or {}).get("namespace") or ""
    found: list[tuple[str, str]] = []
    if file := spec.get("azureFile"):
        found.append((file.get("secretNamespace") or beside, file.get("secretName") or ""))
    references = [(spec.get(kind) or {}).get("secretRef") for kind in _WITH_SECRET_REF]
    references += [(spec.get("csi") or {}).get(field) for field in _CSI_SECRETS]
    found += [(one.get("namespace") or beside, one.get("name") or "") for one in references if one]
    return {(namespace, name) for namespace, name in found if name}


def _device_claims(spec: Manifest, status: Manifest) -> Iterator[Any]:
    claim_statuses = {one.get("name"): one for one in status.get("resourceClaimStatuses") or ()}
    for one in spec.get("resourceClaims") or ():
        yield one.get("resourceClaimName")
        if one.get("resourceClaimTemplateName"):
            yield claim_statuses.get(one.get("name"), {}).get("resourceClaimName")
    yield (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")


def _environment(spec: Manifest, of_all: str, of_one: str) -> Iterator[Any]:
    for field in _OF_CONTAINERS:
        for container in spec.get(field) or ():
            for one in container.get("envFrom") or ():
                yield (one.get(of_all) or {}).get("name")
            for one in container.get("env") or ():
                yield ((one.get("valueFrom") or {}).get(of_one) or {}).get("name")


def _projected(spec: Manifest, name: str) -> Iterator[Any]:
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield (source.get(name) or {}).get("name")


def _secrets(spec: Manifest) -> Iterator[Any]:
    for one in spec.get("imagePullSecrets") or ():
        yield one.get("name")
    yield from _environment(spec, "secretRef", "secretKeyRef")
    yield from _projected(spec, "secret")
    for volume in spec.get("volumes") or ():
        yield (volume.get("secret") or {}).get("secretName")
        yield (volume.get("azureFile") or {}).get("secretName")
        yield ((volume.get("csi") or {}).get("nodePublishSecretRef") or {}).get("name")
        for kind in _WITH_SECRET_REF:
            yield ((volume.get(kind) or {}).get("secretRef") or {}).get("name")


def _config_maps(spec: Manifest) -> Iterator[Any]:
    yield from _environment(spec, "configMapRef", "configMapKeyRef")
    yield from _projected(spec, "configMap")
    for volume in spec.get("volumes") or ():
        yield (volume.get("configMap") or {}).get("name")


def _claims(spec: Manifest, pod: str) -> Iterator[Any]:
    for volume in spec.get("volumes") or ():
        yield (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if volume.get("ephemeral"):
            yield f"{pod}-{volume.get('name')}"

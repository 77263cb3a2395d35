"""Which Secrets, ConfigMaps and claims a pod's spec names, so that its node's agent may read them.

Rule: pkg/api/pod/util.go, ``VisitPodSecretNames`` and ``VisitPodConfigmapNames``; plugin/pkg/auth/
authorizer/node/graph.go, ``AddPod``, v1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

from clusterstate.objects.meta import Manifest
from clusterstate.objects.pod import MIRROR_POD

RESOURCES: Final = ("secrets", "configmaps", "persistentvolumeclaims")
_OF_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_WITH_SECRET_REF: Final = (
    "cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos",
)  # fmt: skip


def names(pod: Manifest, resource: str) -> set[str]:
    """Return the names of objects of one of ``RESOURCES`` that a pod refers to.

    None of a mirror pod: an agent makes those, and would choose what it may read.
    """
    if MIRROR_POD in (pod["metadata"].get("annotations") or {}):
        return set()
    spec = pod.get("spec") or {}
    if resource == "secrets":
        found = _secrets(spec)
    elif resource == "configmaps":
        found = _config_maps(spec)
    else:
        found = _claims(spec, pod["metadata"]["name"])
    return {name for name in found if name}


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

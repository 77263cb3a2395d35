"""DefaultIngressClass and DefaultStorageClass: objects that name no class get the default one.

Rules: plugin/pkg/admission/network/defaultingressclass/admission.go and
plugin/pkg/admission/storage/storageclass/setdefault/admission.go, v1.36.
"""

from typing import Final

from clusterstate.admission.request import CREATE, Request
from clusterstate.objects.rules import default_classes
from clusterstate.objects.values.meta import Manifest

_CLASSES: Final = {
    "Ingress": ("IngressClass", "ingressClassName", "kubernetes.io/ingress.class"),
    "PersistentVolumeClaim": (
        "StorageClass", "storageClassName", "volume.beta.kubernetes.io/storage-class",
    ),
}  # fmt: skip
"""By kind: what its class is called, the field that names it, the annotation that once did."""
KINDS: Final = frozenset(_CLASSES)


def admit(request: Request) -> None:
    """Set the class of a new object without one. Queries once for such an object.

    An empty name counts as a class: such a claim is for volumes without a class.
    """
    if request.operation != CREATE:
        return
    kind, field, named_by = _CLASSES[request.kind]
    spec: Manifest = request.manifest.setdefault("spec", {})
    annotations = (request.manifest.get("metadata") or {}).get("annotations") or {}
    if spec.get(field) is not None or named_by in annotations:
        return
    if name := default_classes.choose(kind, request.context.classes(kind)):
        spec[field] = name

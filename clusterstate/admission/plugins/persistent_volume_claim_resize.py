"""PersistentVolumeClaimResize: a claim grows only if its class allows volume expansion.

Rule: plugin/pkg/admission/storage/persistentvolume/resize/admission.go, v1.36.
"""

from typing import Final

from clusterstate.admission.request import UPDATE, Request
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import Quantity

KIND: Final = "PersistentVolumeClaim"
_BY_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"


def validate(request: Request) -> None:
    """Refuse a larger request of a claim that cannot grow. Queries once for a larger request.

    Raises:
        Forbidden: the claim is not bound, or its class does not allow it.
    """
    if request.operation != UPDATE or request.subresource or request.old is None:
        return
    if _requested_storage(request.manifest).cmp(_requested_storage(request.old)) <= 0:
        return
    if (request.old.get("status") or {}).get("phase") != "Bound":
        raise request.forbidden("Only bound persistent volume claims can be expanded")
    name = _class_of(request.manifest)
    classes = request.context.classes("StorageClass") if name else ()
    if name == _class_of(request.old) and any(
        one["metadata"]["name"] == name and one.get("allowVolumeExpansion") for one in classes
    ):
        return
    raise request.forbidden(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions"
        " the pvc must support resize"
    )


def _requested_storage(claim: Manifest) -> Quantity:
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return Quantity.parse(requests.get("storage", "0"))


def _class_of(claim: Manifest) -> str:
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    spec: Manifest = claim.get("spec") or {}
    return str(annotations.get(_BY_ANNOTATION) or spec.get("storageClassName") or "")

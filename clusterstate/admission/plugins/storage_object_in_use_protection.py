"""StorageObjectInUseProtection: volumes and claims are not deleted while they are used.

A new object gets the finalizer of its kind; the garbage collector removes the finalizer when
nothing uses the object any more. Rule:
plugin/pkg/admission/storage/storageobjectinuseprotection/admission.go, v1.36.
"""

from typing import Final

from clusterstate.admission.request import CREATE, Request
from clusterstate.objects.rules.ownership import PROTECTIONS

KINDS: Final = frozenset(PROTECTIONS)


def admit(request: Request) -> None:
    """Append the finalizer of its kind to a new volume or claim, unless present."""
    if request.operation != CREATE:
        return
    metadata = request.manifest.setdefault("metadata", {})
    finalizers = metadata.get("finalizers") or []
    protection = PROTECTIONS[request.kind]
    if protection not in finalizers:
        metadata["finalizers"] = [*finalizers, protection]

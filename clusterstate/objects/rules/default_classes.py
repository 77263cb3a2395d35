"""Which IngressClasses and classes of volumes are marked as default, by annotation.

Rules: plugin/pkg/admission/network/defaultingressclass/admission.go,
plugin/pkg/admission/storage/storageclass/setdefault/admission.go and
pkg/apis/storage/util/helpers.go, v1.36.
"""

from collections.abc import Sequence
from typing import Final

from clusterstate.objects.values.meta import Manifest

_MARKS: Final = {
    "IngressClass": ("ingressclass.kubernetes.io/is-default-class",),
    "StorageClass": (
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ),
    "VolumeAttributesClass": (
        "volumeattributesclass.alpha.kubernetes.io/is-default-class",
        "volumeattributesclass.beta.kubernetes.io/is-default-class",
    ),
}


def is_default(kind: str, manifest: Manifest) -> bool:
    """Return whether a class of ``kind`` is marked as default: an annotation has the value true."""
    annotations = manifest["metadata"].get("annotations") or {}
    return any(annotations.get(mark) == "true" for mark in _MARKS[kind])


def choose(kind: str, classes: Sequence[Manifest]) -> str:
    """Return the name of the default class, empty where none is marked.

    Of several the newest counts, of equally old ones the first by name.
    """
    found = [one["metadata"] for one in classes if is_default(kind, one)]
    newest = max((one.get("creationTimestamp") or "" for one in found), default="")
    return min(
        (one["name"] for one in found if (one.get("creationTimestamp") or "") == newest), default=""
    )

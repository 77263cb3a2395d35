"""Area storagevalidation: storage.k8s.io, every field error word for word."""

from clusterstate.admission.validation.core import formats, storage
from clusterstate.admission.validation.core.metadata import (
    validate_object_meta,
    validate_object_meta_update,
)
from tests.conformance.cluster_cases import Case

_CHECKED_ANEW = frozenset({"CSINode", "VolumeAttachment", "VolumeAttributesClass"})
"""Kinds of which Kubernetes checks a change as if the object were new."""

_WITHOUT_OLD_METADATA = frozenset({"CSINode", "VolumeAttachment"})


UNREAD = {"gates.VolumeLimitScaling"}
"""Nothing that it brings is refused."""


def check(case: Case) -> str | None:
    """Return what differs, None if nothing does."""
    new, old = case["object"], case.get("oldObject")
    kind = case["fn"].removeprefix("Validate").removesuffix("Update")
    if kind == "CSINode":
        mutable = case["gates"].get("MutableCSINodeAllocatableCount", True)
        found = storage.csi_node_errors(new, old, counts_change=mutable)
    else:
        found = storage.RULES[kind](new, old)
    meta = new.get("metadata") or {}
    if old is None or kind in _CHECKED_ANEW:
        found += validate_object_meta(
            meta, namespaced=kind == "CSIStorageCapacity", name=formats.dns_subdomain
        )
    if old is not None and kind not in _WITHOUT_OLD_METADATA:
        found += validate_object_meta_update(meta, old.get("metadata") or {})
    told = sorted((e.field, e.type, e.detail) for e in found)
    wanted = sorted(
        # Until v1.37 Kubernetes calls spec.attachRequired by another name.
        (e["field"].replace("attachedR", "attachR"), e["type"], e.get("detail") or "")
        for e in case["errors"]
    )
    if told == wanted:
        return None
    missing = [one for one in wanted if one not in told]
    return f"missing {missing}, extra {[one for one in told if one not in wanted]}"

"""Namespaces: create, update, status, finalize.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    each,
    invalid,
    invalid_each,
)
from clusterstate.admission.validation.core.metadata import (
    validate_object_meta,
    validate_object_meta_update,
)
from clusterstate.objects.values.meta import Manifest


def validate(new: Manifest, old: Manifest | None, subresource: str) -> Errors:
    """Return the errors in a new namespace, or in a change of ``old``."""
    if old is None:
        return validate_namespace(new)
    errors = validate_object_meta_update(new.get("metadata") or {}, old.get("metadata") or {})
    if subresource == "finalize":
        errors += each((new.get("spec") or {}).get("finalizers"), "spec.finalizers", _finalizer)
    elif subresource == "status":
        errors += _phase(new)
    return errors


def validate_namespace(namespace: Manifest) -> Errors:
    """Return the errors in a new namespace."""
    meta = namespace.get("metadata") or {}
    errors = validate_object_meta(meta, namespaced=False, name=formats.dns_label)
    for name in (namespace.get("spec") or {}).get("finalizers") or ():
        errors += _finalizer(name, "spec.finalizers")
    return errors


def _finalizer(name: str, path: str) -> Errors:
    errors = invalid_each(path, name, formats.qualified_name(name))
    if "/" not in name and name not in ("kubernetes", "orphan", "foregroundDeletion"):
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        errors.append(invalid(path, name, detail))
    return errors


def _phase(namespace: Manifest) -> Errors:
    phase = (namespace.get("status") or {}).get("phase") or ""
    if (namespace.get("metadata") or {}).get("deletionTimestamp") is None:
        if phase != "Active":
            detail = "may only be 'Active' if `deletionTimestamp` is empty"
            return [invalid("status.Phase", phase, detail)]
    elif phase != "Terminating":
        detail = "may only be 'Terminating' if `deletionTimestamp` is not empty"
        return [invalid("status.Phase", phase, detail)]
    return []

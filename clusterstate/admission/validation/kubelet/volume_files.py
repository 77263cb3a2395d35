"""Files in volumes: keys, paths, modes, downward API items.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

from typing import Final

from clusterstate.admission.validation.core.field import Errors, invalid, needs, required
from clusterstate.admission.validation.kubelet.environment import (
    VOLUME_FIELDS,
    validate_field_ref,
    validate_resource_field_ref,
)
from clusterstate.admission.validation.kubelet.mounts import validate_local_descending_path
from clusterstate.objects.values.meta import Manifest

_FILE_MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"


def validate_mode(source: Manifest, field: str, path: str) -> Errors:
    """Return the errors in a file mode, which may be absent."""
    mode = source.get(field)
    if mode is None or 0 <= mode <= 0o777:
        return []
    return [invalid(f"{path}.{field}", mode, _FILE_MODE)]


def validate_key_to_path(item: Manifest, path: str) -> Errors:
    """Return the errors in an item that writes a key's value to a path."""
    errors = needs("key", "path")(item, path)
    errors += validate_non_reserved_path(item.get("path") or "", f"{path}.path")
    return errors + validate_mode(item, "mode", path)


def validate_non_reserved_path(text: str, path: str) -> Errors:
    """Return the errors in a file's path relative to its volume."""
    errors = validate_local_descending_path(text, path)
    # A leading '..' is how the kubelet's atomic writer names its own entries.
    if text.startswith("..") and not text.startswith("../"):
        errors.append(invalid(path, text, "must not start with '..'"))
    return errors


def validate_downward_file(item: Manifest, path: str) -> Errors:
    """Return the errors in a file made from the pod's fields or resources."""
    errors = needs("path")(item, path)
    errors += validate_non_reserved_path(item.get("path") or "", f"{path}.path")
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        errors += validate_field_ref(field, VOLUME_FIELDS, f"{path}.fieldRef")
        if resource is not None:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.append(invalid(path, "resource", detail))
    elif resource is not None:
        errors += validate_resource_field_ref(resource, f"{path}.resourceFieldRef", volume=True)
    else:
        errors.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return errors + validate_mode(item, "mode", path)

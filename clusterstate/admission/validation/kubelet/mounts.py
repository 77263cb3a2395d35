"""Volume mounts and block devices of a container, and paths relative to a volume.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

from typing import Any

from clusterstate.admission.validation.core.field import (
    Errors,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
)
from clusterstate.admission.validation.core.pod_context import PodContext, Volumes
from clusterstate.objects.values.meta import Manifest


def validate_local_descending_path(text: str, path: str) -> Errors:
    """Return the errors in a relative path, which must not contain ``..``."""
    errors: Errors = []
    if text.startswith("/"):
        errors.append(invalid(path, text, "must be a relative path"))
    return errors + validate_no_backsteps(text, path)


def validate_no_backsteps(text: str, path: str) -> Errors:
    """Return the error of a path with a ``..`` element; only ``/`` separates, as on Linux."""
    if ".." in text.split("/"):
        return [invalid(path, text, "must not contain '..'")]
    return []


def validate_volume_mounts(
    mounts: list[Manifest],
    devices: list[Manifest],
    container: Manifest,
    path: str,
    pod: PodContext,
) -> Errors:
    """Return the errors in ``volumeMounts``, also together with the container's devices."""
    errors: Errors = []
    seen: set[str] = set()
    device_names = {device.get("name") or "" for device in devices}
    device_paths = {device.get("devicePath") or "" for device in devices}
    for index, mount in enumerate(mounts):
        where = f"{path}[{index}]"
        name = mount.get("name") or ""
        at = mount.get("mountPath") or ""
        if not name:
            errors.append(required(f"{where}.name"))
        if name not in pod.volumes:
            errors.append(not_found(f"{where}.name", name))
        if not at:
            errors.append(required(f"{where}.mountPath"))
        if at in seen:
            errors.append(invalid(f"{where}.mountPath", at, "must be unique"))
        seen.add(at)
        if name in device_names:
            detail = "must not already exist in volumeDevices"
            errors.append(invalid(f"{where}.name", name, detail))
        if at in device_paths:
            detail = "must not already exist as a path in volumeDevices"
            errors.append(invalid(f"{where}.mountPath", at, detail))
        sub_path, sub_path_expr = mount.get("subPath") or "", mount.get("subPathExpr") or ""
        if sub_path:
            errors += validate_local_descending_path(sub_path, f"{path}.subPath")
        if sub_path_expr:
            if sub_path:
                detail = "subPathExpr and subPath are mutually exclusive"
                errors.append(invalid(f"{where}.subPathExpr", sub_path_expr, detail))
            errors += validate_local_descending_path(sub_path_expr, f"{path}.subPathExpr")
        if (propagation := mount.get("mountPropagation")) is not None:
            errors += _mount_propagation(propagation, container, f"{path}.mountPropagation")
        errors += _recursive_read_only(mount, f"{path}.recursiveReadOnly")
    return errors


def _mount_propagation(mode: str, container: Manifest, path: str) -> Errors:
    supported = ("Bidirectional", "HostToContainer", "None")
    if mode not in supported:
        return [not_supported(path, mode, supported)]
    privileged = (container.get("securityContext") or {}).get("privileged")
    if mode == "Bidirectional" and not privileged:
        detail = "Bidirectional mount propagation is available only to privileged containers"
        return [forbidden(path, detail)]
    return []


def _recursive_read_only(mount: Manifest, path: str) -> Errors:
    mode = mount.get("recursiveReadOnly")
    if mode is None or mode == "Disabled":
        return []
    if mode not in ("Enabled", "IfPossible"):
        return [not_supported(path, mode, ("Disabled", "Enabled", "IfPossible"))]
    errors: Errors = []
    if not mount.get("readOnly"):
        errors.append(forbidden(path, "may only be specified when readOnly is true"))
    if mount.get("mountPropagation") not in (None, "None"):
        detail = "may only be specified when mountPropagation is None or not specified"
        errors.append(forbidden(path, detail))
    return errors


def validate_volume_devices(
    devices: list[Manifest], mounts: list[Manifest], path: str, volumes: Volumes
) -> Errors:
    """Return the errors in ``volumeDevices``, also together with the container's mounts."""
    errors: Errors = []
    names: set[str] = set()
    paths: set[str] = set()
    mount_names = {mount.get("name") or "" for mount in mounts}
    mount_paths = {mount.get("mountPath") or "" for mount in mounts}
    for index, device in enumerate(devices):
        where = f"{path}[{index}]"
        name, at = device.get("name") or "", device.get("devicePath") or ""
        if not name:
            errors.append(required(f"{where}.name"))
        if name in names:
            errors.append(invalid(f"{where}.name", name, "must be unique"))
        volume: dict[str, Any] | None = volumes.get(name)
        if volume is None:
            errors.append(not_found(f"{where}.name", name))
        elif "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
            detail = (
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block "
                "mode"
            )
            errors.append(invalid(f"{where}.name", name, detail))
        if not at:
            errors.append(required(f"{where}.devicePath"))
        if at in paths:
            errors.append(invalid(f"{where}.devicePath", at, "must be unique"))
        if at and ".." in at.split("/"):
            detail = "can not contain backsteps ('..')"
            errors.append(invalid(f"{where}.devicePath", at, detail))
        else:
            paths.add(at)
        if name in mount_names:
            detail = "must not already exist in volumeMounts"
            errors.append(invalid(f"{where}.name", name, detail))
        if at in mount_paths:
            detail = "must not already exist as a path in volumeMounts"
            errors.append(invalid(f"{where}.devicePath", at, detail))
        if name:
            names.add(name)
    return errors

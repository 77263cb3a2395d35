"""Volumes, claims, their classes, and what CSI drivers say of themselves.

A part of Kubernetes' rules: what keeps an object from being misunderstood. Rules:
pkg/apis/core/validation/validation.go (``ValidatePersistentVolume`` and ``...Claim``) and
pkg/apis/storage/validation/validation.go, v1.36.
"""

from collections.abc import Callable
from typing import Any, Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    one_of,
    required,
    too_long,
)
from clusterstate.admission.validation.core.metadata import (
    IMMUTABLE,
    validate_immutable,
    validate_label_selector,
)
from clusterstate.admission.validation.core.resources import parse
from clusterstate.admission.validation.core.scheduling import validate_node_selector
from clusterstate.objects.values.meta import Manifest

ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_RECLAIM: Final = ("Delete", "Recycle", "Retain")
_VOLUME_MODES: Final = ("Block", "Filesystem")
_BINDING_MODES: Final = ("Immediate", "WaitForFirstConsumer")
_FS_GROUP: Final = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLES: Final = ("Ephemeral", "Persistent")
_LONGEST_DRIVER: Final = 63
_NO_SOURCE: Final = frozenset(
    {
        "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity",
        "persistentVolumeReclaimPolicy", "storageClassName", "volumeAttributesClassName",
        "volumeMode",
    }
)  # fmt: skip
"""The fields of a volume's spec that are not its source."""


def _modes(spec: Manifest, path: str) -> Errors:
    errors: Errors = []
    modes = spec.get("accessModes") or []
    if not modes:
        errors.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    for mode in modes:
        errors += one_of(mode, f"{path}.accessModes", ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        errors.append(forbidden(f"{path}.accessModes", detail))
    return errors


def _amount(value: Any, path: str) -> Errors:
    quantity = parse(value)
    if quantity is None or quantity.sign <= 0:
        return [invalid(path, value, "must be greater than zero")]
    return []


def validate_claim_spec(spec: Manifest, path: str) -> Errors:
    """Return what is wrong with the spec of a claim, or of a template for claims."""
    errors = _modes(spec, path)
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        return [*errors, required(f"{path}.resources[storage]")]
    return errors + _amount(storage, f"{path}.resources[storage]")


def _class_name(spec: Manifest) -> Errors:
    name = spec.get("storageClassName") or ""
    return invalid_each("spec.storageClassName", name, formats.dns_subdomain(name)) if name else []


def _volume(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    errors = _modes(spec, "spec")
    capacity = spec.get("capacity") or {}
    if not capacity:
        errors.append(required("spec.capacity"))
    elif set(capacity) != {"storage"}:
        errors.append(not_supported("spec.capacity", sorted(capacity), ("storage",)))
    else:
        errors += _amount(capacity["storage"], "spec.capacity[storage]")
    for name, supported in (
        ("persistentVolumeReclaimPolicy", _RECLAIM), ("volumeMode", _VOLUME_MODES),
    ):  # fmt: skip
        if (value := spec.get(name)) and value not in supported:
            errors.append(not_supported(f"spec.{name}", value, supported))
    errors += _class_name(spec)
    sources = sorted(key for key in spec if key not in _NO_SOURCE and spec[key] is not None)
    if not sources:
        errors.append(required("spec", "must specify a volume type"))
    errors += [
        forbidden(f"spec.{name}", "may not specify more than 1 volume type") for name in sources[1:]
    ]
    if "hostPath" in sources and not (spec["hostPath"].get("path") or ""):
        errors.append(required("spec.hostPath.path"))
    wanted = (spec.get("nodeAffinity") or {}).get("required")
    if wanted is not None:
        errors += validate_node_selector(wanted, "spec.nodeAffinity.required")
    elif "local" in sources:
        errors.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    if old is not None:
        before = old.get("spec") or {}
        for name in sources:
            if spec.get(name) != before.get(name):
                detail = "spec.persistentvolumesource is immutable after creation"
                errors.append(forbidden("spec.persistentvolumesource", detail))
        errors += validate_immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode")
        if before.get("nodeAffinity") is not None:  # MutablePVNodeAffinity is alpha
            errors += _kept_affinity(spec.get("nodeAffinity"), before["nodeAffinity"])
    return errors


_OF_TODAY: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
"""What labels of former times are called today."""


def _kept_affinity(new: Manifest | None, old: Manifest) -> Errors:
    """Return what is wrong with another node affinity of a volume that has one.

    It stays as it is, but that a label may take the name it has today: ``validatePvNodeAffinity``.
    """
    if new is not None and _keys_of_today(new, old) == old:
        return []
    detail = f"{IMMUTABLE}, except for updating from beta label to GA"
    return [invalid("nodeAffinity", new, detail)]


def _keys_of_today(new: Any, old: Any) -> Any:
    """Return ``new`` with the names of labels that ``old`` has where they are today's for these."""
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [_keys_of_today(*both) for both in zip(new, old, strict=True)]
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    found = {name: _keys_of_today(one, old.get(name)) for name, one in new.items()}
    former = old.get("key")
    if former in _OF_TODAY and new.get("key") == _OF_TODAY[former]:
        found["key"] = former
    return found


def _claim(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    errors = validate_label_selector(spec.get("selector"), "spec.selector")
    errors += validate_claim_spec(spec, "spec")
    errors += _class_name(spec)
    if (mode := spec.get("volumeMode")) and mode not in _VOLUME_MODES:
        errors.append(not_supported("spec.volumeMode", mode, _VOLUME_MODES))
    if old is None:
        return errors
    before = old.get("spec") or {}
    # A controller sets the volume once; a bound claim may grow.
    free = {"volumeAttributesClassName"}
    if not before.get("volumeName"):
        free.add("volumeName")
    if before.get("storageClassName") is None:
        free.add("storageClassName")
    bound = ((old.get("status") or {}).get("phase")) == "Bound"
    if bound:
        free.add("resources")
    if _without(spec, free) != _without(before, free):
        detail = (
            "spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims"
        )
        errors.append(forbidden("spec", detail))
    return errors


def _without(spec: Manifest, names: set[str]) -> Manifest:
    return {key: value for key, value in spec.items() if key not in names}


# Classes and drivers --------------------------------------------------------------------------


def _storage_class(new: Manifest, old: Manifest | None) -> Errors:
    errors: Errors = []
    provisioner = new.get("provisioner") or ""
    if not provisioner:
        errors.append(required("provisioner"))
    else:
        problems = formats.qualified_name(provisioner.lower())
        errors += invalid_each("provisioner", provisioner, problems)
    for name, supported in (("reclaimPolicy", ("Delete", "Retain")),
                            ("volumeBindingMode", _BINDING_MODES)):  # fmt: skip
        if (value := new.get(name) or "") not in supported:
            errors.append(not_supported(name, value, supported))
    if old is not None:
        for name in ("parameters", "provisioner", "reclaimPolicy"):
            if (new.get(name) or None) != (old.get(name) or None):
                errors.append(forbidden(name, f"updates to {name} are forbidden."))
        before = old.get("volumeBindingMode")
        errors += validate_immutable(new.get("volumeBindingMode"), before, "volumeBindingMode")
    return errors


def _volume_attributes_class(new: Manifest, old: Manifest | None) -> Errors:
    driver, parameters = new.get("driverName") or "", new.get("parameters") or {}
    errors = _driver_name(driver, "driverName")
    if not parameters:
        errors.append(required("parameters", "must contain at least one key/value pair"))
    if old is not None:
        errors += validate_immutable(driver, old.get("driverName"), "driverName")
        errors += validate_immutable(parameters, old.get("parameters") or {}, "parameters")
    return errors


def _driver_name(name: str, path: str) -> Errors:
    if not name:
        return [required(path)]
    errors = [too_long(path, name, _LONGEST_DRIVER)] if len(name) > _LONGEST_DRIVER else []
    return errors + invalid_each(path, name, formats.dns_subdomain(name.lower()))


def _csi_driver(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    errors = _driver_name((new.get("metadata") or {}).get("name") or "", "metadata.name")
    if (policy := spec.get("fsGroupPolicy") or "") not in _FS_GROUP:
        errors.append(not_supported("spec.fsGroupPolicy", policy, _FS_GROUP))
    for mode in spec.get("volumeLifecycleModes") or ():
        errors += one_of(mode, "spec.volumeLifecycleModes", _LIFECYCLES)
    if old is not None:
        before = old.get("spec") or {}
        for name in ("attachRequired", "volumeLifecycleModes"):
            errors += validate_immutable(spec.get(name), before.get(name), f"spec.{name}")
    return errors


_COUNTED: Final = {"allocatable"}
"""What a driver may change of its entry (``MutableCSINodeAllocatableCount``)."""


def _csi_node(new: Manifest, old: Manifest | None) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    before = {one.get("name"): one for one in ((old or {}).get("spec") or {}).get("drivers") or ()}
    for index, driver in enumerate((new.get("spec") or {}).get("drivers") or ()):
        path, name = f"spec.drivers[{index}]", driver.get("name") or ""
        errors += _driver_name(name, f"{path}.name")
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        if not driver.get("nodeID"):
            errors.append(required(f"{path}.nodeID"))
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            detail = "must be greater than or equal to 0"
            errors.append(invalid(f"{path}.allocatable.count", count, detail))
        former = before.get(name)
        if former is not None and _without(former, _COUNTED) != _without(driver, _COUNTED):
            errors.append(invalid(path, driver, "field is immutable"))
    return errors


def _csi_storage_capacity(new: Manifest, old: Manifest | None) -> Errors:
    errors = validate_label_selector(new.get("nodeTopology"), "nodeTopology")
    name = new.get("storageClassName") or ""
    if not name:
        errors.append(required("storageClassName"))
    else:
        errors += invalid_each("storageClassName", name, formats.dns_subdomain(name))
    for field in ("capacity", "maximumVolumeSize"):
        value = new.get(field)
        quantity = None if value is None else parse(value)
        if value is not None and (quantity is None or quantity.sign < 0):
            errors.append(invalid(field, value, "must be greater than or equal to 0"))
    if old is not None:
        for field in ("nodeTopology", "storageClassName"):
            errors += validate_immutable(new.get(field), old.get(field), field)
    return errors


def _volume_attachment(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    if old is not None:
        return validate_immutable(spec, old.get("spec") or {}, "spec")
    errors = _driver_name(spec.get("attacher") or "", "spec.attacher")
    source = spec.get("source") or {}
    named, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    if named is None and inline is None:
        errors.append(
            required(
                "spec.source",
                "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            )
        )
    elif named is not None and inline is not None:
        detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        errors.append(forbidden("spec.source", detail))
    elif inline is None and not named:
        errors.append(
            required(
                "spec.source.persistentVolumeName", "must specify non empty persistentVolumeName"
            )
        )
    if not (node := spec.get("nodeName") or ""):
        errors.append(required("spec.nodeName"))
    else:
        errors += invalid_each("spec.nodeName", node, formats.dns_subdomain(node))
    return errors


RULES: Final[dict[str, Callable[[Manifest, Manifest | None], Errors]]] = {
    "CSIDriver": _csi_driver,
    "CSINode": _csi_node,
    "CSIStorageCapacity": _csi_storage_capacity,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _claim,
    "StorageClass": _storage_class,
    "VolumeAttachment": _volume_attachment,
    "VolumeAttributesClass": _volume_attributes_class,
}

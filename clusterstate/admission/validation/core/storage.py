"""Volumes, claims, their classes, and drivers' objects of storage.k8s.io.

A part of Kubernetes' rules: those without which an object is ambiguous. Rules:
pkg/apis/core/validation/validation.go (``ValidatePersistentVolume`` and ``...Claim``) and
pkg/apis/storage/validation/validation.go, v1.36.
"""

from collections.abc import Callable
from typing import Any, Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    NEGATIVE,
    Errors,
    check_form,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    none_negative,
    not_supported,
    one_of,
    require_form,
    required,
    too_long,
)
from clusterstate.admission.validation.core.metadata import (
    IMMUTABLE,
    validate_immutable,
    validate_label_selector,
)
from clusterstate.admission.validation.core.resources import parse, validate_quantity
from clusterstate.admission.validation.core.scheduling import validate_node_selector
from clusterstate.objects.rules.csi_migration import HOLLOW_PROVISIONER
from clusterstate.objects.values import durations
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural

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


def _modes(spec: Manifest, path: str, detail: str = "at least 1 access mode is required") -> Errors:
    errors: Errors = []
    modes = spec.get("accessModes") or []
    if not modes:
        errors.append(required(f"{path}.accessModes", detail))
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
    """Return the errors in the spec of a claim, or of a template for claims."""
    errors = _modes(spec, path)
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        return [*errors, required(f"{path}.resources[storage]")]
    return errors + _amount(storage, f"{path}.resources[storage]")


def _class_name(spec: Manifest) -> Errors:
    return check_form(spec.get("storageClassName"), "spec.storageClassName", formats.dns_subdomain)


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
        errors += one_of(spec.get(name) or None, f"spec.{name}", supported)
    errors += _class_name(spec)
    sources = sorted(key for key in spec if key not in _NO_SOURCE and spec[key] is not None)
    if not sources:
        errors.append(required("spec", "must specify a volume type"))
    errors += [
        forbidden(f"spec.{name}", "may not specify more than 1 volume type") for name in sources[1:]
    ]
    if "hostPath" in sources and not (spec["hostPath"].get("path") or ""):
        errors.append(required("spec.hostPath.path"))
    selector = (spec.get("nodeAffinity") or {}).get("required")
    if selector is not None:
        errors += validate_node_selector(selector, "spec.nodeAffinity.required")
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
"""Deprecated label names, with the current ones."""


def _kept_affinity(new: Manifest | None, old: Manifest) -> Errors:
    """Return the error of a volume's node affinity that changed.

    Only deprecated label names may become the current ones: ``validatePvNodeAffinity``.
    """
    if new is not None and _keys_of_today(new, old) == old:
        return []
    detail = f"{IMMUTABLE}, except for updating from beta label to GA"
    return [invalid("nodeAffinity", new, detail)]


def _keys_of_today(new: Any, old: Any) -> Any:
    """Return ``new``, with current label names replaced by the deprecated ones that ``old`` has."""
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
    errors += one_of(spec.get("volumeMode") or None, "spec.volumeMode", _VOLUME_MODES)
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
    return errors + _shrinks(spec, before, (old.get("status") or {}).get("capacity") or {})


def validate_claim_status(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in the changed amounts of a claim's status."""
    status, before = new.get("status") or {}, (old or {}).get("status") or {}
    return [
        error
        for field in ("capacity", "allocatedResources")
        for name, amount in (status.get(field) or {}).items()
        if amount != (before.get(field) or {}).get(name)
        for error in validate_quantity(name, amount, f"status.{field}[{name}]")
    ]


def _shrinks(spec: Manifest, before: Manifest, capacity: Manifest) -> Errors:
    """Return the error of a claim whose reduced request is not above its capacity."""
    new, old, has = (
        parse(one.get("storage", 0)) for one in (_requests(spec), _requests(before), capacity)
    )
    if new is None or old is None or has is None or not (new < old and new <= has):
        return []
    detail = "field can not be less than status.capacity"
    return [forbidden("spec.resources.requests.storage", detail)]


def _requests(spec: Manifest) -> Manifest:
    return (spec.get("resources") or {}).get("requests") or {}


def _without(spec: Manifest, names: set[str]) -> Manifest:
    return {key: value for key, value in spec.items() if key not in names}


# Classes and drivers --------------------------------------------------------------------------


_MOST_PARAMETERS: Final = 512
_LONGEST_TEXT: Final = 256 * 1024
"""Bytes of parameters, or of the metadata of an attachment, together."""
_LONGEST_MESSAGE: Final = 1024


def _storage_class(new: Manifest, old: Manifest | None) -> Errors:
    if old is not None:
        errors: Errors = []
        for name in ("parameters", "provisioner", "reclaimPolicy"):
            if (new.get(name) or None) != (old.get(name) or None):
                errors.append(forbidden(name, f"updates to {name} are forbidden."))
        before = old.get("volumeBindingMode")
        return errors + validate_immutable(
            new.get("volumeBindingMode"), before, "volumeBindingMode"
        )
    errors = _provisioner(new.get("provisioner") or "", "provisioner")
    errors += _parameters(new.get("parameters") or {})
    if new.get("provisioner") == HOLLOW_PROVISIONER:
        errors += _hollow_parameters(new.get("parameters") or {})
    errors += one_of(new.get("reclaimPolicy") or None, "reclaimPolicy", ("Delete", "Retain"))
    if (mode := new.get("volumeBindingMode")) is None:
        errors.append(required("volumeBindingMode"))
    errors += one_of(mode, "volumeBindingMode", _BINDING_MODES)
    return errors + _allowed_topologies(new.get("allowedTopologies") or [])


def _provisioner(name: str, path: str) -> Errors:
    return require_form(name, path, lambda text: formats.qualified_name(text.lower()))


_HOLLOW: Final = ("topologyKey", "capacity", "maximumVolumeSize", "delay", "failures")
_OF_SEGMENT: Final = "capacity."


def _hollow_parameters(parameters: Manifest) -> Errors:
    """Return the errors in parameters of the hollow provisioner, which is this service's own."""
    errors: Errors = []
    for name, text in parameters.items():
        path = f"parameters[{name}]"
        if name not in _HOLLOW and not name.startswith(_OF_SEGMENT):
            detail = f"the hollow driver knows only {', '.join(_HOLLOW)} and capacity.SEGMENT"
            errors.append(forbidden(path, detail))
        elif name == "topologyKey":
            errors += require_form(text, path, formats.qualified_name)
        elif name == "delay" and (durations.parse(text) is None or text.startswith("-")):
            errors.append(invalid(path, text, "must be a duration such as 500ms or 1m30s"))
        elif name == "failures" and text != "always" and natural(text) is None:
            errors.append(invalid(path, text, 'must be a number of 0 or more, or "always"'))
        elif name not in ("delay", "failures"):
            amount = parse(text)
            if amount is None or amount.sign < 0:
                detail = "must be a quantity of 0 or more, such as 10Ti"
                errors.append(invalid(path, text, detail))
            if name.startswith(_OF_SEGMENT) and not parameters.get("topologyKey"):
                detail = "needs topologyKey, which divides nodes into segments"
                errors.append(forbidden(path, detail))
    return errors


def _parameters(parameters: Manifest) -> Errors:
    if len(parameters) > _MOST_PARAMETERS:
        return [too_long("parameters", "", _MOST_PARAMETERS)]
    errors: Errors = []
    if "" in parameters:
        errors.append(invalid("parameters", "", "field can not be empty."))
    if _bytes_of(parameters) > _LONGEST_TEXT:
        errors.append(too_long("parameters", "", _LONGEST_TEXT))
    return errors


def _bytes_of(texts: Manifest) -> int:
    return sum(len(part.encode()) for pair in texts.items() for part in pair)


def _allowed_topologies(terms: list[Manifest]) -> Errors:
    """Return the errors in topologies; an empty term is always a duplicate."""
    errors: Errors = []
    earlier: list[dict[str, set[str]]] = [{} for _ in terms]
    for index, term in enumerate(terms):
        path, topology = f"allowedTopologies[{index}].matchLabelExpressions", dict[str, set[str]]()
        for number, one in enumerate(term.get("matchLabelExpressions") or []):
            where, key = f"{path}[{number}]", one.get("key") or ""
            values = one.get("values") or []
            if not values:
                errors.append(required(f"{where}.values"))
            errors += [
                duplicate(f"{where}.values[{at}]", value)
                for at, value in enumerate(values)
                if value in values[:at]
            ]
            errors += invalid_each(f"{where}.key", key, formats.qualified_name(key))
            if key in topology:
                errors.append(duplicate(f"{where}.key", key))
            topology[key] = set(values)
        errors += [duplicate(path, "") for other in earlier if other == topology]
        earlier.append(topology)
    return errors


def _volume_attributes_class(new: Manifest, old: Manifest | None) -> Errors:
    driver, parameters = new.get("driverName") or "", new.get("parameters") or {}
    errors = _provisioner(driver, "driverName") + _parameters(parameters)
    if not parameters:
        errors.append(required("parameters", "must contain at least one key/value pair"))
    for name in ("driverName", "parameters") if old is not None else ():
        if (new.get(name) or None) != ((old or {}).get(name) or None):
            errors.append(forbidden(name, f"updates to {name} are forbidden."))
    return errors


def _driver_name(name: str, path: str) -> Errors:
    if not name:
        return [required(path)]
    errors = [too_long(path, name, _LONGEST_DRIVER)] if len(name) > _LONGEST_DRIVER else []
    return errors + invalid_each(path, name, formats.dns_subdomain(name.lower()))


_STATED: Final = ("attachRequired", "podInfoOnMount", "storageCapacity", "seLinuxMount")
"""The fields that a driver must set."""


def _csi_driver(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    errors = [required(f"spec.{name}") for name in _STATED if spec.get(name) is None]
    errors += one_of(spec.get("fsGroupPolicy"), "spec.fsGroupPolicy", _FS_GROUP)
    for mode in spec.get("volumeLifecycleModes") or ():
        errors += one_of(mode, "spec.volumeLifecycleModes", _LIFECYCLES)
    tokens = spec.get("tokenRequests") or []
    for index, token in enumerate(tokens):
        path, audience = f"spec.tokenRequests[{index}]", token.get("audience") or ""
        if audience in [one.get("audience") or "" for one in tokens[:index]]:
            errors.append(duplicate(f"{path}.audience", audience))
            continue
        seconds = token.get("expirationSeconds")
        if seconds is not None and not 600 <= seconds <= 2**32:
            bound = "less than 10 minutes" if seconds < 600 else "larger than 2^32 seconds"
            detail = f"may not specify a duration {bound}"
            errors.append(invalid(f"{path}.expirationSeconds", seconds, detail))
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        detail = "must be greater than or equal to 10 seconds"
        errors.append(invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, detail))
    secrets = spec.get("serviceAccountTokenInSecrets")
    if secrets is not None and not tokens:
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        errors.append(invalid("spec.serviceAccountTokenInSecrets", secrets, detail))
    if old is not None:
        before = old.get("spec") or {}
        for name in ("attachRequired", "volumeLifecycleModes"):
            errors += validate_immutable(spec.get(name), before.get(name), f"spec.{name}")
    return errors


_COUNTED: Final = {"allocatable"}
"""The field of a driver's entry that may change (``MutableCSINodeAllocatableCount``)."""
_LONGEST_NODE_ID: Final = 256


def csi_node_errors(new: Manifest, old: Manifest | None, *, counts_change: bool = True) -> Errors:
    """Return the errors in a CSINode; ``counts_change``: a driver's volume limit may change."""
    errors: Errors = []
    seen: set[str] = set()
    drivers = (new.get("spec") or {}).get("drivers") or []
    for index, driver in enumerate(drivers):
        path, name = f"spec.drivers[{index}]", driver.get("name") or ""
        errors += _driver_name(name, f"{path}.name")
        node_id = driver.get("nodeID") or ""
        if not node_id:
            errors.append(required(f"{path}.nodeID"))
        elif len(node_id) > _LONGEST_NODE_ID:
            detail = f"must be {_LONGEST_NODE_ID} characters or less"
            errors.append(invalid(f"{path}.nodeID", node_id, detail))
        errors += none_negative(driver.get("allocatable") or {}, f"{path}.allocatable", "count")
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        keys = driver.get("topologyKeys") or []
        for number, key in enumerate(keys):
            if not key:
                errors.append(required(path))
            if key in keys[:number]:
                errors.append(duplicate(path, key))
            errors += invalid_each(path, keys, formats.qualified_name(key))
    free = _COUNTED if counts_change else set[str]()
    for former in ((old or {}).get("spec") or {}).get("drivers") or ():
        errors += [
            invalid("spec.drivers", driver, IMMUTABLE)
            for driver in drivers
            if driver.get("name") == former.get("name")
            and _without(driver, free) != _without(former, free)
        ]
    return errors


def _csi_node(new: Manifest, old: Manifest | None) -> Errors:
    return csi_node_errors(new, old)


def _csi_storage_capacity(new: Manifest, old: Manifest | None) -> Errors:
    errors = validate_label_selector(new.get("nodeTopology"), "nodeTopology")
    name = new.get("storageClassName") or ""
    errors += invalid_each("storageClassName", name, formats.dns_subdomain(name))
    for field in ("capacity", "maximumVolumeSize"):
        value = new.get(field)
        quantity = None if value is None else parse(value)
        if value is not None and (quantity is None or quantity.sign < 0):
            errors.append(invalid(field, value, NEGATIVE))
    if old is not None:
        for field in ("nodeTopology", "storageClassName"):
            errors += validate_immutable(new.get(field), old.get(field), field)
    return errors


def _volume_attachment(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    errors = _driver_name(spec.get("attacher") or "", "spec.attacher")
    source = spec.get("source") or {}
    named, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    exactly = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if named is None and inline is None:
        errors.append(required("spec.source", exactly))
    elif named is not None and inline is not None:
        errors.append(forbidden("spec.source", exactly))
    elif inline is not None:
        errors += _inline_volume(inline, "spec.source.inlineVolumeSpec")
    else:
        detail = "must specify non empty persistentVolumeName"
        path = "spec.source.persistentVolumeName"
        errors += require_form(named, path, formats.dns_subdomain, detail)
    node = spec.get("nodeName") or ""
    errors += invalid_each("spec.nodeName", node, formats.dns_subdomain(node))
    errors += validate_attachment_status(new)
    if old is not None:
        errors += validate_immutable(spec, old.get("spec") or {}, "spec")
    return errors


_ELSEWHERE: Final = "may not be specified in the context of inline volumes"


def _inline_volume(spec: Manifest, path: str) -> Errors:
    """Return the errors in a VolumeAttachment's inline volume, without a PersistentVolume.

    Rule: pkg/apis/core/validation/validation.go (``ValidatePersistentVolumeSpec``), v1.36.
    """
    errors = [
        forbidden(f"{path}.{name}", _ELSEWHERE)
        for name in ("capacity", "claimRef", "nodeAffinity", "storageClassName")
        if spec.get(name)
    ]
    errors += _modes(spec, path, detail="")
    if (csi := spec.get("csi")) is None:
        detail = "has to be specified in the context of inline volumes"
        errors.append(required(f"{path}.csi", detail))
    else:
        errors += _driver_name(csi.get("driver") or "", f"{path}.csi.driver")
        if not csi.get("volumeHandle"):
            errors.append(required(f"{path}.csi.volumeHandle"))
    if spec.get("persistentVolumeReclaimPolicy") not in (None, "", "Retain"):
        detail = "may only be Retain in the context of inline volumes"
        errors.append(forbidden(f"{path}.persistentVolumeReclaimPolicy", detail))
    if spec.get("volumeMode") not in (None, "Filesystem"):
        detail = "may not specify volumeMode other than Filesystem in the context of inline volumes"
        errors.append(forbidden(f"{path}.volumeMode", detail))
    if all(name in _NO_SOURCE for name in spec):
        errors.append(required(path, "must specify a volume type"))
    return errors


def validate_attachment_status(new: Manifest) -> Errors:
    """Return the errors in the status of a VolumeAttachment."""
    status, errors = new.get("status") or {}, Errors()
    if _bytes_of(status.get("attachmentMetadata") or {}) > _LONGEST_TEXT:
        errors.append(too_long("status.attachmentMetadata", "", _LONGEST_TEXT))
    for name in ("attachError", "detachError"):
        failure = status.get(name) or {}
        if len((failure.get("message") or "").encode()) > _LONGEST_MESSAGE:
            errors.append(too_long(f"status.{name}.message", "", _LONGEST_TEXT))
        code = failure.get("errorCode")
        if code is not None and not 0 <= code < 2**31:
            detail = "must be between 0 and 2147483647, inclusive"
            errors.append(invalid(f"status.{name}.errorCode", code, detail))
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

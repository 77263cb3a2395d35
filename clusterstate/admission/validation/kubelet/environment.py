"""Environment variables of a container: values, references, downward API.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

from collections.abc import Callable
from typing import Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    check_form,
    invalid,
    invalid_each,
    not_supported,
    require_form,
    required,
)
from clusterstate.admission.validation.core.options import PodOptions
from clusterstate.admission.validation.core.resources import (
    parse,
)
from clusterstate.admission.validation.kubelet.mounts import validate_local_descending_path
from clusterstate.objects.values import labels
from clusterstate.objects.values.meta import Manifest

ENV_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
VOLUME_FIELDS: Final = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
_CONVERTIBLE_FIELDS: Final = {
    *ENV_FIELDS,
    *VOLUME_FIELDS,
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
    "status.nominatedNodeName",
}
_RESOURCE_FIELDS: Final = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGE_PAGE_FIELDS: Final = ("requests.hugepages-", "limits.hugepages-")
_BYTE_DIVISORS: Final = frozenset(
    ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
)
_BYTE_DIVISORS_LISTED: Final = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"


def _env_name(options: PodOptions) -> Callable[[str], formats.Problems]:
    if options.allow_relaxed_environment_variable_validation:
        return formats.relaxed_env_var_name
    return formats.env_var_name


def validate_env(variables: list[Manifest], path: str, options: PodOptions) -> Errors:
    """Return the errors in ``env``."""
    errors: Errors = []
    check = _env_name(options)
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        if not name:
            errors.append(required(f"{path}[{index}].name"))
        elif problems := check(name):
            errors += invalid_each(f"{path}[{index}].name", name, problems)
        if variable.get("valueFrom") is not None:
            errors += _value_from(variable, f"{path}[{index}].valueFrom")
    return errors


def _value_from(variable: Manifest, path: str) -> Errors:
    source = variable["valueFrom"]
    errors: Errors = []
    count = 0
    if (ref := source.get("fieldRef")) is not None:
        count += 1
        errors += validate_field_ref(ref, ENV_FIELDS, f"{path}.fieldRef")
    if (ref := source.get("resourceFieldRef")) is not None:
        count += 1
        errors += validate_resource_field_ref(ref, f"{path}.resourceFieldRef", volume=False)
    for name in ("configMapKeyRef", "secretKeyRef"):
        if (ref := source.get(name)) is not None:
            count += 1
            errors += _key_ref(ref, f"{path}.{name}")
    if (ref := source.get("fileKeyRef")) is not None:
        count += 1
        errors += _file_key_ref(ref, f"{path}.fileKeyRef")
    if not count:
        detail = (
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or "
            "`secretKeyRef`"
        )
        errors.append(invalid(path, "", detail))
    elif variable.get("value"):
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif count > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    return errors


def _key_ref(ref: Manifest, path: str) -> Errors:
    name = ref.get("name") or ""
    errors = invalid_each(f"{path}.name", name, formats.dns_subdomain(name))
    key = ref.get("key") or ""
    errors += require_form(key, f"{path}.key", formats.config_map_key)
    return errors


def _file_key_ref(ref: Manifest, path: str) -> Errors:
    errors: Errors = []
    for name in ("volumeName", "path", "key"):
        if not ref.get(name):
            errors.append(required(f"{path}.{name}"))
    if file := ref.get("path"):
        errors += validate_local_descending_path(file, f"{path}.path")
    errors += check_form(ref.get("key"), f"{path}.key", formats.relaxed_env_var_name)
    return errors


def validate_field_ref(ref: Manifest, allowed: tuple[str, ...], path: str) -> Errors:
    """Return the errors in a downward API reference to a field of the pod."""
    version = ref.get("apiVersion") or ""
    if not version:
        return [required(f"{path}.apiVersion")]
    field = ref.get("fieldPath") or ""
    if not field:
        return [required(f"{path}.fieldPath")]
    bare, bracket, rest = field.partition("[")
    subscripted = bool(bracket) and rest.startswith("'") and rest.endswith("']") and bool(bare)
    name = bare if subscripted else field
    if version != "v1":
        detail = f"error converting fieldPath: unsupported pod version: {version}"
        return [invalid(f"{path}.fieldPath", field, detail)]
    if name == "spec.host":
        name = "spec.nodeName"
    if name not in _CONVERTIBLE_FIELDS:
        detail = f"error converting fieldPath: field label not supported: {name}"
        return [invalid(f"{path}.fieldPath", field, detail)]
    if subscripted:
        subscript = rest[1:-2]
        if name == "metadata.annotations":
            subscript_errors = formats.qualified_name(subscript.lower())
        elif name == "metadata.labels":
            subscript_errors = formats.qualified_name(subscript)
        else:
            return [invalid(path, name, "does not support subscript")]
        return invalid_each(path, subscript, subscript_errors)
    if name not in allowed:
        return [not_supported(f"{path}.fieldPath", name, sorted(allowed))]
    return []


def validate_resource_field_ref(ref: Manifest, path: str, *, volume: bool) -> Errors:
    """Return the errors in a downward API reference to requests or limits."""
    errors: Errors = []
    resource = ref.get("resource") or ""
    if volume and not ref.get("containerName"):
        errors.append(required(f"{path}.containerName"))
    elif not resource:
        errors.append(required(f"{path}.resource"))
    elif resource not in _RESOURCE_FIELDS and not resource.startswith(_HUGE_PAGE_FIELDS):
        errors.append(not_supported(f"{path}.resource", resource, _RESOURCE_FIELDS))
    divisor = parse(ref["divisor"]) if ref.get("divisor") is not None else None
    if divisor is None or not divisor:
        return errors
    at = f"{path}.divisor"
    text = str(divisor)
    if resource in ("limits.cpu", "requests.cpu"):
        if text not in ("1m", "1"):
            detail = "only divisor's values 1m and 1 are supported with the cpu resource"
            errors.append(invalid(at, resource, detail))
        return errors
    if text in _BYTE_DIVISORS:
        return errors
    if resource in ("limits.memory", "requests.memory"):
        what = "memory"
    elif resource in ("limits.ephemeral-storage", "requests.ephemeral-storage"):
        what = "local ephemeral storage"
    elif resource.startswith(_HUGE_PAGE_FIELDS):
        what = "hugepages"
    else:
        return errors
    detail = f"only divisor's values {_BYTE_DIVISORS_LISTED} are supported with the {what} resource"
    return [*errors, invalid(at, resource, detail)]


def validate_env_from(sources: list[Manifest], path: str, options: PodOptions) -> Errors:
    """Return the errors in ``envFrom``: sources whose keys all become variables, with a prefix."""
    errors: Errors = []
    check = _env_name(options)
    for index, source in enumerate(sources):
        where = f"{path}[{index}]"
        prefix = source.get("prefix") or ""
        errors += check_form(prefix, f"{where}.prefix", check)
        count = 0
        for field in ("configMapRef", "secretRef"):
            ref = source.get(field)
            if ref is None:
                continue
            count += 1
            name = ref.get("name") or ""
            if not name:
                errors.append(required(f"{where}.{field}.name"))
            else:
                problems = formats.dns_subdomain(labels.mask_trailing_dash(name))
                errors += invalid_each(f"{where}.{field}.name", name, problems)
        if not count:
            detail = "must specify one of: `configMapRef` or `secretRef`"
            errors.append(invalid(path, "", detail))
        elif count > 1:
            errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    return errors

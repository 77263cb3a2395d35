"""Nodes: create, update, status.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

import re
from typing import Any, Final

import msgspec

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    require_form,
    required,
)
from clusterstate.admission.validation.core.metadata import (
    validate_object_meta,
    validate_object_meta_update,
)
from clusterstate.admission.validation.core.resources import validate_quantity
from clusterstate.admission.validation.core.scheduling import validate_taints
from clusterstate.objects.registry import wire_types
from clusterstate.objects.values.errors import INTERNAL, FieldError
from clusterstate.objects.values.meta import Manifest, prepare
from clusterstate.objects.wire.reading import read_embedded

AVOID_PODS: Final = "scheduler.alpha.kubernetes.io/preferAvoidPods"
TAINTS_ANNOTATION: Final = "scheduler.alpha.kubernetes.io/taints"
_FEATURE: Final = re.compile(r"[A-Z][A-Za-z0-9]*(/[A-Za-z0-9]+)*")
_FEATURE_LENGTH: Final = 253


def validate_node(node: Manifest, *, strict_ip_cidr: bool = False) -> Errors:
    """Return the errors in a new node; its status is checked if present."""
    meta = node.get("metadata") or {}
    spec = node.get("spec") or {}
    errors = validate_object_meta(meta, namespaced=False, name=formats.dns_subdomain)
    errors += _annotations(meta, "metadata.annotations")
    if taints := spec.get("taints"):
        # The path is upstream's: taints once were an annotation.
        errors += validate_taints(taints, "metadata.taints")
    errors += _status(node)
    return errors + _pod_cidrs(spec.get("podCIDRs") or [], strict=strict_ip_cidr)


def validate_node_update(new: Manifest, old: Manifest) -> Errors:
    """Return the errors in a changed node, status included."""
    meta = new.get("metadata") or {}
    errors = validate_object_meta_update(meta, old.get("metadata") or {})
    errors += _annotations(meta, "metadata.annotations")
    errors += _status(new)
    seen: list[Any] = []
    for index, address in enumerate((new.get("status") or {}).get("addresses") or ()):
        if address in seen:
            errors.append(duplicate(f"status.addresses[{index}]", address))
        seen.append(address)
    spec, old_spec = new.get("spec") or {}, old.get("spec") or {}
    if old_cidrs := old_spec.get("podCIDRs"):
        detail = 'node updates may not change podCIDR except from "" to valid'
        cidrs = spec.get("podCIDRs") or []
        if len(cidrs) != len(old_cidrs):
            errors.append(forbidden("spec.podCIDRs", detail))
        else:
            changed = sum(a != b for a, b in zip(cidrs, old_cidrs, strict=True))
            errors += [forbidden("spec.podCIDRs", detail)] * changed
    old_provider = old_spec.get("providerID") or ""
    if old_provider and old_provider != (spec.get("providerID") or ""):
        detail = 'node updates may not change providerID except from "" to valid'
        errors.append(forbidden("spec.providerID", detail))
    if (source := spec.get("configSource")) is not None:
        errors += _config_source(source, "spec.configSource", in_status=False)
    config = (new.get("status") or {}).get("config") or {}
    for name in ("assigned", "active", "lastKnownGood"):
        if (source := config.get(name)) is not None:
            errors += _config_source(source, f"status.config.{name}", in_status=True)
    if taints := spec.get("taints"):
        errors += validate_taints(taints, "metadata.taints")
    if (spec.get("externalID") or "") != (old_spec.get("externalID") or ""):
        errors.append(forbidden("spec.externalID", "may not be updated"))
    return errors


class _PodSignature(msgspec.Struct):
    podController: dict[str, Any] | None = None  # noqa: N815  # the wire's name


class _AvoidPod(msgspec.Struct):
    podSignature: _PodSignature | None = None  # noqa: N815  # the wire's name


class _AvoidPods(msgspec.Struct):
    """The validated fields of a Node's annotation ``preferAvoidPods`` (core/v1 ``AvoidPods``)."""

    preferAvoidPods: list[_AvoidPod] | None = None  # noqa: N815  # the wire's name


prepare(_AvoidPods)


def _annotations(meta: Manifest, path: str) -> Errors:
    annotations = meta.get("annotations") or {}
    errors = _taints_annotation(annotations.get(TAINTS_ANNOTATION), path)
    return errors + _avoid_pods_annotation(annotations.get(AVOID_PODS), path)


def _taints_annotation(text: str | None, path: str) -> Errors:
    """Return the errors in the annotation that had taints before ``spec.taints``."""
    if not text:
        return []
    try:
        taints = read_embedded(text, list[wire_types.Taint] | None)  # type: ignore[valid-type]
    except ValueError as error:
        return [invalid(path, TAINTS_ANNOTATION, str(error))]
    return validate_taints(taints or [], f"{path}.{TAINTS_ANNOTATION}")


def _avoid_pods_annotation(text: str | None, path: str) -> Errors:
    if not text:
        return []
    try:
        entries = read_embedded(text, _AvoidPods).get("preferAvoidPods") or []
    except ValueError as error:
        return [invalid(f"{path}.AvoidPods", AVOID_PODS, str(error))]
    errors: Errors = []
    for index, entry in enumerate(entries):
        where = f"{path}.{AVOID_PODS}[{index}]"
        controller = (entry.get("podSignature") or {}).get("podController")
        if controller is None:
            errors.append(required(f"{where}.PodSignature"))
        elif not controller.get("controller"):
            at = f"{where}.PodSignature.PodController.Controller"
            errors.append(invalid(at, False, "must point to a controller"))
    return errors


def _status(node: Manifest) -> Errors:
    status = node.get("status")
    if not status:
        return []
    errors: Errors = []
    for field in ("capacity", "allocatable"):
        for name, value in (status.get(field) or {}).items():
            errors += validate_quantity(name, value, f"status.{field}.{name}")
    swap = (status.get("nodeInfo") or {}).get("swap")
    if swap is not None:
        capacity = swap.get("capacity")
        if capacity is not None and capacity <= 0:
            at = "metadata.nodeSwapStatus.capacity"
            errors.append(invalid(at, capacity, "must be greater than zero"))
    if (features := status.get("declaredFeatures")) is not None:
        errors += _declared_features(features, "status.declaredFeatures")
    return errors


def _declared_features(features: list[str], path: str) -> Errors:
    errors: Errors = []
    for index, feature in enumerate(features):
        at = f"{path}[{index}]"
        if not _FEATURE.fullmatch(feature):
            detail = (
                f'invalid feature name "{feature}": must start with an UpperCamelCase segment, '
                "with subsequent segments separated by '/' (e.g., MyFeature or "
                "MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            )
            errors.append(invalid(at, feature, detail))
        if len(feature) > _FEATURE_LENGTH:
            detail = (
                f'invalid feature name "{feature}": '
                f"must be no more than {_FEATURE_LENGTH} characters"
            )
            errors.append(invalid(at, feature, detail))
        if index and features[index - 1] > feature:
            errors.append(invalid(at, feature, "list must be sorted alphabetically"))
        elif index and features[index - 1] == feature:
            errors.append(duplicate(at, feature))
    return errors


def _pod_cidrs(cidrs: list[str], *, strict: bool) -> Errors:
    if not cidrs:
        return []
    path = "spec.podCIDRs"
    errors: Errors = []
    for index, block in enumerate(cidrs):
        errors += invalid_each(f"{path}[{index}]", block, formats.cidr(block, strict=strict))
    if len(cidrs) == 1:
        return errors
    interfaces = [formats.ip_interface(block) for block in cidrs]
    if None in interfaces:
        index = interfaces.index(None)
        why = f"invalid CIDR[{index}]: <nil> (invalid CIDR address: {cidrs[index]})"
        detail = f"invalid PodCIDRs. failed to check with dual stack with error:{why}"
        errors.append(FieldError(INTERNAL, path, None, detail))
    families = {interface.version for interface in interfaces if interface is not None}
    if len(cidrs) > 2 or None in interfaces or len(families) < 2:
        detail = "may specify no more than one CIDR for each IP family"
        errors.append(invalid(path, cidrs, detail))
    return errors


def _config_source(source: Manifest, path: str, *, in_status: bool) -> Errors:
    config_map = source.get("configMap")
    if config_map is None:
        return [invalid(path, source, "exactly one reference subfield must be non-nil")]
    at = f"{path}.configMap"
    errors: Errors = []
    for field in ("uid", "resourceVersion"):
        if in_status and not config_map.get(field):
            errors.append(required(f"{at}.{field}", f"{field} must be set in status"))
        elif not in_status and config_map.get(field):
            errors.append(forbidden(f"{at}.{field}", f"{field} must not be set in spec"))
    for field, check in (
        ("namespace", formats.dns_label),
        ("name", formats.dns_subdomain),
        ("kubeletConfigKey", formats.config_map_key),
    ):
        value = config_map.get(field) or ""
        errors += require_form(value, f"{at}.{field}", check, f"{field} must be set")
    return errors

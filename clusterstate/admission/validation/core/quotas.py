"""LimitRange and ResourceQuota.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

from typing import Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    required,
)
from clusterstate.admission.validation.core.metadata import IMMUTABLE
from clusterstate.admission.validation.core.resources import (
    container_resource_name_problems,
    is_overcommit_allowed,
    is_standard_quota_resource,
    name_errors,
    parse,
    quota_resource_name_problems,
    resource_name_problems,
    validate_quantity,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import Quantity

_LIMIT_TYPES: Final = ("Pod", "Container", "PersistentVolumeClaim")
_MAX_MILLI: Final = (2**63 - 1) // 1000


def validate_limit_range(limit_range: Manifest) -> Errors:
    """Return the errors in ``spec.limits``."""
    errors: Errors = []
    types: set[str] = set()
    for index, item in enumerate((limit_range.get("spec") or {}).get("limits") or ()):
        where = f"spec.limits[{index}]"
        type_ = item.get("type") or ""
        problems = formats.qualified_name(type_)
        if problems:
            errors += invalid_each(f"{where}.type", type_, problems)
        elif "/" not in type_ and type_ not in _LIMIT_TYPES:
            detail = "must be a standard limit type or fully qualified"
            errors.append(invalid(f"{where}.type", type_, detail))
        if type_ in types:
            errors.append(duplicate(f"{where}.type", type_))
        types.add(type_)
        errors += _limit(item, type_, where)
    return errors


def _limit(item: Manifest, type_: str, path: str) -> Errors:
    errors: Errors = []
    for_pods = type_ in ("Pod", "Container")
    check = container_resource_name_problems if for_pods else resource_name_problems
    amounts: dict[str, dict[str, Quantity]] = {}
    for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
        amounts[field] = {}
        listed = item.get(field) or {}
        if type_ == "Pod" and field in ("default", "defaultRequest"):
            if listed:
                detail = "may not be specified when `type` is 'Pod'"
                errors.append(forbidden(f"{path}.{field}", detail))
            continue
        for name, value in listed.items():
            errors += name_errors(check(name), name, f"{path}.{field}[{name}]")
            quantity = parse(value)
            if quantity is None:
                errors += validate_quantity(name, value, f"{path}.{field}[{name}]")
            else:
                amounts[field][name] = quantity
    if type_ == "PersistentVolumeClaim" and not (
        "storage" in amounts["min"] or "storage" in amounts["max"]
    ):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        errors.append(required(f"{path}.limits", detail))
    for name in sorted({name for listed in amounts.values() for name in listed}):
        errors += _consistent(name, {f: q.get(name) for f, q in amounts.items()}, path)
    return errors


def _consistent(name: str, of: dict[str, Quantity | None], path: str) -> Errors:
    low, high, ratio = of["min"], of["max"], of["maxLimitRequestRatio"]
    default, request = of["default"], of["defaultRequest"]
    errors: Errors = []

    def above(one: Quantity | None, other: Quantity | None) -> bool:
        return one is not None and other is not None and one > other

    def wrong(field: str, detail: str) -> None:
        errors.append(invalid(f"{path}.{field}[{name}]", str(of[field]), detail))

    if above(low, high):
        wrong("min", f"min value {low} is greater than max value {high}")
    if above(low, request):
        wrong("defaultRequest", f"min value {low} is greater than default request value {request}")
    if above(request, high):
        wrong("defaultRequest", f"default request value {request} is greater than max value {high}")
    if above(request, default):
        detail = f"default request value {request} is greater than default limit value {default}"
        wrong("defaultRequest", detail)
    if above(low, default):
        wrong("default", f"min value {low} is greater than default value {default}")
    if above(default, high):
        wrong("default", f"default value {default} is greater than max value {high}")
    if ratio is not None and ratio < Quantity.of(1):
        wrong("maxLimitRequestRatio", f"ratio {ratio} is less than 1")
    if ratio is not None and low is not None and high is not None:
        limit = _ratio_limit(ratio, low, high)
        if limit is not None:
            detail = f"ratio {ratio} is greater than max/min = {limit:f}"
            wrong("maxLimitRequestRatio", detail)
    fixed = not is_overcommit_allowed(name)
    if fixed and default is not None and request is not None and default != request:
        detail = f"default value {default} must equal to defaultRequest value {request} in {name}"
        wrong("defaultRequest", detail)
    return errors


def _ratio_limit(ratio: Quantity, low: Quantity, high: Quantity) -> float | None:
    """Return max/min if the stated ratio is above that, else None; floats, as upstream prints."""
    stated_ratio, below, top = float(ratio.value()), low.value(), high.value()
    if max(ratio.value(), below, top) < _MAX_MILLI:
        stated_ratio, below, top = ratio.milli_value() / 1000, low.milli_value(), high.milli_value()
    limit = top / below if below else float("inf")
    return limit if stated_ratio > limit else None


# ResourceQuota --------------------------------------------------------------------------------

_POD_SCOPES: Final = (
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
)
_SCOPES: Final = (*_POD_SCOPES, "VolumeAttributesClass")
_EXISTS_ONLY: Final = (
    "BestEffort",
    "NotBestEffort",
    "Terminating",
    "NotTerminating",
    "CrossNamespacePodAffinity",
)
_POD_RESOURCES: Final = frozenset(
    {
        "pods",
        "cpu",
        "memory",
        "requests.cpu",
        "requests.memory",
        "limits.cpu",
        "limits.memory",
    }
)


def validate_resource_quota(quota: Manifest, old: Manifest | None = None) -> Errors:
    """Return the errors in spec and status of a quota; ``old`` is the stored one.

    Amounts that are already in ``old`` are not checked again (v1.38, kubernetes#142190).
    """
    spec, status = quota.get("spec") or {}, quota.get("status") or {}
    old_spec, old_status = ((old or {}).get(part) or {} for part in ("spec", "status"))
    errors = _amounts(spec.get("hard") or {}, "spec.hard", old_spec.get("hard"))
    errors += _scopes(spec)
    errors += _scope_selector(spec)
    for field in ("hard", "used"):
        errors += _amounts(status.get(field) or {}, f"status.{field}", old_status.get(field))
    if old is not None:
        before = set(old_spec.get("scopes") or ())
        if before != set(spec.get("scopes") or ()):
            errors.append(invalid("spec.scopes", spec.get("scopes"), IMMUTABLE))
    return errors


def validate_resource_quota_status(quota: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in the changed amounts of a quota's status."""
    status, before = quota.get("status") or {}, (old or {}).get("status") or {}
    errors: Errors = []
    for field in ("hard", "used"):
        old_amounts = before.get(field) or {}
        amounts = {n: v for n, v in (status.get(field) or {}).items() if old_amounts.get(n) != v}
        errors += _amounts(amounts, f"status.{field}")
    return errors


def _amounts(amounts: Manifest, path: str, before: Manifest | None = None) -> Errors:
    errors: Errors = []
    for name, value in amounts.items():
        where = f"{path}[{name}]"
        errors += name_errors(quota_resource_name_problems(name), name, where)
        if (before or {}).get(name) != value:
            errors += validate_quantity(name, value, where)
    return errors


def _valid_for(scope: str, resource: str) -> bool:
    if scope in (
        "Terminating",
        "NotTerminating",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
    ):
        return resource in _POD_RESOURCES
    if scope == "BestEffort":
        return resource == "pods"
    if scope == "VolumeAttributesClass":
        return resource in ("persistentvolumeclaims", "requests.storage")
    return True


def _conflicting(scopes: set[str], path: str, shown: object) -> Errors:
    return [
        invalid(path, shown, "conflicting scopes")
        for pair in (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
        if scopes.issuperset(pair)
    ]


def _scopes(spec: Manifest) -> Errors:
    scopes = spec.get("scopes") or []
    errors: Errors = []
    for scope in scopes:
        if scope not in _SCOPES:
            errors.append(invalid("spec.scopes", scopes, "unsupported scope"))
        for resource in sorted(spec.get("hard") or ()):
            if is_standard_quota_resource(resource) and not _valid_for(scope, resource):
                detail = "unsupported scope applied to resource"
                errors.append(invalid("spec.scopes", scopes, detail))
    return errors + _conflicting(set(scopes), "spec.scopes", scopes)


def _scope_selector(spec: Manifest) -> Errors:
    selector = spec.get("scopeSelector")
    if selector is None:
        return []
    path = "spec.scopeSelector.matchExpressions"
    errors: Errors = []
    scopes: set[str] = set()
    for expression in selector.get("matchExpressions") or ():
        scope, operator = expression.get("scopeName") or "", expression.get("operator") or ""
        values = expression.get("values") or []
        if scope not in _SCOPES:
            errors.append(invalid(f"{path}.scopeName", scope, "unsupported scope"))
        for resource in sorted(spec.get("hard") or ()):
            if is_standard_quota_resource(resource) and not _valid_for(scope, resource):
                detail = "unsupported scope applied to resource"
                errors.append(invalid(path, selector, detail))
        if scope in _EXISTS_ONLY and operator != "Exists":
            detail = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
                "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            errors.append(invalid(f"{path}.operator", operator, detail))
        if operator in ("In", "NotIn"):
            if not values:
                detail = (
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope "
                    "selector"
                )
                errors.append(required(f"{path}.values", detail))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = (
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope "
                    "selector"
                )
                errors.append(invalid(f"{path}.values", values, detail))
        else:
            errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
        scopes.add(scope)
    return errors + _conflicting(scopes, path, spec.get("scopes"))

"""Resource names, quantities and ``resources`` of containers and pods.

Rules: pkg/apis/core/validation/validation.go and pkg/apis/core/helper/helpers.go, v1.36.
"""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    NEGATIVE,
    Errors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
)
from clusterstate.objects.values import errors as kinds_of_error
from clusterstate.objects.values.errors import FieldError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import Quantity, QuantityError
from clusterstate.objects.values.remembered import remembered

HUGE_PAGES: Final = "hugepages-"
_QUOTA_HUGE_PAGES: Final = "requests.hugepages-"
_STANDARD_CONTAINER: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_OBJECT_COUNTS: Final = frozenset(
    {
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
_STANDARD_QUOTA: Final = (
    _STANDARD_CONTAINER
    | _OBJECT_COUNTS
    | {
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    }
)
_STANDARD: Final = _STANDARD_QUOTA | {"storage"}

_MOST_LISTED: Final = 50
"""The most names in an error's list, since thousands of errors may each have the list."""


def is_huge_page(name: str) -> bool:
    """Return whether ``name`` is a huge page resource such as ``hugepages-2Mi``."""
    return name.startswith(HUGE_PAGES)


def is_native_resource(name: str) -> bool:
    """Return whether Kubernetes itself defines the resource."""
    return "/" not in name or "kubernetes.io/" in name


@remembered(4096)
def is_extended_resource_name(name: str) -> bool:
    """Return whether ``name`` is an extended resource, which Kubernetes does not define itself."""
    if is_native_resource(name) or name.startswith("requests."):
        return False
    return not formats.qualified_name("requests." + name)


def is_overcommit_allowed(name: str) -> bool:
    """Return whether limits of the resource may be above requests."""
    return is_native_resource(name) and not is_huge_page(name)


def is_standard_quota_resource(name: str) -> bool:
    """Return whether a ResourceQuota may name the unprefixed resource."""
    return name in _STANDARD_QUOTA or name.startswith((HUGE_PAGES, _QUOTA_HUGE_PAGES))


def _is_integer_resource(name: str) -> bool:
    return name in _OBJECT_COUNTS or is_extended_resource_name(name)


NameProblem = tuple[str, str]
"""An error type of `FieldError`, and the error's detail."""


@remembered(4096)
def resource_name_problems(name: str) -> tuple[NameProblem, ...]:
    """Return the problems of ``name`` as a resource."""
    problems = formats.qualified_name(name)
    if problems:
        return tuple((kinds_of_error.INVALID, text) for text in problems)
    if "/" not in name and name not in _STANDARD:
        if name.startswith((HUGE_PAGES, _QUOTA_HUGE_PAGES)):
            return ()
        detail = "must be a standard resource type or fully qualified"
        return ((kinds_of_error.INVALID, detail),)
    return ()


@remembered(4096)
def container_resource_name_problems(name: str) -> tuple[NameProblem, ...]:
    """Return the problems of ``name`` as a resource of a container."""
    problems = resource_name_problems(name)
    if "/" not in name:
        if name not in _STANDARD_CONTAINER and not is_huge_page(name):
            detail = "must be a standard resource for containers"
            return (*problems, (kinds_of_error.INVALID, detail))
    elif not is_native_resource(name) and not is_extended_resource_name(name):
        detail = "doesn't follow extended resource name standard"
        return (*problems, (kinds_of_error.INVALID, detail))
    return problems


@remembered(4096)
def pod_resource_name_problems(name: str) -> tuple[NameProblem, ...]:
    """Return the problems of ``name`` as a resource of a whole pod (PodLevelResources)."""
    problems = resource_name_problems(name)
    if problems:
        return problems
    if not is_pod_level_resource(name):
        error = not_supported("", name, ("cpu", HUGE_PAGES, "memory"))
        return ((error.type, error.detail),)
    return ()


@remembered(4096)
def quota_resource_name_problems(name: str) -> tuple[NameProblem, ...]:
    """Return the problems of ``name`` as a resource of a ResourceQuota."""
    problems = resource_name_problems(name)
    if "/" not in name and not is_standard_quota_resource(name):
        return (*problems, (kinds_of_error.INVALID, "must be a standard resource for quota"))
    return problems


def is_pod_level_resource(name: str) -> bool:
    """Return whether a pod as a whole may request the resource."""
    return name in ("cpu", "memory") or is_huge_page(name)


def name_errors(problems: tuple[NameProblem, ...], name: str, path: str) -> Errors:
    """Return one error for each problem with a resource name."""
    return [FieldError(type_, path, name, detail) for type_, detail in problems]


def parse(value: Any) -> Quantity | None:
    """Return the quantity, ``None`` if ``value`` is not a quantity."""
    try:
        return Quantity.parse(value)
    except QuantityError:
        return None


def validate_quantity(name: str, value: Any, path: str) -> Errors:
    """Return the errors in an amount of the resource ``name``."""
    try:
        quantity = Quantity.parse(value)
    except QuantityError as error:
        return [invalid(path, value, str(error))]
    errors: Errors = []
    if quantity.nano < 0:
        errors.append(invalid(path, str(quantity), NEGATIVE))
    if quantity.nano % 10**9 and _is_integer_resource(name) and quantity.milli_value() % 1000:
        errors.append(invalid(path, value, "must be an integer"))
    return errors


def _huge_page_errors(name: str, value: Any, path: str) -> Errors:
    quantity = parse(value)
    size = parse(name.removeprefix(HUGE_PAGES))
    if quantity is None:
        return []
    divisible = (
        size is not None
        and size.sign > 0
        and size.milli_value() % 1000 == 0
        and quantity.value() % size.value() == 0
    )
    if divisible:
        return []
    return [invalid(path, str(quantity), f"{quantity} is not positive integer multiple of {name}")]


def validate_resource_requirements(
    requirements: Manifest,
    path: str,
    *,
    name_problems: Callable[[str], tuple[NameProblem, ...]] = container_resource_name_problems,
    claim_names: Collection[str] = (),
    allow_indivisible_huge_pages: bool = False,
) -> Errors:
    """Return the errors in ``{limits, requests, claims}`` at ``path``."""
    errors: Errors = []
    limits = requirements.get("limits") or {}
    requests = requirements.get("requests") or {}
    huge_pages = computing = False
    for field, resources in (("limits", limits), ("requests", requests)):
        for name, value in resources.items():
            if problems := name_problems(name):
                errors += name_errors(problems, name, f"{path}.{field}[{name}]")
            where = f"{path}.{field}[{name}]"
            errors += validate_quantity(name, value, where)
            if name in ("cpu", "memory"):
                computing = True
            elif is_huge_page(name):
                huge_pages = True
                if not allow_indivisible_huge_pages:
                    errors += _huge_page_errors(name, value, where)
    for name, value in requests.items():
        if name in limits:
            limit = limits[name]
            if value != limit:
                errors += _above_limit(name, value, limit, path)
        elif not is_overcommit_allowed(name):
            detail = "Limit must be set for non overcommitable resources"
            errors.append(required(f"{path}.limits", detail))
    if huge_pages and not computing:
        errors.append(forbidden(path, "HugePages require cpu or memory"))
    if claims := requirements.get("claims"):
        errors += _claims(claims, claim_names, f"{path}.claims")
    return errors


def _above_limit(name: str, request: Any, limit: Any, path: str) -> Errors:
    requested, allowed = parse(request), parse(limit)
    if requested is None or allowed is None or requested == allowed:
        return []
    where = f"{path}.requests"
    if not is_overcommit_allowed(name):
        return [invalid(where, str(requested), f"must be equal to {name} limit of {allowed}")]
    if requested > allowed:
        detail = f"must be less than or equal to {name} limit of {allowed}"
        return [invalid(where, str(requested), detail)]
    return []


def _claims(claims: list[Manifest], claim_names: Collection[str], path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    requests: Counter[str] = Counter()
    listed = ", ".join(sorted(claim_names)[:_MOST_LISTED])
    if len(claim_names) > _MOST_LISTED:
        listed += f" and {len(claim_names) - _MOST_LISTED} more"
    for index, claim in enumerate(claims):
        where = f"{path}[{index}]"
        name = claim.get("name") or ""
        request = claim.get("request") or ""
        if not name:
            errors.append(required(where))
            continue
        if name in seen:
            errors.append(duplicate(where, name))
        else:
            key = name
            if request:
                errors += invalid_each(f"{where}.request", request, formats.dns_label(request))
                key = f"{name}/{request}"
            if key in seen:
                errors.append(duplicate(where, key))
            elif not request:
                # The whole claim overlaps with each of its requests named before.
                errors += [duplicate(where, name)] * requests[name]
            if request and key not in seen:
                requests[name] += 1
            seen.add(key)
        if name not in claim_names:
            detail = "must be one of the names in pod.spec.resourceClaims"
            detail += f": {listed}" if listed else " which is empty"
            errors.append(FieldError(kinds_of_error.NOT_FOUND, where, name, detail))
    return errors

"""The status that an agent reports of a pod.

Rules: pkg/apis/core/validation/validation.go ``ValidatePodStatusUpdate`` and what it calls, and
pkg/api/v1/pod/util.go ``ContainerShouldRestart``, v1.36.
"""

import ipaddress
from collections.abc import Collection, Iterator
from typing import Any, Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    one_of,
    required,
)
from clusterstate.admission.validation.core.metadata import IMMUTABLE, validate_object_meta_update
from clusterstate.admission.validation.core.options import PodOptions
from clusterstate.admission.validation.pods.pod_updates import validate_annotations_update
from clusterstate.objects.values.meta import Manifest

_OWN_CONDITIONS: Final = ("PodScheduled", "Ready", "Initialized")
_HEALTH: Final = ("Healthy", "Unhealthy", "Unknown")
_CLAIM: Final = "claim:"
_NOT_NEGATIVE: Final = "must be a non-negative integer"
_LISTS: Final = (
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
)
"""The lists of a status, with the list of the spec that each of them tells of."""


def validate_pod_status_update(new: Manifest, old: Manifest, options: PodOptions) -> Errors:
    """Return the errors in a status that an agent reports."""
    errors = validate_object_meta_update(new.get("metadata") or {}, old.get("metadata") or {})
    errors += validate_annotations_update(new, old, options)
    spec, old_spec = new.get("spec") or {}, old.get("spec") or {}
    status, old_status = new.get("status") or {}, old.get("status") or {}
    errors += _conditions(status)
    if (spec.get("nodeName") or "") != (old_spec.get("nodeName") or ""):
        errors.append(forbidden("status.nodeName", "may not be changed directly"))
    nominated = status.get("nominatedNodeName") or ""
    if nominated and nominated != (old_status.get("nominatedNodeName") or ""):
        at = "status.nominatedNodeName"
        errors += invalid_each(at, nominated, formats.dns_subdomain(nominated))
        if old_spec.get("nodeName"):
            detail = "may not be set on pods that are already bound to a node"
            errors.append(forbidden(at, detail))
    if (status.get("observedGeneration") or 0) < 0:
        at = "status.observedGeneration"
        errors.append(invalid(at, status["observedGeneration"], _NOT_NEGATIVE))
    if (status.get("qosClass") or "") != (old_status.get("qosClass") or ""):
        errors.append(invalid("status.qosClass", status.get("qosClass"), IMMUTABLE))
    for field, spec_field in _LISTS:
        errors += _state_transitions(status, old_status, old_spec, field, spec_field)
    errors += _claim_statuses(status, spec)
    errors += _extended_resource_claim(status, spec)
    errors += _addresses(status, old_status, "podIPs", options)
    errors += _host_addresses(status, old_status, options)
    for field, _ in _LISTS:
        errors += _users(status, field, (spec.get("os") or {}).get("name"))
    for field, spec_field in _LISTS:
        errors += _allocated(status, spec, field, spec_field)
    return errors


def _conditions(status: Manifest) -> Errors:
    errors: Errors = []
    for index, condition in enumerate(status.get("conditions") or ()):
        at, type_ = f"status.conditions[{index}]", condition.get("type") or ""
        if (condition.get("observedGeneration") or 0) < 0:
            observed = condition["observedGeneration"]
            errors.append(invalid(f"{at}.observedGeneration", observed, _NOT_NEGATIVE))
        if type_ not in _OWN_CONDITIONS:
            errors += invalid_each(f"{at}.Type", type_, formats.qualified_name(type_))
    return errors


# Containers that run again --------------------------------------------------------------------


def _state_transitions(
    new: Manifest, old: Manifest, spec: Manifest, field: str, spec_field: str
) -> Errors:
    """Return the errors of ended containers that must not restart and get another state."""
    states = {one.get("name"): one.get("state") or {} for one in new.get(field) or ()}
    containers = {one.get("name"): one for one in spec.get(spec_field) or ()}
    ephemeral = spec_field == "ephemeralContainers"
    errors: Errors = []
    for index, status in enumerate(old.get(field) or ()):
        terminated, name = (status.get("state") or {}).get("terminated"), status.get("name")
        if terminated is None or name not in states or states[name].get("terminated") is not None:
            continue
        container = containers.get(name)
        code = terminated.get("exitCode") or 0
        if ephemeral or container is None or not may_run_again(container, spec, code):
            at = f"status.{field}[{index}].state"
            errors.append(forbidden(at, "may not be transitioned to non-terminated state"))
    return errors


def may_run_again(container: Manifest, spec: Manifest, exit_code: int) -> bool:
    """Return whether a container that ended with ``exit_code`` may restart.

    If a rule of any container restarts all of them, each may. Else the container's first matching
    rule decides, then its own restart policy, then the pod's.
    """
    if _restarts_all(spec):
        return True
    policy = container.get("restartPolicy")
    if policy and _rule_matches(container.get("restartPolicyRules") or (), exit_code):
        return True
    policy = policy or spec.get("restartPolicy")
    if policy == "OnFailure":
        return exit_code != 0
    return bool(policy != "Never")


def _restarts_all(spec: Manifest) -> bool:
    return any(
        rule.get("action") == "RestartAllContainers"
        for field in ("containers", "initContainers")
        for container in spec.get(field) or ()
        for rule in container.get("restartPolicyRules") or ()
    )


def _rule_matches(rules: Collection[Manifest], exit_code: int) -> bool:
    """Return whether the first rule for this exit code says to restart the container."""
    for rule in rules:
        codes = rule.get("exitCodes") or {}
        named = exit_code in (codes.get("values") or ())
        if named == (codes.get("operator") == "In"):
            return bool(rule.get("action") == "Restart")
    return False


# Claims ---------------------------------------------------------------------------------------


def _claim_statuses(status: Manifest, spec: Manifest) -> Errors:
    claim_names = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    errors: Errors = []
    for index, one in enumerate(status.get("resourceClaimStatuses") or ()):
        at, name = f"status.resourceClaimStatuses[{index}].name", one.get("name") or ""
        if name not in claim_names:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            errors.append(invalid(at, name, detail))
        if name in seen:
            errors.append(duplicate(at, name))
        seen.add(name)
        claim = one.get("resourceClaimName")
        if claim is not None:
            errors += invalid_each(at, claim, formats.dns_subdomain(claim))
    return errors


def _extended_resource_claim(status: Manifest, spec: Manifest) -> Errors:
    claim = status.get("extendedResourceClaimStatus")
    if claim is None:
        return []
    path = "status.extendedResourceClaimStatus"
    containers = {
        container.get("name"): container
        for field in ("initContainers", "containers")
        for container in spec.get(field) or ()
    }
    errors: Errors = []
    mappings = claim.get("requestMappings") or ()
    if not mappings:
        detail = "at least one request mapping is required"
        errors.append(required(f"{path}.requestMappings", detail))
    seen: set[tuple[str, str, str]] = set()
    for index, mapping in enumerate(mappings):
        at = f"{path}.requestMappings[{index}]"
        name, resource, request = (
            mapping.get(key) or "" for key in ("containerName", "resourceName", "requestName")
        )
        container = containers.get(name)
        if container is None:
            detail = (
                "must match the name of an entry in spec.initContainers.name"
                " or spec.containers.name"
            )
            errors.append(invalid(f"{at}.containerName", name, detail))
        elif resource not in _requests(container):
            detail = (
                "must match the extended resource name of an entry in"
                " spec.initContainers.resources.requests or spec.containers.resources.requests"
            )
            errors.append(invalid(f"{at}.resourceName", resource, detail))
        errors += invalid_each(f"{path}.requestName", request, formats.dns_label(request))
        if (name, resource, request) in seen:
            errors.append(duplicate(f"{at}.containerName", name))
            errors.append(duplicate(f"{at}.resourceName", resource))
            errors.append(duplicate(f"{at}.requestName", request))
        seen.add((name, resource, request))
    named = claim.get("resourceClaimName") or ""
    at = f"{path}.resourceClaimName"
    if not named:
        return [*errors, required(at)]
    return errors + invalid_each(at, named, formats.dns_subdomain(named))


def _requests(container: Manifest) -> Collection[str]:
    return (container.get("resources") or {}).get("requests") or {}


# Addresses ------------------------------------------------------------------------------------


def _addresses(new: Manifest, old: Manifest, field: str, options: PodOptions) -> Errors:
    """Return the errors in addresses; malformed ones that are stored already may stay."""
    path = f"status.{field}"
    old_addresses = {one.get("ip") or "" for one in old.get(field) or ()}
    items = new.get(field) or []
    errors: Errors = []
    families = []
    for index, item in enumerate(items):
        address = item.get("ip") or ""
        families.append(_family(address))
        if address not in old_addresses:
            problems = formats.ip_address(address, strict=options.strict_ip_cidr)
            errors += invalid_each(f"{path}[{index}]", address, problems)
    if len(items) > 1 and sorted(families) != [4, 6]:
        detail = "may specify no more than one IP for each IP family"
        errors.append(invalid(path, items, detail))
    return errors


def _family(address: str) -> int:
    """Return 4 or 6, or 0 for a text that is no address."""
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        return 0


def _host_addresses(new: Manifest, old: Manifest, options: PodOptions) -> Errors:
    items = new.get("hostIPs") or []
    if not items:
        return []
    errors: Errors = []
    first = items[0].get("ip") or ""
    if first != (new.get("hostIP") or ""):
        errors.append(invalid("status.hostIPs[0].ip", first, "must be equal to `hostIP`"))
    return errors + _addresses(new, old, "hostIPs", options)


# What containers run as, and what they were given ---------------------------------------------


def _users(status: Manifest, field: str, system: str | None) -> Errors:
    errors: Errors = []
    for index, one in enumerate(status.get(field) or ()):
        linux = (one.get("user") or {}).get("linux")
        if linux is None:
            continue
        at = f"status.{field}[{index}].user.linux"
        if system == "windows":
            errors.append(forbidden(at, "cannot be set for a windows pod"))
        elif system in (None, "", "linux"):
            for where, number in _numbers(linux):
                errors += invalid_each(f"{at}.{where}", number, formats.user_or_group_id(number))
    return errors


def _numbers(user: Manifest) -> Iterator[tuple[str, int]]:
    """Yield the path and the value of each user id."""
    yield "uid", user.get("uid") or 0
    yield "gid", user.get("gid") or 0
    for index, number in enumerate(user.get("supplementalGroups") or ()):
        yield f"supplementalGroups[{index}]", number


def _allocated(status: Manifest, spec: Manifest, field: str, spec_field: str) -> Errors:
    """Return the errors in the devices that a status assigns to containers.

    Containers that the spec does not have are not checked, as upstream does.
    """
    containers = {one.get("name"): one for one in spec.get(spec_field) or ()}
    errors: Errors = []
    for index, one in enumerate(status.get(field) or ()):
        allocated = one.get("allocatedResourcesStatus") or ()
        path = f"status.{field}[{index}].allocatedResourcesStatus"
        if allocated and spec_field == "ephemeralContainers":
            errors.append(forbidden(path, "must not be specified in container status"))
            continue
        container = containers.get(one.get("name"))
        for place, resource in enumerate(allocated):
            at = f"{path}[{place}]"
            if container is not None:
                errors += _given_name(resource.get("name") or "", container, f"{at}.name")
            errors += _healths(resource, f"{at}.resources")
    return errors


def _given_name(name: str, container: Manifest, at: str) -> Errors:
    """Return the error of a resource or claim that the container does not request."""
    if not name.startswith(_CLAIM):
        if name in _requests(container):
            return []
        return [invalid(at, name, "must match one of the container's resource requests")]
    claims: Any = (container.get("resources") or {}).get("claims") or ()
    for claim in claims:
        request = claim.get("request")
        if name == _CLAIM + (claim.get("name") or "") + (f"/{request}" if request else ""):
            return []
    detail = (
        "must match one of the container's resource claims in a format"
        " 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
    )
    return [invalid(at, name, detail)]


def _healths(resource: Manifest, path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, one in enumerate(resource.get("resources") or ()):
        errors += one_of(one.get("health") or "", f"{path}[{index}].health", _HEALTH)
        id_ = one.get("resourceID") or ""
        if id_ in seen:
            errors.append(duplicate(f"{path}[{index}].resourceID", id_))
        seen.add(id_)
    return errors

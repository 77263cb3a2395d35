"""Pod-level ``resources`` against those of the containers.

Rule: pkg/apis/core/validation/validation.go ``validatePodResources``, v1.36.
"""

from collections.abc import Collection

import msgspec

from clusterstate.admission.validation.field import Errors, forbidden, invalid
from clusterstate.admission.validation.options import PodOptions
from clusterstate.admission.validation.resources import (
    is_pod_level_resource,
    parse,
    pod_resource_name_problems,
    validate_resource_requirements,
)
from clusterstate.objects.meta import Manifest
from clusterstate.objects.pod import Pod
from clusterstate.objects.quantity import ZERO, QuantityError
from clusterstate.objects.resources import aggregate_container_requests


def validate_pod_resources(
    spec: Manifest, path: str, claim_names: Collection[str], options: PodOptions
) -> Errors:
    """Return what is wrong with ``spec.resources``: it must cover all containers together."""
    if (spec.get("os") or {}).get("name") == "windows":
        return [forbidden(path, "may not be set for a windows pod")]
    resources = spec["resources"]
    errors: Errors = []
    if resources.get("claims"):
        detail = "claims cannot be set for Resources at pod-level"
        errors.append(forbidden(f"{path}.claims", detail))
    errors += validate_resource_requirements(
        resources,
        path,
        name_problems=pod_resource_name_problems,
        claim_names=claim_names,
        allow_indivisible_huge_pages=options.allow_indivisible_huge_pages_values,
    )
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    try:
        asked = aggregate_container_requests(msgspec.convert({"spec": spec}, Pod))
    except (msgspec.ValidationError, QuantityError):
        return errors  # the containers' own validation names the field
    for name, amount in asked.items():
        if not is_pod_level_resource(name):
            continue
        granted = (parse(requests[name]) if name in requests else None) or ZERO
        if amount > granted:
            detail = f"must be greater than or equal to aggregate container requests of {amount}"
            errors.append(invalid(f"{path}.requests[{name}]", str(granted), detail))
    for index, container in enumerate(spec.get("containers") or ()):
        own = (container.get("resources") or {}).get("limits") or {}
        for name, value in own.items():
            limit = parse(limits[name]) if name in limits else None
            amount_of_container = parse(value)
            if limit is None or amount_of_container is None or amount_of_container <= limit:
                continue
            at = f"{path}.containers[{index}][{name}].limits"
            detail = f"must be less than or equal to pod limits of {limit}"
            errors.append(invalid(at, str(amount_of_container), detail))
    return errors

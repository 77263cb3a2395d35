"""Pod-level ``resources`` against those of the containers.

Rule: pkg/apis/core/validation/validation.go ``validatePodResources``, v1.36.
"""

from collections.abc import Collection

import msgspec

from clusterstate.admission.validation.core.field import (
    Errors,
    forbidden,
    invalid,
)
from clusterstate.admission.validation.core.options import PodOptions
from clusterstate.admission.validation.core.resources import (
    is_pod_level_resource,
    parse,
    pod_resource_name_problems,
    validate_resource_requirements,
)
from clusterstate.objects.rules.resources import (
    HUGE_PAGES_PREFIX,
    ResourceList,
    aggregate_container_limits,
    aggregate_container_requests,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.quantity import Quantity, QuantityError


def validate_pod_resources(
    spec: Manifest, path: str, claim_names: Collection[str], options: PodOptions
) -> Errors:
    """Return the errors in ``spec.resources``: what it states must cover the containers.

    Together they must fit its requests and its limits of huge pages, each alone its other limits.
    """
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
        pod = msgspec.convert({"spec": spec}, Pod)
        aggregate = aggregate_container_requests(pod)
        allowed = aggregate_container_limits(pod)
    except (msgspec.ValidationError, QuantityError):
        return errors  # the containers' own validation names the field
    huge_pages = {n: amount for n, amount in allowed.items() if n.startswith(HUGE_PAGES_PREFIX)}
    errors += _not_covered(requests, aggregate, f"{path}.requests", "requests")
    errors += _not_covered(limits, huge_pages, f"{path}.limits", "limits")
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


def _not_covered(pod_level: Manifest, together: ResourceList, path: str, what: str) -> Errors:
    """Return where the pod states less than the sum of its containers; unstated is no error."""
    errors: Errors = []
    for name, amount in together.items():
        granted: Quantity | None = parse(pod_level[name]) if name in pod_level else None
        if granted is not None and is_pod_level_resource(name) and amount > granted:
            detail = f"must be greater than or equal to aggregate container {what} of {amount}"
            errors.append(invalid(f"{path}[{name}]", str(granted), detail))
    return errors

"""Area podresources: what a pod asks for, with init containers, overhead and status."""

from typing import Any

import msgspec

from clusterstate.objects.rules import resources
from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.pod import Pod, PodStatus
from clusterstate.objects.values.quantity import Quantity

_FUNCTIONS = {
    "podRequests": resources.pod_requests,
    "podLimits": resources.pod_limits,
    "aggregateContainerRequests": resources.aggregate_container_requests,
    "aggregateContainerLimits": resources.aggregate_container_limits,
}
_OPTIONS = {
    "useStatusResources": "use_status_resources",
    "excludeOverhead": "exclude_overhead",
    "skipPodLevelResources": "skip_pod_level_resources",
    "skipContainerLevelResources": "skip_container_level_resources",
}
# Always on here, where it is a feature gate of Kubernetes that is on by default.
_ALWAYS = frozenset({"inPlacePodLevelResourcesVerticalScalingEnabled"})


def check(case: dict[str, Any]) -> str | None:
    """Return what differs, None if nothing does."""
    function = _FUNCTIONS.get(case["fn"])
    if function is None:
        return f"unknown fn {case['fn']!r}"
    settings: dict[str, Any] = {}
    for name, value in (case.get("options") or {}).items():
        if name == "nonMissingContainerRequests":
            settings["non_missing_container_requests"] = resources.parse_resources(value)
        elif name in _OPTIONS:
            settings[_OPTIONS[name]] = value
        elif name not in _ALWAYS:
            return f"unknown option {name!r}"
    pod = msgspec.convert(case["pod"], Pod)
    options = resources.PodResourcesOptions(compatibility=Compatibility.V1_36, **settings)
    found = {name: str(q) for name, q in function(pod, options).items()}
    wanted = {name: str(Quantity.parse(text)) for name, text in (case["result"] or {}).items()}
    if found != wanted:
        return f"{found}, wanted {wanted}"
    if case["fn"] == "podRequests" and not settings and pod.status == PodStatus():
        return _integers(pod, wanted)
    return None


def _integers(pod: Pod, wanted: dict[str, str]) -> str | None:
    """Check the integers that the scheduler counts with against the exact result."""
    found = resources.pod_request_ints(pod)
    exact = {
        name: Quantity.parse(text).milli_value() if name == "cpu" else Quantity.parse(text).value()
        for name, text in wanted.items()
    }
    return None if found == exact else f"integers {found}, wanted {exact}"

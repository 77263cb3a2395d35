"""Validation of pods, nodes, namespaces and their parts: every field error, word for word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from clusterstate.admission.validation import pods
from clusterstate.admission.validation.core import namespaces, nodes, scheduling
from clusterstate.admission.validation.core.options import PodOptions
from clusterstate.admission.validation.core.ports import validate_container_ports
from clusterstate.admission.validation.core.resources import (
    name_errors,
    pod_resource_name_problems,
    resource_name_problems,
)
from clusterstate.admission.validation.kinds import validate as validate_kind
from clusterstate.admission.validation.pods import pod_updates
from clusterstate.objects.values.errors import FieldError

_OPTION_NAMES = {
    "".join(part for part in name.replace("_", " ").title().split()): name
    for name in PodOptions.__struct_fields__
}
_SPELLINGS = {
    "AllowRelaxedDNSSearchValidation": "allow_relaxed_dns_search_validation",
    "AllowOnlyRecursiveSELinuxChangePolicy": "allow_only_recursive_se_linux_change_policy",
    "AllowNamespacedSysctlsForHostNetAndHostIPC": (
        "allow_namespaced_sysctls_for_host_net_and_host_ipc"
    ),
}


def _options(case: dict[str, Any]) -> PodOptions:
    options = {
        _SPELLINGS.get(name) or _OPTION_NAMES[name]: True
        for name in case.get("options") or {}
        if name in _SPELLINGS or name in _OPTION_NAMES
    }
    # Until v1.37 templates may hold image volumes without a reference.
    in_template = "resource_is_pod" not in options
    return msgspec.structs.replace(
        PodOptions(**options),
        strict_ip_cidr=_strict(case), allow_empty_image_reference=in_template,
    )  # fmt: skip


def _spec(case: dict[str, Any]) -> dict[str, Any]:
    return case["pod"].get("spec") or {}


def _strict(case: dict[str, Any]) -> bool:
    return (case.get("gates") or {}).get("StrictIPCIDRValidation", True)


_FUNCTIONS: dict[str, Callable[[dict[str, Any]], list[FieldError]]] = {
    "validatePodCreate": lambda c: pods.validate_pod_create(c["pod"], _options(c)),
    "validatePodUpdate": lambda c: pod_updates.validate_pod_update(
        c["pod"], c["oldPod"], _options(c)
    ),
    "validatePodSpec": lambda c: pods.validate_pod_spec(
        _spec(c),
        c.get("path") or "spec",
        _options(c),
        pod_name=(c["pod"].get("metadata") or {}).get("name") or "",
    ),
    "validateTolerations": lambda c: scheduling.validate_tolerations(
        _spec(c).get("tolerations") or [],
        c["path"],
        comparison_operators=_options(c).allow_taint_toleration_comparison_operators,
    ),
    "validateTopologySpreadConstraints": lambda c: pods.spread_errors(
        _spec(c).get("topologySpreadConstraints") or [], c["path"], _options(c)
    ),
    "validateSchedulingGates": lambda c: scheduling.validate_scheduling_gates(
        _spec(c).get("schedulingGates") or [], c["path"]
    ),
    "validateContainerPorts": lambda c: validate_container_ports(
        _spec(c)["containers"][0].get("ports") or [], c["path"]
    ),
    "validateResourceName": lambda c: name_errors(
        resource_name_problems(c["resourceName"]), c["resourceName"], c["path"]
    ),
    "validatePodResourceName": lambda c: name_errors(
        pod_resource_name_problems(c["resourceName"]), c["resourceName"], c["path"]
    ),
    "validateNode": lambda c: nodes.validate_node(c["node"], strict_ip_cidr=_strict(c)),
    "validateNodeUpdate": lambda c: nodes.validate_node_update(c["node"], c["oldNode"]),
    "validateNamespace": lambda c: namespaces.validate_namespace(c["namespace"]),
    "validateResourceQuota": lambda c: validate_kind("ResourceQuota", c["resourceQuota"], None, ""),
    "validateLimitRange": lambda c: validate_kind("LimitRange", c["limitRange"], None, ""),
}


UNREAD = {"gates.TaintTolerationComparisonOperators", "hasMeta", "topics"}
"""Words for choosing cases; the gate comes with an option."""


def check(case: dict[str, Any]) -> str | None:
    errors = _FUNCTIONS[case["fn"]](case)
    found = sorted((error.field, error.type, error.detail) for error in errors)
    wanted = sorted((e["field"], e["type"], e.get("detail") or "") for e in case["errors"])
    if found == wanted:
        return None
    missing = [error for error in wanted if error not in found]
    extra = [error for error in found if error not in wanted]
    return f"missing {missing}, extra {extra}"

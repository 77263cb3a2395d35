"""The admission plugins, one request each: mutated object, or the error."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from clusterstate.admission.plugins import (
    default_toleration_seconds,
    extended_resource_toleration,
    limit_pod_hard_anti_affinity_topology,
    node_restriction,
    pod_toleration_restriction,
    priority,
    runtime_class,
    taint_nodes_by_condition,
)
from clusterstate.admission.request import AdmissionSettings, Request, User
from clusterstate.objects.registry.kinds import ALL_KINDS
from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.errors import StatusError
from tests.conformance.manifests import difference

_KINDS = {kind.plural: kind.name for kind in ALL_KINDS}


class CaseContext:
    """The lookups that a case states."""

    def __init__(self, context: dict[str, Any]) -> None:
        self.known = context
        self.settings = AdmissionSettings(
            not_ready_toleration_seconds=context.get("notReadyTolerationSeconds", 300),
            unreachable_toleration_seconds=context.get("unreachableTolerationSeconds", 300),
            cluster_default_tolerations=_tuple(context.get("clusterDefault")),
            cluster_toleration_whitelist=_tuple(context.get("clusterWhitelist")),
            compatibility=Compatibility.V1_36,
        )

    def _find(self, field: str, name: str) -> dict[str, Any] | None:
        for manifest in self.known.get(field) or ():
            if manifest is not None and manifest["metadata"].get("name") == name:
                return manifest
        return None

    def runtime_class(self, name: str) -> dict[str, Any] | None:
        return self._find("runtimeClasses", name)

    def priority_class(self, name: str) -> dict[str, Any] | None:
        return self._find("priorityClasses", name)

    def default_priority_class(self) -> dict[str, Any] | None:
        defaults = [c for c in self.known.get("priorityClasses") or () if c.get("globalDefault")]
        return min(defaults, key=lambda c: c.get("value", 0), default=None)

    def limit_ranges(self, namespace: str) -> tuple[dict[str, Any], ...]:
        return ()

    def namespace(self, name: str) -> dict[str, Any] | None:
        return self.known.get("namespace")

    def node(self, name: str) -> dict[str, Any] | None:
        return self._find("nodes", name)

    def service_account(self, namespace: str, name: str) -> dict[str, Any] | None:
        return None

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        for manifest in self.known.get("pods") or ():
            meta = manifest["metadata"]
            if (meta.get("namespace"), meta.get("name")) == (namespace, name):
                return manifest
        return None


def _tuple(tolerations: list[dict[str, Any]] | None) -> tuple[dict[str, Any], ...] | None:
    return None if tolerations is None else tuple(tolerations)


def _only_class(request: Request) -> dict[str, Any] | None:
    classes = request.context.known.get("runtimeClasses") or [None]
    return classes[0]


def _merge(step: Callable[[dict[str, Any], dict[str, Any]], None]) -> Callable[[Request], None]:
    def run(request: Request) -> None:
        found = _only_class(request)
        if found is None:
            return
        try:
            step(request.manifest, found)
        except runtime_class.Conflict as conflict:
            raise request.forbidden(str(conflict)) from conflict

    return run


_STEPS: dict[tuple[str, str], Callable[[Request], None]] = {
    ("DefaultTolerationSeconds", "admit"): default_toleration_seconds.admit,
    ("ExtendedResourceToleration", "admit"): extended_resource_toleration.admit,
    ("LimitPodHardAntiAffinityTopology", "validate"): (
        limit_pod_hard_anti_affinity_topology.validate
    ),
    ("NodeRestriction", "admit"): node_restriction.admit,
    ("PodTolerationRestriction", "admit"): pod_toleration_restriction.admit,
    ("PodTolerationRestriction", "validate"): pod_toleration_restriction.validate,
    ("Priority", "admit"): priority.admit,
    ("Priority", "validate"): priority.validate,
    ("RuntimeClass", "admit"): runtime_class.admit,
    ("RuntimeClass", "validate"): runtime_class.validate,
    ("RuntimeClass", "setOverhead"): _merge(runtime_class.set_overhead),
    ("RuntimeClass", "setScheduling"): _merge(runtime_class.set_scheduling),
    ("RuntimeClass", "validateOverhead"): lambda request: runtime_class.validate_overhead(
        request, _only_class(request)
    ),
    ("TaintNodesByCondition", "admit"): taint_nodes_by_condition.admit,
}


def check(case: dict[str, Any]) -> str | None:
    context = CaseContext(case.get("context") or {})
    if case["phase"] == "defaultPriority":
        name, value, _ = priority.default_priority(context)
        return difference(case["result"], {"name": name, "value": value})
    user = case.get("user") or {}
    request = Request(
        kind=_KINDS.get(case["resource"], case["resource"]),
        operation=case["operation"],
        manifest=copy.deepcopy(case.get("object")) or {},
        old=case.get("oldObject"),
        subresource=case.get("subresource") or "",
        namespace=case.get("namespace") or "",
        name=case.get("name") or "",
        user=User(name=user.get("name") or "", groups=tuple(user.get("groups") or ())),
        context=context,
    )
    try:
        _STEPS[case["plugin"], case["phase"]](request)
    except StatusError as error:
        if case["allowed"]:
            return f"refused: {error}"
        return _compare_error(case["error"], error)
    if not case["allowed"]:
        return f"allowed, expected {case['error']}"
    if "result" not in case:
        return None
    return difference(case["result"], request.manifest)


def _compare_error(expected: dict[str, Any], error: StatusError) -> str | None:
    found = {"message": error.message, "code": error.code, "reason": error.reason}
    wanted = {key: expected[key] for key in found if key in expected}
    if {key: found[key] for key in wanted} != wanted:
        return f"expected {wanted}, got {msgspec.json.encode(found).decode()}"
    return None

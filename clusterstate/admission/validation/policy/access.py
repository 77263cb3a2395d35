"""Roles and their bindings. Rules: pkg/apis/rbac/validation/validation.go, v1.36."""

from typing import Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    check_form,
    each,
    invalid,
    not_supported,
    one_of,
    require_form,
    required,
)
from clusterstate.admission.validation.core.metadata import validate_label_selector
from clusterstate.objects.values.meta import Manifest

GROUP: Final = "rbac.authorization.k8s.io"


def validate_role(role: Manifest) -> Errors:
    """Return the errors in the rules of a Role."""
    return _rules(role, namespaced=True)


def validate_cluster_role(role: Manifest) -> Errors:
    """Return the errors in the rules of a ClusterRole, or with what it aggregates."""
    errors = _rules(role, namespaced=False)
    aggregation = role.get("aggregationRule")
    if aggregation is not None:
        path = "aggregationRule.clusterRoleSelectors"
        selectors = aggregation.get("clusterRoleSelectors") or ()
        if not selectors:
            detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            errors.append(required(path, detail))
        errors += each(selectors, path, validate_label_selector)
    return errors


def _rules(role: Manifest, *, namespaced: bool) -> Errors:
    errors: Errors = []
    for index, rule in enumerate(role.get("rules") or ()):
        errors += _rule(rule, f"rules[{index}]", namespaced=namespaced)
    return errors


def _rule(rule: Manifest, path: str, *, namespaced: bool) -> Errors:
    errors: Errors = []
    if not rule.get("verbs"):
        errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
    if urls := rule.get("nonResourceURLs"):
        where = f"{path}.nonResourceURLs"
        if namespaced:
            detail = "namespaced rules cannot apply to non-resource URLs"
            errors.append(invalid(where, urls, detail))
        if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid(where, urls, detail))
        return errors
    if not rule.get("apiGroups"):
        detail = "resource rules must supply at least one api group"
        errors.append(required(f"{path}.apiGroups", detail))
    if not rule.get("resources"):
        detail = "resource rules must supply at least one resource"
        errors.append(required(f"{path}.resources", detail))
    return errors


def validate_role_binding(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in a RoleBinding, or with its change."""
    return _binding(new, old, ("Role", "ClusterRole"), namespaced=True)


def validate_cluster_role_binding(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in a ClusterRoleBinding, or with its change."""
    return _binding(new, old, ("ClusterRole",), namespaced=False)


def _binding(
    new: Manifest, old: Manifest | None, roles: tuple[str, ...], *, namespaced: bool
) -> Errors:
    role = new.get("roleRef") or {}
    errors: Errors = []
    group, kind, name = (role.get(field) or "" for field in ("apiGroup", "kind", "name"))
    if group != GROUP:
        errors.append(not_supported("roleRef.apiGroup", group, (GROUP,)))
    errors += one_of(kind, "roleRef.kind", roles)
    errors += require_form(name, "roleRef.name", formats.path_segment)
    for index, subject in enumerate(new.get("subjects") or ()):
        errors += _subject(subject, f"subjects[{index}]", namespaced=namespaced)
    if old is not None and role != (old.get("roleRef") or {}):
        errors.append(invalid("roleRef", role, "cannot change roleRef"))
    return errors


def _subject(subject: Manifest, path: str, *, namespaced: bool) -> Errors:
    errors: Errors = []
    kind, name, group = (subject.get(field) or "" for field in ("kind", "name", "apiGroup"))
    if not name:
        errors.append(required(f"{path}.name"))
    if kind == "ServiceAccount":
        errors += check_form(name, f"{path}.name", formats.dns_subdomain)
        if group:
            errors.append(not_supported(f"{path}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            errors.append(required(f"{path}.namespace"))
    elif kind in ("User", "Group"):
        if group != GROUP:
            errors.append(not_supported(f"{path}.apiGroup", group, (GROUP,)))
    else:
        kinds = ("ServiceAccount", "User", "Group")
        errors.append(not_supported(f"{path}.kind", kind, kinds))
    return errors

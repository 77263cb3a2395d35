"""Affinity, tolerations and taints, topology spread, scheduling gates.

Rules: pkg/apis/core/validation/validation.go, v1.36. The profile argument ``addedAffinity`` is
checked with `validate_node_affinity` too.
"""

import re
from typing import Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    one_of,
    required,
)
from clusterstate.admission.validation.core.metadata import validate_label_selector
from clusterstate.objects.rules.matching import EFFECTS
from clusterstate.objects.values.errors import DUPLICATE, FieldError
from clusterstate.objects.values.labels import parse_int64
from clusterstate.objects.values.meta import Manifest

REQUIRED_REQUIRED: Final = "requiredDuringSchedulingRequiredDuringExecution"
REQUIRED_IGNORED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT: Final = "must be in the range 1-100"
_OPERATOR: Final = "not a valid selector operator"
_BOTH: Final = "exists in both matchLabelKeys and labelSelector"
_CANONICAL_INTEGER: Final = re.compile("0|-?[1-9][0-9]*")


# Node affinity --------------------------------------------------------------------------------


def validate_affinity(
    affinity: Manifest,
    path: str,
    *,
    allow_invalid_values_in_selector: bool = False,
    allow_invalid_values_in_required_node_affinity: bool = False,
) -> Errors:
    """Return the errors in ``spec.affinity``."""
    errors: Errors = []
    if node_affinity := affinity.get("nodeAffinity"):
        errors += validate_node_affinity(
            node_affinity,
            f"{path}.nodeAffinity",
            allow_invalid_values=allow_invalid_values_in_required_node_affinity,
        )
    for name in ("podAffinity", "podAntiAffinity"):
        if pod_affinity := affinity.get(name):
            errors += _pod_affinity(
                pod_affinity, f"{path}.{name}", allow_invalid_values_in_selector
            )
    return errors


def validate_node_affinity(
    node_affinity: Manifest, path: str, *, allow_invalid_values: bool = False
) -> Errors:
    """Return the errors in node affinity, RequiredDuringExecution included (R2, C5)."""
    errors: Errors = []
    for name in (REQUIRED_REQUIRED, REQUIRED_IGNORED):
        selector = node_affinity.get(name)
        if selector is not None:
            errors += validate_node_selector(
                selector, f"{path}.{name}", allow_invalid_values=allow_invalid_values
            )
    for index, term in enumerate(node_affinity.get(PREFERRED) or ()):
        where = f"{path}.{PREFERRED}[{index}]"
        weight = term.get("weight", 0)
        if not 1 <= weight <= 100:
            errors.append(invalid(f"{where}.weight", weight, _WEIGHT))
        beside = [field for field in ("matchExpressions", "matchFields") if field in term]
        if beside and "preference" in term:
            # The first design's form; one of the two would be ignored (C2).
            detail = "may not be set beside `preference`"
            errors += [forbidden(f"{where}.{field}", detail) for field in beside]
        # Values that no label can have are let through, as Kubernetes does, with a warning
        # (admission/warnings.py): the scheduler refuses pods with such a preference.
        preference = term.get("preference") or {}
        errors += _node_selector_term(preference, f"{where}.preference", allow_invalid_values=True)
    return errors


def validate_node_selector(
    selector: Manifest, path: str, *, allow_invalid_values: bool = False
) -> Errors:
    """Return the errors in ``{nodeSelectorTerms: [...]}``."""
    terms = selector.get("nodeSelectorTerms")
    where = f"{path}.nodeSelectorTerms"
    if not terms:
        return [required(where, "must have at least one node selector term")]
    errors: Errors = []
    for index, term in enumerate(terms):
        errors += _node_selector_term(
            term, f"{where}[{index}]", allow_invalid_values=allow_invalid_values
        )
    return errors


def _node_selector_term(term: Manifest, path: str, *, allow_invalid_values: bool) -> Errors:
    errors: Errors = []
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        errors += _node_requirement(
            requirement, f"{path}.matchExpressions[{index}]", allow_invalid_values
        )
    for index, requirement in enumerate(term.get("matchFields") or ()):
        errors += _node_field_requirement(requirement, f"{path}.matchFields[{index}]")
    return errors


def _node_requirement(requirement: Manifest, path: str, allow_invalid_values: bool) -> Errors:  # noqa: FBT001 - private, one caller
    errors: Errors = []
    operator = requirement.get("operator") or ""
    values = requirement.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            errors.append(required(f"{path}.values", detail))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden(f"{path}.values", detail))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.append(required(f"{path}.values", detail))
    else:
        errors.append(invalid(f"{path}.operator", operator, _OPERATOR))
    errors += _label_name(requirement.get("key") or "", f"{path}.key")
    if not allow_invalid_values:
        for index, value in enumerate(values):
            errors += invalid_each(f"{path}.values[{index}]", value, formats.label_value(value))
    return errors


def _node_field_requirement(requirement: Manifest, path: str) -> Errors:
    errors: Errors = []
    operator = requirement.get("operator") or ""
    values = requirement.get("values") or ()
    if operator in ("In", "NotIn"):
        if len(values) != 1:
            detail = (
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            )
            errors.append(required(f"{path}.values", detail))
    else:
        errors.append(invalid(f"{path}.operator", operator, _OPERATOR))
    key = requirement.get("key") or ""
    if key != "metadata.name":
        errors.append(invalid(f"{path}.key", key, "not a valid field selector key"))
    else:
        for index, value in enumerate(values):
            errors += invalid_each(f"{path}.values[{index}]", value, formats.dns_subdomain(value))
    return errors


def _label_name(name: str, path: str) -> Errors:
    problems = formats.qualified_name(name)
    return invalid_each(path, name, problems) if problems else []


# Inter-pod affinity ---------------------------------------------------------------------------


def _pod_affinity(affinity: Manifest, path: str, allow_invalid_values: bool) -> Errors:  # noqa: FBT001 - private, one caller
    errors: Errors = []
    for index, term in enumerate(affinity.get(REQUIRED_IGNORED) or ()):
        errors += _pod_affinity_term(
            term, f"{path}.{REQUIRED_IGNORED}[{index}]", allow_invalid_values
        )
    for index, weighted in enumerate(affinity.get(PREFERRED) or ()):
        where = f"{path}.{PREFERRED}[{index}]"
        weight = weighted.get("weight", 0)
        if not 1 <= weight <= 100:
            errors.append(invalid(f"{where}.weight", weight, _WEIGHT))
        errors += _pod_affinity_term(
            weighted.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm", allow_invalid_values
        )
    return errors


def _pod_affinity_term(term: Manifest, path: str, allow_invalid_values: bool) -> Errors:  # noqa: FBT001 - private
    errors: Errors = []
    for name in ("labelSelector", "namespaceSelector"):
        errors += validate_label_selector(
            term.get(name), f"{path}.{name}", allow_invalid_values=allow_invalid_values
        )
    for namespace in term.get("namespaces") or ():
        errors += invalid_each(f"{path}.namespace", namespace, formats.dns_label(namespace))
    errors += _match_and_mismatch_label_keys(term, path)
    key = term.get("topologyKey") or ""
    if not key:
        errors.append(required(f"{path}.topologyKey", "can not be empty"))
    errors += _label_name(key, f"{path}.topologyKey")
    return errors


def _match_and_mismatch_label_keys(term: Manifest, path: str) -> Errors:
    match_keys = term.get("matchLabelKeys") or []
    mismatch_keys = term.get("mismatchLabelKeys") or []
    if not match_keys and not mismatch_keys:
        return []
    selector = term.get("labelSelector")
    errors = _label_keys(match_keys, selector, f"{path}.matchLabelKeys")
    errors += _label_keys(mismatch_keys, selector, f"{path}.mismatchLabelKeys")
    if selector is not None:
        errors += _stated_twice(match_keys, selector, path)
    mismatch = set(mismatch_keys)
    for index, key in enumerate(match_keys):
        if key in mismatch:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.append(invalid(f"{path}.matchLabelKeys[{index}]", key, detail))
    return errors


def _label_keys(keys: list[str], selector: Manifest | None, path: str) -> Errors:
    if not keys:
        return []
    if selector is None:
        return [forbidden(path, "must not be specified when labelSelector is not set")]
    errors: Errors = []
    for index, key in enumerate(keys):
        errors += _label_name(key, f"{path}[{index}]")
    return errors


def _stated_twice(keys: list[str], selector: Manifest, path: str) -> Errors:
    """Return the errors of keys that the selector has besides the expression made from ``keys``.

    Each key of ``matchLabelKeys`` has been merged into the selector already, so one occurrence is
    right, and a second one is in the user's own selector.
    """
    errors: Errors = []
    index_of = {key: index for index, key in enumerate(keys)}
    seen = set(selector.get("matchLabels") or ())
    for expression in selector.get("matchExpressions") or ():
        key = expression.get("key") or ""
        if key in index_of and key in seen:
            errors.append(invalid(f"{path}[{index_of[key]}]", key, _BOTH))
        seen.add(key)
    return errors


# Topology spread ------------------------------------------------------------------------------


def validate_topology_spread_constraints(
    constraints: list[Manifest],
    path: str,
    *,
    allow_invalid_selector: bool = False,
    match_label_keys: bool = True,
    merge_match_label_keys: bool = True,
    old_pod_names_keys_twice: bool = False,
    old_pod_names_keys_twice_legacy: bool = False,
) -> Errors:
    """Return the errors in ``spec.topologySpreadConstraints``.

    ``merge_match_label_keys``: the keys have been merged into the label selector (gate
    MatchLabelKeysInPodTopologySpreadSelectorMerge). ``old_pod_...``: the stored pod breaks the rule
    already, with merged keys or, ``legacy``, with unmerged ones.
    """
    errors: Errors = []
    last = {_domain(constraint): index for index, constraint in enumerate(constraints)}
    for index, constraint in enumerate(constraints):
        where = f"{path}[{index}]"
        skew = constraint.get("maxSkew", 0)
        if skew <= 0:
            errors.append(invalid(f"{where}.maxSkew", skew, "must be greater than zero"))
        key = constraint.get("topologyKey") or ""
        if not key:
            errors.append(required(f"{where}.topologyKey", "can not be empty"))
        action = constraint.get("whenUnsatisfiable") or ""
        errors += one_of(action, f"{where}.whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"))
        if last[key, action] > index:
            pair = f"{where}.{{topologyKey, whenUnsatisfiable}}"
            errors.append(duplicate(pair, f"{{{key}, {action}}}"))
        errors += _min_domains(constraint.get("minDomains"), action, f"{where}.minDomains")
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            policy = constraint.get(name)
            if policy is not None:
                errors += one_of(policy, f"{where}.{name}", ("Honor", "Ignore"))
        selector = constraint.get("labelSelector")
        keys = constraint.get("matchLabelKeys") or []
        if keys:
            merged = match_label_keys and merge_match_label_keys
            tolerate = old_pod_names_keys_twice if merged else old_pod_names_keys_twice_legacy
            errors += _spread_label_keys(
                keys, selector, where, merged=merged, tolerate_twice=tolerate
            )
        if not allow_invalid_selector:
            errors += validate_label_selector(selector, f"{where}.labelSelector")
    return errors


def _domain(constraint: Manifest) -> tuple[str, str]:
    return constraint.get("topologyKey") or "", constraint.get("whenUnsatisfiable") or ""


def _min_domains(domains: int | None, action: str, path: str) -> Errors:
    if domains is None:
        return []
    errors: Errors = []
    if domains <= 0:
        errors.append(invalid(path, domains, "must be greater than zero"))
    if action != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        errors.append(invalid(path, domains, detail))
    return errors


def _spread_label_keys(
    keys: list[str],
    selector: Manifest | None,
    where: str,
    *,
    merged: bool,
    tolerate_twice: bool,
) -> Errors:
    path = f"{where}.matchLabelKeys"
    errors: Errors = []
    if selector is None:
        errors.append(forbidden(path, "must not be specified when labelSelector is not set"))
    for index, key in enumerate(keys):
        errors += _label_name(key, f"{path}[{index}]")
    if selector is None or tolerate_twice:
        return errors
    if merged:
        return errors + _stated_twice(keys, selector, where)
    named = set(selector.get("matchLabels") or ())
    named.update(e.get("key") or "" for e in selector.get("matchExpressions") or ())
    for index, key in enumerate(keys):
        if key in named:
            errors.append(invalid(f"{path}[{index}]", key, _BOTH))
    return errors


# Taints and tolerations -----------------------------------------------------------------------


def validate_tolerations(
    tolerations: list[Manifest], path: str, *, comparison_operators: bool = False
) -> Errors:
    """Return the errors in a list of tolerations.

    ``comparison_operators`` allows ``Gt`` and ``Lt`` (gate TaintTolerationComparisonOperators).
    """
    errors: Errors = []
    for index, toleration in enumerate(tolerations):
        key = toleration.get("key") or ""
        operator = toleration.get("operator") or ""
        value = toleration.get("value") or ""
        effect = toleration.get("effect") or ""
        where = f"{path}[{index}]"
        if key and (problems := formats.qualified_name(key)):
            errors += invalid_each(f"{where}.key", key, problems)
        if not key and operator != "Exists":
            detail = (
                "operator must be Exists when `key` is empty, which means "
                '"match all values and all keys"'
            )
            errors.append(invalid(f"{where}.operator", operator, detail))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(invalid(f"{where}.effect", effect, detail))
        if operator in ("", "Equal"):
            if problems := formats.label_value(value):
                errors.append(invalid(f"{where}.operator", value, ";".join(problems)))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                errors.append(invalid(f"{where}.operator", value, detail))
        elif operator in ("Lt", "Gt") and comparison_operators:
            errors += _decimal_integer(value, f"{where}.value")
        else:
            supported = ("Equal", "Exists", "Lt", "Gt")
            errors.append(not_supported(f"{where}.operator", operator, supported))
        if effect:
            errors += validate_taint_effect(effect, f"{where}.effect")
    return errors


def _decimal_integer(value: str, path: str) -> Errors:
    errors: Errors = []
    if not value:
        errors.append(invalid(path, value, "must be non-empty"))
    elif not _CANONICAL_INTEGER.fullmatch(value):
        errors.append(invalid(path, value, "must be a valid decimal integer in canonical form"))
    if parse_int64(value) is None:
        is_integer = bool(re.fullmatch("[+-]?[0-9]+", value))
        why = "value out of range" if is_integer else "invalid syntax"
        errors.append(invalid(path, value, f'strconv.ParseInt: parsing "{value}": {why}'))
    return errors


def validate_taint_effect(effect: str, path: str, *, allow_empty: bool = True) -> Errors:
    """Return the errors in the effect of a taint or a toleration."""
    if not allow_empty and not effect:
        return [required(path)]
    if effect not in EFFECTS:
        return [not_supported(path, effect, EFFECTS)]
    return []


def validate_taints(taints: list[Manifest], path: str) -> Errors:
    """Return the errors in ``spec.taints`` of a node; key and effect are unique together."""
    errors: Errors = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        where = f"{path}[{index}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        errors += _label_name(key, f"{where}.key")
        value = taint.get("value") or ""
        if problems := formats.label_value(value):
            errors.append(invalid(f"{where}.value", value, ";".join(problems)))
        errors += validate_taint_effect(effect, f"{where}.effect", allow_empty=False)
        if (key, effect) in seen:
            detail = "taints must be unique by key and effect pair"
            errors.append(FieldError(DUPLICATE, where, taint, detail))
        seen.add((key, effect))
    return errors


def validate_only_added_tolerations(
    new: list[Manifest],
    old: list[Manifest],
    path: str,
    *,
    comparison_operators: bool = False,
) -> Errors:
    """Return the errors in changed tolerations: all old ones stay, except for their seconds."""
    timeless = [_without_seconds(toleration) for toleration in new]
    for toleration in old:
        if _without_seconds(toleration) not in timeless:
            detail = "existing toleration can not be modified except its tolerationSeconds"
            return [forbidden(path, detail)]
    return validate_tolerations(new, path, comparison_operators=comparison_operators)


def _without_seconds(toleration: Manifest) -> Manifest:
    return {k: v for k, v in toleration.items() if k != "tolerationSeconds" and v}


# Scheduling gates -----------------------------------------------------------------------------


def validate_scheduling_gates(gates: list[Manifest], path: str) -> Errors:
    """Return the errors in ``spec.schedulingGates``."""
    errors: Errors = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        errors += _label_name(name, f"{path}[{index}]")
        if name in seen:
            errors.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
    return errors


def validate_only_deleted_scheduling_gates(
    new: list[Manifest], old: list[Manifest], path: str
) -> Errors:
    """Return the errors of gates that an update adds: they can only be removed."""
    names = {gate.get("name") for gate in old}
    added = {
        gate.get("name") or "": i for i, gate in enumerate(new) if gate.get("name") not in names
    }
    return [
        forbidden(
            f"{path}[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{name}'",
        )
        for name, index in added.items()
    ]

"""FlowSchemas and PriorityLevelConfigurations.

A part of Kubernetes' rules: what keeps an object from being misunderstood. Rules:
pkg/apis/flowcontrol/validation/validation.go, v1.36.
"""

from collections.abc import Callable
from typing import Final

from clusterstate.admission.validation.core.field import (
    Errors,
    each,
    forbidden,
    invalid,
    not_supported,
    required,
)
from clusterstate.objects.values.meta import Manifest

_LAST: Final = 10_000
_DISTINGUISHERS: Final = ("ByNamespace", "ByUser")
_SUBJECTS: Final = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
_LEVELS: Final = ("Exempt", "Limited")
_RESPONSES: Final = ("Queue", "Reject")
_PERCENT: Final = "must be between 0 and 100, inclusive"


def _flow_schema(new: Manifest, old: Manifest | None) -> Errors:
    spec, errors = new.get("spec") or {}, []
    precedence = spec.get("matchingPrecedence") or 0
    if not 1 <= precedence <= _LAST:
        detail = f"must be a value between 1 and {_LAST}"
        errors.append(invalid("spec.matchingPrecedence", precedence, detail))
    if not (spec.get("priorityLevelConfiguration") or {}).get("name"):
        detail = "must reference a priority level"
        errors.append(required("spec.priorityLevelConfiguration.name", detail))
    method = (spec.get("distinguisherMethod") or {}).get("type")
    if spec.get("distinguisherMethod") is not None and method not in _DISTINGUISHERS:
        errors.append(not_supported("spec.distinguisherMethod", method or "", _DISTINGUISHERS))
    errors += each(spec.get("rules"), "spec.rules", _rule)
    return errors


def _rule(rule: Manifest, path: str) -> Errors:
    errors = []
    subjects = rule.get("subjects") or ()
    if not subjects:
        errors.append(required(f"{path}.subjects", "subjects must contain at least one value"))
    errors += each(subjects, f"{path}.subjects", _subject)
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        detail = "at least one of resourceRules and nonResourceRules has to be non-empty"
        errors.append(required(path, detail))
    for index, one in enumerate(rule.get("resourceRules") or ()):
        place = f"{path}.resourceRules[{index}]"
        errors += _filled(one, place, ("verbs", "apiGroups", "resources"))
        if not one.get("namespaces") and not one.get("clusterScope"):
            detail = "resource rules that are not cluster scoped must supply at least one namespace"
            errors.append(required(f"{place}.namespaces", detail))
    for index, one in enumerate(rule.get("nonResourceRules") or ()):
        errors += _filled(one, f"{path}.nonResourceRules[{index}]", ("verbs", "nonResourceURLs"))
    return errors


def _filled(rule: Manifest, path: str, lists: tuple[str, ...]) -> Errors:
    """Return the errors in lists that may not be empty, and where ``*`` stands alone."""
    errors = []
    for name in lists:
        values = rule.get(name) or []
        if not values:
            errors.append(required(f"{path}.{name}", f"{name} must contain at least one value"))
        elif "*" in values and len(values) > 1:
            detail = f"if '*' is present, must not specify other {name}"
            errors.append(invalid(f"{path}.{name}", values, detail))
    return errors


def _subject(subject: Manifest, path: str) -> Errors:
    kind = subject.get("kind") or ""
    if kind not in _SUBJECTS:
        return [not_supported(f"{path}.kind", kind, _SUBJECTS)]
    errors = []
    for other, field in _SUBJECTS.items():
        value = subject.get(field)
        if other != kind and value is not None:
            detail = f"{field} is forbidden when subject kind is not '{other}'"
            errors.append(forbidden(f"{path}.{field}", detail))
        elif other == kind and value is None:
            detail = f"{field} is required when subject kind is '{other}'"
            errors.append(required(f"{path}.{field}", detail))
        elif value is not None:
            names = ("namespace", "name") if other == "ServiceAccount" else ("name",)
            errors += [required(f"{path}.{field}.{one}") for one in names if not value.get(one)]
    return errors


def _priority_level(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    kind, limited, exempt = spec.get("type") or "", spec.get("limited"), spec.get("exempt")
    if kind not in _LEVELS:
        return [not_supported("spec.type", kind, _LEVELS)]
    if kind == "Exempt":
        if limited is not None:
            return [forbidden("spec.limited", "must be nil if the type is not Limited")]
        return _shares(exempt or {}, "spec.exempt")
    if exempt is not None:
        return [forbidden("spec.exempt", "must be nil if the type is Limited")]
    if limited is None:
        return [required("spec.limited", "must not be empty when type is Limited")]
    errors = _shares(limited, "spec.limited")
    if (most := limited.get("borrowingLimitPercent") or 0) < 0:
        detail = "if specified, must be a non-negative integer"
        errors.append(invalid("spec.limited.borrowingLimitPercent", most, detail))
    return errors + _response(limited.get("limitResponse") or {}, "spec.limited.limitResponse")


def _shares(level: Manifest, path: str) -> Errors:
    errors = []
    if (shares := level.get("nominalConcurrencyShares") or 0) < 0:
        detail = "must be a non-negative integer"
        errors.append(invalid(f"{path}.nominalConcurrencyShares", shares, detail))
    if not 0 <= (lent := level.get("lendablePercent") or 0) <= 100:
        errors.append(invalid(f"{path}.lendablePercent", lent, _PERCENT))
    return errors


def _response(response: Manifest, path: str) -> Errors:
    kind, queuing = response.get("type") or "", response.get("queuing")
    if kind not in _RESPONSES:
        return [not_supported(f"{path}.type", kind, _RESPONSES)]
    if kind == "Reject":
        detail = "must be nil if limited.limitResponse.type is not Limited"
        return [] if queuing is None else [forbidden(f"{path}.queuing", detail)]
    if queuing is None:
        detail = "must not be empty if limited.limitResponse.type is Limited"
        return [required(f"{path}.queuing", detail)]
    errors = [
        invalid(f"{path}.queuing.{name}", queuing.get(name), "must be positive")
        for name in ("queues", "handSize", "queueLengthLimit")
        if (queuing.get(name) or 0) <= 0
    ]
    if not errors and queuing["handSize"] > queuing["queues"]:
        detail = f"should not be greater than queues ({queuing['queues']})"
        errors.append(invalid(f"{path}.queuing.handSize", queuing["handSize"], detail))
    return errors


RULES: Final[dict[str, Callable[[Manifest, Manifest | None], Errors]]] = {
    "FlowSchema": _flow_schema,
    "PriorityLevelConfiguration": _priority_level,
}

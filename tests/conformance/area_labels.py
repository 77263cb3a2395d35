"""Area labels: selectors from text and from manifests, and the syntax of names."""

from collections.abc import Sequence
from typing import Any

import msgspec

from clusterstate.admission.validation.core import metadata
from clusterstate.objects.values import labels
from clusterstate.objects.values.errors import FieldError
from clusterstate.objects.values.pod import LabelSelector


def check(case: dict[str, Any]) -> str | None:
    """Return what differs, None if nothing does."""
    judge = _OPERATIONS.get(case["op"])
    return judge(case) if judge else f"unknown op {case['op']!r}"


def _compare(found: dict[str, Any], case: dict[str, Any]) -> str | None:
    different = {k: v for k, v in found.items() if k in case and v != case[k]}
    if not different:
        return None
    return f"{different}, wanted { {key: case[key] for key in different} }"


def _requirements(selector: labels.Selector) -> list[dict[str, Any]]:
    return [_requirement_value(requirement) for requirement in selector.requirements]


def _requirement_value(requirement: labels.Requirement) -> dict[str, Any]:
    values = {"values": sorted(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.operator, **values}


def _with_values(requirements: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k != "values" or v} for r in requirements]


def _parse(case: dict[str, Any]) -> str | None:
    try:
        selector = labels.parse_selector(case["input"])
    except labels.SelectorError as error:
        return _compare({"valid": False, "error": str(error)}, {"error": None, **case})
    wanted = {**case, "requirements": _with_values(case.get("requirements") or ())}
    found = {
        "valid": True,
        "string": str(selector),
        "empty": selector.everything,
        "requirements": _requirements(selector),
    }
    return _compare(found, wanted)


def _matches(case: dict[str, Any]) -> str | None:
    requirements = []
    valid = True
    for wanted in case["requirements"] or ():
        requirement, errors = labels.new_requirement(
            wanted["key"], wanted["operator"], wanted.get("values") or ()
        )
        requirements.append(requirement)
        valid = valid and not errors
    selector = labels.Selector(tuple(requirements))
    found = {"match": selector.matches(case["labels"] or {})}
    difference = _compare(found, case)
    return _text_agrees(case, selector) if valid and difference is None else difference


def _text_agrees(case: dict[str, Any], selector: labels.Selector) -> str | None:
    """Compare the text; what parses must also match alike."""
    difference = _compare({"selector": str(selector)}, case)
    try:
        parsed = labels.parse_selector(case["selector"])
    except labels.SelectorError:
        return difference
    found = parsed.matches(case["labels"] or {})
    return difference or _compare({"match": found}, case)


def _label_selector_of(case: dict[str, Any]) -> LabelSelector | None:
    return msgspec.convert(case["labelSelector"], LabelSelector | None)


def _label_selector(case: dict[str, Any]) -> str | None:
    try:
        selector = labels.selector_from_label_selector(_label_selector_of(case))
    except labels.SelectorError as error:
        return _compare({"valid": False, "error": str(error)}, {"error": None, **case})
    found = {
        "valid": True,
        "string": str(selector),
        "nothing": selector.nothing,
        "everything": selector.everything,
    }
    return _compare(found, case)


def _label_selector_matches(case: dict[str, Any]) -> str | None:
    selector = labels.selector_from_label_selector(_label_selector_of(case))
    return _compare({"match": selector.matches(case["labels"] or {})}, case)


def _requirement(case: dict[str, Any]) -> str | None:
    requirement, errors = labels.new_requirement(
        case["key"], case["operator"], case.get("values") or ()
    )
    if errors or not case["valid"]:
        return _compare({"valid": not errors}, case) or _errors(errors, case)
    return _compare({"valid": True, "string": str(requirement)}, case)


def _errors(found: Sequence[FieldError], case: dict[str, Any]) -> str | None:
    def total(errors: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
        return sorted((e["field"], e["type"], e["detail"]) for e in errors)

    shown = total([{"field": e.field, "type": e.type, "detail": e.detail} for e in found])
    wanted = total([{"detail": "", **error} for error in case.get("errors") or ()])
    return None if shown == wanted else f"{shown}, wanted {wanted}"


def _from_set(case: dict[str, Any]) -> str | None:
    pairs = case.get("labels", case.get("set")) or {}
    selector = labels.selector_from_set(pairs)
    found = {
        "string": str(selector),
        "empty": selector.everything,
        "everything": selector.everything,
        "requirements": _requirements(selector),
    }
    return _compare(found, case)


def _validate_label_name(case: dict[str, Any]) -> str | None:
    return _errors(metadata.validate_label_key(case["labelName"], case["path"]), case)


def _validate_labels(case: dict[str, Any]) -> str | None:
    return _errors(metadata.validate_labels(case["labels"] or {}, case["path"]), case)


def _validate_label_selector(case: dict[str, Any]) -> str | None:
    options = case.get("options") or {}
    errors = metadata.validate_label_selector(
        case["labelSelector"],
        case["path"],
        allow_invalid_values=options.get("AllowInvalidLabelValueInSelector", False),
    )
    if options.get("AllowUnknownOperatorInRequirement"):  # an option of none of our kinds
        errors = [error for error in errors if not error.field.endswith(".operator")]
    return _errors(errors, case)


_OPERATIONS = {
    "parse": _parse,
    "matches": _matches,
    "labelSelector": _label_selector,
    "labelSelectorMatches": _label_selector_matches,
    "requirement": _requirement,
    "fromSet": _from_set,
    "validateLabelName": _validate_label_name,
    "validateLabels": _validate_labels,
    "validateLabelSelector": _validate_label_selector,
}

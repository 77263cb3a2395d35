"""Validation of a Job's podFailurePolicy and successPolicy.

Rules: pkg/apis/batch/validation/validation.go (``validatePodFailurePolicy``,
``validateSuccessPolicy``), v1.36.
"""

import re
from typing import Final

from clusterstate.admission.validation.core.field import (
    NEGATIVE,
    Errors,
    at_most,
    duplicate,
    invalid,
    not_supported,
    required,
    required_one_of,
)
from clusterstate.objects.values.meta import Manifest

_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS: Final = ("In", "NotIn")
_STATUSES: Final = ("False", "True", "Unknown")
_MOST_RULES: Final = 20
_MOST_CODES: Final = 255
_MOST_PATTERNS: Final = 20
_INTERVALS: Final = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*")


def validate_policies(spec: Manifest, path: str) -> Errors:
    """Return the errors in a Job's policies, and in fields that depend on them."""
    errors: Errors = []
    completions, per_index = spec.get("completions"), spec.get("backoffLimitPerIndex")
    most = spec.get("maxFailedIndexes")
    if most is not None and per_index is None:
        errors.append(
            required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
        )
    if most is not None and completions is not None and most > completions:
        detail = "must be less than or equal to completions"
        errors.append(invalid(f"{path}.maxFailedIndexes", most, detail))
    if (policy := spec.get("podFailurePolicy")) is not None:
        template = (spec.get("template") or {}).get("spec") or {}
        restart = template.get("restartPolicy") or ""
        if restart != "Never":
            detail = 'only "Never" is supported when podFailurePolicy is specified'
            errors.append(invalid(f"{path}.template.spec.restartPolicy", restart, detail))
        names = {
            one.get("name")
            for field in ("containers", "initContainers")
            for one in template.get(field) or ()
        }
        rules = policy.get("rules") or ()
        where = f"{path}.podFailurePolicy.rules"
        errors += at_most(rules, where, _MOST_RULES)
        for index, rule in enumerate(rules):
            errors += _failure_rule(rule, f"{where}[{index}]", names, per_index)
    if (success := spec.get("successPolicy")) is not None:
        errors += _success_policy(success, f"{path}.successPolicy", spec)
    return errors


def _failure_rule(
    rule: Manifest, path: str, names: set[str | None], per_index: int | None
) -> Errors:
    errors: Errors = []
    action = rule.get("action") or ""
    if not action:
        errors.append(required(f"{path}.action", f"valid values: {list(_ACTIONS)}"))
    elif action not in _ACTIONS:
        errors.append(not_supported(f"{path}.action", action, _ACTIONS))
    elif action == "FailIndex" and per_index is None:
        detail = "requires the backoffLimitPerIndex to be set"
        errors.append(invalid(f"{path}.action", action, detail))
    codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if codes is not None:
        errors += _exit_codes(codes, f"{path}.onExitCodes", names)
    errors += at_most(patterns, f"{path}.onPodConditions", _MOST_PATTERNS)
    for index, pattern in enumerate(patterns):
        where = f"{path}.onPodConditions[{index}]"
        if not pattern.get("type"):
            errors.append(required(f"{where}.type"))
        status = pattern.get("status") or ""
        errors += required_one_of(
            status, f"{where}.status", _STATUSES, f"valid values: {list(_STATUSES)}"
        )
    if codes is not None and patterns:
        detail = "specifying both OnExitCodes and OnPodConditions is not supported"
        errors.append(invalid(path, rule, detail))
    if codes is None and not patterns:
        detail = "specifying one of OnExitCodes and OnPodConditions is required"
        errors.append(invalid(path, rule, detail))
    return errors


def _exit_codes(codes: Manifest, path: str, names: set[str | None]) -> Errors:
    errors: Errors = []
    operator = codes.get("operator") or ""
    errors += required_one_of(
        operator, f"{path}.operator", _OPERATORS, f"valid values: {list(_OPERATORS)}"
    )
    name = codes.get("containerName")
    if name is not None and name not in names:
        detail = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid(f"{path}.containerName", name, detail))
    values = codes.get("values") or []
    if not values:
        errors.append(invalid(f"{path}.values", values, "at least one value is required"))
    errors += at_most(values, f"{path}.values", _MOST_CODES)
    ordered = True
    seen = set()
    for index, value in enumerate(values):
        where = f"{path}.values[{index}]"
        if value in seen:
            errors.append(duplicate(where, value))
        elif index and value < values[index - 1]:
            ordered = False
        seen.add(value)
        if operator == "In" and value == 0:
            errors.append(invalid(where, value, "must not be 0 for the In operator"))
    if not ordered:
        errors.append(invalid(f"{path}.values", values, "must be ordered"))
    return errors


def _success_policy(policy: Manifest, path: str, spec: Manifest) -> Errors:
    if spec.get("completionMode") != "Indexed":
        return [invalid(path, policy, "requires indexed completion mode")]
    errors: Errors = []
    rules, completions = policy.get("rules") or (), spec.get("completions") or 0
    if not rules:
        detail = "at least one rules must be specified in the successPolicy"
        errors.append(required(f"{path}.rules", detail))
    errors += at_most(rules, f"{path}.rules", _MOST_RULES)
    for index, rule in enumerate(rules):
        where = f"{path}.rules[{index}]"
        count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            errors.append(required(where, detail))
        listed: int | None = None
        if indexes is not None:
            problem, listed = read_indexes(indexes, completions)
            if problem:
                detail = f"error parsing succeededIndexes: {problem}"
                errors.append(invalid(f"{where}.succeededIndexes", indexes, detail))
        if count is not None:
            at = f"{where}.succeededCount"
            if count < 0:
                errors.append(invalid(at, count, NEGATIVE))
            if count > completions:
                detail = (
                    f"must be less than or equal to {completions} "
                    "(the number of specified completions)"
                )
                errors.append(invalid(at, count, detail))
            if listed is not None and count > listed:
                detail = (
                    f"must be less than or equal to {listed} "
                    "(the number of indexes in the specified succeededIndexes field)"
                )
                errors.append(invalid(at, count, detail))
    return errors


def read_indexes(text: str, completions: int) -> tuple[str, int | None]:
    """Return the problem of a list of rising intervals (empty: none), and its number of indexes."""
    if not _INTERVALS.fullmatch(text):
        return f'cannot convert string to intervals: "{text}"', None
    last, total = -1, 0
    for part in text.split(","):
        ends = [int(one) for one in part.split("-")]
        if ends[0] <= last or ends[-1] < ends[0]:
            return f"non-increasing order, previous: {last}, current: {ends[0]}", None
        if ends[-1] >= completions:
            return f'too large index: "{ends[-1]}"', None
        total += ends[-1] - ends[0] + 1
        last = ends[-1]
    return "", total

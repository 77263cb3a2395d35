"""``metav1.Condition`` of kinds that require all of its fields.

Rule: apimachinery pkg/apis/meta/v1/validation/validation.go, ``ValidateConditions``, v1.36.
"""

import re
from collections.abc import Sequence
from typing import Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    duplicate,
    invalid,
    one_of,
    require_form,
    required,
    too_long,
)
from clusterstate.objects.values.meta import Manifest

_STATUSES: Final = ("False", "True", "Unknown")
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_LONGEST_REASON: Final = 1024
_LONGEST_MESSAGE: Final = 32768


def validate_conditions(
    conditions: Sequence[Manifest], path: str, *, missing: str = "must be set"
) -> Errors:
    """Return the errors in conditions; ``missing``: the message for an absent field."""
    errors: Errors = []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        where, name = f"{path}[{index}]", condition.get("type") or ""
        errors += _condition(condition, where, missing)
        if name in seen:
            errors.append(duplicate(f"{where}.type", name))
        seen.add(name)
    return errors


def _condition(condition: Manifest, path: str, missing: str) -> Errors:
    errors: Errors = []
    errors += require_form(
        condition.get("type") or "", f"{path}.type", formats.qualified_name, missing
    )
    errors += one_of(condition.get("status") or "", f"{path}.status", _STATUSES)
    if (generation := condition.get("observedGeneration") or 0) < 0:
        detail = "must be greater than or equal to zero"
        errors.append(invalid(f"{path}.observedGeneration", generation, detail))
    if not condition.get("lastTransitionTime"):
        errors.append(required(f"{path}.lastTransitionTime", missing))
    if not (reason := condition.get("reason") or ""):
        errors.append(required(f"{path}.reason", missing))
    else:
        if not _REASON.fullmatch(reason):
            detail = (
                "a condition reason must start with alphabetic character, optionally followed by a"
                " string of alphanumeric characters or '_,:', and must end with an alphanumeric"
                " character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or"
                " 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is"
                " '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
            )
            errors.append(invalid(f"{path}.reason", reason, detail))
        if len(reason) > _LONGEST_REASON:
            errors.append(too_long(f"{path}.reason", reason, _LONGEST_REASON))
    if len((condition.get("message") or "").encode()) > _LONGEST_MESSAGE:
        errors.append(too_long(f"{path}.message", "", _LONGEST_MESSAGE))
    return errors

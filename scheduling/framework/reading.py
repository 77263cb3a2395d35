"""Typed reading of JSON objects that notes every wrong field instead of stopping at the first.

A ``Field`` is a JSON object with its path; each accessor takes one member, checks its type, and
``finish`` reports the members that nobody took. A member of the wrong type is noted and read as
its default, so that the rest is checked too.
"""

import re
from typing import Any

import msgspec

from clusterstate.objects.errors import (
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    TYPE_INVALID,
    FieldError,
)
from clusterstate.objects.pod import NodeAffinity

Errors = list[FieldError]


class Field:
    """A JSON object at ``path``; errors go to the shared list ``errors``."""

    def __init__(self, value: dict[str, Any], path: str, errors: Errors) -> None:
        self._value = value
        self._left = dict(value)
        self.path = path
        self.errors = errors

    def child(self, name: str) -> str:
        """Return the path of a member."""
        return f"{self.path}.{name}" if self.path else name

    def error(self, name: str, value: Any, detail: str) -> None:
        """Note an invalid value of a member."""
        self.errors.append(FieldError(INVALID, self.child(name), value, detail))

    def has(self, name: str) -> bool:
        """Tell whether the member is present."""
        return name in self._value

    def take(self, name: str) -> Any:
        """Return the member as it is, None when absent, and count it as read."""
        return self._left.pop(name, None)

    def _typed(self, name: str, kind: type, text: str) -> Any:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.errors.append(FieldError(TYPE_INVALID, self.child(name), value, text))
            return None
        return value

    def text(self, name: str, default: str = "") -> str:
        """Return a string member; absent or empty gives the default."""
        value: str | None = self._typed(name, str, "must be a string")
        return value or default

    def integer(self, name: str, default: int) -> int:
        """Return an integer member."""
        value: int | None = self._typed(name, int, "must be an integer")
        return default if value is None else value

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return a boolean member."""
        value: bool | None = self._typed(name, bool, "must be a boolean")
        return default if value is None else value

    def items(self, name: str) -> list[Any]:
        """Return a list member, empty when absent."""
        return self._typed(name, list, "must be a list") or []

    def texts(self, name: str) -> list[str]:
        """Return a list of strings; entries of another type are noted and left out."""
        found = []
        for i, value in enumerate(self.items(name)):
            if isinstance(value, str):
                found.append(value)
            else:
                path = f"{self.child(name)}[{i}]"
                self.errors.append(FieldError(TYPE_INVALID, path, value, "must be a string"))
        return found

    def object(self, name: str) -> "Field | None":
        """Return an object member, None when absent."""
        value: dict[str, Any] | None = self._typed(name, dict, "must be an object")
        return None if value is None else Field(value, self.child(name), self.errors)

    def objects(self, name: str) -> list["Field"]:
        """Return a list of objects; entries of another type are noted and left out."""
        found = []
        for i, value in enumerate(self.items(name)):
            path = f"{self.child(name)}[{i}]"
            if isinstance(value, dict):
                found.append(Field(value, path, self.errors))
            else:
                self.errors.append(FieldError(TYPE_INVALID, path, value, "must be an object"))
        return found

    def rest(self) -> dict[str, Any]:
        """Return the members that were not taken, and count them as read."""
        rest, self._left = self._left, {}
        return rest

    def finish(self) -> None:
        """Note an error for each member that nobody took."""
        for name, value in self._left.items():
            shown = value if isinstance(value, str | int | float | bool) else None
            self.errors.append(FieldError(INVALID, self.child(name), shown, "unknown field"))
        self._left = {}


_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def check_label_name(value: str, path: str, errors: Errors) -> None:
    """Note an error unless ``value`` is a qualified name (validation.IsQualifiedName, v1.36)."""
    prefix, slash, name = value.rpartition("/")
    good = bool(_NAME.fullmatch(name)) and len(name) <= 63
    if slash:
        good = good and len(prefix) <= 253 and bool(_SUBDOMAIN.fullmatch(prefix))
    if not good:
        detail = (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start"
            " and end with an alphanumeric character, with an optional DNS subdomain prefix and"
            " '/' (e.g. 'example.com/MyName')"
        )
        errors.append(FieldError(INVALID, path, value, detail))


_INTEGER = re.compile(r"[+-]?[0-9]+")
_OPERATORS = ("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn")


def check_node_affinity(field: Field) -> NodeAffinity | None:
    """Check a node affinity object and return its lens; None when it has errors.

    Rules: component-helpers nodeaffinity.NewNodeSelector and NewPreferredSchedulingTerms, v1.36
    (R10-R14, R17); weight 0 of a preferred term is wrong (C3).
    """
    before = len(field.errors)
    raw = field.rest()
    again = Field(raw, field.path, field.errors)
    for name in (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "requiredDuringSchedulingRequiredDuringExecution",
    ):
        selector = again.object(name)
        if selector is not None:
            if not selector.has("nodeSelectorTerms"):
                path = selector.child("nodeSelectorTerms")
                detail = "must have at least one node selector term"
                field.errors.append(FieldError(REQUIRED, path, None, detail))
            for term in selector.objects("nodeSelectorTerms"):
                _check_term(term)
            selector.finish()
    for entry in again.objects("preferredDuringSchedulingIgnoredDuringExecution"):
        weight = entry.integer("weight", 0)
        if not 1 <= weight <= 100:
            entry.error("weight", weight, "must be in the range 1-100")
        preference = entry.object("preference")
        if preference is not None:
            _check_term(preference)
        entry.finish()
    again.finish()
    if len(field.errors) > before:
        return None
    return msgspec.convert(raw, NodeAffinity)


def _check_term(term: Field) -> None:
    for requirement in term.objects("matchExpressions"):
        _check_requirement(requirement)
    for requirement in term.objects("matchFields"):
        key = requirement.text("key")
        if key != "metadata.name":
            path = requirement.child("key")
            requirement.errors.append(
                FieldError(INVALID, path, key, "not a valid field selector key")
            )
        operator = requirement.text("operator")
        if operator not in ("In", "NotIn"):
            path = requirement.child("operator")
            detail = "not a valid selector operator"
            requirement.errors.append(FieldError(INVALID, path, operator, detail))
        values = requirement.texts("values")
        if len(values) != 1:
            requirement.errors.append(
                FieldError(REQUIRED, requirement.child("values"), None, "must have one element")
            )
        requirement.finish()
    term.finish()


def _check_requirement(requirement: Field) -> None:
    key = requirement.text("key")
    check_label_name(key, requirement.child("key"), requirement.errors)
    operator = requirement.text("operator")
    values = requirement.texts("values")
    path = requirement.child("values")
    if operator in ("In", "NotIn"):
        if not values:
            detail = "for 'in', 'notin' operators, values set can't be empty"
            requirement.errors.append(FieldError(INVALID, path, values, detail))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "values set must be empty for exists and does not exist"
            requirement.errors.append(FieldError(INVALID, path, values, detail))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            detail = "for 'Gt', 'Lt' operators, exactly one value is required"
            requirement.errors.append(FieldError(INVALID, path, values, detail))
        elif not _INTEGER.fullmatch(values[0]):
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            requirement.errors.append(FieldError(INVALID, f"{path}[0]", values[0], detail))
    else:
        detail = "supported values: " + ", ".join(f'"{name}"' for name in _OPERATORS)
        requirement.errors.append(
            FieldError(NOT_SUPPORTED, requirement.child("operator"), operator, detail)
        )
    for i, value in enumerate(values):
        if (
            value
            and (len(value) > 63 or not _NAME.fullmatch(value))
            and operator in ("In", "NotIn")
        ):
            requirement.errors.append(
                FieldError(INVALID, f"{path}[{i}]", value, "not a valid label value")
            )
    requirement.finish()

"""Typed reading of JSON objects that notes every wrong field instead of stopping at the first.

A ``Field`` is a JSON object with its path; each accessor takes one member, checks its type, and
``finish`` reports the members that were never read. A member of the wrong type is noted and read as
its default, so that the rest is checked too. ``document`` reads the fields that all documents of
group ``stowage.dev`` share.
"""

from typing import Any

import msgspec

from clusterstate.objects.rules.matching import NodeSelectorMatcher, PreferredTerms
from clusterstate.objects.values.errors import (
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    TYPE_INVALID,
    BadRequest,
    FieldError,
    Invalid,
)
from clusterstate.objects.values.labels import is_qualified_name
from clusterstate.objects.values.meta import strip_nulls
from clusterstate.objects.values.pod import NodeAffinity

Errors = list[FieldError]


class Field:
    """A JSON object at ``path``; errors go to the shared list ``errors``."""

    def __init__(self, value: dict[str, Any], path: str, errors: Errors) -> None:
        self._value = value
        self._unread = dict(value)
        self.path = path
        self.errors = errors

    def child(self, name: str) -> str:
        """Return the path of a member."""
        return f"{self.path}.{name}" if self.path else name

    def error(self, name: str, value: Any, detail: str) -> None:
        """Note an invalid value of a member."""
        self.errors.append(FieldError(INVALID, self.child(name), value, detail))

    def has(self, name: str) -> bool:
        """Return whether the member is present."""
        return name in self._value

    def take(self, name: str) -> Any:
        """Return the member as it is, None when absent, and count it as read."""
        return self._unread.pop(name, None)

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
        """Return the members that no other method has read yet, and count them as read."""
        rest, self._unread = self._unread, {}
        return rest

    def finish(self) -> None:
        """Note an error for each member that was not read."""
        for name, value in self._unread.items():
            shown = value if isinstance(value, str | int | float | bool) else None
            self.errors.append(FieldError(INVALID, self.child(name), shown, "unknown field"))
        self._unread = {}


class Document(msgspec.Struct, frozen=True):
    """Base of all documents. ``finish`` notes the members that were not read.

    ``name``: of its metadata, empty if it has none.
    """

    metadata: dict[str, Any]
    name: str
    spec: Field
    _top: Field

    def finish(self) -> None:
        """Note an error for each unknown field of ``spec`` and of the document itself."""
        self.spec.finish()
        self._top.finish()


def document(value: object, *, api_version: str, kind: str, errors: Errors) -> Document:
    """Return the common fields of a document; ``status`` is ignored, nulls count as absent.

    Raises:
        Invalid: it is not an object.
        BadRequest: it is nested too deeply.
    """
    if not isinstance(value, dict):
        error = FieldError(TYPE_INVALID, "", None, "must be an object")
        raise Invalid(kind, "", [error], api_version.partition("/")[0])
    try:
        top = Field(_without_nulls(value), "", errors)
    except RecursionError:
        raise BadRequest("the document is nested too deeply") from None
    for name, expected in (("apiVersion", api_version), ("kind", kind)):
        text = top.text(name, expected)
        if text != expected:
            errors.append(FieldError(NOT_SUPPORTED, name, text, f'supported values: "{expected}"'))
    metadata = top.take("metadata")
    top.take("status")
    spec = top.object("spec")
    if spec is None:
        if not top.has("spec"):
            errors.append(FieldError(REQUIRED, "spec"))
        spec = Field({}, "spec", errors)
    if not isinstance(metadata, dict):
        metadata = {}
    title = metadata.get("name")
    return Document(metadata, title if isinstance(title, str) else "", spec, top)


def _without_nulls(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without JSON nulls; a quick check skips documents without any.

    Raises:
        RecursionError: it is nested too deeply.
    """
    try:
        if b"null" not in msgspec.json.encode(document):
            return document
    except (TypeError, ValueError):
        pass  # values that JSON lacks: later checks report them
    found: dict[str, Any] = strip_nulls(document)
    return found


def check_label_name(value: str, path: str, errors: Errors) -> None:
    """Note an error for each reason why ``value`` is not a qualified name."""
    errors += [FieldError(INVALID, path, value, problem) for problem in is_qualified_name(value)]


def check_node_affinity(field: Field) -> NodeAffinity | None:
    """Check a node affinity object and return it decoded; ``None`` if it has errors.

    Rules: component-helpers nodeaffinity.NewNodeSelector and NewPreferredSchedulingTerms, v1.36
    (R10-R14, R17); weight 0 of a preferred term is wrong (C3).
    """
    before = len(field.errors)
    raw = field.rest()
    again = Field(raw, field.path, field.errors)
    for name in _REQUIRED:
        selector = again.object(name)
        if selector is not None:
            terms = selector.objects("nodeSelectorTerms")
            if not terms:
                path = selector.child("nodeSelectorTerms")
                detail = "must have at least one node selector term"
                field.errors.append(FieldError(REQUIRED, path, None, detail))
            for term in terms:
                _check_term(term)
            selector.finish()
    for entry in again.objects(_PREFERRED):
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
    affinity = msgspec.convert(raw, NodeAffinity)
    selectors = (
        affinity.required_during_scheduling_ignored_during_execution,
        affinity.required_during_scheduling_required_during_execution,
    )
    for name, parsed in zip(_REQUIRED, selectors, strict=True):
        if parsed is not None:
            field.errors += NodeSelectorMatcher(parsed, path=field.child(name)).errors
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    field.errors += PreferredTerms(preferred, field.child(_PREFERRED)).errors
    return None if len(field.errors) > before else affinity


_REQUIRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "requiredDuringSchedulingRequiredDuringExecution",
)
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _check_term(term: Field) -> None:
    """Check the shape of a term; its content is checked once it is parsed."""
    for name in ("matchExpressions", "matchFields"):
        for requirement in term.objects(name):
            if not requirement.text("key"):
                requirement.errors.append(FieldError(REQUIRED, requirement.child("key")))
            requirement.text("operator")
            requirement.texts("values")
            requirement.finish()
    term.finish()

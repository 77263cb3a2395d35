r"""Field selectors: which fields of which kinds may be selected by, and what their value is.

Grammar and messages of apimachinery ``pkg/fields/selector.go`` (v1.36): ``path=value``,
``path==value``, ``path!=value``, joined by commas; backslash escapes ``\ , =``. The fields of
a kind (``Kind.selectable``) are those of the API server's ``AddFieldLabelConversionFunc``
registrations, as far as the kinds are served here. An absent field has the empty value.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from clusterstate.objects.registry.kinds import KINDS, METADATA_FIELDS
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.meta import Manifest

_FALSE: Final = frozenset({"spec.unschedulable", "spec.hostNetwork"})
"""Booleans: an absent one counts as ``false``."""


class FieldRequirement(msgspec.Struct, frozen=True):
    """``path`` equals ``value``, or differs from it when ``negated``."""

    path: str
    value: str
    negated: bool = False

    def matches(self, manifest: Manifest) -> bool:
        """Return whether the object satisfies the requirement."""
        return (value_of(manifest, self.path) == self.value) is not self.negated


MAX_REQUIREMENTS: Final = 100
"""As for label selectors."""


def parse_field_selector(kind: str, text: str) -> tuple[FieldRequirement, ...]:
    """Return the requirements of a ``fieldSelector`` parameter for objects of ``kind``.

    Raises:
        BadRequest: the text does not parse, or names a field that is not selectable.
    """
    supported = KINDS[kind].selectable
    requirements = []
    for term in _split(text):
        if not term:
            continue
        found = _operator(term)
        if found is None:
            raise BadRequest(f"invalid selector: '{text}'; can't understand '{term}'")
        path, value, negated = found
        if path not in supported and path not in METADATA_FIELDS:
            raise BadRequest(f"field label not supported: {path}")
        requirements.append(FieldRequirement(path, _unescape(value, text), negated))
        if len(requirements) > MAX_REQUIREMENTS:
            raise BadRequest(f"invalid selector: more than {MAX_REQUIREMENTS} requirements")
    return tuple(requirements)


def value_of(manifest: Manifest, path: str) -> str:
    """Return the field's value as text; empty when absent."""
    special = _SPECIAL.get(path)
    if special is not None:
        return special(manifest)
    value: object = manifest
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return "false" if path in _FALSE else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def matches(requirements: Iterable[FieldRequirement], manifest: Manifest) -> bool:
    """Return whether the object satisfies all requirements."""
    return all(requirement.matches(manifest) for requirement in requirements)


def _source(manifest: Manifest) -> str:
    source = manifest.get("source") or {}
    return source.get("component") or manifest.get("reportingComponent") or ""


def _name(manifest: Manifest) -> str:
    return str((manifest.get("metadata") or {}).get("name") or "")


def _replicas(manifest: Manifest) -> str:
    return str((manifest.get("status") or {}).get("replicas") or 0)


_SPECIAL: Final[dict[str, Callable[[Manifest], str]]] = {
    "name": _name,
    "source": _source,
    "status.replicas": _replicas,
}


def _split(text: str) -> list[str]:
    terms, current, escaped = [], "", False
    for character in text:
        if escaped:
            current += character
            escaped = False
        elif character == "\\":
            current += character
            escaped = True
        elif character == ",":
            terms.append(current)
            current = ""
        else:
            current += character
    return [*terms, current]


def _operator(term: str) -> tuple[str, str, bool] | None:
    position = 0
    while position < len(term):
        if term[position] == "\\":
            position += 2
            continue
        for operator in ("!=", "==", "="):
            if term.startswith(operator, position):
                return term[:position], term[position + len(operator) :], operator == "!="
        position += 1
    return None


def _unescape(value: str, text: str) -> str:
    result, characters = "", iter(value)
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            if following not in ("\\", ",", "="):
                raise BadRequest(f"invalid selector: '{text}'; can't understand '{value}'")
            result += following
        elif character in (",", "="):
            raise BadRequest(f"invalid selector: '{text}'; can't understand '{value}'")
        else:
            result += character
    return result

"""Differences of two pod specs, as Kubernetes prints them in errors of forbidden updates.

The API server prints both specs in its internal form (Go field names, every field, one blank of
indent) and shows a unified diff; clients and people know the form. Rule: apimachinery
``pkg/util/diff/diff.go``; field order: pkg/apis/core/types.go, v1.36.
"""

import difflib
import json
from pathlib import Path
from typing import Any, Final

from clusterstate.admission.validation.core.resources import parse
from clusterstate.objects.values.meta import Manifest

_FILE: Final = Path(__file__).with_name("internal_types.txt")
_TYPES: Final[dict[str, str]] = dict(line.split(": ", 1) for line in _FILE.read_text().splitlines())
"""Type -> its fields in order, each ``GoName[=jsonName]:type``.

The JSON name is the Go name with a lower first letter unless stated. Scalar types: s text, b bool,
i number, p pointer to a scalar, j number or text; q quantity, *q pointer to one, r resource list, m
map; ``[]X`` list of X, ``*X`` pointer to struct X, ``X`` struct by value, ``X&`` the fields of X
inline, ``member>X`` those of the member's X inline; ``?`` before a type: left out where empty. The
types of ``meta/v1`` have no internal form: their fields are written as on the wire.
"""
# The internal form keeps the pod's host namespaces in its security context.
_IN_SECURITY_CONTEXT: Final = (
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "hostUsers",
)
_EMPTY: Final[dict[str, Any]] = {"s": "", "b": False, "i": 0, "j": 0, "q": "0"}


def spec_diff(old: Manifest, new: Manifest) -> str:
    """Return the unified diff of two pod specs in Kubernetes' internal form."""
    before, after = _lines(old), _lines(new)
    # Two header lines name the files; upstream leaves them out.
    return "".join(list(difflib.unified_diff(before, after, n=3))[2:])


# Characters that Go's encoder escapes inside strings; it writes all others unchanged.
_ESCAPED: Final = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def _lines(spec: Manifest) -> list[str]:
    text = json.dumps(_internal(spec), indent=1, ensure_ascii=False).translate(_ESCAPED)
    return [f"{line}\n" for line in text.split("\n")]


def _internal(spec: Manifest) -> dict[str, Any]:
    moved = {field: spec[field] for field in _IN_SECURITY_CONTEXT if field in spec}
    if moved:
        spec = {**spec, "securityContext": {**(spec.get("securityContext") or {}), **moved}}
    return _struct("PodSpec", spec)


def fields(name: str) -> dict[str, str]:
    """Return JSON name to type, without ``[]``, ``*``, ``?``, for a Go type in ``_TYPES``.

    Raises:
        KeyError: there is no such type.
    """
    types: dict[str, str] = {}
    for entry in _TYPES[name].split():
        if entry.endswith("&"):
            types |= fields(entry[:-1])
        elif ">" in entry:
            types |= fields(entry.partition(">")[2])
        else:
            names, _, type_ = entry.partition(":")
            types[_json_name(names)] = type_.lstrip("?[]*")
    return types


def _json_name(names: str) -> str:
    go_name, _, json_name = names.partition("=")
    return json_name or go_name[0].lower() + go_name[1:]


def _struct(name: str, value: Manifest) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for entry in _TYPES[name].split():
        if entry.endswith("&"):
            shown.update(_struct(entry[:-1], value))
            continue
        member, inline, of_member = entry.partition(">")
        if inline:
            shown.update(_struct(of_member, value.get(member) or {}))
            continue
        names, _, type_ = entry.partition(":")
        go_name, key = names.partition("=")[0], _json_name(names)
        if type_.startswith("?") and not value.get(key):
            continue
        shown[go_name] = _value(type_.removeprefix("?"), value.get(key))
    return shown


def _value(type_: str, value: Any) -> Any:
    if type_.startswith("[]"):
        return None if value is None else [_value(type_[2:], item) for item in value]
    if type_ == "*q":
        return None if value is None else _quantity(value)
    if type_.startswith("*"):
        return None if value is None else _struct(type_[1:], value)
    if type_ in _TYPES:
        return _struct(type_, value or {})
    if type_ == "r":
        return None if value is None else {k: _quantity(value[k]) for k in sorted(value)}
    if type_ == "m":
        return None if value is None else {k: value[k] for k in sorted(value)}
    if type_ == "q":
        return "0" if value is None else _quantity(value)
    if value is None:
        return _EMPTY.get(type_)
    return value


def _quantity(value: Any) -> str:
    quantity = parse(value)
    return str(value) if quantity is None else str(quantity)

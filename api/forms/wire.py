"""Bodies: from bytes in JSON or YAML to a checked manifest, and back.

``body`` is the one place where a request's data is decoded, which keeps ``Any`` out of the views. A
body that does not decode, or has a field of the wrong JSON type, is one 400: a single badly typed
object in storage would break every typed list that contains it. Unknown fields are dropped and
reported as warnings, or refused with ``fieldValidation=Strict``; of duplicate fields the last one
counts. Admission validates the values.
"""

from typing import Any, Final

import msgspec

from api.forms import parsers
from clusterstate.objects.registry import quantity_places
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.schema import (
    check_types,
    drop_unknown,
    is_plain,
    paths_of,
    type_problem,
    unknown_fields,
)
from clusterstate.objects.values.errors import INVALID, BadRequest, FieldError, Invalid
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural
from clusterstate.objects.wire import patching, reading

encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode

_IN_JSON = frozenset(
    {
        parsers.JSON, parsers.APPLY, patching.JSON_PATCH, patching.MERGE_PATCH,
        patching.STRATEGIC_MERGE_PATCH,
    }
)  # fmt: skip

TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False", ""})


def boolean(text: str | None, name: str) -> bool:
    """Return a query parameter as Go's ``strconv.ParseBool`` reads it; absent is False.

    Raises:
        BadRequest: the text is none of Go's words.
    """
    if text is None or text in FALSE:
        return False
    if text in TRUE:
        return True
    raise BadRequest(f'invalid value "{text}" for {name}: must be a boolean')


def revision(text: str | None) -> int | None:
    """Return the parameter ``resourceVersion``, None when absent or empty.

    Raises:
        BadRequest: it is no number, in the words of apiserver ``storage/errors.go``.
    """
    if not text:
        return None
    number = natural(text, digits=_MOST_DIGITS)
    if number is None or number > _MAX_UINT64:
        shown = encode(text[:100]).decode()
        is_number = text.isascii() and text.isdigit()
        raise BadRequest(
            f"invalid resource version: resourceVersion: Invalid value: {shown}: "
            f"strconv.ParseUint: parsing {shown}: "
            f"{'value out of range' if is_number else 'invalid syntax'}"
        )
    return number


def signed(text: str | None, name: str) -> int | None:
    """Return a query parameter as a number, None when absent or empty.

    Raises:
        BadRequest: it is no whole number.
    """
    if not text:
        return None
    number = natural(text.removeprefix("-"), digits=_MOST_DIGITS)
    if number is None or number > _MAX_INT64:
        raise BadRequest(f'invalid value "{text[:100]}" for {name}: must be an integer')
    return -number if text.startswith("-") else number


def integer(text: str | None, name: str) -> int | None:
    """Return a query parameter as a number of at least 0, None when absent or empty."""
    if not text:
        return None
    number = natural(text)
    if number is None:
        raise BadRequest(f'invalid value "{text}" for {name}: must be a non-negative integer')
    return number


_MOST_DIGITS: Final = 1000
"""Digits that a number may have; nearly all would be zeros before it."""
_MAX_INT64: Final = 2**63 - 1
_MAX_UINT64: Final = 2**64 - 1
_MOST_SHOWN: Final = 1000
"""A refusal shows this many letters of the object that a patch made."""
_MOST_TOLD: Final = 100
"""A refusal names this many mistakes of a body (sigs.k8s.io/json, ``saveStrictError``)."""


class Twice(msgspec.Struct, frozen=True):
    """Duplicate members of a body.

    ``fields``: their paths, for a body in JSON; ``keys``: the message of Go's reader, for YAML.
    """

    fields: tuple[str, ...] = ()
    keys: str = ""


NOT_TWICE: Final = Twice()


def repeated(raw: bytes, content_type: str | None, mode: str) -> Twice:
    """Return the duplicate fields of a body, if ``mode`` (fieldValidation) requires it.

    An apply may be JSON, too, which is YAML. Without the parameter this check is skipped, since it
    takes longer than all other parsing.
    """
    if mode not in ("Strict", "Warn"):
        return NOT_TWICE
    media_type = parsers.media_type(content_type)
    if media_type in _IN_JSON and (media_type != parsers.APPLY or raw.lstrip().startswith(b"{")):
        try:
            return Twice(tuple(reading.repeated_fields(raw)))
        except ValueError:
            return NOT_TWICE  # YAML that begins with a brace
    if not media_type.endswith("yaml"):
        return NOT_TWICE
    found = reading.repeated_keys(raw)
    lines = "".join(
        f'\n  line {line}: key "{key}" already set in map' for line, key in found[:_MOST_TOLD]
    )
    return Twice(keys=f"yaml: unmarshal errors:{lines}" if found else "")


def manifest(
    value: Any, kind: Kind, field_validation: str = "", twice: Twice = NOT_TWICE
) -> tuple[Manifest, list[str]]:
    """Return ``value``, which has no nulls, as a manifest of ``kind``, and warnings.

    ``kind`` and ``apiVersion`` are filled in when absent, and unknown fields are dropped.
    ``twice``: the duplicate fields of the body (``repeated``), reported together with unknown
    fields.

    Raises:
        BadRequest: not an object, another kind, a field of the wrong JSON type, or an unknown
            field when ``field_validation`` is ``Strict``.
    """
    result = _of_kind(value, kind)
    warnings: list[str] = []
    if not _is_plain(result, kind, twice):
        warnings = validate_fields(_checked(result, kind), kind, field_validation, twice)
        drop_unknown(kind.name, result)
    return result, warnings + _name_owners_once(result, "")


def patched(
    value: Any, kind: Kind, field_validation: str, twice: Twice
) -> tuple[Manifest, list[str]]:
    """Return the result of a patch as a manifest of ``kind``, and warnings.

    ``twice``: the duplicate fields of the patch. Unknown fields are dropped.

    Raises:
        BadRequest: the result is of another kind.
        Invalid: a field has the wrong JSON type; or, when ``field_validation`` is ``Strict``, an
            unknown name or occurs twice (endpoints/handlers/patch.go).
    """
    result = typed(value, kind.name, kind.api_version)
    if _is_plain(result, kind, twice):
        return result, _name_owners_once(result, _BY_PATCH)
    try:
        _checked(_with_objects(result), kind)
    except BadRequest as error:
        shown = encode(result).decode()[:_MOST_SHOWN]
        raise Invalid("", "", [FieldError(INVALID, "patch", shown, error.message)]) from error
    owners = _name_owners_once(result, _BY_PATCH)
    warnings: list[str] = []
    if field_validation != "Ignore":
        warnings += [f'duplicate field "{path}"' for path in twice.fields]
        warnings += [f'unknown field "{path}"' for path in unknown_fields(kind.name, result)]
    if warnings and field_validation == "Strict":
        shown = encode(result).decode()[:_MOST_SHOWN]
        raise Invalid("", "", [FieldError(INVALID, "patch", shown, _strict(warnings))])
    drop_unknown(kind.name, result)
    return result, warnings + owners


_BY_PATCH: Final = " after mutating admission happens"


def _name_owners_once(value: Manifest, when: str) -> list[str]:
    """Drop duplicate owner references, in place; return a warning about them.

    Rule: ``dedupOwnerReferences``, apiserver ``endpoints/handlers/create.go``, v1.36.
    """
    metadata = value.get("metadata") or {}
    owners = metadata.get("ownerReferences")
    if not owners or len(owners) == 1:
        return []
    once: dict[bytes, Manifest] = {}
    again: list[str] = []
    for one in owners:
        text = _encode_sorted(one)  # compared as keys: a body may have 100,000 of them
        if text in once:
            again.append(one.get("uid") or "")
        else:
            once[text] = one
    if not again:
        return []
    metadata["ownerReferences"] = list(once.values())
    warning = (
        f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner "
        "references in 1.20+, and may reject such requests as early as 1.24; please fix your "
        f"requests; duplicate UID(s) observed: {', '.join(dict.fromkeys(again))}"
    )
    return [warning]


def _of_kind(value: Any, kind: Kind) -> Manifest:
    return _with_objects(typed(value, kind.name, kind.api_version))


def _with_objects(value: Manifest) -> Manifest:
    for field in ("spec", "status"):
        # For kinds without this field nothing else checks its type.
        if field in value and not isinstance(value[field], dict):
            raise BadRequest(f"{field}: expected an object")
    return value


def _is_plain(value: Manifest, kind: Kind, twice: Twice) -> bool:
    """Return whether there is nothing to check or to warn about: the usual case, found quickly."""
    return twice == NOT_TWICE and is_plain(kind.name, value)


def _checked(value: Manifest, kind: Kind) -> Manifest:
    check_types(kind.name, value)
    quantity_places.write_as_text(kind.name, value)  # clients read amounts as text only
    return value


def typed(value: Any, name: str, *api_versions: str) -> Manifest:
    """Return ``value`` as an object of a kind, with ``kind`` and ``apiVersion`` filled in."""
    if not isinstance(value, dict):
        raise BadRequest(f"the body must be a {name} object")
    if value.get("kind") in (None, ""):
        value["kind"] = name
    elif value["kind"] != name:
        raise BadRequest(
            "the object provided is unrecognized (must be of type "
            f"{name}): kind is {_show(value['kind'])}"
        )
    if value.get("apiVersion") in (None, ""):
        value["apiVersion"] = api_versions[0]
    elif value["apiVersion"] not in api_versions:
        raise BadRequest(
            f"the API version in the data ({_show(value['apiVersion'])}) does not match "
            f"the expected API version ({api_versions[0]})"
        )
    return value


def request(value: Any, name: str, wire_type: type[msgspec.Struct], *api_versions: str) -> Manifest:
    """Return ``value`` as an object that is only ever posted, such as a Binding.

    Raises:
        BadRequest: not an object, another kind, or a field of the wrong JSON type.
    """
    result = typed(value, name, *api_versions)
    problem = type_problem(result, wire_type)
    if problem:
        raise BadRequest(f"{name} cannot be handled: {problem}")
    return result


def _show(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def validate_fields(value: Manifest, kind: Kind, mode: str, twice: Twice = NOT_TWICE) -> list[str]:
    """Return a warning for each unknown field and each in ``twice``; none if ``mode`` is Ignore.

    In the order of the fields, as in kube-apiserver.

    Raises:
        BadRequest: ``mode`` is ``Strict`` and a field is unknown.
    """
    if mode == "Ignore":
        return []
    warnings = {path: f'unknown field "{path}"' for path in unknown_fields(kind.name, value)}
    if twice.fields:
        for path in twice.fields:
            warnings.setdefault(path, f'duplicate field "{path}"')
        warnings = {path: warnings[path] for path in paths_of(value) if path in warnings} | warnings
    return _tell([*warnings.values(), *([twice.keys] if twice.keys else [])], kind, mode)


def _tell(found: list[str], kind: Kind, mode: str) -> list[str]:
    """Return the findings as warnings, or raise BadRequest if field validation is strict."""
    if found and mode == "Strict":
        raise BadRequest(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: '
            + _strict(found)
        )
    return found


def _strict(found: list[str]) -> str:
    return "strict decoding error: " + ", ".join(found[:_MOST_TOLD])

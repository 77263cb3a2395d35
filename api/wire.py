"""Bodies: from bytes in JSON or YAML to a checked manifest, and back.

``body`` is the one place where a request's data is decoded, which keeps ``Any`` out of the views.
A body that does not decode, or has a field of the wrong JSON type, is one 400: a single badly typed
object in storage would break every typed list that contains it. Unknown fields are reported as
warnings, or refused with ``fieldValidation=Strict``. What the values mean is admission's business.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from api.errors import UnsupportedMediaType
from clusterstate.objects.errors import BadRequest
from clusterstate.objects.kinds import Kind
from clusterstate.objects.meta import Manifest, strip_nulls

JSON = "application/json"
YAML = "application/yaml"
YAML_TYPES = frozenset({YAML, "application/x-yaml", "text/yaml", "text/x-yaml"})
ACCEPTED = f"{JSON}, {YAML}"

MAX_NODES = 2_000_000
"""Values that a YAML document may expand to; aliases can make a small text grow without bound."""

_decode_json = msgspec.json.decode
encode = msgspec.json.Encoder().encode

TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False", ""})


class _Loader(yaml.CSafeLoader):
    """YAML 1.1 as Kubernetes reads it: times stay text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


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


def integer(text: str | None, name: str) -> int | None:
    """Return a query parameter as a number of at least 0, None when absent or empty."""
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadRequest(f'invalid value "{text}" for {name}: must be a non-negative integer')
    return int(text)


def media_type(content_type: str | None) -> str:
    """Return a Content-Type without parameters, in lower case; a missing one means JSON."""
    return (content_type or JSON).partition(";")[0].strip().lower() or JSON


def decode(raw: bytes, content_type: str | None) -> Any:
    """Return the JSON value in ``raw``, which is JSON or YAML as ``content_type`` says.

    Raises:
        UnsupportedMediaType: another format.
        BadRequest: the text does not decode.
    """
    kind = media_type(content_type)
    if kind == JSON or kind.endswith("+json"):
        return decode_json(raw)
    if kind in YAML_TYPES or kind.endswith("+yaml"):
        return decode_yaml(raw)
    raise UnsupportedMediaType(
        "the body of the request was in an unknown format - "
        f"accepted media types include: {ACCEPTED}"
    )


def decode_json(raw: bytes) -> Any:
    """Return the value in a JSON text."""
    try:
        return _decode_json(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


def decode_yaml(raw: bytes) -> Any:
    """Return the one document of a YAML text, as JSON would have it."""
    try:
        value = yaml.load(raw, Loader=_Loader)  # noqa: S506  # _Loader is a safe loader
        _count(value, {})
        return _as_json(value)
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        text = " ".join(str(error).split())
        raise BadRequest(f"the body is not valid YAML: {text}") from error


def _count(value: Any, known: dict[int, int]) -> int:
    """Return how many values ``value`` expands to; raise ValueError when that is too many."""
    if not isinstance(value, dict | list):
        return 1
    size = known.get(id(value))
    if size is None:
        known[id(value)] = MAX_NODES  # an alias to itself never ends
        children = value.values() if isinstance(value, dict) else value
        size = 1 + sum(_count(child, known) for child in children)
        if size > MAX_NODES:
            raise ValueError("aliases expand to too many values")
        known[id(value)] = size
    return size


def _as_json(value: Any) -> Any:
    """Return a YAML value with texts as keys and nothing that JSON cannot say."""
    if isinstance(value, dict):
        return {_key(key): _as_json(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_as_json(child) for child in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and value - value == 0:
        return value
    raise ValueError(f"{value!r} has no JSON form")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return str(key)
    raise ValueError(f"{key!r} cannot be a key")


def manifest(value: Any, kind: Kind, field_validation: str = "") -> tuple[Manifest, list[str]]:
    """Return ``value`` as a manifest of ``kind`` without nulls, and warnings.

    ``kind`` and ``apiVersion`` are filled in when absent.

    Raises:
        BadRequest: not an object, another kind, a field of the wrong JSON type, or an unknown
            field when ``field_validation`` is ``Strict``.
    """
    result = typed(value, kind.name, kind.api_version)
    result = strip_nulls(result)
    check_types(result, kind)
    return result, validate_fields(result, kind, field_validation)


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


def _show(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def check_types(value: Manifest, kind: Kind) -> None:
    """Raise BadRequest when a known field of ``value`` has the wrong JSON type."""
    if kind.wire_type is None:
        return
    try:
        msgspec.convert(value, kind.wire_type)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        where = path.rstrip("`").lstrip(".")
        raise BadRequest(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: '
            + (f"{where}: {reason}" if where else reason)
        ) from error
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


def validate_fields(value: Manifest, kind: Kind, mode: str) -> list[str]:
    """Return one warning per unknown field; none when ``mode`` is ``Ignore``.

    Raises:
        BadRequest: ``mode`` is ``Strict`` and a field is unknown, or ``mode`` is no known word.
    """
    if mode == "Ignore" or kind.wire_type is None:
        return []
    if mode not in ("", "Warn", "Strict"):
        raise BadRequest(
            f'invalid value "{mode}" for fieldValidation: '
            'supported values: "Ignore", "Warn", "Strict"'
        )
    found = [f'unknown field "{path}"' for path in unknown_fields(value, kind.wire_type)]
    if found and mode == "Strict":
        raise BadRequest(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: '
            "strict decoding error: " + ", ".join(found)
        )
    return found


# A shape says which fields a struct type knows: a dict of field name to the shape of its value,
# a one-element list for lists, a one-element tuple for free maps, None where anything goes.
_shapes: dict[Any, Any] = {}


def unknown_fields(value: Any, wire_type: Any) -> list[str]:
    """Return the paths of all fields of ``value`` that ``wire_type`` does not know."""
    shape = _shapes.get(wire_type)
    if shape is None:
        shape = _shape(msgspec.inspect.type_info(wire_type), {})
        _shapes[wire_type] = shape
    return [] if _known(value, shape) else list(_unknown(value, shape, ""))


def _shape(info: Any, seen: dict[Any, Any]) -> Any:
    if isinstance(info, msgspec.inspect.StructType):
        known = seen.get(info.cls)
        if known is None:
            known = seen[info.cls] = {}
            known.update({f.encode_name: _shape(f.type, seen) for f in info.fields})
        return known
    if isinstance(info, msgspec.inspect.UnionType):
        shapes = [_shape(member, seen) for member in info.types]
        return next((shape for shape in shapes if shape is not None), None)
    if isinstance(info, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
        inner = _shape(info.item_type, seen)
        return None if inner is None else [inner]
    if isinstance(info, msgspec.inspect.DictType):
        inner = _shape(info.value_type, seen)
        return None if inner is None else (inner,)
    return None


def _known(value: Any, shape: Any) -> bool:
    """Return whether ``_unknown`` yields nothing, without building paths: the usual case."""
    if isinstance(shape, dict):
        if isinstance(value, dict):
            for key, child in value.items():
                if key not in shape:
                    return False
                inner = shape[key]
                if inner is not None and not _known(child, inner):
                    return False
        return True
    inner = shape[0]
    if isinstance(shape, list):
        return not isinstance(value, list) or all(_known(child, inner) for child in value)
    return not isinstance(value, dict) or all(_known(c, inner) for c in value.values())


def _unknown(value: Any, shape: Any, path: str) -> Iterator[str]:
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return
        for key, child in value.items():
            if key not in shape:
                yield f"{path}.{key}" if path else key
            else:
                inner = shape[key]
                if inner is not None:
                    yield from _unknown(child, inner, f"{path}.{key}" if path else key)
    elif isinstance(shape, list):
        if isinstance(value, list):
            for index, child in enumerate(value):
                yield from _unknown(child, shape[0], f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _unknown(child, shape[0], f"{path}.{key}")

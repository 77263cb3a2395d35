"""Which fields a kind has, and whether a manifest's fields have the right JSON type.

Values are validated elsewhere; here ``image: 5`` is wrong because an image is a string, and
``imagee: x`` is unknown. Types are strict: one badly typed object in storage breaks every typed
list that contains it.
"""

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Union

import msgspec

from clusterstate.objects.registry import inspected, wire_types
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from clusterstate.objects.values import moments
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.meta import Manifest, prepare

# A shape says which fields a type knows: a dict of field name to the shape of its value, a
# one-element list for lists, a one-element tuple for free maps, None where anything goes.
_Shape = Any


def check_types(kind: str, manifest: Manifest) -> None:
    """Check that every known field of ``manifest`` has its JSON type; unknown fields may be there.

    Raises:
        BadRequest: a field has another type; names the path of the first one.
    """
    registered = KINDS[kind]
    problem = type_problem(manifest, registered.wire_type)
    if problem:
        raise BadRequest(
            f'{kind} in version "{registered.version}" cannot be handled as a {kind}: {problem}'
        )


def type_problem(value: Any, wire_type: type[msgspec.Struct]) -> str:
    """Return the first field of the wrong JSON type and what is wrong; empty if there is none."""
    try:
        msgspec.convert(value, wire_type)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        where = path.rstrip("`").removeprefix(".")
        for pattern, message in _TOLD.items():
            if repr(pattern) in reason:
                reason = message
        return f"{where}: {reason}" if where else reason
    except RecursionError:
        return "nested too deeply"
    return ""


_A_TIME = "Expected an RFC 3339 time with a zone, such as 2026-01-31T12:00:00Z"
_TOLD = {
    wire_types.MICRO_TIME: _A_TIME,
    moments.TIME: _A_TIME,
    wire_types.BASE64: "Expected base64 (RFC 4648, with padding)",
}
"""What is said of a text that does not match a pattern."""


def is_plain(kind: str, manifest: Manifest) -> bool:
    """Return whether all fields are known and well typed, and every quantity is text.

    One pass in C. False does not mean invalid: the other functions decide.
    """
    try:
        msgspec.convert(manifest, _plain_type(KINDS[kind].wire_type))
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def make_ready() -> None:
    """Make the types that ``is_plain`` needs of all kinds, 0.1 s that no request should wait for.

    To be called before there are threads: making types is not safe in several at once.
    """
    prepare(*(_plain_struct(inspected.of_struct(kind.wire_type)) for kind in ALL_KINDS))


def _plain_type(wire_type: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return the wire type without leniency: no unknown fields, no numbers for quantities."""
    return _plain.get(wire_type) or _plain_struct(inspected.of_struct(wire_type))


_plain: dict[type, type[msgspec.Struct]] = {}


def _plain_struct(info: msgspec.inspect.Type) -> type[msgspec.Struct]:
    """Return the result of ``_plain_type`` for a Struct type that msgspec has inspected already.

    To ask for it again at each type within would go through the same types hundreds of times.
    """
    assert isinstance(info, msgspec.inspect.StructType)
    plain_struct = _plain.get(info.cls)
    if plain_struct is None:
        plain_struct = _plain[info.cls] = msgspec.defstruct(
            f"Plain{info.cls.__name__}",
            [(field.name, _plain_annotation(field.type), None) for field in info.fields],
            rename={field.name: field.encode_name for field in info.fields},
            forbid_unknown_fields=True,
            gc=False,
        )
    return plain_struct


def _plain_annotation(info: msgspec.inspect.Type) -> Any:
    inspect = msgspec.inspect
    if isinstance(info, inspect.UnionType):
        kinds = {type(member) for member in info.types}
        quantity = {inspect.FloatType, inspect.StrType} <= kinds
        members = [
            _plain_annotation(member)
            for member in info.types
            if not (quantity and isinstance(member, inspect.FloatType | inspect.IntType))
        ]
        return Union[tuple(members)]  # noqa: UP007  # the members are known at run time only
    if isinstance(info, inspect.NoneType):
        return None
    if isinstance(info, inspect.StructType):
        return _plain_struct(info)
    if isinstance(info, inspect.ListType):
        return list[_plain_annotation(info.item_type)]  # type: ignore[misc]  # as above
    if isinstance(info, inspect.DictType):
        return dict[str, _plain_annotation(info.value_type)]  # type: ignore[misc]  # as above
    if isinstance(info, inspect.IntType):
        return Annotated[int, msgspec.Meta(ge=info.ge, le=info.le)]
    if isinstance(info, inspect.StrType):
        return Annotated[str, msgspec.Meta(pattern=info.pattern)] if info.pattern else str
    if isinstance(info, inspect.BoolType):
        return bool
    if isinstance(info, inspect.FloatType):
        return float
    return Any


def unknown_fields(kind: str, manifest: Manifest) -> list[str]:
    """Return the paths of all fields that ``kind`` does not have: ``spec.containers[0].imagee``."""
    return unknown_paths(manifest, KINDS[kind].wire_type)


def unknown_paths(value: Any, wire_type: type[msgspec.Struct]) -> list[str]:
    """Return the paths of all fields of ``value`` that ``wire_type`` does not have."""
    shape = _shape_of(wire_type)
    return [] if _is_known(value, shape) else list(_unknown(value, shape, ""))


def drop_unknown(kind: str, manifest: Manifest, *copies: Manifest) -> None:
    """Remove all fields that ``kind`` does not have, in place; free-form maps stay.

    ``copies`` are equal to ``manifest`` and are changed alike. An object that has no such field,
    the usual case, is seen in one pass in C.
    """
    if not is_plain(kind, manifest):
        for each in (manifest, *copies):
            drop_unknown_of(each, KINDS[kind].wire_type)


def drop_unknown_of(value: Any, wire_type: type[msgspec.Struct]) -> None:
    """Remove all fields of ``value`` that ``wire_type`` does not have, in place."""
    _drop(value, _shape_of(wire_type))


def paths_of(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all fields of ``value``, in their order."""
    if isinstance(value, dict):
        for key, child in value.items():
            where = f"{path}.{key}" if path else key
            yield where
            yield from paths_of(child, where)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from paths_of(child, f"{path}[{index}]")


@cache
def _shape_of(wire_type: type[msgspec.Struct]) -> _Shape:
    return _shape(inspected.of_struct(wire_type), {})


def _shape(info: Any, shape_of: dict[Any, _Shape]) -> _Shape:
    if isinstance(info, msgspec.inspect.StructType):
        shape = shape_of.get(info.cls)
        if shape is None:
            shape = shape_of[info.cls] = {}
            shape.update({field.encode_name: _shape(field.type, shape_of) for field in info.fields})
        return shape
    if isinstance(info, msgspec.inspect.UnionType):
        shapes = (_shape(member, shape_of) for member in info.types)
        return next((one for one in shapes if one is not None), None)
    if isinstance(info, msgspec.inspect.ListType):
        inner = _shape(info.item_type, shape_of)
        return None if inner is None else [inner]
    if isinstance(info, msgspec.inspect.DictType):
        inner = _shape(info.value_type, shape_of)
        return None if inner is None else (inner,)
    return None


def _is_known(value: Any, shape: _Shape) -> bool:
    """Return whether ``_unknown`` yields nothing, without building paths: the usual case."""
    if isinstance(shape, dict):
        if isinstance(value, dict):
            for key, child in value.items():
                if key not in shape:
                    return False
                inner = shape[key]
                if inner is not None and not _is_known(child, inner):
                    return False
        return True
    inner = shape[0]
    if isinstance(shape, list):
        return not isinstance(value, list) or all(_is_known(child, inner) for child in value)
    return not isinstance(value, dict) or all(_is_known(child, inner) for child in value.values())


def _unknown(value: Any, shape: _Shape, path: str) -> Iterator[str]:
    if isinstance(shape, dict):
        if isinstance(value, dict):
            for key, child in value.items():
                where = f"{path}.{key}" if path else key
                if key not in shape:
                    yield where
                elif shape[key] is not None:
                    yield from _unknown(child, shape[key], where)
    elif isinstance(shape, list):
        if isinstance(value, list):
            for index, child in enumerate(value):
                yield from _unknown(child, shape[0], f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _unknown(child, shape[0], f"{path}.{key}")


def _drop(value: Any, shape: _Shape) -> None:
    if isinstance(shape, dict):
        if isinstance(value, dict):
            for key in [key for key in value if key not in shape]:
                del value[key]
            for key, child in value.items():
                if shape[key] is not None:
                    _drop(child, shape[key])
    elif isinstance(shape, list):
        if isinstance(value, list):
            for child in value:
                _drop(child, shape[0])
    elif isinstance(value, dict):
        for child in value.values():
            _drop(child, shape[0])


prepare(*wire_types.STRUCTS.values())

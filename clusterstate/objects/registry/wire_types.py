"""Kubernetes' own types as Structs, and how strategic merge patches and applies merge lists.

``wire_types.json`` has them, a line for each type, each after those that its fields have;
``tools/generate_wire_types.py`` writes it from the Kubernetes OpenAPI definitions. The definitions
are Copyright The Kubernetes Authors, Apache License 2.0.

The types answer two questions: does a known field have the right JSON type, and which fields are
known. Objects are stored as manifests and never pass through these types, so no code reads their
attributes: ``wire_types.Pod`` is a type of Structs and no more.
"""

from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from clusterstate.objects.values.moments import TIME

MICRO_TIME: Final = f"{TIME}(?#micro)"
BASE64: Final = (
    r"\A(?:[A-Za-z0-9+/]{512})*+[\r\n]*+(?:[A-Za-z0-9+/][\r\n]*+[A-Za-z0-9+/][\r\n]*+"
    r"(?:[A-Za-z0-9+/][\r\n]*+[A-Za-z0-9+/]|[A-Za-z0-9+/][\r\n]*+=[\r\n]*+\Z"
    r"|=[\r\n]*+=[\r\n]*+\Z)[\r\n]*+)*+\Z"
)
"""What Go's base64.StdEncoding decodes: groups of four, the last one padded, line breaks anywhere;
many groups at a time where there are none."""
SCALARS: Final[dict[str, Any]] = {
    "Any": Any,
    "str": str,
    "bool": bool,
    "float": float,
    "Int32": Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)],
    "Int64": Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    "Time": Annotated[str, Meta(pattern=TIME)],
    "MicroTime": Annotated[str, Meta(pattern=MICRO_TIME)],
    "Base64": Annotated[str, Meta(pattern=BASE64)],
    "Quantity": str | int | float,
    "IntOrString": int | str,
}
"""The types of values that are no objects, by the names that ``wire_types.json`` gives them."""


class _Definition(Struct, frozen=True):
    """The entry of a type in ``wire_types.json``."""

    definition: str
    """The full name in OpenAPI, ``io.k8s.api.core.v1.Pod``."""
    fields: dict[str, str]
    """The type of each field: one of the scalars, a type above, ``list[...]``, ``dict[str, ...]``.
    Each may be absent: whether one is missing is a question of validation, not of decoding."""
    patch: dict[str, tuple[str, str]] = {}
    lists: dict[str, tuple[str, ...]] = {}
    atomic: bool = False
    atomic_fields: tuple[str, ...] = ()
    granular_fields: tuple[str, ...] = ()


_FILE: Final = Path(__file__).with_suffix(".json")
_DEFINITIONS: Final = msgspec.json.decode(_FILE.read_bytes(), type=dict[str, _Definition])


def _structs() -> dict[str, type[Struct]]:
    """Return a type of Structs for each definition, by name."""
    types = dict(SCALARS)

    def of(written: str) -> Any:
        """Return the Python type for a type's text in the file."""
        if written not in types:
            outer, _, inner = written.removesuffix("]").partition("[")
            item = of(inner.removeprefix("str, "))
            types[written] = list[item] if outer == "list" else dict[str, item]  # type: ignore[valid-type]
        return types[written]

    found = {}
    for name, one in _DEFINITIONS.items():
        fields = [(field, of(written) | None, None) for field, written in one.fields.items()]
        found[name] = types[name] = msgspec.defstruct(
            name, fields, module=__name__, omit_defaults=True, gc=False
        )
    return found


STRUCTS: Final = _structs()
PATCH: Final = {name: one.patch for name, one in _DEFINITIONS.items() if one.patch}
"""Type -> list or map field -> (merge key, strategy). All other lists are atomic."""
LISTS: Final = {name: one.lists for name, one in _DEFINITIONS.items() if one.lists}
"""Type -> list -> keys of its items; none where it is a set. For a server-side apply."""
ATOMIC: Final = frozenset(
    {name for name, one in _DEFINITIONS.items() if one.atomic}
    | {f"{name}.{field}" for name, one in _DEFINITIONS.items() for field in one.atomic_fields}
)
"""What a server-side apply sets as a whole: types, and fields as TYPE.FIELD."""
GRANULAR: Final = frozenset(
    f"{name}.{field}" for name, one in _DEFINITIONS.items() for field in one.granular_fields
)
"""Fields of such types that are merged all the same."""
DEFINITIONS: Final = {name: one.definition for name, one in _DEFINITIONS.items()}
"""The full name in OpenAPI of each type."""


def __getattr__(name: str) -> type[Struct]:
    try:
        return STRUCTS[name]
    except KeyError:
        raise AttributeError(f"Kubernetes has no type {name}") from None

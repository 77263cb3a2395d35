"""The fields of the wire types, by msgspec's inspection, once for all types of a process.

msgspec inspects a type with all types inside it, anew each time. Inspecting each type by itself
would repeat the same types hundreds of times: half a second of CPU before the first schema.
"""

from functools import cache

import msgspec
from msgspec.inspect import StructType

from clusterstate.objects.registry import wire_types


def of_struct(struct: type[msgspec.Struct]) -> StructType:
    """Return msgspec's description of a Struct type and of all Structs within."""
    return _of_wire_types().get(struct) or _inspected(struct)


@cache
def _of_wire_types() -> dict[type, StructType]:
    found = msgspec.inspect.multi_type_info(wire_types.STRUCTS.values())
    return {info.cls: info for info in found if isinstance(info, StructType)}


@cache
def _inspected(struct: type[msgspec.Struct]) -> StructType:
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, StructType)
    return info

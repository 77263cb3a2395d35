"""The tree of a checked expression, read from the library's serialized form.

Messages: ``cel.expr.CheckedExpr`` and ``cel.expr.Expr`` (google/cel-spec, ``cel/expr/*.proto``).
"""

import struct
from typing import Any, Final

import msgspec

from clusterstate.objects.wire.protobuf_values import FIXED64, VARINT, varint

ACCUMULATORS: Final = ("__result__", "@result")
_PRIMITIVES: Final = {1: "bool", 2: "int", 3: "uint", 4: "double", 5: "string", 6: "bytes"}
_WELL_KNOWN: Final = {1: "any", 2: "timestamp", 3: "duration"}


class CelType(msgspec.Struct, frozen=True):
    """A checked type: ``bool``, ``list``, ``map``, ``dyn``, the name of an abstract type."""

    name: str
    parameters: tuple["CelType", ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.parameters))
        return f"{self.name}({inner})" if inner else self.name


DYN: Final = CelType("dyn")


class Node(msgspec.Struct):
    """An expression of the syntax tree; ``kind`` decides which of the fields are used.

    ``const`` value; ``ident`` name; ``select`` operand, name, test_only; ``call`` operand (the
    target or none), name, arguments; ``list`` arguments, optional places; ``map`` entries (key,
    value, optional); ``fold`` the seven parts of a comprehension.
    """

    id: int
    kind: str = ""
    value: Any = None
    name: str = ""
    operand: "Node | None" = None
    test_only: bool = False
    arguments: list["Node"] = []
    optional: frozenset[int] = frozenset()
    entries: list[tuple["Node", "Node", bool]] = []
    fold: "Fold | None" = None


class Fold(msgspec.Struct):
    """A comprehension: the list or map, the variables, and the expressions for each entry."""

    variable: str
    second: str
    range: Node
    accumulator: str
    start: Node
    condition: Node
    step: Node
    result: Node

    @property
    def is_bind(self) -> bool:
        """Whether the comprehension is an expanded ``cel.bind``: no elements, one variable."""
        return (
            self.range.kind == "list"
            and not self.range.arguments
            and self.condition.kind == "const"
            and self.condition.value is False
            and self.accumulator not in ACCUMULATORS
        )


class CheckedExpression(msgspec.Struct):
    """A checked expression: its tree, the type of each node, the overloads of each call."""

    root: Node
    types: dict[int, CelType]
    overloads: dict[int, tuple[str, ...]]
    positions: dict[int, int]

    def type_of(self, node: Node) -> CelType:
        """Return the type of a node."""
        return self.types.get(node.id, DYN)


class Unsigned(int):
    """An unsigned integer of CEL."""


def _fields(data: bytes) -> list[tuple[int, Any]]:
    """Return (field number, value) of a protobuf message; a double is returned as eight bytes."""
    found: list[tuple[int, Any]] = []
    at, end = 0, len(data)
    while at < end:
        tag, at = varint(data, at)
        if tag & 7 == VARINT:
            value, at = varint(data, at)
            found.append((tag >> 3, value))
        elif tag & 7 == FIXED64:
            found.append((tag >> 3, data[at : at + 8]))
            at += 8
        else:
            size, at = varint(data, at)
            found.append((tag >> 3, data[at : at + size]))
            at += size
    return found


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _constant(data: bytes) -> Any:
    for number, value in _fields(data):
        match number:
            case 2:
                return bool(value)
            case 3:
                return _signed(value)
            case 4:
                return Unsigned(value)
            case 5:
                return struct.unpack("<d", value)[0]
            case 6:
                return value.decode()
            case 7:
                return bytes(value)
    return None


def _node(data: bytes) -> Node:
    node = Node(0)
    for number, value in _fields(data):
        match number:
            case 2:
                node.id = value
            case 3:
                node.kind, node.value = "const", _constant(value)
            case 4:
                node.kind, node.name = "ident", dict(_fields(value)).get(1, b"").decode()
            case 5:
                parts = dict(_fields(value))
                node.kind, node.operand, node.name = "select", _node(parts[1]), parts[2].decode()
                node.test_only = bool(parts.get(3))
            case 6:
                call = _fields(value)
                node.kind, node.arguments = "call", [_node(part) for n, part in call if n == 3]
                node.name = next((part.decode() for n, part in call if n == 2), "")
                node.operand = next((_node(part) for n, part in call if n == 1), None)
            case 7:
                items = _fields(value)
                node.kind, node.arguments = "list", [_node(part) for n, part in items if n == 1]
                node.optional = frozenset(_packed(items, 2))
            case 8:
                node.kind, node.entries = "map", [_entry(e) for n, e in _fields(value) if n == 2]
            case 9:
                node.kind, node.fold = "fold", _fold(dict(_fields(value)))
    return node


def _packed(items: list[tuple[int, Any]], field_number: int) -> list[int]:
    found: list[int] = []
    for number, part in items:
        if number == field_number and isinstance(part, bytes):
            at = 0
            while at < len(part):
                value, at = varint(part, at)
                found.append(value)
        elif number == field_number:
            found.append(part)
    return found


def _entry(data: bytes) -> tuple[Node, Node, bool]:
    parts = dict(_fields(data))
    return _node(parts[3]), _node(parts[4]), bool(parts.get(5))


def _fold(parts: dict[int, Any]) -> Fold:
    return Fold(
        variable=parts.get(1, b"").decode(), second=parts.get(8, b"").decode(),
        range=_node(parts[2]), accumulator=parts[3].decode(), start=_node(parts[4]),
        condition=_node(parts[5]), step=_node(parts[6]), result=_node(parts[7]),
    )  # fmt: skip


def _type(data: bytes) -> CelType:
    for number, value in _fields(data):
        match number:
            case 2:
                return CelType("null_type")
            case 3:
                return CelType(_PRIMITIVES.get(value, "dyn"))
            case 5:
                return CelType(_WELL_KNOWN.get(value, "dyn"))
            case 6:
                return CelType("list", tuple(_type(part) for _, part in _fields(value)) or (DYN,))
            case 7:
                parts = dict(_fields(value))
                return CelType("map", (_type(parts.get(1, b"")), _type(parts.get(2, b""))))
            case 9 | 10:
                return CelType(value.decode())
            case 11:
                return CelType("type")
            case 14:
                fields = _fields(value)
                name = next(part.decode() for n, part in fields if n == 1)
                return CelType(name, tuple(_type(part) for n, part in fields if n == 2))
    return DYN


def read(serialized: bytes) -> CheckedExpression:
    """Return the syntax tree that the CEL library's ``Expression.serialize`` encoded."""
    message = dict(_fields(serialized))[2]  # within an Any
    checked = CheckedExpression(Node(0), {}, {}, {})
    for number, value in _fields(message):
        if number == 4:
            checked.root = _node(value)
        elif number == 3:
            parts = dict(_fields(value))
            checked.types[parts[1]] = _type(parts[2])
        elif number == 2:
            parts = dict(_fields(value))
            reference = _fields(parts[2])
            checked.overloads[parts[1]] = tuple(o.decode() for n, o in reference if n == 3)
        elif number == 5:
            for n, entry in _fields(value):
                if n == 4:
                    parts = dict(_fields(entry))
                    checked.positions[parts[1]] = parts.get(2, 0)
    return checked

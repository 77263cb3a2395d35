"""The static cost of a checked expression: what evaluating it takes at least and at most.

Rules: cel-go ``checker/cost.go``, k8s.io/apiserver ``pkg/cel/library/cost.go``. A size or cost is a
pair of the least and the most; what is unknown reaches to the largest unsigned integer.
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from clusterstate.objects.cel.functions import COMPARED, ONE_UNIT, PATTERN_FACTOR, TEXT_FACTOR
from clusterstate.objects.cel.syntax import ACCUMULATORS, CheckedExpression, Fold, Node

MOST: Final = (1 << 64) - 1
_SCALARS: Final = ("bool", "double", "duration", "int", "timestamp", "uint")
_MOST_OF_A_LIST: Final = 48
"""Values that an attribute may hold (resource/v1 ``ResourceSliceMaxAttributeValuesPerDevice``)."""


class Range(NamedTuple):
    """The least and the most of a size or a cost."""

    least: int
    most: int

    def plus(self, other: "Range") -> "Range":
        """Return the sum, bounded."""
        return Range(min(self.least + other.least, MOST), min(self.most + other.most, MOST))

    def times(self, other: "Range") -> "Range":
        """Return the product, bounded."""
        return Range(min(self.least * other.least, MOST), min(self.most * other.most, MOST))

    def by(self, factor: float) -> "Range":
        """Return the product with a factor, rounded up, bounded."""
        return Range(*(min(math.ceil(float(n) * factor), MOST) for n in self))

    def union(self, other: "Range") -> "Range":
        """Return the range that holds both."""
        return Range(min(self.least, other.least), max(self.most, other.most))


NONE: Final = Range(0, 0)
ONE: Final = Range(1, 1)
UNKNOWN: Final = Range(0, MOST)
SizeOf = Callable[[list[str]], int | None]
"""The most elements or characters of what a path from a variable leads to, if it is known."""


class _Local(NamedTuple):
    path: list[str]
    size: Range | None
    entry: tuple[bool, Range, Range] | None


class _Coster:
    def __init__(self, checked: CheckedExpression, size_of: SizeOf) -> None:
        self.checked = checked
        self.size_of = size_of
        self.paths: dict[int, list[str]] = {}
        self.locals: dict[str, list[_Local]] = {}
        self.sizes: dict[int, Range] = {}
        self.entries: dict[int, tuple[bool, Range, Range]] = {}  # of a list, key, value

    def cost(self, node: Node) -> Range:
        match node.kind:
            case "ident":
                local = self._local(node.name)
                self.paths[node.id] = local.path if local else [node.name]
                return ONE
            case "select":
                return self._select(node)
            case "call":
                return self._call(node)
            case "list":
                return self._list(node)
            case "map":
                return self._map(node)
            case "fold":
                assert node.fold is not None
                return (
                    self._bind(node, node.fold)
                    if node.fold.is_bind
                    else self._fold(node, node.fold)
                )
        return NONE

    def _local(self, name: str) -> _Local | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def _path(self, node: Node) -> list[str]:
        if node.kind == "ident" and (local := self._local(node.name)):
            return local.path
        return self.paths.get(node.id, [])

    def _select(self, node: Node) -> Range:
        assert node.operand is not None
        total = self.cost(node.operand)
        if node.test_only:
            return total.plus(ONE)
        if self._is_container(node.operand):
            total = total.plus(ONE)
        self.paths[node.id] = [*self._path(node.operand), node.name]
        return total

    def _is_container(self, node: Node) -> bool:
        kind = self.checked.type_of(node).name
        return kind == "map" or (node.kind == "ident" and node.name == "device")

    def _list(self, node: Node) -> Range:
        total, item = NONE, Range(MOST, 0) if node.arguments else NONE
        for argument in node.arguments:
            total = total.plus(self.cost(argument))
            item = item.union(self._size(argument))
        self.entries[node.id] = (True, ONE, item)
        return total.plus(Range(10, 10))

    def _map(self, node: Node) -> Range:
        total = NONE
        keys = values = Range(MOST, 0) if node.entries else NONE
        for key, value, _ in node.entries:
            total = total.plus(self.cost(key)).plus(self.cost(value))
            keys, values = keys.union(self._size(key)), values.union(self._size(value))
        self.entries[node.id] = (False, keys, values)
        return total.plus(Range(30, 30))

    def _push(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def _bind(self, node: Node, fold: Fold) -> Range:
        total = self.cost(fold.range).plus(self.cost(fold.start))
        self._push(fold.accumulator, self._of(fold.start))
        total = total.plus(self.cost(fold.result))
        self.locals[fold.accumulator].pop()
        self._copy(node, fold.result)
        return total

    def _of(self, node: Node) -> _Local:
        return _Local(self._path(node), self._known_size(node), self._entry(node))

    def _copy(self, node: Node, source: Node) -> None:
        if (size := self._known_size(source)) is not None:
            self.sizes[node.id] = size
        if (entry := self._entry(source)) is not None:
            self.entries[node.id] = entry

    def _fold(self, node: Node, fold: Fold) -> Range:
        total = self.cost(fold.range).plus(self.cost(fold.start))
        self._push(fold.accumulator, self._of(fold.start))
        entry = self._entry(fold.range)
        a_list = entry[0] if entry else self.checked.type_of(fold.range).name == "list"
        path = self._path(fold.range)
        key, value = (entry[1], entry[2]) if entry else (None, None)
        if fold.second:
            self._push(fold.variable, _Local([*path, "@indices" if a_list else "@keys"], key, None))
            self._push(fold.second, _Local([*path, "@items" if a_list else "@values"], value, None))
        elif a_list:
            self._push(fold.variable, _Local([*path, "@items"], value, None))
        else:
            self._push(fold.variable, _Local([*path, "@keys"], key, None))
        each = self.cost(fold.condition).plus(self.cost(fold.step))
        self.locals[fold.variable].pop()
        if fold.second:
            self.locals[fold.second].pop()
        total = total.plus(self.cost(fold.result))
        self.locals[fold.accumulator].pop()
        count = self._size(fold.range)
        if fold.start.kind == "const" and (size := self._known_size(fold.start)) is not None:
            self.sizes[node.id] = size
        elif fold.start.kind in ("list", "map"):
            self.sizes[node.id] = count
            if (result_entry := self._entry(fold.step)) is not None:
                self.entries[node.id] = result_entry
        return total.plus(count.times(each))

    def _call(self, node: Node) -> Range:
        arguments = node.arguments
        if node.name == "dyn" and arguments:
            total = ONE.plus(self.cost(arguments[0]))
            self._copy(node, arguments[0])
            return total
        costs = [self.cost(argument) for argument in arguments]
        overloads = self.checked.overloads.get(node.id, ())
        if not overloads:
            return NONE
        total = self.cost(node.operand) if node.operand is not None else NONE
        function, result = Range(MOST, 0), None
        for overload in overloads:
            cost, size = self._function(node, overload, costs)
            function = function.union(cost)
            if size is not None:
                result = size if result is None else result.union(size)
            if overload in ("index_list", "index_map"):
                entry = self._entry(arguments[0])
                result = entry[2] if entry else None
                part = "@items" if overload == "index_list" else "@values"
                self.paths[node.id] = [*self._path(arguments[0]), part]
            if result is None:
                result = self._known_size(node)
        if result is not None:
            self.sizes[node.id] = result
        return total.plus(function)

    def _function(
        self, node: Node, overload: str, costs: list[Range]
    ) -> tuple[Range, Range | None]:
        name, arguments = node.name, node.arguments
        if overload in ("logical_or", "logical_and"):
            return Range(costs[0].least, costs[0].plus(costs[1]).most), None
        if overload == "conditional":
            size = self._size(arguments[1]).union(self._size(arguments[2]))
            self._union_entries(node, arguments[1], arguments[2])
            return costs[0].plus(costs[1].union(costs[2])), size
        total = NONE
        for cost in costs:
            total = total.plus(cost)
        own, size_ = self._own(node, name, overload)
        return own.plus(total), size_

    def _union_entries(self, node: Node, left: Node, right: Node) -> None:
        a, b = self._entry(left), self._entry(right)
        if a and b:
            self.entries[node.id] = (a[0], a[1].union(b[1]), a[2].union(b[2]))

    def _own(self, node: Node, name: str, overload: str) -> tuple[Range, Range | None]:
        """Return the cost of the call without its arguments, and its result's size if known."""
        arguments, target = node.arguments, node.operand
        if name in ONE_UNIT:
            return ONE, None
        if name == "includes":
            return Range(_MOST_OF_A_LIST, _MOST_OF_A_LIST), None
        if target is not None:
            cost_and_size = self._own_of_texts(name, target, arguments)
            if cost_and_size is not None:
                return cost_and_size
            text = self._size(target)
            if overload in ("matches_string", "matches"):
                pattern = self._size(arguments[0]).by(PATTERN_FACTOR)
                return text.plus(ONE).by(TEXT_FACTOR).times(pattern), None
            if overload == "contains_string":
                return text.by(TEXT_FACTOR).times(self._size(arguments[0]).by(TEXT_FACTOR)), None
            if overload in ("starts_with_string", "ends_with_string"):
                return self._size(arguments[0]).by(TEXT_FACTOR), None
        if overload in ("string_to_bytes", "bytes_to_string"):
            size = self._size(arguments[0])
            by = (
                Range(size.least, min(size.most * 4, MOST))
                if overload[0] == "s"
                else Range(size.least // 4, size.most)
            )
            return size.by(TEXT_FACTOR), by
        if overload == "in_list":
            return self._size(arguments[1]), None
        if overload in ("add_string", "add_bytes", "add_list"):
            size = self._size(arguments[0]).plus(self._size(arguments[1]))
            self._union_entries(node, *arguments)
            return ONE if overload == "add_list" else size.by(TEXT_FACTOR), size
        if overload in ("equals", "not_equals") or overload in COMPARED:
            most = min(self._size(argument).most for argument in arguments)
            return Range(min(most, 1), most).by(TEXT_FACTOR), None
        return ONE, None

    def _own_of_texts(
        self, name: str, target: Node, arguments: list[Node]
    ) -> tuple[Range, Range | None] | None:
        size = self._size(target)
        match name:
            case "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf":
                return self._of_elements(target, size), None
            case "lowerAscii" | "upperAscii" | "substring" | "trim":
                return size.by(TEXT_FACTOR), size
            case "replace":
                return size.by(2 * TEXT_FACTOR), _replaced(size, *map(self._size, arguments[:2]))
            case "split":
                most = size.most
                if len(arguments) > 1 and arguments[1].kind == "const" and arguments[1].value >= 0:
                    most = arguments[1].value
                return size.by(2 * TEXT_FACTOR), Range(0, most)
            case "join":
                entry = self._entry(target)
                total = size.times(entry[2] if entry else UNKNOWN)
                if arguments:
                    between = Range(max(size.least - 1, 0), max(size.most - 1, 0))
                    total = total.plus(self._size(arguments[0]).times(between))
                return total.by(TEXT_FACTOR), total
            case "find" | "findAll":
                pattern = self._size(arguments[0]).by(PATTERN_FACTOR)
                return size.plus(ONE).by(TEXT_FACTOR).times(pattern), Range(0, size.most)
        return None

    def _of_elements(self, target: Node, size: Range) -> Range:
        kind = self.checked.type_of(target)
        if not kind.parameters:
            return size.by(TEXT_FACTOR)
        each = ONE
        if kind.parameters[0].name in ("string", "bytes"):
            most = self.size_of([*self._path(target), "@items"])
            each = each.plus((UNKNOWN if most is None else Range(0, most)).by(TEXT_FACTOR))
        return size.times(each)

    def _size(self, node: Node) -> Range:
        size = self._known_size(node)
        return UNKNOWN if size is None else size

    def _known_size(self, node: Node) -> Range | None:
        if node.id in self.sizes:
            return self.sizes[node.id]
        if node.kind == "const":
            size = len(node.value) if isinstance(node.value, str | bytes) else 1
            return Range(size, size)
        if node.kind in ("list", "map"):
            size = len(node.arguments) or len(node.entries)
            return Range(size, size)
        path = self._path(node)
        if path and path[0] not in ACCUMULATORS and (most := self.size_of(path)) is not None:
            self.sizes[node.id] = Range(0, most)
            return self.sizes[node.id]
        kind = self.checked.type_of(node)
        if kind.name == "optional_type" and kind.parameters:
            kind = kind.parameters[0]
        if kind.name in _SCALARS:
            return ONE
        if node.kind == "ident" and (local := self._local(node.name)):
            return local.size
        return None

    def _entry(self, node: Node) -> tuple[bool, Range, Range] | None:
        if node.id in self.entries:
            return self.entries[node.id]
        if node.kind == "ident" and (local := self._local(node.name)):
            return local.entry
        return None


def _replaced(size: Range, old: Range, new: Range) -> Range:
    """Return the size of a text after ``replace`` (cost.go)."""
    if old.least == 0:
        most = min(size.most + 1, MOST) * new.most + size.most
    elif new.most <= old.least:
        most = size.most
    else:
        most = math.ceil(size.most / old.least) * new.most
    if old.most == 0:
        least = (size.least + 1) * new.least + size.least
    elif old.most <= new.least:
        least = size.least
    else:
        least = math.ceil(size.least / old.most) * new.least
    return Range(min(least, MOST), min(most, MOST))


def estimate(checked: CheckedExpression, size_of: SizeOf) -> Range:
    """Return the least and the most that evaluating the expression costs."""
    return _Coster(checked, size_of).cost(checked.root)

"""Closures of a checked expression: evaluated on one device, with cel-go's errors and cost.

Rules: cel-go ``interpreter``. What surprises: an error on one side of ``&&`` and ``||`` is absorbed
by the other side; in ``all`` and ``exists`` a later element can still decide after an error; a call
whose overload types left open costs one unit; a list of constants costs nothing, as it is folded.
"""

from collections.abc import Callable
from typing import Any

from clusterstate.objects.cel.functions import (
    CALLS,
    NOTHING,
    Failure,
    Optional,
    Semver,
    call_cost,
    is_key,
    is_number,
    no_overload,
)
from clusterstate.objects.cel.syntax import CheckedExpression, Fold, Node
from clusterstate.objects.values.quantity import Quantity


class Frame:
    """One evaluation: the variables in scope, its cost so far, and the limit of its cost."""

    __slots__ = ("cost", "limit", "variables")

    def __init__(self, variables: dict[str, Any], limit: int) -> None:
        self.variables = variables
        self.limit = limit
        self.cost = 0


class TooCostly(Exception):
    """The cost limit was exceeded; unlike a ``Failure``, ``||`` and ``&&`` do not absorb it."""

    def __str__(self) -> str:
        return "operation cancelled: actual cost limit exceeded"


class MapWithDefault(dict[str, Any]):
    """A map whose lookups return an empty map for a missing key; ``in`` is still false."""


Run = Callable[[Frame], Any]
_NO_VALUE = object()
_GO_NAMES = {
    bool: "types.Bool", int: "types.Int", float: "types.Double", str: "types.String",
    bytes: "types.Bytes", Semver: "cel.Semver", Quantity: "cel.Quantity",
}  # fmt: skip


def _find(value: Any, key: Any) -> Any:
    """Return the element of a container, ``_NO_VALUE`` if there is none."""
    if isinstance(value, dict):
        if isinstance(value, MapWithDefault):
            return value.get(key, {})
        return value.get(key, _NO_VALUE) if is_key(key) else _NO_VALUE
    if isinstance(value, list) and is_number(key):
        return value[int(key)] if key == int(key) and 0 <= key < len(value) else _NO_VALUE
    return _NO_VALUE


def _get(value: Any, key: Any) -> Any:
    if isinstance(value, Optional):
        return _get_optional(value, key)
    found = _find(value, key)
    if found is _NO_VALUE:
        if isinstance(value, list):
            raise Failure(f"index out of bounds: {key}")
        raise Failure(f"no such key: {key}")
    return found


def _get_optional(value: Any, key: Any) -> Optional:
    if isinstance(value, Optional):
        if not value.present:
            return NOTHING
        value = value.value
    found = _find(value, key)
    return NOTHING if found is _NO_VALUE else Optional(present=True, value=found)


class _Compiler:
    def __init__(self, checked: CheckedExpression) -> None:
        self.checked = checked

    def node(self, node: Node) -> Run:
        return getattr(self, f"_{node.kind}")(node)  # type: ignore[no-any-return]

    def _const(self, node: Node) -> Run:
        value = node.value
        return lambda frame: value

    def _ident(self, node: Node) -> Run:
        name = node.name

        def run(frame: Frame) -> Any:
            frame.cost += 1
            try:
                value = frame.variables[name]
            except KeyError:
                raise Failure(f"no such attribute(s): {name}") from None
            if isinstance(value, Failure):
                raise value
            return value

        return run

    def _qualified(self, operand: Node, look: Callable[[Any], Any]) -> Run:
        """Return a lookup in an operand; one behind a call is an attribute of its own."""
        of, base = self.node(operand), 2 if _is_plain_call(operand) else 1

        def run(frame: Frame) -> Any:
            value = of(frame)
            frame.cost += base
            return look(value)

        return run

    def _select(self, node: Node) -> Run:
        assert node.operand is not None
        name = node.name
        if node.test_only:
            of = self.node(node.operand)

            def has(frame: Frame) -> bool:
                value = of(frame)
                frame.cost += 1
                return _get_optional(value, name).present

            return has
        return self._qualified(node.operand, lambda value: _get(value, name))

    def _list(self, node: Node) -> Run:
        parts = [(self.node(item), i in node.optional) for i, item in enumerate(node.arguments)]
        if all(_is_constant(item) for item in node.arguments) and not node.optional:
            constant = [item(Frame({}, 0)) for item, _ in parts]
            return lambda frame: constant

        def run(frame: Frame) -> list[Any]:
            values = []
            for item, optional in parts:
                value = item(frame)
                if not optional:
                    values.append(value)
                elif value.present:
                    values.append(value.value)
            frame.cost += 10
            return values

        return run

    def _map(self, node: Node) -> Run:
        parts = [(self.node(key), self.node(value), maybe) for key, value, maybe in node.entries]

        def run(frame: Frame) -> dict[Any, Any]:
            entries: dict[Any, Any] = {}
            for key, value, maybe in parts:
                name, of = key(frame), value(frame)
                if maybe and not of.present:
                    continue
                if not is_key(name):
                    raise Failure("unsupported key type")
                if name in entries:
                    raise Failure(f"Failed with repeated key {name}")
                entries[name] = of.value if maybe else of
            frame.cost += 30
            return entries

        return run

    def _fold(self, node: Node) -> Run:
        fold = node.fold
        assert fold is not None
        if fold.is_bind:
            return self._bind(fold)
        elements, start = self.node(fold.range), self.node(fold.start)
        condition, step, result = (
            self.node(fold.condition),
            self.node(fold.step),
            self.node(fold.result),
        )
        name, second, accumulator = fold.variable, fold.second, fold.accumulator

        def run(frame: Frame) -> Any:
            among = elements(frame)
            if not isinstance(among, list | dict):
                raise Failure(
                    f"got '{_GO_NAMES.get(type(among), 'types.Null')}', expected iterable type"
                )
            outer = frame.variables
            inner = dict(outer)
            frame.variables = inner
            try:
                inner[accumulator] = start(frame)
                pairs = among.items() if isinstance(among, dict) else enumerate(among)
                for key, value in pairs:
                    if second:
                        inner[name], inner[second] = key, value
                    else:
                        inner[name] = key if isinstance(among, dict) else value
                    if condition(frame) is False:
                        break
                    inner[accumulator] = _or_failure(step, frame)
                    if frame.cost > frame.limit:
                        raise TooCostly
                return result(frame)
            finally:
                frame.variables = outer

        return run

    def _bind(self, fold: Fold) -> Run:
        start, result, name = self.node(fold.start), self.node(fold.result), fold.accumulator

        def run(frame: Frame) -> Any:
            outer = frame.variables
            value = _or_failure(start, frame)
            frame.variables = {**outer, name: value}
            try:
                return result(frame)
            finally:
                frame.variables = outer

        return run

    def _call(self, node: Node) -> Run:
        arguments = [*([node.operand] if node.operand is not None else []), *node.arguments]
        name = node.name
        match name:
            case "_&&_" | "_||_":
                return self._logical(arguments, decisive=name == "_||_")
            case "_?_:_":
                return self._conditional(arguments)
            case "_[_]" | "_?._" | "_[?_]":
                return self._index(arguments, optional=name != "_[_]")
            case "!_":
                return self._not(arguments[0])
            case "@not_strictly_false":
                return self._not_strictly_false(arguments[0])
            case "or" | "orValue":
                return self._or_value(arguments, whole=name == "or")
        overloads = self.checked.overloads.get(node.id, ())
        overload = overloads[0] if len(overloads) == 1 else ""
        function = CALLS[name]
        parts = [self.node(argument) for argument in arguments]
        if name == "@in" and _is_constant(arguments[1]):
            overload = "set_membership"

        def run(frame: Frame) -> Any:
            values = [part(frame) for part in parts]
            result = function(*values)
            if overload != "set_membership":
                frame.cost += call_cost(name, overload, values, result)
            return result

        return run

    def _logical(self, arguments: list[Node], *, decisive: bool) -> Run:
        left, right = self.node(arguments[0]), self.node(arguments[1])

        def run(frame: Frame) -> Any:
            first = _or_failure(left, frame)
            if first is decisive:
                return decisive
            second = _or_failure(right, frame)
            if second is decisive:
                return decisive
            if isinstance(first, bool) and isinstance(second, bool):
                return not decisive
            for value in (first, second):
                if isinstance(value, Failure):
                    raise value
            raise no_overload()

        return run

    def _conditional(self, arguments: list[Node]) -> Run:
        test, yes, no = map(self.node, arguments)
        saved = [1 if _is_attribute(branch) else 0 for branch in arguments[1:]]

        def run(frame: Frame) -> Any:
            value = test(frame)
            if not isinstance(value, bool):
                raise no_overload()
            # The base of an attribute is not counted: the conditional is the attribute.
            frame.cost -= saved[not value]
            return yes(frame) if value else no(frame)

        return run

    def _index(self, arguments: list[Node], *, optional: bool) -> Run:
        look = _get_optional if optional else _get
        if arguments[1].kind == "const":
            key = arguments[1].value
            return self._qualified(arguments[0], lambda value: look(value, key))
        of, by = map(self.node, arguments)

        def run(frame: Frame) -> Any:
            value, key = of(frame), by(frame)
            frame.cost += 1
            return look(value, key)

        return run

    def _not(self, argument: Node) -> Run:
        of = self.node(argument)

        def run(frame: Frame) -> bool:
            value = of(frame)
            frame.cost += 1
            if not isinstance(value, bool):
                raise no_overload()
            return not value

        return run

    def _not_strictly_false(self, argument: Node) -> Run:
        of = self.node(argument)

        def run(frame: Frame) -> bool:
            value = _or_failure(of, frame)
            frame.cost += 1
            return value is not False

        return run

    def _or_value(self, arguments: list[Node], *, whole: bool) -> Run:
        of, other = map(self.node, arguments)

        def run(frame: Frame) -> Any:
            value = of(frame)
            if not isinstance(value, Optional):
                raise no_overload()
            if value.present:
                return value if whole else value.value
            return other(frame)

        return run


def _or_failure(of: Run, frame: Frame) -> Any:
    try:
        return of(frame)
    except Failure as failure:
        return failure


def _is_constant(node: Node) -> bool:
    return node.kind == "const" or (
        node.kind == "list" and not node.optional and all(map(_is_constant, node.arguments))
    )


def _is_attribute(node: Node) -> bool:
    """Return whether a node is a variable or a chain of lookups that begins at one."""
    while True:
        if node.kind == "ident":
            return True
        if node.kind == "select" and not node.test_only:
            assert node.operand is not None
            node = node.operand
        elif node.kind == "call" and node.name in ("_[_]", "_?._", "_[?_]"):
            node = node.arguments[0]
        else:
            return False


def _is_plain_call(node: Node) -> bool:
    return node.kind in ("call", "fold", "list", "map") and not _is_attribute(node)


def unknown_function(checked: CheckedExpression) -> str | None:
    """Return the name of a function that type-checks and has no implementation here."""
    function_names = {
        *CALLS, "_&&_", "_||_", "_?_:_", "_[_]", "_?._", "_[?_]", "!_", "@not_strictly_false",
        "or", "orValue",
    }  # fmt: skip
    waiting = [checked.root]
    while waiting:
        node = waiting.pop()
        if node.kind == "call" and node.name not in function_names:
            return node.name
        waiting += children(node)
    return None


def children(node: Node) -> list[Node]:
    """Return the direct children of a node of the syntax tree."""
    found = [*([node.operand] if node.operand is not None else []), *node.arguments]
    for key, value, _ in node.entries:
        found += [key, value]
    if (fold := node.fold) is not None:
        found += [fold.range, fold.start, fold.condition, fold.step, fold.result]
    return found


def compile_closure(checked: CheckedExpression) -> Run:
    """Return the closure that evaluates an expression; it raises ``Failure`` and ``TooCostly``."""
    return _Compiler(checked).node(checked.root)

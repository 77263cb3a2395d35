"""Selectors of devices: compiled once for an expression, evaluated once for a device version.

Rules: k8s.io/dynamic-resource-allocation ``cel/compile.go``, ``cel/cache.go``, v1.36. The variable
``device`` has ``driver``, ``attributes`` and ``capacity`` by domain and name, and
``allowMultipleAllocations``. A domain that the device lacks is an empty map, so a lookup in it is
an error ("no such key"); ``"domain" in device.attributes`` is false.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final

import msgspec
from cel_expr_python import cel

from clusterstate.objects.cel.estimates import MOST, estimate
from clusterstate.objects.cel.evaluation import (
    Frame,
    MapWithDefault,
    Run,
    TooCostly,
    children,
    compile_closure,
    unknown_function,
)
from clusterstate.objects.cel.functions import (
    DECLARATIONS,
    INCLUDES,
    Failure,
    no_bool,
    parse_semver,
    type_name,
)
from clusterstate.objects.cel.syntax import CheckedExpression, Node, read
from clusterstate.objects.values.quantity import Quantity

MOST_COST: Final = 1_000_000
"""What one evaluation may cost (resource/v1 ``CELSelectorExpressionMaxCost``)."""
_LONGEST_VALUE, _LONGEST_DOMAIN, _LONGEST_ID, _LONGEST_DRIVER, _MOST_ENTRIES = 64, 63, 32, 63, 32
_MOST_REMEMBERED: Final = 1024


class CompileError(ValueError):
    """The expression cannot be compiled; the text is Kubernetes'."""


class EvaluationError(ValueError):
    """The evaluation ended in an error; the text is Kubernetes'."""


class Device(msgspec.Struct, frozen=True):
    """A device as CEL selectors see it: its driver, and its entry in the slice."""

    driver: str
    device: Mapping[str, Any]


class Selector(msgspec.Struct, frozen=True):
    """A compiled expression: ``max_cost`` is the static estimate of its worst case."""

    expression: str
    run: Run
    max_cost: int

    def matches(self, device: Device, limit: int = MOST_COST) -> tuple[bool, int]:
        """Return whether the device matches, and the cost of the evaluation.

        Raises:
            EvaluationError: the evaluation failed, cost too much, or gave no boolean.
        """
        return self.evaluate(device_value(device), limit)

    def evaluate(self, value: Mapping[str, Any], limit: int = MOST_COST) -> tuple[bool, int]:
        """Return the result of ``matches`` for a value of ``device_value``, which can be cached.

        Raises:
            EvaluationError: the evaluation failed, cost too much, or gave no boolean.
        """
        frame = Frame({"device": value}, limit)
        try:
            result = self.run(frame)
            if frame.cost > limit:
                raise TooCostly
        except (Failure, TooCostly) as error:
            raise EvaluationError(str(error)) from None
        except RecursionError:
            raise EvaluationError("expression recursion limit exceeded") from None
        if not isinstance(result, bool):
            raise EvaluationError(
                f"CEL result of type {type_name(result)} could not be converted to bool: "
                f"{no_bool(result)}"
            )
        return result, frame.cost


def _domain(name: str, driver: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def attribute_value(attribute: Mapping[str, Any], *, lists: bool = True) -> Any:
    """Return the value of a device attribute as a value of CEL.

    Raises:
        EvaluationError: no value of a known kind, or a version that is none.
    """
    for kind in ("int", "bool", "string"):
        if (value := attribute.get(kind)) is not None:
            return value
    if (text := attribute.get("version")) is not None:
        return _version(text)
    for kind in ("ints", "bools", "strings") if lists else ():
        if (values := attribute.get(kind)) is not None:
            return list(values)
    if lists and (texts := attribute.get("versions")) is not None:
        return [_version(text) for text in texts]
    raise EvaluationError("unsupported attribute value")


def _version(text: str) -> Any:
    if (version := parse_semver(text)) is None:
        raise EvaluationError("parse semantic version: Invalid character(s) found in version")
    return version


def device_value(device: Device, *, lists: bool = True) -> dict[str, Any]:
    """Return the value of the variable ``device``; ``lists``: attributes may be lists.

    Raises:
        EvaluationError: an attribute has no value that CEL knows.
    """
    attributes: MapWithDefault = MapWithDefault()
    for name, attribute in (device.device.get("attributes") or {}).items():
        domain, identifier = _domain(name, device.driver)
        try:
            value = attribute_value(attribute, lists=lists)
        except EvaluationError as error:
            raise EvaluationError(f"attribute {name}: {error}") from None
        attributes.setdefault(domain, {})[identifier] = value
    capacity: MapWithDefault = MapWithDefault()
    for name, entry in (device.device.get("capacity") or {}).items():
        domain, identifier = _domain(name, device.driver)
        capacity.setdefault(domain, {})[identifier] = Quantity.parse(entry["value"])
    return {
        "driver": device.driver,
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": bool(device.device.get("allowMultipleAllocations")),
    }


# --- The environment ------------------------------------------------------------------------------

_MAP = "{{type_name: map, params: [{{type_name: string}}, {}]}}"
_FIELDS: Final = {
    "driver": "{type_name: string}",
    "attributes": _MAP.format(_MAP.format("{type_name: any}")),
    "capacity": _MAP.format(_MAP.format("{type_name: kubernetes.Quantity}")),
    "allowMultipleAllocations": "{type_name: bool}",
}


@cache
def _environment(*, lists: bool) -> Any:
    """Return the library's environment; fields of ``device`` are variables with a dot in the name.

    ``device`` alone is of any type there; ``_check_fields`` refuses what it does not have.
    """
    functions: dict[str, list[str]] = {}
    for name, signature, result, overload in DECLARATIONS + (INCLUDES if lists else ()):
        functions.setdefault(name, []).append(
            f"  - {{id: {overload}, signature: '{signature}', return: '{result}'}}"
        )
    lines = ["name: devices", "extensions:"]
    lines += [f"- name: {name}" for name in ("optional", "bindings", "two-var-comprehensions")]
    lines += ["variables:", "- {name: device, type_name: dyn}"]
    for name, kind in _FIELDS.items():
        # A comprehension takes no ``any``.
        shown = kind.replace("any", "dyn") if lists else kind
        lines.append(f"- {{name: device.{name}, {shown[1:-1]}}}")
    lines.append("functions:")
    for name, overloads in functions.items():
        lines += [f"- name: {name}", "  overloads:", *overloads]
    return cel.NewEnv(config=cel.NewEnvConfigFromYaml("\n".join(lines)))


def _restore_fields(node: Node) -> None:
    """Replace variables such as ``device.driver`` by a selection of the field in ``device``."""
    for child in children(node):
        _restore_fields(child)
    if node.kind == "ident" and node.name.startswith("device."):
        node.kind, node.name = "select", node.name.removeprefix("device.")
        node.operand = Node(-node.id, kind="ident", name="device")


def _check_fields(node: Node, checked: CheckedExpression, names: set[str], expression: str) -> None:
    for child in children(node):
        _check_fields(child, checked, names, expression)
    of_device = (
        node.operand is not None and node.operand.kind == "ident" and node.operand.name == "device"
    )
    if node.kind == "select" and of_device and node.name not in names:
        at = checked.positions.get(node.id, 0)
        line, column = expression[:at].count("\n"), at - (expression.rfind("\n", 0, at) + 1)
        raise CompileError(
            f"compilation failed: ERROR: <input>:{line + 1}:{column + 1}: undefined field "
            f"'{node.name}'\n | {expression.split(chr(10))[line]}\n | {'.' * column}^"
        )


def _size_of(path: list[str]) -> int | None:
    """Return the most characters or entries at a path below ``device`` (compile.go)."""
    if path[0] != "device":
        return None
    if len(path) == 1:
        return 0
    field, rest = path[1], path[2:]
    if field == "driver":
        return _LONGEST_DRIVER if not rest else None
    if field not in ("attributes", "capacity"):
        return None
    match rest:
        case []:
            return _MOST_ENTRIES
        case ["@keys"]:
            return _LONGEST_DOMAIN
        case ["@values" | "@items"]:
            return _MOST_ENTRIES
        case ["@values" | "@items", "@keys"]:
            return _LONGEST_ID
        case ["@values" | "@items", name]:
            if field == "attributes":
                return _LONGEST_VALUE
            return 0 if name in ("@values", "@items") else None
    return None


@lru_cache(_MOST_REMEMBERED)
def compile_selector(
    expression: str, *, lists: bool = True, multiple_allocations: bool = True
) -> Selector:
    """Return the compiled selector, cached by its text.

    ``lists`` and ``multiple_allocations``: features of the environment: all for stored selectors,
    the enabled ones for new selectors.

    Raises:
        CompileError: it does not parse or check, or gives no boolean.
    """
    try:
        compiled = _environment(lists=lists).compile(expression)
    except Exception as error:  # noqa: BLE001  # the library raises bare RuntimeErrors
        text = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        text = text.replace("cannot be the range of", "cannot be range of")  # as cel-go says it
        raise CompileError(f"compilation failed: {text}") from None
    checked = read(compiled.serialize())
    _restore_fields(checked.root)
    field_names = set(_FIELDS) - (set() if multiple_allocations else {"allowMultipleAllocations"})
    _check_fields(checked.root, checked, field_names, expression)
    result = checked.type_of(checked.root)
    if result.name not in ("bool", "dyn", "any"):
        raise CompileError(f"must evaluate to bool or the unknown type, not {result}")
    if (name := unknown_function(checked)) is not None:
        raise CompileError(f"compilation failed: function {name!r} is not available for devices")
    cost = estimate(checked, _size_of).most
    return Selector(expression, compile_closure(checked), min(cost, MOST))

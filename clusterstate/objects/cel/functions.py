"""Functions of Kubernetes' CEL environment: declarations, what they do, and what a call costs.

Rules: k8s.io/apiserver ``pkg/cel/library`` (quantity, semverlib, lists, regex, cost), cel-go
``common/types`` and ``ext/strings``, ``ext/sets``, v1.36. Values are Python's: ``bool``, ``int``,
``Unsigned``, ``float``, ``str``, ``bytes``, ``None``, ``list``, ``dict``, ``Quantity``, ``Semver``,
``Optional``. Regular expressions are the library's (RE2), which cannot run away.

A failed call raises ``Failure`` with cel-go's words. Cost: traversing a text costs a tenth of a
unit for each character, a pattern a quarter for each of its characters.
"""

import itertools
import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from cel_expr_python import cel

from clusterstate.objects.cel.syntax import Unsigned
from clusterstate.objects.values.quantity import Quantity, QuantityError

TEXT_FACTOR: Final = 0.1
PATTERN_FACTOR: Final = 0.25
_Q, _V = "kubernetes.Quantity", "kubernetes.Semver"
_OLDEST, _NEWEST = -(1 << 63), (1 << 63) - 1


class Failure(Exception):
    """An evaluation ended in an error; the text is cel-go's."""


def no_overload(name: str = "", *arguments: Any) -> Failure:
    """Return the error for a call whose argument types match no overload."""
    if not name:
        return Failure("no such overload")
    return Failure(f"no such overload: {name}({', '.join(map(type_name, arguments))})")


class Semver(NamedTuple):
    """A version by semver 2.0.0; build metadata does not count in comparisons."""

    major: int
    minor: int
    patch: int
    before: tuple[tuple[int, int | str], ...]
    """Pre-release parts: numbers sort before texts."""

    def key(self) -> tuple[Any, ...]:
        """Return what orders versions: a release comes after its pre-releases."""
        return (self.major, self.minor, self.patch, not self.before, self.before)


_NUMBER = r"(0|[1-9]\d*)"
_SEMVER: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)


def parse_semver(text: str) -> Semver | None:
    """Return the version that a text states, ``None`` if it is none (blang/semver ``Parse``)."""
    found = _SEMVER.fullmatch(text)
    if found is None:
        return None
    parts: list[tuple[int, int | str]] = []
    for part in found[4].split(".") if found[4] else ():
        if part.isdecimal():
            if len(part) > 1 and part[0] == "0":
                return None
            parts.append((0, int(part)))
        else:
            parts.append((1, part))
    numbers = [int(found[i]) for i in (1, 2, 3)]
    if max(numbers) > 2**64 - 1:
        return None
    return Semver(numbers[0], numbers[1], numbers[2], tuple(parts))


def _normalized(text: str) -> str:
    """Return a version in full: no ``v``, three numbers, no leading zeros (semverlib.go)."""
    text = text.removeprefix("v")
    parts = text.split(".", 2)
    if len(parts) == 3:
        return ".".join([*(p.lstrip("0") or "0" for p in parts[:2]), _without_zeros(parts[2])])
    if any(c in parts[-1] for c in "+-"):
        return text
    return ".".join([p.lstrip("0") or "0" for p in parts] + ["0"] * (3 - len(parts)))


def _without_zeros(last: str) -> str:
    number = re.match(r"\d*", last)
    digits = number[0] if number else ""
    return (digits.lstrip("0") or ("0" if digits else "")) + last[len(digits) :]


class Optional(NamedTuple):
    """A value of CEL's optional type."""

    present: bool
    value: Any = None


NOTHING: Final = Optional(present=False)


def type_name(value: Any) -> str:
    """Return CEL's name for a value's type."""
    names = {
        bool: "bool", int: "int", Unsigned: "uint", float: "double", str: "string",
        bytes: "bytes", type(None): "null_type", Quantity: _Q, Semver: _V,
        Optional: "optional_type",
    }  # fmt: skip
    if isinstance(value, dict):
        return "map"
    return "list" if isinstance(value, list) else names.get(type(value), type(value).__name__)


def no_bool(value: Any) -> str:
    """Return cel-go's words for a value that is no boolean: ``ConvertToNative`` of its type."""
    name = type_name(value)
    if name in ("int", "uint"):
        return f"unsupported type conversion from '{name}' to bool"
    if name == "string":
        return "unsupported native conversion from string to 'bool'"
    names = {
        "bytes": "Bytes", "double": "Double", _Q: "'Quantity'", _V: "'Semver'",
        "null_type": "'null_type'",
    }  # fmt: skip
    return f"type conversion error from {names.get(name, name)} to 'bool'"


def size(value: Any) -> int:
    """Return the result of cel-go's ``size()``; 1 for a scalar."""
    return len(value) if isinstance(value, str | bytes | list | dict) else 1


def is_number(value: Any) -> bool:
    """Return whether a value is int, uint or double; a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(left: Any, right: Any) -> bool:
    """Return whether values are equal; cel-go asks the left one.

    Raises:
        Failure: a quantity or version on the left is compared with something else.
    """
    if left is None or right is None:
        return left is right
    if isinstance(left, Semver) and isinstance(right, Semver):
        return left.key() == right.key()
    if isinstance(left, Quantity | Semver):
        if type(left) is not type(right):
            raise no_overload()
        return left == right
    if is_number(left) or is_number(right):
        return is_number(left) and is_number(right) and bool(left == right)
    if isinstance(left, list):
        return (
            isinstance(right, list)
            and len(left) == len(right)
            and all(equal(a, b) for a, b in zip(left, right, strict=True))
        )
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and len(left) == len(right)
            and all(key in right and equal(value, right[key]) for key, value in left.items())
        )
    return type(left) is type(right) and bool(left == right)


def contains(element: Any, container: Any) -> bool:
    """Return CEL's ``element in container``."""
    if isinstance(container, dict):
        return is_key(element) and element in container
    if not isinstance(container, list):
        raise no_overload()
    return _any_equal(element, container)


def _any_equal(element: Any, among: list[Any]) -> bool:
    for each in among:
        try:
            if equal(element, each):
                return True
        except Failure:
            continue
    return False


def is_key(value: Any) -> bool:
    """Return whether a value can be the key of a map."""
    return isinstance(value, str | int | float)


def compare(left: Any, right: Any) -> int:
    """Return -1, 0 or 1 for the operators of order."""
    same = type(left) is type(right) and isinstance(left, bool | str | bytes)
    if not same and not (is_number(left) and is_number(right)):
        raise no_overload()
    if (isinstance(left, float) and math.isnan(left)) or (
        isinstance(right, float) and math.isnan(right)
    ):
        raise Failure("NaN values cannot be ordered")
    return int(left > right) - int(left < right)


def _int(number: int, what: str = "integer overflow") -> int:
    if not _OLDEST <= number <= _NEWEST:
        raise Failure(what)
    return number


def _divided(left: int, right: int) -> int:
    number = abs(left) // abs(right)
    return number if (left < 0) == (right < 0) else -number


def arithmetic(operator: str, left: Any, right: Any) -> Any:
    """Return ``left operator right`` for ``+ - * / %``."""
    if operator == "+" and type(left) is type(right) and isinstance(left, str | bytes | list):
        return left + right
    if type(left) is not type(right) or not is_number(left):
        raise no_overload()
    if isinstance(left, float):
        return _of_doubles(operator, left, right)
    if operator in "/%" and right == 0:
        raise Failure("division by zero" if operator == "/" else "modulus by zero")
    result = _of_integers(operator, left, right)
    if isinstance(left, Unsigned):
        if not 0 <= result < 1 << 64:
            raise Failure("unsigned integer overflow")
        return Unsigned(result)
    return _int(result)


def _of_integers(operator: str, left: int, right: int) -> int:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return _divided(left, right)
    return left - right * _divided(left, right)


def _of_doubles(operator: str, left: float, right: float) -> float:
    if operator == "%":
        raise no_overload()
    if operator == "/":
        if right == 0:
            if left == 0 or math.isnan(left):
                return math.nan
            return math.copysign(math.inf, left) * math.copysign(1, right)
        return left / right
    return left + right if operator == "+" else left - right if operator == "-" else left * right


# --- Conversions ----------------------------------------------------------------------------------


def _to_int(value: Any) -> int:
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?\d+", value, re.ASCII):
            raise Failure(f'strconv.ParseInt: parsing "{value}": invalid syntax')
        return _int(int(value), f'strconv.ParseInt: parsing "{value}": value out of range')
    if not is_number(value) or (isinstance(value, float) and not math.isfinite(value)):
        raise no_overload() if not is_number(value) else Failure("integer overflow")
    return _int(int(value))


def _to_uint(value: Any) -> Unsigned:
    if isinstance(value, str) and not re.fullmatch(r"\d+", value, re.ASCII):
        raise Failure(f'strconv.ParseUint: parsing "{value}": invalid syntax')
    if not isinstance(value, str) and not is_number(value):
        raise no_overload()
    if (isinstance(value, float) and not math.isfinite(value)) or not 0 <= int(value) < 1 << 64:
        raise Failure("unsigned integer overflow")
    return Unsigned(int(value))


def _to_double(value: Any) -> float:
    try:
        if isinstance(value, str) or is_number(value):
            return float(value)
    except ValueError:
        raise Failure(f'strconv.ParseFloat: parsing "{value}": invalid syntax') from None
    raise no_overload()


def _to_string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e21 else repr(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise Failure("invalid UTF-8 in bytes, cannot convert to string") from None
    if isinstance(value, int | str):
        return str(value)
    raise no_overload()


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if value in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise Failure(f"strconv.ParseBool: parsing {value!r}: invalid syntax")


# --- Texts and patterns ---------------------------------------------------------------------------


@cache
def _pattern_programs() -> tuple[Any, Any]:
    """Return compiled CEL programs for ``matches`` and ``regex.extractAll``."""
    config = cel.NewEnvConfigFromYaml(
        "name: patterns\nextensions:\n- name: regex\n- name: optional\nvariables:\n"
        "- name: text\n  type_name: string\n- name: pattern\n  type_name: string\n"
    )
    env = cel.NewEnv(config=config)
    return env.compile("text.matches(pattern)"), env.compile("regex.extractAll(text, pattern)")


def _ask(program: Any, text: str, pattern: str) -> Any:
    value = program.eval(data={"text": text, "pattern": pattern})
    if value.type() == cel.Type.ERROR:
        raise Failure(f"Illegal regex: {value.plain_value()}")
    return value.plain_value()


def _matches(text: Any, pattern: Any) -> bool:
    _texts("matches", text, pattern)
    return bool(_ask(_pattern_programs()[0], text, pattern))


_GROUP: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?!\?)|\(\?P?<\w+>", re.DOTALL)


def _find_all(text: Any, pattern: Any, most: int = -1) -> list[str]:
    _texts("findAll", text, pattern)
    whole = _GROUP.sub(lambda m: "(?:" if m[0][0] == "(" else m[0], pattern)
    found = list(_ask(_pattern_programs()[1], text, whole))
    return found if most < 0 else found[:most]


def _find(text: Any, pattern: Any) -> str:
    return next(iter(_find_all(text, pattern, 1)), "")


def _texts(name: str, *values: Any) -> None:
    if not all(isinstance(value, str) for value in values):
        raise no_overload(name, *values)


def _split(text: Any, by: Any, most: int = -1) -> list[str]:
    _texts("split", text, by)
    if most == 0:
        return []
    if by == "":
        parts = list(text)
        return (
            parts
            if most < 0 or len(parts) <= most
            else [*parts[: most - 1], "".join(parts[most - 1 :])]
        )
    return list(text.split(by) if most < 0 else text.split(by, most - 1))


def _replace(text: Any, old: Any, new: Any, most: int = -1) -> str:
    _texts("replace", text, old, new)
    return str(text.replace(old, new, most))


def _join(parts: Any, by: Any = "") -> str:
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise no_overload("join", parts)
    return str(by.join(parts))


def _substring(text: Any, start: int, end: int | None = None) -> str:
    _texts("substring", text)
    end = len(text) if end is None else end
    if not 0 <= start <= len(text):
        raise Failure(f"index out of range: {start}")
    if not 0 <= end <= len(text):
        raise Failure(f"index out of range: {end}")
    if start > end:
        raise Failure(f"invalid substring range. start: {start}, end: {end}")
    return str(text[start:end])


def _char_at(text: Any, at: int) -> str:
    _texts("charAt", text)
    if not 0 <= at <= len(text):
        raise Failure(f"index out of range: {at}")
    return str(text[at : at + 1])


def _index_of(where: Any, what: Any, start: int = 0) -> int:
    if isinstance(where, list):
        return next((i for i, each in enumerate(where) if _any_equal(what, [each])), -1)
    _texts("indexOf", where, what)
    return int(where.find(what, start))


def _last_index_of(where: Any, what: Any, end: int | None = None) -> int:
    if isinstance(where, list):
        return max((i for i, each in enumerate(where) if _any_equal(what, [each])), default=-1)
    _texts("lastIndexOf", where, what)
    return int(where.rfind(what, 0, None if end is None else end + len(what)))


def _ascii(change: Callable[[str], str]) -> Callable[[Any], str]:
    def run(text: Any) -> str:
        _texts("lowerAscii", text)
        return "".join(change(c) if c.isascii() else c for c in text)

    return run


def _method(name: str) -> Callable[[Any, Any], bool]:
    def run(text: Any, other: Any) -> bool:
        _texts(name, text, other)
        if name == "contains":
            return other in text
        return bool(getattr(text, name.lower())(other))

    return run


# --- Quantities, versions, lists, sets, optional values -------------------------------------------


def _quantity(text: Any) -> Quantity:
    _texts("quantity", text)
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        raise Failure(str(error)) from None


def _is_quantity(text: Any) -> bool:
    _texts("isQuantity", text)
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def _semver(text: Any, normalize: bool = False) -> Semver:  # noqa: FBT001 # CEL's own
    _texts("semver", text)
    found = parse_semver(_normalized(text) if normalize else text)
    if found is None:
        raise Failure("No Major.Minor.Patch elements found" if text.count(".") < 2 else
                      f"Invalid semantic version {text!r}")  # fmt: skip
    return found


def _is_semver(text: Any, normalize: bool = False) -> bool:  # noqa: FBT001 # CEL's own
    _texts("isSemver", text)
    return parse_semver(_normalized(text) if normalize else text) is not None


def _ordered(name: str, answer: Callable[[int], Any]) -> Callable[[Any, Any], Any]:
    def run(left: Any, right: Any) -> Any:
        if type(left) is not type(right) or not isinstance(left, Quantity | Semver):
            raise no_overload(name, left, right)
        if isinstance(left, Quantity):
            return answer(left.cmp(right))
        return answer((left.key() > right.key()) - (left.key() < right.key()))

    return run


def _of_quantity(name: str, answer: Callable[[Quantity], Any]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        if not isinstance(value, Quantity):
            raise no_overload(name, value)
        return answer(value)

    return run


def _whole(value: Quantity) -> int:
    number = value.value()
    if not value.round_up(0)[1] or not _OLDEST <= number <= _NEWEST:
        raise Failure("cannot convert value to integer")
    return number


def _is_whole(value: Quantity) -> bool:
    return value.round_up(0)[1] and _OLDEST <= value.value() <= _NEWEST


def _combined(sign: int) -> Callable[[Any, Any], Quantity]:
    def run(left: Any, right: Any) -> Quantity:
        other = Quantity.of(right) if type(right) is int else right
        if not isinstance(left, Quantity) or not isinstance(other, Quantity):
            raise no_overload("add" if sign > 0 else "sub", left, right)
        return left.add(other) if sign > 0 else left.sub(other)

    return run


def _version_part(place: int) -> Callable[[Any], int]:
    def run(value: Any) -> int:
        if not isinstance(value, Semver):
            raise no_overload(("major", "minor", "patch")[place], value)
        return (value.major, value.minor, value.patch)[place]

    return run


_MOST_VALUES: Final = 48
"""Of a list of attributes that ``includes`` looks at: as many as a device can have."""


def includes(where: Any, what: Any) -> bool:
    """Return whether an attribute equals ``what``, or is a list that contains it.

    Rule: dynamic-resource-allocation/cel/compile.go (``includesFunc``), v1.36.
    """
    among = where if isinstance(where, list) else [where]
    if any(type(each) is type(what) and equal(each, what) for each in among[:_MOST_VALUES]):
        return True
    if len(among) > _MOST_VALUES:
        text = f"'includes' function cannot be applied to lists longer than {_MOST_VALUES} values"
        raise Failure(text)
    return False


def _extreme(name: str, sign: int) -> Callable[[Any], Any]:
    def run(values: Any) -> Any:
        if not isinstance(values, list):
            raise no_overload(name, values)
        if not values:
            raise Failure(f"{name} called on empty list")
        best = values[0]
        for each in values[1:]:
            best = each if compare(each, best) == sign else best
        return best

    return run


def _sum(values: Any) -> Any:
    if not isinstance(values, list):
        raise no_overload("sum", values)
    total = values[0] if values else 0
    for each in values[1:]:
        total = arithmetic("+", total, each)
    return total


def _is_sorted(values: Any) -> bool:
    if not isinstance(values, list):
        raise no_overload("isSorted", values)
    return all(compare(a, b) <= 0 for a, b in itertools.pairwise(values))


def _sets_contain(container: Any, parts: Any) -> bool:
    return all(_any_equal(part, container) for part in parts)


def _size(value: Any) -> int:
    if not isinstance(value, str | bytes | list | dict):
        raise no_overload()
    return len(value)


def _present(value: Any) -> Any:
    if not isinstance(value, Optional):
        raise no_overload()
    if not value.present:
        raise Failure("optional.none() dereference")
    return value.value


def _has_value(value: Any) -> bool:
    if not isinstance(value, Optional):
        raise no_overload()
    return value.present


def _inserted(into: Any, *what: Any) -> dict[Any, Any]:
    new = what[0] if len(what) == 1 else {what[0]: what[1]}
    if twice := next((key for key in new if key in into), None):
        raise Failure(f"insert failed: key {twice} already exists")
    return {**into, **new}


def _negated(value: Any) -> Any:
    if not is_number(value) or isinstance(value, Unsigned):
        raise no_overload()
    return -value if isinstance(value, float) else _int(-value)


CALLS: Final[dict[str, Callable[..., Any]]] = {
    "_+_": lambda a, b: arithmetic("+", a, b), "_-_": lambda a, b: arithmetic("-", a, b),
    "_*_": lambda a, b: arithmetic("*", a, b), "_/_": lambda a, b: arithmetic("/", a, b),
    "_%_": lambda a, b: arithmetic("%", a, b), "-_": _negated,
    "_<_": lambda a, b: compare(a, b) < 0, "_<=_": lambda a, b: compare(a, b) <= 0,
    "_>_": lambda a, b: compare(a, b) > 0, "_>=_": lambda a, b: compare(a, b) >= 0,
    "_==_": equal, "_!=_": lambda a, b: not equal(a, b), "@in": contains, "_in_": contains,
    "size": _size, "int": _to_int, "uint": _to_uint, "double": _to_double, "string": _to_string,
    "bool": _to_bool, "dyn": lambda a: a,
    "bytes": lambda a: a if isinstance(a, bytes) else a.encode(),
    "contains": _method("contains"), "startsWith": _method("startsWith"),
    "endsWith": _method("endsWith"), "matches": _matches, "find": _find, "findAll": _find_all,
    "split": _split, "replace": _replace, "join": _join, "substring": _substring,
    "charAt": _char_at, "indexOf": _index_of, "lastIndexOf": _last_index_of,
    "lowerAscii": _ascii(str.lower), "upperAscii": _ascii(str.upper), "trim": str.strip,
    "quantity": _quantity, "isQuantity": _is_quantity,
    "isInteger": _of_quantity("isInteger", _is_whole),
    "asInteger": _of_quantity("asInteger", _whole), "sign": _of_quantity("sign", lambda q: q.sign),
    "asApproximateFloat": _of_quantity("asApproximateFloat", lambda q: q.unscaled * 10.0**q.scale),
    "add": _combined(1), "sub": _combined(-1), "semver": _semver, "isSemver": _is_semver,
    "isGreaterThan": _ordered("isGreaterThan", lambda c: c > 0),
    "isLessThan": _ordered("isLessThan", lambda c: c < 0),
    "compareTo": _ordered("compareTo", lambda c: c), "major": _version_part(0),
    "minor": _version_part(1), "patch": _version_part(2), "includes": includes,
    "min": _extreme("min", -1), "max": _extreme("max", 1), "sum": _sum, "isSorted": _is_sorted,
    "sets.contains": _sets_contain,
    "sets.intersects": lambda a, b: any(_any_equal(x, b) for x in a),
    "sets.equivalent": lambda a, b: _sets_contain(a, b) and _sets_contain(b, a),
    "optional.of": lambda a: Optional(True, a), "optional.none": lambda: NOTHING,
    "optional.ofNonZeroValue": lambda a: Optional(True, a) if a else NOTHING,
    "hasValue": _has_value, "value": _present, "cel.@mapInsert": _inserted,
}  # fmt: skip
"""What the functions do that look at values alone. Some more are lazy; ``evaluation`` has those."""

_LIST, _S = "list<~T>", "string"
_COMPARABLE: Final = ("int", "double", "bool", "string", "bytes", "uint")
DECLARATIONS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("quantity", f"quantity({_S})", _Q, "string_to_quantity"),
    ("isQuantity", f"isQuantity({_S})", "bool", "is_quantity_string"),
    ("sign", f"{_Q}.sign()", "int", "quantity_sign"),
    ("isInteger", f"{_Q}.isInteger()", "bool", "quantity_is_integer"),
    ("asInteger", f"{_Q}.asInteger()", "int", "quantity_as_integer"),
    ("asApproximateFloat", f"{_Q}.asApproximateFloat()", "double", "quantity_get_float"),
    *((n, f"{_Q}.{n}({_Q})", r, f"quantity_{n}") for n, r in (
        ("isGreaterThan", "bool"), ("isLessThan", "bool"), ("compareTo", "int"),
        ("add", _Q), ("sub", _Q))),
    ("add", f"{_Q}.add(int)", _Q, "quantity_add_int"),
    ("sub", f"{_Q}.sub(int)", _Q, "quantity_sub_int"),
    ("semver", f"semver({_S})", _V, "string_to_semver"),
    ("semver", f"semver({_S},bool)", _V, "string_bool_to_semver"),
    ("isSemver", f"isSemver({_S})", "bool", "is_semver_string"),
    ("isSemver", f"isSemver({_S},bool)", "bool", "is_semver_string_bool"),
    *((n, f"{_V}.{n}({_V})", r, f"semver_{n}") for n, r in (
        ("isGreaterThan", "bool"), ("isLessThan", "bool"), ("compareTo", "int"))),
    *((n, f"{_V}.{n}()", "int", f"semver_{n}") for n in ("major", "minor", "patch")),
    ("find", f"{_S}.find({_S})", _S, "string_find_string"),
    ("findAll", f"{_S}.findAll({_S})", "list<string>", "string_find_all_string"),
    ("findAll", f"{_S}.findAll({_S},int)", "list<string>", "string_find_all_string_int"),
    ("split", f"{_S}.split({_S})", "list<string>", "string_split_string"),
    ("split", f"{_S}.split({_S},int)", "list<string>", "string_split_string_int"),
    ("replace", f"{_S}.replace({_S},{_S})", _S, "string_replace_string_string"),
    ("replace", f"{_S}.replace({_S},{_S},int)", _S, "string_replace_string_string_int"),
    ("join", "list<string>.join()", _S, "list_join"),
    ("join", f"list<string>.join({_S})", _S, "list_join_string"),
    ("substring", f"{_S}.substring(int)", _S, "string_substring_int"),
    ("substring", f"{_S}.substring(int,int)", _S, "string_substring_int_int"),
    ("charAt", f"{_S}.charAt(int)", _S, "string_char_at_int"),
    ("indexOf", f"{_S}.indexOf({_S})", "int", "string_index_of_string"),
    ("indexOf", f"{_S}.indexOf({_S},int)", "int", "string_index_of_string_int"),
    ("indexOf", f"{_LIST}.indexOf(~T)", "int", "list_a_index_of_int"),
    ("lastIndexOf", f"{_S}.lastIndexOf({_S})", "int", "string_last_index_of_string"),
    ("lastIndexOf", f"{_S}.lastIndexOf({_S},int)", "int", "string_last_index_of_string_int"),
    ("lastIndexOf", f"{_LIST}.lastIndexOf(~T)", "int", "list_a_last_index_of_int"),
    *((n, f"{_S}.{n}()", _S, f"string_{n}") for n in ("lowerAscii", "upperAscii", "trim")),
    *((n, f"list<{t}>.{n}()", "bool" if n == "isSorted" else t, f"list_{t}_{n}_{t}")
      for n in ("isSorted", "min", "max") for t in _COMPARABLE),
    *(("sum", f"list<{t}>.sum()", t, f"list_{t}_sum_{t}") for t in ("int", "double", "uint")),
    *((f"sets.{n}", f"sets\\.{n}({_LIST},{_LIST})", "bool", f"list_sets_{n}_list")
      for n in ("contains", "equivalent", "intersects")),
)  # fmt: skip
"""Name, signature, result and overload of what is declared beside the standard functions."""
INCLUDES: Final = tuple(
    ("includes", f"dyn.includes({t})", "bool", f"includes_{t}") for t in (_S, "int", "bool", _V)
)
"""Declared where attributes may be lists (DRAListTypeAttributes)."""


# --- What a call cost -----------------------------------------------------------------------------


def traversal(units: float) -> int:
    """Return the cost of traversing a text of this size, rounded up."""
    return math.ceil(units * TEXT_FACTOR)


def pattern_cost(text_size: int, pattern_size: int) -> int:
    """Return what matching a text against a pattern costs."""
    return traversal(1 + text_size) * math.ceil(pattern_size * PATTERN_FACTOR)


def _walk(value: Any) -> int:
    if isinstance(value, str | bytes):
        return int(len(value) * TEXT_FACTOR)
    if isinstance(value, list):
        return sum(map(_walk, value))
    return 1


ONE_UNIT: Final = frozenset((
    "sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan",
    "compareTo", "add", "sub",
))  # fmt: skip
COMPARED: Final = frozenset(
    f"{n}_{t}"
    for n in ("less", "less_equals", "greater", "greater_equals")
    for t in ("string", "bytes")
)


def call_cost(name: str, overload: str, arguments: list[Any], result: Any) -> int:
    """Return what one call cost; ``overload`` is empty where types left it open.

    Rules: cost.go ``CallCost`` and cel-go ``runtimecost.go``.
    """
    if name in ONE_UNIT:
        return 1
    first = size(arguments[0]) if arguments else 0
    if name in ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"):
        return _walk(arguments[0])
    if name in ("lowerAscii", "upperAscii", "substring", "trim", "quantity", "isQuantity"):
        return traversal(first)
    if name in ("replace", "split"):
        return traversal(first * 2)
    if name == "join":
        return traversal(size(result) * 2)
    if name in ("find", "findAll") or overload in ("matches_string", "matches"):
        return pattern_cost(first, size(arguments[1]))
    if name in ("_==_", "_!=_") or overload in COMPARED:
        return traversal(min(first, size(arguments[1])))
    if overload in ("starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string"):
        return traversal(first)
    if overload == "in_list":
        return size(arguments[1])
    if overload in ("add_string", "add_bytes"):
        return traversal(first + size(arguments[1]))
    if overload == "contains_string":
        return traversal(first) * traversal(size(arguments[1]))
    return 1

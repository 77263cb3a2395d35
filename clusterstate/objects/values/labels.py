"""Label selectors and the syntax of names.

A ``Selector`` is a conjunction of ``Requirement``s over a mapping of labels, or *nothing*. It comes
from the text of ``kubectl -l`` (``parse_selector``), from a ``LabelSelector`` in a manifest
(``selector_from_label_selector``) or from a plain set of labels (``selector_from_set``). The
operators allow forward and reverse indexes and no regular expressions (R38).

The rules and messages are those of apimachinery, v1.36: ``pkg/labels/selector.go``,
``pkg/apis/meta/v1/helpers.go`` and ``validation/validation.go``, ``pkg/util/validation``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from clusterstate.objects.values.errors import (
    INVALID,
    NOT_SUPPORTED,
    FieldError,
)
from clusterstate.objects.values.pod import LabelSelector

IN: Final = "in"
NOT_IN: Final = "notin"
EQUALS: Final = "="
DOUBLE_EQUALS: Final = "=="
NOT_EQUALS: Final = "!="
EXISTS: Final = "exists"
DOES_NOT_EXIST: Final = "!"
GREATER_THAN: Final = "gt"
LESS_THAN: Final = "lt"

_BINARY_OPERATORS: Final = (
    IN, NOT_IN, EQUALS, DOUBLE_EQUALS, NOT_EQUALS, GREATER_THAN, LESS_THAN,
)  # fmt: skip
_VALID_OPERATORS: Final = (*_BINARY_OPERATORS, EXISTS, DOES_NOT_EXIST)
_LABEL_SELECTOR_OPERATORS: Final = {
    "In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": DOES_NOT_EXIST,
}  # fmt: skip


class SelectorError(ValueError):
    """The selector does not parse; the message is Kubernetes' own."""


# Names ----------------------------------------------------------------------------------------

_QUALIFIED_NAME_FORMAT: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE_FORMAT: Final = f"({_QUALIFIED_NAME_FORMAT})?"
_DNS_LABEL_FORMAT: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN_FORMAT: Final = rf"{_DNS_LABEL_FORMAT}(\.{_DNS_LABEL_FORMAT})*"

_QUALIFIED_NAME: Final = re.compile(_QUALIFIED_NAME_FORMAT)
_LABEL_VALUE: Final = re.compile(_LABEL_VALUE_FORMAT)
_DNS_LABEL: Final = re.compile(_DNS_LABEL_FORMAT)
_DNS_SUBDOMAIN: Final = re.compile(_DNS_SUBDOMAIN_FORMAT)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")

_QUALIFIED_NAME_MESSAGE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character"
)
_LABEL_VALUE_MESSAGE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character"
)
_DNS_LABEL_MESSAGE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character"
)
_DNS_SUBDOMAIN_MESSAGE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character"
)


def _regex_message(message: str, pattern: str, *examples: str) -> str:
    """Return ``validation.RegexError``'s text; the doubled blanks are upstream's."""
    if not examples:
        return f"{message} (regex used for validation is '{pattern}')"
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {listed}regex used for validation is '{pattern}')"


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def is_dns1123_label(name: str) -> list[str]:
    """Return what keeps ``name`` from being a lower-case RFC 1123 label; empty if it is one."""
    problems = [_too_long(63)] if _size(name) > 63 else []
    if not _DNS_LABEL.fullmatch(name):
        if _DNS_SUBDOMAIN.fullmatch(name):
            # A subdomain is the likely mistake; the pattern alone would not say what is wrong.
            problems.append("must not contain dots")
        else:
            problems.append(
                _regex_message(_DNS_LABEL_MESSAGE, _DNS_LABEL_FORMAT, "my-name", "123-abc")
            )
    return problems


def is_dns1123_subdomain(name: str) -> list[str]:
    """Return what keeps ``name`` from being a lower-case RFC 1123 subdomain."""
    problems = [_too_long(253)] if _size(name) > 253 else []
    if not _DNS_SUBDOMAIN.fullmatch(name):
        problems.append(
            _regex_message(_DNS_SUBDOMAIN_MESSAGE, _DNS_SUBDOMAIN_FORMAT, "example.com")
        )
    return problems


def mask_trailing_dash(prefix: str) -> str:
    """Return the prefix as it may be checked as a whole name: ``web-`` will get a suffix."""
    if len(prefix) > 1 and prefix[-1] == "-":
        return prefix[:-2] + "a"
    return prefix


def is_qualified_name(name: str) -> list[str]:
    """Return what keeps ``name`` from being ``[dns-subdomain/]name``, the form of label keys."""
    parts = name.split("/")
    problems: list[str] = []
    if len(parts) == 1:
        local = parts[0]
    elif len(parts) == 2:
        prefix, local = parts
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {text}" for text in is_dns1123_subdomain(prefix)]
    else:
        return [
            "a valid label key "
            + _regex_message(
                _QUALIFIED_NAME_MESSAGE, _QUALIFIED_NAME_FORMAT, "MyName", "my.name", "123-abc"
            )
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    if not local:
        problems.append("name part must be non-empty")
    elif _size(local) > 63:
        problems.append("name part " + _too_long(63))
    if not _QUALIFIED_NAME.fullmatch(local):
        problems.append(
            "name part "
            + _regex_message(
                _QUALIFIED_NAME_MESSAGE, _QUALIFIED_NAME_FORMAT, "MyName", "my.name", "123-abc"
            )
        )
    return problems


def is_valid_label_value(value: str) -> list[str]:
    """Return what keeps ``value`` from being a label value; the empty string is one."""
    problems = [_too_long(63)] if _size(value) > 63 else []
    if not _LABEL_VALUE.fullmatch(value):
        problems.append(
            _regex_message(
                _LABEL_VALUE_MESSAGE, _LABEL_VALUE_FORMAT, "MyValue", "my_value", "12345"
            )
        )
    return problems


def parse_int64(text: str) -> int | None:
    """Return ``text`` as Go's ``strconv.ParseInt(text, 10, 64)`` reads it, ``None`` if it fails."""
    if not _INTEGER.fullmatch(text):
        return None
    try:
        number = int(text)
    except ValueError:  # more digits than the interpreter converts are far beyond int64
        return None
    return number if -(2**63) <= number < 2**63 else None


# Requirements and selectors -------------------------------------------------------------------


MANY: Final = 16
"""Values of a requirement that are looked through one by one."""


class Requirement(msgspec.Struct, frozen=True):
    """``key operator values``, with the operators of the text form (``in``, ``=``, ``!``, ...).

    ``number`` is the bound of ``gt`` and ``lt``. ``many`` has the values again where there are so
    many that looking through them for each object, or each event of a watch, would take long.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()
    number: int | None = None
    many: frozenset[str] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether ``labels`` satisfy the requirement.

        An absent key satisfies ``notin``, ``!=`` and ``!``; ``gt`` and ``lt`` need an integer.
        """
        operator = self.operator
        found = labels.get(self.key)
        if operator in (IN, EQUALS, DOUBLE_EQUALS):
            return found is not None and found in (self.many or self.values)
        if operator in (NOT_IN, NOT_EQUALS):
            return found is None or found not in (self.many or self.values)
        if operator == EXISTS:
            return found is not None
        if operator == DOES_NOT_EXIST:
            return found is None
        if found is None or self.number is None:
            return False
        number = parse_int64(found)
        if number is None:
            return False
        return number > self.number if operator == GREATER_THAN else number < self.number

    def __str__(self) -> str:
        if self.operator == EXISTS:
            return self.key
        if self.operator == DOES_NOT_EXIST:
            return f"!{self.key}"
        values = ",".join(sorted(self.values))
        if self.operator in (IN, NOT_IN):
            return f"{self.key} {self.operator} ({values})"
        sign = {GREATER_THAN: ">", LESS_THAN: "<"}.get(self.operator, self.operator)
        return f"{self.key}{sign}{values}"


def new_requirement(
    key: str, operator: str, values: Sequence[str], path: str = ""
) -> tuple[Requirement, list[FieldError]]:
    """Return the requirement and everything that is wrong with it (``NewRequirement``).

    ``path`` prefixes the fields of the errors, as in ``root[0]``.
    """
    errors: list[FieldError] = []
    prefix = f"{path}." if path else ""
    if problems := is_qualified_name(key):
        errors.append(FieldError(INVALID, f"{prefix}key", key, "; ".join(problems)))
    where = f"{prefix}values"
    listed = list(values)
    number: int | None = None
    if operator in (IN, NOT_IN):
        if not values:
            detail = "for 'in', 'notin' operators, values set can't be empty"
            errors.append(FieldError(INVALID, where, listed, detail))
    elif operator in (EQUALS, DOUBLE_EQUALS, NOT_EQUALS):
        if len(values) != 1:
            detail = "exact-match compatibility requires one single value"
            errors.append(FieldError(INVALID, where, listed, detail))
    elif operator in (EXISTS, DOES_NOT_EXIST):
        if values:
            detail = "values set must be empty for exists and does not exist"
            errors.append(FieldError(INVALID, where, listed, detail))
    elif operator in (GREATER_THAN, LESS_THAN):
        if len(values) != 1:
            detail = "for 'Gt', 'Lt' operators, exactly one value is required"
            errors.append(FieldError(INVALID, where, listed, detail))
        for index, value in enumerate(values):
            number = parse_int64(value)
            if number is None:
                detail = "for 'Gt', 'Lt' operators, the value must be an integer"
                errors.append(FieldError(INVALID, f"{where}[{index}]", value, detail))
    else:
        supported = ", ".join(f'"{name}"' for name in _VALID_OPERATORS)
        errors.append(
            FieldError(
                NOT_SUPPORTED, f"{prefix}operator", operator, f"supported values: {supported}"
            )
        )
    for index, value in enumerate(values):
        if problems := is_valid_label_value(value):
            errors.append(
                FieldError(INVALID, f"{where}[{index}][{key}]", value, "; ".join(problems))
            )
    if len(values) != 1:
        number = None  # there is no bound, so that nothing is above or below it
    many = frozenset(values) if len(values) > MANY else None
    return Requirement(key, operator, tuple(values), number, many), errors


class Selector(msgspec.Struct, frozen=True):
    """Requirements that must all hold, sorted by key; ``nothing``: selects no object."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    @property
    def everything(self) -> bool:
        """Whether the selector restricts nothing."""
        return not self.nothing and not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether all requirements hold for ``labels``."""
        if self.nothing:
            return False
        for requirement in self.requirements:  # noqa: SIM110  # all() takes twice as long
            if not requirement.matches(labels):
                return False
        return True

    def add(self, requirements: Iterable[Requirement]) -> "Selector":
        """Return the selector with more requirements; nothing stays nothing."""
        if self.nothing:
            return self
        return Selector(_sorted((*self.requirements, *requirements)))

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


EVERYTHING: Final = Selector()
NOTHING: Final = Selector(nothing=True)


def _sorted(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    return tuple(sorted(requirements, key=lambda requirement: requirement.key))


def selector_from_set(labels: Mapping[str, str]) -> Selector:
    """Return the selector that wants exactly these pairs; an empty set selects everything.

    Nothing is validated (``SelectorFromSet``).
    """
    return Selector(_sorted(Requirement(key, EQUALS, (labels[key],)) for key in labels))


def selector_from_label_selector(selector: LabelSelector | None) -> Selector:
    """Return the runtime form: ``None`` selects nothing, an empty one everything (R33, R34).

    Raises:
        SelectorError: an operator or a value is not allowed (``LabelSelectorAsSelector``).
    """
    if selector is None:
        return NOTHING
    if not selector.match_labels and not selector.match_expressions:
        return EVERYTHING
    requirements = [_sound(key, EQUALS, (text,)) for key, text in selector.match_labels.items()]
    for expression in selector.match_expressions:
        operator = _LABEL_SELECTOR_OPERATORS.get(expression.operator)
        if operator is None:
            raise SelectorError(f'"{expression.operator}" is not a valid label selector operator')
        requirements.append(_sound(expression.key, operator, expression.values))
    return Selector(_sorted(requirements))


def _sound(key: str, operator: str, values: Sequence[str]) -> Requirement:
    """Return the requirement. Raises ``SelectorError`` if anything is wrong with it."""
    requirement, errors = new_requirement(key, operator, values)
    if errors:
        raise SelectorError(aggregate(errors))
    return requirement


def aggregate(errors: Sequence[FieldError]) -> str:
    """Return the text of several field errors as Go's aggregate prints it, duplicates once."""
    texts = list(dict.fromkeys(f"{error.field}: {error.message()}" for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


# The text form --------------------------------------------------------------------------------

_IDENTIFIER: Final = "identifier"
_END: Final = "end"
_BAD: Final = "error"
_SPECIAL: Final = "=!(),><"
_WHITESPACE: Final = " \t\r\n"
_SYMBOLS: Final = frozenset({")", ",", "!", "==", "=", ">", "<", "!=", "("})
_OPERATOR_SYMBOLS: Final = {
    "in": IN, "=": EQUALS, "==": DOUBLE_EQUALS, ">": GREATER_THAN, "<": LESS_THAN,
    "notin": NOT_IN, "!=": NOT_EQUALS,
}  # fmt: skip


def _scan(text: str) -> Iterator[tuple[str, str]]:
    """Yield (symbol, literal); an operator or keyword is its own symbol."""
    position, length = 0, len(text)
    while True:
        while position < length and text[position] in _WHITESPACE:
            position += 1
        if position >= length or text[position] == "\0":
            yield _END, ""
            return
        start = position
        if text[position] in _SPECIAL:
            symbol = ""
            while position < length and text[position] in _SPECIAL:
                buffer = text[start : position + 1]
                if buffer in _SYMBOLS:
                    symbol = buffer
                elif symbol:
                    break
                position += 1
            if symbol:
                token = symbol, symbol
            else:
                token = _BAD, f"error expected: keyword found '{text[start:position]}'"
        else:
            while position < length and text[position] not in _SPECIAL + _WHITESPACE + "\0":
                position += 1
            word = text[start:position]
            token = (word if word in ("in", "notin") else _IDENTIFIER), word
        if position < length and text[position] == "\0":
            position += 1  # it ends what stands before it; between two words it would end the text
        yield token


class _Parser:
    """The recursive descent of ``labels.Parser``; ``in`` may also be a name or a value."""

    def __init__(self, text: str) -> None:
        self._scanned = list(_scan(text))
        self._position = 0

    def _peek(self) -> tuple[str, str]:
        symbol, literal = self._scanned[self._position]
        return (_IDENTIFIER if symbol in ("in", "notin") else symbol), literal

    def _take(self) -> tuple[str, str]:
        result = self._peek()
        self._position += 1
        return result

    def parse(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        while True:
            symbol, literal = self._peek()
            if symbol == _END:
                return requirements
            if symbol not in (_IDENTIFIER, "!"):
                raise SelectorError(
                    f"found '{literal}', expected: !, identifier, or 'end of string'"
                )
            try:
                requirements.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            symbol, literal = self._take()
            if symbol == _END:
                return requirements
            if symbol != ",":
                raise SelectorError(f"found '{literal}', expected: ',' or 'end of string'")
            symbol, literal = self._peek()
            if symbol not in (_IDENTIFIER, "!"):
                raise SelectorError(f"found '{literal}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        symbol, key = self._take()
        negated = symbol == "!"
        if negated:
            symbol, key = self._take()
        if symbol != _IDENTIFIER:
            raise SelectorError(f"found '{key}', expected: identifier")
        if problems := is_qualified_name(key):
            error = FieldError(INVALID, "<nil>", key, "; ".join(problems))
            raise SelectorError(f"{error.field}: {error.message()}")
        if negated or self._peek()[0] in (_END, ","):
            return _sound(key, DOES_NOT_EXIST if negated else EXISTS, [])
        symbol, literal = self._scanned[self._position]
        self._position += 1
        operator = _OPERATOR_SYMBOLS.get(symbol)
        if operator is None:
            expected = ", ".join(_BINARY_OPERATORS)
            raise SelectorError(f"found '{literal}', expected: {expected}")
        values = self._values() if operator in (IN, NOT_IN) else self._exact_value()
        return _sound(key, operator, sorted(values))

    def _exact_value(self) -> set[str]:
        if self._peek()[0] in (_END, ","):
            return {""}
        symbol, literal = self._take()
        if symbol != _IDENTIFIER:
            raise SelectorError(f"found '{literal}', expected: identifier")
        return {literal}

    def _values(self) -> set[str]:
        symbol, literal = self._take()
        if symbol != "(":
            raise SelectorError(f"found '{literal}' expected: '('")
        symbol, literal = self._peek()
        if symbol == ")":
            self._take()
            return {""}
        if symbol not in (_IDENTIFIER, ","):
            raise SelectorError(f"found '{literal}', expected: ',', ')' or identifier")
        values = self._identifiers()
        if self._take()[0] != ")":
            raise SelectorError(f"found '{literal}', expected: ')'")
        return values

    def _identifiers(self) -> set[str]:
        values: set[str] = set()
        while True:
            symbol, literal = self._take()
            if symbol == _IDENTIFIER:
                values.add(literal)
                symbol, literal = self._peek()
                if symbol == ")":
                    return values
                if symbol != ",":
                    raise SelectorError(f"found '{literal}', expected: ',' or ')'")
            elif symbol == ",":
                if not values:
                    values.add("")
                symbol, _ = self._peek()
                if symbol == ")":
                    values.add("")
                    return values
                if symbol == ",":
                    values.add("")
            else:
                raise SelectorError(f"found '{literal}', expected: ',', or identifier")


MAX_REQUIREMENTS: Final = 100
"""Requirements of a selector in a URL: a watch asks all of them of each event on the event loop."""


def parse_selector(text: str) -> Selector:
    """Return the selector of a ``labelSelector`` parameter: ``a=b,c in (d,e),!f,g>3``.

    Raises:
        SelectorError: the text does not follow the grammar.
    """
    found = _Parser(text).parse()
    if len(found) > MAX_REQUIREMENTS:
        raise SelectorError(f"more than {MAX_REQUIREMENTS} requirements")
    return Selector(_sorted(found))

"""Short constructors of `FieldError`, in the words of apimachinery's ``field`` package (v1.36).

A check is a function of a value and its path. ``needs``, ``optional``, ``words``, ``formed``,
``between`` and ``all_of`` make checks, so that the rules of a type can be a table.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from typing import Any, Final

from clusterstate.admission.validation.core import formats
from clusterstate.objects.values import errors
from clusterstate.objects.values.errors import FieldError

NEGATIVE: Final = "must be greater than or equal to 0"
Errors = list[FieldError]
Check = Callable[[Any, str], Errors]
"""Returns the errors in a value at a path."""
Form = Callable[[Any], Iterable[str]]
"""A function of ``formats``: returns a text for each problem of a value."""


def required(path: str, detail: str = "") -> FieldError:
    """Return the error of an absent or empty field that must be set."""
    return FieldError(errors.REQUIRED, path, None, detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """Return the error of a value that is malformed or out of range."""
    return FieldError(errors.INVALID, path, value, detail)


def forbidden(path: str, detail: str) -> FieldError:
    """Return the error of a field that may not be set here."""
    return FieldError(errors.FORBIDDEN, path, None, detail)


def duplicate(path: str, value: Any) -> FieldError:
    """Return the error of a value that may occur only once."""
    return FieldError(errors.DUPLICATE, path, value)


def not_found(path: str, value: Any) -> FieldError:
    """Return the error of a reference to an object that does not exist."""
    return FieldError(errors.NOT_FOUND, path, value)


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """Return the error of an unknown enum value; ``supported`` is listed in the order given."""
    listed = ", ".join(f'"{word}"' for word in supported)
    return FieldError(errors.NOT_SUPPORTED, path, value, f"supported values: {listed}")


def too_long(path: str, value: Any, limit: int) -> FieldError:
    """Return the error of a text of more than ``limit`` bytes."""
    return FieldError(errors.TOO_LONG, path, value, f"may not be more than {limit} bytes")


def not_negative(value: int | None, path: str) -> Errors:
    """Return the error of a number below 0; an absent one is valid."""
    return [invalid(path, value, NEGATIVE)] if value is not None and value < 0 else []


def none_negative(holder: Mapping[str, Any], path: str, *names: str) -> Errors:
    """Return the errors of those ``fields`` of an object that are below 0."""
    return [
        invalid(f"{path}.{name}", value, NEGATIVE)
        for name in names
        if (value := holder.get(name)) is not None and value < 0
    ]


def at_most(items: Sized, path: str, limit: int) -> Errors:
    """Return the error of a list of more than ``limit`` items."""
    if len(items) <= limit:
        return []
    noun = "item" if limit == 1 else "items"
    return [FieldError(errors.TOO_MANY, path, len(items), f"must have at most {limit} {noun}")]


def one_of(value: str | None, path: str, supported: Collection[str]) -> Errors:
    """Return the error of a word that is not one of ``supported``; ``None`` is valid."""
    return [] if value is None or value in supported else [not_supported(path, value, supported)]


def required_one_of(value: str, path: str, supported: Collection[str], detail: str = "") -> Errors:
    """Return the error of a word that is absent (with ``detail``) or not one of ``supported``."""
    return one_of(value, path, supported) if value else [required(path, detail)]


def invalid_each(path: str, value: Any, problems: Iterable[str]) -> Errors:
    """Return one `invalid` for each of ``problems``."""
    return [FieldError(errors.INVALID, path, value, problem) for problem in problems]


def check_form(value: Any, path: str, form: Form) -> Errors:
    """Return the errors in the form of a value; an absent or empty one is valid."""
    if not value:
        return []
    problems = form(value)
    return invalid_each(path, value, problems) if problems else []


def require_form(value: Any, path: str, form: Form, detail: str = "") -> Errors:
    """Return the errors of a value without this form; an absent or empty value is ``required``."""
    return check_form(value, path, form) if value else [required(path, detail)]


def each(
    items: Iterable[Any] | None,
    path: str,
    check: Check,
    *,
    most: int = 0,
    key: Callable[[Any], Any] | None = None,
) -> Errors:
    """Return the errors in the items of a list, or only that it is too long.

    ``most`` 0: any number. ``key``: returns a value that must be unique in the list.
    """
    items = list(items or ())
    if most and (too_many := at_most(items, path, most)):
        return too_many
    errors: Errors = []
    for index, item in enumerate(items):
        errors += check(item, f"{path}[{index}]")
    if key is not None:
        seen: set[Any] = set()
        for index, item in enumerate(items):
            if (one := key(item)) in seen:
                errors.append(duplicate(f"{path}[{index}]", one))
            seen.add(one)
    return errors


def all_of(*checks: Check) -> Check:
    """Return a check that returns the errors of all these checks."""
    return lambda value, path: [error for check in checks for error in check(value, path)]


def needs(*fields: str) -> Check:
    """Return a check that ``fields`` are present."""

    def check(holder: Mapping[str, Any], path: str) -> Errors:
        return [required(f"{path}.{field}") for field in fields if not holder.get(field)]

    return check


def optional(field: str, check: Check) -> Check:
    """Return a check of one field of an object; an absent one is valid."""

    def of_field(holder: Mapping[str, Any], path: str) -> Errors:
        value = holder.get(field)
        return [] if value is None else check(value, f"{path}.{field}")

    return of_field


def words(*supported: str) -> Check:
    """Return a check that a value is one of these words."""
    return lambda value, path: one_of(value, path, supported)


def formed(form: Form) -> Check:
    """Return a check for the form of a value; an empty one is valid."""
    return lambda value, path: check_form(value, path, form)


def between(low: int, high: int, *, shown: int | None = None) -> Check:
    """Return a check for a range of numbers; ``shown``: the lower bound in the message."""
    detail = formats.range_problem(low if shown is None else shown, high)
    return lambda value, path: [] if low <= value <= high else [invalid(path, value, detail)]

"""Short constructors of `FieldError`, in the words of apimachinery's ``field`` package (v1.36).

What holds for many fields alike is a check of a value at its path. ``needs``, ``optional``,
``words``, ``formed``, ``between`` and ``all_of`` make such checks, so that a table can say what
holds for a type.
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
"""What keeps a value from having a form, a text for each problem: one of ``formats``."""


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
    """Return the error of a reference to something that is not there."""
    return FieldError(errors.NOT_FOUND, path, value)


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """Return the error of an unknown enum value; ``supported`` is listed in the order given."""
    listed = ", ".join(f'"{word}"' for word in supported)
    return FieldError(errors.NOT_SUPPORTED, path, value, f"supported values: {listed}")


def too_long(path: str, value: Any, limit: int) -> FieldError:
    """Return the error of a text of more than ``limit`` bytes."""
    return FieldError(errors.TOO_LONG, path, value, f"may not be more than {limit} bytes")


def not_negative(value: int | None, path: str) -> Errors:
    """Return the error of a number below 0; an absent one is fine."""
    return [invalid(path, value, NEGATIVE)] if value is not None and value < 0 else []


def none_negative(holder: Mapping[str, Any], path: str, *names: str) -> Errors:
    """Return the errors of fields of an object that are numbers below 0."""
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
    """Return the error of a word that is none of ``supported``; ``None`` is absent and fine."""
    return [] if value is None or value in supported else [not_supported(path, value, supported)]


def required_one_of(value: str, path: str, supported: Collection[str], detail: str = "") -> Errors:
    """Return the error of a word that is absent, with ``detail``, or none of ``supported``."""
    return one_of(value, path, supported) if value else [required(path, detail)]


def invalid_each(path: str, value: Any, problems: Iterable[str]) -> Errors:
    """Return one `invalid` for each of ``problems``."""
    return [FieldError(errors.INVALID, path, value, problem) for problem in problems]


def check_form(value: Any, path: str, form: Form) -> Errors:
    """Return what keeps a value from having a form; an absent or empty one is fine."""
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
    """Return the errors in the items of a list; a list that is too long is not looked at.

    ``most`` 0: any number. ``key``: what no two items share.
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
    """Return a check that says of a value what each of several checks says."""
    return lambda value, path: [error for check in checks for error in check(value, path)]


def needs(*fields: str) -> Check:
    """Return a check for the presence of ``fields``."""

    def check(holder: Mapping[str, Any], path: str) -> Errors:
        return [required(f"{path}.{field}") for field in fields if not holder.get(field)]

    return check


def optional(field: str, check: Check) -> Check:
    """Return a check of one field of an object; an absent one is fine."""

    def of_field(holder: Mapping[str, Any], path: str) -> Errors:
        value = holder.get(field)
        return [] if value is None else check(value, f"{path}.{field}")

    return of_field


def words(*supported: str) -> Check:
    """Return a check for one of some words."""
    return lambda value, path: one_of(value, path, supported)


def formed(form: Form) -> Check:
    """Return a check for the form of a value, which may be empty."""
    return lambda value, path: check_form(value, path, form)


def between(low: int, high: int, *, shown: int | None = None) -> Check:
    """Return a check for a range of numbers; ``shown``: the lower bound that the text names."""
    detail = formats.range_problem(low if shown is None else shown, high)
    return lambda value, path: [] if low <= value <= high else [invalid(path, value, detail)]

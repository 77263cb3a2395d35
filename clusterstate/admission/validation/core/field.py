"""Short constructors of `FieldError`, in the words of apimachinery's ``field`` package (v1.36)."""

from collections.abc import Collection, Iterable, Sized
from typing import Any

from clusterstate.objects.values import errors
from clusterstate.objects.values.errors import FieldError

Errors = list[FieldError]


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


def at_most(items: Sized, path: str, limit: int) -> Errors:
    """Return the error of a list of more than ``limit`` items."""
    if len(items) <= limit:
        return []
    noun = "item" if limit == 1 else "items"
    return [FieldError(errors.TOO_MANY, path, len(items), f"must have at most {limit} {noun}")]


def one_of(value: str, path: str, supported: Collection[str]) -> Errors:
    """Return the error of a word that is none of ``supported``; an absent one is none."""
    return [] if value in supported else [not_supported(path, value, supported)]


def required_one_of(value: str, path: str, supported: Collection[str], detail: str = "") -> Errors:
    """Return the error of a word that is absent, with ``detail``, or none of ``supported``."""
    return one_of(value, path, supported) if value else [required(path, detail)]


def invalid_each(path: str, value: Any, problems: Iterable[str]) -> Errors:
    """Return one `invalid` for each of ``problems``."""
    return [FieldError(errors.INVALID, path, value, problem) for problem in problems]

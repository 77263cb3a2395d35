"""Bounds that are a number of pods or a percentage of them: of budgets and of rollouts.

Rules: apimachinery ``pkg/util/intstr/intstr.go`` and ``pkg/apis/apps/validation/validation.go``,
v1.36. One difference is meant: a percentage has at most 18 digits. Kubernetes admits more, and its
controllers fail to read them afterwards.
"""

import re
from typing import Final

IntOrPercent = int | str

MOST_DIGITS: Final = 18
_PERCENT: Final = re.compile(r"([0-9]+)%")


def percent_of(value: object) -> int | None:
    """Return the number before the percent sign, ``None`` where the value is no percentage.

    Raises:
        ValueError: it has too many digits.
    """
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    if len(match[1]) > MOST_DIGITS:
        raise ValueError(f"must not have more than {MOST_DIGITS} digits")
    return int(match[1])


def is_zero(value: IntOrPercent | None) -> bool:
    """Return whether the bound is absent, 0 or 0%, or a text that is no percentage."""
    try:
        return not (percent_of(value) if isinstance(value, str) else value)
    except ValueError:
        return False


def scaled(value: object, total: int, *, round_up: bool) -> int:
    """Return a number as it is, a percentage as a part of ``total``, and 0 for ``None``.

    Raises:
        ValueError: it is none of them, or the percentage has too many digits.
    """
    if value is None or isinstance(value, int):
        return value or 0
    percent = percent_of(value)
    if percent is None:
        raise ValueError("invalid value for IntOrString: invalid type: string is not a percentage")
    return -(-percent * total // 100) if round_up else percent * total // 100

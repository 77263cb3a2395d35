"""Parses and formats durations: ``90s``, ``10m``, ``1h30m``, ``2d``, or a number of seconds."""

import re
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
# No match begins within a number: else each digit of a long one would be tried.
_PART: Final = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)(ms|[smhdw])")


def read(value: object) -> float | None:
    """Return the seconds of a duration, not negative; ``None`` if it is malformed."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 0 <= value < 1e12 else None
    if not isinstance(value, str):
        return None
    total, at = 0.0, 0
    for part in _PART.finditer(value):
        if part.start() != at:
            return None
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    return total if at and at == len(value) and total < 1e12 else None


def show(seconds: float) -> str:
    """Return a duration as text with its two largest units; ``0s`` for none."""
    if seconds < 0:
        return "-" + show(-seconds)
    if seconds < 10:
        return f"{seconds:.3g}s"
    remaining = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, remaining = divmod(remaining, size)
        if count and len(parts) < 2:
            parts.append(f"{count}{unit}")
        elif parts:
            break
    return " ".join(parts) or "0s"

"""Durations as Go writes and reads them: ``1h0m0s``, ``100ms``, ``1.5h``, ``0``.

Rule: Go's ``time.ParseDuration``, which reads ``metav1.Duration``.
"""

import re
from typing import Final

_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "\u00b5s": 1e-6,
    "\u03bcs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART: Final = re.compile(rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(_SECONDS)})", re.ASCII)
_MOST: Final = 2**63 / 1e9


def parse(text: object) -> float | None:
    """Return seconds, which may be negative; ``None`` for what Go does not read as a duration."""
    if not isinstance(text, str) or not text:
        return None
    sign = -1.0 if text[0] == "-" else 1.0
    rest = text[1:] if text[0] in "+-" else text
    if rest == "0":
        return 0.0
    total, at = 0.0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            return None
        total += float(part[1]) * _SECONDS[part[2]]
        at = part.end()
    return sign * total if at and total < _MOST else None

"""What stands in the way of a pod, by nodes: read from the scheduler's sentence, for drawings."""

import re
from typing import Final

import msgspec

_SENTENCE: Final = re.compile(r"0/(\d+) nodes are available: (.+)", re.DOTALL)
_TRIED: Final = ". preemption: "
"""What preemption made of it follows (``defaultpreemption``); it is of the same nodes."""
_PART: Final = re.compile(r"(\d+) (.+)", re.DOTALL)
_BETWEEN: Final = re.compile(r", (?=\d+ )")


class Hindrance(msgspec.Struct, frozen=True):
    """A reason, and on how many of ``every`` node it is given."""

    nodes: int
    text: str
    every: int


def hindrances(message: str) -> list[Hindrance]:
    """Return the reasons of a sentence like ``0/9 nodes are available: 8 Insufficient cpu, ...``.

    Those on most nodes come first. Empty where the sentence does not count nodes: then it is shown
    as it is. The form is ``FitError.Error`` (pkg/scheduler/framework/types.go, v1.36).
    """
    found = _SENTENCE.fullmatch(message)
    if found is None:
        return []
    every = int(found[1])
    counted = found[2].split(_TRIED, 1)[0].removesuffix(".")
    parts = [_PART.fullmatch(one) for one in _BETWEEN.split(counted)]
    reasons = [Hindrance(int(one[1]), one[2], every) for one in parts if one]
    if len(reasons) != len(parts) or any(one.nodes > every for one in reasons):
        return []
    return sorted(reasons, key=lambda one: (-one.nodes, one.text))

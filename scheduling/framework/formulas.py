"""The arithmetic of NodeResourcesFit, stated once for arrays over rows and for single rows.

The plugin calls these functions with NumPy arrays; the compiled loops over rows with integers,
after ``engine.compiled.arithmetic`` has compiled them. The dry run of preemption, queueing hints
and the check of pods with a given node name call them as well. Only the loop over blocks of rows
has its own form, in floats (``engine.compiled.scoring``).

Rules: plugins/noderesources/{fit,least_allocated,most_allocated,requested_to_capacity_ratio}.go,
v1.36 (R66, R104-R111).
"""

from typing import Any, Final

import numpy as np

LEAST, MOST, RATIO = range(3)
"""Scoring strategies: LeastAllocated, MostAllocated, RequestedToCapacityRatio."""
MAX_SCORE: Final = 100


def short(amount: Any, allocatable: Any, requested: Any) -> Any:
    """Return whether less than ``amount`` is free (element by element)."""
    return amount > allocatable - requested


def never(amount: Any, allocatable: Any) -> Any:
    """Return whether too little would be free even without any pods (element by element)."""
    return amount > allocatable


def least_allocated(used: Any, room: Any) -> Any:
    """Return what percentage of ``room`` is free once ``used`` is taken; 0 if overcommitted."""
    return percent(larger(room - used, 0), room)


def most_allocated(used: Any, room: Any) -> Any:
    """Return what percentage of ``room`` is ``used``; at most 100."""
    return percent(smaller(used, room), room)


def weighted_mean(total: Any, weights: Any) -> Any:
    """Return ``total`` over ``weights``, truncated (LeastAllocated, MostAllocated)."""
    return floor_divide(total, weights)


def rounded_mean(total: Any, weights: Any) -> Any:
    """Return ``total`` over ``weights``, rounded half up (RequestedToCapacityRatio; ruling C12)."""
    return floor_divide(2 * total + weights, 2 * weights)


def percent(part: Any, whole: Any) -> Any:
    """Return the percentage of ``part`` in ``whole``, rounded down; ``part`` is not larger.

    If 100 times the whole exceeds 64 bits both are scaled down first. The compiled loops have no
    such amounts (``engine.fast.requests``).
    """
    if np.max(whole, initial=0) <= _HUNDREDFOLD:
        return floor_divide(part * MAX_SCORE, whole)
    scale = 1 + floor_divide(whole, 2**56)
    return floor_divide(floor_divide(part, scale) * MAX_SCORE, floor_divide(whole, scale))


_HUNDREDFOLD: Final = (2**63 - 1) // MAX_SCORE


def larger(one: Any, other: Any) -> Any:
    """Return the larger of two numbers, element by element."""
    return np.maximum(one, other)


def smaller(one: Any, other: Any) -> Any:
    """Return the smaller of two numbers, element by element."""
    return np.minimum(one, other)


def floor_divide(dividend: Any, divisor: Any) -> Any:
    """Return the quotient rounded down; the divisor is positive."""
    return dividend // divisor

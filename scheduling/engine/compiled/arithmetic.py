"""Compiles the functions of ``framework.formulas`` with Numba, for integers and for floats.

LLVM inlines them. Numba's own ``inline="always"`` is not used: with it the loop over blocks crashed
when it ran. The cause was not proven; a formula's variable may have taken the name of an array of
the loop.

Import this before a loop that calls them is compiled. Without Numba's compiler
(NUMBA_DISABLE_JIT=1) the functions run as plain Python.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from scheduling.framework import formulas

_OF_NUMBERS = (
    formulas.short,
    formulas.never,
    formulas.least_allocated,
    formulas.most_allocated,
    formulas.weighted_mean,
    formulas.rounded_mean,
)


def _register(function: Callable[..., Any]) -> None:
    def implementation(*_types: Any) -> Callable[..., Any]:
        return function

    overload(function, strict=False)(implementation)


for _function in _OF_NUMBERS:
    _register(_function)


@overload(formulas.larger, strict=False)
def _larger(one: Any, other: Any) -> Callable[..., Any]:
    return lambda one, other: max(other, one)


@overload(formulas.smaller, strict=False)
def _smaller(one: Any, other: Any) -> Callable[..., Any]:
    return lambda one, other: min(other, one)


@overload(formulas.percent, strict=False)
def _percent(part: Any, whole: Any) -> Callable[..., Any]:
    return lambda part, whole: formulas.floor_divide(part * formulas.MAX_SCORE, whole)


@overload(formulas.floor_divide, strict=False)
def _floor_divide(dividend: Any, divisor: Any) -> Callable[..., Any]:
    if isinstance(dividend, types.Float):
        return lambda dividend, divisor: np.floor(dividend / divisor)
    return lambda dividend, divisor: dividend // divisor

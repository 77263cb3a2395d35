"""Copies of columns with more rows or columns."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from scheduling.framework.arrays import Int64

T = TypeVar("T", bound=np.generic)


def lengthen(array: npt.NDArray[T], size: int, fill: float = 0) -> npt.NDArray[T]:
    """Return a copy with ``size`` rows; the new ones are ``fill``."""
    shape = (size, *array.shape[1:])
    longer = np.full(shape, fill, array.dtype, order="F")
    longer[: len(array)] = array
    return longer


def widen(array: Int64, width: int) -> Int64:
    """Return a copy with ``width`` columns; the new ones are 0."""
    wider = np.zeros((len(array), width), np.int64, order="F")
    wider[:, : array.shape[1]] = array
    return wider

"""Names of the arrays that the decision core works with, and the numbering of their values."""

from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

Int16 = npt.NDArray[np.int16]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
Float64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_SMALL: Final = 65_536
_Integers = TypeVar("_Integers", Int32, Int64)


def numbered(values: _Integers) -> tuple[Int64, Int64]:
    """Return the different values, ascending, and at which place of those each value is.

    As ``np.unique`` with ``return_inverse``; values that are not negative and below 65,536 are
    looked up instead of sorted, which takes a tenth of the time for 5,000.
    """
    top = int(values.max(initial=-1))
    if top >= _SMALL or values.min(initial=0) < 0:
        found, places = np.unique(values, return_inverse=True)
        return found.astype(np.int64), places.astype(np.int64)
    there = np.zeros(top + 1, np.bool_)
    there[values] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[values]


def first_places(numbers: Int64, count: int) -> Int64:
    """Return where each number below ``count`` stands first, int64 (count,); each must be there."""
    first = np.zeros(count, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    return first

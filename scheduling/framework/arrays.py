"""Names of the arrays that the decision core works with."""

import numpy as np
import numpy.typing as npt

Int16 = npt.NDArray[np.int16]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
Float64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

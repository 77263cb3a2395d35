#!/bin/sh
# Numba 0.68.0, NumPy 2.4.
# Guess: a compiled loop adds a uint64 and an int64 as NumPy does, which gives float64.
# Behaviour: Numba gives int64, and wraps around: 2**63 + 1 becomes negative.
# What the product does: amounts are int64 everywhere, and hashes never meet them in one sum.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "numba==0.68.0" "numpy>=2.4,<2.5"
"$folder/venv/bin/python" - <<'PY'
import sys

import numba
import numpy as np


def add(left, right):
    return left[0] + right[0]


left, right = np.array([2**63], np.uint64), np.array([1], np.int64)
plain, compiled = add(left, right), numba.njit(add)(left, right)
print("NumPy:", type(plain).__name__, plain, " Numba:", type(compiled).__name__, compiled)
sys.exit(not (isinstance(plain, np.float64) and isinstance(compiled, int) and compiled < 0))
PY

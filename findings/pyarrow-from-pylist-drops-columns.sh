#!/bin/sh
# pyarrow 26.0.1.
# Guess: Table.from_pylist makes a column for every key of its rows, as a DataFrame of pandas does.
# Behaviour: only the keys of the first row become columns, without a word: where the first pod is
# still waiting, the nodes of all others are lost. A later row without a key gets a null.
# What the product does: its tables of decisions are made with a schema.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyarrow==26.0.1" "pandas==3.0.3"
"$folder/venv/bin/python" - <<'PY'
import sys

import pandas
import pyarrow

rows = [{"pod": "a"}, {"pod": "b", "node": "n1"}]
arrow = pyarrow.Table.from_pylist(rows).column_names
frame = list(pandas.DataFrame(rows).columns)
print(f"waiting pod first: pyarrow {arrow}, pandas {frame}")
other = pyarrow.Table.from_pylist(rows[::-1]).to_pylist()
print(f"waiting pod last: pyarrow {other}")
sys.exit(not (arrow == ["pod"] and frame == ["pod", "node"] and other[1] == {"pod": "a", "node": None}))
PY

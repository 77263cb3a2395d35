#!/bin/sh
# pandas 3.1.1.
# Guess: read_json(lines=True) of a trace keeps a column of whole numbers as whole numbers.
# Behaviour: a column whose name ends with "_time" or "_at", or begins with "timestamp", becomes dates if
# its numbers are large enough: 600,000,000 microseconds since a trace began (start_time of Google's
# Borg traces) is read as 5 January 1989. An identifier above 2**53 changes its last digits as soon as
# one line of the column lacks it. Both without a warning; dtype=False keeps the times as they are, and
# not the identifiers.
# What the product does: it reads traces with msgspec, which gives integers as they are.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pandas==3.1.1"
"$folder/venv/bin/python" - <<'PYTHON'
import io
import sys

import pandas

text = """{"start_time": 600000000, "collection_id": 9007199254740993}
{"start_time": 900000000, "collection_id": null}
"""
read = pandas.read_json(io.StringIO(text), lines=True)
kept = pandas.read_json(io.StringIO(text), lines=True, dtype=False)
first = (str(read.start_time[0]), int(read.collection_id[0]))
print(f"start_time {first[0]}, collection_id {first[1]}; with dtype=False: {kept.start_time[0]}, {int(kept.collection_id[0])}")
as_stated = first == ("1989-01-05 10:40:00", 9007199254740992) and kept.start_time[0] == 600000000
sys.exit(0 if as_stated else 1)
PYTHON

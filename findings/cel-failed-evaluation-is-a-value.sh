#!/bin/sh
# cel-expr-python 0.1.3 (the C++ runtime of CEL).
# Guess: an evaluation that fails (a missing key, a division by zero) raises an exception.
# Behaviour: it returns a value of type ERROR; its plain_value() is a non-empty text, which is true
# in an `if`. So a selector that fails looks as if it had matched.
# What the product does: it asks for the type of each result before its value.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "cel-expr-python==0.1.3"
"$folder/venv/bin/python" - <<'PY'
import sys

from cel_expr_python import cel

environment = cel.NewEnv(variables={"device": cel.Type.DYN, "n": cel.Type.INT})
seen = []
for text, data in [("device.model == 'a'", {"device": {}, "n": 1}), ("10 / n > 1", {"device": {}, "n": 0})]:
    result = environment.compile(text).eval(data=data)
    value = result.plain_value()
    seen.append((str(result.type()), type(value).__name__, bool(value)))
    print(f"{text}: {seen[-1]} {value!r}")
sys.exit(not all("ERROR" in kind.upper() and truth for kind, _, truth in seen))
PY

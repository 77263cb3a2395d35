#!/bin/sh
# cel-python 0.5.0.
# Guess: a value of no known type may be compared with any other, as the language says: dyn(1) == 1.0 is
# true, and dyn('a') == 1 is false (CEL specification, "Equality").
# Behaviour: both are errors ("no matching overload"), and string(1.0) is "1.0" where cel-go gives "1".
# Kubernetes evaluates selectors of devices with cel-go: an attribute that is a number on one device and a
# text on another is "no match" there, and an error here, which ends the pod's attempt.
# What the product does: it evaluates with cel-expr-python, tried against cel-go's answers.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "cel-python==0.5.0"
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import celpy


def outcome(text):
    environment = celpy.Environment()
    try:
        return str(environment.program(environment.compile(text)).evaluate({}))
    except celpy.CELEvalError as error:
        return "error" if "no matching overload" in str(error) else "another error"


seen = {text: outcome(text) for text in ("dyn(1) == 1.0", "dyn('a') == 1", "dyn(1u) < 2", "string(1.0)")}
for text, answer in seen.items():
    print(f"{text}: {answer}")
sys.exit(0 if list(seen.values()) == ["error", "error", "True", "1.0"] else 1)
PYTHON

#!/bin/sh
# jsonpath-ng 1.16.0 and python-jsonpath 2.2.2.
# Guess: a library for JSONPath reads the jsonPath of a CustomResourceDefinition's printer columns.
# Behaviour: Kubernetes' paths begin with a dot and escape the dots of a key with a backslash
# (`.metadata.labels.topology\.kubernetes\.io/zone`). jsonpath-ng reads no path that begins with a
# dot, also with its extensions; python-jsonpath reads that, and neither reads an escaped dot. Both
# read the same column as RFC 9535 writes it: `$.metadata.labels['topology.kubernetes.io/zone']`.
# What the product does: the columns of its tables are functions, not paths.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "jsonpath-ng==1.16.0" "python-jsonpath==2.2.2"
"$folder/venv/bin/python" - <<'PY'
import sys

import jsonpath
from jsonpath_ng.ext import parse

NODE = {"metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "a"}}}
PATHS = {
    ".metadata.name": "n1",
    r".metadata.labels.topology\.kubernetes\.io/zone": "a",
    "$.metadata.labels['topology.kubernetes.io/zone']": "a",
}


def result(find, path):
    try:
        return find(path)
    except Exception as error:
        return type(error).__name__


seen = []
for path, value in PATHS.items():
    ng = result(lambda text: parse(text).find(NODE)[0].value, path)
    other = result(lambda text: jsonpath.findall(text, NODE)[0], path)
    print(f"{path}: jsonpath-ng {ng}, python-jsonpath {other}")
    seen.append((ng == value, other == value))
sys.exit(seen != [(False, True), (False, False), (True, True)])
PY

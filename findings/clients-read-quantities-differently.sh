#!/bin/sh
# The official Python client, kubernetes 37.0.2, and lightkube 1.0.1.
# Guess: what their parse_quantity() reads are Kubernetes' quantities, no more and no fewer.
# Behaviour: the official client takes "1K", "1_000" and "infinity", which Kubernetes refuses (apimachinery
# pkg/api/resource/quantity.go, v1.36). lightkube refuses "250u", "1250n" and "1E3", which Kubernetes writes
# or reads: metrics.k8s.io gives the use of CPU in n and u.
# What the product does: it reads quantities by Kubernetes' own grammar, checked against its cases.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "kubernetes==37.0.2" "lightkube==1.0.1"
"$folder/venv/bin/python" - <<'PYTHON'
import sys

from kubernetes.utils.quantity import parse_quantity as official
from lightkube.utils.quantity import parse_quantity as light


def read(parse, text):
    try:
        return str(parse(text))
    except ValueError:
        return "refused"


print("quantity  kubernetes  lightkube")
seen = {}
for text in ("1K", "1_000", "infinity", "250u", "1250n", "1E3"):
    seen[text] = read(official, text) != "refused", read(light, text) != "refused"
    print(f"{text:9} {read(official, text):11} {read(light, text)}")
loose, narrow = ("1K", "1_000", "infinity"), ("250u", "1250n", "1E3")
as_stated = all(seen[one] == (True, False) for one in (*loose, *narrow))
sys.exit(0 if as_stated else 1)
PYTHON

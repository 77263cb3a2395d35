#!/bin/sh
# The official Python client, kubernetes 37.0.1.
# Guess: a MicroTime (a Lease's renewTime and acquireTime, an Event's eventTime) goes out with six
# digits of a second, as the type's name says and as Kubernetes writes it.
# Behaviour: the client writes every datetime by isoformat(), which leaves the fraction out when it is
# zero. Kubernetes reads a MicroTime by a layout whose six digits have to be there (apimachinery
# pkg/apis/meta/v1/micro_time.go, RFC3339Micro, v1.36), so a program whose clock shows a whole second,
# or that cuts its times to seconds, sends a Lease that is refused as unreadable.
# What the product does: it reads a MicroTime with and without a fraction, and stores six digits.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "kubernetes==37.0.1"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from datetime import UTC, datetime

from kubernetes import client

write = client.ApiClient().sanitize_for_serialization
seen = {
    microsecond: write(
        client.V1LeaseSpec(renew_time=datetime(2026, 11, 28, 16, 0, 0, microsecond, tzinfo=UTC))
    )["renewTime"]
    for microsecond in (120_000, 0)
}
print(f"with 120 ms: {seen[120_000]}; at a whole second: {seen[0]}")
as_stated = seen == {120_000: "2026-11-28T16:00:00.120000+00:00", 0: "2026-11-28T16:00:00+00:00"}
sys.exit(0 if as_stated else 1)
PYTHON

#!/bin/sh
# The official Python client, kubernetes 37.0.2.
# Guess: EventsV1Api().list_event_for_all_namespaces() reads what an API server lists.
# Behaviour: the client wants a time in eventTime. An event that was recorded through the older core/v1
# recorder has none, and Kubernetes writes the field as null then (api/events/v1/types.go: EventTime has no
# omitempty, v1.36). One such event, and every Kubernetes has some, fails the whole list.
# CoreV1Api reads the same event.
# What the product does: its own events have an eventTime; a client's event stays as it was sent.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "kubernetes==37.0.2"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys

from kubernetes import client

event = {
    "metadata": {"name": "web-1.17", "namespace": "default"}, "eventTime": None,
    "reason": "Scheduled", "type": "Normal",
}
read = client.ApiClient().deserialize


def outcome(kind, about):
    text = json.dumps({"items": [{**event, **about}]})
    try:
        read(text, kind, "application/json")
    except ValueError as error:
        return str(error).splitlines()[1]
    return "read"


seen = (
    outcome("EventsV1EventList", {"regarding": {"kind": "Pod", "name": "web-1"}}),
    outcome("CoreV1EventList", {"involvedObject": {"kind": "Pod", "name": "web-1"}}),
)
print(f"events.k8s.io/v1: {seen[0]}; v1: {seen[1]}")
sys.exit(0 if seen == ("eventTime", "read") else 1)
PYTHON

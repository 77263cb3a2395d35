"""What ``kubectl get`` prints of Stowage's own resources."""

import re

import pytest

from api.description import discovery
from api.forms import tables
from tests.api.conftest import TABLE
from tests.builders import make_node, make_pod

BASE = "/apis/stowage.dev/v1"
CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}
LISTED = sorted(
    (one["name"], one["kind"])
    for one in discovery.group_versions()["stowage.dev", "v1"]
    if "list" in one["verbs"] or one["name"] == "decisions"
)


def row(api, path):
    """Return the cells of the only row by the names of their columns."""
    found = api.get(f"{BASE}/{path}", accept=TABLE).ok()
    assert found["kind"] == "Table"
    (only,) = found["rows"]
    assert only["object"]["metadata"]["name"] == only["cells"][0]
    names = [one["name"] for one in found["columnDefinitions"]]
    cells = dict(zip(names, only["cells"], strict=True))
    assert re.fullmatch(r"\d+s", cells.pop("Age"))
    return cells


@pytest.mark.parametrize(("name", "kind"), LISTED)
def test_what_is_listed_has_columns_of_its_own(api, name, kind):
    found = api.get(f"{BASE}/{name}", accept=TABLE).ok()
    assert found["kind"] == "Table"
    columns = [one.name for one in tables.PRINTERS[kind].columns]
    assert [one["name"] for one in found["columnDefinitions"]] == columns


def test_a_plan_is_printed_with_its_progress(api):
    api.post("/api/v1/nodes", make_node("n1").manifest).ok(201)
    api.post("/api/v1/namespaces/ns/pods", make_pod("a").in_namespace("ns").on("n1").manifest)
    document = {"spec": {"changes": [{"drain": {"nodes": ["n1"], "force": True}}]}}
    name = api.post(f"{BASE}/plans", document).ok(201)["metadata"]["name"]
    told = {
        "Name": name, "State": "Planned", "Done": "0/2", "Held": 0, "Failed": 0, "Leaving": 1,
        "Stuck": 0, "Made By": "operator", "Applied By": "<none>",
    }  # fmt: skip
    assert row(api, "plans") == told
    assert row(api, f"plans/{name}") == told
    api.post(f"{BASE}/plans/{name}/apply", {}).ok(201)
    assert row(api, "plans") == told | {"State": "Running", "Applied By": "operator"}


def test_a_canary_is_printed_with_its_state(api):
    document = {
        "apiVersion": "stowage.dev/v1", "kind": "Canary", "metadata": {"name": "mine"},
        "spec": {"configuration": CONFIGURATION, "guardSeconds": 600},
    }  # fmt: skip
    api.post(f"{BASE}/canaries", document).ok(201)
    told = {
        "Name": "mine", "State": "Observing", "Guarded For": "<none>",
        "Message": "<none>",
    }  # fmt: skip
    assert row(api, "canaries") == told
    api.post(f"{BASE}/canaries/mine/switch", {}).ok(201)
    switched = row(api, "canaries/mine")
    assert re.fullmatch(r"10m|9m\d+s", switched["Guarded For"])
    assert switched["State"] == "Switched"


def test_a_webhook_is_printed_with_where_it_sends_to(api, settings):
    settings.WEBHOOK_TARGETS = ("hooks.example",)
    spec = {"url": "https://hooks.example/a", "types": ["evict", "bind"]}
    api.post(f"{BASE}/webhooks", {"metadata": {"name": "pager"}, "spec": spec}).ok(201)
    assert row(api, "webhooks") == {
        "Name": "pager", "URL": "https://hooks.example/a", "Types": "evict,bind",
        "Suspended": False, "Delivered": 0, "Refused": 0, "Next Try": "<none>",
        "Failures": 0, "Gaps": 0,
    }  # fmt: skip


def test_a_brake_is_printed_with_the_share_that_would_leave(api, settings):
    settings.BRAKE_NAMESPACE_PERCENT = 50
    api.post("/api/v1/nodes", make_node("n1").offers(cpu="64", pods="110").manifest).ok(201)
    for number in range(20):
        pod = make_pod(f"a-{number}").in_namespace("ns").on("n1").manifest
        api.post("/api/v1/namespaces/ns/pods", pod).ok(201)
    refused = None
    for number in range(20):
        body = {"metadata": {"name": f"a-{number}"}}
        answer = api.post(f"/api/v1/namespaces/ns/pods/a-{number}/eviction", body)
        refused = refused or (number if answer.status == 429 else None)
    told = row(api, "brakes")
    assert told["Leaving"].endswith("/20")
    assert {key: told[key] for key in ("Name", "State", "Limit", "Approved By", "For")} == {
        "Name": "namespace.ns", "State": "Held", "Limit": "50%", "Approved By": "<none>",
        "For": "<none>",
    }  # fmt: skip
    api.post(f"{BASE}/brakes/namespace.ns/approve", {}).ok(201)
    told = row(api, "brakes")
    assert (told["State"], told["Approved By"]) == ("Approved", "operator")
    assert told["For"] in ("59m", "60m")
    assert refused is not None


def test_a_decision_is_printed_with_pod_and_node(api, runner):
    api.post("/api/v1/nodes", make_node("n1").manifest).ok(201)
    api.post("/api/v1/namespaces/ns/pods", make_pod("a").in_namespace("ns").manifest).ok(201)
    runner.turn()
    told = row(api, "decisions")
    assert {key: told[key] for key in ("Pod", "Outcome", "Node", "Feasible")} == {
        "Pod": "ns/a", "Outcome": "scheduled", "Node": "n1", "Feasible": "1/1",
    }  # fmt: skip

"""Autoscalers of ``autoscaling/v1`` and ``autoscaling/v2`` are one store, each in its own form."""

import http.client
import json

import pytest

from clusterstate.objects.wire import protobuf
from tests.api.conftest import APPLY, JSON_PATCH, TABLE, Api, make_token

pytestmark = pytest.mark.django_db

PROTOBUF = "application/vnd.kubernetes.protobuf"


SENT = {
    "apiVersion": "autoscaling/v1",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 3,
        "targetCPUUtilizationPercentage": 80,
    },
}
SECOND = "/apis/autoscaling/v2/namespaces/ns/horizontalpodautoscalers"
FIRST = SECOND.replace("v2", "v1")

MEMORY = {
    "type": "Resource",
    "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 50}},
}
BEHAVIOR = {"scaleDown": {"stabilizationWindowSeconds": 60}}


@pytest.mark.parametrize("form", ["application/json", PROTOBUF])
def test_an_autoscaler_of_version_1_is_answered_as_sent_and_kept_as_version_2(api, form):
    body = protobuf.encode(SENT) if form == PROTOBUF else SENT
    made = api.post(FIRST, body, content_type=form).ok(201)
    assert (made["apiVersion"], made["spec"]) == ("autoscaling/v1", SENT["spec"])
    kept = api.get(f"{SECOND}/web").ok()
    assert kept["apiVersion"] == "autoscaling/v2"
    assert kept["metadata"]["uid"] == made["metadata"]["uid"]
    target = {"type": "Utilization", "averageUtilization": 80}
    assert kept["spec"]["metrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    ]
    assert "targetCPUUtilizationPercentage" not in kept["spec"]


def test_a_wrong_autoscaler_of_version_1_changes_nothing(api):
    spec = {**SENT["spec"], "targetCPUUtilizationPercentage": "much"}
    api.post(FIRST, {**SENT, "spec": spec}).fails(400, "BadRequest")
    api.post(FIRST, {**SENT, "apiVersion": "autoscaling/v2"}).fails(400, "BadRequest")
    assert api.get(SECOND).ok()["items"] == []


@pytest.fixture
def web(api):
    """Create one by version 2, with what version 1 does not know."""
    target = {"type": "Utilization", "averageUtilization": 80}
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    spec = {**SENT["spec"], "metrics": [MEMORY, cpu], "behavior": BEHAVIOR}
    del spec["targetCPUUtilizationPercentage"]
    body = {**SENT, "apiVersion": "autoscaling/v2", "spec": spec}
    return api.post(SECOND, body).ok(201)


def metrics(api):
    spec = api.get(f"{SECOND}/web").ok()["spec"]
    assert BEHAVIOR["scaleDown"].items() <= spec["behavior"]["scaleDown"].items()
    found = {one["resource"]["name"]: one["resource"]["target"] for one in spec["metrics"]}
    return {name: target["averageUtilization"] for name, target in found.items()}


def test_one_of_version_2_is_read_and_listed_as_version_1(api, web):
    one = api.get(f"{FIRST}/web").ok()
    assert one["spec"] == SENT["spec"]
    assert one["metadata"] == web["metadata"]
    assert set(one["status"]) <= {"currentReplicas", "desiredReplicas"}
    listed = api.get(FIRST).ok()
    assert (listed["apiVersion"], listed["kind"]) == (
        "autoscaling/v1", "HorizontalPodAutoscalerList",
    )  # fmt: skip
    assert [item["spec"] for item in listed["items"]] == [SENT["spec"]]
    assert api.get("/apis/autoscaling/v1/horizontalpodautoscalers").ok()["items"]
    assert api.get(FIRST, accept=TABLE).ok()["kind"] == "Table"


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        ("application/merge-patch+json", {"spec": {"targetCPUUtilizationPercentage": 60}}),
        ("application/strategic-merge-patch+json",
         {"spec": {"targetCPUUtilizationPercentage": 60}}),
        (JSON_PATCH,
         [{"op": "replace", "path": "/spec/targetCPUUtilizationPercentage", "value": 60}]),
    ],
)  # fmt: skip
def test_a_patch_is_about_version_1_and_leaves_the_rest(api, web, content_type, patch):
    done = api.patch(f"{FIRST}/web", patch, content_type=content_type).ok()
    assert done["spec"] == {**SENT["spec"], "targetCPUUtilizationPercentage": 60}
    assert metrics(api) == {"cpu": 60, "memory": 50}


def test_replacing_and_applying_version_1_leave_the_rest(api, web):
    spec = {**SENT["spec"], "targetCPUUtilizationPercentage": 70, "maxReplicas": 9}
    done = api.put(f"{FIRST}/web", {**SENT, "spec": spec}).ok()
    assert done["spec"] == spec
    assert metrics(api) == {"cpu": 70, "memory": 50}
    applied = {**SENT, "metadata": {"name": "other"}}
    path = f"{FIRST}/other?fieldManager=me"
    made = api.patch(path, applied, content_type=APPLY).ok(201)
    assert (made["apiVersion"], made["spec"]) == ("autoscaling/v1", SENT["spec"])


def test_a_status_of_version_1_leaves_conditions_and_the_spec(api, web):
    conditions = [{"type": "AbleToScale", "status": "True"}]
    api.patch(f"{SECOND}/web/status", {"status": {"conditions": conditions}}).ok()
    status = {"currentReplicas": 2, "desiredReplicas": 3, "currentCPUUtilizationPercentage": 41}
    done = api.patch(f"{FIRST}/web/status", {"status": status}).ok()
    assert done["status"].items() >= status.items()
    kept = api.get(f"{SECOND}/web").ok()
    assert kept["status"]["conditions"][0]["type"] == "AbleToScale"
    assert kept["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"] == 41
    assert metrics(api) == {"cpu": 80, "memory": 50}


def test_deleting_by_version_1(api, web):
    api.delete(f"{FIRST}/web").ok()
    api.get(f"{SECOND}/web").fails(404, "NotFound")


@pytest.mark.django_db(transaction=True)
def test_a_watch_shows_version_1(server):
    api = Api(make_token("operator", ["system:masters"]))
    api.post("/api/v1/namespaces", {"metadata": {"name": "ns"}}).ok(201)
    api.post(FIRST, SENT).ok(201)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    headers = {"Authorization": f"Bearer {api.token}"}
    connection.request("GET", f"{FIRST}?watch=true&timeoutSeconds=30", headers=headers)
    answer = connection.getresponse()
    added = json.loads(answer.readline())
    api.patch(f"{SECOND}/web", {"spec": {"maxReplicas": 7}}).ok()
    changed = json.loads(answer.readline())
    connection.close()
    answer.close()
    assert [added["type"], changed["type"]] == ["ADDED", "MODIFIED"]
    assert added["object"]["spec"] == SENT["spec"]
    assert changed["object"]["spec"] == {**SENT["spec"], "maxReplicas": 7}
    assert changed["object"]["apiVersion"] == "autoscaling/v1"


def test_discovery_names_both_versions_and_prefers_the_second(api):
    group = api.get("/apis/autoscaling").ok()
    assert [one["version"] for one in group["versions"]] == ["v2", "v1"]
    assert group["preferredVersion"]["version"] == "v2"
    for path in (FIRST, SECOND):
        version = path.removeprefix("/apis/autoscaling/").partition("/")[0]
        listed = api.get(f"/apis/autoscaling/{version}").ok()["resources"]
        names = {entry["name"] for entry in listed}
        assert names == {"horizontalpodautoscalers", "horizontalpodautoscalers/status"}

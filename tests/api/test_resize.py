"""``pods/resize`` over HTTP: every way to ask for it, and who may."""

import json

import pytest

from api.description import discovery
from clusterstate.objects.wire import protobuf
from scheduling.controllers import resizes
from tests.api.builders import NODES, PODS, node, pod
from tests.api.conftest import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, grant, make_token
from tests.clock import NOW

pytestmark = pytest.mark.django_db

RESIZE = f"{PODS}/p/resize"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def amounts(cpu="1", memory="1Gi"):
    return {"requests": {"cpu": cpu, "memory": memory}}


def asking(cpu="1", memory="1Gi"):
    container = {"name": "c", "image": "example.com/i:1", "resources": amounts(cpu, memory)}
    return {"containers": [container]}


def patch(cpu, memory="1Gi"):
    return {"spec": {"containers": [{"name": "c", "resources": amounts(cpu, memory)}]}}


@pytest.fixture
def cluster(api):
    api.post(NODES, node("n")).ok(201)
    api.post(PODS, pod("p", nodeName="n", **asking())).ok(201)
    return api


def resources(found):
    return found["spec"]["containers"][0]["resources"]


def test_discovery_names_it():
    (entry,) = (
        one for one in discovery.resources("", "v1")["resources"] if one["name"] == "pods/resize"
    )
    assert entry == {
        "name": "pods/resize", "singularName": "", "namespaced": True, "kind": "Pod",
        "verbs": ["get", "patch", "update"],
    }  # fmt: skip


def test_openapi_describes_it(cluster):
    document = cluster.get("/openapi/v3/api/v1").ok()
    methods = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/resize"]
    assert {"get", "put", "patch"} <= methods.keys()
    assert methods["patch"]["operationId"] == "patchCoreV1NamespacedPodResize"


def test_it_shows_the_pod(cluster):
    assert cluster.get(RESIZE).ok() == cluster.get(f"{PODS}/p").ok()
    cluster.get(f"{PODS}/q/resize").fails(404, "NotFound")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (STRATEGIC, patch("2")),
        (MERGE, {"spec": asking("2")}),
        (
            JSON_PATCH,
            [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "2"}],
        ),
        (f"{APPLY}?", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **patch("2")}),
    ],
)
def test_every_patch_resizes(cluster, content_type, body):
    where = RESIZE
    if content_type.endswith("?"):
        content_type, where = APPLY, f"{RESIZE}?fieldManager=vpa&force=true"
    found = cluster.patch(where, body, content_type).ok()
    assert resources(found) == amounts("2")
    assert found["metadata"]["generation"] == 2
    assert found["status"]["observedGeneration"] == 2
    assert cluster.get(f"{PODS}/p").ok() == found


def test_a_put_resizes_and_changes_nothing_else(cluster):
    new = cluster.get(f"{PODS}/p").ok()
    resources(new)["requests"]["cpu"] = "2"
    new["metadata"]["labels"] = {"a": "b"}
    new["spec"]["containers"][0]["image"] = "example.com/other"
    found = cluster.put(RESIZE, new).ok()
    assert resources(found) == amounts("2")
    assert "labels" not in found["metadata"]
    assert found["spec"]["containers"][0]["image"] == "example.com/i:1"


def test_a_put_of_an_old_version_conflicts(cluster):
    new = cluster.get(f"{PODS}/p").ok()
    cluster.patch(RESIZE, patch("2"), STRATEGIC).ok()
    resources(new)["requests"]["cpu"] = "3"
    cluster.put(RESIZE, new).fails(409, "Conflict")


def test_protobuf_resizes(cluster):
    new = cluster.get(f"{PODS}/p").ok()
    resources(new)["requests"]["cpu"] = "2"
    answer = cluster.put(RESIZE, protobuf.encode(new), content_type=PROTOBUF, accept=PROTOBUF)
    assert answer.status == 200
    assert resources(protobuf.decode(answer.raw)) == amounts("2")


def test_the_pod_itself_refuses_a_resize(cluster):
    cluster.patch(f"{PODS}/p", patch("2"), STRATEGIC).fails(422, "Invalid")


def test_a_wrong_resize_names_the_field_and_changes_nothing(cluster):
    before = cluster.get(f"{PODS}/p").ok()
    body = [{"op": "remove", "path": "/spec/containers/0/resources/requests/cpu"}]
    refused = cluster.patch(RESIZE, body, JSON_PATCH).fails(422, "Invalid")
    assert refused["details"]["causes"] == [
        {
            "reason": "FieldValueForbidden",
            "message": "Forbidden: resource requests cannot be removed",
            "field": "spec.containers[0].resources.requests",
        }
    ]
    assert cluster.get(f"{PODS}/p").ok() == before


def test_a_node_that_is_too_small_refuses_with_the_cause_that_autoscalers_look_for(cluster):
    refused = cluster.patch(RESIZE, patch("40"), STRATEGIC).fails(403, "Forbidden")
    assert refused["details"]["causes"] == [{"reason": "NodeCapacity"}]
    assert "cpu, requested: 40000, allocatable: 4000" in refused["message"]


def test_a_dry_run_tells_what_would_become_of_it(cluster):
    cluster.post(PODS, pod("q", nodeName="n", **asking("3"))).ok(201)
    before = cluster.get(f"{PODS}/p").ok()
    answer = cluster.patch(f"{RESIZE}?dryRun=All", patch("2"), STRATEGIC)
    told = {one["type"]: one["reason"] for one in answer.ok()["status"]["conditions"]
            if "reason" in one}  # fmt: skip
    assert told["PodResizePending"] == "Deferred"
    assert 'node \\"n\\" has no agent' in answer.headers["Warning"]
    assert cluster.get(f"{PODS}/p").ok() == before


def test_who_applies_owns_the_resources_and_nothing_else(cluster):
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
            **patch("2")}  # fmt: skip
    body["spec"]["tolerations"] = [{"key": "k", "operator": "Exists"}]
    found = cluster.patch(f"{RESIZE}?fieldManager=vpa&force=true", body, APPLY).ok()
    (entry,) = (one for one in found["metadata"]["managedFields"] if one["manager"] == "vpa")
    assert entry["subresource"] == "resize"
    assert entry["operation"] == "Apply"
    owned = json.dumps(entry["fieldsV1"])
    assert "f:cpu" in owned
    assert "toleration" not in owned
    assert "label" not in owned
    other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **patch("3")}
    cluster.patch(f"{RESIZE}?fieldManager=other", other, APPLY).fails(409, "Conflict")
    changed = cluster.patch(f"{RESIZE}?fieldManager=hand", patch("1"), STRATEGIC).ok()
    managers = {(one["manager"], one["operation"], one.get("subresource", ""))
                for one in changed["metadata"]["managedFields"]
                if "f:cpu" in json.dumps(one["fieldsV1"])}  # fmt: skip
    assert managers == {("hand", "Update", "resize")}


def test_the_right_is_one_of_its_own(cluster):
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}
    who = grant(cluster, "editor", [rule])
    who.patch(RESIZE, patch("2"), STRATEGIC).fails(403, "Forbidden")
    who = grant(cluster, "vpa", [{**rule, "resources": ["pods/resize"], "verbs": ["patch"]}])
    who.patch(RESIZE, patch("2"), STRATEGIC).ok()
    who.get(RESIZE).fails(403, "Forbidden")
    operator = Api(make_token("someone", ["stowage:operator"]))
    assert resources(operator.patch(RESIZE, patch("3"), STRATEGIC).ok()) == amounts("3")


def test_a_node_may_not_resize(cluster):
    agent = Api(make_token("system:node:n", ["system:nodes"]))
    agent.patch(RESIZE, patch("2"), STRATEGIC).fails(403, "Forbidden")


def test_a_past_version_is_shown(cluster):
    before = cluster.get(f"{PODS}/p").ok()
    cluster.patch(RESIZE, patch("2"), STRATEGIC).ok()
    version = before["metadata"]["resourceVersion"]
    query = f"?resourceVersion={version}&resourceVersionMatch=Exact"
    assert resources(cluster.get(RESIZE + query).ok()) == amounts("1")


def test_what_an_agent_tells_of_a_pod_that_asks_for_nothing_is_kept(cluster):
    """An agent that reads back less than it told would tell it for ever."""
    cluster.post(PODS, pod("q", nodeName="n")).ok(201)
    told = {"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0,
            "state": {"running": {}}, "resources": {}}  # fmt: skip
    cluster.patch(f"{PODS}/q/status", {"status": {"containerStatuses": [told]}}).ok()
    (kept,) = cluster.get(f"{PODS}/q").ok()["status"]["containerStatuses"]
    assert kept["resources"] == {}


@pytest.mark.parametrize("amount", ["abc", "-1", "1e400", "", "9" * 40])
def test_amounts_of_any_kind_that_somebody_tells_stop_nobody(cluster, amount):
    """Whoever may write a status may write nonsense, of a pod or of another one on its node."""
    told = {
        "name": "c",
        "allocatedResources": {"cpu": amount},
        "resources": {"requests": {"cpu": amount}},
    }
    for name in ("p", "q"):
        if name == "q":
            cluster.post(PODS, pod("q", nodeName="n", **asking("2"))).ok(201)
        answer = cluster.patch(f"{PODS}/{name}/status", {"status": {"containerStatuses": [told]}})
        assert answer.status in (200, 400, 422), answer.raw
    for cpu in ("3", "1"):
        for name in ("p", "q"):
            answer = cluster.patch(f"{PODS}/{name}/resize", patch(cpu), STRATEGIC)
            assert answer.status in (200, 422), answer.raw
    resizes.follow(NOW)

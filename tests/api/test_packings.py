"""Packings over HTTP: the live world's waiting pods, and worlds of the document."""

import pytest

from tests.api.conftest import Api, grant
from tests.builders import make_node, make_pod

PACKINGS = "/apis/stowage.dev/v1/packings"


@pytest.fixture
def cluster(api: Api) -> Api:
    """Two nodes and pods that fit if the small ones go together."""
    for name in ("n1", "n2"):
        api.post("/api/v1/nodes", make_node(name).offers(cpu="4", pods="110").manifest).ok(201)
    for name, cpu in (("small-1", "2"), ("small-2", "2"), ("large", "4")):
        pod = make_pod(name).in_namespace("ns").asks(cpu=cpu).manifest
        api.post("/api/v1/namespaces/ns/pods", pod).ok(201)
    return api


def test_pods_that_wait_are_packed_with_those_of_the_document(cluster: Api) -> None:
    status = cluster.post(PACKINGS, {"spec": {}}).ok(201)["status"]
    assert (status["placed"], status["of"], status["schedulerAlone"]) == (3, 3, 2)
    places = {one["pod"]: one["nodeName"] for one in status["pods"]}
    assert places["ns/small-1"] == places["ns/small-2"] != places["ns/large"]
    assert status["bound"]["verdict"] == "ProvedBest"
    more = make_pod("more").in_namespace("ns").asks(cpu="1").manifest
    status = cluster.post(PACKINGS, {"spec": {"pods": [more]}}).ok(201)["status"]
    assert status["of"] == 4
    assert status["placed"] == 3
    assert status["bound"]["atMost"] == 3
    wrong = cluster.post(PACKINGS, {"spec": {"move": "Always", "unknown": 1}}).fails(422, "Invalid")
    assert {one["field"] for one in wrong["details"]["causes"]} == {"spec.move", "spec.unknown"}
    assert [
        one["nodeName"]
        for one in cluster.get("/api/v1/pods").ok()["items"]
        if "nodeName" in one["spec"]
    ] == []


def test_a_world_of_the_document_needs_no_cluster(api: Api) -> None:
    objects = [make_node("n").offers(cpu="1", pods="5").manifest]
    spec = {"base": "empty", "objects": objects, "pods": [make_pod("p").asks(cpu="1").manifest]}
    status = api.post(PACKINGS, {"spec": spec}).ok(201)["status"]
    assert [one["nodeName"] for one in status["pods"]] == ["n"]


def test_who_may_not_list_pods_may_not_ask(cluster: Api) -> None:
    rules = [{"apiGroups": ["stowage.dev"], "resources": ["packings"], "verbs": ["create"]}]
    stranger = grant(cluster, "stranger", rules)
    stranger.post(PACKINGS, {"spec": {}}).fails(403, "Forbidden")

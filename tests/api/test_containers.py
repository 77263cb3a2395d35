"""What needs a running container is refused with a reason, and what kubectl autoscale sends."""

import pytest

from clusterstate.objects import protobuf
from tests.api.builders import node, pod
from tests.api.conftest import Api, make_token

pytestmark = pytest.mark.django_db

PROTOBUF = "application/vnd.kubernetes.protobuf"
PODS = "/api/v1/namespaces/ns/pods"
REFUSED = [
    ("GET", f"{PODS}/p/log", "no logs to read"),
    ("POST", f"{PODS}/p/exec?command=ls&stdout=true", "no process to attach to"),
    ("GET", f"{PODS}/p/exec", "no process to attach to"),
    ("POST", f"{PODS}/p/attach", "no process to attach to"),
    ("POST", f"{PODS}/p/portforward", "no port to connect to"),
    ("PATCH", f"{PODS}/p/ephemeralcontainers", "no container can be added"),
    ("GET", f"{PODS}/p/proxy/any/path", "no port to connect to"),
    ("DELETE", f"{PODS}/p:8080/proxy", "no port to connect to"),
    ("GET", "/api/v1/namespaces/ns/services/web:http/proxy/", "no port to connect to"),
    ("PUT", "/api/v1/nodes/n/proxy/metrics", "no port to connect to"),
]


@pytest.fixture
def cluster(api):
    api.post("/api/v1/nodes", node("n")).ok(201)
    api.post(PODS, pod("p")).ok(201)
    web = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    api.post("/api/v1/namespaces/ns/services", web).ok(201)
    return api


@pytest.mark.parametrize(("method", "path", "reason"), REFUSED)
def test_what_needs_a_running_container_is_refused_with_the_reason(cluster, method, path, reason):
    body = None if method in ("GET", "DELETE") else {}
    refused = cluster.call(method, path, body).fails(405, "MethodNotAllowed")
    assert "runs no containers" in refused["message"]
    assert reason in refused["message"]
    Api(make_token("nobody", ["team"])).call(method, path, body).fails(403, "Forbidden")


def test_of_a_pod_that_is_not_there_that_is_said(cluster):
    missing = cluster.get(f"{PODS}/other/log").fails(404, "NotFound")
    assert missing["message"] == 'pods "other" not found'


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


@pytest.mark.parametrize("form", ["application/json", PROTOBUF])
def test_an_autoscaler_of_version_1_is_answered_as_sent_and_kept_as_version_2(cluster, form):
    body = protobuf.encode(SENT) if form == PROTOBUF else SENT
    made = cluster.post(FIRST, body, content_type=form).ok(201)
    assert (made["apiVersion"], made["spec"]) == ("autoscaling/v1", SENT["spec"])
    kept = cluster.get(f"{SECOND}/web").ok()
    assert kept["apiVersion"] == "autoscaling/v2"
    assert kept["metadata"]["uid"] == made["metadata"]["uid"]
    target = {"type": "Utilization", "averageUtilization": 80}
    assert kept["spec"]["metrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    ]
    assert "targetCPUUtilizationPercentage" not in kept["spec"]


def test_a_wrong_autoscaler_of_version_1_changes_nothing(cluster):
    spec = {**SENT["spec"], "targetCPUUtilizationPercentage": "much"}
    cluster.post(FIRST, {**SENT, "spec": spec}).fails(400, "BadRequest")
    cluster.post(FIRST, {**SENT, "apiVersion": "autoscaling/v2"}).fails(400, "BadRequest")
    assert cluster.get(SECOND).ok()["items"] == []

"""What needs a running container is refused with a reason."""

import pytest

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

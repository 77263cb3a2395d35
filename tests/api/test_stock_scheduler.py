"""What a stock kube-scheduler 1.36 asks, from its start to a bound pod, by its own name and rights.

Requests as client-go writes them: bodies in protobuf, and the lists of the informers as watches
that begin with what there is (WatchList). Source: cmd/kube-scheduler/app/server.go,
pkg/scheduler/scheduler.go, eventhandlers.go, v1.36.
"""

import http.client
import json
from typing import Any

import pytest

from clusterstate.objects.wire.protobuf import decode, encode
from tests.api.builders import node, pod
from tests.api.conftest import Api, make_token
from tests.api.serve import request
from tests.api.test_protobuf import frames

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

PROTOBUF = "application/vnd.kubernetes.protobuf"
INFORMERS = {
    "/api/v1/namespaces": "",
    "/api/v1/nodes": "",
    "/api/v1/persistentvolumeclaims": "",
    "/api/v1/persistentvolumes": "",
    "/api/v1/pods": "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&",
    "/api/v1/replicationcontrollers": "",
    "/api/v1/services": "",
    "/apis/apps/v1/replicasets": "",
    "/apis/apps/v1/statefulsets": "",
    "/apis/policy/v1/poddisruptionbudgets": "",
    "/apis/resource.k8s.io/v1/deviceclasses": "",
    "/apis/resource.k8s.io/v1/resourceclaims": "",
    "/apis/resource.k8s.io/v1/resourceslices": "",
    "/apis/storage.k8s.io/v1/csidrivers": "",
    "/apis/storage.k8s.io/v1/csinodes": "",
    "/apis/storage.k8s.io/v1/csistoragecapacities": "",
    "/apis/storage.k8s.io/v1/storageclasses": "",
    "/apis/storage.k8s.io/v1/volumeattachments": "",
}
"""What its informers read, and the selector where there is one."""
BEGIN = (
    "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
    "&timeoutSeconds=431&watch=true"
)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Program:
    """A program of Kubernetes: one connection, protobuf both ways."""

    def __init__(self, server: Any, name: str) -> None:
        self.server = server
        self.token = make_token(name, [])
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)

    def ask(self, method: str, path: str, body: Any = None, content_type: str = PROTOBUF) -> Any:
        """Return status and answer, which is decoded by its media type, as client-go does."""
        data = encode(body) if isinstance(body, dict) else body
        headers = {"Authorization": f"Bearer {self.token}", "Accept": PROTOBUF}
        if data is not None:
            headers["Content-Type"] = content_type
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        raw = answer.read()
        if answer.headers["Content-Type"] == PROTOBUF:
            return answer.status, decode(raw)
        assert answer.status >= 400, "only a refusal may be in JSON"
        return answer.status, json.loads(raw)

    def begin(self, path: str, count: int) -> list[tuple[str, dict[str, Any]]]:
        """Return the first events of a watch that begins with what there is."""
        with self.server.connect() as connection:
            connection.sendall(request("GET", path, self.token, accept=f"{PROTOBUF};stream=watch"))
            return frames(connection, count)


@pytest.fixture
def cluster(server):
    api = Api(make_token("operator", ["system:masters"]))
    for name in ("ns", "kube-system"):
        api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    api.post("/api/v1/nodes", node("n")).ok(201)
    waiting = pod("waiting")
    waiting["spec"]["schedulerName"] = "stock"
    api.post("/api/v1/namespaces/ns/pods", waiting).ok(201)
    return api


@pytest.fixture
def scheduler(server, cluster):
    return Program(server, "system:kube-scheduler")


def test_every_informer_begins(scheduler):
    """Each watch tells what there is and that this was all of it; the pod and the node are seen."""
    seen = set()
    for path, selector in INFORMERS.items():
        status, listed = scheduler.ask("GET", f"{path}?{selector}limit=500&resourceVersion=0")
        assert status == 200, (path, listed)
        assert listed["kind"].endswith("List")
        there = listed.get("items") or []
        events = scheduler.begin(f"{path}?{selector}{BEGIN}", len(there) + 1)
        assert [kind for kind, _ in events] == ["ADDED"] * len(there) + ["BOOKMARK"], path
        marks = events[-1][1]["metadata"]
        assert marks["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert marks["resourceVersion"]
        seen |= {(item["kind"], item["metadata"]["name"]) for _, item in events[:-1]}
    assert {("Pod", "waiting"), ("Node", "n")} <= seen


def test_it_leads_by_a_lease_that_it_renews(scheduler):
    assert scheduler.ask("GET", f"{LEASES}/kube-scheduler")[0] == 404
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "host_1",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-11-22T10:00:00.000000Z",
            "renewTime": "2026-11-22T10:00:00.000000Z",
            "leaseTransitions": 0,
        },
    }
    status, made = scheduler.ask("POST", LEASES, lease)
    assert (status, made["spec"]["holderIdentity"]) == (201, "host_1")
    made["spec"]["renewTime"] = "2026-11-22T10:00:02.000000Z"
    status, renewed = scheduler.ask("PUT", f"{LEASES}/kube-scheduler", made)
    assert (status, renewed["spec"]["renewTime"]) == (200, "2026-11-22T10:00:02.000000Z")
    assert scheduler.ask("PUT", f"{LEASES}/kube-scheduler", made)[0] == 409, "somebody else led"
    assert (
        scheduler.ask("PUT", f"{LEASES}/other", {**made, "metadata": {"name": "other"}})[0] == 403
    )


def test_it_says_why_a_pod_waits_then_binds_it_and_tells(scheduler, cluster):
    path = "/api/v1/namespaces/ns/pods/waiting"
    _, seen = scheduler.ask("GET", path)
    waits = {
        "status": {
            "conditions": [
                {
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": "0/1 nodes are available: 1 Insufficient cpu.",
                }
            ]
        }
    }  # fmt: skip
    patch = json.dumps(waits).encode()
    status, told = scheduler.ask(
        "PATCH", f"{path}/status", patch, "application/strategic-merge-patch+json"
    )
    assert status == 200
    assert told["status"]["conditions"][0]["reason"] == "Unschedulable"
    bind = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "waiting", "namespace": "ns", "uid": seen["metadata"]["uid"]},
        "target": {"kind": "Node", "name": "n"},
    }
    status, done = scheduler.ask("POST", f"{path}/binding", bind)
    assert (status, done["kind"], done["status"]) == (201, "Status", "Success")
    assert cluster.get(path).ok()["spec"]["nodeName"] == "n"
    assert scheduler.ask("POST", f"{path}/binding", bind)[0] == 409
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "waiting.1", "namespace": "ns"},
        "eventTime": "2026-11-22T10:00:00.000000Z",
        "reportingController": "stock",
        "reportingInstance": "stock-host",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {"kind": "Pod", "namespace": "ns", "name": "waiting", "apiVersion": "v1"},
        "note": "Successfully assigned ns/waiting to n",
        "type": "Normal",
    }
    assert scheduler.ask("POST", "/apis/events.k8s.io/v1/namespaces/ns/events", event)[0] == 201
    (kept,) = cluster.get("/api/v1/namespaces/ns/events").ok()["items"]
    assert (kept["reason"], kept["involvedObject"]["name"]) == ("Scheduled", "waiting")


def test_it_may_nothing_else(scheduler):
    assert scheduler.ask("GET", "/api/v1/secrets")[0] == 403
    assert scheduler.ask("DELETE", "/api/v1/nodes/n")[0] == 403

"""A request is answered alike in a batch and alone, whatever the answer is.

Each row of the table is one request, sent twice to the same state of things: once through the lane
that answers in batches, once through Django alone. Status, headers and body must be equal, but for
what is new with every object (its uid, and revisions).
"""

import json
import re

import pytest
from django.core.wsgi import get_wsgi_application
from django.db import connection, transaction

from api import clock
from api.running import Runner, Work
from api.server import audit, room
from api.server.sessions import Sessions
from clusterstate.actions import objects
from clusterstate.objects.values.errors import TooManyRequests
from clusterstate.objects.wire import protobuf
from clusterstate.processes import memory
from tests.api.bodies import body_of, collection, named
from tests.api.builders import NODES, PODS, node, pod
from tests.api.conftest import TABLE, make_token
from tests.api.test_every_kind import FIRST
from tests.clock import NOW
from tests.forms import few

PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON = "application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
HEARTBEATS = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


def lease(name="n", version=None, second=5, **spec):
    """A node's lease as its agent renews it."""
    meta = {"name": name} if version is None else {"name": name, "resourceVersion": version}
    return {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta,
        "spec": {"holderIdentity": "n", "renewTime": f"2026-11-21T12:00:0{second}.000000Z", **spec},
    }  # fmt: skip


def heard(ready):
    condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": "2026-11-21T12:00:05Z"}
    return {"status": {"conditions": [condition]}}


LIST = {"kind": "PodList", "apiVersion": "v1", "items": [pod("a"), pod("b")]}

REQUESTS = [
    # method, path, body, status, and what differs from an ordinary request
    ("POST", PODS, pod("new"), 201, {}),
    ("POST", f"{PODS}?pretty=true", pod("new"), 201, {}),
    ("POST", f"{PODS}?dryRun=All", pod("new"), 201, {}),
    ("POST", f"{PODS}?fieldManager=me", pod("new"), 201, {}),
    ("POST", PODS, pod("new", flurb=1), 201, {}),
    ("POST", PODS, pod("new"), 201, {"accept": TABLE}),
    ("POST", PODS, pod("new"), 201, {"accept": PARTIAL}),
    ("POST", PODS, pod("new"), 201, {"accept": "application/yaml"}),
    ("POST", PODS, pod("new"), 201, {"accept": PROTOBUF}),
    ("POST", PODS, LIST, 201, {}),
    ("POST", PODS, b"metadata: {name: y}\nspec: {containers: [{name: c, image: i}]}\n", 201,
     {"content_type": "application/yaml"}),
    ("POST", NODES, node("new"), 201, {}),
    ("POST", LEASES, {"metadata": {"name": "new"}}, 201, {}),
    ("POST", PODS, b"", 400, {}),
    ("POST", PODS, b"{", 400, {}),
    ("POST", PODS, [], 400, {}),
    ("POST", PODS, {"kind": "Node"}, 400, {}),
    ("POST", PODS, pod("new", containers=5), 400, {}),
    ("POST", f"{PODS}?fieldValidation=Strict", pod("new", flurb=1), 400, {}),
    ("POST", f"{PODS}?pretty=perhaps", pod("new"), 400, {}),
    ("POST", f"{PODS}?timeout=soon", pod("new"), 400, {}),
    ("POST", f"{PODS}?includeObject=Half", pod("new"), 400, {"accept": TABLE}),
    ("POST", PODS, b"junk", 400, {"content_type": PROTOBUF}),
    ("POST", PODS, pod("new"), 401, {"token": "wrong"}),
    ("POST", PODS, pod("new"), 401, {"token": "wrong", "accept": PROTOBUF}),
    ("POST", PODS, pod("new"), 401, {"token": ""}),
    ("POST", PODS, pod("new"), 403, {"token": "reader"}),
    ("POST", f"{PODS}?pretty=perhaps", b"{", 403, {"token": "reader", "accept": "image/png"}),
    ("POST", PODS, pod("new", priorityClassName="none"), 403, {}),
    ("POST", "/api/v1/namespaces/nowhere/pods", pod("new"), 404, {}),
    ("POST", "/api/v1/pods", pod("new"), 405, {}),
    ("POST", PODS, pod("new"), 406, {"accept": "image/png"}),
    ("POST", PODS, pod("old"), 409, {}),
    ("POST", PODS, pod("old"), 409, {"accept": PROTOBUF}),
    ("POST", PODS, pod("old"), 409, {"accept": "application/yaml"}),
    ("POST", PODS, b" " * (4 << 20) + b"{}", 413, {}),
    ("POST", PODS, b"name,new", 415, {"content_type": "text/csv"}),
    ("POST", PODS, pod("BAD_name"), 422, {}),
    ("POST", f"{PODS}?dryRun=Some", pod("new"), 422, {}),
    ("POST", f"{PODS}?fieldManager={'x' * 200}", pod("new"), 422, {}),
    ("GET", f"{PODS}/old", None, 200, {}),
    ("GET", f"{PODS}/old?pretty=1", None, 200, {}),
    ("GET", f"{PODS}/old", None, 200, {"accept": TABLE}),
    ("GET", f"{PODS}/old?includeObject=Object", None, 200, {"accept": TABLE}),
    ("GET", f"{PODS}/old", None, 200, {"accept": PARTIAL}),
    ("GET", f"{PODS}/old", None, 200, {"accept": PROTOBUF}),
    ("GET", f"{PODS}/old", None, 200, {"accept": "application/yaml"}),
    ("GET", f"{PODS}/old", None, 200, {"token": "reader"}),
    ("GET", f"{PODS}/old?pretty=perhaps", None, 400, {}),
    ("GET", f"{PODS}/old", None, 401, {"token": "wrong"}),
    ("GET", f"{PODS}/old", None, 403, {"token": "nobody"}),
    ("GET", f"{PODS}/none", None, 403, {"token": "nobody"}),
    ("GET", f"{PODS}/none", None, 404, {}),
    ("GET", f"{PODS}/none", None, 404, {"accept": TABLE}),
    ("GET", f"{PODS}/old", None, 406, {"accept": "text/csv"}),
    ("DELETE", f"{PODS}/old", None, 200, {}),
    ("DELETE", f"{PODS}/old", None, 200, {"accept": PROTOBUF}),
    ("DELETE", f"{PODS}/old", {"gracePeriodSeconds": 0}, 200, {}),
    ("DELETE", f"{PODS}/old?dryRun=All", None, 200, {}),
    ("DELETE", f"{NODES}/n", None, 200, {}),
    ("DELETE", f"{PODS}/old?gracePeriodSeconds=x", None, 400, {}),
    ("DELETE", f"{PODS}/old", b"{", 400, {}),
    ("DELETE", f"{PODS}/old", None, 403, {"token": "reader"}),
    ("DELETE", f"{PODS}/none", None, 404, {}),
    ("DELETE", f"{PODS}/old", None, 406, {"accept": "image/png"}),
    ("DELETE", f"{PODS}/old", {"preconditions": {"uid": "another"}}, 409, {}),
    ("DELETE", f"{PODS}/old", b"x", 415, {"content_type": "text/csv"}),
    ("DELETE", f"{PODS}/old", {"propagationPolicy": "Sideways"}, 422, {}),
    ("PUT", f"{HEARTBEATS}/n", lease(), 422, {}),
    ("PUT", f"{HEARTBEATS}/n", lease(version="PRESENT"), 200, {}),
    ("PUT", f"{HEARTBEATS}/n", lease(version="PRESENT", second=0), 200, {}),
    ("PUT", f"{HEARTBEATS}/n", lease(version="PRESENT"), 200, {"accept": PROTOBUF}),
    ("PUT", f"{HEARTBEATS}/n", lease(version="PRESENT", holderIdentity="other"), 200, {}),
    ("PUT", f"{HEARTBEATS}/n?dryRun=All", lease(version="PRESENT"), 200, {}),
    ("PUT", f"{HEARTBEATS}/n", lease(version="1"), 409, {}),
    ("PUT", f"{HEARTBEATS}/n", lease(version="PRESENT", leaseDurationSeconds=-1), 422, {}),
    ("PUT", f"{HEARTBEATS}/n", lease(version="PRESENT"), 403, {"token": "nobody"}),
    ("PUT", f"{HEARTBEATS}/none", lease("none", version="1"), 404, {}),
    ("PUT", f"{HEARTBEATS}/none", lease("none"), 201, {}),
    ("PATCH", f"{HEARTBEATS}/n", lease(), 200, {"content_type": MERGE}),
    ("PATCH", f"{HEARTBEATS}/none", lease("none"), 404, {"content_type": MERGE}),
    ("PATCH", f"{NODES}/n/status", heard("True"), 200, {"content_type": MERGE}),
    ("PATCH", f"{NODES}/n/status", heard("False"), 200, {"content_type": MERGE}),
    ("PATCH", f"{NODES}/none/status", heard("True"), 404, {"content_type": MERGE}),
    ("PATCH", f"{NODES}/n/status", {"status": 5}, 422, {"content_type": MERGE}),
    ("PATCH", f"{HEARTBEATS}/none?fieldManager=me", lease("none"), 201, {"content_type": APPLY}),
]  # fmt: skip


@pytest.fixture(scope="module")
def runner():
    return Runner(get_wsgi_application(), Sessions())


@pytest.fixture
def tokens(api, reader, monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: NOW)  # ages in tables
    api.post(NODES, node("n")).ok(201)
    api.post(PODS, pod("old")).ok(201)
    made = api.post(HEARTBEATS, lease(second=0)).ok(201)
    return {
        "PRESENT": made["metadata"]["resourceVersion"],
        "operator": api.token,
        "reader": reader.token,
        "nobody": make_token("nobody", ["team"]),
        "wrong": "wrong",
        "": "",
    }


def work(tokens, method, path, body, special):
    path, _, query = path.partition("?")
    headers = [
        (b"host", b"stowage"),
        (b"accept", special.get("accept", JSON).encode()),
        (b"content-type", special.get("content_type", JSON).encode()),
    ]
    token = tokens[special.get("token", "operator")]
    if token:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    scope = {
        "type": "http", "method": method, "path": path, "query_string": query.encode(),
        "http_version": "1.1", "headers": headers,
    }  # fmt: skip
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    raw = raw.replace(b"PRESENT", tokens["PRESENT"].encode())
    return Work(scope, raw, audit.opened(scope))


def answer(way, asked):
    """Return status, headers and body, without what is new each time; nothing stays written."""
    with transaction.atomic():
        ((status, headers, body),) = way([asked])
        transaction.set_rollback(True)
    memory.forget()
    kept = sorted(pair for pair in headers if pair[0] != b"content-length")
    return status, kept, body


def masked(text):
    """Return a text without what is new with every object."""
    text = re.sub(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", b"UID", text)
    text = re.sub(rb"\d{4}-\d\d-\d\dT[\d:.]+Z", b"TIME", text)
    return re.sub(rb'("?resourceVersion"?: ?)"?\'?\d+\'?"?', rb"\1N", text)


def told(body):
    """Return what protobuf says as JSON: its texts have lengths, so it cannot be masked itself."""
    return masked(json.dumps(protobuf.decode(body)).encode())


@pytest.mark.django_db
def test_both_ways_answer_alike(runner, tokens):
    assert {200, 201, 400, 401, 403, 404, 405, 406, 409, 413, 415, 422} == {
        row[3] for row in REQUESTS
    }
    for method, path, body, status, special in REQUESTS:
        about = (method, path, special)
        asked = work(tokens, method, path, body, special)
        together = answer(runner.together, asked)
        alone = answer(runner.one_by_one, asked)
        assert together[0] == alone[0] == status, (about, together, alone)
        assert together[1] == alone[1], about
        if special.get("accept") == PROTOBUF:
            assert told(together[2]) == told(alone[2]), about
        else:
            assert masked(together[2]) == masked(alone[2]), about
    assert not connection.needs_rollback


@pytest.mark.django_db
@pytest.mark.parametrize("kind", few(FIRST, 20), ids=lambda kind: kind.name)
def test_both_ways_write_every_kind_alike(runner, tokens, api, kind):
    api.post(collection(kind), body_of(kind, "there")).ok(201)
    path, one = collection(kind), f"{collection(kind)}/{named(kind, 'there')}"
    for method, where, body, status in (
        ("POST", path, body_of(kind, "made"), 201),
        ("POST", path, body_of(kind, "there"), 409),
        ("POST", path, {**body_of(kind, "made"), "unknown": 1}, 201),
        ("GET", one, None, 200),
        ("DELETE", f"{one}?gracePeriodSeconds=0", None, 200),
        ("DELETE", f"{path}/nowhere", None, 404),
    ):
        asked = work(tokens, method, where, body, {})
        together = answer(runner.together, asked)
        alone = answer(runner.one_by_one, asked)
        assert together[0] == alone[0] == status, (method, where, together, alone)
        assert [name for name, _ in together[1]] == [name for name, _ in alone[1]], (method, where)
        of_both = [dict(way[1]).get(b"warning") for way in (together, alone)]
        assert of_both[0] == of_both[1], (method, where)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("failure", "status"),
    [(room.errors.InsufficientStorage("full"), 507), (TooManyRequests("busy", {}), 429)],
)
def test_a_refusal_from_below_is_told_alike(runner, tokens, monkeypatch, failure, status):
    def refuse(*_, **__):
        raise failure

    monkeypatch.setattr(room, "require", refuse)
    monkeypatch.setattr(objects, "create_each", refuse)
    asked = work(tokens, "POST", PODS, pod("new"), {})
    together = answer(runner.together, asked)
    assert together == answer(runner.one_by_one, asked)
    assert together[0] == status


@pytest.mark.django_db
def test_whoever_looks_at_answers_sees_each_once(runner, tokens, monkeypatch):
    """The hook of an audit log: in a batch it sees the finished answer, not its place."""
    from api.kinds.viewsets import ObjectViewSet

    seen = []

    def answered(self, request, response):
        seen.append((request.method, response.status_code, bool(response.content), self.user.name))

    monkeypatch.setattr(ObjectViewSet, "answered", answered)
    works = [
        work(tokens, "POST", PODS, pod("a"), {}), work(tokens, "POST", PODS, pod("a"), {}),
        work(tokens, "GET", f"{PODS}/old", None, {}),
        work(tokens, "DELETE", f"{PODS}/old", None, {}),
    ]  # fmt: skip
    runner.together(works)
    assert sorted(seen) == [
        ("DELETE", 200, True, "operator"), ("GET", 200, True, "operator"),
        ("POST", 201, True, "operator"), ("POST", 409, True, "operator"),
    ]  # fmt: skip
    seen.clear()
    runner.one_by_one(works[:3])
    assert [one[1] for one in seen[:2]] == [409, 409]
    assert len(seen) == 3


@pytest.mark.django_db
def test_a_failing_look_at_answers_changes_none(runner, tokens, monkeypatch):
    """What was done is done; and the thread of a batch must live on."""
    from api.kinds.viewsets import ObjectViewSet

    def answered(self, request, response):
        raise OSError("no room for the log")

    monkeypatch.setattr(ObjectViewSet, "answered", answered)
    asked = work(tokens, "POST", PODS, pod("a"), {})
    assert [status for status, _, _ in runner.together([asked])] == [201]
    assert [status for status, _, _ in runner.one_by_one([asked])] == [409]

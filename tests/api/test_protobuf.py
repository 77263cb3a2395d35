"""Bodies and answers in protobuf say what the same bodies and answers in JSON say."""

import json
import struct
from typing import Any

import pytest

from clusterstate.objects.wire.protobuf import decode, encode
from tests.api.conftest import make_token
from tests.api.serve import request
from tests.objects.test_protobuf import parsed

pytestmark = pytest.mark.django_db(transaction=True)

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
META = {"name": "one"}
LABELS = {"matchLabels": {"app": "a"}}
CONTAINER = {
    "name": "main", "image": "nginx:1", "ports": [{"containerPort": 80, "protocol": "TCP"}],
    "resources": {"requests": {"cpu": "100m"}},
    "livenessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 5},
    "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}],
}  # fmt: skip
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [CONTAINER]}}
POD_SPEC = {
    "containers": [CONTAINER],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute",
                     "tolerationSeconds": 0}],
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": LABELS, "topologyKey": "kubernetes.io/hostname"}]}},
}  # fmt: skip
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Pod": ("/api/v1/namespaces/default/pods", {"apiVersion": "v1", "spec": POD_SPEC}),
    "Node": (
        "/api/v1/nodes",
        {
            "apiVersion": "v1",
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "pods": "110"}, "capacity": {"cpu": "4"}},
        },
    ),
    "Namespace": ("/api/v1/namespaces", {"apiVersion": "v1"}),
    "Service": (
        "/api/v1/namespaces/default/services",
        {
            "apiVersion": "v1",
            "spec": {
                "selector": {"app": "a"}, "ports": [{"port": 80}],
                "clusterIP": "10.96.7.7",  # else each gets an address of its own
            },
        },
    ),
    "Event": (
        "/api/v1/namespaces/default/events",
        {
            "apiVersion": "v1", "reason": "R", "message": "M", "type": "Normal", "count": 1,
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "one"},
        },
    ),
    "Lease": (
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        {
            "apiVersion": "coordination.k8s.io/v1",
            "spec": {"holderIdentity": "h", "renewTime": "2026-11-22T01:02:03.000004Z"},
        },
    ),
    "RuntimeClass": (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "apiVersion": "node.k8s.io/v1", "handler": "kata",
            "overhead": {"podFixed": {"cpu": "250m"}},
        },
    ),
    "PriorityClass": (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"apiVersion": "scheduling.k8s.io/v1", "value": 0},
    ),
    "PodDisruptionBudget": (
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {"apiVersion": "policy/v1", "spec": {"maxUnavailable": "50%", "selector": {}}},
    ),
    "ReplicaSet": (
        "/apis/apps/v1/namespaces/default/replicasets",
        {"apiVersion": "apps/v1", "spec": {"replicas": 0, "selector": LABELS,
                                           "template": TEMPLATE}},
    ),
    "Deployment": (
        "/apis/apps/v1/namespaces/default/deployments",
        {"apiVersion": "apps/v1", "spec": {"replicas": 0, "selector": LABELS,
                                           "template": TEMPLATE}},
    ),
    "ReplicationController": (
        "/api/v1/namespaces/default/replicationcontrollers",
        {"apiVersion": "v1", "spec": {"replicas": 0, "selector": {"app": "a"},
                                      "template": TEMPLATE}},
    ),
    "LimitRange": (
        "/api/v1/namespaces/default/limitranges",
        {"apiVersion": "v1", "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}},
    ),
    "ResourceQuota": (
        "/api/v1/namespaces/default/resourcequotas",
        {"apiVersion": "v1", "spec": {"hard": {"pods": "10"}}},
    ),
}  # fmt: skip
SERVER_SET = ("uid", "resourceVersion", "creationTimestamp", "managedFields")


def stored(api: Any, path: str, manifest: dict[str, Any], media_type: str) -> dict[str, Any]:
    """Return what the server made of a body that it was to try only (dry run)."""
    body = encode(manifest) if media_type == MEDIA_TYPE else json.dumps(manifest).encode()
    found: dict[str, Any] = api.post(f"{path}?dryRun=All", body, content_type=media_type).ok(201)
    for name in SERVER_SET:
        found["metadata"].pop(name, None)
    return found


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_in_protobuf_makes_the_object_that_the_same_json_makes(api: Any, kind: str) -> None:
    path, manifest = BODIES[kind]
    manifest = {"kind": kind, "metadata": META, **manifest}
    in_protobuf = stored(api, path, manifest, MEDIA_TYPE)
    assert in_protobuf == stored(api, path, manifest, "application/json")


# Answers ------------------------------------------------------------------------------------------

PODS = "/api/v1/namespaces/default/pods"
FIRST_PROTOBUF = f"{MEDIA_TYPE},application/json"


@pytest.fixture
def root(server: Any) -> str:
    token: str = make_token("root", ["system:masters"])
    return token


def pod(name: str) -> bytes:
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": POD_SPEC}
    return encode(manifest)


def test_a_pod_is_created_read_listed_and_deleted_in_protobuf(server: Any, root: str) -> None:
    def ask(method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
        code, headers, answer = server.ask(
            method, path, root, body, accept=MEDIA_TYPE, content_type=MEDIA_TYPE
        )
        assert headers["content-type"] == MEDIA_TYPE
        return code, decode(answer)

    code, made = ask("POST", PODS, pod("a"))
    assert (code, made["kind"], made["metadata"]["name"]) == (201, "Pod", "a")
    code, found = ask("GET", f"{PODS}/a")
    in_json = json.loads(server.ask("GET", f"{PODS}/a", root)[2])
    assert code == 200
    assert decode(encode(in_json)) == found
    code, listed = ask("GET", PODS)
    assert (code, listed["kind"]) == (200, "PodList")
    assert listed["metadata"]["resourceVersion"]
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]
    code, status = ask("POST", PODS, pod("a"))
    assert (code, status["kind"], status["reason"]) == (409, "Status", "AlreadyExists")
    code, status = ask("GET", f"{PODS}/b")
    assert (code, status["details"]["name"]) == (404, "b")
    assert ask("DELETE", f"{PODS}/a?gracePeriodSeconds=0")[0] == 200


def test_what_is_named_first_is_given(server: Any, root: str) -> None:
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    for accept in (FIRST_PROTOBUF, f"{MEDIA_TYPE}, */*", f"{MEDIA_TYPE},{table}"):
        _, headers, answer = server.ask("GET", PODS, root, accept=accept)
        assert headers["content-type"] == MEDIA_TYPE
        assert decode(answer)["kind"] == "PodList"
        code, headers, answer = server.ask("GET", f"{PODS}/none", root, accept=accept)
        assert (code, headers["content-type"]) == (404, MEDIA_TYPE)
        assert decode(answer)["kind"] == "Status"
    for accept, kind in ((f"{table},{MEDIA_TYPE}", "Table"), (f"*/*,{MEDIA_TYPE}", "PodList")):
        _, headers, answer = server.ask("GET", PODS, root, accept=accept)
        assert headers["content-type"] == "application/json"
        assert json.loads(answer)["kind"] == kind


def test_a_watch_comes_in_what_is_named_first(server: Any, root: str) -> None:
    assert server.ask("POST", PODS, root, pod("a"), content_type=MEDIA_TYPE)[0] == 201
    with server.connect() as connection:
        connection.sendall(request("GET", f"{PODS}?watch=true", root, accept=FIRST_PROTOBUF))
        ((verb, item),) = frames(connection, 1)
    assert (verb, item["metadata"]["name"]) == ("ADDED", "a")


def test_what_has_no_protobuf_is_json_or_not_acceptable(server: Any, root: str) -> None:
    path = "/apis/stowage.dev/v1/evictions"
    code, headers, _ = server.ask("GET", path, root, accept=FIRST_PROTOBUF)
    assert (code, headers["content-type"]) == (200, "application/json")
    code, headers, answer = server.ask("GET", path, root, accept=MEDIA_TYPE)
    assert code == 406
    assert decode(answer)["reason"] == "NotAcceptable"


PARTIAL = f"{MEDIA_TYPE};as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("token", "method", "path", "code"),
    [
        ("wrong", "GET", PODS, 401),
        ("wrong", "GET", f"{PODS}?watch=true", 401),
        ("nobody", "GET", PODS, 403),
        ("nobody", "POST", PODS, 403),  # refused before the body is read
        ("nobody", "GET", f"{PODS}?watch=true", 403),
        ("nobody", "GET", f"{PODS}/a?waitFor=PodScheduled", 403),
        ("root", "GET", "/no/such/path", 404),
        ("root", "GET", "/apis/no.such/v1/things", 404),
        ("root", "GET", f"{PODS}?labelSelector=%00", 400),
        ("root", "GET", f"{PODS}?watch=true&labelSelector=%21%21", 400),
    ],
)
def test_a_failure_outside_of_views_is_a_status_in_protobuf(
    server: Any, token: str, method: str, path: str, code: int
) -> None:
    known = {"root": ["system:masters"], "nobody": ["team"]}
    secret = make_token(token, known[token]) if token in known else token
    body = pod("a") if method == "POST" else b""
    for accept in (MEDIA_TYPE, PARTIAL % ""):
        found, headers, answer = server.ask(
            method, path, secret, body, accept=accept, content_type=MEDIA_TYPE
        )
        assert (found, headers["content-type"]) == (code, MEDIA_TYPE), answer
        status = decode(answer)
        assert (status["kind"], status["code"]) == ("Status", code)
        assert status["message"]


def test_metadata_alone_comes_in_protobuf(server: Any, root: str) -> None:
    assert server.ask("POST", PODS, root, pod("a"), content_type=MEDIA_TYPE)[0] == 201
    _, headers, answer = server.ask("GET", f"{PODS}/a", root, accept=PARTIAL % "")
    in_json = json.loads(server.ask("GET", f"{PODS}/a", root)[2])
    assert headers["content-type"] == MEDIA_TYPE
    found = decode(answer)
    assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert found["metadata"] == decode(encode(in_json))["metadata"]
    assert "spec" not in found
    found = decode(server.ask("GET", PODS, root, accept=PARTIAL % "List")[2])
    assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert found["metadata"]["resourceVersion"]
    assert [item["metadata"]["name"] for item in found["items"]] == ["a"]
    # So do objects whose own kind has no protobuf message.
    path = "/apis/stowage.dev/v1/evictions"
    code, _, answer = server.ask("GET", path, root, accept=PARTIAL % "List")
    assert (code, decode(answer)["kind"]) == (200, "PartialObjectMetadataList")


def test_a_table_has_no_form_in_protobuf(server: Any, root: str) -> None:
    accept = f"{MEDIA_TYPE};as=Table;g=meta.k8s.io;v=v1"
    code, _, answer = server.ask("GET", PODS, root, accept=accept)
    assert code == 406
    assert b"NotAcceptable" in answer


def frames(connection: Any, count: int, *, begun: bool = False) -> list[tuple[str, dict[str, Any]]]:
    """Return the next events of a watch in protobuf."""
    raw = b""
    found: list[tuple[str, dict[str, Any]]] = []
    if begun:
        raw = b"\r\n\r\n"
    while b"\r\n\r\n" not in raw:
        raw += connection.recv(65536)
    head, _, chunks = raw.partition(b"\r\n\r\n")
    assert begun or f"content-type: {MEDIA_TYPE};stream=watch".encode() in head.lower()
    data = b""
    while len(found) < count:
        while b"\r\n" in chunks:  # the body is chunked: a length in hexadecimal, then the bytes
            size, _, rest = chunks.partition(b"\r\n")
            length = int(size, 16)
            if len(rest) < length + 2:
                break
            data += rest[:length]
            chunks = rest[length + 2 :]
        while len(data) >= 4 and len(data) >= 4 + (size := struct.unpack(">I", data[:4])[0]):
            event = parsed("meta.v1.WatchEvent", data[4 : 4 + size])
            found.append((event.type, decode(event.object.raw)))
            data = data[4 + size :]
        if len(found) < count:
            part = connection.recv(65536)
            assert part, found
            chunks += part
    return found


def test_a_watch_sends_frames_of_protobuf(server: Any, root: str) -> None:
    assert server.ask("POST", PODS, root, pod("a"), content_type=MEDIA_TYPE)[0] == 201
    path = (
        f"{PODS}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true"
        "&resourceVersionMatch=NotOlderThan"
    )
    with server.connect() as connection:
        connection.sendall(request("GET", path, root, accept=f"{MEDIA_TYPE};stream=watch"))
        added, bookmark = frames(connection, 2)
    assert (added[0], added[1]["metadata"]["name"]) == ("ADDED", "a")
    assert bookmark[0] == "BOOKMARK"
    assert bookmark[1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    with server.connect() as connection:
        connection.sendall(
            request("GET", f"{PODS}?watch=true&resourceVersion={2**62}", root, accept=MEDIA_TYPE)
        )
        ((kind, status),) = frames(connection, 1)
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")


def test_a_watch_sends_metadata_alone_in_protobuf(server: Any, root: str) -> None:
    assert server.ask("POST", PODS, root, pod("a"), content_type=MEDIA_TYPE)[0] == 201
    path = (
        f"{PODS}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true"
        "&resourceVersionMatch=NotOlderThan"
    )
    with server.connect() as connection:
        connection.sendall(request("GET", path, root, accept=PARTIAL % ""))
        added, bookmark = frames(connection, 2)
        assert server.ask("DELETE", f"{PODS}/a?gracePeriodSeconds=0", root)[0] == 200
        ((verb, gone),) = frames(connection, 1, begun=True)
    assert (added[0], bookmark[0], verb) == ("ADDED", "BOOKMARK", "DELETED")
    for item in (added[1], bookmark[1], gone):
        assert (item["kind"], item["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        assert "spec" not in item
    assert (added[1]["metadata"]["name"], gone["metadata"]["name"]) == ("a", "a")
    assert bookmark[1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_changes_come_in_protobuf_as_they_happen(server: Any, root: str) -> None:
    listed = json.loads(server.ask("GET", PODS, root)[2])
    version = listed["metadata"]["resourceVersion"]
    assert server.ask("POST", PODS, root, pod("a"), content_type=MEDIA_TYPE)[0] == 201
    assert server.ask("DELETE", f"{PODS}/a?gracePeriodSeconds=0", root)[0] == 200
    path = f"{PODS}?watch=true&resourceVersion={version}"
    with server.connect() as connection:
        connection.sendall(request("GET", path, root, accept=MEDIA_TYPE))
        added, *_, deleted = frames(connection, 2)
    assert (added[0], deleted[0]) == ("ADDED", "DELETED")
    assert added[1]["spec"]["volumes"] == POD_SPEC["volumes"]

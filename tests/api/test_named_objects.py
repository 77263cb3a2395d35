"""A question that names objects is refused to who may not get them, there or not."""

from typing import Any

import pytest

from tests.api.builders import node, pod
from tests.api.conftest import Api, grant

pytestmark = pytest.mark.django_db(transaction=True)

OWN = "/apis/stowage.dev/v1"
ASKS = {
    "apiGroups": ["stowage.dev"],
    "resources": ["simulations", "headroom", "plans"],
    "verbs": ["create", "get", "list"],
}
CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "default-scheduler"}],
}
LISTS = {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list"]}


@pytest.fixture
def cluster(api: Api) -> Api:
    api.post("/api/v1/nodes", node("n1")).ok(201)
    api.post("/api/v1/namespaces/ns/pods", pod("there", nodeName="n1")).ok(201)
    limits = [{"type": "Container", "max": {"cpu": "150m"}}]
    limit = {"metadata": {"name": "cap"}, "spec": {"limits": limits}}
    api.post("/api/v1/namespaces/ns/limitranges", limit).ok(201)
    return api


@pytest.fixture
def asker(cluster: Api) -> Api:
    """Who may ask, and list pods and nodes, and get none."""
    found: Api = grant(cluster, "asker", [ASKS, LISTS])
    return found


def document(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "stowage.dev/v1", "kind": kind, "spec": spec}


def named(what: str, name: str) -> tuple[str, dict[str, Any]]:
    gone = [{"kind": "Pod", "namespace": "ns", "name": name}]
    if what == "simulation":
        return "simulations", document("Simulation", delete=gone, pods=[pod("new")])
    if what == "headroom":
        return "headroom", document("Headroom", delete=gone, pod=pod("new"))
    if what == "secret":
        secret = [{"kind": "Secret", "namespace": "ns", "name": name}]
        return "simulations", document("Simulation", delete=secret, pods=[pod("new")])
    if what == "evict":
        change: dict[str, Any] = {"evict": {"pods": [f"ns/{name}"]}}
    elif what == "room":
        change = {"rebalance": {"roomFor": f"ns/{name}"}}
    else:
        change = {"scale": {"kind": "Deployment", "namespace": "ns", "name": name, "replicas": 1}}
    return "plans", document("Plan", changes=[change])


@pytest.mark.parametrize("what", ["simulation", "headroom", "secret", "evict", "room", "scale"])
def test_what_is_there_is_refused_as_what_is_not(asker: Api, what: str) -> None:
    messages = []
    for name in ("there", "not-there"):
        path, body = named(what, name)
        status = asker.post(f"{OWN}/{path}", body).fails(403, "Forbidden")
        messages.append(status["message"].replace(name, "X"))
    assert messages[0] == messages[1]
    assert "cannot get resource" in messages[0]


def in_namespace(pod_manifest: dict[str, Any], cpu: str) -> dict[str, Any]:
    found = {**pod_manifest, "metadata": {**pod_manifest["metadata"], "namespace": "ns"}}
    container = {
        **found["spec"]["containers"][0],
        "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}},
    }
    return {**found, "spec": {**found["spec"], "containers": [container]}}  # fmt: skip


def test_what_admission_says_is_told_to_who_may_create_there(cluster: Api, asker: Api) -> None:
    large, taken = in_namespace(pod("large"), "300m"), in_namespace(pod("there"), "100m")
    question = document("Simulation", pods=[large, taken])
    told = cluster.post(f"{OWN}/simulations", question).ok(201)["status"]["results"]
    assert "maximum cpu usage per Container is 150m" in told[0]["message"]
    assert 'pods "there" already exists' in told[1]["message"]
    refused = asker.post(f"{OWN}/simulations", question).fails(403, "Forbidden")
    assert "150m" not in str(refused)
    unnamed = {**large, "metadata": {"generateName": "large-", "namespace": "ns"}}
    question_without_name = document("Simulation", pods=[unnamed])
    answer = asker.post(f"{OWN}/simulations", question_without_name).ok(201)
    (one,) = answer["status"]["results"]
    assert one["status"] == "invalid"
    assert one["errors"] == []
    assert "150m" not in str(one)
    wrong = document("Simulation", pods=[{**unnamed, "spec": {"containers": []}}])
    (one,) = asker.post(f"{OWN}/simulations", wrong).ok(201)["status"]["results"]
    assert "containers" in one["message"], "what is wrong with the asker's own words is told"
    room = document("Headroom", pod=large)
    status = cluster.post(f"{OWN}/headroom", room).fails(403, "Forbidden")
    assert "150m" in status["message"]
    status = asker.post(f"{OWN}/headroom", room).fails(403, "Forbidden")
    assert "150m" not in status["message"]
    creator = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    maker = grant(cluster, "maker", [ASKS, LISTS, *creator])
    told = maker.post(f"{OWN}/simulations", question).ok(201)["status"]["results"]
    assert "150m" in told[0]["message"]


def test_the_spec_of_a_plan_names_what_its_reader_may_get(cluster: Api, asker: Api) -> None:
    changes = [
        {"evict": {"pods": ["ns/there"]}},
        {"cordon": {"nodes": ["n1"]}},
        {"pods": {"objects": [in_namespace(pod("posted"), "100m")]}},
        {"add": {"objects": [node("n2")]}},
        {"configuration": CONFIGURATION},
    ]
    made = cluster.post(f"{OWN}/plans", document("Plan", changes=changes)).ok(201)
    name = made["metadata"]["name"]
    assert [*made["spec"]["changes"]] == changes
    shown = asker.get(f"{OWN}/plans/{name}").ok()["spec"]["changes"]
    assert shown == [
        {"evict": {"pods": [], "otherPods": 1}},
        {"cordon": {"nodes": [], "otherNodes": 1}},
        {"pods": {"objects": [], "otherObjects": 1}},
        {"add": {"objects": [], "otherObjects": 1}},
        {"configuration": {}},
    ]
    (listed,) = asker.get(f"{OWN}/plans").ok()["items"]
    assert listed["spec"]["changes"] == shown
    reads = [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get"]}]
    reader = grant(cluster, "reader-of-pods", [ASKS, LISTS, *reads])
    shown = reader.get(f"{OWN}/plans/{name}").ok()["spec"]["changes"]
    assert shown == [*changes[:4], {"configuration": {}}]


def test_a_plan_that_makes_room_names_the_pod_to_who_may_get_it(cluster: Api, asker: Api) -> None:
    cluster.delete("/api/v1/namespaces/ns/limitranges/cap").ok()
    cluster.post("/api/v1/namespaces/ns/pods", in_namespace(pod("waits"), "9000")).ok(201)
    changes = [{"rebalance": {"roomFor": "ns/waits"}}]
    made = cluster.post(f"{OWN}/plans", document("Plan", changes=changes)).ok(201)
    assert made["spec"]["changes"] == changes, "it comes to nothing"
    shown = asker.get(f"{OWN}/plans/{made['metadata']['name']}").ok()
    assert shown["spec"]["changes"] == [{"rebalance": {"otherPods": 1}}]

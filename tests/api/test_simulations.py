"""Questions over HTTP: simulations of the live world, headroom, nodes of a RuntimeClass."""

import json
from io import StringIO

import msgspec
import pytest
from django.core.management import CommandError, call_command

from api.server import metrics
from clusterstate.objects.values import shapes
from scheduling.answers import registry
from tests.api.conftest import Api, make_token
from tests.builders import make_node, make_pod

SIMULATIONS = "/apis/stowage.dev/v1/simulations"
HEADROOM = "/apis/stowage.dev/v1/headroom"


@pytest.fixture
def cluster(api):
    """Two nodes of 4 CPU; a pod of 3 CPU on the first, with name ``ns/taken``."""
    for name in ("node-a", "node-b"):
        api.post("/api/v1/nodes", make_node(name).manifest).ok(201)
    taken = make_pod("taken").in_namespace("ns").asks(cpu="3").on("node-a")
    api.post("/api/v1/namespaces/ns/pods", taken.manifest).ok(201)
    return api


def ask(api, **spec):
    document = {"apiVersion": "stowage.dev/v1", "kind": "Simulation", "spec": spec}
    return api.post(SIMULATIONS, document).ok(201)["status"]["results"]


def test_a_live_simulation_starts_from_what_is_there_and_stores_nothing(cluster):
    pods = [make_pod(f"pod-{n}").in_namespace("ns").asks(cpu="3").manifest for n in range(2)]
    before = cluster.get("/api/v1/pods").ok()
    found = ask(cluster, base="live", pods=pods, explain="full")
    assert [(r["status"], r["nodeName"]) for r in found] == [
        ("scheduled", "node-b"),
        ("unschedulable", ""),
    ]
    assert found[0]["infeasible"]["node-a"]["reasons"] == ["Insufficient cpu"]
    assert cluster.get("/api/v1/pods").ok() == before
    again = ask(cluster, base="live", pods=pods[:1])
    assert again[0]["nodeName"] == "node-b"


def test_changes_since_the_last_question_are_seen(cluster):
    pod = make_pod().in_namespace("ns").asks(cpu="8").manifest
    assert ask(cluster, pods=[pod])[0]["status"] == "unschedulable"
    cluster.post("/api/v1/nodes", make_node("large").offers(cpu="16").manifest).ok(201)
    assert ask(cluster, pods=[pod])[0]["nodeName"] == "large"
    cluster.delete("/api/v1/nodes/large").ok()
    assert ask(cluster, pods=[pod])[0]["status"] == "unschedulable"


def test_the_live_world_can_be_changed_for_the_question(cluster):
    pod = make_pod().in_namespace("ns").asks(cpu="4").manifest
    tainted = make_node("node-b").tainted("closed").manifest
    gone = {"kind": "Pod", "namespace": "ns", "name": "taken"}
    assert ask(cluster, pods=[pod])[0]["nodeName"] == "node-b"
    assert ask(cluster, pods=[pod], objects=[tainted])[0]["status"] == "unschedulable"
    found = ask(cluster, pods=[pod], objects=[tainted], delete=[gone])
    assert found[0]["nodeName"] == "node-a"
    assert ask(cluster, pods=[pod])[0]["nodeName"] == "node-b"


def test_victims_of_the_live_world_are_named(cluster):
    vip = make_pod("vip").in_namespace("ns").asks(cpu="4")
    vip = vip.with_("spec", "priorityClassName", value="system-node-critical").manifest
    cordoned = make_node("node-b").cordoned().manifest
    found = ask(cluster, pods=[vip], objects=[cordoned])[0]
    assert found["preemption"]["nominatedNode"] == "node-a"
    assert found["preemption"]["victims"] == ["ns/taken"]


def test_an_unknown_namespace_of_the_live_world_is_refused(cluster):
    pod = make_pod().in_namespace("nowhere").manifest
    assert ask(cluster, pods=[pod])[0]["message"] == 'namespaces "nowhere" not found'
    assert (
        ask(cluster, base="empty", objects=[make_node().manifest], pods=[pod])[0]["status"]
        == "scheduled"
    )


def test_bad_questions_name_the_field(api):
    status = api.post(SIMULATIONS, {"kind": "Simulation", "spec": {"bse": 1}}).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.bse"
    api.post(SIMULATIONS, b"{").fails(400, "BadRequest")
    api.post(SIMULATIONS, []).fails(422, "Invalid")
    status = api.post(HEADROOM, {"spec": {"limit": 0}}).fails(422, "Invalid")
    fields = {cause["field"] for cause in status["details"]["causes"]}
    assert fields == {"spec.pod", "spec.limit"}


def test_who_may_read_everything_may_ask_what_would_happen(reader):
    reader.post(SIMULATIONS, {"spec": {}}).ok(201)
    stranger = Api(make_token("stranger", ["team"]))
    stranger.post(SIMULATIONS, {"spec": {}}).fails(403, "Forbidden")
    stranger.post(HEADROOM, {}).fails(403, "Forbidden")


def test_headroom_counts_and_says_what_blocks_the_next(cluster):
    closed = make_node("closed").tainted("gpu").manifest
    cluster.post("/api/v1/nodes", closed).ok(201)
    pod = make_pod().in_namespace("ns").asks(cpu="500m").manifest
    status = cluster.post(HEADROOM, pod).ok(201)["status"]
    assert status["fits"] == 10
    assert status["nodes"] == {"node-a": 2, "node-b": 8}
    assert not status["limited"]
    assert status["blockers"] == [
        {"reason": "Insufficient cpu", "plugin": "NodeResourcesFit", "nodes": 2},
        {"reason": "node(s) had untolerated taint(s)", "plugin": "TaintToleration", "nodes": 1},
    ]
    limited = {"kind": "Headroom", "spec": {"pod": pod, "limit": 3}}
    assert cluster.post(HEADROOM, limited).ok(201)["status"]["fits"] == 3


def test_headroom_of_the_usual_shapes_is_listed_measured_and_printed(cluster, settings):
    settings.HEADROOM_SHAPES = shapes.parse("small=cpu:500m, half=cpu:2 memory:1Gi")
    items = cluster.get(HEADROOM).ok()["items"]
    told = [(one["metadata"]["name"], one["status"]["fits"]) for one in items]
    assert told == [("small", 10), ("half", 2)]
    blocked = {"reason": "Insufficient cpu", "plugin": "NodeResourcesFit", "nodes": 2}
    assert items[0]["status"]["blockers"] == [blocked]
    scraped = metrics.text()
    assert 'stowage_headroom_pods{shape="small"} 10' in scraped
    assert (
        'stowage_headroom_blocked_nodes{shape="half",plugin="NodeResourcesFit",'
        'reason="Insufficient cpu"} 2'
    ) in scraped
    printed = StringIO()
    call_command("headroom", stdout=printed)
    assert printed.getvalue().splitlines()[1].split() == [
        "small", "10", "2", "Insufficient", "cpu", "(2)",
    ]  # fmt: skip
    large = make_node("large").offers(cpu="8").manifest
    cluster.post("/api/v1/nodes", large).ok(201)
    assert cluster.get(HEADROOM).ok()["items"][0]["status"]["fits"] == 26


def test_headroom_of_pods_in_a_file(cluster, tmp_path):
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(make_pod("web").in_namespace("ns").asks(cpu="2").manifest))
    printed = StringIO()
    call_command("headroom", str(file), "-o", "json", stdout=printed)
    (found,) = json.loads(printed.getvalue())
    assert (found["metadata"]["name"], found["status"]["fits"]) == ("web", 2)
    file.write_text("kind: Node")
    with pytest.raises(CommandError, match="hold no Pod"):
        call_command("headroom", str(file))


def test_the_nodes_of_a_runtime_class(cluster):
    """R60."""
    cluster.post("/api/v1/nodes", make_node("kata").labelled(kata="yes").manifest).ok(201)
    tainted = make_node("kata-tainted").labelled(kata="yes").tainted("kata").manifest
    cluster.post("/api/v1/nodes", tainted).ok(201)
    reserved = make_node("kata-reserved").labelled(kata="yes").tainted("team").manifest
    cluster.post("/api/v1/nodes", reserved).ok(201)
    runtime_class = {
        "metadata": {"name": "kata"},
        "handler": "kata",
        "scheduling": {
            "nodeSelector": {"kata": "yes"},
            "tolerations": [{"key": "kata", "operator": "Exists"}],
        },
    }
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    cluster.post(path, runtime_class).ok(201)
    found = cluster.get(f"{path}/kata/nodes").ok()
    assert found["kind"] == "NodeList"
    assert [item["metadata"]["name"] for item in found["items"]] == ["kata", "kata-tainted"]
    cluster.get(f"{path}/none/nodes").fails(404, "NotFound")


def test_discovery_lists_the_group(api):
    groups = {group["name"] for group in api.get("/apis").ok()["groups"]}
    assert "stowage.dev" in groups
    names = {r["name"] for r in api.get("/apis/stowage.dev/v1").ok()["resources"]}
    assert {"simulations", "headroom"} <= names


def test_a_question_that_takes_too_long_ends(cluster, monkeypatch):
    """One request of a few megabytes must not keep a thread for hours."""
    question = msgspec.structs.replace(registry.QUESTIONS["simulation"], seconds=-1.0)
    monkeypatch.setitem(registry.QUESTIONS, "simulation", question)
    pods = [make_pod("pod").in_namespace("ns").asks(cpu="1").manifest]
    for base in ("live", "empty"):
        spec = {"base": base, "pods": pods}
        document = {"apiVersion": "stowage.dev/v1", "kind": "Simulation", "spec": spec}
        status = cluster.post(SIMULATIONS, document).fails(413, "RequestEntityTooLarge")
        assert "in time" in status["message"]

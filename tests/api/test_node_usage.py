"""Node pressure: reports come in, victims are named, and the first of them fail (R135, R141)."""

import pytest

from api import clock
from clusterstate.actions import objects
from clusterstate.change_log import changes
from clusterstate.queries.objects import get_manifest
from scheduling.controllers.nodes import lifecycle, pressure
from tests.api.conftest import Api, make_token
from tests.controllers.support import NOW, after, make_node, make_pod, pod

MIB = 1 << 20
PATH = "/apis/stowage.dev/v1/nodes/n1/usage"


@pytest.fixture
def node(api, monkeypatch):
    make_node("n1")
    for name, request in (("greedy", "10Mi"), ("modest", "200Mi"), ("tiny", "1Mi")):
        containers = [
            {"name": "main", "image": "i", "resources": {"requests": {"memory": request}}}
        ]
        make_pod(name, "n1", containers=containers)
    monkeypatch.setattr(clock, "now", lambda: NOW)
    return api


def usage(available, *, threshold=100, reclaim=0, grace=0):
    used = {"greedy": 150, "modest": 100, "tiny": 20}
    return {
        "usage": {
            "memory": {
                "available": available * MIB,
                "threshold": threshold * MIB,
                "minimumReclaim": reclaim * MIB,
                "gracePeriodSeconds": grace,
            },
            "pods": [
                {"namespace": "default", "name": name, "memoryBytes": mib * MIB}
                for name, mib in used.items()
            ],
        }
    }


def phases():
    return {name: pod(name)["status"]["phase"] for name in ("greedy", "modest", "tiny")}


def test_the_pod_furthest_above_its_request_fails_and_stays(node):
    """R135, R141: Failed with the reason Evicted, and the object is kept (C24)."""
    node.put(PATH, usage(90)).ok()
    assert pressure.run(NOW) == 1
    found = pod("greedy")["status"]
    assert (found["phase"], found["reason"]) == ("Failed", "Evicted")
    assert found["message"].startswith("The node was low on resource: memory. Threshold quantity:")
    assert phases() == {"greedy": "Failed", "modest": "Pending", "tiny": "Pending"}
    answer = node.get(PATH).ok()["status"]
    assert list(answer["pressures"]) == ["MemoryPressure"]
    assert [one["name"] for one in answer["victims"]] == ["greedy", "tiny", "modest"]
    assert answer["victims"][0]["qosClass"] == "Burstable"
    assert pressure.run(NOW) == 0


def test_the_group_of_a_pod_that_fails_is_asked_to_leave_where_it_is_to_leave_together(node):
    spec = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}}
    group = {"metadata": {"name": "g"}, "spec": spec}
    node.post("/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups", group).ok(201)
    make_node("n2")
    for name, where in (("g1", "n1"), ("g2", "n2")):
        make_pod(name, where, schedulingGroup={"podGroupName": "g"})
    body = usage(90)
    body["usage"]["pods"].append({"namespace": "default", "name": "g1", "memoryBytes": 500 * MIB})
    node.put(PATH, body).ok()
    assert pressure.run(NOW) == 1
    assert pod("g1")["status"]["reason"] == "Evicted"
    other = pod("g2")
    assert other["metadata"]["deletionTimestamp"]
    (why,) = [one for one in other["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert why["reason"] == "TerminationByKubelet"


def test_minimum_reclaim_takes_more(node):
    node.put(PATH, usage(90, reclaim=145)).ok()
    assert pressure.run(NOW) == 2
    assert phases() == {"greedy": "Failed", "modest": "Pending", "tiny": "Failed"}


def test_grace_waits_for_the_pressure_to_last(node, monkeypatch):
    node.put(PATH, usage(90, grace=60)).ok()
    assert pressure.run(NOW) == 0
    monkeypatch.setattr(clock, "now", lambda: after(59))
    node.put(PATH, usage(90, grace=60)).ok()
    assert pressure.run(after(59)) == 0
    monkeypatch.setattr(clock, "now", lambda: after(61))
    node.put(PATH, usage(90, grace=60)).ok()
    assert pressure.run(after(61)) == 1


def test_without_pressure_the_next_victims_are_named_and_stay(node):
    node.put(PATH, usage(500)).ok()
    assert pressure.run(NOW) == 0
    answer = node.get(PATH).ok()["status"]
    assert answer["pressures"] == {}
    assert answer["victims"][0]["name"] == "greedy"


def test_a_node_reports_for_itself_alone(node):
    own = Api(make_token("system:node:n1", ["system:nodes"]))
    own.put(PATH, usage(500)).ok()
    make_node("n2")
    own.put("/apis/stowage.dev/v1/nodes/n2/usage", usage(500)).fails(403, "Forbidden")


def test_nonsense_is_told(node):
    node.put(PATH, {"usage": {"memory": {"available": "much"}}}).fails(422, "Invalid")
    node.put("/apis/stowage.dev/v1/nodes/none/usage", usage(1)).fails(404, "NotFound")


PRESSED = ("node.kubernetes.io/memory-pressure", "NoSchedule")


def memory_pressure():
    """Return the node's condition, and whether it is tainted; each in the same version."""
    found = get_manifest("Node", "", "n1")
    conditions = found["status"].get("conditions") or ()
    status = next((one for one in conditions if one["type"] == "MemoryPressure"), {})
    taints = {(one["key"], one["effect"]) for one in found["spec"].get("taints") or ()}
    return status.get("status"), status.get("reason"), PRESSED in taints


def test_a_report_under_pressure_sets_condition_and_taint_at_once(node, monkeypatch):
    """Before any pod fails, so that no replacement comes back."""
    node.put(PATH, usage(500)).ok()
    assert memory_pressure() == (None, None, False)
    node.put(PATH, usage(99)).ok()
    assert memory_pressure() == ("True", "KubeletHasInsufficientMemory", True)
    mark = changes.watermark()
    monkeypatch.setattr(clock, "now", lambda: after(10))
    node.put(PATH, usage(98)).ok()
    assert changes.watermark() == mark, "the same again is no news"


@pytest.mark.parametrize(
    ("signal", "condition", "key"),
    [
        ("memory", "MemoryPressure", "memory-pressure"),
        ("disk", "DiskPressure", "disk-pressure"),
        ("pid", "PIDPressure", "pid-pressure"),
    ],
)
def test_every_signal_has_its_condition_and_taint(node, signal, condition, key):
    node.put(PATH, {"usage": {signal: {"available": 1, "threshold": 2}}}).ok()
    found = get_manifest("Node", "", "n1")
    assert {one["type"]: one["status"] for one in found["status"]["conditions"]} == {
        condition: "True"
    }
    assert [one["key"] for one in found["spec"]["taints"]] == [f"node.kubernetes.io/{key}"]


def test_pressure_must_be_away_for_a_while(node, monkeypatch):
    """What ends it is that pods went; who came back at once would bring it again."""
    for second, available, expected in (
        (0, 90, "True"), (10, 500, "True"), (200, 90, "True"), (310, 500, "True"),
        (499, 500, "True"), (500, 500, "False"), (510, 90, "True"),
    ):  # fmt: skip
        monkeypatch.setattr(clock, "now", lambda second=second: after(second))
        node.put(PATH, usage(available)).ok()
        pressure.run(after(second))
        assert memory_pressure()[::2] == (expected, expected == "True"), second
    assert "lastPressureAt" in node.get(PATH).ok()["status"]


def test_a_condition_that_the_agent_set_is_the_agents(node, monkeypatch):
    def press(manifest):
        status = {**manifest["status"], "conditions": [{"type": "DiskPressure", "status": "True"}]}
        return {**manifest, "status": status}

    objects.update("Node", "", "n1", press, subresource="status", now=NOW)
    for second in (0, 400, 800):
        monkeypatch.setattr(clock, "now", lambda second=second: after(second))
        node.put(PATH, usage(500)).ok()
    (condition,) = get_manifest("Node", "", "n1")["status"]["conditions"]
    assert condition == {"type": "DiskPressure", "status": "True"}


def test_reports_are_no_heartbeats_of_an_agent_that_nobody_plays(node, monkeypatch):
    """A node that was only described stays unmissed, whoever reports its use by hand."""
    for second, available in ((0, 90), (10, 500), (400, 500), (410, 90)):
        monkeypatch.setattr(clock, "now", lambda second=second: after(second))
        node.put(PATH, usage(available)).ok()
        lifecycle.run(after(second))
    lifecycle.run(after(1000))
    assert memory_pressure()[0] == "True"

"""Node pressure: reports come in, victims are named, and the first of them fail (R135, R141)."""

import pytest

from api import clock
from clusterstate.actions import pods
from scheduling.controllers import pressure
from tests.api.conftest import Api, make_token
from tests.controllers.support import NOW, after, make_node, make_pod, pod

MIB = 1 << 20
PATH = "/apis/stowage.dev/v1/nodes/n1/usage"


@pytest.fixture
def node(api, monkeypatch):
    pods.forget_classes()
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

"""What changed between two versions of an object."""

import msgspec
import pytest

from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from scheduling.framework.events import (
    NOTHING,
    Action,
    ClusterEvent,
    Registration,
    Resource,
    diff_node,
    diff_pod,
)


def node(spec=None, status=None, **metadata):
    document = {"metadata": {"name": "n", **metadata}, "spec": spec or {}, "status": status or {}}
    return msgspec.convert(document, Node)


def pod(status=None, labels=None, **spec):
    document = {"metadata": {"labels": labels or {}}, "spec": spec, "status": status or {}}
    return msgspec.convert(document, Pod)


@pytest.mark.parametrize(
    ("new", "flag"),
    [
        (node(status={"allocatable": {"cpu": "1"}}), Action.UPDATE_NODE_ALLOCATABLE),
        (node(labels={"a": "b"}), Action.UPDATE_NODE_LABEL),
        (node({"taints": [{"key": "a", "effect": "NoSchedule"}]}), Action.UPDATE_NODE_TAINT),
        (node({"unschedulable": True}), Action.UPDATE_NODE_TAINT),
        (
            node(status={"conditions": [{"type": "Ready", "status": "True"}]}),
            Action.UPDATE_NODE_CONDITION,
        ),
        (node(annotations={"a": "b"}), Action.UPDATE_NODE_ANNOTATION),
        (node(status={"images": [{"names": ["a"]}]}), Action.UPDATE_NODE_IMAGES),
        (node(status={"declaredFeatures": ["A"]}), Action.UPDATE_NODE_DECLARED_FEATURE),
        (node(), NOTHING),
    ],
)
def test_the_change_of_a_node_is_named(new, flag):
    assert diff_node(node(), new) == flag


def test_a_heartbeat_is_no_change():
    def at(time):
        return node(
            status={"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]}
        )

    assert diff_node(at("2026-01-01T00:00:00Z"), at("2026-01-01T00:00:10Z")) == NOTHING


@pytest.mark.parametrize(
    ("new", "flag"),
    [
        (pod(labels={"a": "b"}), Action.UPDATE_POD_LABEL),
        (
            pod(containers=[{"resources": {"requests": {"cpu": 1}}}]),
            Action.UPDATE_POD_SCALE_DOWN,
        ),
        (pod(tolerations=[{"operator": "Exists"}]), Action.UPDATE_POD_TOLERATION),
        (pod(nodeSelector={"a": "b"}), Action.UPDATE_POD_OTHER),
        (pod(), NOTHING),
    ],
)
def test_the_change_of_a_pod_is_named(new, flag):
    assert diff_pod(pod(), new) == flag


def test_eliminating_gates_is_named():
    gated = pod(schedulingGates=[{"name": "a"}])
    assert diff_pod(gated, pod()) == Action.UPDATE_POD_GATES_ELIMINATED


def test_a_registration_covers_its_resource_and_actions():
    event = ClusterEvent(resource=Resource.NODE, action=Action.ADD)
    assert Registration(resource=Resource.NODE, actions=Action.ADD | Action.DELETE).covers(event)
    assert Registration(resource=Resource.ANY, actions=Action.ADD).covers(event)
    assert not Registration(resource=Resource.NODE, actions=Action.DELETE).covers(event)
    assert not Registration(resource=Resource.ASSIGNED_POD, actions=Action.ADD).covers(event)

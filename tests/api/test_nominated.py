"""``status.nominatedNodeName`` over HTTP: what the scheduler writes there, and what others do.

The situations are those of Kubernetes' own test/integration/scheduler/nominated_node_name and
eventhandler, v1.36.
"""

import pytest

from tests.api.builders import NODES, PODS, node, pod

CLASSES = {"low": 1, "middle": 50, "high": 100}


@pytest.fixture
def cluster(api):
    """A node ``node`` with four CPUs, and three priority classes."""
    for name, value in CLASSES.items():
        body = {"metadata": {"name": name}, "value": value}
        api.post("/apis/scheduling.k8s.io/v1/priorityclasses", body).ok(201)
    api.post(NODES, node("node")).ok(201)
    return api


def submit(api, name, cpu, priority="low", *, bound="", nominated=""):
    requests = {"resources": {"requests": {"cpu": cpu}}}
    body = pod(
        name,
        containers=[{"name": "c", "image": "i", **requests}],
        priorityClassName=priority,
        terminationGracePeriodSeconds=0,
        **({"nodeName": bound} if bound else {}),
    )
    api.post(PODS, body).ok(201)
    if nominated:
        api.patch(f"{PODS}/{name}/status", {"status": {"nominatedNodeName": nominated}}).ok()


def state(api, name):
    """Return where a pod is, and where it is nominated for."""
    found = api.get(f"{PODS}/{name}").ok()
    return found["spec"].get("nodeName", ""), found["status"].get("nominatedNodeName", "")


def test_who_makes_room_is_nominated_and_then_bound(cluster, runner):
    submit(cluster, "victim", "4", bound="node")
    submit(cluster, "preemptor", "2", "high")
    runner.turn(0)
    cluster.get(f"{PODS}/victim").fails(404, "NotFound")
    if state(cluster, "preemptor") != ("node", ""):
        assert state(cluster, "preemptor") == ("", "node")
        runner.turn(20)
    assert state(cluster, "preemptor") == ("node", "")


def test_a_better_nomination_takes_the_place_of_one_that_somebody_wrote(cluster, runner):
    cluster.post(NODES, node("node2")).ok(201)
    for name in ("victim-1", "victim-2"):
        submit(cluster, name, "2", bound="node")
    submit(cluster, "victim-3", "3", bound="node2")
    submit(cluster, "preemptor", "4", "high", nominated="node")
    runner.turn()
    runner.turn(20)
    assert state(cluster, "preemptor") == ("node2", "")
    assert state(cluster, "victim-1")[0] == state(cluster, "victim-2")[0] == "node"


def test_a_nomination_for_a_node_that_is_too_small_is_ignored_and_cleared(cluster, runner):
    submit(cluster, "too-big", "5", nominated="node")
    submit(cluster, "fits", "3")
    runner.turn()
    assert state(cluster, "too-big") == ("", "")
    assert state(cluster, "fits") == ("node", "")


def test_a_nomination_gives_way_to_a_higher_priority(cluster, runner):
    submit(cluster, "nominated", "4", nominated="node")
    submit(cluster, "important", "4", "high")
    runner.turn()
    assert state(cluster, "important") == ("node", "")
    assert state(cluster, "nominated") == ("", "")


@pytest.mark.parametrize("where", ["node", "node2"])
def test_a_pod_goes_where_somebody_nominated_it(cluster, runner, where):
    cluster.post(NODES, node("node2")).ok(201)
    # The other node would be chosen without it, since there is more room.
    submit(cluster, "there", "2", bound=where)
    submit(cluster, "nominated", "1", nominated=where)
    runner.turn()
    assert state(cluster, "nominated") == (where, "")


def test_a_nomination_for_a_node_that_is_not_there_is_ignored(cluster, runner):
    submit(cluster, "nominated", "1", nominated="nowhere")
    runner.turn()
    assert state(cluster, "nominated") == ("node", "")


def test_a_nomination_ends_where_there_is_no_node_at_all(cluster, runner):
    """As with every attempt that fails before PostFilter (schedule_one.go, v1.36)."""
    cluster.delete(f"{NODES}/node").ok()
    submit(cluster, "nominated", "1", nominated="node")
    runner.turn()
    assert state(cluster, "nominated") == ("", "")


@pytest.mark.parametrize("others", [True, False], ids=["another node", "no node"])
def test_who_made_room_on_a_node_that_goes_is_nominated_no_longer(cluster, runner, others):
    """TestNominatedNodeCleanUp, test/integration/scheduler/preemption, v1.36."""
    keep = {"metadata": {"finalizers": ["example.org/keep"]}}
    submit(cluster, "low", "4", bound="node")
    cluster.patch(f"{PODS}/low", keep).ok()
    if others:
        tainted = node("tainted")
        tainted["spec"] = {"taints": [{"key": "a", "effect": "NoSchedule"}]}
        cluster.post(NODES, tainted).ok(201)
    submit(cluster, "medium", "4", "middle")
    runner.turn()
    assert state(cluster, "medium") == ("", "node")
    cluster.delete(f"{NODES}/node").ok()
    cluster.patch(f"{PODS}/low", {"metadata": {"finalizers": None}}).ok()
    runner.turn(20)
    assert state(cluster, "medium") == ("", "")


def test_who_waited_behind_a_nomination_goes_on_when_it_is_gone(cluster, runner):
    keep = {"metadata": {"finalizers": ["example.org/keep"]}}
    for name in ("victim-1", "victim-2"):
        submit(cluster, name, "2", bound="node")
        cluster.patch(f"{PODS}/{name}", keep).ok()
    submit(cluster, "nominated", "4", "middle")
    runner.turn()
    # Its victims are going, and something keeps them for the time being.
    assert state(cluster, "nominated") == ("", "node")
    submit(cluster, "waiting", "1", "low")
    runner.turn()
    assert state(cluster, "waiting") == ("", "")
    cluster.delete(f"{PODS}/nominated", {"gracePeriodSeconds": 0}).ok()
    for name in ("victim-1", "victim-2"):
        cluster.patch(f"{PODS}/{name}", {"metadata": {"finalizers": None}}).ok()
    runner.turn(20)
    assert state(cluster, "waiting") == ("node", "")


@pytest.mark.parametrize("how", ["withdrawn", "moved", "deleted"])
def test_who_was_kept_off_a_node_for_a_nominated_pod_hears_of_its_end(cluster, runner, how):
    polite = {"metadata": {"name": "polite"}, "value": 50, "preemptionPolicy": "Never"}
    cluster.post("/apis/scheduling.k8s.io/v1/priorityclasses", polite).ok(201)
    submit(cluster, "there", "2", bound="node")
    submit(cluster, "nominated", "4", "polite", nominated="node")
    submit(cluster, "waiting", "1")
    runner.turn()
    assert state(cluster, "nominated") == ("", "node")
    assert state(cluster, "waiting") == ("", "")
    if how == "deleted":
        cluster.delete(f"{PODS}/nominated").ok()
    else:
        other = {"withdrawn": None, "moved": "elsewhere"}[how]
        cluster.patch(f"{PODS}/nominated/status", {"status": {"nominatedNodeName": other}}).ok()
    runner.turn(20)
    assert state(cluster, "waiting") == ("node", "")


@pytest.mark.parametrize("followed", [True, False], ids=["it ran", "it starts then"])
def test_a_restart_decides_as_the_scheduler_that_ran(cluster, runner, followed):
    """A nomination that somebody else wrote counts as much as one that was there at the start."""
    for name in ("node2", "node3"):
        cluster.post(NODES, node(name)).ok(201)
    runner.turn()
    submit(cluster, "there", "3", bound="node2")
    submit(cluster, "nominated", "1", nominated="node2")
    if not followed:
        runner.scheduler.load(runner.now.timestamp())
    runner.turn()
    assert state(cluster, "nominated") == ("node2", "")

"""Nodes that fall silent and come back, with rows, leases and a clock that stands still."""

import datetime as dt

import pytest

from clusterstate.actions import objects
from clusterstate.change_log import changes
from clusterstate.objects.values.document import format_time
from clusterstate.processes import memory
from clusterstate.queries.objects import decode_object, find_object, get_manifest
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers.nodes import lifecycle
from tests.controllers.support import (
    NOW,
    after,
    make_node,
    make_pod,
    pod,
    set_taints,
    taint,
    timer,
)

pytestmark = pytest.mark.django_db

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
MINE = "example.org/mine"


def micro(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def beat(name, seconds):
    """Renew the node's lease."""
    now = after(seconds)
    spec = {"holderIdentity": name, "renewTime": micro(now)}
    if find_object("Lease", "kube-node-lease", name) is None:
        manifest = {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec}
        objects.create("Lease", "kube-node-lease", manifest, now=now)
    else:
        objects.update("Lease", "kube-node-lease", name, lambda old: {**old, "spec": spec}, now=now)


def condition(name, kind, status, seconds=0):
    def change(manifest):
        conditions = [
            one for one in manifest["status"].get("conditions", ()) if one["type"] != kind
        ]
        conditions.append(
            {
                "type": kind,
                "status": status,
                "lastHeartbeatTime": format_time(after(seconds)),
                "lastTransitionTime": format_time(after(seconds)),
            }
        )
        return {**manifest, "status": {**manifest["status"], "conditions": conditions}}

    objects.update("Node", "", name, change, subresource="status", now=after(seconds))


def node(name):
    return get_manifest("Node", "", name)


def taints(name):
    return {(t["key"], t["effect"]) for t in node(name)["spec"].get("taints", ())}


def ready(name):
    conditions = node(name)["status"].get("conditions", ())
    return next((c["status"] for c in conditions if c["type"] == "Ready"), None)


def test_a_node_whose_agent_falls_silent_is_unreachable_after_the_grace_period():
    """R126, R128: and its pods are not ready."""
    for name in ("n1", "n2"):
        make_node(name)
        beat(name, 0)
        condition(name, "Ready", "True")
    make_pod("p", "n1")
    objects.update(
        "Pod", "default", "p",
        lambda m: {**m, "status": {**m["status"], "phase": "Running",
                                   "conditions": [{"type": "Ready", "status": "True"}]}},
        subresource="status", now=NOW,
    )  # fmt: skip
    lifecycle.run(after(0))
    for moment in (15, 30):
        beat("n2", moment)
        lifecycle.run(after(moment))
    assert ready("n1") == "True"
    beat("n2", 41)
    lifecycle.run(after(41))
    assert ready("n1") == "Unknown"
    assert taints("n1") == {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
    assert ready("n2") == "True"
    assert taints("n2") == set()
    conditions = {c["type"]: c for c in pod("p")["status"]["conditions"]}
    assert conditions["Ready"]["status"] == "False"
    assert timer("p") == 41 + 300


def test_silence_counts_from_now_when_the_clock_was_set_back():
    """An agent last reported while the clock was an hour ahead."""
    for name in ("n1", "n2"):
        make_node(name)
        beat(name, 3600)
        condition(name, "Ready", "True")
    lifecycle.run(after(3600))
    for moment in (0, 15, 30):
        beat("n2", moment)
        lifecycle.run(after(moment))
    assert ready("n1") == "True"
    beat("n2", 41)
    lifecycle.run(after(41))
    assert (ready("n1"), ready("n2")) == ("Unknown", "True")


def test_recovery_removes_the_taints_and_the_timers():
    """R128."""
    for name in ("n1", "n2"):
        make_node(name)
        beat(name, 0)
        condition(name, "Ready", "True")
    make_pod("p", "n1")
    lifecycle.run(NOW)
    beat("n2", 15)
    lifecycle.run(after(15))
    beat("n2", 30)
    lifecycle.run(after(30))
    lifecycle.run(after(45))
    assert timer("p") == 345
    beat("n1", 50)
    condition("n1", "Ready", "True", 50)
    beat("n2", 50)
    lifecycle.run(after(51))
    assert taints("n1") == set()
    assert timer("p") is None


def test_a_node_without_an_agent_is_not_missed_and_keeps_foreign_taints():
    make_node("n1", taints=[taint(UNREACHABLE), taint("node.kubernetes.io/memory-pressure",
                                                      "NoSchedule")])  # fmt: skip
    before = node("n1")
    for moment in (0, 10, 20, 30, 60, 600):
        lifecycle.run(after(moment))
    assert node("n1") == before


def test_cordon_shows_as_a_taint_and_uncordon_removes_it():
    """R126."""
    make_node("n1")

    def cordon(value):
        objects.update(
            "Node", "", "n1",
            lambda m: {**m, "spec": {**(m.get("spec") or {}), "unschedulable": value}}, now=NOW,
        )  # fmt: skip

    cordon(True)
    assert taints("n1") == {("node.kubernetes.io/unschedulable", "NoSchedule")}
    mark = changes.watermark()
    lifecycle.run(NOW)
    assert changes.watermark() == mark
    cordon(False)
    assert taints("n1") == set()


def test_a_cordoned_node_cannot_lose_its_taint_and_another_cannot_have_it():
    """R126: kubectl taint against a cordon changes nothing."""
    unschedulable = taint("node.kubernetes.io/unschedulable", "NoSchedule")
    make_node("n1", taints=[unschedulable, taint("mine", "NoSchedule")])
    assert taints("n1") == {("mine", "NoSchedule")}
    objects.update(
        "Node", "", "n1", lambda m: {**m, "spec": {"unschedulable": True, "taints": []}}, now=NOW
    )
    assert taints("n1") == {("node.kubernetes.io/unschedulable", "NoSchedule")}


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("MemoryPressure", "memory-pressure"),
        ("DiskPressure", "disk-pressure"),
        ("PIDPressure", "pid-pressure"),
        ("NetworkUnavailable", "network-unavailable"),
        ("OutOfDisk", "out-of-disk"),
    ],
)
def test_conditions_become_taints(kind, key):
    """R133."""
    make_node("n1", taints=[taint("mine", "NoSchedule")])
    condition("n1", kind, "True")
    wanted = {("mine", "NoSchedule"), (f"node.kubernetes.io/{key}", "NoSchedule")}
    assert taints("n1") == wanted
    mark = changes.watermark()
    lifecycle.run(NOW)
    assert changes.watermark() == mark
    condition("n1", kind, "False", 1)
    assert taints("n1") == {("mine", "NoSchedule")}


ASKING = [("Ready", "False", "not-ready"), ("Ready", "Unknown", "unreachable")] + [
    (kind, "True", key)
    for kind, key in [
        ("MemoryPressure", "memory-pressure"),
        ("DiskPressure", "disk-pressure"),
        ("PIDPressure", "pid-pressure"),
        ("NetworkUnavailable", "network-unavailable"),
        ("OutOfDisk", "out-of-disk"),
    ]
]


def node_with(name, *conditions, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"conditions": [{"type": kind, "status": status} for kind, status in conditions]},
    }


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(("kind", "status", "key"), ASKING)
def test_a_node_that_arrives_in_trouble_carries_the_taint(kind, status, key, alone):
    """R126, R133: in the same version, alone or in a list, so that nothing is placed between."""
    wanted = [("Node", "", node_with("n1", ("OutOfDisk", "False"), (kind, status)))]
    if not alone:
        wanted.append(("Node", "", node_with("n2", ("Ready", "True"))))
    mark = changes.watermark()
    objects.create_all(wanted, now=NOW)
    assert changes.watermark() == mark + len(wanted)
    assert taints("n1") == {(f"node.kubernetes.io/{key}", "NoSchedule")}
    assert alone or taints("n2") == set()
    mark = changes.watermark()
    set_taints("n1")
    assert taints("n1") == {(f"node.kubernetes.io/{key}", "NoSchedule")}, "nor is it taken away"
    assert changes.watermark() == mark


def test_what_the_creator_of_a_node_put_there_stays():
    """TaintNodesByCondition, and whoever registers a node, may taint one that says it is ready."""
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/memory-pressure")
    given = [taint(key, "NoSchedule") for key in keys]
    node = node_with("n1", ("Ready", "True"), ("MemoryPressure", "False"), taints=given)
    objects.create("Node", "", node, now=NOW)
    assert taints("n1") == {(key, "NoSchedule") for key in keys}


@pytest.mark.parametrize(("kind", "status", "key"), ASKING)
def test_a_condition_that_vanishes_takes_its_taints_along(kind, status, key):
    """R128: also where no agent was ever heard of, whichever effect the controller has added."""
    mine = taint("mine", "NoExecute")
    make_node("n1", taints=[mine])
    make_node("n2")
    condition("n2", "Ready", "True")
    condition("n1", "DiskPressure", "False")
    condition("n1", kind, status)
    lifecycle.run(NOW)
    full = f"node.kubernetes.io/{key}"
    assert (full, "NoSchedule") in taints("n1")
    assert ((full, "NoExecute") in taints("n1")) == (kind == "Ready")

    def without(manifest):
        return {**manifest, "status": {**manifest["status"], "conditions": []}}

    objects.update("Node", "", "n1", without, subresource="status", now=after(1))
    assert taints("n1") == {("mine", "NoExecute")}
    lifecycle.run(after(2))
    assert taints("n1") == {("mine", "NoExecute")}


def test_a_status_that_repeats_itself_leaves_taints_alone():
    """What somebody put on a node that has no agent is not undone by a heartbeat."""
    key = "node.kubernetes.io/memory-pressure"
    make_node("n1")
    condition("n1", "MemoryPressure", "False")
    set_taints("n1", taint(key, "NoSchedule"))
    condition("n1", "MemoryPressure", "False", 5)
    assert taints("n1") == {(key, "NoSchedule")}


BOTH = ("NoSchedule", "NoExecute")


@pytest.mark.parametrize("agent", [True, False])
@pytest.mark.parametrize(("status", "key"), [("False", NOT_READY), ("Unknown", UNREACHABLE)])
def test_a_node_that_is_ready_again_loses_both_taints_in_one_write(status, key, agent):
    """R128: with NoExecute alone it would take pods and evict them, over and over."""
    make_node("n1", taints=[taint(MINE, "NoExecute")])
    for name in ("n2", "n3"):
        make_node(name)
        condition(name, "Ready", "True")
    if agent:
        beat("n1", 0)
    condition("n1", "Ready", status)
    lifecycle.run(NOW)
    assert taints("n1") == {(MINE, "NoExecute"), *((key, effect) for effect in BOTH)}
    mark = changes.watermark()
    condition("n1", "Ready", "True", 1)
    assert taints("n1") == {(MINE, "NoExecute")}
    assert changes.watermark() == mark + 1
    lifecycle.run(after(1))
    assert changes.watermark() == mark + 2, "the event that it is ready, and no other write"
    events = [decode_object(one) for one in list_page("Event", "default").items]
    reasons = [one["reason"] for one in events if one["involvedObject"]["name"] == "n1"]
    assert reasons == ["NodeReady"]


def test_a_taint_that_evicts_changes_its_key_in_one_write():
    """Not ready, then unreachable: at no moment is the node without a NoExecute taint."""
    for name in ("n1", "n2"):
        make_node(name)
        condition(name, "Ready", "True")
    condition("n1", "Ready", "False")
    lifecycle.run(NOW)
    condition("n1", "Ready", "Unknown", 1)
    assert taints("n1") == {(UNREACHABLE, effect) for effect in BOTH}
    mark = changes.watermark()
    lifecycle.run(after(1))
    assert changes.watermark() == mark


def test_the_taint_that_evicts_waits_for_the_zone_also_when_the_other_key_comes():
    """R129: a node that has no NoExecute taint yet gets none by a second condition."""
    make_node("n1")
    condition("n1", "Ready", "False")
    condition("n1", "Ready", "Unknown", 1)
    assert taints("n1") == {(UNREACHABLE, "NoSchedule")}


def test_taints_come_at_the_rate_of_the_zone():
    """R129: one each ten seconds, and a restart does not give the first one again."""
    names = [f"n{number}" for number in range(10)]
    for name in names:
        make_node(name)
        condition(name, "Ready", "True")
    for name in names[:3]:
        condition(name, "Ready", "False", 1)
    counts = []
    for moment in range(1, 32, 5):
        memory.forget()
        lifecycle.run(after(moment))
        counts.append(sum((NOT_READY, "NoExecute") in taints(name) for name in names))
    assert counts == [1, 1, 2, 2, 3, 3, 3]


def test_a_rate_above_one_a_pass_is_reached(settings):
    """R129: passes are two seconds apart, and three taints a second may come."""
    settings.NODE_EVICTION_RATE = 3
    names = [f"n{number}" for number in range(40)]
    for name in names:
        make_node(name)
        condition(name, "Ready", "True")
    lifecycle.run(NOW)
    for name in names[:20]:
        condition(name, "Ready", "False", 1)
    counts = []
    for moment in (2, 4, 6, 8):
        lifecycle.run(after(moment))
        counts.append(sum((NOT_READY, "NoExecute") in taints(name) for name in names))
    assert counts == [6, 12, 18, 20]


def test_heartbeats_by_lease_are_no_changes():
    make_node("n1")
    beat("n1", 0)
    mark = changes.watermark()
    beat("n1", 10)
    beat("n1", 20)
    assert changes.read_since(mark).items == []


def test_silence_while_nobody_listened_says_nothing():
    for name in ("n1", "n2"):
        make_node(name)
        beat(name, 0)
        condition(name, "Ready", "True")
    lifecycle.run(after(0))
    lifecycle.run(after(3600))
    assert ready("n1") == "True"
    for moment in (3610, 3620, 3630):
        lifecycle.run(after(moment))
        assert ready("n1") == "True"
    lifecycle.run(after(3641))
    assert ready("n1") == "Unknown"


def test_new_nodes_wait_for_their_provider(settings):
    """R127."""
    key = ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule")
    make_node("plain")
    assert taints("plain") == set()
    settings.EXTERNAL_CLOUD_PROVIDER = True
    make_node("n1")
    assert taints("n1") == {key}
    set_taints("n1", *node("n1")["spec"]["taints"], taint())
    assert key in taints("n1")

    def initialise(manifest):
        return {**manifest, "spec": {**manifest["spec"], "providerID": "x://1"}}

    objects.update("Node", "", "n1", initialise, now=NOW)
    assert taints("n1") == {("key", "NoExecute")}

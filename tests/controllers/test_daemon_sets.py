"""DaemonSets in the database, with the real scheduler: nodes come, go, get taints and labels."""

import pytest

from clusterstate.actions import objects
from clusterstate.queries.objects import decode_object, get_manifest
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers import garbage
from scheduling.controllers.evictions import timers
from scheduling.controllers.workloads import daemon_sets, follower, promptly
from scheduling.controllers.workloads.control import NamespaceControl
from scheduling.controllers.workloads.revisions import trace
from scheduling.controllers.workloads.world import NamespaceState
from tests.controllers.agents import make_agent, pods, report
from tests.controllers.support import (
    NOW,
    evict,
    make_node,
    schedule,
    set_labels,
    set_taints,
    taint,
)
from tests.creating import create_pod

pytestmark = pytest.mark.django_db


def make_daemon_set(name="ds", *, image="agent:1", strategy=None, **spec):
    labels = {"app": name}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": image}], **spec},
            },
            **({"updateStrategy": strategy} if strategy else {}),
        },
    }
    objects.create("DaemonSet", "default", manifest, now=NOW)


def get(name="ds"):
    return get_manifest("DaemonSet", "default", name)


def roll_to(image, name="ds", **fields):
    def change(manifest):
        template = manifest["spec"]["template"]
        containers = [{**template["spec"]["containers"][0], "image": image}]
        spec = {**template["spec"], "containers": containers, **fields}
        return {**manifest, "spec": {**manifest["spec"], "template": {**template, "spec": spec}}}

    objects.update("DaemonSet", "default", name, change, now=NOW)


def settle(rounds=12):
    """Let controller, scheduler and agents act in turn until all is quiet."""
    for _ in range(rounds):
        follower.follow(NOW)
        schedule(NOW)
        busy = False
        for pod in pods():
            name, metadata = pod["metadata"]["name"], pod["metadata"]
            if metadata.get("deletionTimestamp"):
                objects.delete("Pod", "default", name, {"gracePeriodSeconds": 0}, now=NOW)
                busy = True
            elif pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                report(name)
                busy = True
        if not busy and not follower.follow(NOW):
            return
    raise AssertionError("never settled")


def where():
    """Return the nodes that have a daemon, with its image."""
    return {
        one["spec"].get("nodeName"): one["spec"]["containers"][0]["image"]
        for one in pods()
        if not one["metadata"].get("deletionTimestamp")
    }


def test_a_daemon_comes_with_each_node_and_goes_with_its_eligibility():
    for name in ("a", "b"):
        make_agent(name)
    make_daemon_set(nodeSelector={"role": "worker"})
    settle()
    assert where() == {}
    set_labels("a", role="worker")
    settle()
    assert list(where()) == ["a"]
    make_agent("c", labels={"role": "worker"})
    set_labels("b", role="worker")
    settle()
    assert sorted(where()) == ["a", "b", "c"]
    assert get()["status"] == {
        "currentNumberScheduled": 3,
        "desiredNumberScheduled": 3,
        "numberAvailable": 3,
        "numberMisscheduled": 0,
        "numberReady": 3,
        "observedGeneration": 1,
        "updatedNumberScheduled": 3,
    }
    set_labels("a", role="master")
    settle()
    assert sorted(where()) == ["b", "c"]


def test_taints_keep_new_daemons_away_and_noexecute_sends_them_off():
    make_agent("a")
    make_agent("b", taints=[taint("own", "NoSchedule")])
    make_daemon_set()
    settle()
    assert list(where()) == ["a"]
    set_taints("a", taint("own", "NoSchedule"))
    settle()
    assert list(where()) == ["a"], "what is there may stay"
    assert get()["status"]["numberMisscheduled"] == 1
    set_taints("a", taint("own", "NoExecute"))
    settle()
    assert where() == {}
    set_taints("a")
    set_taints("b")
    settle()
    assert sorted(where()) == ["a", "b"]


def test_daemons_are_never_evicted_for_a_node_that_is_not_ready_or_unreachable():
    """R132: the controller's tolerations have no seconds."""
    make_agent("a")
    make_daemon_set()
    settle()
    (pod,) = pods()
    found = {
        (one["key"], one["effect"]): one.get("tolerationSeconds")
        for one in pod["spec"]["tolerations"]
    }
    assert found["node.kubernetes.io/not-ready", "NoExecute"] is None
    assert found["node.kubernetes.io/unreachable", "NoExecute"] is None
    set_taints("a", taint("node.kubernetes.io/unreachable"), taint("node.kubernetes.io/not-ready"))
    timers.follow(NOW)
    assert evict(10**6) == []
    settle()
    assert list(where()) == ["a"]


def test_the_scheduler_places_a_daemon_on_its_node_and_no_other():
    """A node that is full keeps its daemon waiting, though another one has room."""
    make_agent("free")
    make_node("full")
    objects.update(
        "Node", "", "full",
        lambda m: {**m, "status": {"allocatable": {"cpu": "1m", "memory": "1Mi", "pods": "0"}}},
        subresource="status", now=NOW,
    )  # fmt: skip
    make_daemon_set()
    settle()
    assert where() == {"free": "agent:1", None: "agent:1"}
    objects.delete("Node", "", "full", now=NOW)
    settle()
    assert where() == {"free": "agent:1"}


def test_a_rolling_update_takes_one_node_at_a_time_and_leaves_a_revision():
    for name in ("a", "b", "c"):
        make_agent(name)
    make_daemon_set()
    settle()
    roll_to("agent:2")
    follower.follow(NOW)
    leaving = [one for one in pods() if one["metadata"].get("deletionTimestamp")]
    assert len(leaving) == 1
    follower.follow(NOW)
    assert len([one for one in pods() if one["metadata"].get("deletionTimestamp")]) == 1
    settle()
    assert where() == dict.fromkeys(("a", "b", "c"), "agent:2")
    revisions = [decode_object(one) for one in list_page("ControllerRevision", "default").items]
    assert sorted(one["revision"] for one in revisions) == [1, 2]
    assert {one["metadata"]["ownerReferences"][0]["name"] for one in revisions} == {"ds"}
    roll_to("agent:1")
    settle()
    revisions = [decode_object(one) for one in list_page("ControllerRevision", "default").items]
    assert sorted(one["revision"] for one in revisions) == [2, 3]


def test_a_surge_needs_no_node_without_a_daemon():
    for name in ("a", "b"):
        make_agent(name)
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    make_daemon_set(strategy=surge)
    settle()
    roll_to("agent:2")
    follower.follow(NOW)
    assert len(pods()) == 3
    assert not any(one["metadata"].get("deletionTimestamp") for one in pods())
    settle()
    assert where() == {"a": "agent:2", "b": "agent:2"}


@pytest.mark.parametrize("strategy", [{"maxSurge": 1, "maxUnavailable": 0}, {"maxUnavailable": 1}])
@pytest.mark.parametrize("change", ["toleration dropped", "tainted since"])
def test_an_update_goes_on_where_a_node_keeps_an_old_daemon(strategy, change):
    """kubernetes#118823, #119317: no daemon is to run on a and c, so the update is b's alone."""
    dropped = change == "toleration dropped"
    for name in ("a", "b", "c"):
        make_agent(name)
        if dropped and name != "b":
            set_taints(name, taint("t", "NoSchedule"))
    tolerations = [{"key": "t", "operator": "Exists"}] if dropped else []
    make_daemon_set(
        strategy={"type": "RollingUpdate", "rollingUpdate": strategy}, tolerations=tolerations
    )
    settle()
    assert set(where()) == {"a", "b", "c"}
    if not dropped:
        set_taints("a", taint("t", "NoSchedule"))
        set_taints("c", taint("t", "NoSchedule"))
        settle()
        assert set(where()) == {"a", "b", "c"}, "NoSchedule ends nobody"
    roll_to("agent:2", tolerations=[])
    settle()
    assert where() == {"b": "agent:2"}


def test_on_delete_waits_for_somebody_to_delete():
    make_agent("a")
    make_daemon_set(strategy={"type": "OnDelete"})
    settle()
    roll_to("agent:2")
    settle()
    assert where() == {"a": "agent:1"}
    (pod,) = pods()
    objects.delete("Pod", "default", pod["metadata"]["name"], now=NOW)
    settle()
    assert where() == {"a": "agent:2"}


def revisions():
    found = [decode_object(one) for one in list_page("ControllerRevision", "default").items]
    return {one["metadata"]["name"]: one["revision"] for one in found}


def test_a_new_daemon_set_takes_over_what_one_of_its_name_left_behind():
    make_agent("a")
    make_daemon_set()
    settle()
    roll_to("agent:2")
    settle()
    before, numbers = pods(), revisions()
    objects.delete("DaemonSet", "default", "ds", {"propagationPolicy": "Orphan"}, now=NOW)
    garbage.follow(NOW)
    left = [decode_object(one) for one in list_page("ControllerRevision", "default").items]
    assert not any(one["metadata"].get("ownerReferences") for one in [*left, *pods()])
    make_daemon_set(image="agent:2")
    settle()
    assert [one["metadata"]["uid"] for one in pods()] == [one["metadata"]["uid"] for one in before]
    assert revisions() == numbers
    left = [decode_object(one) for one in list_page("ControllerRevision", "default").items]
    uid = get()["metadata"]["uid"]
    for one in (*left, *pods()):
        (owner,) = one["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (uid, True)
    assert "collisionCount" not in get()["status"]


def copy_revision():
    """Make ``ds-other``, a newer revision of the same template; return the name of the first."""
    (name,) = revisions()
    first = get_manifest("ControllerRevision", "default", name)
    labels = {**first["metadata"]["labels"], "controller-revision-hash": "other"}
    owners = first["metadata"]["ownerReferences"]
    metadata = {"name": "ds-other", "labels": labels, "ownerReferences": owners}
    other = {**first, "metadata": metadata, "revision": 2}
    objects.create("ControllerRevision", "default", other, now=NOW)
    return name


def test_revisions_of_the_same_template_become_one_and_no_pod_leaves():
    make_agent("a")
    make_daemon_set()
    settle()
    (before,) = pods()
    name = copy_revision()
    follower.follow(NOW)
    assert revisions() == {name: 1, "ds-other": 2}, "a new revision is no reason to look"
    set_labels("a", one="more")
    settle()
    assert revisions() == {"ds-other": 2}
    (pod,) = pods()
    assert pod["metadata"]["uid"] == before["metadata"]["uid"]
    assert pod["metadata"]["labels"]["controller-revision-hash"] == "other"


def test_a_revision_that_was_made_since_the_pass_began_is_no_collision():
    make_daemon_set()
    settle()
    roll_to("agent:2")
    control = NamespaceControl(NamespaceState("default", ["DaemonSet", "ControllerRevision"]), NOW)
    promptly.make_revision("DaemonSet", "default", "ds", NOW)
    history = trace(control, get())
    assert revisions()[history.current["metadata"]["name"]] == 2
    assert not get()["status"].get("collisionCount")
    other = {**get_manifest("ControllerRevision", "default", history.current["metadata"]["name"])}
    objects.delete("ControllerRevision", "default", other["metadata"]["name"], now=NOW)
    taken = {**other, "data": {"spec": {"template": {"spec": "another"}}}}
    taken["metadata"] = {"name": other["metadata"]["name"]}
    objects.create("ControllerRevision", "default", taken, now=NOW)
    control = NamespaceControl(NamespaceState("default", ["DaemonSet", "ControllerRevision"]), NOW)
    assert trace(control, get()) is None
    assert get()["status"]["collisionCount"] == 1


def test_a_revision_stays_while_a_pod_could_not_be_given_the_hash_of_the_one_that_is_kept():
    """Another pod of its name is there meanwhile."""
    make_agent("a")
    make_daemon_set()
    settle()
    (before,) = pods()
    name = copy_revision()
    control = NamespaceControl(NamespaceState("default", ["DaemonSet", "ControllerRevision"]), NOW)
    options = {"gracePeriodSeconds": 0}
    objects.delete("Pod", "default", before["metadata"]["name"], options, now=NOW)
    metadata = {key: before["metadata"][key] for key in ("name", "labels")}
    create_pod(
        {"metadata": metadata, "spec": {"containers": before["spec"]["containers"]}}, now=NOW
    )
    (daemon_set,) = control.world.owners["DaemonSet"]
    daemon_sets.sync(control, daemon_set)
    assert set(revisions()) == {name, "ds-other"}
    (found,) = (one for one in pods() if one["metadata"]["name"] == metadata["name"])
    assert found["metadata"]["labels"] == metadata["labels"]


def test_templates_are_counted_and_pods_say_which_they_are_of():
    def counts():
        (pod,) = pods()
        noted = get()["metadata"]["annotations"]["deprecated.daemonset.template.generation"]
        return noted, pod["metadata"]["labels"]["pod-template-generation"]

    make_agent("a")
    make_daemon_set()
    settle()
    assert counts() == ("1", "1")
    before = get()

    def bare(old):
        return {**old, "metadata": {**old["metadata"], "annotations": {}}}

    objects.update("DaemonSet", "default", "ds", bare, now=NOW)
    objects.update("DaemonSet", "default", "ds", bare, subresource="status", now=NOW)
    assert get() == before
    roll_to("agent:2")
    settle()
    assert counts() == ("2", "2")


def test_a_heartbeat_is_no_reason_to_look_at_daemons():
    make_agent("a")
    make_daemon_set()
    settle()
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    objects.update(
        "Node", "", "a",
        lambda m: {**m, "status": {**m["status"], "conditions": [condition]}},
        subresource="status", now=NOW,
    )  # fmt: skip
    assert follower.follow(NOW) == 0
    set_labels("a", some="label")
    assert follower.follow(NOW) == 1

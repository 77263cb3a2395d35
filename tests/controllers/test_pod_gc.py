"""Pods that nobody looks after any more, and deletions that no agent ends."""

import pytest
from django.db import connection

from clusterstate.actions import objects
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.actions.pods.evict import evict_pod
from clusterstate.actions.pods.status import with_condition
from clusterstate.change_log import changes
from clusterstate.database import locks, sql
from clusterstate.health import aside
from clusterstate.queries.loops.controllers import pending_work
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import pod_overlay
from scheduling.controllers import manager
from scheduling.controllers.nodes import lifecycle
from scheduling.controllers.pods import deletion, podgc
from tests.controllers.support import (
    NOW,
    after,
    bind,
    evict,
    make_node,
    make_pod,
    pod,
    set_taints,
    taint,
)

pytestmark = pytest.mark.django_db


def delete(kind, name, seconds=0.0, **options):
    namespace = "" if kind == "Node" else "default"
    objects.delete(kind, namespace, name, options, now=after(seconds))


def set_status(name, seconds=0.0, kind="Pod", **parts):
    def change(manifest):
        return {**manifest, "status": {**manifest["status"], **parts}}

    objects.update(
        kind, "" if kind == "Node" else "default", name, change, subresource="status",
        now=after(seconds),
    )  # fmt: skip


def names():
    found = [decode_object(item) for item in list_page("Pod", "default").items]
    return sorted(one["metadata"]["name"] for one in found)


# Nodes that are gone ------------------------------------------------------------------------------


def test_pods_of_a_deleted_node_fail_and_go(settings):
    """After the quarantine, and not before; those of other nodes stay."""
    settings.POD_GC_QUARANTINE_SECONDS = 40
    for name in ("n1", "n2"):
        make_node(name)
    for name in ("a", "b", "done"):
        make_pod(name, "n1")
    make_pod("elsewhere", "n2")
    make_pod("waiting")
    set_status("done", phase="Succeeded")
    delete("Node", "n1")
    assert podgc.collect(NOW) == 0
    assert podgc.collect(after(39)) == 0
    mark = changes.watermark()
    assert podgc.collect(after(40)) == 3
    assert names() == ["elsewhere", "waiting"]
    read = changes.read_since(mark, kinds=["Pod"], limit=50, documents=None)
    last = {one.name: decode_object(_text(one))["status"] for one in read.items}
    assert last["done"]["phase"] == "Succeeded"
    (condition,) = [one for one in last["a"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert last["a"]["phase"] == "Failed"
    assert condition["reason"] == "DeletionByPodGC"
    assert condition["message"] == "PodGC: node no longer exists"


def _text(change):
    from clusterstate.objects.values import document

    slots = pod_overlay(
        change.node_name, change.scheduled_at, change.unschedulable, change.eviction
    )
    return document.compose(change.text, change.revision, slots)


def test_a_restart_does_not_begin_to_count_again(settings):
    settings.POD_GC_QUARANTINE_SECONDS = 40
    make_node("n1")
    make_pod("a", "n1")
    delete("Node", "n1")
    for second in range(0, 40, 5):
        assert podgc.collect(after(second)) == 0
    assert podgc.collect(after(40)) == 1


def test_a_clock_that_is_set_back_costs_no_more_than_the_quarantine(settings):
    """A pass ran while the clock was an hour ahead."""
    settings.POD_GC_QUARANTINE_SECONDS = 40
    make_node("n1")
    make_pod("a", "n1")
    delete("Node", "n1")
    podgc.collect(after(3600))
    assert podgc.has_work(pending_work([podgc.NAME]), after(0))
    assert podgc.collect(after(0)) == 0
    assert not podgc.has_work(pending_work([podgc.NAME]), after(1))
    assert podgc.collect(after(40)) == 1


def test_a_node_that_comes_back_finds_its_pods(settings):
    settings.POD_GC_QUARANTINE_SECONDS = 40
    make_node("n1")
    make_pod("a", "n1")
    delete("Node", "n1")
    podgc.collect(NOW)
    make_node("n1", now=after(20))
    podgc.collect(after(50))
    delete("Node", "n1", 60)
    podgc.collect(after(60))
    assert podgc.collect(after(99)) == 0
    assert names() == ["a"]
    assert podgc.collect(after(100)) == 1


def test_a_pod_that_names_a_node_that_never_was_goes_too(settings):
    """R101: in some cases it is deleted; each has the time of the quarantine."""
    settings.POD_GC_QUARANTINE_SECONDS = 40
    make_pod("first", nodeName="never")
    podgc.collect(NOW)
    make_pod("second", nodeName="never", now=after(30))
    podgc.collect(after(40))
    assert names() == ["second"]
    podgc.collect(after(70))
    assert names() == []


def test_a_finalizer_keeps_a_pod_of_a_deleted_node(settings):
    settings.POD_GC_QUARANTINE_SECONDS = 0
    make_node("n1")
    make_pod("kept", "n1", metadata={"finalizers": ["example.com/hold"]})
    delete("Node", "n1")
    podgc.collect(NOW)
    found = pod("kept")
    assert found is not None
    assert found["metadata"]["deletionTimestamp"]
    assert found["status"]["phase"] == "Failed"
    mark = changes.watermark()
    assert podgc.collect(after(10)) == 0
    assert changes.watermark() == mark


def test_many_go_in_bursts(settings, monkeypatch):
    settings.POD_GC_QUARANTINE_SECONDS = 0
    monkeypatch.setattr(podgc, "BURST", 3)
    make_node("n1")
    for number in range(7):
        make_pod(f"p{number}", "n1")
    delete("Node", "n1")
    left = []
    for second in range(4):
        if podgc.NAME in manager.run(after(second)):
            left.append(len(names()))
    assert left == [4, 1, 0]


def test_of_two_passes_at_a_time_one_works():
    """Two supervisors on one database may both begin one; a pod would be said to fail twice."""
    make_node("n1")
    make_pod("a", "n1")
    delete("Node", "n1")
    podgc.collect(NOW)
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", (locks.POD_GC,))
        assert podgc.collect(after(3600)) == 0
        assert names() == ["a"]
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", (locks.POD_GC,))
    finally:
        other.close()
    assert podgc.collect(after(3600)) == 1


def test_a_pod_that_finished_meanwhile_stays_as_it_ended(monkeypatch):
    make_node("n1")
    make_pod("a", "n1")
    delete("Node", "n1")
    podgc.collect(NOW)
    rewrite = podgc.rewrite_pod

    def finished_first(*args, **options):
        set_status("a", phase="Succeeded")
        return rewrite(*args, **options)

    monkeypatch.setattr(podgc, "rewrite_pod", finished_first)
    mark = changes.watermark()
    assert podgc.collect(after(3600)) == 1
    read = changes.read_since(mark, kinds=["Pod"], limit=50, documents=None)
    last = decode_object(_text(read.items[-1]))["status"]
    assert last["phase"] == "Succeeded"
    assert "DisruptionTarget" not in {one["type"] for one in last.get("conditions", ())}


def test_a_condition_that_is_said_again_keeps_its_time():
    """As Kubernetes' UpdatePodCondition has it."""

    def said(pod, **parts):
        condition = {"type": "DisruptionTarget", "status": "True", **parts}
        return {**pod, "status": with_condition(pod, condition, after(len(parts["reason"])))}

    first = said({"metadata": {}}, reason="A")
    again = said(first, reason="Two")
    (before,), (now,) = first["status"]["conditions"], again["status"]["conditions"]
    assert now["reason"] == "Two"
    assert now["lastTransitionTime"] == before["lastTransitionTime"]
    (other,) = said(again, reason="Three", status="False")["status"]["conditions"]
    assert other["lastTransitionTime"] > before["lastTransitionTime"]


def leave_by_api(name):
    evict_pod("default", name, {}, now=after(1))


def leave_by_taint(name):
    set_taints("n1", taint("gone"), now=after(1))
    assert evict(1) == [name]  # at once: nothing tolerates the taint


def leave_for_another(name):
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    delete_pod("default", name, condition=condition, now=after(1))


@pytest.mark.parametrize("leave", [leave_by_api, leave_by_taint, leave_for_another])
def test_a_pod_that_is_leaving_leaves_for_one_cause(leave, settings):
    """Its node goes while it ends: the garbage collector ends it, and is not why it left."""
    settings.POD_GC_QUARANTINE_SECONDS = 0
    make_node("n1")
    make_pod("a", "n1")
    leave("a")
    left = [one for one in pod("a")["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert len(left) == 1
    delete("Node", "n1", 2)
    mark = changes.watermark()
    assert podgc.collect(after(3)) == 1
    assert names() == []
    read = changes.read_since(mark, kinds=["Pod"], limit=50, documents=None)
    status = decode_object(_text(read.items[-1]))["status"]
    assert status["phase"] == "Failed"
    assert [one for one in status["conditions"] if one["type"] == "DisruptionTarget"] == left


# Too many that are done ---------------------------------------------------------------------------


def test_finished_pods_are_kept_up_to_a_number(settings):
    """The evicted first, then the oldest."""
    settings.TERMINATED_POD_THRESHOLD = 2
    for number, (phase, reason) in enumerate(
        [("Failed", "Error"), ("Succeeded", ""), ("Failed", "Evicted"), ("Failed", "Error")]
    ):
        make_pod(f"p{number}", now=after(number))
        set_status(f"p{number}", number, phase=phase, reason=reason)
    make_pod("alive")
    assert podgc.collect(after(10)) == 2
    assert names() == ["alive", "p1", "p3"]
    settings.TERMINATED_POD_THRESHOLD = 0
    assert podgc.collect(after(100)) == 0


# Deletions that no agent ends ---------------------------------------------------------------


def lease(node):
    if find_object("Namespace", "", "kube-node-lease") is None:
        objects.create("Namespace", "", {"metadata": {"name": "kube-node-lease"}}, now=NOW)
    manifest = {"metadata": {"name": node}, "spec": {"renewTime": "2026-11-21T12:00:00.000000Z"}}
    objects.create("Lease", "kube-node-lease", manifest, now=NOW)


def heartbeat(node, seconds):
    stamp = f"2026-11-21T12:00:{seconds:02}Z"
    set_status(
        node, seconds, kind="Node",
        conditions=[{"type": "Ready", "status": "True", "lastHeartbeatTime": stamp}],
    )  # fmt: skip
    lifecycle.run(after(seconds))


def test_a_pod_goes_at_once_where_nobody_plays_the_agent():
    """`kubectl delete pod` waited for a grace period that nobody used."""
    make_node("n1")
    make_pod("a", "n1")
    make_pod("b", "n1", terminationGracePeriodSeconds=3600)
    delete("Pod", "a")
    delete("Pod", "b")
    assert pod("a") is not None
    assert deletion.finish(NOW) == 2
    assert names() == []


@pytest.mark.parametrize("agent", ["lease", "status"])
def test_an_agent_is_given_the_grace_period(agent, settings):
    settings.FORCED_DELETION_MARGIN_SECONDS = 30
    make_node("n1")
    if agent == "lease":
        lease("n1")
    else:
        for seconds in (1, 2, 3):
            heartbeat("n1", seconds)
    make_pod("a", "n1")
    delete("Pod", "a")
    assert deletion.finish(after(59)) == 0
    assert pod("a") is not None
    assert deletion.finish(after(60)) == 1, "the agent did not act"


def test_a_finalizer_keeps_a_pod_where_nobody_plays_the_agent():
    make_node("n1")
    make_pod("a", "n1", metadata={"finalizers": ["example.com/hold"]})
    delete("Pod", "a")
    assert deletion.finish(NOW) == 0
    assert pod("a") is not None


def test_a_node_that_is_out_of_service_gives_its_pods_up():
    """Its agent was there once; now the node is lost for good and somebody says so."""
    for name in ("n1", "n2"):
        make_node(name)
        lease(name)
        make_pod(f"on-{name}", name)
        set_status(name, kind="Node", conditions=[{"type": "Ready", "status": "Unknown"}])
        delete("Pod", f"on-{name}")
    set_taints("n1", taint("node.kubernetes.io/out-of-service"))
    assert podgc.collect(NOW) == 1
    assert names() == ["on-n2"]


def test_bound_and_evicted_pods_are_counted_from_their_binding(settings):
    """Who comes to a missing node late has the whole quarantine."""
    settings.POD_GC_QUARANTINE_SECONDS = 40
    make_node("n1")
    pod_id = make_pod("late")
    make_pod("early", "n1")
    bind(pod_id, "n1", now=after(20))
    delete("Node", "n1", 21)
    podgc.collect(after(21))
    assert podgc.collect(after(61)) == 2


def test_a_pod_that_cannot_be_read_does_not_keep_the_others(settings):
    settings.POD_GC_QUARANTINE_SECONDS = 0
    make_node("n1")
    for name in ("a", "broken", "c"):
        make_pod(name, "n1")
    sql.run(
        "UPDATE document SET text = replace(text, '{\"apiVersion\"', '{apiVersion')"
        " WHERE id = (SELECT document_id FROM pod WHERE name = 'broken')"
    )
    delete("Node", "n1")
    assert podgc.collect(NOW) == 2
    assert sql.fetch("SELECT name FROM pod") == [("broken",)]
    assert podgc.collect(after(10)) == 0
    assert len(aside.objects("pod-gc")) == 1

"""A follower that fails on an object sets it aside, goes on with the others, and tells of it."""

import re

import pytest
from django.db import OperationalError
from prometheus_client.parser import text_string_to_metric_families

from api.server import health, metrics
from api.streaming import streams
from clusterstate.actions import objects
from clusterstate.actions.loops import aside, controller_state
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.health import aside as reads
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.processes import memory
from clusterstate.queries.loops.controllers import pending_work
from clusterstate.queries.objects import decode_object, find_object
from scheduling.controllers import manager
from scheduling.controllers.budgets import statuses
from scheduling.controllers.evictions import timers
from scheduling.controllers.nodes import lifecycle
from scheduling.controllers.pods import deletion
from scheduling.controllers.workloads import follower as workloads
from tests.clock import NOW, after
from tests.controllers.support import (
    evict,
    make_node,
    make_owner,
    make_pod,
    pod,
    set_taints,
    taint,
    timer,
    tolerate_too,
    tolerates,
)

pytestmark = pytest.mark.django_db


def spoil_class(name: str) -> None:
    """Give a pod a scheduling class that nobody can read, as of another version."""
    changed = sql.run(
        "UPDATE scheduling_class SET spec = %s FROM pod p WHERE class_id = scheduling_class.id"
        " AND p.name = %s",
        ('{"spec":{"tolerations":[{"tolerationSeconds":"x"}]}}', name),
    )
    assert changed == 1
    memory.forget()


def spoil(kind: str, name: str, old: str, new: str) -> None:
    """Change the stored text of an object behind everybody's back."""
    changed = sql.run(
        f"UPDATE document d SET text = replace(d.text, %s, %s) FROM {KINDS[kind].rows} t"
        " WHERE t.document_id = d.id AND t.name = %s AND strpos(d.text, %s) > 0",
        (old, new, name, old),
    )
    assert changed == 1


def kept(follower: str) -> list[tuple[str, str]]:
    return sql.fetch(
        "SELECT kind, name FROM set_aside WHERE follower = %s ORDER BY name", (follower,)
    )


def told_of(name: str) -> list[str]:
    rows = sql.fetch(
        "SELECT message FROM event WHERE involved_name = %s AND reason = %s", (name, aside.REASON)
    )
    return [row[0] for row in rows]


# The mechanism ------------------------------------------------------------------------------------


def test_of_a_batch_only_those_are_set_aside_that_fail_alone() -> None:
    names = [f"p{number}" for number in range(13)]
    ids = {name: make_pod(name) for name in names}
    bad = {ids["p3"], ids["p4"], ids["p12"]}
    calls = []

    def work(pod_ids):
        calls.append(len(pod_ids))
        if bad & set(pod_ids):
            raise ValueError("indigestible")
        return list(pod_ids)

    done = aside.each("someone", list(ids.values()), work, which=aside.pod, now=NOW)
    assert sorted(id_ for part in done for id_ in part) == sorted(set(ids.values()) - bad)
    assert kept("someone") == [("Pod", "p12"), ("Pod", "p3"), ("Pod", "p4")]
    assert len(told_of("p3")) == 1
    assert told_of("p5") == []
    assert calls[0] == 13
    bad.clear()
    aside.each("someone", [ids["p3"]], work, which=aside.pod, now=NOW)
    assert kept("someone") == [("Pod", "p12"), ("Pod", "p4")], "digested now"


def test_without_a_failure_a_batch_is_done_at_once_and_nothing_is_written() -> None:
    calls = []
    aside.each(
        "someone", range(1000), lambda some: calls.append(len(some)), which=aside.pod, now=NOW
    )
    assert calls == [1000]
    assert kept("someone") == []


def test_a_database_that_fails_is_nobodys_fault() -> None:
    make_pod("p")
    which = ObjectRef("Pod", namespace="default", name="p")

    def work(some):
        raise OperationalError("canceling statement due to lock timeout")

    with pytest.raises(OperationalError):
        aside.each("someone", [which], work, which=lambda one: one, now=NOW)
    assert kept("someone") == []


def test_what_was_set_aside_is_told_once_for_each_version_and_swept_when_it_changes() -> None:
    pod_id = make_pod("p", tolerations=[tolerates("a")])
    error = ValueError("no \0 and no \ud800 can be stored")
    assert aside.put("someone", aside.pod(pod_id), error, now=NOW)
    assert not aside.put("someone", aside.pod(pod_id), error, now=NOW)
    assert reads.standing(NOW).set_aside == {"someone": 1}
    assert aside.sweep(NOW) == 0
    tolerate_too("p", tolerates("b"))
    assert aside.sweep(NOW) == 1
    assert reads.standing(NOW).set_aside == {}
    assert aside.put("someone", aside.pod(pod_id), error, now=NOW)
    objects.delete("Pod", "default", "p", {"gracePeriodSeconds": 0}, now=NOW)
    assert aside.sweep(NOW) == 1
    assert not aside.put("someone", aside.pod(pod_id), error, now=NOW), "it is gone"


def test_what_another_process_set_aside_is_released_by_the_one_that_digests_it(monkeypatch) -> None:
    monkeypatch.setattr(aside, "_ASKED_FOR", 0.0)  # the seconds are over
    pod_id = make_pod("p")

    def digest() -> None:
        aside.each("someone", [pod_id], lambda some: None, which=aside.pod, now=NOW)

    digest()
    sql.run(
        "INSERT INTO set_aside (follower, kind, object_id, revision, namespace, name, error, since)"
        " SELECT 'someone', 'Pod', id, revision, namespace, name, 'an accident', now() FROM pod"
    )
    digest()
    assert kept("someone") == []


# The followers ------------------------------------------------------------------------------------


def test_an_indigestible_pod_holds_up_no_eviction() -> None:
    make_node("n1")
    make_node("n2")
    timers.follow(NOW)
    for name, node in (("bad", "n1"), ("beside", "n1"), ("elsewhere", "n2")):
        make_pod(name, node, tolerations=[tolerates(seconds=10)], metadata={"labels": {"of": name}})
    spoil_class("bad")
    for node in ("n1", "n2"):
        set_taints(node, taint())
    mark = changes.watermark()
    assert timer("beside") == timer("elsewhere") == 10
    assert kept("evictions") == [("Pod", "bad")]
    assert controller_state.cursor("evictions") >= mark
    assert evict(11) == ["beside", "elsewhere"]
    assert len(told_of("bad")) == 1


def test_a_pod_that_changed_is_tried_again() -> None:
    make_node("n1", taints=[taint()])
    make_pod("bad", "n1", tolerations=[tolerates(seconds=10)])
    make_pod("good", "n1", tolerations=[tolerates(seconds=20)])
    spoil_class("bad")
    assert timer("good") == 20
    assert timer("bad") is None
    tolerate_too("bad", tolerates("other"))
    assert timer("bad") == 10
    assert kept("evictions") == []


def test_a_due_pod_that_cannot_be_judged_lets_the_others_go() -> None:
    make_node("n1", taints=[taint()])
    for name in ("a", "bad", "c"):
        make_pod(name, "n1", tolerations=[tolerates(seconds=10)], metadata={"labels": {"of": name}})
    assert timer("bad") == 10
    spoil_class("bad")
    memory.forget()
    assert evict(11) == ["a", "c"]
    assert kept("evictions") == [("Pod", "bad")]
    assert evict(12) == [], "and is not asked again and again"


def test_a_deletion_that_cannot_be_ended_holds_up_no_other() -> None:
    make_node("n1")
    for name in ("a", "bad", "c"):
        make_pod(name, "n1")
        objects.delete("Pod", "default", name, now=NOW)
    sql.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN IF OLD.name = 'bad' THEN RAISE data_exception; END IF; RETURN OLD; END$$"
    )
    sql.run("CREATE TRIGGER refuse BEFORE DELETE ON pod FOR EACH ROW EXECUTE FUNCTION refuse()")
    assert deletion.finish(after(60)) == 2
    assert pod("a") is None
    assert pod("c") is None
    assert kept("pod-deletion") == [("Pod", "bad")]
    assert deletion.finish(after(61)) == 0


def test_a_node_that_cannot_be_read_is_passed_over() -> None:
    make_node("bad", labels={"some": "label"})
    make_node("good")
    spoil("Node", "bad", '"some":"label"', '"some":17')
    lost = [{"type": "Ready", "status": "False"}]

    def lose(manifest):
        return {**manifest, "status": {**manifest["status"], "conditions": lost}}

    objects.update("Node", "", "good", lose, subresource="status", now=NOW)
    lifecycle.run(NOW)
    assert kept("node-lifecycle") == [("Node", "bad")]
    assert "node.kubernetes.io/not-ready" in str(
        decode_object(find_object("Node", "", "good"))["spec"]
    )


def budget(name: str) -> None:
    manifest = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}},
    }
    objects.create("PodDisruptionBudget", "default", manifest, now=NOW)


def expected(name: str) -> int | None:
    found = decode_object(find_object("PodDisruptionBudget", "default", name))
    return (found.get("status") or {}).get("expectedPods")


def test_a_budget_that_cannot_be_counted_leaves_the_others() -> None:
    for name in ("a", "bad", "c"):
        budget(name)
    spoil("PodDisruptionBudget", "bad", '"app":"bad"', '"app":17')
    statuses.follow(NOW)
    assert expected("a") == expected("c") == 0
    assert kept("disruption") == [("PodDisruptionBudget", "bad")]
    assert controller_state.cursor("disruption") is not None


def test_an_owner_that_cannot_be_served_leaves_the_others() -> None:
    for name in ("a", "bad", "c"):
        make_owner("ReplicaSet", name, 2, app=name)
    spoil("ReplicaSet", "bad", '"replicas":2', '"replicas":"two"')
    workloads.follow(NOW)
    rows = sql.fetch("SELECT name FROM pod ORDER BY name")
    assert sorted(row[0][0] for row in rows) == ["a", "a", "c", "c"]
    assert kept("workloads") == [("ReplicaSet", "bad")]


def refuse_pods(what: str) -> None:
    """Have the database fail at each new pod, as in an accident that has nothing to do with it."""
    if what == "begin":
        sql.run(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN RAISE data_exception; END$$"
        )
        sql.run("CREATE TRIGGER fail BEFORE INSERT ON pod FOR EACH ROW EXECUTE FUNCTION fail()")
    else:
        sql.run("DROP TRIGGER fail ON pod")


def test_a_workload_that_failed_by_accident_is_tried_again_though_nothing_changed() -> None:
    make_owner("ReplicaSet", "web", 2)
    refuse_pods("begin")
    workloads.follow(NOW)
    assert kept("workloads") == [("ReplicaSet", "web")]
    refuse_pods("end")
    workloads.follow(NOW)  # it reads what it wrote itself: that something was set aside
    assert not workloads.must_look_again(pending_work(["workloads"]), after(59))
    assert workloads.must_look_again(pending_work(["workloads"]), after(60))
    workloads.follow(after(60))
    assert sql.fetch("SELECT count(*) FROM pod") == [(2,)]
    assert kept("workloads") == []
    workloads.follow(after(61))
    assert not workloads.must_look_again(pending_work(["workloads"]), after(9999))


def test_readyz_and_metrics_tell_of_it_and_the_service_stays_ready() -> None:
    manager.run(NOW)
    assert list(health._followers()) == [health.Part("followers", needed=False)]
    aside.put("evictions", aside.pod(make_pod("p")), ValueError("x"), now=NOW)
    controller_state.set_cursor("disruption", changes.watermark() - 1)
    sql.run("UPDATE change SET at = %s::timestamptz", (after(-3600),))
    (part,) = health._followers()
    assert part.problem.startswith("evictions goes on without 1 object; ")
    assert re.search(r"; 36\d\d s behind: .*\bdisruption\b", part.problem)
    assert not part.needed
    found = {
        (sample.name, sample.labels.get("follower")): sample.value
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
    }
    assert found["stowage_objects_set_aside", "evictions"] == 1
    assert found["stowage_follower_lag_seconds", "disruption"] >= 3600
    assert found["stowage_follower_lag_seconds", "runtime-classes"] > 0


def test_a_follower_to_whom_nothing_of_note_happens_does_not_seem_to_lag() -> None:
    timers.follow(NOW)
    make_pod("unbound")
    timers.follow(after(1))
    assert controller_state.cursor("evictions") < changes.watermark()
    timers.follow(after(12))
    assert controller_state.cursor("evictions") == changes.watermark()


def test_who_catches_up_from_the_log_goes_on_without_what_cannot_be_read() -> None:
    """A watch or a stream that begins in the past, and would begin there again and again."""
    cursor = changes.watermark()
    for name in ("a", "bad", "c"):
        make_pod(name)
    spoil("Pod", "bad", "\x01", "")
    events, _ = streams._from_log(frozenset({"Pod"}), frozenset(), cursor)
    assert [one.new["metadata"]["name"] for one in events] == ["a", "c"]
    assert kept("watch") == [("Pod", "bad")]


def test_the_manager_sweeps_what_changed() -> None:
    pod_id = make_pod("p", tolerations=[tolerates("a")])
    aside.put("someone", aside.pod(pod_id), ValueError("x"), now=NOW)
    tolerate_too("p", tolerates("b"))
    manager.run(NOW)
    assert kept("someone") == []

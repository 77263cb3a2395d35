"""A recorded decision made again, in the world of then."""

from typing import Any

import msgspec
import pytest

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.create import create_pods
from clusterstate.change_log import changes
from clusterstate.objects.values.errors import Expired
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler import decisions
from clusterstate.queries.scheduler.decisions import Record
from scheduling.answers import replay
from tests.clock import NOW, after
from tests.controllers.support import make_node, pod_manifest, schedule
from tests.worker.worker import Worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def record(db: None) -> Record:
    """The record of a pod that fits on two of three nodes."""
    bootstrap.add_missing(now=NOW)
    for name in ("a", "b"):
        make_node(name)
    make_node("closed", taints=[{"key": "closed", "effect": "NoSchedule"}])
    worker = Worker()
    create_pods([pod_manifest("p")], now=NOW)
    worker.decide()
    worker.binder.recorder.record()
    worker.binder.close()
    (found,) = decisions.of_pod("default", "p", limit=10)
    return found


def test_the_same_decision_comes_out(record: Record) -> None:
    made = replay.make_again(record)
    assert made.differences == ()
    assert made.decision.total == record.total
    assert made.decision.feasible == record.feasible == 2


def test_a_pod_that_was_placed_before_and_deleted_at_once_counts(db: None) -> None:
    """Nobody bound it, and it is gone when the decisions are written down (R34)."""
    bootstrap.add_missing(now=NOW)
    make_node("a")
    make_node("b")
    worker = Worker()
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    for name, seconds in (("first", -1), ("second", 0)):
        create_pods([pod_manifest(name, containers=[container])], now=after(seconds))
    worker.decide()
    objects.delete("Pod", "default", "first", {"gracePeriodSeconds": 0}, now=NOW)
    worker.binder.recorder.record()
    worker.binder.close()
    (record,) = decisions.of_pod("default", "second", limit=10)
    assert record.ties == 1
    assert replay.make_again(record).differences == ()


def test_a_decision_that_was_taken_back_counts_until_then(db: None) -> None:
    bootstrap.add_missing(now=NOW)
    make_node("a")
    make_node("b")
    worker = Worker()
    create_pods([pod_manifest("first")], now=after(-1))
    create_pods([pod_manifest("second")], now=NOW)
    worker.decide()
    first = find_pod_id("default", "first")
    assert first is not None
    worker.binder.recorder.came_back([first])
    worker.binder.recorder.record()
    (stale,) = decisions.of_pod("default", "first", limit=10)
    (record,) = decisions.of_pod("default", "second", limit=10)
    worker.binder.close()
    assert (stale.outcome, stale.taken_back) == ("stale", record.number + 1)
    (placed,) = decisions.placed_before(record).items()
    assert (placed[0], placed[1].node_name, placed[1].came_back) == (first, stale.node_name, True)
    assert replay.make_again(record).differences == ()
    later = msgspec.structs.replace(record, id=record.id + 9, number=record.number + 1, pod_id=0)
    assert first not in decisions.placed_before(later)


def test_what_happened_since_then_does_not_matter(record: Record) -> None:
    for name in ("a", "b", "closed"):
        objects.delete("Node", "", name, now=NOW)
    make_node("late")
    made = replay.make_again(record)
    assert made.differences == ()
    assert set(made.snapshot.node_names()) == {"a", "b", "closed"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"total": 1}, "total: recorded 1"),
        ({"feasible": 3}, "feasible: recorded 3"),
        ({"outcome": "unschedulable"}, "outcome: recorded 'unschedulable'"),
        ({"node_name": "closed"}, "nodeName: closed is not among the best"),
    ],
)
def test_a_record_that_says_otherwise_is_told_apart(
    record: Record, change: dict[str, object], named: str
) -> None:
    made = replay.make_again(msgspec.structs.replace(record, **change))
    assert [text for text in made.differences if text.startswith(named)]


def test_a_bind_that_came_too_late_was_decided_all_the_same(record: Record) -> None:
    assert replay.make_again(msgspec.structs.replace(record, outcome="stale")).differences == ()


def test_a_profile_that_is_gone_cannot_be_asked_again(record: Record) -> None:
    with pytest.raises(Expired, match="the configuration of that time has no profile other"):
        replay.make_again(msgspec.structs.replace(record, profile="other"))


def test_pods_that_the_scheduler_had_set_aside_do_not_matter(record: Record) -> None:
    """A pod that asks for more resources than are counted waits beside the one that is decided."""
    make_node("shut")
    greedy = {f"example.com/r{number}": "1" for number in range(600)}
    containers = [{"name": "main", "image": "busybox", "resources": {"limits": greedy}}]
    waits = pod_manifest("waits", containers=containers)
    there = pod_manifest("there", containers=containers, nodeName="shut")
    create_pods([waits, there], now=NOW)
    made = replay.make_again(msgspec.structs.replace(record, snapshot_revision=changes.watermark()))
    assert set(made.snapshot.node_names()) == {"a", "b", "closed"}


def test_a_group_that_was_spared_is_spared_again(db: None) -> None:
    bootstrap.add_missing(now=NOW)
    make_node("a")
    api = "scheduling.k8s.io"
    for name, value in (("high", 100), ("mid", 50)):
        made = {"apiVersion": f"{api}/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        objects.create("PriorityClass", "", {**made, "value": value}, now=NOW)
    mode = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}}
    spec = {**mode, "priorityClassName": "high"}
    metadata = {"name": "g", "namespace": "default"}
    group = {"apiVersion": f"{api}/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    objects.create("PodGroup", "default", group, now=NOW)
    big = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "60"}}}]
    of = {"podGroupName": "g"}
    create_pods([pod_manifest("v", containers=big, nodeName="a", schedulingGroup=of)], now=NOW)
    worker = Worker()
    create_pods([pod_manifest("p", containers=big, priorityClassName="mid")], now=NOW)
    worker.decide()
    worker.binder.recorder.record()
    worker.binder.close()
    (record,) = decisions.of_pod("default", "p", limit=10)
    assert "No preemption victims found" in record.message
    assert replay.make_again(record).differences == ()


def test_the_explanation_names_every_node(record: Record) -> None:
    found = replay.explain(record)
    assert (found["source"], found["verified"]) == ("replayed", True)
    assert sorted(found["feasible"]) == ["a", "b"]
    assert found["infeasible"]["closed"]["plugin"] == "TaintToleration"


@pytest.mark.parametrize(
    ("sizes", "count", "placed", "before"),
    [
        ("11", 2, True, ""), ("111", 3, False, ""), ("1112", 3, True, ""), ("88", 2, False, ""),
        ("11", 2, True, "1"), ("11", 2, False, "11"),
    ],
)  # fmt: skip
def test_the_decisions_about_a_group_are_made_again_with_the_whole_group(
    db: None, sizes: str, count: int, placed: bool, before: str
) -> None:
    """Two racks of two nodes that a large pod fills; three pods of a rack do not fit.

    The pods ``before`` the group are decided with the same seed, one in each rack.
    """
    bootstrap.add_missing(now=NOW)
    for number, name in enumerate("abcd"):
        make_node(name, labels={"rack": f"r{number // 2}"})
    topology = {"topology": [{"key": "rack"}]}
    spec = {"schedulingPolicy": {"gang": {"minCount": count}}, "schedulingConstraints": topology}
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"}, "spec": spec,
    }  # fmt: skip
    objects.create("PodGroup", "default", group, now=NOW)
    cpus = {"1": "60", "2": "1", "8": "90"}

    def pod(name: str, size: str, **spec: Any) -> Manifest:
        requests = {"cpu": cpus[size]}
        containers = [{"name": "c", "image": "i", "resources": {"requests": requests}}]
        return pod_manifest(name, containers=containers, **spec)

    others = [
        pod(f"before{number}", size, nodeSelector={"rack": f"r{number}"})
        for number, size in enumerate(before)
    ]
    create_pods(others, now=after(-1))
    mine = {"schedulingGroup": {"podGroupName": "g"}}
    create_pods([pod(f"p{number}", size, **mine) for number, size in enumerate(sizes)], now=NOW)
    schedule(NOW)
    found = [decisions.of_pod("default", f"p{number}", limit=10) for number in range(len(sizes))]
    records = [one for (one,) in found]
    assert any(one.outcome == "scheduled" for one in records) is placed
    for one in records:
        assert replay.make_again(one).differences == ()
        explained = replay.explain(one)
        assert explained["verified"] is True
        assert ("feasible" in explained) is (one.outcome == "scheduled")
    wrong = msgspec.structs.replace(records[0], message="other", outcome="error")
    assert len(replay.make_again(wrong).differences) == 2

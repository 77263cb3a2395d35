"""A recorded decision made again, in the world of then."""

import msgspec
import pytest

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.create import create_pods
from clusterstate.change_log import changes
from clusterstate.objects.values.errors import Expired
from clusterstate.queries.scheduler import decisions
from clusterstate.queries.scheduler.decisions import Record
from scheduling.answers import replay
from tests.clock import NOW
from tests.controllers.support import make_node, pod_manifest
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
    with pytest.raises(Expired, match="profile other is no longer known"):
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


def test_the_explanation_names_every_node(record: Record) -> None:
    found = replay.explain(record)
    assert (found["source"], found["verified"]) == ("replayed", True)
    assert sorted(found["feasible"]) == ["a", "b"]
    assert found["infeasible"]["closed"]["plugin"] == "TaintToleration"

"""Decision records wait in memory, in their order, until there is time to write them."""

import pytest

from clusterstate.actions.pods.create import create_pods
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler import decisions
from clusterstate.queries.scheduler.decisions import Record
from scheduling.worker import recorder
from tests.clock import NOW
from tests.controllers.support import pod_manifest
from tests.worker.worker import SECONDS, Worker

pytestmark = pytest.mark.django_db


def create(*names: str, **spec: object) -> None:
    create_pods([pod_manifest(name, **spec) for name in names], now=NOW)


def recorded(name: str) -> list[Record]:
    return decisions.of_pod("default", name, limit=10)


def test_nothing_is_written_before_it_is_asked_for(worker: Worker) -> None:
    create("a", "b")
    worker.decide()
    recorder = worker.binder.recorder
    assert len(recorder) == 2
    assert recorded("a") == []
    assert recorder.record() == 2
    assert len(recorder) == 0
    assert [record.node_name for record in recorded("a")] == ["n1"]


def test_the_oldest_are_written_first_and_numbered_without_gaps(worker: Worker) -> None:
    names = [f"p{number}" for number in range(5)]
    for name in names:
        create(name)
        worker.decide()
    recorder = worker.binder.recorder
    assert recorder.record(2) == 2
    assert [bool(recorded(name)) for name in names] == [True, True, False, False, False]
    assert recorder.record() == 3
    turns = [(record.epoch, record.number) for name in names for record in recorded(name)]
    epoch = turns[0][0]
    assert turns == [(epoch, number) for number in range(1, 6)]


def test_a_decision_that_came_too_late_is_recorded_as_stale(worker: Worker) -> None:
    create("a", "b")
    worker.decide()
    pod_id = find_pod_id("default", "a")
    assert pod_id is not None
    worker.binder.recorder.came_back([pod_id])
    worker.binder.recorder.record()
    assert [recorded(name)[0].outcome for name in ("a", "b")] == ["stale", "scheduled"]


def test_two_decisions_about_a_pod_that_both_came_too_late_are_stale(worker: Worker) -> None:
    create("a")
    pod_id = find_pod_id("default", "a")
    assert pod_id is not None
    for _ in range(2):
        worker.decide()
        worker.mirror.snapshot.forget(pod_id)
        worker.mirror.queue.requeue_stale(pod_id, SECONDS)
        worker.binder.recorder.came_back([pod_id])
    worker.binder.recorder.record()
    assert [record.outcome for record in recorded("a")] == ["stale", "stale"]


def test_a_pod_that_fits_nowhere_is_recorded_with_the_table_of_all_nodes(worker: Worker) -> None:
    create("lost", nodeSelector={"no": "node"})
    worker.decide()
    worker.binder.recorder.record()
    (record,) = recorded("lost")
    assert (record.outcome, record.node_name, record.feasible) == ("unschedulable", "", 0)
    assert record.table_digest is not None
    assert decisions.table(record.table_digest)


def test_it_is_time_to_write_when_very_many_wait(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    create("a", "b", "c")
    monkeypatch.setattr(recorder, "LIMIT", 3)
    assert not worker.binder.recorder.full
    worker.decide()
    assert worker.binder.recorder.full

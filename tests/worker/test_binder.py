"""What becomes of decisions: bound, refused, or back in the queue."""

from typing import cast

import msgspec
import pytest

from clusterstate.actions import objects
from clusterstate.actions.pods.bind import Binding, OtherSchedulers, bind_pods
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.scheduler.decisions import begin_epoch
from clusterstate.change_log import changes
from clusterstate.queries.objects import decode_object, get_manifest
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id, pods_by_id
from clusterstate.queries.scheduler import decisions
from clusterstate.queries.scheduler.reaching import reach
from tests.clock import NOW
from tests.controllers.support import make_node, pod_manifest
from tests.rows import load_pending
from tests.worker.worker import SECONDS, Worker

pytestmark = pytest.mark.django_db(transaction=True)


def make_priority(name: str, value: int, **more: str) -> None:
    objects.create(
        "PriorityClass",
        "",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            **more,
        },
        now=NOW,
    )


def create(*names: str, cpu: str = "1", **spec: object) -> list[int]:
    resources = {"requests": {"cpu": cpu}}
    containers = [{"name": "main", "image": "nginx:1", "resources": resources}]
    create_pods([pod_manifest(name, containers=containers, **spec) for name in names], now=NOW)
    return [cast(int, find_pod_id("default", name)) for name in names]


def submit(worker: Worker) -> int:
    """Decide what waits, and begin to bind it."""
    placed = [Binding(cast(int, key), node) for key, node in worker.decide().placed()]
    return worker.binder.submit(placed, SECONDS)


def offer(name: str, cpu: str) -> None:
    """Change what a node offers, so that binds that were decided before are refused."""

    def changed(manifest: dict[str, object]) -> dict[str, object]:
        allocatable = {"cpu": cpu, "memory": "256Gi", "pods": "110"}
        return {**manifest, "status": {"allocatable": allocatable, "capacity": allocatable}}

    objects.update("Node", "", name, changed, subresource="status", now=NOW)


def nodes_of(pod_ids: list[int]) -> list[str]:
    rows = pods_by_id(pod_ids)
    return [rows[pod_id].node_name for pod_id in pod_ids]


def events() -> list[tuple[str, str]]:
    items = [decode_object(item) for item in list_page("Event", "default").items]
    return sorted(
        (item["reason"], item["regarding"]["name"])
        if "regarding" in item
        else (item["reason"], item["involvedObject"]["name"])
        for item in items
    )


@pytest.mark.parametrize("count", [3, 40])
def test_what_was_decided_is_bound_and_leaves_the_queue(worker: Worker, count: int) -> None:
    """A few pods on the caller's thread, more of them on the binder's own."""
    names = [f"p{number}" for number in range(count)]
    pod_ids = create(*names)
    assert submit(worker) == count
    assert worker.binder.finish_batch(SECONDS) == 0
    assert nodes_of(pod_ids) == ["n1"] * count
    assert load_pending() == []
    assert len(worker.mirror.queue) == 0
    worker.binder.write_records(SECONDS)
    assert events() == sorted(("Scheduled", name) for name in names)
    assert not worker.binder.has_news


def test_a_refused_bind_is_forgotten_and_the_pod_is_decided_again(worker: Worker) -> None:
    (pod_id,) = create("p")
    decisions = worker.decide()
    assert worker.mirror.snapshot.is_assumed(pod_id)
    offer("n1", "32")
    placed = [Binding(cast(int, key), node) for key, node in decisions.placed()]
    worker.binder.submit(placed, SECONDS)
    assert nodes_of([pod_id]) == [""]
    assert not worker.mirror.snapshot.knows(pod_id)
    assert worker.mirror.snapshot.requested.sum() == 0
    assert submit(worker) == 1
    assert nodes_of([pod_id]) == ["n1"]


def test_a_refused_pod_waits_at_once_and_its_condition_is_written_later(worker: Worker) -> None:
    (large,) = create("large", cpu="65")
    worker.binder.refuse(worker.decide().unplaced(), SECONDS)
    assert worker.mirror.queue.place(large).stage == "unschedulable"
    assert load_pending()[0].stage == "active"
    assert worker.binder.write_refused(SECONDS) == 1
    (row,) = load_pending()
    assert (row.stage, row.attempts) == ("unschedulable", 1)
    assert "Insufficient cpu" in row.message


@pytest.mark.parametrize("pending", [False, True])
def test_what_a_plugin_waits_for_has_the_pod_tried_at_once(worker: Worker, pending: bool) -> None:
    """Pending, ``isPodWorthRequeuing``, backend/queue/scheduling_queue.go, v1.36."""
    (large,) = create("large", cpu="65")
    (refused,) = worker.decide().unplaced()
    if pending:
        refused = msgspec.structs.replace(refused, pending_by=refused.rejected_by)
    worker.binder.refuse([refused], SECONDS)
    offer("n1", "128")
    worker.mirror.refresh(SECONDS)
    assert worker.mirror.queue.place(large).stage == ("active" if pending else "backoff")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1020 + " ..."),
        ("x" + "é" * 600, "x" + "é" * 509 + " ..."),
    ],
)
def test_an_event_says_where_a_reason_is_cut_off_and_the_condition_has_it_whole(
    worker: Worker, message: str, told: str
) -> None:
    """TestTruncateMessage, schedule_one_test.go, v1.36: 1024 bytes."""
    create("large", cpu="65")
    (refused,) = worker.decide().unplaced()
    worker.binder.refuse([msgspec.structs.replace(refused, message=message)], SECONDS)
    worker.binder.write_refused(SECONDS)
    worker.binder.write_records(SECONDS)
    (event,) = [decode_object(item) for item in list_page("Event", "default").items]
    assert event.get("note", event.get("message")) == told
    (condition,) = get_manifest("Pod", "default", "large")["status"]["conditions"]
    assert condition["message"] == message


def test_a_pod_that_was_placed_drops_its_refusal(worker: Worker) -> None:
    (pod_id,) = create("p", cpu="65")
    worker.binder.refuse(worker.decide().unplaced(), SECONDS)
    offer("n1", "128")
    worker.mirror.refresh(SECONDS)
    worker.mirror.queue.activate([pod_id], SECONDS)
    assert submit(worker) == 1
    assert worker.binder.write_refused(SECONDS) == 0
    assert nodes_of([pod_id]) == ["n1"]


def nominate_by_client(name: str, node_name: str) -> None:
    objects.update(
        "Pod", "default", name,
        lambda m: {**m, "status": {**m["status"], "nominatedNodeName": node_name}},
        now=NOW, subresource="status",
    )  # fmt: skip


def nomination_of(name: str) -> str:
    found = get_manifest("Pod", "default", name)
    return str(found["status"].get("nominatedNodeName", ""))


@pytest.mark.parametrize("followed", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("nominated", ["", "n1"])
def test_a_refusal_that_is_written_later_keeps_a_nomination_that_came_meanwhile(
    worker: Worker, nominated: str, followed: bool
) -> None:
    create("p", cpu="65")
    if nominated:
        nominate_by_client("p", nominated)
    worker.binder.refuse(worker.decide().unplaced(), SECONDS)
    assert nomination_of("p") == nominated, "not written yet"
    nominate_by_client("p", "n2")
    if followed:
        worker.mirror.refresh(SECONDS)
    assert worker.binder.write_refused(SECONDS) == 1
    # One that was there already is ended: what came unread in its place is not told from it.
    kept = "" if nominated and not followed else "n2"
    assert nomination_of("p") == kept
    worker.mirror.refresh(SECONDS)
    (pod_id,) = [row.id for row in load_pending()]
    assert worker.mirror.snapshot.nominated_node_of(pod_id) == kept


def test_a_refusal_ends_a_nomination_although_another_one_follows_before_it_is_written(
    worker: Worker,
) -> None:
    (pod_id,) = create("p", cpu="65")
    nominate_by_client("p", "n1")
    decisions = worker.decide().unplaced()
    worker.binder.refuse(decisions, SECONDS)
    worker.mirror.queue.activate([pod_id], SECONDS)
    (again,) = worker.decide().unplaced()
    worker.binder.refuse([msgspec.structs.replace(again, nomination=None)], SECONDS)
    assert worker.binder.write_refused(SECONDS) == 1
    assert nomination_of("p") == ""


@pytest.mark.parametrize("priority", [5, 10])
def test_who_makes_room_on_a_node_ends_the_nominations_of_lower_priority_there(
    worker: Worker, priority: int
) -> None:
    """Rule: preemption/executor.go ``getLowerPriorityNominatedPods``, v1.36."""
    offer("n1", "4")
    create("placed", cpu="4")
    submit(worker)
    worker.binder.finish_batch(SECONDS)
    make_priority("middle", priority, preemptionPolicy="Never")
    (waits,) = create("waits", cpu="2", priorityClassName="middle")
    worker.binder.refuse(worker.decide().unplaced(), SECONDS)
    worker.binder.write_refused(SECONDS)
    nominate_by_client("waits", "n1")
    make_priority("high", 10)
    (high,) = create("high", cpu="2", priorityClassName="high")
    worker.binder.refuse(worker.decide().unplaced(), SECONDS)
    kept = priority == 10
    assert (nomination_of("high"), nomination_of("waits")) == ("n1", "n1" if kept else "")
    queue, snapshot = worker.mirror.queue, worker.mirror.snapshot
    assert snapshot.nominated_node_of(waits) == ("n1" if kept else "")
    worker.mirror.refresh(SECONDS)
    assert snapshot.nominated_node_of(high) == "n1"
    assert snapshot.nominated_node_of(waits) == ("n1" if kept else "")
    assert queue.place(waits).stage == ("unschedulable" if kept else "backoff")


def test_pods_that_make_room_on_one_node_in_one_batch_are_all_nominated_there(
    worker: Worker,
) -> None:
    """The later one, of lower priority, was decided with the claim of the first one counted."""
    offer("n1", "4")
    create(*"abcd")
    submit(worker)
    worker.binder.finish_batch(SECONDS)
    for value in (10, 20):
        make_priority(f"of-{value}", value)
        create(f"p{value}", cpu="2", priorityClassName=f"of-{value}")
    worker.binder.refuse(worker.decide().unplaced(), SECONDS)
    assert (nomination_of("p20"), nomination_of("p10")) == ("n1", "n1")
    snapshot = worker.mirror.snapshot
    for _ in range(2):
        assert set(snapshot.nominations.of_node["n1"]) == {
            find_pod_id("default", "p20"),
            find_pod_id("default", "p10"),
        }
        worker.mirror.refresh(SECONDS)


@pytest.mark.parametrize("one_stays", [False, True])
def test_who_needs_only_pods_that_leave_already_takes_no_nomination_away(
    worker: Worker, one_stays: bool
) -> None:
    """Unless one of them is to leave that does not yet (executor.go, v1.36)."""
    offer("n1", "4")
    create("a", "b", cpu="2")
    submit(worker)
    worker.binder.finish_batch(SECONDS)
    make_priority("middle", 5)
    make_priority("high", 10)
    (middle,) = create("middle", cpu="2" if one_stays else "4", priorityClassName="middle")
    worker.binder.refuse(worker.decide().unplaced(), SECONDS)
    assert nomination_of("middle") == "n1"
    worker.mirror.refresh(SECONDS)
    create("high", cpu="4", priorityClassName="high")
    (decision,) = worker.decide().unplaced()
    assert len(decision.victims) == 2
    assert decision.displaced == ((middle,) if one_stays else ())
    worker.binder.refuse([decision], SECONDS)
    assert (nomination_of("high"), nomination_of("middle")) == ("n1", "" if one_stays else "n1")


@pytest.mark.parametrize("gone", [False, True])
def test_a_preemption_that_is_not_carried_out_leaves_nominations_as_they_were(
    worker: Worker, gone: bool
) -> None:
    """A pod came back meanwhile, or the one that was to make room is gone (``gone``)."""
    offer("n1", "4")
    create("placed", cpu="3")
    submit(worker)
    worker.binder.finish_batch(SECONDS)
    make_priority("middle", 5, preemptionPolicy="Never")
    (waits,) = create("waits", cpu="2", priorityClassName="middle")
    worker.binder.refuse(worker.decide().unplaced(), SECONDS)
    worker.binder.write_refused(SECONDS)
    nominate_by_client("waits", "n1")
    make_priority("high", 10)
    (high,) = create("high", cpu="2", priorityClassName="high")
    (decision,) = worker.decide().unplaced()
    assert decision.displaced == (waits,)
    snapshot = worker.mirror.snapshot
    assert snapshot.nominated_node_of(waits) == ""
    if gone:
        worker.mirror.queue.delete(high)
    else:
        worker.binder._come_back([], SECONDS)
    worker.binder.refuse([decision], SECONDS)
    assert (nomination_of("high"), nomination_of("waits")) == ("", "n1")
    assert snapshot.nominated_node_of(waits) == "n1"
    assert "deletionTimestamp" not in get_manifest("Pod", "default", "placed")["metadata"]


@pytest.mark.parametrize("meanwhile", ["bound", "nominated", "deleted", ""])
def test_nobody_makes_room_for_a_pod_that_another_scheduler_decided_meanwhile(
    worker: Worker, meanwhile: str
) -> None:
    """Who was silent wakes up between its decision and the deletion of the victims."""
    offer("n1", "1")
    (low,) = create("low")
    submit(worker)
    worker.binder.finish_batch(SECONDS)
    make_priority("high", 10)
    (high,) = create("high", priorityClassName="high")
    worker.binder.beside = OtherSchedulers(reach(), 0, begin_epoch(0))
    (decision,) = worker.decide().unplaced()
    assert decision.victims
    make_node("n2")
    if meanwhile == "bound":
        others = [Binding(high, "n2")]
        now = changes.watermark()
        assert bind_pods(others, snapshot_revision=now, now=NOW, beside=worker.binder.beside).bound
    elif meanwhile == "nominated":
        nominate_by_client("high", "n2")
    elif meanwhile == "deleted":
        objects.delete("Pod", "default", "high", now=NOW)
    worker.binder.refuse([decision], SECONDS)
    gone = pods_by_id([low])[low].deletion_at is not None
    assert gone is not bool(meanwhile)
    if meanwhile == "nominated":
        assert nomination_of("high") == "n2"
        assert submit(worker) == 1, "it came back"


@pytest.mark.parametrize("restarted", [False, True])
def test_who_made_room_once_waits_until_the_room_is_there(worker: Worker, restarted: bool) -> None:
    """Rule: PodEligibleToPreemptOthers, default_preemption.go, v1.36."""
    make_node("n2")
    for name in ("n1", "n2"):
        offer(name, "1")
    low = create("a", "b")
    submit(worker)
    worker.binder.finish_batch(SECONDS)
    assert sorted(nodes_of(low)) == ["n1", "n2"]
    make_priority("high", 10)
    (high,) = create("high", priorityClassName="high")

    def ending() -> list[str]:
        return [row.name for row in pods_by_id(low).values() if row.deletion_at is not None]

    worker.binder.refuse(worker.decide().unplaced(), SECONDS)
    (victim,) = ending()
    used = worker
    try:
        if restarted:
            used = Worker()
        else:
            worker.mirror.refresh(SECONDS)
        used.mirror.queue.activate([high], SECONDS)
        (again,) = used.decide().unplaced()
        assert again.key == high
        assert "not eligible due to a terminating pod on the nominated node" in again.message
        used.binder.refuse([again], SECONDS)
    finally:
        if restarted:
            used.binder.close()
    assert ending() == [victim]


def test_a_decision_whose_bind_is_under_way_is_recorded_when_its_end_is_known(
    worker: Worker,
) -> None:
    """So many pods are bound on a thread; one of them is gone by then."""
    names = [f"p{number}" for number in range(40)]
    create(*names, cpu="1m")
    placed = [Binding(cast(int, key), node) for key, node in worker.decide().placed()]
    objects.delete("Pod", "default", "p7", {"gracePeriodSeconds": 0}, now=NOW)
    worker.binder.submit(placed, SECONDS)
    assert worker.binder.is_binding
    worker.binder.write_records(SECONDS)
    outcomes = {name: decisions.of_pod("default", name, limit=9)[0].outcome for name in names}
    assert outcomes == {name: "stale" if name == "p7" else "scheduled" for name in names}

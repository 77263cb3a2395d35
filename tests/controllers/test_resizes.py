"""Resizes of pods: what a node without an agent does, what waits, and who is woken."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.bind import Binding, BindRefusal, bind_pods
from clusterstate.actions.writing.stored import StoredObject
from clusterstate.actions.writing.transactions import rehearsal
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.values.errors import Forbidden
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.loops.controllers import pending_work
from clusterstate.queries.objects import decode_object, get_manifest
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import resizes as waiting_resizes
from scheduling.controllers import resizes
from scheduling.engine.queue.pending import Backoff
from scheduling.framework.configuration.documents import default_configuration
from scheduling.worker.mirror import Mirror
from scheduling.worker.scheduler import Scheduler
from tests.controllers.support import NOW, make_pod, schedule

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def cluster(db: None) -> None:
    bootstrap.add_missing(now=NOW)
    make_node("n1")


def make_node(name: str, cpu: str = "4", memory: str = "8Gi") -> None:
    status = {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}}
    objects.create("Node", "", {"metadata": {"name": name}, "status": status}, now=NOW)


def offer(name: str, cpu: str, memory: str = "8Gi") -> None:
    status = {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}}
    objects.update("Node", "", name, lambda m: {**m, "status": status}, now=NOW,
                   subresource="status")  # fmt: skip


def give_agent(name: str) -> None:
    lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name}}
    objects.create("Lease", "kube-node-lease", lease, now=NOW)


def asking(cpu: str, memory: str = "1Gi") -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    return {"containers": [{"name": "main", "image": "i", "resources": resources}]}


def place(name: str, cpu: str, memory: str = "1Gi", *, node: str = "n1", **more: Any) -> int:
    return make_pod(name, node, **asking(cpu, memory), **more)


def resize(name: str, cpu: str, memory: str = "1Gi", *, now: datetime = NOW) -> StoredObject:
    def change(manifest: Manifest) -> Manifest:
        container = {**manifest["spec"]["containers"][0]}
        container["resources"] = {"requests": {"cpu": cpu, "memory": memory}}
        return {**manifest, "spec": {**manifest["spec"], "containers": [container]}}

    return objects.update("Pod", "default", name, change, now=now, subresource="resize")


def report(name: str, **status: Any) -> None:
    objects.update(
        "Pod", "default", name, lambda m: {**m, "status": {**m["status"], **status}},
        now=NOW, subresource="status",
    )  # fmt: skip


def pod(name: str) -> Manifest:
    return get_manifest("Pod", "default", name)


def conditions(name: str) -> dict[str, str]:
    told = pod(name)["status"].get("conditions") or ()
    return {one["type"]: one.get("reason", "") for one in told if "Resize" in one["type"]}


def mirror() -> Mirror:
    loaded = Mirror({"default-scheduler": {}}, Backoff())
    loaded.load(NOW.timestamp())
    return loaded


def taken(node: str = "n1") -> tuple[int, int]:
    """CPU in thousandths and memory in MiB that count as taken on a node, for the scheduler."""
    snapshot = mirror().snapshot
    row = snapshot.row_of(node)
    assert row is not None
    columns = [snapshot.resource("cpu"), snapshot.resource("memory")]
    cpu, memory = snapshot.requested[row, columns].tolist()
    return cpu, memory >> 20


def test_a_resize_that_fits_is_carried_out_at_once() -> None:
    place("p", "1")
    stored = resize("p", "2", "2Gi")
    assert stored.warnings == []
    found = pod("p")
    assert found["metadata"]["generation"] == 2
    assert found["status"]["observedGeneration"] == 2
    assert conditions("p") == {}
    assert taken() == (2000, 2048)
    assert waiting_resizes.waiting() == []


def test_a_resize_to_what_is_there_writes_nothing() -> None:
    place("p", "1")
    before = pod("p")
    stored = resize("p", "1")
    assert not stored.changed
    assert pod("p") == before


def test_a_pod_on_no_node_asks_for_another_amount_from_then_on() -> None:
    make_pod("p", **asking("8"))
    schedule(NOW)
    assert not pod("p")["spec"].get("nodeName")
    resize("p", "3")
    schedule(NOW + timedelta(minutes=1))
    assert pod("p")["spec"]["nodeName"] == "n1"
    assert taken() == (3000, 1024)


def test_a_resize_without_room_waits_and_keeps_the_room_that_comes() -> None:
    place("p", "2", "2Gi")
    place("q", "1")
    stored = resize("p", "4", "1Gi")
    assert [w for w in stored.warnings if "waits (Deferred)" in w]
    (told,) = (one for one in pod("p")["status"]["conditions"] if one["type"] == "PodResizePending")
    assert told["reason"] == "Deferred"
    assert told["status"] == "True"
    assert told["observedGeneration"] == 2
    assert told["message"] == (
        "Node didn't have enough resource: cpu, requested: 4000, used: 1000, capacity: 4000"
    )
    (container,) = pod("p")["status"]["containerStatuses"]
    assert container["allocatedResources"] == {"cpu": "2", "memory": "2Gi"}
    assert container["resources"] == {"requests": {"cpu": "2", "memory": "2Gi"}}
    # It counts for the most of both: what it has of memory, and what it wants of CPU.
    assert taken() == (5000, 3072)
    make_pod("r", **asking("500m"))
    schedule(NOW)
    assert not pod("r")["spec"].get("nodeName")


def test_what_waits_is_carried_out_when_room_comes() -> None:
    place("p", "2", "2Gi")
    place("q", "1")
    resize("p", "4", "1Gi")
    assert resizes.follow(NOW) == 0
    objects.delete("Pod", "default", "q", {"gracePeriodSeconds": 0}, now=NOW)
    assert resizes.follow(NOW) == 1
    assert conditions("p") == {}
    assert pod("p")["status"]["observedGeneration"] == 2
    (container,) = pod("p")["status"]["containerStatuses"]
    assert container["allocatedResources"] == {"cpu": "4", "memory": "1Gi"}
    assert taken() == (4000, 1024)
    assert waiting_resizes.waiting() == []


def events() -> list[tuple[str, str]]:
    found = [decode_object(one) for one in list_page("Event").items]
    told = [one for one in found if one["source"]["component"] == "pod-resize-controller"]
    told.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
    return [(one["type"], one["reason"]) for one in told]


def test_events_say_what_became_of_a_resize() -> None:
    place("p", "2")
    place("q", "1")
    with rehearsal():
        resize("p", "4")
    assert events() == []
    resize("p", "4")
    assert events() == [("Warning", "ResizeDeferred")]
    offer("n1", "3")
    resizes.follow(NOW)
    assert events()[-1] == ("Warning", "ResizeInfeasible")
    offer("n1", "8")
    resizes.follow(NOW)
    assert events()[-1] == ("Normal", "ResizeCompleted")
    assert len(events()) == 3


def test_a_resize_back_ends_the_waiting() -> None:
    place("p", "2")
    place("q", "1")
    resize("p", "4")
    resize("p", "2")
    assert conditions("p") == {}
    assert pod("p")["metadata"]["generation"] == 3
    assert taken() == (3000, 2048)
    assert waiting_resizes.waiting() == []


def test_a_node_that_became_smaller_makes_a_resize_infeasible_until_it_grows() -> None:
    place("p", "2")
    place("q", "1")
    resize("p", "4")
    offer("n1", "3")
    assert resizes.follow(NOW) == 1
    assert conditions("p") == {"PodResizePending": "Infeasible"}
    assert taken() == (3000, 2048)  # it counts for what it has
    assert resizes.follow(NOW) == 0
    offer("n1", "8")
    assert resizes.follow(NOW) == 1
    assert conditions("p") == {}
    assert taken() == (5000, 2048)


def test_a_resize_that_no_node_of_its_size_could_carry_out_is_refused() -> None:
    place("p", "1")
    with pytest.raises(Forbidden, match="didn't have enough allocatable resources: cpu"):
        resize("p", "5")
    assert taken() == (1000, 1024)


def test_smaller_ones_go_first_then_by_priority_then_by_time() -> None:
    for name, value in (("high", 100), ("low", 1)):
        priority = {"metadata": {"name": name}, "value": value}
        objects.create("PriorityClass", "", priority, now=NOW)
    place("low", "1", priorityClassName="low")
    place("high", "1", priorityClassName="high")
    place("late", "1", priorityClassName="high")
    place("q", "1")
    resize("low", "2")
    resize("high", "2")
    resize("late", "2", now=NOW + timedelta(seconds=1))
    assert resizes.follow(NOW) == 0
    objects.delete("Pod", "default", "q", {"gracePeriodSeconds": 0}, now=NOW)
    assert resizes.follow(NOW) >= 1
    assert conditions("high") == {}
    assert conditions("late") == conditions("low") == {"PodResizePending": "Deferred"}


def test_where_an_agent_is_only_books_are_kept() -> None:
    give_agent("n1")
    place("p", "1")
    resize("p", "2")
    found = pod("p")
    assert "observedGeneration" not in found["status"]
    assert "containerStatuses" not in found["status"]
    report(
        "p",
        containerStatuses=[
            {
                "name": "main",
                "allocatedResources": {"cpu": "1", "memory": "1Gi"},
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            }
        ],
        conditions=[{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
    )
    assert taken() == (1000, 1024)
    assert waiting_resizes.waiting() == []


def test_an_agent_that_comes_takes_over_what_waits() -> None:
    place("p", "2")
    place("q", "1")
    resize("p", "4")
    give_agent("n1")
    objects.delete("Pod", "default", "q", {"gracePeriodSeconds": 0}, now=NOW)
    assert resizes.follow(NOW) == 0
    assert sql.fetch("SELECT 1 FROM deferred_resize") == []
    assert conditions("p") == {"PodResizePending": "Deferred"}


@pytest.mark.parametrize("end", ["delete", "finish"])
def test_a_pod_that_ends_waits_no_longer(end: str) -> None:
    place("p", "2")
    place("q", "1")
    resize("p", "4")
    if end == "delete":
        objects.delete("Pod", "default", "p", {"gracePeriodSeconds": 0}, now=NOW)
    else:
        report("p", phase="Succeeded")
    resizes.follow(NOW)
    assert sql.fetch("SELECT 1 FROM deferred_resize") == []


def test_a_pass_is_made_when_something_waits_and_something_happened() -> None:
    assert not resizes.has_work(pending_work([resizes.NAME]))
    place("p", "2")
    place("q", "1")
    resize("p", "4")
    assert resizes.has_work(pending_work([resizes.NAME]))
    resizes.follow(NOW)
    assert not resizes.has_work(pending_work([resizes.NAME]))
    make_node("n2")
    assert resizes.has_work(pending_work([resizes.NAME]))


def test_a_dry_run_leaves_nothing() -> None:
    place("p", "2")
    place("q", "1")
    before = pod("p")
    with rehearsal():
        stored = resize("p", "4")
    assert "Deferred" in stored.warnings[0]
    assert decode_object(stored.manifest)["metadata"]["generation"] == 2
    assert pod("p") == before
    assert sql.fetch("SELECT 1 FROM deferred_resize") == []


def test_what_was_decided_before_a_pod_grew_is_not_bound() -> None:
    place("p", "1")
    waits = make_pod("r", **asking("3"))
    before = changes.watermark()
    resize("p", "2")
    done = bind_pods([Binding(waits, "n1")], snapshot_revision=before, now=NOW)
    assert done.bound == []
    assert done.refused == {waits: BindRefusal.NODE_CHANGED}


def test_what_was_decided_before_a_pod_shrank_is_bound() -> None:
    place("p", "2")
    waits = make_pod("r", **asking("2"))
    before = changes.watermark()
    resize("p", "1")
    assert bind_pods([Binding(waits, "n1")], snapshot_revision=before, now=NOW).bound


def test_an_agents_report_by_which_a_pod_counts_for_more_is_seen_by_a_bind_too() -> None:
    give_agent("n1")
    place("p", "1")
    waits = make_pod("r", **asking("3"))
    before = changes.watermark()
    report(
        "p", containerStatuses=[{"name": "main", "allocatedResources": {"cpu": "2", "memory": "1"}}]
    )
    done = bind_pods([Binding(waits, "n1")], snapshot_revision=before, now=NOW)
    assert done.refused == {waits: BindRefusal.NODE_CHANGED}


def test_a_pod_that_grew_does_not_arrive_again() -> None:
    place("p", "1")
    was = sql.fetch("SELECT bound_at, arrival_revision FROM pod")
    resize("p", "2")
    assert sql.fetch("SELECT bound_at, arrival_revision FROM pod") == was


def test_a_waiting_pod_is_woken_by_a_scale_down() -> None:
    place("p", "3")
    make_pod("r", **asking("2"))
    schedule(NOW)
    assert not pod("r")["spec"].get("nodeName")
    scheduler = Scheduler(default_configuration(), lambda: 7)
    now = NOW + timedelta(minutes=1)
    scheduler.load(now.timestamp())
    while scheduler.cycle(now.timestamp()):
        scheduler.binder.finish_batch(now.timestamp())
    assert not pod("r")["spec"].get("nodeName")
    assert scheduler.cycle(now.timestamp()) == 0  # it waits, and nothing happens
    resize("p", "1", now=now)
    later = (now + timedelta(minutes=1)).timestamp()
    while scheduler.cycle(later):
        scheduler.binder.finish_batch(later)
    scheduler.binder.finish_batch(later)
    assert pod("r")["spec"]["nodeName"] == "n1"


# Whole pods, sidecars, overhead ---------------------------------------------------------------


def test_a_pod_that_states_amounts_as_a_whole_waits_and_is_resized() -> None:
    whole = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3"}}
    make_pod("p", "n1", resources=whole)
    place("q", "1")

    def change(manifest: Manifest) -> Manifest:
        more = {**manifest["spec"]["resources"], "requests": {"cpu": "3500m", "memory": "512Mi"}}
        more["limits"] = {"cpu": "4"}
        return {**manifest, "spec": {**manifest["spec"], "resources": more}}

    objects.update("Pod", "default", "p", change, now=NOW, subresource="resize")
    status = pod("p")["status"]
    assert status["allocatedResources"] == {"cpu": "2", "memory": "1Gi"}
    assert status["resources"] == {**whole, "requests": {"cpu": "2", "memory": "1Gi"}}
    assert taken() == (4500, 2048)
    objects.delete("Pod", "default", "q", {"gracePeriodSeconds": 0}, now=NOW)
    assert resizes.follow(NOW) == 1
    status = pod("p")["status"]
    assert status["allocatedResources"] == {"cpu": "3500m", "memory": "512Mi"}
    assert taken() == (3500, 512)

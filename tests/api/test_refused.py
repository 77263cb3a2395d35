"""Refused pods: written in bulk after what can be placed, and where they were after a restart."""

from datetime import timedelta

import pytest

from api import clock
from clusterstate.actions.past import history
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.pods.queue import pending_counts
from scheduling.engine.queue.pending import Stage
from scheduling.worker import profiles, scheduler
from scheduling.worker.mirror import refused
from scheduling.worker.scheduler import Scheduler
from tests.builders import make_node, make_pod
from tests.roundtrips import counted
from tests.rows import load_pending

CONFIGURATION = "/apis/stowage.dev/v1/schedulerconfiguration"


class Runner:
    """The live cycle, turned by hand."""

    def __init__(self):
        self.now = clock.now()
        self.scheduler = self._started()

    def _started(self):
        revision, configuration = profiles.in_force()
        scheduler = Scheduler(configuration, lambda: 11, revision=revision)
        scheduler.load(self.now.timestamp())
        return scheduler

    def restart(self):
        self.close()
        self.scheduler = self._started()

    def close(self):
        self.scheduler.binder.close()

    def cycle(self):
        return self.scheduler.cycle(self.now.timestamp())

    def turn(self, seconds=0.0):
        self.now += timedelta(seconds=seconds)
        while self.cycle():
            pass
        self.scheduler.binder.write_records(self.now.timestamp())

    def stages(self):
        found = {}
        for place in self.scheduler.mirror.queue.places():
            found[place.stage] = found.get(place.stage, 0) + 1
        return found

    def stage(self, name):
        return self.scheduler.mirror.queue.place(find_pod_id("ns", name)).stage


@pytest.fixture
def runner(api, monkeypatch):
    """A scheduler whose batches are as large as with the compiled loops, which are not loaded."""
    monkeypatch.setattr(scheduler, "BATCH_WITHOUT_LOOPS", scheduler.BATCH)
    add_node(api, "n1")
    running = Runner()
    yield running
    running.close()


def add_node(api, name, **labels):
    manifest = make_node(name).labelled(labels).offers(cpu="4", memory="16Gi", pods="20").manifest
    api.post("/api/v1/nodes", manifest).ok(201)


def create(api, count, *, prefix="p", cpu="100", **selected):
    """Create pods; by default none fits."""
    items = []
    for number in range(count):
        one = make_pod(f"{prefix}-{number}").in_namespace("ns").asks(cpu=cpu)
        items.append((one.selects(selected) if selected else one).manifest)
    body = {"apiVersion": "v1", "kind": "PodList", "items": items}
    api.post("/api/v1/namespaces/ns/pods", body).ok(201)


def conditions(api):
    """The PodScheduled conditions of all pods: status, reason and message."""
    items = api.get("/api/v1/namespaces/ns/pods").ok()["items"]
    found = [
        (c["status"], c.get("reason", ""), c.get("message", ""))
        for item in items
        for c in item["status"].get("conditions", ())
        if c["type"] == "PodScheduled"
    ]
    assert len(found) == len(items)
    return found


def test_refusals_are_written_in_a_few_statements(api, runner):
    create(api, 300)
    with counted() as round_trips:
        runner.turn()
    assert round_trips.number < 25, "a statement for each pod"
    (told,) = set(conditions(api))
    assert told[:2] == ("False", "Unschedulable")
    assert "Insufficient cpu" in told[2]
    rows = load_pending()
    assert {row.stage for row in rows} == {"unschedulable"}
    assert {row.attempts for row in rows} == {1}
    assert all(row.refused_revision > 0 for row in rows)
    events = api.get("/api/v1/namespaces/ns/events").ok()["items"]
    assert sum(event["reason"] == "FailedScheduling" for event in events) == 300


def test_what_can_be_placed_is_bound_before_refusals_are_written(api, runner):
    create(api, 1500)
    create(api, 1, prefix="easy", cpu="1m")
    runner.cycle()
    assert runner.scheduler.mirror.queue.has_ready
    assert not runner.scheduler.binder.refused.is_due(runner.now.timestamp())
    runner.cycle()
    bound = api.get("/api/v1/namespaces/ns/pods/easy-0").ok()["spec"].get("nodeName")
    assert bound == "n1"
    assert len(runner.scheduler.binder.refused) >= 1000, "they were written first"
    runner.turn()
    assert sum(status == "False" for status, *_ in conditions(api)) == 1500


def test_a_refusal_is_written_within_a_second_of_work(api, runner):
    create(api, 1500)
    runner.cycle()
    waiting = len(runner.scheduler.binder.refused)
    create(api, 1500, prefix="q")
    runner.now += timedelta(seconds=1)
    runner.cycle()
    assert runner.scheduler.binder.refused
    assert pending_counts()["unschedulable"] >= 500
    assert waiting == 1000


def test_a_pod_that_was_placed_meanwhile_is_not_told_that_it_was_refused(api, runner):
    create(api, 1001, cpu="3")
    runner.cycle()
    assert len(runner.scheduler.binder.refused) > 500
    add_node(api, "n2")
    runner.turn(seconds=2)
    found = conditions(api)
    assert sum(status == "True" for status, *_ in found) == 2
    assert sum(status == "False" for status, *_ in found) == 999


def test_what_was_not_written_is_tried_again_after_a_crash(api, runner):
    create(api, 1500)
    runner.cycle()
    assert runner.scheduler.binder.refused
    runner.restart()
    assert runner.stages() == {Stage.ACTIVE: 1500}
    runner.turn()
    assert runner.stages() == {Stage.UNSCHEDULABLE: 1500}


# --- after a restart --------------------------------------------------------------------------


def test_refused_pods_wait_where_their_rows_say(api, runner):
    create(api, 200)
    create(api, 100, prefix="s", cpu="1m", disk="ssd")
    runner.turn()
    before = {place.pod_id: place for place in runner.scheduler.mirror.queue.places()}
    runner.restart()
    assert runner.stages() == {Stage.UNSCHEDULABLE: 300}
    after = {place.pod_id: place for place in runner.scheduler.mirror.queue.places()}
    assert {k: (p.attempts, p.rejected_by, p.not_before) for k, p in after.items()} == {
        k: (p.attempts, p.rejected_by, p.not_before) for k, p in before.items()
    }
    assert {round(p.queued_at, 3) for p in after.values()} == {
        round(p.queued_at, 3) for p in before.values()
    }, "the flush counts from the refusal"
    assert runner.cycle() == 0
    runner.turn(seconds=301)
    assert {place.attempts for place in runner.scheduler.mirror.queue.places()} == {2}


def woken_by_node(api):
    add_node(api, "n2", disk="ssd")


def woken_by_label(api):
    body = {"metadata": {"labels": {"disk": "ssd"}}}
    merge = "application/merge-patch+json"
    api.patch("/api/v1/nodes/n1", body, content_type=merge).ok()


@pytest.mark.parametrize("what", [woken_by_node, woken_by_label])
def test_only_what_changed_meanwhile_moves_them(api, runner, what):
    create(api, 20)
    create(api, 30, prefix="s", cpu="1m", disk="ssd")
    runner.turn()
    what(api)
    runner.restart()
    assert runner.stages() == {Stage.UNSCHEDULABLE: 20, Stage.BACKOFF: 30}
    runner.turn(seconds=2)
    bound = [status for status, *_ in conditions(api)].count("True")
    assert bound == 20, "as many as fit on a node"


def test_room_that_was_freed_meanwhile_wakes_who_waited_for_it(api, runner):
    create(api, 1, prefix="first", cpu="3")
    create(api, 5, cpu="2")
    create(api, 5, prefix="s", cpu="1m", disk="ssd")
    runner.turn()
    api.delete("/api/v1/namespaces/ns/pods/first-0?gracePeriodSeconds=0").ok()
    runner.restart()
    assert runner.stages() == {Stage.UNSCHEDULABLE: 5, Stage.BACKOFF: 5}
    runner.turn(seconds=2)
    assert [status for status, *_ in conditions(api)].count("True") == 2


def test_what_refused_pods_are_told_themselves_does_not_count(api, runner, monkeypatch):
    monkeypatch.setattr(refused, "_REPLAYED", 2)
    create(api, 100)
    runner.turn()
    add_node(api, "n2", disk="ssd")
    create(api, 50, prefix="q")
    runner.turn()
    runner.restart()
    assert runner.stages() == {Stage.UNSCHEDULABLE: 150}


def test_a_pod_placed_meanwhile_wakes_who_wants_to_be_near_it(api, runner):
    near = make_pod("near").in_namespace("ns").near("kubernetes.io/hostname", app="db").manifest
    api.patch(
        "/api/v1/nodes/n1",
        {"metadata": {"labels": {"kubernetes.io/hostname": "n1"}}},
        content_type="application/merge-patch+json",
    ).ok()
    api.post("/api/v1/namespaces/ns/pods", near).ok(201)
    create(api, 5)
    runner.turn()
    placed = make_pod("db").in_namespace("ns").labelled(app="db").asks(cpu="1m").on("n1")
    api.post("/api/v1/namespaces/ns/pods", placed.manifest).ok(201)
    runner.restart()
    assert runner.stage("near") is Stage.BACKOFF
    assert runner.stages()[Stage.UNSCHEDULABLE] == 5


def test_a_pod_that_was_tried_early_stands_where_it_stood_after_a_restart(api, runner):
    """Else it would be tried early once more, and a plan, which reads the rows, would say so."""
    create(api, 1, disk="ssd")
    runner.turn()
    counted_early = []
    for number in range(2, 9):
        add_node(api, f"n{number}", disk="ssd")
        runner.turn()
        (place,) = runner.scheduler.mirror.queue.places()
        runner.restart()
        (restored,) = runner.scheduler.mirror.queue.places()
        assert (restored.stage, restored.early, restored.attempts, restored.not_before) == (
            place.stage, place.early, place.attempts, place.not_before,
        )  # fmt: skip
        counted_early.append(place.early)
    assert counted_early == [1, 2, 3, 4, 5, 5, 5]


def test_what_happened_before_a_refusal_does_not_undo_it(api, runner):
    create(api, 2, cpu="1m", disk="ssd")
    runner.turn()
    second = find_pod_id("ns", "p-1")
    add_node(api, "n2", disk="ssd")
    again = Unschedulable(
        pod_id=second,
        message="0/2 nodes are available.",
        rejected_by=("NodeAffinity",),
        refused_revision=changes.watermark(),
    )
    set_unschedulable([again], now=runner.now)
    runner.restart()
    assert runner.stage("p-0") is Stage.BACKOFF
    assert runner.stage("p-1") is Stage.UNSCHEDULABLE


def test_a_pod_that_was_changed_meanwhile_is_tried(api, runner):
    create(api, 2)
    runner.turn()
    pod_id = find_pod_id("ns", "p-0")
    (row,) = load_pending([pod_id])
    toleration = {"key": "a", "operator": "Exists"}
    api.patch(
        "/api/v1/namespaces/ns/pods/p-0",
        {"spec": {"tolerations": [toleration]}},
        content_type="application/merge-patch+json",
    ).ok()
    late = Unschedulable(
        pod_id=pod_id,
        message=row.message,
        rejected_by=tuple(row.rejected_by),
        refused_revision=row.refused_revision,
    )
    set_unschedulable([late], now=runner.now)
    runner.restart()
    assert runner.stage("p-0") is Stage.ACTIVE
    assert runner.stage("p-1") is Stage.UNSCHEDULABLE


@pytest.mark.parametrize(
    "why", ["trimmed", "configuration", "long", "far", "unknown", "from the future"]
)
def test_where_it_is_not_known_what_happened_they_are_tried_again(api, runner, why, monkeypatch):
    create(api, 20)
    runner.turn()
    if why == "trimmed":
        add_node(api, "n2")
        history.trim(now=runner.now + timedelta(days=400), keep_seconds=1)
        add_node(api, "n3")
    elif why == "configuration":
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler"}],
            "podInitialBackoffSeconds": 2,
        }
        api.put(CONFIGURATION, document).ok()
    elif why == "long":
        monkeypatch.setattr(refused, "_REPLAYED", 2)
        for number in range(2, 5):
            add_node(api, f"n{number}")
    elif why == "far":
        monkeypatch.setattr(refused, "_LOOKED_THROUGH", 5)
    else:
        known = 0 if why == "unknown" else changes.watermark() + 1_000_000
        items = [
            Unschedulable(
                pod_id=row.id,
                message="m",
                rejected_by=tuple(row.rejected_by),
                refused_revision=known,
            )
            for row in load_pending()
        ]
        set_unschedulable(items, now=runner.now)
    runner.now += timedelta(seconds=20)
    runner.restart()
    assert runner.stages() == {Stage.ACTIVE: 20}
    runner.turn()
    assert runner.stages() == {Stage.UNSCHEDULABLE: 20}


def test_a_pod_that_this_scheduler_places_wakes_who_wants_to_be_near_it(api, runner):
    near = make_pod("near").in_namespace("ns").near("kubernetes.io/hostname", app="db").manifest
    labels = {"metadata": {"labels": {"kubernetes.io/hostname": "n1"}}}
    api.patch("/api/v1/nodes/n1", labels, content_type="application/merge-patch+json").ok()
    api.post("/api/v1/namespaces/ns/pods", near).ok(201)
    runner.turn()
    placed = make_pod("db").in_namespace("ns").labelled(app="db").asks(cpu="1m")
    api.post("/api/v1/namespaces/ns/pods", placed.manifest).ok(201)
    runner.turn(seconds=2)
    runner.turn(seconds=2)
    assert [status for status, *_ in conditions(api)] == ["True", "True"]


def test_a_metric_tells_the_age_of_the_oldest_pod_that_was_never_tried(api, runner):
    def metric(name):
        lines = api.get("/metrics").raw.decode().splitlines()
        return [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)]

    age = "stowage_oldest_untried_pod_seconds"
    assert metric(age) == [0.0]
    create(api, 3)
    other = make_pod("other").in_namespace("ns").with_("spec", "schedulerName", value="mine")
    api.post("/api/v1/namespaces/ns/pods", other.manifest).ok(201)
    sql.run("UPDATE pending_pod SET since = since - interval '100 seconds'")
    (seconds,) = metric(age)
    assert 100 <= seconds < 160
    assert metric('scheduler_pending_pods{queue="active"}') == [4.0]
    runner.turn()
    assert metric(age) == [0.0], "tried, and refused; another scheduler's pods are its own affair"
    assert metric('scheduler_pending_pods{queue="unschedulable"}') == [3.0]

"""A scheduler that stands by knows what one knows that loads the rows at the same moment."""

import random
from datetime import timedelta

import pytest

from clusterstate.database import bulk, sql
from clusterstate.queries.pods import find_pod_id
from scheduling.engine.queue.pending import Stage
from scheduling.worker import profiles, standby
from scheduling.worker.scheduler import Scheduler
from scheduling.worker.standby import Standby
from tests.api.test_refused import Runner, add_node, create
from tests.builders import make_node, make_pod


class Follower:
    """A scheduler beside the one that works."""

    def __init__(self, runner):
        self._runner = runner
        self.scheduler = self._made()
        self._standby = Standby(self.scheduler.mirror)
        self._standby.load(runner.now.timestamp())

    @staticmethod
    def _made():
        revision, configuration = profiles.in_force()
        return Scheduler(configuration, lambda: 11, revision=revision)

    def follow(self):
        """Look once at the log, and at the rows when these are due."""
        self._standby.follow(self._runner.now.timestamp(), at_once=True)

    def rests(self):
        """Return for how many seconds it would not look by itself."""
        return self._standby.follow(self._runner.now.timestamp())

    def take_over(self):
        """Become the one that works; return what is known then, and what one knows that loads."""
        now = self._runner.now.timestamp()
        self._standby.take_over(now)
        self.scheduler.begin(now)
        loaded = self._made()
        loaded.load(now)
        try:
            return knowledge(self.scheduler.mirror), knowledge(loaded.mirror)
        finally:
            loaded.binder.close()

    def close(self):
        self.scheduler.binder.close()


def knowledge(mirror):
    """Return what a mirror says of the queue, of pods on nodes, of nominations and arrivals."""
    snapshot = mirror.snapshot
    queue = {
        place.pod_id: (
            place.stage, place.attempts, place.since, place.not_before, place.rejected_by,
            mirror.queue.pod(place.pod_id).class_id, snapshot.nominated_node_of(place.pod_id),
        )
        for place in mirror.queue.places()
    }  # fmt: skip
    on_nodes = {
        name: sorted(record.key for record in snapshot.pods_on(snapshot.row_of(name)))
        for name in snapshot.names
        if name and snapshot.row_of(name) is not None
    }
    return queue, on_nodes, sorted(mirror.arrivals), mirror.cursor


@pytest.fixture
def runner(api):
    add_node(api, "n1")
    running = Runner()
    yield running
    running.close()


@pytest.fixture
def follower(runner):
    following = Follower(runner)
    yield following
    following.close()


def test_refusals_reach_the_standby_through_their_rows(api, runner, follower):
    create(api, 40)
    follower.follow()
    mirror = follower.scheduler.mirror
    assert mirror.queue.counts()[Stage.ACTIVE] == 40, "the log tells of new pods"
    runner.turn()
    follower.follow()
    assert mirror.queue.counts()[Stage.UNSCHEDULABLE] == 40
    known, loaded = follower.take_over()
    assert known == loaded


def test_what_happens_after_a_refusal_wakes_the_pods_of_the_standby(api, runner, follower):
    create(api, 3, zone="b")
    create(api, 3, prefix="q", zone="c")
    runner.turn()
    follower.follow()
    add_node(api, "n2", zone="b")  # the one that works never hears of it: it is killed now
    known, loaded = follower.take_over()
    assert known == loaded
    stages = {
        prefix: follower.scheduler.mirror.queue.place(find_pod_id("ns", f"{prefix}-0")).stage
        for prefix in "pq"
    }
    assert stages == {"p": Stage.BACKOFF, "q": Stage.UNSCHEDULABLE}


def test_events_do_not_wake_others_twice_when_rows_are_read_again(api, runner, follower):
    """Those refused after the node came stay refused, though a row from before it is read late."""
    create(api, 2, cpu="100")
    runner.turn()
    follower.follow()
    add_node(api, "n2")
    runner.turn(20)  # tried again, and refused with the new node
    create(api, 1, prefix="late", cpu="100")
    runner.turn()
    follower.follow()
    known, loaded = follower.take_over()
    assert known == loaded
    assert {stage for stage, *_ in known[0].values()} == {Stage.UNSCHEDULABLE}


@pytest.mark.parametrize("seed", range(4))
def test_the_standby_knows_what_a_restart_would_know(api, runner, follower, seed):
    choice = random.Random(seed)
    created = nodes = 0
    for _ in range(14):
        step = choice.choice(["fit", "large", "gated", "node", "delete", "wait", "there", "label"])
        if step in ("fit", "large"):
            cpu = "100m" if step == "fit" else choice.choice(["9", "100"])
            create(api, choice.randint(1, 4), prefix=f"p{created}", cpu=cpu)
            created += 1
        elif step == "gated":
            gated = make_pod(f"g{created}-0").in_namespace("ns")
            gated = gated.with_("spec", "schedulingGates", value=[{"name": "later"}])
            api.post("/api/v1/namespaces/ns/pods", gated.manifest).ok(201)
            created += 1
        elif step == "there":
            there = make_pod(f"t{created}-0").in_namespace("ns").on("n1").asks(cpu="10m")
            api.post("/api/v1/namespaces/ns/pods", there.manifest).ok(201)
            created += 1
        elif step == "node":
            nodes += 1
            manifest = make_node(f"more{nodes}").offers(cpu="10", memory="16Gi", pods="3").manifest
            api.post("/api/v1/nodes", manifest).ok(201)
        elif step == "delete" and created:
            items = api.get("/api/v1/namespaces/ns/pods").ok()["items"]
            for item in choice.sample(items, min(2, len(items))):
                path = f"/api/v1/namespaces/ns/pods/{item['metadata']['name']}"
                api.delete(f"{path}?gracePeriodSeconds=0")
        elif step == "label" and nodes:
            api.patch(f"/api/v1/nodes/more{nodes}", {"metadata": {"labels": {"a": str(created)}}})
        if choice.random() < 0.7:
            runner.turn(choice.choice([0, 0.5, 2, 15]))
        if choice.random() < 0.5:
            follower.follow()
        runner.now += timedelta(seconds=choice.choice([0, 1]))
    runner.turn()
    known, loaded = follower.take_over()
    assert known == loaded
    assert known[0]


def test_after_much_news_the_next_look_comes_soon(api, runner, follower, monkeypatch):
    """What is put off would have to be taken in when it takes over, while everybody waits."""
    monkeypatch.setattr(standby, "_REST", 1e9)  # a look that took long
    monkeypatch.setattr(standby, "_MUCH", 5)
    follower.follow()
    assert follower.rests() > 1.5
    create(api, 5)
    follower.follow()
    assert follower.rests() <= 0.4
    follower.follow()
    assert follower.rests() > 1.5


def test_rows_that_were_written_are_told_from_those_that_were_not(api, runner):
    assert bulk.tried_pods().ids.tolist() == []
    create(api, 5)
    assert bulk.tried_pods().ids.tolist() == [], "fresh pods are the log's to tell"
    runner.turn()
    first = bulk.tried_pods()
    assert len(first.ids) == 5
    assert bulk.tried_pods().since(first) == ([], [])
    gone = find_pod_id("ns", "p-0")
    api.delete("/api/v1/namespaces/ns/pods/p-0?gracePeriodSeconds=0").ok()
    sql.run("UPDATE pending_pod SET attempts = 2 WHERE pod_id = %s", (find_pod_id("ns", "p-3"),))
    assert bulk.tried_pods().since(first) == ([find_pod_id("ns", "p-3")], [gone])


def test_the_heaps_of_a_queue_that_gives_no_batches_stay_small(api, runner, follower, monkeypatch):
    monkeypatch.setattr("scheduling.engine.queue.scheduling_queue._SPARE", 50)
    queue = follower.scheduler.mirror.queue
    for number in range(12):
        create(api, 20, prefix=f"p{number}", cpu="1m")
        runner.turn()
        follower.follow()
        for name in range(20):
            api.delete(f"/api/v1/namespaces/ns/pods/p{number}-{name}?gracePeriodSeconds=0").ok()
    follower.follow()
    assert len(queue) == 0
    assert len(queue._active.fresh) <= 50

"""A scheduler that has met very many classes of pods keeps those of the pods that are there."""

import weakref
from functools import partial

import pytest

from clusterstate.processes import collector
from scheduling.answers.live import Live
from scheduling.engine.queue.pending import Stage
from scheduling.worker.mirror import state
from tests.api.test_refused import Runner, add_node, create
from tests.api.test_standby import Follower, knowledge
from tests.builders import make_pod

KEPT = 5


@pytest.fixture
def runner(api, monkeypatch):
    monkeypatch.setattr(state, "GROWN_CLASSES", KEPT)
    monkeypatch.setattr(state, "GROWN_RESOURCES", KEPT)
    add_node(api, "n1")
    running = Runner()
    yield running
    running.close()


def come_and_go(api, runner, number, also=""):
    """A pod like no other is bound, if it fits, and ends."""
    pod = make_pod(f"job-{number}").in_namespace("ns").labelled({"job": f"{number}"}).asks(cpu="1m")
    if also:
        (container,) = pod.manifest["spec"]["containers"]
        resources = {"requests": {"cpu": "1m", also: "1"}, "limits": {also: "1"}}
        pod = pod.with_("spec", "containers", value=[{**container, "resources": resources}])
    api.post("/api/v1/namespaces/ns/pods", pod.manifest).ok(201)
    runner.turn()
    api.delete(f"/api/v1/namespaces/ns/pods/job-{number}?gracePeriodSeconds=0").ok()
    runner.turn()


def test_classes_of_pods_that_are_gone_are_shed_and_nothing_else(api, runner):
    create(api, 1, prefix="stays", cpu="3")
    runner.turn()
    follower = Follower(runner)
    mirrors = (runner.scheduler.mirror, follower.scheduler.mirror)
    most = 0
    for number in range(3 * KEPT):
        come_and_go(api, runner, number)
        follower.follow()
        most = max(most, *(len(one.snapshot.classes) for one in mirrors))
    assert KEPT <= most <= KEPT + 2
    create(api, 1, prefix="large", cpu="2")
    create(api, 1, prefix="small", cpu="1")
    runner.turn()
    bound = {
        one["metadata"]["name"]
        for one in api.get("/api/v1/namespaces/ns/pods").ok()["items"]
        if one["spec"].get("nodeName")
    }
    assert bound == {"stays-0", "small-0"}, "the room of what stays is taken"
    known, loaded = follower.take_over()
    assert known == loaded
    assert knowledge(runner.scheduler.mirror)[1] == loaded[1]
    follower.close()


def test_what_was_outgrown_takes_no_memory_any_more(api, runner, calming):
    """A process freezes what it loads: the collector passes by it, also when nobody holds it."""
    runner.turn()
    follower = Follower(runner)
    collector.calm()
    replaced = set()
    for number in range(2 * KEPT):
        comes = partial(come_and_go, api, runner, number)
        for one, goes_on in ((runner.scheduler, comes), (follower.scheduler, follower.follow)):
            before = weakref.ref(one.mirror.snapshot)
            goes_on()
            if one.mirror.snapshot is not before():
                replaced.add(one)
                assert before() is None
    assert replaced == {runner.scheduler, follower.scheduler}
    follower.close()


def test_an_advisor_gives_up_what_it_outgrew(api, runner, calming):
    live = Live()

    def known():
        return live.look(lambda mirror, version: weakref.ref(mirror.snapshot))

    first = known()
    collector.calm()
    for number in range(2 * KEPT):
        come_and_go(api, runner, number)
        known()
    assert first() is None
    assert live.look(lambda mirror, version: len(mirror.snapshot.classes)) <= KEPT + 2


def test_who_was_refused_waits_on_as_before(api, runner):
    create(api, 2, prefix="waits", cpu="1m", zone="b")
    create(api, 2, prefix="other", cpu="1m", zone="c")
    runner.turn()
    snapshot = runner.scheduler.mirror.snapshot
    for number in range(KEPT):
        come_and_go(api, runner, number)
    assert runner.scheduler.mirror.snapshot is not snapshot
    assert runner.stages() == {Stage.UNSCHEDULABLE: 4}
    add_node(api, "n2", zone="b")
    runner.turn()
    runner.turn(100)
    assert runner.stages() == {Stage.UNSCHEDULABLE: 2}
    assert runner.stage("other-0") == Stage.UNSCHEDULABLE


def test_resources_that_nobody_asks_for_any_more_are_shed(api, runner):
    create(api, 1, prefix="stays", cpu="3")
    runner.turn()
    for number in range(2 * KEPT):
        come_and_go(api, runner, number, f"example.com/r{number}")
    assert len(runner.scheduler.mirror.snapshot.resources) <= KEPT + 2


def test_what_is_needed_does_not_make_it_begin_anew_each_time(api, runner):
    for number in range(2 * KEPT):
        create(api, 1, prefix=f"p{number}", cpu=f"{100 + number}")
    runner.turn()
    snapshot = runner.scheduler.mirror.snapshot
    assert len(snapshot.classes) == 2 * KEPT
    runner.turn(1000)
    assert runner.scheduler.mirror.snapshot is snapshot

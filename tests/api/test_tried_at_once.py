"""Whom something helps is tried at once while no other pod waits, however long its backoff is.

Clients act over HTTP, the scheduler's cycle is turned by hand, the clock stands still. The cases
follow Kubernetes' integration tests (test/integration/scheduler/queueing, filters, preemption and
nominated_node_name, v1.36).
"""

import pytest

from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.queries.pods import find_pod_id
from scheduling.controllers.pods import deletion
from scheduling.engine.queue.pending import Stage
from scheduling.worker import profiles
from scheduling.worker.scheduler import Scheduler
from tests.builders import make_node, make_pod
from tests.clock import NOW

PODS = "/api/v1/namespaces/ns/pods"
MERGE = "application/merge-patch+json"


class Runner:
    """The live cycle and the loop that ends deletions, turned by hand at one moment."""

    def __init__(self):
        self.now = NOW
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "podInitialBackoffSeconds": 1000,
            "podMaxBackoffSeconds": 1000,
        }
        text, _ = scheduler_configuration.check(document)
        scheduler_configuration.store(document=text, by="somebody", now=self.now)
        revision, configuration = profiles.in_force()
        self.scheduler = Scheduler(configuration, lambda: 11, revision=revision)
        self.scheduler.load(self.now.timestamp())

    def turn(self, *, pods_leave=True):
        """Go on until nothing is left to do; ``pods_leave``: those whose deletion has begun."""
        for _ in range(50):
            busy = self.scheduler.cycle(self.now.timestamp())
            self.scheduler.binder.finish_batch(self.now.timestamp())
            if not busy and not (pods_leave and deletion.finish(self.now)):
                return
        raise AssertionError("it does not come to rest")

    def stage(self, name):
        return self.scheduler.mirror.queue.place(find_pod_id("ns", name)).stage


@pytest.fixture
def runner(api):
    runner = Runner()
    yield runner
    runner.scheduler.binder.close()


def post_node(api, node):
    api.post("/api/v1/nodes", node.manifest).ok(201)


def post(api, pod):
    api.post(PODS, pod.in_namespace("ns").manifest).ok(201)


def node_of(api, name):
    return api.get(f"{PODS}/{name}").ok()["spec"].get("nodeName", "")


def nominated(api, name):
    return api.get(f"{PODS}/{name}").ok()["status"].get("nominatedNodeName", "")


def nominate(api, name, node):
    body = {"status": {"nominatedNodeName": node}}
    api.patch(f"{PODS}/{name}/status", body, content_type=MERGE).ok()


def delete(api, name):
    api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0}).ok()


def test_a_node_comes_for_a_pod_whose_backoff_is_not_over(api, runner):
    post_node(api, make_node("n"))
    post(api, make_pod("p").requires_node(("foo", "In", ["bar"])))
    runner.turn()
    assert runner.stage("p") is Stage.UNSCHEDULABLE
    post_node(api, make_node("m").labelled(foo="bar"))
    runner.turn()
    assert node_of(api, "p") == "m"


def grows(api):
    body = {"status": {"allocatable": {"cpu": "8"}, "capacity": {"cpu": "8"}}}
    api.patch("/api/v1/nodes/n/status", body, content_type=MERGE).ok()


def opens(api):
    api.patch("/api/v1/nodes/n", {"spec": {"unschedulable": None}}, content_type=MERGE).ok()


def is_labelled(api):
    body = {"metadata": {"labels": {"foo": "bar"}}}
    api.patch("/api/v1/nodes/n", body, content_type=MERGE).ok()


def loses_its_taint(api):
    api.patch("/api/v1/nodes/n", {"spec": {"taints": None}}, content_type=MERGE).ok()


def relabels(api):
    body = {"metadata": {"labels": {"app": "db"}}}
    api.patch(f"{PODS}/there", body, content_type=MERGE).ok()


N = make_node("n").offers(cpu="4", pods="10").labelled(region="a")
THERE = make_pod("there").on("n").asks(cpu="1")


@pytest.mark.parametrize(
    ("node", "there", "waiting", "happens"),
    [
        (N, THERE, make_pod("p").asks(cpu="6"), grows),
        (N.cordoned(), THERE, make_pod("p"), opens),
        (N, THERE, make_pod("p").selects(foo="bar"), is_labelled),
        (N.tainted("a"), THERE.tolerates("a"), make_pod("p"), loses_its_taint),
        (N, THERE.asks(cpu="4"), make_pod("p").asks(cpu="1"), lambda api: delete(api, "there")),
        (N.offers(pods="1"), THERE, make_pod("p"), lambda api: delete(api, "there")),
        (N, THERE, make_pod("p").near("region", app="db"), relabels),
        (
            N, THERE, make_pod("p").near("region", app="db"),
            lambda api: post(api, make_pod("late").labelled(app="db")),
        ),
        (
            N, THERE.labelled(app="db"), make_pod("p").away_from("region", app="db"),
            lambda api: delete(api, "there"),
        ),
        (
            N, THERE, make_pod("p").asks(cpu="6"),
            lambda api: post_node(api, make_node("m").offers(cpu="8")),
        ),
    ],
    ids=[
        "the node grows", "the node is open again", "the node gets a label",
        "the node loses its taint", "a pod leaves room", "a pod leaves its place",
        "a placed pod is relabelled", "a pod comes that it wants to be near to",
        "a pod goes that it wants to be apart from", "a node comes",
    ],
)  # fmt: skip
def test_an_unschedulable_pod_becomes_schedulable(api, runner, node, there, waiting, happens):
    post_node(api, node)
    post(api, there)
    post(api, waiting)
    runner.turn()
    assert runner.stage("p") is Stage.UNSCHEDULABLE
    happens(api)
    runner.turn()
    assert node_of(api, "p")


def test_a_preemptor_is_placed_as_soon_as_its_victim_has_left(api, runner):
    post_node(api, N)
    post(api, make_pod("victim").on("n").asks(cpu="4").priority(0))
    make_classes(api)
    post(api, urgent("preemptor").asks(cpu="2"))
    runner.turn(pods_leave=False)
    assert nominated(api, "preemptor") == "n"
    runner.turn()
    assert node_of(api, "preemptor") == "n"
    assert nominated(api, "preemptor") == ""


def make_classes(api):
    for name, value in (("low", 1), ("high", 100)):
        body = {"metadata": {"name": name}, "value": value}
        api.post("/apis/scheduling.k8s.io/v1/priorityclasses", body).ok(201)


def urgent(name):
    return make_pod(name).with_("spec", "priorityClassName", value="high")


def low(name):
    return make_pod(name).with_("spec", "priorityClassName", value="low")


def test_preemption_elsewhere_overwrites_the_nomination_of_a_client(api, runner):
    """One victim on m is better than two on n, for which a client had nominated the pod."""
    make_classes(api)
    post_node(api, N)
    post_node(api, make_node("m").offers(cpu="4"))
    post(api, low("v1").on("n").asks(cpu="2"))
    post(api, low("v2").on("n").asks(cpu="2"))
    post(api, low("v3").on("m").asks(cpu="3"))
    post(api, urgent("preemptor").asks(cpu="4"))
    nominate(api, "preemptor", "n")
    runner.turn(pods_leave=False)
    assert nominated(api, "preemptor") == "m"
    runner.turn()
    assert node_of(api, "preemptor") == "m"
    assert node_of(api, "v1")
    assert node_of(api, "v2")


def test_a_nomination_that_cannot_be_kept_is_ended_and_holds_no_room(api, runner):
    make_classes(api)
    post_node(api, N)
    post(api, low("large").asks(cpu="5"))
    nominate(api, "large", "n")
    post(api, low("fits").asks(cpu="3"))
    runner.turn()
    assert nominated(api, "large") == ""
    assert node_of(api, "fits") == "n"


def test_a_nomination_of_lower_priority_does_not_hold_room_from_a_higher_one(api, runner):
    make_classes(api)
    post_node(api, N)
    post(api, low("low").asks(cpu="4"))
    nominate(api, "low", "n")
    post(api, urgent("high").asks(cpu="4"))
    runner.turn()
    assert node_of(api, "high") == "n"
    assert nominated(api, "low") == ""
    assert runner.stage("low") is Stage.UNSCHEDULABLE


def test_a_nomination_ends_with_the_binding(api, runner):
    post_node(api, N)
    post(api, make_pod("p").asks(cpu="4"))
    nominate(api, "p", "n")
    runner.turn()
    assert (node_of(api, "p"), nominated(api, "p")) == ("n", "")


@pytest.mark.parametrize("how", ["placed", "gone"])
def test_who_was_kept_off_for_a_nominated_pod_is_placed_when_it_needs_the_room_no_longer(
    api, runner, how
):
    """A client nominates ``mid``, which does not fit beside ``small``, nor ``small`` beside it."""
    make_classes(api)
    post_node(api, N.offers(cpu="8"))
    post(api, urgent("victim").on("n").asks(cpu="5"))
    post(api, urgent("mid").asks(cpu="6"))
    nominate(api, "mid", "n")
    post(api, low("small").asks(cpu="3"))
    runner.turn()
    if how == "gone":
        delete(api, "mid")
        runner.turn()
        assert node_of(api, "small") == "n"
    else:
        post_node(api, make_node("m").offers(cpu="6"))
        runner.turn()
        assert node_of(api, "mid") == "m"
        assert node_of(api, "small") == "n"

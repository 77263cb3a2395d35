"""Reserve, Permit, PreBind, Bind and PostBind in the live cycle, and waiting pods over HTTP.

The plugins are those of the package in `tests/plugins/outside`. Cycles are turned by hand, and what
a Celery worker would do is done by `work`.
"""

import json
from datetime import timedelta

import pytest
import structlog

from api import clock
from clusterstate.actions.pods.queue import Unschedulable
from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.database import sql
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler import decisions, reservations
from scheduling.answers import live
from scheduling.worker import binding_cycle, profiles
from scheduling.worker.scheduler import Scheduler
from tests.api.conftest import TABLE, names
from tests.builders import make_node, make_pod
from tests.plugins.packages import OUTSIDE, install, on_path, write_guide
from tests.rows import load_pending

CONFIGURATION = "/apis/stowage.dev/v1/schedulerconfiguration"
WAITING = "/apis/stowage.dev/v1/waitingpods"
BASE = "/apis/stowage.dev/v1/namespaces/ns"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The plugins' package, and that of the guide, installed."""
    folder = tmp_path_factory.mktemp("outside")
    guide = tmp_path_factory.mktemp("guide")
    install(OUTSIDE, folder)
    write_guide(guide)
    (guide / "blinking_lights.py").unlink()  # the other package has one
    install(guide, folder)
    with on_path(folder):
        yield folder


class Runner:
    """The live cycle, turned by hand; ``now`` is the clock."""

    def __init__(self):
        self.now = clock.now()
        self.scheduler = None
        self.restart()

    def restart(self):
        """Start again from the rows, as after a crash."""
        if self.scheduler is not None:
            self.scheduler.binder.close()
        revision, configuration = profiles.in_force()
        self.scheduler = Scheduler(configuration, lambda: 11, revision=revision)
        self.scheduler.load(self.now.timestamp())

    def turn(self, seconds=0.0):
        self.now += timedelta(seconds=seconds)
        while self.scheduler.cycle(self.now.timestamp()):
            pass
        self.scheduler.cycle(self.now.timestamp())
        self.scheduler.binder.write_records(self.now.timestamp())

    def work(self):
        """Do what a worker does, and let the scheduler see it."""
        done = binding_cycle.run()
        self.turn()
        return done

    @property
    def plugin(self):
        frameworks = self.scheduler._profiles.frameworks
        return frameworks["default-scheduler"]


@pytest.fixture
def start(api, package, tmp_path):
    """Start a scheduler with plugins: name to arguments; two nodes with room for ten pods each."""
    runners = []

    def begin(**plugins):
        enabled = [{"name": name} for name in plugins]
        config = [{"name": name, "args": args} for name, args in plugins.items() if args]
        point = {}
        if "Courier" in plugins:
            point["bind"] = {"enabled": [{"name": "Courier"}, {"name": "DefaultBinder"}]}
        if "Door" in plugins:
            point["queueSort"] = {"enabled": [{"name": "Door"}], "disabled": [{"name": "*"}]}
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [
                {
                    "plugins": {"multiPoint": {"enabled": enabled}, **point},
                    "pluginConfig": config,
                }
            ],
        }
        api.put(CONFIGURATION, document).ok()
        runners.append(Runner())
        return runners[-1]

    for name in ("a", "b"):
        api.post("/api/v1/nodes", make_node(name).offers(cpu="1").manifest).ok(201)
    yield begin
    for runner in runners:
        runner.scheduler.binder.close()


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal")


class Journal:
    """What the plugin Journal wrote."""

    def __init__(self, file):
        self.file = file
        self.args = {"file": str(file)}

    @property
    def points(self):
        """The points in order, without pods and nodes."""
        return [line.split()[0] for line in self.lines]

    @property
    def lines(self):
        return self.file.read_text().splitlines() if self.file.exists() else []


def create(api, name, cpu="100m", **labels):
    labels = {f"example.com/{key}": value for key, value in labels.items()}
    manifest = make_pod(name).in_namespace("ns").labelled(labels).asks(cpu=cpu).manifest
    api.post("/api/v1/namespaces/ns/pods", manifest).ok(201)


def node_of(api, name):
    return api.get(f"/api/v1/namespaces/ns/pods/{name}").ok()["spec"].get("nodeName", "")


def message_of(api, name):
    status = api.get(f"/api/v1/namespaces/ns/pods/{name}").ok()["status"]
    (condition,) = [one for one in status["conditions"] if one["type"] == "PodScheduled"]
    return condition["reason"], condition["message"]


def test_a_gang_waits_for_its_last_member_and_goes_together(api, start):
    """R162-R164, R150: Permit says Wait, another pod's Permit allows those that wait.

    A binding cycle that waits holds up neither decisions nor the binding of others.
    """
    runner = start(Gang={"size": 3})
    for name in ("one", "two"):
        create(api, name, gang="red")
    create(api, "single")
    runner.turn()
    assert names(api.get(WAITING)) == ["one", "two"]
    assert node_of(api, "single")
    assert not node_of(api, "one")
    (row,) = load_pending([find_pod_id("ns", "one")])
    assert row.stage == "inflight"
    create(api, "three", gang="red")
    runner.turn()
    assert names(api.get(WAITING)) == []
    assert all(node_of(api, name) for name in ("one", "two", "three"))
    assert reservations.everything() == []


def near(api, name, **labels):
    """Create a pod that must be on the node of one with these labels; it is in no gang."""
    labels = {f"example.com/{key}": value for key, value in labels.items()}
    pod = make_pod(name).in_namespace("ns")
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    pod = pod.with_("spec", "affinity", value={"podAffinity": {rule: [term]}})
    api.post("/api/v1/namespaces/ns/pods", pod.manifest).ok(201)


def test_who_must_be_with_a_waiting_pod_is_bound_after_it(api, start):
    runner = start(Gang={"size": 2})
    create(api, "one", gang="red")
    near(api, "beside", gang="red")
    create(api, "single")
    runner.turn()
    runner.turn(5)
    assert node_of(api, "single")
    assert not node_of(api, "beside"), "what it leans on is not there yet"
    create(api, "two", gang="red")
    runner.turn()
    runner.turn(1)
    assert node_of(api, "one")
    assert node_of(api, "beside") in (node_of(api, "one"), node_of(api, "two"))


def test_who_must_be_with_a_waiting_pod_comes_back_with_it(api, start):
    runner = start(Gang={"size": 2, "timeoutSeconds": 30})
    create(api, "one", gang="red")
    near(api, "beside", gang="red")
    runner.turn()
    runner.turn(5)
    assert not node_of(api, "beside")
    runner.turn(60)
    runner.turn(1)
    assert not node_of(api, "beside")
    api.delete("/api/v1/namespaces/ns/pods/one").ok()
    runner.turn(60)
    assert "didn't match pod affinity rules" in message_of(api, "beside")[1]


def test_a_waiting_pod_that_leans_on_one_that_came_back_is_taken_back(api, start):
    """`one` is decided together with `first`, and waits while that comes back."""
    runner = start(Gang={"size": 2, "timeoutSeconds": 600})
    create(api, "first", crew="red")
    labels = {"example.com/gang": "red"}
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"example.com/crew": "red"}},
    }
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    pod = make_pod("one").in_namespace("ns").labelled(labels)
    pod = pod.with_("spec", "affinity", value={"podAffinity": {rule: [term]}})
    api.post("/api/v1/namespaces/ns/pods", pod.manifest).ok(201)
    seeds = runner.scheduler._seeds

    def between():
        runner.scheduler._seeds = seeds
        api.delete("/api/v1/namespaces/ns/pods/first").ok()
        return seeds()

    runner.scheduler._seeds = between
    runner.turn()
    runner.turn(2)
    assert names(api.get(WAITING)) == []
    assert "didn't match pod affinity rules" in message_of(api, "one")[1]


def test_the_gang_of_the_guide_waits_for_its_second(api, start):
    runner = start(GangOfTwo={})
    create(api, "one", gang="red")
    runner.turn()
    assert names(api.get(WAITING)) == ["one"]
    create(api, "two", gang="red")
    runner.turn()
    assert node_of(api, "one")
    assert node_of(api, "two")


def test_a_gang_that_comes_together_does_not_wait(api, start):
    runner = start(Gang={"size": 3})
    for name in ("one", "two", "three"):
        create(api, name, gang="red")
    runner.turn()
    assert all(node_of(api, name) for name in ("one", "two", "three"))


def test_a_waiting_pod_is_listed_allowed_and_rejected_over_the_api(api, start, journal):
    runner = start(Gang={"size": 5}, Journal=journal.args)
    for name in ("yes", "no"):
        create(api, name, gang=name)
    runner.turn()
    shown = api.get(WAITING, accept=TABLE).ok()
    assert [column["name"] for column in shown["columnDefinitions"]] == [
        "Name", "Node", "Waiting For", "Time Left", "Age",
    ]  # fmt: skip
    assert shown["rows"][0]["cells"][2] == "Gang"
    one = api.get(f"{BASE}/waitingpods/yes").ok()
    assert one["status"]["waitingFor"][0]["plugin"] == "Gang"
    assert one["spec"]["nodeName"] in ("a", "b")
    allow = {"plugin": "Gang", "decision": "Allow"}
    api.post(f"{BASE}/pods/yes/permit", {**allow, "plugin": "Other"}).fails(422, "Invalid")
    api.post(f"{BASE}/pods/yes/permit", {"decision": "Maybe"}).fails(422, "Invalid")
    api.post(f"{BASE}/pods/none/permit", allow).fails(404, "NotFound")
    api.post(f"{BASE}/pods/yes/permit", allow).ok(201)
    reject = {"plugin": "Gang", "decision": "Reject", "message": "not today"}
    api.post(f"{BASE}/waitingpods/no/permit", reject).ok(201)
    runner.turn()
    assert runner.work() == 1
    assert node_of(api, "yes")
    assert message_of(api, "no") == (
        "Unschedulable",
        "0/1 nodes are available: 1 not today.",
    )
    assert names(api.get(WAITING)) == []
    api.get(f"{BASE}/waitingpods/no").fails(404, "NotFound")
    latest = decisions.of_pod("ns", "no", limit=9)[0]
    assert (latest.outcome, latest.node_name) == ("unschedulable", "")
    assert "unreserve ns/no" in " ".join(journal.lines)
    told = api.get("/api/v1/namespaces/ns/pods/no/decisions?explain=full").ok()["items"][0]
    assert (told["source"], told["rejectedBy"], told["verified"]) == ("recorded", ["Gang"], True)


@pytest.mark.parametrize("decision", ["Allow", "Reject"])
def test_a_group_of_which_one_waits_on_permit_is_bound_or_comes_back_with_it(api, start, decision):
    """And nothing is kept of a group that is bound or came back."""
    runner = start(Gang={"size": 5})
    group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
    api.post("/apis/scheduling.k8s.io/v1beta1/namespaces/ns/podgroups", group).ok(201)
    for name in ("one", "two", "three"):
        labels = {"example.com/gang": "red"} if name == "two" else {}
        pod = make_pod(name).in_namespace("ns").labelled(labels)
        pod = pod.with_("spec", "schedulingGroup", value={"podGroupName": "g"})
        api.post("/api/v1/namespaces/ns/pods", pod.manifest).ok(201)
    runner.turn()
    assert names(api.get(WAITING)) == ["two"]
    assert {node_of(api, name) for name in ("one", "two", "three")} == {""}
    api.post(f"{BASE}/pods/two/permit", {"plugin": "Gang", "decision": decision}).ok(201)
    runner.turn()
    runner.work()
    placed = [bool(node_of(api, name)) for name in ("one", "two", "three")]
    assert placed == [decision == "Allow"] * 3
    if decision == "Reject":
        api.delete("/api/v1/namespaces/ns/pods/two").ok()
        runner.turn()
    assert not runner.scheduler.groups._gang_of


def test_a_plugin_rejects_those_who_wait(api, start):
    """R164."""
    runner = start(Gang={"size": 5})
    for name in ("one", "two"):
        create(api, name, gang="red")
    runner.turn()
    create(api, "stop", gang="red", cancel="yes")
    runner.turn()
    assert node_of(api, "stop")
    assert names(api.get(WAITING)) == []
    assert message_of(api, "one")[1] == "0/1 nodes are available: 1 cancelled by ns/stop."


def test_plugins_in_a_worker_list_allow_and_reject_too(api, start):
    """R164: there the rows are the list."""
    runner = start(Gang={"size": 5})
    for name in ("yes", "no"):
        create(api, name, gang=name)
    runner.turn()
    handle = binding_cycle.StoredWaitingPods()
    yes, no = handle.all()
    assert (yes.name, yes.pending_plugins, no.name) == ("ns/yes", ["Gang"], "ns/no")
    assert yes.pod.labels["example.com/gang"] == "yes"
    yes.allow("Other")
    yes.allow("Gang")
    found = handle.get(no.uid)
    assert found is not None
    found.reject("Gang", "no")
    assert handle.all() == []
    runner.turn()
    assert node_of(api, "yes")
    assert message_of(api, "no")[1] == "0/1 nodes are available: 1 no."


@pytest.mark.parametrize("where", ["scheduler", "worker"])
@pytest.mark.parametrize("how", ["reject", "preempt"])
def test_who_is_preempted_while_it_waits_is_tried_again_and_who_is_rejected_is_not(
    api, start, where, how
):
    """R164. Rule: ``WaitingPod.Preempt``, waiting_pods_map.go, v1.36."""
    runner = start(Gang={"size": 5, "deaf": True})
    create(api, "one", gang="red")
    runner.turn()
    handles = {"scheduler": runner.scheduler, "worker": binding_cycle.StoredWaitingPods()}
    (waiting,) = handles[where].all()
    assert getattr(waiting, how)("Gang", "make room")
    assert not waiting.reject("Gang", "again"), "the first answer counts"
    assert not waiting.preempt("Gang", "again")
    runner.turn()
    runner.scheduler.binder.write_refused(runner.now.timestamp())
    assert names(api.get(WAITING)) == []
    assert (
        message_of(api, "one")
        == {
            "reject": ("Unschedulable", "0/1 nodes are available: 1 make room."),
            "preempt": ("SchedulerError", "make room"),
        }[how]
    )
    runner.turn(11)
    assert names(api.get(WAITING)) == {"reject": [], "preempt": ["one"]}[how]


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("point", ["permit", "pre_bind", "post_bind"])
def test_who_is_placed_has_others_tried_at_once(api, start, tmp_path, point, is_restarted):
    """Rule: ``PodsToActivate``, schedule_one.go; plugins_test.go ``TestActivatePods``, v1.36."""
    runner = start(Leader={"file": str(tmp_path / "said")})
    for name in ("one", "two"):
        create(api, name, follows="yes")
    create(api, "three", follows="yes")
    runner.turn()
    api.post("/api/v1/nodes", make_node("c").offers(cpu="1").manifest).ok(201)
    runner.turn(30)
    assert "nobody leads" in message_of(api, "one")[1]
    create(api, "leader", leads=point)
    runner.turn()
    for _ in range(4):
        binding_cycle.run()
        if is_restarted:
            runner.restart()
        runner.turn()
    assert all(node_of(api, name) for name in ("leader", "one", "two"))
    assert not node_of(api, "three"), "nobody named it"
    assert reservations.everything() == []


def test_the_executors_of_the_guide_are_tried_when_their_driver_is_bound(api, start):
    runner = start(DriverFirst={})
    for name in ("job-0", "other-0"):
        create(api, name, cpu="4")
    runner.turn()
    create(api, "driver", **{"driver-of": "job"})
    runner.turn()
    binding_cycle.run()
    runner.turn()
    attempts = {row.id: row.attempts for row in load_pending()}
    tried = {name: attempts[find_pod_id("ns", name)] for name in ("job-0", "other-0")}
    assert tried == {"job-0": 2, "other-0": 1}


def test_who_is_not_placed_has_nobody_tried(api, start, tmp_path):
    runner = start(Leader={"file": str(tmp_path / "said")})
    create(api, "one", follows="yes")
    runner.turn()
    create(api, "leader", leads="permit", denied="yes")
    runner.turn(30)
    binding_cycle.run()
    runner.turn()
    assert not node_of(api, "one")


def test_only_who_may_is_allowed_to_permit(api, reader, start):
    runner = start(Gang={"size": 5})
    create(api, "one", gang="red")
    runner.turn()
    assert names(reader.get(WAITING)) == ["one"]
    body = {"plugin": "Gang", "decision": "Allow"}
    reader.post(f"{BASE}/pods/one/permit", body).fails(403, "Forbidden")


def test_a_deadline_sends_the_pod_back_and_frees_its_room(api, start, journal):
    """R163: a timeout is a rejection; Unreserve runs; who waits for the room gets it."""
    runner = start(Gang={"size": 2, "timeoutSeconds": 30}, Journal=journal.args)
    create(api, "waits", cpu="800m", gang="red")
    create(api, "fills", cpu="800m")
    runner.turn()
    runner.work()
    create(api, "late", cpu="800m")
    runner.turn()
    assert not node_of(api, "late"), "what is set aside is not free"
    assert runner.scheduler.reservations.next_due() == runner.now.timestamp() + 30
    runner.turn(29)
    assert names(api.get(WAITING)) == ["waits"]
    runner.turn(2)
    assert message_of(api, "waits") == (
        "Unschedulable",
        "0/1 nodes are available: 1 rejected due to timeout after waiting 30s at plugin Gang.",
    )
    assert journal.points.count("unreserve") == 1
    runner.turn(11)
    runner.work()
    assert node_of(api, "late")


def nominated(api, name):
    return api.get(f"/api/v1/namespaces/ns/pods/{name}").ok()["status"].get("nominatedNodeName")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_pod_that_waits_on_permit_says_where_it_will_go(api, start, is_restarted):
    """As Kubernetes' integration tests of nominatedNodeName have it."""
    runner = start(Gang={"size": 5})
    for name in ("goes", "stays"):
        create(api, name, cpu="800m", gang=name)
    create(api, "plain", cpu="100m")
    runner.turn()
    assert {nominated(api, name) for name in ("goes", "stays")} == {"a", "b"}
    assert (nominated(api, "plain"), bool(node_of(api, "plain"))) == (None, True)
    there = nominated(api, "stays")
    if is_restarted:
        runner.restart()
    runner.turn()
    decision = {"plugin": "Gang", "decision": "Allow"}
    api.post(f"{BASE}/pods/goes/permit", decision).ok(201)
    api.post(f"{BASE}/pods/stays/permit", {**decision, "decision": "Reject"}).ok(201)
    create(api, "next", cpu="800m")
    runner.turn()
    runner.turn(11)
    assert (nominated(api, "goes"), nominated(api, "stays")) == (None, None)
    assert node_of(api, "goes") != there
    assert node_of(api, "next") == there, "who was refused keeps no room"


def test_who_was_reserved_before_a_crash_and_not_nominated_is_nominated_after_it(api, start):
    runner = start(Gang={"size": 5})
    create(api, "waits", gang="red")
    runner.scheduler.cycle(runner.now.timestamp())
    assert nominated(api, "waits") is None, "pods are nominated in later cycles"
    node = api.get(f"{BASE}/waitingpods/waits").ok()["spec"]["nodeName"]
    runner.restart()
    runner.turn()
    assert nominated(api, "waits") == node


def test_a_refusal_that_is_written_late_does_not_end_a_nomination_since_then(api, start):
    """While others can be tried, refusals are written up to a second later."""
    runner = start(Gang={"size": 5})
    create(api, "waits", gang="red")
    now = runner.now.timestamp()
    runner.scheduler.cycle(now)
    earlier = Unschedulable(
        pod_id=find_pod_id("ns", "waits"), message="earlier", nominated_node_name=""
    )
    runner.scheduler.binder.refused.note(earlier, now)
    runner.turn()
    assert message_of(api, "waits") == ("Unschedulable", "earlier")
    assert nominated(api, "waits") in ("a", "b")


def test_a_pod_that_waits_on_pre_bind_says_where_it_will_go(api, start, journal):
    runner = start(Journal=journal.args)
    create(api, "p")
    create(api, "fails", refuse="pre_bind")
    runner.turn()
    assert {nominated(api, name) for name in ("p", "fails")} <= {"a", "b"}
    runner.work()
    assert node_of(api, "p")
    assert (nominated(api, "p"), nominated(api, "fails")) == (None, None)


def test_what_waits_survives_a_restart(api, start, journal):
    """The row is taken over, its room stays counted, and Reserve tells the plugins again."""
    runner = start(Gang={"size": 2}, Journal=journal.args)
    create(api, "waits", cpu="800m", gang="red")
    runner.turn()
    assert journal.points == ["reserve"]
    node = api.get(f"{BASE}/waitingpods/waits").ok()["spec"]["nodeName"]
    runner.restart()
    assert journal.points == ["reserve", "reserve"]
    create(api, "other", cpu="800m", gang="red")
    runner.turn()
    assert runner.work() == 2
    assert node_of(api, "waits") == node
    assert node_of(api, "other") not in ("", node)
    runner.work()
    assert reservations.everything() == []


def test_a_reservation_is_refused_and_allowed_while_nobody_schedules(api, start, journal):
    runner = start(Gang={"size": 9, "timeoutSeconds": 60}, Journal=journal.args)
    for name in ("yes", "no", "late", "gone"):
        create(api, name, gang=name)
    runner.turn()
    runner.scheduler.binder.close()
    api.post(f"{BASE}/pods/yes/permit", {"plugin": "Gang", "decision": "Allow"}).ok(201)
    api.post(f"{BASE}/pods/no/permit", {"plugin": "Gang", "decision": "Reject"}).ok(201)
    api.delete("/api/v1/namespaces/ns/pods/gone").ok()
    runner.now += timedelta(seconds=61)
    runner.restart()
    runner.turn()
    runner.work()
    assert node_of(api, "yes")
    assert "rejected by" in message_of(api, "no")[1]
    assert "timeout after waiting 1m0s" in message_of(api, "late")[1]
    runner.work()
    assert reservations.everything() == []


def test_a_binding_cycle_runs_in_order(api, start, journal):
    """R165-R167: Reserve, PreBind, Bind, PostBind, and the notes of the cycle are kept."""
    runner = start(Journal=journal.args)
    create(api, "p")
    runner.turn()
    assert not node_of(api, "p")
    assert runner.work() == 1
    node = node_of(api, "p")
    assert node
    assert journal.points == ["reserve", "pre_bind"]
    assert runner.work() == 1
    assert journal.lines == [
        f"{point} ns/p {node}" for point in ("reserve", "pre_bind", "post_bind")
    ]
    assert reservations.everything() == []
    assert sql.fetch_one("SELECT count(*) FROM pending_pod") == (0,)


@pytest.mark.parametrize("way", ["refuse", "raise"])
@pytest.mark.parametrize("point", ["reserve", "pre_bind"])
def test_who_fails_goes_back_to_the_queue_and_is_tried_again(api, start, journal, point, way):
    """R151, R160, R161, R165: Unreserve runs, the reason names the plugin, a retry follows.

    Who was nominated for the node before is so no longer, and PreBind's reason is told as it is
    (schedule_one.go, v1.36).
    """
    runner = start(Journal=journal.args)
    create(api, "p", **{way: point})
    there = {"status": {"nominatedNodeName": "a"}}
    api.patch("/api/v1/namespaces/ns/pods/p/status", there).ok()
    runner.turn()
    runner.work()
    runner.scheduler.binder.write_refused(runner.now.timestamp())
    assert not node_of(api, "p")
    assert nominated(api, "p") is None
    called = {"reserve": "Reserve", "pre_bind": "PreBind"}[point]
    expected = {
        "refuse": (
            "Unschedulable",
            "0/1 nodes are available: 1 reserve does not like it."
            if point == "reserve"
            else "pre_bind does not like it",
        ),
        "raise": (
            "SchedulerError",
            f'running {called} plugin "Journal": RuntimeError: out of ink',
        ),
    }[way]
    assert message_of(api, "p") == expected
    before = journal.points
    assert before[-1] == "unreserve"
    assert live.LiveWorld().snapshot().pod_total == 0, "nothing is set aside"
    create(api, "another")  # an event for those whom a plugin rejected
    runner.turn(11)
    runner.work()
    api.delete("/api/v1/namespaces/ns/pods/another").ok()
    if node_of(api, "another"):
        api.delete("/api/v1/namespaces/ns/pods/another?gracePeriodSeconds=0").ok()
    runner.turn(11)
    runner.work()
    assert journal.points.count("reserve") > before.count("reserve")


def test_a_killed_workers_binding_cycle_is_done_again(api, start, journal, monkeypatch):
    runner = start(Journal=journal.args)
    create(api, "p")
    runner.turn()
    with monkeypatch.context() as patched:
        patched.setattr(binding_cycle, "_work", _die)
        with pytest.raises(KeyboardInterrupt):
            binding_cycle.run()
    assert runner.work() == 1
    assert node_of(api, "p")


def _die(_reservation):
    raise KeyboardInterrupt


def test_a_bind_plugin_takes_its_pods_and_declines_the_rest(api, start):
    """R166."""
    runner = start(Courier={})
    create(api, "parcel", courier="yes")
    create(api, "letter")
    runner.turn()
    assert runner.work() == 2
    assert node_of(api, "parcel")
    assert node_of(api, "letter")


def test_a_pre_enqueue_plugin_holds_pods_and_a_queue_sort_plugin_orders_them(api, start):
    """R152, and PreEnqueue; a sort key that cannot be had costs nobody a turn."""
    runner = start(Door={})
    for name, rank in (("low", "1"), ("high", "9")):
        create(api, name, cpu="1500m", rank=rank)
    create(api, "odd", cpu="1500m", **{"raise": "key"})
    create(api, "held", held="yes")
    runner.turn()
    api.post("/api/v1/nodes", make_node("large").offers(cpu="2").manifest).ok(201)
    runner.turn(2)
    assert node_of(api, "high") == "large"
    assert not node_of(api, "low")
    assert not node_of(api, "held")
    (row,) = load_pending([find_pod_id("ns", "held")])
    assert (row.stage, message_of(api, "odd")[0]) == ("gated", "Unschedulable")
    labels = {"metadata": {"labels": {"example.com/held": None}}}
    api.patch("/api/v1/namespaces/ns/pods/held", labels).ok()
    runner.turn()
    assert node_of(api, "held")


def test_a_pod_that_goes_while_it_waits_gives_its_room_back(api, start, journal):
    runner = start(Gang={"size": 2}, Journal=journal.args)
    create(api, "waits", cpu="800m", gang="red")
    create(api, "fills", cpu="800m")
    runner.turn()
    runner.work()
    create(api, "late", cpu="800m")
    runner.turn()
    api.delete("/api/v1/namespaces/ns/pods/waits").ok()
    runner.turn(2)
    runner.work()
    assert journal.points.count("unreserve") == 1
    assert node_of(api, "late")
    assert not [row for row in reservations.everything() if row.step != "bound"]


def test_a_more_important_pod_takes_the_room_of_one_that_waits(api, start):
    """A waiting victim is not deleted, and is tried again after its backoff.

    Rule: preemption_test.go ``TestPreemptionRespectsWaitingPod``, executor.go, v1.36.
    """
    runner = start(Gang={"size": 2})
    for name in ("low-1", "low-2"):
        create(api, name, cpu="800m", gang=name)
    runner.turn()
    assert names(api.get(WAITING)) == ["low-1", "low-2"]
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }
    api.post("/apis/scheduling.k8s.io/v1/priorityclasses", priority).ok(201)
    manifest = make_pod("vip").in_namespace("ns").asks(cpu="800m").manifest
    manifest["spec"]["priorityClassName"] = "high"
    api.post("/api/v1/namespaces/ns/pods", manifest).ok(201)
    runner.turn()
    runner.turn(2)
    assert node_of(api, "vip")
    waiting = names(api.get(WAITING))
    assert len(waiting) == 1
    (victim,) = {"low-1", "low-2"} - set(waiting)
    assert not node_of(api, victim)
    uid = api.get("/api/v1/namespaces/ns/pods/vip").ok()["metadata"]["uid"]
    node = node_of(api, "vip")
    told = [
        event["message"]
        for event in api.get("/api/v1/namespaces/ns/events").ok()["items"]
        if event["reason"] == "Preempted" and event["involvedObject"]["name"] == victim
    ]
    assert told == [f"Preempted by pod {uid} on node {node} (in kube-scheduler memory)."]
    api.post("/api/v1/nodes", make_node("c").offers(cpu="1").manifest).ok(201)
    runner.turn(10)
    assert sorted(names(api.get(WAITING))) == ["low-1", "low-2"]


@pytest.mark.parametrize("restarted", [False, True])
def test_another_configuration_leaves_those_who_wait_to_their_own_plugins(
    api, start, journal, restarted
):
    runner = start(Gang={"size": 2}, Journal=journal.args)
    create(api, "waits", gang="red")
    runner.turn()
    runner.scheduler._looked_at = 0.0
    api.put(
        CONFIGURATION,
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        },
    ).ok()
    runner.turn(2)
    if restarted:
        runner.restart()
    create(api, "plain", gang="red")
    runner.turn()
    assert node_of(api, "plain"), "the new profile has no Permit plugin"
    assert names(api.get(WAITING)) == ["waits"]
    api.post(f"{BASE}/pods/waits/permit", {"plugin": "Gang", "decision": "Allow"}).ok(201)
    runner.turn()
    runner.work()
    assert node_of(api, "waits")
    assert journal.points == ["reserve"] * (1 + restarted) + ["pre_bind"]


def test_what_is_set_aside_is_not_free_for_simulations(api, start):
    runner = start(Gang={"size": 2})
    create(api, "waits", cpu="800m", gang="red")
    runner.turn()
    assert live.LiveWorld().snapshot().pod_total == 1
    reject = {"plugin": "Gang", "decision": "Reject"}
    api.post(f"{BASE}/pods/waits/permit", reject).ok(201)
    runner.turn()
    assert live.LiveWorld().snapshot().pod_total == 0


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", 'running Score plugin "Faulty": ValueError: no lights'),
        ("shape", 'running Score plugin "Faulty": scores have shape (3,), wanted (2,)'),
        ("range", 'plugin "Faulty" returns an invalid score 101'),
        ("list", 'running Score plugin "Faulty": scores have shape None, wanted (2,)'),
    ],
)
def test_a_bad_plugin_is_named_and_the_cycle_lives(api, start, how, said):
    runner = start(Faulty={"how": how})
    create(api, "p")
    runner.turn()
    reason, message = message_of(api, "p")
    assert reason == "SchedulerError"
    assert said in message


def test_a_configuration_that_stopped_working_leaves_the_one_in_force(api, start):
    """As when a package was removed or fails: the log says so once, and pods are placed."""
    runner = start(Gang={"size": 1})
    before = runner.scheduler._revision
    document = json.loads(decisions.configuration().document)
    document["profiles"][0] = {
        "schedulerName": "default-scheduler",
        "plugins": {"score": {"enabled": [{"name": "Faulty"}]}},
        "pluginConfig": [{"name": "Faulty", "args": {"how": "make"}}],
    }
    scheduler_configuration.store(document=json.dumps(document), by="x", now=runner.now)
    with structlog.testing.capture_logs() as lines:
        runner.turn(2)
        runner.turn(2)
        create(api, "p")
        runner.turn()
        runner.restart()
        create(api, "q")
        runner.turn(2)
    told = [line for line in lines if line["event"] == "configuration_unusable"]
    assert len(told) == 2, "once in force, once at the start"
    assert "plugin 'Faulty' cannot be made: RuntimeError: no plugin today" in told[0]["error"]
    assert node_of(api, "p")
    # A scheduler that has nothing else in memory places no pod by what nobody wrote.
    assert not node_of(api, "q")
    assert "plugin 'Faulty' cannot be made" in message_of(api, "q")[1]
    wanted = decisions.configuration_revision()
    assert [decisions.of_pod("ns", name, limit=1)[0].profile_revision for name in "pq"] == [
        before, wanted,
    ]  # fmt: skip


def test_a_hint_that_fails_has_the_pod_tried_again(api, start):
    runner = start(Faulty={"how": "hint"})
    create(api, "p")
    runner.turn()
    assert "too early" in message_of(api, "p")[1]
    api.post("/api/v1/nodes", make_node("late").offers(cpu="1").manifest).ok(201)
    runner.turn(11)
    assert node_of(api, "p")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("events", "plugin 'Faulty': events_to_register failed: RuntimeError: no events today"),
        ("event", "plugin 'Faulty': events_to_register did not return a list of Registration"),
        ("handle", "plugin 'Faulty': use_waiting_pods failed: RuntimeError: no handle today"),
    ],
)
def test_a_plugin_that_fails_when_it_is_prepared_is_refused_or_passed_over(api, start, how, said):
    """Where the code changed since it was stored, the configuration in force stays."""
    runner = start(Gang={"size": 1})
    document = json.loads(decisions.configuration().document)
    document["profiles"][0] = {
        "schedulerName": "default-scheduler",
        "plugins": {"score": {"enabled": [{"name": "Faulty"}]}},
        "pluginConfig": [{"name": "Faulty", "args": {"how": how}}],
    }
    if how != "handle":  # who checks a configuration has no handles
        failed = api.put(CONFIGURATION, document).fails(422, "Invalid")
        assert said in failed["message"]
    scheduler_configuration.store(document=json.dumps(document), by="x", now=runner.now)
    with structlog.testing.capture_logs() as lines:
        create(api, "p")
        runner.turn(2)
    (told,) = [line for line in lines if line["event"] == "configuration_unusable"]
    assert said in told["error"]
    assert node_of(api, "p")


def test_a_plugin_that_cannot_be_made_is_refused_when_it_is_configured(api, package):
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": {"score": {"enabled": [{"name": "Faulty"}]}},
                "pluginConfig": [{"name": "Faulty", "args": {"how": "make"}}],
            }
        ],
    }
    failed = api.put(CONFIGURATION, document).fails(422, "Invalid")
    assert "plugin 'Faulty' cannot be made: RuntimeError: no plugin today" in failed["message"]
    document["profiles"][0]["pluginConfig"][0]["args"] = {"how": 5, "why": ""}
    failed = api.put(CONFIGURATION, document).fails(422, "Invalid")
    assert "profiles[0].pluginConfig[0].args" in failed["details"]["causes"][0]["field"]

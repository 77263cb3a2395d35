"""Canaries: a configuration on trial, put in force, and given back when it does harm."""

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from clusterstate.actions.scheduler import canaries as actions
from clusterstate.health import progress
from clusterstate.processes import shards
from clusterstate.queries.scheduler import decisions
from clusterstate.queries.scheduler.canaries import find_canary
from scheduling.controllers import canaries as controller
from scheduling.engine import deciding
from tests.api.conftest import Api, Runner, make_token, names
from tests.builders import make_node, make_pod
from tests.clock import NOW
from tests.plugins.extender_service import serving

CANARIES = "/apis/stowage.dev/v1/canaries"
CONFIGURATION = "/apis/stowage.dev/v1/schedulerconfiguration"
PODS = "/api/v1/namespaces/ns/pods"
PACKING = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "pluginConfig": [
                {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
            ]
        }
    ],
}


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Have the loops compiled before a transaction is open, which would be ended as idle."""
    deciding.warm()


@pytest.fixture
def service():
    with serving() as made:
        yield made


@pytest.fixture
def runner(api):
    for name in ("a", "b"):
        api.post("/api/v1/nodes", make_node(name).manifest).ok(201)
    made = Runner()
    yield made
    made.scheduler.binder.close()


def make(api, configuration=PACKING, name="try", **spec):
    body = {
        "apiVersion": "stowage.dev/v1",
        "kind": "Canary",
        "metadata": {"name": name},
        "spec": {"configuration": configuration, **spec},
    }
    return api.post(CANARIES, body)


def with_extender(service, **fields):
    extender = {"urlPrefix": service.url, "filterVerb": "filter", "nodeCacheCapable": True}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [{**extender, **fields}],
    }


def act(api, what, name="try"):
    return api.post(f"{CANARIES}/{name}/{what}", {})


def state(api, name="try"):
    return api.get(f"{CANARIES}/{name}").ok()["status"]


def in_force(api):
    return api.get(CONFIGURATION).ok()


def create_pods(api, count, first=0):
    for number in range(first, first + count):
        pod = make_pod(f"p{number}").in_namespace("ns").asks(cpu="100m")
        api.post(PODS, pod.manifest).ok(201)


def test_on_trial_nothing_decides_by_it_and_its_report_says_what_would_have_been(api, runner):
    make(api).ok(201)
    before = decisions.configuration_revision()
    create_pods(api, 4)
    runner.turn(0.0)
    assert decisions.configuration_revision() == before
    assert state(api) == {"state": "Observing"}
    nodes = {item["spec"]["nodeName"] for item in api.get(PODS).ok()["items"]}
    assert nodes == {"a", "b"}, "as the default configuration spreads them"
    report = api.get(f"{CANARIES}/try/report").ok()["status"]
    assert [run["title"] for run in report["runs"]] == ["recorded", "try"]
    assert [run["summary"]["bound"] for run in report["runs"]] == [4, 4]
    assert [run["summary"]["nodesUsedPeak"] for run in report["runs"]] == [2, 1]
    assert report["elsewhere"][1] == 2
    assert "report" not in report
    assert "<svg" in api.get(f"{CANARIES}/try/report?html=true").ok()["status"]["report"]


def test_switched_it_is_in_force_and_kept_when_nothing_goes_wrong(api, runner):
    make(api, guardSeconds=60).ok(201)
    found = act(api, "switch").ok(201)["status"]
    assert (found["state"], found["formerRevision"]) == ("Switched", "0")
    assert in_force(api)["metadata"]["resourceVersion"] == found["revision"]
    create_pods(api, 4)
    runner.turn()
    nodes = {item["spec"]["nodeName"] for item in api.get(PODS).ok()["items"]}
    assert len(nodes) == 1, "packed"
    until = find_canary("try").guard_until
    assert controller.follow(until - timedelta(seconds=1)) == 0
    assert state(api)["state"] == "Switched"
    assert controller.follow(until) == 0
    assert state(api)["state"] == "Kept"
    assert in_force(api)["metadata"]["resourceVersion"] == found["revision"]


def test_a_plugin_that_fails_brings_the_former_configuration_back(api, runner, service):
    api.put(CONFIGURATION, PACKING).ok()
    service.status = 500
    make(api, with_extender(service), mostFailures=2).ok(201)
    act(api, "switch").ok(201)
    create_pods(api, 3)
    runner.turn()
    for _ in range(3):
        runner.turn(15)
    status = state(api)
    assert status["state"] == "Returned"
    assert "3 attempts failed" in status["message"]
    assert in_force(api)["profiles"] == PACKING["profiles"]
    assert all("nodeName" in item["spec"] for item in api.get(PODS).ok()["items"])
    assert decisions.configuration().by == actions.RETURNER


def test_so_does_one_that_is_slow(api, runner, service):
    """Though it answers, and every pod is placed: everybody waits for it."""
    service.answer = lambda verb, body: (service.stopped.wait(0.05), {"NodeNames": ["a"]})[1]
    make(api, with_extender(service), mostFailures=1, slowSeconds=0.01).ok(201)
    act(api, "switch").ok(201)
    create_pods(api, 2)
    runner.turn()
    runner.turn(2)
    status = state(api)
    assert status["state"] == "Returned"
    assert "took longer than 0.01 s" in status["message"]
    assert decisions.configuration().by == actions.RETURNER


def test_a_restarted_scheduler_goes_on_guarding(api, runner, service):
    service.status = 500
    make(api, with_extender(service), mostFailures=0).ok(201)
    act(api, "switch").ok(201)
    runner.turn()
    runner.scheduler.binder.close()
    again = Runner()
    again.scheduler.begin(again.now.timestamp())
    create_pods(api, 1)
    again.turn()
    again.turn(15)
    assert state(api)["state"] == "Returned"
    again.scheduler.binder.close()


@pytest.mark.parametrize("hangs", [shards.FIRST, 1], ids=["alone", "one of several"])
def test_a_scheduler_that_hangs_in_a_plugin_is_seen_from_outside(
    api, runner, monkeypatch, settings, hangs
):
    """Its process lives and its session too, and it has not reported for half a minute."""
    settings.ACTIVE_SCHEDULERS = hangs + 1
    make(api, guardSeconds=600).ok(201)
    act(api, "switch").ok(201)
    later = find_canary("try").switched_at + timedelta(seconds=60)
    loop = shards.loop(hangs)

    def standing(silent, ended=()):
        found = progress.WorkState(
            {"timers": 100.0, loop: silent}, {}, frozenset(ended), 0, 0.0, only_reads=False, at=0.0
        )
        monkeypatch.setattr(progress, "standing", lambda patience: found)

    standing(1.0)
    assert controller.follow(later) == 0
    standing(100.0, [loop])  # killed, and about to be started again
    assert controller.follow(later) == 0
    standing(100.0)
    assert controller.follow(later) == 1
    assert "silent" in state(api)["message"]
    assert decisions.configuration_revision() != find_canary("try").revision


def test_another_configuration_that_somebody_stores_ends_the_guard(api, runner):
    make(api).ok(201)
    act(api, "switch").ok(201)
    other = {**PACKING, "podMaxBackoffSeconds": 20}
    api.put(CONFIGURATION, other).ok()
    assert controller.follow(NOW) == 0
    assert state(api)["state"] == "Superseded"
    assert in_force(api)["podMaxBackoffSeconds"] == 20
    act(api, "return").fails(409, "Conflict")


def test_returned_by_hand_and_cancelled(api, runner):
    make(api).ok(201)
    act(api, "switch").ok(201)
    assert act(api, "return").ok(201)["status"]["state"] == "Returned"
    assert "profiles" not in in_force(api) or in_force(api)["profiles"] != PACKING["profiles"]
    make(api, name="other").ok(201)
    assert act(api, "cancel", "other").ok(201)["status"]["state"] == "Cancelled"
    for what in ("switch", "return", "cancel"):
        act(api, what, "other").fails(409, "Conflict")
    assert names(api.get(CANARIES)) == ["other", "try"]


def test_one_is_guarded_at_a_time_and_one_in_force_cannot_be_tried(api, runner):
    make(api).ok(201)
    make(api, {**PACKING, "podMaxBackoffSeconds": 20}, name="second").ok(201)
    make(api, name="third").ok(201)
    act(api, "switch").ok(201)
    act(api, "switch", "second").fails(409, "Conflict")
    controller.follow(NOW + timedelta(days=3650))
    act(api, "switch", "third").fails(409, "Conflict")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, 400),
        ({"spec": {}}, 400),
        ({"spec": {"configuration": {"kind": "KubeSchedulerConfiguration"}}}, 422),
        ({"spec": {"configuration": PACKING, "guardSeconds": 1}}, 400),
        ({"spec": {"configuration": PACKING, "colour": "red"}}, 400),
        ({"metadata": {"name": "No"}, "spec": {"configuration": PACKING}}, 400),
        ({"kind": "Plan", "spec": {"configuration": PACKING}}, 400),
    ],
)
def test_what_is_wrong_is_refused(api, body, code):
    api.post(CANARIES, body).fails(code, "Invalid" if code == 422 else "BadRequest")
    assert api.get(CANARIES).ok()["items"] == []


def test_names_are_taken_once_and_unknown_ones_are_not_found(api):
    make(api).ok(201)
    make(api).fails(409, "AlreadyExists")
    for path in ("", "/report"):
        api.get(f"{CANARIES}/none{path}").fails(404, "NotFound")
    act(api, "switch", "none").fails(404, "NotFound")


def test_who_may_read_may_not_switch(api, reader):
    make(api).ok(201)
    reader.get(f"{CANARIES}/try").ok()
    make(reader, name="mine").fails(403, "Forbidden")
    for what in ("switch", "return", "cancel"):
        act(reader, what).fails(403, "Forbidden")


def test_to_switch_takes_the_right_to_change_the_configuration(api):
    """The right to canaries alone puts nothing in force."""
    operator = Api(make_token("someone", ["stowage:operator"]))
    make(api).ok(201)
    act(operator, "switch").fails(403, "Forbidden")
    assert decisions.configuration_revision() == 0


def test_the_command_does_the_same(api, runner, tmp_path):
    file, page = tmp_path / "packing.yaml", tmp_path / "report.html"
    file.write_text(json.dumps(PACKING))

    def run(*arguments):
        out = StringIO()
        call_command("canary", *arguments, stdout=out, stderr=out)
        return out.getvalue()

    assert run("create", str(file), "--name", "try", "--guard", "60") == "try   Observing\n"
    create_pods(api, 4)
    runner.turn(0.0)
    told = run("report", "try", "--report", str(page), "--quiet")
    assert "pods on another node than under recorded" in told
    assert "<svg" in page.read_text()
    assert "Switched, guarded until" in run("switch", "try")
    assert run("return", "try") == "try   Returned: asked for\n"
    assert run("list") == "try   Returned: asked for\n"
    for wrong in (("switch", "none"), ("create", str(page)), ("create", "none.yaml")):
        with pytest.raises(CommandError):
            run(*wrong)

"""A configuration that can no longer be used is never replaced in silence."""

import json
from contextlib import ExitStack

import pytest

from api.server import metrics
from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.processes import memory
from clusterstate.queries.scheduler import decisions
from scheduling.answers import questions
from scheduling.plugins import installed
from scheduling.worker import profiles
from tests.api.test_permits import CONFIGURATION, OUTSIDE, Runner, message_of, node_of
from tests.builders import make_node, make_pod
from tests.health_parts import parts_now
from tests.plugins.packages import install, on_path

UNUSABLE = "stowage_configuration_unusable_profiles"
DOCUMENT = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {"schedulerName": "default-scheduler"},
        {
            "schedulerName": "special",
            "plugins": {"multiPoint": {"enabled": [{"name": "Gang"}]}},
            "pluginConfig": [{"name": "Gang", "args": {"size": 1}}],
        },
    ],
}


@pytest.fixture
def update(api, tmp_path):
    """Start a scheduler with the plugin; the function that is yielded takes its package away.

    What it yields is called with whether the package is there, as after an update, and starts all
    anew.
    """
    install(OUTSIDE, tmp_path)
    stack, runners = ExitStack(), []

    def begin(*, there):
        stack.close()
        if there:
            stack.enter_context(on_path(tmp_path))
        installed.look_again()
        memory.forget()
        for old in runners:
            old.scheduler.binder.close()
        runners[:] = [Runner()]
        return runners[0]

    api.post("/api/v1/nodes", make_node("a").offers(cpu="8").manifest).ok(201)
    yield begin
    for old in runners:
        old.scheduler.binder.close()
    stack.close()


def create(api, name, scheduler="default-scheduler"):
    manifest = make_pod(name).in_namespace("ns").asks(cpu="100m").manifest
    manifest["spec"]["schedulerName"] = scheduler
    api.post("/api/v1/namespaces/ns/pods", manifest).ok(201)


def part(name):
    return next(one for one in parts_now() if one.name == name)


def metric():
    (line,) = [one for one in metrics.text().splitlines() if one.startswith(UNUSABLE)]
    return float(line.split()[-1])


def usable(api):
    status = api.get(CONFIGURATION).ok()["status"]
    (condition,) = status["conditions"]
    return status["inForce"], condition["status"], condition["reason"], condition["message"]


def test_pods_of_a_profile_whose_plugin_is_gone_wait_and_everybody_is_told(api, update):
    runner = update(there=True)
    stored = api.put(CONFIGURATION, DOCUMENT).ok()
    revision = stored["metadata"]["resourceVersion"]
    runner = update(there=True)
    create(api, "before", scheduler="special")
    runner.turn(1)
    runner.work()
    assert node_of(api, "before")
    assert usable(api) == (revision, "True", "InForce", "")
    assert not part("configuration").problem
    assert metric() == 0

    runner = update(there=False)
    create(api, "special", scheduler="special")
    create(api, "usual")
    runner.turn(1)
    assert node_of(api, "usual")
    assert not node_of(api, "special")
    assert "profile 'special' cannot be used" in message_of(api, "special")[1]
    assert "Gang" in message_of(api, "special")[1]
    # What is asked for is still what was stored, and that it is not in use is said with it.
    found = api.get(CONFIGURATION).ok()
    assert found["profiles"] == stored["profiles"]
    in_force, status, reason, message = usable(api)
    assert (in_force, status, reason) == (revision, "False", "ProfilesHoldPods")
    assert "Gang" in message
    told = part("configuration")
    assert "profile 'special' cannot be used" in told.problem
    assert not told.needed  # the other profile works
    assert metric() == 1
    # The record names what decided, and a replay compares with that.
    (record,) = decisions.of_pod("ns", "special", limit=1)
    assert str(record.profile_revision) == revision
    again = questions.decision("ns", "special", record.id, full=True)
    assert (again["source"], again["verified"]) == ("replayed", True)
    # One that the plugin took part in cannot be made again: nothing else is passed off for it.
    (record,) = decisions.of_pod("ns", "before", limit=1)
    with pytest.raises(profiles.Expired, match="cannot be used"):
        questions.decision("ns", "before", record.id, full=True)
    # With the status that was read it may be stored again, and is judged as any other.
    api.put(CONFIGURATION, found).fails(422, "Invalid")

    runner = update(there=True)
    runner.turn(1)
    runner.work()
    assert node_of(api, "special")
    assert usable(api) == (revision, "True", "InForce", "")
    assert metric() == 0
    api.put(CONFIGURATION, api.get(CONFIGURATION).ok()).ok()


def test_a_package_that_comes_back_is_found_by_a_scheduler_that_runs(api, update, tmp_path):
    runner = update(there=True)
    api.put(CONFIGURATION, DOCUMENT).ok()
    runner = update(there=False)
    create(api, "special", scheduler="special")
    runner.turn(1)
    assert not node_of(api, "special")
    with on_path(tmp_path):
        profiles._known.clear()  # as the time after which it is read again
        runner.turn(2)
        runner.work()
        assert node_of(api, "special")
        assert usable(api)[1:3] == ("True", "InForce")


def test_a_running_scheduler_goes_on_with_what_it_has(api, update):
    """A newer version that this host cannot use: stored on one where the package is."""
    runner = update(there=False)
    document = {**DOCUMENT, "profiles": DOCUMENT["profiles"][:1]}
    usual = api.put(CONFIGURATION, document).ok()["metadata"]["resourceVersion"]
    runner.turn(2)
    scheduler_configuration.store(document=json.dumps(DOCUMENT), by="x", now=runner.now)
    runner.turn(2)
    create(api, "p")
    runner.turn(2)
    assert node_of(api, "p")
    assert str(decisions.of_pod("ns", "p", limit=1)[0].profile_revision) == usual
    in_force, status, reason, message = usable(api)
    assert (in_force, status, reason) == (usual, "False", "EarlierInForce")
    assert f"revision {usual} stays in force" in message
    assert part("configuration").problem == message
    assert metric() == 1


@pytest.mark.parametrize(
    "broken",
    [
        {"parallelism": -1},
        {"extenders": [{"urlPrefix": "http://x", "nodeCacheCapable": 7, "filterVerb": "f"}]},
        {"profiles": [{"schedulerName": "default-scheduler"}] * 2},
    ],
    ids=["number", "extender", "names"],
)
def test_nothing_is_placed_where_nothing_of_it_can_be_used(api, update, broken):
    """Such as by a version that reads documents more strictly."""
    runner = update(there=False)
    document = {**DOCUMENT, "profiles": DOCUMENT["profiles"][:1], **broken}
    scheduler_configuration.store(document=json.dumps(document), by="x", now=runner.now)
    runner = update(there=False)
    create(api, "p")
    runner.turn(2)
    assert not node_of(api, "p")
    assert "cannot be used" in message_of(api, "p")[1]
    told = part("configuration")
    assert told.problem
    assert told.needed
    assert usable(api)[1] == "False"

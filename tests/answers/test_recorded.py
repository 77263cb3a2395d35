"""The recent past of the service as a script, and what it comes to under another configuration."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command

from clusterstate.actions import objects
from clusterstate.objects.values.errors import Expired
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods import find_pod_id
from scheduling.answers import recorded
from scheduling.engine import deciding
from scheduling.scenarios import policies
from scheduling.scenarios.outcome import PodEnd
from scheduling.scenarios.playing import play
from tests.clock import NOW
from tests.controllers.support import (
    bind,
    make_node,
    make_pod,
    pod_manifest,
    set_taints,
    taint,
)
from tests.creating import create_pod

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Have the loops compiled before a transaction is open, which would be ended as idle."""
    deciding.warm()


def _minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def _past() -> None:
    """Two nodes; an old pod before, one that comes, is bound and leaves, and one that waits."""
    make_node("a", now=NOW - _minutes(120))
    make_node("b", now=NOW - _minutes(120))
    make_pod("old", "a", now=NOW - _minutes(100))
    job = make_pod("job", now=NOW - _minutes(50))
    bind(job, "b", now=NOW - _minutes(49))
    set_taints("b", taint(effect="NoSchedule"), now=NOW - _minutes(40))
    objects.delete("Pod", "default", "job", {"gracePeriodSeconds": 0}, now=NOW - _minutes(20))
    make_pod("waits", now=NOW - _minutes(10), schedulerName="another")


def test_what_happened_is_played_as_it_was() -> None:
    _past()
    script = recorded.script(since=NOW - _minutes(60), until=NOW)
    assert script.until is not None
    assert abs(script.until - 3600) < 1
    found = {fate.pod: fate for fate in recorded.outcome(script).fates}
    old, job = found["default/old"], found["default/job"]
    assert (old.node, old.bound_at, old.end) == ("a", 0.0, PodEnd.STAYS)
    assert (job.node, job.end) == ("b", PodEnd.FINISHED)
    assert job.waited == pytest.approx(60)
    assert job.left_at == pytest.approx(40 * 60, abs=1)
    assert found["default/waits"].bound_at is None


def test_a_pod_that_waited_when_the_time_begins_goes_where_it_went() -> None:
    """What became of it is recorded, though its creation is not: it comes at second 0."""
    make_node("a", now=NOW - _minutes(120))
    early = make_pod("early", now=NOW - _minutes(90))
    make_pod("never", now=NOW - _minutes(90))
    make_pod("early-other", now=NOW - _minutes(40))
    bind(early, "a", now=NOW - _minutes(30))
    objects.delete("Pod", "default", "early", {"gracePeriodSeconds": 0}, now=NOW - _minutes(20))
    again = make_pod("early", now=NOW - _minutes(10))
    bind(again, "a", now=NOW - _minutes(9))
    objects.delete("Pod", "default", "never", now=NOW - _minutes(5))
    script = recorded.script(since=NOW - _minutes(60), until=NOW)
    fates = sorted(recorded.outcome(script).fates, key=lambda one: (one.pod, one.came_at))
    told = [(one.pod, one.came_at, one.bound_at, one.left_at) for one in fates]
    minute = 60.0
    assert told == [
        ("default/early", 0.0, pytest.approx(30 * minute), pytest.approx(40 * minute)),
        ("default/early", pytest.approx(50 * minute), pytest.approx(51 * minute), None),
        ("default/early-other", pytest.approx(20 * minute), None, None),
        ("default/never", 0.0, None, pytest.approx(55 * minute)),
    ]


def test_another_configuration_decides_the_same_past_anew() -> None:
    _past()
    script = recorded.script(since=NOW - _minutes(60), until=NOW)
    outcome = play(script, policies.load("packing", script), title="packing")
    found = {fate.pod: fate for fate in outcome.fates}
    assert found["default/job"].node == "a", "beside the old one"
    assert found["default/job"].waited == 0.0
    assert found["default/job"].left_at == pytest.approx(39 * 60, abs=1), "it ran 29 minutes"
    assert found["default/waits"].status == "skipped"


def test_pods_that_the_profiles_leave_alone_take_their_room_as_they_did() -> None:
    """One of another scheduler, one that named its node, one that was gated for ten minutes."""
    make_node("a", now=NOW - _minutes(120))
    bind(make_pod("other", now=NOW - _minutes(50), schedulerName="another"), "a",
         now=NOW - _minutes(49))  # fmt: skip
    make_pod("named", now=NOW - _minutes(40), nodeName="a")
    gated = make_pod("gated", now=NOW - _minutes(30), schedulingGates=[{"name": "quota"}])
    objects.update("Pod", "default", "gated", _ungated, now=NOW - _minutes(20))
    bind(gated, "a", now=NOW - _minutes(19))
    script = recorded.script(since=NOW - _minutes(60), until=NOW)
    decided = play(script, policies.load("packing", script), title="packing")
    for outcome, waited in ((recorded.outcome(script), 60.0), (decided, 0.0)):
        found = {fate.pod.removeprefix("default/"): fate for fate in outcome.fates}
        assert {fate.node for fate in found.values()} == {"a"}, outcome.title
        assert outcome.pods_on == {"a": 3}
        assert found["other"].waited == pytest.approx(60)
        assert (found["named"].has_fixed_node, found["named"].waited) == (True, 0.0)
        assert found["gated"].came_at == pytest.approx(40 * 60, abs=1)
        assert found["gated"].waited == pytest.approx(waited)
        assert outcome.summary()["pods"] == 2


def _ungated(pod: Manifest) -> Manifest:
    return {**pod, "spec": {**pod["spec"], "schedulingGates": []}}


def test_who_was_made_in_place_of_a_lost_pod_comes_once() -> None:
    """A node goes with its pod; the controller's new pod is in the record already."""
    make_node("a", now=NOW - _minutes(120))
    make_node("b", now=NOW - _minutes(120))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}
    there = pod_manifest("web-1")
    there["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    create_pod(there, now=NOW - _minutes(100))
    first = find_pod_id("default", "web-1")
    assert first is not None
    bind(first, "a", now=NOW - _minutes(99))
    objects.delete("Node", "", "a", now=NOW - _minutes(30))
    objects.delete("Pod", "default", "web-1", {"gracePeriodSeconds": 0}, now=NOW - _minutes(29))
    bind(make_pod("web-2", now=NOW - _minutes(29)), "b", now=NOW - _minutes(28))
    script = recorded.script(since=NOW - _minutes(60), until=NOW)
    outcome = recorded.outcome(script)
    assert [(fate.pod, fate.node) for fate in outcome.fates] == [
        ("default/web-1", "a"),
        ("default/web-2", "b"),
    ]


def test_a_past_without_nodes_is_none() -> None:
    with pytest.raises(Expired, match="no node"):
        recorded.script(since=NOW - _minutes(60), until=NOW)


def test_the_command_compares_what_happened_with_other_policies() -> None:
    _past()
    out, err = StringIO(), StringIO()
    call_command("replay", hours=1.0, policy=["default", "packing"], stdout=out, stderr=err)
    head, *lines = out.getvalue().splitlines()
    assert head.split() == ["recorded", "default", "packing"]
    figures = {line[:14].strip(): line.split()[-3:] for line in lines}
    assert figures["pods created"] == ["3", "3", "3"]
    assert figures["bound"] == ["2", "2", "2"]

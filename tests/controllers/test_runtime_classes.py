"""Pods that wait for their RuntimeClass go on when it appears (R54, C8)."""

import pytest
from django.test import override_settings

from clusterstate.actions import objects
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.admission.plugins.runtime_class import WAIT_GATE
from clusterstate.database import sql
from clusterstate.queries.objects import decode_object, get_manifest
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id
from scheduling.controllers import runtime_classes
from tests.controllers.support import NOW, after, make_pod
from tests.rows import load_pending

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _waiting_is_on():
    with override_settings(ADMISSION={"wait_for_runtime_class": True}):
        yield


def create_class(name="kata", **more):
    manifest = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": name,
        **more,
    }
    objects.create("RuntimeClass", "", manifest, now=NOW)


def pod(name):
    return get_manifest("Pod", "default", name)


def stage(name):
    (row,) = load_pending([find_pod_id("default", name)])
    return row.stage


def test_a_pod_goes_on_when_its_class_appears():
    make_pod("p", runtimeClassName="kata")
    make_pod("other", runtimeClassName="gvisor")
    runtime_classes.follow(NOW)
    assert pod("p")["spec"]["schedulingGates"] == [{"name": WAIT_GATE}]
    assert stage("p") == "gated"
    create_class(
        scheduling={"nodeSelector": {"runtime": "kata"}},
        overhead={"podFixed": {"cpu": "250m", "memory": "120Mi"}},
    )
    assert runtime_classes.follow(after(1)) == 1
    found = pod("p")
    assert "schedulingGates" not in found["spec"]
    assert found["spec"]["nodeSelector"] == {"runtime": "kata"}
    assert found["spec"]["overhead"] == {"cpu": "250m", "memory": "120Mi"}
    assert stage("p") == "active"
    reasons = [one.get("reason") for one in found["status"].get("conditions", [])]
    assert "SchedulingGated" not in reasons
    (row,) = sql.fetch(
        "SELECT c.cpu_milli FROM pod p JOIN scheduling_class c ON c.id = p.class_id"
        " WHERE p.name = 'p'"
    )
    assert row == (250,)
    assert stage("other") == "gated"
    assert runtime_classes.follow(after(2)) == 0


def test_other_gates_stay():
    make_pod("p", runtimeClassName="kata", schedulingGates=[{"name": "mine"}])
    create_class()
    runtime_classes.follow(NOW)
    assert pod("p")["spec"]["schedulingGates"] == [{"name": "mine"}]
    assert stage("p") == "gated"


def test_a_pod_that_its_class_contradicts_waits_on_and_is_told():
    """R48."""
    make_pod("p", runtimeClassName="kata", nodeSelector={"runtime": "runc"})
    create_class(scheduling={"nodeSelector": {"runtime": "kata"}})
    assert runtime_classes.follow(NOW) == 0
    assert stage("p") == "gated"
    events = [decode_object(item) for item in list_page("Event", "default").items]
    (event,) = [one for one in events if one["reason"] == "RuntimeClassConflict"]
    assert "runtime" in event["message"]

    def agree(manifest):
        return {**manifest, "scheduling": {"nodeSelector": {"runtime": "runc"}}}

    objects.update("RuntimeClass", "", "kata", agree, now=after(1))
    assert runtime_classes.follow(after(1)) == 1
    assert stage("p") == "active"


def test_a_pod_that_was_deleted_meanwhile_is_no_trouble():
    make_pod("p", runtimeClassName="kata")
    delete_pod("default", "p", now=NOW)
    create_class()
    assert runtime_classes.follow(after(1)) == 0

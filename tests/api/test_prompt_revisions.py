"""Who changed a template finds its revision by the next request, as ``kubectl undo`` needs it."""

import pytest

from scheduling.controllers.workloads import follower
from tests.api.conftest import MERGE, STRATEGIC
from tests.clock import NOW

pytestmark = pytest.mark.django_db(transaction=True)

APPS = "/apis/apps/v1/namespaces/default"
KINDS = {
    "deployments": ("Deployment", "replicasets"),
    "daemonsets": ("DaemonSet", "controllerrevisions"),
    "statefulsets": ("StatefulSet", "controllerrevisions"),
}
every_kind = pytest.mark.parametrize("plural", list(KINDS))


def manifest(plural, image="web:1"):
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": KINDS[plural][0],
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def image(api, plural, tag, query="", **more):
    container = {"name": "main", "image": tag}
    template = {"spec": {"containers": [container]}}
    body = {"spec": {"template": template, **more}}
    return api.patch(f"{APPS}/{plural}/web{query}", body, STRATEGIC).ok()


def revisions(api, plural):
    """Return the image of each revision that there is, by its number."""
    found = {}
    for one in api.get(f"{APPS}/{KINDS[plural][1]}").ok()["items"]:
        if plural == "deployments":
            number = int(one["metadata"]["annotations"]["deployment.kubernetes.io/revision"])
            spec = one["spec"]["template"]["spec"]
        else:
            number, spec = one["revision"], one["data"]["spec"]["template"]["spec"]
        assert number not in found
        found[number] = spec["containers"][0]["image"]
    return found


@pytest.fixture
def web(api):
    def make(plural):
        api.post(f"{APPS}/{plural}", manifest(plural)).ok(201)
        follower.follow(NOW)
        assert revisions(api, plural) == {1: "web:1"}

    return make


@every_kind
def test_each_change_has_the_newest_revision_when_it_is_answered(api, web, plural):
    web(plural)
    image(api, plural, "web:2")
    assert revisions(api, plural) == {1: "web:1", 2: "web:2"}
    image(api, plural, "web:1")  # an undo
    assert revisions(api, plural) == {2: "web:2", 3: "web:1"}
    image(api, plural, "web:2")
    assert revisions(api, plural) == {3: "web:1", 4: "web:2"}
    image(api, plural, "web:3")
    known = {3: "web:1", 4: "web:2", 5: "web:3"}
    assert revisions(api, plural) == known
    follower.follow(NOW)
    assert revisions(api, plural) == known, "the controllers find all of them"


@every_kind
def test_other_changes_and_rehearsals_make_none(api, web, plural):
    web(plural)
    api.patch(f"{APPS}/{plural}/web", {"metadata": {"labels": {"a": "b"}}}, MERGE).ok()
    image(api, plural, "web:2", "?dryRun=All")
    assert revisions(api, plural) == {1: "web:1"}


@every_kind
def test_a_program_that_plays_the_controller_makes_them_itself(api, web, plural, settings):
    web(plural)
    settings.CONTROLLERS = [one for one in settings.CONTROLLERS if one != plural.removesuffix("s")]
    image(api, plural, "web:2")
    assert revisions(api, plural) == {1: "web:1"}


@every_kind
def test_a_revision_that_a_quota_refuses_spoils_no_change(api, web, plural):
    web(plural)
    counted = f"count/{KINDS[plural][1]}.apps"
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {counted: "1"}}}
    api.post("/api/v1/namespaces/default/resourcequotas", quota).ok(201)
    changed = image(api, plural, "web:2")
    assert changed["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2"
    assert revisions(api, plural) == {1: "web:1"}


def test_the_controllers_start_the_pods_and_tell_it(api, web):
    web("deployments")
    image(api, "deployments", "web:2")
    sets = api.get(f"{APPS}/replicasets").ok()["items"]
    assert sorted(one["spec"]["replicas"] for one in sets) == [0, 1]
    follower.follow(NOW)
    sets = api.get(f"{APPS}/replicasets").ok()["items"]
    assert sorted(one["spec"]["replicas"] for one in sets) == [1, 1]
    events = api.get("/api/v1/namespaces/default/events").ok()["items"]
    (told,) = [one for one in events if one["reason"] == "ScalingReplicaSet"]
    assert told["count"] == 2, "each was scaled up from nothing"
    assert told["message"].endswith("from 0 to 1")


def test_recreate_waits_until_the_former_pods_are_gone(api, web):
    web("deployments")
    image(api, "deployments", "web:2", strategy={"type": "Recreate", "rollingUpdate": None})
    assert revisions(api, "deployments") == {1: "web:1"}

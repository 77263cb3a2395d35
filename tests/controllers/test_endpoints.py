"""Endpoints follow the pods of Services, in PostgreSQL."""

import pytest

from clusterstate.actions import objects
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers import garbage
from scheduling.controllers.endpoints import follower
from scheduling.controllers.endpoints.slices import CONTROLLER, SERVICE_NAME
from tests.clock import NOW
from tests.controllers.support import after, make_node, make_pod, set_labels

pytestmark = pytest.mark.django_db


def make_service(name="web", **spec):
    manifest = {
        "metadata": {"name": name, "labels": {"team": "a"}},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}], **spec},
    }
    return decode_object(objects.create("Service", "default", manifest, now=NOW).manifest)


def report(name, address, *, ready=True):
    """Let the agent of a pod's node say that it runs."""
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": "Running", "podIP": address, "conditions": conditions}

    def changed(pod):
        return {**pod, "status": {**pod["status"], **status}}

    objects.update("Pod", "default", name, changed, subresource="status", now=NOW)


def label_pod(name, **labels):
    def changed(pod):
        return {**pod, "metadata": {**pod["metadata"], "labels": labels}}

    objects.update("Pod", "default", name, changed, now=NOW)


def slices_of(name="web"):
    found = [decode_object(one) for one in list_page("EndpointSlice", "default").items]
    return [one for one in found if one["metadata"]["labels"].get(SERVICE_NAME) == name]


def addresses(name="web"):
    return sorted(
        one["addresses"][0]
        for part in slices_of(name)
        for one in part.get("endpoints") or ()
        if one["conditions"]["ready"]
    )


def endpoints(name="web"):
    found = find_object("Endpoints", "default", name)
    return None if found is None else decode_object(found)


@pytest.fixture
def cluster(db):
    for node, zone in (("n1", "a"), ("n2", "b")):
        make_node(node, labels={"topology.kubernetes.io/zone": zone})
    for name, node in (("p1", "n1"), ("p2", "n2")):
        make_pod(name, node, metadata={"labels": {"app": "web"}})
    make_pod("other", "n1", metadata={"labels": {"app": "db"}})


def test_endpoints_follow_pods(cluster):
    service = make_service()
    follower.follow(NOW)
    (empty,) = slices_of()
    metadata = empty["metadata"]
    assert metadata["name"].startswith("web-")
    assert metadata["labels"]["endpointslice.kubernetes.io/managed-by"] == CONTROLLER
    assert metadata["labels"]["team"] == "a"
    assert metadata["ownerReferences"][0]["uid"] == service["metadata"]["uid"]
    assert endpoints().get("subsets") is None
    for name, address in (("p1", "10.1.0.1"), ("p2", "10.1.0.2"), ("other", "10.1.0.3")):
        report(name, address)
    follower.follow(NOW)
    assert addresses() == ["10.1.0.1", "10.1.0.2"]
    (one,) = slices_of()
    assert {entry["zone"] for entry in one["endpoints"]} == {"a", "b"}
    (subset,) = endpoints()["subsets"]
    assert [entry["ip"] for entry in subset["addresses"]] == ["10.1.0.1", "10.1.0.2"]
    while follower.follow(NOW):
        pass
    assert slices_of() == [one]  # nothing is written where nothing changed
    report("p1", "10.1.0.1", ready=False)
    objects.delete("Pod", "default", "p2", now=NOW)
    follower.follow(NOW)
    assert addresses() == []
    conditions = {e["targetRef"]["name"]: e["conditions"] for e in slices_of()[0]["endpoints"]}
    assert conditions["p1"]["serving"] is False
    assert conditions["p2"] == {"ready": False, "serving": True, "terminating": True}
    assert [one["ip"] for one in endpoints()["subsets"][0]["notReadyAddresses"]] == ["10.1.0.1"]


def test_another_slice_takes_the_place_of_one_that_a_finalizer_holds(cluster):
    make_service()
    report("p1", "10.1.0.1")
    follower.follow(NOW)
    (first,) = slices_of()
    name = first["metadata"]["name"]

    def held(one):
        return {**one, "metadata": {**one["metadata"], "finalizers": ["example.org/held"]}}

    objects.update("EndpointSlice", "default", name, held, now=NOW)
    objects.delete("EndpointSlice", "default", name, now=NOW)
    while follower.follow(NOW):
        pass
    kept, other = sorted(slices_of(), key=lambda one: one["metadata"]["name"] != name)
    assert kept["metadata"]["deletionTimestamp"]
    assert [one["addresses"] for one in other["endpoints"]] == [["10.1.0.1"]]
    report("p1", "10.1.0.9")
    follower.follow(NOW)
    kept, other = sorted(slices_of(), key=lambda one: one["metadata"]["name"] != name)
    assert [one["addresses"] for one in kept["endpoints"]] == [["10.1.0.1"]]
    assert [one["addresses"] for one in other["endpoints"]] == [["10.1.0.9"]]


def test_a_node_that_moves_moves_its_endpoints(cluster):
    make_service()
    report("p1", "10.1.0.1")
    follower.follow(NOW)
    set_labels("n1", **{"topology.kubernetes.io/zone": "c"})
    follower.follow(NOW)
    assert [one["zone"] for one in slices_of()[0]["endpoints"]] == ["c"]


def test_what_is_changed_or_removed_by_hand_is_made_again(cluster):
    make_service()
    report("p1", "10.1.0.1")
    follower.follow(NOW)
    name = slices_of()[0]["metadata"]["name"]
    objects.update("EndpointSlice", "default", name, lambda one: {**one, "endpoints": []}, now=NOW)
    objects.delete("Endpoints", "default", "web", now=NOW)
    follower.follow(NOW)
    assert addresses() == ["10.1.0.1"]
    assert endpoints() is not None


def test_a_service_takes_its_endpoints_along(cluster):
    make_service()
    follower.follow(NOW)
    mine = {"metadata": {"name": "mine"}, "subsets": [{"addresses": [{"ip": "10.9.9.9"}]}]}
    objects.create("Endpoints", "default", mine, now=NOW)
    objects.delete("Service", "default", "web", now=NOW)
    follower.follow(NOW)
    garbage.follow(NOW)
    assert slices_of() == []
    assert endpoints() is None
    assert endpoints("mine") is not None  # not made by the controller, so not its own


@pytest.mark.parametrize(
    "spec", [{"selector": {}}, {"type": "ExternalName", "externalName": "x.y"}]
)
def test_services_that_select_no_pods_are_left_alone(cluster, spec):
    make_service(**spec)
    follower.follow(NOW)
    assert slices_of() == []
    assert endpoints() is None


def test_each_can_be_left_to_others(cluster, settings):
    settings.CONTROLLERS = ("endpointslice",)
    make_service()
    follower.follow(NOW)
    assert len(slices_of()) == 1
    assert endpoints() is None
    settings.CONTROLLERS = ("deployment",)
    make_service("second")
    assert follower.follow(NOW) == 0
    assert slices_of("second") == []


def test_what_a_quota_refuses_is_told_and_tried_again(cluster):
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"count/endpoints": "0"}}}
    objects.create("ResourceQuota", "default", quota, now=NOW)
    make_service()
    follower.follow(NOW)
    assert len(slices_of()) == 1
    events = [decode_object(one) for one in list_page("Event", "default").items]
    assert [one["reason"] for one in events] == ["FailedToUpdateEndpoints"]
    follower.follow(NOW)  # what the first pass wrote is a change, too
    objects.delete("ResourceQuota", "default", "few", now=NOW)
    follower.follow(after(14))
    assert endpoints() is None
    follower.follow(after(15))
    assert endpoints() is not None


def test_a_namespace_of_very_many_pods_is_looked_at_less_often(cluster, monkeypatch):
    monkeypatch.setattr(follower, "_AT_ONCE", 1)  # two pods are very many here
    make_service()
    for name, address in (("p1", "10.1.0.1"), ("p2", "10.1.0.2")):
        report(name, address)
    follower.follow(NOW)
    assert addresses() == ["10.1.0.1", "10.1.0.2"]
    report("p1", "10.1.0.9")
    assert follower.follow(after(1)) == 0
    assert addresses() == ["10.1.0.1", "10.1.0.2"]
    assert follower.follow(after(2)) == 2  # the slice and the older Endpoints
    assert addresses() == ["10.1.0.2", "10.1.0.9"]


def test_several_labels_choose_who_has_all_of_them(cluster):
    for name, app in (("p1", "web"), ("other", "db")):
        label_pod(name, app=app, tier="front")
    make_service(selector={"app": "web", "tier": "front"})
    make_service("all", selector={"tier": "front"})
    for name, address in (("p1", "10.1.0.1"), ("p2", "10.1.0.2"), ("other", "10.1.0.3")):
        report(name, address)
    follower.follow(NOW)
    assert addresses() == ["10.1.0.1"]
    assert addresses("all") == ["10.1.0.1", "10.1.0.3"]


# Endpoints that somebody wrote ------------------------------------------------------------------


def write_endpoints(*addresses, name="web", **metadata):
    subsets = [{"addresses": [{"ip": one} for one in addresses], "ports": [{"port": 80}]}]
    manifest = {"metadata": {"name": name, **metadata}, "subsets": subsets}
    if find_object("Endpoints", "default", name) is None:
        objects.create("Endpoints", "default", manifest, now=NOW)
        return

    def changed(old):
        return {**old, "subsets": subsets}

    objects.update("Endpoints", "default", name, changed, now=NOW)


def test_slices_show_the_endpoints_of_a_service_without_selector(cluster):
    """The steps of Kubernetes' conformance test of its mirroring controller."""
    make_service(selector={})
    write_endpoints("10.1.2.3")
    follower.follow(NOW)
    (one,) = slices_of()
    assert [each["addresses"] for each in one["endpoints"]] == [["10.1.2.3"]]
    assert one["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
    write_endpoints("10.2.3.4")
    follower.follow(NOW)
    (same,) = slices_of()
    assert same["metadata"]["uid"] == one["metadata"]["uid"]
    assert [each["addresses"] for each in same["endpoints"]] == [["10.2.3.4"]]
    assert follower.follow(NOW) == 0
    objects.delete("Endpoints", "default", "web", now=NOW)
    follower.follow(NOW)
    assert slices_of() == []


@pytest.mark.parametrize("why", ["no service", "a selector", "left to others"])
def test_other_endpoints_are_not_shown(cluster, settings, why):
    if why == "left to others":
        settings.CONTROLLERS = ("endpointslice", "endpoint")
    if why != "no service":
        make_service(selector={"app": "nobody"} if why == "a selector" else {})
    write_endpoints("10.1.2.3")
    follower.follow(NOW)
    assert [
        one for part in slices_of() for one in part.get("endpoints") or () if one["addresses"]
    ] == []


def test_what_was_shown_goes_with_the_service_or_its_selector(cluster):
    make_service(selector={})
    write_endpoints("10.1.2.3")
    follower.follow(NOW)
    theirs = decode_object(
        objects.create(
            "EndpointSlice",
            "default",
            {"metadata": {"name": "own", "labels": {SERVICE_NAME: "web"}}, "addressType": "IPv4",
             "endpoints": []},
            now=NOW,
        ).manifest
    )  # fmt: skip
    assert len(slices_of()) == 2
    objects.delete("Service", "default", "web", now=NOW)
    follower.follow(NOW)
    assert [one["metadata"]["name"] for one in slices_of()] == [theirs["metadata"]["name"]]

"""Core Events and those of ``events.k8s.io`` are one store, each by its own names."""

import http.client
import json

import pytest

from clusterstate.actions.kinds.events import Occurrence, record_many
from clusterstate.local.hollow.pods import started_event
from clusterstate.objects.rules import event_names
from clusterstate.objects.wire import protobuf
from tests.api.conftest import APPLY, JSON_PATCH, TABLE, Api, make_token, names
from tests.clock import NOW

CORE = "/api/v1/namespaces/ns/events"
NEWER = "/apis/events.k8s.io/v1/namespaces/ns/events"
PROTOBUF = "application/vnd.kubernetes.protobuf"
REGARDING = {"kind": "Pod", "namespace": "ns", "name": "p"}


def newer(name="e", **fields):
    return {
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": name, "namespace": "ns"},
        "eventTime": "2026-01-02T03:04:05.000006Z", "regarding": REGARDING, "reason": "Scheduled",
        "reportingController": "example.org/scheduler", "reportingInstance": "one",
        "action": "Binding", "type": "Normal", "note": "all is well", **fields,
    }  # fmt: skip


def test_the_names_of_both_groups_go_into_each_other_and_back():
    event = newer(deprecatedCount=2, deprecatedSource={"component": "c"})
    stored = event_names.stored(event)
    assert stored["message"] == "all is well"
    assert stored["involvedObject"] == REGARDING
    assert (stored["count"], stored["source"], stored["apiVersion"]) == (
        2,
        {"component": "c"},
        "v1",
    )
    assert event_names.shown(stored) == event


def test_what_one_group_writes_the_other_shows(api):
    made = api.post(NEWER, newer()).ok(201)
    assert made["note"] == "all is well"
    assert made["regarding"] == REGARDING
    assert "message" not in made
    core = api.get(f"{CORE}/e").ok()
    assert (core["apiVersion"], core["message"]) == ("v1", "all is well")
    assert core["reportingComponent"] == "example.org/scheduler"
    assert core["metadata"]["uid"] == made["metadata"]["uid"]
    body = {
        "metadata": {"name": "old", "namespace": "ns"}, "involvedObject": REGARDING,
        "reason": "Pulled", "message": "m", "source": {"component": "kubelet"}, "count": 3,
        "type": "Normal", "firstTimestamp": "2026-01-02T03:04:05Z",
    }  # fmt: skip
    api.post(CORE, body).ok(201)
    old = api.get(f"{NEWER}/old").ok()
    assert (old["apiVersion"], old["note"], old["deprecatedCount"]) == ("events.k8s.io/v1", "m", 3)
    assert old["deprecatedSource"] == {"component": "kubelet"}
    listed = api.get("/apis/events.k8s.io/v1/events").ok()
    assert (listed["apiVersion"], listed["kind"]) == ("events.k8s.io/v1", "EventList")
    assert [item["note"] for item in listed["items"]] == ["all is well", "m"]
    assert len(api.get(NEWER, accept=TABLE).ok()["rows"]) == 2


def test_events_of_the_service_itself_are_shown(api):
    occurrence = Occurrence(
        kind="Pod", namespace="ns", name="p", uid="u", type="Normal", reason="Scheduled",
        message="bound", component="default-scheduler",
    )  # fmt: skip
    record_many([occurrence], now=NOW)
    (item,) = api.get(NEWER).ok()["items"]
    assert (item["note"], item["regarding"]["name"]) == ("bound", "p")
    assert item["deprecatedSource"] == {"component": "default-scheduler"}


@pytest.mark.parametrize("path", [CORE, NEWER])
def test_an_event_with_finalizers_stays_until_they_are_gone(api, path):
    kept = newer()
    kept["metadata"]["finalizers"] = ["example.org/reader", "example.org/copy"]
    api.post(NEWER, kept).ok(201)
    api.post(NEWER, newer("other")).ok(201)
    left = api.delete(f"{path}/e").ok()
    assert left["metadata"]["deletionTimestamp"]
    assert api.delete(path).ok()
    first = api.patch(f"{path}/e", {"metadata": {"finalizers": ["example.org/copy"]}}).ok()
    assert first["metadata"]["deletionTimestamp"] == left["metadata"]["deletionTimestamp"]
    assert names(api.get(path)) == ["e"]
    api.patch(f"{path}/e", {"metadata": {"finalizers": None}}).ok()
    assert api.get(path).ok()["items"] == []


def test_an_event_is_deleted_as_the_one_that_was_meant(api):
    made = api.post(NEWER, newer()).ok(201)
    for meant in ({"uid": "another"}, {"resourceVersion": "1"}):
        api.delete(f"{CORE}/e", {"preconditions": meant}).fails(409, "Conflict")
    right = {one: made["metadata"][one] for one in ("uid", "resourceVersion")}
    assert api.delete(f"{CORE}/e", {"preconditions": right}).ok()["status"] == "Success"
    api.get(f"{CORE}/e").fails(404, "NotFound")


def test_selectors_and_patches_use_its_names(api):
    api.post(NEWER, newer()).ok(201)
    api.post(NEWER, newer("f", reason="Other")).ok(201)
    found = api.get(f"{NEWER}?fieldSelector=regarding.name%3Dp,reason%3DOther").ok()["items"]
    assert [item["metadata"]["name"] for item in found] == ["f"]
    by = "fieldSelector=reportingController%3Dexample.org/scheduler"
    assert len(api.get(f"{NEWER}?{by}").ok()["items"]) == 2
    series = {"count": 2, "lastObservedTime": "2026-01-02T03:04:06.000000Z"}
    assert api.patch(f"{NEWER}/e", {"series": series}).ok()["series"] == series
    step = [{"op": "replace", "path": "/series/count", "value": 3}]
    patched = api.patch(f"{NEWER}/e", step, content_type=JSON_PATCH).ok()
    assert patched["series"]["count"] == 3
    series = {"count": 4, "lastObservedTime": "2026-01-02T03:05:05.000000Z"}
    replaced = {**api.get(f"{NEWER}/e").ok(), "series": series}
    assert api.put(f"{NEWER}/e", replaced).ok()["series"] == series
    applied = newer("g")
    path = f"{NEWER}/g?fieldManager=test"
    assert api.patch(path, applied, content_type=APPLY).ok(201)["note"] == "all is well"
    api.delete(f"{NEWER}/e").ok()
    api.get(f"{CORE}/e").fails(404, "NotFound")


def test_protobuf_of_both_groups(api):
    answer = api.post(NEWER, protobuf.encode(newer()), content_type=PROTOBUF, accept=PROTOBUF)
    assert answer.status == 201, answer.raw[:300]
    made = protobuf.decode(answer.raw)
    assert (made["apiVersion"], made["note"]) == ("events.k8s.io/v1", "all is well")
    assert made["eventTime"] == "2026-01-02T03:04:05.000006Z"
    core = protobuf.decode(api.get(f"{CORE}/e", accept=PROTOBUF).raw)
    assert (core["apiVersion"], core["message"]) == ("v1", "all is well")


def test_it_is_found_by_discovery(api):
    entries = api.get("/apis/events.k8s.io/v1").ok()["resources"]
    assert [(entry["name"], entry["kind"]) for entry in entries] == [("events", "Event")]
    definition = api.get("/openapi/v2").ok()["definitions"]["io.k8s.api.events.v1.Event"]
    assert {"note", "regarding"} <= definition["properties"].keys()


@pytest.mark.django_db(transaction=True)
def test_a_watch_shows_them_by_its_names(server):
    api = Api(make_token("operator", ["system:masters"]))
    api.post("/api/v1/namespaces", {"metadata": {"name": "ns"}}).ok(201)
    start = api.get(NEWER).ok()["metadata"]["resourceVersion"]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    query = f"watch=true&resourceVersion={start}&timeoutSeconds=30&fieldSelector=regarding.name%3Dp"
    connection.request("GET", f"{NEWER}?{query}", headers={"Authorization": f"Bearer {api.token}"})
    answer = connection.getresponse()
    api.post(NEWER, newer()).ok(201)
    api.patch(f"{CORE}/e", {"message": "changed"}).ok()
    seen = [json.loads(answer.readline()) for _ in range(2)]
    connection.close()
    answer.close()
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED"]
    assert [event["object"]["note"] for event in seen] == ["all is well", "changed"]
    assert {event["object"]["apiVersion"] for event in seen} == {"events.k8s.io/v1"}


@pytest.mark.parametrize(
    "missing",
    ["eventTime", "reportingController", "reportingInstance", "action", "reason", "type"],
)
def test_the_newer_group_wants_to_know_who_reports_what_and_when(api, missing):
    body = newer()
    del body[missing]
    refused = api.post(NEWER, body).fails(422, "Invalid")
    assert [cause["field"] for cause in refused["details"]["causes"]] == [missing]
    several = {"apiVersion": "events.k8s.io/v1", "kind": "EventList", "items": [body]}
    api.post(NEWER, several).fails(422, "Invalid")
    core = event_names.stored({**body, "apiVersion": "events.k8s.io/v1"})
    if missing in ("eventTime", "type"):
        api.post(CORE, core).ok(201)
        return
    refused = api.post(CORE, core).fails(422, "Invalid")
    field = "reportingComponent" if missing == "reportingController" else missing
    assert {cause["field"] for cause in refused["details"]["causes"]} == {field}


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"type": "Odd"}, "type"),
        ({"action": "a" * 129}, "action"),
        ({"note": "a" * 1025}, "note"),
        ({"deprecatedCount": 2}, "deprecatedCount"),
        ({"series": {"count": 1, "lastObservedTime": "2026-01-02T03:04:05.000006Z"}},
         "series.count"),
        ({"series": {"count": 2}}, "series.lastObservedTime"),
    ],
)  # fmt: skip
def test_the_newer_group_refuses_what_kubernetes_refuses(api, fields, wrong):
    refused = api.post(NEWER, newer(**fields)).fails(422, "Invalid")
    assert [cause["field"] for cause in refused["details"]["causes"]] == [wrong]


@pytest.mark.parametrize(
    "patch",
    [{"note": "other"}, {"reason": "Other"}, {"action": None}, {"type": "Warning"},
     {"regarding": {"name": "q"}}, {"eventTime": "2026-01-02T03:04:06.000000Z"}],
)  # fmt: skip
def test_an_event_of_the_newer_group_changes_in_its_series_alone(api, patch):
    api.post(NEWER, newer()).ok(201)
    refused = api.patch(f"{NEWER}/e", patch).fails(422, "Invalid")
    assert [cause["field"] for cause in refused["details"]["causes"]] == list(patch)
    same = {"eventTime": "2026-01-02T03:04:05.000006+00:00", "metadata": {"labels": {"a": "b"}}}
    api.patch(f"{NEWER}/e", same).ok()


@pytest.mark.parametrize("name", ["system:node-proxier.17a3", "Upper", "trailing."])
def test_the_core_group_takes_any_name_that_is_one_segment_of_a_path(api, name):
    """Events are called after what they are about, and roles may have a colon in their names."""
    core = {"involvedObject": REGARDING, "reason": "R", "message": "M", "type": "Normal"}
    made = api.post(CORE, {"metadata": {"name": name}, **core}).ok(201)
    assert api.get(f"{CORE}/{name}").ok() == made
    drawn = api.post(CORE, {"metadata": {"generateName": name}, **core}).ok(201)
    assert drawn["metadata"]["name"].startswith(name)
    for metadata in ({"name": name}, {"generateName": name}):
        refused = api.post(NEWER, {**newer(), "metadata": metadata}).fails(422, "Invalid")
        (cause,) = refused["details"]["causes"]
        assert cause["field"] == f"metadata.{next(iter(metadata))}"
    for wrong in ("a/b", "a%b"):
        api.post(CORE, {"metadata": {"name": wrong}, **core}).fails(422, "Invalid")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"reportingComponent": "no name!"}, "reportingComponent"),
        ({"reportingInstance": "i" * 129}, "reportingInstance"),
        ({"message": "m" * 1025}, "message"),
        ({"involvedObject": {"kind": "Node", "name": "n"}}, "involvedObject.namespace"),
    ],
)
def test_a_core_event_with_a_time_of_its_own_says_who_reports_what(api, fields, wrong):
    """One without it is of a program that knows only the old fields, and may lack them."""
    event = {**event_names.stored(newer()), "apiVersion": "v1", **fields}
    refused = api.post(CORE, event).fails(422, "Invalid")
    assert {cause["field"] for cause in refused["details"]["causes"]} == {wrong}
    del event["eventTime"]
    if wrong != "involvedObject.namespace":
        api.post(CORE, event).ok(201)


def test_hollow_agents_tell_of_a_start_as_kubelets_do(api):
    spec = {"nodeName": "n", "containers": [{"name": "main", "image": "i"}]}
    body = {"metadata": {"name": "p"}, "spec": spec}
    pod = api.post("/api/v1/namespaces/ns/pods", body).ok(201)
    api.post(CORE, started_event(pod, "2026-01-02T03:04:05Z")).ok(201)
    about = f"involvedObject.uid%3D{pod['metadata']['uid']},source%3Dkubelet"
    (told,) = api.get(f"{CORE}?fieldSelector={about}").ok()["items"]
    assert (told["reason"], told["message"]) == ("Started", "Started container main")

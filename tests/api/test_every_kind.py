"""Every kind in the registry, in every way in which objects are written, read and followed."""

import http.client
import json
from typing import Any

import pytest

from api.forms import tables
from clusterstate.actions.cluster import namespaces
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS
from clusterstate.objects.rules.ownership import PROTECTIONS
from clusterstate.objects.wire import protobuf
from scheduling.controllers import garbage
from tests.api.bodies import body_of, collection, named, status_of
from tests.api.conftest import APPLY, JSON_PATCH, STRATEGIC, TABLE, Api, make_token, names
from tests.clock import NOW
from tests.forms import few

AT_ONCE = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
OF_TEST = "labelSelector=test%3Dyes"
"""A parameter: what a test made, not what was there before it."""
PROTOBUF = "application/vnd.kubernetes.protobuf"
EVERY = tuple(ALL_KINDS)
IN_NAMESPACES = tuple(kind for kind in EVERY if kind.namespaced)

DEPRECATED = {
    "Endpoints": "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
}

each = pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.name)
FIRST = sorted(
    EVERY, key=lambda kind: (kind.name not in DEPRECATED, kind.table == "generic_object")
)
"""A deprecated kind, then those with rows of their own; the others share all code."""


def path_of(kind: Kind, word: str) -> str:
    return f"{collection(kind)}/{named(kind, word)}"


def made(api: Api, kind: Kind, name: str = "one") -> dict[str, Any]:
    body = body_of(kind, name)
    body["metadata"].setdefault("labels", {})["test"] = "yes"
    return api.post(collection(kind), body).ok(201)


def root_of(kind: Kind) -> str:
    return f"/apis/{kind.api_version}" if kind.group else "/api/v1"


def let_go(kind: Kind) -> None:
    """Let the garbage collector find that nothing uses what was deleted."""
    if kind.name in PROTECTIONS:
        garbage.follow(NOW)


def timeless(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what differs between two that were made alike."""
    kept = {"labels", "annotations", "name", "namespace", "finalizers"}
    metadata = {key: value for key, value in item["metadata"].items() if key in kept}
    return {**item, "metadata": metadata}


@each
@pytest.mark.every_variant
def test_an_object_is_created_read_changed_in_every_way_and_deleted(api, kind):
    one = path_of(kind, "one")
    found = made(api, kind)
    assert (found["apiVersion"], found["kind"]) == (kind.api_version, kind.name)
    assert found["metadata"]["uid"]
    assert found["metadata"]["creationTimestamp"]
    assert api.get(one).ok() == found
    assert names(api.get(f"{collection(kind)}?{OF_TEST}")) == [named(kind, "one")]
    api.post(collection(kind), body_of(kind, "one")).fails(409, "AlreadyExists")

    versions = {found["metadata"]["resourceVersion"]}
    labelled = api.patch(one, {"metadata": {"labels": {"merge": "yes"}}}).ok()
    strategic = {"metadata": {"labels": {"strategic": "yes"}}}
    again = api.patch(one, strategic, content_type=STRATEGIC).ok()
    steps = [{"op": "add", "path": "/metadata/labels/json", "value": "yes"}]
    third = api.patch(one, steps, content_type=JSON_PATCH).ok()
    applied = {
        "apiVersion": kind.api_version, "kind": kind.name,
        "metadata": {"name": named(kind, "one"), "labels": {"apply": "yes"}},
    }  # fmt: skip
    fourth = api.patch(f"{one}?fieldManager=test", applied, content_type=APPLY).ok()
    replaced = {**fourth, "metadata": {**fourth["metadata"], "annotations": {"put": "yes"}}}
    fifth = api.put(one, replaced).ok()
    for step in (labelled, again, third, fourth, fifth):
        version = step["metadata"]["resourceVersion"]
        assert version not in versions
        versions.add(version)
    labels = fifth["metadata"]["labels"]
    wanted = {"test", "merge", "strategic", "json", "apply"}
    assert wanted <= labels.keys()
    assert fifth["metadata"]["annotations"]["put"] == "yes"
    api.put(one, found).fails(409, "Conflict")
    if "status" in kind.subresources:
        told = api.patch(f"{one}/status", {"status": status_of(kind)}).ok()
        assert status_of(kind).items() <= told["status"].items()
        assert api.patch(one, {"status": {"message": "no"}}).ok()["status"] == told["status"]

    api.delete(one, AT_ONCE).ok()
    let_go(kind)
    if kind.name == "Namespace":
        assert api.get(one).ok()["status"]["phase"] == "Terminating"
        assert namespaces.finish_deletion("one", now=NOW)
    api.get(one).fails(404, "NotFound")
    api.delete(one).fails(404, "NotFound")


@each
def test_an_apply_that_creates_makes_what_a_post_makes(api, kind):
    """Also of a status: a Node's is kept and a Pod's is not (node/strategy.go, v1.36)."""
    wanted = body_of(kind, "one")
    if kind.name == "Service":
        wanted["spec"]["clusterIP"] = "None"  # else each has an address of its own
    if "status" in kind.subresources:
        wanted["status"] = status_of(kind)
    posted = api.post(f"{collection(kind)}?dryRun=All", wanted).ok(201)
    one = f"{path_of(kind, 'one')}?dryRun=All&fieldManager=test"
    applied = api.patch(one, wanted, content_type=APPLY).ok(201)
    assert timeless(applied) == timeless(posted)


@each
def test_protobuf_says_what_json_says_both_ways(api, kind):
    """What a client sends in protobuf is stored as what it sends in JSON."""
    stored = made(api, kind)
    one = path_of(kind, "one")
    answer = api.get(one, accept=PROTOBUF)
    assert (answer.status, answer.headers["Content-Type"]) == (200, PROTOBUF), answer.raw[:300]
    assert timeless(protobuf.decode(answer.raw)) == timeless(shown(stored))
    listed = protobuf.decode(api.get(f"{collection(kind)}?{OF_TEST}", accept=PROTOBUF).raw)
    assert listed["kind"] == kind.list_kind
    assert [item["metadata"]["name"] for item in listed["items"]] == [named(kind, "one")]

    body = body_of(kind, "two")
    body["metadata"].setdefault("labels", {})["test"] = "yes"
    sent = protobuf.encode(body)
    api.post(collection(kind), sent, content_type=PROTOBUF).ok(201)
    other = api.get(path_of(kind, "two")).ok()
    assert without_name(timeless(shown(other))) == without_name(timeless(shown(stored)))


def shown(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object as protobuf tells it: empty where it is not told apart from absent."""
    return protobuf.decode(protobuf.encode(item))


def without_name(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what follows from its name and its uid."""
    text = json.dumps(item, sort_keys=True)
    result: dict[str, Any] = json.loads(text)
    name = result["metadata"].pop("name")
    for labels in (result["metadata"].get("labels") or {},):
        for key in [key for key, value in labels.items() if value == name]:
            del labels[key]
    if result["kind"] == "Service":
        for field in ("clusterIP", "clusterIPs"):
            result["spec"].pop(field, None)
    return result


@pytest.mark.parametrize("kind", few(FIRST, 20), ids=lambda kind: kind.name)
def test_a_table_has_a_row_for_each_object(api, kind):
    made(api, kind)
    answer = api.get(f"{collection(kind)}?{OF_TEST}", accept=TABLE).ok()
    assert [one["name"] for one in answer["columnDefinitions"]] == [
        column.name for column in tables.printer(kind).columns
    ]
    (row,) = answer["rows"]
    assert len(row["cells"]) == len(answer["columnDefinitions"])
    position = [one["name"] for one in answer["columnDefinitions"]].index("Name")
    assert row["cells"][position] == named(kind, "one")
    assert row["object"]["metadata"]["name"] == named(kind, "one")


@pytest.mark.parametrize(
    "kind",
    few([kind for kind in FIRST if kind.deleted_together], 20),
    ids=lambda kind: kind.name,
)
def test_a_collection_is_deleted_where_its_selector_matches(api, kind):
    for name in ("one", "two"):
        made(api, kind, name)
    body = body_of(kind, "other")
    body["metadata"].setdefault("labels", {})["test"] = "no"
    api.post(collection(kind), body).ok(201)
    api.delete(f"{collection(kind)}?{OF_TEST}", AT_ONCE).ok()
    let_go(kind)
    assert names(api.get(f"{collection(kind)}?{OF_TEST}")) == []
    api.get(path_of(kind, "other")).ok()


@pytest.mark.parametrize("kind", few(FIRST, 20), ids=lambda kind: kind.name)
def test_each_answer_about_a_deprecated_kind_says_so_and_no_other_does(api, kind):
    told = DEPRECATED.get(kind.name)
    path = path_of(kind, "one")
    labels = {"metadata": {"labels": {"a": "b"}}}
    for method, where, body in (
        ("GET", collection(kind), None),
        ("POST", collection(kind), body_of(kind, "one")),
        ("POST", collection(kind), body_of(kind, "one")),
        ("GET", path, None),
        ("PUT", path, labels),
        ("DELETE", path, None),
    ):
        answer = api.call(method, where, body)
        warnings = answer.headers.get("Warning", "")
        assert ("is deprecated" in warnings) is (told is not None), (method, warnings)
        if told:
            assert warnings.startswith(f'299 - "{told}"')


@pytest.mark.parametrize("kind", few(FIRST, 20), ids=lambda kind: kind.name)
def test_nothing_deletes_the_objects_of_all_namespaces_at_once(api, kind):
    """Nor all namespaces: a client that leaves a part of a path out must not empty a cluster."""
    made(api, kind)
    everywhere = collection(kind).replace("/namespaces/ns", "")
    undeleted = [everywhere] if kind.namespaced or kind.name == "Namespace" else []
    for path in undeleted:
        api.delete(path).fails(405, "MethodNotAllowed")
        api.delete(f"{path}?{OF_TEST}", AT_ONCE).fails(405, "MethodNotAllowed")
    assert "deletionTimestamp" not in api.get(path_of(kind, "one")).ok()["metadata"]
    paths = api.get(f"/openapi/v3/{root_of(kind).strip('/')}").ok()["paths"]
    for path in (
        everywhere,
        collection(kind).replace("/namespaces/ns/", "/namespaces/{namespace}/"),
    ):
        assert ("delete" in paths[path]) is (path not in undeleted)


def test_a_namespace_takes_objects_of_every_kind_along_and_waits_for_finalizers(api):
    """None is left behind, and one that is held keeps the namespace until it is let go."""
    for kind in IN_NAMESPACES:
        made(api, kind)
    held = "/api/v1/namespaces/ns/configmaps/held"
    body = {"metadata": {"name": "held", "finalizers": ["example.org/keep"]}}
    api.post("/api/v1/namespaces/ns/configmaps", body).ok(201)
    api.delete("/api/v1/namespaces/ns").ok()
    api.post("/api/v1/namespaces/ns/secrets", {"metadata": {"name": "late"}}).fails(
        403, "Forbidden"
    )
    assert not namespaces.finish_deletion("ns", now=NOW)
    garbage.follow(NOW)  # for the claim, which stays while it is used
    assert api.get(held).ok()["metadata"]["deletionTimestamp"]
    left = {kind.name: names(api.get(collection(kind))) for kind in IN_NAMESPACES}
    assert {name: found for name, found in left.items() if found} == {"ConfigMap": ["held"]}
    api.patch(held, {"metadata": {"finalizers": None}}).ok()
    assert namespaces.finish_deletion("ns", now=NOW)
    api.get("/api/v1/namespaces/ns").fails(404, "NotFound")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", few(FIRST, 20), ids=lambda kind: kind.name)
def test_a_watch_sees_an_object_come_change_and_go(server, kind):
    api = Api(make_token("operator", ["system:masters"]))
    api.post("/api/v1/namespaces", {"metadata": {"name": "ns"}}).ok(201)
    start = api.get(collection(kind)).ok()["metadata"]["resourceVersion"]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    path = f"{collection(kind)}?watch=true&resourceVersion={start}&timeoutSeconds=30&{OF_TEST}"
    connection.request("GET", path, headers={"Authorization": f"Bearer {api.token}"})
    answer = connection.getresponse()
    assert DEPRECATED.get(kind.name, "") in (answer.getheader("Warning") or "")
    made(api, kind)
    api.patch(path_of(kind, "one"), {"metadata": {"annotations": {"a": "b"}}}).ok()
    api.delete(path_of(kind, "one"), AT_ONCE).ok()
    let_go(kind)
    if kind.name == "Namespace":
        assert namespaces.finish_deletion("one", now=NOW)
    seen = [json.loads(answer.readline()) for _ in range(2)]
    while seen[-1]["type"] == "MODIFIED" or len(seen) < 3:
        seen.append(json.loads(answer.readline()))
    connection.close()
    answer.close()
    assert [seen[0]["type"], seen[1]["type"], seen[-1]["type"]] == ["ADDED", "MODIFIED", "DELETED"]
    assert {event["object"]["kind"] for event in seen} == {kind.name}
    assert {event["object"]["metadata"]["name"] for event in seen} == {named(kind, "one")}


@pytest.mark.parametrize("kind", few(FIRST, 20), ids=lambda kind: kind.name)
def test_discovery_says_what_can_be_done(api, kind):
    entries = {entry["name"]: entry for entry in api.get(root_of(kind)).ok()["resources"]}
    entry = entries[kind.plural]
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    if kind.name == "Namespace":
        verbs.remove("deletecollection")
    assert entry["verbs"] == verbs
    assert entry["singularName"] == kind.name.lower()
    assert tuple(entry.get("shortNames", ())) == kind.short_names
    for subresource in kind.subresources:
        assert f"{kind.plural}/{subresource}" in entries

"""A kind that nobody foresaw: one entry in the registry, and it is served like all others."""

import http.client
import json
import threading

import msgspec
import pytest

from api.description import discovery, openapi
from api.streaming.hub import hub
from clusterstate.actions.cluster import namespaces
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry import kinds, wire_types
from clusterstate.objects.registry.kind import Kind
from clusterstate.queries.objects.lists import list_at
from tests.api.conftest import APPLY, JSON_PATCH, TABLE, Api, make_token, names
from tests.clock import NOW
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


class GadgetSpec(msgspec.Struct, omit_defaults=True, gc=False):
    """What a client may ask of a gadget."""

    size: int | None = None
    color: str | None = None


class GadgetStatus(msgspec.Struct, omit_defaults=True, gc=False):
    """What the gadget's agent says."""

    phase: str | None = None


class Gadget(msgspec.Struct, omit_defaults=True, gc=False, rename="camel"):
    """A made-up kind in namespaces."""

    api_version: str | None = None
    kind: str | None = None
    metadata: wire_types.ObjectMeta | None = None  # type: ignore[valid-type]
    spec: GadgetSpec | None = None
    status: GadgetStatus | None = None


class Gauge(msgspec.Struct, omit_defaults=True, gc=False, rename="camel"):
    """A made-up kind without namespaces."""

    api_version: str | None = None
    kind: str | None = None
    metadata: wire_types.ObjectMeta | None = None  # type: ignore[valid-type]
    spec: GadgetSpec | None = None


GADGET = Kind(
    name="Gadget",
    plural="gadgets",
    code=9001,
    wire_type=Gadget,
    group="example.org",
    selectable={"spec.color": ""},
    counts_generation=True,
    subresources=("status",),
)
GAUGE = Kind(
    name="Gauge",
    plural="gauges",
    code=9002,
    wire_type=Gauge,
    group="example.org",
    namespaced=False,
)
GADGETS = "/apis/example.org/v1/namespaces/ns/gadgets"
GAUGES = "/apis/example.org/v1/gauges"


def forget_documents():
    """Let go of what was made from the registry as it was."""
    for made in (
        discovery.group_versions, openapi.document, openapi.protobuf, openapi._json,
    ):  # fmt: skip
        made.cache_clear()


@pytest.fixture
def registered():
    made = (GADGET, GAUGE)
    for kind in made:
        kinds.register(kind)
    forget_documents()
    yield
    for kind in made:
        kinds.ALL_KINDS.remove(kind)
        del kinds.KINDS[kind.name], kinds.KINDS[kind.group, kind.plural], kinds.NAMES[kind.code]
    forget_documents()


@pytest.fixture
def api(registered, api):
    """The API with the kinds above."""
    return api


def gadget(name="g", color="red", **metadata):
    return {
        "apiVersion": "example.org/v1", "kind": "Gadget",
        "metadata": {"name": name, **metadata}, "spec": {"size": 1, "color": color},
    }  # fmt: skip


def test_a_code_a_name_and_a_resource_belong_to_one_kind(registered):
    for other, why in (
        ({"name": "Gadget"}, "resource is taken"), ({"plural": "gadgets"}, "resource is taken"),
        ({"code": 9001}, "code 9001 is Gadget's; take 9003"),
    ):  # fmt: skip
        taken = {"name": "Other", "plural": "others", "code": 9003, **other}
        with pytest.raises(ValueError, match=why):
            kinds.register(msgspec.structs.replace(GADGET, **taken))
    with pytest.raises(ValueError, match="code above 0"):
        kinds.register(msgspec.structs.replace(GADGET, name="A", plural="as", code=0))


def test_discovery_and_the_schema_tell_of_it(api):
    entries = api.get("/apis/example.org/v1").ok()["resources"]
    assert {entry["name"]: entry["namespaced"] for entry in entries} == {
        "gadgets": True, "gadgets/status": True, "gauges": False,
    }  # fmt: skip
    definitions = api.get("/openapi/v2").ok()["definitions"]
    assert any(name.endswith("Gadget") for name in definitions)


def test_an_object_is_created_read_changed_and_deleted(api):
    made = api.post(GADGETS, {**gadget(), "status": {"phase": "Done"}}).ok(201)
    assert made["metadata"]["generation"] == 1
    assert not made.get("status"), "the status of a new object is its agent's to say"
    assert api.get(f"{GADGETS}/g").ok() == made
    api.post(GADGETS, gadget()).fails(409, "AlreadyExists")
    api.post(GADGETS, {**gadget("h"), "spec": {"size": "large"}}).fails(400, "BadRequest")
    api.post(GADGETS.replace("/ns/", "/nowhere/"), gadget()).fails(404, "NotFound")

    patched = api.patch(f"{GADGETS}/g", {"spec": {"size": 2}}).ok()
    assert patched["metadata"]["generation"] == 2
    again = api.patch(f"{GADGETS}/g", {"spec": {"size": 2}}).ok()
    assert again["metadata"]["resourceVersion"] == patched["metadata"]["resourceVersion"]
    replace = [{"op": "replace", "path": "/spec/color", "value": "blue"}]
    api.patch(f"{GADGETS}/g", replace, content_type=JSON_PATCH).ok()
    applied = {**gadget(color="green"), "spec": {"color": "green"}}
    path = f"{GADGETS}/g?fieldManager=test&force=true"
    assert api.patch(path, applied, content_type=APPLY).ok()["spec"] == {
        "size": 2, "color": "green",
    }  # fmt: skip
    status = api.patch(f"{GADGETS}/g/status", {"status": {"phase": "Busy"}}).ok()
    assert status["status"] == {"phase": "Busy"}
    stale = {**patched, "spec": {"size": 9}}
    api.put(f"{GADGETS}/g", stale).fails(409, "Conflict")

    api.delete(f"{GADGETS}/g").ok()
    api.get(f"{GADGETS}/g").fails(404, "NotFound")
    api.delete(f"{GADGETS}/g").fails(404, "NotFound")


def test_lists_have_pages_selectors_tables_and_the_state_of_one_revision(api):
    for number, color in enumerate(("red", "blue", "red")):
        labels = {"color": color}
        api.post(GADGETS, gadget(f"g{number}", color, labels=labels)).ok(201)
    api.post(GAUGES, {"metadata": {"name": "g0"}, "spec": {}}).ok(201)
    assert names(api.get(GADGETS)) == ["g0", "g1", "g2"]
    assert names(api.get("/apis/example.org/v1/gadgets")) == ["g0", "g1", "g2"]
    assert names(api.get(GAUGES)) == ["g0"], "kinds that share a table do not see each other"
    assert names(api.get(f"{GADGETS}?labelSelector=color%3Dred")) == ["g0", "g2"]
    assert names(api.get(f"{GADGETS}?fieldSelector=spec.color%3Dblue")) == ["g1"]
    assert names(api.get(f"{GADGETS}?fieldSelector=metadata.name%3Dg2")) == ["g2"]
    api.get(f"{GADGETS}?fieldSelector=spec.size%3D1").fails(400, "BadRequest")
    page = api.get(f"{GADGETS}?limit=2").ok()
    api.delete(f"{GADGETS}/g2").ok()
    token = page["metadata"]["continue"]
    assert names(api.get(f"{GADGETS}?limit=2&continue={token}")) == ["g2"]
    table = api.get(GADGETS, accept=TABLE).ok()
    assert [row["cells"][0] for row in table["rows"]] == ["g0", "g1"]
    before = int(page["metadata"]["resourceVersion"])
    assert len(list_at("Gadget", before)) == 3


def test_a_dry_run_stores_nothing_and_a_finalizer_keeps(api):
    api.post(f"{GAUGES}?dryRun=All", {"metadata": {"name": "a"}}).ok(201)
    assert names(api.get(GAUGES)) == []
    api.post(GAUGES, {"metadata": {"name": "a", "finalizers": ["example.org/keep"]}}).ok(201)
    leaving = api.delete(f"{GAUGES}/a").ok()
    assert leaving["metadata"]["deletionTimestamp"]
    assert names(api.get(GAUGES)) == ["a"]
    api.patch(f"{GAUGES}/a", {"metadata": {"finalizers": None}}).ok()
    assert names(api.get(GAUGES)) == []


def test_a_collection_and_a_namespace_take_their_objects_along(api):
    for name in ("a", "b"):
        api.post(GADGETS, gadget(name)).ok(201)
        api.post(GAUGES, {"metadata": {"name": name}}).ok(201)
    api.delete(f"{GAUGES}?fieldSelector=metadata.name%3Da").ok()
    assert names(api.get(GAUGES)) == ["b"]
    api.delete("/api/v1/namespaces/ns").ok()
    assert namespaces.finish_deletion("ns", now=NOW)
    assert names(api.get("/apis/example.org/v1/gadgets")) == []
    assert names(api.get(GAUGES)) == ["b"]
    assert sql.fetch("SELECT count(*) FROM generic_object") == [(1,)]


def test_the_change_log_tells_of_every_write(api):
    start = changes.watermark()
    api.post(GADGETS, gadget()).ok(201)
    api.patch(f"{GADGETS}/g", {"spec": {"size": 5}}).ok()
    api.delete(f"{GADGETS}/g").ok()
    found = sql.fetch(
        "SELECT verb, name FROM change WHERE revision > %s::bigint AND kind = %s::smallint"
        " ORDER BY revision",
        (start, GADGET.code),
    )
    assert found == [(changes.ADDED, "g"), (changes.MODIFIED, "g"), (changes.DELETED, "g")]


def test_a_watch_sees_it_come_change_and_go(registered, server):
    api = Api(make_token("operator", ["system:masters"]))
    api.post("/api/v1/namespaces", {"metadata": {"name": "ns"}}).ok(201)
    revision = api.get(GADGETS).ok()["metadata"]["resourceVersion"]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    path = f"{GADGETS}?watch=true&resourceVersion={revision}&timeoutSeconds=30"
    connection.request("GET", path, headers={"Authorization": f"Bearer {api.token}"})
    answer = connection.getresponse()
    api.post(GADGETS, gadget()).ok(201)
    api.patch(f"{GADGETS}/g", {"spec": {"size": 7}}).ok()
    api.delete(f"{GADGETS}/g").ok()
    seen = [json.loads(answer.readline()) for _ in range(3)]
    connection.close()
    answer.close()
    # The follower must have let go of the kind before the registry does.
    until(lambda: "Gadget" not in hub._subscribed[0], what="the watch to end")
    threading.Event().wait(0.1)
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event["object"]["spec"]["size"] for event in seen] == [1, 7, 7]

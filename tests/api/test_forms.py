"""The forms in which objects are given out."""

import pytest

from clusterstate.objects.wire import protobuf
from tests.api.builders import DEPLOYMENTS, NODES, PODS, deployment, node, pod
from tests.api.conftest import TABLE

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def test_empty_specs_and_statuses_are_given_out(api):
    made = api.post(NODES, {"metadata": {"name": "bare"}}).ok(201)
    assert (made["spec"], made["status"]) == ({}, {})
    assert api.put(f"{NODES}/bare", {"metadata": {"name": "bare"}}).ok()["spec"] == {}
    assert api.post(DEPLOYMENTS, deployment()).ok(201)["status"] == {}
    assert api.post(LEASES, {"metadata": {"name": "l"}}).ok(201)["spec"] == {}


def test_items_of_a_list_do_not_repeat_its_kind(api):
    api.post(PODS, pod()).ok(201)
    api.post(NODES, node()).ok(201)
    for path in (PODS, NODES):
        (item,) = api.get(path).ok()["items"]
        assert next(iter(item)) == "metadata"
        assert not {"kind", "apiVersion"} & item.keys()


def test_metadata_alone_is_given_to_those_who_ask(api):
    made = api.post(PODS, pod(labels={"a": "1"})).ok(201)
    for accept in (PARTIAL, f"{PARTIAL},application/json"):
        found = api.get(f"{PODS}/p", accept=accept).ok()
        assert found == {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": made["metadata"],
        }
    listed = api.get(f"{PODS}?labelSelector=a", accept=PARTIALS).ok()
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert listed["items"] == [found]
    assert listed["metadata"]["resourceVersion"]
    patched = api.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "2"}}}, accept=PARTIAL).ok()
    assert (patched["kind"], patched["metadata"]["labels"]) == (
        "PartialObjectMetadata", {"a": "2"},
    )  # fmt: skip


def test_metadata_alone_comes_in_the_form_that_is_named_first(api):
    api.post(PODS, pod()).ok(201)
    protobuf = PARTIALS.replace("application/json", "application/vnd.kubernetes.protobuf")
    found = api.get(PODS, accept=f"{protobuf},{PARTIALS},application/json")
    assert found.headers["Content-Type"].startswith("application/vnd.kubernetes.protobuf")
    assert api.get(PODS, accept=f"{PARTIALS},{protobuf}").ok()["kind"] == (
        "PartialObjectMetadataList"
    )


OF_KUBECTL = {
    "1.11 to 1.15": ("application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json", True),
    "since 1.16": (TABLE, False),
    "turned round": (",".join(reversed(TABLE.split(","))), None),
}
"""What versions of kubectl accept, and whether they read a Table of v1beta1; None: no Table."""


@pytest.mark.parametrize("of", OF_KUBECTL)
def test_a_table_is_of_the_version_that_is_asked_for(api, of):
    """An older kubectl takes a Table of v1 for an object that it does not know."""
    accept, is_first_version = OF_KUBECTL[of]
    api.post(PODS, pod()).ok(201)
    for path, include in ((PODS, "Metadata"), (f"{PODS}/p", "Metadata"), (PODS, "Object")):
        answer = api.get(f"{path}?includeObject={include}", accept=accept).ok()
        if is_first_version is None:
            assert answer["kind"] != "Table"
            continue
        version = "meta.k8s.io/v1beta1" if is_first_version else "meta.k8s.io/v1"
        assert (answer["kind"], answer["apiVersion"]) == ("Table", version)
        (row,) = answer["rows"]
        of_row = (row["object"]["kind"], row["object"]["apiVersion"])
        assert of_row == (
            ("PartialObjectMetadata", version) if include == "Metadata" else ("Pod", "v1")
        )


@pytest.mark.parametrize("media", ["application/json", "application/vnd.kubernetes.protobuf"])
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_metadata_alone_is_of_the_version_that_is_asked_for(api, media, version):
    api.post(PODS, pod()).ok(201)
    for path, kind in ((PODS, "PartialObjectMetadataList"), (f"{PODS}/p", "PartialObjectMetadata")):
        accept = f"{media};as={kind};v={version};g=meta.k8s.io"
        answer = api.get(path, accept=f"{accept},{PARTIAL}")
        assert answer.status == 200
        found = protobuf.decode(answer.raw) if "protobuf" in media else answer.json
        assert (found["kind"], found["apiVersion"]) == (kind, f"meta.k8s.io/{version}")
        inner = found.get("items", [found])[0]
        assert inner["metadata"]["name"] == "p"
        if media == "application/json":
            assert inner["apiVersion"] == f"meta.k8s.io/{version}"


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("application/json;as=Table;v=v1;g=meta.k8s.io", 200),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", 200),
        ("application/json;as=Table;v=v1alpha1;g=meta.k8s.io", 406),
        ("application/json;as=Table;v=v1;g=k8s.io", 406),
        ("application/json;as=Tables;v=v1;g=meta.k8s.io", 406),
        ("application/json;v=v1;g=meta.k8s.io", 406),
        ("application/json;v=v1;g=meta.k8s.io,application/json", 200),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", 406),
        ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1", 406),
    ],
)
def test_only_known_forms_of_known_versions_are_given(api, accept, code):
    assert api.get(PODS, accept=accept).status == code


def test_a_scale_is_a_table_for_who_wants_one(api):
    api.post(DEPLOYMENTS, deployment(replicas=3)).ok(201)
    table = api.get(f"{DEPLOYMENTS}/web/scale", accept=TABLE).ok()
    assert [one["name"] for one in table["columnDefinitions"]] == [
        "Name", "Desired", "Available", "Age",
    ]  # fmt: skip
    (row,) = table["rows"]
    assert row["cells"][:3] == ["web", 3, 0]
    assert api.get(f"{DEPLOYMENTS}/web/scale", accept=PARTIAL).ok()["kind"] == (
        "PartialObjectMetadata"
    )

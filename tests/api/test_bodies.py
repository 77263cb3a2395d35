"""What stands in a body more than once, or as null, and which bodies are refused as a whole."""

import json

import pytest

from tests.api.builders import DEPLOYMENTS, PODS, deployment, pod
from tests.api.conftest import APPLY, JSON_PATCH, MERGE, STRATEGIC


def _required(*terms):
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def test_a_null_term_is_stored_as_one_that_matches_nothing(api):
    """R9: a null term matches no objects, so it adds nothing to those it is ORed with."""
    some = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    for name, terms in (("alone", [None]), ("among", [None, some])):
        api.post(PODS, pod(name, affinity=_required(*terms))).ok(201)
    affinity = api.get(f"{PODS}/among").ok()["spec"]["affinity"]
    assert affinity == _required(some)
    (term,) = api.get(f"{PODS}/alone").ok()["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert {one["operator"] for one in term["matchExpressions"]} == {"Exists", "DoesNotExist"}
    assert len({one["key"] for one in term["matchExpressions"]}) == 1


def test_a_null_preferred_term_prefers_nothing(api):
    """R18: it matches no node, so it is left out."""
    term = {"weight": 5, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    body = pod(affinity={"nodeAffinity": {name: [None, term]}})
    assert api.post(PODS, body).ok(201)["spec"]["affinity"]["nodeAffinity"][name] == [term]


TWICE = (
    b'{"metadata":{"name":"d","labels":{"a":"1","a":"2"}},'
    b'"spec":{"containers":[{"name":"c","image":"i","image":"j"}]}}'
)


def test_a_field_that_stands_twice_is_told(api):
    refused = api.post(f"{PODS}?fieldValidation=Strict", TWICE).fails(400, "BadRequest")
    assert refused["message"].endswith(
        'strict decoding error: duplicate field "metadata.labels.a", '
        'duplicate field "spec.containers[0].image"'
    )
    api.get(f"{PODS}/d").fails(404, "NotFound")
    warned = api.post(f"{PODS}?fieldValidation=Warn", TWICE)
    assert warned.ok(201)["metadata"]["labels"] == {"a": "2"}
    assert 'duplicate field \\"metadata.labels.a\\"' in warned.headers["Warning"]
    replaced = api.put(f"{PODS}/d?fieldValidation=Strict", TWICE)
    assert replaced.fails(400, "BadRequest")["message"].count("duplicate field") == 2
    once = json.dumps(json.loads(TWICE)).encode()
    api.put(f"{PODS}/d?fieldValidation=Strict", once).ok()


WITH_BOTH = (
    b'{"metadata":{"name":"d"},"spec":{"unknown":"1","replicas":2,"replicas":3,'
    b'"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},'
    b'"spec":{"containers":[{"name":"c","image":"i","other":1,"image":"j"}]}}}}'
)


def test_unknown_fields_and_those_that_stand_twice_are_told_in_their_order(api):
    refused = api.post(f"{DEPLOYMENTS}?fieldValidation=Strict", WITH_BOTH).fails(400, "BadRequest")
    assert refused["message"].endswith(
        'strict decoding error: unknown field "spec.unknown", duplicate field "spec.replicas", '
        'duplicate field "spec.template.spec.containers[0].image", '
        'unknown field "spec.template.spec.containers[0].other"'
    )


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, APPLY])
def test_what_stands_twice_in_a_patch_is_told(api, content_type):
    """What a patch makes is invalid; what is applied is an object that does not decode."""
    failure = (400, "BadRequest") if content_type == APPLY else (422, "Invalid")
    api.post(DEPLOYMENTS, deployment("d")).ok(201)
    query = f"{DEPLOYMENTS}/d?fieldValidation=Strict&fieldManager=test"
    unknown = b"" if content_type == APPLY else b'"unknown":"1",'  # test_unknown_fields
    body = b'{"apiVersion":"apps/v1","spec":{%s"paused":true,"paused":false}}' % unknown
    refused = api.patch(query, body, content_type=content_type).fails(*failure)
    assert 'duplicate field "spec.paused"' in refused["message"]
    assert ('unknown field "spec.unknown"' in refused["message"]) == bool(unknown)
    assert "paused" not in api.get(f"{DEPLOYMENTS}/d").ok()["spec"]


IN_YAML = b"""\
metadata:
  name: y
  labels: {a: b, a: c}
data:
  key: one
  list: |
    key: not one
  key: two
"""


def test_a_key_that_stands_again_in_yaml_is_told_by_its_line(api):
    told = (
        'yaml: unmarshal errors:\n  line 3: key "a" already set in map'
        '\n  line 8: key "key" already set in map'
    )
    maps = "/api/v1/namespaces/ns/configmaps"
    strict = {"content_type": "application/yaml"}
    refused = api.post(f"{maps}?fieldValidation=Strict", IN_YAML, **strict).fails(400, "BadRequest")
    assert refused["message"].endswith(f"strict decoding error: {told}")
    query = f"{maps}/y?fieldManager=test&fieldValidation=Strict"
    versioned = b"apiVersion: v1\n" + IN_YAML
    refused = api.patch(query, versioned, content_type=APPLY).fails(400, "BadRequest")
    assert refused["message"].endswith(told.replace("3", "4").replace("8", "9"))
    warned = api.post(f"{maps}?fieldValidation=Warn", IN_YAML, **strict)
    assert warned.ok(201)["data"]["key"] == "two"
    assert 'line 3: key \\"a\\" already set' in warned.headers["Warning"]


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, JSON_PATCH])
def test_a_patch_that_makes_no_object_of_the_kind_is_a_wrong_object(api, content_type):
    api.post(DEPLOYMENTS, deployment()).ok(201)
    for member, value in (("metadata", {"annotations": {"a": ["b"]}}), ("spec", 5)):
        patch = {member: value}
        if content_type == JSON_PATCH:
            patch = [{"op": "add", "path": f"/{member}", "value": value}]
        status = api.patch(f"{DEPLOYMENTS}/web", patch, content_type=content_type)
        (cause,) = status.fails(422, "Invalid")["details"]["causes"]
        assert cause["field"] == "patch"
        assert member in cause["message"]


def test_an_owner_that_is_named_twice_is_named_once_and_the_client_is_told(api):
    path = "/api/v1/namespaces/ns/configmaps"
    first, second = (
        {"apiVersion": "v1", "kind": "Node", "name": name, "uid": f"{name}-uid"} for name in "ab"
    )
    end = "duplicate UID(s) observed: a-uid"
    answer = api.post(path, {"metadata": {"name": "c", "ownerReferences": [first, first]}})
    made = answer.ok(201)
    assert made["metadata"]["ownerReferences"] == [first]
    assert end in answer.headers["Warning"]
    made["metadata"]["ownerReferences"] = [first, second, first]
    answer = api.put(f"{path}/c", made)
    assert answer.ok()["metadata"]["ownerReferences"] == [first, second]
    assert end in answer.headers["Warning"]
    patch = [{"op": "add", "path": "/metadata/ownerReferences/-", "value": first}]
    answer = api.patch(f"{path}/c", patch, content_type=JSON_PATCH)
    assert answer.ok()["metadata"]["ownerReferences"] == [first, second]
    assert "after mutating admission happens" in answer.headers["Warning"]
    assert end in answer.headers["Warning"]
    other = {**first, "controller": True}
    made["metadata"] = {**made["metadata"], "ownerReferences": [other, first]}
    del made["metadata"]["resourceVersion"]
    answer = api.put(f"{path}/c", made)
    assert answer.ok()["metadata"]["ownerReferences"] == [other, first]
    assert "Warning" not in answer.headers


def test_a_body_that_is_too_large_is_refused_before_it_is_read(api):
    body = b"x" * ((3 << 20) + 1)
    for method in ("PUT", "PATCH", "DELETE"):
        api.call(method, f"{PODS}/p", body).fails(413, "RequestEntityTooLarge")
    api.post(PODS, body).fails(413, "RequestEntityTooLarge")

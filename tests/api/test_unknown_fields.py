"""Fields that a kind does not have: dropped wherever an object comes in, and gone where stored."""

import copy
import json

import pytest

from clusterstate.actions import objects
from clusterstate.objects.registry import schema
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from clusterstate.queries.objects import get_manifest
from tests.api.bodies import body_of, collection, named, status_of
from tests.api.builders import DEPLOYMENTS, PODS, deployment, pod
from tests.api.conftest import APPLY, JSON_PATCH, MERGE, STRATEGIC
from tests.clock import NOW

STRAY = "strayField"
PORT = '.ports[containerPort=80,protocol="TCP"]'
OF_APPLY = "fieldManager=tester&force=true"


def _objects_in(value):
    if isinstance(value, dict):
        yield value
        for child in value.values():
            yield from _objects_in(child)
    elif isinstance(value, list):
        for child in value:
            yield from _objects_in(child)


def _with_strays(kind, body):
    """Return a body with one unknown field in each object of it that is no free map."""
    result = copy.deepcopy(body)
    for place in list(_objects_in(result)):
        place[STRAY] = {"inner": [1]}
        if not any(path.endswith(STRAY) for path in schema.unknown_fields(kind.name, result)):
            del place[STRAY]
            continue
        place["__done__"] = place.pop(STRAY)
    for place in _objects_in(result):
        if "__done__" in place:
            place[STRAY] = place.pop("__done__")
    return result


def _as_yaml(body):
    return json.dumps(body, indent=1).encode()  # every JSON is YAML


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
def test_a_kind_stores_none_whatever_way_they_come(api, kind):
    body = _with_strays(kind, body_of(kind, "one"))
    assert json.dumps(body).count(STRAY) >= 2
    made = api.post(collection(kind), body)
    assert STRAY in made.headers["Warning"]
    plain = made.ok(201)
    one = f"{collection(kind)}/{named(kind, 'one')}"
    answers = [
        made,
        api.put(f"{one}?fieldValidation=Ignore", _with_strays(kind, plain)),
        api.patch(one, {STRAY: 1, "metadata": {STRAY: 2, "annotations": {"a": "1"}}}),
        api.patch(
            one, {STRAY: 1, "metadata": {STRAY: 2, "annotations": {"a": "2"}}},
            content_type=STRATEGIC,
        ),
        api.patch(
            one, [{"op": "add", "path": f"/metadata/{STRAY}", "value": 1}], content_type=JSON_PATCH
        ),
    ]  # fmt: skip
    if "status" in kind.subresources:
        now = api.get(one).ok()
        answers.append(api.put(f"{one}/status", {**now, "status": {**status_of(kind), STRAY: 1}}))
        answers.append(api.patch(f"{one}/status", {"status": {STRAY: 1}}))
    answers.append(api.get(one))
    for answer in answers:
        assert answer.status in (200, 201), answer.raw
        assert STRAY.encode() not in answer.raw
    assert STRAY not in json.dumps(get_manifest(kind, plain["metadata"].get("namespace", ""),
                                                plain["metadata"]["name"]))  # fmt: skip


@pytest.mark.parametrize("content_type", ["application/json", "application/yaml"])
@pytest.mark.parametrize("mode", ["", "Warn", "Ignore"])
def test_lists_and_yaml_drop_them_too(api, content_type, mode):
    kind = KINDS["Deployment"]
    items = [_with_strays(kind, deployment(name)) for name in ("a", "b")]
    text = {"content_type": content_type}
    query = f"?fieldValidation={mode}" if mode else ""
    of_kind = {"kind": "DeploymentList", "apiVersion": "apps/v1", "items": items[:1]}
    mixed = {"kind": "List", "apiVersion": "v1", "items": [
        {**items[1], "metadata": {**items[1]["metadata"], "namespace": "ns"}},
    ]}  # fmt: skip
    for path, body in ((DEPLOYMENTS, of_kind), ("/api/v1", mixed)):
        answer = api.post(f"{path}{query}", _as_yaml(body), **text)
        assert answer.status == 201, answer.raw
        assert STRAY.encode() not in answer.raw
        assert (STRAY in answer.headers.get("Warning", "")) == (mode != "Ignore")
    assert STRAY.encode() not in api.get(DEPLOYMENTS).raw


@pytest.mark.parametrize("mode", ["Strict", "Warn", "Ignore", ""])
def test_who_applies_them_is_refused(api, mode):
    """``structuredMergeManager.Apply``, apimachinery managedfields, v1.36, whatever is validated.

    As for kubernetes-sigs/structured-merge-diff, items of a list are named by their keys.
    """
    one = f"{DEPLOYMENTS}/web?{OF_APPLY}" + (f"&fieldValidation={mode}" if mode else "")
    body = deployment("web")
    body["metadata"]["namespace"] = "ns"
    body["spec"]["template"]["spec"]["containers"][0][STRAY] = {"a": 1}
    body["spec"]["template"]["spec"]["tolerations"] = [{"key": "a", STRAY: 1}]
    status = api.patch(one, _as_yaml(body), content_type=APPLY).fails(500, "")
    name = body["spec"]["template"]["spec"]["containers"][0]["name"]
    where = ".spec.template.spec"
    assert status["message"] == (
        "failed to create typed patch object (ns/web; apps/v1, Kind=Deployment): errors:\n"
        f'  {where}.containers[name="{name}"].{STRAY}: field not declared in schema\n'
        f"  {where}.tolerations[0].{STRAY}: field not declared in schema"
    )
    assert "reason" not in status
    api.get(f"{DEPLOYMENTS}/web").fails(404, "NotFound")


@pytest.mark.parametrize(
    ("where", "value", "fault"),
    [
        ("env", [{"name": "X", "value": 1}],
         '.env[name="X"].value: expected string, got &value.valueUnstructured{Value:1}'),
        ("image", True, ".image: expected string, got &value.valueUnstructured{Value:true}"),
        ("ports", [{"containerPort": 80, "hostPort": "80"}],
         f"{PORT}.hostPort: expected numeric (int or float), got string"),
        ("stdin", "yes", ".stdin: expected boolean, got &{yes}"),
        ("args", "a", ".args: expected list, got &{a}"),
        ("resources", 5, ".resources: expected map, got &{5}"),
        ("resources", {"requests": {"cpu": 1, "memory": "1Gi"}}, ""),
    ],
)  # fmt: skip
def test_who_applies_another_type_is_refused(api, where, value, fault):
    """structured-merge-diff v6, typed/validate.go (``validateScalar``) and typed/helpers.go."""
    body = deployment("web")
    container = body["spec"]["template"]["spec"]["containers"][0]
    container[where] = value
    answer = api.patch(f"{DEPLOYMENTS}/web?{OF_APPLY}", body, content_type=APPLY)
    if not fault:
        answer.ok(201)
        return
    message = answer.fails(500, "")["message"]
    name = container["name"]
    assert message.endswith(f': .spec.template.spec.containers[name="{name}"]{fault}')


def test_who_writes_them_does_not_own_them(api):
    applied = api.patch(f"{DEPLOYMENTS}/web?{OF_APPLY}", deployment("web"), content_type=APPLY)
    body = _with_strays(KINDS["Deployment"], {**applied.ok(201)})
    body["spec"]["paused"] = True
    answer = api.put(f"{DEPLOYMENTS}/web?fieldManager=other", body).ok()
    (other,) = (one for one in answer["metadata"]["managedFields"] if one["manager"] == "other")
    assert other["fieldsV1"]["f:spec"] == {"f:paused": {}}
    assert STRAY not in json.dumps(answer)


def test_of_fields_that_stand_twice_the_last_is_stored(api):
    text = b'{"metadata":{"name":"p"},"spec":{"priority":0,"containers":[{"name":"c","image":"i",'
    text += b'"image":"j","strayField":1,"strayField":2}]}}'
    for query in ("", "?fieldValidation=Warn", "?fieldValidation=Ignore"):
        answer = api.post(f"{PODS}{query}", text.replace(b'"p"', b'"p%d"' % len(query)))
        (container,) = answer.ok(201)["spec"]["containers"]
        assert container["image"] == "j"
        assert STRAY not in container


def _stored_before(name, **spec):
    """Store a Deployment as a version did that kept unknown fields."""
    body = deployment(name, **spec)
    body["spec"][STRAY] = 1
    body["spec"]["template"]["spec"][STRAY] = {"a": 1}
    objects.create("Deployment", "ns", body, now=NOW)


def test_what_was_stored_before_is_gone_with_the_next_write_and_counts_for_nothing(api):
    one = f"{DEPLOYMENTS}/d"
    _stored_before("d", replicas=1)
    before = api.get(one).ok()
    assert before["spec"][STRAY] == 1
    strict = f"{one}?fieldValidation=Strict"
    after = api.patch(strict, {"metadata": {"labels": {"a": "b"}}}, content_type=STRATEGIC).ok()
    assert STRAY not in json.dumps(after)
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    refused = api.patch(strict, {"spec": {"theirs": 1}}).fails(422, "Invalid")
    assert refused["message"].endswith('strict decoding error: unknown field "spec.theirs"')


def test_a_spec_that_may_not_change_lets_them_go(api):
    body = pod("p")
    body["spec"][STRAY] = 1
    body["spec"]["containers"][0][STRAY] = [1]
    objects.create("Pod", "ns", body, now=NOW)
    shown = api.get(f"{PODS}/p").ok()
    assert shown["spec"][STRAY] == 1
    del shown["spec"][STRAY], shown["spec"]["containers"][0][STRAY]  # as a typed client does
    shown["metadata"]["labels"] = {"a": "b"}
    replaced = api.put(f"{PODS}/p", shown).ok()
    assert replaced["metadata"]["generation"] == 1
    for content_type in (MERGE, STRATEGIC):
        objects.create("Pod", "ns", {**copy.deepcopy(body), "metadata": {
            "name": content_type.partition("/")[2].partition("-")[0]}}, now=NOW)  # fmt: skip
    for name, content_type in (("merge", MERGE), ("strategic", STRATEGIC)):
        patch = {"metadata": {"labels": {"a": "b"}}}
        patched = api.patch(f"{PODS}/{name}", patch, content_type=content_type).ok()
        assert STRAY not in json.dumps(patched)
        assert patched["metadata"]["generation"] == 1

"""Bad input gets a clear error and changes nothing."""

import pytest

from tests.api.builders import DEPLOYMENTS, NODES, PODS, node, pod
from tests.api.conftest import Api, make_token

RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


def everything(api):
    return [api.get(path).ok()["items"] for path in (PODS, NODES, DEPLOYMENTS, RUNTIME_CLASSES)]


def container(**fields):
    return pod(containers=[{"name": "c", "image": "i", **fields}])


BAD = {
    "malformed JSON": (PODS, b'{"metadata": {"name": "p"', "application/json", 400),
    "empty body": (PODS, b"", "application/json", 400),
    "not an object": (PODS, b"[]", "application/json", 400),
    "malformed YAML": (PODS, b"metadata: {name: [p", "application/yaml", 400),
    "several YAML documents": (PODS, b"a: 1\n---\nb: 2\n", "application/yaml", 400),
    "not UTF-8": (PODS, b'{"metadata": {"name": "\xff"}}', "application/json", 400),
    "deep nesting": (PODS, b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "application/json", 400),
    "a form": (PODS, b"name=p", "application/x-www-form-urlencoded", 415),
    "an empty pod in protobuf": (
        PODS, b"k8s\x00\n\x09\n\x02v1\x12\x03Pod", "application/vnd.kubernetes.protobuf", 422,
    ),
    "a kind without protobuf": (
        PODS, b"k8s\x00\n\x0a\n\x02v1\x12\x04Plan", "application/vnd.kubernetes.protobuf", 415,
    ),
    "NUL in protobuf": (
        PODS, b"k8s\x00\n\x09\n\x02v1\x12\x03Pod\x12\x05\x0a\x03\x0a\x01\x00",
        "application/vnd.kubernetes.protobuf", 400,
    ),
    "malformed protobuf": (PODS, b"k8s\x00\xff", "application/vnd.kubernetes.protobuf", 400),
    "another kind": (PODS, {**pod(), "kind": "Node"}, None, 400),
    "another version": (PODS, {**pod(), "apiVersion": "v2"}, None, 400),
    "another namespace": (PODS, {**pod(), "metadata": {"name": "p", "namespace": "x"}}, None, 400),
    "no name": (PODS, {**pod(), "metadata": {}}, None, 422),
    "a bad name": (PODS, pod("BAD_name"), None, 422),
    "a long name": (PODS, pod("a" * 254), None, 422),
    "a bad label": (PODS, pod(labels={"a b": "c"}), None, 422),
    "wrong type: number for text": (PODS, pod(nodeName=5), None, 400),
    "wrong type: text for number": (PODS, pod(priority="high"), None, 400),
    "wrong type: fraction for integer": (PODS, pod(terminationGracePeriodSeconds=1.5), None, 400),
    "wrong type: object for list": (PODS, pod(tolerations={}), None, 400),
    "wrong type: label value": (PODS, pod(labels={"a": 1}), None, 400),
    "wrong type: metadata": (PODS, {"metadata": 5, "spec": pod()["spec"]}, None, 400),
    "wrong type: time": (PODS, {**pod(), "status": {"startTime": "yesterday"}}, None, 400),
    "too large an integer": (PODS, pod(priority=2**40), None, 400),
    "unknown enum: restartPolicy": (PODS, pod(restartPolicy="Sometimes"), None, 422),
    "unknown enum: toleration": (
        PODS, pod(tolerations=[{"key": "k", "operator": "Like"}]), None, 422,
    ),
    "unknown enum: taint": (
        NODES, node(taints=[{"key": "k", "effect": "Sometimes"}]), None, 422,
    ),
    "no containers": (PODS, pod(containers=[]), None, 422),
    "a bad quantity": (PODS, container(resources={"requests": {"cpu": "lots"}}), None, (400, 422)),
    "a negative quantity": (PODS, container(resources={"requests": {"cpu": "-1"}}), None, 422),
    "more requested than the limit": (
        PODS, container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}), None, 422,
    ),
    "a bad selector": (
        PODS, pod(nodeSelector={"a/b/c": "x"}), None, 422,
    ),
    "an unknown RuntimeClass": (PODS, pod(runtimeClassName="nosuch"), None, 403),
    "an unknown PriorityClass": (PODS, pod(priorityClassName="nosuch"), None, 403),
    "a list of something else": (
        PODS, {"kind": "PodList", "items": [node()]}, None, 400,
    ),
    "items that are no list": (PODS, {"kind": "PodList", "items": {}}, None, 400),
    "null items": (PODS, {"kind": "PodList", "items": [None]}, None, 400),
    "a handler with a bad name": (
        RUNTIME_CLASSES, {"metadata": {"name": "x"}, "handler": "NOT ok"}, None, 422,
    ),
}  # fmt: skip

REASONS = {
    400: "BadRequest", 403: "Forbidden", 409: "AlreadyExists", 415: "UnsupportedMediaType",
    422: "Invalid",
}  # fmt: skip


@pytest.mark.parametrize("case", BAD, ids=str)
def test_bad_input_gets_a_clear_error_and_changes_nothing(api, case):
    path, body, content_type, codes = BAD[case]
    before = everything(api)
    answer = api.post(path, body, content_type=content_type)
    expected = codes if isinstance(codes, tuple) else (codes,)
    assert answer.status in expected, answer.raw[:500]
    answer.fails(answer.status, REASONS[answer.status])
    assert everything(api) == before


def test_every_wrong_field_is_named_at_once(api):
    body = pod("BAD_name", containers=[{"name": "c", "image": ""}], restartPolicy="Sometimes")
    status = api.post(PODS, body).fails(422, "Invalid")
    assert status["details"]["kind"] == "Pod"
    causes = {cause["field"]: cause["reason"] for cause in status["details"]["causes"]}
    assert causes["metadata.name"] == "FieldValueInvalid"
    assert causes["spec.containers[0].image"] == "FieldValueRequired"
    assert causes["spec.restartPolicy"] == "FieldValueNotSupported"
    assert status["message"].startswith('Pod "BAD_name" is invalid: [')


def test_a_name_can_be_taken_once(api):
    api.post(PODS, pod()).ok(201)
    status = api.post(PODS, pod()).fails(409, "AlreadyExists")
    assert status["message"] == 'pods "p" already exists'
    assert (status["details"]["name"], status["details"]["kind"]) == ("p", "pods")


def test_a_namespace_that_is_not_there_is_named(api):
    status = api.post("/api/v1/namespaces/nowhere/pods", pod()).fails(404, "NotFound")
    assert status["message"] == 'namespaces "nowhere" not found'


def test_unknown_fields_are_refused_when_strict(api):
    path = f"{PODS}?fieldValidation=Strict"
    status = api.post(path, pod(flurb=1)).fails(400, "BadRequest")
    assert 'unknown field "spec.flurb"' in status["message"]
    api.get(f"{PODS}/p").fails(404, "NotFound")


def test_too_large_an_object_is_refused(api):
    body = pod()
    body["metadata"]["annotations"] = {"a": "x" * (3 << 20)}
    status = api.post(PODS, body).fails(413, "RequestEntityTooLarge")
    assert str(3 << 20) in status["message"]


def test_a_list_may_be_larger_than_an_object(api):
    items = [pod(f"p{number}") for number in range(40)]
    for item in items:
        item["metadata"]["annotations"] = {"a": "x" * (200 << 10)}
    made = api.post(PODS, {"kind": "PodList", "apiVersion": "v1", "items": items}).ok(201)
    assert len(made["items"]) == 40


# ---------------------------------------------------------------------------- who and where


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", "Basic dXNlcjpwYXNz", "Token x", "Bearer \xff"]
)
def test_without_a_good_token_nothing_is_told(api, header):
    headers = {} if header is None else {"HTTP_AUTHORIZATION": header}
    for method, path in (("GET", NODES), ("POST", PODS), ("GET", "/api"), ("GET", "/version"),
                         ("GET", "/apis/apps/v1"), ("DELETE", PODS)):  # fmt: skip
        answer = Api("").call(method, path, None, token="", **headers)
        status = answer.fails(401, "Unauthorized")
        assert status["message"] == "Unauthorized"


def test_a_reader_reads_and_writes_nothing(api, reader):
    api.post(NODES, node()).ok(201)
    reader.get(f"{NODES}/n").ok()
    reader.get("/api/v1/pods").ok()
    status = reader.post(NODES, node("m")).fails(403, "Forbidden")
    assert status["message"] == (
        'nodes is forbidden: User "reader" cannot create resource "nodes" in API group "" '
        "at the cluster scope"
    )
    status = reader.delete(f"{PODS}/p").fails(403, "Forbidden")
    assert 'pods "p" is forbidden' in status["message"]
    assert 'in the namespace "ns"' in status["message"]
    for answer in (
        reader.put(f"{NODES}/n", node()),
        reader.patch(f"{NODES}/n", {}),
        reader.delete(NODES),
        reader.post(f"{PODS}/p/binding", {}),
        reader.post("/api/v1", {"kind": "List", "items": [node("k")]}),
        reader.post("/api/v1/namespaces/ns/bindings", {"metadata": {"name": "p"}}),
    ):
        answer.fails(403, "Forbidden")


def test_somebody_without_a_group_may_only_ask_what_is_offered(api):
    nobody = Api(make_token("nobody", []))
    nobody.get("/api").ok()
    nobody.get("/version").ok()
    nobody.get(NODES).fails(403, "Forbidden")


@pytest.mark.parametrize(
    ("who", "verb", "allowed"),
    [("api", "create", True), ("reader", "create", False), ("reader", "list", True)],
)
def test_access_reviews_say_what_the_views_do(request, who, verb, allowed):
    caller = request.getfixturevalue(who)
    body = {"spec": {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "ns"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = caller.post(path, body).ok(201)
    assert review["status"]["allowed"] is allowed
    assert review["spec"] == body["spec"]
    caller.post(path, {}).fails(422, "Invalid")


@pytest.mark.parametrize(
    "path",
    ["/flurb", "/api/v1/flurbs", "/apis/no.such.group/v1", f"{PODS}/x/flurb", "/api/v2",
     "/apis/apps/v2", "/apis/apps/v1/flurbs", "/api/v1/namespaces/ns/nodes"],
)  # fmt: skip
def test_unknown_paths_are_not_found(api, path):
    api.get(path).fails(404, "NotFound")


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", NODES), ("PATCH", NODES), ("POST", f"{NODES}/n"), ("PUT", f"{PODS}/p/binding"),
     ("GET", f"{PODS}/p/eviction"), ("DELETE", f"{PODS}/p/status"), ("PUT", "/api"),
     ("DELETE", "/version"), ("OPTIONS", NODES)],
)  # fmt: skip
def test_methods_that_a_path_does_not_have_are_not_allowed(api, method, path):
    status = api.call(method, path, {}).fails(405, "MethodNotAllowed")
    assert status["message"] == "the server does not allow this method on the requested resource"


def test_what_nobody_can_give_is_not_acceptable(api):
    api.get(NODES, accept="image/png").fails(406, "NotAcceptable")


def test_missing_objects_are_named_with_their_group(api):
    status = api.get(f"{RUNTIME_CLASSES}/x").fails(404, "NotFound")
    assert status["message"] == 'runtimeclasses.node.k8s.io "x" not found'
    assert status["details"] == {"name": "x", "group": "node.k8s.io", "kind": "runtimeclasses"}


@pytest.mark.parametrize(
    "query",
    ["labelSelector=a+in+(b", "fieldSelector=spec.flurb%3D1", "limit=x", "limit=1-",
     "fieldSelector=metadata.name"],
)  # fmt: skip
def test_parameters_that_do_not_parse_are_refused(api, query):
    api.get(f"{PODS}?{query}").fails(400, "BadRequest")


def test_unknown_parameters_are_ignored(api):
    api.get(f"{PODS}?flurb=1&timeout=32s&resourceVersion=0").ok()


def test_nothing_is_changed_by_get(api):
    api.post(PODS, pod()).ok(201)
    before = api.get(f"{PODS}/p").ok()
    for path in (f"{PODS}/p", f"{PODS}/p/status", PODS, "/api/v1", "/apis"):
        api.get(f"{path}?method=DELETE&_method=DELETE", HTTP_X_HTTP_METHOD_OVERRIDE="DELETE").ok()
    assert api.get(f"{PODS}/p").ok() == before


EMBEDDED = (
    "1e999999", "1" * 5000, "[" * 20_000, '{"a":' * 20_000, "1", "[1]", '[{"key":1}]', "{}",
    '"x"',
    '[{"operator":{}}]', '{"preferAvoidPods":1}', '{"preferAvoidPods":[1]}', "\u00b2", "[null]",
    '{"preferAvoidPods":[{"podSignature":1}]}', '{"preferAvoidPods":[{"podSignature":null}]}',
    '{"preferAvoidPods":[{"podSignature":{"podController":1}}]}', '[{"tolerationSeconds":1e400}]',
)  # fmt: skip


@pytest.mark.parametrize("text", EMBEDDED, ids=lambda text: text[:20])
def test_json_in_annotations_is_as_hostile_as_any(api, text):
    """What admission reads in annotations of pods, nodes and namespaces is refused or harmless."""
    key = "scheduler.alpha.kubernetes.io/"
    tolerations = pod("p")
    tolerations["metadata"]["annotations"] = {f"{key}tolerations": text}
    cost = pod("q")
    cost["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": text}
    avoid = node("n")
    avoid["metadata"]["annotations"] = {f"{key}preferAvoidPods": text}
    assert api.post(PODS, tolerations).status == 422
    assert api.post(PODS, cost).status in (201, 422)
    assert api.post("/api/v1/nodes", avoid).status in (201, 422)
    annotations = {f"{key}{name}": text for name in ("defaultTolerations", "tolerationsWhitelist")}
    space = {"metadata": {"name": "odd", "annotations": annotations}}
    api.post("/api/v1/namespaces", space).ok(201)
    assert api.post("/api/v1/namespaces/odd/pods", pod("p")).status in (201, 400, 403)


@pytest.mark.parametrize("version", ["9" * 19, "9" * 5000, "²", "-1", 5])
def test_a_configuration_replaces_a_version_that_is_a_number(api, version):
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "metadata": {"resourceVersion": version},
    }  # fmt: skip
    path = "/apis/stowage.dev/v1/schedulerconfiguration"
    refused = api.put(path, document).fails(400, "BadRequest")
    assert refused["message"].startswith("metadata.resourceVersion is not valid: ")

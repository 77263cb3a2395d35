"""Which answer an ``Accept`` header gets, and which path names what."""

import pytest

from api import routes
from api.forms import negotiation, replies
from api.forms.errors import NotAcceptable
from clusterstate.objects.registry.kinds import KINDS

TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,"
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


@pytest.mark.parametrize(
    "accept",
    [
        "", "*/*", "application/json", "application/json, */*",
        "application/vnd.kubernetes.protobuf,application/json",
        "application/vnd.kubernetes.protobuf, */*",
        "application/json;stream=watch,application/json",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
    ],
)  # fmt: skip
def test_plain_json_satisfies(accept):
    assert negotiation.form(accept) == negotiation.PLAIN


@pytest.mark.parametrize(
    ("accept", "wants"),
    [
        ("application/vnd.kubernetes.protobuf", True),
        ("application/vnd.kubernetes.protobuf;stream=watch", True),
        ("image/png, application/vnd.kubernetes.protobuf", True),
        ("application/vnd.kubernetes.protobuf,application/json", False),
        ("application/vnd.kubernetes.protobuf;stream=watch, */*", False),
        ("application/json,application/vnd.kubernetes.protobuf", False),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json", False),
        ("", False),
    ],
)
def test_protobuf_is_given_to_those_who_take_no_json(accept, wants):
    assert negotiation.form(accept) == negotiation.PLAIN
    assert negotiation.wants_protobuf(accept) is wants


def test_a_watch_that_begins_with_what_there_is_has_no_table():
    assert negotiation.form(TABLE, tables=False) == negotiation.PLAIN
    alone = "application/json;as=Table;v=v1;g=meta.k8s.io"
    assert negotiation.form(alone) == negotiation.TABLE
    with pytest.raises(NotAcceptable):
        negotiation.form(alone, tables=False)


def test_a_table_is_given_to_those_who_prefer_it():
    assert negotiation.form(TABLE) == negotiation.TABLE


@pytest.mark.parametrize("accept", ["image/png", "text/html"])
def test_what_cannot_be_given_is_refused(accept):
    with pytest.raises(NotAcceptable, match="application/json"):
        negotiation.form(accept)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/nodes", ("Node", "", "", "")),
        ("/api/v1/nodes/n1", ("Node", "", "n1", "")),
        ("/api/v1/nodes/n1/status", ("Node", "", "n1", "status")),
        ("/api/v1/pods", ("Pod", "", "", "")),
        ("/api/v1/pods/", ("Pod", "", "", "")),
        ("/api/v1/namespaces/a/pods", ("Pod", "a", "", "")),
        ("/api/v1/namespaces/a/pods/p/", ("Pod", "a", "p", "")),
        ("/api/v1/namespaces/a/pods/p/binding", ("Pod", "a", "p", "binding")),
        ("/api/v1/namespaces/a/pods/status", ("Pod", "a", "status", "")),
        ("/api/v1/namespaces", ("Namespace", "", "", "")),
        ("/api/v1/namespaces/a", ("Namespace", "", "a", "")),
        ("/api/v1/namespaces/a/status", ("Namespace", "", "a", "status")),
        ("/apis/apps/v1/namespaces/a/deployments/d/scale", ("Deployment", "a", "d", "scale")),
        ("/apis/policy/v1beta1/poddisruptionbudgets", ("PodDisruptionBudget", "", "", "")),
    ],
)  # fmt: skip
def test_paths_name_kinds_objects_and_subresources(path, expected):
    target = routes.resolve(path)
    assert target is not None
    assert (target.kind.name, target.namespace, target.name, target.subresource) == expected


@pytest.mark.parametrize(
    "path",
    [
        "/", "/flurb", "/api", "/api/v1", "/api/v2/pods", "/api/v1/flurbs", "/apis/apps/v1",
        "/apis/no.such/v1/pods", "/api/v1/pods/p", "/api/v1/namespaces/a/pods/p/flurb",
        "/api/v1/namespaces/a/nodes", "/api/v1/namespaces/a/pods/p/status/x", "/api/v1//pods",
        "/api/v1/nodes/n1/scale",
    ],
)  # fmt: skip
def test_other_paths_name_nothing(path):
    assert routes.resolve(path) is None


def test_the_path_of_a_request_is_read_once():
    scope = {"path": "/api/v1/namespaces/a/pods/p", "method": "GET", "headers": []}
    assert routes.of(scope) is routes.of(scope)
    assert routes.of(scope).is_api
    assert routes.of(scope).target == routes.resolve(scope["path"])


@pytest.mark.parametrize(
    ("path", "is_api", "is_page"),
    [("/admin/", False, True), ("/version", False, False), ("/apis/no.such/v1/x", True, False)],
)
def test_a_path_without_a_kind_is_a_page_or_something_of_the_api_or_neither(path, is_api, is_page):
    found = routes.read(path)
    assert (found.target, found.is_api, found.is_page) == (None, is_api, is_page)


def test_lists_join_stored_objects_unparsed():
    items = [b'{"x": "not even json"', b"}"]
    body = replies.join_list(KINDS["Pod"], items, replies.list_metadata(7, "abc", 3))
    assert body == (
        b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"abc",'
        b'"remainingItemCount":3},"items":[{"x": "not even json",}]}'
    )


def test_warnings_cannot_break_the_header():
    header = replies.warning_header(['a "quoted"\r\nX-Evil: 1', "é", "é"])
    assert header == '299 - "a \\"quoted\\"??X-Evil: 1", 299 - "?"'
    assert len(replies.warning_header(["x" * 1000 + str(i) for i in range(100)])) < 5000

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


PROTOBUF = "application/vnd.kubernetes.protobuf"
METADATA = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("accept", "form", "without_message"),
    [
        ("", "json", "json"), ("*/*", "json", "json"), ("application/json", "json", "json"),
        ("application/json, */*", "json", "json"),
        ("application/json;stream=watch,application/json", "json", "json"),
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
         "json", "json"),
        (PROTOBUF, "protobuf", None), (f"{PROTOBUF};stream=watch", "protobuf", None),
        (f"image/png, {PROTOBUF}", "protobuf", None),
        # What client-go sends.
        (f"{PROTOBUF},application/json", "protobuf", "json"),
        (f"{PROTOBUF};stream=watch, */*", "protobuf", "json"),
        (f"application/json,{PROTOBUF}", "json", "json"),
        (f"application/json;q=0.5,{PROTOBUF};q=0.9", "protobuf", "json"),
        (f"{PROTOBUF};q=0.1, application/json", "json", "json"),
        (f"{PROTOBUF};q=wrong, application/json", "protobuf", "json"),
        (f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,application/json", "json", "json"),
        (f"{PROTOBUF};{METADATA},application/json;{METADATA}", "partial-protobuf",
         "partial-protobuf"),
        (TABLE, "table", "table"), (f"{PROTOBUF},{TABLE}", "protobuf", "table"),
    ],
)  # fmt: skip
def test_a_client_gets_what_it_names_first_of_what_there_is(accept, form, without_message):
    assert negotiation.form(accept, has_message=True) == form
    if without_message is not None:
        assert negotiation.form(accept, has_message=False) == without_message
    else:
        with pytest.raises(NotAcceptable):
            negotiation.form(accept, has_message=False)


@pytest.mark.parametrize("accept", ["image/png", "text/html"])
def test_what_cannot_be_given_is_refused(accept):
    with pytest.raises(NotAcceptable, match="application/json"):
        negotiation.form(accept, has_message=True)


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

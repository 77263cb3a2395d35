"""Paths of watches as clients of former times write them."""

from urllib.parse import parse_qs

import pytest

from api import routes
from clusterstate.objects.registry.kinds import ALL_KINDS
from tests.api.bodies import collection, named

each = pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)


def read(path, query="", method="GET"):
    """Return path and parameters as the server goes on with them."""
    scope = {"method": method, "path": path, "query_string": query.encode()}
    routes.bring_up_to_date(scope)
    return scope["path"], parse_qs(scope["query_string"].decode(), keep_blank_values=True)


def former(path):
    """Return the path of former times: ``watch`` stands behind the version."""
    parts = path.split("/")
    place = 4 if parts[1] == "apis" else 3
    return "/".join([*parts[:place], "watch", *parts[place:]])


@each
def test_of_every_kind_a_collection_and_one_object_are_watched(kind):
    many, name = collection(kind), named(kind, "one")
    everywhere = many.replace("/namespaces/ns/", "/")
    for path in {many, everywhere}:
        assert read(former(path)) == (path, {"watch": ["true"]})
        assert read(former(path) + "/") == (path, {"watch": ["true"]})
        assert read(former(path), "watch=false&labelSelector=a%3Db") == (
            path, {"watch": ["true"], "labelSelector": ["a=b"]},
        )  # fmt: skip
    one = {"watch": ["true"], "fieldSelector": [f"metadata.name={name}"]}
    assert read(f"{former(many)}/{name}") == (many, one)
    narrow = {**one, "fieldSelector": [f"metadata.name={name},metadata.namespace!=x"]}
    assert read(f"{former(many)}/{name}", "fieldSelector=metadata.namespace!%3Dx") == (many, narrow)


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/api/v1/watch/pods", "POST"),
        ("/api/v1/namespaces/watch/pods", "GET"),
        ("/api/v1/namespaces/watch/pods/watch", "GET"),
        ("/api/v1/nodes/watch", "GET"),
        ("/api/v1/nodes/watch/status", "GET"),
        ("/apis/apps/watch/deployments", "GET"),
        ("/api/v1/watch/unknown", "GET"),
        ("/api/v1/watch/nodes/a/status", "GET"),
        ("/api/v1/watch/watch/pods", "GET"),
        ("/console/watch/pods", "GET"),
    ],
)
def test_other_paths_stay_as_they_are(path, method):
    assert read(path, "a=b", method) == (path, {"a": ["b"]})


def test_a_name_is_escaped_in_the_selector():
    role = "/apis/rbac.authorization.k8s.io/v1/watch/clusterroles/a,b=c\\d"
    assert read(role)[1]["fieldSelector"] == ["metadata.name=a\\,b\\=c\\\\d"]

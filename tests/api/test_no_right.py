"""Nothing is reached without a right: every path that is served, asked by somebody without one."""

import re

import pytest
from django.urls import URLPattern

from api import urls
from api.kinds.routers import Kinds
from api.kinds.views import StatusView
from clusterstate.objects.registry.kinds import ALL_KINDS
from tests.api.conftest import Api, make_token
from tests.api.test_dry_run import collection

pytestmark = pytest.mark.django_db

OPEN = re.compile(
    r"^(?:/|/api|/apis|/version|/openapi/v[23].*|/docs.*|/api/v1|/apis/[^/]+|/apis/[^/]+/v1"
    r"|/apis/authorization\.k8s\.io/v1/selfsubject(?:access|rules)reviews"
    r"|/apis/authentication\.k8s\.io/v1/selfsubjectreviews)$"
)
"""What everybody with a token may ask: what is served, who they are, and what they may do."""
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@pytest.fixture
def nobody(api):
    return Api(make_token("nobody", ["team"]))


def filled(pattern):
    """Return a path that a route of ``urls`` matches."""
    path = re.sub(
        r"\(\?P<(\w+)>[^()]*\)", lambda found: {"version": "v1"}.get(found[1], "x"), pattern
    )
    path = re.sub(r"\(\?:([^()|]*)(?:\|[^()]*)?\)\??", r"\1", path)
    return "/" + path.replace("/?$", "").replace("\\.", ".").replace("[^/]+", "x").strip("^$")


def serves(callback, method):
    """Return whether a view, or the action of a viewset behind it, answers a method."""
    actions = getattr(callback, "actions", None)
    return hasattr(callback.cls, method) if actions is None else method in actions


def test_no_object_of_any_kind(nobody):
    for kind in ALL_KINDS:
        many = collection(kind)
        paths = {many, f"{many}/x", *(f"{many}/x/{one}" for one in kind.subresources)}
        if kind.namespaced:
            paths.add(many.replace("/namespaces/ns", ""))
        for path in sorted(paths):
            for method in METHODS:
                body = None if method in ("GET", "DELETE") else {}
                assert nobody.call(method, path, body).status == 403, (method, path)


def test_no_path_of_a_view_of_its_own(nobody):
    asked = 0
    for entry in urls.urlpatterns:
        view = getattr(getattr(entry, "callback", None), "cls", None)
        if not isinstance(entry, URLPattern) or view is None or isinstance(entry.callback, Kinds):
            continue
        assert issubclass(view, StatusView)
        path = filled(str(entry.pattern))
        for method in METHODS:
            if not serves(entry.callback, method.lower()):
                continue
            answer = nobody.call(method, path, None if method == "GET" else {})
            if OPEN.match(path):
                assert answer.status != 403, (method, path)
            else:
                assert answer.status == 403, (method, path, answer.raw[:200])
            asked += 1
    assert asked > 20


def test_no_creation_by_a_selector_of_names(api):
    """A rule about one name is about an object that is there; what is created has none yet."""
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"],
            "verbs": ["get", "list", "create", "deletecollection"]}  # fmt: skip
    api.post(f"{rbac}/roles", {"metadata": {"name": "one"}, "rules": [rule]}).ok(201)
    binding = {
        "metadata": {"name": "one"}, "roleRef": {"kind": "Role", "name": "one"},
        "subjects": [{"kind": "User", "name": "somebody"}],
    }  # fmt: skip
    api.post(f"{rbac}/rolebindings", binding).ok(201)
    maps, only = "/api/v1/namespaces/ns/configmaps", "?fieldSelector=metadata.name%3Dmine"
    somebody = Api(make_token("somebody", ["team"]))
    somebody.get(f"{maps}{only}").ok()
    somebody.post(f"{maps}{only}", {"metadata": {"name": "other"}}).fails(403, "Forbidden")
    somebody.delete(f"{maps}{only}").fails(403, "Forbidden")
    api.get(f"{maps}/other").fails(404, "NotFound")


def test_no_page_and_no_metric(nobody):
    nobody.get("/metrics").fails(403, "Forbidden")
    for path in ("/", "/api", "/version", "/openapi/v2", "/metrics", "/apis/apps/v1/deployments"):
        Api("").get(path).fails(401, "Unauthorized")
        Api("wrong").get(path).fails(401, "Unauthorized")

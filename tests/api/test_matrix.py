"""The table of the default roles over HTTP: what it gives works, and nothing else is reached."""

import pytest

from clusterstate.objects.kinds import ALL_KINDS
from tests.access.test_matrix import ROLES, rows
from tests.api.bodies import collection
from tests.api.conftest import Api, make_token

pytestmark = pytest.mark.django_db

RBAC = "/apis/rbac.authorization.k8s.io/v1"
IN_NAMESPACE = ("view", "edit", "admin")
ONE = {
    "": {"get": "GET", "update": "PUT", "patch": "PATCH", "delete": "DELETE"},
    "status": {"get": "GET", "update": "PUT", "patch": "PATCH"},
    "scale": {"get": "GET", "update": "PUT", "patch": "PATCH"},
    "approval": {"get": "GET", "update": "PUT", "patch": "PATCH"},
    "finalize": {"update": "PUT"},
}
"""The verbs on one object, by subresource, and the methods that stand for them."""
MANY = {"list": "GET", "create": "POST", "deletecollection": "DELETE"}


def requests(kind):
    """Yield subresource, verb, method and path of what can be asked about a kind."""
    many = collection(kind)
    for verb, method in MANY.items():
        yield "", verb, method, f"{many}?labelSelector=none%3Dsuch"
    for subresource in ("", *kind.subresources):
        name = "ns" if kind.name == "Namespace" else "absent"
        path = f"{many}/{name}/{subresource}".rstrip("/")
        for verb, method in ONE.get(subresource, {"create": "POST"}).items():
            yield subresource, verb, method, path


@pytest.fixture
def holder(api, request):
    """Somebody to whom one role is bound: in the namespace ``ns``, or everywhere."""
    role = request.param
    caller = Api(make_token("holder", ["team"]))
    kind, path = "ClusterRoleBinding", f"{RBAC}/clusterrolebindings"
    if role in IN_NAMESPACE:
        kind, path = "RoleBinding", f"{RBAC}/namespaces/ns/rolebindings"
    body = {
        "kind": kind,
        "metadata": {"name": "holder"},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": "holder"}],
    }
    api.post(path, body).ok(201)
    return caller


@pytest.mark.parametrize(
    ("holder", "place"), [(role, ROLES.index(role)) for role in ROLES], indirect=["holder"]
)
def test_a_role_reaches_what_the_table_says_and_nothing_else(holder, place):
    table, wrong, reached = rows(), [], 0
    for kind in ALL_KINDS:
        for subresource, verb, method, path in requests(kind):
            given = verb in table[kind.name, subresource][place]
            if ROLES[place] in IN_NAMESPACE and not kind.namespaced:
                # A namespace itself is judged as an object in it.
                given = given and kind.name == "Namespace" and verb not in MANY
            body = None if method in ("GET", "DELETE") else {}
            answer = holder.call(method, path, body)
            reached += given
            if (answer.status != 403) is not given or answer.status >= 500:
                wrong.append((kind.name, subresource, verb, answer.status, answer.raw[:200]))
    assert not wrong, "\n".join(map(str, wrong))
    assert reached > 50

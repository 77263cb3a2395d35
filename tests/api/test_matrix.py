"""The table of the default roles over HTTP: what it gives works, and nothing else is reached."""

import pytest

from clusterstate.objects.registry.kinds import ALL_KINDS
from tests.access.test_matrix import ROLES, rows
from tests.api.bodies import collection
from tests.api.conftest import Api, make_token
from tests.forms import few

pytestmark = pytest.mark.django_db

RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ROLES = sorted(ROLES, key=("edit",).__contains__, reverse=True)
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


def bound(api, role):
    """Return somebody to whom one role is bound: in the namespace ``ns``, or everywhere."""
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


def gives(role, kind, subresource, verb, *, everywhere=False):
    """Return whether a role gives that in the namespace ``ns``, or in all namespaces."""
    given = verb in rows()[kind.name, subresource][ROLES.index(role)]
    if role not in IN_NAMESPACE or (kind.namespaced and not everywhere):
        return given
    # A namespace itself is judged as an object in it.
    return given and kind.name == "Namespace" and verb not in (*MANY, "watch")


@pytest.mark.parametrize("role", few(_ROLES))
def test_a_role_reaches_what_the_table_says_and_nothing_else(api, role):
    holder, wrong, reached = bound(api, role), [], 0
    for kind in ALL_KINDS:
        for subresource, verb, method, path in requests(kind):
            given = gives(role, kind, subresource, verb)
            body = None if method in ("GET", "DELETE") else {}
            answer = holder.call(method, path, body)
            reached += given
            if (answer.status != 403) is not given or answer.status >= 500:
                wrong.append((kind.name, subresource, verb, answer.status, answer.raw[:200]))
        if kind.namespaced:
            path = collection(kind).replace("/namespaces/ns", "")
            given = gives(role, kind, "", "list", everywhere=True)
            answer = holder.get(f"{path}?labelSelector=none%3Dsuch")
            if answer.status != (200 if given else 403):
                wrong.append((kind.name, "list everywhere", answer.status, answer.raw[:200]))
    assert not wrong, "\n".join(map(str, wrong))
    assert reached > 50


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("role", few(_ROLES))
def test_a_role_watches_what_the_table_says_and_nothing_else(server, api, role):
    """A watch that may be opened is ended by its wrong revision: 400 stands for yes."""
    holder, wrong, watched = bound(api, role), [], 0
    for kind in ALL_KINDS:
        many = collection(kind)
        paths = {many: False}
        if kind.namespaced:
            paths[many.replace("/namespaces/ns", "")] = True
        for path, everywhere in paths.items():
            given = gives(role, kind, "", "watch", everywhere=everywhere)
            found = server.ask("GET", f"{path}?watch=true&resourceVersion=x", holder.token)[0]
            watched += given
            if found != (400 if given else 403):
                wrong.append((kind.name, path, found))
    assert not wrong, "\n".join(map(str, wrong))
    assert watched > 20

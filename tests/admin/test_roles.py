"""What people see and change in the admin follows their roles (and the admin's permissions)."""

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from clusterstate.actions import objects
from clusterstate.actions.cluster import default_roles
from clusterstate.actions.people import users
from tests.api.conftest import Api, make_token
from tests.clock import NOW

pytestmark = pytest.mark.django_db(transaction=True)

RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def roles() -> None:
    default_roles.reconcile(now=NOW)
    users.ensure_groups()


def person(name: str, *groups: str, superuser: bool = False) -> Client:
    user = User.objects.create_user(name, is_staff=True, is_superuser=superuser)
    for group in groups:
        user.groups.add(Group.objects.get_or_create(name=group)[0])
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def sees(client: Client, page: str) -> bool:
    return client.get(f"/admin/{page}/").status_code == 200


PAGES = ("clusterstate/node", "clusterstate/node/add", "clusterstate/pod", "clusterstate/apitoken")


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("stowage:viewer", (True, False, True, False)),
        ("stowage:operator", (True, False, True, False)),
        ("stowage:administrator", (True, True, True, True)),
        ("team", (False, False, False, False)),
        ("system:masters", (False, False, False, False)),
    ],
)
def test_a_group_of_people_sees_what_its_role_reads(
    roles: None, group: str, expected: tuple[bool, ...]
) -> None:
    client = person("ann", group)
    assert tuple(sees(client, page) for page in PAGES) == expected


def test_a_superuser_sees_everything_and_nobody_loses_it(roles: None) -> None:
    client = person("root", superuser=True)
    assert all(sees(client, page) for page in PAGES)


def test_a_binding_to_the_user_opens_the_page_and_its_end_closes_it(roles: None) -> None:
    client = person("ann")
    assert not sees(client, "clusterstate/node")
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "stowage:reader"}
    subjects = [{"kind": "User", "name": "ann"}]
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects}
    objects.create("ClusterRoleBinding", "", binding, now=NOW)
    assert sees(client, "clusterstate/node")
    objects.delete("ClusterRoleBinding", "", "b", now=NOW)
    assert not sees(client, "clusterstate/node")


def test_a_token_without_groups_belongs_to_those_of_its_user(roles: None) -> None:
    person("ann", "stowage:viewer", "system:masters")
    who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    one = Api(make_token("ann", []))
    info = one.post(who, {}).ok(201)["status"]["userInfo"]
    assert info["groups"] == ["stowage:viewer", "system:authenticated"]
    one.get("/api/v1/nodes").ok()
    narrow = Api(make_token("ann", ["team"]))
    narrow.get("/api/v1/nodes").fails(403, "Forbidden")

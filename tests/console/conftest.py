"""People in front of the console, without a browser; and a small cluster to look at."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from api.console.live import fragment_cache
from clusterstate import catalogue
from clusterstate.actions import objects
from clusterstate.actions.cluster import default_roles
from tests.clock import NOW
from tests.clusterstate.support import bind, create_node, new_pod

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture(autouse=True)
def fresh(db: None) -> None:
    """What a process remembers of the rows goes with the test's transaction."""
    catalogue.reload()
    fragment_cache._looks.forget()


def signed_in(name: str, *, group: str = "", superuser: bool = False) -> Client:
    """Sign in a new person, who is no member of the admin's staff; return the browser."""
    person = User.objects.create_user(name, password="pass word 123", is_superuser=superuser)
    if group:
        person.groups.add(Group.objects.get_or_create(name=group)[0])
    client = Client(HTTP_ACCEPT="text/html")
    client.force_login(person, backend="django.contrib.auth.backends.ModelBackend")
    return client


def allow(name: str, rules: list[dict[str, Any]], namespace: str = "") -> Client:
    """Sign in a person with these rights, everywhere or in a namespace."""
    role = "Role" if namespace else "ClusterRole"
    objects.create(role, namespace, {"metadata": {"name": name}, "rules": rules}, now=NOW)
    give(name, name, name, namespace)
    return signed_in(name)


def give(name: str, person: str, role: str, namespace: str = "") -> None:
    """Give a person the rights of a role, everywhere or in a namespace."""
    kind = "Role" if namespace else "ClusterRole"
    group = "rbac.authorization.k8s.io"
    bound = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": person}],
    }
    objects.create(f"{kind}Binding", namespace, bound, now=NOW)


@pytest.fixture
def operator() -> Client:
    return signed_in("anna", superuser=True)


@pytest.fixture
def viewer() -> Client:
    default_roles.reconcile(now=NOW)
    return signed_in("victor", group="stowage:viewer")


@pytest.fixture
def nobody() -> Client:
    return signed_in("nils")


@pytest.fixture
def cluster() -> None:
    create_node("n1", labels={ZONE: "a", "disktype": "ssd"}, allocatable={"nvidia.com/gpu": "8"})
    create_node("n2", labels={ZONE: "b"}, unschedulable=True)
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    create_node("n3", labels={ZONE: "a"}, taints=[taint])
    assert bind(new_pod("web-1", cpu="3500m"), "n1")
    assert bind(new_pod("web-2", cpu="400m"), "n3")


Part = Callable[..., str]


def text(answer: object) -> str:
    """Return the page's source."""
    return answer.content.decode()  # type: ignore[attr-defined]

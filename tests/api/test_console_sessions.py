"""The console's stream over a real socket: it ends with its session, and follows rights."""

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.test import Client

from clusterstate.actions import objects
from clusterstate.actions.cluster import default_roles
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from tests.api.serve import Server, request
from tests.clock import NOW

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 2.0
"""How long a stream may go on behind the end of its session; besides, a test's machine is slow."""


class Page:
    """An open stream; the cookie is that of a client."""

    def __init__(self, server: Server, client: Client, shown: str = "Node") -> None:
        cookie = f"stowage-session={client.cookies['stowage-session'].value}"
        self.socket = server.connect(seconds=20)
        self.socket.sendall(request("GET", f"/console/stream?live={shown}", cookie=cookie))
        self.text = b""
        self.until(b"event: hello")

    def until(self, mark: bytes) -> float:
        """Read until a text comes, and return how long that took."""
        began = time.monotonic()
        while mark not in self.text:
            part = self.socket.recv(1 << 16)
            assert part, self.text
            self.text += part
        return time.monotonic() - began

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


@pytest.fixture
def person() -> User:
    default_roles.reconcile(now=NOW)
    found: User = User.objects.create_user("anna", password="pass word 123")
    found.groups.add(Group.objects.get_or_create(name="stowage:viewer")[0])
    return found


@pytest.fixture
def browser(person: User) -> Client:
    client = Client(HTTP_ACCEPT="text/html")
    client.force_login(person, backend="django.contrib.auth.backends.ModelBackend")
    return client


def sign_out(client: Client, person: User) -> None:
    assert client.post("/console/sign-out").status_code == 302


def change_password(client: Client, person: User) -> None:
    person.set_password("another word 456")
    person.save()


def deactivate(client: Client, person: User) -> None:
    User.objects.filter(pk=person.pk).update(is_active=False)


def delete_session(client: Client, person: User) -> None:
    Session.objects.filter(pk=client.cookies["stowage-session"].value).delete()


def delete_person(client: Client, person: User) -> None:
    person.delete()


def let_the_session_expire(client: Client, person: User) -> None:
    Session.objects.update(expire_date=NOW)


ENDS = [
    sign_out, change_password, deactivate, delete_session, delete_person, let_the_session_expire,
]  # fmt: skip


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_stream_ends_with_its_session(
    server: Server, browser: Client, person: User, end: Callable[..., None]
) -> None:
    page = Page(server, browser)
    other = Client()
    other.force_login(
        User.objects.create_user("bob"), backend="django.contrib.auth.backends.ModelBackend"
    )
    beside = Page(server, other)
    end(browser, person)
    assert page.until(b"event: signed-out") < SECONDS + 1
    page.close()
    assert b"signed-out" not in beside.text
    if end is not let_the_session_expire:
        beside.until(b"event: alive")
    beside.close()


def take_from_group(person: User) -> None:
    person.groups.clear()


def delete_bindings(person: User) -> None:
    for one in items("ClusterRoleBinding"):
        if any(subject["name"] == "stowage:viewer" for subject in one.get("subjects") or ()):
            objects.delete("ClusterRoleBinding", "", one["metadata"]["name"], now=NOW)


def items(kind: str) -> list[Any]:
    return [decode_object(text) for text in list_page(kind).items]


@pytest.mark.parametrize("take", [take_from_group, delete_bindings], ids=lambda take: take.__name__)
def test_a_stream_tells_nothing_that_its_person_may_not_see_any_more(
    server: Server, browser: Client, person: User, take: Callable[..., None]
) -> None:
    page = Page(server, browser)
    objects.create("Node", "", {"metadata": {"name": "n1"}}, now=NOW)
    page.until(b'"Node"')
    take(person)
    deadline = time.monotonic() + SECONDS
    page.text = b""
    number = 1
    while time.monotonic() < deadline:
        number += 1
        objects.create("Node", "", {"metadata": {"name": f"n{number}"}}, now=NOW)
        page.socket.settimeout(0.1)
        try:
            page.text += page.socket.recv(1 << 16)
        except TimeoutError:
            continue
    page.socket.settimeout(20)
    page.text = b""
    objects.create("Node", "", {"metadata": {"name": "late"}}, now=NOW)
    page.until(b"event: alive")
    assert b'"Node"' not in page.text
    page.close()

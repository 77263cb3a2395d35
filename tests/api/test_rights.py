"""Answers that are open already end when their client loses the token or the right."""

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.test_watch import Stream
from tests.live import Service, pod
from tests.waiting import until

SOON = 15.0
"""Seconds: what a token may be remembered, two looks, and a busy machine."""


class Somebody:
    """A user with a token, and ways to lose it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.token = secrets.token_urlsafe(24)
        self.http_port = service.http_port
        self.name = f"reader-{secrets.token_hex(4)}"
        digest = hashlib.sha256(self.token.encode()).digest()
        self.run(
            "INSERT INTO auth_user (username, password, first_name, last_name, email, is_superuser,"
            " is_staff, is_active, date_joined) VALUES (%s, '!', '', '', '', false, false, true,"
            " now())", self.name,
        )  # fmt: skip
        self.run(
            "INSERT INTO api_token (digest, user_id, groups, name, created_at)"
            " SELECT %s, id, '{stowage:readers}', '', now() FROM auth_user WHERE username = %s",
            digest, self.name,
        )  # fmt: skip

    def run(self, statement: str, *parameters: Any) -> None:
        with self.service.database() as connection:
            connection.execute(statement, parameters)

    def lose(self, how: str) -> None:
        mine = "user_id = (SELECT id FROM auth_user WHERE username = %s)"
        self.run(
            {
                "revoked": f"DELETE FROM api_token WHERE {mine}",
                "expired": f"UPDATE api_token SET expires_at = now() WHERE {mine}",
                "another group": f"UPDATE api_token SET groups = '{{}}' WHERE {mine}",
                "disabled": "UPDATE auth_user SET is_active = false WHERE username = %s",
            }[how],
            self.name,
        )


@pytest.fixture
def somebody(live: Service) -> Iterator[Somebody]:
    one = Somebody(live)
    yield one
    one.run("DELETE FROM api_token WHERE user_id IN (SELECT id FROM auth_user WHERE username = %s)",
            one.name)  # fmt: skip
    one.run("DELETE FROM auth_user WHERE username = %s", one.name)


@pytest.fixture
def pods(live: Service) -> Iterator[str]:
    """The pods' path in a namespace of the test's own.

    A watch of another one may begin with what became of the pods of the test before: a list's
    version is below what a transaction that is still open may come before.
    """
    name = f"rights-{secrets.token_hex(4)}"
    assert live.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == 201
    yield f"/api/v1/namespaces/{name}/pods"
    assert live.request("DELETE", f"/api/v1/namespaces/{name}")[0] == 200


@pytest.mark.parametrize(
    ("how", "code"),
    [("revoked", 401), ("expired", 401), ("disabled", 401), ("another group", 403)],
)
def test_a_watch_ends_when_its_client_may_not_watch_any_more(
    live: Service, somebody: Somebody, pods: str, how: str, code: int
) -> None:
    path = f"{pods}?watch=true&timeoutSeconds=60&resourceVersion="
    path += live.request("GET", pods)[1]["metadata"]["resourceVersion"]
    other = Stream(live, path)
    stream = Stream(somebody, path)
    began = time.monotonic()
    somebody.lose(how)
    ((kind, status),) = stream.events()
    assert time.monotonic() - began < SOON
    assert (kind, status["code"], status["status"]) == ("ERROR", code, "Failure")
    if code == 403:
        assert f'User "{somebody.name}" cannot watch resource "pods"' in status["message"]
    name = f"rights-{secrets.token_hex(4)}"
    assert live.request("POST", pods, pod(name, schedulerName="nobody"))[0] == 201
    seen = other.next()
    assert (seen[0], seen[1]["metadata"]["name"]) == ("ADDED", name), "others' watches go on"
    other.close()


def test_a_watch_ends_with_the_binding_that_allowed_it(
    live: Service, somebody: Somebody, pods: str
) -> None:
    somebody.run(
        "UPDATE api_token SET groups = '{team}' WHERE user_id ="
        " (SELECT id FROM auth_user WHERE username = %s)", somebody.name,
    )  # fmt: skip
    path = "/apis/rbac.authorization.k8s.io" + pods.removeprefix("/api").replace(
        "pods", "rolebindings"
    )
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subjects = [{"kind": "User", "name": somebody.name}]
    body = {"metadata": {"name": somebody.name}, "roleRef": role, "subjects": subjects}
    assert live.request("POST", path, body)[0] == 201
    revision = live.request("GET", pods)[1]["metadata"]["resourceVersion"]
    watch = f"{pods}?watch=true&timeoutSeconds=60&resourceVersion={revision}"
    stream = until(lambda: _opened(somebody, watch), what="the right to hold in each web process")
    began = time.monotonic()
    assert live.request("DELETE", f"{path}/{somebody.name}")[0] == 200
    ((kind, status),) = stream.events()
    assert time.monotonic() - began < SOON
    assert (kind, status["code"]) == ("ERROR", 403)
    assert f'User "{somebody.name}" cannot watch resource "pods"' in status["message"]


def _opened(somebody: Any, path: str) -> Stream | None:
    """Return a watch, None while its client may not have it."""
    stream = Stream(somebody, path)
    if stream.answer.status == 200:
        return stream
    stream.close()
    return None


def test_a_read_that_waits_ends_too(live: Service, somebody: Somebody, pods: str) -> None:
    name = f"rights-{secrets.token_hex(4)}"
    assert live.request("POST", pods, pod(name, schedulerName="nobody"))[0] == 201
    found: list[Stream] = []
    path = f"{pods}/{name}?waitFor=PodScheduled&timeoutSeconds=60"
    asking = threading.Thread(target=lambda: found.append(Stream(somebody, path)))
    began = time.monotonic()
    asking.start()
    asking.join(1)
    assert asking.is_alive(), "it waits"
    somebody.lose("revoked")
    asking.join(30)
    assert time.monotonic() - began < SOON
    (stream,) = found
    assert stream.answer.status == 401
    assert json.loads(stream.answer.read())["reason"] == "Unauthorized"

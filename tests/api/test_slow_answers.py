"""A frozen advisor, or one that is busy with one user, holds up nobody who asks nothing."""

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from api import resources
from api.kinds import foretelling
from clusterstate.actions.cluster import bootstrap
from clusterstate.change_log import changes
from clusterstate.objects.values.errors import ServiceUnavailable
from scheduling.answers import advisor
from tests.api.conftest import make_token
from tests.api.serve import Server, answer, request
from tests.builders import make_pod
from tests.clock import NOW
from tests.creating import create_pod
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
PODS = "/api/v1/namespaces/default/pods"
SIMULATIONS = "/apis/stowage.dev/v1/simulations"


@pytest.fixture
def frozen(settings, redis_client) -> Iterator[advisor.Presence]:
    """An advisor that has said that it works, and answers nothing."""
    settings.SERVES = True
    advisor.client.cache_clear()
    bootstrap.add_missing(now=NOW)
    presence = advisor.Presence(seconds=120)
    presence.tell()
    yield presence
    _refuse_all(presence)
    advisor.client.cache_clear()


def _refuse_all(presence: advisor.Presence) -> None:
    """Let no request of this test take a thread of the server in the next one."""
    from api import asgi

    desk = advisor.Desk(presence.name, [advisor.SHORT, advisor.LONG], advisor.Turns(most=100))

    def refuse() -> bytes:
        raise ServiceUnavailable("the test is over")

    def over() -> bool:
        if (taken := desk.take()) is not None:
            desk.give(taken[0], refuse)
        return not asgi.application._questions.waiting

    until(over, what="no request that waits for an advisor")


@pytest.fixture
def token(frozen) -> str:
    return make_token("operator", ["system:masters"])


def body(name: str) -> bytes:
    return json.dumps(make_pod(name).manifest).encode()


@contextmanager
def asked(
    server: Server, path: str, token: str, bodies: list[bytes]
) -> Iterator[list[socket.socket]]:
    """Send requests whose answers are not read in the block."""
    with ExitStack() as stack:
        opened = []
        for one in bodies:
            connection = stack.enter_context(server.connect())
            connection.sendall(request("POST", path, token, one, content_type="application/json"))
            opened.append(connection)
        yield opened


def waiting(redis_client, name: str) -> int:
    return sum(redis_client.llen(key) for key in redis_client.keys(f"{name}*"))


def test_a_dry_run_that_waits_for_an_advisor_holds_up_no_follower(server, token, redis_client):
    with asked(server, f"{PODS}?dryRun=All", token, [body("tried")]) as (connection,):
        until(lambda: redis_client.llen(advisor.SHORT) == 1, what="the question")
        real = create_pod(make_pod("real").manifest, now=NOW)
        assert changes.watermark() >= real.revision
        code, headers, text = answer(connection)
    assert code == 201, text
    assert "no advisor gave an answer in time" in headers["warning"]
    assert server.ask("GET", f"{PODS}/tried", token)[0] == 404


def test_questions_that_wait_for_an_advisor_hold_up_no_write_and_no_other_asker(
    server, token, redis_client, monkeypatch
):
    """Any that did would have to wait longer than a request is kept waiting for a thread."""
    monkeypatch.setattr(foretelling, "_SECONDS", 60.0)
    simulation = json.dumps({"spec": {"base": "live", "pods": []}}).encode()
    other = make_token("other", ["system:masters"])
    with (
        asked(server, f"{PODS}?dryRun=All", token, [body(f"tried-{n}") for n in range(4)]),
        asked(server, SIMULATIONS, token, [simulation] * 8),
    ):
        until(lambda: waiting(redis_client, advisor.SHORT) >= 2, what="questions")
        for number in range(3):
            made = server.ask(
                "POST", PODS, other, body(f"real-{number}"), content_type="application/json"
            )
            assert made[0] == 201, made[2]
            label = b'{"metadata":{"labels":{"a":"b"}}}'
            merge = "application/merge-patch+json"
            path = f"{PODS}/real-{number}"
            assert server.ask("PATCH", path, other, label, content_type=merge)[0] == 200
        with asked(server, SIMULATIONS, other, [simulation]):
            key = f"{advisor.LONG.removesuffix('long')}of:other"
            until(lambda: redis_client.llen(key) == 1, what="the other's question")


def test_who_asks_an_advisor_waits_in_the_lane_for_that():
    """A viewset whose module asks says so; what it says decides about the lane."""
    for path, viewset, _ in resources.router.served(""):
        module = sys.modules[viewset.__module__]
        if hasattr(module, "advisor") and viewset.__name__ not in NEVER_ASK:
            assert viewset.asks, f"{viewset.__name__} may ask an advisor: say asks = True"
        example = "/" + path.replace("{", "").replace("}", "")
        assert resources.asks(example) == viewset.asks, path


NEVER_ASK = {
    *("BrakesViewSet", "ConfigurationViewSet", "EvictionListViewSet"),
    *("RuntimeClassNodesViewSet", "UsageViewSet", "ZonesViewSet"),
}
"""They stand beside viewsets that do."""

"""A client finds in each answer what it was told is done, whoever else is still writing."""

import threading
import time

import pytest
from django.db import transaction

from clusterstate.change_log import actors, changes
from clusterstate.database import sql
from tests.api.conftest import Api
from tests.builders import make_node, make_pod
from tests.clusterstate.support import Worker

pytestmark = pytest.mark.django_db(transaction=True)

SIMULATIONS = "/apis/stowage.dev/v1/simulations"
TAINT = {"spec": {"taints": [{"key": "closed", "effect": "NoSchedule"}]}}


class Holder:
    """Another connection in a transaction that has taken a revision and has not committed."""

    def __init__(self):
        self.opened, self.done = threading.Event(), threading.Event()
        self.worker = Worker(self.hold)
        assert self.opened.wait(10)

    def hold(self):
        with transaction.atomic():
            sql.fetch(
                f"{changes.WITH_GATE} SELECT {changes.NEXT} FROM gate WHERE opened = 1",
                actors.gate(),
            )
            self.opened.set()
            assert self.done.wait(30)

    def let_go(self):
        self.done.set()
        self.worker.result()


@pytest.fixture
def holder(api):
    """A node that was asked about once, and a transaction that is open since."""
    api.post("/api/v1/nodes", make_node("node-a").manifest).ok(201)
    assert ask(api) == ["scheduled"]
    holder = Holder()
    yield holder
    holder.let_go()


def ask(api):
    document = {
        "apiVersion": "stowage.dev/v1", "kind": "Simulation",
        "spec": {"pods": [make_pod("p").in_namespace("ns").manifest]},
    }  # fmt: skip
    found = api.post(SIMULATIONS, document).ok(201)["status"]["results"]
    return [result["status"] for result in found]


def later(api: Api, question):
    """Ask on a thread; it must not be answered at once."""
    worker = Worker(lambda: question(api))
    threading.Event().wait(0.05)
    assert worker.is_alive(), "answered without what was acknowledged"
    return worker


def test_a_simulation_knows_an_acknowledged_taint(api, holder):
    api.patch("/api/v1/nodes/node-a", TAINT).ok()
    answer = later(api, ask)
    holder.let_go()
    assert answer.result() == ["unschedulable"]


def test_a_simulation_is_refused_when_what_was_acknowledged_cannot_be_read(api, holder):
    api.patch("/api/v1/nodes/node-a", TAINT).ok()
    document = {"apiVersion": "stowage.dev/v1", "kind": "Simulation", "spec": {"pods": []}}
    refused = api.post(SIMULATIONS, document)
    status = refused.fails(429, "TooManyRequests")
    assert "a write is under way" in status["message"]
    assert refused.headers["Retry-After"] == "1"


def test_nobody_waits_for_what_nobody_was_told(api, holder):
    before = time.monotonic()
    assert ask(api) == ["scheduled"]
    assert api.get("/api/v1/nodes").ok()["items"]
    assert time.monotonic() - before < 0.9


def test_a_list_has_an_acknowledged_pod(api, holder):
    path = "/api/v1/namespaces/ns/pods"
    api.post(path, make_pod("mine").in_namespace("ns").manifest).ok(201)
    answer = later(api, lambda api: api.get(path).ok()["items"])
    holder.let_go()
    assert [item["metadata"]["name"] for item in answer.result()] == ["mine"]


def test_a_list_is_given_although_something_is_lacking_when_the_wait_is_over(api, holder):
    """A writer that is stuck must not take every list away."""
    path = "/api/v1/namespaces/ns/pods"
    api.post(path, make_pod("mine").in_namespace("ns").manifest).ok(201)
    assert api.get(path).ok()["items"] == []
    holder.let_go()
    assert len(api.get(path).ok()["items"]) == 1

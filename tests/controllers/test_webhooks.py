"""Webhooks: what receivers are sent, signed how, and what becomes of it when they are away."""

import base64
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from clusterstate.actions import brakes, objects, plans, webhooks
from clusterstate.actions.past import history
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.rules.webhook_targets import parse
from clusterstate.objects.values.actor import KUBE_SCHEDULER, acting
from clusterstate.processes import steady_clock
from clusterstate.queries.evictions.brakes import ZONE, Share
from clusterstate.queries.people import webhooks as queries
from clusterstate.queries.pods import find_pod_id
from scheduling.controllers.webhooks import client, delivery
from tests.clock import NOW
from tests.followers.test_aside import kept, spoil

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "whsec_of_the_test"


class Receiver:
    """A program that is told; answers with ``codes`` one after the other, the last for ever."""

    def __init__(self) -> None:
        self.codes = [200]
        self.retry_after = ""
        self.got: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
                codes = receiver.codes
                self.send_response(codes.pop(0) if len(codes) > 1 else codes[0])
                self.send_header("location", "http://127.0.0.1:1/elsewhere")
                self.send_header("content-length", "0")
                if receiver.retry_after:
                    self.send_header("retry-after", receiver.retry_after)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?x=1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def events(self) -> list[Any]:
        """Return every event that came, in order."""
        found = []
        for headers, body in self.got:
            decoded = json.loads(body)
            found += decoded if headers["content-type"].endswith("batch+json") else [decoded]
        return found

    def subjects(self) -> list[str]:
        return [one["subject"] for one in self.events()]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.WEBHOOK_TARGETS = ["127.0.0.0/8"]
    found = Receiver()
    yield found
    found.close()


@pytest.fixture
def hook(receiver: Receiver) -> Any:
    objects.create("Node", "", {"metadata": {"name": "n1"}}, now=NOW)

    def make(name: str = "hook", **spec: Any) -> int:
        spec = {"url": receiver.url, "types": ["bind"], **spec}
        return webhooks.create(name, spec, SECRET, now=steady_clock.now()).id

    return make


def bound(name: str, **labels: str) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}
    metadata = {"name": name, "labels": labels}
    objects.create("Pod", "default", {"metadata": metadata, "spec": spec}, now=NOW)
    pod_id = find_pod_id("default", name)
    assert pod_id is not None
    with acting(KUBE_SCHEDULER):
        bind_pods([Binding(pod_id, "n1")], snapshot_revision=1 << 40, now=NOW)


def let_time_pass(number: int) -> None:
    sql.run("UPDATE webhook SET next_at = NULL WHERE id = %s::bigint", (number,))


def test_a_receiver_is_sent_signed_cloud_events(hook: Any, receiver: Receiver) -> None:
    number = hook()
    bound("a")
    assert delivery.deliver(number) == 1
    headers, body = receiver.got[0]
    assert headers["content-type"] == "application/cloudevents+json"
    assert json.loads(body)["type"] == "dev.stowage.pod.bound"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert abs(int(headers["webhook-timestamp"]) - steady_clock.now().timestamp()) < 60
    found = queries.by_id(number)
    assert found is not None
    assert (found.delivered, found.failures) == (1, 0)
    assert delivery.deliver(number) == 0
    assert len(receiver.got) == 1


def test_events_come_in_order_and_only_those_that_are_wanted(hook: Any, receiver: Receiver) -> None:
    number = hook(labelSelector="app=x")
    for place, app in enumerate("xyx"):
        bound(f"p{place}", app=app)
    assert delivery.deliver_due(steady_clock.now()) == 2
    assert receiver.subjects() == ["default/p0", "default/p2"]
    assert delivery.deliver(number) == 0


def test_one_of_a_node_is_told_of_the_node_and_its_pods(hook: Any, receiver: Receiver) -> None:
    number = hook(types=["bind", "change"], kinds=["Node"], node="n1", maxBatch=10)
    for name in ("n2", "n3"):
        objects.create("Node", "", {"metadata": {"name": name}}, now=NOW)
    bound("a")
    objects.delete("Node", "", "n1", now=NOW)
    assert delivery.deliver(number) == 2
    assert receiver.subjects() == ["default/a", "n1"]


def test_several_events_are_sent_together_where_that_is_wanted(
    hook: Any, receiver: Receiver
) -> None:
    number = hook(maxBatch=2, types=["bind", "change"], kinds=["Node"])
    for place in range(3):
        bound(f"p{place}")
    objects.create("Node", "", {"metadata": {"name": "n2"}}, now=NOW)
    assert delivery.deliver(number) == 4
    assert receiver.subjects() == ["default/p0", "default/p1", "default/p2", "n2"]
    assert len(receiver.got) == 2
    assert receiver.got[0][0]["content-type"] == "application/cloudevents-batch+json"


@pytest.mark.parametrize("code", [500, 503, 429, 408, 302, 401, 403, 404, 405])
def test_what_failed_is_tried_again_later_with_the_same_id(
    hook: Any, receiver: Receiver, code: int
) -> None:
    number = hook()
    receiver.codes = [code, code, 200]
    bound("a")
    bound("b")
    waits = []
    for _ in range(2):
        assert delivery.deliver(number) == 0
        found = queries.by_id(number)
        assert found is not None
        assert found.next_at is not None
        waits.append(found.next_at - steady_clock.now())
        assert delivery.deliver(number) == 0, "not before its time"
        let_time_pass(number)
    assert timedelta(0) < waits[0] < waits[1]
    assert delivery.deliver(number) == 2
    ids = [one["id"] for one in receiver.events()]
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert receiver.subjects()[2:] == ["default/a", "default/b"]
    tries, _ = queries.deliveries(number, limit=10)
    assert [(one.outcome, one.attempt, one.code) for one in tries] == [
        ("delivered", 1, 200), ("delivered", 3, 200), ("failed", 2, code), ("failed", 1, code),
    ]  # fmt: skip


@pytest.mark.parametrize("code", [400, 409, 413, 422])
def test_what_a_receiver_refuses_for_good_holds_up_nothing(
    hook: Any, receiver: Receiver, code: int
) -> None:
    number = hook()
    receiver.codes = [code, 200]
    bound("a")
    bound("b")
    assert delivery.deliver(number) == 1
    assert receiver.subjects() == ["default/a", "default/b"]
    found = queries.by_id(number)
    assert found is not None
    assert (found.delivered, found.refused) == (1, 1)


def test_of_a_batch_that_is_refused_only_the_event_that_is_meant_is_lost(
    hook: Any, receiver: Receiver
) -> None:
    number = hook(maxBatch=10)
    receiver.codes = [413, 200, 422, 200]
    for name in ("a", "b", "c"):
        bound(name)
    assert delivery.deliver(number) == 2
    assert receiver.subjects()[3:] == ["default/a", "default/b", "default/c"]
    found = queries.by_id(number)
    assert found is not None
    assert (found.delivered, found.refused) == (2, 1)
    tries, _ = queries.deliveries(number, limit=10)
    assert [(one.outcome, one.events) for one in reversed(tries)] == [
        ("delivered", 1), ("refused", 1), ("delivered", 1),
    ]  # fmt: skip


def test_a_receiver_that_is_gone_is_sent_nothing_until_it_is_resumed(
    hook: Any, receiver: Receiver
) -> None:
    number = hook()
    receiver.codes = [410, 200]
    bound("a")
    assert delivery.deliver(number) == 0
    found = queries.by_id(number)
    assert found is not None
    assert found.spec["suspended"] is True
    let_time_pass(number)
    assert delivery.deliver(number) == 0
    webhooks.update("hook", {**found.spec, "suspended": False}, None, version=found.version)
    assert delivery.deliver(number) == 1
    assert receiver.subjects() == ["default/a", "default/a"]


def test_a_receiver_is_left_alone_as_long_as_it_asks(hook: Any, receiver: Receiver) -> None:
    number = hook()
    receiver.codes = [503]
    for asked, longest in (("120", 121), ("99999999", 3601), ("tomorrow", 60), ("-5", 60)):
        receiver.retry_after = asked
        bound(f"a{asked.lower()}")
        let_time_pass(number)
        before = steady_clock.now()
        assert delivery.deliver(number) == 0
        found = queries.by_id(number)
        assert found is not None
        assert found.next_at is not None
        waits = (found.next_at - before).total_seconds()
        assert waits <= longest + 60  # a slow machine
        assert waits >= min(int(asked), 3600) if asked.isdigit() else waits < 60


def test_a_kill_after_the_answer_delivers_the_event_again_and_loses_none(
    hook: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = hook()
    bound("a")
    bound("b")

    def killed(*_: Any, **__: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(webhooks, "accepted", killed)
        with pytest.raises(KeyboardInterrupt):
            delivery.deliver(number)
    assert delivery.deliver(number) == 2
    ids = [one["id"] for one in receiver.events()]
    assert ids[0] == ids[1]
    assert receiver.subjects() == ["default/a", "default/a", "default/b"]


def test_a_receiver_that_is_not_there_is_told_of_in_the_log(hook: Any, receiver: Receiver) -> None:
    number = hook(url="http://127.0.0.1:1/")
    bound("a")
    assert delivery.deliver(number) == 0
    ((tried,), _) = queries.deliveries(number, limit=10)
    assert (tried.outcome, tried.code) == ("failed", 0)
    assert "refused" in tried.error


def test_nothing_is_sent_where_nothing_may_be(hook: Any, receiver: Receiver, settings: Any) -> None:
    number = hook()
    bound("a")
    for targets in ([], ["public"], ["10.0.0.0/8", "hooks.example"]):
        settings.WEBHOOK_TARGETS = targets
        let_time_pass(number)
        assert delivery.deliver(number) == 0
    assert receiver.got == []
    tries, _ = queries.deliveries(number, limit=10)
    assert all("STOWAGE_WEBHOOK_TARGETS" in one.error for one in tries)


def test_a_receiver_that_answers_drop_by_drop_is_given_up(
    hook: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SECONDS", 0.3)
    listening, done = threading.Event(), threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        listening.set()
        connection, _ = server.accept()
        with connection:
            while not done.wait(0.05):
                try:
                    connection.sendall(b"H")
                except OSError:
                    return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    assert listening.wait(10)
    number = hook(url=f"http://127.0.0.1:{server.getsockname()[1]}/")
    bound("a")
    try:
        assert delivery.deliver(number) == 0
    finally:
        done.set()
        thread.join(10)
        server.close()
    ((tried,), _) = queries.deliveries(number, limit=10)
    assert (tried.outcome, tried.error) == ("failed", "no answer in time")
    assert tried.milliseconds < 5000


@pytest.mark.parametrize("slow", ["resolver", "handshake"])
def test_every_part_of_a_delivery_is_under_the_one_time_limit(
    hook: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, settings: Any, slow: str
) -> None:
    monkeypatch.setattr(client, "SECONDS", 0.3)
    done = threading.Event()
    url = "http://hooks.example/"
    settings.WEBHOOK_TARGETS = ["hooks.example", "127.0.0.0/8"]
    server = socket.create_server(("127.0.0.1", 0))  # takes connections, and never says a word
    if slow == "resolver":
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: done.wait(20) and [])
    else:
        url = f"https://127.0.0.1:{server.getsockname()[1]}/"
    try:
        answer = client.post(
            parse(url), b"{}", media_type="a/b", message_id="1", secret=SECRET, timestamp=1
        )
    finally:
        done.set()
        server.close()
    assert (answer.code, answer.error) == (0, "no answer in time")
    assert answer.seconds < 5


def test_an_object_of_which_no_event_can_be_made_keeps_no_other_event_back(
    hook: Any, receiver: Receiver
) -> None:
    number = hook(types=["change"], kinds=["Pod"])
    for name in ("a", "bad", "c"):
        bound(name)
    spoil("Pod", "bad", "\x01", "")
    let_time_pass(number)
    delivery.deliver(number)
    assert {"default/a", "default/c"} <= set(receiver.subjects())
    assert kept(delivery.NAME) == [("Pod", "bad")]
    found = queries.by_id(number)
    assert found is not None
    assert found.cursor >= changes.watermark() - 10


def test_what_the_log_lost_is_counted_and_the_rest_is_delivered(
    hook: Any, receiver: Receiver
) -> None:
    number = hook()
    bound("lost")
    history.trim(now=NOW, keep_seconds=-3600)
    bound("kept")
    delivery.deliver(number)
    assert receiver.subjects() == ["default/kept"]
    found = queries.by_id(number)
    assert found is not None
    assert found.lost == 1


def test_everything_after_a_revision_is_delivered_again(hook: Any, receiver: Receiver) -> None:
    number = hook()
    found = queries.by_id(number)
    assert found is not None
    bound("a")
    delivery.deliver(number)
    webhooks.replay("hook", found.cursor)
    assert delivery.deliver(number) == 1
    assert receiver.subjects() == ["default/a", "default/a"]


def test_one_that_is_suspended_is_told_later(hook: Any, receiver: Receiver) -> None:
    number = hook(suspended=True)
    bound("a")
    assert delivery.deliver_due(steady_clock.now()) == 0
    assert delivery.deliver(number) == 0
    spec = {"url": receiver.url, "types": ["bind"]}
    webhooks.update("hook", spec, None, version=1)
    assert delivery.deliver_due(steady_clock.now()) == 1


def test_old_tries_go(hook: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    number = hook()
    for name in ("a", "b", "c"):
        bound(name)
    delivery.deliver(number)
    monkeypatch.setattr(webhooks, "KEPT_EACH", 2)
    assert webhooks.trim(now=steady_clock.now()) == 1
    assert webhooks.trim(now=steady_clock.now() + timedelta(days=8)) == 2


def test_plans_and_brakes_are_told_and_no_event_that_a_client_made_up(
    receiver: Receiver, hook: Any
) -> None:
    """Who selects by what they have not is not told of them."""
    number = hook(types=["plan", "brake"])
    gold = hook("gold", types=["plan", "brake"], labelSelector="tier=gold")
    plan = plans.store({"spec": {}}, {"steps": []}, by="ann", now=NOW)
    plans.begin(plan.name, by="ann", impersonator="", now=NOW)
    share = Share(ZONE, "a", 10, 20)
    brakes.settle([(share, 40.0)], now=NOW)
    brakes.approve("zone.a", by="ann", now=NOW)
    brakes.settle([], now=NOW + timedelta(hours=2))
    about = {"kind": "Plan", "name": "plan-1", "apiVersion": "stowage.dev/v1"}
    forged = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "PlanDone"}
    objects.create("Event", "default", {**forged, "type": "Normal"}, now=NOW)
    assert delivery.deliver(number) == 4
    assert delivery.deliver(gold) == 0
    told = [(one["type"].removeprefix("dev.stowage."), one["subject"]) for one in receiver.events()]
    assert told == [
        ("plan.begun", plan.name),
        ("brake.held", "zone.a"),
        ("brake.approved", "zone.a"),
        ("brake.released", "zone.a"),
    ]
    first = receiver.events()[0]["data"]
    assert (first["kind"], first["message"]) == ("Plan", "ann applied it: 0 steps")


def test_what_a_client_made_of_an_event_of_a_plan_is_not_told_as_the_services(
    receiver: Receiver, hook: Any
) -> None:
    number = hook(types=["plan"])
    plan = plans.store({"spec": {}}, {"steps": []}, by="ann", now=NOW)
    plans.begin(plan.name, by="ann", impersonator="", now=NOW)
    ((namespace, name),) = sql.fetch("SELECT namespace, name FROM event", ())

    def changed(event: Any) -> Any:
        return {**event, "reason": "PlanDone", "message": "all is well"}

    objects.update("Event", namespace, name, changed, now=NOW)
    assert delivery.deliver(number) == 0
    assert receiver.events() == []

"""The stream of events (SSE) of the web process's own server: what it tells, and where it ends."""

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from clusterstate.actions import brakes, objects, plans
from clusterstate.actions.past import history
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.database import sql
from clusterstate.objects.values.actor import KUBE_SCHEDULER, acting
from clusterstate.queries.evictions.brakes import ZONE, Share
from clusterstate.queries.pods import find_pod_id
from tests.api.conftest import make_token
from tests.api.serve import Server, request
from tests.clock import NOW

PATH = "/apis/stowage.dev/v1/events/stream"


class Stream:
    """An open stream; ``next`` reads one message with data."""

    def __init__(self, server: Server, token: str, query: str = "", **headers: str) -> None:
        self.socket = server.connect()
        self.socket.sendall(request("GET", f"{PATH}?{query}", token, **headers))
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = {}
        while line := self.file.readline().strip():
            name, _, value = line.decode().partition(": ")
            self.headers[name.lower()] = value
        self.text = b""

    def _chunk(self) -> bool:
        size = int(self.file.readline() or b"0", 16)
        self.text += self.file.read(size)
        self.file.readline()
        return size > 0

    def message(self) -> dict[str, str] | None:
        """Return the fields of the next message, ``None`` at the end."""
        while b"\n\n" not in self.text:
            if not self._chunk():
                return None
        head, _, self.text = self.text.partition(b"\n\n")
        return dict(line.split(": ", 1) for line in head.decode().splitlines())

    def next(self) -> dict[str, Any]:
        """Return the next message that has data, decoded."""
        while (found := self.message()) is not None:
            if "data" in found:
                return {**found, "data": json.loads(found["data"])}
        raise AssertionError("the stream ended")

    def ready(self) -> int:
        """Read until the first id, and return it: what comes later is told."""
        while (found := self.message()) is not None:
            if "id" in found:
                return int(found["id"])
        raise AssertionError("the stream ended")

    def refusal(self) -> tuple[int, str]:
        """Return the code and the reason of the Status that came instead of a stream."""
        text = self.file.read(int(self.headers["content-length"]))
        return self.status, json.loads(text)["reason"]

    def rest(self) -> list[dict[str, Any]]:
        found = []
        while (one := self.message()) is not None:
            if "data" in one:
                found.append({**one, "data": json.loads(one["data"])})
        return found

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@pytest.fixture
def token(server: Server) -> str:
    return make_token("operator", ["system:masters"])


@pytest.fixture
def streams(server: Server, token: str) -> Iterator[Any]:
    opened: list[Stream] = []

    def opening(query: str = "", given: str = "", **headers: str) -> Stream:
        opened.append(Stream(server, given or token, query, **headers))
        return opened[-1]

    yield opening
    for one in opened:
        one.close()


def make_node(name: str) -> None:
    objects.create("Node", "", {"metadata": {"name": name}}, now=NOW)


def make_pod(name: str, **labels: str) -> int:
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}
    metadata = {"name": name, "labels": labels}
    objects.create("Pod", "ns", {"metadata": metadata, "spec": spec}, now=NOW)
    found = find_pod_id("ns", name)
    assert found is not None
    return found


def bind(pod_id: int, node: str) -> None:
    with acting(KUBE_SCHEDULER):
        bind_pods([Binding(pod_id, node)], snapshot_revision=1 << 40, now=NOW)


@pytest.fixture
def namespace(server: Server) -> None:
    objects.create("Namespace", "", {"metadata": {"name": "ns"}}, now=NOW)


@pytest.mark.usefixtures("namespace")
def test_what_happens_to_pods_is_told_as_cloud_events(streams: Any) -> None:
    stream = streams()
    stream.ready()
    assert stream.headers["content-type"].startswith("text/event-stream")
    make_node("n1")
    waiting, placed = make_pod("waiting"), make_pod("placed", app="a")
    refusal = Unschedulable(pod_id=waiting, message="0/1 nodes are available", rejected_by=())
    with acting(KUBE_SCHEDULER):
        set_unschedulable([refusal], now=NOW)
    bind(placed, "n1")
    objects.delete("Pod", "ns", "placed", now=NOW)
    first, second = stream.next(), stream.next()
    assert [first["event"], second["event"]] == ["unschedulable", "bind"]
    assert first["data"]["data"]["message"] == "0/1 nodes are available"
    event = second["data"]
    assert event["specversion"] == "1.0"
    assert event["type"] == "dev.stowage.pod.bound"
    assert event["subject"] == "ns/placed"
    assert event["id"] == f"{second['id']}-bind"
    assert uuid.UUID(event["source"].removeprefix("urn:uuid:"))
    assert (event["data"]["nodeName"], event["data"]["labels"]) == ("n1", {"app": "a"})


@pytest.mark.usefixtures("namespace")
def test_a_pod_that_waits_for_the_same_reason_is_told_of_once(streams: Any) -> None:
    """Also when its spec was changed meanwhile, and it was tried and refused again."""
    stream = streams("types=unschedulable,bind")
    stream.ready()
    make_node("n1")
    pod_id = make_pod("p")

    def refuse(message: str) -> None:
        assert set_unschedulable([Unschedulable(pod_id=pod_id, message=message)], now=NOW)

    def change(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "spec": {**old["spec"], "activeDeadlineSeconds": 9}}

    refuse("no room")
    objects.update("Pod", "ns", "p", change, now=NOW)
    refuse("no room")
    refuse("no port")
    bind(pod_id, "n1")
    told = [stream.next() for _ in range(3)]
    assert [one["event"] for one in told] == ["unschedulable", "unschedulable", "bind"]
    assert [one["data"]["data"]["message"] for one in told[:2]] == ["no room", "no port"]


@pytest.mark.usefixtures("namespace")
def test_plans_and_brakes_are_told_to_who_may_watch_them(streams: Any) -> None:
    stream = streams("types=plan,brake,bind")
    stream.ready()
    named = streams("types=plan,brake&name=zone.a")
    named.ready()
    assert streams("types=brake", given=make_token("stranger", [])).status == 403
    plan = plans.store({"spec": {}}, {"steps": []}, by="ann", now=NOW)
    plans.begin(plan.name, by="ann", impersonator="", now=NOW)
    brakes.settle([(Share(ZONE, "a", 10, 20), 40.0)], now=NOW)
    make_node("n1")
    bind(make_pod("placed"), "n1")
    told = [stream.next() for _ in range(3)]
    assert [one["event"] for one in told] == ["plan", "brake", "bind"]
    assert told[0]["data"]["type"] == "dev.stowage.plan.begun"
    assert told[0]["data"]["subject"] == plan.name
    assert named.next()["data"]["type"] == "dev.stowage.brake.held"

    ((name,),) = sql.fetch("SELECT name FROM event WHERE involved_kind = 'Plan'", ())
    objects.update("Event", "default", name, lambda one: {**one, "reason": "PlanDone"}, now=NOW)
    since = int(told[0]["id"]) - 1
    again = streams(f"types=plan,brake&timeoutSeconds=1&since={since}").rest()
    types = [one["data"]["type"] for one in again]
    assert "dev.stowage.brake.held" in types
    assert "dev.stowage.plan.done" not in types, "a client's words"


@pytest.mark.usefixtures("namespace")
def test_a_stream_goes_on_after_the_id_that_came_last(streams: Any) -> None:
    make_node("n1")
    stream = streams()
    stream.ready()
    bind(make_pod("a"), "n1")
    last = stream.next()["id"]
    stream.close()
    bind(make_pod("b"), "n1")
    bind(make_pod("c"), "n1")
    again = streams("timeoutSeconds=1", last_event_id=last)
    assert [one["data"]["subject"] for one in again.rest()] == ["ns/b", "ns/c"]
    since = streams(f"timeoutSeconds=1&since={last}")
    assert [one["data"]["subject"] for one in since.rest()] == ["ns/b", "ns/c"]


@pytest.mark.usefixtures("namespace")
def test_a_stream_that_broke_between_two_messages_of_one_revision_tells_both_again(
    streams: Any,
) -> None:
    make_node("n1")
    pod = make_pod("a")
    stream = streams("types=bind,change&kinds=Pod")
    before = stream.ready()
    bind(pod, "n1")
    first = stream.next()
    assert (first["event"], "id" in first) == ("bind", False), "the next one is of this revision"
    stream.close()
    again = streams("types=bind,change&kinds=Pod&timeoutSeconds=1", last_event_id=str(before))
    told = again.rest()
    assert [one["event"] for one in told] == ["bind", "change"]
    assert [one["data"]["id"].split("-")[0] for one in told] == [told[1]["id"]] * 2


@pytest.mark.usefixtures("namespace")
def test_changes_of_several_kinds_come_in_order_of_revision(streams: Any) -> None:
    stream = streams("types=change&kinds=Node,Pod,Namespace")
    begin = stream.ready()
    for number in range(4):
        make_node(f"n{number}")
        make_pod(f"p{number}")
    found = [stream.next() for _ in range(8)]
    ids = [int(one["id"]) for one in found]
    assert ids == sorted(set(ids))
    assert ids[0] > begin
    subjects = [one["data"]["subject"] for one in found]
    assert subjects == [s for n in range(4) for s in (f"n{n}", f"ns/p{n}")]
    assert found[0]["data"]["type"] == "dev.stowage.object.added"
    assert found[0]["data"]["data"]["object"]["metadata"]["name"] == "n0"


@pytest.mark.usefixtures("namespace")
def test_only_what_the_filters_choose_is_told(streams: Any) -> None:
    since = streams("timeoutSeconds=30").ready()
    for node in ("n1", "n2"):
        make_node(node)
    objects.create("Namespace", "", {"metadata": {"name": "other"}}, now=NOW)
    bind(make_pod("a", app="x"), "n1")
    bind(make_pod("b", app="y"), "n2")

    def subjects(query: str) -> list[str]:
        stream = streams(f"timeoutSeconds=1&since={since}&{query}")
        return [one["data"]["subject"] for one in stream.rest()]

    assert subjects("node=n2") == ["ns/b"]
    assert subjects("types=change&kinds=Node&node=n2") == ["n2"]
    assert subjects("types=change&kinds=Node&node=n2&labelSelector=app%3Dx") == []
    assert subjects("labelSelector=app%3Dx") == ["ns/a"]
    assert subjects("namespace=other") == []
    assert subjects("types=change&kinds=Pod&name=a") == ["ns/a", "ns/a"]
    assert subjects("types=change&kinds=Pod&name=a&latest=true") == ["ns/a"]


@pytest.mark.usefixtures("namespace")
def test_who_may_not_watch_pods_is_refused_and_only_own_namespaces_are_told(
    server: Server, streams: Any
) -> None:
    stranger = make_token("stranger", [])
    reader = make_token("reader", ["stowage:readers"])
    assert streams(given=stranger).status == 403
    assert streams(given=reader).status == 200
    assert streams("types=change&kinds=Secret", given=reader).status == 403
    every = streams("types=change&timeoutSeconds=1", given=reader)
    since = every.ready()
    secret = {"metadata": {"name": "s"}, "stringData": {"a": "hidden"}}
    objects.create("Secret", "ns", secret, now=NOW)
    make_node("n1")
    found = streams(f"types=change&timeoutSeconds=1&since={since}", given=reader).rest()
    assert [one["data"]["subject"] for one in found] == ["n1"]


@pytest.mark.parametrize(
    "query", ["types=no", "kinds=Node", "types=change&kinds=No", "since=x", "odd=1",
              "labelSelector=%3D%3D"]
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(streams: Any, query: str) -> None:
    assert streams(query).refusal() == (400, "BadRequest")


@pytest.mark.usefixtures("namespace")
def test_a_revision_that_the_log_no_longer_has_is_gone(streams: Any) -> None:
    make_node("n1")
    make_node("n2")
    trimmed = history.trim(now=NOW, keep_seconds=-3600).trimmed_revision
    assert streams(f"since={trimmed - 1}").refusal() == (410, "Expired")


@pytest.mark.usefixtures("namespace")
def test_a_client_that_does_not_read_is_told_why_its_stream_ends(
    server: Server, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.streaming.streams.SLOW_SECONDS", 0.2)
    connection = server.connect(receive_buffer=4096)
    try:
        query = "types=change&kinds=ConfigMap"
        connection.sendall(request("GET", f"{PATH}?{query}", token))
        assert b"text/event-stream" in connection.recv(1024)
        for number in range(12):
            data = {"a": f"{number}" * 500_000}
            body = {"metadata": {"name": f"c{number}"}, "data": data}
            objects.create("ConfigMap", "ns", body, now=NOW)
        text, until = b"", time.monotonic() + 30
        connection.settimeout(1)
        time_to_read = time.monotonic() + 1
        while time.monotonic() < until:
            if time.monotonic() < time_to_read:
                continue
            try:
                part = connection.recv(1 << 20)
            except TimeoutError:
                continue
            if not part:
                break
            text += part
        assert b"event: end" in text
        assert b"did not read" in text
    finally:
        connection.close()


def test_a_stream_is_read_and_nothing_else(server: Server, token: str) -> None:
    with server.connect() as connection:
        connection.sendall(request("POST", PATH, token, b"{}"))
        assert connection.recv(64).startswith(b"HTTP/1.1 405 ")

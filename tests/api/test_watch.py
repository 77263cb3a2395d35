"""Watches and waiting reads against the running service."""

import base64
import http.client
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from api.streaming import waiting
from tests.api.conftest import TABLE
from tests.live import Service, node, pod

pytestmark = [pytest.mark.slow, pytest.mark.db]

NAMESPACES = "/api/v1/namespaces"


class Cluster:
    """A namespace of its own in the running service."""

    def __init__(self, service: Service, name: str) -> None:
        self.service = service
        self.name = name
        self.pods = f"{NAMESPACES}/{name}/pods"

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        status, answer = self.service.request(method, path, body, **options)
        assert status < 300, (status, answer)
        return answer

    def pod(self, name: str, **spec: Any) -> Any:
        spec.setdefault("schedulerName", "nobody")
        return self.call("POST", self.pods, pod(name, **spec))

    def label(self, name: str, **labels: str | None) -> Any:
        patch = {"metadata": {"labels": labels}}
        path = f"{self.pods}/{name}"
        return self.call("PATCH", path, patch, content_type="application/merge-patch+json")

    def delete(self, name: str) -> None:
        self.call("DELETE", f"{self.pods}/{name}?gracePeriodSeconds=0")

    def revision(self) -> str:
        return self.call("GET", self.pods)["metadata"]["resourceVersion"]

    def watch(self, query: str = "", **options: Any) -> "Stream":
        return Stream(self.service, f"{self.pods}?watch=true&{query}", **options)


class Stream:
    """An open watch; ``events`` reads to its end, ``next`` one event."""

    def __init__(self, service: Service, path: str, accept: str = "application/json") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", service.http_port, timeout=20)
        started = time.monotonic()
        headers = {"Authorization": f"Bearer {service.token}", "Accept": accept}
        self.connection.request("GET", path, headers=headers)
        self.answer = self.connection.getresponse()
        self.seconds_to_headers = time.monotonic() - started

    def next(self) -> tuple[str, Any]:
        line = self.answer.readline()
        assert line.endswith(b"\n"), line
        event = json.loads(line)
        return event["type"], event["object"]

    def up_to(self, kind: str) -> list[tuple[str, Any]]:
        """Return the events up to the first of a kind."""
        events = [self.next()]
        while events[-1][0] != kind:
            events.append(self.next())
        return events

    def events(self) -> list[tuple[str, Any]]:
        found = [json.loads(line) for line in self.answer.read().splitlines()]
        return [(event["type"], event["object"]) for event in found]

    def types(self) -> list[str]:
        return [kind for kind, _ in self.events()]

    def close(self) -> None:
        self.connection.close()


_number = iter(range(10**6))


@pytest.fixture
def cluster(live: Service) -> Cluster:
    name = f"watch-{next(_number)}"
    live.request("POST", NAMESPACES, {"metadata": {"name": name}})
    return Cluster(live, name)


def later(seconds: float, *acts: Callable[[], Any]) -> threading.Thread:
    """Do something while this thread reads."""

    def run() -> None:
        for act in acts:
            time.sleep(seconds)
            act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def names(events: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(kind, item["metadata"]["name"]) for kind, item in events]


def test_headers_come_at_once_and_a_silent_watch_ends_when_it_was_told(cluster):
    started = time.monotonic()
    stream = cluster.watch("timeoutSeconds=1")
    assert stream.seconds_to_headers < 0.8
    assert stream.answer.headers["Content-Type"] == "application/json"
    assert stream.events() == []
    assert 0.8 < time.monotonic() - started < 4


def test_without_a_version_what_is_there_comes_first_then_what_changes(cluster):
    cluster.pod("a")
    stream = cluster.watch()
    assert stream.next()[0] == "ADDED"
    cluster.label("a", x="1")
    cluster.pod("b")
    cluster.delete("a")
    events = [stream.next() for _ in range(3)]
    assert names(events) == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    versions = [int(item["metadata"]["resourceVersion"]) for _, item in events]
    assert versions == sorted(set(versions))
    assert all(item["kind"] == "Pod" and item["apiVersion"] == "v1" for _, item in events)
    stream.close()


def test_from_a_version_exactly_what_came_later_is_sent(cluster):
    cluster.pod("a")
    since = cluster.revision()
    cluster.label("a", x="1")
    cluster.label("a", x="2")
    events = cluster.watch(f"timeoutSeconds=1&resourceVersion={since}").events()
    assert [item["metadata"]["labels"]["x"] for _, item in events] == ["1", "2"]
    assert [kind for kind, _ in events] == ["MODIFIED", "MODIFIED"]
    # The same from the log itself, as for a watch that begins before this process read along.
    again = cluster.watch(f"timeoutSeconds=1&resourceVersion={since}").events()
    assert again == events


def test_a_watch_replayed_over_an_old_list_equals_a_new_list(cluster):
    for index in range(5):
        cluster.pod(f"p{index}")
    old = cluster.call("GET", cluster.pods)
    said = {"apiVersion": "v1", "kind": "Pod"}  # lists do not repeat it with each item
    state = {item["metadata"]["name"]: said | item for item in old["items"]}
    cluster.label("p1", x="1")
    cluster.delete("p2")
    cluster.pod("p5")
    cluster.delete("p3")
    cluster.pod("p3")
    new = cluster.call("GET", cluster.pods)
    since = old["metadata"]["resourceVersion"]
    for kind, item in cluster.watch(f"timeoutSeconds=1&resourceVersion={since}").events():
        if kind == "DELETED":
            del state[item["metadata"]["name"]]
        else:
            state[item["metadata"]["name"]] = item
    assert [state[name] for name in sorted(state)] == [said | item for item in new["items"]]


def test_a_selector_that_begins_to_match_adds_and_one_that_ceases_deletes(cluster):
    cluster.pod("a")
    stream = cluster.watch(f"labelSelector=on%3Dyes&resourceVersion={cluster.revision()}")
    for labels in ({"on": "yes"}, {"on": "yes", "x": "1"}, {"on": "no"}, {"on": "yes"}):
        cluster.label("a", **labels)
    events = [stream.next() for _ in range(4)]
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    # What it was while it matched, as of the revision at which it ceased to.
    versions = [int(item["metadata"]["resourceVersion"]) for _, item in events]
    labels = [item["metadata"]["labels"] for _, item in events]
    assert (labels[2], versions == sorted(set(versions))) == ({"on": "yes", "x": "1"}, True)
    stream.close()


def test_what_ceases_to_match_is_told_as_it_was_in_every_form(cluster):
    cluster.pod("a")
    cluster.label("a", on="yes")
    since = cluster.revision()
    cluster.label("a", on="no")
    query = f"labelSelector=on%3Dyes&resourceVersion={since}&timeoutSeconds=1"
    version = cluster.revision()
    for form in ("", "as=PartialObjectMetadata;", "as=Table;"):
        accept = f"application/json;{form}g=meta.k8s.io;v=v1" if form else "application/json"
        [(kind, item)] = cluster.watch(query, accept=accept).events()
        if "rows" in item:
            item = item["rows"][0]["object"]
        metadata = item["metadata"]
        assert (kind, metadata["labels"]) == ("DELETED", {"on": "yes"})
        assert int(since) < int(metadata["resourceVersion"]) <= int(version)


def test_initial_events_come_as_tables_to_those_who_ask(cluster):
    cluster.pod("a")
    table = "application/json;as=Table;g=meta.k8s.io;v=v1"
    events = cluster.watch(
        "timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true"
        "&resourceVersionMatch=NotOlderThan",
        accept=table,
    ).events()
    assert [kind for kind, _ in events] == ["ADDED", "BOOKMARK"]
    assert [item["kind"] for _, item in events] == ["Table", "Table"]
    added, bookmark = (item["rows"][0]["object"]["metadata"] for _, item in events)
    assert added["name"] == "a"
    assert bookmark["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_fields_that_change_by_binding_are_selected_by_too(cluster):
    cluster.call("POST", "/api/v1/nodes", node(f"n-{cluster.name}"))
    cluster.pod("a")
    since = cluster.revision()
    unbound = cluster.watch(f"fieldSelector=spec.nodeName%3D&resourceVersion={since}")
    bound = cluster.watch(f"fieldSelector=spec.nodeName%3Dn-{cluster.name}&resourceVersion={since}")
    body = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": f"n-{cluster.name}"}}
    cluster.call("POST", f"{cluster.pods}/a/binding", body)
    assert unbound.next()[0] == "DELETED"
    kind, item = bound.next()
    assert (kind, item["spec"]["nodeName"]) == ("ADDED", f"n-{cluster.name}")
    unbound.close()
    bound.close()


def test_a_name_selects_one_object(cluster):
    cluster.pod("a")
    cluster.pod("b")
    stream = cluster.watch("fieldSelector=metadata.name%3Db")
    assert stream.next()[1]["metadata"]["name"] == "b"
    cluster.label("a", x="1")
    cluster.delete("b")
    assert names([stream.next()]) == [("DELETED", "b")]
    stream.close()


def test_clients_of_former_times_write_other_paths(cluster):
    """Those of a collection, of one in all namespaces, and of one object."""
    start = f"?resourceVersion={cluster.revision()}"
    base = f"/api/v1/watch/namespaces/{cluster.name}/pods"
    streams = [
        Stream(cluster.service, path + start) for path in (base, "/api/v1/watch/pods", f"{base}/b")
    ]
    cluster.pod("a")
    cluster.pod("b")
    assert names([streams[0].next(), streams[0].next()]) == [("ADDED", "a"), ("ADDED", "b")]
    assert names([streams[1].next(), streams[1].next()]) == [("ADDED", "a"), ("ADDED", "b")]
    assert names([streams[2].next()]) == [("ADDED", "b")]
    for stream in streams:
        stream.close()


@pytest.mark.parametrize("word", ["1", "t", "True", "TRUE"])
def test_booleans_are_go_s(cluster, word):
    path = f"{cluster.pods}?watch={word}&timeoutSeconds=1"
    assert Stream(cluster.service, path).events() == []


def test_a_watch_of_all_namespaces_and_of_other_kinds(cluster):
    nodes = Stream(cluster.service, "/api/v1/nodes?watch=1&resourceVersion=" + cluster.revision())
    everywhere = Stream(
        cluster.service, "/api/v1/pods?watch=1&resourceVersion=" + cluster.revision()
    )
    cluster.call("POST", "/api/v1/nodes", node(f"m-{cluster.name}"))
    cluster.pod("a")
    assert names([nodes.next()]) == [("ADDED", f"m-{cluster.name}")]
    assert names([everywhere.next()]) == [("ADDED", "a")]
    nodes.close()
    everywhere.close()


def test_a_version_that_is_no_longer_kept_is_one_error_event(cluster):
    service = cluster.service
    with service.database() as database:
        database.execute("SELECT 1")
        trimmed = database.execute("SELECT trimmed_revision FROM history").fetchone()[0]
        database.execute("UPDATE history SET trimmed_revision = 5")
    try:
        stream = cluster.watch("timeoutSeconds=5&resourceVersion=1")
        assert stream.answer.status == 200
        [(kind, status)] = stream.events()
    finally:
        with service.database() as database:
            database.execute("UPDATE history SET trimmed_revision = %s", [trimmed])
    assert (kind, status["kind"], status["code"], status["reason"]) == (
        "ERROR", "Status", 410, "Expired",
    )  # fmt: skip


@pytest.mark.parametrize("beyond", [10**6, 2**62, 2**63])
def test_a_version_beyond_the_present_is_one_error_event(cluster, beyond):
    cluster.watch("timeoutSeconds=1").events()  # somebody else's events are at hand
    version = int(cluster.revision()) + beyond
    stream = cluster.watch(f"timeoutSeconds=5&resourceVersion={version}")
    assert stream.answer.status == 200
    [(kind, status)] = stream.events()
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert status["message"].startswith(f"too large resource version: {version}, current: ")


def test_initial_events_that_cannot_be_so_new_are_one_error_event(cluster):
    version = int(cluster.revision()) + 10**6
    stream = cluster.watch(
        f"timeoutSeconds=5&resourceVersion={version}&sendInitialEvents=true"
        "&resourceVersionMatch=NotOlderThan"
    )
    [(kind, status)] = stream.events()
    assert (kind, status["code"], status["reason"]) == ("ERROR", 504, "Timeout")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_a_list_that_goes_on_beyond_the_present_is_expired(cluster):
    version = int(cluster.revision()) + 10**6
    known = f"{cluster.pods}?resourceVersion={cluster.revision()}"
    assert cluster.service.request("GET", known)[0] == 200
    page = {"rv": version, "start": ["default", "a"]}
    token = base64.urlsafe_b64encode(json.dumps(page).encode()).decode()
    for path in (cluster.pods, "/api/v1/events"):
        status, body = cluster.service.request("GET", f"{path}?limit=1&continue={token}")
        assert (status, body["reason"]) == (410, "Expired")


def test_bookmarks_are_for_those_who_ask(cluster):
    assert cluster.watch("timeoutSeconds=1&allowWatchBookmarks=true").types() in (
        [], ["BOOKMARK"],
    )  # fmt: skip
    stream = cluster.watch(
        "timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true"
        "&resourceVersionMatch=NotOlderThan"
    )
    kind, item = stream.next()
    assert kind == "BOOKMARK"
    assert item["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert item["kind"] == "Pod"


def test_events_come_as_tables_to_those_who_ask(cluster):
    cluster.pod("a")
    stream = cluster.watch(accept=TABLE)
    _, first = stream.next()
    assert first["kind"] == "Table"
    assert first["rows"][0]["cells"][0] == "a"
    assert first["columnDefinitions"][0]["name"] == "Name"
    cluster.label("a", x="1")
    kind, second = stream.next()
    assert (kind, second["columnDefinitions"]) == ("MODIFIED", None)
    assert second["rows"][0]["object"]["metadata"]["labels"] == {"x": "1"}
    stream.close()


def test_events_are_of_the_version_of_their_form_that_is_asked_for(cluster):
    """Watches of both versions share what is written once for all."""
    query = (
        "timeoutSeconds=60&allowWatchBookmarks=true&sendInitialEvents=true"
        "&resourceVersionMatch=NotOlderThan"
    )
    for shape in ("Table", "PartialObjectMetadata"):
        cluster.pod(f"a-{shape.lower()}")
        forms = [
            (version, f"application/json;as={shape};v={version};g=meta.k8s.io{others}")
            for others in ("", ",application/json")
            for version in ("v1", "v1beta1")
        ]
        streams = [(wanted, cluster.watch(query, accept=form)) for wanted, form in forms]
        initial = [stream.up_to("BOOKMARK") for _, stream in streams]
        cluster.label(f"a-{shape.lower()}", x="1")
        for (wanted, stream), before in zip(streams, initial, strict=True):
            events = [*before, *stream.up_to("MODIFIED")]
            stream.close()
            for _, item in events:
                assert (item["kind"], item["apiVersion"]) == (shape, f"meta.k8s.io/{wanted}")
                for row in item.get("rows", ()):
                    assert row["object"]["apiVersion"] == f"meta.k8s.io/{wanted}"


@pytest.mark.parametrize(
    ("query", "code"),
    [("labelSelector=a+in+(b", 400), ("fieldSelector=spec.flurb%3D1", 400),
     ("resourceVersion=x", 400), ("timeoutSeconds=x", 400), ("limit=x", 400),
     ("resourceVersion=-1", 400)],
)  # fmt: skip
def test_a_wrong_watch_is_an_http_error(cluster, query, code):
    stream = cluster.watch(query)
    assert stream.answer.status == code
    assert json.loads(stream.answer.read())["kind"] == "Status"


def test_many_watches_see_the_same(cluster):
    since = cluster.revision()
    streams = [cluster.watch(f"resourceVersion={since}") for _ in range(50)]
    for index in range(10):
        cluster.pod(f"p{index}")
    expected = [("ADDED", f"p{index}") for index in range(10)]
    for stream in streams:
        assert names([stream.next() for _ in range(10)]) == expected
        stream.close()


def test_a_slow_reader_misses_nothing(cluster):
    """A reader behind by more than the ring holds is served from the log."""
    since = cluster.revision()
    stream = cluster.watch(f"resourceVersion={since}")
    count = 9000
    for start in range(0, count, 1000):
        items = [pod(f"p{start + index:05d}", schedulerName="nobody") for index in range(1000)]
        cluster.call("POST", cluster.pods, {"kind": "PodList", "items": items})
    seen = [stream.next()[1]["metadata"]["name"] for _ in range(count)]
    assert seen == [f"p{index:05d}" for index in range(count)]
    stream.close()


# ---------------------------------------------------------------------------------- waiting


def wait_for(cluster: Cluster, name: str, query: str = "") -> tuple[int, Any, float]:
    started = time.monotonic()
    status, answer = cluster.service.request(
        "GET", f"{cluster.pods}/{name}?waitFor=PodScheduled{query}"
    )
    return status, answer, time.monotonic() - started


def test_a_waiting_read_answers_when_the_pod_is_placed(cluster):
    cluster.call("POST", "/api/v1/nodes", node(f"w-{cluster.name}", place=cluster.name))
    cluster.pod("a")
    body = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": f"w-{cluster.name}"}}
    thread = later(0.5, lambda: cluster.call("POST", f"{cluster.pods}/a/binding", body))
    status, answer, seconds = wait_for(cluster, "a")
    thread.join()
    assert (status, answer["spec"]["nodeName"]) == (200, f"w-{cluster.name}")
    # Neither waits until its time is over; the second one is decided already.
    assert 0.4 < seconds < waiting.DEFAULT_SECONDS
    assert wait_for(cluster, "a")[2] < waiting.DEFAULT_SECONDS


def test_a_waiting_read_is_answered_by_the_scheduler_itself(cluster):
    cluster.call("POST", "/api/v1/nodes", node(f"s-{cluster.name}", place=cluster.name))
    selector = {"place": cluster.name}
    cluster.pod("fits", schedulerName="default-scheduler", nodeSelector=selector)
    assert wait_for(cluster, "fits")[1]["spec"]["nodeName"] == f"s-{cluster.name}"
    cluster.pod("toobig", schedulerName="default-scheduler", nodeSelector=selector, cpu="99")
    _, answer, _ = wait_for(cluster, "toobig")
    assert "nodeName" not in answer["spec"]
    [condition] = [c for c in answer["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")


def test_a_waiting_read_ends_with_the_pod_as_it_is(cluster):
    cluster.pod("a")
    status, answer, seconds = wait_for(cluster, "a", "&timeoutSeconds=1")
    assert (status, answer["metadata"]["name"]) == (200, "a")
    assert 0.9 < seconds < 4


def test_a_waiting_read_is_told_that_the_pod_is_gone(cluster):
    assert wait_for(cluster, "nosuch")[0] == 404
    cluster.pod("a")
    thread = later(0.3, lambda: cluster.delete("a"))
    assert wait_for(cluster, "a")[0] == 404
    thread.join()


def test_only_pods_can_be_waited_for(cluster):
    path = f"{NAMESPACES}/{cluster.name}?waitFor=PodScheduled"
    assert cluster.service.request("GET", path)[0] == 400
    cluster.pod("a")
    path = f"{cluster.pods}/a?waitFor=Flurb"
    assert cluster.service.request("GET", path)[0] == 400


def test_hundreds_of_waiting_reads_hold_no_thread(cluster):
    cluster.pod("a")
    answers: list[int] = []

    def read() -> None:
        answers.append(wait_for(cluster, "a", "&timeoutSeconds=3")[0])

    threads = [threading.Thread(target=read) for _ in range(200)]
    for thread in threads:
        thread.start()
    started = time.monotonic()
    cluster.revision()
    assert time.monotonic() - started < 2.5
    for thread in threads:
        thread.join()
    assert answers == [200] * 200


def test_a_body_beyond_the_limit_is_refused(cluster):
    limit = 32 << 20
    connection = http.client.HTTPConnection("127.0.0.1", cluster.service.http_port, timeout=20)
    connection.putrequest("POST", cluster.pods)
    connection.putheader("Authorization", f"Bearer {cluster.service.token}")
    connection.putheader("Content-Length", str(limit + 1024))
    connection.endheaders()
    try:
        for _ in range(32):
            connection.send(b" " * (1 << 20))
        connection.send(b" " * 1024)
    except (BrokenPipeError, ConnectionResetError):
        return  # refused before it was sent
    answer = connection.getresponse()
    assert answer.status == 413
    assert json.loads(answer.read())["reason"] == "RequestEntityTooLarge"


def test_chunked_bodies_and_headers_with_underscores(cluster):
    connection = http.client.HTTPConnection("127.0.0.1", cluster.service.http_port, timeout=20)
    headers = {"Authorization": f"Bearer {cluster.service.token}"}
    body = json.dumps(pod("chunked", schedulerName="nobody")).encode()
    connection.request("POST", cluster.pods, iter([body[:50], body[50:]]), headers)
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    answer.read()
    # On the same connection: an unread body would have garbled this answer.
    connection.request("GET", f"{cluster.pods}/chunked", headers=headers)
    assert connection.getresponse().read()
    spoofed = {"Http_Authorization": headers["Authorization"], "Author_ization": "x"}
    connection = http.client.HTTPConnection("127.0.0.1", cluster.service.http_port, timeout=20)
    connection.request("GET", cluster.pods, headers=spoofed)
    assert connection.getresponse().status == 401

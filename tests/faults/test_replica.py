"""Reads from a streaming replica: as far as it has come, and from the primary where it has not."""

import contextlib
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import faults
from tests.faults.test_revisions import Cluster, prepared, replica_of
from tests.faults.wire import NoAnswer, Wire
from tests.live import Service, node, pod, started, state_folder
from tests.waiting import until

pytestmark = faults.MARKS

__all__ = ["prepared"]  # a fixture
PODS = "/api/v1/namespaces/default/pods"
LAG = 2


class Pair(Service):
    """A service on a primary, with a replica that it reads."""

    primary: Cluster
    replica: Cluster

    def reads(self, server: str) -> float:
        """Return how many reads a server has answered, as all processes say."""
        text = self.request("GET", "/metrics")[1]
        found = re.search(rf'stowage_replica_reads_total{{server="{server}"}} (\S+)', text)
        return float(found[1]) if found else 0.0

    def on_replica(self, statement: str) -> Any:
        with psycopg.connect(self.replica.server.url(), autocommit=True) as connection:
            return connection.execute(statement).fetchone()

    def post(self, name: str) -> int:
        """Create a pod that nobody places; return its revision."""
        status, body = self.request("POST", PODS, pod(name, schedulerName="nobody"))
        assert status == 201, body
        return int(body["metadata"]["resourceVersion"])

    def names(self, query: str) -> set[str]:
        status, body = self.request("GET", f"{PODS}?{query}")
        assert status == 200, body
        return {item["metadata"]["name"] for item in body["items"]}

    def told(self) -> str:
        """Return the line of /readyz about the replica."""
        text = self.request("GET", "/readyz")[1]
        return next((line for line in text.splitlines() if "replica" in line), "")


@pytest.fixture(scope="module")
def pair(prepared: Path) -> Iterator[Pair]:
    with state_folder() as state, contextlib.ExitStack() as until_end:
        subprocess.run(["cp", "--archive", prepared, state], check=True)
        primary = Cluster(state, wal_writer_delay="10ms")
        until_end.callback(primary.close)
        primary.start()
        replica = until_end.enter_context(replica_of(primary))
        service = until_end.enter_context(
            started(
                Pair,
                DATABASE_URL=primary.server.url(),
                REPLICA_DATABASE_URL=replica.server.url(),
                STOWAGE_REPLICA_LAG=str(LAG),
                STOWAGE_ADVISORS="1",
            )
        )
        service.primary, service.replica = primary, replica
        yield service


@contextlib.contextmanager
def paused(pair: Pair) -> Iterator[None]:
    """The replica receives what the primary writes, and applies none of it."""
    pair.on_replica("SELECT pg_wal_replay_pause()")
    paused = "SELECT pg_get_wal_replay_pause_state() = 'paused'"
    until(lambda: pair.on_replica(paused) == (True,), what="replay to pause")
    try:
        yield
    finally:
        pair.on_replica("SELECT pg_wal_replay_resume()")


def in_use(pair: Pair) -> None:
    until(lambda: pair.told() == "[+] replica ok", seconds=30, what="the replica to be used")


class Watcher(threading.Thread):
    """One watch, and the names that it was told of, in order."""

    def __init__(self, service: Service, query: str) -> None:
        super().__init__(daemon=True)
        self.added: list[str] = []
        self.errors: list[Any] = []
        self._path = f"{PODS}?watch=true&{query}"
        self._wire = Wire(service.http_port, lambda: service.token, seconds=120)
        self.start()

    def run(self) -> None:
        with contextlib.suppress(NoAnswer):
            for event in self._wire.stream(self._path):
                if event["type"] == "ADDED":
                    self.added.append(event["object"]["metadata"]["name"])
                elif event["type"] == "ERROR":
                    self.errors.append(event["object"])

    def cut(self) -> None:
        self._wire.cut()
        self.join(10)


def test_who_named_a_revision_gets_what_the_replica_has_and_never_less(pair: Pair) -> None:
    in_use(pair)
    first = pair.post("first")
    until(lambda: "first" in pair.names("resourceVersion=0"), what="the replica to have it")
    with paused(pair):
        second = pair.post("second")
        before = pair.reads("replica")
        assert pair.names("resourceVersion=0") == {"first"}
        assert pair.names(f"resourceVersion={first}") == {"first"}
        assert pair.reads("replica") >= before + 2
        assert pair.request("GET", f"{PODS}/second?resourceVersion=0")[0] == 404
        # Nobody is shown less than asked for: the primary answers.
        before = pair.reads("primary")
        assert pair.names(f"resourceVersion={second}") == {"first", "second"}
        assert pair.names("") == {"first", "second"}
        assert pair.names("limit=1") == {"first"}
        assert pair.request("GET", f"{PODS}/second")[0] == 200
        assert pair.request("GET", f"{PODS}/second?resourceVersion={second}")[0] == 200
        assert pair.reads("primary") >= before + 2
        # A further page is of its list's revision, which the replica has not reached.
        status, page = pair.request("GET", f"{PODS}?limit=1")
        assert status == 200
        assert pair.names(f"limit=1&continue={page['metadata']['continue']}") == {"second"}
        status, body = pair.request("GET", f"{PODS}?resourceVersion={second + 10**6}")
        assert (status, body["reason"]) == (504, "Timeout")
    until(lambda: "second" in pair.names("resourceVersion=0"), what="the replica to follow")


def test_a_watch_follows_the_replica_and_misses_nothing(pair: Pair) -> None:
    in_use(pair)
    start = pair.post("watched-0")
    until(lambda: "watched-0" in pair.names("resourceVersion=0"), what="the replica to have it")
    watcher = Watcher(pair, f"resourceVersion={start}")
    initial = Watcher(pair, "resourceVersion=0")
    try:
        until(lambda: "watched-0" in initial.added, what="the state to be sent")
        expected = [f"watched-{number}" for number in range(1, 30)]
        for name in expected[:10]:
            pair.post(name)
        until(lambda: len(watcher.added) == 10, what="ten to be seen")
        with paused(pair):
            for name in expected[10:20]:
                pair.post(name)
            time.sleep(LAG / 4)
            # It reads the replica, so it cannot know of them; from LAG on it reads the primary.
            assert watcher.added == expected[:10]
            until(lambda: len(watcher.added) == 20, what="the primary to be read")
        for name in expected[20:]:
            pair.post(name)
        until(lambda: len(watcher.added) == 29, what="all to be seen")
        time.sleep(0.5)
        assert watcher.added == expected
        assert [name for name in initial.added if name in expected] == expected
        assert (watcher.errors, initial.errors) == ([], [])
    finally:
        watcher.cut()
        initial.cut()


def test_a_change_is_seen_through_the_replica_at_once(pair: Pair) -> None:
    in_use(pair)
    watcher = Watcher(pair, f"resourceVersion={pair.post('quick')}")
    delays = []
    try:
        for number in range(20):
            began = time.monotonic()
            pair.post(f"quick-{number}")
            until(lambda number=number: len(watcher.added) > number, what="it to be seen")
            delays.append(time.monotonic() - began)
    finally:
        watcher.cut()
    assert sorted(delays)[10] < 0.5, delays


def test_a_replica_that_is_behind_is_told_and_not_read(pair: Pair) -> None:
    in_use(pair)
    with paused(pair):
        pair.post("late")
        until(
            lambda: re.fullmatch(
                r"\[!\] replica: is \d+ s behind; reads go to the primary", pair.told()
            ),
            what="it to be told",
        )
        assert pair.request("GET", "/readyz")[0] == 200
        assert "late" in pair.names("resourceVersion=0")
        text = pair.request("GET", "/metrics")[1]
        found = re.search(r"^stowage_replica_lag_seconds (\S+)", text, re.MULTILINE)
        assert found is not None
        assert float(found[1]) > LAG
    in_use(pair)


def test_a_question_reads_the_replica_and_sees_what_was_acknowledged(pair: Pair) -> None:
    in_use(pair)
    for number in range(2):
        made = node(f"n{number}", cpu="2")
        assert pair.request("POST", "/api/v1/nodes", made)[0] == 201
        # Each question comes right behind a write, so it waits for the replica to have it.
        body = {
            "apiVersion": "stowage.dev/v1",
            "kind": "Simulation",
            "spec": {"pods": [pod(f"asked-{one}", cpu="1900m") for one in range(5)]},
        }
        status, answer = pair.request("POST", "/apis/stowage.dev/v1/simulations", body)
        assert status in (200, 201), answer
        placed = [one for one in answer["status"]["results"] if one.get("nodeName")]
        assert len(placed) == number + 1
    readers = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'stowage-advisor%'"
    assert pair.on_replica(readers)[0] > 0


def test_reads_go_on_while_the_replica_is_away(pair: Pair) -> None:
    in_use(pair)
    cursor = pair.post("before")
    watcher = Watcher(pair, f"resourceVersion={cursor}")
    try:
        pair.replica.kill()
        for number in range(5):
            pair.post(f"meanwhile-{number}")
            assert f"meanwhile-{number}" in pair.names("resourceVersion=0")
        until(lambda: len(watcher.added) == 5, what="the watch to go on")
        until(
            lambda: re.fullmatch(
                r"\[!\] replica: does not answer \(\w+\); reads go to the primary", pair.told()
            ),
            what="it to be told",
        )
        pair.replica.start()
        in_use(pair)
        pair.post("after")
        until(lambda: "after" in watcher.added, what="the watch to go on")
    finally:
        watcher.cut()
    assert watcher.errors == []

"""PostgreSQL under Patroni fails over, again and again, under load: nothing is lost or missed.

``FAILOVERS=30`` chooses how many; the four kinds take turns. What is said of each: how long writes
were away, and what clients were answered meanwhile.
"""

import collections
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests import faults
from tests.faults import patroni
from tests.faults.patroni import Patroni
from tests.faults.wire import NoAnswer, Refused, Wire
from tests.live import Service, node, pod, started
from tests.waiting import until

FAILOVERS: Final = int(os.environ.get("FAILOVERS") or 4)
pytestmark = [
    *faults.MARKS[:-1],
    pytest.mark.timeout(300 + 240 * FAILOVERS),
    pytest.mark.long,
    pytest.mark.skipif(bool(patroni.missing()), reason=patroni.missing() or "-"),
]

PODS = "/api/v1/namespaces/default/pods"
BOUND_SECONDS: Final = {
    # A Patroni that lives sees it in its next look. Of a host that is gone, the others wait for the
    # end of its time as leader; then they choose one.
    "killed database": 15.0,
    "switched over": 15.0,
    "killed host": patroni.TTL_SECONDS + 15.0,
    "frozen host": patroni.TTL_SECONDS + 25.0,
}
"""How long no write may succeed, with what two busy cores add."""


class Writer(threading.Thread):
    """POSTs one pod after another; keeps what was acknowledged, and every answer with its time."""

    def __init__(self, service: Service, number: int) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.acknowledged: dict[str, str] = {}
        self.revisions: list[tuple[int, str]] = []
        self.answers: list[tuple[float, int]] = []
        self._number = number
        self._wire = Wire(service.http_port, lambda: service.token, seconds=60)
        self.start()

    def run(self) -> None:
        serial = 0
        while not self.stopping.wait(0.05):
            serial += 1
            name = f"w{self._number}-{serial}"
            try:
                status, body = self._wire.call("POST", PODS, pod(name, cpu="1m", memory="1Mi"))
            except NoAnswer:
                status, body = 0, {}
            self.answers.append((time.monotonic(), status))
            if status == 201:
                meta = body["metadata"]
                self.acknowledged[name] = meta["uid"]
                self.revisions.append((int(meta["resourceVersion"]), meta["uid"]))


class Watcher(threading.Thread):
    """Lists, then watches from where it is; lists again where it is told to (410)."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.nodes: dict[str, set[str]] = collections.defaultdict(set)
        self.present: dict[str, str] = {}
        self.revisions: list[tuple[int, str]] = []
        self.relists = 0
        self.backwards: list[tuple[int, int]] = []
        self._wire = Wire(service.http_port, lambda: service.token, seconds=60)
        self.start()

    def run(self) -> None:
        cursor: int | None = None
        while not self.stopping.is_set():
            try:
                cursor = self._list() if cursor is None else self._watch(cursor)
            except Refused as error:
                cursor = None if error.status == 410 else cursor
                self.stopping.wait(0.2)
            except NoAnswer:
                self.stopping.wait(0.2)

    def cut(self) -> None:
        self.stopping.set()
        self._wire.cut()

    def _list(self) -> int | None:
        status, body = self._wire.call("GET", PODS)
        if status != 200:
            self.stopping.wait(0.2)
            return None
        self.relists += 1
        self.present.clear()
        for item in body["items"]:
            self._see(item)
        return int(body["metadata"]["resourceVersion"])

    def _watch(self, cursor: int) -> int | None:
        path = f"{PODS}?watch=true&resourceVersion={cursor}&allowWatchBookmarks=true"
        self._cursor = cursor
        try:
            for event in self._wire.stream(path):
                meta = event["object"].get("metadata") or {}
                if event["type"] == "ERROR":
                    return None if event["object"].get("code") == 410 else self._cursor
                revision = int(meta["resourceVersion"])
                if revision < self._cursor:
                    self.backwards.append((self._cursor, revision))
                self._cursor = revision
                if event["type"] != "BOOKMARK":
                    self.revisions.append((revision, meta["uid"]))
                    self._see(event["object"])
        except NoAnswer:
            self.stopping.wait(0.2)
        return self._cursor

    def _see(self, item: dict[str, Any]) -> None:
        name = item["metadata"]["name"]
        where = item["spec"].get("nodeName") or ""
        self.present[name] = where
        if where:
            self.nodes[item["metadata"]["uid"]].add(where)


@pytest.fixture(scope="module")
def servers() -> Iterator[Patroni]:
    with patroni.running() as found:
        yield found


def away(writers: list[Writer], since: float) -> float:
    """Return the longest time after a moment in which no write succeeded."""
    times = sorted(at for one in writers for at, status in one.answers if status == 201)
    after = [since, *(at for at in times if at > since)]
    return max(b - a for a, b in itertools.pairwise(after))


def test_failovers_lose_nothing_and_nobody_misses_anything(
    servers: Patroni, capsys: pytest.CaptureFixture[str]
) -> None:
    harm: dict[str, Callable[[str], Callable[[], None]]] = {
        "killed database": servers.kill_database,
        "switched over": servers.switch_over,
        "killed host": servers.kill_host,
        "frozen host": servers.freeze_host,
    }
    table = []
    with started(DATABASE_URL=servers.url()) as service:
        for number in range(4):
            made = node(f"n{number}", cpu="64", memory="256Gi", pods="100000")
            assert service.request("POST", "/api/v1/nodes", made)[0] == 201
        writers = [Writer(service, number) for number in range(3)]
        watchers = [Watcher(service) for _ in range(2)]

        def succeeded() -> int:
            return sum(len(one.acknowledged) for one in writers)

        for round_ in range(FAILOVERS):
            kind = list(harm)[round_ % len(harm)]
            until(servers.is_whole, seconds=180, what=f"three servers before round {round_}")
            before = succeeded()
            until(lambda before=before: succeeded() > before + 20, what="writes")
            old = servers.leader()
            since = time.monotonic()
            heal = harm[kind](old)
            until(
                lambda old=old: servers.leader() not in ("", old), seconds=90,
                what=f"another leader than {old} after: {kind}",
            )  # fmt: skip
            before = succeeded()
            until(lambda before=before: succeeded() > before + 20, seconds=90, what="writes")
            gap = away(writers, since)
            heal()
            told = collections.Counter(
                status for one in writers for at, status in one.answers if at > since
            )
            table.append((kind, round(gap, 1), dict(told)))
            with capsys.disabled():
                print(f"\n{round_ + 1}. {kind}: no write for {gap:.1f} s; {dict(told)}", end="")
        until(servers.is_whole, seconds=180, what="three servers at the end")
        for one in writers:
            one.stopping.set()
            one.join(90)

        def listed() -> dict[str, Any]:
            status, body = service.request("GET", PODS, seconds=60)
            assert status == 200, body
            return {item["metadata"]["name"]: item for item in body["items"]}

        until(
            lambda: all(item["spec"].get("nodeName") for item in listed().values()),
            seconds=120, what="all pods to be bound",
        )  # fmt: skip
        there = listed()
        places = {name: item["spec"]["nodeName"] for name, item in there.items()}
        for watcher in watchers:
            until(lambda watcher=watcher: watcher.present == places, what="all to be seen")
            watcher.cut()
    uids = {name: item["metadata"]["uid"] for name, item in there.items()}
    acknowledged = {name: uid for one in writers for name, uid in one.acknowledged.items()}
    lost = [name for name, uid in acknowledged.items() if uids.get(name) != uid]
    twice = {
        uid: nodes for watcher in watchers for uid, nodes in watcher.nodes.items() if len(nodes) > 1
    }
    owners: dict[int, set[str]] = collections.defaultdict(set)
    for one in (*writers, *watchers):
        for revision, uid in one.revisions:
            owners[revision].add(uid)
    given_twice = [revision for revision, found in owners.items() if len(found) > 1]
    with capsys.disabled():
        print(
            f"\n{FAILOVERS} failovers, {len(acknowledged)} writes acknowledged: lost {len(lost)},"
            f" bound twice {len(twice)}, revisions given out twice {len(given_twice)},"
            f" went backwards {sum(len(one.backwards) for one in watchers)},"
            f" lists after 410 {[one.relists - 1 for one in watchers]}"
        )
    assert (lost, twice, given_twice) == ([], {}, [])
    assert not [(kind, gap) for kind, gap, _ in table if gap >= BOUND_SECONDS[kind]], table
    assert [one.backwards for one in watchers] == [[], []]
    # Nothing was lost, so the history went on and nobody had to list again.
    assert [one.relists for one in watchers] == [1, 1]

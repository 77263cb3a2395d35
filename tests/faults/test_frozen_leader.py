"""The leader's host freezes and a replica takes over: how long anybody of the service waits."""

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from clusterstate.local import places
from tests import faults
from tests.clusterstate.part import Part
from tests.faults.freezing import frozen
from tests.faults.test_revisions import Cluster, replica_of
from tests.live import Service, node, pod, started, state_folder
from tests.waiting import until

pytestmark = [*faults.MARKS, pytest.mark.long]

PODS = "/api/v1/namespaces/default/pods"
PROMISED_SECONDS = 20.0
SLACK = 5.0
"""What two busy cores and thirty processes add."""
FROZEN_SECONDS = 30.0
LOST = re.compile(r"(\S+Z) .*lost_the_database.* work=(\S+)")
LOOPS = ("scheduler", "timers", "controllers")


class Asker(threading.Thread):
    """Asks one thing after another; keeps how long each answer took, and what it was."""

    def __init__(self, service: Service, number: int) -> None:
        super().__init__(daemon=True)
        self.service = service
        self.number = number
        self.stopping = threading.Event()
        self.answers: list[tuple[float, float, int, object]] = []
        self.start()

    def run(self) -> None:
        serial = 0
        while not self.stopping.wait(0.05):
            serial += 1
            began = time.monotonic()
            status, body = 0, None
            with contextlib.suppress(OSError):
                if serial % 2:
                    status, body = self.service.request("GET", f"{PODS}?limit=3", seconds=200)
                else:
                    name = f"asked-{self.number}-{serial}"
                    status, body = self.service.request("POST", PODS, pod(name), seconds=200)
            self.answers.append((began, time.monotonic() - began, status, body))


def deployment(replicas: int) -> dict[str, object]:
    labels = {"app": "after"}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "after"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "x"}]},
            },
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def leaders() -> Iterator[tuple[Cluster, Cluster]]:
    """A server and a streaming replica of it, both empty."""
    with state_folder() as state:
        cluster = Cluster(state, max_connections="200")
        try:
            cluster.start()
            with replica_of(cluster) as replica:
                yield cluster, replica
        finally:
            cluster.close()


def lost(service: Service, since: float) -> dict[str, float]:
    """Return when each loop first told that it lost the database, in seconds after a moment."""
    found: dict[str, float] = {}
    for time_, work in LOST.findall((service.state / "stowage.log").read_text(errors="replace")):
        at = datetime.fromisoformat(time_).timestamp()
        if at >= since:
            found.setdefault(work, at - since)
    return found


def test_while_the_leaders_host_is_frozen_nobody_waits_for_it_and_the_next_leader_is_found(
    leaders: tuple[Cluster, Cluster], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = leaders
    folders = ",".join(
        str(places.socket_directories(cluster.server.data.parent)[0]) for cluster in leaders
    )
    url = f"postgresql://postgres@/stowage?host={folders}"
    with started(DATABASE_URL=url) as service:
        assert service.request("POST", "/api/v1/nodes", node("n", cpu="64"))[0] == 201
        source, target = Part(old.server.url()), Part(new.server.url())
        old.parts.append(source), new.parts.append(target)
        ((end,),) = source("sql", "SELECT pg_current_wal_flush_lsn()::text")
        replayed = f"SELECT pg_last_wal_replay_lsn() >= '{end}'"
        until(lambda: target("sql", replayed) == [[True]], what="all to be replayed")
        askers = [Asker(service, number) for number in range(12)]
        until(lambda: all(len(one.answers) > 3 for one in askers), what="answers")
        assert old.process is not None
        with frozen(old.process.pid):
            began, at = time.monotonic(), time.time()
            for thread in askers:
                until(
                    lambda thread=thread: any(b > began for b, *_ in thread.answers[-1:]),
                    seconds=200, what="an answer to a request of later",
                )  # fmt: skip
            until(lambda: time.monotonic() - began > FROZEN_SECONDS, what="a while without leader")
            target("sql", "SELECT pg_promote()")
            promoted = time.monotonic()
            until(
                lambda: any(
                    status == 201 and b > promoted
                    for one in askers
                    for b, _, status, _ in one.answers
                ),
                seconds=200, what="the web processes to find the next leader",
            )  # fmt: skip
            web = time.monotonic() - promoted
            path = "/apis/apps/v1/namespaces/default/deployments"
            until(
                lambda: service.request("POST", path, deployment(2))[0] in (201, 409),
                what="a Deployment",
            )
            until(
                lambda: service.request("GET", f"{path}/after")[1]["status"].get("replicas") == 2
                and all(
                    one["spec"].get("nodeName")
                    for one in service.request("GET", f"{PODS}?labelSelector=app=after")[1]["items"]
                ),
                seconds=200, what="controllers and scheduler to go on",
            )  # fmt: skip
            everybody = time.monotonic() - promoted
            for thread in askers:
                thread.stopping.set()
            for thread in askers:
                thread.join(200)
        answers = [one for asker in askers for one in asker.answers]
        longest = max(took for _, took, _, _ in answers)
        gave_up = lost(service, at)
    with capsys.disabled():
        print(
            f"\nlongest answer {longest:.1f} s; loops gave up after {gave_up};"
            f" after the promotion web {web:.1f} s, controllers and scheduler {everybody:.1f} s"
        )
    assert longest < PROMISED_SECONDS + SLACK
    # Statuses of while nobody led: refused, with when to come again.
    refused = [
        (status, body) for b, _, status, body in answers if began < b < promoted and status != 201
    ]
    assert {status for status, _ in refused} <= {200, 429, 503}
    assert any(status == 503 for status, _ in refused)
    assert set(LOOPS) <= set(gave_up), gave_up
    assert max(gave_up.values()) < PROMISED_SECONDS + SLACK
    assert web < PROMISED_SECONDS
    assert everybody < PROMISED_SECONDS + SLACK

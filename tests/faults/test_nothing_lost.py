"""Killing parts of the running service loses no acknowledged pod and binds none twice."""

import threading
import time
from collections.abc import Iterator

import pytest

from tests import faults
from tests.faults import groups
from tests.forms import many
from tests.live import Service, node, pod, started
from tests.waiting import until

pytestmark = faults.MARKS
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with started() as service:
        yield service


class Poster(threading.Thread):
    """POSTs pods one after another until told to stop; keeps the names that were acknowledged."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        self.service = service
        self.acknowledged: list[str] = []
        self.unanswered: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            name = f"steady-{number}"
            number += 1
            try:
                status, body = self.service.request("POST", PODS, pod(name, cpu="1m"))
            except OSError:
                self.unanswered.append(name)
                continue
            if status == 201:
                self.acknowledged.append(name)
            else:
                assert status >= 500, body
                self.unanswered.append(name)
            time.sleep(0.02)

    def wait_for_more(self, count: int) -> None:
        """Return when so many more pods than now were acknowledged."""
        enough = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= enough, seconds=120, what="pods to come in")


def kill_and_wait_until_back(service: Service, part: str) -> None:
    old = service.kill(part)
    until(lambda: service.pid(part) != old, seconds=120, what=f"{part} to be back")
    until(service.ready, seconds=120, what=f"ready after {part} was killed")


def test_every_acknowledged_pod_is_bound_once_whatever_is_killed(service: Service) -> None:
    for number in range(5):
        assert service.request("POST", "/api/v1/nodes", node(f"n{number}", pods="5000"))[0] == 201
    poster = Poster(service)
    poster.start()
    for part in ("scheduler", "redis", "postgres"):
        poster.wait_for_more(40)
        kill_and_wait_until_back(service, part)
    poster.wait_for_more(40)
    poster.stopping.set()
    poster.join(60)

    def bound() -> bool:
        with service.database() as connection:
            found = connection.execute("SELECT name FROM pod WHERE node_name = ''").fetchall()
        return not found

    until(bound, seconds=120, what="all pods to be bound")
    with service.database() as connection:
        stored = {name for (name,) in connection.execute("SELECT name FROM pod")}
        # What got a 201 is there; what is there besides was posted but its answer was lost.
        assert set(poster.acknowledged) <= stored
        assert stored - set(poster.acknowledged) <= set(poster.unanswered)
        binds = dict(
            connection.execute(
                """
                SELECT name, count(*) FROM change
                WHERE kind = 1 AND node_name <> '' AND previous_node_name = '' GROUP BY name
                """
            ).fetchall()
        )
        assert binds == dict.fromkeys(stored, 1)
        (pending,) = connection.execute("SELECT count(*) FROM pending_pod").fetchone()
        assert pending == 0


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(many(1, 40)))
def test_a_group_is_partly_there_at_no_revision_whatever_is_killed(
    service: Service, seed: int
) -> None:
    assert groups.live_through(service, seed) == []

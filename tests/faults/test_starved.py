"""A service that gets a small part of a processor recovers by itself, and ends nobody who works.

The suite has a scheduler begin with waiting pods while all processes of the service are starved;
the long form has the whole service begin so, with a tenth of a core and 13,000 waiting pods.
"""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests import faults
from tests.faults.starving import Starved, family
from tests.live import Service, node, pod, started
from tests.waiting import running, until

pytestmark = faults.MARKS
PODS = "/api/v1/namespaces/default/pods"
TENTH = 0.1
_ENDS = (
    "session_ended",
    "terminating connection due to administrator command",
    "silent: killed",
    "was stopped: killed",
    "gave no sign of life",
)


def create(service: Service, path: str, kind: str, items: list[dict]) -> None:
    for first in range(0, len(items), 500):
        body = {"apiVersion": "v1", "kind": f"{kind}List", "items": items[first : first + 500]}
        status, answer = service.request("POST", path, body, seconds=300)
        assert status in (200, 201), answer


def schedulers(service: Service) -> list[int]:
    found = []
    for pid in family(service.process.pid):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if b"STOWAGE_PROCESS=scheduler\0" in environment:
            found.append(pid)
    return found


@contextmanager
def supervisor_stopped(service: Service) -> Iterator[None]:
    """Nobody begins anew who was killed."""
    os.kill(service.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(service.process.pid, signal.SIGCONT)


def fill(service: Service, *, nodes: int, pods: int) -> None:
    """Create nodes and pods that wait; the schedulers are killed before the first one comes."""

    def killed() -> bool:
        """One that was only beginning is seen the second time."""
        found = list(filter(running, schedulers(service)))
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return not found

    until(killed, what="no scheduler")
    offer = [node(f"n{number}", cpu="64", pods="250") for number in range(nodes)]
    create(service, "/api/v1/nodes", "Node", offer)
    waiting = [pod(f"p{number}", cpu=f"{10 + number % 40}m") for number in range(pods)]
    create(service, PODS, "Pod", waiting)


def bound(service: Service) -> int:
    """Return how many pods are bound; asked of PostgreSQL, which may not be there yet."""
    try:
        with service.database() as connection:
            row = connection.execute("SELECT count(*) FROM pod WHERE node_name <> ''").fetchone()
    except psycopg.OperationalError:
        return 0
    return row[0] if row else 0


def ended(service: Service, since: int = 0) -> list[str]:
    """Return the lines about sessions and processes that were ended as if they were stuck."""
    text = (service.state / "stowage.log").read_text()[since:]
    return [line for line in text.splitlines() if any(one in line for one in _ENDS)]


def test_a_scheduler_that_is_starved_loads_and_binds_and_nobody_is_ended() -> None:
    with started(STOWAGE_SCHEDULERS="2") as service:
        with supervisor_stopped(service):
            fill(service, nodes=100, pods=1500)
            assert bound(service) == 0
        since = (service.state / "stowage.log").stat().st_size
        with Starved(lambda: family(service.process.pid), 2 * TENTH):
            until(lambda: bound(service), seconds=300, what="the first pod")
            # It goes on, too: the standby loads beside it, and judges it.
            until(lambda: bound(service) >= 500, seconds=200, what="more of them")
        assert ended(service, since) == []
        until(lambda: bound(service) == 1500, seconds=120, what="all pods")
        until(lambda: service.request("GET", "/readyz")[0] == 200, seconds=60, what="ready")


@pytest.mark.long
@pytest.mark.timeout(2700)
def test_a_service_with_a_tenth_of_a_core_begins_with_thousands_of_waiting_pods() -> None:
    with started(STOWAGE_SCHEDULERS="2", STOWAGE_ADVISORS="1", STOWAGE_CONSOLE="") as service:
        with supervisor_stopped(service):
            fill(service, nodes=1000, pods=13_000)
            service.process.send_signal(signal.SIGINT)
        service.process.wait(120)
        service._process = service.launch(service.log)
        since = (service.state / "stowage.log").stat().st_size
        with Starved(lambda: family(service.process.pid), TENTH / len(os.sched_getaffinity(0))):
            until(lambda: bound(service), seconds=2000, what="the first pod")
        assert ended(service, since) == []
        # The load has gone.
        until(lambda: bound(service) == 13_000, seconds=300, what="all pods")
        until(lambda: service.request("GET", "/readyz")[0] == 200, seconds=60, what="ready")
        told = re.findall(r"not ready.*", service.log.read_text())
        assert len(told) <= 5, told

"""The scheduler that works is killed, or stopped: the one that stands by goes on at once."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from clusterstate.health import heartbeats
from tests import faults
from tests.faults.test_frozen import SLACK, first_words, place, post, refused, stopped
from tests.live import Service, node, pod, started
from tests.waiting import running, until

pytestmark = [*faults.MARKS, pytest.mark.long]
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with started(STOWAGE_SCHEDULERS="2") as service:
        for number in range(3):
            body = node(f"n{number}", cpu="64", memory="4Ti", pods="9999")
            assert service.request("POST", "/api/v1/nodes", body)[0] == 201
        place(service)
        yield service


def works(service: Service) -> int:
    """Return the pid of the scheduler that works."""
    host, _, pid = first_words(service, "scheduler").rpartition(":")
    assert host == socket.gethostname()
    return int(pid)


def standing_by(service: Service) -> set[int]:
    """Return the schedulers that are warm and wait for their turn."""
    return heartbeats.beating(service.state, "standby")


def refused_pods(service: Service, name: str) -> set[str]:
    """Post pods that no node has room for; return their names when the last one was refused."""
    names = [f"{name}-{number}" for number in range(30)]
    for one in names:
        assert service.request("POST", PODS, pod(one, cpu="100"))[0] == 201
    until(lambda: refused(service, names[-1]), seconds=30, what="refusals")
    return set(names)


def bound_twice(service: Service) -> list[str]:
    with service.database() as connection:
        rows = connection.execute(
            "SELECT name FROM change WHERE kind = 1 AND node_name <> '' AND previous_node_name = ''"
            " GROUP BY object_id, name HAVING count(*) > 1"
        ).fetchall()
    return [name for (name,) in rows]


def test_after_a_kill_the_standby_binds_what_comes_and_nothing_twice_or_never(
    service: Service,
) -> None:
    large = refused_pods(service, "large")  # what waits does not hold up who comes
    posted: list[str] = []
    ended = threading.Event()

    def keep_posting() -> None:
        while not ended.is_set():
            posted.append(post(service))
            time.sleep(0.02)

    posting = threading.Thread(target=keep_posting)
    posting.start()
    times: list[float] = []
    try:
        for _ in range(3):
            until(lambda: standing_by(service), seconds=90, what="a standby")
            old = works(service)
            os.kill(old, signal.SIGKILL)
            times.append(place(service))
            until(lambda old=old: works(service) != old, seconds=10, what="the other at work")
    finally:
        ended.set()
        posting.join(30)
    assert max(times) < 1 + SLACK, times
    assert min(times) < 1, times
    assert posted
    until(lambda: unbound(service) <= large, what="all others bound")
    assert unbound(service) == large
    assert bound_twice(service) == []


def test_a_kill_is_no_reason_to_try_again_who_was_refused(service: Service) -> None:
    """Nothing is being bound: a bind that a kill leaves in doubt may give room back, and wakes."""
    refused_pods(service, "huge")
    until(lambda: standing_by(service), seconds=90, what="a standby")
    until(
        lambda: {stage for stage, _ in places(service)} == {"unschedulable"},
        seconds=30,
        what="the end of all backoffs",
    )
    before, old = places(service), works(service)
    os.kill(old, signal.SIGKILL)
    assert place(service) < 1 + SLACK
    until(lambda: works(service) != old, seconds=10, what="the other at work")
    until(lambda: standing_by(service), seconds=90, what="another standby")
    assert places(service) == before


def places(service: Service) -> list[tuple[str, int]]:
    """Return stages and attempts of the pods that wait."""
    with service.database() as connection:
        return connection.execute(
            "SELECT DISTINCT stage, attempts FROM pending_pod ORDER BY 1, 2"
        ).fetchall()


def unbound(service: Service) -> set[str]:
    with service.database() as connection:
        rows = connection.execute("SELECT name FROM pod WHERE node_name = ''").fetchall()
    return {name for (name,) in rows}


def test_a_stopped_scheduler_is_replaced_and_stands_by_when_it_wakes(service: Service) -> None:
    until(lambda: service.ready(), what="ready")
    until(lambda: standing_by(service), seconds=90, what="a standby")
    first = works(service)
    with stopped(service.process.pid):  # as on another host: nobody replaces it
        with stopped(first):
            waiting = post(service)
            until(lambda: works(service) != first, seconds=5 + SLACK, what="the standby to work")
            until(lambda: waiting not in unbound(service), seconds=5, what="the pod to be bound")
            second = works(service)
        until(lambda: first in standing_by(service), seconds=60, what="the first to stand by")
        assert works(service) == second
        assert running(first)
        assert place(service) < 1 + SLACK
    until(service.ready, seconds=60, what="ready")
    os.kill(second, signal.SIGKILL)
    assert place(service) < 1 + SLACK
    until(lambda: works(service) == first, seconds=10, what="the first one to work again")
    assert bound_twice(service) == []


def test_processes_are_replaced_while_pods_are_placed(service: Service) -> None:
    """`manage.py reload`: successors are warm before the old ones end, so no pod waits for one."""
    until(lambda: standing_by(service), seconds=90, what="a standby")
    log = service.state / "stowage.log"
    before, known = works(service), log.read_text().count("all replaced")
    os.kill(service.process.pid, signal.SIGUSR1)
    times: list[float] = []
    while log.read_text().count("all replaced") == known:
        times.append(place(service))
        assert "not all were replaced" not in log.read_text()
    assert not running(before)
    times += [place(service) for _ in range(3)]
    assert max(times) < 1 + SLACK, times
    assert bound_twice(service) == []
    until(service.ready, seconds=60, what="ready")

"""The package's client while processes of the service are killed in turn."""

import threading
from collections import Counter

import pytest

from stowage.client import Client, Connection, State
from stowage.client.exchange import SUBMISSION
from tests.live import node, pod, started
from tests.waiting import until

pytestmark = [
    pytest.mark.db,
    pytest.mark.slow,
    pytest.mark.real_clock,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

PODS = 10_000
ROUNDS = 5
KILLED = ("http", "scheduler", "http", "postgres", "redis")


def test_no_pod_is_lost_or_made_twice_and_no_error_reaches_the_caller() -> None:
    with started() as service:
        for number in range(10):
            service.request(
                "POST", "/api/v1/nodes", node(f"n{number}", cpu="64", memory="128Gi", pods="2000")
            )
        done = threading.Event()
        killed: Counter[str] = Counter()

        def kill() -> None:
            for part in KILLED * ROUNDS:
                if done.is_set() and killed.keys() >= set(KILLED):
                    return
                service.kill(part)
                killed[part] += 1
                until(service.ready, seconds=180, what=f"ready again after {part} was killed")

        killing = threading.Thread(target=kill)
        connection = Connection(server=f"http://127.0.0.1:{service.http_port}", token=service.token)
        with Client(connection, patience=400) as client:
            killing.start()
            try:
                given = [pod(f"p{number}", cpu="10m") for number in range(PODS)]
                placed = []
                for batch in range(5):  # so that kills meet all that a submission does
                    part = given[batch * PODS // 5 : (batch + 1) * PODS // 5]
                    placed += list(client.place(part, timeout=300))
            finally:
                done.set()
                killing.join()
            assert Counter(one.state for one in placed) == {State.PLACED: PODS}
            assert len({one.name for one in placed}) == PODS
            stored, _ = client.list_all("/api/v1/pods", labelSelector=SUBMISSION)
        assert {(one["metadata"]["name"], one["spec"]["nodeName"]) for one in stored} == {
            (one.name, one.node) for one in placed
        }
        assert killed.keys() == set(KILLED)

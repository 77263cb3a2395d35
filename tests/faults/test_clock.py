"""The time of day steps under a running service, and nobody is evicted early for it."""

import time
from collections.abc import Iterator

import pytest

from tests import faults
from tests.faults.clock import Clock
from tests.live import Service, node, pod, started, state_folder
from tests.waiting import until

pytestmark = faults.MARKS
PODS = "/api/v1/namespaces/default/pods"
TOLERATED = 12.0
WHOLE_SECONDS = 2.0
"""Times on the wire are cut to whole seconds: of the taint, and of the binding."""


@pytest.fixture(scope="module")
def clock() -> Iterator[Clock]:
    with state_folder() as state:
        clock = Clock(state.parent)
        if not clock.works:
            pytest.skip("there is no C compiler here")
        yield clock


@pytest.fixture(scope="module")
def service(clock: Clock) -> Iterator[Service]:
    with started(**clock.environment) as service:
        assert service.request("POST", "/api/v1/nodes", node("n"))[0] == 201
        yield service


def tainted(service: Service, name: str) -> float:
    """Place a pod, taint its node; return when that was, on a clock that nobody sets."""
    tolerates = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": int(TOLERATED)}
    assert service.request("POST", PODS, pod(name, tolerations=[tolerates]))[0] == 201
    until(lambda: "nodeName" in service.request("GET", f"{PODS}/{name}")[1]["spec"])
    began = time.monotonic()
    taint = {"spec": {"taints": [{"key": "away", "effect": "NoExecute"}]}}
    kind = "application/merge-patch+json"
    assert service.request("PATCH", "/api/v1/nodes/n", taint, content_type=kind)[0] == 200
    until(lambda: timers(service) == 1, what="a timer")
    return began


def timers(service: Service) -> int:
    with service.database() as connection:
        found = connection.execute("SELECT count(*) FROM eviction_timer").fetchone()
    assert found is not None
    return int(found[0])


def is_there(service: Service, name: str) -> bool:
    return service.request("GET", f"{PODS}/{name}")[0] == 200


@pytest.mark.long
def test_a_clock_that_jumps_ahead_evicts_nobody_early_also_when_the_evictor_starts_anew(
    service: Service, clock: Clock
) -> None:
    began = tainted(service, "steady")
    clock.step(3600)
    try:
        service.kill("timers")
        until(lambda: not is_there(service, "steady"), what="the eviction")
        stayed = time.monotonic() - began
    finally:
        clock.step(-3600)
    assert stayed > TOLERATED - WHOLE_SECONDS
    assert "clock_was_set_ahead" in (service.state / "stowage.log").read_text()

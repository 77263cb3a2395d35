"""The benches that need a whole service, small, on one: every question gets an answer."""

from collections.abc import Iterator

import pytest

from tests.perf import endurance, forms, scratch, storm
from tests.perf.scratch import Scratch

pytestmark = [
    pytest.mark.long,
    pytest.mark.db,
    pytest.mark.slow,
    pytest.mark.real_clock,
    pytest.mark.timeout(300),
]
NODES = 10
WAITING, CLASSES = 60, 3
BURST = 200


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def service() -> Iterator[Scratch]:
    with scratch.running({}, quiet) as started:
        yield started


def test_a_burst_and_a_storm_are_answered_in_full(service: Scratch) -> None:
    assert storm._quiet(service, NODES, quiet)["easy_pods"] > 0

    during, afterwards = storm.after_burst(service, burst=BURST, say=quiet)
    assert storm._unbound(service) == 0
    assert storm._events(service) == BURST
    assert 0 < during["post_seconds"] <= during["bound_seconds"] <= during["events_seconds"]
    assert afterwards["easy_pods"] > 0

    results = storm.storm(service, waiting=WAITING, classes=CLASSES, kills=1, say=quiet)
    by_name = {result["what"]: result for result in results}
    assert by_name["all are refused"]["cpu_seconds"] > 0
    assert by_name["after kill -9"]["easy_pods"] == 1
    # The node takes every pod of its class, and the other classes go on waiting.
    assert by_name["a node for one class"]["pods"] == WAITING // CLASSES
    assert storm._on(service, "bench-fitting") == WAITING // CLASSES
    assert storm._unbound(service) == WAITING - WAITING // CLASSES


def test_both_forms_are_measured(service: Scratch) -> None:
    found = forms.compare(service, pods=20, connections=2, rounds=1, say=quiet)
    done = ("create", "get", "list", "delete")
    assert [(one["form"], one["what"]) for one in found[:-1]] == [
        (form, what) for form in (forms.JSON, forms.PROTOBUF) for what in done
    ]
    assert set(found[-1]) == {"what", *done}
    assert all(one["answer_bytes"] > 100 for one in found[:-1])


def test_churn_is_measured_for_every_process(service: Scratch) -> None:
    found = endurance.churn(
        service, nodes=2, connections=2, seconds=0.5, rounds=1, settle=0.1, say=quiet
    )
    parts = {one["process"] for one in found}
    assert {"http", "https", "scheduler", "timers", "worker", "beat"} <= parts
    assert all(one["pods"] > 0 and one["mib"] > 10 for one in found)

"""What is not done once for each pod, since it costs more than all else that a pod needs."""

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from types import FrameType
from typing import Any, Protocol

import pytest

from clusterstate.actions import objects
from clusterstate.actions.pods.create import create_pods
from scheduling.controllers.pods import resource_claims
from scheduling.engine.fast import fast_lane
from scheduling.engine.preemption import row_program
from scheduling.framework.configuration.documents import default_configuration
from scheduling.worker.scheduler import Scheduler
from tests.clock import NOW
from tests.controllers.support import make_node, pod_manifest
from tests.engine import lanes

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = NOW.timestamp()


def protocol_checks(work: Callable[[], object]) -> Counter[str]:
    """Return where it was asked whether an object has all members of a protocol, and how often."""
    asked = type(Protocol).__instancecheck__.__code__
    counts: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is asked and (asker := frame.f_back) is not None:
            counts[f"{asker.f_code.co_filename}:{asker.f_lineno}"] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counts


def offer_devices() -> None:
    """Make a class, a template of claims for one device of it, and devices on the node n1."""
    asked = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    slice_ = {
        "driver": "gpu.example.com", "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}"} for number in range(60)],
    }  # fmt: skip
    for kind, namespace, name, spec in (
        ("DeviceClass", "", "gpu", {}),
        ("ResourceSlice", "", "n1", slice_),
        ("ResourceClaimTemplate", "default", "t", {"spec": {"devices": {"requests": asked}}}),
    ):
        objects.create(kind, namespace, {"metadata": {"name": name}, "spec": spec}, now=NOW)


class Placing:
    """A scheduler that decides pods of two kinds, and writes what it decided.

    ``claims``: those that fit claim a device each, by a template.
    """

    def __init__(self, *, claims: bool = False) -> None:
        self._fits: dict[str, Any] = {}
        if claims:
            self._fits = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
            offer_devices()
        self.scheduler = Scheduler(default_configuration(), lambda: 7)
        self.scheduler.load(SECONDS)
        self._made = 0

    def create(self, count: int) -> None:
        """Create pods of which each third fits nowhere."""
        nowhere = {"nodeSelector": {"no": "node"}}
        specs = [nowhere if number % 3 == 0 else self._fits for number in range(count)]
        names = [f"p{self._made + number}" for number in range(count)]
        self._made += count
        create_pods([pod_manifest(n, **s) for n, s in zip(names, specs, strict=True)], now=NOW)
        resource_claims.follow(NOW)

    def turn(self) -> None:
        """Decide and bind all that wait; write refusals, records and events."""
        while self.scheduler.cycle(SECONDS):
            self.scheduler.binder.finish_batch(SECONDS)
        self.scheduler.binder.finish_batch(SECONDS)
        self.scheduler.binder.write_refused(SECONDS)
        while self.scheduler.binder.has_news:
            self.scheduler.binder.write_records(SECONDS, 10)


@pytest.mark.parametrize("claims", [False, True])
def test_no_protocol_is_looked_up_for_each_pod(claims: bool) -> None:
    make_node("n1")
    placing = Placing(claims=claims)
    with lanes.only(fast_lane, row_program), closing(placing.scheduler.binder):
        placing.create(6)
        placing.turn()  # of what is asked once for a class or a node, all was asked
        counts = []
        for count in (3, 60):
            placing.create(count)
            counts.append(protocol_checks(placing.turn))
        few, many = counts
        assert {where: n for where, n in many.items() if n - few[where] >= 19} == {}


def test_bindings_are_read_back_at_once_only_where_something_may_come_of_it() -> None:
    make_node("n1")
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(SECONDS)
    with closing(scheduler.binder):
        create_pods([pod_manifest("a"), pod_manifest("b")], now=NOW)
        assert scheduler.cycle(SECONDS) == 2
        assert scheduler.needs_no_news
        create_pods([pod_manifest("lost", nodeSelector={"no": "node"})], now=NOW)
        assert scheduler.cycle(SECONDS)
        assert not scheduler.needs_no_news  # a binding might make room for it, or draw it
        while scheduler.binder.write_refused(SECONDS):
            pass
        create_pods([pod_manifest("c")], now=NOW)
        assert scheduler.cycle(SECONDS)
        assert not scheduler.needs_no_news


def test_a_batch_that_is_still_being_bound_is_looked_after_at_once() -> None:
    make_node("n1")
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(SECONDS)
    with closing(scheduler.binder):
        create_pods([pod_manifest(f"p{number}") for number in range(40)], now=NOW)
        assert scheduler.cycle(SECONDS) == 40
        assert not scheduler.needs_no_news
        scheduler.binder.finish_batch(SECONDS)
        assert scheduler.needs_no_news


def test_records_and_events_of_a_few_pods_are_written_in_one_turn() -> None:
    """Else a load that never pauses pays for records each cycle, and events wait for its end."""
    make_node("n1")
    placing = Placing()
    with closing(placing.scheduler.binder) as binder:
        placing.create(6)
        while placing.scheduler.cycle(SECONDS):
            binder.finish_batch(SECONDS)
        assert len(binder.recorder) == 6
        binder.write_records(SECONDS, 20)
        assert not binder.has_news

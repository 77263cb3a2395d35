"""Who takes more than their part of a web process, and how they give way."""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from api.server import lanes
from api.server.lanes import Lane
from api.server.shares import SPAN_SECONDS, SWITCH_SECONDS, YIELD_SECONDS, Shares, heavy_of
from tests.api.test_lanes import Served, many


@pytest.fixture(autouse=True)
def _switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize(
    ("used", "busy", "heavy"),
    [
        ({"flood": 0.6, "user": 0.03}, 0.9, {"flood"}),
        ({"flood": 0.6}, 0.9, set()),  # nobody else asks
        ({"flood": 0.3, "user": 0.03}, 0.4, set()),  # there is enough for both
        ({"a": 0.4, "b": 0.38, "user": 0.01}, 0.9, {"a", "b"}),
        ({"a": 0.04, "user": 0.01}, 0.9, set()),  # neither takes much
        ({"admin": 0.3, **{f"node{n}": 0.0001 for n in range(500)}}, 0.5, {"admin"}),
        ({f"node{n}": 0.002 for n in range(400)}, 0.9, set()),
        ({}, 0.9, set()),
    ],
)
def test_heavy_is_who_takes_more_than_its_part_of_a_busy_process(used, busy, heavy):
    assert heavy_of(used, busy=busy, seconds=1.0) == heavy


def test_it_is_judged_again_and_again_and_threads_switch_oftener_meanwhile():
    found = Shares()
    moment = time.monotonic()

    def pass_span(**used):
        nonlocal moment
        moment += SPAN_SECONDS + 0.01
        for flow, seconds in used.items():
            found.note(flow, seconds, 2 * seconds)
        found.tick(moment)
        return found.heavy

    assert pass_span(flood=0.4, user=0.01) == {"flood"}
    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS[True])
    assert found.enter("user")
    assert not found.enter("flood")
    assert found.light_requests == 1
    found.leave(True)
    found.leave(False)
    assert found.light_requests == 0
    for _ in range(20):
        pass_span(user=0.01)
    assert found.heavy == set()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS[False])
    assert not found.enter("user")
    found.note("user", 1, 1)
    found.tick(moment)  # too soon
    assert found.heavy == set()


def beside(scenario, *, threads, limit, heavy=("flood",)):
    """Run a scenario with a lane in which some flows are heavy."""

    async def main():
        served = Served()
        known = Shares()
        known.tick = lambda now: None
        known.heavy = frozenset(heavy)
        lane = Lane("test", served, threads=threads, limit=limit, shares=known)
        try:
            return await asyncio.wait_for(scenario(lane, served), 20)
        finally:
            served.go.release(10_000)
            lane.close()

    return asyncio.run(main())


@pytest.fixture
def patient(monkeypatch):
    """Heavy flows give way for as long as it takes, and nothing takes long."""
    monkeypatch.setattr(lanes, "YIELD_SECONDS", 30.0)
    monkeypatch.setattr(lanes, "LONG_SECONDS", 30.0)


def test_a_heavy_flow_has_one_thread_and_a_light_one_finds_another(patient):
    async def scenario(lane, served):
        flood = many(lane, "flood", 20)
        await served.reach(1)
        other = many(lane, "other", 1) + many(lane, "third", 1)
        await served.reach(3)
        assert sorted(served.batches[1:]) == [["o"], ["t"]]
        served.go.release(1000)
        await asyncio.gather(*other)
        await asyncio.gather(*many(lane, "flood", 1), *flood)  # it comes, and a thread looks
        assert served.batches[3:] == [["f"]] * 20

    beside(scenario, threads=4, limit=1)


def test_a_heavy_flow_begins_nothing_while_a_light_request_is_under_way(patient):
    async def scenario(lane, served):
        other = many(lane, "other", 1)
        await served.reach(1)
        flood = many(lane, "flood", 20)
        again = many(lane, "other", 1)
        await served.reach(2)
        assert served.batches == [["o"], ["o"]]
        served.go.release(2)
        await asyncio.gather(*other, *again)
        served.go.release(1000)
        # The next look: a piece that comes, or the end of the pause.
        await asyncio.gather(*many(lane, "flood", 1), *flood)
        assert all(set(batch) == {"f"} for batch in served.batches[2:])

    beside(scenario, threads=4, limit=64)


def test_it_gives_way_for_a_moment_only():
    """A light request that takes for ever holds nobody up."""

    async def scenario(lane, served):
        other = many(lane, "other", 1)
        await served.reach(1)
        began = time.monotonic()
        flood = many(lane, "flood", 5)
        await served.reach(2)
        assert time.monotonic() - began >= YIELD_SECONDS * 0.9
        assert set(served.batches[1]) == {"f"}
        served.go.release(1000)
        await asyncio.gather(*other, *flood)

    beside(scenario, threads=2, limit=64)


def test_a_long_piece_of_a_heavy_flow_does_not_hold_up_its_others():
    async def scenario(lane, served):
        flood = many(lane, "flood", 3)
        await served.reach(2)  # of two that it may have of four threads
        served.go.release(1000)
        await asyncio.gather(*flood)

    beside(scenario, threads=4, limit=1, heavy=("flood", "nobody"))


def test_what_is_light_shares_no_batch_with_what_is_heavy(patient):
    async def scenario(lane, served):
        first = many(lane, "other", 1)
        await served.reach(1)
        flood = many(lane, "flood", 5)
        light = many(lane, "other", 2) + many(lane, "third", 1)
        await asyncio.sleep(0)
        served.go.release(10_000)
        await asyncio.gather(*first, *light)
        await asyncio.gather(*many(lane, "flood", 1), *flood)  # it comes, and the thread looks
        assert served.batches[1] == ["o", "o", "t"]
        assert all(set(batch) == {"f"} for batch in served.batches[2:])

    beside(scenario, threads=1, limit=64)


def test_nothing_is_lost_however_flows_change_their_weight():
    """Whatever is heavy at whatever moment, all that was asked is answered."""

    async def scenario(lane, served):
        served.go.release(10_000)
        stop = threading.Event()

        def turn():
            weights = [frozenset(), frozenset({"a"}), frozenset({"a", "b"})]
            while not stop.wait(0.0005):
                weights.append(weights.pop(0))
                lane._shares.heavy = weights[0]

        turner = threading.Thread(target=turn)
        turner.start()
        try:
            works = [
                asyncio.ensure_future(lane.run(f"{flow}{number}", flow))
                for number in range(300)
                for flow in ("a", "b", "c")
            ]
            assert len(await asyncio.gather(*works)) == 900
        finally:
            stop.set()
            turner.join()
        assert lane.waiting == 0
        assert lane._shares.light_requests == 0

    beside(scenario, threads=3, limit=4)

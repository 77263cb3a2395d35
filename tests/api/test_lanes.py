"""Lanes are shared fairly: what one flow sends keeps no other waiting for more than a turn."""

import asyncio
import threading
import time

import pytest

from api.server import lanes
from api.server.budget import Budget
from api.server.lanes import Calls, Lane
from clusterstate.objects.values.errors import TooManyRequests


class Served:
    """What a lane served, in order; each batch waits until it is let go."""

    def __init__(self):
        self.batches = []
        self.go = threading.Semaphore(0)

    def __call__(self, works):
        self.batches.append(list(works))
        self.go.acquire(timeout=10)
        return [work.upper() for work in works]

    async def reach(self, number):
        """Wait until so many batches have begun."""
        end = time.monotonic() + 10
        while len(self.batches) < number:
            assert time.monotonic() < end, self.batches
            await asyncio.sleep(0.001)


def many(lane, flow, number):
    """Ask so often for one flow; what a work says is the first letter of its flow."""
    return [asyncio.ensure_future(lane.run(flow[0], flow)) for _ in range(number)]


def running(scenario, *, threads, limit, **options):
    async def main():
        served = Served()
        lane = Lane("test", served, threads=threads, limit=limit, **options)
        try:
            return await scenario(lane, served)
        finally:
            served.go.release(1000)
            lane.close()

    return asyncio.run(main())


def test_where_pieces_take_long_a_flow_that_is_alone_leaves_room():
    async def scenario(lane, served):
        flood = many(lane, "flood", 8)
        await served.reach(2)
        await asyncio.sleep(0.05)
        assert len(served.batches) == 2
        other = asyncio.ensure_future(lane.run("o", "other"))
        await served.reach(3)
        assert served.batches[2] == ["o"]
        served.go.release(100)
        assert await other == "O"
        assert await asyncio.gather(*flood) == ["F"] * 8

    running(scenario, threads=4, limit=1, keeps_room=True)


def test_flows_take_turns_on_one_thread():
    async def scenario(lane, served):
        flood = [asyncio.ensure_future(lane.run("f", "flood")) for _ in range(50)]
        await served.reach(1)
        other = asyncio.ensure_future(lane.run("o", "other"))
        await asyncio.sleep(0)
        served.go.release(3)
        assert await other == "O"
        assert ["o"] in served.batches[:3]
        served.go.release(100)
        await asyncio.gather(*flood)

    running(scenario, threads=1, limit=1)


def test_a_flood_leaves_half_of_the_threads_to_others():
    """Without a thread being let go, the other flow's request is served."""

    async def scenario(lane, served):
        other = asyncio.ensure_future(lane.run("o", "other"))
        await served.reach(1)
        served.go.release()
        await other
        flood = [asyncio.ensure_future(lane.run("f", "flood")) for _ in range(50)]
        await served.reach(3)  # two threads of four are the flood's
        again = asyncio.ensure_future(lane.run("o", "other"))
        await served.reach(4)
        assert served.batches[1:] == [["f"], ["f"], ["o"]]
        served.go.release(100)
        await asyncio.gather(again, *flood)

    running(scenario, threads=4, limit=1)


def test_a_flow_that_is_alone_has_every_thread():
    async def scenario(lane, served):
        alone = [asyncio.ensure_future(lane.run("a", "alone")) for _ in range(8)]
        await served.reach(4)
        served.go.release(100)
        await asyncio.gather(*alone)

    running(scenario, threads=4, limit=1)


def test_a_batch_that_flows_share_is_no_flood():
    async def scenario(lane, served):
        first = asyncio.ensure_future(lane.run("x", "first"))
        await served.reach(1)
        flood = [asyncio.ensure_future(lane.run("f", "flood")) for _ in range(60)]
        other = asyncio.ensure_future(lane.run("o", "other"))
        await asyncio.sleep(0)
        served.go.release(2)
        assert await other == "O"
        assert sorted(served.batches[1]) == ["f"] * lanes.MIXED + ["o"]
        served.go.release(100)
        await asyncio.gather(first, *flood)

    running(scenario, threads=1, limit=64)


def test_what_no_thread_could_take_is_taken_when_its_flow_may_run():
    """Tokens that were spent in vain lose no work."""

    async def scenario(lane, served):
        served.go.release(10_000)
        works = [
            asyncio.ensure_future(lane.run(f"{flow}{number}", flow))
            for number in range(200)
            for flow in ("a", "b", "c")
        ]
        assert len(await asyncio.wait_for(asyncio.gather(*works), 20)) == 600
        assert lane.waiting == 0

    running(scenario, threads=2, limit=4)


def test_a_flow_that_has_too_much_waiting_is_put_off_and_others_are_not():
    async def scenario(lane, served):
        flood = [asyncio.ensure_future(lane.run("f", "flood")) for _ in range(20)]
        await served.reach(1)
        other = asyncio.ensure_future(lane.run("o", "other"))
        served.go.release(100)
        assert await other == "O"
        found = await asyncio.gather(*flood, return_exceptions=True)
        refused = [each for each in found if isinstance(each, TooManyRequests)]
        assert len(refused) in (14, 15)
        assert refused[0].details == {"retryAfterSeconds": 1}
        assert found.count("F") == 20 - len(refused)

    running(scenario, threads=1, limit=1, most=5)


def test_what_waited_too_long_is_put_off(monkeypatch):
    monkeypatch.setattr(lanes, "MAX_WAIT_SECONDS", 0.05)

    async def scenario(lane, served):
        first = asyncio.ensure_future(lane.run("a", "one"))
        await served.reach(1)
        late = asyncio.ensure_future(lane.run("b", "two"))
        await asyncio.sleep(0.1)
        served.go.release(2)
        assert await first == "A"
        with pytest.raises(TooManyRequests, match="waited too long"):
            await late

    running(scenario, threads=1, limit=1)


@pytest.mark.parametrize("how", ["raises", "ends", "too few", "too many"])
def test_a_batch_that_fails_is_answered_and_its_thread_goes_on(how):
    """An answer that never comes would hold up its client, and every batch that comes after it."""
    ended = []

    def serve(works):
        if works != ["bad"]:
            return [work.upper() for work in works]
        if how == "raises":
            raise ZeroDivisionError
        if how == "ends":
            next(iter(()))
        return works * 2 if how == "too many" else []

    async def main():
        lane = Lane("test", serve, threads=1, limit=1, finish=lambda: ended.append(how))
        try:
            for _ in range(3):
                with pytest.raises(ZeroDivisionError if how == "raises" else RuntimeError):
                    await asyncio.wait_for(lane.run("bad", "one"), 10)
                assert await asyncio.wait_for(lane.run("good", "one"), 10) == "GOOD"
        finally:
            lane.close()

    asyncio.run(main())
    assert ended[:3] == [how] * 3, "what the thread had open is closed"


def test_threads_that_rest_give_back_what_they_have_and_are_woken_when_others_are_busy(monkeypatch):
    monkeypatch.setattr(lanes, "REST_SECONDS", 0.02)
    ended = []
    together = threading.Barrier(3)

    def serve(works):
        together.wait(30)  # only if all three threads serve at a time
        return works

    async def main():
        lane = Lane(
            "test", serve, threads=3, limit=1,
            finish=lambda: ended.append(threading.current_thread().name),
        )  # fmt: skip
        try:
            for _ in range(3):
                ended.clear()
                await asyncio.gather(*(lane.run(number, "one") for number in range(3)))
                end = time.monotonic() + 60
                while not {"test-1", "test-2"} <= set(ended):
                    assert time.monotonic() < end, ended
                    await asyncio.sleep(0.01)
        finally:
            lane.close()

    asyncio.run(main())


def test_who_cannot_take_an_answer_keeps_it_from_nobody():
    class Broken:
        def done(self):
            return False

        def set_result(self, answer):
            raise RuntimeError(answer)

    async def scenario(lane, served):
        first = many(lane, "first", 1)  # keeps the thread until the others wait
        await served.reach(1)
        light = lane.enter("b", Broken(), "broken")
        others = many(lane, "broken", 1)
        await asyncio.sleep(0)
        served.go.release(10)
        answers = [await asyncio.wait_for(one, 10) for one in (*first, *others)]
        lane.leave(light)
        return answers, len(served.batches), lane.waiting

    assert running(scenario, threads=1, limit=4) == (["F", "B"], 2, 0)


def test_calls_return_what_functions_return_and_raise_what_they_raise():
    async def main():
        calls = Calls("test", threads=1, finish=lambda: None)
        assert await calls.run("a", divmod, 7, 3) == (2, 1)
        with pytest.raises(ZeroDivisionError):
            await calls.run("a", divmod, 1, 0)
        calls.close()

    asyncio.run(main())


def test_a_budget_leaves_half_to_others():
    budget = Budget(100)
    budget.require("a", 50)
    with pytest.raises(TooManyRequests):
        budget.require("a", 51)
    with budget.reserved("a", 50):
        with pytest.raises(TooManyRequests):
            budget.require("a", 1)
        budget.require("b", 50)
        with budget.reserved("b", 50), pytest.raises(TooManyRequests):
            budget.require("c", 1)
    assert budget.used == 0


def test_no_request_waits_for_the_batch_of_another_flow_while_a_thread_is_free(monkeypatch):
    """Tokens are nobody's: a batch must not take the one by which another flow would be seen."""
    monkeypatch.setattr(lanes, "ACTIVE_SECONDS", 1000.0)

    async def scenario(lane, served):
        served.go.release()
        await asyncio.gather(*many(lane, "other", 1))
        flood = many(lane, "flood", 8)
        await served.reach(2)  # on one thread of two; the other has looked in vain
        served.go.release()
        other = many(lane, "other", 1)
        end = time.monotonic() + 10
        while not any("o" in batch for batch in served.batches[2:]):
            assert time.monotonic() < end, served.batches
            await asyncio.sleep(0)
        served.go.release(1000)
        await asyncio.gather(*other, *flood)

    for _ in range(200):
        running(scenario, threads=2, limit=4)

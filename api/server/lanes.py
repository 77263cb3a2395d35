"""Threads that serve waiting requests, a batch at a time, fairly among users.

A lane is a queue and a few threads. An idle thread takes a request at once; while all are busy
requests gather, and the next free thread takes up to ``limit`` of them. The event loop is woken
once for the answers of a whole batch, since waking a thread costs more than most of its work.

Requests belong to *flows*, usually one per user, as in Kubernetes' API priority and fairness. Flows
take turns, so that a request waits for one turn of each flow and not for all earlier requests of
others. While more than one flow is active, none has more than half of the threads: another's
request finds a free thread. Threads without work for a while rest, which frees their database
session, and are woken when all others are busy. A flow may have a limited number of waiting
requests; more are answered 429, as are requests that waited too long. A single flow has the whole
lane. A heavy flow is delayed (``api.server.shares``).
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import structlog

from api.server.shares import LONG_SECONDS, YIELD_SECONDS, Shares
from clusterstate.objects.values.errors import TooManyRequests

logger = structlog.get_logger(__name__)

Work = TypeVar("Work")
Answer = TypeVar("Answer")
Result = TypeVar("Result")
Taken_contra = TypeVar("Taken_contra", contravariant=True)

MAX_WAITING = 4096
"""Requests of all flows that may wait for one lane."""

MAX_WAITING_OF_ONE = 1024
"""Requests of one flow that may wait."""

MAX_WAIT_SECONDS = 15.0
"""How long a request waits for a thread (a quarter of Kubernetes' request timeout, as there)."""

ACTIVE_SECONDS = 1.0
"""A flow counts as active for at least this long after a request, for twice as long at most."""

MIXED = 8
"""Pieces of one flow in a batch that several flows share: a flood would make the others wait for
a full batch of its own."""

SHARED = 16
"""Pieces in a batch while several flows are active: who comes next waits for less."""

REST_SECONDS = 300.0
"""Seconds without work after which a thread rests: a new session costs a burst 50 ms of CPU."""
_FIRST_RESTS: Final = 2
"""The first thread of a lane, which goes on waiting for work, rests after this many times that."""

_RETRY = {"retryAfterSeconds": 1}


class Receiver(Protocol[Taken_contra]):
    """A receiver of an answer, such as a future."""

    def done(self) -> bool:
        """Return whether it no longer waits."""

    def set_result(self, result: Taken_contra, /) -> None:
        """Deliver the answer."""

    def set_exception(self, exception: Exception, /) -> None:
        """Deliver an error as the answer."""


class _Flow(Generic[Work, Answer]):
    """The waiting and running requests of one user in a lane."""

    __slots__ = ("begun_at", "name", "running", "waiting", "yields_since")

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: deque[tuple[Work, Receiver[Answer], float]] = deque()
        self.running = 0
        self.begun_at = 0.0  # when its last batch was begun
        self.yields_since: float | None = None  # when it was first delayed before the next one


class _Batch(NamedTuple, Generic[Work, Answer]):
    """A batch, its flows with their numbers of pieces, and the delay before the next check."""

    batch: "list[tuple[Work, Receiver[Answer], float]]"
    flows: dict[_Flow[Work, Answer], int]
    pause: float | None


class _Done(NamedTuple, Generic[Answer]):
    """The result of a piece of work: its answer, or the error."""

    receiver: Receiver[Answer]
    failure: Exception | None
    answer: Answer | None = None


class Lane(Generic[Work, Answer]):
    """A queue of work for ``threads`` threads, each taking up to ``limit`` pieces at a time.

    ``serve`` returns one answer for each piece, in order. If it raises, ``run`` raises that for
    every piece of the batch, and the thread continues. ``prepare``, which makes the first thread
    ready for its first piece, and ``finish``, which releases a thread's resources, never raise.
    ``most``: how many pieces of one flow may wait. ``shares`` belongs to all lanes of a process.
    ``keeps_room``: even a single flow has at most half of the threads, since its pieces take long.
    ``shared``: how many pieces a thread takes at a time while several flows are active.
    """

    def __init__(
        self,
        name: str,
        serve: Callable[[Sequence[Work]], Sequence[Answer]],
        *,
        threads: int,
        limit: int,
        prepare: Callable[[], None] | None = None,
        finish: Callable[[], None] | None = None,
        most: int = MAX_WAITING_OF_ONE,
        shares: Shares | None = None,
        keeps_room: bool = False,
        shared: int = SHARED,
    ) -> None:
        self.name = name
        self._shared = shared
        self._keeps_room = keeps_room
        self._shares = shares or Shares()
        self._serve = serve
        self._prepare = prepare
        self._finish = finish
        self._closed = False
        self._threads = threads
        self._limit = limit
        self._most = most
        # One token for each piece of work; a thread that finds no work it may do waits for another
        # token.
        self._tokens: SimpleQueue[None] = SimpleQueue()
        self._idle = 0  # threads that wait for a token
        self._resting = 0
        self._bell = threading.Semaphore(0)  # wakes resting threads
        self._lock = threading.Lock()
        self._flows: dict[str, _Flow[Work, Answer]] = {}
        self._turns: deque[_Flow[Work, Answer]] = deque()  # flows with waiting work
        self._active: set[str] = set()
        self._was_shared = False
        self._active_since = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.waiting = 0
        self.moved_at = 0.0

    async def run(self, work: Work, flow: str = "") -> Answer:
        """Return the answer to a piece of work; called on the event loop.

        Raises:
            TooManyRequests: too much waits already, or this waited too long.
            Exception: what ``serve`` raised.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        light = self.enter(work, future, flow)
        try:
            return await future
        finally:
            self.leave(light)

    def enter(self, work: Work, receiver: "Receiver[Answer]", flow: str) -> bool:
        """Queue a piece of work with the receiver of its answer; called on the event loop.

        Returns the argument for ``leave``, which must be called when the receiver has an answer or
        no longer waits.

        Raises:
            TooManyRequests: too much waits already.
        """
        loop = self._loop or self.start(asyncio.get_running_loop())
        self._put(work, receiver, flow)
        if not self.waiting:
            self.moved_at = loop.time()
        self.waiting += 1
        return self._shares.enter(flow)

    def leave(self, light: bool) -> None:  # noqa: FBT001  # what ``enter`` returned
        """Note that a piece of work has its answer, or that its receiver no longer waits."""
        self._shares.leave(light)
        self.waiting -= 1
        if self._loop is not None:
            self.moved_at = self._loop.time()

    def stuck_seconds(self, now: float) -> float:
        """Return for how long there was work and none was finished; ``now`` is the loop's time."""
        return now - self.moved_at if self.waiting else 0.0

    def start(self, loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
        """Start the threads, the first of which calls ``prepare``; else the first ``enter`` does.

        Returns the loop.
        """
        self._loop = loop
        self._resting = self._threads - 1
        for number in range(self._threads):
            threading.Thread(
                target=self._work, args=(number == 0,), name=f"{self.name}-{number}", daemon=True
            ).start()
        return loop

    def close(self) -> None:
        """End the threads; waiting work gets no answer."""
        self._closed = True
        for _ in range(self._threads):
            self._tokens.put(None)
            self._bell.release()

    def _put(self, work: Work, receiver: Receiver[Answer], name: str) -> None:
        now = time.monotonic()
        self._shares.tick(now)
        with self._lock:
            if now - self._active_since > ACTIVE_SECONDS:
                self._was_shared = len(self._active) > 1
                self._active.clear()
                self._active_since = now
            self._active.add(name)
            flow = self._flows.get(name)
            if flow is None:
                flow = self._flows[name] = _Flow(name)
            if len(flow.waiting) >= self._most or self.waiting >= MAX_WAITING:
                self._forget_idle(name, flow)
                raise TooManyRequests("too many requests are waiting", _RETRY)
            if not flow.waiting:
                self._turns.append(flow)
            flow.waiting.append((work, receiver, now))
            self._tokens.put(None)
            self._wake()

    def _wake(self) -> None:
        """Wake a resting thread if there are more tokens than threads that wait for one."""
        if self._resting and self._tokens.qsize() > self._idle:
            self._resting -= 1
            self._bell.release()

    def _forget_idle(self, name: str, flow: _Flow[Work, Answer]) -> None:
        if not flow.waiting and not flow.running:
            self._flows.pop(name, None)

    def _take(self) -> "_Batch[Work, Answer]":
        """Return the next batch, empty when no flow may run now."""
        batch: list[tuple[Work, Receiver[Answer], float]] = []
        numbers: dict[_Flow[Work, Answer], int] = {}
        pauses: list[float] = []
        heavy = self._shares.heavy
        now = time.monotonic() if heavy else 0.0
        with self._lock:
            turns = self._turns
            shared = self._was_shared or len(self._active) > 1
            limit = min(self._limit, self._shared) if shared else self._limit
            halved = shared or self._keeps_room
            cap = max(1, self._threads // 2) if halved else self._threads
            share = limit if len(turns) == 1 else min(limit, MIXED)
            passed: list[_Flow[Work, Answer]] = []
            again: list[_Flow[Work, Answer]] = []
            alone = False
            while turns and len(batch) < limit and not alone:
                flow = turns.popleft()
                if flow.running >= cap:
                    passed.append(flow)
                    continue
                if flow.name in heavy:
                    if numbers:  # a light flow's batch is not delayed
                        again.append(flow)
                        continue
                    if wait := self._must_wait(flow, now):
                        passed.append(flow)
                        pauses.append(wait)
                        continue
                    alone = True
                waiting = flow.waiting
                number = min(share, limit - len(batch), len(waiting))
                batch += [waiting.popleft() for _ in range(number)]
                flow.running += 1
                flow.begun_at, flow.yields_since = now, None
                numbers[flow] = number
                if waiting:
                    again.append(flow)
            may_go_on = bool(turns) or any(
                flow.running < (1 if flow.name in heavy else cap) for flow in again
            )
            self._drop_tokens(len(batch) - 1, may_go_on=may_go_on)
            turns.extendleft(reversed(passed))
            turns.extend(again)
        return _Batch(batch, numbers, min(pauses) if pauses else None)

    def _drop_tokens(self, number: int, *, may_go_on: bool) -> None:
        """Take the tokens of a batch but the first; ``may_go_on``: another thread may run as well.

        Tokens belong to no particular piece, and a piece that could not run when its token came has
        none. So one token stays, or is put back, while there is work for another thread, which must
        not wait for the end of this batch.
        """
        tokens = self._tokens
        with contextlib.suppress(Empty):
            for _ in range(number):
                tokens.get_nowait()
        if may_go_on and number >= 0 and tokens.empty():
            tokens.put(None)
        self._wake()

    def _must_wait(self, flow: _Flow[Work, Answer], now: float) -> float:
        """Return for how many seconds a heavy flow must not start a piece, 0 if it may."""
        if flow.running:
            return max(0.0, flow.begun_at + LONG_SECONDS - now)
        if self._shares.light_requests:
            if flow.yields_since is None:
                flow.yields_since = now
            return max(0.0, flow.yields_since + YIELD_SECONDS - now)
        return 0.0

    def _release(self, batch: "_Batch[Work, Answer]", computed: float, lasted: float) -> None:
        """Note that a batch is done: the CPU seconds of its thread, and how long it lasted."""
        with self._lock:
            for flow, number in batch.flows.items():
                flow.running -= 1
                part = number / len(batch.batch)
                self._shares.note(flow.name, part * computed, part * lasted)
            if len(self._flows) > MAX_WAITING:
                self._flows = {n: f for n, f in self._flows.items() if f.waiting or f.running}

    def _work(self, first: bool) -> None:  # noqa: FBT001  # a thread's argument
        loop = self._loop
        assert loop is not None
        if not first:
            self._bell.acquire()
        elif self._prepare is not None:
            self._prepare()
        pause: float | None = None
        while True:
            # A flow that had to wait may run after the pause.
            rests_after = REST_SECONDS * (_FIRST_RESTS if first else 1)
            found_one = self._wait(rests_after if pause is None else pause)
            if not (found_one or self._closed) and pause is None:
                self._rest(first=first)
                continue
            if self._closed:
                break
            # Pieces that could not run when their token came have none any more; so check again
            # after each batch, until nothing may run. A surplus token costs one needless check.
            while True:
                found = self._take()
                batch, pause = found.batch, found.pause
                if not batch:
                    break
                begun_at, begun = time.monotonic(), time.thread_time()
                done = self._answer(batch)
                self._release(found, time.thread_time() - begun, time.monotonic() - begun_at)
                if loop.is_closed():
                    break
                loop.call_soon_threadsafe(_deliver, done)
        if self._finish is not None:
            self._finish()

    def _wait(self, seconds: float) -> bool:
        """Wait for a token, at most ``seconds``; return whether there was one."""
        with self._lock:
            self._idle += 1
        try:
            self._tokens.get(timeout=seconds)
        except Empty:
            return False
        finally:
            with self._lock:
                self._idle -= 1
                self._wake()
        return True

    def _rest(self, *, first: bool) -> None:
        """Release this thread's connection; all but the first thread then sleep until needed."""
        if self._finish is not None:
            self._finish()
        if first:
            return
        with self._lock:
            self._resting += 1
            self._wake()
        self._bell.acquire()

    def _answer(
        self, batch: Sequence[tuple[Work, Receiver[Answer], float]]
    ) -> "list[_Done[Answer]]":
        """Serve a batch; pieces of work that waited longer than MAX_WAIT_SECONDS get an error."""
        oldest = time.monotonic() - MAX_WAIT_SECONDS
        fresh = [work for work, _, since in batch if since >= oldest]
        try:
            served = list(self._serve(fresh)) if fresh else []
            if len(served) != len(fresh):
                raise RuntimeError(f"{len(served)} answers to {len(fresh)} pieces of work")
        except Exception as error:  # each piece gets it as its answer
            logger.exception("lane_failed", lane=self.name, pieces=len(fresh))
            if self._finish is not None:
                self._finish()  # the thread's connection may be in an undefined state
            # A future takes no StopIteration.
            failed = RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
            return [_Done(receiver, failed) for _, receiver, _ in batch]
        answers = iter(served)
        if len(fresh) == len(batch):  # as nearly always
            return [_Done(receiver, None, next(answers)) for _, receiver, _ in batch]
        late = TooManyRequests("the request waited too long", _RETRY)
        return [
            _Done(receiver, None, next(answers)) if since >= oldest else _Done(receiver, late)
            for _, receiver, since in batch
        ]


class Calls:
    """A lane for functions: as ``run_in_executor``, but fair among flows."""

    def __init__(
        self, name: str, *, threads: int, finish: Callable[[], None], shares: Shares | None = None
    ) -> None:
        self._lane: Lane[Callable[[], Any], Any] = Lane(
            name, _call, threads=threads, limit=1, finish=finish, shares=shares
        )
        self.close = self._lane.close

    async def run(self, flow: str, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run a function on one of the threads; return its result, or raise its error."""
        done: Result
        failure, done = await self._lane.run(partial(function, *arguments), flow)
        if failure is not None:
            raise failure
        return done


def _call(functions: Sequence[Callable[[], Any]]) -> list[tuple[Exception | None, Any]]:
    found: list[tuple[Exception | None, Any]] = []
    for function in functions:
        try:
            found.append((None, function()))
        except Exception as error:  # noqa: BLE001  # raised where the function was asked for
            found.append((error, None))
    return found


def _deliver(done: "Sequence[_Done[Any]]") -> None:
    for receiver, failure, answer in done:
        if receiver.done():  # the client may have gone
            continue
        try:
            if failure is not None:
                receiver.set_exception(failure)
            else:
                receiver.set_result(answer)
        except Exception:  # the others still get theirs
            logger.exception("answer_not_taken")

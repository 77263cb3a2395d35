"""Threads that take what waits, a batch at a time.

A lane is a queue and a few threads. An idle thread takes a request at once; while all are busy
requests gather, and the next free thread takes up to ``limit`` of them. The event loop is woken
once for the answers of a whole batch: waking a thread is dearer than most of what is done in it.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Work = TypeVar("Work")
Answer = TypeVar("Answer")


class Lane(Generic[Work, Answer]):
    """A queue of work for ``threads`` threads, each taking up to ``limit`` pieces at a time.

    ``serve`` returns one answer for each piece, in order, and raises nothing; nor does ``prepare``,
    which makes a thread ready for its first piece.
    """

    def __init__(
        self,
        name: str,
        serve: Callable[[Sequence[Work]], Sequence[Answer]],
        *,
        threads: int,
        limit: int,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._serve = serve
        self._prepare = prepare
        self._threads = threads
        self._limit = limit
        self._queue: SimpleQueue[tuple[Work, asyncio.Future[Answer]]] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.waiting = 0
        self._moved_at = 0.0

    async def run(self, work: Work) -> Answer:
        """Return the answer to a piece of work; called on the event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self.start(loop)
        future: asyncio.Future[Answer] = loop.create_future()
        if not self.waiting:
            self._moved_at = loop.time()
        self.waiting += 1
        self._queue.put((work, future))
        try:
            return await future
        finally:
            self.waiting -= 1
            self._moved_at = loop.time()

    def stuck_seconds(self, now: float) -> float:
        """Return for how long there was work and none was finished; ``now`` is the loop's time."""
        return now - self._moved_at if self.waiting else 0.0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the threads, each of which calls ``prepare``; ``run`` does it where nobody did."""
        self._loop = loop
        for number in range(self._threads):
            threading.Thread(target=self._work, name=f"{self.name}-{number}", daemon=True).start()

    def _work(self) -> None:
        loop = self._loop
        assert loop is not None
        if self._prepare is not None:
            self._prepare()
        queue, limit = self._queue, self._limit
        while True:
            batch = [queue.get()]
            try:
                while len(batch) < limit:
                    batch.append(queue.get_nowait())
            except Empty:
                pass
            answers = self._serve([work for work, _ in batch])
            done = [(future, answer) for (_, future), answer in zip(batch, answers, strict=True)]
            if loop.is_closed():
                return
            loop.call_soon_threadsafe(_deliver, done)


def _deliver(done: Sequence[tuple["asyncio.Future[Answer]", Answer]]) -> None:
    for future, answer in done:
        if not future.done():  # the client may have gone
            future.set_result(answer)

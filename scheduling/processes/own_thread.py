"""A thread for work that may take long, so that the loop that starts it need not wait."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from clusterstate.health import heartbeats
from clusterstate.telemetry.troubles import Trouble
from scheduling import passes
from scheduling.processes.loop import PASS_SECONDS

_REST_SECONDS: Final = 30.0


class OwnThread:
    """Does one piece of work at a time on a thread, and a database session, of its own.

    After ``_REST_SECONDS`` without work the session is closed. The thread starts with the first
    work; it is a daemon thread. Work that takes longer than ``PASS_SECONDS`` counts as hung
    (``clusterstate.health.heartbeats``).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._work: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._trouble = Trouble()

    def begin(self, do: Callable[[], object]) -> bool:
        """Let the thread call ``do``; return False, without a call, if it is busy.

        An error of ``do`` is logged, and closes the thread's session (`passes.attempt`). Only one
        thread may call ``begin``.
        """
        if not self._idle.is_set():
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, name=self.name, daemon=True)
            self._thread.start()
        self._idle.clear()
        self._work.put(do)
        return True

    def wait(self, seconds: float) -> bool:
        """Wait until the thread is idle, at most ``seconds``; return whether it is."""
        return self._idle.wait(seconds)

    def end(self) -> None:
        """Let the thread end after its present work; returns at once."""
        self._work.put(None)

    def _next(self) -> Callable[[], object] | None:
        try:
            return self._work.get(timeout=_REST_SECONDS)
        except Empty:
            passes.hang_up()
            return self._work.get()

    def _live(self) -> None:
        while (do := self._next()) is not None:
            heartbeats.beat(self.name, PASS_SECONDS)
            try:
                passes.attempt(self.name, do, trouble=self._trouble)
            finally:
                heartbeats.rest(self.name)
                self._idle.set()
        passes.hang_up()

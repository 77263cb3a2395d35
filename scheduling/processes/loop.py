"""A loop of a worker process: a thread that restarts after failures, until the process ends."""

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable

from django.conf import settings

from clusterstate.actions.loops import progress
from clusterstate.database import schema, sql
from clusterstate.health import heartbeats
from clusterstate.telemetry.metrics import scheduler
from clusterstate.telemetry.troubles import Trouble
from scheduling import passes

_STANDBY_SECONDS = 1.0
"""Seconds between two attempts to take a lock that another process has."""
_HURRY_SECONDS = 0.02
_HURRY_FOR_SECONDS = 3.0
"""Seconds of quick attempts after that process ended: its session ends a little later."""
_AFTER_FAILURE_SECONDS = 0.5
PASS_SECONDS = 300.0
"""Seconds that one pass of a controller may take, also with ten thousand pods to write."""


def attempt_seconds() -> float:
    """Return the longest time, in seconds, until a silent database is noticed."""
    return float(settings.DATABASE_ANSWER_SECONDS) + 30


class Loop:
    """A thread that calls ``run`` again and again until it is stopped.

    ``run`` gets the loop, for ``stopping`` and ``pause``. It returns when it is idle, when another
    process does the work, or when the process stops.
    """

    def __init__(self, name: str, run: Callable[["Loop"], object]) -> None:
        self.name = name
        self._run = run
        self._stop = threading.Event()
        self._nudged = threading.Event()
        self._trouble = Trouble()
        self._is_prepared = False
        self._holder = 0
        self._hurry_until = 0.0
        self._thread = threading.Thread(target=self._live, name=f"loop-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stopping(self) -> bool:
        """Return whether the loop was stopped."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Stop the loop; returns at once."""
        self._stop.set()
        self._nudged.set()

    def join(self, seconds: float) -> None:
        """Wait until the loop has stopped, at most ``seconds``."""
        self._thread.join(seconds)

    def nudge(self) -> None:
        """End the loop's present ``pause``."""
        self._nudged.set()

    def busy(self) -> None:
        """Announce a pass that may take long, so that the heartbeat allows ``PASS_SECONDS``."""
        heartbeats.beat(self.name, PASS_SECONDS)

    def pause(self, seconds: float) -> None:
        """Wait ``seconds``, or less if there is a nudge or the process stops."""
        came = self._nudged.wait(seconds)
        scheduler.woken.of(self.name, "nudge" if came else "time").up()
        self._nudged.clear()

    def await_turn(self, seconds: float) -> None:
        """Pause; less if the process that does this loop's work ends, if it is on this machine.

        Queries once if that process is not known.
        """
        if not self._holder:
            passes.attempt(self.name, self._find_holder, trouble=self._trouble)
        self.pause(_HURRY_SECONDS if time.monotonic() < self._hurry_until else seconds)

    def _find_holder(self) -> None:
        self._holder = progress.holder(self.name)
        if self._holder:
            threading.Thread(
                target=self._watch, args=(self._holder,), name="turn", daemon=True
            ).start()

    def _watch(self, pid: int) -> None:
        """Wait for the end of process ``pid``; then let the loop take over its work quickly."""
        with contextlib.suppress(OSError):
            process = os.pidfd_open(pid)
            try:
                select.select([process], [], [])
            finally:
                os.close(process)
            self._hurry_until = time.monotonic() + _HURRY_FOR_SECONDS
        self._holder = 0
        self.nudge()

    def _live(self) -> None:
        works = True
        while not self.stopping():
            heartbeats.beat(self.name, attempt_seconds())
            begin = self._begin if works else self._begin_again
            works = passes.attempt(self.name, begin, trouble=self._trouble)
            if not self.stopping():
                if works:
                    self.await_turn(_STANDBY_SECONDS)
                else:
                    self.pause(_AFTER_FAILURE_SECONDS)
        passes.hang_up()
        heartbeats.rest(self.name)

    def _begin(self) -> None:
        self._require_tables()
        self._run(self)

    def _begin_again(self) -> None:
        """Run again after a failure, once the database accepts writes: all work needs them."""
        sql.require_writes()
        self._require_tables()
        passes.tell_end(self.name, self._trouble)  # the next pass may last for days
        self._run(self)

    def _require_tables(self) -> None:
        if not self._is_prepared:
            schema.require()
            self._is_prepared = True

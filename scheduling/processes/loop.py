"""A loop of a worker process: a thread that begins again after failures, until the process ends."""

import threading
from collections.abc import Callable

from django.conf import settings

from clusterstate.database import schema, sql
from clusterstate.health import heartbeats
from clusterstate.telemetry.troubles import Trouble
from scheduling import passes

_STANDBY_SECONDS = 0.25
"""Between two tries to take a lock that another process holds."""
_AFTER_FAILURE_SECONDS = 0.5
ATTEMPT_SECONDS = settings.DATABASE_ANSWER_SECONDS + 30
"""How long it may take to find out that the database does not answer."""
PASS_SECONDS = 300.0
"""What one pass of a controller may take: it writes in pieces, but ten thousand pods are many."""


class Loop:
    """One loop: a thread that calls ``run`` again and again until it is asked to stop.

    ``run`` returns when it has nothing to do for a while, when another process does the work, or
    when the process stops; it is given the loop to ask ``stopping`` and to ``pause``.
    """

    def __init__(self, name: str, run: Callable[["Loop"], object]) -> None:
        self.name = name
        self._run = run
        self._stop = threading.Event()
        self._nudged = threading.Event()
        self._trouble = Trouble()
        self._is_prepared = False
        self._thread = threading.Thread(target=self._live, name=f"loop-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stopping(self) -> bool:
        """Return whether the process was asked to stop."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Ask the loop to stop; returns at once."""
        self._stop.set()
        self._nudged.set()

    def join(self, seconds: float) -> None:
        """Wait until the loop has stopped, ``seconds`` at most."""
        self._thread.join(seconds)

    def nudge(self) -> None:
        """End the present pause."""
        self._nudged.set()

    def busy(self) -> None:
        """Say that a pass begins, which may take long."""
        heartbeats.beat(self.name, PASS_SECONDS)

    def pause(self, seconds: float) -> None:
        """Wait, unless there is a nudge or the process stops."""
        self._nudged.wait(seconds)
        self._nudged.clear()

    def _live(self) -> None:
        works = True
        while not self.stopping():
            heartbeats.beat(self.name, ATTEMPT_SECONDS)
            begin = self._begin if works else self._begin_again
            works = passes.attempt(self.name, begin, trouble=self._trouble)
            if not self.stopping():
                self.pause(_STANDBY_SECONDS if works else _AFTER_FAILURE_SECONDS)
        passes.hang_up()
        heartbeats.rest(self.name)

    def _begin(self) -> None:
        self._require_tables()
        self._run(self)

    def _begin_again(self) -> None:
        """Run after a failure: not before the database takes writes, since all work needs them."""
        sql.require_writes()
        self._require_tables()
        passes.tell_end(self.name, self._trouble)  # the pass itself may last for days
        self._run(self)

    def _require_tables(self) -> None:
        if not self._is_prepared:
            schema.require()
            self._is_prepared = True

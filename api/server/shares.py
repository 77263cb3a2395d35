"""CPU use per flow, and which flows are delayed under overload.

Python computes on one thread at a time. During another user's flood a request waits less for a free
thread than for its turns to compute: it needs half a dozen, each behind all threads that compute
for the flood. So the lanes of a process know its *heavy* flows: those that take more than their
share of a busy process while others have requests as well. Of a heavy flow

* each lane starts one piece at a time, however many threads it has (a piece that takes
  ``LONG_SECONDS`` no longer counts: it waits for something, or is a question of a minute);
* none starts while a light flow's request is under way, for ``YIELD_SECONDS`` at most.

Threads also switch more often then, which costs a little. A process that is not busy, or serves one
flow, has no heavy flows and none of this.

A flow's use is the CPU time of the threads that serve it, halved every ``SPAN_SECONDS``. Flows are
compared with each other, so the event loop's work for them is left out.
"""

import sys
import threading
import time
from typing import Final

SPAN_SECONDS: Final = 0.5
"""Seconds between two looks at which flows are heavy."""
BUSY: Final = 0.5
"""Threads that serve requests at a time, on average: with fewer everybody is served at once."""
NOTABLE: Final = 0.05
"""Share of one core: a user who takes less is not heavy, however little others take."""
LONG_SECONDS: Final = 0.1
YIELD_SECONDS: Final = 0.005
SWITCH_SECONDS: Final = (0.002, 0.0005)
"""How long a thread computes before another has its turn: usually, and while a heavy flow computes.

Half a dozen threads hand a request on to each other: none should wait 5 ms for its turn, as by
default, nor be interrupted too often.
"""


class Shares:
    """CPU shares of a process's users; the event loop calls ``tick``, ``enter``, ``leave``."""

    def __init__(self) -> None:
        self.heavy: frozenset[str] = frozenset()
        """The flows that give way now."""
        self.light_requests = 0
        """Requests of other flows that are under way."""
        self._lock = threading.Lock()
        self._used: dict[str, float] = {}
        self._ticked_at = time.monotonic()
        self._served = 0.0

    def note(self, flow: str, computed: float, lasted: float) -> None:
        """Add the CPU seconds that a thread used for a flow, and how long that lasted."""
        with self._lock:
            self._used[flow] = self._used.get(flow, 0.0) + computed
            self._served += lasted

    def tick(self, now: float) -> None:
        """Recompute the heavy flows, if it is time; ``now`` is the monotonic time."""
        passed = now - self._ticked_at
        if passed < SPAN_SECONDS:
            return
        self._ticked_at = now
        with self._lock:
            used = self._used
            heavy = heavy_of(used, busy=self._served / passed, seconds=2 * passed)
            self._served = 0.0
            # A flow without requests is dropped within seconds.
            self._used = {flow: half for flow, s in used.items() if (half := s / 2) > 1e-4}
        if bool(heavy) != bool(self.heavy):
            sys.setswitchinterval(SWITCH_SECONDS[bool(heavy)])
        self.heavy = heavy

    def enter(self, flow: str) -> bool:
        """Note that a request begins; return whether requests of heavy flows wait for it."""
        light = bool(self.heavy) and flow not in self.heavy
        self.light_requests += light
        return light

    def leave(self, light: bool) -> None:  # noqa: FBT001  # what ``enter`` returned
        """Note that a request is answered."""
        self.light_requests -= light


def heavy_of(used: dict[str, float], *, busy: float, seconds: float) -> frozenset[str]:
    """Return the flows that use more than their share.

    ``used``: the CPU seconds of each flow within the last ``seconds``; ``busy``: how many threads
    served at a time, on average.
    """
    if busy < BUSY or len(used) < 2:
        return frozenset()
    part = max(sum(used.values()) / len(used), NOTABLE * seconds)
    return frozenset(flow for flow, computed in used.items() if computed > part)

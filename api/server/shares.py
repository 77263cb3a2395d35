"""CPU use per flow, and which flows are delayed under overload.

Python computes on one thread at a time. During another user's flood a request waits less for a free
thread than for its turns to compute: it needs half a dozen, each behind all threads that compute
for the flood. So the lanes of a process know its *heavy* flows: those that take more than their
part of the process while it is busy and others have requests as well. Of a heavy flow

* one piece at a time is begun in each lane, however many threads there are (one that takes
  ``LONG_SECONDS`` counts no more: it waits for something, or is a question of a minute);
* none is begun while a light flow's request is under way, for ``YIELD_SECONDS`` at most.

And threads give way to each other more often: each hand-over costs a little, so that is done only
then. A process that is not busy, or serves one flow, has no heavy ones and none of this.

What a flow takes is the CPU time of the threads that serve it, halved every ``SPAN_SECONDS``. Flows
are compared with each other, so what the event loop does for each of them may be left out.
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
        """Count the seconds that a thread computed for a flow, and how long that lasted."""
        with self._lock:
            self._used[flow] = self._used.get(flow, 0.0) + computed
            self._served += lasted

    def tick(self, now: float) -> None:
        """Judge who is heavy, when it is time to; ``now`` is the monotonic time."""
        passed = now - self._ticked_at
        if passed < SPAN_SECONDS:
            return
        self._ticked_at = now
        with self._lock:
            used = self._used
            heavy = heavy_of(used, busy=self._served / passed, seconds=2 * passed)
            self._served = 0.0
            # A flow that asks no more is forgotten within seconds.
            self._used = {flow: half for flow, s in used.items() if (half := s / 2) > 1e-4}
        if bool(heavy) != bool(self.heavy):
            sys.setswitchinterval(SWITCH_SECONDS[bool(heavy)])
        self.heavy = heavy

    def enter(self, flow: str) -> bool:
        """Note that a request is under way; return whether heavy flows give way to it."""
        light = bool(self.heavy) and flow not in self.heavy
        self.light_requests += light
        return light

    def leave(self, light: bool) -> None:  # noqa: FBT001  # what ``enter`` returned
        """Note that a request is answered."""
        self.light_requests -= light


def heavy_of(used: dict[str, float], *, busy: float, seconds: float) -> frozenset[str]:
    """Return the flows that take more than their part.

    ``used``: for how many seconds threads computed for each flow, of the last ``seconds``;
    ``busy``: how many threads served at a time, on average.
    """
    if busy < BUSY or len(used) < 2:
        return frozenset()
    part = max(sum(used.values()) / len(used), NOTABLE * seconds)
    return frozenset(flow for flow, computed in used.items() if computed > part)

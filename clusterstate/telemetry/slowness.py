"""How many times slower than usual a process is, and whether a process of this machine runs.

A process with a tenth of a processor is silent for ten times as long as one with a whole one. To
the database both look alike: their sessions send nothing. So each process measures how slow it is,
and the other processes wait for it that many times as long (``clusterstate.database.sessions``).

A *factor* is a power of two from 1, as usual, to ``MOST``. It rises at once and falls slowly. A
process with loops begins with a high one, since it imports, compiles and loads at its start.

A process that was stopped (SIGSTOP) and continued is not slow: it used no processor meanwhile.
"""

import contextlib
import hashlib
import math
import os
import threading
import time
from functools import cache
from pathlib import Path
from typing import Final

MOST: Final = 32
AT_FIRST: Final = 16
"""The factor of a process that has just started."""
_FALLS: Final = 0.93
"""The share of a measured slowness that remains after one round of the usual length."""
_HALF_LIFE_SECONDS: Final = 60.0
"""Seconds in which a requested factor halves."""
_USED_SHARE: Final = 0.01
_USED_SECONDS: Final = 0.03
"""A process that was not stopped used the CPU for this share of the time, or for these seconds."""


class Slowness:
    """This process's slowdown: the time of its rounds divided by ``usual`` seconds."""

    def __init__(self, usual: float) -> None:
        self._usual = usual
        self._measured = 1.0
        self.requested, self._asked_at = 1.0, 0.0

    def begin(self) -> None:
        """Assume that the process is slow until ``measure`` is called."""
        self._measured = float(AT_FIRST)

    def measure(self, took: float, used: float) -> None:
        """Add a round: its seconds, and the CPU seconds that the process used in it."""
        if not worked(took, used) and took > 2 * self._usual:
            return  # it was stopped
        self._measured = max(took / self._usual, self._measured * _FALLS)

    def ask(self, factor: float, now: float) -> None:
        """Request at least this factor from ``now`` (monotonic) on; it halves every minute."""
        if factor >= self._remembered(now):
            self.requested, self._asked_at = min(factor, float(MOST)), now

    def _remembered(self, now: float) -> float:
        age = max(0.0, now - self._asked_at)
        return self.requested * math.exp2(-age / _HALF_LIFE_SECONDS)

    def factor(self, now: float) -> int:
        """Return the factor at ``now`` (monotonic), rounded up to a power of two."""
        exact = max(1.0, self._measured * 0.9, self._remembered(now))
        return min(MOST, 1 << math.ceil(math.log2(exact)))


def worked(took: float, used: float) -> bool:
    """Return whether a process that used ``used`` CPU seconds in ``took`` seconds was running."""
    return used >= min(_USED_SECONDS, _USED_SHARE * took)


# --- processes of this machine ------------------------------------------------------------------


@cache
def machine() -> str:
    """Return a short name of this machine and pid namespace; empty if not on Linux."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:  # no Linux: nothing is known of other processes
        return ""
    return hashlib.sha256(f"{boot} {numbers}".encode()).hexdigest()[:6]


def sign() -> str:
    """Return a text that identifies this process: machine, pid and start time."""
    return f"{machine()}.{os.getpid()}.{_began(os.getpid()) & 0xFFFFFF:x}"


def _began(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[19]) if fields else time.time_ns()


def _stat(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the state on; empty if there is no process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def process_state(signed: str) -> tuple[str, int] | None:
    """Return the state of the process with this ``sign``, and the processor time it has used.

    The time is in ticks, of a stopped process in nanoseconds. ``None``: the process is not on this
    machine, or is gone.
    """
    place, _, rest = signed.partition(".")
    number, _, began = rest.partition(".")
    if not place or place != machine() or not number.isdigit():
        return None
    fields = _stat(int(number))
    if not fields or f"{int(fields[19]) & 0xFFFFFF:x}" != began:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return fields[0], (fields[0] in "Tt" and nanoseconds(int(number))) or ticks


def nanoseconds(pid: int) -> int:
    """Return the processor time of all threads of a process; 0 if the kernel does not count it."""
    total = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(file.read_text().split()[0])
    return total


class ProcessReport:
    """The slowness of this process, for any of its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slowness = Slowness(1.0)
        self.last = 1
        """The factor at the last request or measurement; costs nothing to read."""

    def begin(self) -> None:
        """Assume that this process is slow until ``measure`` is called (``Slowness.begin``)."""
        with self._lock:
            self._slowness.begin()
            self.last = AT_FIRST

    def measure(self, took: float, used: float) -> None:
        """Add a round of the keeper (``Slowness.measure``)."""
        with self._lock:
            self._slowness.measure(took, used)

    def ask(self, factor: float) -> None:
        """Request at least this factor, because a process was ended while it worked."""
        with self._lock:
            self._slowness.ask(factor, time.monotonic())

    def requested_factor(self) -> float:
        """Return the last factor that was requested."""
        with self._lock:
            return self._slowness.requested

    def factor(self) -> int:
        """Return the present factor."""
        with self._lock:
            self.last = self._slowness.factor(time.monotonic())
            return self.last


own: Final = ProcessReport()

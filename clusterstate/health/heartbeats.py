"""Heartbeats: each working loop states until when it may be silent.

A process has one small file, ``heartbeats/PROCESS-PID`` in the state directory, with a line for
each of its loops. A loop that makes progress moves its deadline (``beat``); one that begins a long
step extends it first. The supervisor of `manage.py up`, or a container's health check, kills a
process when a deadline has passed (``hung``): then the loop is stopped, or waits in vain, and a new
process does its work. No side thread sends heartbeats, and they need nothing but an existing file:
not Redis, not PostgreSQL, no room on the disk (the line is overwritten in place).

Deadlines are on the monotonic clock, which all processes of a machine share, so setting the clock
does not move them. The database has the progress of a loop on *any* host
(``clusterstate.health.progress``).

`python -m clusterstate.health.heartbeats` is the health check: it reads the files of this
container's processes (``STOWAGE_PROCESS``), exits with 0 if there is one and none hangs, and kills
those that hang, so that the container ends and is restarted. It imports no Django.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clusterstate.telemetry import slowness

FOLDER = "heartbeats"
PATIENCE_SECONDS = 30.0
"""How long a loop may be silent unless it requested more."""
START_SECONDS = 900.0
"""How long a process may take until its first loop works: the first start compiles."""
_START = "start"
_FOR_EVER = 10.0**9
_ROOM = 64
"""Bytes of a line; a loop's line is overwritten, never moved."""
_OFTEN_ENOUGH = 0.25


def folder(state: Path) -> Path:
    """Return the folder of the heartbeat files in a state directory."""
    return state / FOLDER


# --- the process that beats ----------------------------------------------------------------------


class _Pulse:
    """This process's heartbeat file. If it cannot be created, heartbeats are not written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: int | None = None
        self._places: dict[str, int] = {}
        self._written: dict[str, float] = {}

    def open(self, state: Path, process: str) -> bool:
        """Create the file of this process, named by its pid. Return False at a second call."""
        with self._lock:
            if self._file is not None:
                return False
            with contextlib.suppress(OSError):
                folder(state).mkdir(mode=0o700, parents=True, exist_ok=True)
                path = folder(state) / f"{process}-{os.getpid()}"
                flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC
                self._file = os.open(path, flags, 0o600)
                os.pwrite(self._file, _line("pid", float(_started_at(os.getpid()))), 0)
            return True

    def beat(self, loop: str, seconds: float) -> None:
        """Write the loop's deadline, unless the written one is nearly the same."""
        until = time.monotonic() + seconds
        if self._file is None or 0 <= until - self._written.get(loop, 0.0) < _OFTEN_ENOUGH:
            return
        with self._lock:
            if loop not in self._places and loop != _START:
                self._write(_START, time.monotonic() + _FOR_EVER)
            self._write(loop, until)

    def _write(self, loop: str, until: float) -> None:
        if self._file is not None:
            place = self._places.setdefault(loop, len(self._places) + 1)
            self._written[loop] = until
            with contextlib.suppress(OSError):
                os.pwrite(self._file, _line(loop, until), place * _ROOM)


_pulse = _Pulse()


def begin(state: Path, process: str) -> None:
    """Create this process's file; its first loop must send a heartbeat within ``START_SECONDS``.

    A second call does nothing. A loop that works already would not remove a second deadline.
    """
    if _pulse.open(state, process):
        _pulse.beat(_START, START_SECONDS)


def beat(loop: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Send a heartbeat of the loop, and promise the next one within ``seconds``.

    The time is multiplied by the process's slowness (``slowness``). Costs a microsecond if the
    deadline has hardly moved.
    """
    _pulse.beat(loop, seconds * slowness.own.last)


def measure(took: float, used: float) -> None:
    """Add a round that takes a second on an idle machine: its seconds and CPU seconds.

    For a process without a keeper; a keeper measures by itself (``sessions``).
    """
    slowness.own.measure(took, used)
    slowness.own.factor()


def rest(loop: str) -> None:
    """Note that the loop has ended regularly, so that no heartbeat is expected any more."""
    _pulse.beat(loop, _FOR_EVER)


@contextmanager
def patience(loop: str, seconds: float) -> Iterator[None]:
    """Extend the loop's deadline: the block may take ``seconds`` without a heartbeat."""
    beat(loop, seconds)
    try:
        yield
    finally:
        beat(loop)


def _line(name: str, number: float) -> bytes:
    return f"{name[:40]:<40} {number:>20.3f}".encode().ljust(_ROOM - 1) + b"\n"


# --- the supervisor's side ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Hung:
    """A loop whose heartbeat is overdue."""

    process: str
    pid: int
    loop: str
    seconds: float


@dataclass(frozen=True)
class Signs:
    """The name of a live process, and for each loop the monotonic time of its deadline."""

    process: str
    loops: dict[str, float]


def signs(state: Path) -> dict[int, Signs]:
    """Return the deadlines of live processes, by pid; deletes the files of ended processes."""
    found: dict[int, Signs] = {}
    with contextlib.suppress(OSError):
        for path in folder(state).iterdir():
            name, _, number = path.name.rpartition("-")
            if not number.isdigit():
                continue
            pid = int(number)
            started_at = _started_at(pid)
            lines = _read(path)
            if started_at and lines.get("pid") == float(started_at):
                del lines["pid"]
                found[pid] = Signs(name, lines)
            elif lines:  # an empty file is about to be written
                path.unlink(missing_ok=True)
    return found


def beating(state: Path, loop: str) -> set[int]:
    """Return the pids of processes with an active loop of this name."""
    end = time.monotonic() + _FOR_EVER / 2
    return {pid for pid, one in signs(state).items() if one.loops.get(loop, end) < end}


def hung(found: Mapping[int, Signs], now: float | None = None) -> list[Hung]:
    """Return the loops of living processes whose deadline has passed at ``now`` (monotonic)."""
    moment = time.monotonic() if now is None else now
    return [
        Hung(process=one.process, pid=pid, loop=loop, seconds=moment - until)
        for pid, one in found.items()
        for loop, until in one.loops.items()
        if until < moment
    ]


def _read(path: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_bytes().splitlines():
            name, number = line.decode().rsplit(maxsplit=1)
            found[name.strip()] = float(number)
    return found


def _started_at(pid: int) -> int:
    """Return when a process started, in ticks since boot; 0 if there is none or it is dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])


def check(state: Path, process: str) -> int:
    """Kill a container's processes that hang; return 0 if there is one and none hung, else 1."""
    found = signs(state)
    late = [one for one in hung(found) if one.process == process]
    for one in late:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one.pid, signal.SIGKILL)
        print(f"{one.process} ({one.pid}): {one.loop} is {one.seconds:.0f} s late: killed")  # noqa: T201
    return int(bool(late) or all(one.process != process for one in found.values()))


if __name__ == "__main__":
    _here = Path(__file__).resolve().parent.parent / ".stowage"
    _state = Path(os.environ.get("STOWAGE_STATE") or _here).expanduser().absolute()
    sys.exit(check(_state, os.environ.get("STOWAGE_PROCESS") or "manage"))

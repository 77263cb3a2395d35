"""Giving processes a small share of the processors: they are stopped and continued all the time.

That works for any user and in any container; a control group needs rights. As on a machine that has
too little for everybody, each process gets on, and is still for most of the time.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Self

PERIOD_SECONDS = 0.5
"""Far below what any promise of the service allows a process that is stopped for good."""


class Starved:
    """While inside, all processes that ``pids`` returns run for a share of the time.

    ``pids`` is asked in each period, since a starved service begins new processes as well.
    """

    def __init__(self, pids: Callable[[], Collection[int]], share: float) -> None:
        self._pids = pids
        self._share = share
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="starved", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """Let them have all that they want again."""
        self._ended.set()
        self._thread.join(30)
        _signal(self._pids(), signal.SIGCONT)

    def _run(self) -> None:
        stopped: Collection[int] = ()
        while not self._ended.is_set():
            began = time.monotonic()
            _signal(stopped, signal.SIGCONT)
            self._ended.wait(PERIOD_SECONDS * self._share)
            stopped = self._pids()
            _signal(stopped, signal.SIGSTOP)
            # What it took to find them, in which they ran, is made up for.
            ran = time.monotonic() - began
            self._ended.wait(ran * (1 - self._share) / self._share)
        _signal(stopped, signal.SIGCONT)


def _signal(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def family(pid: int) -> list[int]:
    """Return a process, its children, theirs, and so on."""
    found = [pid]
    for one in found:
        for file in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(number) for number in file.read_text().split()]
    return found

"""Loads the engine's compiled loops without a delay for pods.

On a new machine, and after a change to the loops, none are on disk, and to compile them takes half
a minute of a core. No pod waits for that: ``begin`` has another process compile the loops, and
loads them here when that process has ended. Until then the reference path decides, with the same
outcome, only slower. A thread of this process could not compile the loops: it would block all
others. If several processes of a machine start together, one has the loops compiled, and the others
wait for the result.

``python -m scheduling.worker.warming PARENT`` is that other process. With ``packer`` as a further
argument it compiles the packer's loops, if OR-tools is installed; questions about which nodes to
buy need them. Without PARENT all loops are compiled at once, such as before tests.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from scheduling.engine import deciding

logger = structlog.get_logger(__name__)

_ROOT: Final = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG: Final = 1
_NICENESS: Final = 10
"""The compiling process gets a tenth of another one's processor time where that is short."""
_PACKER: Final = "packer"
_TAKES: Final = "half a minute of a free core"
_STARTING = threading.Lock()
_threads: list[threading.Thread] = []


def begin(give_up: Callable[[], object] | None = None) -> None:
    """Load the compiled loops from disk, or else start to compile them; a second call does nothing.

    Args:
        give_up: called on another thread, after an error was logged, if the loops cannot be loaded.

    Raises:
        LoopsUnavailable: Numba does not load here.
    """
    with _STARTING:
        if _threads:
            return
        if deciding.is_kept():
            deciding.warm()
            return
        thread = threading.Thread(target=_compile_beside, args=(give_up,), name="warming")
        thread.daemon = True
        _threads.append(thread)
        thread.start()


def share() -> None:
    """Load the compiled loops if they are on disk; for a process from which others are forked."""
    with contextlib.suppress(deciding.LoopsUnavailable):
        if deciding.is_kept():
            deciding.warm()


def _compile_beside(give_up: Callable[[], object] | None) -> None:
    began = time.monotonic()
    with deciding.one_compiles():
        is_first = not deciding.is_kept()
        if is_first:
            logger.info(
                "compiling_the_loops", takes=_TAKES, until_then="decisions are right, and slower"
            )
            _compile()
    try:
        deciding.warm()  # from disk; loops that the other process could not store are compiled here
    except Exception:
        logger.exception("loops_unavailable")
        if give_up is not None:
            give_up()
        return
    logger.info("loops_compiled", seconds=round(time.monotonic() - began, 1))
    if is_first:
        _compile(_PACKER)


def _compile(*what: str) -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "scheduling.worker.warming", str(os.getpid()), *what],
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        last_line = done.stderr.strip().rpartition("\n")[2]
        logger.error("loops_not_compiled", status=done.returncode, error=last_line)


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent process ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which wanted the loops, has ended")


if __name__ == "__main__":
    parent, what = [*sys.argv[1:], "", ""][:2]
    if parent:
        _die_with(int(parent))
        os.nice(_NICENESS)
    if what != _PACKER:
        deciding.warm()
    from scheduling.packing import process

    if (what == _PACKER or not parent) and process.is_installed():
        from scheduling.packing import purchase

        purchase.warm()

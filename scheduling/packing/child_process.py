"""Starts the solver's child processes, lowers their priority, and ends them."""

import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Final

MOST_MEMORY: Final = 3 * 2**30
"""Bytes that the process may allocate; a search that needs more fails by itself."""


def start(module: str) -> "subprocess.Popen[bytes]":
    """Start a module as a child process, with pipes for requests and answers."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return subprocess.Popen(  # noqa: S603  # a module of this product
        [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root
    )


def end(child: "subprocess.Popen[bytes] | None") -> None:
    """Kill a child, if there is one, and close its pipes."""
    if child is None:
        return
    child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):  # a request that it has not read is dropped
                stream.close()


def give_way(niceness: int) -> None:
    """Set up this child process: low priority, bounded memory, SIGINT ignored."""
    os.nice(niceness)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when its parent closes the pipe

"""A host that freezes: all processes of a PostgreSQL stopped, with their sockets open."""

import contextlib
from collections.abc import Iterator

import psutil


@contextlib.contextmanager
def frozen(postmaster: int) -> Iterator[None]:
    """SIGSTOP a postmaster and its backends; SIGCONT those that still run at the end."""
    parent = psutil.Process(postmaster)
    parent.suspend()  # first, so that it starts nothing more
    everyone = [parent, *parent.children()]
    for one in everyone:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.suspend()
    try:
        yield
    finally:
        for one in reversed(everyone):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.resume()

"""Threads that yield processors: their work can wait a little, unlike pods and requests."""

import os
import threading
from contextlib import suppress
from typing import Final

NICENESS: Final = 5
"""If processors are short, a thread that yields has a third of another's share."""


def give_way() -> None:
    """Lower the priority of this thread alone; a second call changes nothing.

    Does nothing if the system refuses.
    """
    with suppress(OSError):
        own = os.getpriority(os.PRIO_PROCESS, os.getpid())
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(own + NICENESS, 19))

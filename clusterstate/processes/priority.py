"""Threads that yield processors: their work may wait a little, and pods and requests may not."""

import os
import threading
from contextlib import suppress
from typing import Final

NICENESS: Final = 5
"""Where processors are short, who yields has a third of another's share."""


def give_way() -> None:
    """Let this thread alone yield from now on; called again, it yields no more than that.

    Where the system refuses that, nothing changes.
    """
    with suppress(OSError):
        own = os.getpriority(os.PRIO_PROCESS, os.getpid())
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(own + NICENESS, 19))

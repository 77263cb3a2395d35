"""Heartbeats of a web process, from its event loop and for its request threads.

The loop beats while it runs. It stops when a lane of request threads has had work for
``STUCK_SECONDS`` and finished none of it: then all threads of the lane wait for something that does
not come (every statement ends long before that), and a new process is needed.

In a moment without requests the memory of a burst is returned to the system.
"""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import structlog
from django.conf import settings

from api.server.lanes import Lane
from clusterstate.health import heartbeats
from clusterstate.processes import collector
from clusterstate.queries.objects import kept_lists

logger = structlog.get_logger(__name__)

NAME: Final = "requests"
STUCK_SECONDS: Final = 300.0
_EVERY_SECONDS = 1.0
_TIDY_SECONDS: Final = 10.0
"""Minimum interval between checks for memory to give back."""


def start(lanes: Sequence[Lane[Any, Any]]) -> None:
    """Begin to beat on the running event loop."""
    heartbeats.begin(settings.STATE_DIR, settings.PROCESS)
    loop = asyncio.get_running_loop()
    tidied_at = loop.time()
    before = loop.time(), time.process_time()

    def beat() -> None:
        nonlocal tidied_at, before
        took, used = loop.time() - before[0], time.process_time() - before[1]
        before = loop.time(), time.process_time()
        heartbeats.measure(took / _EVERY_SECONDS, used)
        stuck = [lane.name for lane in lanes if lane.stuck_seconds(loop.time()) > STUCK_SECONDS]
        if stuck:
            logger.error("requests_stuck", lanes=stuck)
        else:
            heartbeats.beat(NAME)
        now = loop.time()
        idle = not any(lane.waiting for lane in lanes)
        if (
            idle
            and now - tidied_at >= _TIDY_SECONDS
            and (kept_lists.drop_unused() or any(lane.moved_at > tidied_at for lane in lanes))
        ):
            tidied_at = now
            threading.Thread(target=collector.give_back, name="tidy", daemon=True).start()
        loop.call_later(_EVERY_SECONDS, beat)

    beat()

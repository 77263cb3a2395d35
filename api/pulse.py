"""Signs of life of a web process, from its event loop and for its request threads.

The loop beats while it turns. It stops doing so when a lane of request threads has had work for
``STUCK_SECONDS`` and finished none of it: then all threads of the lane wait for something that does
not come (every statement ends long before that), and a new process is needed.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import structlog
from django.conf import settings

from api.lanes import Lane
from clusterstate import heartbeats

logger = structlog.get_logger(__name__)

NAME: Final = "requests"
STUCK_SECONDS: Final = 300.0
_EVERY_SECONDS = 1.0


def start(lanes: Sequence[Lane[Any, Any]]) -> None:
    """Begin to beat on the running event loop."""
    heartbeats.begin(settings.STATE_DIR, settings.PROCESS)
    loop = asyncio.get_running_loop()

    def beat() -> None:
        stuck = [lane.name for lane in lanes if lane.stuck_seconds(loop.time()) > STUCK_SECONDS]
        if stuck:
            logger.error("requests_stuck", lanes=stuck)
        else:
            heartbeats.beat(NAME)
        loop.call_later(_EVERY_SECONDS, beat)

    beat()

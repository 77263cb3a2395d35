"""Logs failed nudges of beat with one line, and then one a minute.

Celery writes a stack and a traceback for every task that could not be sent, which is six of each in
five seconds for as long as Redis is full. Nothing but time is lost: each loop also polls by itself
(`scheduling.processes.loops`).
"""

import time
from collections.abc import Callable
from typing import Any, Final

import redis
import structlog
from kombu.exceptions import KombuError

logger = structlog.get_logger(__name__)

QUIET_SECONDS: Final = 60.0
"""Seconds between two log lines about the same trouble."""
_OF_REDIS: Final = (redis.RedisError, KombuError, OSError)


class Nudges:
    """Sends the entries of beat's schedule, and seldom logs that they cannot be sent."""

    def __init__(
        self, send: Callable[..., Any], *, now: Callable[[], float] = time.monotonic
    ) -> None:
        """``send``: sends one entry, may raise; ``now``: returns monotonic seconds."""
        self._send = send
        self._now = now
        self._lost = 0
        self._told_at = float("-inf")

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send a due entry; replaces ``celery.beat.Scheduler.apply_entry``."""
        try:
            self._send(entry, producer=producer, advance=False)
        except Exception as error:
            cause = error if isinstance(error, _OF_REDIS) else error.__context__
            if not isinstance(cause, _OF_REDIS):
                logger.exception("nudge_failed", task=entry.task)
                return
            self._lost += 1
            if self._now() - self._told_at >= QUIET_SECONDS:
                self._told_at = self._now()
                logger.warning("nudges_not_sent", error=str(cause), lost=self._lost)
            return
        if self._lost:
            logger.info("nudges_sent_again", lost=self._lost)
            self._lost, self._told_at = 0, float("-inf")

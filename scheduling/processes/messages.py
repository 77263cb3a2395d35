"""Keeps a worker process running after failures of messages and tasks.

*Tasks of another version.* While two versions run beside each other, beat and the web processes of
one send tasks to workers of the other (`docs/operations.md`, Upgrade). A task is only a nudge, so
an unknown one is dropped: the loops also poll by themselves. Celery would write an error, the
message and a traceback for each, several in every five seconds for as long as the upgrade takes.

*A Redis that answers with an error.* It may be a read-only replica, be full, deny a command, or
contain something else than messages. Celery reconnects when the connection is lost, and ends the
process after any other error; the scheduler's loop, which needs no message, would end with it, and
again after each start. So after any error of the broker the worker tries again after a second.

*A database that is away.* The loop of the process logs that, and does the task's work later by
itself. Celery would write a traceback of each task.
"""

import logging
import time
from collections import defaultdict
from typing import Any, Final

import structlog
from celery import Task
from celery.worker import state
from celery.worker.consumer import Consumer
from celery.worker.consumer.consumer import CONNECTION_RETRY

from clusterstate.database import sql
from clusterstate.telemetry.troubles import Trouble, reason_of

logger = structlog.get_logger(__name__)

AGAIN_SECONDS: Final = 1.0
"""Seconds until a broker that answered with an error is tried again."""
_LOOK_SECONDS: Final = 0.1


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a log record is written: not Celery's for a retry, which ``Messages`` logs."""
    return not (isinstance(record.args, tuple) and record.args[:1] == (CONNECTION_RETRY,))


logging.getLogger("celery.worker.consumer.consumer").addFilter(_is_news)


class Messages(Consumer):  # type: ignore[misc]  # Celery has no types
    """Celery's consumer of a worker; neither a broker's error nor an unknown task ends it."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._told: set[str] = set()
        self._trouble = Trouble()
        # Errors that are retried (`CELERY_BROKER_CHANNEL_ERROR_RETRY`); an exit is no Exception.
        self.channel_errors = (Exception,)

    def on_unknown_task(self, body: object, message: Any, exc: Exception) -> None:
        """Drop a message whose task has no function here; log each task's name once."""
        del body, exc
        message.reject_log_error(logger, self.connection_errors)
        name = str(message.headers.get("task", ""))
        if name not in self._told:
            self._told.add(name)
            logger.info("task_of_another_version", task=name)

    def on_connection_error_before_connected(self, exc: Exception) -> None:
        """Log that the broker cannot be reached, and wait."""
        self._wait(exc)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Log the broker's error, close the connection, and wait."""
        super().on_connection_error_after_connected(exc)
        self._wait(exc)

    def _wait(self, error: Exception) -> None:
        reason = reason_of(error)
        if failures := self._trouble.note(reason):
            expected = (*self.conninfo.channel_errors, *self.conninfo.connection_errors)
            logger.warning(
                "broker_does_not_work",
                error=reason,
                failures=failures,
                exc_info=None if isinstance(error, expected) else error,
            )
        end = time.monotonic() + AGAIN_SECONDS
        while time.monotonic() < end and not stopping():
            time.sleep(_LOOK_SECONDS)


def stopping() -> bool:
    """Return whether this worker is to shut down; Celery's flags are then an exit code, also 0."""
    flags = (state.should_stop, state.should_terminate)
    return any(flag is not None and flag is not False for flag in flags)


_away: defaultdict[str, Trouble] = defaultdict(Trouble)
"""By task; a task that needs no database has its loop in the same process."""


class Nudge(Task):  # type: ignore[misc]  # Celery has no types
    """A Celery task that does nothing if the database is away; loops poll in any case."""

    abstract = True

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Do the task; return ``None`` if the database was away."""
        try:
            done = super().__call__(*args, **named)
        except Exception as error:
            if not sql.is_away(error):
                raise
            sql.drop_dead_connection()
            reason = reason_of(error)
            if failures := _away[self.name].note(reason):
                logger.warning("lost_the_database", work=self.name, error=reason, failures=failures)
            return None
        _away[self.name].over()
        return done

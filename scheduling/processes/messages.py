"""What a worker does with tasks that its version does not know.

While two versions run beside each other, beat and the web processes of one send tasks to workers of
the other (`docs/operations.md`, Upgrade). A task is a nudge, so one that no function here takes is
thrown away: the loops look by themselves. Celery would write an error, the message and a traceback
for each, several in every five seconds for as long as the upgrade takes.
"""

from typing import Any

import structlog
from celery.worker.consumer import Consumer

logger = structlog.get_logger(__name__)


class Messages(Consumer):  # type: ignore[misc]  # Celery has no types
    """Celery's consumer of a worker; tells once of each task that is not known here."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._told: set[str] = set()

    def on_unknown_task(self, body: object, message: Any, exc: Exception) -> None:
        """Throw away a message whose task has no function here."""
        del body, exc
        message.reject_log_error(logger, self.connection_errors)
        name = str(message.headers.get("task", ""))
        if name not in self._told:
            self._told.add(name)
            logger.info("task_of_another_version", task=name)

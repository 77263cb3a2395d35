"""Lets a worker wait for tasks without waking each second, and stop waiting when it is to end.

kombu polls Redis for a task each second, checks each second for queues that expire, and at the end
waits for the reply to its last poll. Stowage's queues do not expire, and a task lost with its
connection does no harm (``scheduling.processes.messages``).
"""

import threading
from typing import Any, Final

from kombu.asynchronous import get_event_loop
from kombu.transport import redis

_ASK_SECONDS: Final = 30


class Channel(redis.Channel):
    """A kombu channel that closes without waiting for the reply to its poll."""

    def close(self) -> None:
        """Disconnect a waiting poll, and close the channel."""
        waiting: Any = self._in_poll
        if waiting:
            waiting.disconnect()
            self._in_poll = False
        super().close()  # type: ignore[no-untyped-call]


class Transport(redis.Transport):
    """A kombu transport that polls Redis every ``_ASK_SECONDS``; new tasks arrive at once."""

    Channel = Channel
    brpop_timeout = _ASK_SECONDS

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let the worker's event loop read from Redis, without the timer for expiring queues."""
        super().register_with_event_loop(connection, loop)  # type: ignore[no-untyped-call]
        poller: Any = self.cycle
        poller._binding_expiry_tref.cancel()


def wake() -> None:
    """Wake the worker's event loop, so that it checks whether to end; a signal does not wake it."""
    if (loop := get_event_loop()) is not None:
        # The loop ignores a wake-up from its own thread, on which the handler runs.
        threading.Thread(target=loop.call_soon, args=(int,), daemon=True).start()

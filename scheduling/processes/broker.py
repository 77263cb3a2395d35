"""How a worker waits for its tasks: without waking each second, and not when it is asked to end.

kombu asks Redis for a task anew each second, looks each second for queues that expire, and at the
end waits until what it asked last is answered. No queue of ours expires, and a task that is lost
with its connection is a hint (``scheduling.processes.messages``).
"""

import threading
from typing import Any, Final

from kombu.asynchronous import get_event_loop
from kombu.transport import redis

_ASK_SECONDS: Final = 30


class Channel(redis.Channel):
    """A channel that closes at once."""

    def close(self) -> None:
        """Hang up instead of waiting for a task."""
        waiting: Any = self._in_poll
        if waiting:
            waiting.disconnect()
            self._in_poll = False
        super().close()  # type: ignore[no-untyped-call]


class Transport(redis.Transport):
    """Redis, asked for the next task every ``_ASK_SECONDS``; a task that comes is there at once."""

    Channel = Channel
    brpop_timeout = _ASK_SECONDS

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Have the loop of the worker read what Redis sends."""
        super().register_with_event_loop(connection, loop)  # type: ignore[no-untyped-call]
        poller: Any = self.cycle
        poller._binding_expiry_tref.cancel()


def wake() -> None:
    """Have the worker's loop look whether to end, since a signal does not end its wait."""
    if (loop := get_event_loop()) is not None:
        # The loop takes no wake-up from its own thread, on which the handler runs.
        threading.Thread(target=loop.call_soon, args=(int,), daemon=True).start()

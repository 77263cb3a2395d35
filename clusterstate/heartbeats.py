"""Signs of life of the background processes: a key in Redis each, gone soon after its process.

A thread writes it, so it says that the process lives, not that its queue is short. `/readyz` reads
the keys; the web processes need none, since they answer themselves. A container's health check asks
for its own process: `python -m clusterstate.heartbeats` ends with 0 when the key is there.
"""

import os
import sys
import threading
from collections.abc import Callable

import redis
import structlog
from django.conf import settings

logger = structlog.get_logger(__name__)

KEY = "stowage:heartbeat:"
PARTS = ("scheduler", "worker", "timers", "beat")
_PERIOD_SECONDS = 1.0
_EXPIRES_SECONDS = 5


def start(part: str) -> Callable[[], None]:
    """Start a thread that renews the part's key every second; return what stops it."""
    stop = threading.Event()

    def run() -> None:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_connect_timeout=1, socket_timeout=2
        ) as client:
            while not stop.is_set():
                try:
                    client.set(f"{KEY}{part}", "alive", ex=_EXPIRES_SECONDS)
                except redis.RedisError:
                    # The key is gone with Redis, so readiness says so; nothing else depends on it.
                    logger.debug("heartbeat_not_written", part=part)
                stop.wait(_PERIOD_SECONDS)

    threading.Thread(target=run, name="heartbeat", daemon=True).start()
    return stop.set


def found(part: str) -> bool:
    """Return whether the part showed a sign of life in the last seconds. Asks Redis."""
    with redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=1, socket_timeout=2
    ) as client:
        return bool(client.exists(f"{KEY}{part}"))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clusterstate.settings")
    sys.exit(not found(settings.PROCESS))

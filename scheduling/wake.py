"""Wake-ups through Redis: lossy hints that something was committed.

After each commit ``announce`` publishes the revision on two channels: ``CHANGES`` for the watch
tailers of the web processes, ``SCHEDULER`` for the scheduling runner, and on ``TIMERS`` for the
eviction runner when it could start timers. ``PUBLISH`` answers with the
number of listeners: none means that no runner lingers, so one Celery task is sent (at most one a
second waits in the queue). A wake-up may be lost at any point: Redis down, a runner killed between
subscribing and reading. Beat sends the same task every second and tailers poll, so a lost wake-up
costs latency and nothing else; that is why failures here are logged and swallowed.

Waiting happens on the client side of a subscription: a blocking list pop with a time-out is served
by the server's 10 Hz cron and would be up to 100 ms late.
"""

import os
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache

import redis
import structlog
from celery import current_app
from django.conf import settings
from kombu.exceptions import KombuError

logger = structlog.get_logger(__name__)

CHANGES = "stowage:changes"
SCHEDULER = "stowage:scheduler"
TIMERS = "stowage:timers"
_DISPATCHED = "stowage:scheduler:dispatched"
_RETRY_SECONDS = 1.0
_GAP_SECONDS = 0.002  # after a message; the first of a burst is sent at once
_local = threading.local()


class _Pause:
    """Until when (monotonic seconds) nothing is announced: Redis was away a moment ago."""

    until = 0.0


_pause = _Pause()


@cache
def client() -> "redis.Redis":
    """Return this process's Redis client; connections are made on first use."""
    return redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=0.5, socket_timeout=2.0)


@contextmanager
def without_scheduler() -> Iterator[None]:
    """Commits inside do not wake the scheduler: it made them and knows."""
    _local.quiet = True
    try:
        yield
    finally:
        _local.quiet = False


def announce(*, revision: int, kinds: Collection[str] = ()) -> None:
    """Tell followers that ``revision`` was committed; returns at once, never raises.

    ``kinds`` are the kinds of what changed. Nodes can start eviction timers that are due at once;
    for pods the timers' runner looks by itself, often enough, since it would do nothing else.

    A thread of this process publishes: a request does not wait for Redis, and what is committed
    while one message is on its way is announced together by the next.
    """
    quiet = getattr(_local, "quiet", False)
    _announcer.add(revision, scheduler=not quiet, timers="Node" in kinds)


def send_binding() -> None:
    """Have a worker look for reservations whose plugins have work; never raises."""
    try:
        current_app.send_task("scheduling.tasks.run_bindings", expires=30)
    except (redis.RedisError, KombuError, OSError) as error:
        logger.warning("wake_up_failed", error=str(error))  # beat sends one soon


class _Announcer:
    """The latest revision that waits to be published, and the thread that publishes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._revision = 0
        self._scheduler = False
        self._timers = False
        self._pid = 0

    def add(self, revision: int, *, scheduler: bool, timers: bool) -> None:
        with self._lock:
            self._revision = max(self._revision, revision)
            self._scheduler = self._scheduler or scheduler
            self._timers = self._timers or timers
            if self._pid != os.getpid():  # first use, or a worker that was forked since
                self._pid = os.getpid()
                self._news = threading.Event()
                threading.Thread(target=self._run, name="announcer", daemon=True).start()
            self._news.set()

    def _run(self) -> None:
        while True:
            self._news.wait()
            with self._lock:
                self._news.clear()
                revision, scheduler, timers = self._revision, self._scheduler, self._timers
                self._scheduler = self._timers = False
            _publish(revision, scheduler=scheduler, timers=timers)
            time.sleep(_GAP_SECONDS)


_announcer = _Announcer()


def _publish(revision: int, *, scheduler: bool, timers: bool) -> None:
    """Publish on ``CHANGES`` and the channels asked for; never raises for a Redis that is away."""
    if time.monotonic() < _pause.until:
        return
    try:
        if not scheduler:
            if timers:
                client().publish(TIMERS, revision)
            client().publish(CHANGES, revision)
            return
        pipeline = client().pipeline(transaction=False)
        pipeline.publish(CHANGES, revision)
        pipeline.publish(SCHEDULER, revision)
        if timers:
            pipeline.publish(TIMERS, revision)
        _, runners, *_ = pipeline.execute()
        if runners == 0 and client().set(_DISPATCHED, 1, nx=True, px=1000):
            current_app.send_task("scheduling.tasks.run_cycles", queue="scheduling", expires=5)
    except (redis.RedisError, KombuError, OSError) as error:
        _pause.until = time.monotonic() + _RETRY_SECONDS
        logger.warning("wake_up_failed", error=str(error))


class Subscription:
    """A subscription to one channel, waited for on the client side.

    Without Redis it degrades to a plain sleep, so that the caller polls.
    """

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._pubsub: redis.client.PubSub | None = None

    def __enter__(self) -> "Subscription":
        self._connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _connect(self) -> None:
        try:
            pubsub = client().pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
            pubsub.subscribe(self._channel)
            # The confirmation must be read before anyone relies on being counted as a listener.
            pubsub.get_message(timeout=1.0)
            self._pubsub = pubsub
            client().delete(_DISPATCHED)
        except (redis.RedisError, OSError) as error:
            self._close()
            logger.warning("subscription_failed", channel=self._channel, error=str(error))

    def _close(self) -> None:
        if self._pubsub is not None:
            try:
                self._pubsub.close()
            except (redis.RedisError, OSError):
                logger.debug("subscription_close_failed", channel=self._channel)
        self._pubsub = None

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a message; swallow all that are there; True if there was one.

        A lost connection is answered with True once, so that the caller looks for itself.
        """
        if self._pubsub is None:
            time.sleep(min(seconds, 0.2))
            self._connect()
            return True
        try:
            if self._pubsub.get_message(timeout=max(0.0, seconds)) is None:
                return False
            while self._pubsub.get_message(timeout=0) is not None:
                pass
        except (redis.RedisError, OSError) as error:
            logger.warning("subscription_lost", channel=self._channel, error=str(error))
            self._close()
        return True

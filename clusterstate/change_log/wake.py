"""Wake-ups through Redis: lossy hints that a transaction committed.

After each commit ``announce`` publishes the revision on the channel ``CHANGES``, for the watches of
the web processes, and on the scheduler's (`shards.channel`). It also publishes on ``TIMERS`` if the
commit could start eviction timers, and on ``WORKLOADS``, for the controllers of workloads and of
claims, if it wrote a Deployment or its like, or pods for which claims are to be made (the kinds
then include that of the template). A wake-up may be lost at any point: Redis down, frozen or wiped,
a loop killed between subscribing and reading. Each waiting loop also reads the database after a
while, so a lost wake-up only costs latency; therefore failures here are logged and not raised.

A new or changed pod is announced at once. Changes of nodes, namespaces, services and leaving pods
are announced together: a process waits ``GATHER_SECONDS``, ``TIMERS_GATHER_SECONDS`` or
``WORKLOADS_GATHER_SECONDS`` between two wake-ups of a loop for them. Each pass of a loop costs up
to a dozen statements; without the pause these were a third of the cost of creating many nodes.

No caller ever waits for Redis. The caller only passes a message to the kernel, and only if the
kernel has room for it. A thread does the rest, and sends the Celery tasks that are hints, too.
Another thread connects a subscription and checks every few seconds whether Redis answers. While it
does not, ``Subscription.wait`` returns after ``POLL_SECONDS``.

A subscription waits on the client's side: the server would time a blocking list pop by its clock,
which ticks twice a second while it is idle.
"""

import math
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache

import redis
import structlog
from celery import current_app
from django.conf import settings
from kombu.exceptions import KombuError
from redis.connection import Connection

from clusterstate.processes import shards
from clusterstate.telemetry.metrics import scheduler
from clusterstate.telemetry.troubles import Trouble, reason_of

logger = structlog.get_logger(__name__)

CHANGES = "stowage:changes"
TIMERS = "stowage:timers"
WORKLOADS = "stowage:workloads"
SCHEDULER = shards.channel(shards.FIRST)
POLL_SECONDS = 0.2
"""How long ``Subscription.wait`` waits at most while Redis does not answer."""
_BINDINGS = "scheduling.tasks.run_bindings"
_RETRY_SECONDS = 1.0
_ASK_SECONDS = 5.0
_CONFIRM_SECONDS = 1.0
_GAP_SECONDS = 0.002  # after a message; the first of a burst is sent at once
_MOST_UNANSWERED = 128
"""The most messages without a reply from Redis: fewer than fill the smallest socket buffer, so that
sending never blocks if Redis stops reading."""
_ANSWER_SECONDS = 0.1
"""Seconds after a message of a caller until the thread reads the replies: the kernel also accepts
messages for a connection that has ended."""
GATHER_SECONDS = 0.02
"""Seconds between two wake-ups of the scheduler for changes other than new or changed pods."""
TIMERS_GATHER_SECONDS = 0.05
"""Seconds between two wake-ups of the timers, whose pass costs twice as much."""
TIMERS_OF_PODS_SECONDS = 0.25
"""Seconds between two wake-ups of the timers for changes of pods, of which there are many."""
WORKLOADS_GATHER_SECONDS = 0.05
"""Seconds between two wake-ups of the workload controllers."""
_WORKLOADS = frozenset(
    {
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "ReplicaSet",
        "ReplicationController",
        "ResourceClaimTemplate",
        "StatefulSet",
    }
)
_local = threading.local()


class _Pause:
    """``until``: the monotonic time before which nothing is published, because Redis failed."""

    until = 0.0


_pause = _Pause()


@cache
def client() -> "redis.Redis":
    """Return this process's Redis client; connections are made on first use."""
    return redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=0.5, socket_timeout=1.0)


@contextmanager
def without_scheduler() -> Iterator[None]:
    """Do not wake the scheduler for commits in this block: its own."""
    _local.quiet = True
    try:
        yield
    finally:
        _local.quiet = False


@contextmanager
def without_workloads() -> Iterator[None]:
    """Do not wake the workload controllers for commits in this block: their own."""
    _local.of_workloads = True
    try:
        yield
    finally:
        _local.of_workloads = False


def announce(*, revision: int, kinds: Collection[str] = (), leaving: bool = False) -> None:
    """Wake followers because ``revision`` was committed; returns at once, never raises.

    ``kinds`` are the kinds of the changed objects; ``leaving``: these were only deleted, or began
    to terminate. Nodes and pods can start eviction timers that are due at once.

    A request does not wait for Redis. Commits within ``_GAP_SECONDS`` of a message share the next
    one.
    """
    woken: dict[str, float] = {}
    if not getattr(_local, "quiet", False):
        woken[SCHEDULER] = 0.0 if "Pod" in kinds and not leaving else GATHER_SECONDS
    if "Node" in kinds:
        woken[TIMERS] = TIMERS_GATHER_SECONDS
    elif "Pod" in kinds:
        woken[TIMERS] = TIMERS_OF_PODS_SECONDS
    if not _WORKLOADS.isdisjoint(kinds) and not getattr(_local, "of_workloads", False):
        woken[WORKLOADS] = WORKLOADS_GATHER_SECONDS
    _announcer.add(revision, woken)


def send_binding() -> None:
    """Send the Celery task that runs plugins of reserved pods; returns at once, never raises.

    Without the message, a worker looks for reservations once a second.
    """
    _announcer.send(_BINDINGS)


class _Announcer:
    """The messages that are to be published, and the thread that publishes them.

    The caller publishes by itself if that is no more than a system call: the connection is there,
    the thread does not use it, and the last message is ``_GAP_SECONDS`` old. The thread connects,
    reads Redis' replies, and publishes the gathered messages.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._publisher = _Publisher()
        self._is_free = False  # the thread does not use the publisher
        self._revision = 0
        self._announced = False
        self._woken: dict[str, float] = {}  # loops' channels; how long after their last wake-up
        self._woken_at: dict[str, float] = {}
        self._published_at = -math.inf
        self._looks_at = -math.inf  # when the thread goes on by itself
        self._tasks: set[str] = set()
        self._pid = 0

    def add(self, revision: int, woken: Mapping[str, float]) -> None:
        with self._lock:
            self._revision = max(self._revision, revision)
            self._announced = True
            for channel, gap in woken.items():
                self._woken[channel] = min(gap, self._woken.get(channel, gap))
            if not self._publish_at_once():
                self._wake()

    def send(self, task: str) -> None:
        with self._lock:
            self._tasks.add(task)
            self._wake()

    def _publish_at_once(self) -> bool:
        """Publish what is due unless that may block; return True if the thread need not."""
        now = time.monotonic()
        may_wait = not self._is_free or self._pid != os.getpid() or self._publisher.is_full
        if may_wait or now < max(self._published_at + _GAP_SECONDS, _pause.until):
            return False
        channels, next_at = self._take_due(now)
        try:
            self._publisher.send(self._revision, channels)
        except (redis.RedisError, OSError):
            self._is_free = False  # the thread connects, and sends these messages again
            return False
        return min(next_at, self._publisher.reads_at) >= self._looks_at

    def _take_due(self, now: float) -> tuple[list[str], float]:
        """Return the channels that are due at ``now``, and when the next ones are."""
        channels = [CHANGES] if self._announced else []
        next_at = math.inf
        for channel, gap in list(self._woken.items()):
            due = self._woken_at.get(channel, -math.inf) + gap
            if due <= now:
                channels.append(channel)
                self._woken_at[channel] = now
                del self._woken[channel]
            else:
                next_at = min(next_at, due)
        self._announced, self._published_at = False, now
        return channels, next_at

    def _wake(self) -> None:
        if self._pid != os.getpid():  # first use, or a worker that was forked since
            self._pid = os.getpid()
            self._news, self._publisher, self._is_free = threading.Event(), _Publisher(), False
            threading.Thread(target=self._run, name="announcer", daemon=True).start()
        self._news.set()

    def _run(self) -> None:
        trouble = Trouble()
        wait: float | None = None
        while True:
            self._news.wait(wait)
            with self._lock:
                self._news.clear()
                self._is_free = False
                now = time.monotonic()
                channels, next_at = self._take_due(now)
                reads_at = self._publisher.reads_at
                self._looks_at = min(next_at, reads_at) if reads_at > now else next_at
                wait = None if self._looks_at == math.inf else self._looks_at - now
                revision, tasks = self._revision, self._tasks
                self._tasks = set()
            if now >= _pause.until:
                try:
                    if channels or reads_at <= now:
                        self._publisher.publish(revision, channels)
                    for task in tasks:
                        current_app.send_task(task, expires=30)
                    trouble.tell_end(logger, "wake-ups")
                    with self._lock:
                        self._is_free = self._publisher.is_connected
                except (redis.RedisError, KombuError, OSError) as error:
                    _pause.until = time.monotonic() + _RETRY_SECONDS
                    reason = reason_of(error)
                    if failures := trouble.note(reason):
                        logger.warning("wake_up_failed", error=reason, failures=failures)
            time.sleep(_GAP_SECONDS)


class _Publisher:
    """Publishes on a connection of its own.

    A command of redis-py costs three times the socket's time, and one is sent every few
    milliseconds while clients write objects one by one.
    """

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._unanswered: list[str] = []  # the channels of messages, the oldest first
        self._sent_at = -math.inf  # the oldest of them

    @property
    def is_connected(self) -> bool:
        """Return whether there is a connection, so that ``send`` may be called."""
        return self._connection is not None

    @property
    def is_full(self) -> bool:
        """Return whether the next message could block because Redis does not read."""
        return len(self._unanswered) >= _MOST_UNANSWERED

    @property
    def reads_at(self) -> float:
        """Return the monotonic time at which ``publish`` should be called to read replies."""
        return self._sent_at + _ANSWER_SECONDS if self._unanswered else math.inf

    def send(self, revision: int, channels: Sequence[str]) -> None:
        """Publish on the channels, without reading the replies.

        Raises:
            redis.RedisError, OSError: Redis ended the connection.
        """
        assert self._connection is not None
        messages = b"".join(_message(channel, revision) for channel in channels)
        if not self._unanswered:
            self._sent_at = time.monotonic()
        self._unanswered += channels
        try:
            self._connection.send_packed_command([messages], check_health=False)  # type: ignore[no-untyped-call]
        except BaseException:
            self._disconnect()
            raise

    def publish(self, revision: int, channels: Sequence[str]) -> None:
        """Publish on the channels; connects if need be, and reads all replies.

        If the connection had ended, publishes again on the channels of all messages without a
        reply.

        Raises:
            redis.RedisError: Redis is away.
        """
        try:
            self._publish(revision, channels)
        except redis.ConnectionError:
            self._publish(revision, channels)  # perhaps Redis only ended the connection

    def _publish(self, revision: int, channels: Sequence[str]) -> None:
        if self._connection is None:
            channels, self._unanswered = list(dict.fromkeys([*self._unanswered, *channels])), []
            self._connection = client().connection_pool.get_connection()
        self.send(revision, channels)
        try:
            while self._unanswered:
                self._connection.read_response()
                del self._unanswered[0]
        except BaseException:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        """Close the connection, so that a late reply is not taken for that of a later message."""
        connection, self._connection = self._connection, None
        assert connection is not None
        self._sent_at = -math.inf
        connection.disconnect()  # type: ignore[no-untyped-call]
        client().connection_pool.release(connection)


def _message(channel: str, revision: int) -> bytes:
    """Return a PUBLISH command in Redis' protocol."""
    name, number = channel.encode(), b"%d" % revision
    head = b"*3\r\n$7\r\nPUBLISH\r\n"
    return b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (head, len(name), name, len(number), number)


_announcer = _Announcer()


class Subscription:
    """A subscription to one channel; ``wait`` waits on the client's side.

    A thread connects and checks whether Redis answers; the caller only reads. Without Redis
    ``wait`` is a plain sleep, so that the caller polls.
    """

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._pubsub: redis.client.PubSub | None = None
        self._fresh: redis.client.PubSub | None = None
        self._connected = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._answers = False

    def __enter__(self) -> "Subscription":
        threading.Thread(target=self._attend, name="subscription", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        with self._lock:
            fresh, self._fresh = self._fresh, None
        for pubsub in (fresh, self._pubsub):
            _close(pubsub)
        self._pubsub = None

    def _attend(self) -> None:
        """Maintain the subscription and the state of Redis until the subscription ends."""
        while not self._closed.is_set():
            try:
                if not self._answers:
                    # Also after Redis came back: a connection that survived may have gone deaf.
                    self._hand_over(self._subscribe())
                    self._answers = True
                elif not client().ping():
                    self._answers = False
            except (redis.RedisError, OSError) as error:
                if self._answers:
                    logger.warning("subscription_lost", channel=self._channel, error=str(error))
                self._answers = False
            self._closed.wait(_ASK_SECONDS if self._answers else POLL_SECONDS)

    def _subscribe(self) -> "redis.client.PubSub":
        pubsub = client().pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        try:
            client().ping()  # a frozen server would take the next command and say nothing
            pubsub.subscribe(self._channel)
            # The confirmation must be read before anyone relies on being a listener.
            pubsub.get_message(timeout=_CONFIRM_SECONDS)
        except BaseException:
            _close(pubsub)
            raise
        found: redis.client.PubSub = pubsub
        return found

    def _hand_over(self, pubsub: "redis.client.PubSub") -> None:
        with self._lock:
            old, self._fresh = self._fresh, pubsub
            if self._closed.is_set():
                old, self._fresh = self._fresh, None
        _close(old)
        self._connected.set()

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a message; discard all there are; return True if any came.

        Also returns True once after the connection was lost, and once after it was made again, so
        the caller reads the database. While Redis is away, waits at most ``POLL_SECONDS``.
        """
        seconds = max(0.0, seconds)
        if self._connected.is_set():
            self._connected.clear()
            with self._lock:
                fresh, self._fresh = self._fresh, None
            _close(self._pubsub)
            self._pubsub = fresh
            return True
        if self._pubsub is None:
            self._connected.wait(min(seconds, POLL_SECONDS))
            return True
        if not self._answers:
            seconds = min(seconds, POLL_SECONDS)
        try:
            came = self._pubsub.get_message(timeout=seconds) is not None
            scheduler.woken.of(self._channel, "news" if came else "time").up()
            if not came:
                return False
            while self._pubsub.get_message(timeout=0) is not None:
                pass
        except (redis.RedisError, OSError) as error:
            logger.warning("subscription_lost", channel=self._channel, error=str(error))
            _close(self._pubsub)
            self._pubsub = None
            self._answers = False
        return True


def _close(pubsub: "redis.client.PubSub | None") -> None:
    """Close the subscription. A connection that is broken already raises no error."""
    if pubsub is not None:
        try:
            pubsub.close()
        except (redis.RedisError, OSError):
            logger.debug("subscription_close_failed")

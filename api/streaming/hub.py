"""One reader of the change log for all watches of this process.

::

    change log --(thread: read by watermark)--> ring of events per kind --(loop)--> watches

While there are watches, a thread follows the log. Commits of this process wake it, and so does the
Redis channel to which other processes publish; a short poll finds changes whose wake-up was lost.
The thread reads only the watched kinds and turns changes into events. The event loop appends these
to a *ring* per kind and wakes the watches of that kind.

A watch has no queue, only a cursor: the revision up to which it has sent. It takes further events
from the ring or, if it is too slow for the ring or started before it, from the log itself. So a
slow client costs nothing but its own delay, and misses nothing: both sources are ordered by
revision and complete. Bytes are built once per event and shared by all watches.

``floor`` of a ring is the revision after which it is complete; None before its first read.
"""

import asyncio
import contextlib
import logging
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import redis
from django.conf import settings
from django.db import DatabaseError, connection

from api import clock
from api.server import connections
from clusterstate.actions.loops import aside
from clusterstate.change_log import changes, replica, wake
from clusterstate.change_log.changes import Change
from clusterstate.objects.values.document import Overlay, compose
from clusterstate.objects.values.errors import Expired
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects.events import event_manifests
from clusterstate.queries.pods import pod_overlay

logger = logging.getLogger(__name__)

RING_EVENTS = 8192
RING_BYTES = 32 << 20
READ_LIMIT = 1000
POLL_SECONDS = 0.2
POLL_WITHOUT_REDIS_SECONDS = 0.02
PAUSE_SECONDS = (0.0005, 0.010)
"""Minimum and maximum seconds between two reads: doubled while changes come, else the minimum."""

_decode = msgspec.json.decode


def overlay(change: Change) -> Overlay:
    """Return the values for the slots of the changed object's document."""
    return pod_overlay(change.node_name, change.scheduled_at, change.unschedulable, change.eviction)


def previous_overlay(change: Change) -> Overlay:
    """Return the values of the slots before the change."""
    return pod_overlay(
        change.previous_node_name,
        change.previous_scheduled_at,
        change.previous_unschedulable,
        change.previous_eviction,
    )


class Event:
    """A change for watches: stored bytes, decoded values and finished lines, each made once.

    ``is_own``: the object is an Event of this service that no client has changed.
    """

    __slots__ = ("_lines", "_new", "_old", "change", "is_own", "object")

    def __init__(self, change: Change, body: bytes, *, is_own: bool = False) -> None:
        self.change = change
        self.is_own = is_own
        self.object = body
        self._new: Manifest | None = None
        self._old: Manifest | None = None
        self._lines: dict[Any, bytes] = {}

    @property
    def new(self) -> Manifest:
        """Return the object after the change; the last state, for a deletion."""
        if self._new is None:
            self._new = _decode(self.object)
        return self._new

    @property
    def old(self) -> Manifest | None:
        """Return the object before the change, None for an addition.

        Needs the earlier text, which is read only while a watch has a selector.
        """
        if self._old is None:
            change = self.change
            if change.previous_document_id is None:
                # The fields that selectors read in an Event of this service never change.
                return self.new if change.verb == changes.MODIFIED else None
            text = change.previous_text
            if text is None and change.previous_document_id == change.document_id:
                text = change.text
            if text is None:
                return None
            revision = change.previous_revision or 0
            self._old = _decode(compose(text, revision, previous_overlay(change)))
        return self._old

    @property
    def as_deleted(self) -> Manifest:
        """Return the object before the change, with the revision of the change.

        Sent to a watch whose selector the object no longer matches. Rule: ``convertToWatchEvent``,
        apiserver ``storage/cacher/cache_watcher.go``, v1.36.
        """
        old = self.old
        assert old is not None, "only what matched before can cease to match"
        version = str(self.change.revision)
        return {**old, "metadata": {**old["metadata"], "resourceVersion": version}}

    def line(self, verb: bytes) -> bytes:
        """Return the event as one line of a watch."""
        line = self._lines.get(verb)
        if line is None:
            line = b'{"type":"%s","object":%s}\n' % (verb, self.object)
            self._lines[verb] = line
        return line

    def cached(self, key: Any, make: Callable[[], bytes]) -> bytes:
        """Return the line under ``key``, made by ``make`` the first time."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = make()
        return line


def events_of(items: Sequence[Change]) -> list[Event]:
    """Return the events of changes that were read with their documents.

    Events of this service have no document and are composed as they are now. Queries once if there
    are such.
    """
    rows = [c.object_id for c in items if c.text is None and c.kind == "Event"]
    composed = event_manifests(rows) if rows else {}
    found: list[Event] = []
    for change in items:
        is_own = False
        if change.text is not None:
            body = compose(change.text, change.revision, overlay(change))
        elif change.kind == "Event":
            body, is_own = composed.get(change.object_id) or (_remains(change), False)
        else:
            continue  # trimmed while it was read; a follower that needs it gets Expired
        found.append(Event(change, body, is_own=is_own))
    return found


def digested(items: Sequence[Change]) -> list[Event]:
    """Return the events of changes; an object that raises an error is set aside and left out.

    The watches continue without it.
    """
    parts = aside.each(
        "watch",
        items,
        events_of,
        which=lambda change: aside.ObjectRef(change.kind, change.object_id),
        now=clock.now(),
    )
    return parts[0] if len(parts) == 1 else [event for part in parts for event in part]


def _remains(change: Change) -> bytes:
    """Return the JSON of a deleted Event: only its name and the revision."""
    return msgspec.json.encode(
        {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {
                "name": change.name,
                "namespace": change.namespace,
                "resourceVersion": str(change.revision),
            },
            "involvedObject": {},
        }
    )


class Ring:
    """The latest events of one kind, in order of revision."""

    def __init__(self) -> None:
        self.floor: int | None = None
        self.position = 0
        self._revisions: list[int] = []
        self._events: list[Event] = []
        self._bytes = 0

    def append(self, events: list[Event], position: int) -> None:
        """Add events; ``position`` is the revision up to which the log was read."""
        for event in events:
            self._revisions.append(event.change.revision)
            self._events.append(event)
            self._bytes += len(event.object)
        self.position = position
        if len(self._events) > RING_EVENTS or self._bytes > RING_BYTES:
            self._trim()

    def _trim(self) -> None:
        """Drop the older half, so that trimming is rare."""
        drop = max(1, len(self._events) // 2)
        self.floor = self._revisions[drop - 1]
        self._bytes -= sum(len(event.object) for event in self._events[:drop])
        del self._events[:drop]
        del self._revisions[:drop]

    def after(self, cursor: int) -> list[Event] | None:
        """Return the events after ``cursor``, None if the ring begins later."""
        if self.floor is None or cursor < self.floor:
            return None
        return self._events[bisect_right(self._revisions, cursor) :]


class Subscription:
    """One waiting watch: ``wake`` is set when its kind (or its one object) changed."""

    __slots__ = ("key", "kind", "selects", "wake")

    def __init__(self, kind: str, *, selects: bool, key: tuple[str, str] | None) -> None:
        self.kind = kind
        self.selects = selects
        self.key = key
        self.wake = asyncio.Event()


class Hub:
    """The thread that reads the log, the rings, the subscriptions. Call it on the event loop."""

    def __init__(self) -> None:
        self._rings: dict[str, Ring] = {}
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._keyed: dict[tuple[str, str, str], set[Subscription]] = {}
        self._kinds: Counter[str] = Counter()
        self._selecting: Counter[str] = Counter()
        self._subscribed: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: list[threading.Thread] = []
        self._wake = threading.Event()
        self._position: int | None = None
        """The revision up to which the log was read; None before the first read, or if nobody
        watches."""
        self._heard = 0  # the highest revision that was announced
        self._hearing = threading.Lock()
        self._looks = True  # whatever was announced
        self._closed = False
        self._listening = False

    # ------------------------------------------------------------------------- on the loop

    def subscribe(
        self, kind: str, *, selects: bool = False, key: tuple[str, str] | None = None
    ) -> Subscription:
        """Start to follow a kind, or with ``key`` one object (namespace, name) of it.

        ``selects``: read also the objects before each change, so that a watch can find objects that
        no longer match its selectors.
        """
        if not self._threads:
            self._start()
        subscription = Subscription(kind, selects=selects, key=key)
        if key is None:
            self._subscriptions.setdefault(kind, set()).add(subscription)
        else:
            self._keyed.setdefault((kind, *key), set()).add(subscription)
        if not self._kinds[kind]:
            self._rings[kind] = Ring()
        self._kinds[kind] += 1
        if selects:
            if not self._selecting[kind]:
                # Events read so far have no earlier state; the log has.
                self._rings[kind] = Ring()
                self._wake_all(kind)
            self._selecting[kind] += 1
        self._publish_wanted()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop following; after the last watch of a kind, the kind is no longer read."""
        kind = subscription.kind
        if subscription.key is None:
            self._subscriptions[kind].discard(subscription)
        else:
            name = (kind, *subscription.key)
            self._keyed[name].discard(subscription)
            if not self._keyed[name]:
                del self._keyed[name]
        self._kinds[kind] -= 1
        if subscription.selects:
            self._selecting[kind] -= 1
        if not self._kinds[kind]:
            del self._kinds[kind]
            self._rings.pop(kind, None)
        self._publish_wanted()

    def ring(self, kind: str) -> Ring:
        """Return the latest events of a kind; at least one watch must follow the kind."""
        return self._rings[kind]

    def close(self) -> None:
        """End the threads."""
        self._closed = True
        self._request_read()

    def _publish_wanted(self) -> None:
        kinds = frozenset(self._kinds)
        subscribed = (kinds, frozenset(k for k in kinds if self._selecting[k]))
        if subscribed != self._subscribed:
            self._subscribed = subscribed
            self._request_read()

    def _wake_all(self, kind: str) -> None:
        for subscription in self._subscriptions.get(kind, ()):
            subscription.wake.set()
        for name, subscriptions in self._keyed.items():
            if name[0] == kind:
                for subscription in subscriptions:
                    subscription.wake.set()

    def _arrived(
        self,
        subscribed: tuple[frozenset[str], frozenset[str]],
        start: int,
        events: list[Event],
        position: int,
    ) -> None:
        """Append the events that the thread read after ``start`` up to ``position`` to the rings.

        ``subscribed``: the kinds that were read, and those of them with their earlier states.
        """
        by_kind: dict[str, list[Event]] = {}
        for event in events:
            by_kind.setdefault(event.change.kind, []).append(event)
        kinds, selecting = subscribed
        for kind in kinds:
            ring = self._rings.get(kind)
            if ring is None:
                continue
            if ring.floor is None:
                if self._selecting[kind] and kind not in selecting:
                    continue  # read before earlier states were asked for
                ring.floor = start
                self._wake_all(kind)
            elif ring.position != start:
                # The kind was left and followed again between two reads.
                fresh = self._rings[kind] = Ring()
                fresh.floor = start
                ring = fresh
                self._wake_all(kind)
            news = by_kind.get(kind, [])
            ring.append(news, position)
            if not news:
                continue
            for subscription in self._subscriptions.get(kind, ()):
                subscription.wake.set()
            if self._keyed:
                for event in news:
                    change = event.change
                    for subscription in self._keyed.get((kind, change.namespace, change.name), ()):
                        subscription.wake.set()

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        for target in (self._follow, self._listen):
            thread = threading.Thread(target=target, name=f"watch{target.__name__}", daemon=True)
            self._threads.append(thread)
            thread.start()
        changes.committed.connect(self._committed, dispatch_uid=f"hub-{id(self)}")

    # ---------------------------------------------------------------------- on its threads

    def _request_read(self) -> None:
        """Make the thread read the log, even without a wake-up."""
        self._looks = True
        self._wake.set()

    def _committed(self, sender: object, revision: int, **_: object) -> None:
        self._hear(revision)

    def _hear(self, revision: int) -> None:
        """Wake the thread, unless it has read the announced revision already.

        A commit of this process is announced twice: at once, and over Redis a moment later. Without
        watches the thread is not woken.
        """
        position = self._position
        if self._subscribed[0] and (position is None or revision > position):
            with self._hearing:
                self._heard = max(self._heard, revision)
            self._wake.set()

    def _is_behind(self) -> bool:
        """Return whether a revision was announced that is not read yet."""
        return self._heard > (self._position or 0)

    def _wait(self) -> None:
        """Wait for a request to read, an announced revision, or the next poll."""
        is_told = self._listening and not (self._is_behind() and settings.READS_FROM_REPLICA)
        end = time.monotonic() + (POLL_SECONDS if is_told else POLL_WITHOUT_REDIS_SECONDS)
        while self._wake.wait(max(0.0, end - time.monotonic())):
            self._wake.clear()
            if self._looks or self._is_behind():
                return

    def _follow(self) -> None:
        """Read the log while there are watches."""
        pause = PAUSE_SECONDS[0]
        while not self._closed:
            self._looks = False
            subscribed = self._subscribed
            if not subscribed[0]:
                self._position = None
                self._wake.wait()
                self._wake.clear()
                continue
            try:
                connections.check()
                more = replica.read(partial(self._read, *subscribed))
            except Expired:
                self._position = None
                continue
            except DatabaseError as error:
                logger.warning("watch reader lost the database: %s", type(error).__name__)
                with contextlib.suppress(DatabaseError):
                    connection.close()
                time.sleep(0.2)
                continue
            except Exception:  # the thread lives on: all watches of this process wait for it
                logger.exception("watch_reader_failed")
                time.sleep(0.2)
                continue
            if more:
                continue
            # A single commit is seen at once; of a stream of them, many by one read.
            pause = min(2 * pause, PAUSE_SECONDS[1]) if self._is_behind() else PAUSE_SECONDS[0]
            time.sleep(pause)
            self._wait()
        connection.close()

    def _read(self, kinds: frozenset[str], selecting: frozenset[str]) -> bool:
        """Pass the changes after the position to the loop, and move it; return whether to go on.

        The first read passes the watermark, without changes.

        Raises:
            Expired: the changes after the position were trimmed.
            DatabaseError: the log cannot be read.
        """
        start = self._position
        if start is None:
            start = changes.watermark()
            self._hand_over((kinds, selecting), start, [], start)
            self._position = start
            return True
        read = changes.read_since(
            start, kinds=kinds, documents=kinds, previous=selecting, limit=READ_LIMIT
        )
        if read.cursor != start or self._pending(kinds):
            self._hand_over((kinds, selecting), start, digested(read.items), read.cursor)
        self._position = read.cursor
        return read.more

    def _pending(self, kinds: frozenset[str]) -> bool:
        """Return whether a ring waits for its first read; a wrong True only costs a read."""
        rings = self._rings
        return any((ring := rings.get(kind)) is not None and ring.floor is None for kind in kinds)

    def _hand_over(
        self,
        subscribed: tuple[frozenset[str], frozenset[str]],
        start: int,
        events: list[Event],
        position: int,
    ) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._arrived, subscribed, start, events, position)

    def _listen(self) -> None:
        """Set the wake-up for each message on the channel; without Redis the polls are faster."""
        while not self._closed:
            try:
                with redis.Redis.from_url(
                    settings.REDIS_URL, socket_connect_timeout=1, socket_timeout=2
                ) as client:
                    subscription = client.pubsub(ignore_subscribe_messages=True)
                    subscription.subscribe(wake.CHANGES)
                    self._listening = True
                    while not self._closed:
                        message = subscription.get_message(timeout=5.0)
                        if message is not None:
                            self._hear(int(message["data"]))
            except (redis.RedisError, OSError):
                pass
            except Exception:  # as above; the poll is quicker meanwhile
                logger.exception("watch_listener_failed")
            self._listening = False
            self._request_read()
            if not self._closed:
                time.sleep(0.5)


hub = Hub()

"""Base of streams of server-sent events over the change log.

::

    hub's rings --ChangeStream--> events by revision --the stream's own--> Messages --Outlet-->

``ChangeStream`` makes one stream of several kinds, ordered by revision, complete and without
repetition, from the rings of this process or, for earlier revisions, from the log. ``run`` sends
the stream's messages: at most ``PER_SECOND`` writes a second, so that a burst of changes is one
write; an ``id:`` with every message, which a browser sends back as ``Last-Event-ID`` to continue
there; and an ``id:`` alone while nothing happens, so that it continues near the present. A client
that does not read gets a last message ``end``, and so does one whose revision was trimmed from the
log. Nothing is queued: a slow client only reads an earlier part of the log.

The stream itself decides what it shows, and to whom (`api.streaming.events_stream`).
"""

import asyncio
import heapq
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec

from api.forms import errors, wire
from api.server import connections
from api.server.protocol import CONNECTION
from api.server.scopes import Scope, Send
from api.streaming.hub import Event, digested, hub
from api.streaming.watch import AT_ONCE, CATCH_UP_LIMIT, SLOW_SECONDS, Client, OnThread, wait
from clusterstate.change_log import changes
from clusterstate.objects.values.errors import StatusError

PER_SECOND: Final = 4
KEEP_ALIVE_SECONDS: Final = 15.0
RETRY_MILLISECONDS: Final = 2000
"""The delay before a disconnected browser reconnects."""

HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, private"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the answer
]


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of a stream: ``id`` is a revision, ``data`` is one line.

    ``id`` is 0 if more messages of the same revision follow: a client that resumed from it would
    miss those.
    """

    id: int
    event: str
    data: bytes

    def text(self) -> bytes:
        """Return the message in the format of server-sent events."""
        body = b"event: %s\ndata: %s\n\n" % (self.event.encode(), self.data)
        return b"id: %d\n%s" % (self.id, body) if self.id else body


class TooSlow(StatusError):
    """The client of a stream does not read."""

    code, reason = 429, "TooManyRequests"


def end_message(error: StatusError) -> bytes:
    """Return the message ``end`` with the reason; it has no id."""
    return b"event: end\ndata: %s\n\n" % wire.encode(errors.as_status(error))


class ChangeStream:
    """Several kinds of the change log as one stream. Call its methods on the event loop only.

    ``selecting`` are the kinds that also need the objects before each change. ``wake`` is set when
    there may be news. Call ``close`` in the end.
    """

    def __init__(self, kinds: Collection[str], *, selecting: Collection[str] = ()) -> None:
        self.kinds = frozenset(kinds)
        self.selecting = frozenset(selecting)
        self.wake = asyncio.Event()
        self._subscriptions = []
        for kind in sorted(self.kinds):
            subscription = hub.subscribe(kind, selects=kind in self.selecting)
            subscription.wake = self.wake
            self._subscriptions.append(subscription)

    def close(self) -> None:
        """Stop following."""
        for subscription in self._subscriptions:
            hub.unsubscribe(subscription)
        self._subscriptions = []

    async def after(self, cursor: int, on_thread: OnThread) -> tuple[list[Event], int]:
        """Return the events after ``cursor``, in order, and the revision up to which that is all.

        Empty before the first read; then ``wake`` is set later. Queries, on a thread, if the rings
        begin after ``cursor``.

        Raises:
            Expired: the log begins after ``cursor``, too.
        """
        rings = [hub.ring(kind) for kind in self.kinds]
        if any(ring.floor is None for ring in rings):
            return [], cursor
        parts = [ring.after(cursor) for ring in rings]
        if any(part is None for part in parts):
            self.wake.set()
            return await on_thread(_from_log, self.kinds, self.selecting, cursor)
        end = min(ring.position for ring in rings)
        merged = heapq.merge(*(part or () for part in parts), key=_revision)
        return [one for one in merged if one.change.revision <= end], max(cursor, end)


def _revision(event: Event) -> int:
    return event.change.revision


@connections.used()
def _from_log(
    kinds: frozenset[str], selecting: frozenset[str], cursor: int
) -> tuple[list[Event], int]:
    found = changes.read_since(
        cursor, kinds=kinds, documents=kinds, previous=selecting, limit=CATCH_UP_LIMIT
    )
    return digested(found.items), found.cursor


def latest(events: Sequence[Event]) -> list[Event]:
    """Return the last event of each object, in order of revision."""
    found: dict[tuple[str, int], Event] = {}
    for event in events:
        key = (event.change.kind, event.change.object_id)
        found.pop(key, None)
        found[key] = event
    return list(found.values())


class Outlet:
    """Sends the text of a stream; the client must read it in time."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._connection: Any = scope.get(CONNECTION)

    async def begin(self) -> None:
        """Send the headers, and the delay before a browser reconnects."""
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self._body(b"retry: %d\n\n" % RETRY_MILLISECONDS)

    async def write(self, text: bytes) -> None:
        """Send text.

        Raises:
            TooSlow: the client has read nothing for a while.
        """
        if self._connection is None or self._connection.reads:
            await self._body(text)
            return
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                await self._body(text)
        except TimeoutError:
            raise TooSlow(
                f"the stream was ended: its client did not read for {SLOW_SECONDS:.0f} s; ask again"
                " with the Last-Event-ID that was received last",
                {"retryAfterSeconds": 1},
            ) from None

    async def end(self, error: StatusError | None = None) -> None:
        """Finish the answer, after a message with the error if there is one."""
        if isinstance(error, TooSlow):
            self._connection.end(end_message(error))  # behind what the connection holds already
            return
        last = b"" if error is None else end_message(error)
        await self._send({"type": "http.response.body", "body": last, "more_body": False})

    async def _body(self, text: bytes) -> None:
        await self._send({"type": "http.response.body", "body": text, "more_body": True})


async def run(
    outlet: Outlet,
    client: Client,
    following: ChangeStream,
    cursor: int,
    tell: Callable[[Sequence[Event]], list[Message]],
    on_thread: OnThread,
    *,
    seconds: float,
) -> None:
    """Send the messages that ``tell`` returns for events after ``cursor``, until the time is over.

    Returns when the client has gone, too.

    Raises:
        Expired: the log begins after ``cursor``.
        TooSlow: the client does not read.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    alive_at = loop.time()  # the first id is sent at once
    client.on_gone(following.wake)
    while True:
        following.wake.clear()
        if client.gone:
            return
        events, cursor = await following.after(cursor, on_thread)
        wrote = False
        for start in range(0, len(events), AT_ONCE):
            messages = tell(events[start : start + AT_ONCE])
            if messages:
                wrote = True
                await outlet.write(b"".join(message.text() for message in messages))
            await asyncio.sleep(0)
        now = loop.time()
        if wrote or now >= alive_at:
            # The revision also rises with changes that this client does not get.
            await outlet.write(b"id: %d\n\n" % cursor)
            alive_at = now + KEEP_ALIVE_SECONDS
        if now >= deadline:
            return
        if wrote:
            await asyncio.sleep(min(1 / PER_SECOND, deadline - now))
        await wait(following.wake, min(alive_at, deadline) - loop.time())

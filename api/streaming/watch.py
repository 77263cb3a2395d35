"""``GET collection?watch=true``: an open answer with one line per event.

A watch guarantees: headers at once; exactly the changes after its resourceVersion, in order and
complete (without one, or with 0, first an ADDED for every existing object); an object that begins
to match the selectors is ADDED, one that ceases to is DELETED. A revision older than the log, above
the last one or of another history gets one ERROR event (410), not an HTTP error, since clients list
again only then. Where events come from: `api.streaming.hub`.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from api import clock, routes
from api.access import auth, reach
from api.access.impersonation import claim_of_headers
from api.forms import (
    errors,
    failures,
    negotiation,
    options,
    other_forms,
    protobuf,
    replies,
    tables,
    wire,
)
from api.routes import Target
from api.server import connections, metrics
from api.server.protocol import CONNECTION
from api.server.scopes import Receive, Scope, Send, header, parameters
from api.streaming import rights
from api.streaming.hub import Event, digested, hub
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.change_log import changes, lineage, replica
from clusterstate.change_log.changes import ADDED, DELETED, Change
from clusterstate.objects.registry import fields
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values import labels
from clusterstate.objects.values.errors import BadRequest, Expired, NotFound, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects.lists import Page, list_page

T = TypeVar("T")


class OnThread(Protocol):
    """Runs a function on a thread and returns its result."""

    async def __call__(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return ``function(*arguments)``."""


DEFAULT_SECONDS = (1800, 3600)
"""Range of the time-out of a watch without ``timeoutSeconds``, as in kube-apiserver."""
BOOKMARK_SECONDS = 60.0
CATCH_UP_LIMIT = 500
AT_ONCE = 64
"""Events that the loop turns into lines before it runs other work."""
PIECE_BYTES = 256 << 10
"""Lines are sent together up to this size; one line may be longer."""
SLOW_SECONDS = 10.0
"""How long a watch waits for its client to read; less than the connection's own limit."""

_HEADERS = [
    (b"cache-control", b"no-cache, private"),
    (b"x-content-type-options", b"nosniff"),
]
_jitter = random.Random()  # noqa: S311  # spreads reconnects, decides nothing


class Request(msgspec.Struct, frozen=True):
    """A checked watch request. ``cursor`` None: send the present objects first."""

    target: Target
    other: other_forms.Form | None
    """The API version of the objects in the path, if it is not the stored one."""
    selector: labels.Selector
    requirements: tuple[fields.FieldRequirement, ...]
    label_text: str
    field_text: str
    cursor: int | None
    least: int
    """The initial state must be at this revision or later; 0: any."""
    anywhere: bool
    """The client named a revision, or 0: the initial state need not be the newest."""
    seconds: float
    bookmarks: bool
    initial_bookmark: bool
    form: str
    version: str
    """The version of meta.k8s.io for a Table or metadata alone."""
    protobuf: bool
    include: str

    @property
    def kind(self) -> Kind:
        """The watched kind."""
        return self.target.kind

    @property
    def selects(self) -> bool:
        """Whether the watch has a selector that an object may begin or cease to match."""
        return not self.selector.everything or any(
            requirement.path not in ("metadata.name", "metadata.namespace")
            for requirement in self.requirements
        )


def is_watch(scope: Scope) -> bool:
    """Return whether a GET with ``watch=`` in its query is a watch of a collection.

    An unreadable boolean is left to the ordinary view, which ignores it as Kubernetes does.
    """
    target = routes.of(scope).target
    if target is None or target.name:
        return False
    return parameters(scope).get("watch", "") in wire.TRUE


def read(scope: Scope, target: Target, query: dict[str, str]) -> Request:
    """Return the checked request.

    Raises:
        BadRequest: a parameter does not parse.
        NotAcceptable: the client accepts no served form.
    """
    try:
        selector = labels.parse_selector(query.get("labelSelector", ""))
    except labels.SelectorError as error:
        raise BadRequest(str(error)) from error
    field_text = query.get("fieldSelector", "")
    other = other_forms.of(target, routes.of(scope).version)
    if other is not None:
        field_text = other.stored_selector(field_text)
    cursor = wire.revision(query.get("resourceVersion"))
    options.check_watch(query)
    initial = wire.boolean(query.get("sendInitialEvents"), "sendInitialEvents")
    seconds = wire.signed(query.get("timeoutSeconds"), "timeoutSeconds")
    wire.signed(query.get("limit"), "limit")  # read, though a watch has no pages
    accept = header(scope, b"accept")
    served = target.kind.api_version if other is None else other.api_version
    has_message = protobuf.is_known(served, target.kind.name)
    written = negotiation.form(accept, has_message=has_message)
    in_protobuf = written in _IN_PROTOBUF
    form = _IN_PROTOBUF.get(written, written)
    bookmarks = wire.boolean(query.get("allowWatchBookmarks"), "allowWatchBookmarks")
    return Request(
        target=target if other is None else other.target(target),
        other=other,
        selector=selector,
        requirements=fields.parse_field_selector(target.kind.name, field_text),
        label_text=query.get("labelSelector", ""),
        field_text=field_text,
        cursor=None if initial else cursor or None,
        least=cursor or 0 if initial else 0,
        anywhere=bool(query.get("resourceVersion")),
        seconds=float(max(seconds, 0)) if seconds else _jitter.uniform(*DEFAULT_SECONDS),
        bookmarks=bookmarks,
        initial_bookmark=initial and bookmarks,
        form=form,
        version=negotiation.meta_version(accept, written),
        protobuf=in_protobuf,
        include=replies.include_object(query.get("includeObject")),
    )


class TooSlow(StatusError):
    """The client of a watch does not read."""

    code, reason = 429, "TooManyRequests"


def _headers(request: Request) -> list[tuple[bytes, bytes]]:
    media_type = protobuf.WATCH_TYPE if request.protobuf else errors.JSON
    headers = [(b"content-type", media_type.encode()), *_HEADERS]
    if deprecated := request.target.kind.deprecated:
        headers.append((b"warning", replies.warning_header([deprecated]).encode()))
    return headers


_IN_PROTOBUF: Final = {
    negotiation.PROTOBUF: negotiation.PLAIN,
    negotiation.PARTIAL_PROTOBUF: negotiation.PARTIAL,
}
"""Protobuf media types, with the content of each."""


_LEFT: Final = b"LEFT"
"""The object no longer matches: the watch gets DELETED with the object's last matching state."""


class Filter:
    """Decides which events a watch sends, and with which verb."""

    def __init__(self, request: Request) -> None:
        self._namespace = request.target.namespace
        self._selector = request.selector
        self._everything = request.selector.everything and not request.requirements
        names = [r for r in request.requirements if r.path == "metadata.name"]
        spaces = [r for r in request.requirements if r.path == "metadata.namespace"]
        self._names = names
        self._spaces = spaces
        self._fields = [r for r in request.requirements if r not in names and r not in spaces]
        self._plain = request.selector.everything and not self._fields

    def verb(self, event: Event) -> bytes | None:
        """Return ADDED, MODIFIED, DELETED or ``_LEFT``; None if the event is not sent."""
        change = event.change
        if self._namespace and change.namespace != self._namespace:
            return None
        if not self._everything:
            if not self._named(change):
                return None
            if not self._plain:
                return self._selected(event)
        if change.verb == DELETED:
            return b"DELETED"
        return b"ADDED" if change.verb == ADDED else b"MODIFIED"

    def _named(self, change: Change) -> bool:
        return all((r.value == change.name) is not r.negated for r in self._names) and all(
            (r.value == change.namespace) is not r.negated for r in self._spaces
        )

    def _selected(self, event: Event) -> bytes | None:
        verb = event.change.verb
        if verb == DELETED:
            return b"DELETED" if self._matches(event.new) else None
        now = self._matches(event.new)
        if verb == ADDED:
            return b"ADDED" if now else None
        old = event.old
        before = old is not None and self._matches(old)
        if now:
            return b"MODIFIED" if before else b"ADDED"
        return _LEFT if before else None

    def _matches(self, item: Manifest) -> bool:
        if not self._selector.everything and not self._selector.matches(
            item["metadata"].get("labels") or {}
        ):
            return False
        return not self._fields or fields.matches(self._fields, item)


class LineWriter:
    """Turns events into the lines of one watch; ``sent`` is called with the number of events."""

    def __init__(self, request: Request, sent: Callable[[int], object]) -> None:
        self._request = request
        self._sent = sent
        self._filter = Filter(request)
        self._headed = True

    def events(self, events: Sequence[Event]) -> list[bytes]:
        """Return the lines of those events that the watch sends, in pieces."""
        lines: list[bytes] = []
        for event in events:
            verb = self._filter.verb(event)
            if verb is not None:
                lines.append(self._event(event, verb))
        if lines:
            self._sent(len(lines))
        return _joined(lines)

    def _event(self, event: Event, what: bytes) -> bytes:
        form, in_protobuf = self._request.form, self._request.protobuf
        verb, item = (b"DELETED", _as_deleted) if what == _LEFT else (what, _new)
        if form == negotiation.PARTIAL:
            partial = ("partial", self._request.version, what, in_protobuf)
            return event.cached(partial, lambda: self._partial(item(event), verb))
        other = self._request.other
        if other is not None and form == negotiation.PLAIN:
            key_of_form = (other.api_version, what, in_protobuf)
            return event.cached(key_of_form, lambda: self._line(other.shown(item(event)), verb))
        if in_protobuf:
            return event.cached(("protobuf", what), lambda: protobuf.event(verb, item(event)))
        if form == negotiation.PLAIN:
            if what == _LEFT:
                return event.cached(what, lambda: self._line(event.as_deleted, verb))
            return event.line(verb)
        headed, self._headed = self._headed, False
        key = (what, self._request.include, headed, self._request.version)
        return event.cached(key, lambda: self._table(item(event), verb, headed=headed))

    def _partial(self, item: Manifest, verb: bytes) -> bytes:
        head = {"kind": "PartialObjectMetadata", "apiVersion": self._request.version}
        return self._line({**head, "metadata": item["metadata"]}, verb)

    def _line(self, item: Manifest, verb: bytes) -> bytes:
        if self._request.protobuf:
            return protobuf.event(verb, item)
        return b'{"type":"%s","object":%s}\n' % (verb, wire.encode(item))

    def _table(self, item: Manifest, verb: bytes, *, headed: bool) -> bytes:
        metadata = {"resourceVersion": item["metadata"].get("resourceVersion", "")}
        table = tables.table(
            self._request.kind,
            [item],
            metadata,
            now=clock.now(),
            include=self._request.include,
            headed=headed,
            version=self._request.version,
        )
        return b'{"type":"%s","object":%s}\n' % (verb, wire.encode(table))

    def present(self, items: Sequence[bytes]) -> list[bytes]:
        """Return ADDED lines for all items, in pieces; it takes long, so call it on a thread."""
        return _joined(map(self._added, items))

    def _added(self, item: bytes) -> bytes:
        if self._request.form == negotiation.PARTIAL and not self._request.protobuf:
            return b'{"type":"ADDED","object":%s}\n' % (
                replies.partial_object(item, self._request.version)
            )
        if self._request.form == negotiation.PARTIAL:
            return self._partial(replies.decode(item), b"ADDED")
        other = self._request.other
        if other is not None and self._request.form == negotiation.PLAIN:
            return self._line(other.shown(replies.decode(item)), b"ADDED")
        if self._request.protobuf:
            return protobuf.event(b"ADDED", replies.decode(item))
        if self._request.form == negotiation.PLAIN:
            return b'{"type":"ADDED","object":%s}\n' % item
        headed, self._headed = self._headed, False
        return self._table(replies.decode(item), b"ADDED", headed=headed)

    def bookmark(self, revision: int, *, initial: bool = False) -> bytes:
        """Return a BOOKMARK line: everything up to ``revision`` was sent."""
        kind = self._request.kind
        metadata: Manifest = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        item: Manifest = {
            "kind": kind.name,
            "apiVersion": kind.api_version,
            "metadata": metadata,
        }
        if self._request.other is not None:
            item["apiVersion"] = self._request.other.api_version
        if self._request.form == negotiation.PARTIAL:
            return self._partial(item, b"BOOKMARK")
        if self._request.form == negotiation.TABLE:
            # The row's object is where kubectl looks for the annotation.
            version = self._request.version
            item = tables.table(
                kind, [item], metadata, now=clock.now(), headed=False, version=version
            )
        return self._line(item, b"BOOKMARK")


def _new(event: Event) -> Manifest:
    return event.new


def _as_deleted(event: Event) -> Manifest:
    return event.as_deleted


def _joined(lines: Iterable[bytes]) -> list[bytes]:
    """Return lines joined to pieces of limited size, so that a connection buffers little."""
    pieces: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for line in lines:
        waiting.append(line)
        size += len(line)
        if size >= PIECE_BYTES:
            pieces.append(b"".join(waiting))
            waiting, size = [], 0
    if waiting:
        pieces.append(b"".join(waiting))
    return pieces


def error_line(error: StatusError, *, in_protobuf: bool = False) -> bytes:
    """Return an ERROR event as a line, or as a frame of protobuf."""
    if in_protobuf:
        return protobuf.event(b"ERROR", errors.as_status(error))
    return b'{"type":"ERROR","object":%s}\n' % wire.encode(errors.as_status(error))


@connections.used()
def _open(scope: Scope) -> tuple[Request, Attributes, User]:
    """Authenticate, authorise and read the request; runs on a thread. May query."""
    user = auth.authenticate(claim_of_headers(scope["headers"]))
    target = routes.of(scope).target
    if target is None:
        raise NotFound(errors.UNKNOWN_PATH)
    selector = parameters(scope).get("fieldSelector", "")
    wants = Attributes(
        verb="watch",
        group=target.kind.group,
        resource=target.kind.plural,
        namespace=target.namespace,
        name=auth.listed_name(target.kind.name, selector),
        fields=selector,
    )
    auth.require(user, wants)
    query = parameters(scope)
    if chosen := auth.narrowed(user, wants, selector):
        query["fieldSelector"] = chosen
    return read(scope, target, query), wants, user


@connections.used()
def _present(request: Request, writer: LineWriter) -> tuple[list[bytes], int]:
    """Return the lines of all present objects, in pieces, and their revision.

    Queries; runs on a thread.

    Raises:
        Timeout: the client's revision is above the last one.
    """

    def read() -> Page:
        if request.least:
            lineage.require_reached(request.least)
        return list_page(
            request.kind,
            request.target.namespace,
            label_selector=request.label_text,
            field_selector=request.field_text,
            acknowledged=True,
        )

    page = replica.read(read, least=request.least) if request.anywhere else read()
    return writer.present(list(page.items)), page.revision


@connections.used()
def _require(cursor: int) -> None:
    """Check that a client can have received ``cursor``. Queries; runs on a thread.

    Raises:
        Expired: it is above the last revision, or of another history.
    """
    lineage.require(cursor)


@connections.used()
def _require_reach(user: User, wants: Attributes, cursor: int) -> None:
    """Check that the user's right covers the past since ``cursor``. May query; runs on a thread.

    Raises:
        Expired: it does not.
    """
    reach.require_from(user, wants, cursor)


@connections.used()
def _catch_up(request: Request, cursor: int) -> tuple[list[Event], int]:
    """Return events after ``cursor`` from the log itself. Queries; runs on a thread.

    Raises:
        Expired: the log begins after ``cursor``.
    """
    name = request.kind.name

    def read() -> tuple[list[Event], int]:
        found = changes.read_since(
            cursor,
            kinds={name},
            documents={name},
            previous={name} if request.selects else (),
            limit=CATCH_UP_LIMIT,
        )
        return digested(found.items), found.cursor

    return replica.read(read)


class Watch:
    """One open watch."""

    def __init__(
        self,
        request: Request,
        scope: Scope,
        send: Send,
        on_thread: OnThread,
        counted: metrics.OpenAnswer,
    ) -> None:
        self._request = request
        self._send = send
        self._on_thread = on_thread
        self._connection: Any = scope.get(CONNECTION)
        self._writer = LineWriter(request, counted.sent)
        self._loop = asyncio.get_running_loop()

    async def _write(self, body: bytes) -> None:
        """Send lines.

        Raises:
            TooSlow: the client has read nothing for a while.
        """
        message = {"type": "http.response.body", "body": body, "more_body": True}
        if self._connection is None or self._connection.reads:
            await self._send(message)
            return
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                await self._send(message)
        except TimeoutError:
            raise TooSlow(
                "the watch was ended: its client did not read for "
                f"{SLOW_SECONDS:.0f} s; watch again from the last resourceVersion received",
                {"retryAfterSeconds": 1},
            ) from None

    async def _write_events(self, events: Sequence[Event]) -> None:
        """Send those events that the filter chooses."""
        for start in range(0, len(events), AT_ONCE):
            if start:
                await asyncio.sleep(0)
            for piece in self._writer.events(events[start : start + AT_ONCE]):
                await self._write(piece)

    async def run(self, client: "Client") -> None:
        """Send events until the time is over or the client has gone."""
        request, loop = self._request, self._loop
        deadline = loop.time() + request.seconds
        bookmark_at = loop.time() + BOOKMARK_SECONDS if request.bookmarks else deadline
        subscription = hub.subscribe(request.kind.name, selects=request.selects)
        client.on_gone(subscription.wake)
        try:
            if request.cursor is not None:
                cursor = request.cursor
                if cursor > hub.ring(request.kind.name).position:
                    await self._on_thread(_require, cursor)
            else:
                pieces, cursor = await self._on_thread(_present, request, self._writer)
                for piece in pieces:
                    await self._write(piece)
                del pieces
                if request.initial_bookmark:
                    await self._write(self._writer.bookmark(cursor, initial=True))
            while not client.gone:
                subscription.wake.clear()
                ring = hub.ring(request.kind.name)
                events: list[Event] | None = []
                if ring.floor is not None:
                    events = ring.after(cursor)
                if events is None:
                    events, cursor = await self._on_thread(_catch_up, request, cursor)
                    subscription.wake.set()
                elif ring.floor is not None:
                    cursor = max(cursor, ring.position)
                if events:
                    await self._write_events(events)
                now = loop.time()
                if request.bookmarks and now >= bookmark_at:
                    await self._write(self._writer.bookmark(cursor))
                    bookmark_at = now + BOOKMARK_SECONDS
                if now >= deadline:
                    return
                await wait(subscription.wake, min(bookmark_at, deadline) - now)
        except Expired as error:
            await self._write(error_line(error, in_protobuf=request.protobuf))
        except TooSlow as error:
            self._connection.end(error_line(error, in_protobuf=request.protobuf))
        finally:
            hub.unsubscribe(subscription)


class Client:
    """Whether the client is still connected."""

    def __init__(self) -> None:
        self.gone = False
        self._wake: asyncio.Event | None = None

    def on_gone(self, wake: asyncio.Event) -> None:
        """Set ``wake`` when the client disconnects, at once if it has already."""
        self._wake = wake
        if self.gone:
            wake.set()

    async def listen(self, receive: Receive) -> None:
        """Wait until the client disconnects, then set ``gone`` and wake the watch."""
        with contextlib.suppress(Exception):
            while (await receive())["type"] != "http.disconnect":
                pass
        self.gone = True
        if self._wake is not None:
            self._wake.set()


async def wait(wake: asyncio.Event, seconds: float) -> None:
    """Wait for ``wake``, at most ``seconds``."""
    if wake.is_set():
        return
    timer = asyncio.get_running_loop().call_later(max(seconds, 0.0), wake.set)
    try:
        await wake.wait()
    finally:
        timer.cancel()


async def serve(scope: Scope, receive: Receive, send: Send, on_thread: OnThread) -> None:
    """Answer one watch."""
    try:
        request, wants, user = await on_thread(_open, scope)
    except Exception as error:  # noqa: BLE001  # every failure becomes a Status
        await failures.reply(scope, send, error)
        return
    client = Client()
    listener = asyncio.ensure_future(client.listen(receive))
    counted = metrics.OpenAnswer(scope["path"], routes.of(scope))
    try:
        await send({"type": "http.response.start", "status": 200, "headers": _headers(request)})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        try:
            if request.cursor is not None and wants.namespace:
                await on_thread(_require_reach, user, wants, request.cursor)
            watching = Watch(request, scope, send, on_thread, counted).run(client)
            await rights.run_while_allowed(watching, claim_of_headers(scope["headers"]), wants)
        except Exception as error:  # noqa: BLE001  # the headers are sent: an event reports the error
            await send(
                {
                    "type": "http.response.body",
                    "body": error_line(errors.translate(error), in_protobuf=request.protobuf),
                    "more_body": True,
                }
            )
        if not client.gone:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        counted.end()
        listener.cancel()

"""Change events for open pages: server-sent events from the change log.

::

    change log --(thread: read by watermark)--> digests of the last minutes --(loop)--> pages

One thread of the process reads the log while a page is open, without documents, and stores the
changes, four times a second at most. A page names what it shows (``live``: kinds, or objects), and
gets the changes of that alone, all since the last event in one::

    id: 183412
    event: change
    data: {"revision": 183412, "pause": 1.0, "now": 1796000000.0, "changed": {"Pod": ["@node-1"]}}

``pause``: how many seconds a page waits between two requests for one part (``looks.pause``). If
that is long, since many pages are open, events are as rare: a page would not act on more.

The id is the revision, so that a browser that lost the connection continues where it stopped
(``Last-Event-ID``). A page opens its stream with the revision before it was rendered (``after``),
so that no change is lost in between. If that is too long ago, the event ``resync`` has the page
read everything again. Names are omitted (null) for a kind of which the page shows all objects, or
more than ``MOST_NAMES`` changed. A page gets changes only of kinds that its person may list; the
stream ends within two seconds when the person signs out, and follows changed rights as fast.
"""

import asyncio
import re
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
import structlog
from django.conf import settings
from django.contrib.auth import get_user
from django.db import DatabaseError, connection
from django.http import HttpRequest

from api import clock
from api.console.live import fragment_cache
from api.server import connections, health
from api.server.scopes import Receive, Scope, Send
from clusterstate import browser_sessions, middleware
from clusterstate.access import authorizer, people
from clusterstate.access.rules import Attributes
from clusterstate.browser_sessions import SessionStore
from clusterstate.change_log import changes, replica, wake
from clusterstate.change_log.changes import Change
from clusterstate.objects.registry.kinds import ALL_KINDS
from clusterstate.objects.values.errors import Expired
from clusterstate.objects.values.numbers import natural
from clusterstate.processes import memory

logger = structlog.get_logger(__name__)

PATH: Final = "/console/stream"
EVERY_SECONDS: Final = 0.25
MOST_NAMES: Final = 200
_RIGHTS_SECONDS: Final = 0.7
"""How old the user and rights of a session may be: with the policy's own second, a stream ends
within two seconds when its session ends or the person loses a right."""
_LOOKED_UP_SECONDS: Final = 10.0
"""A session is looked up again after this time even if its rows are the same: it may be idle."""
_SIGN_SECONDS: Final = 5.0
"""After this many seconds without events the stream sends a sign of life."""
_KEPT: Final = 50_000
_MOST_SHOWN: Final = 100
_SHOWN: Final = re.compile(r"([^:@]*)([:@]?)(.*)")
_READ: Final = 2000
_READ_SECONDS: Final = 0.2
"""Between two reads of the log: pages hear of changes less often anyway."""
_POLL_SECONDS: Final = 0.5
MOST_OPEN: Final = 1000
MOST_OF_ONE: Final = 100
"""Pages that one person may have open: nobody takes the room of all others."""


_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Digest(msgspec.Struct, frozen=True, gc=False):
    """One change, as it is sent to pages."""

    revision: int
    kind: str
    names: tuple[str, ...]


def digest_of(change: Change) -> Digest:
    """Return kind and names that a change affects: the object, and for a pod also its nodes."""
    name = f"{change.namespace}/{change.name}" if change.namespace else change.name
    places = {one for one in (change.node_name, change.previous_node_name) if one}
    return Digest(change.revision, change.kind, (name, *(f"@{one}" for one in sorted(places))))


class Tape:
    """The last changes, in order of revision. Belongs to the event loop."""

    def __init__(self) -> None:
        self.floor: int | None = None
        self.position = 0
        self._revisions: list[int] = []
        self._digests: list[Digest] = []

    def begin(self, position: int) -> None:
        """Drop all digests, and start again at a revision."""
        self.floor = self.position = position
        self._revisions, self._digests = [], []

    def append(self, digests: list[Digest], position: int) -> None:
        """Add the digests of changes; ``position``: the revision up to which the log was read."""
        self._digests += digests
        self._revisions += [one.revision for one in digests]
        self.position = position
        if len(self._digests) > 2 * _KEPT:
            self.floor = self._revisions[_KEPT - 1]
            del self._digests[:_KEPT], self._revisions[:_KEPT]

    def after(self, cursor: int) -> list[Digest] | None:
        """Return the changes after a revision, ``None`` if those were dropped already."""
        if self.floor is None or cursor < self.floor:
            return None
        return self._digests[bisect_right(self._revisions, cursor) :]


class Shown(msgspec.Struct, frozen=True):
    """The objects that a page shows: all of ``kinds``, and some others by name.

    ``@NODE`` among the names of pods: those of a node.
    """

    kinds: frozenset[str]
    named: dict[str, frozenset[str]] = {}

    def names(self, one: Digest) -> Iterable[str] | None:
        """Return the names that concern the page, ``None`` where all objects of the kind do."""
        if one.kind in self.kinds:
            return None
        names = self.named.get(one.kind)
        return names.intersection(one.names) if names else ()

    def of(self, allowed: frozenset[str]) -> "Shown":
        """Return the shown objects that are of the ``allowed`` kinds."""
        named = {kind: names for kind, names in self.named.items() if kind in allowed}
        return Shown(self.kinds & allowed, named)


def shown_of(text: str) -> Shown:
    """Return what a page shows, from its parameter: ``Node Pod:default/web-1 Pod@node-1``."""
    kinds, named = set(), dict[str, set[str]]()
    for one in text.split()[:_MOST_SHOWN]:
        kind, sign, name = _SHOWN.match(one).groups()  # type: ignore[union-attr]  # anything does
        if sign:
            named.setdefault(kind, set()).add(f"@{name}" if sign == "@" else name)
        else:
            kinds.add(kind)
    return Shown(frozenset(kinds), {kind: frozenset(names) for kind, names in named.items()})


def summary(digests: Iterable[Digest], shown: Shown) -> dict[str, list[str] | None]:
    """Return by kind the names of changed objects that a page shows; ``None`` for too many."""
    found: dict[str, set[str] | None] = {}
    for one in digests:
        names = shown.names(one)
        if names is None:
            found[one.kind] = None
        elif names:
            names_of_kind = found.setdefault(one.kind, set())
            if names_of_kind is not None:
                names_of_kind.update(names)
    return {
        kind: sorted(names) if names is not None and len(names) <= MOST_NAMES else None
        for kind, names in found.items()
    }


class _Follower:
    """The thread that reads the log while pages are open, and the functions for pages."""

    def __init__(self) -> None:
        self.tape = Tape()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None
        self._open = 0
        self.of_persons: Counter[str] = Counter()
        self._thread: threading.Thread | None = None
        self._counting = threading.Lock()
        self._anew = threading.Event()

    def about(self, cursor: int, person: str) -> dict[str, Any]:
        """Return the fields of every event but the changes, which are sent up to ``revision``.

        ``pause``: how long the page waits between two requests. ``now``: seconds since 1970, as the
        browser's clock may differ. ``troubles``: the parts of the service that do not work.
        """
        now = round(clock.now().timestamp(), 3)
        pause = round(self.pause(person), 1)
        return {"revision": cursor, "pause": pause, "now": now, "troubles": health.troubles()}

    def pause(self, person: str) -> float:
        """Return the seconds that a person's page waits between two requests for a part."""
        mine = self.of_persons[person]
        return fragment_cache.pause(person, mine, self._open, len(self.of_persons))

    def is_full(self, person: str) -> bool:
        """Return whether no more pages may be open, at all or for this person."""
        return self._open >= MOST_OPEN or self.of_persons[person] >= MOST_OF_ONE

    def enter(self, person: str) -> None:
        """Count one more page of a person."""
        self.of_persons[person] += 1
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._news, self.tape = loop, asyncio.Event(), Tape()
        with self._counting:
            self._open += 1
            if self._thread is None or not self._thread.is_alive():
                self.tape = Tape()
                self._thread = threading.Thread(target=self._follow, name="console", daemon=True)
                self._thread.start()

    def leave(self, person: str) -> None:
        """Count one page less; after the last one the thread stops reading."""
        self.of_persons[person] -= 1
        self.of_persons += Counter()  # who has none is forgotten
        with self._counting:
            self._open -= 1

    def _is_over(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether the thread must end; pages opened later start another."""
        with self._counting:
            if self._open and not loop.is_closed():
                return False
            if self._thread is threading.current_thread():
                self._thread = None
            return True

    async def news(self, seconds: float) -> None:
        """Wait until something is read, at most ``seconds``."""
        assert self._news is not None
        event = self._news
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    def forget(self) -> None:
        """Start again, because the history of the database was replaced."""
        self._anew.set()

    def _began(self, tape: Tape, position: int) -> None:
        tape.begin(position)
        self._tell()

    def _arrived(self, tape: Tape, digests: list[Digest], position: int) -> None:
        tape.append(digests, position)
        if digests:
            self._tell()

    def _tell(self) -> None:
        assert self._news is not None
        self._news.set()
        self._news = asyncio.Event()

    def _follow(self) -> None:
        loop, tape = self._loop, self.tape
        assert loop is not None
        position: int | None = None
        with wake.Subscription(wake.CHANGES) as commits:
            while not self._is_over(loop):
                try:
                    connections.check()
                    if position is None or self._anew.is_set():
                        self._anew.clear()
                        position = replica.read(changes.watermark)
                        loop.call_soon_threadsafe(self._began, tape, position)
                    began = time.monotonic()
                    read = replica.read(partial(changes.read_since, position, limit=_READ))
                    is_news = read.cursor != position
                    if is_news:
                        digests = [digest_of(one) for one in read.items]
                        position = read.cursor
                        loop.call_soon_threadsafe(self._arrived, tape, digests, position)
                    if read.more:
                        continue
                except Expired:
                    position = None
                    continue
                except (DatabaseError, RuntimeError) as error:
                    logger.warning("console_stream_waits", error=type(error).__name__)
                    with suppress(DatabaseError):
                        connection.close()
                    time.sleep(0.2)
                    continue
                except Exception:  # the thread continues: all open pages wait for it
                    logger.exception("console_stream_failed")
                    time.sleep(0.2)
                    continue
                if is_news:  # what comes together is read together
                    time.sleep(max(0.0, began + _READ_SECONDS - time.monotonic()))
                commits.wait(_POLL_SECONDS)
        connection.close()


_follower = _Follower()
pause_of = _follower.pause
memory.when_replaced(_follower.forget)


class Person(msgspec.Struct, frozen=True):
    """The user of an open page, and the kinds that they may list.

    ``within``: the namespaces to which the right to list a kind is limited, by kind.
    """

    name: str
    kinds: frozenset[str]
    within: dict[str, frozenset[str]] = {}

    def hears(self, one: Digest) -> bool:
        """Return whether a change is in a namespace that the person may see."""
        spaces = self.within.get(one.kind)
        return spaces is None or one.names[0].partition("/")[0] in spaces


def person_of(headers: Iterable[tuple[bytes, bytes]], *, secure: bool) -> Person | None:
    """Return the person of a browser's cookie, ``None`` if invalid. Queries; runs on a thread."""
    key = _session_key(headers, secure=secure)
    if not key:
        return None
    request = HttpRequest()
    request.session = SessionStore(key)
    if middleware.is_idle(request.session):
        return None
    user = people.user_of(get_user(request))
    if not user.name:
        return None
    policy = authorizer.current()
    kinds, within = set(), {}
    for kind in ALL_KINDS:
        wants = Attributes("list", kind.group, kind.plural)
        if authorizer.decide(user, wants, policy).allowed:
            kinds.add(kind.name)
        elif spaces := policy.namespaces(user.name, user.groups, wants):
            within[kind.name] = frozenset(spaces)
    return Person(user.name, frozenset(kinds | within.keys()), within)


class SessionUser(msgspec.Struct, frozen=True):
    """The user of a session, or None, and the loop's time at which that was so.

    ``looked_at``: when it was looked up in full. It follows from ``stamp`` and ``policy``, which
    have not changed since.
    """

    person: Person | None
    at: float
    looked_at: float
    stamp: object
    policy: object


_Headers = Sequence[tuple[bytes, bytes]]


class _OpenSession(msgspec.Struct, frozen=True):
    """A session that a page is open in: how to look it up, and when it was asked for."""

    headers: _Headers
    secure: bool
    at: float


class _Sessions:
    """The users of open pages, by their cookies.

    One statement checks all sessions of a process: rights follow from rows whose stamps are
    compared, and are looked up again when a stamp changed.
    """

    def __init__(self) -> None:
        self._users: dict[str, SessionUser] = {}
        self._sessions: dict[str, _OpenSession] = {}
        self._round: asyncio.Task[None] | None = None

    async def user(self, headers: _Headers, *, secure: bool) -> SessionUser:
        """Return the user of a session and their rights, at most ``_RIGHTS_SECONDS`` old.

        Raises:
            DatabaseError: the database does not answer.
        """
        loop = asyncio.get_running_loop()
        key = _session_key(headers, secure=secure)
        while True:
            now = loop.time()
            self._sessions[key] = _OpenSession(headers, secure, now)
            cached = self._users.get(key)
            if cached is not None and now - cached.at < _RIGHTS_SECONDS:
                return cached
            if self._round is None or self._round.done() or self._round.get_loop() is not loop:
                self._round = asyncio.ensure_future(self._look_again(now))
            await asyncio.shield(self._round)

    async def _look_again(self, now: float) -> None:
        """Check all sessions that were requested lately."""
        self._sessions = {
            key: one for key, one in self._sessions.items() if now - one.at < _LOOKED_UP_SECONDS
        }
        cached = {key: one for key, one in self._users.items() if key in self._sessions}
        loop = asyncio.get_running_loop()
        self._users = await loop.run_in_executor(
            _thread, _looked_up, dict(self._sessions), cached, now
        )


_thread: Final = ThreadPoolExecutor(1, thread_name_prefix="console-sessions")


@connections.used()
def _looked_up(
    open_sessions: dict[str, _OpenSession], cached: dict[str, SessionUser], now: float
) -> dict[str, SessionUser]:
    """Return the user of each session. Queries once, and again for sessions that changed."""
    names = {key: one.person.name for key, one in cached.items() if one.person is not None}
    stamps = browser_sessions.stamps(names)
    policy = authorizer.current()
    found: dict[str, SessionUser] = {}
    for key, one in open_sessions.items():
        before, stamp = cached.get(key), stamps.get(key)
        if (
            before is not None
            and stamp is not None
            and (before.stamp, before.policy) == (stamp, policy)
            and now - before.looked_at < _LOOKED_UP_SECONDS
        ):
            found[key] = msgspec.structs.replace(before, at=now)
        else:
            person = person_of(one.headers, secure=one.secure)
            found[key] = SessionUser(person, now, now, stamp, policy)
    return found


_sessions = _Sessions()


async def _session_user(headers: Sequence[tuple[bytes, bytes]], *, secure: bool) -> Person | None:
    """Return the person of a browser's cookie, looked up on a thread."""

    def look() -> Person | None:
        try:
            return person_of(headers, secure=secure)
        finally:
            connection.close()  # asked too rarely to keep one

    return await asyncio.get_running_loop().run_in_executor(None, look)


def _session_key(headers: Iterable[tuple[bytes, bytes]], *, secure: bool) -> str:
    name = (middleware.HOST_ONLY if secure else "") + settings.SESSION_COOKIE_NAME
    for header, value in headers:
        if header == b"cookie":
            cookies: SimpleCookie = SimpleCookie()
            with suppress(CookieError):
                cookies.load(value.decode("latin-1"))
            if name in cookies:
                return cookies[name].value
    return ""


async def serve(scope: Scope, receive: Receive, send: Send) -> int:
    """Send a page its changes until it is closed; return the status of the response."""
    secure = scope.get("scheme") == "https"
    headers = list(scope["headers"])
    person = await _session_user(headers, secure=secure)
    status = 401 if person is None else 503 if _follower.is_full(person.name) else 200
    if person is None or status != 200:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return status
    gone = asyncio.ensure_future(_gone(receive))
    _follower.enter(person.name)
    try:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await _tell(person, scope, secure=secure, send=send, gone=gone)
        if not gone.done():
            await send({"type": "http.response.body", "body": b""})
    finally:
        _follower.leave(person.name)
        gone.cancel()
    return status


async def _tell(
    person: Person, scope: Scope, *, secure: bool, send: Send, gone: "asyncio.Future[None]"
) -> None:
    loop = asyncio.get_running_loop()
    headers = list(scope["headers"])
    checked_at = asked_at = told_at = loop.time()
    rests_until = 0.0
    tape = _follower.tape
    while tape.floor is None and not gone.done():
        await _follower.news(1.0)
    cursor = cursor_of(scope)
    if cursor is None or cursor > tape.position:
        cursor = tape.position
    subjects = _shown_by(scope)
    shown = subjects.of(person.kinds) if subjects else Shown(person.kinds)
    await _event(send, "hello", cursor, _follower.about(cursor, person.name))
    while not gone.done():
        now = loop.time()
        if now - max(checked_at, asked_at) >= _RIGHTS_SECONDS:
            asked_at = now
            try:
                user = await _sessions.user(headers, secure=secure)
            except DatabaseError:
                continue  # nothing is known; the stream has nothing to tell either
            if user.person is None:
                await _event(send, "signed-out", cursor, {})
                return
            person, checked_at, asked_at = user.person, user.at, user.at
            shown = subjects.of(person.kinds) if subjects else Shown(person.kinds)
        if now - told_at >= _SIGN_SECONDS:
            await _event(send, "alive", cursor, _follower.about(cursor, person.name))
            told_at = now
            continue  # news may have come while this was sent
        if now < rests_until:
            until = min(
                rests_until, told_at + _SIGN_SECONDS, max(checked_at, asked_at) + _RIGHTS_SECONDS
            )
            await asyncio.wait({gone}, timeout=max(0.0, until - now))
            continue
        found = tape.after(cursor) if _follower.tape is tape else None
        if found is None:
            tape = _follower.tape
            cursor = tape.position
            await _event(send, "resync", cursor, _follower.about(cursor, person.name))
            told_at = now
        elif found or tape.position > cursor:
            cursor = tape.position
            news = summary(filter(person.hears, found), shown)
            if news:
                about = _follower.about(cursor, person.name)
                await _event(send, "change", cursor, {**about, "changed": news})
                told_at = loop.time()
                rests_until = told_at + rest_of(about["pause"])
                continue
        await _follower.news(_RIGHTS_SECONDS)


def rest_of(pause: float) -> float:
    """Return how many seconds a stream sends nothing after an event.

    ``pause``: between two requests of the page, which does not use earlier events. While few pages
    are open, it is ``EVERY_SECONDS``.
    """
    return EVERY_SECONDS if pause <= fragment_cache.LEAST_PAUSE else pause


def _shown_by(scope: Scope) -> Shown | None:
    """Return the objects that a page shows, by its parameter ``live``; ``None`` without it."""
    found = parse_qs(scope["query_string"], keep_blank_values=True).get(b"live")
    return None if found is None else shown_of(found[0].decode("utf-8", "replace"))


async def _event(send: Send, name: str, revision: int, data: dict[str, Any]) -> None:
    body = b"id: %d\nevent: %s\ndata: %s\n\n" % (revision, name.encode(), msgspec.json.encode(data))
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _gone(receive: Receive) -> None:
    """Wait until the browser has closed the page."""
    while (await receive())["type"] != "http.disconnect":
        pass


def cursor_of(scope: Scope) -> int | None:
    """Return the revision that a page has seen: of its last event, or else from its ``after``."""
    after = parse_qs(scope["query_string"]).get(b"after", [b""])[0]
    text = next((value for name, value in scope["headers"] if name == b"last-event-id"), after)
    return natural(text)

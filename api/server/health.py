"""Whether a pod that is posted now will be placed now, and which part of the service is at fault.

``/livez`` and ``/healthz`` say that this process answers; a supervisor restarts one that does not.
``/readyz`` is ready when the database accepts writes and the loops report that they follow: each
writes its row in the database every two seconds, after its work, on whatever host it runs
(``clusterstate.health.progress``). A killed process shows at once: its database session is gone.
Redis only shortens waits, so its absence is reported (``[!]``) and does not make the service
unready. The console, if it is a separate process, is waited for once, until it first answers.

A thread of this process checks once a second, so an answer never waits for a frozen server:
``latest`` returns the last results at once, and says so if they are too old. It reports the
database as not answering only while the thread waits for it: a thread that had no processor for
seconds knows nothing about the database. ``problems`` has the thread check again and waits for it,
at most ``ANSWER_SECONDS``.

``CHECKS`` lists the checks; each returns parts, and may query. The first one covers the needed
parts, and its results are published at once, so a slow Redis does not delay them. ``health_texts``
has the texts.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final, TypeVar

import redis
import structlog
from django.conf import settings
from django.db import Error, connection
from django.http import Http404, HttpRequest, HttpResponse

from api import clock
from api.access import auth
from api.forms import errors, failures
from api.server import health_texts, room
from api.server.health_texts import Part
from clusterstate.access.rules import Attributes
from clusterstate.change_log import replica
from clusterstate.database import schema, sql
from clusterstate.database.postgres.base import last_answer
from clusterstate.health import aside, progress
from clusterstate.queries.scheduler import decision_checks
from scheduling.answers import advisor

_T = TypeVar("_T")
logger = structlog.get_logger(__name__)

_TEXT = "text/plain; charset=utf-8"
ANSWER_SECONDS: Final = 1.0
"""How long ``problems`` waits for the thread that looks."""
_EVERY_SECONDS = 1.0
_SELDOM_SECONDS = 10.0
_ASKED_LATELY_SECONDS = 30.0
"""Seconds without a request after which the thread looks only seldom."""
_STATEMENT_SECONDS = 2.0
"""Seconds after which the thread gives a statement up."""
_TOO_OLD_SECONDS = 3.0
_CLOCK_SECONDS = 5.0
"""A larger difference between this host's clock and the database's is a problem."""
_CONSOLE_SECONDS = 0.5
"""How long the console may take to accept a connection."""
_CONSOLE_BEGINS_SECONDS = 60.0
"""So long after this process began a console that has not answered yet makes it unready."""
_BEGAN = time.monotonic()
_FULL_SECONDS = 10.0
"""How long a disk-full error keeps ``/readyz`` degraded."""
_HELD_SECONDS = 5.0
"""A transaction that keeps followers waiting longer than this is a problem."""


# --- what is looked at ---------------------------------------------------------------------------


_prepared: set[str] = set()
"""The databases, by name, that were seen to have all tables; none of them loses any."""


def _lacking() -> str:
    """Return the tables of this version that the database lacks. Queries until it lacks none."""
    name = str(settings.DATABASES["default"]["NAME"])
    if name in _prepared:
        return ""
    missing = schema.lacking(patience=_STATEMENT_SECONDS)
    if not missing:
        _prepared.add(name)
    return missing


def _work() -> Iterator[Part]:
    """Return the database, the loops and the log. Queries once."""
    before = time.time()
    try:
        missing = _lacking()
        found = None if missing else progress.standing(patience=_STATEMENT_SECONDS)
    except Error as error:
        connection.close()
        is_away = sql.is_away(error)
        missing = health_texts.NO_ANSWER if is_away else f"cannot be read ({type(error).__name__})"
        found = None
    after = time.time()
    if found is None:
        yield Part("database", missing)
        for loop in progress.LOOPS:
            yield Part(loop, health_texts.UNREAD)
        return
    yield Part("database", errors.ONLY_READS if found.only_reads else "")
    for loop in progress.LOOPS:
        silent = found.silent_seconds.get(loop)
        if silent is None:
            yield Part(loop, "has not worked yet")
        elif silent > found.patience[loop]:
            yield Part(loop, f"has not worked for {silent:.0f} s")
        elif loop in found.ended:
            yield Part(loop, "its database session has ended; it opens another one")
        else:
            yield Part(loop)
    for loop in sorted(set(progress.schedulers()).difference(progress.LOOPS, found.ended)):
        # A scheduler that holds its session keeps its pods, and without a report it does not decide
        # them.
        silent = found.silent_seconds.get(loop, 0.0)
        slow = silent > found.patience.get(loop, progress.SILENT_SECONDS)
        yield Part(loop, f"has not worked for {silent:.0f} s" if slow else "")
    held = found.log_held_seconds
    yield Part("log", f"held up by a transaction, {held:.0f} s old" if held > _HELD_SECONDS else "")
    if settings.SERVES:  # a test's clock differs from the database's
        ahead = clock.compare(database=found.at, before=before, after=after)
        which = "ahead of" if ahead > 0 else "behind"
        problem = f"is {abs(ahead):.0f} s {which} the database's clock, by which times are stored"
        yield Part("clock", problem if abs(ahead) > _CLOCK_SECONDS else "", needed=False)


_console_answered: set[str] = set()
"""The addresses at which the console has answered since this process began."""


def _console() -> Iterator[Part]:
    """Return whether the console's own process answers, if there is one. Queries nothing.

    The start of the service waits for it, a minute at most. Pods are placed without it, so
    afterwards it is reported as not needed.
    """
    address = settings.CONSOLE_AT
    if not address:
        return
    problem = ""
    begins = False
    try:
        _connect(address)
        _console_answered.add(address)
    except OSError as error:
        age = time.monotonic() - _BEGAN
        begins = address not in _console_answered and age < _CONSOLE_BEGINS_SECONDS
        problem = f"does not answer ({type(error).__name__}){': it begins' if begins else ''}"
    yield Part("console", problem, needed=begins)


def _connect(address: str) -> None:
    """Connect to the console and hang up.

    Raises:
        OSError: it does not listen.
    """
    if address.startswith("unix:"):
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(_CONSOLE_SECONDS)
            one.connect(address.removeprefix("unix:"))
        return
    host, _, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    socket.create_connection((host, int(port)), timeout=_CONSOLE_SECONDS).close()


def _needed() -> Iterator[Part]:
    """Return the parts without which the service is not ready."""
    yield from _work()
    yield from _console()


def _followers() -> Iterator[Part]:
    """Return which followers have set objects aside, or lag; the service is ready in any case.

    Queries once.
    """
    found = _or_none(partial(aside.standing, clock.now()))
    if found is None:
        return
    problems = [
        f"{follower} goes on without {count} object{'s' if count > 1 else ''}"
        for follower, count in found.set_aside.items()
    ]
    late = {name: lag for name, lag in found.lag_seconds.items() if lag > aside.LAG_SECONDS}
    if late:
        problems.append(f"{max(late.values()):.0f} s behind: {', '.join(sorted(late))}")
    yield Part("followers", "; ".join(problems), needed=False)


@cache
def _redis_client(url: str) -> "redis.Redis":
    """Return the health thread's own Redis client; a new one a second would leak memory."""
    return redis.Redis.from_url(
        url, socket_connect_timeout=0.5, socket_timeout=0.5, max_connections=4
    )


def _or_none(ask: Callable[..., _T]) -> _T | None:
    """Return a query's result; ``None`` if the database fails, which another part reports."""
    try:
        return ask(patience=_STATEMENT_SECONDS)
    except Error:
        connection.close()
        return None


def _replica() -> Iterator[Part]:
    """Return whether the replica answers reads, if there is one. Queries nothing."""
    if settings.READS_FROM_REPLICA and replica.standing.looked(_STATEMENT_SECONDS):
        yield Part("replica", replica.standing.problem, needed=False)


def _configuration() -> Iterator[Part]:
    """Return whether the scheduler can use the configuration; needed by at least some profile.

    Queries once.
    """
    use = _or_none(progress.configuration_use)
    if use is None:
        return
    yield Part("configuration", use.in_words, needed=not use.is_usable)


def _decisions() -> Iterator[Part]:
    """Return whether repeated decisions had the same results (`queries.decision_checks`).

    Queries once.
    """
    problem = _or_none(decision_checks.problem)
    if problem is None:
        return
    yield Part("decisions", problem, needed=False)


def _redis() -> Iterator[Part]:
    """Return whether Redis answers; without it only waits are longer."""
    problem = ""
    try:
        _redis_client(settings.REDIS_URL).ping()
    except (redis.RedisError, OSError) as error:
        problem = f"does not answer ({type(error).__name__}); waits are longer without it"
    yield Part("redis", problem, needed=False)


def _disk() -> Iterator[Part]:
    """Return whether the disk has room for writes, if known. Reads only the disk.

    Without room the service stays ready: behind a proxy that checks readiness, deletions must pass,
    since they make room.
    """
    problem = ""
    try:
        room.require()
    except errors.InsufficientStorage as error:
        problem = error.message
    if not problem and (refused := errors.last_refusal_for_room(_FULL_SECONDS)):
        problem = refused
    yield Part("disk", problem, needed=False)


def _advisor() -> Iterator[Part]:
    """Return whether an advisor answers; pods are placed without one. Asks Redis.

    An advisor that cannot read the database sends no heartbeat, so then, which one query finds out,
    it is unknown whether any runs.
    """
    if settings.SERVES:  # another process answers its own questions
        problem = advisor.problem()
        if problem == advisor.NOT_RUNNING and _or_none(decision_checks.problem) is None:
            problem = health_texts.UNREAD
        yield Part("advisor", problem, needed=False)


CHECKS: Final[list[Callable[[], Iterator[Part]]]] = [
    _needed,
    _followers,
    _configuration,
    _decisions,
    _disk,
    _redis,
    _replica,
    _advisor,
]
_WITHOUT_DATABASE: Final = (_disk, _redis, _replica)


def run_check(check: Callable[[], Iterator[Part]]) -> list[Part]:
    """Return the parts of a check, as they are now. May query, or ask Redis."""
    try:
        return list(check())
    except Exception as error:
        logger.exception("health_check_failed")
        return [Part(check.__name__.strip("_"), f"cannot tell ({type(error).__name__})")]


# --- the thread that looks -----------------------------------------------------------------------


class _Lookout:
    """The thread that checks all parts, and its last results."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._every: float | None = None
        self._is_asked = False
        self._asked_at = time.monotonic()
        self._began_at = 0.0
        """When the last finished look began."""
        self._needed_at = 0.0
        """When the last finished look at the needed parts began."""
        self._waits_since: float | None = None
        """Since when the thread waits for an answer of the database; None while it does not ask."""
        self._asked_database_at = 0.0
        """When the last check that asks the database began."""
        self._is_away = False
        """The last check that asked the database got no answer."""
        self._parts: list[Part] = []

    def start(self, every: float | None = None) -> None:
        """Start the thread, once; it checks on request, and every ``every`` seconds."""
        with self._changed:
            self._every = every or self._every
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="health", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """End the thread; the next request starts another."""
        with self._changed:
            self._thread = None
            self._changed.notify_all()

    def _run(self) -> None:
        others: list[Part] = []
        while True:
            with self._changed:
                self._is_asked = False
                if self._thread is not threading.current_thread():
                    break
            began = time.monotonic()
            needed = self._asking_database(CHECKS[0])
            with self._changed:
                self._needed_at = began
                self._parts = [Part("web"), *needed, *others]
            others = []
            for check in CHECKS[1:]:
                if check in _WITHOUT_DATABASE:
                    others += run_check(check)
                elif not self._is_away:  # else it would wait equally long
                    others += self._asking_database(check)
            if self._every is None:
                connection.close()
            with self._changed:
                self._began_at, self._parts = began, [Part("web"), *needed, *others]
                self._changed.notify_all()
                pause = self._every and max(0.0, self._pause() - (time.monotonic() - began))
                self._changed.wait_for(
                    lambda: self._is_asked or self._thread is not threading.current_thread(), pause
                )
        connection.close()

    def _asking_database(self, check: Callable[[], Iterator[Part]]) -> list[Part]:
        """Run a check, and note whether the database answered; a failed one closes its session."""
        self._asked_database_at = time.monotonic()
        self._waits_since = self._waits_since or self._asked_database_at
        found = run_check(check)
        self._is_away = connection.connection is None
        if not self._is_away:
            self._waits_since = None
        return found

    def _pause(self) -> float:
        seldom = time.monotonic() - self._asked_at > _ASKED_LATELY_SECONDS
        return _SELDOM_SECONDS if seldom else self._every or 0.0

    def latest(self) -> list[Part]:
        """Return the last results without waiting, even if the checks hang."""
        self.start(_EVERY_SECONDS)
        now = time.monotonic()
        with self._changed:
            parts, age, since = self._parts, now - self._needed_at, self._waits_since
            may_be_old = _TOO_OLD_SECONDS
            if now - self._asked_at > _ASKED_LATELY_SECONDS:  # from now on it is checked regularly
                may_be_old += _SELDOM_SECONDS
                self._is_asked = True
                self._changed.notify_all()
            self._asked_at = now
        if age <= may_be_old:
            is_told = any(part.name == "database" and part.problem for part in parts)
            if is_told or not self.away_since():
                return parts
            return [Part("web"), Part("database", health_texts.NO_ANSWER)]
        if not parts:
            return [Part("web"), Part("database", "was not asked yet")]
        if since is None or now - since < _EVERY_SECONDS:
            return [Part("web", f"has not looked for {age:.0f} s: it gets no processor")]
        return [Part("web"), Part("database", f"{health_texts.NO_ANSWER} for {now - since:.0f} s")]

    def look(self) -> None:
        """Have the thread check now, without waiting for it."""
        self.start(_EVERY_SECONDS)
        with self._changed:
            self._is_asked, self._asked_at = True, time.monotonic()
            self._changed.notify_all()

    def away_since(self) -> float:
        """Return the monotonic time since when the database does not answer; 0 if it does."""
        since = self._waits_since or 0.0
        is_known = self._is_away or time.monotonic() - since > _STATEMENT_SECONDS
        # A database that answers other threads meanwhile is only slow.
        return since if is_known and last_answer() < self._asked_database_at else 0.0

    def ask(self, seconds: float) -> list[Part]:
        """Have the thread check; return the results, or the last ones if that takes too long."""
        self.start()
        now = time.monotonic()
        with self._changed:
            self._is_asked, self._asked_at = True, now
            self._changed.notify_all()
            if self._changed.wait_for(lambda: self._began_at >= now, seconds):
                return self._parts
        return [Part("web"), Part("database", f"{health_texts.NO_ANSWER} within {seconds:.0f} s")]


_lookout = _Lookout()


def watch() -> None:
    """Start the checks; a web process does so when it starts."""
    global _BEGAN  # noqa: PLW0603  # the module may have been imported by this process's parent
    _BEGAN = time.monotonic()
    _lookout.start(_EVERY_SECONDS)


def end() -> None:
    """Stop the checks; a web process does so when it stops."""
    _lookout.end()


def latest() -> list[Part]:
    """Return every part as it was found last; never waits."""
    return _lookout.latest()


def troubles() -> list[health_texts.Trouble]:
    """Return the failing parts, by the last results; never waits.

    Empty in processes that do not serve (commands, tests).
    """
    return health_texts.troubles(latest()) if settings.SERVES else []


def away_since() -> float:
    """Return since when the database has not answered, monotonic, 0 while it does; never waits."""
    return _lookout.away_since() if settings.SERVES else 0.0


def look() -> None:
    """Have the database checked now, since a session failed; never waits."""
    if settings.SERVES:
        _lookout.look()


def in_pages(request: HttpRequest) -> dict[str, Any]:
    """Return the service's health for every template (``context_processors``)."""
    return {"service_troubles": troubles}


def problems() -> list[Part]:
    """Return every part as it is now; waits ``ANSWER_SECONDS`` at most."""
    return _lookout.ask(ANSWER_SECONDS)


def alive(request: HttpRequest) -> HttpResponse:
    """Answer that this process serves requests."""
    endpoint = request.path_info.strip("/")
    parts = health_texts.alive(latest())
    return _answer(*health_texts.of(endpoint, parts, request.META["QUERY_STRING"]))


def ready(request: HttpRequest, look: Callable[[], list[Part]] = problems) -> HttpResponse:
    """Answer 200 if all needed parts work, else 503; the text names every part."""
    return _answer(*health_texts.of("readyz", look(), request.META.get("QUERY_STRING", "")))


def single(request: HttpRequest, endpoint: str, name: str) -> HttpResponse:
    """Answer whether one part works, for users with the right to get the path."""
    try:
        if request.method != "GET":
            raise errors.MethodNotAllowed(errors.WRONG_METHOD)
        auth.require(auth.user_of(request.META), Attributes(verb="get", path=request.path_info))
    except Exception as error:  # noqa: BLE001  # every failure becomes a Status
        return failures.answer_to(request, error)
    parts = problems() if endpoint == "readyz" else health_texts.alive(latest())
    found = health_texts.of_one(parts, name)
    if found is None:
        raise Http404
    return _answer(*found)


def _answer(status: int, text: str) -> HttpResponse:
    response = HttpResponse(text, content_type=_TEXT, status=status)
    response["Cache-Control"] = "no-cache, private"
    response._has_been_logged = True  # type: ignore[attr-defined]  # Django would call 503 an error
    return response

"""Sends questions to advisors: processes that follow the change log and answer questions about it.

``ask`` is for web processes, the console and controllers. It imports neither NumPy nor the engine.
A question and its answer go through Redis::

    stowage:question:ID    the question; it expires at its deadline
    stowage:questions      ids in the order asked
    stowage:questions:long users with long questions, in the order of their turns
    stowage:questions:of:WHO   the ids of a user's long questions, in the order asked
    stowage:asked:ID       which advisor works on it
    stowage:answer:ID      the answer, a list of one entry, for which the asker waits
    stowage:advisor:NAME   an advisor's sign of life, with expiry; stowage:advisors that of any
    stowage:progress:HASH  the progress of a long question, by a hash of its document

Users with long questions take turns, and an advisor reserves a thread for short ones: nobody waits
for all questions of one user (``asking``).

Questions change nothing, so a lost one is sent again: the advisor was killed meanwhile (its sign of
life expires), or Redis was emptied. After a second loss, after the deadline, while no advisor is
there, and while Redis does not answer, the asker gets ``ServiceUnavailable`` with the seconds after
which to try again. No wait is longer than the deadline.

Questions are not Celery messages, although the advisor is a Celery worker: a worker takes messages
from the queue before it has a thread for them, and those of a killed worker are not handed to
another one for an hour. Here a thread takes a question when it begins with it.

A process that does not serve (``settings.SERVES``: a command, a test) answers its own questions.
"""

import hashlib
import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

import msgspec
import redis
from django.conf import settings

from clusterstate.actions.writing import transactions
from clusterstate.objects.values.errors import (
    ServiceUnavailable,
    StatusError,
    TooManyRequests,
)
from scheduling.answers import registry

SHORT: Final = "stowage:questions"
LONG: Final = "stowage:questions:long"
ANYBODY: Final = "stowage:advisors"
NOT_RUNNING: Final = "not running"
_OF: Final = "stowage:questions:of:"
_QUESTION: Final = "stowage:question:"
_ASKED: Final = "stowage:asked:"
_ANSWER: Final = "stowage:answer:"
_ADVISOR: Final = "stowage:advisor:"
_PROGRESS: Final = "stowage:progress:"
_END: Final = "stowage:end:"

MOST_WAITING: Final = 1000
"""The most waiting questions in each list; further ones are refused with a time to try again."""
_TELL_SECONDS: Final = 0.25
"""The least number of seconds between two reports of progress."""
_PROGRESS_KEPT_SECONDS: Final = 10
_LIST_SECONDS: Final = 300
"""Seconds after its last addition when a list expires: no question waits longer."""
START_SECONDS: Final = 5.0
"""Seconds that a question waits for an advisor to start: a killed one is restarted."""
TAKE_SECONDS: Final = 5.0
"""Seconds that an advisor's thread waits for a question at a time."""
LOOK_SECONDS: Final = 0.5
"""Seconds between two checks whether a question got lost."""
_PASSED_SECONDS = 0.05
_MARGIN_SECONDS = 2.0
"""Seconds that the asker waits beyond the time for the computation of the answer."""
_FINE, _WRONG = b"+", b"-"

NO_ADVISOR = (
    "no advisor is running: start one with `python -m scheduling worker --queue advisor"
    " --name advisor` (STOWAGE_PROCESS=advisor), or set STOWAGE_ADVISORS above 0"
)
_LOST = "the advisor ended while it worked on the answer"
_LATE = "the advisors are busy: no advisor gave an answer in time"
_REDIS = "Redis does not answer, and questions go through it"


class _Failure(msgspec.Struct):
    code: int
    reason: str
    message: str
    details: dict[str, Any]


class PendingQuestion(msgspec.Struct):
    """A question to an advisor: its name and the document."""

    name: str
    document: msgspec.Raw


class NoAnswer(ServiceUnavailable):
    """Advisors run, but none answered before the deadline."""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a question: the present step in words, and the share done, 0 to 1."""

    doing: str
    share: float


_asker: ContextVar[str] = ContextVar("asker", default="")


def asking(name: str) -> None:
    """Set the user on whose behalf this thread asks; users take turns with long questions."""
    _asker.set(name)


@cache
def client(seconds: float = 2.0) -> "redis.Redis":
    """Return this process's Redis client; a wait on it must be shorter than ``seconds``."""
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=0.5, socket_timeout=seconds
    )


def ask(name: str, document: object, *, deadline: float | None = None) -> Any:
    """Return the answer to a question as a JSON value.

    Args:
        name: one of ``registry.QUESTIONS``.
        document: a value that JSON can express.
        deadline: seconds to wait; by default as long as the question may take.

    Raises:
        ServiceUnavailable: no advisor answered in time (``NoAnswer``), or Redis does not.
        TooManyRequests: too many questions wait already.
        StatusError: the question was refused.
    """
    return msgspec.json.decode(ask_text(name, document, deadline=deadline))


def ask_text(name: str, document: object, *, deadline: float | None = None) -> bytes:
    """Return the answer as JSON text; see ``ask``."""
    if transactions.is_rehearsal():
        raise RuntimeError("an advisor must not be asked inside the transaction of a dry run")
    question = registry.QUESTIONS[name]
    seconds = question.seconds if deadline is None else min(deadline, question.seconds)
    until = time.monotonic() + seconds
    if not settings.SERVES:
        return registry.answer(name, document, until=until)
    posed = msgspec.json.encode({"name": name, "document": document})
    try:
        return _Asking(LONG if question.long else SHORT, posed, until).run()
    except (redis.RedisError, OSError) as error:
        raise ServiceUnavailable(
            f"{_REDIS} ({type(error).__name__})", {"retryAfterSeconds": 2}
        ) from error


class _Asking:
    """Sends one question and waits for its answer until the deadline."""

    def __init__(self, queue: str, posed: bytes, until: float) -> None:
        self._asker = _asker.get() if queue == LONG else ""
        self._queue = _OF + self._asker if queue == LONG else queue
        self._takes_turns = queue == LONG
        self._posed, self._until = posed, until
        self._id = ""
        self._lost = 0

    def run(self) -> bytes:
        alone_since = None if self._pose() else time.monotonic()
        while (seconds := self._until + _MARGIN_SECONDS - time.monotonic()) > 0:
            # An idle server looks at such time-outs twice a second; an answer comes at once.
            got: Any = client().blpop([_ANSWER + self._id], min(max(seconds, 0.05), LOOK_SECONDS))
            if got is not None:
                return _read(got[1])
            if client().exists(ANYBODY):
                alone_since = None
            else:
                alone_since = alone_since or time.monotonic()
                if time.monotonic() - alone_since >= START_SECONDS:
                    self._take_back()
                    raise ServiceUnavailable(NO_ADVISOR, {"retryAfterSeconds": 5})
            if self._is_lost():
                self._lost += 1
                if self._lost > 1:
                    raise ServiceUnavailable(_LOST, {"retryAfterSeconds": 1})
                self._pose()
        self._take_back()
        raise NoAnswer(_LATE, {"retryAfterSeconds": 1})

    def _pose(self) -> bool:
        """Add the question to its list in Redis; return whether an advisor runs."""
        self._id = secrets.token_hex(12)
        milliseconds = max(int((self._until - time.monotonic()) * 1000), 1)
        pipeline = client().pipeline(transaction=False)
        pipeline.set(_QUESTION + self._id, self._posed, px=milliseconds)
        pipeline.rpush(self._queue, self._id)
        pipeline.exists(ANYBODY)
        pipeline.expire(self._queue, _LIST_SECONDS)
        if self._takes_turns:
            wait_for_turn(pipeline, self._asker)
        _, waiting, advised, *_ = pipeline.execute()
        if waiting > MOST_WAITING:
            self._take_back()
            raise TooManyRequests(
                "too many questions wait for an advisor", {"retryAfterSeconds": 1}
            )
        return bool(advised)

    def _take_back(self) -> None:
        pipeline = client().pipeline(transaction=False)
        pipeline.delete(_QUESTION + self._id)
        pipeline.lrem(self._queue, 1, self._id)
        pipeline.execute()

    def _is_lost(self) -> bool:
        """Return whether the question is neither in a list nor with a running advisor."""
        advisor: Any = client().get(_ASKED + self._id)
        if advisor is not None:
            return not client().exists(_ADVISOR + advisor.decode())
        if self._until - time.monotonic() < LOOK_SECONDS:
            return False
        pipeline = client().pipeline(transaction=False)
        pipeline.lpos(self._queue, self._id)
        # An advisor that took the question meanwhile has noted that, or answered already.
        pipeline.get(_ASKED + self._id)
        pipeline.exists(_ANSWER + self._id)
        if self._takes_turns:
            pipeline.lpos(LONG, self._asker)
        place, taker, answered, *turn = pipeline.execute()
        if place is not None and turn == [None]:  # an advisor was killed between two of its turns
            wait_for_turn(client(), self._asker)
        return place is None and taker is None and not answered


def _progress_key(name: str, document: object) -> str:
    text = msgspec.json.encode([name, document], order="deterministic")
    return _PROGRESS + hashlib.sha256(text).hexdigest()[:32]


def progress(name: str, document: object) -> Progress | None:
    """Return the progress of a question, ``None`` if no advisor has reported any lately.

    Askers of equal questions share the latest progress. Reads Redis once.
    """
    try:
        found: Any = client().get(_progress_key(name, document))
        return None if found is None else msgspec.json.decode(found, type=Progress)
    except (redis.RedisError, OSError, msgspec.MsgspecError):
        return None


def teller(name: str, document: object) -> Callable[[str, float], None]:
    """Return a function that publishes the progress of a question, at most four times a second.

    An answer never fails because its progress cannot be published.
    """
    key = _progress_key(name, document)
    told_at = float("-inf")

    def tell(doing: str, share: float) -> None:
        nonlocal told_at
        now = time.monotonic()
        if now - told_at < _TELL_SECONDS:
            return
        told_at = now
        with suppress(redis.RedisError, OSError):
            text = msgspec.json.encode(Progress(doing, share))
            client().set(key, text, ex=_PROGRESS_KEPT_SECONDS)

    return tell


def wait_for_turn(at: "redis.Redis", asker: str) -> None:
    """Move a user to the end of the order of turns, in which each user occurs once."""
    at.lrem(LONG, 0, asker)
    at.rpush(LONG, asker)
    at.expire(LONG, _LIST_SECONDS)


def _read(answer: bytes) -> bytes:
    """Return the JSON text of an answer.

    Raises:
        StatusError: the answer is an error.
    """
    if answer[:1] == _FINE:
        return answer[1:]
    failure = msgspec.json.decode(answer[1:], type=_Failure)
    raise _error(failure)


def _error(failure: _Failure) -> StatusError:
    """Return the error that the advisor sent, as the same exception type."""
    kinds = {
        (kind.code, kind.reason): kind
        for kind in StatusError.__subclasses__()
        if kind.__module__ == StatusError.__module__
    }
    kind = kinds.get((failure.code, failure.reason), StatusError)
    error = kind.__new__(kind)
    StatusError.__init__(error, failure.message, failure.details)
    return error


# --- the advisor's side --------------------------------------------------------------------------


class Turns:
    """Limits how many long questions of one user an advisor answers at the same time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    def begin(self, asker: str) -> bool:
        """Count a question; return False if its user has reached the limit."""
        with self._lock:
            if self._running[asker] >= self._most:
                return False
            self._running[asker] += 1
            return True

    def end(self, asker: str) -> None:
        """Note that a question of this user is answered."""
        with self._lock:
            self._running[asker] -= 1
            if not self._running[asker]:
                del self._running[asker]


def _refuse_unreadable() -> bytes:
    raise ServiceUnavailable(
        "this advisor is of another version of Stowage and cannot read the question",
        {"retryAfterSeconds": 5},
    )


class Desk:
    """Takes questions and sends answers, for one thread of an advisor."""

    def __init__(self, advisor: str, queues: "list[str]", turns: Turns | None = None) -> None:
        self._advisor, self._queues = advisor, queues
        self._turns = turns or Turns(most=1)
        self._asker: str | None = None

    def take(self) -> "tuple[str, PendingQuestion, float] | None":
        """Return id, question and seconds left; ``None`` if none came within ``TAKE_SECONDS``.

        Raises:
            redis.RedisError: Redis does not answer.
        """
        self.done()
        end = _END + self._advisor
        got: Any = client(TAKE_SECONDS + 2.0).blpop([*self._queues, end], TAKE_SECONDS)
        if got is None or got[0] == end.encode():
            return None
        id_ = self._of(got[1].decode()) if got[0] == LONG.encode() else got[1].decode()
        if not id_:
            return None
        pipeline = client().pipeline(transaction=False)
        pipeline.get(_QUESTION + id_)
        pipeline.pttl(_QUESTION + id_)
        pipeline.set(_ASKED + id_, self._advisor, ex=120)
        posed, milliseconds, _ = pipeline.execute()
        if posed is None or milliseconds <= 0:  # its deadline has passed, or it was taken back
            client().delete(_ASKED + id_)
            return None
        try:
            return id_, msgspec.json.decode(posed, type=PendingQuestion), milliseconds / 1000
        except msgspec.MsgspecError:
            self.give(id_, _refuse_unreadable)
            return None

    def _of(self, asker: str) -> str:
        """Return the id of a user's first question; empty without one or if the limit is reached.

        A user with more questions goes to the end of the order of turns.
        """
        if not self._turns.begin(asker):
            wait_for_turn(client(), asker)
            time.sleep(_PASSED_SECONDS)  # the next read might return this user again
            return ""
        self._asker = asker
        pipeline = client().pipeline(transaction=False)
        pipeline.lpop(_OF + asker)
        pipeline.llen(_OF + asker)
        id_, more = pipeline.execute()
        if more:
            wait_for_turn(client(), asker)
        return "" if id_ is None else id_.decode()

    def done(self) -> None:
        """Note that this thread's question is no longer worked on."""
        if self._asker is not None:
            self._turns.end(self._asker)
            self._asker = None

    def give(self, id_: str, make: Callable[[], bytes]) -> None:
        """Send the asker the answer that ``make`` returns, or the error that it raises.

        Raises:
            redis.RedisError: Redis does not answer.
        """
        try:
            text = _FINE + make()
        except StatusError as error:
            failure = _Failure(error.code, error.reason, error.message, error.details)
            text = _WRONG + msgspec.json.encode(failure)
        pipeline = client().pipeline(transaction=False)
        pipeline.rpush(_ANSWER + id_, text)
        pipeline.expire(_ANSWER + id_, 10)
        pipeline.delete(_QUESTION + id_, _ASKED + id_)
        pipeline.execute()


class Presence:
    """An advisor's sign of life in Redis; the loop over the change log renews it."""

    def __init__(self, seconds: float = 5.0) -> None:
        self.name = secrets.token_hex(8)
        self._seconds = seconds
        self._told_at = -seconds
        self._lock = threading.Lock()

    def tell(self) -> None:
        """Renew the sign of life, once a second at most.

        Raises:
            redis.RedisError: Redis does not answer.
        """
        if time.monotonic() - self._told_at < self._seconds / 5:
            return
        milliseconds = int(self._seconds * 1000)
        pipeline = client().pipeline(transaction=False)
        pipeline.set(_ADVISOR + self.name, b"", px=milliseconds)
        pipeline.set(ANYBODY, self.name, px=milliseconds)
        pipeline.execute()
        self._told_at = time.monotonic()

    def end(self, threads: int = 0) -> None:
        """Remove this advisor's sign of life, and stop its threads from waiting for questions.

        Other advisors renew the common sign.

        Raises:
            redis.RedisError: Redis does not answer.
        """
        pipeline = client().pipeline(transaction=False)
        pipeline.delete(_ADVISOR + self.name)
        if threads:
            pipeline.rpush(_END + self.name, *[b""] * threads)
            pipeline.expire(_END + self.name, math.ceil(TAKE_SECONDS))
        pipeline.execute()


def problem() -> str:
    """Return why questions cannot be answered, empty if they can; reads Redis."""
    try:
        return "" if client().exists(ANYBODY) else NOT_RUNNING
    except (redis.RedisError, OSError):
        return "cannot be asked while Redis does not answer"

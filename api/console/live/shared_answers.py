"""Answers of an advisor that open pages share: each is asked for every few seconds at most.

While pods change, every open page requests its part again and again, and an advisor needs a tenth
of a second for such a question. So all who may see an answer share it: until something changes, or
else for ``EVERY_SECONDS``; an error for ``_LONGEST_SECONDS`` in any case. A page gets the age of
its answer, and whether it is behind, so that it asks once more when that time is over.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from clusterstate.change_log import changes
from clusterstate.objects.values.errors import StatusError
from clusterstate.processes import memory
from scheduling.answers import advisor

EVERY_SECONDS: Final = 3.0
"""For this many seconds an answer is used although something has changed since."""
_LONGEST_SECONDS: Final = 15.0
"""The longest, also if nothing has changed: waiting pods come to the end of their backoff."""


class Ask(Protocol):
    """Asks an advisor the question of this name."""

    def __call__(self, name: str, document: object, *, deadline: float) -> Any:
        """Return the answer. Raises StatusError."""


class Answer(msgspec.Struct, frozen=True):
    """An advisor's answer to a document; ``age`` in seconds.

    ``is_behind``: something has changed since.
    """

    document: Any
    value: Any
    age: float
    is_behind: bool


class _CachedAnswer(msgspec.Struct, frozen=True):
    """An answer, or the error instead; ``mark``: the watermark from before it was asked for."""

    mark: int
    at: float
    document: Any
    value: Any
    error: StatusError | None

    def answer_at(self, mark: int, now: float) -> Answer:
        if self.error is not None:
            raise self.error.with_traceback(None)
        return Answer(self.document, self.value, now - self.at, self.mark != mark)

    def serves(self, mark: int, now: float) -> bool:
        # A question that busy advisors could not answer is not asked again at every change.
        keeps = self.mark == mark or self.error is not None
        limit = _LONGEST_SECONDS if keeps else EVERY_SECONDS
        return now - self.at < limit


class SharedQuestion:
    """One question of a page, and its last answer. Thread-safe.

    Args:
        name: of the advisor's question.
        deadline: seconds until the answer must be there.
        ask: asks an advisor.
        mark: returns the revision up to which the log is complete.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        deadline: float,
        ask: Ask = advisor.ask,
        mark: Callable[[], int] = changes.watermark,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._deadline = name, deadline
        self._put, self._mark, self._clock = ask, mark, clock
        self._asking = threading.Lock()
        self._cached: _CachedAnswer | None = None
        memory.when_replaced(self.forget)

    def forget(self) -> None:
        """Drop the cached answer."""
        self._cached = None

    def answer(self, document: Any) -> Answer:
        """Return the answer to ``document``, or one to an earlier document, a few seconds old.

        Queries once; may ask an advisor.

        Raises:
            StatusError: the advisor's error, at most ``_LONGEST_SECONDS`` old.
        """
        mark = self._mark()
        cached = self._cached
        if cached is not None and cached.serves(mark, self._clock()):
            return cached.answer_at(mark, self._clock())
        # One thread asks; others with a slightly old answer use that meanwhile.
        if not self._asking.acquire(blocking=cached is None):
            assert cached is not None
            return cached.answer_at(mark, self._clock())
        try:
            cached = self._cached
            if cached is None or not cached.serves(mark, self._clock()):
                cached = self._cached = self._ask(document, mark)
        finally:
            self._asking.release()
        return cached.answer_at(mark, self._clock())

    def _ask(self, document: Any, mark: int) -> _CachedAnswer:
        value: Any = None
        problem = None
        try:
            value = self._put(self._name, document, deadline=self._deadline)
        except StatusError as error:
            problem = error
        return _CachedAnswer(mark, self._clock(), document, value, problem)

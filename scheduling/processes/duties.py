"""What the worker does for all its life: what looks once a second, operations, and the past.

Here are the duties and how often each is due; ``loops`` has the loops that call them. What needs
NumPy and the plugins is imported when there is something to do for it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Final

import structlog
from django.conf import settings

from clusterstate import collector, heartbeats, priority, reservations, sql, steady_clock
from clusterstate.actions import (
    audit_log,
    brakes,
    decisions,
    history,
    housekeeping,
    past,
    plans,
    progress,
    seals,
    webhooks,
)
from clusterstate.queries.eviction_timers import unforeseen
from scheduling.controllers import manager, operations
from scheduling.controllers.nodes import lifecycle
from scheduling.controllers.webhooks import delivery
from scheduling.processes.loop import ATTEMPT_SECONDS, AWAY, Loop, hang_up

logger = structlog.get_logger(__name__)

_LOOK_SECONDS = 1.0
_EARLY = 0.9
"""A duty of a second is done at each pause of a second, however short that came out."""
_TRIM_SECONDS = 60.0
_REST = 4.0
"""How many times as long as packing a chunk took, the next one waits."""
_TELLING_AT_ONCE = 4
"""Webhooks that are delivered for at the same time."""
_NOTHING_TO_KEEP_SECONDS = 15.0
_FORESEE_AHEAD = timedelta(seconds=30)


def attend(loop: Loop) -> None:
    """Look once a second at what there is for the controllers, and for binding plugins."""
    reporter = progress.Reporter(loop.name)
    binders = _Binders(loop)
    threads = ThreadPoolExecutor(1, thread_name_prefix="worker")
    foreseeing = threading.Lock()
    telling = ThreadPoolExecutor(_TELLING_AT_ONCE, thread_name_prefix="webhook")
    told: set[int] = set()
    duties = (
        _Duty(_LOOK_SECONDS, lambda: manager.run(steady_clock.now(), progress=loop.busy)),
        _Duty(settings.NODE_MONITOR_PERIOD_SECONDS, lambda: lifecycle.run(steady_clock.now())),
        _Duty(_LOOK_SECONDS, binders.look),
        _Duty(_LOOK_SECONDS, lambda: _foresee(threads, foreseeing)),
        _Duty(_LOOK_SECONDS, lambda: _tell(telling, told)),
        _Duty(_TRIM_SECONDS, trim),
    )
    pause = min(_LOOK_SECONDS, settings.NODE_MONITOR_PERIOD_SECONDS)
    try:
        while not loop.stopping():
            failed = [duty for duty in duties if not duty.attend(loop)]
            if len(failed) < len(duties):
                reporter.note()
            heartbeats.beat(loop.name)
            loop.pause(pause)
    finally:
        binders.end()
        threads.shutdown(wait=False, cancel_futures=True)
        telling.shutdown(wait=False, cancel_futures=True)  # a receiver may take its time


class _Duty:
    """Something to do every so many seconds; that it fails stops none of the others."""

    def __init__(self, seconds: float, do: Callable[[], object]) -> None:
        self._seconds = seconds
        self._do = do
        self._due = 0.0

    def attend(self, loop: Loop) -> bool:
        """Do it if it is due; False if that failed. It is due again when its time has passed.

        Raises:
            OperationalError, InterfaceError: the database is away.
        """
        if time.monotonic() < self._due:
            return True
        self._due = time.monotonic() + self._seconds * _EARLY
        loop.busy()
        try:
            sql.drop_dead_connection()
            self._do()
        except AWAY:
            raise  # the others would fail, too
        except Exception:
            logger.exception("controllers_failed")
            hang_up()
            return False
        return True


def operate(loop: Loop) -> None:
    """Carry out plans that were applied, one round after the other while there is something to do.

    Beside the controllers: these make the pods anew that an operation sends away, and neither waits
    for the other.
    """
    while not loop.stopping():
        loop.busy()
        done = 0
        try:
            sql.drop_dead_connection()
            done = operations.run(steady_clock.now, stopping=loop.stopping)
        except AWAY:
            raise
        except Exception:
            logger.exception("operations_failed")
            hang_up()
        heartbeats.beat(loop.name, _LOOK_SECONDS + ATTEMPT_SECONDS)
        if not done:
            loop.pause(_LOOK_SECONDS)


def remember(loop: Loop) -> None:
    """Pack the past and seal decisions, with a fifth of one processor at most; each by itself.

    Nothing waits for them, so they yield to whoever wants the processor.
    """
    priority.give_way()
    while not loop.stopping():
        loop.busy()
        started = time.monotonic()
        done = 0
        for keep in (seals.seal, _pack):
            try:
                done += keep()
            except AWAY:
                raise  # the other would fail, too
            except Exception:
                logger.exception("past_not_kept", what=keep.__module__)
                hang_up()
        rest = _REST * (time.monotonic() - started) if done else _NOTHING_TO_KEEP_SECONDS
        rest = max(rest, _LOOK_SECONDS)
        heartbeats.beat(loop.name, rest + ATTEMPT_SECONDS)
        loop.pause(rest)


def _pack() -> int:
    """Pack the next chunk of the past, if it is kept; return how many changes that were."""
    return past.pack(now=steady_clock.now()).changes if past.is_kept() else 0


class _Binders:
    """Threads for what binding plugins have to do; they come when there is something for them."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._threads: ThreadPoolExecutor | None = None

    def look(self) -> None:
        """Have one more thread do it, unless all of them are at it."""
        if not reservations.with_work():
            return
        from scheduling.worker import binding_cycle  # with NumPy and the plugins

        if self._threads is None:
            self._threads = ThreadPoolExecutor(binding_cycle.AT_ONCE, thread_name_prefix="binding")
        if binding_cycle.may_begin():
            self._threads.submit(
                _on_thread, lambda: binding_cycle.run(stopping=self._loop.stopping)
            )

    def end(self) -> None:
        """Let the threads end by themselves: a plugin may take its time."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _tell(threads: ThreadPoolExecutor, busy: set[int]) -> None:
    """Have threads deliver for the webhooks that have something to do; one for each at a time."""
    for number in delivery.due(steady_clock.now()):
        if number not in busy:
            busy.add(number)
            threads.submit(
                _on_thread, partial(delivery.deliver, number), partial(busy.discard, number)
            )


def _foresee(threads: ThreadPoolExecutor, busy: threading.Lock) -> None:
    """Have a thread work out where pods will go that leave soon for node labels."""
    if unforeseen(steady_clock.now() + _FORESEE_AHEAD, limit=1) and busy.acquire(blocking=False):
        threads.submit(_on_thread, _foresee_all, busy.release)


def _foresee_all() -> None:
    from scheduling.answers import questions  # NumPy, which comes when it is needed

    questions.foresee(steady_clock.now())


def _on_thread(do: Callable[[], object], after: Callable[[], object] = lambda: None) -> None:
    """Do it; what fails is tried again when the loop finds it again."""
    try:
        sql.drop_dead_connection()
        do()
    except Exception:
        logger.exception("worker_thread_failed")
        hang_up()
    finally:
        after()


_CLASSES_EVERY: Final = 10
"""Minutes between two looks for scheduling classes that nothing uses."""


_DROPPED: Final[Sequence[Callable[..., object]]] = (
    history.trim,
    past.trim,
    decisions.trim,
    housekeeping.drop_old_access,
    plans.trim,
    brakes.trim,
    audit_log.trim,
    webhooks.trim,
    housekeeping.drop_old_actors,
    housekeeping.drop_leftovers,
)


def trim() -> None:
    """Drop changes, documents, events, decisions and the past that are older than what is kept.

    And the memory that a burst left in this process. One table that cannot be trimmed does not let
    the others grow; its error is raised at the end.
    """
    failed: list[Exception] = []
    for drop in _DROPPED:
        try:
            drop(now=steady_clock.now())
        except AWAY:
            raise  # the others would fail, too
        except Exception as error:
            logger.exception("trim_failed", what=f"{drop.__module__}.{drop.__name__}")
            failed.append(error)
    if steady_clock.now().minute % _CLASSES_EVERY == 0:  # it reads all decisions
        housekeeping.drop_unused_classes()
    collector.give_back()
    if failed:
        raise failed[0]
